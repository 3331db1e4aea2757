"""A pairwise model as the kernels of message passing read it, and the pieces their recursions share.

A kernel takes the arrays of a model as one tuple, ``sklearn_crf.inference._field.Field``; ``open_field`` checks
their types and keeps their addresses. Rows are padded to ``width``, so inside the loops pointers are used: a
memoryview passed to an inline function copies 200 bytes.
"""

from cython cimport floating
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.rows cimport exponentiate_all, row_max

# How messages add up. Sums of exponentials are kept as probabilities where the range of the scores permits,
# as scores where it does not; maxima are always taken of scores.
cdef enum Semiring:
    SUM_PROBABILITY = 0
    SUM_SCORE = 1
    MAX_SCORE = 2

cdef struct Field:
    Semiring semiring
    Py_ssize_t n_columns  # K
    Py_ssize_t width  # K padded to a multiple of 16 bytes
    Py_ssize_t n_features  # R
    const int64_t* ptr  # (N + 1,) first slot of each node
    const int32_t* neighbor  # (2E,)
    const int32_t* half_edge  # (2E,)
    const int32_t* reverse  # (2E,)
    const int32_t* n_states  # (N,) or NULL
    const int32_t* factor  # (E,) row of factors, coupling and shift
    const int32_t* edge_type  # (E,)
    const double* shift  # (n,) score taken out of each factor
    const void* unary  # (N, width) of floating: exp(score - best) for SUM_PROBABILITY, else scores
    const void* factors  # (m, K, width) or NULL: exp(score - shift) for sums, score - shift for maxima
    const int32_t* place  # (n, 2) where factors holds each of the first and of the second end, or both in one
    const void* on  # (n,) or NULL: a Potts table's factor on the diagonal, as in factors; the larger of on
    const void* off  # (n,) or NULL: and off is 1 (score 0)
    const void* tables  # (T, R, K, K) scores
    const void* edge_weight  # (E, R) or NULL
    const void* appearance  # (E,) or NULL: edge appearance probabilities, 1 is belief propagation


cdef inline void open_field(object arrays, Field* f, floating* precision) except *:
    """Addresses of the arrays, which the caller keeps alive; ``precision`` only selects the type."""
    cdef:
        const int64_t[::1] ptr = arrays.ptr
        const int32_t[::1] neighbor = arrays.neighbor
        const int32_t[::1] half_edge = arrays.half_edge
        const int32_t[::1] reverse = arrays.reverse
        const int32_t[::1] n_states = arrays.n_states
        const int32_t[::1] factor = arrays.factor
        const int32_t[::1] edge_type = arrays.edge_type
        const double[::1] shift = arrays.shift
        const floating[:, ::1] unary = arrays.unary
        const floating[:, :, ::1] factors = arrays.factors
        const int32_t[:, ::1] place = arrays.place
        const floating[::1] on = arrays.on
        const floating[::1] off = arrays.off
        const floating[:, :, :, ::1] tables = arrays.tables
        const floating[:, ::1] edge_weight = arrays.edge_weight
        const floating[::1] appearance = arrays.appearance
    f.semiring = arrays.semiring
    f.n_columns = tables.shape[3]
    f.n_features = tables.shape[1]
    f.width = unary.shape[1]
    f.ptr = &ptr[0]
    f.neighbor = &neighbor[0] if neighbor.shape[0] else NULL
    f.half_edge = &half_edge[0] if half_edge.shape[0] else NULL
    f.reverse = &reverse[0] if reverse.shape[0] else NULL
    f.n_states = &n_states[0] if n_states.shape[0] else NULL
    f.factor = &factor[0] if factor.shape[0] else NULL
    f.edge_type = &edge_type[0] if edge_type.shape[0] else NULL
    f.shift = &shift[0] if shift.shape[0] else NULL
    f.unary = &unary[0, 0] if unary.shape[0] else NULL
    f.factors = &factors[0, 0, 0] if factors.shape[0] else NULL
    f.place = &place[0, 0] if place.shape[0] else NULL
    f.on = &on[0] if on.shape[0] else NULL
    f.off = &off[0] if off.shape[0] else NULL
    f.tables = &tables[0, 0, 0, 0] if tables.shape[0] else NULL
    f.edge_weight = &edge_weight[0, 0] if edge_weight.shape[0] else NULL
    f.appearance = &appearance[0] if appearance.shape[0] else NULL


