"""Exact marginals of many copies of a forest of two-state nodes, each copy with its own node scores.

Let h be the odds of the second state of a node, given its subtree. The message from the node along the table t is

    m = (t_01 + h t_11) / (t_00 + h t_10).

Several copies are processed together, so that every step operates on whole vectors.
"""

from cython cimport floating
from libc.math cimport fabs
from libc.stdint cimport int32_t
from libc.string cimport memset

from sklearn_crf.kernels.rows cimport exponentiate_all, logarithms

# Number of copies that are processed together. The last group is padded, so results do not depend on the position.
cdef enum:
    LANES = 32
SIDE_BY_SIDE = LANES

# Number of workspace rows for each node.
ROWS_OF_A_NODE = 7


cdef struct Forest:
    Py_ssize_t n_nodes  # L
    const int32_t* order  # (L,) every node after its parent
    const int32_t* parent  # (L,) -1 at a root
    const double* tables  # (L, 4) exp(score - maximum), by the states of a node and its parent
    const double* best  # (L,) maximum score of each table


cdef struct Workspace:
    double* odds  # (L, LANES) odds of the second state, given the subtree of a node
    double* message  # (L, LANES) messages to the parent
    double* log_z  # (L, LANES) log-partition of the subtree, given the first state of its root
    double* sums  # (L, 4, LANES) sums of pair marginals


