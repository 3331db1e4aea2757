# distutils: language = c++
"""Elimination plans: orders, separators and the layout of tables, from the structure of a model."""

import numpy as np

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy
from libcpp cimport bool
from libcpp.vector cimport vector

from sklearn_crf.kernels.exact.elimination import ROWS_PADDED_TO


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
        cdef int64_t padded_to = ROWS_PADDED_TO
        if buckets.shape[0]:
            with nogil:
                lay_out_parts(self.problem, &side_ptr[0], nodes_of(sides), numbers_of(value_start), padded_to,
                              &buckets[0, 0], parts, axes)
        return as_numbers(parts).reshape(-1, 5), as_numbers(axes).reshape(-1, 3)
