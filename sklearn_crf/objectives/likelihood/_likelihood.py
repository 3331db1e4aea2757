"""Likelihood by marginals: exact, approximate as the inference is, or by a convex upper bound on the log-partition.

Labelled chains that share one table need no model of each batch and no inference on it: one kernel has their loss.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks, own_workspace, thread_count
from sklearn_crf.inference.exact._chains import Transitions, chain_ptr, chains_of
from sklearn_crf.kernels.learning.chain_risk import risk_of_chains
from sklearn_crf.kernels.learning.feature_pairs import pair_gradient
from sklearn_crf.models import (
    PairwiseModel,
    Statistics,
    check_labels,
    excess_over_labels,
    labeling_statistics,
    score_terms,
)
from sklearn_crf.objectives._base import Loss, Objective, RiskValue, observed_model
from sklearn_crf.objectives._example_weights import weight_of_nodes
from sklearn_crf.objectives.likelihood._pass_over_nodes import PassOverNodes
from sklearn_crf.potentials import SparsePotentials

# Messages are far more numerous than weights: their errors cancel in a gradient that is a sum over nodes.
_TOL_OF_GRADIENT = 10.0

# Numbers in the statistics of batches that threads share and that are kept until they are pulled back (1 MB).
_KEPT_TOGETHER = 2**17
# Least batches in such a group.
_FEWEST_TOGETHER = 4

# Ranges of features that threads share.
_N_RANGES = 8

# Most parts of the batches with a gradient of their own, and entries of their features for each weight and part: adding
# up gradients then takes some hundredths of the time.
_MOST_PARTS, _ENTRIES_OF_A_WEIGHT = 8, 3


class Likelihood(Objective):
    r"""Negative log-likelihood, with marginals from an inference algorithm.

    .. math::
        \ell(\theta) = \log Z(\theta) - \log Z(\theta \mid y_{\mathrm{observed}}), \qquad
        \nabla \ell = \mu(\theta) - \mu(\theta \mid y_{\mathrm{observed}})

    With every node labelled the second term is the score of the labeling. Exact inference gives maximum
    likelihood (Kumar et al. 2005, Eq. 2 to 4), loopy belief propagation the pseudo-marginal approximation
    (section 4.1), mean-field its variational bound. Unlabelled nodes are summed out.

    Parameters
    ----------
    inference : Inference, optional
        One that can do ``"marginals"``; None is the one that predicts.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import Likelihood
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> labels = np.array([1, 1, 1], dtype=np.int32)
    >>> loss = Likelihood(TreeInference()).loss_statistics(model, labels)
    >>> round(float(loss.terms.sum()), 3)
    0.977
    """

    needs = frozenset({"marginals"})
    missing = "marginalised"

    def __init__(self, inference=None):
        self.inference = inference

    @property
    def exact_on(self):
        """Graphs on which the inference is exact."""
        return None if self.inference is None else self.inference.exact_on

    @property
    def takes_turns(self):
        return self.inference is not None and self.inference.takes_turns

    def is_exact_for(self, model):
        return self.inference is not None and self.inference.is_exact_for(model)

    def whole_pass(self, potentials, batches, n_jobs=1):
        if self.exact_on is None:
            return None
        found = PassOverChains.of(potentials, batches, n_jobs)
        return found or PassOverNodes.without_edges(potentials, batches, n_jobs)

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        labels = check_labels(model, labels, may_miss=True)
        if self.exact_on is not None:
            loss = loss_of_chains(model, labels)
            if loss is not None:
                return loss._replace(state=state)
        # Every call starts cold, as prediction will. Loopy belief propagation may have several fixed points: messages
        # that remember another model would follow a branch that prediction never finds, and a line search that
        # comes back to a point would find another value there. What is exact remembers how it went about the graph, and
        # gives the same at any start.
        exact = self.is_exact_for(model)
        first, second = state if exact and state is not None else (None, None)
        free = self.inference.marginals_for_learning(model, init=first, n_threads=n_threads)
        loss = loss_of_marginals(model, labels, free)
        if loss is not None:
            return loss._replace(state=(free.state, None) if exact else None)
        observed = observed_model(model, labels)
        if observed is None:
            truth, truth_terms, converged, second = labeling_statistics(model, labels), None, free.converged, None
            if free.log_z_terms is not None:
                truth_terms = score_terms(model, labels)
        else:
            fixed = self.inference.marginals_for_learning(observed, init=second, n_threads=n_threads)
            truth, truth_terms, second = fixed.statistics, fixed.log_z_terms, fixed.state
            converged = free.converged and fixed.converged
        return Loss(
            statistics=free.statistics.minus(truth),
            terms=None if free.log_z_terms is None else free.log_z_terms - truth_terms,
            predicted=np.argmax(free.unary, axis=1).astype(np.int32),
            state=(free.state, second) if exact else None,
            converged=converged,
        )


class RelaxedLikelihood(Objective):
    r"""Negative log-likelihood with the log-partition of a convex relaxation in place of the exact one.

    .. math:: \ell(\theta) = \tilde A(\theta) - \mathrm{score}(y; \theta), \qquad
        \tilde A(\theta) = \max_{\tau \in L} \langle \theta, \tau \rangle + \tilde H(\tau)

    With a concave entropy the maximum is unique and its derivative is the maximiser, so that the loss is a convex
    function of the scores with one value wherever the inner problem starts: each call goes on where the last for the
    same batch stopped. Where the entropy gives an upper bound, so is the loss. Unlabelled nodes are summed out by the
    same relaxation, which is a difference of convex functions.

    Source: Jancsary 2012, CRF recipes 1 and 3.

    Parameters
    ----------
    inference : Inference
        That solves the relaxation; one that can do ``"marginals"`` and takes its own ``state`` as ``init``.
    final_tol : float, optional
        Tolerance to which that of the inference falls with the gradient of the risk; None leaves it as it is.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import TRWMessagePassing
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import RelaxedLikelihood
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> labels = np.array([1, 1, 1], dtype=np.int32)
    >>> loss = RelaxedLikelihood(TRWMessagePassing()).loss_statistics(model, labels)
    >>> round(float(loss.terms.sum()), 3)
    0.977
    """

    needs = frozenset({"marginals"})
    missing = "marginalised"

    def __init__(self, inference, final_tol=None):
        self.inference = inference
        self.final_tol = final_tol

    @property
    def is_settled(self):
        return self.final_tol is None or self.inference.tol <= self.final_tol

    @property
    def noise(self):
        return self.final_tol or 0.0

    @property
    def takes_turns(self):
        return self.inference.takes_turns

    def settle(self, gradient=None):
        if self.is_settled:
            return False
        before = self.inference.tol
        deserved = before / 10 if gradient is None else _TOL_OF_GRADIENT * gradient
        tol = min(before, max(self.final_tol, deserved))
        self.inference.tol = tol
        return tol < before

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        labels = check_labels(model, labels, may_miss=True)
        free_state, fixed_state = (None, None) if state is None else state
        free = self.inference.marginals_for_learning(model, init=free_state, n_threads=n_threads)
        loss = loss_of_marginals(model, labels, free)
        if loss is not None:
            return loss._replace(state=(free.state, fixed_state))
        converged = free.converged
        observed = observed_model(model, labels)
        if observed is None:
            truth, truth_terms = labeling_statistics(model, labels), score_terms(model, labels)
        else:
            fixed = self.inference.marginals_for_learning(observed, init=fixed_state, n_threads=n_threads)
            fixed_state = fixed.state
            truth, truth_terms, converged = fixed.statistics, fixed.log_z_terms, converged and fixed.converged
        return Loss(
            statistics=free.statistics.minus(truth),
            terms=free.log_z_terms - truth_terms,
            predicted=np.argmax(free.unary, axis=1).astype(np.int32),
            state=(free.state, fixed_state),
            converged=converged,
        )


def loss_of_marginals(model, labels, free):
    """Loss of a pairwise model with its marginals, or None of another, without a log-partition, or without a label."""
    if not isinstance(model, PairwiseModel) or free.log_z_terms is None:
        return None
    found = excess_over_labels(model, labels, free.statistics, free.log_z_terms)
    if found is None:
        return None
    terms, statistics, predicted = found
    return Loss(statistics=statistics, terms=terms, predicted=predicted, converged=free.converged)


def loss_of_chains(model, labels):
    """Loss of labelled chains that share one table, or None of anything else and where scores range too widely."""
    # Edges with weights have no table in common.
    if not isinstance(model, PairwiseModel) or model.edge_weight is not None or np.min(labels, initial=0) < 0:
        return None
    labels = check_labels(model, labels)
    ptr, transitions = chains_of(model)
    if transitions is None:
        return None
    posterior = np.empty_like(model.unary)
    found = transitions.statistics(model.unary, ptr, labels, posterior)
    if found is None:
        return None
    table, terms, predicted = found
    return Loss(statistics=Statistics(posterior, table[None, None]), terms=terms, predicted=predicted)


class _Chains(NamedTuple):
    """The chains of a batch."""

    features: tuple  # arrays of FeatureColumns
    bounds: list  # entries of them where each range of features begins, and their number
    ptr: np.ndarray  # first node of each chain and the number of nodes
    longest: int
    labels: np.ndarray
    weight: np.ndarray  # of each chain, none where all are one


class PassOverChains:
    """Risk and gradient of the likelihood of labelled chains with sparse features, of all batches in one pass.

    Scores of a batch become its statistics where they are, and stay in the cache until features have read them: one
    call of a kernel, unless threads share the features.
    """

    def __init__(self, potentials, chains, n_jobs):
        self._potentials = potentials
        self._chains = chains
        self._pairs = potentials.pairs.ptr, potentials.pairs.column
        ends = potentials.forbidden_ends
        self._ends = np.zeros((0, potentials.n_classes)) if ends is None else np.where(ends, -np.inf, 0.0)
        # Features add up the batches of a part in their order, whatever the groups.
        sizes = [len(each.labels) * potentials.n_classes for each in chains]
        n_threads, n_entries = thread_count(n_jobs), sum(len(each.features[2]) for each in chains)
        self._parts = _alike(sizes, _n_parts(n_entries, potentials.n_coef, len(chains)))
        self._groups = [[i] for i in range(len(chains))] if n_threads == 1 else _groups(sizes)
        kept_at_once = self._groups if len(self._parts) == 1 else [[i] for i in range(len(chains))]
        most = max(sum(len(chains[i].labels) for i in group) for group in kept_at_once)
        n_kept = 1 if n_threads == 1 else len(self._parts)
        self._kept = np.empty((n_kept, most, potentials.n_classes))
        self._gradients = np.empty((n_kept, potentials.n_coef if len(self._parts) > 1 else 0))

    @classmethod
    def of(cls, potentials, batches, n_jobs=1):
        """The pass over some batches; None where these are anything but labelled chains that share one table."""
        if not isinstance(potentials, SparsePotentials) or potentials.takes_sparse_edges:
            return None
        types = potentials.n_node_types, potentials.n_edge_types, potentials.n_edge_features
        # The kernel expects sums of zero where pairs are forbidden.
        if types != (1, 1, 1) or (potentials.forbidden_ends is not None and potentials.forbidden is None):
            return None
        pointers = [_labelled_chains(batch) for batch in batches]
        if potentials.n_columns != potentials.n_classes or any(ptr is None for ptr in pointers):
            return None
        ranges = potentials.shared_ranges([batch.example for batch in batches])
        starts = [start for start, _ in ranges]
        chains = [_chains(batch, ptr, starts) for batch, ptr in zip(batches, pointers, strict=True)]
        return cls(potentials, chains, n_jobs)

    def value_grad(self, coef, members, n_jobs):
        """The risk of all batches, or of some; None where scores range too widely."""
        weights = self._potentials.unpack(np.ascontiguousarray(coef, dtype=np.float64))
        tables = self._potentials.form.expand(weights.edge_coef)
        transitions = Transitions.of(self._potentials.forbid_pairs(tables)[0, 0])
        if transitions is None:
            return None
        gradient = np.zeros(self._potentials.n_coef)
        if members is None and len(self._parts) > 1:
            found = self._sum_of_parts(gradient, weights, transitions, n_jobs)
        else:
            groups = self._groups if members is None else [[i] for i in members]
            found = self._sum_of_groups(groups, self._kept[0], gradient, weights, transitions, n_jobs)
        if found is None:
            return None
        tables, loss, n_errors = found
        self._potentials.unpack(gradient).edge_coef[...] = self._potentials.form.adjoint(tables)
        return RiskValue(loss, gradient, n_errors, converged=True, n_nonsubmodular=0)

    def _sum_of_parts(self, gradient, weights, transitions, n_jobs):
        """Statistics of tables, loss and weight of wrong labels of all parts, whose gradients are added up in order."""

        def part(i, n_threads):
            own, kept = gradient, self._kept[i % len(self._kept)]
            if i:
                own = self._gradients[i % len(self._gradients)]
                own.fill(0.0)
            batches = [[k] for k in self._parts[i]]
            return own, self._sum_of_groups(batches, kept, own, weights, transitions, 1)

        total = np.zeros_like(transitions.scores), 0.0, 0.0
        # One thread adds up each part before the next one.
        lots = [[i] for i in range(len(self._parts))] if len(self._kept) == 1 else [range(len(self._parts))]
        for lot in lots:
            for own, found in map_tasks(part, lot, n_jobs):
                if found is None:
                    return None
                if own is not gradient:
                    np.add(gradient, own, out=gradient)
                total = tuple(a + b for a, b in zip(total, found, strict=True))
        return total

    def _sum_of_groups(self, groups, kept, gradient, weights, transitions, n_jobs):
        """The same of groups of batches, one after the other; adds the gradient of all weights but those of tables."""
        parts = self._potentials.unpack(gradient)
        shared = _mapped if thread_count(n_jobs) == 1 else partial(map_tasks, n_jobs=n_jobs)
        tables, loss, n_errors = np.zeros_like(transitions.scores), 0.0, 0.0
        for group in groups:
            blocks = self._blocks(group, kept)
            # One thread reads all statistics once, while they are in the cache.
            alone = shared is _mapped
            losses = partial(
                self._losses, weights=weights, transitions=transitions, coef=parts.coef[: None if alone else 0]
            )
            found = shared(losses, blocks)
            if any(each is None for each in found):
                return None
            for table, of_nodes, wrong, by_intercept in found:
                if self._potentials.fit_intercept:
                    parts.intercept[0] += by_intercept
                tables += table
                loss += of_nodes
                n_errors += wrong
            if not alone:
                shared(partial(self._pull, blocks=blocks, coef=parts.coef), pairwise(range(_N_RANGES + 1)))
        return tables, loss, n_errors

    def _blocks(self, group, kept):
        """Batches, each with its part of the array of what is kept."""
        chains = [self._chains[i] for i in group]
        bounds = np.cumsum([0, *(len(each.labels) for each in chains)])
        return [(each, kept[slice(*ends)]) for each, ends in zip(chains, pairwise(bounds), strict=True)]

    def _losses(self, block, weights, transitions, coef, n_threads):
        """Statistics of tables, loss, weight of wrong labels and gradient by intercepts of a batch, besides nodes'."""
        # coef: derivatives by the weights of features, added to unless there are none
        chains, statistics = block
        n_nodes, n_classes = statistics.shape
        pairs, counts = np.zeros_like(transitions.factor), np.zeros_like(transitions.scores)
        by_intercept, columns = own_workspace(n_classes), own_workspace(n_classes)
        intercept = weights.intercept[0] if self._potentials.fit_intercept else np.zeros(n_classes)
        found = risk_of_chains(
            *chains.features,
            *self._pairs,
            weights.coef,
            intercept,
            chains.ptr,
            *transitions,
            self._ends,
            chains.labels,
            chains.weight,
            statistics,
            pairs,
            counts,
            by_intercept,
            coef,
            own_workspace(n_nodes),
            own_workspace(n_nodes, np.int32),
            transitions.workspace(chains.longest),
            columns,
        )
        if found is None:
            return None
        table = (pairs * transitions.factor)[:, :n_classes] - counts
        return table, *found, by_intercept

    def _pull(self, ranges, blocks, coef, n_threads):
        """The part of the gradient that belongs to some ranges of features."""
        first, last = ranges
        work = own_workspace(self._potentials.n_columns)
        for chains, statistics in blocks:
            bounds = chains.bounds[first], chains.bounds[last]
            pair_gradient(*chains.features, *bounds, *self._pairs, statistics, coef, work)


