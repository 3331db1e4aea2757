"""Scores of stored assignments relative to the true one, their shares of probability, and the derivatives.

An assignment is kept as what it changes: numbers ``node * K + state`` of the states it gives to nodes, and how many
times more than the truth it uses each entry of the flat tables. ``ptr`` tells where those of an assignment begin.
"""

from libc.math cimport exp, log
from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t

ctypedef fused node_code:
    uint16_t
    uint32_t

ctypedef fused pair_code:
    uint16_t
    uint32_t

ctypedef fused change:
    int16_t
    float
    double


def node_gains(
    const node_code[::1] codes,
    const int64_t[::1] ptr,
    const double[::1] unary_gain,  # IN (N * K,) score of each state less that of the true one
    double[::1] gains,  # OUT (m,) score of each assignment less that of the truth, edges left out
):
    """Score the changed nodes of every assignment."""
    cdef:
        Py_ssize_t a
        int64_t c, stop
        double even, odd
    with nogil:
        for a in range(gains.shape[0]):
            # Two sums, since each addition waits for the one before.
            even = odd = 0.0
            c = ptr[a]
            stop = ptr[a + 1]
            while c + 1 < stop:
                even += unary_gain[codes[c]]
                odd += unary_gain[codes[c + 1]]
                c += 2
            if c < stop:
                even += unary_gain[codes[c]]
            gains[a] = even + odd


def add_node_changes(
    const node_code[::1] codes,
    const int64_t[::1] ptr,
    const double[::1] share,  # IN (m,) how much of each assignment
    double[::1] unary,  # IN OUT (N * K,) the truth's states are left out
):
    """Add up the states that assignments give to nodes, the adjoint of their scores."""
    cdef:
        Py_ssize_t a
        int64_t c
    with nogil:
        for a in range(share.shape[0]):
            for c in range(ptr[a], ptr[a + 1]):
                unary[codes[c]] += share[a]


def listed_pair_gains(
    const pair_code[::1] codes,
    const change[::1] changes,
    const int64_t[::1] ptr,
    const double[::1] tables,  # IN (n_cells,)
    double[::1] gains,  # IN OUT (m,)
):
    """Add the scores of the entries of the tables that assignments use more or less often than the truth."""
    cdef:
        Py_ssize_t a
        int64_t c
        double total
    with nogil:
        for a in range(gains.shape[0]):
            total = 0.0
            for c in range(ptr[a], ptr[a + 1]):
                total += changes[c] * tables[codes[c]]
            gains[a] += total


def add_listed_pairs(
    const pair_code[::1] codes,
    const change[::1] changes,
    const int64_t[::1] ptr,
    const double[::1] share,  # IN (m,)
    double[::1] tables,  # IN OUT (n_cells,)
):
    """The adjoint of that."""
    cdef:
        Py_ssize_t a
        int64_t c
    with nogil:
        for a in range(share.shape[0]):
            for c in range(ptr[a], ptr[a + 1]):
                tables[codes[c]] += share[a] * changes[c]


def all_pair_gains(
    const change[:, ::1] changes,  # IN (m, n_cells)
    const double[::1] tables,  # IN (n_cells,)
    double[::1] gains,  # IN OUT (m,)
):
    """The same where every entry is kept."""
    cdef:
        Py_ssize_t a, c
        double total
    with nogil:
        for a in range(gains.shape[0]):
            total = 0.0
            for c in range(tables.shape[0]):
                # What is not used may be forbidden.
                if changes[a, c] != 0:
                    total += changes[a, c] * tables[c]
            gains[a] += total


def add_all_pairs(
    const change[:, ::1] changes,  # IN (m, n_cells)
    const double[::1] share,  # IN (m,)
    double[::1] tables,  # IN OUT (n_cells,)
):
    """The adjoint of that."""
    cdef:
        Py_ssize_t a, c
    with nogil:
        for a in range(share.shape[0]):
            for c in range(tables.shape[0]):
                tables[c] += share[a] * changes[a, c]


def normalize_sets(
    const int32_t[::1] set_of,  # IN (m,)
    const double[::1] set_weight,  # IN (n_sets,)
    double[::1] gains,  # IN OUT (m,) becomes the weight of the set times the probability within it
    double[::1] largest,  # work space (n_sets,)
    double[::1] losses,  # OUT (n_sets,) the weight times -log of the truth's probability within the set
):
    """Share probability out within each set, of which the truth, of gain zero, is one."""
    cdef:
        Py_ssize_t a
        int32_t j
    with nogil:
        for j in range(losses.shape[0]):
            largest[j] = 0.0
        for a in range(gains.shape[0]):
            j = set_of[a]
            if gains[a] > largest[j]:
                largest[j] = gains[a]
        for j in range(losses.shape[0]):
            losses[j] = exp(-largest[j])
        for a in range(gains.shape[0]):
            j = set_of[a]
            gains[a] = exp(gains[a] - largest[j])
            losses[j] += gains[a]
        for a in range(gains.shape[0]):
            j = set_of[a]
            gains[a] *= set_weight[j] / losses[j]
        for j in range(losses.shape[0]):
            losses[j] = set_weight[j] * (largest[j] + log(losses[j]))
