"""Decomposition of a model into factors that must agree on their nodes, and rounding of their marginals to labels."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._numbers import offsets_from_lengths
from sklearn_crf.inference._local_search import Descent
from sklearn_crf.inference._relaxed_problem import (
    compute_least_score,
    compute_score_spread,
    convert_to_double,
    enforce_arc_consistency,
    iterate_table_blocks,
)
from sklearn_crf.inference.exact._local_polytope import CountPiece, LocalPolytope
from sklearn_crf.inference.relaxations._best_labels import BestLabels
from sklearn_crf.models import score

# Kinds of factors that the kernel distinguishes.
BINARY_PAIR, LISTED, COUNTED = 0, 1, 2


class Pieces(NamedTuple):
    """Factors and their nodes as arrays for the kernel; slot l stands for node ``scope[l]`` in the slot's factor."""

    kind: np.ndarray  # (F,) int32
    scope: np.ndarray  # (L,) int32
    scope_ptr: np.ndarray  # (F + 1,) int64
    score: np.ndarray  # (C,) float64 of each joint state, or of each run of counts
    cell_ptr: np.ndarray  # (F + 1,) int64
    place: np.ndarray  # joint states, (n_cells, arity), of each factor; or the counted state of each node
    place_ptr: np.ndarray  # (F + 1,) int64
    run: np.ndarray  # (C, 2) int32, first and last count of each run
    n_states: np.ndarray  # (N,) int32
    unary: np.ndarray  # (N, K) float64, -inf beyond the number of states of a node
    active_ptr: np.ndarray  # (F + 1,) int64, capacity for active joint states
    active_place_ptr: np.ndarray  # (F + 1,) int64
    most_active: int
    largest_arity: int

    @property
    def work_size(self) -> tuple:
        """Number of floats and number of integers in the workspace that the kernel needs for each thread."""
        n, arity = self.most_active, self.largest_arity
        return 3 * arity * self.unary.shape[1] + n * (n + 4) + arity, 2 * arity


def build_pairwise_pieces(model):
    """Return the edges of a pairwise model as factors."""
    graph, n_columns = model.graph, model.n_columns
    possible = ~np.isneginf(model.unary)
    parts = [(np.zeros(0), np.zeros((0, 2), np.int64), np.zeros(0, np.int64))]
    for edges, tables in iterate_table_blocks(model):
        tails, heads = graph.edges[edges].T
        allowed = ~np.isneginf(tables) & possible[tails][:, :, None] & possible[heads][:, None, :]
        parts.append((tables[allowed], np.argwhere(allowed)[:, 1:], allowed.sum(axis=(1, 2))))
    score, place, counts = (np.concatenate(part) for part in zip(*parts, strict=True))
    is_closed = (counts == 4) & (n_columns == 2)
    return _pieces(
        np.where(is_closed, BINARY_PAIR, LISTED),
        graph.edges.ravel(),
        np.full(graph.n_edges, 2),
        (score, counts, place.ravel(), 2 * counts, np.zeros((len(score), 2))),
        np.full(graph.n_nodes, n_columns),
        model.unary,
    )


def build_polytope_pieces(polytope):
    """Return the factors between the free nodes of a factor graph, with free nodes renumbered in order."""
    number = {node: k for k, node in enumerate(polytope.free_nodes)}
    n_states = np.array([len(polytope.unary[node]) for node in polytope.free_nodes], dtype=np.int64)
    unary = np.full((len(number), n_states.max(initial=1)), -np.inf)
    for node, k in number.items():
        unary[k, : n_states[k]] = polytope.unary[node]
    scopes: list[int] = []
    kinds, arities, cells = [], [], []
    for piece in polytope.pieces:
        scopes.extend(number[node] for node in piece.nodes)
        arities.append(len(piece.nodes))
        if isinstance(piece, CountPiece):
            kinds.append(COUNTED)
            scores, runs, places = [run[2] for run in piece.runs], [run[:2] for run in piece.runs], piece.place
        else:
            shape = [len(polytope.unary[node]) for node in piece.nodes]
            kinds.append(BINARY_PAIR if shape == [2, 2] and len(piece.scores) == 4 else LISTED)
            scores, runs, places = piece.scores, np.zeros((len(piece.scores), 2)), np.ravel(piece.places)
        cells.append((scores, [len(scores)], places, [len(places)], runs))
    empty = (np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0), np.zeros((0, 2)))
    joined = tuple(np.concatenate(part) for part in zip(empty, *cells, strict=True))
    return _pieces(np.array(kinds), np.array(scopes), np.array(arities, dtype=np.int64), joined, n_states, unary)


