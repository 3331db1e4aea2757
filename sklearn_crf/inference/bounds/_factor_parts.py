"""Splits of the scores of a factor graph among parts without cycles, and the bounds for given splits."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import entr

from sklearn_crf._numbers import offsets_from_lengths
from sklearn_crf._threads import checkpoint
from sklearn_crf.graphs import ComponentTrees, SpanningTrees
from sklearn_crf.inference._factor_forests import choose_factor_forests, find_steepest_forest
from sklearn_crf.inference._results import Infeasible, Marginals, convert_factor_marginals
from sklearn_crf.inference.bounds._edge_entropy import edge_shared_bound, nodes_of_edge_shares
from sklearn_crf.inference.bounds._shared_bound import (
    Averages,
    SharedBound,
    bound_rounding,
    compute_shared_bound,
    list_share_nodes,
    make_infeasible_error,
)
from sklearn_crf.inference.messages._factor_layers import LayeredModel
from sklearn_crf.inference.messages._factor_messages import run_over_forest
from sklearn_crf.models import (
    FactorGraph,
    FactorStatistics,
    PairwiseModel,
    SmallFactors,
    compute_labeling_statistics,
    compute_score_terms,
    replace_scores,
)


class Layout(NamedTuple):
    """Parts of a factor graph: their factors with at least two nodes, and their copies of nodes.

    An entry is a pair of a part and one of its factors. A copy is a pair of a part and one of its nodes.
    """

    factors: np.ndarray  # (F,), indices of the factors with at least two nodes
    entry_part: np.ndarray  # (n_entries,), part of each entry
    entry_factor: np.ndarray  # (n_entries,), index in ``factors`` of each entry's factor
    copy_part: np.ndarray  # (n_copies,), part of each copy
    copy_node: np.ndarray  # (n_copies,), node of each copy
    weights: np.ndarray  # (n_parts,)


def lay_out_forests(model, forests, weights):
    """Return the layout whose parts are sets of factors, each with a copy of every node."""
    # forests: (n_parts, F) of bool
    n_parts, n_nodes = len(forests), model.n_nodes
    part, node = np.repeat(np.arange(n_parts), n_nodes), np.tile(np.arange(n_nodes), n_parts)
    entry_part, entry_factor = np.nonzero(forests)
    return Layout(list_large_factors(model), entry_part, entry_factor, part, node, weights)


def lay_out_factors(model, entropy):
    """Return the layout whose parts are all factors and the nodes without factors (for "factors", all nodes)."""
    factors = list_large_factors(model)
    n_factors = len(factors)
    lengths = model.arity[factors]
    owner = np.repeat(np.arange(n_factors), lengths)
    node = model.scope[
        np.repeat(model.scope_ptr[factors], lengths)
        + np.arange(len(owner))
        - np.repeat(offsets_from_lengths(lengths)[:-1], lengths)
    ]
    alone = np.arange(model.n_nodes)
    if entropy == "trivial":
        alone = np.setdiff1d(alone, node)
    parts = np.concatenate((owner, n_factors + np.arange(len(alone))))
    entry = np.arange(n_factors)
    return Layout(factors, entry, entry, parts, np.concatenate((node, alone)), np.ones(n_factors + len(alone)))


def list_large_factors(model):
    """Return the indices of the factors with at least two nodes, sorted by number of nodes."""
    by_arity = np.argsort(model.arity, kind="stable")
    return by_arity[model.arity[by_arity] >= 2]


class FactorParts:
    r"""Parts of a factor graph that have no cycles, among which the scores of the graph are divided.

    .. math::
        \log Z(\theta) \le \sum_P c_P \log Z_P(\theta(P)), \qquad \sum_P c_P \, \theta(P) = \theta

    With the tree-reweighted entropy, parts are sets of factors without cycles, weighted by their probabilities. With
    the trivial entropies, parts are single factors (and nodes) of weight one. Every part has its own copies of nodes.
    The scores of a factor are divided evenly among the parts that contain it. The scores of a node deviate from even
    shares by

    .. math:: x_P = \sqrt{c_P} \, (\theta_s(P) - u_s / m_s), \qquad m_s = \sum_{P \ni s} c_P,

    as in :class:`NodeShares`. All parts form one factor graph without cycles, whose structure is prepared once and used
    for all models that only differ in their scores.
    """

    def __init__(self, model, layout):
        self.layout, self.n_columns = layout, model.n_columns
        self.copy_weight = layout.weights[layout.copy_part]
        self.size_of_nodes = np.bincount(layout.copy_node, self.copy_weight, model.n_nodes)
        self.probabilities = np.bincount(layout.entry_factor, layout.weights[layout.entry_part], len(layout.factors))
        self.scale = np.sqrt(self.copy_weight)
        self._sums = _make_sums(self.scale, layout.copy_node, model.n_nodes)
        self._small = SmallFactors(model)
        self._set_tables(model)
        self._layered = LayeredModel(self._build_union(model))

    @classmethod
    def of(cls, model: FactorGraph, entropy: str, trees: Any = "covering") -> "FactorParts":
        """Return the parts for an entropy by name, and for the given sets of factors if it is "trw"."""
        if entropy != "trw":
            return cls(model, lay_out_factors(model, entropy))
        forests = FactorForests.of(model, trees)
        return cls(model, lay_out_forests(model, forests.trees, forests.weights))

    @property
    def size(self):
        """Number of unknowns, the length of x."""
        return len(self.copy_weight) * self.n_columns

    @property
    def share_nodes(self):
        """Index of the node to which each unknown belongs, (size,)."""
        return np.repeat(self.layout.copy_node, self.n_columns)

    # Structure -----------------------------------------------------------------------------------------------------

    def _set_tables(self, model):
        """Build the tables of parts, one for each combination of a table, a fraction and a weight."""
        layout = self.layout
        table = model.table_id[layout.factors[layout.entry_factor]]
        keys = np.column_stack((table, self.probabilities[layout.entry_factor], layout.weights[layout.entry_part]))
        found, self._table_id = np.unique(keys, axis=0, return_inverse=True)
        self._table_id = self._table_id.ravel()
        self._table, self._share = found[:, 0].astype(np.int64), 1 / found[:, 1]
        sizes = np.diff(model.table_ptr)[self._table]
        self._ptr = offsets_from_lengths(sizes)
        self._cell = np.arange(self._ptr[-1]) + np.repeat(model.table_ptr[self._table] - self._ptr[:-1], sizes)
        self._share_of_cell = np.repeat(self._share, sizes)
        weight = found[:, 2] * self._share
        self._sum_of_tables = _make_sums(weight, self._table, model.n_tables)
        self._sum_of_cells = _make_sums(np.repeat(weight, sizes), self._cell, model.log_table.size)

    def _build_union(self, model):
        """Build the factor graph of all parts, without the scores of nodes."""
        layout = self.layout
        factors = layout.factors[layout.entry_factor]
        arity = model.arity[factors]
        ptr = offsets_from_lengths(arity)
        slots = np.repeat(model.scope_ptr[factors] - ptr[:-1], arity) + np.arange(ptr[-1])
        number = sp.csr_array(
            (np.arange(1, len(layout.copy_node) + 1), (layout.copy_part, layout.copy_node)),
            shape=(len(layout.weights), model.n_nodes),
        )
        scope = number[np.repeat(layout.entry_part, arity), model.scope[slots]] if len(slots) else np.zeros(0, np.int64)
        return FactorGraph(
            n_states=model.n_states[layout.copy_node],
            scope=np.asarray(scope).ravel() - 1 if len(slots) else scope,
            scope_ptr=ptr,
            table_id=self._table_id,
            log_table=model.log_table[self._cell].astype(np.float64),
            table_ptr=self._ptr,
            table_kind=model.table_kind[self._table],
            table_cell=None if model.table_cell is None else model.table_cell[self._cell],
            table_default=model.table_default[self._table].astype(np.float64),
            table_state=model.table_state[self._table],
        )

    # Values --------------------------------------------------------------------------------------------------------

    def project(self, x: np.ndarray) -> np.ndarray:
        """Project a vector so that the scores of all parts sum to the model's scores."""
        x = x.reshape(-1, self.n_columns)
        mean = (self._sums @ x) / self.size_of_nodes[:, None]
        return (x - self.scale[:, None] * mean[self.layout.copy_node]).ravel()

    def value_grad(self, model: FactorGraph, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the bound and its projected derivative with respect to x."""
        run, _ = self._run(model, x)
        unary = run.layered.reorder_by_node(np.exp(run.beliefs))
        value = float(self.copy_weight @ run.layered.terms(run.values)) + self._small.constant(model)
        return value, self.project((self.scale[:, None] * unary).ravel())

    def shared_bound(self, model: FactorGraph, shares: np.ndarray) -> SharedBound:
        """Return the bound for given shares, with its derivatives with respect to the model and the shares."""
        marginals, unary = self.marginals(model, self.project(shares))
        return SharedBound(marginals, self.project((self.scale[:, None] * unary).ravel()))

    def marginals(self, model: FactorGraph, x: np.ndarray, **fields: Any) -> tuple[Marginals, np.ndarray]:
        """Return the bound's derivatives with respect to the model's scores, and marginals of all node copies."""
        run, _ = self._run(model, x)
        found = run.marginals(bound="upper", n_iter=2, converged=True)
        mean = self._average(found.unary)
        terms: np.ndarray = np.bincount(self.layout.copy_node, self.copy_weight * found.log_z_terms, model.n_nodes)
        terms[:1] += self._small.constant(model)
        statistics = self._pull_back(model, mean, found.statistics)
        fields = {"bound": "upper", **fields}
        return convert_factor_marginals(model, terms, mean, *statistics, **fields), found.unary

    def best_value(
        self, model: FactorGraph, x: np.ndarray
    ) -> tuple[np.ndarray, FactorStatistics, np.ndarray, np.ndarray]:
        r"""Return the bound :math:`\sum_P c_P \max_y \theta(P)` as node terms, and its subgradients.

        The subgradients are with respect to the model's scores and to x. The last array is the mean over parts of the
        best labels, (N, K).
        """
        run, scores = self._run(model, x, temperature=0)
        labels, union = run.labels(), run.layered.source
        best = scores[np.arange(len(labels)), labels] + compute_score_terms(union, labels)
        terms: np.ndarray = np.bincount(self.layout.copy_node, self.copy_weight * best, model.n_nodes)
        terms[:1] += self._small.constant(model)
        unary = np.eye(self.n_columns)[labels]
        mean = self._average(unary)
        statistics = self._pull_back(model, mean, compute_labeling_statistics(union, labels))
        return terms, statistics, self.project((self.scale[:, None] * unary).ravel()), mean

    def information(self, model: FactorGraph, x: np.ndarray) -> np.ndarray:
        r"""Return each factor's multi-information: minus the bound's derivative with respect to its probability.

        .. math:: I(\tau_F) = \sum_{s \in F} H(\tau_s) - H(\tau_F)

        The entropy of a factor is computed from the messages that it receives, without writing out its joint states.
        """
        # returns: (F,)
        run, _ = self._run(model, x)
        slot_node, slot_factor = run.layers.slot_node, run.layers.slot_factor
        received = np.where(np.isneginf(run.beliefs[slot_node]), -np.inf, -run.messages)[:, : self.n_columns]
        alone = _isolate_factors(run.layered, received)
        found = run_over_forest(alone, 1, None).marginals(bound=None, n_iter=2, converged=True)
        entry, n_entries = run.layered.factors[slot_factor], len(self.layout.entry_factor)
        of_slots = found.log_z_terms - _expect(found.unary, received) - entr(np.clip(found.unary, 0, 1)).sum(axis=1)
        entropy_less_nodes = np.bincount(entry, of_slots, n_entries) - _expect_tables(alone.source, found.statistics)
        layout = self.layout
        weight = layout.weights[layout.entry_part] / self.probabilities[layout.entry_factor]
        mean = np.bincount(layout.entry_factor, weight * entropy_less_nodes, len(layout.factors))
        return np.maximum(-mean, 0.0)

    def feasible(self, model: FactorGraph, x: np.ndarray) -> tuple[FactorStatistics, np.ndarray] | None:
        r"""Return the statistics of consistent marginals near the marginals of the parts, and the marginals of nodes.

        .. math::
            q_s(a) \propto \max_{F \ni s} \tau_{F, s}(a), \qquad
            \alpha \, \tau_F + (1 - \alpha) \prod_{s \in F} \frac{q_s - \alpha \, \tau_{F, s}}{1 - \alpha}

        with the largest :math:`\alpha` for which no entry of the product is negative. None if the product uses a
        forbidden joint state.
        """
        found, of_copies = self.marginals(model, x)
        layout, union = self.layout, self._layered.model
        arity = model.arity[layout.factors]
        ptr = offsets_from_lengths(arity)
        entry = np.repeat(np.arange(len(layout.entry_factor)), union.arity)
        factor = layout.entry_factor[entry]
        slot = ptr[factor] + np.arange(len(entry)) - union.scope_ptr[entry]
        weight = layout.weights[layout.entry_part[entry]] / self.probabilities[factor]
        of_slots = _make_sums(weight, slot, ptr[-1]) @ of_copies[union.scope]
        node = np.zeros(ptr[-1], dtype=np.int64)
        node[slot] = layout.copy_node[union.scope]
        largest = np.zeros((model.n_nodes, self.n_columns))
        np.maximum.at(largest, node, of_slots)
        is_alone = np.bincount(node, minlength=model.n_nodes) == 0
        largest[is_alone] = found.unary[is_alone]
        total = largest.sum(axis=1, keepdims=True)
        nodes, alpha = largest / total, 1 / total.max(initial=1.0)
        before, after = (self._add_small(model, unary) for unary in (found.unary, nodes))
        parts = [alpha * (values - small) for values, small in zip(found.statistics, before, strict=True)]
        if alpha < 1:
            lacks = np.maximum(nodes[node] - alpha * of_slots, 0.0)
            product = _compute_product_statistics(model, layout.factors, ptr, node, lacks / (1 - alpha))
            forbidden = np.isneginf(model.log_table), np.isneginf(model.table_default)
            if any(values[where].any() for values, where in zip(product, forbidden, strict=True)):
                return None
            parts = [values + (1 - alpha) * more for values, more in zip(parts, product, strict=True)]
        return FactorStatistics(*(values + small for values, small in zip(parts, after, strict=True))), nodes

    def _add_small(self, model, unary):
        """Return the statistics of the factors with at most one node, given marginals of nodes."""
        statistics = np.zeros(model.log_table.size), np.zeros(model.n_tables)
        self._small.add_statistics(model, unary, *statistics)
        return statistics

    def _run(self, model, x, temperature=1):
        """Run sum-product or max-product on all parts; return the messages and the scores of copies."""
        checkpoint()
        scores = self._small.node_scores(model, self.n_columns) / self.size_of_nodes[:, None]
        scores = scores[self.layout.copy_node] + x.reshape(-1, self.n_columns) / self.scale[:, None]
        union = replace_scores(
            self._layered.model,
            model.log_table[self._cell] * self._share_of_cell,
            model.table_default[self._table] * self._share,
        )
        try:
            return run_over_forest(self._layered.rescored(union, scores), temperature, None), scores
        except Infeasible as error:
            raise make_infeasible_error() from error

    def _average(self, values):
        """Return the weighted mean over the copies of each node."""
        return (self._sums @ (self.scale[:, None] * values)) / self.size_of_nodes[:, None]

    def _pull_back(self, model, unary, found):
        log_table, default = self._add_small(model, unary)
        log_table += self._sum_of_cells @ found.log_table
        return FactorStatistics(log_table, default + self._sum_of_tables @ found.table_default)


class FactorForests(SpanningTrees):
    """A distribution over sets of factors without cycles, which take the place of the trees of a graph."""

    def __post_init__(self):
        """Set equal weights if none are given; the package's own sets need no checks."""
        if self.weights is None:
            object.__setattr__(self, "weights", np.full(len(self.trees), 1 / len(self.trees)))

    @classmethod
    def of(cls, model: FactorGraph, rule: Any) -> "FactorForests":
        """Return the distribution for a rule of :func:`choose_factor_forests`."""
        if isinstance(rule, FactorForests):
            return rule
        sets = choose_factor_forests(model, list_large_factors(model), rule)
        return cls(None, sets).merged()  # type: ignore[arg-type]  # there is no graph


class ComponentForests(ComponentTrees):
    """A distribution over sets of factors without cycles, with the interface of :class:`ComponentTrees`.

    The factor graph is treated as one component.
    """

    model: FactorGraph
    sets: np.ndarray  # (n_sets, F) of bool, the sets with the probabilities ``cover``

    def __init__(self, model, sets, trees=None):
        trees = sp.csr_array(np.asarray(sets, dtype=np.float64)) if trees is None else trees
        component = np.zeros(trees.shape[0], dtype=np.int64)
        super().__init__(None, trees, component, sets.mean(axis=0))  # type: ignore[arg-type]  # there is no graph
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "sets", sets)

    def build_forests(self, weights: np.ndarray) -> FactorForests:
        """Return the distribution for given weights, in which no factor has probability zero."""
        kept, n_sets = weights > 0, len(self.sets)
        every = np.concatenate((self.trees.toarray()[kept].astype(bool), self.sets))
        of_trees = self.share_of_trees * weights[kept] / weights[kept].sum()
        of_sets = np.full(n_sets, (1 - self.share_of_trees) / n_sets)
        probabilities = np.concatenate((of_trees, of_sets))
        return FactorForests(None, every, probabilities).merged()  # type: ignore[arg-type]  # there is no graph

    def grown(self, weights: np.ndarray, gain: np.ndarray) -> tuple:
        new = find_steepest_forest(self.model, list_large_factors(self.model), gain)
        kept = weights > 0
        of_trees = self.trees @ gain
        gap = self.share_of_trees * max(float(new @ gain - weights @ of_trees), 0.0)
        best = of_trees[kept].max(initial=-np.inf)
        is_new = new @ gain > best + 1e-12 * abs(best)
        rows = [self.trees[kept], sp.csr_array(new[None].astype(np.float64))] if is_new else [self.trees[kept]]
        trees = sp.vstack(rows, format="csr")
        return (
            ComponentForests(self.model, self.sets, trees),
            np.append(weights[kept], np.zeros(int(is_new))),
            np.array([gap]),
        )


