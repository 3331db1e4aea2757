"""Ctrl-C at a chosen moment."""

import signal
import threading
import time
from contextlib import contextmanager

import pytest

# Python reports an interrupt that it drops inside of a callback; the next one is not dropped.
may_drop_interrupts = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@contextmanager
def interrupted_after(moment):
    """Send SIGINT to the main thread after some seconds, and again every second: Python drops one inside of a callback.

    Yields the list of times at which it was sent.
    """
    main, over, sent = threading.main_thread().ident, threading.Event(), []
    # A shell switches it off in what it starts in the background.
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
