"""Sweeps of belief propagation: nodes send their messages in a given order."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.messages.field cimport FEW_EDGES, Field, open_field

cdef extern from "messages/sweeps.hpp" namespace "crf" nogil:
    cdef cppclass Sweep[Real]:
        Field[Real] field
        const int32_t* nodes
        const int32_t* rank
        double damping
        void open(Real*, Py_ssize_t, double*, bint)
        double send_nodes(int, Py_ssize_t, Py_ssize_t)
        double renew(Py_ssize_t, Py_ssize_t)
        double send_by_residual(double*, int32_t*, int32_t*, Py_ssize_t, double, Py_ssize_t)

# A node of larger degree reads all its messages to send one; exported for callers that leave some messages unset.
READS_ALL_ABOVE = FEW_EDGES


cdef void open_sweep(object field, Sweep[floating]* sweep, floating[:, ::1] messages, const int32_t[::1] nodes,
                     const int32_t[::1] rank, double damping, double[::1] work) except *:
    open_field(field, &sweep.field)
    sweep.damping = damping
    sweep.nodes = &nodes[0] if nodes.shape[0] else NULL
    sweep.rank = &rank[0] if rank.shape[0] else NULL
    sweep.open(&messages[0, 0] if messages.shape[0] else NULL, messages.shape[0], &work[0], field.is_wide)


def send(
    object field,  # IN arrays of the model
    floating[:, ::1] messages,  # INOUT (2E, width) by the slot of the receiving node
    const int32_t[::1] nodes,  # IN (n,) in the order of sending
    const int32_t[::1] rank,  # IN (N,) position of each node in the order of all nodes, used if direction is not 0
    int direction,  # 1: to nodes of higher rank, -1: to nodes of lower rank, in reverse order, 0: to all
    double damping,  # weight of the old message; below 0: there are no old messages
    Py_ssize_t start,
    Py_ssize_t stop,  # the nodes nodes[start:stop] send
    double[::1] work,  # workspace ((6 + K) * width,)
):
    """Send the messages of nodes in turn; return the largest change, or -1 - t if node t has no possible state."""
    cdef:
        Sweep[floating] sweep
        double change
    open_sweep(field, &sweep, messages, nodes, rank, damping, work)
    with nogil:
        change = sweep.send_nodes(direction, start, stop)
    return change


def renew(
    object field,  # IN arrays of the model
    floating[:, ::1] messages,  # INOUT (2E, width) by the slot of the receiving node
    const int32_t[::1] nodes,  # IN (n,) in the order of sending
    const int32_t[::1] rank,  # IN (N,) position of each node in that order
    double damping,  # weight of the old message
    const int64_t[:, ::1] ranges,  # IN (m, 2) first and last + 1 position of ranges without messages in between
    double[::1] changes,  # OUT (m,) largest change of a message, or -1 - t if node t has no possible state
    double[::1] work,  # workspace ((6 + K) * width,)
):
    """Send the messages of the nodes of some ranges, forwards through each range and then backwards."""
    cdef:
        Sweep[floating] sweep
        Py_ssize_t k
    open_sweep(field, &sweep, messages, nodes, rank, damping, work)
    with nogil:
        for k in range(ranges.shape[0]):
            changes[k] = sweep.renew(ranges[k, 0], ranges[k, 1])


def send_by_residual(
    object field,  # IN arrays of the model
    floating[:, ::1] messages,  # INOUT (2E, width)
    double[::1] priority,  # INOUT (N,) summed change of the messages to a node since it last sent its own
    int32_t[::1] heap,  # INOUT (N,) nodes, a binary heap with the highest priority first
    int32_t[::1] position,  # INOUT (N,) position of each node in the heap
    double tol,  # stop when no priority is above it
    double damping,
    Py_ssize_t n_nodes,  # largest number of nodes that send
    double[::1] work,  # workspace ((6 + K) * width,)
):
    """Send messages from the node of highest priority, repeatedly; return the highest priority left, or -1 - t."""
    cdef:
        Sweep[floating] sweep
        double left
    if priority.shape[0] == 0:
        return 0.0
    open_sweep(field, &sweep, messages, heap, heap, damping, work)
    with nogil:
        left = sweep.send_by_residual(&priority[0], &heap[0], &position[0], priority.shape[0], tol, n_nodes)
    return left
