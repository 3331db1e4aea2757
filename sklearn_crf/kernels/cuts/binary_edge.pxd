"""Terms of a flow network for one edge, in a choice between two labelings. The functions are inlined by kernels.

With x_s = 0 for keep and 1 for take, the energy (minus the score) of an edge with scores a, b, c, d of
(x_i, x_j) = (0, 0), (0, 1), (1, 0), (1, 1) is

    const + (a + b - c - d) / 2 x_i + (a - b + c - d) / 2 x_j + q / 2 |x_i - x_j|,    q = a + d - b - c.

If q >= 0, the edge is submodular, and the last term is a pair of arcs of capacity q / 2 (Kolmogorov & Zabih 2004).
"""

from cython cimport floating
from libc.math cimport INFINITY, fabs, isinf, llrint
from libc.stdint cimport int32_t, int64_t, uint8_t

ctypedef fused capacity:
    int32_t
    int64_t

# Treatment of an edge with q < 0.
cdef enum:
    STOP = 0  # report it
    TRUNCATE = 1  # drop the term, which increases the cost of both mixed choices by |q| / 2
    CROSS = 2  # exchange the states of its second end, with arcs to the mirror image of that node

# Number of edges that are filtered at once for edges with a choice.
cdef enum:
    N_LISTED = 256

cdef struct Edge:
    double first  # cost of taking the alternative at the first end
    double second  # cost of taking the alternative at the second end
    double there  # capacity from the first end to the second
    double back  # capacity from the second end to the first
    double lacking  # -q if the edge is not submodular, else 0
    bint crossed


cdef inline double pair_score(
    const floating[:, :, :, ::1] tables,
    const floating[:, ::1] weight,
    Py_ssize_t edge,
    int32_t kind,
    int32_t i,
    int32_t j,
) noexcept nogil:
    cdef double total = 0.0
    cdef Py_ssize_t r
    if weight.shape[0] == 0:
        return tables[kind, 0, i, j]
    if weight.shape[1] == 1:
        return <double> weight[edge, 0] * <double> tables[kind, 0, i, j]
    for r in range(weight.shape[1]):
        total += <double> weight[edge, r] * <double> tables[kind, r, i, j]
    return total


cdef inline void finite_edge(Edge* edge, double a, double b, double c, double q) noexcept nogil:
    edge.there = edge.back = q / 2
    edge.first = a - c - q / 2
    edge.second = a - b - q / 2


cdef inline void submodular_edge(Edge* edge, double a, double b, double c, double d) noexcept nogil:
    """Compute the terms of an edge whose infinite scores, if any, are b and c."""
    cdef double q = a + d - b - c
    if not isinf(q):
        finite_edge(edge, a, b, c, q)
        return
    # If only (0, 1) is forbidden, the second end at 1 forces the first end to 1, and scores are split without b.
    edge.there = INFINITY if isinf(b) else 0.0
    edge.back = INFINITY if isinf(c) else 0.0
    if isinf(b) and isinf(c):
        edge.first, edge.second = a - d, 0.0
    elif isinf(b):
        edge.first, edge.second = a - c, c - d
    else:
        edge.first, edge.second = b - d, a - b


cdef inline void hard_edge(Edge* edge, double a, double b, double c, double d) noexcept nogil:
    """Compute the terms of an edge that forbids a state of one end: two scores in a row or column are -inf."""
    edge.there = edge.back = edge.first = edge.second = 0.0
    if isinf(a) and isinf(b) and isinf(c) and isinf(d):
        edge.first = INFINITY - INFINITY
    elif isinf(a) and isinf(b):
        edge.first = -INFINITY
        edge.second = c - d
    elif isinf(c) and isinf(d):
        edge.first = INFINITY
        edge.second = a - b
    elif isinf(a) and isinf(c):
        edge.second = -INFINITY
        edge.first = b - d
    else:
        edge.second = INFINITY
        edge.first = a - c


