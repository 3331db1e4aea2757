"""Distribution of work over the threads of this process, or over the workers of a joblib backend."""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Any, Generic, TypeVar, overload

import numpy as np
from joblib import effective_n_jobs, parallel_config
from joblib.parallel import get_active_backend
from sklearn import config_context, get_config
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import ThreadpoolController

from sklearn_crf._reports import get_warning_state, set_warning_state

_current = threading.local()
_Value = TypeVar("_Value")


class cached_property(Generic[_Value]):
    """Property that is computed once for each instance, without a lock.

    In Python 3.11, ``functools.cached_property`` uses a lock. If a process is forked while a thread has this lock, the
    child process waits forever. Without a lock, two threads may both compute the value; both return the first result.
    """

    def __init__(self, function: Callable[[Any], _Value]):
        self.function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str):
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "cached_property[_Value]": ...

    @overload
    def __get__(self, instance: object, owner: type) -> _Value: ...

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return instance.__dict__.setdefault(self.name, self.function(instance))


def allocate_workspace(n: int, dtype: Any = np.float64) -> np.ndarray:
    """Return a workspace of n numbers for one thread; the workspace shares no cache lines with other workspaces."""
    return np.empty(n + 2 * _LINES_APART, dtype=dtype)[_LINES_APART : _LINES_APART + n]


# Number of four-byte numbers in a pair of cache lines, because processors fetch cache lines in pairs.
_LINES_APART = 32


class Cancelled(Exception):
    """Exception that ends a task at its next sweep, after Ctrl-C or after an error in an earlier task."""


class _HelperThreads:
    """Helper threads of this process, which all callers share and which sleep between calls."""

    def __init__(self):
        self.forget()

    def forget(self):
        """Forget all helpers, for example in a forked process, which does not contain the threads of its parent."""
        self._lock = threading.Lock()
        self._executor: Any = None
        self._n_helpers = self._n_users = 0

    @contextmanager
    def lend_threads(self, n_helpers):
        """Yield a function like ``Executor.submit``, which uses at most ``n_helpers`` helpers at a time."""
        with self._lock:
            self._n_users += 1
        try:
            yield partial(self._submit, n_helpers)
        finally:
            with self._lock:
                self._n_users -= 1

    def _submit(self, n_helpers, function):
        with self._lock:
            if self._n_helpers < n_helpers:
                self._end(wait=False)
                # Do not use joblib's pool: for each of its additional threads, the C library retains freed memory.
                self._executor, self._n_helpers = ThreadPoolExecutor(n_helpers), n_helpers
            return self._executor.submit(function)

    def _end(self, wait):
        if self._executor is not None:
            self._executor.shutdown(wait=wait)
        self._executor, self._n_helpers = None, 0

    def close(self):
        """End all helper threads, and wait until they have ended unless they are in use.

        Helpers end before a fork, because Python issues a warning if a process forks while threads run.
        """
        with self._lock:
            self._end(wait=not self._n_users)


_helpers = _HelperThreads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_helpers.close, after_in_child=_helpers.forget)


class _SharedItems:
    """Numbered work items, which several threads process one after the other.

    An error stops all items with larger numbers, and an interruption stops all items. The failing item with the
    smallest number is always started, so that the raised error does not depend on threads.
    """

    def __init__(self, function, n_items):
        self.function, self.n_items = function, n_items
        self.lock, self.n_begun = threading.Lock(), 0
        self.results = [None] * n_items
        self.errors: dict[int, Exception] = {}
        self.interrupted = False
        self.around = getattr(_current, "cancelled", None)
        self.warning, self.config = get_warning_state(), get_config()

    def _take_next(self):
        """Return the number of the next item.

        Without the lock, two threads of free-threaded Python might get the same number.
        """
        with self.lock:
            self.n_begun += 1
            return self.n_begun - 1

    def work(self):
        """Process items until no item is left."""
        try:
            # Take items in ascending order, so that all items after an error can be skipped.
            while (i := self._take_next()) < self.n_items and not self.errors and not self.interrupted:
                _current.cancelled = _Cancellation(self, i)
                try:
                    checkpoint()
                    self.results[i] = self.function(i)
                except Exception as error:
                    self.errors[i] = error
        finally:
            _current.cancelled = self.around

    def help(self):
        """Process items in a helper thread, with the scikit-learn configuration of the calling thread."""
        set_warning_state(self.warning)
        with config_context(**self.config):
            self.work()


@dataclass(eq=False)
class _Cancellation:
    """Object that is true if the thread that processes an item must stop."""

    shared: _SharedItems
    number: int

    def __bool__(self):
        shared = self.shared
        return shared.interrupted or bool(shared.around) or min(list(shared.errors), default=self.number) < self.number


def checkpoint() -> None:
    """Raise Cancelled if the computation was interrupted; iterative algorithms call this function once per sweep."""
    if getattr(_current, "cancelled", None):
        raise Cancelled


