"""Functions that run in worker processes and report processes, threads and thread pools."""

import os
from threading import get_ident

from joblib import parallel_config
from sklearn.base import clone

from sklearn_crf import _threads


def place(task, n_threads):
    """Return the ids of the process and the thread that run a task, and the number of threads that the task may use."""
    return os.getpid(), get_ident(), n_threads


def reciprocal(task, n_threads):
    return 1 / task


def inside(task, n_threads):
    """Return the ids of the processes that run the subtasks of a task, and the id of the process of the task itself."""
    return {where[0] for where in _threads.map_coarse(place, range(8))}, os.getpid()


def pools_of_a_fit(estimator, X, y):
    """Return the number of thread pools that a fit and a prediction start, and the number of threads available."""
    n_pools = 0

    class Counted(_threads.ThreadPoolExecutor):
        def __init__(self, *args, **options):
            nonlocal n_pools
            n_pools += 1
            super().__init__(*args, **options)

    _threads._helpers.close()  # this call would otherwise use threads of earlier calls, and start none
    before, _threads.ThreadPoolExecutor = _threads.ThreadPoolExecutor, Counted
    try:
        fitted = clone(estimator).fit(X, y)
        fitted.score(X, y)
        return n_pools, _threads.split_threads(None, 100)
    finally:
        _threads.ThreadPoolExecutor = before


def of_engine(name, function, **options):
    """Return the result of a function that runs with a given backend of joblib."""
    with parallel_config(name, **options):
        return function()
