"""Threads: order of results, sums that do not depend on their number, and Ctrl-C."""

import os
import signal
import sys
import threading
import time
import warnings
from concurrent.futures import Future
from functools import partial

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
    _InTurn,
    cached_property,
    checkpoint,
    even_map,
    fixed_ranges,
    kept_threads,
    map_tasks,
    ordered_map,
    out_of_turn,
    range_runner,
    single_threaded_blas,
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
        # The task that begins first ends first.
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
    all_run = threading.Barrier(n_jobs)  # a task that has not begun when another task fails need not be stopped

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


@pytest.mark.parametrize("maker", [range_runner, even_map, ordered_map])
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
        with maker(2) as run:
            if maker is range_runner:
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

    with range_runner(n_threads) as run:
        run(kernel, n_items)
        run(kernel, n_items)
    assert np.all(counts == 2)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("n_items", [0, 1, 5, 100])
@pytest.mark.parametrize("maker", [even_map, ordered_map])
def test_maps_give_results_in_the_order_of_the_items(maker, n_threads, n_items):
    with maker(n_threads) as mapped:
        assert list(mapped(lambda k: k**2, list(range(n_items)))) == [k**2 for k in range(n_items)]


def test_one_item_is_not_handed_to_another_thread():
    together = threading.Barrier(2)

    def meet(_):
        together.wait(timeout=60)
        return threading.get_ident()

    with ordered_map(2) as mapped:
        assert list(mapped(lambda _: threading.get_ident(), [0])) == [threading.get_ident()]
        assert len(set(mapped(meet, [0, 1]))) == 2


def test_range_runner_raises_what_a_worker_raised():
    def kernel(start, stop):
        if start:
            raise ZeroDivisionError

    with range_runner(2) as run, pytest.raises(ZeroDivisionError):
        run(kernel, 5000)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 300), st.integers(1, 20))
def test_fixed_ranges_partition(n_items, n_ranges):
    ranges = fixed_ranges(n_items, n_ranges)
    assert len(ranges) <= n_ranges
    assert [i for start, stop in ranges for i in range(start, stop)] == list(range(n_items))


def test_blas_has_one_thread_inside():
    from threadpoolctl import threadpool_info

    def blas_threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    before = blas_threads()
    with single_threaded_blas():
        assert blas_threads() <= {1}
    assert blas_threads() == before


def test_work_is_done_without_threads_that_wake_too_late():
    """Work does not wait for a thread that is busy elsewhere."""
    busy, free = threading.Event(), threading.Event()

    def occupy():
        busy.set()
        free.wait(timeout=60)

    with kept_threads(2):
        _threads._current.executor.submit(occupy)
        busy.wait(timeout=60)
        assert map_tasks(lambda task, n_threads: threading.get_ident(), range(9), 2) == [threading.get_ident()] * 9
        with range_runner(2) as run:
            done = []
            run(lambda start, stop: done.append((start, stop)), 5000)
        assert done == [(0, 2500), (2500, 5000)]
        free.set()


def test_kept_threads_are_few_and_end_with_their_block():
    before = threading.active_count()
    seen = set()
    with kept_threads(3), kept_threads(3):
        for _ in range(20):
            seen.update(map_tasks(lambda task, n_threads: time.sleep(0.001) or threading.get_ident(), range(6), 3))
        assert threading.active_count() <= before + 2
    assert threading.active_count() == before
    assert 2 <= len(seen) <= 3


@pytest.fixture
def clock(monkeypatch):
    """Return clock seconds, and processor seconds of this thread."""

    class Clock:
        passed = worked = 0.0

        def spend(self, worked, waited=0.0):
            self.worked += worked
            self.passed += worked + waited

    clock = Clock()
    monkeypatch.setattr(_threads, "perf_counter", lambda: clock.passed)
    monkeypatch.setattr(_threads, "thread_time", lambda: clock.worked)
    return clock


def look(helpers, seconds, share=1.0):
    """Add items of the given clock seconds, of which threads work a share, until the helpers have been judged."""
    n_wanted, before = helpers.n_wanted, helpers._n_items
    while helpers._n_items >= before:
        before = helpers._n_items
        helpers.add(share * seconds, seconds, n_wanted)


def leave(helpers):
    """Make one useless helper leave: waiting threads finish as many items without it."""
    n_threads = helpers.n_wanted + 1
    look(helpers, 0.001 * n_threads, share=0.5)
    look(helpers, 0.001 * (n_threads - 1))
    # Called back once more before it leaves.
    assert helpers.wanted() == n_threads - 1
    look(helpers, 0.001 * n_threads, share=0.5)


def test_helpers_stay_where_threads_work(clock):
    helpers = _threads._Helpers(2)
    for _ in range(1000):
        look(helpers, 0.01, share=0.8)
        assert helpers.wanted() == 2


def test_helpers_leave_one_after_the_other_where_threads_wait_and_nothing_is_lost(clock):
    helpers = _threads._Helpers(2)
    # Too short for a conclusion, then useless for half of the time.
    helpers.add(0.001, 0.003, 2)
    assert helpers.wanted() == 2
    leave(helpers)
    assert helpers.wanted() == 1
    leave(helpers)
    assert helpers.wanted() == 0


def test_a_helper_comes_back_at_once_where_items_take_longer_without_it(clock):
    helpers = _threads._Helpers(1)
    look(helpers, 0.006, share=0.6)
    assert helpers.wanted() == 0
    # Two threads took 3 milliseconds for an item, one thread 4.
    look(helpers, 0.004)
    assert helpers.wanted() == 1
    look(helpers, 0.006, share=0.6)
    assert helpers.wanted() == 1
    # The helper is kept for a while, and then on trial again.
    look(helpers, 0.006, share=0.6)
    assert helpers.wanted() == 1
    clock.spend(0.25)
    look(helpers, 0.006, share=0.6)
    assert helpers.wanted() == 0


