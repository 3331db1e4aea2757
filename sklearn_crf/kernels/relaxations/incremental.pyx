# distutils: language = c++
"""Incremental subgradient steps, edge by edge, for the dual of the linear relaxation over single edges.

Edge F = (s, t) holds a share of the scores of its ends, lambda_s^F = base_s + moved_s^F. A step on F lowers one state
of each end in ``moved``, and distributes the difference equally among all edges of the end. This changes only ``base``,
so that the cost of a step does not depend on degrees.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint64_t

from sklearn_crf.kernels.messages.field cimport Field, Workspace, open_field
from sklearn_crf.kernels.relaxations.best_pair cimport Pair, best_pair


cdef inline uint64_t next_random(uint64_t* state) noexcept nogil:
    """Return the next number of a 64-bit xorshift generator with a multiplier (Marsaglia 2003)."""
    state[0] ^= state[0] >> 12
    state[0] ^= state[0] << 25
    state[0] ^= state[0] >> 27
    return state[0] * <uint64_t> 2685821657736338717


cdef inline Py_ssize_t below(uint64_t* state, Py_ssize_t n) noexcept nogil:
    """Return a random number from 0 to n - 1, for n below 2^31, from the upper bits, which have better quality."""
    return <Py_ssize_t> (((next_random(state) >> 33) * <uint64_t> n) >> 31)


def shuffle(
    int32_t[::1] items,  # IN OUT
    uint64_t[::1] state,  # IN OUT (1,) not zero
):
    """Shuffle the items in place (Fisher-Yates)."""
    cdef:
        Py_ssize_t i, j
        int32_t kept
    with nogil:
        for i in range(items.shape[0] - 1, 0, -1):
            j = below(&state[0], i + 1)
            kept = items[i]
            items[i] = items[j]
            items[j] = kept


def pick_labels(
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] half_edge,  # IN (2E,)
    const int32_t[::1] picked,  # IN (2E,) by half-edge: state of its end in the best pair of the edge
    uint64_t[::1] state,  # IN OUT (1,) not zero
    int32_t[::1] labels,  # OUT (N,) unchanged for nodes without edges
):
    """Assign each node its state in the best pair of a random edge."""
    cdef Py_ssize_t s, degree
    with nogil:
        for s in range(labels.shape[0]):
            degree = ptr[s + 1] - ptr[s]
            if degree:
                labels[s] = picked[half_edge[ptr[s] + below(&state[0], degree)]]


cdef inline void add_rows(const double* x, const double* y, Py_ssize_t n, double* out) noexcept nogil:
    cdef Py_ssize_t a
    for a in range(n):
        out[a] = x[a] + y[a]


def incremental_sweep(
    object field,  # IN arrays of the model, unary as scores
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const int32_t[::1] order,  # IN (E,)
    const double[::1] share,  # IN (N,) one over the degree
    double step,
    double[:, ::1] moved,  # IN OUT (2E, width) by half-edge
    double[:, ::1] base,  # IN OUT (N, width)
    int32_t[::1] picked,  # OUT (2E,) by half-edge
    double[::1] work,  # workspace
):
    """Make a subgradient step and a projection for each edge in turn."""
    cdef:
        Field[double] f
        Pair best
        Py_ssize_t i, W = base.shape[1]
        int32_t e, s, t
        double* x = &work[0]
        double* y = x + W
    open_field(field, &f)
    with nogil:
        for i in range(order.shape[0]):
            e = order[i]
            s, t = edges[e, 0], edges[e, 1]
            add_rows(&base[s, 0], &moved[2 * e, 0], W, x)
            add_rows(&base[t, 0], &moved[2 * e + 1, 0], W, y)
            best_pair(&f, e, x, y, f.states_of(s), f.states_of(t), y + W, &best)
            moved[2 * e, best.a] -= step
            moved[2 * e + 1, best.b] -= step
            base[s, best.a] += step * share[s]
            base[t, best.b] += step * share[t]
            picked[2 * e] = <int32_t> best.a
            picked[2 * e + 1] = <int32_t> best.b


def dual_value(
    object field,  # IN arrays of the model, unary as scores
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const double[::1] share,  # IN (N,) one over the degree, 0 without edges
    const double[:, ::1] moved,  # IN (2E, width) by half-edge
    double[:, ::1] base,  # OUT (N, width) set so that the shares of the edges of a node sum to its scores
    int32_t[::1] picked,  # OUT (2E,) by half-edge
    double[::1] work,  # workspace
):
    """Return the sum of the best scores of all edges and of nodes without edges: an upper bound on the best score.

    ``base`` is recomputed from ``moved``, so that rounding errors do not add up over sweeps.
    """
    cdef:
        Field[double] f
        Pair best
        Py_ssize_t s, t, e, a, q, W = base.shape[1]
        double total = 0.0, top
        const double* unary
        double* x = &work[0]
        double* y = x + W
    open_field(field, &f)
    unary = f.unary
    with nogil:
        for s in range(base.shape[0]):
            for a in range(W):
                base[s, a] = unary[s * W + a]
            if f.ptr[s] == f.ptr[s + 1]:
                top = -INFINITY
                for a in range(W):
                    top = max(top, base[s, a])
                total += top
                continue
            for q in range(f.ptr[s], f.ptr[s + 1]):
                for a in range(W):
                    base[s, a] -= moved[f.half_edge[q], a]
            for a in range(W):
                base[s, a] *= share[s]
        for e in range(edges.shape[0]):
            s, t = edges[e, 0], edges[e, 1]
            add_rows(&base[s, 0], &moved[2 * e, 0], W, x)
            add_rows(&base[t, 0], &moved[2 * e + 1, 0], W, y)
            best_pair(&f, <int> e, x, y, f.states_of(s), f.states_of(t), y + W, &best)
            total += best.score
            picked[2 * e] = <int32_t> best.a
            picked[2 * e + 1] = <int32_t> best.b
    return total


def decode_shares(
    object field,  # IN arrays of the model, unary as scores
    const double[:, ::1] moved,  # IN (2E, width) by half-edge
    const double[:, ::1] base,  # IN (N, width)
    int direction,  # 1: first to last node; -1: reversed
    int32_t[::1] labels,  # OUT (N,)
    double[::1] work,  # workspace
):
    """Assign each node in turn its best state, given labels of earlier nodes and the best states of later nodes.

    A later neighbour counts with its share in the connecting edge.
    If earlier labels forbid all states of a node, it gets its first state.
    """
    cdef:
        Field[double] f
        Workspace[double] workspace
        Py_ssize_t i, s, t, q, a, best, n_nodes = labels.shape[0], W = base.shape[1]
        int32_t half_edge
        double shift = 0
        const double* unary
        double* total
        double* x
        double* fresh
    open_field(field, &f)
    workspace.open(f, &work[0])
    unary = f.unary
    total, x, fresh = workspace.total, workspace.cavity, workspace.fresh
    with nogil:
        for i in range(n_nodes):
            s = i if direction > 0 else n_nodes - 1 - i
            for a in range(W):
                total[a] = unary[s * W + a]
            for q in range(f.ptr[s], f.ptr[s + 1]):
                t = f.neighbor[q]
                half_edge = f.half_edge[q]
                if direction * (t - s) < 0:
                    for a in range(f.n_columns):
                        total[a] += f.pair_score(half_edge, a, labels[t])
                    continue
                add_rows(&base[t, 0], &moved[half_edge ^ 1, 0], W, x)
                f.apply_factor(half_edge ^ 1, <const double*> x, f.states_of(t), fresh, workspace.factor, &shift)
                for a in range(f.n_columns):
                    total[a] += fresh[a]
            best = 0
            for a in range(1, f.states_of(s)):
                if total[a] > total[best]:
                    best = a
            labels[s] = <int32_t> best