@contextmanager
def keep_tasks_in_process():
    """Run tasks of :func:`map_coarse` in this process while the context is active, as during a fit."""
    around = getattr(_current, "is_in_fit", False)
    try:
        _current.is_in_fit = True
        yield
    finally:
        _current.is_in_fit = around


def _run_shared_items(function, n_items, n_threads):
    """Compute ``[function(i) for i in range(n_items)]`` in this thread and its helpers.

    This thread does not wait for helpers to wake up. If waking takes longer than the work, this thread does all work.
    """
    shared, calls = _SharedItems(function, n_items), []
    with _helpers.lend_threads(n_threads - 1) as submit:
        try:
            for _ in range(min(n_threads, n_items) - 1):
                calls.append(submit(shared.help))
            shared.work()
            for call in calls:
                if not call.cancel():
                    call.result()
        except BaseException:
            shared.interrupted = True
            wait([call for call in calls if not call.cancel()])
            raise
    if shared.errors:
        error = shared.errors[min(shared.errors)]
        try:
            raise error
        finally:
            del error, shared  # break the reference cycle between traceback and error, so that results are not retained
    return shared.results


def count_threads(n_jobs: int | None) -> int:
    """Return the number of threads for ``n_jobs`` as scikit-learn does, but without counting workers of a cluster."""
    if n_jobs is not None and (not isinstance(n_jobs, int | np.integer) or n_jobs == 0):
        raise ValueError(f"n_jobs must be 1 for one thread, -1 for one for each core, or None; got {n_jobs!r}.")
    is_local = type(get_active_backend()[0]).__module__.startswith("joblib._parallel_backends")
    # Ignore the worker count of a cluster, which only applies to tasks that joblib distributes.
    with nullcontext() if is_local else parallel_config(backend="threading"):
        return min(effective_n_jobs(1 if n_jobs is None and not is_local else n_jobs), 2**31 - 1)


