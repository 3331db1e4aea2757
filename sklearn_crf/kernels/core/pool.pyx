# distutils: language = c++
"""The pool of threads that all kernels of a process share: its calls, and Python's signals, forks and exit."""

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

# Python handles signals in this thread alone.
cdef unsigned long main_thread = threading.main_thread().ident


cdef int check_signals() noexcept nogil:
    """Let Python handle signals; -1 with its exception set if that raises one."""
    with gil:
        return PyErr_CheckSignals()


cdef int run_blocks(Block function, void* context, Py_ssize_t n_blocks, int n_threads) except -1 nogil:
    """Call function(context, block) for every block, on at most so many threads, this one included.

    Blocks are claimed in their order. An exception of C++ becomes one of Python, and so does Ctrl-C.
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
    """Call function(block) for every block on threads of the pool, one at a time but for what drops the lock."""
    cdef void* context
    errors = []
    arguments = function, errors
    context = <void*> arguments
    with nogil:
        run_blocks(call, context, n_blocks, n_threads)
    if errors:
        raise errors[0]


def close_pool():
    """End all helpers; the next call starts new ones."""
    with nogil:
        Pool.shared().close()


def _enter_child():
    global main_thread
    main_thread = threading.main_thread().ident


# Python warns of a fork while there are threads. One that comes from elsewhere leaves the child an empty pool, too.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=close_pool, after_in_child=_enter_child)
atexit.register(close_pool)
