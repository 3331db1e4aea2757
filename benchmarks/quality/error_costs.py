"""Measure what costs of edges, weights near boundaries, weights for F1 and expected costs change on photographs.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/error_costs.py --record costs.json

Twenty test photographs of horses, for each of five random draws of the training photographs. The table has the mean of
each measure over draws, and the mean difference to the first method of each group with its standard error over draws:
correct pixels, correct pixels at most two edges from a boundary, edges whose labels wrongly agree or wrongly differ,
the F1 score of the horse, and the mean cost if a missed horse costs 5 and a false alarm 1.
"""

import argparse
from functools import partial
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from sklearn.metrics import f1_score
from support.default_tasks import drawn
from support.record import recorded

from sklearn_crf import TRWCRF, M3NClassifier
from sklearn_crf.learning import ErrorCost, Relaxation, TruncatedInference
from sklearn_crf.preprocessing import node_weights

TASK = "horses, 8 of 32 x 40"
# Cost by predicted label, then true label: background, horse
MISSES = np.array([[0.0, 5.0], [1.0, 0.0]])
SAME = np.eye(2, dtype=bool)
BOUNDARY = (SAME[:, :, None, None] != SAME).astype(float)
UNIVARIATE = partial(TruncatedInference, loss="univariate")

# Estimator and node weights, by group and name
METHODS = {
    "margin": (M3NClassifier, None),
    "margin, cost of boundaries": (partial(M3NClassifier, cost=ErrorCost(edges="boundary")), None),
    "margin, twice this cost": (partial(M3NClassifier, cost=ErrorCost(edges=2 * BOUNDARY)), None),
    "margin, boundary weights": (M3NClassifier, {"boundary": 2.0, "distance": 2}),
    "univariate": (partial(TRWCRF, learning=UNIVARIATE()), None),
    "univariate, boundary weights": (partial(TRWCRF, learning=UNIVARIATE()), {"boundary": 2.0, "distance": 2}),
    "univariate, F1 weights": (partial(TRWCRF, learning=UNIVARIATE()), {"f1": 0.65, "positive": 1}),
    "univariate, costs in decisions": (partial(TRWCRF, learning=UNIVARIATE(), cost=MISSES), None),
    "expected cost": (partial(TRWCRF, learning=TruncatedInference(loss="expected_cost"), cost=MISSES), None),
    "likelihood, TRW": (partial(TRWCRF, learning=Relaxation()), None),
    "likelihood, softmax-margin": (partial(TRWCRF, learning=Relaxation(cost="hamming")), None),
    "likelihood, cost of boundaries": (partial(TRWCRF, learning=Relaxation(cost=ErrorCost(edges="boundary"))), None),
    "likelihood, boundaries in decisions": (
        partial(TRWCRF, learning=Relaxation(), inference="trw", cost=ErrorCost(edges="boundary")),
        None,
    ),
}
MEASURES = "correct", "near boundary", "wrong edges", "F1", "cost"


def measured(method, seed):
    """Return the measures of one draw, as means over test images."""
    _, task = drawn(TASK, seed)
    make, weights = METHODS[method]
    node_weight = None if weights is None else node_weights(task.y, **weights)
    found = make().fit(task.X, task.y, node_weight=node_weight).predict(task.X_test)
    truth = task.y_test
    near = node_weights(truth, boundary=1.0, distance=2) > 1
    wrong = found != truth
    edges = [np.mean(np.not_equal(*ends(found, axis)) != np.not_equal(*ends(truth, axis))) for axis in (1, 2)]
    return [
        float(100 * np.mean(~wrong)),
        float(100 * np.mean(~wrong[near])),
        float(100 * np.mean(edges)),
        float(100 * f1_score(truth.ravel(), found.ravel())),
        float(MISSES[found, truth].mean()),
    ]


def ends(labels, axis):
    """Return the labels of both ends of all edges along an axis."""
    n = labels.shape[axis]
    return np.take(labels, range(n - 1), axis), np.take(labels, range(1, n), axis)


def main():
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS, metavar="METHOD")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    print(f"{'':36s}" + "".join(f"{name:>22s}" for name in MEASURES))
    base: dict[str, np.ndarray] = {}
    for method in options.methods:
        runs = [recorded(options.record, f"{method}/{s}", partial(measured, method, s)) for s in range(options.seeds)]
        values = np.array(runs)
        gains = values - base.setdefault(method.partition(",")[0].replace("expected cost", "univariate"), values)
        error = gains.std(axis=0, ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else np.full(len(MEASURES), np.nan)
        cells = zip(values.mean(axis=0), gains.mean(axis=0), error, strict=True)
        print(f"{method:36s}" + "".join(f"{v:8.2f} ({g:+.2f}, {e:.2f})" for v, g, e in cells), flush=True)


if __name__ == "__main__":
    main()
