"""Junction trees: order of elimination, messages between cliques, marginals and best states."""

import numpy as np
from libc.math cimport INFINITY, exp, log
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset
from libcpp cimport bool
from libcpp.vector cimport vector

from sklearn_crf.kernels.exact.bucket_tables cimport (
    PADDED,
    Bucket,
    axes_of,
    fill_tables,
    padded,
    parts_of,
    take_apart,
    values_of,
)
from sklearn_crf.kernels.rows cimport exponentiate_all, logarithms, row_quotient, sum_product


# Elimination plans: orders, separators and the layout of tables, from the structure of a model.

cdef extern from "elimination_order.hpp" namespace "sklearn_crf" nogil:
    cdef cppclass Lists[T]:
        vector[int64_t] ptr
        vector[T] items

    void join_scopes(
        const int64_t* ptr, const int32_t* scope, int64_t n_scopes, int64_t n_nodes, Lists[int32_t]& neighbors
    ) except +
    int64_t degeneracy(const int64_t* ptr, const int32_t* neighbors, int64_t n_nodes) except +

    cdef cppclass MinFill:
        MinFill(const int64_t* ptr, const int32_t* neighbors, int64_t n_nodes, const double* log_states) except +
        bool run(double most_log_size, double most_steps, int32_t* order) except +

    void find_separators(
        const int64_t* ptr, const int32_t* neighbors, int64_t n_nodes, const int32_t* order, int64_t n_order,
        Lists[int32_t]& separators
    ) except +


cdef extern from "bucket_layout.hpp" namespace "sklearn_crf" nogil:
    cdef cppclass Problem:
        const int64_t *factor_ptr, *n_states, *separator_ptr
        const int32_t *scope, *order, *separators
        int64_t n_factors, n_nodes, n_buckets

    void split_separators(const Problem& p, Lists[int32_t]& sides) except +
    void lay_out_parts(
        const Problem& p, const int64_t* side_ptr, const int32_t* sides, const int64_t* value_start,
        int64_t padded_to, int64_t* buckets, vector[int64_t]& parts, vector[int64_t]& axes
    ) except +


cdef as_numbers(vector[int64_t]& items):
    cdef int64_t[::1] out = np.empty(items.size(), dtype=np.int64)
    if items.size():
        memcpy(&out[0], items.data(), items.size() * sizeof(int64_t))
    return np.asarray(out)


cdef as_nodes(vector[int32_t]& items):
    cdef int32_t[::1] out = np.empty(items.size(), dtype=np.int32)
    if items.size():
        memcpy(&out[0], items.data(), items.size() * sizeof(int32_t))
    return np.asarray(out)


cdef inline const int32_t* nodes_of(const int32_t[::1] given) noexcept nogil:
    return &given[0] if given.shape[0] else NULL


cdef inline const int64_t* numbers_of(const int64_t[::1] given) noexcept nogil:
    return &given[0] if given.shape[0] else NULL


def neighbors_of_scopes(
    const int64_t[::1] ptr,  # IN (n_scopes + 1,)
    const int32_t[::1] scope,  # IN nodes, scope by scope
    Py_ssize_t n_nodes,
):
    """Return the neighbours of each node, ascending, as ptr (n_nodes + 1,) and nodes."""
    cdef Lists[int32_t] found
    with nogil:
        join_scopes(&ptr[0], nodes_of(scope), ptr.shape[0] - 1, n_nodes, found)
    return as_numbers(found.ptr), as_nodes(found.items)


def least_width(
    const int64_t[::1] ptr,  # IN (n_nodes + 1,)
    const int32_t[::1] neighbors,  # IN
):
    """Return the degeneracy of a graph, a lower bound on the width of all elimination orders."""
    return degeneracy(&ptr[0], nodes_of(neighbors), ptr.shape[0] - 1)


