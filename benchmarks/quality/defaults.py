"""Compare every estimator without options with classifiers of single nodes, on small tasks of seven kinds of data.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/defaults.py --record defaults.json            # all; hours
    python benchmarks/quality/defaults.py --tasks squares "Potts, 4 classes" --seeds 3

Each task is drawn ten times. For each task, and for each default and baseline, the script prints the mean fraction of
correct test nodes, the log-loss, the calibration error (ten bins of the confidence) and the processor time of a fit.
Baselines are logistic regression, boosted trees and a random forest on the features of single nodes, and the first two
of these on windows, which include the features of the neighbours (their mean in graphs). At the end, the script checks
that no default is worse than logistic regression by more than a standard error of the paired difference; that the best
default is better than all baselines if labels of neighbours depend on each other; that there is no warning; and that no
fit takes more than two seconds. An interrupted run continues from its record.
``--methods DRFClassifier "DRFClassifier, mpm"`` compares the default inference with loopy belief propagation.
"""

import argparse
import time
import warnings
from collections import defaultdict
from functools import partial
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from support.default_tasks import TASKS, drawn
from support.node_windows import NodesAlone
from support.record import recorded

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, M3NClassifier, MultiConditionalMFA, MultiLabelField


def _logistic():
    return LogisticRegression(max_iter=5000)


FIELDS = {kind.__name__: kind for kind in (TRWCRF, DRFClassifier, M3NClassifier, ContrastiveCRF)}
#: Fields with options, which run only if ``--methods`` names them.
VARIANTS = {"DRFClassifier, mpm": lambda: DRFClassifier(inference="mpm")}
NODES = {
    "logistic": lambda: NodesAlone(_logistic()),
    "boosting": lambda: NodesAlone(HistGradientBoostingClassifier(random_state=0)),
    "forest": lambda: NodesAlone(RandomForestClassifier(random_state=0)),
    "logistic, windows": lambda: NodesAlone(_logistic(), windows=True),
    "boosting, windows": lambda: NodesAlone(HistGradientBoostingClassifier(random_state=0), windows=True),
}
#: Tasks with several labels for each row; no default may be worse than the first baseline.
LABEL_FIELDS = {"MultiLabelField": MultiLabelField}
LABELS = {
    "logistic": lambda: MultiOutputClassifier(_logistic()),
    "chain of logistic": lambda: ClassifierChain(_logistic(), random_state=0),
    "forest": lambda: RandomForestClassifier(random_state=0),
}
DENSE_ALONE = ("boosting", "boosting, windows")  # these methods do not support sparse features


def methods_of(kind):
    """Return the defaults and the baselines of a kind of data."""
    if kind == "labels":
        return LABEL_FIELDS, LABELS
    if kind == "rows":
        return FIELDS | {"MultiConditionalMFA": MultiConditionalMFA}, {name: NODES[name] for name in list(NODES)[:3]}
    return FIELDS, {name: make for name, make in NODES.items() if kind != "text" or name not in DENSE_ALONE}


def measured(name, method, seed):
    """Return the scores of a method on one draw of a task."""
    kind, task = drawn(name, seed)
    fields, baselines = methods_of(kind)
    estimator = (fields | VARIANTS | baselines)[method]()
    if task.missing_label is not None:
        estimator.set_params(missing_label=task.missing_label)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.process_time()
        try:
            estimator.fit(task.X, task.y)
        except ValueError as error:
            return {"refused": str(error)}
        seconds = time.process_time() - start
        predicted = estimator.predict(task.X_test)
        if kind == "labels":
            scores = {"right": float(np.mean((predicted == task.y_test).all(axis=1)))}
        else:
            scores = _node_scores(estimator, task, _flat(predicted))
    return {**scores, "seconds": seconds, "warnings": sorted({str(each.message) for each in caught})}


def _flat(labels):
    return (
        np.concatenate([np.ravel(part) for part in labels])
        if isinstance(labels, list) or labels.dtype == object
        else labels.ravel()
    )


def _node_scores(estimator, task, predicted):
    labels = _flat(task.y_test)
    known = np.ones(len(labels), bool) if task.missing_label is None else labels != task.missing_label
    scores = {"right": float(np.mean(predicted[known] == labels[known]))}
    if not hasattr(estimator, "predict_proba"):
        return scores
    found = estimator.predict_proba(task.X_test)
    found = (
        np.concatenate([part.reshape(-1, part.shape[-1]) for part in found])[known] if found.ndim != 2 else found[known]
    )
    column = {label: k for k, label in enumerate(estimator.classes_)}
    of_truth = np.array(
        [row[column[label]] if label in column else 0.0 for row, label in zip(found, labels[known], strict=True)]
    )
    return scores | {
        "log_loss": float(-np.log(np.maximum(of_truth, 1e-15)).mean()),
        "calibration": _calibration_error(found, estimator.classes_, labels[known]),
    }


