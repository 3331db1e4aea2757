"""From messages to marginals of nodes and edges, and what each adds to the log-partition.

With beliefs b normalised and messages m, the pairwise belief of an edge e = (s, t) is

    p(a, b) = theta(a, b) b_s(a) / m_ts(a)^(1 / rho) * b_t(b) / m_st(b)^(1 / rho) / Z_e

and the (reweighted) Bethe log-partition sum_s log Z_s + sum_e rho_e log Z_e: with the beliefs already normalised,
Z_e is what an edge adds to its two nodes.
"""

from cython cimport floating
from libc.math cimport INFINITY, exp, isinf, log
from libc.stdint cimport int32_t

from sklearn_crf.kernels.field cimport SUM_PROBABILITY, Field, half_edge_factor, open_field, pair_score, states_of
from sklearn_crf.kernels.rows cimport (
    add_outer,
    exponentiate,
    product_of_rows,
    row_dot,
    row_max,
    row_power,
    row_quotient,
    row_scale,
    row_sum,
    sum_of_rows,
)
from sklearn_crf.kernels.send cimport Workspace, apply_factor, partition_workspace


def node_beliefs(
    object field,  # IN arrays of the model
    const floating[:, ::1] messages,  # IN (2E, width)
    floating[:, ::1] beliefs,  # OUT (N, width) probabilities, or their logarithms if the field keeps scores
    double[::1] log_z_terms,  # OUT (N,) log of each node's normaliser
    Py_ssize_t start,
    Py_ssize_t stop,  # nodes to do
    double[::1] work,  # workspace
):
    """Beliefs of nodes; -1, or the first node without a possible state."""
    cdef:
        Field f
        Workspace workspace
        Py_ssize_t s, W = beliefs.shape[1], a, failed = -1
        const floating* values = &messages[0, 0] if messages.shape[0] else NULL
        const floating* unary
        floating* belief
        floating* x
        floating total, top
    open_field(field, &f, <floating*> values)
    partition_workspace(&f, &work[0], &workspace)
    unary = <const floating*> f.unary
    x = <floating*> workspace.shifted
    with nogil:
        for s in range(start, stop):
            belief = &beliefs[s, 0]
            if f.semiring == SUM_PROBABILITY:
                product_of_rows(unary + s * W, values, f.ptr[s], f.ptr[s + 1], f.ptr[s + 1], W, belief)
                total = row_sum(<const floating*> belief, W)
                if not total > 0:
                    failed = s
                    break
                row_scale(belief, 1 / total, W)
                log_z_terms[s] = log(total)
                continue
            sum_of_rows(unary + s * W, values, f.ptr[s], f.ptr[s + 1], f.ptr[s + 1], W, belief)
            for a in range(W):
                x[a] = belief[a]
            if row_max(<const floating*> x, W) == -INFINITY:
                failed = s
                break
            top = exponentiate(x, states_of(&f, s), W)
            log_z_terms[s] = top + log(row_sum(<const floating*> x, W))
            for a in range(W):
                belief[a] = <floating> (belief[a] - log_z_terms[s])
    return failed


cdef inline double cavity_of(const Field* f, const floating* belief, const floating* message, double power,
                             Py_ssize_t n, floating* out) noexcept nogil:
    """Belief without one message, scaled to a maximum of 1; the logarithm of the scale."""
    cdef:
        Py_ssize_t W = f.width, a
        floating top
    if f.semiring == SUM_PROBABILITY:
        if power == 1 or power == 2:
            row_quotient(belief, message, W, out)
            if power == 2:
                # As of edges in every second tree, without logarithms.
                row_quotient(<const floating*> out, message, W, out)
        else:
            for a in range(W):
                out[a] = message[a]
            row_power(out, <floating> -power, W)
            for a in range(W):
                out[a] = belief[a] * out[a]
        top = row_max(<const floating*> out, W)
        row_scale(out, 1 / top, W)
        return log(top)
    for a in range(W):
        # A message of -inf forbids the state whatever the rest says.
        out[a] = <floating> (belief[a] - power * message[a]) if not isinf(message[a]) else -INFINITY
    if row_max(<const floating*> out, W) == -INFINITY:
        return -INFINITY
    return exponentiate(out, n, W)


