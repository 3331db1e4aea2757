"""Arrays of a model for message passing kernels, and marginals and log-partition from messages."""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._numbers import compute_row_maxima
from sklearn_crf._threads import allocate_workspace, run_fixed_ranges
from sklearn_crf.inference import _tuning
from sklearn_crf.inference._results import Infeasible, Marginals
from sklearn_crf.kernels.messages.edge_messages import renew, send
from sklearn_crf.kernels.messages.edges import (
    copy_probabilities,
    fill_factors,
    fill_potts_factors,
    largest_range_of_edges,
    node_beliefs,
    odds_of_probabilities,
    odds_of_scores,
    pair_statistics,
    probabilities_of_odds,
    range_of_tables,
    renew_odds,
    rows_below_best,
    send_odds,
)
from sklearn_crf.models import Statistics, cache_with_layout

# Kinds of message updates, numbered as in the kernels: sums of probabilities, sums of scores, maxima of scores.
SUM_PROBABILITY, SUM_SCORE, MAX_SCORE = 0, 1, 2


# Maximum total range of the scores of messages to a node, for messages stored as probabilities.
# Values that underflow are then less than exp(-25) of the rest in single precision (limit 87).
# In double precision (limit 708), values that underflow are less than exp(-60) of the rest.
LARGEST_RANGE = {np.dtype(np.float32): 60.0, np.dtype(np.float64): 640.0}

# If the scores of a message have a wider range, small probabilities can change while the message seems unchanged.
_WIDE = np.log(100.0)

_VECTOR_BYTES = 16

# Padding, because the kernel of log-odds reads and writes SIMD vectors of up to 32 bytes.
_PADDING = 8

# Maximum size in bytes of a row for which a message is computed in registers.
_SHORT_ROW = 2 * _VECTOR_BYTES


class Field(NamedTuple):
    """Arrays of a model in the layout of message passing kernels. Arrays that a model does not need have length 0."""

    semiring: int
    ptr: np.ndarray  # (N + 1,) int64, first slot of each node
    neighbor: np.ndarray  # (2E,) int32
    half_edge: np.ndarray  # (2E,) int32
    reverse: np.ndarray  # (2E,) int32
    n_states: np.ndarray  # (N,) int32, or empty if all nodes have K states
    factor: np.ndarray  # (E,) int32, row of each edge in the arrays ``place``, ``on``, ``off`` and ``shift``
    edge_type: np.ndarray  # (E,) int32
    shift: np.ndarray  # (n,) float64, score subtracted from each factor
    unary: np.ndarray  # (N, width), exp(score - best) for SUM_PROBABILITY, else scores
    factors: np.ndarray  # (m, K, width), exp(score - shift) for sums, score - shift for maxima; empty if not stored
    place: np.ndarray  # (n, 2) int32, row in ``factors`` for messages from the first end and from the second end
    on: np.ndarray  # (n,), diagonal entries of Potts factors, or empty
    off: np.ndarray  # (n,), off-diagonal entries of Potts factors, or empty
    tables: np.ndarray  # (T, R, K, K), scores
    edge_weight: np.ndarray  # (E, R) or empty
    appearance: np.ndarray  # (E,), edge appearance probabilities; empty if all are 1 (belief propagation)
    is_wide: bool  # whether messages may assign a state a probability below 0.01

    @property
    def width(self):
        """Number of states, padded to whole SIMD vectors."""
        return self.unary.shape[1]

    @property
    def is_tied(self) -> bool:
        """Whether the factor of an edge depends only on the type of the edge."""
        return len(self.edge_weight) == 0

    def workspace(self) -> np.ndarray:
        """Return the workspace of a kernel, one for each thread."""
        return allocate_workspace((6 + 2 * self.tables.shape[3]) * self.unary.shape[1])

    def send(self, messages, *how):
        """Update the messages that nodes send, one node after another; the kernel documents the arguments."""
        return send(self, messages, *how)

    def renew(self, messages, *how):
        """Update the messages of ranges of nodes forwards and backwards; the kernel documents the arguments."""
        renew(self, messages, *how)


