"""Sweeps of belief propagation: every message of some nodes renewed in a given order."""

from cython cimport floating
from libc.math cimport fabs, fabsf
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.field cimport SUM_PROBABILITY, Field, open_field
from sklearn_crf.kernels.rows cimport prefetch
from sklearn_crf.kernels.send cimport (
    FEW_EDGES,
    Workspace,
    count_change,
    is_short,
    partition_workspace,
    send_message,
    send_short_message,
    total_messages,
)

# A node of more edges than this reads all its messages to send one; for the callers that leave some unset.
READS_ALL_ABOVE = FEW_EDGES

# How many nodes ahead memory is asked for: half the time of a sweep over messages that no cache holds, and 8 % more
# where all of them are in one.
cdef enum:
    AHEAD = 6
    FIT_A_CACHE = 1 << 18


cdef inline floating fabs_of(floating x) noexcept nogil:
    if floating is float:
        return fabsf(x)
    else:
        return fabs(x)


cdef struct Sweep:
    Field* field
    Workspace* workspace
    const int32_t* nodes  # in the order of sending
    const int32_t* rank  # position of each node in a whole order, read if direction is not 0
    double damping  # share of the old message that is kept; below 0: there are no old messages
    void* former  # (width,) of floating
    bint by_logarithms  # whether probabilities may be too small to show how they change
    bint in_registers  # asked once, not for every message: half the time of one between nodes of two states
    bint comes_back  # whether an edge's own table serves both directions: it is then read in the order of storage
    bint asks_ahead  # whether messages are more than a cache holds


def send(
    object field,  # IN arrays of the model
    floating[:, ::1] messages,  # INOUT (2E, width) by the slot of the receiving node
    const int32_t[::1] nodes,  # IN (n,) in the order of sending
    const int32_t[::1] rank,  # IN (N,) position of each node in a whole order, read if direction is not 0
    int direction,  # 1: only to nodes of higher rank, -1: to lower ones and from the last node back, 0: to all
    double damping,  # share of the old message that is kept; below 0: there are no old messages
    Py_ssize_t start,
    Py_ssize_t stop,  # the nodes nodes[start:stop] send
    double[::1] work,  # workspace ((6 + K) * width,)
):
    """Let nodes send messages in turn; the largest change of one, or -1 - t if no state is left to node t."""
    cdef:
        Field f
        Workspace workspace
        Sweep sweep
        double change
        bint is_wide = field.is_wide
    open_field(field, &f, &messages[0, 0] if messages.shape[0] else NULL)
    partition_workspace(&f, &work[0], &workspace)
    open_sweep(&sweep, &f, &workspace, messages, nodes, rank, damping, is_wide)
    with nogil:
        change = send_nodes(&sweep, &messages[0, 0] if messages.shape[0] else NULL, direction, start, stop)
    return change


def renew(
    object field,  # IN arrays of the model
    floating[:, ::1] messages,  # INOUT (2E, width) by the slot of the receiving node
    const int32_t[::1] nodes,  # IN (n,) in the order of sending
    const int32_t[::1] rank,  # IN (N,) position of each node in that order
    double damping,  # share of the old message that is kept
    const int64_t[:, ::1] ranges,  # IN (m, 2) first and last of nodes that send to each other, and to no others
    double[::1] changes,  # OUT (m,) the largest change of a message, or -1 - t if no state is left to node t
    double[::1] work,  # workspace ((6 + K) * width,)
):
    """Let the nodes of some ranges send messages, forwards through each and then backwards."""
    cdef:
        Field f
        Workspace workspace
        Sweep sweep
        Py_ssize_t k
        double back
        bint is_wide = field.is_wide
        floating* values = &messages[0, 0] if messages.shape[0] else NULL
    open_field(field, &f, values)
    partition_workspace(&f, &work[0], &workspace)
    open_sweep(&sweep, &f, &workspace, messages, nodes, rank, damping, is_wide)
    with nogil:
        for k in range(ranges.shape[0]):
            changes[k] = send_nodes(&sweep, values, 1, ranges[k, 0], ranges[k, 1])
            if changes[k] < 0:
                continue
            if sweep.comes_back:
                back = send_back(&sweep, values, ranges[k, 0], ranges[k, 1])
            else:
                back = send_nodes(&sweep, values, -1, ranges[k, 0], ranges[k, 1])
            if back < 0 or back > changes[k]:
                changes[k] = back