def _calibration_error(found, classes, labels, n_bins=10):
    """Return the mean distance between confidence and accuracy, over bins of confidence."""
    confidence, right = found.max(axis=1), classes[found.argmax(axis=1)] == labels
    places = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    distances = [abs(np.sum(confidence[places == i] - right[places == i])) for i in range(n_bins)]
    return float(np.sum(distances) / len(labels))


def report(name, found):
    """Print the rows of a task."""
    print(f"\n{name}")
    print(f"  {'':24s} {'right':>14s} {'log-loss':>9s} {'calibr.':>8s} {'fit, s':>8s}")
    for method, runs in found.items():
        if any("refused" in run for run in runs):
            print(f"  {method:24s} refuses: {next(run['refused'] for run in runs if 'refused' in run)[:150]}")
            continue
        right = [run["right"] for run in runs]
        mean = {
            key: np.mean([run[key] for run in runs]) if key in runs[0] else np.nan
            for key in ("log_loss", "calibration")
        }
        spread = np.std(right, ddof=1) / np.sqrt(len(right)) if len(right) > 1 else np.nan
        seconds = np.mean([run["seconds"] for run in runs])
        shown = "".join(
            f" {'' if np.isnan(value) else f'{value:.3f}':>{width}s}"
            for value, width in zip(mean.values(), (9, 8), strict=True)
        )
        print(f"  {method:24s} {np.mean(right):7.4f} +-{spread:.4f}{shown} {seconds:8.2f}", flush=True)
        for message in sorted({message for run in runs for message in run["warnings"]}):
            print(f"      warns: {message[:150]}")


def summarise(results):
    """Print the requirements on defaults, and where they are not met."""
    results = {
        name: {method: runs for method, runs in found.items() if not any("refused" in run for run in runs)}
        for name, found in results.items()
    }
    faults, wins, n_dependent = defaultdict(list), [], 0
    for name, found in results.items():
        fields, baselines = methods_of(TASKS[name][0])
        for method in [each for each in fields if each in found]:
            for fault in _faults(found[method], found["logistic"]):
                faults[fault].append(f"{method} on {name}")
        if TASKS[name][0] != "rows":
            n_dependent += 1
            best = {
                kind: max(np.mean([run["right"] for run in found[method]]) for method in kind if method in found)
                for kind in map(tuple, (fields, baselines))
            }
            wins += [name] if best[tuple(fields)] > best[tuple(baselines)] else []
    print(f"\nThe best default is above all baselines on {len(wins)} of {n_dependent} tasks with edges.")
    print(f"  not on: {', '.join(name for name in results if TASKS[name][0] != 'rows' and name not in wins)}")
    for fault, where in faults.items():
        print(f"{fault}: {len(where)}\n  " + "\n  ".join(where))


def _faults(runs, logistic):
    """Yield the requirements that a default misses, paired with logistic regression by draw."""
    for key, sign, text in (
        ("right", 1, "below logistic regression"),
        ("log_loss", -1, "log-loss above logistic regression's"),
        ("calibration", -1, "calibration error above logistic regression's"),
    ):
        if key in runs[0] and key in logistic[0]:
            gains = sign * np.array([own[key] - other[key] for own, other in zip(runs, logistic, strict=True)])
            error = np.std(gains, ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
            if gains.mean() < -error - 1e-4:
                yield f"{text} by more than a standard error"
    if any(run["warnings"] for run in runs):
        yield "warnings"
    if np.mean([run["seconds"] for run in runs]) > 2:
        yield "fits above two seconds"


def _of_seeds(name, method, options):
    return [
        recorded(options.record, f"{name} | {method} | {seed}", partial(measured, name, method, seed))
        for seed in range(options.seeds)
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--methods", nargs="+", help="defaults and baselines; all unless given")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    results = {}
    for name in options.tasks:
        fields, baselines = methods_of(TASKS[name][0])
        chosen = [*fields, *baselines]
        if options.methods is not None:
            chosen = [each for each in fields | VARIANTS | baselines if each in options.methods]
        results[name] = {method: _of_seeds(name, method, options) for method in chosen}
        report(name, results[name])
    if options.methods is None:
        summarise(results)


if __name__ == "__main__":
    main()
