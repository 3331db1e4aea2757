"""Exact MAP of small hard models by depth-first branch and bound with soft arc consistency."""

import numpy as np

from sklearn_crf._numbers import offsets_from_lengths
from sklearn_crf.inference._proofs import Proof
from sklearn_crf.inference.exact._reduction import Reduction
from sklearn_crf.inference.relaxations import _tuning
from sklearn_crf.kernels.relaxations.relaxations import branch_and_bound
from sklearn_crf.models import FactorGraph, PairwiseModel, factor_graph_of, score


def run_branch_and_bound(
    model: PairwiseModel | FactorGraph, labels: np.ndarray | None, max_work: float, seed: int = 0
) -> tuple[np.ndarray | None, float, bool]:
    """Return labels with at least the score of ``labels``, an upper bound, and whether the search was completed.

    Labels are None if the search found none. If it is proven that no labels are allowed, the bound is -inf. The bound
    is inf if the model is too large for this method.
    """
    # labels: allowed labels, or None; seed: determines the parts of the search near the best labels
    problem = Reduction(factor_graph_of(model))
    if problem.is_free.sum() > _tuning.MOST_NODES:
        return labels, np.inf, False
    ptr, scope = problem.free_scopes
    sizes, has_nodes = np.ones(len(ptr) - 1), np.diff(ptr) > 0
    with np.errstate(over="ignore"):
        sizes[has_nodes] = np.multiply.reduceat(problem.n_states[scope].astype(np.float64), ptr[:-1][has_nodes])
    if sizes.max(initial=1.0) > _tuning.MOST_CELLS_OF_BRANCHES or sizes.sum() > _tuning.MOST_ENTRIES_OF_BRANCHES:
        return labels, np.inf, False
    costs = _Costs(problem, sizes)
    place = np.full(len(problem.n_states), -1, dtype=np.int32)
    upper, proof = costs.forbidden, Proof(model)
    margin = 0.5 * proof.rounding
    if labels is not None:
        best = score(model, labels)
        place = (problem.state_table == np.asarray(labels)[:, None]).argmax(axis=1).astype(np.int32)
        upper, margin = costs.constant - best, proof.needed(best) - best
    place = place[costs.nodes]
    lower, _, _, is_complete = branch_and_bound(
        problem.n_states[costs.nodes].astype(np.int64),
        costs.unary,
        costs.ptr,
        costs.scope,
        costs.start,
        costs.values,
        upper,
        margin,
        _tuning.N_SWEEPS,
        max_work,
        seed,
        place,
    )
    if (place < 0).any():
        return None, -np.inf if is_complete else costs.constant - lower, is_complete
    numbers = np.zeros(len(problem.n_states), dtype=np.int64)
    numbers[costs.nodes] = place
    found = problem.state_table[np.arange(len(numbers)), numbers]
    if labels is not None and score(model, found) <= score(model, labels):
        found = labels
    return found, max(costs.constant - lower, score(model, found)), is_complete


class _Costs:
    """Costs of the states of free nodes, and of the joint states of factors with several nodes."""

    def __init__(self, problem: Reduction, sizes: np.ndarray) -> None:
        graph, (ptr, scope) = problem.model, problem.free_scopes
        start, cells = problem.storage()
        scores = graph.log_table if cells is None else np.concatenate((graph.log_table, graph.table_default))[cells]
        scores = scores.astype(np.float64)
        arity = np.diff(ptr)
        begin = np.cumsum(sizes).astype(np.int64) - sizes.astype(np.int64)
        lengths = sizes.astype(np.int64)
        places = np.repeat(start - begin, lengths) + np.arange(lengths.sum())
        own = scores[places]
        highest = np.maximum.reduceat(own, begin) if len(own) else own
        own = np.repeat(highest, lengths) - own
        # A forbidden state costs more than all other costs together.
        lowest = np.where(np.isfinite(own), own, 0.0)
        spread = float(np.maximum.reduceat(lowest, begin).sum()) if len(own) else 0.0
        self.constant, self.forbidden = float(highest.sum()), 1.0 + 1.01 * spread
        own = np.minimum(own, self.forbidden)
        self.nodes = np.flatnonzero(problem.is_free)
        number = np.cumsum(problem.is_free) - 1
        first = offsets_from_lengths(problem.n_states)
        unary = np.zeros(first[-1])
        single = np.flatnonzero(arity == 1)
        of_single = np.repeat(first[scope[ptr[single]]] - begin[single], lengths[single])
        inside = np.repeat(begin[single] - np.cumsum(lengths[single]) + lengths[single], lengths[single])
        inside = inside + np.arange(lengths[single].sum())
        np.add.at(unary, of_single + inside, own[inside])
        self.unary = unary[np.repeat(problem.is_free, problem.n_states)]
        joint = (arity > 1) & ~self._add_to_equal_pairs(own, begin, ptr, scope, problem.n_states)
        self.ptr = offsets_from_lengths(arity[joint])
        self.scope = number[scope[np.repeat(joint, arity)]].astype(np.int32)
        self.start, self.values = begin[joint], own

    def _add_to_equal_pairs(self, own, begin, ptr, scope, n_states):
        """Add costs of factors on the same pair of nodes to the first such factor; return a mask of added factors."""
        # Two edges between the same nodes would otherwise shift costs back and forth forever.
        pairs = np.flatnonzero(np.diff(ptr) == 2)
        ends = scope[ptr[pairs][:, None] + np.arange(2)]
        _, first, inverse = np.unique(np.sort(ends, axis=1), axis=0, return_index=True, return_inverse=True)
        first = first[inverse.ravel()]
        again = np.flatnonzero(first != np.arange(len(pairs)))
        for k in again.tolist():
            size = int(n_states[ends[k]].prod())
            table = own[begin[pairs[k]] :][:size].reshape(n_states[ends[k]])
            table = table if ends[k, 0] == ends[first[k], 0] else table.T
            at = begin[pairs[first[k]]]
            own[at : at + size] = np.minimum(own[at : at + size] + table.ravel(), self.forbidden)
        is_added = np.zeros(len(ptr) - 1, dtype=bool)
        is_added[pairs[again]] = True
        return is_added