def make_field(model, maximum, appearance=None, unbounded=False, as_scores=False):
    """Return the field for sum-product or max-product messages, and the score subtracted from each node's unary row.

    Messages for sums are stored as probabilities if the range of the model's scores permits this, otherwise as scores.
    Probabilities have double precision if the range is too wide for single precision.
    """
    # maximum: max-product instead of sum-product; as_scores: store all messages as scores
    # returns Field, unary_shift: (N,) float64
    # model: for tree-reweighted messages, with tables or edge weights divided by ``appearance``
    # appearance: (E,) or None, edge appearance probabilities
    # unbounded: store probabilities even with forbidden pairs, for which messages may underflow
    # With unbounded=True, the caller must check the results.
    incidence = model.graph.incidence
    if maximum or as_scores:
        semiring, dtype, largest = MAX_SCORE if maximum else SUM_SCORE, model.dtype, np.inf
    else:
        semiring, dtype, largest = _choose_sum_kind(model, model.graph.largest_degree, unbounded, appearance)
    scores: dict[str, Any] = {
        name: np.zeros((0, *shape), dtype) if values is None else np.ascontiguousarray(values, dtype=dtype)
        for name, values, shape in (
            ("tables", model.tables, ()),
            ("edge_weight", model.edge_weight, (model.tables.shape[1],)),
            ("appearance", appearance, ()),
        )
    }
    unary, unary_shift = pad_unary(model.unary, semiring, dtype)
    ptr, neighbor, half_edge, reverse = incidence
    field = Field(
        semiring,
        ptr,
        neighbor,
        half_edge,
        reverse,
        n_states=np.zeros(0, dtype=np.int32) if model.n_states is None else model.n_states,
        factor=model.edge_type,
        edge_type=model.edge_type,
        shift=np.zeros(0),
        unary=unary,
        factors=np.zeros((0, model.n_columns, unary.shape[1]), dtype=dtype),
        place=np.zeros((0, 2), dtype=np.int32),
        on=np.zeros(0, dtype=dtype),
        off=np.zeros(0, dtype=dtype),
        is_wide=bool(largest > _WIDE),
        **scores,
    )
    is_potts = model.is_potts and model.n_columns > 1
    field = _store_potts_factors(field) if is_potts else _store_factors(field, model)
    if field.shift.min(initial=0.0) == -np.inf:
        edges = np.flatnonzero(np.isneginf(field.shift[field.factor]))
        if len(edges):
            raise Infeasible(f"model is infeasible: tables forbid every pair of states of edge {edges[0]}.")
    return field, unary_shift


def _choose_sum_kind(model, largest_degree, unbounded, appearance):
    """Return the semiring and data type for sum-product messages, and the largest score range of a message."""
    # appearance: (E,) or None; messages are raised to these powers, and scores are divided by these numbers
    if model.graph.n_edges == 0:
        return SUM_PROBABILITY, model.dtype, 0.0
    forbids, spread = _compute_table_ranges(model)
    double = np.dtype(np.float64)
    candidates = () if forbids and not unbounded else (double,) if forbids else (model.dtype, double)
    of_factors = largest = _compute_largest_range(model, spread)
    divided, log_states = 0.0, np.log(model.n_columns)
    if appearance is not None:
        # Messages have the range of the scores before this division, unless a message is divided out of a product.
        weight = 1.0 if model.edge_weight is None else model.edge_weight
        undivided = (weight * appearance[:, np.newaxis]).astype(model.dtype)
        largest = _compute_largest_range(replace(model, edge_weight=undivided), spread)
        divided = of_factors + log_states / appearance.min()
    together = largest_degree * (largest + log_states) + of_factors + divided
    for dtype in candidates:
        if together <= LARGEST_RANGE[dtype]:
            return SUM_PROBABILITY, dtype, np.inf if forbids else largest
    return SUM_SCORE, model.dtype, np.inf


def _compute_table_ranges(model):
    """Return whether tables forbid pairs, and the range of the finite scores of each table, (T, R)."""
    n_types, n_features, n_columns, _ = model.tables.shape
    spread = np.empty(n_types * n_features)
    forbids = range_of_tables(model.tables.reshape(len(spread), n_columns**2), spread)
    return forbids, spread.reshape(n_types, n_features)


def compute_largest_factor_range(model):
    """Return the largest range of the finite scores of an edge."""
    return _compute_largest_range(model, _compute_table_ranges(model)[1])


def _compute_largest_range(model, spread):
    """Return the largest range of the scores of an edge, given the ranges of tables (T, R)."""
    if model.edge_weight is None:
        return spread.max()
    if spread.shape[1] > 1:
        return largest_range_of_edges(model.edge_weight, model.edge_type, spread)
    return (
        cache_with_layout(model, "largest weights", partial(_find_largest_weights, model, len(spread))) * spread[:, 0]
    ).max()


