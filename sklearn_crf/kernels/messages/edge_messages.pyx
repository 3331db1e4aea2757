# distutils: language = c++
"""Sweeps of belief propagation: every message of some nodes renewed in a given order."""

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

# A node of more edges than this reads all its messages to send one; for the callers that leave some unset.
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
    const int32_t[::1] rank,  # IN (N,) position of each node in a whole order, read if direction is not 0
    int direction,  # 1: only to nodes of higher rank, -1: to lower ones and from the last node back, 0: to all
    double damping,  # share of the old message that is kept; below 0: there are no old messages
    Py_ssize_t start,
    Py_ssize_t stop,  # the nodes nodes[start:stop] send
    double[::1] work,  # workspace ((6 + K) * width,)
):
    """Let nodes send messages in turn; the largest change of one, or -1 - t if no state is left to node t."""
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
    double damping,  # share of the old message that is kept
    const int64_t[:, ::1] ranges,  # IN (m, 2) first and last of nodes that send to each other, and to no others
    double[::1] changes,  # OUT (m,) the largest change of a message, or -1 - t if no state is left to node t
    double[::1] work,  # workspace ((6 + K) * width,)
):
    """Let the nodes of some ranges send messages, forwards through each and then backwards."""
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
    int32_t[::1] position,  # INOUT (N,) of each node in the heap
    double tol,  # stop when no priority is above it
    double damping,
    Py_ssize_t n_nodes,  # nodes to let send at most
    double[::1] work,  # workspace ((6 + K) * width,)
):
    """Let nodes send, always the one whose input changed most; the highest priority left, or -1 - t."""
    cdef:
        Sweep[floating] sweep
        double left
    if priority.shape[0] == 0:
        return 0.0
    open_sweep(field, &sweep, messages, heap, heap, damping, work)
    with nogil:
        left = sweep.send_by_residual(&priority[0], &heap[0], &position[0], priority.shape[0], tol, n_nodes)
    return left