cdef inline void binary_edge(
    Edge* edge, double a, double b, double c, double d, double precision, int mode
) noexcept nogil:
    cdef double q = a + d - b - c
    edge.lacking = 0.0
    edge.crossed = False
    # The most common case; a finite sum has finite terms.
    if 0.0 <= q < INFINITY:
        finite_edge(edge, a, b, c, q)
        return
    if (isinf(a) or isinf(d)) and (isinf(b) or isinf(c)):
        hard_edge(edge, a, b, c, d)
        return
    if q >= 0.0:
        submodular_edge(edge, a, b, c, d)
        return
    # Tolerate rounding of tables that are exactly modular, such as [[0.1, 0.2], [0.3, 0.4]].
    if not isinf(q) and -q <= precision * (fabs(a) + fabs(b) + fabs(c) + fabs(d)):
        finite_edge(edge, a, b, c, q)
        edge.there = edge.back = 0.0
        return
    edge.lacking = -q
    if mode == CROSS:
        edge.crossed = True
        submodular_edge(edge, b, a, d, c)
        edge.second = -edge.second
    elif not isinf(q):
        finite_edge(edge, a, b, c, q)
        edge.there = edge.back = 0.0
    else:
        edge.first = edge.second = edge.there = edge.back = 0.0


cdef inline void add_settled_edge(
    double* cost,  # IN/OUT cost of taking the alternative at the end with a choice
    const floating[:, :, :, ::1] tables,
    const floating[:, ::1] weight,
    Py_ssize_t edge,
    int32_t kind,
    int32_t keep_i,
    int32_t take_i,
    int32_t keep_j,
    int32_t take_j,
) noexcept nogil:
    """Add the terms of an edge with only one end that has a choice, which needs no arcs."""
    cost[0] += pair_score(tables, weight, edge, kind, keep_i, keep_j)
    cost[0] -= pair_score(tables, weight, edge, kind, take_i, take_j)


cdef inline bint plain_edge(
    Edge* terms,
    const floating* tables,  # (R, K, K), tables of the edge's type
    const floating* weight,  # (R,)
    Py_ssize_t n_features,
    Py_ssize_t n_states,
    int32_t keep_i,
    int32_t take_i,
    int32_t keep_j,
    int32_t take_j,
) noexcept nogil:
    """Compute the terms of an edge; return False unless it is finite and submodular. Small enough to be inlined."""
    cdef:
        double a = 0.0, b = 0.0, c = 0.0, d = 0.0, q, factor
        Py_ssize_t r
    for r in range(n_features):
        factor = weight[r]
        a += factor * tables[keep_i * n_states + keep_j]
        b += factor * tables[keep_i * n_states + take_j]
        c += factor * tables[take_i * n_states + keep_j]
        d += factor * tables[take_i * n_states + take_j]
        tables += n_states * n_states
    q = a + d - b - c
    finite_edge(terms, a, b, c, q)
    return 0.0 <= q < INFINITY


cdef inline void move_edge(
    Edge* terms,
    const floating[:, :, :, ::1] tables,
    const floating[:, ::1] weight,
    Py_ssize_t edge,
    int32_t kind,
    int32_t keep_i,
    int32_t take_i,
    int32_t keep_j,
    int32_t take_j,
    double precision,
    int mode,
) noexcept nogil:
    """Compute the terms of an edge with any scores."""
    binary_edge(
        terms,
        pair_score(tables, weight, edge, kind, keep_i, keep_j),
        pair_score(tables, weight, edge, kind, keep_i, take_j),
        pair_score(tables, weight, edge, kind, take_i, keep_j),
        pair_score(tables, weight, edge, kind, take_i, take_j),
        precision,
        mode,
    )


cdef inline int64_t to_integer(double value, double scale, int64_t endless) noexcept nogil:
    return endless if isinf(value) else llrint(value * scale)


