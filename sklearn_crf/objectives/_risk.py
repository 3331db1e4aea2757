"""The empirical risk: the sum of weighted losses of batches, with its gradient with respect to the weights."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from sklearn_crf._threads import cached_property, map_tasks
from sklearn_crf.inference import convergence_left_to_caller
from sklearn_crf.models import (
    EdgeLayout,
    FactorGraph,
    FactorStatistics,
    SegmentModel,
    SegmentStatistics,
    Statistics,
    build_model_with_layout,
)
from sklearn_crf.potentials import SparsePotentials


class RiskValue(NamedTuple):
    """Weighted loss of one batch, or total weighted loss of all batches in a pass."""

    value: float | None  # None for objectives without a loss
    # (n_coef,), derivative with respect to the weights, or the direction of a step; None before the pullback
    # The caller may change this array.
    gradient: np.ndarray | None
    n_errors: float | None  # weighted number of wrong predictions; None if the objective runs no inference
    converged: bool  # whether all runs of inference converged
    n_nonsubmodular: int  # number of edges on which a binary MAP inference was not exact
    gap: float = 0.0  # upper bound on the error of ``value``: 0 if all maxima are proven, inf if the error is unknown
    statistics: Statistics | None = None  # derivative with respect to the scores of a batch, before the pullback


def weighted_loss(batch, loss, by_weight=None):
    """Return the RiskValue of a batch, given its unweighted loss; the gradient is None until the pullback."""
    # by_weight: result of ``group_tables_by_weight`` for the model of the batch
    wrong = None if loss.predicted is None else (loss.predicted != batch.labels) & (batch.labels >= 0)
    if batch.weight is None:
        n_errors = None if wrong is None else float(np.count_nonzero(wrong))
        value = None if loss.terms is None else float(loss.terms.sum())
        return RiskValue(value, None, n_errors, loss.converged, loss.n_nonsubmodular, loss.gap, loss.statistics)
    node_weight = expand_weights_to_nodes(batch)
    if by_weight is None:
        statistics = loss.statistics.scaled(node_weight[:, None], batch.weight[0])
    else:
        statistics = by_weight.summed(loss.statistics, node_weight)
    n_errors = None if wrong is None else float(node_weight[wrong].sum())
    value = None if loss.terms is None else float(loss.terms @ node_weight)
    # The gap times the largest weight is an upper bound on the weighted gap. It is exact if all weights are equal.
    gap = loss.gap and loss.gap * float(node_weight.max(initial=0.0))
    return RiskValue(value, None, n_errors, loss.converged, loss.n_nonsubmodular, gap, statistics)


def total_of(parts, gradient):
    """Add RiskValues in their order, and return the sum with the given gradient."""
    return RiskValue(
        value=None if any(part.value is None for part in parts) else sum(part.value for part in parts),
        gradient=gradient,
        n_errors=None if any(part.n_errors is None for part in parts) else sum(part.n_errors for part in parts),
        converged=all(part.converged for part in parts),
        n_nonsubmodular=sum(part.n_nonsubmodular for part in parts),
        gap=sum(part.gap for part in parts),
    )


class EmpiricalRisk:
    r"""Sum of weighted losses over batches of examples.

    .. math:: R(w) = \sum_i \omega_i \, \ell(B(x_i) w, y_i), \qquad \nabla R = \sum_i \omega_i B(x_i)^\top \nabla\ell

    Batches are added in their order, whatever the number of threads. Warm starts of inference are stored for each
    batch.
    """

    # batches: list of Batch with labels
    # n_jobs: number of threads, which process different batches, or parts of one batch
    # seed: for objectives that draw samples; the seed of a call also depends on the batch and on the pass

    #: Name of the algorithm that evaluates the risk.
    path = "general"

    def __init__(self, objective, potentials, batches, *, n_jobs=None, seed=0):
        self.objective = objective
        self.potentials = potentials
        self.batches = batches
        self.n_jobs = n_jobs
        self.seed = seed
        #: Warm starts of inference for each batch, which can be assigned to another risk of the same batches.
        self.carried: list[Any] = [None] * len(batches)
        self._edges, self._by_weight = {}, {}
        self.n_passes = 0
        labelled = [expand_weights_to_nodes(batch)[batch.labels >= 0].sum() for batch in batches]
        self.n_labelled = float(np.sum(labelled))

    @property
    def n_examples(self):
        """Number of examples."""
        return sum(len(batch.members) for batch in self.batches)

    @property
    def n_nodes(self):
        """Number of nodes of all examples, labelled or not."""
        return sum(batch.example.n_nodes for batch in self.batches)

    @property
    def has_unlabelled(self):
        """Whether some nodes have no label."""
        return any(bool(np.any(batch.labels < 0)) for batch in self.batches)

    @property
    def n_edges(self):
        """Number of edges of all examples."""
        return sum(batch.example.graph.n_edges for batch in self.batches)

    @property
    def is_forest(self):
        """Whether the graphs of all examples are free of cycles."""
        return all(batch.example.is_forest for batch in self.batches)

    @property
    def edges_per_node(self):
        """Total number of edges divided by the total number of nodes."""
        return self.n_edges / max(self.n_nodes, 1)

    @property
    def curvature(self):
        """Rough estimate of the diagonal of the Hessian at small weights; None unless features are sparse."""
        if not isinstance(self.potentials, SparsePotentials):
            return None
        examples = [self.potentials.prepared(batch.example) for batch in self.batches]
        return self.potentials.curvature(examples, [expand_weights_to_nodes(batch) for batch in self.batches])

    @cached_property
    def is_exact(self):
        """Whether the gradient is exactly the gradient of the value on the graphs of the examples."""
        if self.objective.exact_on != "forest":
            return self.objective.exact_on == "any"
        zeros, others = np.zeros(self.potentials.n_coef), [b for b in self.batches if not b.example.is_forest]
        return all(self.objective.is_exact_for(self.potentials.model(zeros, batch.example)) for batch in others)

    @property
    def label_counts(self):
        """Weighted number of nodes with each label."""
        counts = np.zeros(self.potentials.n_classes)
        for batch in self.batches:
            labelled = batch.labels >= 0
            counts += np.bincount(
                batch.labels[labelled], expand_weights_to_nodes(batch)[labelled], minlength=len(counts)
            )
        return counts

    @property
    def n_constant_errors(self):
        """Weighted number of wrong labels if the most frequent label is predicted for all nodes."""
        counts = self.label_counts
        return float(counts.sum() - counts.max())

    def summed(self, function, *arguments, changes=False):
        """Call a function of the risk whose result is a sum over examples, and return the result."""
        # function: callable(EmpiricalRisk, *arguments) -> float or ndarray
        # changes: whether the function changes ``objective.grown``
        return function(self, *arguments)

    def derived(self, function):
        """Return a risk that a function derives from this risk, such as a risk of nodes without edges."""
        return function(self)

    def having(self, *, objective=None, potentials=None, batches=None):
        """Return a copy of the risk with another objective, potentials or batches, and without warm starts."""
        objective = self.objective if objective is None else objective
        potentials = self.potentials if potentials is None else potentials
        batches = self.batches if batches is None else batches
        return type(self)(objective, potentials, batches, n_jobs=self.n_jobs, seed=self.seed)

    def oracle(self, i, coef, *, n_threads=1, pulls_back=True):
        """Return the RiskValue of batch i; without ``pulls_back``, it contains statistics instead of the gradient."""
        batch = self.batches[i]
        (model, by_weight), objective = self.build_model_by_weight(i, coef), self.objective.of_batch(i)
        seed = 0
        if objective.draws:
            seed = int(np.random.SeedSequence([self.seed, i, self.n_passes]).generate_state(1, np.uint32)[0])
        # Only objectives whose cost or loss is a sum over nodes support weights of nodes.
        weighs = batch.node_weight is not None and objective.weighs_nodes
        options = {"node_weight": batch.node_weight} if weighs else {}
        if objective.takes_joint_cost:
            options["joint_cost"] = batch.joint_cost
        with convergence_left_to_caller(), batch.named_in_errors():
            loss = objective.loss_statistics(
                model, batch.labels, state=self.carried[i], seed=seed, n_threads=n_threads, **options
            )
        self.carried[i] = loss.state
        part = weighted_loss(batch, loss, by_weight)
        if not pulls_back:
            return part
        return part._replace(gradient=self.potentials.pullback(batch.example, part.statistics), statistics=None)

    def edges_of(self, i):
        """Return the layout of edges, made by ``prepare_edges``, that all models of batch i share."""
        if i not in self._edges:
            self._edges[i] = self.potentials.prepare_edges(self.batches[i].example)
        return self._edges[i]

    def build_model_by_weight(self, i, coef):
        """Return the model of batch i, and the result of ``group_tables_by_weight`` (None if all weights are equal)."""
        # The model has separate tables for each distinct weight of an example.
        # Pass the second result to the function ``weighted_loss``.
        model = self.potentials.model(coef, self.batches[i].example, self.edges_of(i))
        if i not in self._by_weight:
            self._by_weight[i] = group_tables_by_weight(self.batches[i], model)
        return by_weights(model, self._by_weight[i]), self._by_weight[i]

    def value_grad(self, coef, members=None):
        """Add the weighted losses of batches in their order, and return the sum with its gradient."""
        # members: indices of the batches, or None for all batches
        # returns RiskValue
        found = self._evaluate(coef, members)
        self.n_passes += 1
        return found

    def _evaluate(self, coef, members):
        members = range(len(self.batches)) if members is None else members
        parts = map_tasks(partial(self.oracle, coef=coef), members, self.n_jobs)
        return total_of(parts, np.sum([part.gradient for part in parts], axis=0))

    def forget(self):
        """Drop the warm starts of inference, so that the next pass starts without them."""
        self.carried = [None] * len(self.batches)


# Batches of examples with different weights -------------------------------------------------------------------------


def expand_weights_to_nodes(batch):
    """Return, for each node, the weight of its example, (N,) float64."""
    sizes = np.diff(batch.node_ptr)
    return np.repeat(np.ones(len(sizes)) if batch.weight is None else batch.weight, sizes)


def expand_weights_to_edges(batch):
    """Return, for each edge, the weight of its example, (E,) float64."""
    return expand_weights_to_nodes(batch)[batch.example.graph.edges[:, 0]]


def group_tables_by_weight(batch, model):
    """Return separate tables for each distinct weight of a batch's examples, or None if all weights are equal."""
    if batch.weight is None or not np.ptp(batch.weight):
        return None
    if isinstance(model, FactorGraph):
        return FactorsByWeight(batch, model)
    if isinstance(model, SegmentModel):
        return SegmentsByWeight(batch, model)
    return EdgesByWeight(batch, model) if batch.example.graph.n_edges else None


