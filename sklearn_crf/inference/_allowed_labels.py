"""A labeling that nothing forbids, by search with propagation, for algorithms that came to none."""

import numpy as np

from sklearn_crf._threads import checkpoint
from sklearn_crf.factor_graphs import FactorGraph, factor_graph_of
from sklearn_crf.inference._feasible_start import is_feasible, without_violations
from sklearn_crf.inference._local_polytope import CountPiece, LocalPolytope

# Looks at a piece, of some 20 microseconds, that the search may take.
_MOST_LOOKS = 200_000

# Dead ends after which it begins anew, knowing which pieces made them; twice as many each time.
_FIRST_PATIENCE = 20


def allowed_labels(model, labels):
    """Labels with a score above -inf that have as much of the given ones as the search can keep.

    A pairwise model is first mended node by node. Then nodes are decided one by one, the given label first, those with
    few states left and many dead ends around them before others. After each decision every factor rules out the states
    that it has no allowed joint state for; at a dead end the last decision is taken back. What is found is changed one
    node at a time as long as that gains.

    Parameters
    ----------
    model : PairwiseModel or FactorGraph
    labels : ndarray of shape (N,), int32

    Returns
    -------
    ndarray of shape (N,), int32, or None
        None if the search was given up.

    Raises
    ------
    ValueError
        If the search shows that there are none.
    """
    if not isinstance(model, FactorGraph):
        mended = without_violations(model, labels)
        if is_feasible(model, mended):
            return mended
        if model.graph.n_edges > _MOST_LOOKS:
            return None
        model = factor_graph_of(model)
    polytope = LocalPolytope(model)
    places = _Search(polytope, labels).run()
    return None if places is None else polytope.improved(polytope.labels(places))


class _Search:
    """Which places nodes still may have, and how to take back what was decided.

    Attributes
    ----------
    possible : ndarray of shape (N, K), bool
        By place among the allowed states of a node.
    """

    def __init__(self, polytope, labels):
        self.pieces = polytope.pieces
        problem = polytope.problem
        n_nodes = len(problem.states)
        self.free = np.array(polytope.free_nodes, dtype=np.int64)
        self.possible = np.arange(int(problem.n_states.max())) < problem.n_states[:, None]
        self.preference = np.zeros(self.possible.shape)
        for node, scores in polytope.unary.items():
            self.possible[node, : len(scores)] = scores > -np.inf
            self.preference[node, : len(scores)] = scores
            self.preference[node, : len(scores)][problem.states[node] == labels[node]] = np.inf
        self.around = [[] for _ in range(n_nodes)]
        for number, piece in enumerate(self.pieces):
            for node in piece.nodes:
                self.around[node].append(number)
        self.dead_ends = np.ones(n_nodes)
        self.taken_out = []
        self.n_looks = 0

    def run(self):
        """Places of all nodes, or None if given up."""
        if not self._propagate(range(len(self.pieces))):
            raise _infeasible()
        start, patience = len(self.taken_out), _FIRST_PATIENCE
        while self.n_looks < _MOST_LOOKS:
            found = self._descend(patience)
            if found is not None:
                return found
            self._take_back(start)
            patience *= 2
        return None

    def _descend(self, patience):
        """Decide node after node; None after so many dead ends."""
        decisions = []
        while (node := self._next()) is not None:
            checkpoint()
            place = int(np.argmax(np.where(self.possible[node], self.preference[node], -np.inf)))
            decisions.append((len(self.taken_out), node, place))
            others = self.possible[node].copy()
            others[place] = False
            holds = self._take_out(node, others)
            while not holds:
                patience -= 1
                if patience < 0 or self.n_looks >= _MOST_LOOKS:
                    return None
                if not decisions:
                    raise _infeasible()
                before, node, place = decisions.pop()
                self._take_back(before)
                holds = self._take_out(node, np.arange(self.possible.shape[1]) == place)
        return self.possible.argmax(axis=1)

    def _next(self):
        """The open node with the fewest places by dead end around it."""
        n_places = self.possible[self.free].sum(axis=1)
        if not (n_places > 1).any():
            return None
        return int(self.free[np.argmin(np.where(n_places > 1, n_places / self.dead_ends[self.free], np.inf))])

    def _take_out(self, node, places):
        """Rule out places of a node and what follows; False if some node or piece is left nothing."""
        self.taken_out.append((node, self.possible[node].copy()))
        self.possible[node] &= ~places
        return self.possible[node].any() and self._propagate(self.around[node])

    def _take_back(self, n_kept):
        while len(self.taken_out) > n_kept:
            node, before = self.taken_out.pop()
            self.possible[node] = before

    def _propagate(self, numbers):
        waiting = dict.fromkeys(numbers)
        while waiting:
            self.n_looks += 1
            number = next(iter(waiting))
            del waiting[number]
            piece = self.pieces[number]
            before = self.possible[piece.nodes]
            look = _supported_by_count if isinstance(piece, CountPiece) else _supported_by_table
            after = before & look(piece, before)
            if not after.any(axis=1).all():
                self.dead_ends[piece.nodes] += 1
                return False
            for j in np.flatnonzero((after != before).any(axis=1)):
                node = piece.nodes[j]
                self.taken_out.append((node, before[j]))
                self.possible[node] = after[j]
                waiting.update(dict.fromkeys(other for other in self.around[node] if other != number))
        return True


def _supported_by_table(piece, possible):
    """Places of the nodes of a piece that are in some joint state of possible places."""
    which = np.arange(len(piece.nodes))
    alive = piece.places[possible[which, piece.places].all(axis=1)]
    supported = np.zeros_like(possible)
    supported[which, alive] = True
    return supported


def _supported_by_count(piece, possible):
    """The same where the number of nodes in one state must lie in one of some runs."""
    which = np.arange(len(piece.nodes))
    may = possible[which, piece.place]
    must = may & (possible.sum(axis=1) == 1)
    least, most = int(must.sum()), int(may.sum())

    def some_in(low, high):
        return any(low <= last and high >= first for first, last, _ in piece.runs)

    # A node that is open leaves one choice less to the others, whichever it takes.
    counted = np.where(must, some_in(least, most), some_in(least + 1, most))
    left_out = np.where(may, some_in(least, most - 1), some_in(least, most))
    supported = np.repeat(left_out[:, None], possible.shape[1], axis=1)
    supported[which, piece.place] = counted
    return supported


def _infeasible():
    return ValueError("model is infeasible: every labeling has a score of -inf.")
