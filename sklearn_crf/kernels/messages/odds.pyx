"""Sweeps of messages between nodes of two states, a message being one number.

With messages as log-odds of the second state, raised to the power rho as everywhere, and every table a coupling J for
equal states (what else is in it belongs to the nodes), the message from node s along an edge e = (s, t) is

    m = rho_e log((e^h e^J + 1) / (e^h + e^J)),    h = c_s (u_s + sum_q m_q) - m_e / rho_e

with q over the edges of s. Tree-reweighted belief propagation has c_s = 1; the sum of the entropies of all edges has
rho_e = 1 and c_s one over the degree of s. That takes one exponential and one logarithm, where powers of probabilities
take four of each, and all messages of a node are worked out together.
"""

from cython cimport floating
from libc.float cimport DBL_MAX, DBL_MIN
from libc.math cimport NAN, copysign, fabs, log, tanh
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.rows cimport exponentiate_all, logarithms, odds_from_node
from sklearn_crf.kernels.send cimport count_change

# Messages that are done at once; a multiple of the numbers in a vector.
cdef enum:
    AT_ONCE = 64


cdef struct Sweep:
    const int64_t* ptr
    const int32_t* neighbor
    const int32_t* reverse
    const int32_t* nodes
    const int32_t* rank
    double damping


def send_odds(
    const int64_t[::1] ptr,  # IN (N + 1,) first slot of each node
    const int32_t[::1] neighbor,  # IN (2E,)
    const int32_t[::1] reverse,  # IN (2E,)
    const floating[::1] unary,  # IN (N,) log-odds of each node by itself
    const floating[::1] coupling,  # IN (2E + PADDING,) exp(-|J|) with the sign of J, by slot
    const floating[::1] power,  # IN (2E + PADDING,) rho, by slot
    const floating[::1] share,  # IN (N,) c
    floating[::1] odds,  # INOUT (2E + PADDING,) messages by the slot of the receiving node
    const int32_t[::1] nodes,  # IN (n,) in the order of sending
    const int32_t[::1] rank,  # IN (N,) position of each node in a whole order, read if direction is not 0
    int direction,  # 1: only to nodes of higher rank, -1: to lower ones and from the last node back, 0: to all
    double damping,  # share of the old message that is kept
    Py_ssize_t start,
    Py_ssize_t stop,  # the nodes nodes[start:stop] send
    floating[::1] fresh,  # workspace (largest degree + PADDING,)
):
    """Let nodes send messages in turn; the largest change of one."""
    cdef:
        Sweep sweep
        double change
    open_sweep(&sweep, ptr, neighbor, reverse, nodes, rank, damping)
    with nogil:
        change = send_nodes(
            &sweep, &unary[0], &coupling[0], &power[0], &share[0], &odds[0], direction, start, stop, &fresh[0]
        )
    return change


def renew_odds(
    const int64_t[::1] ptr,  # IN (N + 1,) first slot of each node
    const int32_t[::1] neighbor,  # IN (2E,)
    const int32_t[::1] reverse,  # IN (2E,)
    const floating[::1] unary,  # IN (N,) log-odds of each node by itself
    const floating[::1] coupling,  # IN (2E + PADDING,) exp(-|J|) with the sign of J, by slot
    const floating[::1] power,  # IN (2E + PADDING,) rho, by slot
    const floating[::1] share,  # IN (N,) c
    floating[::1] odds,  # INOUT (2E + PADDING,) messages by the slot of the receiving node
    const int32_t[::1] nodes,  # IN (n,) in the order of sending
    const int32_t[::1] rank,  # IN (N,) position of each node in that order
    double damping,  # share of the old message that is kept
    const int64_t[:, ::1] ranges,  # IN (m, 2) first and last of nodes that send to each other, and to no others
    double[::1] changes,  # OUT (m,) the largest change of a message
    floating[::1] fresh,  # workspace (largest degree + PADDING,)
):
    """Let the nodes of some ranges send messages, forwards through each and then backwards."""
    cdef:
        Sweep sweep
        Py_ssize_t k
        int direction
        double change
    open_sweep(&sweep, ptr, neighbor, reverse, nodes, rank, damping)
    with nogil:
        for k in range(ranges.shape[0]):
            changes[k] = 0.0
            for direction in range(1, -2, -2):
                change = send_nodes(
                    &sweep, &unary[0], &coupling[0], &power[0], &share[0], &odds[0], direction, ranges[k, 0],
                    ranges[k, 1], &fresh[0]
                )
                changes[k] = max(changes[k], change)


