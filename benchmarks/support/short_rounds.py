"""Time of training of tree fields with intentionally short rounds."""

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning


def seconds_of_fit(field, X, y):
    """Fit a field, and return elapsed and processor seconds."""
    start = np.array([time.perf_counter(), time.process_time()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        field.fit(X, y)
    return np.array([time.perf_counter(), time.process_time()]) - start
