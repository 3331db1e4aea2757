"""The likelihood of labelled chains that share one table: no model of a batch, and one kernel for all of its loss."""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks, own_workspace, thread_count
from sklearn_crf.inference.exact._chains import Transitions, chain_ptr
from sklearn_crf.kernels.learning.chain_risk import risk_of_chains
from sklearn_crf.kernels.learning.feature_pairs import pair_gradient
from sklearn_crf.objectives._base import RiskValue
from sklearn_crf.objectives._example_weights import weight_of_nodes
from sklearn_crf.objectives.likelihood._likelihood import Likelihood
from sklearn_crf.potentials import SparsePotentials

# Numbers in the statistics of batches that threads share and that are kept until they are pulled back (1 MB).
_KEPT_TOGETHER = 2**17
# Least batches in such a group.
_FEWEST_TOGETHER = 4

# Ranges of features that threads share.
_N_RANGES = 8

# Most parts of the batches with a gradient of their own, and entries of their features for each weight and part: adding
# up gradients then takes some hundredths of the time.
_MOST_PARTS, _ENTRIES_OF_A_WEIGHT = 8, 3


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

    name = "sparse chains"

    def __init__(self, risk):
        potentials, n_jobs = risk.potentials, risk.n_jobs
        starts = [start for start, _ in potentials.shared_ranges([batch.example for batch in risk.batches])]
        self._potentials = potentials
        self._chains = chains = [_chains(batch, starts) for batch in risk.batches]
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

    @staticmethod
    def applies(objective, potentials, batches):
        """Return whether the examples are labelled chains that share one table, and inference is exact on them."""
        if type(objective) is not Likelihood or objective.exact_on is None:
            return False
        if not isinstance(potentials, SparsePotentials) or potentials.takes_sparse_edges:
            return False
        types = potentials.n_node_types, potentials.n_edge_types, potentials.n_edge_features
        # The kernel expects sums of zero where pairs are forbidden.
        if types != (1, 1, 1) or (potentials.forbidden_ends is not None and potentials.forbidden is None):
            return False
        return potentials.n_columns == potentials.n_classes and all(map(_are_labelled_chains, batches))

    def value_grad(self, risk, coef, members):
        """Return the risk of all batches or of some, or None if scores range too widely."""
        n_jobs = risk.n_jobs
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


def _are_labelled_chains(batch):
    example = batch.example
    if example.has_factors or example.edge_features is not None or example.n_states is not None:
        return False
    return np.min(batch.labels, initial=0) >= 0 and chain_ptr(example.graph) is not None


def _chains(batch, starts):
    features, ptr = batch.example.node_features, chain_ptr(batch.example.graph)
    bounds = [*np.searchsorted(features.feature, starts).tolist(), len(features.feature)]
    weight = np.empty(0)
    if batch.weight is not None:
        weight = weight_of_nodes(batch)[ptr[:-1]]
    labels = np.ascontiguousarray(batch.labels, dtype=np.int32)
    return _Chains(features.arrays, bounds, ptr, int(np.diff(ptr).max()), labels, weight)
