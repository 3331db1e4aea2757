"""The share of the time in which some thread holds the lock of the interpreter."""

import ctypes
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path


@cache
def _library():
    """The sampler, compiled here: its thread must not be one of Python's, which would take the lock itself."""
    # Later versions keep the running thread where no other thread can read it.
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
    """The share of the time of a job in which the lock is held; NaN where that cannot be seen."""
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
