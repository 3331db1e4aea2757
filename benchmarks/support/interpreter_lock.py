"""Measure the share of time in which some thread holds the interpreter's lock."""

import ctypes
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path


@cache
def _library():
    """Return the compiled sampler, or None. Its thread is not a Python thread, which would take the lock itself."""
    # Later versions of Python store the running thread where other threads cannot read it.
    if sys.version_info[:2] != (3, 11) or sys.platform != "linux":
        return None
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "interpreter_lock.so"
        source = Path(__file__).with_suffix(".c")
        done = subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-pthread", source, "-o", library], capture_output=True)
        if done.returncode:
            return None
        found = ctypes.CDLL(str(library))
    found.stop_watching.restype = ctypes.c_double
    return found


def share_held(job):
    """Return the share of the time of a job in which the lock is held, or NaN if it cannot be measured."""
    library = _library()
    if library is None:
        job()
        return float("nan")
    library.start_watching()
    try:
        job()
    finally:
        share = library.stop_watching()
    return share