def split_threads(n_jobs: int | None, n_tasks: int) -> tuple[int, int]:
    """Return the number of concurrent tasks (outer) and of threads per task (inner); outer * inner <= n_jobs."""
    n_jobs = count_threads(n_jobs)
    outer = max(1, min(n_jobs, n_tasks))
    return outer, max(1, n_jobs // outer)


def map_tasks(function, tasks, n_jobs=None):
    """Compute ``[function(task, n_threads=inner) for task in tasks]`` in threads.

    Threads suffice, because kernels release the interpreter's lock. Results are in the order of the tasks, so that sums
    do not depend on ``n_jobs``.
    """
    n_threads = count_threads(n_jobs)
    if n_threads == 1:
        # Process tasks one at a time, so that only one task of a generator is in memory.
        return list(_map_with_checkpoints(partial(function, n_threads=1), tasks))
    tasks = list(tasks)
    outer, inner = split_threads(n_threads, len(tasks))
    if outer == 1:
        return list(_map_with_checkpoints(partial(function, n_threads=inner), tasks))
    # Do not use Parallel of scikit-learn, which resets the warning filters in every task and may leave them empty.
    return _run_shared_items(lambda i: function(tasks[i], n_threads=inner), len(tasks), n_threads)


def map_coarse(function, tasks, n_jobs=None):
    """Map a function over long tasks as :func:`map_tasks` does, or on the workers of a joblib backend.

    If ``joblib.parallel_config`` has set a backend of processes or of a cluster in the calling thread, the tasks run on
    its workers, each in one thread, and the function must be picklable. Within a fit, and within a task on a worker,
    the tasks run in threads of the same process.
    """
    tasks = list(tasks)
    n_workers = count_external_workers(n_jobs) if len(tasks) > 1 else 0
    if n_workers < 2:
        return map_tasks(function, tasks, n_jobs)
    # Send several tasks together, because the objects that are pickled with the function may be large.
    ranges = split_into_ranges(len(tasks), _LOTS * n_workers)
    parts = Parallel(n_jobs=n_jobs)(delayed(_map_in_worker)(function, tasks[start:stop]) for start, stop in ranges)
    return [result for part in parts for result in part]


# Number of task groups per worker. With several groups, a worker with short tasks can process more groups.
_LOTS = 2


def _map_in_worker(function, tasks):
    """Process tasks inside a worker process, and return the results."""
    with limit_blas_threads():
        return [function(task, n_threads=1) for task in tasks]


def count_external_workers(n_jobs: int | None) -> int:
    """Return the number of workers of the user's joblib backend, or 0 if the workers are threads of this process."""
    if getattr(_current, "is_in_fit", False):
        return 0
    # Prefer threads if no backend is set, because the default of joblib is processes.
    if getattr(get_active_backend(prefer="threads")[0], "supports_sharedmem", False) or _is_worker_of_dask():
        return 0
    return effective_n_jobs(n_jobs)


def _is_worker_of_dask() -> bool:
    """Return whether this thread runs a dask task, in which joblib would send further tasks to the whole cluster."""
    if "distributed" not in sys.modules:
        return False
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


def _map_with_checkpoints(function, items):
    """Yield the result of a function for each item, with a checkpoint before each item."""
    for item in items:
        checkpoint()
        yield function(item)


def make_range_runner(n_threads):
    """Return a function that divides the nodes or rows of one large problem among threads.

    The function ``run(kernel, n_items)`` calls ``kernel(start, stop)`` on a partition of ``range(n_items)`` and returns
    when all calls are done. Calls of a kernel must write to disjoint places, so that results do not depend on the
    partition. Use :func:`run_fixed_ranges` for sums.
    """
    return run_alone if n_threads <= 1 else partial(_run_shared, n_threads)


# _SMALLEST_RANGE: minimum size of a thread's range, because starting a thread on a range takes 20 microseconds.
# _ITEMS_OF_A_THREAD: number of items per thread that make_even_map computes before it yields results.
_SMALLEST_RANGE, _ITEMS_OF_A_THREAD = 256, 8


def run_alone(kernel, n_items, smallest_range=_SMALLEST_RANGE):
    """Call a kernel on the whole range in the calling thread."""
    kernel(0, n_items)


def _run_shared(n_threads, kernel, n_items, smallest_range=_SMALLEST_RANGE):
    n_ranges = min(n_threads, n_items // smallest_range)
    if n_ranges < 2:
        kernel(0, n_items)
        return
    bounds = [n_items * k // n_ranges for k in range(n_ranges + 1)]
    _run_shared_items(lambda k: kernel(bounds[k], bounds[k + 1]), n_ranges, n_threads)


def split_into_ranges(n_items, n_ranges=16):
    """Split ``range(n_items)`` into at most ``n_ranges`` ranges; return the start and stop of each range.

    Partial sums over the ranges, added in order, are bit-identical for any number of threads.
    """
    n_ranges = max(1, min(n_ranges, n_items))
    if n_ranges == 1:
        return [(0, n_items)]
    bounds = np.arange(n_ranges + 1) * n_items // n_ranges
    return list(pairwise(bounds.tolist()))


def run_fixed_ranges(run, kernel, n_items, n_ranges=16):
    """Call ``kernel(k, start, stop)`` for every range k of :func:`split_into_ranges`, in the threads of ``run``.

    Each call adds to a buffer for its range, and the caller sums the buffers in order.
    """
    ranges = split_into_ranges(n_items, n_ranges)

    def kernels(first, last):
        for k in range(first, last):
            kernel(k, *ranges[k])

    run(kernels, len(ranges), smallest_range=1)


@cache
def _get_blas_controller():
    return ThreadpoolController()


class _SharedLimit:
    """Limit on the number of BLAS threads in this process; the first user sets it, and the last user removes it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.n_users = 0
        self.limit = None

    def acquire(self):
        with self.lock:
            # Skip a limit that already applies, because setting the limit would double the time of a short prediction.
            if not self.n_users and any(library.num_threads != 1 for library in _get_blas_controller().lib_controllers):
                self.limit = _get_blas_controller().limit(limits=1, user_api="blas")
            self.n_users += 1

    def release(self):
        with self.lock:
            self.n_users -= 1
            if not self.n_users and self.limit is not None:
                self.limit.restore_original_limits()
                self.limit = None


_blas_limit = _SharedLimit()


@contextmanager
def limit_blas_threads():
    """Limit BLAS to one thread within the context, so that sums do not depend on the number of processor cores.

    Several threads may be in the context at the same time. The limit applies until the last thread leaves the context.
    """
    _blas_limit.acquire()
    try:
        yield
    finally:
        _blas_limit.release()


def make_ordered_map(n_threads):
    """Return a function like ``map`` that works in threads and returns results in the order of the items.

    The function is meant for lists of blocks that are processed repeatedly, as in training. A list with a single block
    is processed in the calling thread.
    """
    if n_threads <= 1:
        return _map_with_checkpoints

    def mapped(function, items):
        if len(items) < 2:
            return _map_with_checkpoints(function, items)
        return iter(_run_shared_items(lambda i: function(items[i]), len(items), n_threads))

    return mapped


def make_even_map(n_threads):
    """Return a function like ``map`` for items of equal cost that are too short to be sent to threads one by one.

    Each thread processes a range of items. Only a few results are in memory before the caller reads them.
    """
    if n_threads <= 1:
        return _map_with_checkpoints

    def mapped(function, items):
        for first in range(0, len(items), _ITEMS_OF_A_THREAD * n_threads):
            lot = items[first : first + _ITEMS_OF_A_THREAD * n_threads]
            results = [None] * len(lot)

            def share(start, stop, lot=lot, results=results):
                for k in range(start, stop):
                    checkpoint()
                    results[k] = function(lot[k])

            _run_shared(n_threads, share, len(lot), smallest_range=1)
            yield from results

    return mapped
