"""Chains that share one table of scores of neighbours, marginals of which one kernel gives without messages."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import out_of_turn
from sklearn_crf.inference._results import Marginals
from sklearn_crf.kernels.chains.inference import chain_marginals

# Probabilities above exp(-600) and odds up to exp(600) are normal numbers, with some to spare for their products.
WIDEST_RANGE = 600.0

# Where pairs are forbidden sums are checked to be above this: their products are above exp(-600) then.
_LEAST_SUM = np.exp(-300.0)

# Numbers in the longest vector of any processor.
_LANES = 4


class Transitions(NamedTuple):
    """A table of scores of neighbours in the forms that the kernel reads."""

    scores: np.ndarray  # (K, K)
    factor: np.ndarray  # (K, W): their exp below the best one, padded by zeros
    transposed: np.ndarray  # (K, W): the same of the table from right to left
    best: float
    widest: float  # range of scores of a node up to which no probability underflows
    least: float  # sums above it do not underflow either where pairs are forbidden; 0 where none are

    @classmethod
    def of(cls, table):
        """Of a table (K, K) float64; None where its scores range too widely."""
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
        """Marginals of the table, and terms of log Z of nodes; None where scores range too widely."""
        # posterior: (N, K), written to, which may be unary
        pairs, terms = np.zeros_like(self.factor), np.empty(len(unary))
        predicted = self._pass_over(unary, ptr, posterior, pairs, terms)
        return None if predicted is None else ((pairs * self.factor)[:, : len(self.scores)], terms)

    def node_marginals(self, unary, ptr):
        """Marginals of nodes alone, (N, K); None where scores range too widely."""
        posterior = np.empty_like(unary)
        predicted = self._pass_over(unary, ptr, posterior, self.factor[:0].copy(), np.empty(0))
        return None if predicted is None else posterior

    def _pass_over(self, unary, ptr, posterior, pairs, terms):
        """Return likeliest states of nodes, (N,) int32; None where scores range too widely."""
        # posterior, pairs, terms: written to, without rows where they are not asked for
        predicted = np.empty(len(unary), dtype=np.int32)
        with out_of_turn():
            fits = chain_marginals(unary, ptr, *self, posterior, pairs, terms, predicted)
        return predicted if fits else None


class BestTransitions(NamedTuple):
    """A table of scores of neighbours in the forms that the kernel of best labels reads."""

    scores: np.ndarray  # (K, K)
    factor: np.ndarray  # (K, W): the same from right to left below the best one, padded by -inf

    @classmethod
    def of(cls, table):
        """Of a table (K, K) in the precision of nodes; None where it forbids every pair."""
        best, n_states = table.max(), len(table)
        if not np.isfinite(best):
            return None
        factor = np.full((n_states, padded(n_states)), -np.inf, dtype=table.dtype)
        factor[:, :n_states] = table.T - best
        return cls(table, factor)


def padded(n_states):
    """Return the least number of entries of whole vectors."""
    return -(-n_states // _LANES) * _LANES


def chains_of(model):
    """Bounds of the chains of a pairwise model and their table; None and None where it is anything else."""
    if not _shares_a_table(model):
        return None, None
    ptr = model.graph.chain_ptr
    return ptr, None if ptr is None else Transitions.of(model.tables[0, 0].astype(np.float64))


def transitions_of(model, rule):
    """Return the forms of the table of a model that the kernel of a rule reads, or None if it has no single table."""
    if not _shares_a_table(model):
        return None
    table = model.tables[0, 0]
    return BestTransitions.of(table) if rule == "map" else Transitions.of(table.astype(np.float64))


def _shares_a_table(model):
    return model.edge_weight is None and model.n_states is None and model.tables.shape[:2] == (1, 1)


def node_marginals_of_chains(model):
    """The same for nodes alone, without a pass over the pairs of states."""
    ptr, transitions = chains_of(model)
    return None if transitions is None else transitions.node_marginals(model.unary, ptr)


def marginals_of_chains(model):
    """Exact marginals of chains that share one table, or None of anything else and where scores range too widely."""
    ptr, transitions = chains_of(model)
    if transitions is None:
        return None
    posterior = np.empty_like(model.unary)
    found = transitions.statistics(model.unary, ptr, posterior)
    if found is None:
        return None
    tables, terms = found
    return Marginals(posterior, tables[None, None], float(terms.sum()), terms, bound="exact", n_iter=1)
