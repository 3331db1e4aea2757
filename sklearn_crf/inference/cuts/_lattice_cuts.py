"""Best labelings of many small lattices with two states, by one kernel call that finds all minimum cuts."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._numbers import SCORE_LIMITS
from sklearn_crf.graphs import Graph
from sklearn_crf.inference.cuts import _tuning
from sklearn_crf.inference.cuts._cut_network import (
    HEAD_START,
    STOP,
    LatticeFlow,
    find_exponent,
    largest_capacity_of,
    lattice_arrays,
    precision,
)
from sklearn_crf.kernels.cuts.flows import best_cuts
from sklearn_crf.models import EdgeLayout


class CutScores(NamedTuple):
    """Weights of the scores of lattices with two states, in the precision of the features."""

    weights: np.ndarray  # (F,), weights of the score of state 1 minus the score of state 0
    intercept: float
    tables: np.ndarray  # (T, R, 2, 2)


class CutSums(NamedTuple):
    """Differences between the best and the true labelings of lattices; ``value`` is NaN if a cut failed."""

    value: np.ndarray  # (n,)
    n_errors: np.ndarray  # (n,)
    cost: np.ndarray  # (n,) contribution of the offsets to the value
    nodes: np.ndarray  # (n, F + 1) sums of features and of ones
    tables: np.ndarray  # (n, T, R, 2, 2) sums of edge weights


class LatticeCuts:
    """Small lattices with two states and dense features, in the form that the kernel of minimum cuts expects."""

    def __init__(self) -> None:
        self._rows: list[list[int]] = []
        self._largest: list[np.ndarray] = []  # (R,) largest edge weights of each lattice
        self._arrays: list[tuple] = []  # keeps alive the arrays from which the kernel reads

    @staticmethod
    def fits(graph: Graph) -> bool:
        """Return whether the kernel supports minimum cuts of a graph."""
        return LatticeFlow.fits(graph) and LatticeFlow.can_solve_at_once(graph)

    def append(
        self,
        graph: Graph,
        features: np.ndarray,
        edges: EdgeLayout,
        offset: np.ndarray | None = None,
        labels: np.ndarray | None = None,
        found: np.ndarray | None = None,
    ) -> None:
        """Append a lattice, with its true labels or an array for the best labels."""
        # offset: (N,), added to the score of state 1 minus the score of state 0
        geometry, weight = lattice_arrays(graph), edges.edge_weight
        of_nodes = np.ascontiguousarray(features), edges.edge_type, weight, offset, labels, found
        arrays = (*geometry, graph.edges, *of_nodes)
        addresses = [0 if array is None else array.ctypes.data for array in arrays]
        _, delta, shape, _ = geometry
        sizes = graph.n_nodes, int(delta.max()), len(delta), len(shape)
        self._rows.append([*sizes, *addresses[:5], graph.n_edges, *addresses[5:]])
        self._largest.append(np.ones(1) if weight is None else np.abs(weight).max(axis=0))
        self._arrays.append(arrays)

    def solve(self, chosen: list[int], scores: CutScores, n_threads: int) -> CutSums:
        """Compute the minimum cuts of the chosen lattices."""
        tables, dtype, n = scores.tables, scores.tables.dtype, len(chosen)
        sums = np.full((n, 4 + len(scores.weights) + tables.size), np.nan)
        largest = np.array([self._largest[i] for i in chosen], dtype=np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            carried = (largest[:, np.newaxis] * np.ptp(tables, axis=(2, 3)).astype(np.float64)).sum(axis=2).max(axis=1)
            highest = largest @ np.abs(tables).sum(axis=(0, 2, 3), dtype=np.float64)
        # Without a bound on capacities, the scale for rounding would depend on the scores of all nodes.
        if (carried > 0).all() and (highest <= SCORE_LIMITS[dtype]).all():
            rows = np.array([self._rows[i] for i in chosen], dtype=np.int64)
            n_directions = rows[:, 2]
            best_cuts(
                rows,
                find_exponent(carried * (1 + n_directions), np.int64),
                *scores,
                SCORE_LIMITS[dtype],
                (largest_capacity_of(np.int64), precision(tables), STOP),
                (*HEAD_START, _tuning.WORK_PER_CALL),
                sums,
                n_threads,
            )
        value, n_errors, cost = sums[:, :3].T
        ends = 4 + len(scores.weights)
        return CutSums(value, n_errors, cost, sums[:, 3:ends], sums[:, ends:].reshape(n, *tables.shape))