cdef inline void open_sweep(
    Sweep* sweep, const int64_t[::1] ptr, const int32_t[::1] neighbor, const int32_t[::1] reverse,
    const int32_t[::1] nodes, const int32_t[::1] rank, double damping
) except *:
    sweep.ptr, sweep.damping = &ptr[0], damping
    sweep.neighbor = &neighbor[0] if neighbor.shape[0] else NULL
    sweep.reverse = &reverse[0] if reverse.shape[0] else NULL
    sweep.nodes = &nodes[0] if nodes.shape[0] else NULL
    sweep.rank = &rank[0] if rank.shape[0] else NULL


cdef double send_nodes(
    const Sweep* sweep, const floating* unary, const floating* coupling, const floating* power, const floating* share,
    floating* odds, int direction, Py_ssize_t start, Py_ssize_t stop, floating* fresh
) noexcept nogil:
    cdef:
        Py_ssize_t i, s, q, first, last
        floating total, new, old
        double change, worst = 0.0
    for i in range(start, stop):
        s = sweep.nodes[i if direction >= 0 else start + stop - 1 - i]
        first = sweep.ptr[s]
        last = sweep.ptr[s + 1]
        if first == last:
            continue
        total = unary[s]
        for q in range(first, last):
            total += odds[q]
        odds_from_node(odds + first, coupling + first, power + first, last - first, share[s] * total, fresh)
        for q in range(first, last):
            if direction != 0 and direction * (sweep.rank[sweep.neighbor[q]] - sweep.rank[s]) < 0:
                continue
            new = fresh[q - first]
            old = odds[sweep.reverse[q]]
            odds[sweep.reverse[q]] = <floating> (new + sweep.damping * (old - new))
            # The slope of a probability by its log-odds is at most 1/4, so that few have to be worked out.
            change = fabs(<double> new - old) / 4
            if change > worst:
                change = fabs(tanh(<double> new / 2) - tanh(<double> old / 2)) / 2
                change = count_change(change, fabs(<double> new - old))
                worst = change if change > worst else worst
    return worst


