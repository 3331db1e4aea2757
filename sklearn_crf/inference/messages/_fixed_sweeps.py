"""Marginals after a fixed number of sweeps, and the gradient of a loss through these sweeps."""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sklearn_crf._options import options
from sklearn_crf.graphs import Graph
from sklearn_crf.inference._base import Inference, at_least
from sklearn_crf.inference._factor_mean_field import FactorMeanField
from sklearn_crf.inference._field import build_initial_messages
from sklearn_crf.inference._local_search import allocate_table_buffers, build_local_arguments
from sklearn_crf.inference._results import Marginals
from sklearn_crf.inference.messages._belief_propagation import LoopyBP, TRWMessagePassing, build_sum_field
from sklearn_crf.inference.messages._edge_probabilities import choose_edge_probabilities
from sklearn_crf.kernels.messages.sweeps import sweep_mean_field, sweep_messages, sweep_odds
from sklearn_crf.models import FactorGraph, FactorStatistics, PairwiseModel, Statistics, expand_factors

#: Losses of marginals and their codes in the kernel.
SWEEP_LOSSES = {"clique": 1, "univariate": 2, "quadratic": 3, "expected_cost": 4}
_MARGINALS_ALONE = 0


class SweepArguments(NamedTuple):
    """Inputs of the sweep kernels besides the model, and the output arrays that they fill."""

    loss: int
    n_sweeps: int
    nodes: np.ndarray  # (N,) int32, nodes by component, in the order in which sweeps visit them
    rank: np.ndarray  # (N,) int32, position of each node in `nodes`
    ranges: np.ndarray  # (n_components, 2) int32, first position of each component in `nodes`, and position after it
    blocks: np.ndarray  # (n_blocks + 1,) int64, first component of each block
    labels: np.ndarray  # (N,) int32, or empty
    weight: np.ndarray  # (N,) float64, or empty
    cost: np.ndarray  # (N, K) float64, cost of each state of each node, or empty
    pair_cost: np.ndarray  # (n_kinds, n_cost, n_cost) float64, costs of the states of the ends of edges
    pair_kind: np.ndarray  # (E,) int32, index into `pair_cost`, negative for edges without costs, or empty
    beliefs: np.ndarray  # output, (N, K) float64
    terms: np.ndarray  # output, (N,) float64, or empty without labels
    unary: np.ndarray  # output, (N, K) float64, or empty without labels
    tables: np.ndarray  # output, (n_blocks, T, R, K, K) float64


class SweepCosts(NamedTuple):
    """Costs of the states of nodes and edges, for given labels."""

    nodes: np.ndarray  # (N, n), cost of each state of each node; n may be larger or smaller than the number of states
    pairs: np.ndarray = np.zeros((0, 0, 0))  # (n_kinds, n, n) float64, costs of the states of the ends of edges
    # (E,) int32, index into `pairs`, negative for edges without costs; empty if no edge has costs
    kind: np.ndarray = np.zeros(0, dtype=np.int32)