cdef inline bint integer_cost(double cost, double scale, int64_t most, capacity* excess) noexcept nogil:
    """Convert a cost to units of capacity; return False if both choices are forbidden."""
    cdef double value = cost * scale, top = <double> most
    if value != value:
        return False
    if value >= top:
        excess[0] = <capacity> most
    elif value <= -top:
        excess[0] = <capacity> -most
    else:
        excess[0] = <capacity> llrint(value)
    return True


cdef inline Py_ssize_t list_open(
    const int32_t[::1] keep,
    const int32_t[::1] take,
    uint8_t[::1] is_open,  # OUT (N,)
    int32_t[::1] nodes,  # OUT (N,)
) noexcept nogil:
    """List the nodes that have a choice; return their number."""
    cdef Py_ssize_t i, n_open = 0
    for i in range(keep.shape[0]):
        is_open[i] = keep[i] != take[i]
        # Without a branch, which would be unpredictable.
        nodes[n_open] = <int32_t> i
        n_open += is_open[i]
    return n_open


cdef inline Py_ssize_t lattice_arcs(
    const floating[:, :, :, ::1] tables,
    const int32_t[::1] edge_type,
    const floating[:, ::1] edge_weight,
    const int32_t[:, ::1] edges,
    const int32_t[::1] keep,
    const int32_t[::1] take,
    const uint8_t[::1] is_open,
    Py_ssize_t n_open,
    const int64_t[::1] counts,  # number of edges of each offset
    double scale,
    int64_t endless,
    double precision,
    int mode,
    double[::1] cost,
    capacity[:, ::1] residual,
) noexcept nogil:
    """Convert edges to arcs of a lattice, and add to the costs of nodes; return the edge at which it stopped, or -1.

    Arcs between two nodes without a choice are not written, since no flow reaches them.
    """
    cdef:
        Py_ssize_t low, high, edge, position, n_listed, stop = 0, guard = (residual.shape[0] - cost.shape[0]) // 2
        Py_ssize_t listed[N_LISTED]
        int direction, back
        int32_t i, j
        Py_ssize_t n_features = tables.shape[1], n_states = tables.shape[3]
        bint is_weighted = edge_weight.shape[0] > 0
        floating one = 1.0
        const floating* weight = &one
        Edge terms
    for direction in range(<int> counts.shape[0]):
        back = <int> residual.shape[1] - 1 - direction
        high = stop
        stop += counts[direction]
        while high < stop:
            low, high = high, min(high + N_LISTED, stop)
            n_listed = high - low
            if n_open < cost.shape[0]:
                n_listed = 0
                for edge in range(low, high):
                    listed[n_listed] = edge
                    n_listed += is_open[edges[edge, 0]] | is_open[edges[edge, 1]]
            for position in range(n_listed):
                edge = listed[position] if n_open < cost.shape[0] else low + position
                i, j = edges[edge, 0], edges[edge, 1]
                if not is_open[i] & is_open[j]:
                    add_settled_edge(
                        &cost[i if is_open[i] else j], tables, edge_weight, edge, edge_type[edge], keep[i], take[i],
                        keep[j], take[j]
                    )
                    residual[guard + i, direction] = residual[guard + j, back] = 0
                    continue
                if is_weighted:
                    weight = &edge_weight[edge, 0]
                if not plain_edge(
                    &terms, &tables[edge_type[edge], 0, 0, 0], weight, n_features, n_states, keep[i], take[i], keep[j],
                    take[j]
                ):
                    move_edge(
                        &terms, tables, edge_weight, edge, edge_type[edge], keep[i], take[i], keep[j], take[j],
                        precision, mode
                    )
                    if terms.lacking > 0.0 and (mode == STOP or isinf(terms.lacking)):
                        return edge
                cost[i] += terms.first
                cost[j] += terms.second
                residual[guard + i, direction] = <capacity> to_integer(terms.there, scale, endless)
                residual[guard + j, back] = <capacity> to_integer(terms.back, scale, endless)
    return -1
