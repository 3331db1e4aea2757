"""An objective over all training examples: values and gradients by the weights."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks
from sklearn_crf.inference import convergence_left_to_caller
from sklearn_crf.models import Statistics

# Batches whose statistics are kept until they are pulled back.
_N_TOGETHER = 8


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
        What ``value`` may be too small by, where losses are maxima that were not proven; inf if unknown.
    statistics : Statistics or None
        Derivative by the scores of a batch, before the pullback.
    """

    value: float | None
    gradient: np.ndarray | None
    n_errors: float | None
    converged: bool
    n_nonsubmodular: int
    gap: float = 0.0
    statistics: Statistics | None = None


def weighted_loss(batch, loss):
    """RiskValue of a batch before the pullback, of its loss before its examples are weighted."""
    node_weight = _node_weight(batch)
    statistics = loss.statistics
    if batch.weight is not None:
        # Members of one batch with edges share one weight, so one number serves the tables.
        statistics = statistics.scaled(node_weight[:, None], batch.weight[0])
    n_errors = None
    if loss.predicted is not None:
        n_errors = float(node_weight[(loss.predicted != batch.labels) & (batch.labels >= 0)].sum())
    value = None if loss.terms is None else float(loss.terms @ node_weight)
    # Heaviest member: a bound, and exact where all weigh the same, as examples with edges in one batch do.
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
    """

    def __init__(self, objective, potentials, batches, *, n_jobs=None, seed=0):
        self.objective = objective
        self.potentials = potentials
        self.batches = batches
        self.n_jobs = n_jobs
        self.seed = seed
        self._states = [None] * len(batches)
        self._n_passes = 0
        self._labelled = np.array([_node_weight(batch)[batch.labels >= 0].sum() for batch in batches])
        self.n_labelled = float(self._labelled.sum())

    @property
    def edges_per_node(self):
        """Edges of all examples over their nodes."""
        graphs = [batch.example.graph for batch in self.batches]
        return sum(graph.n_edges for graph in graphs) / max(sum(graph.n_nodes for graph in graphs), 1)

    @property
    def is_exact(self):
        """Whether values and gradients are those of one function on the graphs at hand."""
        exact_on = self.objective.exact_on
        if exact_on == "forest":
            return all(batch.example.is_forest for batch in self.batches)
        return exact_on == "any"

    @property
    def n_constant_errors(self):
        """Weighted number of wrong labels if every node had the commonest label."""
        counts = np.zeros(self.potentials.n_classes)
        for batch in self.batches:
            labelled = batch.labels >= 0
            counts += np.bincount(batch.labels[labelled], _node_weight(batch)[labelled], minlength=len(counts))
        return float(counts.sum() - counts.max())

    def oracle(self, i, coef, *, n_threads=1):
        """Loss of batch i.

        Parameters
        ----------
        i : int
        coef : ndarray of shape (n_coef,)
        n_threads : int, default=1

        Returns
        -------
        RiskValue
        """
        part = self._weighted_loss(i, coef, n_threads)
        return total_of([part], self.potentials.pullback(self.batches[i].example, part.statistics))

    def loss(self, i, coef, *, n_threads=1):
        """Loss of batch i by its model, before examples are weighted.

        Parameters
        ----------
        i : int
        coef : ndarray of shape (n_coef,)
        n_threads : int, default=1

        Returns
        -------
        Loss
        """
        batch = self.batches[i]
        model = self.potentials.model(coef, batch.example)
        objective = self.objective.of_batch(i)
        seed = self._seed_of_pass(i) if objective.draws else 0
        # Weights of nodes have a meaning only to losses that are sums of costs.
        weighs = batch.node_weight is not None and objective.weighs_nodes
        options = {"node_weight": batch.node_weight} if weighs else {}
        with convergence_left_to_caller(), batch.named_in_errors():
            loss = objective.loss_statistics(
                model, batch.labels, state=self._states[i], seed=seed, n_threads=n_threads, **options
            )
        self._states[i] = loss.state
        return loss

    def _weighted_loss(self, i, coef, n_threads):
        return weighted_loss(self.batches[i], self.loss(i, coef, n_threads=n_threads))

    def _seed_of_pass(self, i):
        return int(np.random.SeedSequence([self.seed, i, self._n_passes]).generate_state(1, np.uint32)[0])

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
        members = range(len(self.batches)) if members is None else members
        parts = map_tasks(lambda i, n_threads: self.oracle(i, coef, n_threads=n_threads), members, self.n_jobs)
        self._n_passes += 1
        return total_of(parts, np.sum([part.gradient for part in parts], axis=0))

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
        self._states = [None] * len(self.batches)


def _node_weight(batch):
    """Weight of the example of each node, (N,) float64."""
    sizes = np.diff(batch.node_ptr)
    return np.repeat(np.ones(len(sizes)) if batch.weight is None else batch.weight, sizes)


class SparseRisk(EmpiricalRisk):
    """An :class:`EmpiricalRisk` whose pullback is one pass over the features of many batches.

    A gradient for every batch would take more memory and time than all else where there are many more weights than
    nodes in a batch.

    Parameters
    ----------
    objective : Objective
    potentials : SparsePotentials
    batches : list of Batch
        With labels.
    n_jobs : int or None, default=None
        Threads over batches, then over features.
    seed : int, default=0
        As of :class:`EmpiricalRisk`.
    """

    def __init__(self, objective, potentials, batches, *, n_jobs=None, seed=0):
        batches = [replace(batch, example=potentials.prepared(batch.example)) for batch in batches]
        super().__init__(objective, potentials, batches, n_jobs=n_jobs, seed=seed)
        self._ranges = potentials.shared_ranges([batch.example for batch in batches])

    def value_grad(self, coef, members=None):
        members = list(range(len(self.batches)) if members is None else members)
        gradient = np.zeros(self.potentials.n_coef)
        parts = []
        for first in range(0, len(members), _N_TOGETHER):
            together = members[first : first + _N_TOGETHER]
            losses = map_tasks(lambda i, n_threads: self._weighted_loss(i, coef, n_threads), together, self.n_jobs)
            examples = [self.batches[i].example for i in together]
            statistics = [part.statistics for part in losses]
            self.potentials.add_pullbacks(gradient, examples, statistics, self._ranges, n_jobs=self.n_jobs)
            parts.extend(part._replace(statistics=None) for part in losses)
        self._n_passes += 1
        return total_of(parts, gradient)