def _pieces(kind, scope, arity, cells, n_states, unary):
    score, n_cells, place, n_places, run = cells
    n_columns = unary.shape[1]
    # The number of affinely independent joint states of a factor is at most the dimension of its marginals plus one.
    slot_states = np.minimum(n_states[scope.astype(np.int64)], n_columns) if len(scope) else np.zeros(0, np.int64)
    scope_ptr = offsets_from_lengths(arity)
    room = np.add.reduceat(slot_states - 1, scope_ptr[:-1]) + 1 if len(arity) else np.zeros(0, np.int64)
    capacity = np.where(kind == LISTED, np.minimum(room, n_cells), room) if len(arity) else room
    return Pieces(
        kind.astype(np.int32),
        scope.astype(np.int32),
        scope_ptr,
        np.ascontiguousarray(score, dtype=np.float64),
        offsets_from_lengths(n_cells),
        place.astype(np.int32),
        offsets_from_lengths(n_places),
        np.ascontiguousarray(run, dtype=np.int32).reshape(-1, 2),
        n_states.astype(np.int32),
        np.ascontiguousarray(unary, dtype=np.float64),
        offsets_from_lengths(capacity),
        offsets_from_lengths(capacity * arity),
        int(capacity.max(initial=1)),
        int(arity.max(initial=1)),
    )


class EdgesProblem:
    """Problem with edges as factors, whose labels are improved by local search in compiled code."""

    constant = 0.0

    def __init__(self, model, climb):
        self.model = enforce_arc_consistency(convert_to_double(model))
        self.pieces = build_pairwise_pieces(self.model)
        self.spread, self.least = compute_score_spread(self.model), compute_least_score(self.model)
        self.best = BestLabels(self.model, climb)
        self.seen: Any = None

    @property
    def score(self) -> float:
        return self.best.score

    def offer(self, fractional: np.ndarray) -> None:
        labels = fractional.argmax(axis=1).astype(np.int32)
        if not np.array_equal(labels, self.seen):
            self.seen = labels
            self.best.offer(labels)

    def offer_labels(self, labels):
        self.best.offer(labels)

    def finished(self, messages: np.ndarray, marginals: np.ndarray) -> np.ndarray:
        return self.best.labels

    def fractional(self, marginals: np.ndarray) -> np.ndarray:
        return marginals


class FactorsProblem:
    """Problem with the factors between the free nodes of a factor graph."""

    def __init__(self, model, climb):
        self.model, self.climb = model, climb
        self.polytope = LocalPolytope(model)
        self.constant = self.polytope.constant
        self.pieces = build_polytope_pieces(self.polytope)
        scores = np.concatenate((self.pieces.unary[np.isfinite(self.pieces.unary)], self.pieces.score))
        # Squares of scores below 1e-160 underflow.
        spread = float(np.std(scores)) if len(scores) and np.ptp(scores) > 0 else 0.0
        self.spread = spread if spread > 0 else 1.0
        self.least = self.constant + sum(part.min() for part in self._parts())
        self.free = np.array(self.polytope.free_nodes, dtype=np.int64)
        self.labels: Any = None
        self.seen: Any = None
        self.score = -np.inf

    def _parts(self):
        yield from self.polytope.unary.values()
        ptr = self.pieces.cell_ptr
        yield from (self.pieces.score[a:b] for a, b in pairwise(ptr))

    def offer(self, fractional):
        places = np.zeros(self.model.n_nodes, dtype=np.int64)
        places[self.free] = fractional.argmax(axis=1)
        if not np.array_equal(places, self.seen):
            self.seen = places
            self.offer_labels(self.polytope.labels(places))

    def offer_labels(self, labels):
        found = score(self.model, labels)
        if self.labels is None or found > self.score:
            self.labels, self.score = labels, found

    def finished(self, messages, marginals):
        if self.climb:
            self._climb(messages, marginals)
        return self.labels

    def _climb(self, messages, marginals):
        """Improve the best labels, and labels rounded from the messages, by changing one node at a time."""
        polytope, ptr = self.polytope, self.pieces.scope_ptr
        by_piece = [
            [row[: len(polytope.unary[node])] for node, row in zip(piece.nodes, messages[a:b], strict=True)]
            for piece, a, b in zip(polytope.pieces, ptr[:-1], ptr[1:], strict=True)
        ]
        confidence = np.ones(self.model.n_nodes)
        confidence[self.free] = marginals.max(axis=1)
        descent = Descent(self.model)
        for labels in (self.labels, polytope.rounded(by_piece, confidence)):
            self.offer_labels(descent.climb(labels.copy()))

    def fractional(self, marginals):
        found = np.zeros((self.model.n_nodes, self.model.n_columns))
        for node, known in enumerate(self.polytope.problem.states):
            found[node, known] = 1.0
        for node, row in zip(self.polytope.free_nodes, marginals, strict=True):
            known = self.polytope.problem.states[node]
            found[node, known] = row[: len(known)]
        return found


def one_hot(labels: np.ndarray, n_columns: int) -> np.ndarray:
    """Return rows of zeros with a one at each label, float64."""
    return (np.arange(n_columns) == labels[:, None]).astype(np.float64)
