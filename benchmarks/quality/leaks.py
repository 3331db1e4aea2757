"""Measure the memory that every fit and every prediction leaves behind, for each estimator.

The result is the slope of the resident memory over calls, in bytes per call, after some calls that fill caches. Every
call gets new data, to detect caches keyed by the input. Use ``--calls 3000`` before a release.

    python benchmarks/quality/leaks.py [--calls N] [--only NAME]
"""

import argparse
import gc
import warnings
from pathlib import Path

import numpy as np

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DenseCRF,
    DRFClassifier,
    M3NClassifier,
    MultiConditionalMFA,
    MultiLabelField,
    RegressionTreeField,
    RegressionTreeFieldClassifier,
)
from sklearn_crf.dense import BandwidthGradient

_PAGE = 4096
# Smaller slopes are noise of the allocator.
_TOLERATED = 200.0


def resident():
    """Return the bytes of the resident set of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def images(rng, shape=(12, 12)):
    y = rng.integers(2, size=(2, *shape))
    return y[..., np.newaxis] + rng.normal(size=(2, *shape, 1)), y


def rows(rng):
    y = rng.integers(2, size=60)
    return y[:, np.newaxis] + rng.normal(size=(60, 3)), y


def real_images(rng):
    X, y = images(rng)
    return X, y.astype(float)


def scored_images(rng):
    X, y = images(rng)
    return np.concatenate([-X, X, X], axis=-1), y


def labelled_rows(rng):
    X = rng.normal(size=(60, 3))
    return X, (X @ rng.normal(size=(3, 4)) > 0).astype(int)


ESTIMATORS = {
    "DRFClassifier": (lambda: DRFClassifier(max_iter=2), images),
    "TRWCRF": (lambda: TRWCRF(max_iter=2), images),
    "M3NClassifier": (lambda: M3NClassifier(max_iter=2), images),
    "ContrastiveCRF": (lambda: ContrastiveCRF(max_iter=2), images),
    "DenseCRF": (lambda: DenseCRF(image_channels=1, max_iter=2), scored_images),
    "DenseCRF, bandwidths learned": (
        lambda: DenseCRF(image_channels=1, max_iter=2, bandwidths=BandwidthGradient(max_iter=1)),
        scored_images,
    ),
    "MultiLabelField": (lambda: MultiLabelField(TRWCRF(pairwise="ising", max_iter=2)), labelled_rows),
    "RegressionTreeField": (lambda: RegressionTreeField(max_depth=1, max_iter=2), real_images),
    "RegressionTreeFieldClassifier": (lambda: RegressionTreeFieldClassifier(max_depth=1, max_iter=2), images),
    "MultiConditionalMFA": (lambda: MultiConditionalMFA(max_iter=2), rows),
}


def slope(call, n_calls):
    """Return the bytes for each call, by least squares over the second half of the calls."""
    found = []
    for k in range(n_calls):
        call(np.random.default_rng(k))
        if k >= n_calls // 2 and k % max(n_calls // 100, 1) == 0:
            gc.collect()
            found.append((k, resident()))
    calls, sizes = np.array(found, dtype=float).T
    return np.polyfit(calls, sizes, 1)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200, help="fits of each estimator; ten times as many predictions")
    parser.add_argument("--only", help="name of one estimator")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"bytes left behind by a call, {options.calls} fits and {10 * options.calls} predictions each")
    leaking = []
    for name, (make, data) in ESTIMATORS.items():
        if options.only not in (None, name):
            continue
        model = make().fit(*data(np.random.default_rng(0)))
        fit = slope(lambda rng: make().fit(*data(rng)), options.calls)  # noqa: B023
        predict = slope(lambda rng: model.predict(data(rng)[0]), 10 * options.calls)  # noqa: B023
        print(f"{name:30} fit {fit:10.0f}   predict {predict:10.0f}", flush=True)
        leaking += [name] if max(fit, predict) > _TOLERATED else []
    if leaking:
        raise SystemExit(f"memory grows with every call: {', '.join(leaking)}")


if __name__ == "__main__":
    main()
