"""Random numbers that depend on a counter, not on the thread: SplitMix64 (Steele, Lea and Flood 2014)."""

from libc.math cimport M_PI, cos, log1p, sqrt
from libc.stdint cimport uint64_t


cdef inline uint64_t scrambled(uint64_t bits) noexcept nogil:
    """Mix bits by the output function of SplitMix64: every output bit depends on all input bits."""
    bits = (bits ^ (bits >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    bits = (bits ^ (bits >> 27)) * <uint64_t> 0x94D049BB133111EB
    return bits ^ (bits >> 31)


cdef inline double uniform(uint64_t key, uint64_t counter) noexcept nogil:
    """Return number ``counter`` of the SplitMix64 stream that starts at ``key``, in [0, 1)."""
    cdef uint64_t bits = scrambled(key + (counter + 1) * <uint64_t> 0x9E3779B97F4A7C15)
    return <double> (bits >> 11) * (1.0 / 9007199254740992.0)


cdef inline double normal(uint64_t key, uint64_t counter) noexcept nogil:
    """Return standard normal number ``counter`` of a stream, by the Box-Muller method from two uniform numbers."""
    cdef double radius = sqrt(-2.0 * log1p(-uniform(key, 2 * counter)))
    return radius * cos(2.0 * M_PI * uniform(key, 2 * counter + 1))