def min_fill_order(
    const int64_t[::1] ptr,  # IN (n_nodes + 1,)
    const int32_t[::1] neighbors,  # IN ascending for each node
    const double[::1] log_states,  # IN (n_nodes,) logarithms of the numbers of states
    double most_log_size,  # limit on the joint states of a clique
    double most_steps,  # limit on the number of steps
):
    """Return the minimum-fill elimination order, (n_nodes,) int32, or None if it exceeds a limit."""
    cdef:
        Py_ssize_t n_nodes = ptr.shape[0] - 1
        int32_t[::1] order = np.empty(n_nodes, dtype=np.int32)
        MinFill* search
        bool found = True
    if n_nodes:
        with nogil:
            search = new MinFill(&ptr[0], nodes_of(neighbors), n_nodes, &log_states[0])
            try:
                found = search.run(most_log_size, most_steps, &order[0])
            finally:
                del search
    return np.asarray(order) if found else None


def separators_of(
    const int64_t[::1] ptr,  # IN (n_nodes + 1,)
    const int32_t[::1] neighbors,  # IN
    const int32_t[::1] order,  # IN nodes in the order of their elimination
):
    """Return the separator of each node of an order as ptr (n_order + 1,) and nodes."""
    cdef Lists[int32_t] found
    with nogil:
        find_separators(&ptr[0], nodes_of(neighbors), ptr.shape[0] - 1, nodes_of(order), order.shape[0], found)
    return as_numbers(found.ptr), as_nodes(found.items)


cdef class Elimination:
    """The factors of a problem over its free nodes, and an elimination order with its separators."""

    cdef:
        Problem problem
        object held

    def __init__(self, const int64_t[::1] factor_ptr, const int32_t[::1] scope, const int64_t[::1] n_states,
                 const int32_t[::1] order, const int64_t[::1] separator_ptr, const int32_t[::1] separators):
        self.held = (factor_ptr, scope, n_states, order, separator_ptr, separators)
        self.problem.factor_ptr, self.problem.scope = numbers_of(factor_ptr), nodes_of(scope)
        self.problem.n_factors, self.problem.n_nodes = factor_ptr.shape[0] - 1, n_states.shape[0]
        self.problem.n_states, self.problem.order = numbers_of(n_states), nodes_of(order)
        self.problem.separator_ptr, self.problem.separators = numbers_of(separator_ptr), nodes_of(separators)
        self.problem.n_buckets = order.shape[0]

    def sides(self):
        """Return the nodes of left and right tables, alternating, as ptr (2 * n_buckets + 1,) and nodes."""
        cdef Lists[int32_t] found
        with nogil:
            split_separators(self.problem, found)
        return as_numbers(found.ptr), as_nodes(found.items)

    def parts(self, const int64_t[::1] side_ptr, const int32_t[::1] sides, const int64_t[::1] value_start,
              int64_t[:, ::1] buckets):
        """Fill the last two fields of buckets; return parts (n_parts, 5) and axes (n_axes, 3)."""
        cdef vector[int64_t] parts, axes
        cdef int64_t padded_to = PADDED
        if buckets.shape[0]:
            with nogil:
                lay_out_parts(self.problem, &side_ptr[0], nodes_of(sides), numbers_of(value_start), padded_to,
                              &buckets[0, 0], parts, axes)
        return as_numbers(parts).reshape(-1, 5), as_numbers(axes).reshape(-1, 3)


# Variable elimination in factor graphs: messages of sums or maxima upwards, marginals downwards.
#
# The two tables of a bucket share only its node (bucket_tables.pxd). The sum over the states of the node is therefore a
# product of two matrices of exponentiated scores, and so are the marginals of both tables; no table over the node and
# its whole separator is needed. Rows of the left table and columns of the right table are first shifted by their
# maxima. If relevant terms could still underflow, the sums are computed by log-sum-exp for each joint state.

ROWS_PADDED_TO = PADDED

# Largest distance of a score from the maxima of its row and column at which exponentials are used. Relevant terms then
# exceed exp(-708), about the smallest normal double.
cdef double FARTHEST = 600.0

ctypedef fused state_t:
    uint8_t
    int32_t


cdef void shift_rows(double* table, Py_ssize_t n_rows, Py_ssize_t n, double* shift) noexcept nogil:
    cdef:
        Py_ssize_t i, j, width = padded(n)
        double top
        double* row
    for i in range(n_rows):
        row = table + i * width
        top = row[0]
        for j in range(1, n):
            top = row[j] if row[j] > top else top
        shift[i] = 0.0 if top == -INFINITY else top
        for j in range(n):
            row[j] -= shift[i]
        for j in range(n, width):
            row[j] = -INFINITY


