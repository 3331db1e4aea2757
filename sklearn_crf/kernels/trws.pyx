"""Sequential tree-reweighted max-product: one pass over the nodes in order, forwards or backwards."""

from cython cimport floating
from libc.math cimport INFINITY, isinf

from sklearn_crf.kernels.field cimport Field, open_field, states_of
from sklearn_crf.kernels.rows cimport sum_of_rows
from sklearn_crf.kernels.send cimport Room, apply_factor, partition_room


cdef inline double take_out_best(floating* row, Py_ssize_t n) noexcept nogil:
    """Subtract the maximum of a row, unless it is -inf, and give it back."""
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


def sequential_pass(
    object field,  # IN arrays of the model, unary as scores
    floating[:, ::1] messages,  # INOUT (2E, width) by the slot of the receiving node
    const double[::1] share,  # IN (N,) one over the number of chains through each node
    int direction,  # 1: first to last node, messages to later ones; -1: the other way round
    double[::1] work,  # work space
):
    """Renew all messages of one direction; sum of all that was taken out, -inf if no labeling is allowed.

    After a pass either way that sum is the summed best score of all chains: an upper bound on the best score.
    """
    cdef:
        Field f
        Room room
        Py_ssize_t i, s, t, q, a, n_other, n_nodes = share.shape[0], W = field.width
        double bound = 0.0, best, shift = 0.0
        floating* values = &messages[0, 0] if messages.shape[0] else NULL
        const floating* unary
        floating* total
        floating* cavity
        floating* fresh
        floating* kept
    open_field(field, &f, values)
    partition_room(&f, &work[0], &room)
    unary = <const floating*> f.unary
    total = <floating*> room.shifted
    cavity = <floating*> room.cavity
    fresh = <floating*> room.fresh
    with nogil:
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
                    # What a message forbids stays forbidden; taken out it would become +inf.
                    if isinf(values[q * W + a]) or isinf(total[a]):
                        cavity[a] = -INFINITY
                    else:
                        cavity[a] = <floating> (share[s] * total[a] - values[q * W + a])
                apply_factor(&f, f.half_edge[q], <const floating*> cavity, states_of(&f, s), fresh,
                             <floating*> room.factor, &shift)
                n_other = states_of(&f, t)
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