@options
class FixedSweeps(Inference):
    r"""Marginals after a fixed number of sweeps, without a test of convergence.

    Parameters
    ----------
    method : {"trw", "loopy", "mean_field"}, default="trw"
        Tree-reweighted belief propagation, plain belief propagation or mean field. Messages start uniform, and each
        sweep passes forwards and backwards through the nodes. Mean field starts from the node scores alone, and each
        sweep passes forwards through the nodes. In a factor graph, messages treat a factor of more than two nodes as a
        node, whose states are the joint states of the factor.
    n_sweeps : int, default=10
        Number of sweeps.
    edge_probabilities : {"auto", "uniform", "chains", "covering"} or array-like (E,), default="auto"
        Edge appearance probabilities of tree-reweighted messages, as in :class:`TRWMessagePassing`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference.messages._fixed_sweeps import FixedSweeps
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> FixedSweeps(method="loopy", n_sweeps=5).marginals(model).unary.round(2)
    array([[0.22, 0.78],
           [0.42, 0.58],
           [0.22, 0.78]])
    """

    tasks = frozenset({"marginals"})
    takes = (PairwiseModel, FactorGraph)
    _choices: ClassVar[dict] = {"method": ("trw", "loopy", "mean_field")}
    _ranges: ClassVar[dict] = {"n_sweeps": at_least(1)}
    _starts_from: ClassVar[tuple] = ()
    method: str = "trw"
    n_sweeps: int = 10
    edge_probabilities: Any = "auto"

    def _marginals(self, model: Any, *, init: Any = None, n_threads: int = 1) -> Marginals:
        if self.method == "mean_field" and isinstance(model, FactorGraph):
            field = FactorMeanField(model)
            beliefs = field.run(self.n_sweeps)[0][-1]
            return self._collect(beliefs.astype(model.dtype), field.bound(beliefs)[1])
        expanded = expand_factors(model) if isinstance(model, FactorGraph) else None
        how = self._run_sweeps(model if expanded is None else expanded.model, _MARGINALS_ALONE, None, None, n_threads)
        unary = how.beliefs.astype(model.dtype)
        statistics: Any = Statistics(unary, how.tables.sum(axis=0))
        if expanded is not None:
            statistics = expanded.pullback(model, statistics)
            unary = unary[expanded.place, : model.n_columns]
        return self._collect(unary, statistics)

    def _collect(self, unary: np.ndarray, statistics: Any) -> Marginals:
        """Return the marginals, which never count as converged."""
        return Marginals(
            unary, statistics, log_z=None, log_z_terms=None, bound=None, n_iter=self.n_sweeps, converged=False
        )

    def loss_through_sweeps(
        self,
        model: Any,
        labels: np.ndarray,
        loss: str,
        *,
        node_weight: np.ndarray | None = None,
        cost: SweepCosts | None = None,
        n_threads: int = 1,
    ) -> SweepArguments:
        """Return the loss of the marginals for given labels, and its gradient through the sweeps."""
        # labels: (N,) int32, negative for unlabelled nodes; loss: a name in SWEEP_LOSSES
        # node_weight: (N,), weights of the nodes in the loss
        #     For "clique", 1 if the node's own log-probability replaces its pairs with neighbours in the loss, else 0.
        # cost: costs for "expected_cost"; None means 1 for each wrong label
        # returns: SweepArguments: losses in ``terms``, gradient in ``unary`` and ``tables``, marginals in ``beliefs``
        self._require("marginals", model, n_threads=n_threads)
        if cost is None and loss == "expected_cost":
            cost = SweepCosts(1.0 - np.eye(model.n_columns)[labels])
        if cost is not None and cost.kind.size and self.method == "mean_field":
            raise ValueError("costs of edges need mean_field_loss_of_factors if the method is 'mean_field'.")
        return self._run_sweeps(model, SWEEP_LOSSES[loss], labels, node_weight, n_threads, cost)

    def mean_field_loss_of_factors(
        self,
        model: FactorGraph,
        labels: np.ndarray,
        loss: str,
        node_weight: np.ndarray | None,
        cost: np.ndarray | None = None,
        joint: Any = None,
    ) -> tuple[np.ndarray, FactorStatistics, np.ndarray]:
        """Return the losses of nodes, the gradient with respect to scores of all tables, and the marginals of nodes."""
        # "clique": minus the log-probability of the labels of each factor of two or more nodes, a sum over its nodes
        # cost: (N, K) for "expected_cost", cost of each state of each node
        # joint: function that returns further losses of nodes, and their derivatives by given marginals; or None
        self._require("marginals", model)
        field = FactorMeanField(model)
        kept, log_q = field.run(self.n_sweeps)
        weight = np.ones(model.n_nodes) if node_weight is None else node_weight
        if loss == "clique":
            weight = np.maximum(field.n_joint_factors, 1)
        terms, slope = _compute_node_losses(loss, kept[-1], log_q, labels, weight, cost)
        if joint is not None:
            further, by_marginals = joint(kept[-1])
            terms, slope = terms + further, slope + _multiply_by_softmax_jacobian(kept[-1], by_marginals)
        return terms, field.undo(kept, slope), kept[-1]

    def _check_model(self, model: Any) -> None:
        super()._check_model(model)
        if self.method != "mean_field":
            return
        if isinstance(model, FactorGraph):
            forbids = FactorMeanField(model).forbids
        else:
            forbids = model.tables.min(initial=0.0) == -np.inf
        if forbids:
            raise ValueError(
                "A fixed number of mean-field sweeps does not support forbidden joint states: use 'trw' or 'loopy'."
            )

    def _run_sweeps(
        self,
        model: Any,
        loss: int,
        labels: np.ndarray | None,
        node_weight: np.ndarray | None,
        n_threads: int,
        cost: SweepCosts | None = None,
    ) -> SweepArguments:
        """Run the kernel of the method, and return its arguments with filled output arrays."""
        n_nodes, n_kept = model.n_nodes, 1 if labels is None else self.n_sweeps + 1
        nodes, rank, ranges = model.graph.keep("components in sweeps", partial(_sort_by_component, model.graph))
        tables = allocate_table_buffers(model, n_nodes)
        of_nodes = 0 if labels is None else n_nodes
        n_blocks = len(tables)
        wanted = np.arange(1, n_blocks) * n_nodes // n_blocks
        how = SweepArguments(
            loss,
            self.n_sweeps,
            nodes,
            rank,
            ranges,
            np.concatenate([[0], np.searchsorted(ranges[:, 0], wanted), [len(ranges)]]).astype(np.int64),
            labels=np.zeros(0, np.int32) if labels is None else labels,
            weight=np.zeros(0) if node_weight is None else np.ascontiguousarray(node_weight, dtype=np.float64),
            cost=np.zeros((0, 0)) if cost is None else _fit_columns(cost.nodes, model.n_columns),
            pair_cost=np.zeros((0, 0, 0)) if cost is None else np.ascontiguousarray(cost.pairs),
            pair_kind=np.zeros(0, np.int32) if cost is None else cost.kind,
            beliefs=np.empty((n_nodes, model.n_columns)),
            terms=np.empty(of_nodes),
            unary=np.empty((of_nodes, model.n_columns)),
            tables=tables,
        )
        if not n_nodes:
            return how
        if self.method == "mean_field":
            marginals = np.empty((n_kept, n_nodes, model.n_columns))
            sweep_mean_field(*build_local_arguments(model), marginals, how, n_threads)
            return how
        if _can_use_log_odds(model) and not how.pair_kind.size:
            trees, weight = np.zeros(0), model.edge_weight
            if self.method == "trw":
                trees = choose_edge_probabilities(model.graph, self.edge_probabilities)
            if weight is None:
                weight = np.zeros((0, model.tables.shape[1]), model.dtype)
            edges = model.tables, model.edge_type, weight, trees, tuple(model.graph.incidence)
            sweep_odds(model.unary, *edges, how, n_threads)
            return how
        field = self._build_field(model)
        messages = np.empty((n_kept, *(start := build_initial_messages(field)).shape), start.dtype)
        messages[0] = start
        scores = np.ascontiguousarray(model.unary, dtype=start.dtype)
        sweep_messages(field, scores, messages, how, model.graph.largest_degree, n_threads)
        return how

    def _build_field(self, model: Any) -> Any:
        """Return the arrays of a model for the message passing that `method` names."""
        trees = TRWMessagePassing(self.edge_probabilities)
        return build_sum_field(LoopyBP() if self.method == "loopy" else trees, model)


