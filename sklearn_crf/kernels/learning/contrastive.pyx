"""Scores of stored assignments relative to the true assignment, their probabilities, and the gradients.

An assignment is stored by its differences from the truth: indices ``node * K + state`` of the changed states, and the
difference in the use of each entry of the flat tables. ``ptr`` has the first entry of each assignment.
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
    const double[::1] unary_gain,  # IN (N * K,) score of each state minus the score of the true state
    double[::1] gains,  # OUT (m,) node score of each assignment minus the node score of the truth
):
    """Score the changed nodes of every assignment."""
    cdef:
        Py_ssize_t a
        int64_t c, stop
        double even, odd
    with nogil:
        for a in range(gains.shape[0]):
            # Two sums, since each addition waits for the previous addition.
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
    const double[::1] share,  # IN (m,) weight of each assignment
    double[::1] unary,  # IN OUT (N * K,) without the true states
):
    """Add up the changed states of assignments by weight: the adjoint of scoring them."""
    cdef:
        Py_ssize_t a
        int64_t c
    with nogil:
        for a in range(share.shape[0]):
            if share[a] == 0:
                continue
            for c in range(ptr[a], ptr[a + 1]):
                unary[codes[c]] += share[a]


def list_pair_changes(
    const int64_t[::1] nodes,  # IN changed nodes of every assignment
    const int32_t[::1] states,  # IN new states of these nodes
    const int64_t[::1] ptr,  # IN (m + 1,)
    const int32_t[::1] truth,  # IN (N,)
    int32_t[::1] labels,  # IN OUT (N,) equal to the truth, restored before return
    const int64_t[::1] node_ptr,  # IN incidence of the graph
    const int32_t[::1] neighbor,
    const int32_t[::1] half_edge,
    const int32_t[::1] edge_type,
    const double[:, ::1] edge_weight,  # IN (E, R)
    Py_ssize_t n_columns,
    double[::1] total,  # workspace (n_cells,) of zeros, restored before return
    int64_t[::1] last_row,  # workspace (n_cells,) of -1
    int64_t[::1] counts,  # OUT (m,) number of entries of each assignment
    int64_t[::1] cells,  # OUT entries of the tables whose use differs from the truth
    double[::1] changes,  # OUT differences in use, weighted by edge weights
):
    """Compute the changes of the table statistics of assignments; return the number of entries."""
    cdef:
        Py_ssize_t a, feature
        Py_ssize_t n_features = edge_weight.shape[1]
        int64_t c, slot, edge, first, begin, n_found, n_entries = 0
        int32_t node, other
        int side
    with nogil:
        for a in range(counts.shape[0]):
            for c in range(ptr[a], ptr[a + 1]):
                labels[nodes[c]] = states[c]
            begin = n_found = n_entries
            for c in range(ptr[a], ptr[a + 1]):
                node = <int32_t> nodes[c]
                for slot in range(node_ptr[node], node_ptr[node + 1]):
                    other = neighbor[slot]
                    side = half_edge[slot] & 1
                    # An edge between two changed nodes is visited from both ends, but counted only at its tail.
                    if side and labels[other] != truth[other]:
                        continue
                    edge = half_edge[slot] >> 1
                    for feature in range(n_features):
                        first = (edge_type[edge] * n_features + feature) * n_columns * n_columns
                        n_found = _count(
                            first + _pair(labels, node, other, side, n_columns), edge_weight[edge, feature],
                            a, total, last_row, cells, n_found,
                        )
                        n_found = _count(
                            first + _pair(truth, node, other, side, n_columns), -edge_weight[edge, feature],
                            a, total, last_row, cells, n_found,
                        )
            for c in range(begin, n_found):
                # Skip entries whose changes cancel.
                if total[cells[c]] != 0:
                    changes[n_entries] = total[cells[c]]
                    total[cells[c]] = 0
                    cells[n_entries] = cells[c]
                    n_entries += 1
            counts[a] = n_entries - begin
            for c in range(ptr[a], ptr[a + 1]):
                labels[nodes[c]] = truth[nodes[c]]
    return n_entries


cdef inline int64_t _pair(
    const int32_t[::1] labels, int32_t node, int32_t other, int side, Py_ssize_t n_columns
) noexcept nogil:
    """Return the index of a table entry by the states of tail and head."""
    if side:
        return labels[other] * n_columns + labels[node]
    return labels[node] * n_columns + labels[other]


cdef inline int64_t _count(
    int64_t cell, double weight, int64_t row, double[::1] total, int64_t[::1] last_row, int64_t[::1] cells,
    int64_t n_found,
) noexcept nogil:
    """Add a weight to an entry, and list the entry the first time the row uses it."""
    if last_row[cell] != row:
        last_row[cell] = row
        cells[n_found] = cell
        n_found += 1
    total[cell] += weight
    return n_found


def add_pair_gains(
    const pair_code[::1] codes,
    const change[::1] changes,
    const int64_t[::1] ptr,
    const double[::1] tables,  # IN (n_cells,)
    double[::1] gains,  # IN OUT (m,)
):
    """Add the score differences of assignments from table entries."""
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


def add_pair_changes(
    const pair_code[::1] codes,
    const change[::1] changes,
    const int64_t[::1] ptr,
    const double[::1] share,  # IN (m,)
    double[::1] tables,  # IN OUT (n_cells,)
):
    """Add up the table entries of assignments by weight: the adjoint of scoring them."""
    cdef:
        Py_ssize_t a
        int64_t c
    with nogil:
        for a in range(share.shape[0]):
            if share[a] == 0:
                continue
            for c in range(ptr[a], ptr[a + 1]):
                tables[codes[c]] += share[a] * changes[c]


def normalize_sets(
    const int32_t[::1] set_of,  # IN (m,)
    const double[::1] set_weight,  # IN (n_sets,)
    double[::1] gains,  # IN OUT (m,) replaced by the weight of the set times the probability within the set
    double[::1] largest,  # workspace (n_sets,)
    double[::1] losses,  # OUT (n_sets,) the weight times -log of the truth's probability within the set
):
    """Compute the probability of each assignment within its set, which includes the truth with gain zero."""
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