def build_model_by_weight(potentials, coef, batch):
    """Build the model of a batch; if its examples differ in weight, the model has separate tables for each weight."""
    model = potentials.model(coef, batch.example)
    return by_weights(model, group_tables_by_weight(batch, model))


def by_weights(model, by_weight):
    """Return a model with separate tables for each weight, or the model itself if ``by_weight`` is None."""
    return model if by_weight is None else by_weight.model(model)


class EdgesByWeight:
    r"""Separate tables for each distinct weight of the examples in a batch.

    .. math:: \sum_i \omega_i \frac{\partial \ell_i}{\partial \theta} =
        \sum_\omega \omega \frac{\partial \ell}{\partial \theta_\omega}, \qquad \theta_\omega = \theta

    Statistics of a table are sums over all edges of a batch that share the table. Edges of examples with different
    weights get separate copies of the table, so that each copy has the sum over the examples of one weight.
    """

    def __init__(self, batch, model):
        values, index = np.unique(expand_weights_to_edges(batch), return_inverse=True)
        # Each combination of an edge type and an example weight that occurs in the batch becomes a new edge type.
        pairs, edge_type = np.unique(model.edge_type.astype(np.int64) * len(values) + index, return_inverse=True)
        self._type, self._shape = pairs // len(values), model.tables.shape
        self._sum = _build_sum_matrix(values[pairs % len(values)], self._type, self._shape[0])
        self.shape = (len(pairs), *self._shape[1:])
        self._layout = EdgeLayout(edge_type.astype(np.int32), model.edge_weight)

    def model(self, model):
        """Return the model with separate tables for each edge type and weight, but the same scores."""
        tables = self.tables(model.tables)
        if model.n_states is not None:
            return replace(model, tables=tables, edge_type=self._layout.edge_type)
        return build_model_with_layout(model.graph, model.unary, tables, self._layout)

    def tables(self, tables):
        """Return the tables for each edge type and weight."""
        return tables[self._type]

    def unweighted(self, statistics):
        """Sum statistics over the tables of all weights, without multiplying by the weights."""
        tables = np.zeros(self._shape)
        np.add.at(tables, self._type, statistics.tables)
        return Statistics(statistics.unary, tables)

    def summed(self, statistics, node_weight):
        """Sum weighted statistics into one entry per original table."""
        unary, tables = statistics
        tables = (self._sum @ tables.reshape(len(tables), -1)).reshape(self._shape)
        return Statistics(unary * node_weight[:, np.newaxis], tables)