def _find_largest_weights(model, n_types):
    """Return the largest absolute edge weight of each type, for edges with a single weight."""
    largest = np.zeros(n_types, dtype=model.edge_weight.dtype)
    np.maximum.at(largest, model.edge_type, np.abs(model.edge_weight[:, 0]))
    return largest


def pad_unary(scores, semiring, dtype):
    """Return the unary rows of a field, and the score subtracted from each row, (N,) float64."""
    scores = np.ascontiguousarray(scores, dtype=dtype)
    n_nodes, n_columns = scores.shape
    lanes = _VECTOR_BYTES // dtype.itemsize
    width = -(-n_columns // lanes) * lanes
    if semiring == SUM_PROBABILITY:
        unary, best = np.empty((n_nodes, width), dtype=dtype), np.empty(n_nodes)
        rows_below_best(scores, unary, best)
        return np.exp(unary, out=unary), best
    if width == n_columns:
        return scores, np.zeros(n_nodes)
    unary = np.full((n_nodes, width), -np.inf, dtype=dtype)
    unary[:, :n_columns] = scores
    return unary, np.zeros(n_nodes)


def _store_factors(field, model):
    """Return the field with stored factors, one for each kind of edge, unless factors would need too much memory."""
    if len(field.edge_type) == 0:
        return field
    n_columns, width, dtype = field.tables.shape[3], field.width, field.tables.dtype
    # Kinds of edges depend only on types, weights and data type, so the kinds are cached with the layout.
    kept, factor, own = cache_with_layout(model, ("kinds of edges", dtype), lambda: _classify_edges(field))
    kinds, n = field._replace(**kept), len(kept["factor"])
    # A factor that is stored once is also read along columns, which is only fast with long rows and few edges per node.
    once = own and width * dtype.itemsize > _SHORT_ROW and model.graph.largest_degree <= n_columns
    size = n * (1 if once else 2) * n_columns * width * dtype.itemsize
    if size > _tuning.FACTOR_BUDGET:
        return field._replace(factor=factor)
    # A forest needs a single sweep, which takes less time than sorting the factors.
    in_order = own and size > _tuning.LARGEST_CACHED and not model.graph.is_forest
    place = _locate_factor_rows(field, factor, n, once, in_order)
    factors = np.empty((n if once else 2 * n, n_columns, width), dtype=dtype)
    shift = np.empty(n)
    fill_factors(kinds, factors, place, shift)
    return field._replace(factor=factor, factors=factors, place=place, shift=shift)


def _locate_factor_rows(field: Field, factor: np.ndarray, n: int, once: bool, in_order: bool) -> np.ndarray:
    """Return the rows of stored factors, (n, 2); ``in_order`` stores factors in the order in which messages are sent.

    If factors are stored in the order in which messages are sent, processors prefetch them. For tables larger than the
    cache, this doubles the speed of sweeps.
    """
    places = np.arange(n if once else 2 * n, dtype=np.int32)
    place = places.reshape(n, -1)
    if in_order:
        sender = np.repeat(np.arange(len(field.ptr) - 1), np.diff(field.ptr))
        upwards = field.neighbor > sender
        order = np.flatnonzero(upwards)
        if not once:
            down = np.flatnonzero(~upwards)
            order = np.concatenate([order, down[np.argsort(-sender[down], kind="stable")]])
        half_edge = field.half_edge[order]
        place = np.empty_like(place)
        place[factor[half_edge >> 1], 0 if once else half_edge & 1] = places
    return np.ascontiguousarray(np.broadcast_to(place, (n, 2)))


def _classify_edges(field: Field) -> tuple:
    """Return arrays for one edge of each kind, the kind of every edge, and whether each edge has its own kind."""
    some, factor = _pick_kind_examples(field)
    n = len(some["factor"])
    return some, factor, n == len(factor) and np.bincount(factor, minlength=n).max() == 1


def _pick_kind_examples(field: Field) -> tuple:
    if field.is_tied:
        kinds = np.arange(len(field.tables), dtype=np.int32)
        return {"factor": kinds, "edge_type": kinds}, field.edge_type
    n_edges = len(field.edge_type)
    weight = field.edge_weight[:, 0]
    if field.edge_weight.shape[1] == 1 and _has_recurring_weights(weight):
        # Weights recur, for example, if they are inverse appearance probabilities of edges in a few trees.
        order = np.lexsort((field.edge_type, weight))
        new = np.ones(n_edges, dtype=bool)
        new[1:] = (np.diff(weight[order]) != 0) | (np.diff(field.edge_type[order]) != 0)
        factor = np.empty(n_edges, dtype=np.int32)
        factor[order] = np.cumsum(new) - 1
        first = order[new]
        some = {"edge_type": field.edge_type[first], "edge_weight": np.ascontiguousarray(field.edge_weight[first])}
        return {"factor": np.arange(len(first), dtype=np.int32), **some}, factor
    factor = np.arange(n_edges, dtype=np.int32)
    return {"factor": factor}, factor


def _has_recurring_weights(weight: np.ndarray) -> bool:
    """Return whether edge weights recur, judging by the first few weights."""
    return len(set(weight[: _tuning.TRIED_EDGES].tolist())) < min(_tuning.TRIED_EDGES, len(weight))


def equals_separate_fields(field, model):
    """Return whether messages in a field of several graphs are bitwise equal to messages in one field per graph."""
    graph = model.graph
    # A separate field may have a smaller range of scores, and therefore another semiring or data type.
    if field.semiring != SUM_PROBABILITY or field.unary.dtype != model.dtype:
        return False
    if len(field.on):
        return True
    if not len(field.factors):
        return False
    return field.unary.itemsize * field.width <= _SHORT_ROW or _are_read_alike(field, graph)


def _are_read_alike(field, graph):
    """Return whether the joint field stores factors in the same way as the separate fields."""
    n_columns, ends = field.tables.shape[3], np.cumsum([0, *(part.n_edges for part in graph.parts)]).tolist()
    if field.is_tied:
        # If a graph has as many edges as types, each edge has its own factor, which may be stored differently.
        return not {graph.n_edges, *(part.n_edges for part in graph.parts)} & {len(field.tables)}
    if field.edge_weight.shape[1] == 1:
        # With several types, each edge may have its own kind even if weights recur.
        recur = (_has_recurring_weights(field.edge_weight[slice(*of_part), 0]) for of_part in pairwise(ends))
        return len(field.tables) == 1 and all(recur)
    are_few = [part.largest_degree <= n_columns for part in graph.parts]
    return all(are_few) or not any(are_few)


def _store_potts_factors(field: Field) -> Field:
    """Return the field with each factor stored as two values: on the diagonal, and off the diagonal."""
    if len(field.edge_type) == 0:
        return field
    if not field.is_tied:
        field = field._replace(factor=np.arange(len(field.edge_type), dtype=np.int32))
    kinds = np.arange(len(field.tables), dtype=np.int32) if field.is_tied else field.edge_type
    on, off = (np.empty(len(kinds), dtype=field.tables.dtype) for _ in range(2))
    shift, exponentiated = np.empty(len(kinds)), field.semiring != MAX_SCORE
    fill_potts_factors(field.tables, kinds, field.edge_weight, exponentiated, on, off, shift)
    return field._replace(on=on, off=off, shift=shift)


def can_use_log_odds(field: Field) -> bool:
    """Return whether messages of a field can be stored as log-odds, and are faster in this form.

    Plain belief propagation on probabilities needs no exponentials, and is therefore faster without log-odds.
    """
    return field.semiring == SUM_PROBABILITY and field.tables.shape[3] == 2 and len(field.appearance) > 0


class OddsField(NamedTuple):
    """Arrays of a two-state model for the kernel of log-odds messages.

    Up to a constant, a table is :math:`r(a) + c(b) + J [a = b]`. The terms r and c are added to the scores of the
    nodes. Messages of this reparameterised model differ from the original messages by these terms.
    """

    ptr: np.ndarray  # (N + 1,) int64; this and the next two fields are as in Field
    neighbor: np.ndarray
    reverse: np.ndarray
    unary: np.ndarray  # (N,) log-odds of nodes
    coupling: np.ndarray  # (2E + padding,), exp(-|J|) with the sign of J, by slot
    power: np.ndarray  # (2E + padding,), powers to which messages are raised, by slot
    share: np.ndarray  # (N,), factor for the sum of a node's log-odds and all messages to the node; empty for 1
    offset: np.ndarray  # (2E,) float64, contribution of a slot's edge to the log-odds of the slot's node
    largest_degree: int

    @classmethod
    def of(cls, field, share=None):
        """Convert the scores of a field to log-odds of two states, see :func:`can_use_log_odds`."""
        # share: (N,), factor for the sum of each node's log-odds and all messages to the node; None for 1
        dtype, (n_nodes, n_edges) = field.unary.dtype, (len(field.unary), len(field.edge_type))
        unary, coupling, offset = np.empty(n_nodes, dtype), np.empty(n_edges), np.empty(2 * n_edges)
        couplings, powers = (np.empty(2 * n_edges + _PADDING, dtype) for _ in range(2))
        # Tables are divided by the edge probabilities, and messages are raised to the power of these probabilities.
        of_edges = field.edge_type, field.tables, field.edge_weight, field.appearance
        found = unary, coupling, offset, couplings, powers
        odds_of_scores(field.ptr, field.half_edge, *of_edges, field.unary, *found)
        shares = np.zeros(0, dtype) if share is None else share.astype(dtype)
        arrays = field.ptr, field.neighbor, field.reverse, unary, couplings, powers, shares
        return cls(*arrays, offset, int(np.diff(field.ptr).max(initial=0)))

    def workspace(self) -> np.ndarray:
        """Return the workspaces of the kernel, one for each thread."""
        return allocate_workspace(self.largest_degree + _PADDING, self.unary.dtype)

    def send(self, odds, *how):
        """Update the messages that nodes send, one node after another; see the kernel for the arguments."""
        return send_odds(self, odds, *how)

    def renew(self, odds, *how):
        """Update the messages of ranges of nodes in a forward and a backward pass; see the kernel for the arguments."""
        renew_odds(self, odds, *how)

    def compute_log_odds(self, messages: np.ndarray) -> np.ndarray:
        """Return the log-odds of messages given as probabilities."""
        odds = np.empty(len(messages) + _PADDING, messages.dtype)
        odds_of_probabilities(messages, self.offset, odds)
        return odds

    def write_messages(self, odds: np.ndarray, messages: np.ndarray) -> None:
        """Write messages given as log-odds to an array of probabilities."""
        probabilities_of_odds(odds, self.offset, messages)


class Messages(NamedTuple):
    """Messages for a warm start; row i of ``values`` is the message that arrives at slot i."""

    values: np.ndarray  # (2E, K), probabilities or scores
    as_scores: bool


def build_initial_messages(field, init=None):
    """Return uniform messages, or the messages of an earlier result, in the layout and data type of a field."""
    n_slots, n_columns = len(field.neighbor), field.tables.shape[3]
    as_scores = field.semiring != SUM_PROBABILITY
    padding = -np.inf if as_scores else 0.0
    uniform = 0.0 if as_scores else 1.0 / n_columns
    values = np.full((n_slots, field.width), uniform, dtype=field.unary.dtype)
    values[:, n_columns:] = padding
    if init is None:
        return values
    if not isinstance(init, Messages):
        raise ValueError(f"init must be the state of an earlier result of message passing, got {type(init).__name__}.")
    if init.values.shape != (n_slots, n_columns) or init.values.dtype not in (np.float32, np.float64):
        raise ValueError(
            f"init must hold messages of shape {(n_slots, n_columns)} for this model, got shape {init.values.shape} "
            f"and type {init.values.dtype}."
        )
    if not as_scores and not init.as_scores:
        # States that had probability zero may be allowed now, so zeros are replaced by a small number.
        given = np.ascontiguousarray(init.values, dtype=values.dtype)
        if copy_probabilities(given, np.finfo(values.dtype).eps * 1e-2, values):
            return values
    if np.isnan(init.values).any():
        raise ValueError("init must not hold NaN.")
    with np.errstate(divide="ignore"):
        scores = init.values if init.as_scores else np.log(init.values)
    scores = np.maximum(scores - compute_row_maxima(scores), _tuning.LEAST_INITIAL_SCORE)
    values[:, :n_columns] = scores if as_scores else np.exp(scores)
    return values


def make_infeasible_error(node):
    """Return the error for a node without any possible state."""
    return Infeasible(
        "model is infeasible: the scores around node {nodes} forbid all of its states.", nodes=[int(node)]
    )


def compute_beliefs(field, messages, run):
    """Return node beliefs (logarithms if the field stores scores), and the logarithm of the normaliser of each node."""
    # messages: (2E, width); returns beliefs: (N, width), log_z_terms: (N,) float64
    # run: function returned by :func:`~sklearn_crf._threads.make_range_runner`
    beliefs = np.empty_like(field.unary)
    log_z_terms = np.empty(len(beliefs))
    failed, work_size = [], field.workspace().size

    def part(start, stop):
        failed.append(node_beliefs(field, messages, beliefs, log_z_terms, start, stop, allocate_workspace(work_size)))

    run(part, len(beliefs))
    if max(failed) >= 0:
        raise make_infeasible_error(max(failed))
    return beliefs, log_z_terms


def marginals_of(field, dtype, unary_shift, messages, run, exact=False, **fields):
    """Return the :class:`Marginals` for messages, with the (reweighted) Bethe log-partition."""
    # dtype: data type of the result; messages: (2E, width); **fields: other fields of the result
    # unary_shift: (N,), as :func:`~sklearn_crf.inference._field.make_field` returns it
    # exact: whether messages are a fixed point up to rounding errors, which saves work
    beliefs, log_z_terms = compute_beliefs(field, messages, run)
    log_z_terms += unary_shift
    tables = _sum_pairs(field, messages, beliefs, log_z_terms, run, exact)
    unary = _compute_probabilities(field, beliefs, dtype)
    return Marginals(unary, Statistics(unary, tables), float(log_z_terms.sum()), log_z_terms, **fields)


def compute_node_marginals(field, dtype, messages, run):
    """Return the marginals of nodes, (N, K)."""
    beliefs, _ = compute_beliefs(field, messages, run)
    return _compute_probabilities(field, beliefs, dtype)


def _compute_probabilities(field: Field, beliefs: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return probabilities computed from beliefs, without padded states; the beliefs may be overwritten."""
    if field.semiring != SUM_PROBABILITY:
        np.exp(beliefs, out=beliefs)
    return np.ascontiguousarray(beliefs[:, : field.tables.shape[3]], dtype=dtype)


def _sum_pairs(field, messages, beliefs, log_z_terms, run, exact):
    """Sum pairwise beliefs times edge weights for each edge type; add the terms of edges to ``log_z_terms``."""
    n_types, n_features, n_columns, _ = field.tables.shape
    shape = (n_types, n_features, n_columns, field.width)
    size = max(int(np.prod(shape)), 1)
    n_ranges = max(1, min(_tuning.STATISTICS_BUDGET // size, len(beliefs) // _tuning.SMALLEST_PART, 16))
    partial = np.zeros((n_ranges, *shape))
    # For tied and stored factors without powers, multiply by the factor only once, after summing over its edges.
    stored = len(field.factors) + len(field.on) > 0
    without_factor = field.semiring == SUM_PROBABILITY and field.is_tied and stored and len(field.appearance) == 0
    row_totals = sum_factor_rows(field) if exact and without_factor else np.zeros((0, field.width), field.unary.dtype)
    failed, work_size = [], field.workspace().size

    def part(k, start, stop):
        work = allocate_workspace(work_size)
        failed.append(
            pair_statistics(
                field, messages, beliefs, partial[k], without_factor, row_totals, log_z_terms, start, stop, work
            )
        )

    if len(field.neighbor):
        run_fixed_ranges(run, part, len(beliefs), n_ranges)
        if max(failed) >= 0:
            raise Infeasible(
                f"model is infeasible: the scores around edge {max(failed)} forbid all of its pairs of states."
            )
    total = partial[0]
    for other in partial[1:]:
        total += other
    total = np.ascontiguousarray(total[..., :n_columns])
    if without_factor:
        step = max(1, _tuning.GATHERED // n_columns**2)
        for start in range(0, n_types, step):
            types = slice(start, start + step)
            total[types, 0] *= _gather_tied_factors(field, types)
    return total


def sum_factor_rows(field: Field) -> np.ndarray:
    """Return the sums of the rows of each stored factor, (n, width)."""
    if len(field.factors):
        totals = np.zeros((len(field.place), field.width), dtype=field.unary.dtype)
        totals[:, : field.factors.shape[1]] = _gather_stored_factors(field, slice(None)).sum(axis=2)
        return totals
    total = field.on + (field.tables.shape[3] - 1) * field.off
    return np.ascontiguousarray(np.broadcast_to(total[:, None], (len(total), field.width)))


def _gather_tied_factors(field, types):
    """Return the factors of some types, (n, K, K)."""
    n_columns = field.tables.shape[3]
    if len(field.factors):
        return _gather_stored_factors(field, types)[:, :, :n_columns]
    on, off = field.on[types, None, None], field.off[types, None, None]
    return np.where(np.eye(n_columns, dtype=bool), on, off)


def _gather_stored_factors(field, types):
    """Return the factors of some types for the first end, (n, K, width), as a view if factors are stored in order."""
    place = field.place[types, 0]
    first, step = place[0], len(field.factors) // len(field.place)
    if (np.diff(place) == step).all():
        return field.factors[first : first + step * len(place) : step]
    return field.factors[place]