cdef inline double pair_in_scores(const Field* f, int32_t half_edge, const floating* belief, const floating* message,
                                  const floating* other_belief, const floating* other_message, double power,
                                  double* pair) noexcept nogil:
    """Pairwise belief worked out entry by entry, whatever the range; its log-normaliser."""
    cdef:
        Py_ssize_t K = f.n_columns, W = f.width, a, b
        double top = -INFINITY, total = 0.0
    for a in range(K):
        for b in range(K):
            if isinf(message[a]) or isinf(other_message[b]):
                pair[a * W + b] = -INFINITY
            else:
                pair[a * W + b] = (
                    pair_score(f, half_edge, a, b, <floating*> NULL)
                    + belief[a] - power * message[a] + other_belief[b] - power * other_message[b]
                )
            top = pair[a * W + b] if pair[a * W + b] > top else top
    for a in range(K):
        for b in range(W):
            pair[a * W + b] = exp(pair[a * W + b] - top) if b < K and top > -INFINITY else 0
            total += pair[a * W + b]
    for a in range(K * W):
        pair[a] = pair[a] / total if total > 0 else 0
    return top + log(total) if total > 0 else -INFINITY


cdef inline double pair_belief(const Field* f, Py_ssize_t s, Py_ssize_t q, const floating* beliefs,
                               const floating* messages, Workspace* workspace, double* scale) noexcept nogil:
    """Ends of a pairwise belief as p(a, b) = scale * cavity(a) * factor(a, b) * other(b); its log-normaliser.

    ``cavity`` is left in workspace.cavity, ``other`` in workspace.shifted and, in double precision, in
    workspace.total. -inf, and nothing of that, if the sum underflows.
    """
    cdef:
        Py_ssize_t W = f.width, t = f.neighbor[q], b
        int32_t half_edge = f.half_edge[q]
        floating* cavity = <floating*> workspace.cavity
        floating* other = <floating*> workspace.shifted
        floating* fresh = <floating*> workspace.fresh
        double power = 1, log_scale, shift = 0, total = 0
        # Terms lost by underflow do not matter in a sum above this. Single probabilities are kept only if none can be.
        double least = 1e-25 if floating is float else 1e-280
    if f.semiring == SUM_PROBABILITY and (floating is float or f.appearance != NULL):
        least = 0
    if f.appearance != NULL:
        power = 1 / <double> (<const floating*> f.appearance)[half_edge >> 1]
    log_scale = cavity_of(f, beliefs + s * W, messages + q * W, power, states_of(f, s), cavity)
    log_scale += cavity_of(f, beliefs + t * W, messages + f.reverse[q] * W, power, states_of(f, t), other)
    if log_scale == -INFINITY:
        return -INFINITY
    apply_factor(f, half_edge, <const floating*> cavity, states_of(f, s), fresh, <floating*> workspace.factor, &shift)
    for b in range(W):
        workspace.total[b] = other[b]
        total += <double> fresh[b] * other[b]
    if not total > least:
        return -INFINITY
    scale[0] = 1 / total
    return log(total) + log_scale + shift


cdef inline double exact_pair_belief(const Field* f, Py_ssize_t s, Py_ssize_t q, const floating* beliefs,
                                     const floating* messages, const floating* totals, Workspace* workspace,
                                     double* scale) noexcept nogil:
    """As pair_belief, from probabilities at a fixed point.

    There a normalised message is its sum over states divided by Z_e, so that Z_e takes K steps, not K^2.
    """
    cdef:
        Py_ssize_t W = f.width, t = f.neighbor[q], b
        floating* cavity = <floating*> workspace.cavity
        floating* other = <floating*> workspace.shifted
        double total
    row_quotient(beliefs + s * W, messages + q * W, W, cavity)
    row_quotient(beliefs + t * W, messages + f.reverse[q] * W, W, other)
    total = row_dot(<const floating*> cavity, totals, W)
    if not total > 0:
        return -INFINITY
    for b in range(W):
        workspace.total[b] = other[b]
    scale[0] = 1 / total
    return log(total) + f.shift[f.factor[f.half_edge[q] >> 1]]


