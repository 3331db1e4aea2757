# distutils: language = c++
"""Parallel mean-field updates of a dense field whose messages wait at the vertices of lattices."""

from cython cimport floating
from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector


cdef extern from "mean_field.hpp" namespace "crf" nogil:
    cdef cppclass Reading[T]:
        const int32_t* vertex_of
        const T* weight_of
        int64_t n_corners
        const T* vertices
    cdef cppclass MeanFieldUpdate[T]:
        const T* unary
        int64_t width
        T inertia
        T* logits
        T* marginals
        double run(const vector[Reading[T]]&, int64_t, int64_t)


def update_points(
    const floating[:, ::1] unary,  # IN (N, width) padded with -inf
    list readings,  # IN of (vertex (N, d + 1) int32, weight (N, d + 1), vertices (M + 1, width))
    Py_ssize_t start,
    Py_ssize_t stop,
    double inertia,
    floating[:, ::1] logits,  # IN OUT (N, width), or (0, 0) without inertia
    floating[:, ::1] marginals,  # IN OUT (N, width) replaced by the softmax of unary scores and messages
):
    """Update points start to stop; largest change of a probability."""
    cdef:
        const int32_t[:, ::1] vertex_of
        const floating[:, ::1] weight_of
        const floating[:, ::1] vertices
        vector[Reading[floating]] read
        Reading[floating] one
        MeanFieldUpdate[floating] update
        double change = 0
    if start >= stop:
        return 0.0
    # The list keeps the arrays alive while the vector points at them.
    for vertex_of, weight_of, vertices in readings:
        one.vertex_of, one.weight_of = &vertex_of[0, 0], &weight_of[0, 0]
        one.n_corners, one.vertices = vertex_of.shape[1], &vertices[0, 0]
        read.push_back(one)
    update.unary, update.width = &unary[0, 0], unary.shape[1]
    update.marginals, update.inertia = &marginals[0, 0], <floating> inertia
    if logits.shape[0]:
        update.logits = &logits[0, 0]
    with nogil:
        change = update.run(read, start, stop)
    return change
