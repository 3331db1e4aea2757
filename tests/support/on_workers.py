"""Questions to worker processes: where they are, and which threads they start."""

import os
from threading import get_ident

from joblib import parallel_config
from sklearn.base import clone

from sklearn_crf import _threads


def place(task, n_threads):
    """The process and the thread of a task."""
    return os.getpid(), get_ident(), n_threads


def reciprocal(task, n_threads):
    return 1 / task


def inside(task, n_threads):
    """Places of tasks of a task."""
    return {where[0] for where in _threads.map_coarse(place, range(8))}, os.getpid()


def pools_of_a_fit(estimator, X, y):
    """How many pools of threads a fit and a prediction start, and the threads that they would take."""
    n_pools = 0

    class Counted(_threads.ThreadPoolExecutor):
        def __init__(self, *args, **options):
            nonlocal n_pools
            n_pools += 1
            super().__init__(*args, **options)

    before, _threads.ThreadPoolExecutor = _threads.ThreadPoolExecutor, Counted
    try:
        fitted = clone(estimator).fit(X, y)
        fitted.score(X, y)
        return n_pools, _threads.split_threads(None, 100)
    finally:
        _threads.ThreadPoolExecutor = before


def of_engine(name, function, **options):
    """Result of a function while tasks of joblib go to an engine."""
    with parallel_config(name, **options):
        return function()