cdef inline double full_pair_belief(const Field* f, Py_ssize_t s, Py_ssize_t q, const floating* beliefs,
                                    const floating* messages, Workspace* workspace, double* pair) noexcept nogil:
    """All of a pairwise belief, (K, width); its log-normaliser."""
    cdef:
        Py_ssize_t K = f.n_columns, W = f.width, a, b
        int32_t half_edge = f.half_edge[q]
        double scale = 0, log_z, shift = 0, power = 1, on, off
        const floating* factor
        const floating* cavity = <const floating*> workspace.cavity
    log_z = pair_belief(f, s, q, beliefs, messages, workspace, &scale)
    if log_z == -INFINITY:
        if f.semiring == SUM_PROBABILITY:
            return log_z
        if f.appearance != NULL:
            power = 1 / <double> (<const floating*> f.appearance)[half_edge >> 1]
        return pair_in_scores(f, half_edge, beliefs + s * W, messages + q * W, beliefs + f.neighbor[q] * W,
                              messages + f.reverse[q] * W, power, pair)
    if f.on != NULL:
        on = (<const floating*> f.on)[f.factor[half_edge >> 1]]
        off = (<const floating*> f.off)[f.factor[half_edge >> 1]]
        for a in range(K):
            for b in range(W):
                pair[a * W + b] = scale * cavity[a] * (on if a == b else off) * workspace.total[b]
        return log_z
    factor = half_edge_factor(f, half_edge, <floating*> workspace.factor, &shift)
    for a in range(K):
        for b in range(W):
            pair[a * W + b] = scale * cavity[a] * factor[a * W + b] * workspace.total[b]
    return log_z


def pair_statistics(
    object field,  # IN arrays of the model
    const floating[:, ::1] messages,  # IN (2E, width)
    const floating[:, ::1] beliefs,  # IN (N, width) as node_beliefs left them
    double[:, :, :, ::1] statistics,  # INOUT (T, R, K, width) summed edge weight * pairwise belief
    bint without_factor,  # leave the edge's factor out of the sums: it is the same for all of a type
    const floating[:, ::1] row_totals,  # IN (n, width) sums of a factor's rows; empty if messages may not be exact
    double[::1] log_z_terms,  # INOUT (N,) added to at the first end of each edge
    Py_ssize_t start,
    Py_ssize_t stop,  # nodes whose outgoing edges to do
    double[::1] work,  # workspace
):
    """Sum the pairwise beliefs of edges by type; -1, or the first edge without a possible pair."""
    cdef:
        Field f
        Workspace workspace
        Py_ssize_t s, q, W = beliefs.shape[1], K = statistics.shape[2], r, i, edge, failed = -1
        const floating* values = &messages[0, 0] if messages.shape[0] else NULL
        const floating* node_values = &beliefs[0, 0] if beliefs.shape[0] else NULL
        double* pair
        double* row
        double log_z, scale = 0, weight, appearance
    open_field(field, &f, <floating*> values)
    partition_workspace(&f, &work[0], &workspace)
    pair = &work[(5 + K) * W]
    with nogil:
        for s in range(start, stop):
            for q in range(f.ptr[s], f.ptr[s + 1]):
                if f.half_edge[q] & 1:
                    continue
                edge = f.half_edge[q] >> 1
                if row_totals.shape[0] > 0:
                    log_z = exact_pair_belief(&f, s, q, node_values, values,
                                              &row_totals[f.factor[edge], 0], &workspace, &scale)
                elif without_factor:
                    log_z = pair_belief(&f, s, q, node_values, values, &workspace, &scale)
                else:
                    log_z = full_pair_belief(&f, s, q, node_values, values, &workspace, pair)
                if log_z == -INFINITY:
                    failed = edge
                    break
                appearance = 1 if f.appearance == NULL else (<const floating*> f.appearance)[edge]
                log_z_terms[s] += appearance * log_z
                if without_factor:
                    add_outer(<const floating*> workspace.cavity, scale, workspace.total, K, W,
                              &statistics[f.edge_type[edge], 0, 0, 0])
                    continue
                for r in range(f.n_features):
                    weight = appearance
                    if f.edge_weight != NULL:
                        weight = appearance * (<const floating*> f.edge_weight)[edge * f.n_features + r]
                    row = &statistics[f.edge_type[edge], r, 0, 0]
                    for i in range(K * W):
                        row[i] += weight * pair[i]
            if failed >= 0:
                break
    return failed