cdef void shift_columns(double* table, Py_ssize_t n_rows, Py_ssize_t width, double* shift) noexcept nogil:
    cdef:
        Py_ssize_t i, j
        double* row
    for j in range(width):
        shift[j] = table[j]
    for i in range(1, n_rows):
        row = table + i * width
        for j in range(width):
            shift[j] = row[j] if row[j] > shift[j] else shift[j]
    for j in range(width):
        shift[j] = 0.0 if shift[j] == -INFINITY else shift[j]
    for i in range(n_rows):
        row = table + i * width
        for j in range(width):
            row[j] -= shift[j]


cdef struct Spread:
    double widest  # largest difference between a maximum and an allowed score
    bint forbids  # whether a score is -inf


cdef Spread spread_of(const double* table, Py_ssize_t n_rows, Py_ssize_t n) noexcept nogil:
    """Return the spread of a shifted table."""
    cdef:
        Py_ssize_t i, j, width = padded(n)
        double x, least = 0.0
        bint forbids = False
        Spread spread
    for i in range(n_rows):
        for j in range(n):
            x = table[i * width + j]
            if x == -INFINITY:
                forbids = True
            elif x < least:
                least = x
    spread.widest = -least
    spread.forbids = forbids
    return spread


cdef bint may_underflow(const Bucket* b, const double* left) noexcept nogil:
    """Return whether all terms of an allowed joint state of the separator might underflow."""
    cdef:
        Spread of_left = spread_of(left, b.left, b.own)
        Spread of_right = spread_of(left + b.left * padded(b.own), b.own, b.right)
    # At the maximum of a row, which is 0, the other table has a score of at least -widest, unless it forbids a score.
    if not of_right.forbids and of_right.widest < FARTHEST:
        return False
    if not of_left.forbids and of_left.widest < FARTHEST:
        return False
    return of_left.widest + of_right.widest >= FARTHEST


cdef void multiply(const double* x, const double* y, Py_ssize_t n_rows, Py_ssize_t n, Py_ssize_t x_width,
                   Py_ssize_t width, double* out) noexcept nogil:
    """Compute out (n_rows, width) = x (n_rows, n) y (n, width)."""
    cdef Py_ssize_t i
    for i in range(n_rows):
        sum_product(y, x + i * x_width, n, width, out + i * width)


cdef void transpose(const double* x, Py_ssize_t n_rows, Py_ssize_t n, Py_ssize_t width, Py_ssize_t out_width,
                    double* out) noexcept nogil:
    """Compute out (n, out_width) = x (n_rows, n) transposed, with zero padding."""
    cdef Py_ssize_t i, j
    for j in range(n):
        for i in range(n_rows):
            out[j * out_width + i] = x[i * width + j]
        for i in range(n_rows, out_width):
            out[j * out_width + i] = 0.0


cdef void maximise(const Bucket* b, const double* left, double* message, state_t* best) noexcept nogil:
    """Compute the maximum over the states of the node for each joint state of the separator, and its first argmax."""
    cdef:
        Py_ssize_t i, j, a, W = padded(b.own), R = padded(b.right)
        const double* right = left + b.left * W
        const double* row
        double x
    for i in range(b.left):
        for j in range(R):
            message[j] = -INFINITY
            best[j] = 0
        for a in range(b.own):
            x, row = left[i * W + a], right + a * R
            for j in range(R):
                if x + row[j] > message[j]:
                    message[j] = x + row[j]
                    best[j] = <state_t> a
        message += R
        best += R


cdef void sum_one_by_one(const Bucket* b, const double* left, double* product) noexcept nogil:
    """Compute log-sum-exp for each joint state of the separator, without matrix products."""
    cdef:
        Py_ssize_t i, j, a, W = padded(b.own), R = padded(b.right)
        const double* right = left + b.left * W
        double top, total, x
    for i in range(b.left):
        for j in range(R):
            top = -INFINITY
            for a in range(b.own):
                x = left[i * W + a] + right[a * R + j]
                top = x if x > top else top
            total = 0.0
            if top > -INFINITY:
                for a in range(b.own):
                    total += exp(left[i * W + a] + right[a * R + j] - top)
                top += log(total)
            product[i * R + j] = top


