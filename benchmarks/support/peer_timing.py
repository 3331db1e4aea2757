"""Times of one side of a comparison in ``peers.py``, and the memory from which its peak counts."""

import time

import numpy as np

from support.memory import forget_peak, peak_megabytes

# Memory of this process before the first step that is timed.
before = []


def timed(job, repetitions=1, at_least=0.0):
    """Least (clock, processor) seconds of so many runs, or of more until they took ``at_least``; the last result."""
    if not before:
        # What making the data took for a while is no room for the work.
        forget_peak()
        before.append(peak_megabytes())
    times = []
    while len(times) < repetitions or np.sum(times, axis=0)[1] < at_least:
        start = time.perf_counter(), time.process_time()
        result = job()
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return np.min(times, axis=0).tolist(), result
