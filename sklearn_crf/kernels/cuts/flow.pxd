"""Maximum flow as the C++ headers have it, for the kernels that call it."""

from libc.stdint cimport int32_t, int64_t, uint8_t


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
    bint run_lattice[Cap](
        const Buffers[Cap]&, const int64_t*, int, int64_t, const Box&, int64_t, int64_t*, int64_t
    )
    bint run_slots[Cap](
        const Buffers[Cap]&, const int64_t*, const int32_t*, const int32_t*, int64_t*, int64_t
    )
    bint run_mirrored[Cap](
        const Buffers[Cap]&, const int64_t*, const int32_t*, const int32_t*, const uint8_t*, int64_t*, int64_t
    )


cdef extern from "flow_head_start.hpp" namespace "crf" nogil:
    void flow_along_lines[Cap](const Buffers[Cap]&, int64_t, int, int, int64_t, Cap*, Cap*)
    void spread[Cap](const Buffers[Cap]&, const int64_t*, int, int64_t, bint)