cdef void marginals_one_by_one(const Bucket* b, double* left, const double* product, const double* above,
                               double* workspace) noexcept nogil:
    """Replace tables of scores by marginals."""
    cdef:
        Py_ssize_t i, j, a, cell, W = padded(b.own), R = padded(b.right), size = b.left * W + b.own * R
        double* right = left + b.left * W
        double joint
    memset(workspace, 0, size * sizeof(double))
    for i in range(b.left):
        for a in range(b.own):
            for j in range(b.right):
                cell = i * R + j
                if above[cell] > 0.0:
                    joint = exp(left[i * W + a] + right[a * R + j] - product[cell]) * above[cell]
                    workspace[i * W + a] += joint
                    workspace[b.left * W + a * R + j] += joint
    for cell in range(size):
        left[cell] = workspace[cell]


cdef void marginals_by_products(const Bucket* b, double* left, double* product, const double* above,
                                double* workspace) noexcept nogil:
    """Replace exponentiated tables by marginals; overwrites `product`."""
    cdef:
        Py_ssize_t cell, W = padded(b.own), R = padded(b.right), n_left = b.left * W, n_right = b.own * R
        double* right = left + n_left
        double* turned = workspace + n_left + n_right
    row_quotient(above, <const double*> product, b.left * R, product)
    transpose(right, b.own, b.right, R, W, turned)
    multiply(product, turned, b.left, b.right, R, W, workspace)
    transpose(left, b.left, b.own, W, b.left, turned)
    multiply(turned, product, b.own, b.left, b.left, R, workspace + n_left)
    for cell in range(n_left + n_right):
        left[cell] *= workspace[cell]


def send_maxima(
    const int64_t[:, ::1] buckets,  # IN (n_buckets, 9) the fields of Bucket
    const int64_t[:, ::1] parts,  # IN (n_parts, 5) the fields of Part
    const int64_t[:, ::1] axes,  # IN (n_axes, 3) the fields of Axis
    const double[::1] values,  # IN scores of factors
    double[::1] workspace,  # workspace for the tables of the largest bucket
    double[::1] messages,  # OUT best scores
    state_t[::1] best,  # OUT best states of the nodes, for each joint state of the separators
):
    """Compute the messages of all buckets for the best labeling."""
    cdef:
        const Bucket* b
        Py_ssize_t k
    if not buckets.shape[0]:
        return
    with nogil:
        for k in range(buckets.shape[0]):
            b = <const Bucket*> &buckets[k, 0]
            fill_tables(b, parts_of(parts), axes_of(axes), values_of(values), &messages[0], &workspace[0])
            maximise(b, &workspace[0], &messages[b.message], &best[b.message])


def send_sums(
    const int64_t[:, ::1] buckets,  # IN (n_buckets, 9) the fields of Bucket
    const int64_t[:, ::1] parts,  # IN (n_parts, 5) the fields of Part
    const int64_t[:, ::1] axes,  # IN (n_axes, 3) the fields of Axis
    const double[::1] values,  # IN scores of factors
    double[::1] tables,  # OUT exponentials of the shifted scores, or the scores if is_log
    double[::1] products,  # OUT sums over the states of the nodes, or their logarithms
    double[::1] shifts,  # OUT subtracted maxima
    double[::1] messages,  # OUT logarithms of sums
    uint8_t[::1] is_log,  # OUT (n_buckets,) whether tables hold scores, not exponentials
):
    """Compute the messages of all buckets for the log-partition, and keep the tables for the backward pass."""
    cdef:
        const Bucket* b
        Py_ssize_t k, i, j, W, R
        double* left
        double* product
        double* message
        double* shift
    if not buckets.shape[0]:
        return
    with nogil:
        for k in range(buckets.shape[0]):
            b = <const Bucket*> &buckets[k, 0]
            W, R = padded(b.own), padded(b.right)
            left, shift = &tables[b.table], &shifts[b.shift]
            product, message = &products[b.message], &messages[b.message]
            fill_tables(b, parts_of(parts), axes_of(axes), values_of(values), &messages[0], left)
            shift_rows(left, b.left, b.own, shift)
            shift_columns(left + b.left * W, b.own, R, shift + b.left)
            is_log[k] = may_underflow(b, left)
            if is_log[k]:
                sum_one_by_one(b, left, product)
                for i in range(b.left * R):
                    message[i] = product[i]
            else:
                exponentiate_all(left, b.left * W + b.own * R)
                multiply(left, left + b.left * W, b.left, b.own, W, R, product)
                logarithms(product, b.left * R, message)
            for i in range(b.left):
                for j in range(R):
                    message[i * R + j] += shift[i] + shift[b.left + j]


