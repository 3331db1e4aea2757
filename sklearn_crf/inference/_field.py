"""A model made ready for message passing: padded, exponentiated where its range permits, edges in both directions."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.kernels.factors import fill_factors, range_of_tables, rows_below_best
from sklearn_crf.kernels.messages.edge_messages import send

# How messages add up, the numbers that the kernels know.
SUM_PROBABILITY, SUM_SCORE, MAX_SCORE = 0, 1, 2

# Most bytes for tables that differ from edge to edge; past it they are worked out anew for each message.
FACTOR_BUDGET = 256 * 2**20

# Largest range (as a difference of scores) that the messages to a node may span together if they are kept as
# probabilities: what underflows then is less than exp(-25) of the rest in single precision, in which 87 is the
# limit, and exp(-60) in double precision, in which 708 is.
LARGEST_RANGE = {np.dtype(np.float32): 60.0, np.dtype(np.float64): 640.0}

_VECTOR_BYTES = 16

# First edges that are looked at to tell whether weights recur.
_TRIED = 16


class Field(NamedTuple):
    """The arrays that every kernel of message passing takes. Arrays that a model does without have length 0."""

    semiring: int
    ptr: np.ndarray  # (N + 1,) int64 first slot of each node
    neighbor: np.ndarray  # (2E,) int32
    half_edge: np.ndarray  # (2E,) int32
    reverse: np.ndarray  # (2E,) int32
    n_states: np.ndarray  # (N,) int32 or empty: K everywhere
    factor: np.ndarray  # (E,) int32 row of each edge in factors, on, off and shift
    edge_type: np.ndarray  # (E,) int32
    shift: np.ndarray  # (n,) float64 score taken out of each factor
    unary: np.ndarray  # (N, width) exp(score - best) for SUM_PROBABILITY, else scores
    factors: np.ndarray  # (n, 2, K, width) exp(score - shift) for sums, score - shift for maxima; empty if not stored
    on: np.ndarray  # (n,) diagonal of a Potts factor, or empty
    off: np.ndarray  # (n,) the rest of it
    tables: np.ndarray  # (T, R, K, K) scores
    edge_weight: np.ndarray  # (E, R) or empty
    appearance: np.ndarray  # (E,) or empty: edge appearance probabilities, none is 1 (belief propagation)

    @property
    def width(self):
        """Number of states, padded."""
        return self.unary.shape[1]

    @property
    def is_tied(self):
        """True if an edge's factor is that of its type alone."""
        return len(self.edge_weight) == 0

    def work_space(self):
        """Workspace of a kernel; one for each thread."""
        return np.empty((6 + 2 * self.tables.shape[3]) * self.width)

    def send(self, messages, *how):
        """Let nodes send messages in turn, see the kernel."""
        return send(self, messages, *how)


def make_field(model, maximum, appearance=None, unbounded=False, as_scores=False):
    """The field of a model for sums or maxima, and the score taken out of each node's unary row.

    Sums are kept as probabilities if the range of the model's scores permits it, in double precision if single
    is too narrow, else as scores.

    Parameters
    ----------
    model : PairwiseModel
        For tree-reweighted messages, with tables or edge weights divided by ``appearance``.
    maximum : bool
        Maxima instead of sums.
    appearance : ndarray of shape (E,), optional
        Edge appearance probabilities.
    unbounded : bool, default=False
        Keep probabilities in spite of forbidden pairs, which let the range of messages grow without a bound known
        beforehand; the caller looks at what came out.
    as_scores : bool, default=False
        Keep sums as scores in any case.

    Returns
    -------
    Field, unary_shift : ndarray of shape (N,), float64

    Raises
    ------
    ValueError
        If a table forbids every pair of states.
    """
    if maximum or as_scores:
        semiring, dtype = MAX_SCORE if maximum else SUM_SCORE, model.dtype
    else:
        semiring, dtype = _kind_of_sum(model, unbounded)
    scores = {
        name: np.zeros((0, *shape), dtype) if values is None else np.ascontiguousarray(values, dtype=dtype)
        for name, values, shape in (
            ("tables", model.tables, ()),
            ("edge_weight", model.edge_weight, (model.tables.shape[1],)),
            ("appearance", appearance, ()),
        )
    }
    unary, unary_shift = padded_unary(model.unary, semiring, dtype)
    field = Field(
        semiring,
        *model.graph.incidence,
        n_states=np.zeros(0, dtype=np.int32) if model.n_states is None else model.n_states,
        factor=model.edge_type,
        edge_type=model.edge_type,
        shift=np.zeros(0),
        unary=unary,
        factors=np.zeros((0, 2, model.n_columns, unary.shape[1]), dtype=dtype),
        on=np.zeros(0, dtype=dtype),
        off=np.zeros(0, dtype=dtype),
        **scores,
    )
    field = _with_factors(field, model.is_potts)
    impossible = np.flatnonzero(np.isneginf(field.shift))
    if len(impossible):
        edges = np.flatnonzero(np.isin(field.factor, impossible))
        if len(edges):
            raise ValueError(f"model is infeasible: tables forbid every pair of states of edge {edges[0]}.")
    return field, unary_shift


