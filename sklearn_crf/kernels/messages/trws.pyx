# distutils: language = c++
"""Sequential tree-reweighted max-product: one pass over the nodes in order, forwards or backwards."""

from cython cimport floating
from libc.math cimport INFINITY, isinf
from libc.stdint cimport int32_t

from sklearn_crf.kernels.decoding cimport decode_in_order
from sklearn_crf.kernels.messages.field cimport Field, Workspace, open_field
from sklearn_crf.kernels.rows cimport sum_of_rows


cdef inline double take_out_best(floating* row, Py_ssize_t n) noexcept nogil:
    """Subtract the maximum of a row, unless it is -inf, and return it."""
    cdef:
        Py_ssize_t a
        floating top = -INFINITY
    for a in range(n):
        if row[a] > top:
            top = row[a]
    if top > -INFINITY:
        for a in range(n):
            row[a] -= top
    return top


cdef double renew_messages(
    Field[floating]* f, Workspace[floating]* workspace, floating* values, const double* share, Py_ssize_t n_nodes,
    int direction
) noexcept nogil:
    """Run one pass over the nodes; return the sum of subtracted scores, -inf if no labeling is allowed."""
    cdef:
        Py_ssize_t i, s, t, q, a, n_other, W = f.width
        double bound = 0.0, best, shift = 0.0
        const floating* unary = f.unary
        floating* total = workspace.shifted
        floating* cavity = workspace.cavity
        floating* fresh = workspace.fresh
        floating* kept
    for i in range(n_nodes):
        s = i if direction > 0 else n_nodes - 1 - i
        sum_of_rows(unary + s * W, <const floating*> values, f.ptr[s], f.ptr[s + 1], f.ptr[s + 1], W, total)
        best = take_out_best(total, W)
        bound += best
        if best == -INFINITY:
            break
        for q in range(f.ptr[s], f.ptr[s + 1]):
            t = f.neighbor[q]
            if direction * (t - s) < 0:
                continue
            for a in range(W):
                # States that a message forbids stay forbidden; subtracting -inf would give +inf.
                if isinf(values[q * W + a]) or isinf(total[a]):
                    cavity[a] = -INFINITY
                else:
                    cavity[a] = <floating> (share[s] * total[a] - values[q * W + a])
            f.apply_factor(f.half_edge[q], <const floating*> cavity, f.states_of(s), fresh, workspace.factor, &shift)
            n_other = f.states_of(t)
            best = take_out_best(fresh, n_other)
            bound += best + shift
            if best == -INFINITY:
                break
            kept = values + <Py_ssize_t> f.reverse[q] * W
            for a in range(W):
                kept[a] = fresh[a] if a < n_other else -INFINITY
        if bound == -INFINITY:
            break
    return bound


cdef double score_in_order(
    Field[floating]* f, const floating* unary, const int32_t* labels, Py_ssize_t n_nodes
) noexcept nogil:
    """Return the score of a labeling."""
    cdef:
        Py_ssize_t s, q
        double total = 0.0
    for s in range(n_nodes):
        total += unary[s * f.width + labels[s]]
        for q in range(f.ptr[s], f.ptr[s + 1]):
            if f.neighbor[q] < s:
                total += f.pair_score(f.half_edge[q], labels[s], labels[f.neighbor[q]])
    return total


def sequential_pass(
    object field,  # IN arrays of the model, unary as scores
    floating[:, ::1] messages,  # INOUT (2E, width) by the slot of the receiving node
    const double[::1] share,  # IN (N,) one over the number of chains through each node
    int direction,  # 1: first to last node, messages to later nodes; -1: reversed
    double[::1] work,  # workspace
):
    """Update all messages of one direction; return the sum of subtracted scores, -inf if no labeling is allowed.

    After a pass in either direction, the sum is equal to the sum of the best scores of all chains. It is therefore an
    upper bound on the best score.
    """
    cdef:
        Field[floating] f
        Workspace[floating] workspace
        double bound
        floating* values = &messages[0, 0] if messages.shape[0] else NULL
    open_field(field, &f)
    workspace.open(f, &work[0])
    with nogil:
        bound = renew_messages(&f, &workspace, values, &share[0], share.shape[0], direction)
    return bound


def sequential_iteration(
    object field,  # IN arrays of the model, unary as scores
    floating[:, ::1] messages,  # INOUT (2E, width) by the slot of the receiving node
    const double[::1] share,  # IN (N,) one over the number of chains through each node
    int32_t[::1] labels,  # OUT (N,) decoded node by node, each given earlier nodes
    double[::1] work,  # workspace
):
    """Run a pass in each direction and decode labels; return bound and score, both -inf if no labeling is allowed.

    A single call does all of this, so that for small models, other threads can run most of the time.
    """
    cdef:
        Field[floating] f
        Workspace[floating] workspace
        Py_ssize_t n_nodes = share.shape[0]
        double bound, score = -INFINITY
        floating* values = &messages[0, 0] if messages.shape[0] else NULL
    open_field(field, &f)
    workspace.open(f, &work[0])
    with nogil:
        bound = renew_messages(&f, &workspace, values, &share[0], n_nodes, 1)
        if bound > -INFINITY:
            bound = renew_messages(&f, &workspace, values, &share[0], n_nodes, -1)
        if bound > -INFINITY:
            decode_in_order(&f, values, <const int32_t*> NULL, <const int32_t*> NULL, n_nodes, &labels[0], &work[0])
            score = score_in_order(&f, f.unary, &labels[0], n_nodes)
    return bound, score
