"""Factors as the kernel of the alternating direction method takes them: lists of allowed joint states, and counts."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.inference._local_polytope import CountPiece
from sklearn_crf.inference._relaxed_problem import table_blocks

# What the kernel knows.
BINARY_PAIR, LISTED, COUNTED = 0, 1, 2


class Pieces(NamedTuple):
    """Arrays of factors over nodes; slot l is node ``scope[l]`` in a factor."""

    kind: np.ndarray  # (F,) int32
    scope: np.ndarray  # (L,) int32
    scope_ptr: np.ndarray  # (F + 1,) int64
    score: np.ndarray  # (C,) float64 of a joint state, or of a run of counts
    cell_ptr: np.ndarray  # (F + 1,) int64
    place: np.ndarray  # joint states, (n_cells, arity) of each factor; or the counted state of each node
    place_ptr: np.ndarray  # (F + 1,) int64
    run: np.ndarray  # (C, 2) int32 first and last count of each run
    n_states: np.ndarray  # (N,) int32
    unary: np.ndarray  # (N, K) float64, -inf past the states of a node
    active_ptr: np.ndarray  # (F + 1,) int64 room for active joint states
    active_place_ptr: np.ndarray  # (F + 1,) int64
    most_active: int
    largest_arity: int

    @property
    def work_size(self):
        """Numbers and integers that the kernel needs for itself, one set for each thread."""
        n, arity = self.most_active, self.largest_arity
        return 3 * arity * self.unary.shape[1] + n * (n + 4) + arity, 2 * arity


def pieces_of_pairwise(model):
    """Every edge is a factor.

    Parameters
    ----------
    model : PairwiseModel
        In double precision.
    """
    graph, n_columns = model.graph, model.n_columns
    possible = ~np.isneginf(model.unary)
    parts = [(np.zeros(0), np.zeros((0, 2), np.int64), np.zeros(0, np.int64))]
    for edges, tables in table_blocks(model):
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


def pieces_of_polytope(polytope):
    """Factors between the free nodes of a factor graph, which are numbered anew in their order.

    Parameters
    ----------
    polytope : LocalPolytope
    """
    number = {node: k for k, node in enumerate(polytope.free_nodes)}
    n_states = np.array([len(polytope.unary[node]) for node in polytope.free_nodes], dtype=np.int64)
    unary = np.full((len(number), n_states.max(initial=1)), -np.inf)
    for node, k in number.items():
        unary[k, : n_states[k]] = polytope.unary[node]
    kinds, scopes, arities, cells = [], [], [], []
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
    # Marginals of a factor with joint states that are affinely independent have no more dimensions than that.
    slot_states = np.minimum(n_states[scope.astype(np.int64)], n_columns) if len(scope) else np.zeros(0, np.int64)
    scope_ptr = _starts(arity)
    room = np.add.reduceat(slot_states - 1, scope_ptr[:-1]) + 1 if len(arity) else np.zeros(0, np.int64)
    capacity = np.where(kind == LISTED, np.minimum(room, n_cells), room) if len(arity) else room
    return Pieces(
        kind.astype(np.int32),
        scope.astype(np.int32),
        scope_ptr,
        np.ascontiguousarray(score, dtype=np.float64),
        _starts(n_cells),
        place.astype(np.int32),
        _starts(n_places),
        np.ascontiguousarray(run, dtype=np.int32).reshape(-1, 2),
        n_states.astype(np.int32),
        np.ascontiguousarray(unary, dtype=np.float64),
        _starts(capacity),
        _starts(capacity * arity),
        int(capacity.max(initial=1)),
        int(arity.max(initial=1)),
    )


def _starts(lengths):
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
