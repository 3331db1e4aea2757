"""Likelihood of labelled chains that share one table, without a model of each batch and an inference on it."""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import map_tasks, thread_count
from sklearn_crf.kernels.exact.chains import chain_likelihood
from sklearn_crf.kernels.learning.feature_pairs import pair_gradient, pair_scores
from sklearn_crf.models import PairwiseModel, Statistics, check_labels
from sklearn_crf.objectives._base import Loss, RiskValue
from sklearn_crf.potentials import SparsePotentials

# Probabilities above exp(-600) are normal numbers, with some to spare for their products.
_WIDEST_RANGE = 600.0

# Numbers in the longest vector of any processor.
_LANES = 4

# Numbers in the statistics of batches that are kept together until they are pulled back (4 MB).
_KEPT_TOGETHER = 2**19

# Ranges of features that threads share.
_N_RANGES = 8


class _Transitions(NamedTuple):
    """A table of scores of neighbours in the forms that the kernel reads."""

    scores: np.ndarray  # (K, K)
    factor: np.ndarray  # (K, W): their exp below the best one, padded by zeros
    transposed: np.ndarray  # (K, W): the same of the table from right to left
    best: float
    widest: float  # range of scores of a node up to which no probability underflows

    @classmethod
    def of(cls, table):
        """Of a table (K, K) float64; None where its scores range too widely."""
        best = table.max()
        range_of_pairs = best - table.min()
        if not 2 * range_of_pairs < _WIDEST_RANGE:
            return None
        n_states = len(table)
        width = -(-n_states // _LANES) * _LANES
        factor, transposed = np.zeros((2, n_states, width))
        factor[:, :n_states] = np.exp(table - best)
        transposed[:, :n_states] = factor[:, :n_states].T
        return cls(table, factor, transposed, best, _WIDEST_RANGE - 2 * range_of_pairs)

    def statistics(self, unary, ptr, labels, posterior):
        """Statistics of the table, and terms and likeliest states of nodes; None where scores range too widely."""
        # unary, posterior: (N, K), which may be the same
        pairs, counts = np.zeros_like(self.factor), np.zeros_like(self.scores)
        terms, predicted = np.empty(len(labels)), np.empty(len(labels), dtype=np.int32)
        work = np.empty((2 * int(np.diff(ptr).max()) + 3, self.factor.shape[1]))
        outputs = posterior, pairs, counts, terms, predicted, work
        if not chain_likelihood(unary, ptr, *self, labels, *outputs):
            return None
        return (pairs * self.factor)[:, : len(counts)] - counts, terms, predicted


def loss_of_chains(model, labels):
    """Loss of labelled chains that share one table, or None of anything else and where scores range too widely."""
    if not isinstance(model, PairwiseModel) or model.edge_weight is not None or model.n_states is not None:
        return None
    if model.tables.shape[:2] != (1, 1) or np.min(labels, initial=0) < 0:
        return None
    labels = check_labels(model, labels)
    ptr = _chain_ptr(model.graph)
    transitions = None if ptr is None else _Transitions.of(model.tables[0, 0].astype(np.float64))
    if transitions is None:
        return None
    posterior = np.empty_like(model.unary)
    found = transitions.statistics(model.unary, ptr, labels, posterior)
    if found is None:
        return None
    table, terms, predicted = found
    return Loss(statistics=Statistics(posterior, table[None, None]), terms=terms, predicted=predicted)


def _chain_ptr(graph):
    """First node of each chain and the number of nodes, where edges lead from each node to the next one; else None."""
    first, second = graph.edges[:, 0], graph.edges[:, 1]
    if not graph.n_nodes or np.any(second != first + 1) or np.any(first[1:] <= first[:-1]):
        return None
    is_start = np.ones(graph.n_nodes + 1, dtype=bool)
    is_start[second] = False
    return np.flatnonzero(is_start)


class _Chains(NamedTuple):
    """The chains of a batch."""

    features: tuple  # arrays of FeatureColumns
    bounds: list  # entries of them where each range of features begins, and their number
    ptr: np.ndarray  # first node of each chain and the number of nodes
    labels: np.ndarray
    weight: float


class PassOverChains:
    """Risk and gradient of the likelihood of labelled chains with sparse features, of all batches in one pass.

    Scores of a batch become its statistics where they are, and stay in the cache until features have read them.
    """

    def __init__(self, potentials, chains):
        self._potentials = potentials
        self._chains = chains
        self._pairs = potentials.pairs.ptr, potentials.pairs.column
        self._groups = _groups([len(each.labels) * potentials.n_classes for each in chains])
        most = max(sum(len(chains[i].labels) for i in group) for group in self._groups)
        self._kept = np.empty((most, potentials.n_classes))

    @classmethod
    def of(cls, potentials, batches):
        """The pass over some batches; None where these are anything but labelled chains that share one table."""
        if not isinstance(potentials, SparsePotentials) or potentials.takes_sparse_edges:
            return None
        types = potentials.n_node_types, potentials.n_edge_types, potentials.n_edge_features
        if types != (1, 1, 1) or potentials.forbidden is not None:
            return None
        pointers = [_labelled_chains(batch) for batch in batches]
        if potentials.n_columns != potentials.n_classes or any(ptr is None for ptr in pointers):
            return None
        ranges = potentials.shared_ranges([batch.example for batch in batches])
        starts = [start for start, _ in ranges]
        return cls(potentials, [_chains(batch, ptr, starts) for batch, ptr in zip(batches, pointers, strict=True)])

    def value_grad(self, coef, members, n_jobs):
        """The risk of all batches, or of some; None where scores range too widely."""
        weights = self._potentials.unpack(np.ascontiguousarray(coef, dtype=np.float64))
        transitions = _Transitions.of(self._potentials.form.expand(weights.edge_coef)[0, 0])
        if transitions is None:
            return None
        gradient = np.zeros(self._potentials.n_coef)
        parts = self._potentials.unpack(gradient)
        tables, loss, n_errors = np.zeros_like(transitions.scores), 0.0, 0.0
        for group in self._groups if members is None else [[i] for i in members]:
            blocks = self._blocks(group)
            found = map_tasks(partial(self._losses, weights=weights, transitions=transitions), blocks, n_jobs)
            if any(each is None for each in found):
                return None
            for (_, statistics), (table, of_nodes, wrong) in zip(blocks, found, strict=True):
                if self._potentials.fit_intercept:
                    parts.intercept[0] += np.ones(len(statistics)) @ statistics
                tables += table
                loss += of_nodes
                n_errors += wrong
            # One thread reads all statistics once.
            ranges = pairwise((0, _N_RANGES) if thread_count(n_jobs) == 1 else range(_N_RANGES + 1))
            map_tasks(partial(self._pull, blocks=blocks, coef=parts.coef), ranges, n_jobs)
        parts.edge_coef[...] = self._potentials.form.adjoint(tables)
        return RiskValue(loss, gradient, n_errors, converged=True, n_nonsubmodular=0)

    def _blocks(self, group):
        """Batches, each with its part of the array of what is kept."""
        chains = [self._chains[i] for i in group]
        bounds = np.cumsum([0, *(len(each.labels) for each in chains)])
        return [(each, self._kept[slice(*ends)]) for each, ends in zip(chains, pairwise(bounds), strict=True)]

    def _losses(self, block, weights, transitions, n_threads):
        """Statistics of tables, loss and weight of wrong labels of a batch; its scores become statistics of nodes."""
        chains, scores = block
        scores[...] = weights.intercept[0] if self._potentials.fit_intercept else 0.0
        pair_scores(*chains.features, *self._pairs, weights.coef, scores, np.empty(scores.shape[1]))
        found = transitions.statistics(scores, chains.ptr, chains.labels, scores)
        if found is None:
            return None
        table, terms, predicted = found
        n_wrong = np.count_nonzero(predicted != chains.labels)
        if chains.weight != 1:
            scores *= chains.weight
        return chains.weight * table, chains.weight * float(terms.sum()), chains.weight * n_wrong

    def _pull(self, ranges, blocks, coef, n_threads):
        """The part of the gradient that belongs to some ranges of features."""
        first, last = ranges
        work = np.empty(self._kept.shape[1])
        for chains, statistics in blocks:
            bounds = chains.bounds[first], chains.bounds[last]
            pair_gradient(*chains.features, *bounds, *self._pairs, statistics, coef, work)


def _groups(sizes):
    """Consecutive batches whose statistics are kept together, about as many in each group."""
    n_groups = max(1, round(sum(sizes) / _KEPT_TOGETHER))
    number = np.minimum((np.cumsum(sizes) - 1) * n_groups // sum(sizes), n_groups - 1)
    return [np.flatnonzero(number == k).tolist() for k in np.unique(number)]


def _labelled_chains(batch):
    """First node of each chain of a batch and the number of nodes; None of anything but labelled chains."""
    example, weight = batch.example, batch.weight
    differs = weight is not None and np.any(weight != weight[0])
    if differs or example.has_factors or example.edge_features is not None or example.n_states is not None:
        return None
    return None if np.min(batch.labels, initial=0) < 0 else _chain_ptr(example.graph)


def _chains(batch, ptr, starts):
    features = batch.example.node_features
    bounds = [*np.searchsorted(features.feature, starts).tolist(), len(features.feature)]
    weight = 1.0 if batch.weight is None else float(batch.weight[0])
    return _Chains(features.arrays, bounds, ptr, np.ascontiguousarray(batch.labels, dtype=np.int32), weight)