cdef inline Py_ssize_t states_of(const Field* f, Py_ssize_t node) noexcept nogil:
    return f.n_columns if f.n_states == NULL else f.n_states[node]


cdef inline double pair_score(const Field* f, int32_t half_edge, Py_ssize_t a, Py_ssize_t b,
                              floating* precision) noexcept nogil:
    """Score of state a at the end that a half-edge starts from and b at the other, weights applied."""
    cdef:
        Py_ssize_t edge = half_edge >> 1, K = f.n_columns, R = f.n_features, r
        Py_ssize_t cell = b * K + a if half_edge & 1 else a * K + b
        const floating* table = (<const floating*> f.tables) + f.edge_type[edge] * R * K * K
        const floating* weight = <const floating*> f.edge_weight
        double score = 0.0
    if weight == NULL:
        return table[cell]
    for r in range(R):
        score += <double> weight[edge * R + r] * table[r * K * K + cell]
    return score


cdef inline void compute_factor(const Field* f, Py_ssize_t edge, floating* rows, double* shift) noexcept nogil:
    """Rows (K, width) of an edge from the first end's states to the second's, and the score taken out of them."""
    cdef:
        Py_ssize_t K = f.n_columns, W = f.width, R = f.n_features, a, b
        const floating* table = (<const floating*> f.tables) + f.edge_type[edge] * R * K * K
        const floating* weight = NULL
        floating* row
        floating top = -INFINITY, best
    if f.edge_weight != NULL:
        weight = (<const floating*> f.edge_weight) + edge * R
    for a in range(K):
        row = rows + a * W
        if weight == NULL:
            for b in range(K):
                row[b] = table[a * K + b]
        elif R == 1:
            for b in range(K):
                row[b] = <floating> (<double> weight[0] * table[a * K + b])
        else:
            for b in range(K):
                row[b] = <floating> pair_score(f, <int32_t> (2 * edge), a, b, <floating*> NULL)
        for b in range(K, W):
            row[b] = -INFINITY
        best = row_max(<const floating*> row, W)
        top = best if best > top else top
    shift[0] = top
    if top == -INFINITY:
        for a in range(K * W):
            rows[a] = -INFINITY if f.semiring == MAX_SCORE else 0
        return
    for a in range(K * W):
        rows[a] = rows[a] - top
    if f.semiring != MAX_SCORE:
        exponentiate_all(rows, K * W)


cdef inline const floating* stored_factor(const Field* f, int32_t half_edge, floating* workspace, double* shift,
                                          bint* across) noexcept nogil:
    """Rows (K, width) of an edge as they are stored, or written to ``workspace`` if they are not.

    They are read ``across`` if the half-edge starts from the end whose states are the columns.
    """
    cdef:
        Py_ssize_t K = f.n_columns, W = f.width, edge = half_edge >> 1
        const int32_t* place
    if f.factors != NULL:
        place = f.place + 2 * <Py_ssize_t> f.factor[edge]
        shift[0] = f.shift[f.factor[edge]]
        across[0] = half_edge & 1 and place[0] == place[1]
        return (<const floating*> f.factors) + place[half_edge & 1] * K * W
    across[0] = half_edge & 1
    if f.semiring == MAX_SCORE and f.edge_weight == NULL and f.n_features == 1 and W == K:
        shift[0] = 0
        return (<const floating*> f.tables) + f.edge_type[edge] * K * K
    compute_factor(f, edge, workspace, shift)
    return workspace


cdef inline const floating* half_edge_factor(const Field* f, int32_t half_edge, floating* workspace,
                                             double* shift) noexcept nogil:
    """Rows (K, width) from the starting end's states to the other's; written to ``workspace`` if not stored."""
    cdef:
        Py_ssize_t K = f.n_columns, W = f.width, a, b
        bint across = False
        floating kept
        const floating* rows = stored_factor(f, half_edge, workspace, shift, &across)
    if not across:
        return rows
    for a in range(K):
        for b in range(a + 1):
            kept = rows[a * W + b]  # what is read may be the workspace itself
            workspace[a * W + b] = rows[b * W + a]
            workspace[b * W + a] = kept
        for b in range(K, W):
            workspace[a * W + b] = -INFINITY if f.semiring == MAX_SCORE else 0
    return workspace