def test_a_slow_beginning_does_not_send_a_helper_away(clock):
    helpers = _threads._Helpers(1)
    look(helpers, 0.016, share=0.6)
    # Without the helper, items take no longer than the first items did, but longer than they take with the helper from
    # now on.
    look(helpers, 0.004)
    look(helpers, 0.006, share=0.6)
    assert helpers.wanted() == 1


def test_items_of_less_work_do_not_send_a_helper_away(clock):
    helpers = _threads._Helpers(1)
    look(helpers, 0.016, share=0.6)
    # Shorter items follow, with the helper and without it.
    look(helpers, 0.004)
    look(helpers, 0.008, share=0.5)
    assert helpers.wanted() == 1


def test_items_with_fewer_threads_at_work_than_wanted_say_nothing(clock):
    helpers = _threads._Helpers(1)
    for _ in range(100):
        helpers.add(0.001, 0.01, 0)
    assert helpers.wanted() == 1


def test_helpers_come_back_later_each_time_that_it_was_in_vain(clock):
    helpers, pauses = _threads._Helpers(1), []
    for _ in range(7):
        leave(helpers)
        left = clock.passed
        while not helpers.wanted():
            clock.spend(1 / 128)
        pauses.append(round(clock.passed - left, 1))
    assert pauses == [0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    # A gain that is just enough to keep the helper does not show that the next gain will be larger.
    look(helpers, 0.006, share=0.78)
    assert helpers.wanted() == 1
    leave(helpers)
    clock.spend(1.9)
    assert not helpers.wanted()
    clock.spend(0.2)
    assert helpers.wanted() == 1
    look(helpers, 0.006)
    assert helpers.wanted() == 1
    leave(helpers)
    clock.spend(0.21)
    assert helpers.wanted() == 1


def test_many_helpers_come_back_one_after_the_other(clock):
    helpers = _threads._Helpers(3)
    for _ in range(3):
        leave(helpers)
    assert helpers.wanted() == 0
    clock.spend(2.0)
    assert [helpers.wanted(), helpers.wanted()] == [1, 1]
    clock.spend(2.0)
    assert helpers.wanted() == 2
    # The next helper need not wait while these helpers work.
    look(helpers, 0.006)
    assert helpers.wanted() == 3


@pytest.mark.parametrize("waited", [0.0, 1 / 16])
def test_items_are_shared_with_helpers_that_do_not_wait(clock, waited):
    """A waiting helper takes an item, leaves the other items to the caller, and is called again after its pause."""
    worker, by = ["caller"], []

    class Executor:
        """Calls the function immediately, like a thread that wakes up quickly."""

        def submit(self, function):
            worker.append("helper")
            done = Future()
            done.set_result(function())
            worker.pop()
            return done

    def work(i):
        by.append(worker[-1])
        clock.spend(1 / 32, waited if worker[-1] == "helper" else 0.0)
        return 2 * i

    assert _threads._share(Executor(), work, 40, _threads._Helpers(1)) == list(range(0, 80, 2))
    if waited:
        # An item with the helper, an item without it, and an item with it again; then a pause, which is twice as long
        # the second time.
        trial = ["helper", "caller", "helper"]
        assert by == [*trial, *7 * ["caller"], *trial, *13 * ["caller"], *trial, *11 * ["caller"]]
    else:
        assert by == 40 * ["helper"]


def test_functions_of_a_fit_are_helped_apart():
    def one(task, n_threads): ...

    def other(task, n_threads): ...

    with kept_threads(2):
        helpers = _threads._helpers_for(partial(one, n_threads=1), 1)
        assert helpers is _threads._helpers_for(one, 1)
        assert helpers is not _threads._helpers_for(other, 1)
        assert helpers is not _threads._helpers_for(one, 2)
    assert helpers is not _threads._helpers_for(one, 1)


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


def test_tasks_take_turns_but_for_long_calls():
    present, most, both = [], [], threading.Barrier(2, timeout=30)

    def short_calls(i):
        for _ in range(20):
            present.append(i)
            most.append(len(present))
            time.sleep(1e-4)
            present.remove(i)

    def task(i, n_threads):
        short_calls(i)
        with out_of_turn():
            # Neither task continues before the other task has arrived.
            both.wait()
        short_calls(i)
        return i

    assert map_tasks(task, range(2), 2, takes_turns=True) == [0, 1]
    assert not has_lock_of_interpreter() or max(most) == 1


def has_lock_of_interpreter():
    return getattr(sys, "_is_gil_enabled", lambda: True)()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_errors_end_turns(n_jobs):
    def task(i, n_threads):
        with out_of_turn():
            pass
        if i % 2:
            raise ValueError(f"task {i}")

    with pytest.raises(ValueError, match="task 1"):
        map_tasks(task, range(10), n_jobs, takes_turns=True)


def test_who_waits_for_a_turn_that_never_comes_can_be_interrupted():
    """As after an interruption between taking the lock and recording this."""
    held, begun, cancelled = threading.Lock(), threading.Event(), []

    def task(i, n_threads):
        if threading.current_thread() is threading.main_thread():
            begun.wait(30)
            raise KeyboardInterrupt
        begun.set()
        try:
            with _InTurn(held):
                return
        except Cancelled:
            cancelled.append(i)
            raise

    held.acquire()
    with pytest.raises(KeyboardInterrupt):
        map_tasks(task, range(2), 2)
    assert cancelled
