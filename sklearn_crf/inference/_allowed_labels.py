"""A labeling that nothing forbids, by search with propagation, for algorithms that came to none."""

import numpy as np

from sklearn_crf._threads import checkpoint, range_runner
from sklearn_crf.inference._local_polytope import CountPiece, LocalPolytope
from sklearn_crf.inference._local_updates import local_arguments, sweep, visits
from sklearn_crf.kernels.local.icm import icm_update
from sklearn_crf.models import FactorGraph, factor_graph_of, score, score_terms

# Each sweep removes violations; a few are enough where that is easy.
_REPAIR_SWEEPS = 100


def is_feasible(model, labels):
    """True if no node and no edge of a labeling has score -inf."""
    return not np.isneginf(score_terms(model, labels)).any()


def without_violations(model, labels):
    """Labels without forbidden pairs, near the given ones if they have some.

    Violations are removed node by node; where that gets stuck, from labels that satisfy a spanning forest. So
    on a forest a feasible labeling is found if there is one, elsewhere the result may still have violations.
    """
    # labels: (N,) int32
    # returns (N,) int32, the labels themselves if nothing is forbidden in them
    if np.isfinite(model.tables).all() or is_feasible(model, labels):
        return labels
    repaired = _repaired(model, labels)
    if is_feasible(model, repaired):
        return repaired
    return _repaired(model, _feasible_on_spanning_forest(model))


def _repaired(model, labels):
    """The labels after sweeps of which each removes violations."""
    labels = labels.copy()
    arguments, groups = local_arguments(model), visits(model.graph, "sequential")
    pending = np.ones(len(labels), dtype=np.uint8)
    with range_runner(1) as run:
        for _ in range(_REPAIR_SWEEPS):
            checkpoint()
            n_changed = sum(sweep(run, groups, icm_update, *arguments, labels, pending))
            if not n_changed or is_feasible(model, labels):
                break
    return labels


def _feasible_on_spanning_forest(model):
    """Best labels one by one, from the roots of a spanning forest, among those that leave something to all below."""
    order, parent_slot, _ = model.graph.forest
    _, neighbor, half_edge, _ = model.graph.incidence
    possible = ~np.isneginf(model.unary)
    allowed = ~np.isneginf(model.tables).any(axis=1)

    def allowed_with_parent(node):
        """Pairs (state of the node, state of its parent), and the parent."""
        slot = parent_slot[node]
        pairs = allowed[model.edge_type[half_edge[slot] >> 1]]
        return (pairs.T if half_edge[slot] & 1 else pairs), neighbor[slot]

    for node in order[::-1]:
        if parent_slot[node] >= 0:
            pairs, parent = allowed_with_parent(node)
            possible[parent] &= pairs[possible[node]].any(axis=0)
    labels = np.argmax(model.unary, axis=1).astype(np.int32)
    for node in order:
        if parent_slot[node] >= 0:
            pairs, parent = allowed_with_parent(node)
            possible[node] &= pairs[:, labels[parent]]
        if possible[node].any():
            labels[node] = np.argmax(np.where(possible[node], model.unary[node], -np.inf))
    return labels


# Looks at a piece, of some 20 microseconds, that a search may take. A table counts once for so many joint states.
_MOST_LOOKS = 100_000
_STATES_OF_A_LOOK = 1000

# Dead ends after which it starts again, knowing which pieces made them; twice as many each time.
_FIRST_PATIENCE = 20


def allowed_labels(model, labels):
    """Labels with a score above -inf: the better of what two searches find.

    A pairwise model is first repaired node by node. Then nodes are decided one by one, and after each decision every
    factor rules out the states that it has no allowed joint state for; at a dead end the last decision is taken back.
    One search gives nodes the labels that they had, those with few states left and many dead ends around them before
    others. The other decides the node first whose best state is the farthest ahead of its second, by its own scores
    and the best that each of its factors can still do. What is found is changed one node at a time as long as that
    gains.
    """
    # labels: (N,) int32
    # returns (N,) int32 or None, none if both searches were given up
    if not isinstance(model, FactorGraph):
        repaired = without_violations(model, labels)
        if is_feasible(model, repaired):
            return repaired
        if model.graph.n_edges > _MOST_LOOKS:
            return None
        model = factor_graph_of(model)
    polytope = LocalPolytope(model)
    searches = _KeepingLabels(polytope, labels), _SurestFirst(polytope)
    found = [polytope.improved(polytope.labels(places)) for places in (s.run() for s in searches) if places is not None]
    return max(found, key=lambda labels: score(model, labels), default=None)