cdef inline void open_sweep(
    Sweep* sweep, Field* f, Workspace* workspace, floating[:, ::1] messages, const int32_t[::1] nodes,
    const int32_t[::1] rank, double damping, bint is_wide
) except *:
    sweep.field, sweep.workspace, sweep.damping = f, workspace, damping
    # Behind the rows of the factor.
    sweep.former = <void*> (<double*> workspace.factor + f.n_columns * f.width)
    sweep.by_logarithms = is_wide and damping >= 0 and f.semiring == SUM_PROBABILITY
    sweep.nodes = &nodes[0] if nodes.shape[0] else NULL
    sweep.rank = &rank[0] if rank.shape[0] else NULL
    sweep.in_registers = f.appearance == NULL and is_short(f, <floating*> NULL)
    sweep.comes_back = f.factors != NULL and f.factor != NULL and f.place[0] == f.place[1]
    sweep.asks_ahead = messages.size * sizeof(floating) > FIT_A_CACHE


cdef double send_nodes(
    const Sweep* sweep, floating* values, int direction, Py_ssize_t start, Py_ssize_t stop
) noexcept nogil:
    cdef:
        Field* f = sweep.field
        Py_ssize_t i, s, q, first, last
        int32_t place
        Py_ssize_t last_asked = stop - AHEAD if sweep.asks_ahead else start
        double change, worst = 0.0
    for i in range(start, stop):
        if i < last_asked:
            s = sweep.nodes[i + AHEAD if direction >= 0 else start + stop - 1 - AHEAD - i]
            for q in range(f.ptr[s], f.ptr[s + 1]):
                prefetch(values + q * f.width)
                prefetch(values + <Py_ssize_t> f.reverse[q] * f.width)
        s = sweep.nodes[i if direction >= 0 else start + stop - 1 - i]
        first, last = f.ptr[s], f.ptr[s + 1]
        place = sweep.rank[s] if direction != 0 else 0
        if last - first > FEW_EDGES:
            total_messages(f, s, <const floating*> values, sweep.workspace)
        for q in range(first, last):
            if direction != 0 and direction * (sweep.rank[f.neighbor[q]] - place) < 0:
                continue
            if sweep.by_logarithms:
                change = renew_by_logarithms(sweep, s, q, values, worst)
            elif sweep.in_registers and last - first <= FEW_EDGES:
                change = send_short_message(f, s, q, values, sweep.damping, False)
            else:
                change = send_message(f, s, q, values, sweep.damping, sweep.workspace)
            if change < 0:
                return -1.0 - f.neighbor[q]
            if change > worst:
                worst = change
    return worst


