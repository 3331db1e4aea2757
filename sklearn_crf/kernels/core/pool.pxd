"""The pool of threads that all kernels of a process share."""

cdef extern from "core/pool.hpp" namespace "crf" nogil:
    # A C++ function, which may throw.
    ctypedef void (*Block)(void* context, Py_ssize_t block)


cdef int run_blocks(Block function, void* context, Py_ssize_t n_blocks, int n_threads) except -1 nogil
