"""Compare learning through ten sweeps of the predicting inference with likelihood, margins and pseudolikelihood.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/truncated_learning.py --record truncated.json    # an hour
    SKLEARN_CRF_DATA=folder python benchmarks/quality/truncated_learning.py --seeds 1 --methods default clique
    SKLEARN_CRF_DATA=folder python benchmarks/quality/truncated_learning.py --comparison --record comparison.json
    SKLEARN_CRF_DATA=folder python benchmarks/quality/truncated_learning.py --variants --record variants.json

The tasks and their features are defined in ``defaults.py``; every draw has its own training and test images. All
methods except the margin predict by marginals. ``--by-sweeps`` labels the test images by ten sweeps of tree-reweighted
belief propagation instead, with the weights of any method. For each method, the fraction of correct nodes, the
log-loss, the processor time, the memory and the iterations of a fit are printed. The differences to the first method
are paired by test image; their mean, their standard errors over all images and over draws, and the p-value of a paired
t-test over images are printed. ``--comparison`` runs six tasks and six methods with ``--by-sweeps``. ``--variants``
runs further options on horses, each with its own inference at prediction, and both kinds of learning on scores of
boosted trees. An interrupted run continues from its record.
"""

import argparse
import multiprocessing
import resource
import time
import warnings
from functools import partial
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.stats import ttest_1samp
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.pipeline import Pipeline, make_pipeline
from support.default_tasks import TASKS, drawn
from support.record import recorded

from sklearn_crf import TRWCRF, M3NClassifier
from sklearn_crf.inference.messages._fixed_sweeps import FixedSweeps
from sklearn_crf.learning import PseudolikelihoodTraining, TruncatedInference
from sklearn_crf.preprocessing import ClassifierScores


def boosted(make):
    """Return a field whose features are scores of boosted trees beside the features of the images."""
    return make_pipeline(ClassifierScores(HistGradientBoostingClassifier(max_iter=50, random_state=0), cv=4), make())


METHODS = {
    "default": TRWCRF,
    "likelihood, TRW": partial(TRWCRF, learning="relaxation", inference="trw"),
    "clique": partial(TRWCRF, learning="truncated"),
    "univariate": partial(TRWCRF, learning=TruncatedInference(loss="univariate")),
    "smooth Hamming": partial(TRWCRF, learning=TruncatedInference(loss="expected_cost")),
    "clique, loopy": partial(TRWCRF, learning=TruncatedInference(inference="loopy")),
    "clique, mean field": partial(TRWCRF, learning=TruncatedInference(inference="mean_field")),
    "clique, 5 sweeps": partial(TRWCRF, learning=TruncatedInference(n_sweeps=5)),
    "clique, 40 sweeps": partial(TRWCRF, learning=TruncatedInference(n_sweeps=40)),
    "clique, C held out": lambda: GridSearchCV(
        TRWCRF(learning="truncated"), {"C": [0.1, 1.0, 10.0]}, cv=ShuffleSplit(1, test_size=0.25, random_state=0)
    ),
    "boosted, default": partial(boosted, TRWCRF),
    "boosted, clique": partial(boosted, partial(TRWCRF, learning="truncated")),
    "margin": M3NClassifier,
    "plain pseudolikelihood": partial(TRWCRF, learning=PseudolikelihoodTraining(edge_scale=1)),
    "pseudolikelihood": partial(TRWCRF, learning="pseudolikelihood"),
    "PMA": partial(TRWCRF, learning="pma", inference="trw"),
}

# The first of the methods is compared with the others.
COMPARISON = {
    "tasks": [
        "squares",
        "shapes, bimodal noise",
        "regions, 5 classes",
        "strokes on a photograph",
        "streets, 10 of 30 x 40",
        "horses, 20 of 64 x 80",
    ],
    "methods": [
        "likelihood, TRW",
        "clique",
        "univariate",
        "margin",
        "PMA",
        "plain pseudolikelihood",
        "pseudolikelihood",
    ],
}

# Groups of methods on the default task; the first of each group is compared with the others.
# Mean field is left out, because its fits take minutes on this task.
VARIANTS = [
    [
        "default",
        "clique",
        "univariate",
        "smooth Hamming",
        "clique, 5 sweeps",
        "clique, 40 sweeps",
        "clique, C held out",
    ],
    ["boosted, default", "boosted, clique"],
]


