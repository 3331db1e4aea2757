"""Peak memory of this process."""

import ctypes
import gc
import resource
from contextlib import suppress
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_megabytes():
    """Most memory that this program has held at once, in MB, imports included.

    Linux hands ``ru_maxrss`` of a process on to the program that it starts: a small program called by a large one
    would be charged for both. The peak that the kernel keeps of the program itself is not inherited.
    """
    if STATUS.exists():
        fields = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def forget_peak():
    """Start :func:`peak_megabytes` again from what this program uses now, where the system can.

    Memory that was freed and not given back would be used by the work and not be counted.
    """
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