def odds_of_scores(
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] half_edge,  # IN (2E,)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, :, :, ::1] tables,  # IN (T, R, 2, 2)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows: edges have the first table of their type
    const floating[::1] power,  # IN (E,)
    const floating[:, ::1] probabilities,  # IN (N, width) exponentials of the scores of nodes in the first two columns
    floating[::1] unary,  # OUT (N,) log-odds of nodes by these and by tables
    double[::1] coupling,  # OUT (E,) exp(-|J|) with the sign of J
    double[::1] offset,  # OUT (2E,) what the edge of a slot adds to the log-odds of the node there
    floating[::1] couplings,  # OUT (2E + PADDING,) by slot, 1 in the padding
    floating[::1] powers,  # OUT (2E + PADDING,) by slot, 1 in the padding
):
    """Parts of tables that couple equal states, and those that belong to the nodes."""
    cdef:
        Py_ssize_t s, r, first, j, count, block, n = coupling.shape[0]
        Py_ssize_t n_features = tables.shape[1] if edge_weight.shape[0] else 1
        int64_t slot
        int32_t edge
        int side
        double a, b, c, d, weight, of_end, total, joint
        double x[AT_ONCE]
    with nogil:
        for block in range((unary.shape[0] + AT_ONCE - 1) // AT_ONCE):
            first = block * AT_ONCE
            count = min(<Py_ssize_t> AT_ONCE, unary.shape[0] - first)
            write_log_odds(&probabilities[first, 0], probabilities.shape[1], count, x)
            for j in range(count):
                s, total = first + j, 0
                for slot in range(ptr[s], ptr[s + 1]):
                    edge = half_edge[slot] >> 1
                    side = half_edge[slot] & 1
                    of_end = joint = 0
                    for r in range(n_features):
                        a = tables[edge_type[edge], r, 0, 0]
                        b = tables[edge_type[edge], r, 0, 1]
                        c = tables[edge_type[edge], r, 1, 0]
                        d = tables[edge_type[edge], r, 1, 1]
                        weight = edge_weight[edge, r] if edge_weight.shape[0] else 1
                        joint += weight * ((a + d - b - c) / 2)
                        of_end += weight * ((b + d - a - c) / 2 if side else (c + d - a - b) / 2)
                    coupling[edge] = joint
                    offset[slot] = of_end * power[edge]
                    total += offset[slot]
                unary[s] = <floating> (x[j] + total)
        for block in range((n + AT_ONCE - 1) // AT_ONCE):
            first = block * AT_ONCE
            count = min(<Py_ssize_t> AT_ONCE, n - first)
            for j in range(AT_ONCE):
                x[j] = -fabs(coupling[first + j]) if j < count else 0
            exponentiate_all(x, AT_ONCE)
            for j in range(count):
                coupling[first + j] = copysign(x[j], coupling[first + j])
        for slot in range(half_edge.shape[0]):
            couplings[slot] = <floating> coupling[half_edge[slot] >> 1]
            powers[slot] = power[half_edge[slot] >> 1]
        for slot in range(half_edge.shape[0], couplings.shape[0]):
            couplings[slot] = powers[slot] = 1


cdef void write_log_odds(const floating* rows, Py_ssize_t width, Py_ssize_t n, double* out) noexcept nogil:
    """Logarithms of the ratios of the second to the first of some rows, at most AT_ONCE."""
    cdef:
        Py_ssize_t j
        double ratio[AT_ONCE]
    for j in range(AT_ONCE):
        ratio[j] = <double> rows[j * width + 1] / <double> rows[j * width] if j < n else 1
    logarithms(ratio, AT_ONCE, out)
    for j in range(n):
        if not DBL_MIN <= ratio[j] <= DBL_MAX:
            out[j] = log(ratio[j])


def odds_of_probabilities(
    const floating[:, ::1] messages,  # IN (2E, width) in the first two columns
    const double[::1] offset,  # IN (2E,)
    floating[::1] odds,  # OUT (2E + PADDING,), 1 in the padding
):
    """Log-odds that probabilities stand for, each less an offset."""
    cdef:
        Py_ssize_t first, j, count, block, n = messages.shape[0]
        double x[AT_ONCE]
    with nogil:
        for block in range((n + AT_ONCE - 1) // AT_ONCE):
            first = block * AT_ONCE
            count = min(<Py_ssize_t> AT_ONCE, n - first)
            write_log_odds(&messages[first, 0], messages.shape[1], count, x)
            for j in range(count):
                odds[first + j] = <floating> (x[j] - offset[first + j])
        for j in range(n, odds.shape[0]):
            odds[j] = 1


def probabilities_of_odds(
    const floating[::1] odds,  # IN (2E + PADDING,)
    const double[::1] offset,  # IN (2E,)
    floating[:, ::1] messages,  # OUT (2E, width) in the first two columns
):
    """Probabilities that log-odds, each plus an offset, stand for."""
    cdef:
        Py_ssize_t first, j, count, block, n = messages.shape[0]
        double x[AT_ONCE]
        double small[AT_ONCE]
        double scale
        bint is_likely
    with nogil:
        for block in range((n + AT_ONCE - 1) // AT_ONCE):
            first = block * AT_ONCE
            count = min(<Py_ssize_t> AT_ONCE, n - first)
            for j in range(AT_ONCE):
                x[j] = odds[first + j] + offset[first + j] if j < count else 0
                small[j] = -fabs(x[j])
            exponentiate_all(small, AT_ONCE)
            for j in range(count):
                scale = 1 / (1 + small[j]) if x[j] == x[j] else NAN
                is_likely = x[j] > 0
                messages[first + j, 0] = <floating> (small[j] * scale if is_likely else scale)
                messages[first + j, 1] = <floating> (scale if is_likely else small[j] * scale)