def edge_log_normalisers(
    object field,  # IN arrays of the model
    const floating[:, ::1] messages,  # IN (2E, width)
    const floating[:, ::1] beliefs,  # IN (N, width) as node_beliefs left them
    const floating[:, ::1] row_totals,  # IN (n, width) sums of a factor's rows; empty if messages may not be exact
    double[::1] log_z_terms,  # INOUT (N,) added to at the first end of each edge
    double[::1] work,  # workspace
):
    """Add what edges contribute to the log-partition, without their beliefs; -1, or the first impossible edge."""
    cdef:
        Field f
        Workspace workspace
        Py_ssize_t s, q, W = beliefs.shape[1], edge, failed = -1
        const floating* values = &messages[0, 0] if messages.shape[0] else NULL
        const floating* node_values = &beliefs[0, 0] if beliefs.shape[0] else NULL
        double log_z, scale = 0
    open_field(field, &f, <floating*> values)
    partition_workspace(&f, &work[0], &workspace)
    with nogil:
        for s in range(beliefs.shape[0]):
            for q in range(f.ptr[s], f.ptr[s + 1]):
                if f.half_edge[q] & 1:
                    continue
                edge = f.half_edge[q] >> 1
                if row_totals.shape[0] > 0:
                    log_z = exact_pair_belief(&f, s, q, node_values, values,
                                              &row_totals[f.factor[edge], 0], &workspace, &scale)
                else:
                    log_z = full_pair_belief(&f, s, q, node_values, values, &workspace, &work[(5 + f.n_columns) * W])
                if log_z == -INFINITY:
                    failed = edge
                    break
                log_z_terms[s] += log_z
            if failed >= 0:
                break
    return failed


def edge_beliefs(
    object field,  # IN arrays of the model
    const floating[:, ::1] messages,  # IN (2E, width)
    const floating[:, ::1] beliefs,  # IN (N, width) as node_beliefs left them
    const int32_t[:, ::1] slots,  # IN (n, 2) first end of each edge asked for, and its slot there
    floating[:, :, ::1] marginals,  # OUT (n, K, K)
    double[::1] work,  # workspace
):
    """Pairwise beliefs of single edges; -1, or the first of them without a possible pair."""
    cdef:
        Field f
        Workspace workspace
        Py_ssize_t i, a, b, W = beliefs.shape[1], K = marginals.shape[1], failed = -1
        const floating* values = &messages[0, 0] if messages.shape[0] else NULL
        double* pair
    open_field(field, &f, <floating*> values)
    partition_workspace(&f, &work[0], &workspace)
    pair = &work[(5 + K) * W]
    with nogil:
        for i in range(slots.shape[0]):
            if full_pair_belief(&f, slots[i, 0], slots[i, 1], &beliefs[0, 0], values, &workspace, pair) == -INFINITY:
                failed = i
                break
            for a in range(K):
                for b in range(K):
                    marginals[i, a, b] = <floating> pair[a * W + b]
    return failed