def _kind_of_sum(model, unbounded):
    """Semiring and precision for sums."""
    if model.graph.n_edges == 0:
        return SUM_PROBABILITY, model.dtype
    n_types, n_features, n_columns, _ = model.tables.shape
    spread = np.empty(n_types * n_features)
    forbids = range_of_tables(model.tables.reshape(len(spread), n_columns**2), spread)
    double = np.dtype(np.float64)
    candidates = () if forbids and not unbounded else (double,) if forbids else (model.dtype, double)
    if model.edge_weight is None:
        largest = spread.max()
    else:
        by_type = spread.reshape(n_types, n_features)[model.edge_type]
        largest = np.einsum("er,er->e", np.abs(model.edge_weight), by_type).max()
    together = int(model.graph.degree.max()) * (largest + np.log(model.n_columns)) + largest
    for dtype in candidates:
        if together <= LARGEST_RANGE[dtype]:
            return SUM_PROBABILITY, dtype
    return SUM_SCORE, model.dtype


def padded_width(n_columns, dtype):
    """Number of states, rounded up to whole vectors of 16 bytes."""
    lanes = _VECTOR_BYTES // dtype.itemsize
    return -(-n_columns // lanes) * lanes


def padded_unary(scores, semiring, dtype):
    """Unary rows of a field, and the score taken out of each, (N,) float64."""
    scores = np.ascontiguousarray(scores, dtype=dtype)
    n_nodes, n_columns = scores.shape
    width = padded_width(n_columns, dtype)
    if semiring == SUM_PROBABILITY:
        unary, best = np.empty((n_nodes, width), dtype=dtype), np.empty(n_nodes)
        rows_below_best(scores, unary, best)
        return np.exp(unary, out=unary), best
    if width == n_columns:
        return scores, np.zeros(n_nodes)
    unary = np.full((n_nodes, width), -np.inf, dtype=dtype)
    unary[:, :n_columns] = scores
    return unary, np.zeros(n_nodes)


def _with_factors(field, is_potts):
    """The field with its factors: one per kind of edge if they are tied, else one per edge while they fit."""
    n_edges = len(field.edge_type)
    if n_edges == 0:
        return field
    n_columns, width, dtype = field.tables.shape[3], field.width, field.tables.dtype
    if is_potts and n_columns > 1:
        if not field.is_tied:
            field = field._replace(factor=np.arange(n_edges, dtype=np.int32))
        return _with_potts_factors(field)
    kinds, factor = _kinds_of_edges(field)
    field = field._replace(factor=factor)
    if len(kinds.factor) * 2 * n_columns * width * dtype.itemsize > FACTOR_BUDGET:
        return field
    factors = np.empty((len(kinds.factor), 2, n_columns, width), dtype=dtype)
    shift = np.empty(len(kinds.factor))
    fill_factors(kinds, factors, shift)
    return field._replace(factors=factors, shift=shift)


def _kinds_of_edges(field):
    """A field with one edge of each kind, and the kind of every edge."""
    if field.is_tied:
        kinds = np.arange(len(field.tables), dtype=np.int32)
        return field._replace(factor=kinds, edge_type=kinds), field.edge_type
    n_edges = len(field.edge_type)
    weight = field.edge_weight[:, 0]
    if field.edge_weight.shape[1] == 1 and len(set(weight[:_TRIED].tolist())) < min(_TRIED, n_edges):
        # Such as one over the appearance probabilities of edges in a few trees.
        order = np.lexsort((field.edge_type, weight))
        new = np.ones(n_edges, dtype=bool)
        new[1:] = (np.diff(weight[order]) != 0) | (np.diff(field.edge_type[order]) != 0)
        factor = np.empty(n_edges, dtype=np.int32)
        factor[order] = np.cumsum(new) - 1
        first = order[new]
        some = {"edge_type": field.edge_type[first], "edge_weight": np.ascontiguousarray(field.edge_weight[first])}
        return field._replace(factor=np.arange(len(first), dtype=np.int32), **some), factor
    factor = np.arange(n_edges, dtype=np.int32)
    return field._replace(factor=factor), factor


def _with_potts_factors(field):
    on, off = field.tables[:, :, 0, 0], field.tables[:, :, 0, 1]
    if field.is_tied:
        on, off = on[:, 0], off[:, 0]
    else:
        on, off = (np.einsum("er,er->e", field.edge_weight, part[field.edge_type]) for part in (on, off))
    shift = np.maximum(on, off)
    possible = shift > -np.inf
    on, off = (np.subtract(part, shift, where=possible, out=np.full_like(part, -np.inf)) for part in (on, off))
    if field.semiring != MAX_SCORE:
        on, off = np.exp(on), np.exp(off)
    return field._replace(on=on, off=off, shift=shift.astype(np.float64))


class Messages(NamedTuple):
    """State of message passing, for a warm start: messages by the slot of the receiving node."""

    values: np.ndarray  # (2E, K), probabilities or scores
    as_scores: bool


def initial_messages(field, init=None):
    """Uniform messages of the field's width and precision, or those of a former result.

    Parameters
    ----------
    field : Field
    init : Messages or None

    Raises
    ------
    ValueError
        If ``init`` belongs to another topology or number of states, or is no state at all.
    """
    n_slots, n_columns = len(field.neighbor), field.tables.shape[3]
    as_scores = field.semiring != SUM_PROBABILITY
    padding = -np.inf if as_scores else 0.0
    uniform = 0.0 if as_scores else 1.0 / n_columns
    values = np.full((n_slots, field.width), uniform, dtype=field.unary.dtype)
    values[:, n_columns:] = padding
    if init is None:
        return values
    if not isinstance(init, Messages):
        raise ValueError(f"init must be the state of a former result of message passing, got {type(init).__name__}.")
    if init.values.shape != (n_slots, n_columns) or init.values.dtype not in (np.float32, np.float64):
        raise ValueError(
            f"init must hold messages of shape {(n_slots, n_columns)} for this model, got {init.values.shape} "
            f"of {init.values.dtype}."
        )
    if np.isnan(init.values).any():
        raise ValueError("init must not hold NaN.")
    if not as_scores and not init.as_scores:
        # A zero may date from a state that is allowed now.
        values[:, :n_columns] = np.maximum(init.values, np.finfo(values.dtype).eps * 1e-2)
        return values
    with np.errstate(divide="ignore"):
        scores = init.values if init.as_scores else np.log(init.values)
    scores = np.maximum(scores - scores.max(axis=1, keepdims=True), _LEAST_INITIAL_SCORE)
    values[:, :n_columns] = scores if as_scores else np.exp(scores)
    return values


# Where a warm start says "impossible", it may have become possible: exp(-20) leaves the way open.
_LEAST_INITIAL_SCORE = -20.0
