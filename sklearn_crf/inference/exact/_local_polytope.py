"""Local polytope of a factor graph: factors that must agree on the marginals of single nodes."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sklearn_crf.inference._results import Infeasible
from sklearn_crf.inference.exact._reduction import Reduction
from sklearn_crf.models import COUNT, SPARSE, decode_cells


@dataclass(eq=False)
class TablePiece:
    """A factor as a list of its allowed joint states."""

    nodes: list
    places: np.ndarray  # (n_cells, n_nodes), joint states, as positions among the allowed states of each node
    scores: np.ndarray  # (n_cells,), finite

    def best(self, messages):
        """Return the largest score plus messages, where ``messages[j][k]`` belongs to position k of the j-th node."""
        return self._total(messages, np.ones(len(self.scores), dtype=bool)).max()

    def maximise_given(self, messages, labels, j):
        """Return the best value for each position of the j-th node, given other nodes' positions (-1 if undecided)."""
        given = labels[self.nodes]
        given[j] = -1
        fits = ((given < 0) | (self.places == given)).all(axis=1)
        best = np.full(len(messages[j]), -np.inf)
        np.maximum.at(best, self.places[fits, j], self._total(messages, fits))
        return best

    def _total(self, messages, chosen):
        total = self.scores[chosen]
        for j, message in enumerate(messages):
            total = total + message[self.places[chosen, j]]
        return total


@dataclass(eq=False)
class CountPiece:
    """A count table over many nodes, as runs of counts with equal finite scores."""

    nodes: list  # the free nodes of the factor that may be in the counted state
    place: list  # position of the counted state among the allowed states of each node
    runs: list  # first and last count among these nodes, and the score

    def best(self, messages):
        """Return the largest score plus messages of the counted nodes."""
        return self._maximise_over_counts([message[k] for message, k in zip(messages, self.place, strict=True)], 0)

    def maximise_given(self, messages, labels, j):
        """Return the best value for each position of the j-th node, given other nodes' positions (-1 if undecided)."""
        gains = [message[k] for message, k in zip(messages, self.place, strict=True)]
        given = labels[self.nodes]
        given[j] = -2
        counted = [i for i, place in enumerate(self.place) if given[i] == place]
        is_open = np.flatnonzero(given == -1)
        base = sum(gains[i] for i in counted)
        rest = [gains[i] for i in is_open]
        best = np.full(len(messages[j]), base + self._maximise_over_counts(rest, len(counted)))
        best[self.place[j]] = base + gains[j] + self._maximise_over_counts(rest, len(counted) + 1)
        return best

    def _maximise_over_counts(self, gains, n_counted):
        """Return the best value over all numbers of further counted nodes; nodes with the largest gains count first."""
        gained = np.concatenate(([0.0], np.cumsum(np.sort(gains)[::-1])))
        best = -np.inf
        for first, last, score in self.runs:
            a, b = max(first - n_counted, 0), min(last - n_counted, len(gains))
            if a <= b:
                best = max(best, score + gained[a : b + 1].max())
        return best


