"""Addresses of arrays, for structs that kernels read."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

ctypedef fused number:
    int8_t
    uint8_t
    int32_t
    int64_t
    float
    double


cdef inline int set_address(const number** place, object array) except -1:
    """Store the address of an array that the caller keeps alive, or NULL if it is empty."""
    cdef const number[::1] view = array
    place[0] = &view[0] if view.shape[0] else NULL
    return 0
