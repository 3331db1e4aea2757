"""Photographs with several labels: factors over triples of labels and over all labels, compared with pairs.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/factor_labels.py    # folder holds multilabel/scene.npz

Every label is a node, so an image has six nodes of two states, and inference is exact. All models have the same node
features. They differ in their joint scores: none, all 15 pairs, all 20 triples, or one factor over the six labels.
Training and test images are drawn anew for each seed, and C is chosen by log-likelihood on a quarter of the training
images. Differences from pairs are paired by seed, with standard errors over seeds. An example holds fifty images, which
share no edges or factors.
"""

import argparse
import os
import time
import warnings
from itertools import combinations
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_crf import TRWCRF, Example

N_LABELS, STRENGTHS = 6, (0.01, 0.1, 1.0)
MODELS = {"no joint scores": 1, "pairs": 2, "triples": 3, "all six": 6}


def build_examples(features, labels, order):
    """Return examples of up to fifty images each, with typed factors of ``order`` nodes, and their labels."""
    scopes, X, y = list(combinations(range(N_LABELS), order)), [], []
    for start in range(0, len(features), 50):
        rows = features[start : start + 50]
        first = N_LABELS * np.arange(len(rows))[:, None]
        factors = {"-".join(map(str, scope)): first + scope for scope in scopes if order > 2}
        edges = np.concatenate([first + scope for scope in scopes]) if order == 2 else np.zeros((0, 2), dtype=int)
        X.append(
            Example(
                np.repeat(rows, N_LABELS, axis=0),
                edges,
                node_type=np.tile(np.arange(N_LABELS), len(rows)),
                edge_type=np.repeat(np.arange(len(edges) // len(rows)), len(rows)),
                factors=factors or None,
            )
        )
        y.append(labels[start : start + 50].ravel())
    return X, y


def fit(X, y, C):
    """Return a model trained by exact likelihood."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TRWCRF(learning="exact", inference="map", C=C, classes=[0, 1], max_iter=200).fit(X, y)


def evaluate(order, train, test):
    """Return the percentages of right label sets and wrong labels, the mean loss, and training seconds."""
    X, y = build_examples(*train, order)
    start = time.process_time()
    kept = 3 * len(X) // 4
    held_out = [fit(X[:kept], y[:kept], C).log_likelihood(X[kept:], y[kept:]).values.sum() for C in STRENGTHS]
    strength = STRENGTHS[int(np.argmax(held_out))]
    model = fit(X, y, strength)
    seconds = time.process_time() - start
    X, y = build_examples(*test, order)
    wrong = (np.concatenate(model.predict(X)) != np.concatenate(y)).reshape(-1, N_LABELS)
    loss = -model.log_likelihood(X, y).values.sum() / len(wrong)
    return [100 * np.mean(~wrong.any(axis=1)), 100 * wrong.mean(), loss], strength, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--train", type=int, default=400, help="number of training images")
    parser.add_argument("--components", type=int, default=30, help="number of principal components of the features")
    options = parser.parse_args()
    data = np.load(Path(os.environ["SKLEARN_CRF_DATA"]) / "multilabel" / "scene.npz")
    features = np.concatenate((data["X_train"], data["X_test"]))
    labels = np.concatenate((data["Y_train"], data["Y_test"])).astype(int)
    found = {name: [] for name in MODELS}
    for seed in range(options.seeds):
        order = np.random.default_rng(seed).permutation(len(features))
        train, test = order[: options.train], order[options.train : options.train + 1000]
        scaler = make_pipeline(StandardScaler(), PCA(options.components, whiten=True)).fit(features[train])
        parts = [(scaler.transform(features[part]), labels[part]) for part in (train, test)]
        for name, size in MODELS.items():
            found[name].append(evaluate(size, *parts))
    print(f"{'':16}{'all labels right, %':>25}{'wrong labels, %':>25}{'-log p of labels':>25}{'C':>8}{'s':>6}")
    base = np.array([values for values, _, _ in found["pairs"]])
    for name, runs in found.items():
        means = np.array([values for values, _, _ in runs])
        change = means - base
        error = change.std(axis=0, ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else np.zeros(3)
        cells = [f"{m:.2f} ({c:+.2f} +- {e:.2f})" for m, c, e in zip(means.mean(0), change.mean(0), error, strict=True)]
        strength, seconds = np.median([run[1] for run in runs]), np.mean([run[2] for run in runs])
        print(f"{name:16}{cells[0]:>25}{cells[1]:>25}{cells[2]:>25}{strength:8.3g}{seconds:6.1f}", flush=True)


if __name__ == "__main__":
    main()
