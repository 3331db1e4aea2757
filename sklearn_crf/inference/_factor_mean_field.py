"""Naive mean field on factor graphs: sweeps, their bound, and the derivatives of a loss through them."""

import numpy as np
from scipy.special import entr, log_softmax

from sklearn_crf.inference._local_search import search_problem
from sklearn_crf.kernels.local.local import (
    factor_mean_field_statistics,
    factor_mean_field_sweep,
    factor_mean_field_undo,
)
from sklearn_crf.models import COUNT, FactorGraph, FactorStatistics, SmallFactors


class FactorMeanField:
    """Sweeps over the nodes of a factor graph, each of which sets the marginals of a node to their optimum."""

    def __init__(self, model: FactorGraph) -> None:
        self.model, (self.problem, self.unary) = model, search_problem(model)
        self._small = SmallFactors(model)

    @property
    def forbids(self) -> bool:
        """Whether a factor of two or more nodes forbids a joint state."""
        p, model = self.problem, self.model
        n_listed = np.diff(p.table_ptr)[p.table]
        joint = np.flatnonzero(model.arity >= 2)
        sizes = model.n_states[p.slot_node].astype(float)
        n_cells = np.multiply.reduceat(sizes, p.slot_ptr[:-1]) if len(joint) else 0.0
        # Count tables list counts of nodes, from 0 to all.
        is_partial = n_listed < np.where(p.kind[p.table] == COUNT, model.arity[joint] + 1.0, n_cells)
        is_used = np.zeros(len(p.kind), dtype=bool)
        is_used[p.table] = True
        of_cell = np.repeat(is_used, np.diff(p.table_ptr))
        default = p.fallback[p.table[is_partial]]
        return bool(np.isneginf(p.values[of_cell]).any() or np.isneginf(default).any())

    @property
    def n_joint_factors(self) -> np.ndarray:
        """Number of factors of two or more nodes for each node, (N,)."""
        return np.diff(self.problem.node_ptr)

    def sweep(self, damping: float, q: np.ndarray) -> tuple[float, np.ndarray]:
        """Update marginals in place; return the largest change, and the logarithms of the marginals without damping."""
        # q: (N, K)
        log_q = np.empty_like(q)
        return factor_mean_field_sweep(self.problem, self.unary, damping, q, log_q), log_q

    def run(self, n_sweeps: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the marginals at the start and after each sweep, and the logarithms of the last marginals."""
        log_q = log_softmax(self.unary, axis=1)
        kept = [np.exp(log_q)]
        for _ in range(n_sweeps):
            kept.append(kept[-1].copy())
            _, log_q = self.sweep(0.0, kept[-1])
        return kept, log_q

    def bound(self, q: np.ndarray) -> tuple[np.ndarray, FactorStatistics]:
        """Return the terms of the bound, (N,), and the probabilities of the cells of all tables."""
        terms = np.where(q > 0, q * np.where(q > 0, self.unary, 0.0), 0.0).sum(axis=1) + entr(q).sum(axis=1)
        terms[:1] += self._small.constant(self.model)
        log_table, default = np.zeros(self.model.log_table.size), np.zeros(self.model.n_tables)
        factor_mean_field_statistics(self.problem, self.unary, q, terms, log_table, default)
        # Probabilities of unlisted cells of sparse tables are differences, which have rounding errors.
        default = np.maximum(default, 0.0)
        self._small.add_statistics(self.model, q, log_table, default)
        return terms, FactorStatistics(log_table, default)

    def undo(self, kept: list[np.ndarray], slope: np.ndarray) -> FactorStatistics:
        """Return the derivatives of a loss with respect to the scores of all tables.

        ``kept`` holds the marginals at the start and after each sweep. ``slope`` is the derivative of the loss with
        respect to the scores from which the last update computed the marginals of each node.
        """
        # kept: (n_sweeps + 1) times (N, K); slope: (N, K)
        log_table, default = np.zeros(self.model.log_table.size), np.zeros(self.model.n_tables)
        # Here, only tables that list all cells have the default score -inf.
        problem = self.problem._replace(fallback=np.maximum(self.problem.fallback, np.finfo(float).min))
        adjoint, of_unary = np.zeros_like(slope), np.zeros_like(slope)
        for before, after in zip(kept[-2::-1], kept[:0:-1], strict=True):
            arguments = before, after, slope, adjoint, of_unary, log_table, default
            factor_mean_field_undo(problem, self.unary, *arguments)
            slope = np.zeros_like(slope)
        start = kept[0]
        of_unary += start * (adjoint - (start * adjoint).sum(axis=1, keepdims=True))
        self._small.add_node_statistics(self.model, of_unary, log_table, default)
        return FactorStatistics(log_table, default)
