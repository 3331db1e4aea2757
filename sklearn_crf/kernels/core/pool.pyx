"""The thread pool that all kernels of a process share: calls, signals of Python, forks and exit."""

import atexit
import os
import threading

from libcpp cimport bool as bool_t

cdef extern from "core/pool.hpp" namespace "crf" nogil:
    ctypedef int (*Check)()

    cdef cppclass Pool:
        @staticmethod
        Pool& shared()
        bool_t run(Block, void*, Py_ssize_t, int, Check) except +
        void close()

cdef extern from "Python.h" nogil:
    unsigned long PyThread_get_thread_ident()

cdef extern from "Python.h":
    int PyErr_CheckSignals()

# Python handles signals only in this thread.
cdef unsigned long main_thread = threading.main_thread().ident


cdef int check_signals() noexcept nogil:
    """Let Python handle signals; return -1 with the exception set if a handler raises."""
    with gil:
        return PyErr_CheckSignals()


cdef int run_blocks(Block function, void* context, Py_ssize_t n_blocks, int n_threads) except -1 nogil:
    """Call function(context, block) for every block, on at most n_threads threads including this one.

    Blocks start in ascending order. C++ exceptions and Ctrl-C become Python exceptions.
    """
    cdef Check check = NULL
    if PyThread_get_thread_ident() == main_thread:
        check = check_signals
    return 0 if Pool.shared().run(function, context, n_blocks, n_threads, check) else -1


cdef void call(void* context, Py_ssize_t block) noexcept with gil:
    function, errors = <object> context
    if errors:
        return
    try:
        function(block)
    except BaseException as error:
        errors.append(error)


def call_blocks(function, Py_ssize_t n_blocks, int n_threads):
    """Call the Python function(block) for every block on the pool; calls overlap only while they release the GIL."""
    cdef void* context
    errors = []
    arguments = function, errors
    context = <void*> arguments
    with nogil:
        run_blocks(call, context, n_blocks, n_threads)
    if errors:
        raise errors[0]


def close_pool():
    """End all helper threads; the next call starts new threads."""
    with nogil:
        Pool.shared().close()


def _enter_child():
    global main_thread
    main_thread = threading.main_thread().ident


# Python warns if a process forks while threads run, so the pool is closed before. Forks by other code, for which this
# hook is not called, also get an empty pool.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=close_pool, after_in_child=_enter_child)
atexit.register(close_pool)
