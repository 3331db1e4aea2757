"""Compare learning through ten sweeps of the predicting inference with likelihood, margins and pseudolikelihood.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/truncated_learning.py --record truncated.json    # an hour
    SKLEARN_CRF_DATA=folder python benchmarks/quality/truncated_learning.py --seeds 1 --methods default clique

The tasks and their features are defined in ``defaults.py``; every draw has its own training and test images. All
methods except the margin predict by marginals. For each method, the fraction of correct nodes, the log-loss, the
processor time and the iterations of a fit are printed. The differences to ``TRWCRF()`` are paired by test image; their
mean and their standard errors over all images and over draws are printed. An interrupted run continues from its record.
"""

import argparse
import time
import warnings
from functools import partial
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.default_tasks import TASKS, drawn
from support.record import recorded

from sklearn_crf import TRWCRF, M3NClassifier
from sklearn_crf.learning import TruncatedInference

METHODS = {
    "default": TRWCRF,
    "likelihood, TRW": partial(TRWCRF, learning="relaxation", inference="trw"),
    "clique": partial(TRWCRF, learning="truncated"),
    "univariate": partial(TRWCRF, learning=TruncatedInference(loss="univariate")),
    "smooth Hamming": partial(TRWCRF, learning=TruncatedInference(loss="smooth_hamming")),
    "clique, loopy": partial(TRWCRF, learning=TruncatedInference(inference="loopy")),
    "clique, mean field": partial(TRWCRF, learning=TruncatedInference(inference="mean_field")),
    "clique, 5 sweeps": partial(TRWCRF, learning=TruncatedInference(n_sweeps=5)),
    "margin": M3NClassifier,
    "pseudolikelihood": partial(TRWCRF, learning="pseudolikelihood"),
}


def measured(name, method, seed):
    """Return the scores of each test image and the cost of the fit on one draw of a task."""
    _, task = drawn(name, seed)
    estimator = METHODS[method]()
    if task.missing_label is not None:
        estimator.set_params(missing_label=task.missing_label)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.process_time()
        estimator.fit(task.X, task.y)
        seconds = time.process_time() - start
    right, log_loss = [], []
    predicted = estimator.predict(task.X_test)
    has_probabilities = hasattr(estimator, "predict_proba")
    found = estimator.predict_proba(task.X_test) if has_probabilities else predicted
    for labels, truth, shares in zip(predicted, task.y_test, found, strict=True):
        known = np.isin(truth, estimator.classes_)
        right.append(float(np.mean(labels[known] == truth[known])))
        if has_probabilities:
            columns = np.searchsorted(estimator.classes_, truth[known])
            of_truth = np.take_along_axis(shares[known], columns[:, np.newaxis], axis=1)
            log_loss.append(float(-np.log(np.maximum(of_truth, 1e-15)).mean()))
    return {
        "right": right,
        "log_loss": log_loss,
        "seconds": seconds,
        "n_iter": int(estimator.n_iter_),
        "warnings": sorted({str(each.message) for each in caught}),
    }


def standard_error(values):
    """Return the standard error of the mean of some values, or NaN for a single value."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def report(name, found):
    """Print the rows of a task."""
    heads = f"{'right':>7s} {'gain, points':>21s} {'log-loss':>8s} {'gain':>15s} {'fit, s':>8s} {'iter.':>6s}"
    print(f"\n{name}\n  {'':20s} {heads}")
    for method, runs in found.items():
        row = f"  {method:20s} {100 * np.mean([np.mean(run['right']) for run in runs]):7.2f}"
        for key, factor in (("right", 100), ("log_loss", 1)):
            if not runs[0][key]:
                row += f" {'':>25s}"
                continue
            gains = [
                factor * np.subtract(run[key], base[key]) for run, base in zip(runs, found["default"], strict=True)
            ]
            over_images, over_draws = standard_error(np.concatenate(gains)), standard_error([g.mean() for g in gains])
            if key == "log_loss":
                row += (
                    f" {np.mean([np.mean(run[key]) for run in runs]):8.3f} {np.mean(gains):+7.3f} ({over_images:.3f})"
                )
            else:
                row += f" {np.mean(gains):+7.2f} ({over_images:.2f}; {over_draws:.2f})"
        row += f" {np.mean([run['seconds'] for run in runs]):8.1f} {np.mean([run['n_iter'] for run in runs]):6.0f}"
        print(row, flush=True)
        for message in sorted({message for run in runs for message in run["warnings"]}):
            print(f"      warns: {message[:150]}")


def main():
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", nargs="+", default=["horses, 20 of 64 x 80"], choices=TASKS, metavar="TASK")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS, metavar="METHOD")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    for name in options.tasks:
        found = {}
        for method in dict.fromkeys(["default", *options.methods]):
            found[method] = [
                recorded(options.record, f"{name}/{method}/{seed}", partial(measured, name, method, seed))
                for seed in range(options.seeds)
            ]
        report(name, found)


if __name__ == "__main__":
    main()