class LocalPolytope:
    """Local polytope of a factor graph: scores of the free nodes, factors between them, and a constant."""

    def __init__(self, model):
        self.problem = problem = Reduction(model)
        self.free_nodes = problem.free_nodes
        self.unary = {node: np.zeros(len(problem.states[node])) for node in self.free_nodes}
        self.constant = 0.0
        self.pieces = []
        for f, scope in enumerate(problem.scopes):
            table = model.table_id[f]
            if model.table_kind[table] == COUNT and len(scope) > 2:
                self._add_count(f, table)
            elif len(scope) > 1:
                self.pieces.append(self._build_table_piece(f, scope, table))
            elif scope:
                self.unary[scope[0]] += problem.table(f)
            else:
                self.constant += float(problem.table(f)[()])
        if np.isneginf(self.constant) or any(np.isneginf(scores).all() for scores in self.unary.values()):
            raise Infeasible("model is infeasible: a factor forbids every joint state that its nodes allow.")

    def _build_table_piece(self, f, scope, table):
        problem = self.problem
        model = problem.model
        if model.table_kind[table] == SPARSE and np.isneginf(model.table_default[table]):
            places, scores = self._list_joint_states(f, table)
        else:
            dense = problem.table(f)
            places = np.argwhere(dense > -np.inf)
            scores = dense[tuple(places.T)]
        if not len(scores):
            raise Infeasible(f"model is infeasible: factor {f} forbids every joint state that its nodes allow.")
        return TablePiece(scope, places, scores)

    def _list_joint_states(self, f, table):
        """Return the joint states that a sparse table lists and the nodes allow, and their scores."""
        problem = self.problem
        model = problem.model
        nodes = model.scope[model.scope_ptr[f] : model.scope_ptr[f + 1]]
        cells = slice(*model.table_ptr[table : table + 2])
        states = decode_cells(model.table_cell[cells], model.n_states[nodes])
        scores = model.log_table[cells].astype(np.float64)
        places, allowed = np.empty_like(states), scores > -np.inf
        for j, node in enumerate(nodes):
            known = problem.states[node]
            place = np.minimum(np.searchsorted(known, states[:, j]), len(known) - 1)
            allowed &= known[place] == states[:, j]
            places[:, j] = place
        return places[allowed][:, problem.is_free[nodes]], scores[allowed]

    def _add_count(self, f, table):
        problem = self.problem
        model = problem.model
        state = model.table_state[table]
        nodes, place, n_fixed = [], [], 0
        for node in model.scope[model.scope_ptr[f] : model.scope_ptr[f + 1]].tolist():
            known = problem.states[node]
            if state in known:
                if len(known) > 1:
                    nodes.append(node)
                    place.append(int(np.searchsorted(known, state)))
                else:
                    n_fixed += 1
        values = model.log_table[slice(*model.table_ptr[table : table + 2])].astype(np.float64)
        default = float(model.table_default[table])
        by_count = [values[c] if c < len(values) else default for c in range(n_fixed, n_fixed + len(nodes) + 1)]
        runs: list[Any] = []
        for c, score in enumerate(by_count):
            if runs and runs[-1][2] == score and runs[-1][1] == c - 1:
                runs[-1] = (runs[-1][0], c, score)
            elif score > -np.inf:
                runs.append((c, c, float(score)))
        if not runs:
            raise Infeasible(f"model is infeasible: factor {f} forbids every joint state that its nodes allow.")
        if nodes:
            self.pieces.append(CountPiece(nodes, place, runs))
        else:
            self.constant += runs[0][2]

    def bound(self, messages):
        """Return an upper bound on the score of every labeling, valid for any messages."""
        # messages: for each factor and each of its nodes, the scores moved from the node to the factor
        nodes = self.reparameterised(messages)
        best = sum(scores.max() for scores in nodes.values())
        pieces = sum(piece.best(message) for piece, message in zip(self.pieces, messages, strict=True))
        return float(self.constant + best + pieces)

    def reparameterised(self, messages):
        """Return the scores of the nodes minus the messages, which hold the scores that were moved to factors."""
        scores = {node: own.copy() for node, own in self.unary.items()}
        for piece, message in zip(self.pieces, messages, strict=True):
            for node, moved in zip(piece.nodes, message, strict=True):
                # For forbidden states, the message is -inf. The node's score must remain -inf.
                scores[node] -= np.where(moved > -np.inf, moved, 0.0)
        return scores

    def rounded(self, messages, confidence):
        """Label nodes one by one, the most certain first, with the state of the largest total score.

        The total score is the score of the node plus the best values of its factors.
        """
        # confidence: (N,); returns: (N,) int32
        around: dict[int, list] = {node: [] for node in self.free_nodes}
        for piece, message in zip(self.pieces, messages, strict=True):
            for j, node in enumerate(piece.nodes):
                around[node].append((piece, message, j))
        places, scores = np.where(self.problem.is_free, -1, 0), self.reparameterised(messages)
        for node in sorted(self.free_nodes, key=lambda s: (-confidence[s], s)):
            for piece, message, j in around[node]:
                scores[node] += piece.maximise_given(message, places, j)
            places[node] = np.argmax(scores[node])
        return self.labels(places)

    def labels(self, places: np.ndarray) -> np.ndarray:
        """Return the states of all nodes, given positions among allowed states."""
        return np.array([known[k] for known, k in zip(self.problem.states, places, strict=True)], dtype=np.int32)
