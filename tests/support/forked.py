"""Helpers of tests that fork processes."""

import os
import signal
import time

import pytest

# Fork does not release the lock of the allocator of AddressSanitizer. If a thread was ending at the time of the fork,
# the child waits for the lock forever.
_IS_SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")

#: Mark of tests that fork.
forks = pytest.mark.skipif(
    not hasattr(os, "fork") or _IS_SANITIZED,
    reason="this system does not fork, or AddressSanitizer cannot allocate in a forked child",
)


def exit_code(child):
    """Return the exit code of a forked child. Kill the child and fail the test after a minute."""
    deadline = time.monotonic() + 60
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if done == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child gave no answer in 60 s")
    return os.waitstatus_to_exitcode(done[1])
