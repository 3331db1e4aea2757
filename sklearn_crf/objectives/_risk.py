"""The empirical risk: weighted losses of batches, pulled back to the weights and added up."""

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
    Statistics,
    model_with_layout,
)
from sklearn_crf.potentials import SparsePotentials

# Of more nodes, calls of NumPy are so long that threads had better share them.
_MOST_NODES_IN_TURN = 2048


class RiskValue(NamedTuple):
    """Weighted losses of some examples: of one batch, or of one pass over all.

    Attributes
    ----------
    value : float or None
        Weighted sum of losses; None for rules without one.
    gradient : ndarray of shape (n_coef,), float64, or None
        Its derivative by the weights, or what stands for it; the caller's own. None before the pullback.
    n_errors : float or None
        Weighted number of wrong labels by the rule's own inference; None if it used none.
    converged : bool
        Whether every inference did.
    n_nonsubmodular : int
        Edges on which a binary MAP inference was not exact.
    gap : float
        Bound on the error of ``value``, where losses are maxima that were not proven; inf if unknown.
    statistics : Statistics or None
        Derivative by the scores of a batch, before the pullback.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.encoding import encode_X, encode_y, make_batches
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.objectives import EmpiricalRisk, Likelihood
    >>> from sklearn_crf.potentials import LinearPotentials, pairwise_form
    >>> encoded = encode_X(
    ...     [[[0.0], [0.2], [0.9]], [[1.0], [0.8]]],
    ...     edge_features="constant",
    ...     edge_types="tied",
    ... )
    >>> batches = make_batches(encoded, encode_y([[0, 0, 1], [1, 1]], encoded).labels)
    >>> potentials = LinearPotentials(1, 2, pairwise_form("potts", 2), fit_intercept=False)
    >>> risk = EmpiricalRisk(Likelihood(TreeInference()), potentials, batches)
    >>> found = risk.value_grad(np.zeros(potentials.n_coef))
    >>> round(found.value, 3), found.gradient.shape, found.converged
    (3.466, (2,), True)
    """

    value: float | None
    gradient: np.ndarray | None
    n_errors: float | None
    converged: bool
    n_nonsubmodular: int
    gap: float = 0.0
    statistics: Statistics | None = None


def weighted_loss(batch, loss, by_weight=None):
    """RiskValue of a batch before the pullback, of its loss before its examples are weighted."""
    # by_weight: of the model, by tables_by_weight
    wrong = None if loss.predicted is None else (loss.predicted != batch.labels) & (batch.labels >= 0)
    if batch.weight is None:
        n_errors = None if wrong is None else float(np.count_nonzero(wrong))
        value = None if loss.terms is None else float(loss.terms.sum())
        return RiskValue(value, None, n_errors, loss.converged, loss.n_nonsubmodular, loss.gap, loss.statistics)
    node_weight = weight_of_nodes(batch)
    if by_weight is None:
        statistics = loss.statistics.scaled(node_weight[:, None], batch.weight[0])
    else:
        statistics = by_weight.summed(loss.statistics, node_weight)
    n_errors = None if wrong is None else float(node_weight[wrong].sum())
    value = None if loss.terms is None else float(loss.terms @ node_weight)
    # Heaviest member: a bound, and exact where all weigh the same.
    gap = loss.gap and loss.gap * float(node_weight.max(initial=0.0))
    return RiskValue(value, None, n_errors, loss.converged, loss.n_nonsubmodular, gap, statistics)