def _mapped(function, tasks):
    """Results of tasks by this thread; of many short ones to ask for the number of threads takes long."""
    return [function(task, n_threads=1) for task in tasks]


def _n_parts(n_entries, n_coef, n_batches):
    """Parts of the batches with a gradient of their own: one, or so many that 2, 4 or 8 threads have as much to do."""
    return 2 ** int(np.log2(min(1 + n_entries // (_ENTRIES_OF_A_WEIGHT * n_coef), _MOST_PARTS, n_batches)))


def _groups(sizes):
    """Consecutive batches whose statistics are kept together, about as many in each group."""
    return _alike(sizes, max(1, min(round(sum(sizes) / _KEPT_TOGETHER), len(sizes) // _FEWEST_TOGETHER)))


def _alike(sizes, n_groups):
    """Consecutive batches in groups of about the same size."""
    number = np.minimum((np.cumsum(sizes) - 1) * n_groups // sum(sizes), n_groups - 1)
    return [np.flatnonzero(number == k).tolist() for k in np.unique(number)]


def _labelled_chains(batch):
    """First node of each chain of a batch and the number of nodes; None of anything but labelled chains."""
    example = batch.example
    if example.has_factors or example.edge_features is not None or example.n_states is not None:
        return None
    return None if np.min(batch.labels, initial=0) < 0 else chain_ptr(example.graph)


def _chains(batch, ptr, starts):
    features = batch.example.node_features
    bounds = [*np.searchsorted(features.feature, starts).tolist(), len(features.feature)]
    weight = np.empty(0)
    if batch.weight is not None:
        weight = weight_of_nodes(batch)[ptr[:-1]]
    labels = np.ascontiguousarray(batch.labels, dtype=np.int32)
    return _Chains(features.arrays, bounds, ptr, int(np.diff(ptr).max()), labels, weight)
