"""The thread pool that kernels share: order, errors, forks, Ctrl-C, exit and the number of threads."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import pytest
from forked import exit_code, forks
from interrupting import interrupted_after, may_drop_interrupts

from sklearn_crf.kernels.core.pool import call_blocks, close_pool

shows_threads = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="this system lists no threads")


def threads_seen(n_blocks, n_threads):
    """Return the threads that worked; each block waits until other threads had time to arrive."""
    seen = [None] * n_blocks

    def work(block):
        time.sleep(0.01)
        seen[block] = threading.get_ident()

    call_blocks(work, n_blocks, n_threads)
    return seen


@pytest.mark.parametrize("n_threads", [0, 1, 2, 3, 16])
def test_every_block_is_called_once(n_threads):
    counts = [0] * 40

    def work(block):
        counts[block] += 1

    call_blocks(work, 40, n_threads)
    assert counts == [1] * 40
    call_blocks(work, 0, n_threads)
    assert counts == [1] * 40


def test_one_thread_works_alone():
    assert set(threads_seen(5, 1)) == {threading.get_ident()}


def test_the_caller_and_helpers_work():
    seen = set(threads_seen(30, 3))
    assert threading.get_ident() in seen
    assert len(seen) == 3


def test_calls_from_a_block_stay_in_its_thread():
    outer, inner = [None] * 8, [None] * 8

    def work(block):
        outer[block] = threading.get_ident()
        inner[block] = set(threads_seen(3, 4))

    call_blocks(work, 8, 3)
    assert inner == [{thread} for thread in outer]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_errors_come_back_and_the_pool_goes_on(n_threads):
    def work(block):
        raise KeyError(block)

    with pytest.raises(KeyError):
        call_blocks(work, 10, n_threads)
    assert len(threads_seen(6, n_threads)) == 6


@shows_threads
def test_callers_at_once_share_the_helpers():
    close_pool()
    before, most = len(os.listdir("/proc/self/task")), []

    def work(block):
        time.sleep(0.002)
        most.append(len(os.listdir("/proc/self/task")))

    callers = [threading.Thread(target=call_blocks, args=(work, 20, 4)) for _ in range(20)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(most) == 400
    assert max(most) <= before + 20 + 3
    close_pool()
    # The system lists a thread for a moment after it was joined.
    end = time.monotonic() + 10
    while len(os.listdir("/proc/self/task")) > before and time.monotonic() < end:
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/task")) <= before


@forks
def test_a_forked_child_has_helpers_of_its_own():
    threads_seen(8, 4)
    child = os.fork()
    if child == 0:
        os._exit(42 if len(set(threads_seen(30, 3))) == 3 else 1)
    assert exit_code(child) == 42
    assert len(set(threads_seen(30, 3))) == 3


def n_seen(n_threads):
    return len(set(threads_seen(30, n_threads)))


@forks
def test_processes_of_multiprocessing_have_helpers_of_their_own():
    threads_seen(8, 4)
    with multiprocessing.get_context("fork").Pool(2) as processes:
        assert processes.map(n_seen, [2, 3, 1]) == [2, 3, 1]


@forks
def test_a_fork_during_a_call_of_another_thread():
    begun = threading.Event()

    def work(block):
        begun.set()
        time.sleep(0.05)

    caller = threading.Thread(target=call_blocks, args=(work, 20, 3))
    caller.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        os._exit(42 if n_seen(3) == 3 else 1)
    caller.join()
    assert exit_code(child) == 42


@may_drop_interrupts
@pytest.mark.parametrize("n_threads", [1, 3])
def test_an_interrupt_ends_a_call_of_kernels(n_threads):
    # Time in a block of a kernel without the lock: SIGINT is seen by the checks between blocks.
    with interrupted_after(0.3) as sent, pytest.raises(KeyboardInterrupt):
        call_blocks(lambda block: time.sleep(0.02), 10_000, n_threads)
    assert time.monotonic() - sent[-1] < 1.0


def test_helpers_are_joined_at_exit():
    code = (
        "import atexit, os\n"
        "atexit.register(lambda: print(len(os.listdir('/proc/self/task'))))\n"
        "from sklearn_crf.kernels.core.pool import call_blocks\n"
        "import time\n"
        "call_blocks(lambda block: time.sleep(0.01), 8, 4)\n"
        "print(len(os.listdir('/proc/self/task')))\n"
    )
    if not os.path.isdir("/proc/self/task"):
        code = code.replace("len(os.listdir('/proc/self/task'))", "0")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    during, after = map(int, done.stdout.split())
    assert after == max(during - 3, 0)