class SegmentsByWeight:
    """Separate tables and durations for each distinct weight of examples in a batch, as in :class:`EdgesByWeight`."""

    def __init__(self, batch: Any, model: SegmentModel) -> None:
        self._edges = EdgesByWeight(batch, model.pairwise) if model.graph.n_edges else None
        first = model.chain_ptr[:-1]
        self._values, self._duration_type = np.unique(expand_weights_to_nodes(batch)[first], return_inverse=True)

    def model(self, model: SegmentModel) -> SegmentModel:
        """Return the model with separate tables and durations for each weight, but the same scores."""
        return replace(
            model,
            pairwise=by_weights(model.pairwise, self._edges),
            durations=np.repeat(model.durations, len(self._values), axis=0),
            duration_type=self._duration_type,
        )

    def summed(self, statistics: SegmentStatistics, node_weight: np.ndarray) -> SegmentStatistics:
        """Sum weighted statistics into one entry per original table and duration."""
        pairs = Statistics(statistics.unary, statistics.tables)
        if self._edges is None:
            pairs = pairs.scaled(node_weight[:, np.newaxis], 1.0)
        else:
            pairs = self._edges.summed(pairs, node_weight)
        durations = np.tensordot(self._values, statistics.durations, axes=1)[np.newaxis]
        scaled = statistics.scaled(node_weight[:, np.newaxis], 1.0)
        return scaled._replace(unary=pairs.unary, tables=pairs.tables, durations=durations)