def choose_component_forests(model: PairwiseModel | FactorGraph) -> ComponentTrees:
    """Return covering trees of each component of a graph, or covering sets of factors."""
    if not isinstance(model, FactorGraph):
        return ComponentTrees.covering(model.graph)
    return ComponentForests(model, choose_factor_forests(model, list_large_factors(model), "covering"))


class FactorShares:
    """Scores of sets of factors without cycles, with the interface of :class:`NodeShares`."""

    def __init__(self, model, trees):
        self.model, self.trees, self.weights = model, trees, trees.weights
        self.parts = FactorParts(model, lay_out_forests(model, trees.trees, trees.weights))
        self.scale = np.sqrt(trees.weights)
        self.shape = (trees.n_trees, model.n_nodes, model.n_columns)
        self.size, self.project = self.parts.size, self.parts.project

    def value_grad(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the bound, and its derivative with respect to x, projected as by ``project``."""
        return self.parts.value_grad(self.model, x)

    def from_messages(self, messages: np.ndarray, nodes: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """Return the scores for which the sets have equal marginals if tree-reweighted messages have converged."""
        # messages: (n_messages, K); nodes, factors: (n_messages,), node that receives and factor that sends a message
        x = np.zeros(self.shape)
        np.add.at(x[0], nodes, messages)
        x[1:] = x[0]
        own = messages / self.trees.edge_probabilities[factors, np.newaxis]
        for scores, chosen in zip(x, self.trees.trees[:, factors], strict=True):
            np.subtract.at(scores, nodes[chosen], own[chosen])
        return self.project((self.parts.scale[:, np.newaxis] * x.reshape(-1, self.shape[2])).ravel())

    def average(self, x: np.ndarray) -> Averages:
        """Return means over the sets, and the maximum difference between the node marginals of a set and the means."""
        x = self.project(x)
        marginals, of_copies = self.parts.marginals(self.model, x)
        terms = marginals.log_z_terms + bound_rounding(self, x)
        marginals = marginals._replace(log_z=float(terms.sum()), log_z_terms=terms)
        apart = np.abs(of_copies.reshape(self.shape) - marginals.unary).max(initial=0.0)
        return Averages(marginals, float(apart), partial(self.parts.information, self.model, x))

    def find_steepest_tree(self, information: np.ndarray) -> np.ndarray:
        """Return a set of factors with much information, in whose direction the bound decreases."""
        return find_steepest_forest(self.model, self.parts.layout.factors, information)

    def on(self, trees: FactorForests) -> "FactorShares":
        """Return the scores of a model for other sets of factors."""
        return FactorShares(self.model, trees)


def divide_scores(
    model: PairwiseModel | FactorGraph, entropy: str, trees: Any = "covering"
) -> tuple[np.ndarray, Callable[..., SharedBound]]:
    """Return the node of each unknown score, and a function that computes the bound from a model and the unknowns."""
    # entropy: "trw", "trivial" or "factors"; later models may differ from ``model`` only in their scores
    if not isinstance(model, FactorGraph):
        if entropy == "trw":
            return list_share_nodes(model, trees), partial(compute_shared_bound, trees=trees)
        return nodes_of_edge_shares(model), partial(edge_shared_bound, entropy=entropy)
    parts = FactorParts.of(model, entropy, trees=trees)
    return parts.share_nodes, parts.shared_bound


def _isolate_factors(layered, scores):
    """Split a layered model into single factors, each with its own copies of its nodes, which have given scores."""
    # scores: (n_slots, K)
    model, layers = layered.source, layered.layers
    copy = layered.order[layers.slot_node]
    key = layered.factors[layers.slot_factor] * model.n_nodes + copy
    order = np.argsort(key)
    wanted = np.repeat(np.arange(model.n_factors), model.arity) * model.n_nodes + model.scope
    sizes = np.diff(model.table_ptr)[model.table_id]
    ptr = offsets_from_lengths(sizes)
    cell = np.arange(ptr[-1]) + np.repeat(model.table_ptr[model.table_id] - ptr[:-1], sizes)
    alone = FactorGraph(
        n_states=model.n_states[copy],
        scope=order[np.searchsorted(key[order], wanted)],
        scope_ptr=model.scope_ptr,
        table_id=np.arange(model.n_factors),
        log_table=model.log_table[cell],
        table_ptr=ptr,
        table_kind=model.table_kind[model.table_id],
        table_cell=None if model.table_cell is None else model.table_cell[cell],
        table_default=model.table_default[model.table_id],
        table_state=model.table_state[model.table_id],
    )
    return LayeredModel(alone).rescored(alone, scores)


def _compute_product_statistics(model, factors, ptr, node, weights):
    """Return the statistics of factors whose nodes are independent, given the weights of the nodes' states."""
    # ptr: (F + 1,), slots of each factor; node: (n_slots,); weights: (n_slots, K)
    alone = FactorGraph(
        n_states=model.n_states[node],
        scope=np.arange(len(node)),
        scope_ptr=ptr,
        table_id=model.table_id[factors],
        log_table=np.zeros(model.log_table.size),
        table_ptr=model.table_ptr,
        table_kind=model.table_kind,
        table_cell=model.table_cell,
        table_default=np.zeros(model.n_tables),
        table_state=model.table_state,
    )
    with np.errstate(divide="ignore"):
        layered = LayeredModel(alone).rescored(alone, np.log(weights))
    return run_over_forest(layered, 1, None).marginals(bound=None, n_iter=2, converged=True).statistics


def _expect(probabilities, scores):
    """Return the expected score of each row, where impossible states count as zero."""
    used = probabilities > 0
    return np.multiply(probabilities, scores, out=np.zeros_like(probabilities), where=used).sum(axis=1)


def _expect_tables(model, statistics):
    """Return the expected score of each table."""
    # returns: (T,)
    table = np.repeat(np.arange(model.n_tables), np.diff(model.table_ptr))
    with np.errstate(invalid="ignore"):
        cells = np.where(statistics.log_table > 0, statistics.log_table * model.log_table, 0.0)
        default = np.where(statistics.table_default > 0, statistics.table_default * model.table_default, 0.0)
    return np.bincount(table, cells, model.n_tables) + default


def _make_sums(weight, row, n_rows):
    """Return a sparse matrix that adds the weighted entries of each row."""
    return sp.csr_array((weight, (row, np.arange(len(row)))), shape=(n_rows, len(row)))
