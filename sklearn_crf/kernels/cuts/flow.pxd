"""Declarations of the C++ headers for maximum flow, for the kernels that call it."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from sklearn_crf.kernels.cuts.binary_edge cimport capacity


cdef extern from "flow_buffers.hpp" namespace "crf" nogil:
    cdef cppclass Buffers[Cap]:
        Cap* residual
        Cap* excess
        int32_t* label
        int32_t* next
        int32_t* lists
        int32_t* bucket
        void* parent
        uint8_t* flag
        int64_t n_nodes
        int64_t n_arcs
        int64_t n_listed
        int64_t n_buckets


cdef extern from "flow_calls.hpp" namespace "crf" nogil:
    cdef cppclass Box:
        int n_axes
        const int64_t* shape
        const int64_t* low
        const int64_t* high
        const int32_t* listed
        int64_t n_listed
    bint run_lattice[Cap](
        const Buffers[Cap]&, const int64_t*, int, int64_t, const Box&, int64_t, int64_t*, int64_t
    )
    bint run_heights[Cap](const Buffers[Cap]&, const int64_t*, int, int64_t)
    bint run_slots[Cap](
        const Buffers[Cap]&, const int64_t*, const int32_t*, const int32_t*, int64_t*, int64_t
    )
    bint run_mirrored[Cap](
        const Buffers[Cap]&, const int64_t*, const int32_t*, const int32_t*, const uint8_t*, int64_t*, int64_t
    )


cdef extern from "flow_head_start.hpp" namespace "crf" nogil:
    void flow_along_lines[Cap](const Buffers[Cap]&, int64_t, int, int, int64_t, Cap*, Cap*)
    void spread[Cap](const Buffers[Cap]&, const int64_t*, int, int64_t, const int32_t*, int64_t, bint)


cdef inline void open_lattice(
    Buffers[capacity]* buffers,
    capacity[:, ::1] residual,
    capacity[::1] excess,
    int32_t[::1] label,
    uint8_t[::1] parent,
    uint8_t[::1] flag,
    int32_t[::1] next_,
    int32_t[:, ::1] lists,
    int32_t[::1] bucket,
) noexcept:
    """Set pointers to the arrays of a lattice, which the caller keeps alive."""
    buffers.residual, buffers.excess, buffers.label = &residual[0, 0], &excess[0], &label[0]
    buffers.parent, buffers.flag = <void*> &parent[0], &flag[0]
    buffers.next, buffers.lists, buffers.bucket = &next_[0], &lists[0, 0], &bucket[0]
    buffers.n_nodes, buffers.n_arcs = excess.shape[0], excess.shape[0] * residual.shape[1]
    buffers.n_listed, buffers.n_buckets = lists.shape[1], bucket.shape[0]


cdef inline Box open_box(const int64_t[::1] shape, const int64_t[:, ::1] box) noexcept:
    """Return a box with pointers to the shape of a lattice and the bounds of the box."""
    cdef Box part
    part.n_axes, part.shape, part.low, part.high = <int> shape.shape[0], &shape[0], &box[0, 0], &box[1, 0]
    part.listed = NULL
    return part
