# distutils: language = c++
"""Sweeps of messages between nodes of two states, where each message is one number, and conversions."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t

from sklearn_crf.kernels.core.addresses cimport set_address

cdef extern from "messages/odds.hpp" namespace "crf" nogil:
    cdef cppclass OddsSweep[Real]:
        const int64_t* ptr
        const int32_t* neighbor
        const int32_t* reverse
        const Real* unary
        const Real* coupling
        const Real* power
        const Real* share
        Real* odds
        const int32_t* nodes
        const int32_t* rank
        double damping
        Real* fresh
        double send_nodes(int, Py_ssize_t, Py_ssize_t)
        double renew(Py_ssize_t, Py_ssize_t)

    cdef cppclass OddsTables[Real]:
        int64_t n_features
        const int32_t* edge_type
        const Real* tables
        const Real* edge_weight

    cdef cppclass OddsConversion[Real]:
        void from_scores(
            const int64_t*, Py_ssize_t, const int32_t*, Py_ssize_t, OddsTables[Real], const Real*, const Real*,
            Py_ssize_t, Real*, double*, double*, Real*, Real*, Py_ssize_t)
        void from_probabilities(const Real*, Py_ssize_t, Py_ssize_t, const double*, Real*, Py_ssize_t)
        void to_probabilities(const Real*, const double*, Py_ssize_t, Real*, Py_ssize_t)


cdef void open_sweep(
    OddsSweep[floating]* sweep, object arrays, floating[::1] odds, const int32_t[::1] nodes, const int32_t[::1] rank,
    double damping, floating[::1] fresh
) except *:
    set_address(&sweep.ptr, arrays.ptr)
    set_address(&sweep.neighbor, arrays.neighbor)
    set_address(&sweep.reverse, arrays.reverse)
    set_address(&sweep.unary, arrays.unary)
    set_address(&sweep.coupling, arrays.coupling)
    set_address(&sweep.power, arrays.power)
    set_address(&sweep.share, arrays.share)
    sweep.odds, sweep.fresh, sweep.damping = &odds[0], &fresh[0], damping
    sweep.nodes = &nodes[0] if nodes.shape[0] else NULL
    sweep.rank = &rank[0] if rank.shape[0] else NULL


def send_odds(
    object arrays,  # IN ``sklearn_crf.inference._field.OddsField``
    floating[::1] odds,  # INOUT (2E + PADDING,) messages by the slot of the receiving node
    const int32_t[::1] nodes,  # IN (n,) in the order of sending
    const int32_t[::1] rank,  # IN (N,) position of each node in the order of all nodes, used if direction is not 0
    int direction,  # 1: to nodes of higher rank, -1: to nodes of lower rank, in reverse order, 0: to all
    double damping,  # weight of the old message
    Py_ssize_t start,
    Py_ssize_t stop,  # the nodes nodes[start:stop] send
    floating[::1] fresh,  # workspace (largest degree + PADDING,)
):
    """Send the messages of nodes in turn; return the largest change of a message."""
    cdef:
        OddsSweep[floating] sweep
        double change
    open_sweep(&sweep, arrays, odds, nodes, rank, damping, fresh)
    with nogil:
        change = sweep.send_nodes(direction, start, stop)
    return change


def renew_odds(
    object arrays,  # IN ``sklearn_crf.inference._field.OddsField``
    floating[::1] odds,  # INOUT (2E + PADDING,) messages by the slot of the receiving node
    const int32_t[::1] nodes,  # IN (n,) in the order of sending
    const int32_t[::1] rank,  # IN (N,) position of each node in that order
    double damping,  # weight of the old message
    const int64_t[:, ::1] ranges,  # IN (m, 2) first and last + 1 position of ranges without messages in between
    double[::1] changes,  # OUT (m,) largest change of a message in each range
    floating[::1] fresh,  # workspace (largest degree + PADDING,)
):
    """Send the messages of the nodes of some ranges, forwards through each range and then backwards."""
    cdef:
        OddsSweep[floating] sweep
        Py_ssize_t k
    open_sweep(&sweep, arrays, odds, nodes, rank, damping, fresh)
    with nogil:
        for k in range(ranges.shape[0]):
            changes[k] = sweep.renew(ranges[k, 0], ranges[k, 1])


def odds_of_scores(
    const int64_t[::1] ptr,  # IN (N + 1,)
    const int32_t[::1] half_edge,  # IN (2E,)
    const int32_t[::1] edge_type,  # IN (E,)
    const floating[:, :, :, ::1] tables,  # IN (T, R, 2, 2)
    const floating[:, ::1] edge_weight,  # IN (E, R), or no rows: the table of an edge is the first table of its type
    const floating[::1] power,  # IN (E,)
    const floating[:, ::1] probabilities,  # IN (N, width) exponentials of the scores of nodes in the first two columns
    floating[::1] unary,  # OUT (N,) log-odds of nodes from their scores and from tables
    double[::1] coupling,  # OUT (E,) exp(-|J|) with the sign of J
    double[::1] offset,  # OUT (2E,) term of the edge of a slot in the log-odds of its node
    floating[::1] couplings,  # OUT (2E + PADDING,) by slot, 1 in the padding
    floating[::1] powers,  # OUT (2E + PADDING,) by slot, 1 in the padding
):
    """Split the tables of edges into couplings of equal states and scores of nodes."""
    cdef:
        OddsConversion[floating] conversion
        OddsTables[floating] of_edges
        Py_ssize_t n_nodes = unary.shape[0], n_edges = coupling.shape[0]
        const floating* weights = &edge_weight[0, 0] if edge_weight.shape[0] else NULL
    if n_edges == 0 or n_nodes == 0:
        raise ValueError("odds_of_scores needs a model with edges.")
    of_edges.n_features, of_edges.edge_type = tables.shape[1], &edge_type[0]
    of_edges.tables, of_edges.edge_weight = &tables[0, 0, 0, 0], weights
    with nogil:
        conversion.from_scores(
            &ptr[0], n_nodes, &half_edge[0], n_edges, of_edges, &power[0], &probabilities[0, 0],
            probabilities.shape[1], &unary[0], &coupling[0], &offset[0], &couplings[0], &powers[0],
            couplings.shape[0]
        )


def odds_of_probabilities(
    const floating[:, ::1] messages,  # IN (2E, width) in the first two columns
    const double[::1] offset,  # IN (2E,)
    floating[::1] odds,  # OUT (2E + PADDING,), 1 in the padding
):
    """Convert probabilities to log-odds minus offsets."""
    cdef:
        OddsConversion[floating] conversion
        Py_ssize_t n = messages.shape[0]
    with nogil:
        conversion.from_probabilities(&messages[0, 0], messages.shape[1], n, &offset[0], &odds[0], odds.shape[0])


def probabilities_of_odds(
    const floating[::1] odds,  # IN (2E + PADDING,)
    const double[::1] offset,  # IN (2E,)
    floating[:, ::1] messages,  # OUT (2E, width) in the first two columns
):
    """Convert log-odds plus offsets to probabilities."""
    cdef:
        OddsConversion[floating] conversion
        Py_ssize_t n = messages.shape[0]
    with nogil:
        conversion.to_probabilities(&odds[0], &offset[0], n, &messages[0, 0], messages.shape[1])
