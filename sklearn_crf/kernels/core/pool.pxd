"""The thread pool that all kernels of a process share."""

cdef extern from "core/pool.hpp" namespace "crf" nogil:
    # A C++ function that may throw.
    ctypedef void (*Block)(void* context, Py_ssize_t block)

    cdef cppclass Threads:
        int (*run)(Block, void*, Py_ssize_t, int) except -1
        int n_threads


cdef int run_blocks(Block function, void* context, Py_ssize_t n_blocks, int n_threads) except -1 nogil


cdef inline Threads threads_of(int n_threads) noexcept nogil:
    """Return the function and number of threads by which a C++ kernel runs blocks in parallel."""
    cdef Threads made
    made.run, made.n_threads = run_blocks, n_threads
    return made
