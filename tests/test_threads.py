"""Threads: order of results, sums that do not depend on their number, and Ctrl-C."""

import os
import signal
import threading
import time
import warnings

import joblib
import numpy as np
import pytest
from forked import exit_code, forks
from hypothesis import given, settings
from hypothesis import strategies as st
from interrupting import interrupted_after, may_drop_interrupts
from joblib import parallel_config
from joblib.parallel import ParallelBackendBase
from sklearn import config_context, get_config

from sklearn_crf import _threads
from sklearn_crf._threads import (
    Cancelled,
    cached_property,
    checkpoint,
    limit_blas_threads,
    make_even_map,
    make_ordered_map,
    make_range_runner,
    map_tasks,
    split_into_ranges,
    split_threads,
)


@pytest.mark.parametrize(
    ("n_jobs", "n_tasks", "expected"),
    [(1, 5, (1, 1)), (4, 2, (2, 2)), (5, 2, (2, 2)), (3, 0, (1, 3)), (2, 9, (2, 1)), (2**40, 1, (1, 2**31 - 1))],
)
def test_split_threads(n_jobs, n_tasks, expected):
    assert split_threads(n_jobs, n_tasks) == expected


def test_none_follows_the_configuration_of_joblib():
    assert split_threads(None, 8) == (1, 1)
    with parallel_config("threading", n_jobs=3):
        assert split_threads(None, 8) == (3, 1)


class Cluster(ParallelBackendBase):
    """A cluster of 64 workers that excludes this process."""

    def effective_n_jobs(self, n_jobs):
        return 64

    def apply_async(self, func, callback=None):
        raise AssertionError("no task is for the cluster")


def test_workers_of_a_cluster_are_no_threads(monkeypatch):
    monkeypatch.setitem(joblib.parallel.BACKENDS, "cluster", Cluster)
    with parallel_config("cluster", n_jobs=-1):
        assert joblib.effective_n_jobs(None) == 64
        assert split_threads(None, 100) == (1, 1)
        assert split_threads(2, 100) == (2, 1)
        assert split_threads(-1, 1000) == (joblib.cpu_count(), 1)
        assert map_tasks(lambda task, n_threads: task, range(3)) == [0, 1, 2]


@pytest.mark.parametrize("n_jobs", [None, 1, 2, 3])
def test_results_come_in_the_order_of_the_tasks(n_jobs):
    def work(task, n_threads):
        time.sleep(0.001 * (task % 3))
        return task, n_threads

    inner = split_threads(n_jobs, 7)[1]
    assert map_tasks(work, range(7), n_jobs) == [(task, inner) for task in range(7)]


def test_tasks_see_the_configuration_and_leave_the_filters_of_warnings_alone():
    """Overlapping tasks must not save and restore settings that they share."""
    together = threading.Barrier(2)

    def work(task, n_threads):
        together.wait(timeout=10)
        with_config = get_config()["assume_finite"]
        # The task that began first ends first, while the other task still runs.
        time.sleep(0.01 * task)
        return with_config

    before = list(warnings.filters)
    with config_context(assume_finite=True):
        for _ in range(3):
            assert map_tasks(work, range(2), n_jobs=2) == [True, True]
    assert list(warnings.filters) == before


def test_one_task_gets_all_threads():
    assert map_tasks(lambda task, n_threads: n_threads, ["only"], n_jobs=3) == [3]
    assert map_tasks(lambda task, n_threads: n_threads, [], n_jobs=3) == []


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_an_error_stops_the_others(n_jobs):
    stopped = []
    all_run = threading.Barrier(n_jobs)  # all tasks begin before one fails, so that all others must be stopped

    def work(task, n_threads):
        all_run.wait(timeout=60)
        if task == 0:
            raise ZeroDivisionError
        try:
            for _ in range(2000):
                checkpoint()
                time.sleep(0.005)
        except Cancelled:
            stopped.append(task)
            raise

    with pytest.raises(ZeroDivisionError):
        map_tasks(work, range(3), n_jobs)
    wait_until(lambda: len(stopped) == (2 if n_jobs > 1 else 0))
    checkpoint()  # outside of tasks nothing is cancelled