class FactorsByWeight:
    """Separate factor tables for each distinct weight of the examples in a batch, as in :class:`EdgesByWeight`."""

    def __init__(self, batch, model):
        # Factors without nodes are constants that belong to no example, so their weight does not matter.
        first = np.append(model.scope, 0)[model.scope_ptr[:-1]]
        values, index = np.unique(expand_weights_to_nodes(batch)[first], return_inverse=True)
        pairs, self._table_id = np.unique(model.table_id * len(values) + index, return_inverse=True)
        self._table, weight = pairs // len(values), values[pairs % len(values)]
        sizes = np.diff(model.table_ptr)[self._table]
        self._ptr = np.concatenate(([0], np.cumsum(sizes)))
        # Index of the original table cell for each cell of the new tables.
        self._cell = np.arange(self._ptr[-1]) + np.repeat(model.table_ptr[self._table] - self._ptr[:-1], sizes)
        self._sum = _build_sum_matrix(weight, self._table, model.n_tables)
        self._sum_of_cells = _build_sum_matrix(np.repeat(weight, sizes), self._cell, model.log_table.size)

    def model(self, model):
        """Return the model with separate tables for each weight, but the same scores."""
        return replace(
            model,
            table_id=self._table_id,
            log_table=model.log_table[self._cell],
            table_ptr=self._ptr,
            table_kind=model.table_kind[self._table],
            table_cell=None if model.table_cell is None else model.table_cell[self._cell],
            table_default=model.table_default[self._table],
            table_state=model.table_state[self._table],
        )

    def summed(self, statistics, node_weight):
        """Sum weighted statistics into one entry per original table."""
        # The model's tables come first in the statistics. Tables of costs may follow.
        cells, defaults = statistics.log_table[: len(self._cell)], statistics.table_default[: len(self._table)]
        return FactorStatistics(self._sum_of_cells @ cells, self._sum @ defaults)


def _build_sum_matrix(weight, row, n_rows):
    """Return a sparse matrix that maps an array v to the weighted sums of the entries v[j] with equal ``row[j]``."""
    return sp.csr_matrix((weight, (row, np.arange(len(row)))), shape=(n_rows, len(row)))
