"""The one place that decides who works: threads, how many and on what, or an engine that joblib sends tasks to."""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from itertools import pairwise
from math import inf
from time import perf_counter, thread_time
from typing import Any, Generic, TypeVar, overload

import numpy as np
from joblib import effective_n_jobs, parallel_config
from joblib.parallel import get_active_backend
from sklearn import config_context, get_config
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import ThreadpoolController

from sklearn_crf._reports import set_warning_state, warning_state

_current = threading.local()
_Value = TypeVar("_Value")


class cached_property(Generic[_Value]):
    """A property that is computed once for each instance, without a lock.

    Python 3.11 computes ``functools.cached_property`` under a lock that all instances share. A process that is forked
    while another thread holds it waits forever. Here threads that meet compute twice, and all keep the first result.
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


def own_workspace(n: int, dtype: Any = np.float64) -> np.ndarray:
    """Workspace of n numbers for one thread: small arrays of two threads may else lie in one cache line."""
    return np.empty(n + 2 * _LINES_APART, dtype=dtype)[_LINES_APART : _LINES_APART + n]


# Numbers of four bytes in two cache lines, which processors fetch together.
_LINES_APART = 32


class Cancelled(Exception):
    """Raised inside a worker after Ctrl-C in the main thread, so that it stops at its next sweep."""


class _Helpers:
    """How many threads help another one: where they wait much, one leaves on trial, and stays away if that is no loss.

    Two threads that hand the lock of the interpreter to and fro may take longer than one alone. Results are the same.
    """

    def __init__(self, n_helpers):
        self.n_helpers = self.n_wanted = n_helpers
        self._lock = threading.Lock()
        self._pause, self._return, self._trusted = _FIRST_PAUSE, 0.0, 0.0
        self._before_trial = self._on_trial = None  # clock and processor for an item before one left, and without it
        self._processor, self._clock, self._n_items = _UNSEEN

    def wanted(self):
        """Number of helpers that are welcome now."""
        if self.n_wanted < self.n_helpers and perf_counter() >= self._return:
            with self._lock:
                self.n_wanted, self._return = min(self.n_wanted + 1, self.n_helpers), perf_counter() + self._pause
                self._processor, self._clock, self._n_items = _UNSEEN
        return self.n_wanted

    def add(self, processor, clock, n_present):
        """Take note of an item: seconds of its thread's processor's time and by the clock, helpers at work just now."""
        with self._lock:
            if n_present != self.n_wanted:
                return
            self._processor += processor
            self._clock += clock
            self._n_items += 1
            if self._clock < _LOOKED_AT * (self.n_wanted + 1):
                return
            share, clock = self._processor / self._clock, self._clock / (self.n_wanted + 1)
            item = clock / self._n_items, self._processor / self._n_items
            self._processor, self._clock, self._n_items = _UNSEEN
            if self._before_trial is not None:
                # Back in any case, and looked at once more: the first items of a call may be slow for other reasons.
                self._on_trial, self._before_trial = (item, _is_loss(item, self._before_trial)), None
                self.n_wanted += 1
            elif self._on_trial is not None:
                alone, was_loss = self._on_trial
                self._end_trial(stays=was_loss or _is_loss(alone, item))
            elif share >= _GOOD_SHARE and self.n_wanted:
                self._pause, self._return = _FIRST_PAUSE, 0.0
            elif share < _LEAST_SHARE and self.n_wanted and perf_counter() >= self._trusted:
                self._before_trial, self._return = item, inf
                self.n_wanted -= 1

    def _end_trial(self, stays):
        """Trust the one that was away, or send it away, for a while."""
        self.n_wanted -= not stays
        self._return = perf_counter() + self._pause
        self._trusted = self._return if stays else 0.0
        self._on_trial, self._pause = None, min(2 * self._pause, _LONGEST_PAUSE)


def _is_loss(alone, helped):
    """Whether items take longer without a helper; taken for granted where they are others, of more or less work."""
    return alone[0] > _LEAST_GAIN * helped[0] or not 1 / _ALIKE < alone[1] / max(helped[1], 1e-9) < _ALIKE


# Seconds by the clock after which threads are judged, and the share of them below which one leaves on trial. It leaves
# for a while if items take no longer by this factor (equal ones, whose processor's time differs by the last factor at
# most), and else is trusted: twice as long each time, until threads work.
_LOOKED_AT, _LEAST_SHARE, _LEAST_GAIN, _GOOD_SHARE, _ALIKE = 0.02, 0.75, 1.05, 0.8, 1.8
_FIRST_PAUSE, _LONGEST_PAUSE, _UNSEEN = 0.2, 2.0, (0.0, 0.0, 0)


def _helpers_for(function, n_helpers):
    """That of a function which a fit calls again and again; a new one where threads are not kept."""
    kept = getattr(_current, "kept_helpers", None)
    if kept is None:
        return _Helpers(n_helpers)
    while isinstance(function, partial):
        function = function.func
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return kept.setdefault((code, id(getattr(function, "__self__", None)), n_helpers), _Helpers(n_helpers))


class _SharedItems:
    """Numbered items that several threads take in turn; an error stops those behind it, an interruption all.

    The item that fails first by its number is always begun, so that the error does not depend on threads either.
    """

    def __init__(self, function, n_items, executor, helpers):
        self.function, self.n_items = function, n_items
        self.executor, self.helpers = executor, helpers
        self.lock, self.n_begun = threading.Lock(), 0
        self.calls, self.n_present = [], 0
        self.results = [None] * n_items
        self.errors: dict[int, Exception] = {}
        self.interrupted = False
        self.around = getattr(_current, "cancelled", None)
        self.warning, self.config = warning_state(), get_config()

    def _next(self):
        """The next number; without a lock, free-threaded Python might give it to two threads."""
        with self.lock:
            self.n_begun += 1
            return self.n_begun - 1

    def _work(self, goes_on):
        """Work on items until none is left, or until this thread shall not go on."""
        try:
            # numbers ascend: behind an error there is nothing more to do
            while goes_on() and (i := self._next()) < self.n_items and not self.errors and not self.interrupted:
                _current.cancelled = _Cancellation(self, i)
                try:
                    checkpoint()
                    processor, clock = thread_time(), perf_counter()
                    self.results[i] = self.function(i)
                    self.helpers.add(thread_time() - processor, perf_counter() - clock, self.n_present)
                except Exception as error:
                    self.errors[i] = error
        finally:
            _current.cancelled = self.around

    def work(self):
        """Work on items, together with those that help."""

        def goes_on():
            while self.n_begun < self.n_items - 1 and self.n_present < min(self.helpers.wanted(), self.n_items - 1):
                with self.lock:
                    self.n_present += 1
                self.calls.append(self.executor.submit(self._help))
            return True

        self._work(goes_on)

    def _help(self):
        """The same in another thread, with the configuration of scikit-learn of this one."""
        set_warning_state(self.warning)
        with config_context(**self.config):
            self._work(lambda: self.n_present <= self.helpers.n_wanted)
        with self.lock:
            self.n_present -= 1

    def wait_for_helpers(self):
        """Wait for those that have begun; those that have not need not begin."""
        for call in self.calls:
            if not call.cancel():
                call.result()


class _Cancellation:
    """Whether a thread that works on an item shall stop."""

    def __init__(self, shared, number):
        self.shared, self.number = shared, number

    def __bool__(self):
        shared = self.shared
        return shared.interrupted or bool(shared.around) or min(list(shared.errors), default=self.number) < self.number


class _InTurn:
    """Context in which no other task is that takes turns by the same lock, but for :class:`out_of_turn` calls.

    NumPy gives up the lock of the interpreter at every call and may have to wait for it. Tasks of many short calls that
    take turns meet only where one of them comes back from a long call.
    """

    def __init__(self, lock):
        self._lock = lock

    def __enter__(self):
        _take(self._lock)

    def __exit__(self, *error):
        # An interrupted task may have left its turn, and not come back.
        if getattr(_current, "turn", None) is self._lock:
            _current.turn = None
            self._lock.release()  # type: ignore[union-attr]  # a lock, as it was taken


class out_of_turn:
    """Context for a long call without the lock of the interpreter, in which other tasks may take their turns."""

    def __enter__(self):
        self._lock = getattr(_current, "turn", None)
        if self._lock is not None:
            _current.turn = None
            self._lock.release()

    def __exit__(self, *error):
        if self._lock is not None:
            _take(self._lock)


def _take(lock):
    while not lock.acquire(timeout=_LONGEST_TURN):
        checkpoint()
    _current.turn = lock


# Seconds after which a task that waits for its turn looks whether it shall stop.
_LONGEST_TURN = 0.1


def checkpoint() -> None:
    """Stop here if the whole computation was interrupted; iterative algorithms call it once a sweep."""
    if getattr(_current, "cancelled", None):
        raise Cancelled


@contextmanager
def _pool(n_threads):
    """Threads that help the calling one: those of :func:`kept_threads` or new ones."""
    kept = getattr(_current, "executor", None)
    if kept is not None:
        yield kept
        return
    # Joblib's pool has threads beside its workers, and the C library keeps freed memory for each of them.
    with ThreadPoolExecutor(n_threads - 1) as executor:
        yield executor


@contextmanager
def kept_threads(n_jobs):
    """Context in which calls from this thread share its helpers: a fit hands over work hundreds of times."""
    n_threads, around = thread_count(n_jobs), getattr(_current, "is_in_fit", False)
    try:
        _current.is_in_fit = True
        if n_threads < 2 or getattr(_current, "executor", None) is not None:
            yield
            return
        with ThreadPoolExecutor(n_threads - 1) as executor:
            _current.executor, _current.kept_helpers = executor, {}
            try:
                yield
            finally:
                _current.executor = _current.kept_helpers = None
    finally:
        _current.is_in_fit = around


def _share(executor, function, n_items, helpers):
    """``[function(i) for i in range(n_items)]`` by this thread and those that help it.

    This thread never waits for another one to wake up: where that takes longer than the work, it does all of it.
    """
    shared = _SharedItems(function, n_items, executor, helpers)
    try:
        shared.work()
        shared.wait_for_helpers()
    except BaseException:
        shared.interrupted = True
        wait([call for call in shared.calls if not call.cancel()])
        raise
    if shared.errors:
        error = shared.errors[min(shared.errors)]
        try:
            raise error
        finally:
            del error, shared  # a traceback that holds its own error keeps the results in memory
    return shared.results


def thread_count(n_jobs):
    """Threads of this process for ``n_jobs``, as everywhere in scikit-learn but never as many as a cluster has."""
    if n_jobs is not None and (not isinstance(n_jobs, int | np.integer) or n_jobs == 0):
        raise ValueError(f"n_jobs must be 1 for one thread, -1 for one for each core, or None; got {n_jobs!r}.")
    is_local = type(get_active_backend()[0]).__module__.startswith("joblib._parallel_backends")
    # The number of workers of a cluster is for tasks of joblib.
    with nullcontext() if is_local else parallel_config(backend="threading"):
        return min(effective_n_jobs(1 if n_jobs is None and not is_local else n_jobs), 2**31 - 1)


def split_threads(n_jobs, n_tasks):
    """Threads over tasks and threads inside a task, ``outer * inner <= n_jobs``."""
    n_jobs = thread_count(n_jobs)
    outer = max(1, min(n_jobs, n_tasks))
    return outer, max(1, n_jobs // outer)


def map_tasks(function, tasks, n_jobs=None, takes_turns=False):
    """``[function(task, n_threads=inner) for task in tasks]`` on threads, results in the order of the tasks.

    Kernels release the GIL, so threads are enough, and they share memory. What comes back does not depend on
    ``n_jobs``: the caller adds results up in the order of the list. Threads that mostly wait leave the others alone.
    Tasks may take turns, one at a time but for what they do :class:`out_of_turn`.
    """
    n_threads = thread_count(n_jobs)
    if n_threads == 1:
        # Tasks that a generator makes are in memory one at a time.
        return list(_checked_map(partial(function, n_threads=1), tasks))
    tasks = list(tasks)
    outer, inner = split_threads(n_threads, len(tasks))
    if outer == 1:
        return list(_checked_map(partial(function, n_threads=inner), tasks))
    # scikit-learn's own Parallel sets the filters of warnings in every task besides: threads share those, and tasks
    # that overlap leave them empty.
    with _pool(outer) as executor:
        helpers, turns = _helpers_for(function, outer - 1), nullcontext()
        if takes_turns and inner == 1 and getattr(sys, "_is_gil_enabled", lambda: True)():
            turns = _InTurn(threading.Lock())

        def work(i):
            with turns:
                return function(tasks[i], n_threads=inner)

        return _share(executor, work, len(tasks), helpers)


def map_coarse(function, tasks, n_jobs=None, ended=None, takes_turns=False):
    """The same for long tasks of one call, which ``joblib.parallel_config`` may send to other processes.

    With a backend of processes or of a cluster, in the thread that set it, tasks go there in turns, each on one thread,
    and so does the function, which has to be picklable. Otherwise they are on threads as all others, and so they are
    inside of a fit, whose steps are too short, and inside of tasks that came from elsewhere.
    """
    # ended: called in this process after each task, by one thread at a time
    tasks = list(tasks)
    n_workers = _workers_elsewhere(n_jobs) if len(tasks) > 1 else 0
    if n_workers < 2:
        return map_tasks(function if ended is None else _told(function, ended), tasks, n_jobs, takes_turns)
    # Some tasks together: what goes with the function may be large.
    ranges = fixed_ranges(len(tasks), _TURNS * n_workers)
    parts = Parallel(n_jobs=n_jobs)(delayed(_mapped_there)(function, tasks[start:stop]) for start, stop in ranges)
    results = [result for part in parts for result in part]
    for _ in results if ended is not None else ():
        ended()
    return results


# Lots of tasks that each worker gets, so that one with short tasks takes over from others.
_TURNS = 2


def _mapped_there(function, tasks):
    """Results of tasks in the process of a worker."""
    with single_threaded_blas():
        return [function(task, n_threads=1) for task in tasks]


def _told(function, ended):
    """The function, after which another one is called, one thread at a time."""
    lock = threading.Lock()

    def told(task, n_threads):
        found = function(task, n_threads=n_threads)
        with lock:
            ended()
        return found

    return told


def _workers_elsewhere(n_jobs):
    """Workers of the backend that the user has set for tasks of joblib; 0 if it is threads of this process."""
    if getattr(_current, "is_in_fit", False):
        return 0
    # A hint that counts where no backend is set: joblib's own choice would be processes.
    if getattr(get_active_backend(prefer="threads")[0], "supports_sharedmem", False) or _is_worker_of_dask():
        return 0
    return effective_n_jobs(n_jobs)


def _is_worker_of_dask():
    """Whether this thread works on a task of dask: joblib would send its tasks back to the whole cluster."""
    if "distributed" not in sys.modules:
        return False
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


def _checked_map(function, items):
    """As ``map``, with a checkpoint before each item."""
    for item in items:
        checkpoint()
        yield function(item)


@contextmanager
def range_runner(n_threads):
    """Threads inside one large problem, for kernels that work on a range of nodes or rows.

    Yields ``run(kernel, n_items)``, which calls ``kernel(start, stop)`` on a partition of ``range(n_items)``
    and returns when all are done. Kernels must write to disjoint places: then results do not depend on the
    partition. Sums belong in :func:`run_fixed_ranges`.
    """
    if n_threads <= 1:
        yield run_alone
        return
    with _pool(n_threads) as executor:
        helpers = _Helpers(n_threads - 1)

        def run(kernel, n_items, smallest_range=_SMALLEST_RANGE):
            _run_shared(executor, n_threads, kernel, n_items, smallest_range, helpers)

        yield run


# Handing a range to another thread takes about 20 microseconds: shorter ranges stay. Items of a range at most.
_SMALLEST_RANGE, _ITEMS_OF_A_THREAD = 256, 8


def run_alone(kernel, n_items, smallest_range=_SMALLEST_RANGE):
    """Call a kernel on the whole range, in the thread of the caller."""
    kernel(0, n_items)


def _run_shared(executor, n_threads, kernel, n_items, smallest_range, helpers):
    n_ranges = min(n_threads, n_items // smallest_range)
    if n_ranges < 2:
        kernel(0, n_items)
        return
    bounds = [n_items * k // n_ranges for k in range(n_ranges + 1)]
    _share(executor, lambda k: kernel(bounds[k], bounds[k + 1]), n_ranges, helpers)


def fixed_ranges(n_items, n_ranges=16):
    """Bounds of at most ``n_ranges`` parts of ``range(n_items)``, whatever the number of threads.

    Partial sums over these, added in order, are bit-identical for any number of threads.
    """
    n_ranges = max(1, min(n_ranges, n_items))
    if n_ranges == 1:
        return [(0, n_items)]
    bounds = np.arange(n_ranges + 1) * n_items // n_ranges
    return list(pairwise(bounds.tolist()))


def run_fixed_ranges(run, kernel, n_items, n_ranges=16):
    """Call ``kernel(k, start, stop)`` for every range k of :func:`fixed_ranges`, shared by the threads of ``run``.

    A kernel adds into a buffer of its own range; the caller adds the buffers up in their order.
    """
    ranges = fixed_ranges(n_items, n_ranges)

    def kernels(first, last):
        for k in range(first, last):
            kernel(k, *ranges[k])

    run(kernels, len(ranges), smallest_range=1)


@cache
def _blas():
    return ThreadpoolController()


class _SharedLimit:
    """The limit on the threads of BLAS, which belong to the process: set by the first user, lifted by the last."""

    def __init__(self):
        self.lock = threading.Lock()
        self.n_users = 0
        self.limit = None

    def acquire(self):
        with self.lock:
            # Setting a limit that holds anyhow takes as long as a short prediction's other work.
            if not self.n_users and any(library.num_threads != 1 for library in _blas().lib_controllers):
                self.limit = _blas().limit(limits=1, user_api="blas")
            self.n_users += 1

    def release(self):
        with self.lock:
            self.n_users -= 1
            if not self.n_users and self.limit is not None:
                self.limit.restore_original_limits()
                self.limit = None


_blas_limit = _SharedLimit()


@contextmanager
def single_threaded_blas():
    """Context in which BLAS uses one thread, so that its sums do not depend on the number of cores.

    Threads may be in it at the same time, as tasks of one worker are: the limit holds until the last one leaves.
    """
    _blas_limit.acquire()
    try:
        yield
    finally:
        _blas_limit.release()


@contextmanager
def ordered_map(n_threads):
    """Yields a function like ``map`` that works in threads; results come in the order of the items.

    For a list of blocks that is mapped over many times, as in the passes of one training run. A single block is worked
    on where it is.
    """
    if n_threads <= 1:
        yield _checked_map
        return
    with _pool(n_threads) as executor:

        def mapped(function, items):
            if len(items) < 2:
                return _checked_map(function, items)
            helpers = _helpers_for(function, n_threads - 1)
            return iter(_share(executor, lambda i: function(items[i]), len(items), helpers))

        yield mapped


@contextmanager
def even_map(n_threads):
    """As :func:`ordered_map`, for items of about equal cost, too short to be handed over one by one.

    Each thread takes a range of them. Few results are kept before the caller has seen them.
    """
    if n_threads <= 1:
        yield _checked_map
        return
    with range_runner(n_threads) as run:

        def mapped(function, items):
            for first in range(0, len(items), _ITEMS_OF_A_THREAD * n_threads):
                yield from _mapped_ranges(run, function, items[first : first + _ITEMS_OF_A_THREAD * n_threads])

        yield mapped


def _mapped_ranges(run, function, items):
    results = [None] * len(items)

    def share(start, stop):
        for k in range(start, stop):
            checkpoint()
            results[k] = function(items[k])

    run(share, len(items), smallest_range=1)
    return results
