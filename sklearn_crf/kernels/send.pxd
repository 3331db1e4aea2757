"""One message of belief propagation, the same recursion for sums and maxima.

The message from node s along an edge e = (s, t) is

    m(b) = [ sum or max over a of  u_s(a) theta_e(a, b) prod_q m_q(a) / m_e(a)^(1 / rho_e) ]^rho_e

with q over the edges of s, normalised; belief propagation is rho_e = 1, tree-reweighted belief propagation has
theta_e divided by rho_e, which is the caller's to do (Wainwright, Jaakkola & Willsky 2005, Eq. 39, for messages
raised to the power rho_e).
"""

from cython cimport floating
from libc.math cimport INFINITY, exp, expf, fabs, isinf, log, logf
from libc.stdint cimport int32_t

from sklearn_crf.kernels.field cimport (
    MAX_SCORE,
    SUM_PROBABILITY,
    Field,
    pair_score,
    states_of,
    stored_factor,
)
from sklearn_crf.kernels.rows cimport (
    VECTOR_BYTES,
    exponentiate,
    max_sum,
    max_sum_across,
    potts_max_sum,
    potts_sum_product,
    product_of_rows,
    replace_probabilities,
    replace_scores,
    row_max,
    row_power,
    send_short,
    sum_of_rows,
    sum_product,
    sum_product_across,
)

# Up to this many edges, a node multiplies the other messages anew for each edge; past it, one total is divided.
cdef enum:
    FEW_EDGES = 8


cdef struct Workspace:
    void* cavity  # (width,) of floating, as the next three
    void* fresh  # (width,)
    void* shifted  # (width,)
    void* factor  # (K, width)
    double* total  # (width,)
    double* n_forbidding  # (width,)


cdef inline void partition_workspace(const Field* f, double* work, Workspace* workspace) noexcept nogil:
    """Places in workspace of (5 + K) * width numbers."""
    cdef Py_ssize_t W = f.width
    workspace.total = work
    workspace.n_forbidding = work + W
    workspace.cavity = work + 2 * W
    workspace.fresh = work + 3 * W
    workspace.shifted = work + 4 * W
    workspace.factor = work + 5 * W


cdef inline void total_messages(const Field* f, Py_ssize_t s, const floating* messages,
                                Workspace* workspace) noexcept nogil:
    """Product (sum of scores) of all messages to a node of many edges, in double precision.

    Messages of probability 0 (score -inf) are counted apart, so that one can be taken out again.
    """
    cdef:
        Py_ssize_t W = f.width, q, a
        const floating* base = (<const floating*> f.unary) + s * W
        double value
        bint products = f.semiring == SUM_PROBABILITY
    for a in range(W):
        workspace.total[a] = base[a]
        workspace.n_forbidding[a] = 0
    for q in range(f.ptr[s], f.ptr[s + 1]):
        for a in range(W):
            value = messages[q * W + a]
            if value == (0 if products else -INFINITY):
                workspace.n_forbidding[a] += 1
            elif products:
                workspace.total[a] *= value
            else:
                workspace.total[a] += value


cdef inline void take_out(const Field* f, const floating* message, const Workspace* workspace,
                          floating* cavity) noexcept nogil:
    """The total without one message."""
    cdef:
        Py_ssize_t a
        bint products = f.semiring == SUM_PROBABILITY
        floating none = 0 if products else -INFINITY
    for a in range(f.width):
        if workspace.n_forbidding[a] > (1 if message[a] == none else 0):
            cavity[a] = none
        elif message[a] == none:
            cavity[a] = <floating> workspace.total[a]
        elif products:
            cavity[a] = <floating> (workspace.total[a] / message[a])
        else:
            cavity[a] = <floating> (workspace.total[a] - message[a])


cdef inline void reweight_cavity(const Field* f, const floating* message, double power,
                                 floating* cavity) noexcept nogil:
    """Take out of the cavity what a message is raised to besides its own power one."""
    cdef Py_ssize_t a
    for a in range(f.width):
        cavity[a] = cavity[a] + <floating> (power * message[a]) if not isinf(message[a]) else -INFINITY


cdef inline void divide_out(const floating* message, floating power, Py_ssize_t width, floating* cavity,
                            floating* workspace) noexcept nogil:
    """The same for probabilities, to which a message is a factor of the power ``power``, 0 where it is 0."""
    cdef Py_ssize_t a
    for a in range(width):
        workspace[a] = message[a]
    row_power(workspace, power, width)
    for a in range(width):
        cavity[a] = cavity[a] * workspace[a]