def return_marginals(
    const int64_t[:, ::1] buckets,  # IN (n_buckets, 9) the fields of Bucket
    const int64_t[:, ::1] parts,  # IN (n_parts, 5) the fields of Part
    const int64_t[:, ::1] axes,  # IN (n_axes, 3) the fields of Axis
    double[::1] tables,  # INOUT tables of send_sums, replaced by marginals
    double[::1] products,  # INOUT products of send_sums, overwritten
    double[::1] messages,  # OUT marginals of separators
    const uint8_t[::1] is_log,  # IN (n_buckets,)
    double[::1] workspace,  # workspace
    double[::1] nodes,  # OUT marginals of nodes
    double[::1] values,  # INOUT marginals of factors are added
):
    """Compute the marginals of nodes and factors, from the last bucket to the first."""
    cdef:
        const Bucket* b
        Py_ssize_t k, i, a, W
        double* left
    if not buckets.shape[0]:
        return
    with nogil:
        memset(&messages[0], 0, messages.shape[0] * sizeof(double))
        for k in range(buckets.shape[0] - 1, -1, -1):
            b = <const Bucket*> &buckets[k, 0]
            W, left = padded(b.own), &tables[b.table]
            if b.left == 1 and b.right == 1:
                # An empty separator: this is the last node of its component.
                messages[b.message] = 1.0
            if is_log[k]:
                marginals_one_by_one(b, left, &products[b.message], &messages[b.message], &workspace[0])
            else:
                marginals_by_products(b, left, &products[b.message], &messages[b.message], &workspace[0])
            for a in range(b.own):
                nodes[b.node + a] = 0.0
                for i in range(b.left):
                    nodes[b.node + a] += left[i * W + a]
            take_apart(b, parts_of(parts), axes_of(axes), left, <double*> values_of(values), &messages[0])


def trace_maxima(
    const int64_t[:, ::1] buckets,  # IN (n_buckets, 9) the fields of Bucket
    const int32_t[::1] nodes,  # IN (n_buckets,) node of each bucket
    const int64_t[::1] side_ptr,  # IN (2 * n_buckets + 1,) left and right nodes of each bucket, alternating
    const int32_t[::1] side_nodes,  # IN
    const int64_t[::1] n_states,  # IN (n_nodes,)
    const state_t[::1] best,  # IN best states of send_maxima
    int32_t[::1] place,  # OUT (n_nodes,) best state of each node
):
    """Decode the best states of all nodes, from the last bucket to the first."""
    cdef:
        const Bucket* b
        Py_ssize_t k, i
        int64_t[2] cell
    if not buckets.shape[0]:
        return
    with nogil:
        for k in range(buckets.shape[0] - 1, -1, -1):
            b = <const Bucket*> &buckets[k, 0]
            cell[0] = cell[1] = 0
            for i in range(side_ptr[2 * k], side_ptr[2 * k + 1]):
                cell[0] = cell[0] * n_states[side_nodes[i]] + place[side_nodes[i]]
            for i in range(side_ptr[2 * k + 1], side_ptr[2 * k + 2]):
                cell[1] = cell[1] * n_states[side_nodes[i]] + place[side_nodes[i]]
            place[nodes[k]] = best[b.message + cell[0] * padded(b.right) + cell[1]]
