"""Marginals of chains that share one table of pairwise scores, computed by one kernel without messages."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.inference._results import Marginals
from sklearn_crf.kernels.chains.chains import chain_marginals
from sklearn_crf.models import Statistics

# Probabilities above exp(-600) and odds up to exp(600) are normal floating-point numbers, and so are their products.
WIDEST_RANGE = 600.0

# If pairs are forbidden, sums must be above this limit, so that products of two sums are above exp(-600).
_LEAST_SUM = np.exp(-300.0)

# Number of float64 values in the widest vector of any supported processor.
_LANES = 4


class Transitions(NamedTuple):
    """A table of pairwise scores of neighbours, in the forms that the kernel reads."""

    scores: np.ndarray  # (K, K)
    factor: np.ndarray  # (K, W): exp of the scores minus the best score, padded with zeros
    transposed: np.ndarray  # (K, W): the factors for the direction from right to left
    best: float
    widest: float  # maximum range of the scores of a node for which no probability underflows
    least: float  # if pairs are forbidden, the limit above which sums do not underflow; otherwise 0

    @classmethod
    def of(cls, table):
        """Convert a table (K, K) float64, or return None if the range of its scores is too wide."""
        best, least, least_sum = table.max(), table.min(), 0.0
        if least == -np.inf:
            least, least_sum = np.min(table, where=table > -np.inf, initial=best), _LEAST_SUM
        if not np.isfinite(least) or not 2 * (best - least) < WIDEST_RANGE:
            return None
        n_states = len(table)
        factor, transposed = np.zeros((2, n_states, padded(n_states)))
        factor[:, :n_states] = np.exp(table - best)
        transposed[:, :n_states] = factor[:, :n_states].T
        widest = WIDEST_RANGE - 2 * (best - least)
        return cls(table, factor, transposed, best, 0.5 * widest if least_sum else widest, least_sum)

    def statistics(self, unary: np.ndarray, ptr: np.ndarray, posterior: np.ndarray) -> tuple | None:
        """Return the table's statistics and each node's term of log Z, or None if the range of scores is too wide."""
        # posterior: (N, K), output, which may be unary itself
        pairs, terms = np.zeros_like(self.factor), np.empty(len(unary))
        predicted = self._pass_over(unary, ptr, posterior, pairs, terms)
        return None if predicted is None else ((pairs * self.factor)[:, : len(self.scores)], terms)

    def node_marginals(self, unary, ptr):
        """Return the marginals of nodes, (N, K), or None if the range of scores is too wide."""
        posterior = np.empty_like(unary)
        predicted = self._pass_over(unary, ptr, posterior, self.factor[:0].copy(), np.empty(0))
        return None if predicted is None else posterior

    def _pass_over(self, unary, ptr, posterior, pairs, terms):
        """Return the most probable states of nodes, (N,) int32, or None if the range of scores is too wide."""
        # posterior, pairs, terms: outputs; pairs and terms have no rows if they are not needed
        predicted = np.empty(len(unary), dtype=np.int32)
        fits = chain_marginals(unary, ptr, self, posterior, pairs, terms, predicted)
        return predicted if fits else None


class RunTransitions(NamedTuple):
    """Tables of pairwise scores, and of durations of runs if there are any, in the forms that the kernel reads."""

    pairs: Transitions  # with durations, factors of pairs of equal states are zero
    scores: np.ndarray | None = None  # (K, D), of durations
    factor: np.ndarray | None = None  # (D, W): exp of the scores minus the best score
    stay: np.ndarray | None = None  # (W,): factors of pairs of equal states
    shortest: int = 1  # runs of fewer nodes are forbidden inside a chain
    best: float = 0.0

    @classmethod
    def of(
        cls, table: np.ndarray, durations: np.ndarray, shortest: int, *, varies: bool = False
    ) -> "RunTransitions | None":
        """Convert a table (K, K) and scores of durations (K, D), or return None if the range of scores is too wide."""
        # varies: whether some scores of runs depend on nodes
        if not durations.size:
            pairs = Transitions.of(table)
            return None if pairs is None else cls(pairs)
        n_states, best_run, same = len(table), durations.max(), np.eye(len(table), dtype=bool)
        scores = np.where(same, table, table + best_run)
        best, allowed = scores.max(), scores > -np.inf
        width = best - np.min(scores, where=allowed, initial=best) + best_run - durations.min()
        if not 3 * width < WIDEST_RANGE:
            return None
        factor, transposed = np.zeros((2, n_states, padded(n_states)))
        stay, of_runs = np.zeros(factor.shape[1]), np.zeros((durations.shape[1], factor.shape[1]))
        factor[:, :n_states] = np.where(same, 0.0, np.exp(scores - best))
        transposed[:, :n_states] = factor[:, :n_states].T
        stay[:n_states] = np.exp(scores.diagonal() - best)
        of_runs[:, :n_states] = np.exp(durations.T - best_run)
        # If any run may follow any other run, small probabilities have no effect.
        widest, least = np.inf, 0.0
        if varies or shortest > 1 or not allowed.all():
            widest, least = 0.5 * (WIDEST_RANGE - 3 * width), _LEAST_SUM
        pairs = Transitions(table, factor, transposed, best, widest, least)
        return cls(pairs, durations, of_runs, stay, shortest, best_run)


class BestTransitions(NamedTuple):
    """A table of pairwise scores of neighbours, in the forms that the kernel for best labels reads."""

    scores: np.ndarray  # (K, K)
    factor: np.ndarray  # (K, W): scores for the direction from right to left, minus the best score, padded with -inf

    @classmethod
    def of(cls, table):
        """Convert a table (K, K) with the data type of nodes, or return None if it forbids every pair."""
        best, n_states = table.max(), len(table)
        if not np.isfinite(best):
            return None
        factor = np.full((n_states, padded(n_states)), -np.inf, dtype=table.dtype)
        factor[:, :n_states] = table.T - best
        return cls(table, factor)


def padded(n_states):
    """Return the number of states, rounded up to whole SIMD vectors."""
    return -(-n_states // _LANES) * _LANES


def chains_of(model):
    """Return the first node of each chain and the transitions, or (None, None) unless all edges share one table."""
    if not _shares_a_table(model):
        return None, None
    ptr = model.graph.chain_ptr
    return ptr, None if ptr is None else Transitions.of(model.tables[0, 0].astype(np.float64))


def transitions_of(model, rule):
    """Return the table of a model in the form for a decoding rule, or None if edges have different tables."""
    if not _shares_a_table(model):
        return None
    table = model.tables[0, 0]
    return BestTransitions.of(table) if rule == "map" else Transitions.of(table.astype(np.float64))


def _shares_a_table(model):
    return model.edge_weight is None and model.n_states is None and model.tables.shape[:2] == (1, 1)


def compute_chain_node_marginals(model):
    """Return the marginals of nodes, or None if the model or its range of scores is unsuitable."""
    ptr, transitions = chains_of(model)
    return None if transitions is None else transitions.node_marginals(model.unary, ptr)


def compute_chain_marginals(model):
    """Return exact marginals of chains that share one table, or None if the model or its score range is unsuitable."""
    ptr, transitions = chains_of(model)
    if transitions is None:
        return None
    posterior = np.empty_like(model.unary)
    found = transitions.statistics(model.unary, ptr, posterior)
    if found is None:
        return None
    tables, terms = found
    statistics = Statistics(posterior, tables[None, None])
    return Marginals(posterior, statistics, float(terms.sum()), terms, bound="exact", n_iter=1)
