"""Times of one side of a comparison in ``peers.py``, and the memory before the work."""

import time

import numpy as np

from support.memory import forget_peak, peak_megabytes

# Memory of this process before the first timed step
before = []


def timed(job, repetitions=1, at_least=0.0):
    """Return the shortest (elapsed, processor) seconds of ``repetitions`` runs or more, and the last result.

    Runs are repeated until they have taken ``at_least`` processor seconds in total.
    """
    if not before:
        # Do not count temporary memory of making the data.
        forget_peak()
        before.append(peak_megabytes())
    times = []
    while len(times) < repetitions or np.sum(times, axis=0)[1] < at_least:
        start = time.perf_counter(), time.process_time()
        result = job()
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return np.min(times, axis=0).tolist(), result