def measured(name, method, seed, by_sweeps):
    """Return the scores of each test image and the cost of the fit on one draw of a task."""
    _, task = drawn(name, seed)
    estimator = METHODS[method]()
    if task.missing_label is not None:
        estimator.set_params(missing_label=task.missing_label)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.process_time()
        estimator.fit(task.X, task.y)
        seconds = time.process_time() - start
    megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    field = estimator.best_estimator_ if isinstance(estimator, GridSearchCV) else estimator
    field = field[-1] if isinstance(field, Pipeline) else field
    right, log_loss = [], []
    has_probabilities = hasattr(estimator, "predict_proba")
    if by_sweeps:
        sweeps = FixedSweeps(edge_probabilities="chains")
        found = [sweeps.marginals(model).unary for model in estimator.models(task.X_test)]
        found = [shares.reshape(*truth.shape, -1) for shares, truth in zip(found, task.y_test, strict=True)]
        predicted = [estimator.classes_[shares.argmax(axis=-1)] for shares in found]
    else:
        predicted = estimator.predict(task.X_test)
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
        "megabytes": megabytes,
        "n_iter": int(field.n_iter_),
        "warnings": sorted({str(each.message) for each in caught}),
    }


def measured_alone(*arguments):
    """Return the result of ``measured`` in a process of its own, so that its peak of memory is its own."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        try:
            return pool.apply(measured, arguments)
        except ValueError as error:
            return {"refused": str(error)}


def standard_error(values):
    """Return the standard error of the mean of some values, or NaN for a single value."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def report(name, found):
    """Print the rows of a task."""
    base_runs = next(iter(found.values()))
    heads = f"{'right':>7s} {'gain, points':>21s} {'p':>7s} {'log-loss':>8s} {'gain':>15s}"
    heads += f" {'fit, s':>8s} {'MB':>5s} {'iter.':>6s}"
    print(f"\n{name}\n  {'':22s} {heads}")
    for method, runs in found.items():
        if "refused" in runs[0]:
            print(f"  {method:22s} refused: {runs[0]['refused']}"[:120])
            continue
        row = f"  {method:22s} {100 * np.mean([np.mean(run['right']) for run in runs]):7.2f}"
        for key, factor in (("right", 100), ("log_loss", 1)):
            if not runs[0][key]:
                row += f" {'':>25s}"
                continue
            gains = [factor * np.subtract(run[key], base[key]) for run, base in zip(runs, base_runs, strict=True)]
            differences = np.concatenate(gains)
            over_images, over_draws = standard_error(differences), standard_error([g.mean() for g in gains])
            if key == "log_loss":
                mean = np.mean([np.mean(run[key]) for run in runs])
                row += f" {mean:8.3f} {differences.mean():+7.3f} ({over_images:.3f})"
            else:
                p = ttest_1samp(differences, 0.0).pvalue if differences.any() else 1.0
                row += f" {differences.mean():+7.2f} ({over_images:.2f}; {over_draws:.2f}) {p:7.4f}"
        of_fit = (np.mean([run[key] for run in runs]) for key in ("seconds", "megabytes", "n_iter"))
        row += " {:8.1f} {:5.0f} {:6.0f}".format(*of_fit)
        print(row, flush=True)
        for message in sorted({message for run in runs for message in run["warnings"]}):
            print(f"      warns: {message[:150]}")


def main():
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", nargs="+", default=["horses, 20 of 64 x 80"], choices=TASKS, metavar="TASK")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS, metavar="METHOD")
    parser.add_argument("--comparison", action="store_true")
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--by-sweeps", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    if options.comparison:
        options.tasks, options.methods, options.by_sweeps = *COMPARISON.values(), True
    elif "default" not in options.methods:
        options.methods.insert(0, "default")
    for name in options.tasks:
        for methods in VARIANTS if options.variants else [options.methods]:
            found = {}
            for method in methods:
                found[method] = [
                    recorded(
                        options.record,
                        f"{name}/{method}/{seed}",
                        partial(measured_alone, name, method, seed, options.by_sweeps),
                    )
                    for seed in range(options.seeds)
                ]
            report(name, found)


if __name__ == "__main__":
    main()
