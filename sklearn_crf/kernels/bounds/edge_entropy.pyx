# distutils: language = c++
"""One pass over the nodes that lowers the bound of single edges: it redistributes node scores among the edges.

Let m_q(a) be the log-message of edge q about state a of node s, if the edge is normalised alone. Edge q gets the
share lambda_q of the scores u_s. With the optimal shares, the marginals of all edges of a node agree, also with the
marginals of the node itself if its entropy has weight c:

    lambda_q(a) = (u_s(a) + sum_r m_r(a)) / (d_s + c) - m_q(a)
"""

from libc.math cimport INFINITY, isinf, log
from libc.stdint cimport int32_t

from sklearn_crf.kernels.messages.field cimport Field, Workspace, open_field
from sklearn_crf.kernels.rows cimport exponentiate_all, sum_of_rows


cdef inline void share_of_edge(const double* total, const double* message, double parts, Py_ssize_t width,
                               double* share) noexcept nogil:
    """Compute the share of one edge in the scores of a node; -inf if an edge forbids the state."""
    cdef Py_ssize_t a
    for a in range(width):
        if isinf(total[a]):
            share[a] = -INFINITY
        else:
            share[a] = total[a] / parts - message[a]


def renew_messages(
    object field,  # IN arrays of the model, unary as scores
    double[:, ::1] messages,  # INOUT (2E, width) scores by the slot of the receiving node
    int direction,  # 1: first to last node, messages to later nodes; -1: reversed
    double node_number,  # c
    double[::1] work,  # workspace
):
    """Update all messages of one direction; return the largest change, or -1 - t if node t has no possible state."""
    cdef:
        Field[double] f
        Workspace[double] workspace
        Py_ssize_t i, s, t, q, n_nodes = field.unary.shape[0], W = field.width
        double parts, change, worst = 0.0
        double* values = &messages[0, 0] if messages.shape[0] else NULL
        double* total
    open_field(field, &f)
    workspace.open(f, &work[0])
    total = workspace.total
    with nogil:
        for i in range(n_nodes):
            s = i if direction > 0 else n_nodes - 1 - i
            parts = f.ptr[s + 1] - f.ptr[s] + node_number
            sum_of_rows(f.unary + s * W, <const double*> values, f.ptr[s], f.ptr[s + 1], f.ptr[s + 1],
                        W, total)
            for q in range(f.ptr[s], f.ptr[s + 1]):
                t = f.neighbor[q]
                if direction * (t - s) < 0:
                    continue
                share_of_edge(total, values + q * W, parts, W, workspace.cavity)
                change = f.replace_sums_in_scores(f.half_edge[q], workspace, values + <Py_ssize_t> f.reverse[q] * W,
                                                  f.states_of(s), f.states_of(t), 0.0, 1.0)
                if change < 0:
                    worst = -1.0 - t
                    break
                worst = change if change > worst else worst
            if worst < 0:
                break
    return worst


def shares_of_messages(
    object field,  # IN arrays of the model, unary as scores
    const double[:, ::1] messages,  # IN (2E, width)
    double[:, ::1] shares,  # OUT (2E, width) by the slot of the node whose scores are shared
    double node_number,  # c
    double[::1] work,  # workspace
):
    """Compute the share of each edge in the scores of its ends from the messages."""
    cdef:
        Field[double] f
        Workspace[double] workspace
        Py_ssize_t s, q, n_nodes = field.unary.shape[0], W = field.width
        const double* values = &messages[0, 0] if messages.shape[0] else NULL
        double* total
    open_field(field, &f)
    workspace.open(f, &work[0])
    total = workspace.total
    with nogil:
        for s in range(n_nodes):
            sum_of_rows(f.unary + s * W, values, f.ptr[s], f.ptr[s + 1], f.ptr[s + 1], W, total)
            for q in range(f.ptr[s], f.ptr[s + 1]):
                share_of_edge(total, values + q * W, f.ptr[s + 1] - f.ptr[s] + node_number, W, &shares[q, 0])


def normalise_edges(
    const double[:, :, :, ::1] tables,  # IN (T, R, K, K)
    const int32_t[::1] edge_type,  # IN (E,)
    const double[:, ::1] edge_weight,  # IN (E, R), or no rows if all are one
    const int32_t[:, ::1] edges,  # IN (E, 2)
    const double[:, :, ::1] scores,  # IN (E, 2, K) share of each edge in the scores of its ends
    double[:, :, :, ::1] statistics,  # INOUT (T, R, K, K) summed edge weight * pairwise marginal
    double[:, :, ::1] at_ends,  # OUT (E, 2, K) marginals of the ends
    double[::1] log_z_terms,  # INOUT (N,) added to at the first end of each edge
    double[::1] joint,  # workspace (K * K + 1,)
):
    """Compute the marginals of every edge alone; return -1, or the first edge without a possible pair."""
    cdef:
        Py_ssize_t K = tables.shape[2], R = tables.shape[1], n = K * K, e, r, a, b, failed = -1
        Py_ssize_t kind
        double best, total, sum_of_row, weight
        const double* table
        double* pairs = &joint[0]
        double* row
    with nogil:
        for e in range(edge_type.shape[0]):
            kind = edge_type[e]
            for a in range(K):
                for b in range(K):
                    pairs[a * K + b] = scores[e, 0, a] + scores[e, 1, b]
            for r in range(R):
                table = &tables[kind, r, 0, 0]
                weight = edge_weight[e, r] if edge_weight.shape[0] else 1.0
                for a in range(n):
                    pairs[a] += weight * table[a]
            best = -INFINITY
            for a in range(n):
                best = pairs[a] if pairs[a] > best else best
            if best == -INFINITY:
                failed = e
                break
            for a in range(n):
                pairs[a] -= best
            # Rows of two numbers are exponentiated together.
            pairs[n] = 0.0
            exponentiate_all(pairs, n + n % 2)
            total = 0.0
            for b in range(K):
                at_ends[e, 1, b] = 0.0
            for a in range(K):
                row = pairs + a * K
                sum_of_row = 0.0
                for b in range(K):
                    sum_of_row += row[b]
                    at_ends[e, 1, b] += row[b]
                at_ends[e, 0, a] = sum_of_row
                total += sum_of_row
            log_z_terms[edges[e, 0]] += best + log(total)
            for a in range(K):
                at_ends[e, 0, a] /= total
                at_ends[e, 1, a] /= total
            for r in range(R):
                row = &statistics[kind, r, 0, 0]
                weight = (edge_weight[e, r] if edge_weight.shape[0] else 1.0) / total
                for a in range(n):
                    row[a] += weight * pairs[a]
    return failed