def _can_use_log_odds(model: Any) -> bool:
    """Return whether each message is a single number: all nodes have two states, and scores are finite."""
    if model.n_columns != 2 or model.n_states is not None:
        return False
    # Rounding errors of larger scores exceed one.
    most = 1 / np.finfo(model.dtype).eps
    return all(bool(np.abs(scores).max(initial=0.0) <= most) for scores in (model.unary, model.tables))


def _sort_by_component(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the nodes by component, their positions in this order, and the range of positions of each component.

    The nodes of a tree are ordered from the leaves to the root, so that one sweep is exact.
    """
    order = graph.forest.order[::-1] if graph.is_forest else np.arange(graph.n_nodes)
    nodes = order[np.argsort(graph.component[order], kind="stable")].astype(np.int32)
    rank = np.empty_like(nodes)
    rank[nodes] = np.arange(len(nodes), dtype=np.int32)
    ends = np.cumsum(np.bincount(graph.component, minlength=0))
    return nodes, rank, np.ascontiguousarray(np.stack([np.append(0, ends[:-1])[: len(ends)], ends], axis=1))


def _fit_columns(cost: np.ndarray, n_states: int) -> np.ndarray:
    """Return the costs of a given number of states, with zeros for states without costs."""
    found = np.zeros((len(cost), n_states))
    found[:, : cost.shape[1]] = cost[:, :n_states]
    return found


def _compute_node_losses(
    loss: str, q: np.ndarray, log_q: np.ndarray, labels: np.ndarray, weight: np.ndarray, cost: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return losses of nodes (zero without a label) and their derivatives for the scores of which q is the softmax."""
    # q, log_q: (N, K); labels, weight: (N,); returns: (N,) and (N, K)
    weight = weight * (labels >= 0)
    truth = np.arange(q.shape[1]) == labels[:, None]
    distance = q - truth
    if loss in ("clique", "univariate"):
        terms = -np.where(truth, log_q, 0.0).sum(axis=1)
        return np.where(weight > 0, terms, 0.0) * weight, weight[:, None] * distance
    if loss == "quadratic":
        terms, slope = (distance**2).sum(axis=1), 2 * distance
    else:
        assert cost is not None, "the expected cost has costs"
        slope = _fit_columns(cost, q.shape[1])
        terms = (q * slope).sum(axis=1)
    return weight * terms, weight[:, None] * _multiply_by_softmax_jacobian(q, slope)


def _multiply_by_softmax_jacobian(q: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Return the derivatives by the scores of which q is the softmax, given the derivatives by q, both (N, K)."""
    return q * (slope - (q * slope).sum(axis=1, keepdims=True))