def marginals_of_copies(
    const floating[:, ::1] unary,  # IN (n L, 2)
    const int32_t[::1] order,  # IN (L,)
    const int32_t[::1] parent,  # IN (L,)
    const double[:, ::1] tables,  # IN (L, 4)
    const double[::1] best,  # IN (L,)
    double widest,  # largest score range of a node without overflow of odds
    floating[:, ::1] posterior,  # OUT (n L, 2)
    double[:, ::1] pairs,  # OUT (L, 4) sums over copies of the marginals of each node and its parent, or (0, 4)
    double[::1] terms,  # OUT (n L,) log-partition of each component at its root, 0 elsewhere; or (0,) as pairs
    double[::1] work,  # workspace (ROWS_OF_A_NODE L SIDE_BY_SIDE,)
):
    """Compute the marginals; return False, without results, if the score range is too wide."""
    cdef:
        Forest forest
        Workspace workspace
        Py_ssize_t L = order.shape[0], n = unary.shape[0] // L, block, first, k, i, b
        bint fits = True, with_pairs = pairs.shape[0] > 0
    forest.n_nodes, forest.order, forest.parent = L, &order[0], &parent[0]
    forest.tables, forest.best = &tables[0, 0], &best[0]
    workspace.odds = &work[0]
    workspace.message = workspace.odds + L * LANES
    workspace.log_z = workspace.message + L * LANES
    workspace.sums = workspace.log_z + L * LANES
    with nogil:
        memset(workspace.sums, 0, 4 * L * LANES * sizeof(double))
        for block in range((n + LANES - 1) // LANES):
            first = block * LANES
            k = min(n - first, <Py_ssize_t> LANES)
            fits = read_odds(&forest, &unary[first * L, 0], k, widest, &workspace)
            if not fits:
                break
            send_to_roots(&forest, with_pairs, &workspace)
            if with_pairs:
                write_terms(&forest, k, &terms[first * L], &workspace)
            send_to_leaves(&forest, k, with_pairs, &posterior[first * L, 0], &workspace)
        if fits and with_pairs:
            for i in range(4 * L):
                pairs[i // 4, i % 4] = 0
                for b in range(LANES):
                    pairs[i // 4, i % 4] += workspace.sums[i * LANES + b]
    return fits


cdef inline bint read_odds(const Forest* forest, const floating* unary, Py_ssize_t n, double widest,
                           Workspace* workspace) noexcept nogil:
    """Compute the odds of nodes from their scores; return whether all are in range."""
    cdef:
        Py_ssize_t L = forest.n_nodes, s, b
        double difference
        bint fits = True
    for s in range(L):
        for b in range(LANES):
            workspace.odds[s * LANES + b] = workspace.log_z[s * LANES + b] = 0.0
    for b in range(n):
        for s in range(L):
            difference = <double> unary[2 * (b * L + s) + 1] - <double> unary[2 * (b * L + s)]
            # NaN is also out of range.
            fits &= fabs(difference) <= widest
            workspace.odds[s * LANES + b] = difference
            workspace.log_z[s * LANES + b] = unary[2 * (b * L + s)]
    exponentiate_all(workspace.odds, L * LANES)
    return fits


cdef inline void send_to_roots(const Forest* forest, bint with_log_z, Workspace* workspace) noexcept nogil:
    cdef:
        Py_ssize_t place, s, t, b
        double below
        const double* table
        double* odds
        double* message
        double* above
        double* log_z
        double[LANES] scale
    for place in range(forest.n_nodes - 1, -1, -1):
        s = forest.order[place]
        t = forest.parent[s]
        if t < 0:
            continue
        table = forest.tables + 4 * s
        odds = workspace.odds + s * LANES
        message = workspace.message + s * LANES
        above = workspace.odds + t * LANES
        for b in range(LANES):
            below = table[0] + odds[b] * table[2]
            scale[b] = below
            message[b] = (table[1] + odds[b] * table[3]) / below
            above[b] *= message[b]
        if with_log_z:
            logarithms(scale, LANES, scale)
            log_z = workspace.log_z + t * LANES
            for b in range(LANES):
                log_z[b] += workspace.log_z[s * LANES + b] + (scale[b] + forest.best[s])


cdef inline void write_terms(const Forest* forest, Py_ssize_t n, double* terms, Workspace* workspace) noexcept nogil:
    cdef:
        Py_ssize_t s, b
        double[LANES] scale
    for s in range(forest.n_nodes):
        if forest.parent[s] >= 0:
            for b in range(n):
                terms[b * forest.n_nodes + s] = 0.0
            continue
        for b in range(LANES):
            scale[b] = 1 + workspace.odds[s * LANES + b]
        logarithms(scale, LANES, scale)
        for b in range(n):
            terms[b * forest.n_nodes + s] = workspace.log_z[s * LANES + b] + scale[b]


cdef inline void send_to_leaves(const Forest* forest, Py_ssize_t n, bint with_pairs, floating* posterior,
                                Workspace* workspace) noexcept nogil:
    """Compute the marginal odds and probabilities of each node, and add up the pair marginals."""
    cdef:
        Py_ssize_t place, s, t, b, L = forest.n_nodes
        double zero, one, low, high
        const double* table
        double* odds
        double* sums
        double[LANES] other, first, second
    for place in range(L):
        s = forest.order[place]
        t = forest.parent[s]
        odds = workspace.odds + s * LANES
        if t >= 0:
            table = forest.tables + 4 * s
            for b in range(LANES):
                # Odds of the parent without the message of this node.
                other[b] = workspace.odds[t * LANES + b] / workspace.message[s * LANES + b]
                odds[b] *= (table[2] + other[b] * table[3]) / (table[0] + other[b] * table[1])
        for b in range(LANES):
            first[b] = 1 / (1 + odds[b])
            second[b] = odds[b] * first[b]
        for b in range(n):
            posterior[2 * (b * L + s)] = <floating> first[b]
            posterior[2 * (b * L + s) + 1] = <floating> second[b]
        if with_pairs and t >= 0:
            sums = workspace.sums + 4 * s * LANES
            for b in range(n):
                low, high = other[b] * table[1], other[b] * table[3]
                zero, one = first[b] / (table[0] + low), second[b] / (table[2] + high)
                sums[b] += zero * table[0]
                sums[LANES + b] += zero * low
                sums[2 * LANES + b] += one * table[2]
                sums[3 * LANES + b] += one * high
