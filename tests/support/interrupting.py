"""Interrupts of the main thread, as by Ctrl-C, after a chosen time."""

import signal
import threading
import time
from contextlib import contextmanager

import pytest

# Python drops an interrupt inside a callback, with a warning. A later interrupt then stops the call.
may_drop_interrupts = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@contextmanager
def interrupted_after(moment):
    """Send SIGINT to the main thread after ``moment`` seconds and then every second, as Python may drop one interrupt.

    Yields the list of times at which interrupts were sent.
    """
    main, over, sent = threading.main_thread().ident, threading.Event(), []
    # Shells ignore SIGINT in background processes, so set the default handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def send():
        wait = moment
        while not over.wait(wait):
            sent.append(time.monotonic())
            signal.pthread_kill(main, signal.SIGINT)
            wait = 1.0

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
