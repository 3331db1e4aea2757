"""Measure the peak memory of this process."""

import ctypes
import gc
import resource
from contextlib import suppress
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_megabytes():
    """Return the peak memory of this program in MB, including imports.

    On Linux, a program inherits ``ru_maxrss`` from the process that starts it, so a small program started by a large
    process would report the peak of the large process. ``VmHWM`` is not inherited.
    """
    if STATUS.exists():
        fields = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def forget_peak():
    """Reset the peak of :func:`peak_megabytes` to the current memory, if the system supports it.

    Freed memory is returned to the system first. Otherwise the work could use it without raising the peak.
    """
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