class _Search:
    """Which places nodes still may have, and how to take back what was decided.

    A subclass writes ``_decision``.
    """

    # own: (N, K), scores of the places alone
    # possible: (N, K) bool, by place among the allowed states of a node
    # dead_ends: (N,), one more than the number of times that a piece of the node was left no joint state

    def __init__(self, polytope):
        self.pieces = polytope.pieces
        n_states = polytope.problem.n_states
        self.free = np.array(polytope.free_nodes, dtype=np.int64)
        self.own = np.full((len(n_states), int(n_states.max(initial=1))), -np.inf)
        self.own[~polytope.problem.is_free, 0] = 0
        for node, scores in polytope.unary.items():
            self.own[node, : len(scores)] = scores
        self.possible = self.own > -np.inf
        self.around = [[] for _ in n_states]
        for number, piece in enumerate(self.pieces):
            for node in piece.nodes:
                self.around[node].append(number)
        self.dead_ends = np.ones(len(n_states))
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

    def _decision(self, nodes):
        """One of the open nodes, and the place that it takes."""
        raise NotImplementedError

    def _descend(self, patience):
        """Decide node after node; None after so many dead ends."""
        decisions = []
        while len(nodes := self.free[self.possible[self.free].sum(axis=1) > 1]):
            checkpoint()
            node, place = self._decision(nodes)
            decisions.append((len(self.taken_out), node, place))
            holds = self._keep(node, np.arange(self.possible.shape[1]) == place)
            while not holds:
                patience -= 1
                if not decisions:
                    raise _infeasible()
                if patience < 0:
                    return None
                before, node, place = decisions.pop()
                self._take_back(before)
                holds = self._keep(node, np.arange(self.possible.shape[1]) != place)
            if self.n_looks >= _MOST_LOOKS:
                return None
        return self.possible.argmax(axis=1)

    def _look_at(self, number):
        piece = self.pieces[number]
        self.n_looks += 1 if isinstance(piece, CountPiece) else 1 + len(piece.scores) // _STATES_OF_A_LOOK
        return piece

    def _keep(self, node, places):
        """Rule out all other places of a node and what follows; False if some node or piece is left nothing."""
        self._set(node, self.possible[node] & places)
        return self.possible[node].any() and self._propagate(self.around[node])

    def _set(self, node, possible):
        self.taken_out.append((node, self.possible[node].copy()))
        self.possible[node] = possible

    def _take_back(self, n_kept):
        while len(self.taken_out) > n_kept:
            node, before = self.taken_out.pop()
            self.possible[node] = before

    def _propagate(self, numbers):
        waiting = dict.fromkeys(numbers)
        while waiting:
            number = next(iter(waiting))
            del waiting[number]
            piece = self._look_at(number)
            before = self.possible[piece.nodes]
            look = _supported_by_count if isinstance(piece, CountPiece) else _supported_by_table
            after = before & look(piece, before)
            if not after.any(axis=1).all():
                self.dead_ends[piece.nodes] += 1
                return False
            for j in np.flatnonzero((after != before).any(axis=1)):
                node = piece.nodes[j]
                self._set(node, after[j])
                waiting.update(dict.fromkeys(other for other in self.around[node] if other != number))
        return True


class _KeepingLabels(_Search):
    """The given label first, or the best one alone."""

    def __init__(self, polytope, labels):
        super().__init__(polytope)
        self.preference = self.own.copy()
        for node in self.free:
            known = polytope.problem.states[node]
            self.preference[node, : len(known)][known == labels[node]] = np.inf

    def _decision(self, nodes):
        node = nodes[np.argmin(self.possible[nodes].sum(axis=1) / self.dead_ends[nodes])]
        return node, int(np.argmax(np.where(self.possible[node], self.preference[node], -np.inf)))


class _SurestFirst(_Search):
    """The node with the largest difference of its two best places, by what its pieces can still do."""

    def __init__(self, polytope):
        super().__init__(polytope)
        self.lead, self.best = np.zeros(len(self.own)), np.zeros(len(self.own), dtype=np.int64)
        self.outdated = set(self.free.tolist())

    def _decision(self, nodes):
        for node in self.outdated:
            self._compare(node)
        self.outdated.clear()
        node = nodes[np.argmax(self.lead[nodes] * self.dead_ends[nodes])]
        return node, int(self.best[node])

    def _compare(self, node):
        if self.possible[node].sum() < 2:
            return
        total = np.where(self.possible[node], self.own[node], -np.inf)
        for number in self.around[node]:
            piece = self._look_at(number)
            # What a count adds depends on too many nodes to tell states of one apart.
            if isinstance(piece, CountPiece):
                continue
            alive = _alive(piece, self.possible[piece.nodes])
            best = np.full(len(total), -np.inf)
            np.maximum.at(best, piece.places[alive, piece.nodes.index(node)], piece.scores[alive])
            total = total + best
        second, first = np.argsort(total, kind="stable")[-2:]
        self.lead[node], self.best[node] = total[first] - total[second], first

    def _set(self, node, possible):
        super()._set(node, possible)
        self._outdate(node)

    def _take_back(self, n_kept):
        for node, _ in self.taken_out[n_kept:]:
            self._outdate(node)
        super()._take_back(n_kept)

    def _outdate(self, node):
        for number in self.around[node]:
            self.outdated.update(self.pieces[number].nodes)


def _alive(piece, possible):
    """Which joint states of a table piece have possible places only."""
    return possible[np.arange(len(piece.nodes)), piece.places].all(axis=1)


def _supported_by_table(piece, possible):
    """Places of the nodes of a piece that are in some joint state of possible places."""
    which = np.arange(len(piece.nodes))
    supported = np.zeros_like(possible)
    supported[which, piece.places[_alive(piece, possible)]] = True
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