cdef inline double sum_in_scores(const Field* f, int32_t half_edge, const floating* cavity, Py_ssize_t b,
                                 double shift) noexcept nogil:
    """log sum_a exp(cavity(a) + score(a, b) - shift), whatever the range."""
    cdef:
        Py_ssize_t a
        double top = -INFINITY, total = 0.0, score
    for a in range(f.n_columns):
        score = cavity[a] + pair_score(f, half_edge, a, b, <floating*> NULL)
        if score > top:
            top = score
    if top == -INFINITY:
        return -INFINITY
    for a in range(f.n_columns):
        total += exp(cavity[a] + pair_score(f, half_edge, a, b, <floating*> NULL) - top)
    return top + log(total) - shift


cdef inline floating log_of(floating x) noexcept nogil:
    if floating is float:
        return logf(x)
    else:
        return log(x)


cdef inline floating exp_of(floating x) noexcept nogil:
    if floating is float:
        return expf(x)
    else:
        return exp(x)


cdef inline void apply_factor(const Field* f, int32_t half_edge, const floating* x, Py_ssize_t n, floating* out,
                              floating* workspace, double* shift) noexcept nogil:
    """Sum (or max) over the first n states of x times (plus) the factor of a half-edge."""
    cdef:
        Py_ssize_t K = f.n_columns, W = f.width
        int32_t row = f.factor[half_edge >> 1]
        const floating* factor
        bint across = False
        floating on, off
    if f.on != NULL:
        shift[0] = f.shift[row]
        on = (<const floating*> f.on)[row]
        off = (<const floating*> f.off)[row]
        if f.semiring == MAX_SCORE:
            potts_max_sum(x, on, off, K, W, out)
        else:
            potts_sum_product(x, on, off, K, W, out)
        return
    factor = stored_factor(f, half_edge, workspace, shift, &across)
    if across and f.semiring == MAX_SCORE:
        max_sum_across(factor, x, K, W, out)
    elif across:
        sum_product_across(factor, x, K, W, out)
    elif f.semiring == MAX_SCORE:
        max_sum(factor, x, n, W, out)
    else:
        sum_product(factor, x, n, W, out)


cdef inline double count_change(double of_probability, double of_logarithm) noexcept nogil:
    """The change of a message: that of a probability, or a hundredth of that of its logarithm.

    A probability near 0 hides changes that decide where other messages say the opposite.
    """
    return max(of_probability, 0.01 * of_logarithm)


cdef inline double replace_sums_in_scores(const Field* f, int32_t half_edge, Workspace* workspace, floating* kept,
                                          Py_ssize_t n, Py_ssize_t n_other, double damping,
                                          double power) noexcept nogil:
    """A message of sums kept as scores, the best of which is 0; its largest change, or -1 if all are -inf."""
    cdef:
        Py_ssize_t W = f.width, a, b
        floating* cavity = <floating*> workspace.cavity
        floating* fresh = <floating*> workspace.fresh
        floating* x = <floating*> workspace.shifted
        floating top
        # Terms lost by underflow do not matter in a sum above this; a smaller sum is done again in scores.
        double least = 1e-30 if floating is float else 1e-290
        double rounding = 1e-6 if floating is float else 2e-15
        double shift = 0, change, worst = 0
    for a in range(W):
        x[a] = cavity[a]
    if row_max(x, W) == -INFINITY:
        return -1
    top = exponentiate(x, n, W)
    apply_factor(f, half_edge, x, n, fresh, <floating*> workspace.factor, &shift)
    for b in range(n_other):
        if fresh[b] > least:
            fresh[b] = log_of(fresh[b])
        else:
            fresh[b] = <floating> (sum_in_scores(f, half_edge, cavity, b, shift) - top)
        if power != 1:
            fresh[b] = <floating> (power * fresh[b])
    for b in range(n_other, W):
        fresh[b] = -INFINITY
    for b in range(W):
        x[b] = kept[b]
    if replace_scores(fresh, kept, W, damping) < 0:
        return -1
    for b in range(n_other if damping >= 0 else 0):
        change = fabs(<double> fresh[b] - x[b])
        # |exp x - exp y| <= |x - y| for x, y <= 0; not a number (both -inf) is no change
        if change > worst and change > -rounding * fresh[b]:
            change = count_change(fabs(<double> exp_of(fresh[b]) - exp_of(x[b])), change)
            worst = change if change > worst else worst
    return worst


