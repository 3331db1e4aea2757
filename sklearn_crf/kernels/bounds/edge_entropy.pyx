"""One pass over the nodes that lowers the bound of single edges, each node's scores shared out anew among its edges.

With m_q(a) the logarithm of what edge q, normalised by itself, says of state a at node s, the best shares are those
that make the edges agree on the node:

    lambda_q(a) = (u_s(a) + sum_r m_r(a)) / d_s - m_q(a)
"""

from libc.math cimport INFINITY, isinf

from sklearn_crf.kernels.field cimport Field, open_field, states_of
from sklearn_crf.kernels.rows cimport sum_of_rows
from sklearn_crf.kernels.send cimport Workspace, partition_workspace, replace_sums_in_scores


cdef inline void share_of_edge(const double* total, const double* message, double degree, Py_ssize_t width,
                               double* share) noexcept nogil:
    """The share of one edge; -inf where an edge forbids the state."""
    cdef Py_ssize_t a
    for a in range(width):
        if isinf(total[a]):
            share[a] = -INFINITY
        else:
            share[a] = total[a] / degree - message[a]


def renew_messages(
    object field,  # IN arrays of the model, unary as scores
    double[:, ::1] messages,  # INOUT (2E, width) scores by the slot of the receiving node
    int direction,  # 1: first to last node, messages to later ones; -1: the other way round
    double[::1] work,  # workspace
):
    """Renew all messages of one direction; the largest change of one, or -1 - t if no state is left to node t."""
    cdef:
        Field f
        Workspace workspace
        Py_ssize_t i, s, t, q, degree, n_nodes = field.unary.shape[0], W = field.width
        double change, worst = 0.0
        double* values = &messages[0, 0] if messages.shape[0] else NULL
        double* total
    open_field(field, &f, values)
    partition_workspace(&f, &work[0], &workspace)
    total = workspace.total
    with nogil:
        for i in range(n_nodes):
            s = i if direction > 0 else n_nodes - 1 - i
            degree = f.ptr[s + 1] - f.ptr[s]
            sum_of_rows(<const double*> f.unary + s * W, <const double*> values, f.ptr[s], f.ptr[s + 1], f.ptr[s + 1],
                        W, total)
            for q in range(f.ptr[s], f.ptr[s + 1]):
                t = f.neighbor[q]
                if direction * (t - s) < 0:
                    continue
                share_of_edge(total, values + q * W, degree, W, <double*> workspace.cavity)
                change = replace_sums_in_scores(&f, f.half_edge[q], &workspace, values + <Py_ssize_t> f.reverse[q] * W,
                                                states_of(&f, s), states_of(&f, t), 0.0, 1.0)
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
    double[:, ::1] shares,  # OUT (2E, width) by the slot of the node that has them
    double[::1] work,  # workspace
):
    """The shares of all edges that messages stand for."""
    cdef:
        Field f
        Workspace workspace
        Py_ssize_t s, q, n_nodes = field.unary.shape[0], W = field.width
        const double* values = &messages[0, 0] if messages.shape[0] else NULL
        double* total
    open_field(field, &f, <double*> values)
    partition_workspace(&f, &work[0], &workspace)
    total = workspace.total
    with nogil:
        for s in range(n_nodes):
            sum_of_rows(<const double*> f.unary + s * W, values, f.ptr[s], f.ptr[s + 1], f.ptr[s + 1], W, total)
            for q in range(f.ptr[s], f.ptr[s + 1]):
                share_of_edge(total, values + q * W, f.ptr[s + 1] - f.ptr[s], W, &shares[q, 0])