@pytest.fixture
def interruptible():
    """Restore Python's own reaction to Ctrl-C, which a shell disables in background processes."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("n_jobs", [1, 2])
@may_drop_interrupts
@pytest.mark.usefixtures("interruptible")
def test_interrupt_stops_workers(n_jobs):
    running, done = set(), []

    def work(task, n_threads):
        running.add(task)
        try:
            for _ in range(2000):
                checkpoint()
                time.sleep(0.005)
            done.append(task)
        finally:
            running.discard(task)

    # A signal to the main thread wakes it while it waits for workers; a signal that is only recorded does not.
    with interrupted_after(0.2), pytest.raises(KeyboardInterrupt):
        map_tasks(work, range(4), n_jobs)
    wait_until(lambda: not running)
    assert not done


@pytest.mark.parametrize("maker", [make_range_runner, make_even_map, make_ordered_map])
@pytest.mark.parametrize("n_jobs", [1, 2])
@may_drop_interrupts
@pytest.mark.usefixtures("interruptible")
def test_interrupt_stops_threads_inside_of_tasks(maker, n_jobs):
    """After Ctrl-C no item is begun, neither in threads of the caller nor in threads of its tasks."""
    n_done = [0]

    def item(k):
        time.sleep(0.01)
        n_done[0] += 1

    def kernel(start, stop):
        for k in range(start, stop):
            checkpoint()
            item(k)

    def work(task, n_threads):
        run = maker(2)
        if maker is make_range_runner:
            run(kernel, 1000, smallest_range=1)
        else:
            list(run(item, range(1000)))

    with interrupted_after(0.3), pytest.raises(KeyboardInterrupt):
        map_tasks(work, range(n_jobs), n_jobs)
    after = n_done[0]
    time.sleep(0.1)
    assert n_done[0] == after < 500


@forks
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_properties_of_the_parent():
    class Slow:
        @cached_property
        def value(self):
            begun.set()
            time.sleep(pause)
            return 1

    begun, pause = threading.Event(), 1.0
    thread = threading.Thread(target=lambda: Slow().value)
    thread.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        pause = 0
        os._exit(42 if Slow().value == 1 else 1)
    thread.join()
    assert exit_code(child) == 42


def test_threads_that_meet_keep_one_value():
    class Slow:
        @cached_property
        def value(self):
            time.sleep(0.01)
            return object()

    slow = Slow()
    assert len({id(value) for value in map_tasks(lambda task, n_threads: slow.value, range(8), 8)}) == 1


def wait_until(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "workers went on"
        time.sleep(0.01)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("n_items", [0, 1, 255, 513, 5000])
def test_range_runner_covers_the_range_once(n_threads, n_items):
    counts = np.zeros(n_items, dtype=int)

    def kernel(start, stop):
        counts[start:stop] += 1

    run = make_range_runner(n_threads)
    run(kernel, n_items)
    run(kernel, n_items)
    assert np.all(counts == 2)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("n_items", [0, 1, 5, 100])
@pytest.mark.parametrize("maker", [make_even_map, make_ordered_map])
def test_maps_give_results_in_the_order_of_the_items(maker, n_threads, n_items):
    mapped = maker(n_threads)
    assert list(mapped(lambda k: k**2, list(range(n_items)))) == [k**2 for k in range(n_items)]


def test_one_item_is_not_handed_to_another_thread():
    together = threading.Barrier(2)

    def meet(_):
        together.wait(timeout=60)
        return threading.get_ident()

    mapped = make_ordered_map(2)
    assert list(mapped(lambda _: threading.get_ident(), [0])) == [threading.get_ident()]
    assert len(set(mapped(meet, [0, 1]))) == 2


def test_range_runner_raises_what_a_worker_raised():
    def kernel(start, stop):
        if start:
            raise ZeroDivisionError

    run = make_range_runner(2)
    with pytest.raises(ZeroDivisionError):
        run(kernel, 5000)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 300), st.integers(1, 20))
def test_fixed_ranges_partition(n_items, n_ranges):
    ranges = split_into_ranges(n_items, n_ranges)
    assert len(ranges) <= n_ranges
    assert [i for start, stop in ranges for i in range(start, stop)] == list(range(n_items))


def test_blas_has_one_thread_inside():
    from threadpoolctl import threadpool_info

    def blas_threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    before = blas_threads()
    with limit_blas_threads():
        assert blas_threads() <= {1}
    assert blas_threads() == before


def test_work_is_done_without_threads_that_wake_too_late():
    """Work does not wait for a thread that is busy elsewhere."""
    free = threading.Event()
    helpers = _threads._HelperThreads()
    with pytest.MonkeyPatch.context() as patched, helpers.lend_threads(1) as submit:
        patched.setattr(_threads, "_helpers", helpers)
        submit(lambda: free.wait(timeout=60))
        assert map_tasks(lambda task, n_threads: threading.get_ident(), range(9), 2) == [threading.get_ident()] * 9
        run = make_range_runner(2)
        done = []
        run(lambda start, stop: done.append((start, stop)), 5000)
        assert done == [(0, 2500), (2500, 5000)]
        free.set()
    helpers.close()


def work_with_helpers(n_jobs, n_rounds):
    """Return the threads that work on tasks, each of which waits until other threads had time to arrive."""
    seen = set()
    for _ in range(n_rounds):
        seen.update(map_tasks(lambda task, n_threads: time.sleep(0.001) or threading.get_ident(), range(6), n_jobs))
    return seen


def test_helpers_are_few_and_serve_all_calls():
    _threads._helpers.close()
    before, most = threading.active_count(), []

    def call():
        for _ in range(5):
            work_with_helpers(3, 4)
            most.append(threading.active_count())

    assert 2 <= len(work_with_helpers(3, 20)) <= 3
    assert threading.active_count() <= before + 2
    callers = [threading.Thread(target=call) for _ in range(10)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert max(most) <= before + 10 + 2
    _threads._helpers.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("n_jobs", [2, 5])
def test_tasks_of_tasks_have_helpers(n_jobs):
    """Both levels get results in order, whether or not a helper is free for the inner tasks."""

    def outer(task, n_threads):
        return map_tasks(lambda part, n_threads: (task, part), range(3), max(n_threads, 2))

    expected = [[(task, part) for part in range(3)] for task in range(2)]
    for _ in range(20):
        assert map_tasks(outer, range(2), n_jobs) == expected


@forks
def test_forks_leave_the_helpers_behind():
    """A fork ends idle helpers, does not wait for busy helpers, and the child starts helpers of its own."""
    work_with_helpers(3, 2)
    before = threading.active_count()
    child = os.fork()
    if child == 0:
        os._exit(42 if threading.active_count() == 1 and len(work_with_helpers(3, 20)) > 1 else 1)
    assert exit_code(child) == 42
    assert threading.active_count() < before


@forks
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_within_a_task():
    def work(task, n_threads):
        child = os.fork()
        if child == 0:
            os._exit(42 if map_tasks(lambda task, n_threads: task, range(5), 3) == [0, 1, 2, 3, 4] else 1)
        return exit_code(child)

    assert map_tasks(work, range(4), 2) == [42] * 4


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_the_first_error_by_number_is_raised(n_jobs):
    """The first error by number is raised, whichever error comes first in time."""

    def work(task, n_threads):
        time.sleep(0.02 if task == 1 else 0.001)
        if task:
            raise ValueError(task)

    for _ in range(5):
        with pytest.raises(ValueError, match=r"^1$"):
            map_tasks(work, range(6), n_jobs)
