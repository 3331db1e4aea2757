"""Compare results bit by bit with those of one thread: passed and all tests, by estimator and kind of parallelism.

    python benchmarks/quality/bit_identity.py [--only ESTIMATOR]

Runs ``tests/test_same_bits.py``, which compares fitted state and predictions: with 2 and 8 threads; with eight fits at
once in threads of the user; with the backends loky and dask (around a fit, and in their workers); and with eight
predictions of one model at once. "-" marks a skipped test, for example if dask is not installed.
"""

from fault_matrix import run_matrix

WAYS = ["n_jobs=2", "n_jobs=8", "eight users", "loky", "dask"]


def column(test, case):
    """Return the table column of a test, from its name and its parameters, or None."""
    if test == "test_eight_threads_predict_at_once":
        return "8 predict"
    return next((way for way in WAYS if case.endswith(f"-{way}")), None)


if __name__ == "__main__":
    run_matrix(__doc__, "test_same_bits.py", column, [*WAYS, "8 predict"])