cdef inline double replace_powers(const floating* fresh, floating* kept, Py_ssize_t width, double damping,
                                  floating* workspace, floating* other_room) noexcept nogil:
    """Replace probabilities whose logarithms are damped: powers of what is all but 0 reach other messages too."""
    cdef:
        Py_ssize_t a
        double change
    if damping <= 0:
        return replace_probabilities(fresh, kept, width, damping)
    for a in range(width):
        workspace[a] = kept[a]
    change = replace_probabilities(fresh, kept, width, 0)
    if change < 0:
        return change
    for a in range(width):
        other_room[a] = kept[a]
    row_power(workspace, <floating> damping, width)
    row_power(other_room, <floating> (1 - damping), width)
    for a in range(width):
        other_room[a] = workspace[a] * other_room[a]
    if replace_probabilities(<const floating*> other_room, kept, width, -1) < 0:
        return -1
    return change


cdef inline bint is_short(const Field* f, floating* precision) noexcept nogil:
    """Whether a message is worked out in registers: a row of one or two vectors, and tables that are stored."""
    return (f.semiring == SUM_PROBABILITY and (f.on != NULL or f.factors != NULL)
            and f.width * <Py_ssize_t> sizeof(floating) <= 2 * VECTOR_BYTES)


cdef inline double send_short_message(const Field* f, Py_ssize_t s, Py_ssize_t q, floating* messages, double damping,
                                      bint halved) noexcept nogil:
    """The same as send_message for a node of at most FEW_EDGES edges where messages are short."""
    cdef:
        Py_ssize_t W = f.width
        int32_t half_edge = f.half_edge[q], row = f.factor[half_edge >> 1]
        const floating* table = NULL
        floating on = 0, off = 0
    if f.on != NULL:
        on, off = (<const floating*> f.on)[row], (<const floating*> f.off)[row]
    else:
        table = (<const floating*> f.factors) + f.place[2 * <Py_ssize_t> row + (half_edge & 1)] * f.n_columns * W
    return send_short((<const floating*> f.unary) + s * W, <const floating*> messages, f.ptr[s], f.ptr[s + 1], q, table,
                      on, off, states_of(f, s), f.n_columns, messages + <Py_ssize_t> f.reverse[q] * W, damping, W,
                      halved)


cdef inline double send_message(const Field* f, Py_ssize_t s, Py_ssize_t q, floating* messages, double damping,
                                Workspace* workspace) noexcept nogil:
    """Renew the message that node s sends along its slot q; its largest change, or -1 if no state is left.

    A node of more than FEW_EDGES edges needs total_messages first.
    """
    cdef:
        Py_ssize_t W = f.width, first = f.ptr[s], last = f.ptr[s + 1]
        Py_ssize_t n = states_of(f, s), a
        int32_t half_edge = f.half_edge[q]
        const floating* base = (<const floating*> f.unary) + s * W
        floating* kept = messages + <Py_ssize_t> f.reverse[q] * W
        floating* cavity = <floating*> workspace.cavity
        floating* fresh = <floating*> workspace.fresh
        double power = 1, shift = 0
    if f.appearance != NULL:
        power = (<const floating*> f.appearance)[half_edge >> 1]
    # Damping a message that is raised to a power takes logarithms.
    if is_short(f, messages) and last - first <= FEW_EDGES and (f.appearance == NULL or power == 0.5 and damping <= 0):
        return send_short_message(f, s, q, messages, damping, power != 1)
    if last - first > FEW_EDGES:
        take_out(f, <const floating*> messages + q * W, workspace, cavity)
    elif f.semiring == SUM_PROBABILITY:
        product_of_rows(base, <const floating*> messages, first, last, q, W, cavity)
    else:
        sum_of_rows(base, <const floating*> messages, first, last, q, W, cavity)
    if power != 1:
        if f.semiring == SUM_PROBABILITY:
            divide_out(<const floating*> messages + q * W, <floating> (1 - 1 / power), W, cavity, fresh)
        else:
            reweight_cavity(f, <const floating*> messages + q * W, 1 - 1 / power, cavity)
    if f.semiring == SUM_PROBABILITY:
        apply_factor(f, half_edge, <const floating*> cavity, n, fresh, <floating*> workspace.factor, &shift)
        if power != 1:
            row_power(fresh, <floating> power, W)
        if f.appearance != NULL:
            return replace_powers(<const floating*> fresh, kept, W, damping, cavity, <floating*> workspace.shifted)
        return replace_probabilities(<const floating*> fresh, kept, W, damping)
    if f.semiring == MAX_SCORE:
        apply_factor(f, half_edge, <const floating*> cavity, n, fresh, <floating*> workspace.factor, &shift)
        if power != 1:
            for a in range(f.n_columns):
                fresh[a] = <floating> (power * fresh[a])
        return replace_scores(fresh, kept, W, damping)
    return replace_sums_in_scores(f, half_edge, workspace, kept, n, states_of(f, f.neighbor[q]), damping, power)