def total_of(parts, gradient):
    """A RiskValue of parts, added in their order, and of the gradient that is theirs."""
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

    Batches are added in their order, whatever the number of threads; what an inference carries from call to call
    belongs to its batch.

    Parameters
    ----------
    objective : Objective
    potentials : LinearPotentials
    batches : list of Batch
        With labels.
    n_jobs : int or None, default=None
        Threads over batches, then inside one.
    seed : int, default=0
        Seed of rules that draw samples; every batch and every pass has its own.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.encoding import encode_X, encode_y, make_batches
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.objectives import EmpiricalRisk, Likelihood
    >>> from sklearn_crf.potentials import LinearPotentials, pairwise_form
    >>> encoded = encode_X(
    ...     [[[0.0], [0.2], [0.9]], [[1.0], [0.8]]],
    ...     edge_features="constant",
    ...     edge_types="tied",
    ... )
    >>> batches = make_batches(encoded, encode_y([[0, 0, 1], [1, 1]], encoded).labels)
    >>> potentials = LinearPotentials(1, 2, pairwise_form("potts", 2), fit_intercept=False)
    >>> risk = EmpiricalRisk(Likelihood(TreeInference()), potentials, batches)
    >>> found = risk.value_grad(np.zeros(potentials.n_coef))
    >>> round(found.value, 3), found.gradient.round(3).tolist()
    (3.466, [-1.25, -0.5])
    """

    #: How it is evaluated, in a few words.
    path = "general"

    def __init__(self, objective, potentials, batches, *, n_jobs=None, seed=0):
        self.objective = objective
        self.potentials = potentials
        self.batches = batches
        self.n_jobs = n_jobs
        self.seed = seed
        #: State of the inferences between passes, an entry for each batch; to be given to a risk of the same.
        self.carried: list[Any] = [None] * len(batches)
        self._edges, self._by_weight = {}, {}
        self.n_passes = 0
        self._labelled = np.array([weight_of_nodes(batch)[batch.labels >= 0].sum() for batch in batches])
        self.n_labelled = float(self._labelled.sum())

    @property
    def n_examples(self):
        """Number of examples."""
        return sum(len(batch.members) for batch in self.batches)

    @property
    def n_nodes(self):
        """Nodes of all examples, labelled or not."""
        return sum(batch.example.n_nodes for batch in self.batches)

    @property
    def has_unlabelled(self):
        """Whether labels of nodes are missing."""
        return any(bool(np.any(batch.labels < 0)) for batch in self.batches)

    @property
    def n_edges(self):
        """Edges of all examples."""
        return sum(batch.example.graph.n_edges for batch in self.batches)

    @property
    def is_forest(self):
        """Whether no example has a cycle."""
        return all(batch.example.is_forest for batch in self.batches)

    @property
    def edges_per_node(self):
        """Edges of all examples over their nodes."""
        return self.n_edges / max(self.n_nodes, 1)

    @property
    def curvature(self):
        """Rough diagonal of the Hessian at small weights, (n_coef,) float64; None where none is known."""
        if not isinstance(self.potentials, SparsePotentials):
            return None
        examples = [self.potentials.prepared(batch.example) for batch in self.batches]
        return self.potentials.curvature(examples, [weight_of_nodes(batch) for batch in self.batches])

    @cached_property
    def is_exact(self):
        """Whether values and gradients are those of one function on the graphs at hand."""
        if self.objective.exact_on != "forest":
            return self.objective.exact_on == "any"
        zeros, others = np.zeros(self.potentials.n_coef), [b for b in self.batches if not b.example.is_forest]
        return all(self.objective.is_exact_for(self.potentials.model(zeros, batch.example)) for batch in others)

    @property
    def label_counts(self):
        """Weighted number of nodes of each label."""
        counts = np.zeros(self.potentials.n_classes)
        for batch in self.batches:
            labelled = batch.labels >= 0
            counts += np.bincount(batch.labels[labelled], weight_of_nodes(batch)[labelled], minlength=len(counts))
        return counts

    @property
    def n_constant_errors(self):
        """Weighted number of wrong labels if every node had the commonest label."""
        counts = self.label_counts
        return float(counts.sum() - counts.max())

    def summed(self, function, *arguments, changes=False):
        """A sum over examples that a function of the risk gives.

        Parameters
        ----------
        function : callable(EmpiricalRisk, *arguments) -> float or ndarray
        *arguments : object
        changes : bool, default=False
            Whether the function lets what the objective has grown, ``objective.grown``, grow further.

        Returns
        -------
        float or ndarray
        """
        return function(self, *arguments)

    def derived(self, function):
        """The risk that a function makes of this one, such as that of the nodes without their edges.

        Parameters
        ----------
        function : callable(EmpiricalRisk) -> EmpiricalRisk

        Returns
        -------
        EmpiricalRisk
        """
        return function(self)

    def having(self, *, objective=None, potentials=None, batches=None):
        """The risk of another objective, with other potentials, or of other batches.

        Parameters
        ----------
        objective : Objective, optional
        potentials : LinearPotentials, optional
        batches : list of Batch, optional

        Returns
        -------
        EmpiricalRisk
            Which carries nothing of this one from call to call.
        """
        objective = self.objective if objective is None else objective
        potentials = self.potentials if potentials is None else potentials
        batches = self.batches if batches is None else batches
        return type(self)(objective, potentials, batches, n_jobs=self.n_jobs, seed=self.seed)

    def oracle(self, i, coef, *, n_threads=1, pulls_back=True):
        """Weighted loss of batch i.

        Parameters
        ----------
        i : int
        coef : ndarray of shape (n_coef,)
        n_threads : int, default=1
        pulls_back : bool, default=True
            Whether the result has the gradient by the weights, or else the statistics of which that is made.

        Returns
        -------
        RiskValue
        """
        batch = self.batches[i]
        (model, by_weight), objective = self.model_by_weight(i, coef), self.objective.of_batch(i)
        seed = self._seed_of_pass(i) if objective.draws else 0
        # Weights of nodes have a meaning only to losses that are sums of costs.
        weighs = batch.node_weight is not None and objective.weighs_nodes
        options = {"node_weight": batch.node_weight} if weighs else {}
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
        """Layout of edges that the models of a batch share.

        Parameters
        ----------
        i : int

        Returns
        -------
        EdgeLayout or None
        """
        if i not in self._edges:
            self._edges[i] = self.potentials.kept_edges(self.batches[i].example)
        return self._edges[i]

    def model_by_weight(self, i, coef):
        """Model of a batch, with tables of each weight where its examples differ in weight.

        Parameters
        ----------
        i : int
        coef : ndarray of shape (n_coef,)

        Returns
        -------
        model : PairwiseModel or FactorGraph
        by_weight : object or None
            Sums statistics of the model over weights, for ``weighted_loss``; None where all weights are equal.
        """
        model = self.potentials.model(coef, self.batches[i].example, self.edges_of(i))
        if i not in self._by_weight:
            self._by_weight[i] = tables_by_weight(self.batches[i], model)
        return by_weights(model, self._by_weight[i]), self._by_weight[i]

    def _seed_of_pass(self, i):
        return int(np.random.SeedSequence([self.seed, i, self.n_passes]).generate_state(1, np.uint32)[0])

    def value_grad(self, coef, members=None):
        """Loss over batches, added in their order.

        Parameters
        ----------
        coef : ndarray of shape (n_coef,)
        members : sequence of int, optional
            Batches to visit; None is all.

        Returns
        -------
        RiskValue
        """
        found = self._evaluate(coef, members)
        self.n_passes += 1
        return found

    def _evaluate(self, coef, members):
        members = range(len(self.batches)) if members is None else members
        parts = map_tasks(partial(self.oracle, coef=coef), members, self.n_jobs, self._takes_turns)
        return total_of(parts, np.sum([part.gradient for part in parts], axis=0))

    @cached_property
    def _takes_turns(self):
        """Whether batches are so small that what is not a kernel of the inference is done for one at a time."""
        most = max((batch.example.n_nodes for batch in self.batches), default=0)
        return self.objective.takes_turns and most <= _MOST_NODES_IN_TURN

    def labelled_share(self, members):
        """Share of the labelled nodes that some batches hold.

        Parameters
        ----------
        members : sequence of int

        Returns
        -------
        float
        """
        return float(self._labelled[list(members)].sum() / self.n_labelled)

    def forget(self):
        """Drop what inferences carry from call to call: the next pass starts cold."""
        self.carried = [None] * len(self.batches)


# Weights of examples, of whose nodes, edges and factors those of a batch share tables -------------------------------


def weight_of_nodes(batch):
    """Weight of the example of each node, (N,) float64."""
    sizes = np.diff(batch.node_ptr)
    return np.repeat(np.ones(len(sizes)) if batch.weight is None else batch.weight, sizes)


def weight_of_edges(batch):
    """Weight of the example of each edge, (E,) float64."""
    return weight_of_nodes(batch)[batch.example.graph.edges[:, 0]]


def tables_by_weight(batch, model):
    """Return the tables by weight of a model of the batch, or None if all its edges and factors have one weight."""
    if batch.weight is None or not np.ptp(batch.weight):
        return None
    if isinstance(model, FactorGraph):
        return FactorsByWeight(batch, model)
    return EdgesByWeight(batch, model) if batch.example.graph.n_edges else None


def model_by_weight(potentials, coef, batch):
    """Return the model of a batch, with tables of each weight where its examples differ in weight."""
    model = potentials.model(coef, batch.example)
    return by_weights(model, tables_by_weight(batch, model))


def by_weights(model, by_weight):
    """Return a model with the tables of each weight, or as it is without such tables."""
    return model if by_weight is None else by_weight.model(model)


class EdgesByWeight:
    r"""Tables for each weight that examples with edges of one batch have.

    .. math:: \sum_i \omega_i \frac{\partial \ell_i}{\partial \theta} =
        \sum_\omega \omega \frac{\partial \ell}{\partial \theta_\omega}, \qquad \theta_\omega = \theta

    Statistics of tables are sums over the edges of a batch. Edges whose examples have different weights read tables of
    their own, which are equal: so there is a sum for each weight.
    """

    def __init__(self, batch, model):
        values, index = np.unique(weight_of_edges(batch), return_inverse=True)
        # Pairs of a type and a weight that occur are the types; a type of one weight has no second table.
        pairs, edge_type = np.unique(model.edge_type.astype(np.int64) * len(values) + index, return_inverse=True)
        self._type, self._shape = pairs // len(values), model.tables.shape
        self._sum = _sums(values[pairs % len(values)], self._type, self._shape[0])
        self.shape = (len(pairs), *self._shape[1:])
        self._layout = EdgeLayout(edge_type.astype(np.int32), model.edge_weight)

    def model(self, model):
        """The same scores, from tables of each type and weight."""
        tables = self.tables(model.tables)
        if model.n_states is not None:
            return replace(model, tables=tables, edge_type=self._layout.edge_type)
        return model_with_layout(model.graph, model.unary, tables, self._layout)

    def tables(self, tables):
        """Return the tables of each type and weight."""
        return tables[self._type]

    def unweighted(self, statistics):
        """Statistics of the model of a batch, of those of the tables of each type and weight."""
        tables = np.zeros(self._shape)
        np.add.at(tables, self._type, statistics.tables)
        return Statistics(statistics.unary, tables)

    def summed(self, statistics, node_weight):
        """Weighted statistics of the model of a batch, of those of the tables of each type and weight."""
        unary, tables = statistics
        tables = (self._sum @ tables.reshape(len(tables), -1)).reshape(self._shape)
        return Statistics(unary * node_weight[:, np.newaxis], tables)


class FactorsByWeight:
    """Tables of a factor graph for each weight that examples of one batch have, as :class:`EdgesByWeight`."""

    def __init__(self, batch, model):
        # Constants, which have no node, are of no example.
        first = np.append(model.scope, 0)[model.scope_ptr[:-1]]
        values, index = np.unique(weight_of_nodes(batch)[first], return_inverse=True)
        pairs, self._table_id = np.unique(model.table_id * len(values) + index, return_inverse=True)
        self._table, weight = pairs // len(values), values[pairs % len(values)]
        sizes = np.diff(model.table_ptr)[self._table]
        self._ptr = np.concatenate(([0], np.cumsum(sizes)))
        # Cells of the tables of each weight among those of the model.
        self._cell = np.arange(self._ptr[-1]) + np.repeat(model.table_ptr[self._table] - self._ptr[:-1], sizes)
        self._sum = _sums(weight, self._table, model.n_tables)
        self._sum_of_cells = _sums(np.repeat(weight, sizes), self._cell, model.log_table.size)

    def model(self, model):
        """The same scores, from tables of each weight."""
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
        """Weighted statistics of the model of a batch, of those of the tables of each weight."""
        # Tables of costs may follow those of the model.
        cells, defaults = statistics.log_table[: len(self._cell)], statistics.table_default[: len(self._table)]
        return FactorStatistics(self._sum_of_cells @ cells, self._sum @ defaults)


def _sums(weight, row, n_rows):
    """Matrix of weighted sums over what belongs to each row."""
    return sp.csr_matrix((weight, (row, np.arange(len(row)))), shape=(n_rows, len(row)))