cdef double send_back(const Sweep* sweep, floating* values, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """As send_nodes backwards, with messages in the order of the nodes that receive them.

    Each depends on the same ones as there, which are all sent before, so that their bits are the same. Tables that
    forward messages read in the order of storage are read in exactly the opposite one.
    """
    cdef:
        Field* f = sweep.field
        Py_ssize_t i, s, t, q, r
        double change, worst = 0.0
    for i in range(stop - 1, start - 1, -1):
        t = sweep.nodes[i]
        for r in range(f.ptr[t + 1] - 1, f.ptr[t] - 1, -1):
            s = f.neighbor[r]
            if i < sweep.rank[s] < stop:
                change = send_along(sweep, s, f.reverse[r], values, worst)
                if change < 0:
                    return -1.0 - t
                worst = change if change > worst else worst
    # Nodes before the range receive messages, too.
    for i in range(stop - 1, start - 1 if start > 0 else stop - 1, -1):
        s = sweep.nodes[i]
        for q in range(f.ptr[s], f.ptr[s + 1]):
            if sweep.rank[f.neighbor[q]] < start:
                change = send_along(sweep, s, q, values, worst)
                if change < 0:
                    return -1.0 - f.neighbor[q]
                worst = change if change > worst else worst
    return worst


cdef inline double send_along(const Sweep* sweep, Py_ssize_t s, Py_ssize_t q, floating* values,
                              double worst) noexcept nogil:
    """The message of a node along one of its slots, whatever it has sent before."""
    if sweep.field.ptr[s + 1] - sweep.field.ptr[s] > FEW_EDGES:
        total_messages(sweep.field, s, <const floating*> values, sweep.workspace)
    if sweep.by_logarithms:
        return renew_by_logarithms(sweep, s, q, values, worst)
    return send_message(sweep.field, s, q, values, sweep.damping, sweep.workspace)


cdef double renew_by_logarithms(const Sweep* sweep, Py_ssize_t s, Py_ssize_t q, floating* values,
                                double worst) noexcept nogil:
    """Renew the message along a slot of a node; its change if that exceeds ``worst``, or -1 if no state is left."""
    cdef:
        Field* f = sweep.field
        Py_ssize_t a, n_worse = 0
        double change
        floating* kept = values + <Py_ssize_t> f.reverse[q] * f.width
        floating* former = <floating*> sweep.former
        floating limit, larger, share = <floating> (count_change(0, 1) / (1 - sweep.damping))
    for a in range(f.width):
        former[a] = kept[a]
    change = send_message(f, s, q, values, sweep.damping, sweep.workspace)
    if change < 0:
        return change
    # A relative change is that of a logarithm, as long as it is small.
    limit = <floating> max(change, worst)
    for a in range(f.width):
        larger = kept[a] if kept[a] > former[a] else former[a]
        n_worse += share * fabs_of(kept[a] - former[a]) > limit * larger
    if n_worse == 0:
        return change
    for a in range(f.width):
        larger = kept[a] if kept[a] > former[a] else former[a]
        if larger > 0:
            change = max(change, <double> (share * fabs_of(kept[a] - former[a]) / larger))
    return change


def send_by_residual(
    object field,  # IN arrays of the model
    floating[:, ::1] messages,  # INOUT (2E, width)
    double[::1] priority,  # INOUT (N,) summed change of the messages to a node since it last sent its own
    int32_t[::1] heap,  # INOUT (N,) nodes, a binary heap with the highest priority first
    int32_t[::1] position,  # INOUT (N,) of each node in the heap
    double tol,  # stop when no priority is above it
    double damping,
    Py_ssize_t n_nodes,  # nodes to let send at most
    double[::1] work,  # workspace ((6 + K) * width,)
):
    """Let nodes send, always the one whose input changed most; the highest priority left, or -1 - t."""
    cdef:
        Field f
        Workspace workspace
        Sweep sweep
        Py_ssize_t _, s, q, t
        double change, worst
        int failed = -1
        bint is_wide = field.is_wide
        const int32_t[::1] nodes = heap
        floating* values = &messages[0, 0] if messages.shape[0] else NULL
    open_field(field, &f, values)
    partition_workspace(&f, &work[0], &workspace)
    if priority.shape[0] == 0:
        return 0.0
    open_sweep(&sweep, &f, &workspace, messages, nodes, nodes, damping, is_wide)
    with nogil:
        for _ in range(n_nodes):
            s = heap[0]
            if priority[s] <= tol:
                break
            worst = 0
            priority[s] = 0
            sift_down(&priority[0], &heap[0], &position[0], priority.shape[0])
            if f.ptr[s + 1] - f.ptr[s] > FEW_EDGES:
                total_messages(&f, s, <const floating*> values, &workspace)
            for q in range(f.ptr[s], f.ptr[s + 1]):
                t = f.neighbor[q]
                if sweep.by_logarithms:
                    change = renew_by_logarithms(&sweep, s, q, values, worst)
                else:
                    change = send_message(&f, s, q, values, damping, &workspace)
                if change < 0:
                    failed = <int> t
                    break
                worst = change if change > worst else worst
                priority[t] += change
                sift_up(&priority[0], &heap[0], &position[0], position[t])
            if failed >= 0:
                break
            if damping > 0:
                # What damping held back is still to be sent.
                priority[s] += damping * worst
                sift_up(&priority[0], &heap[0], &position[0], position[s])
    return -1.0 - failed if failed >= 0 else priority[heap[0]]


cdef void sift_up(const double* priority, int32_t* heap, int32_t* position, Py_ssize_t place) noexcept nogil:
    cdef:
        int32_t node = heap[place], other
    while place > 0:
        other = heap[(place - 1) // 2]
        if priority[other] >= priority[node]:
            break
        heap[place] = other
        position[other] = <int32_t> place
        place = (place - 1) // 2
    heap[place] = node
    position[node] = <int32_t> place


cdef void sift_down(const double* priority, int32_t* heap, int32_t* position, Py_ssize_t size) noexcept nogil:
    cdef:
        int32_t node = heap[0], other
        Py_ssize_t place = 0, child
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and priority[heap[child + 1]] > priority[heap[child]]:
            child += 1
        other = heap[child]
        if priority[other] <= priority[node]:
            break
        heap[place] = other
        position[other] = <int32_t> place
        place = child
    heap[place] = node
    position[node] = <int32_t> place
