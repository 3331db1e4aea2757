"""Outdoor scenes as graphs of superpixels with eight classes, and a drive through town as images with eleven.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/scenes.py superpixels
    SKLEARN_CRF_DATA=folder python benchmarks/quality/scenes.py camvid --every 8

Superpixels have 519 standardised features; the first 66 images are for training and the other 33 for testing. CamVid
has the usual split; features are colours, their means and standard deviations around a pixel, its position, and the
products of these features. Edge features are a constant and the similarity of the two ends. Training sums over
unlabelled nodes, except for piecewise training and pseudolikelihood, which ignore these nodes and their edges. Labels
have the largest marginals. Without edges, the field is logistic regression. "drf" is DRFClassifier with
pseudo-marginals by loopy belief propagation. Accuracy is the fraction of correct labelled test nodes, and the mean of
this fraction over classes.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from support.bundles import load_camvid, load_stanford_superpixels
from support.labelled_part import labelled_part
from support.named_learning import named_learning

from sklearn_crf import TRWCRF, DRFClassifier, Example
from sklearn_crf.graphs import lattice
from sklearn_crf.metrics import flatten_nodes
from sklearn_crf.preprocessing import LocalImageFeatures, NodeTransformer

# Indices of mean red, green and blue among the features of a superpixel.
COLOURS = slice(400, 403)
ESTIMATORS = ("without edges", "piecewise", "pseudolikelihood", "relaxation", "loopy", "drf")
COMPLETE = ("without edges", "piecewise", "pseudolikelihood")


def superpixels(folder, options):
    bunch = load_stanford_superpixels(folder / "stanford_superpixels")
    X, y = bunch.data[:: options.every], [labels.astype(int) for labels in bunch.target[:: options.every]]
    n_train = len(X) * 2 // 3
    scaled = NodeTransformer(StandardScaler()).fit(X[:n_train]).transform(X)
    X = [Example(x.node_features, raw.graph, _alike(raw, COLOURS)) for x, raw in zip(scaled, X, strict=True)]
    return X[:n_train], y[:n_train], X[n_train:], y[n_train:]


def _alike(example, columns):
    """Return a constant, and the similarity of colours."""
    tail, head = (example.node_features[example.edges[:, k], columns] for k in (0, 1))
    distance = np.linalg.norm(tail - head, axis=1) / 50
    return np.stack([np.ones_like(distance), np.exp(-distance)], axis=1)


def camvid(folder, options):
    parts = []
    features = make_pipeline(
        LocalImageFeatures(("intensity", "mean", "deviation", "position"), scales=(1.0, 3.0)),
        NodeTransformer(make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False), StandardScaler())),
    )
    for subset in ("train", "test"):
        bunch = load_camvid(folder / "camvid", subset=subset)
        images = bunch.data[:: options.every].astype(np.float32) / 255
        parts += [images, bunch.target[:: options.every].astype(int)]
    X, y, X_test, y_test = parts
    graph = lattice(X.shape[1:3])
    features.fit(X)
    X, X_test = (
        [Example(rows.reshape(graph.n_nodes, -1), graph) for rows in features.transform(part)] for part in (X, X_test)
    )
    return X, y.reshape(len(y), -1), X_test, y_test.reshape(len(y_test), -1)


def contrast(x_tail, x_head):
    """Return a constant, and the similarity of the first three features, which are colours."""
    distance = np.linalg.norm(x_tail[:, :3] - x_head[:, :3], axis=1)
    return np.stack([np.ones_like(distance), np.exp(-distance)], axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=("superpixels", "camvid"))
    parser.add_argument("--estimators", nargs="+", choices=ESTIMATORS, default=ESTIMATORS)
    parser.add_argument("--C", type=float, default=0.003)
    parser.add_argument("--every", type=int, default=1, help="use every so many-th image")
    parser.add_argument("--max-iter", type=int, default=100)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    load = {"superpixels": superpixels, "camvid": camvid}[options.data]
    X, y, X_test, y_test = load(Path(os.environ["SKLEARN_CRF_DATA"]), options)
    n_nodes = sum(np.size(labels) for labels in y)
    print(f"{len(X)} images with {n_nodes} nodes to learn from, {len(X_test)} to test on; C={options.C:g}", flush=True)
    for name in options.estimators:
        model = field(name, options)
        pairs = list(zip(X, y, strict=True))
        if name in COMPLETE:
            pairs = [labelled_part(*pair) for pair in pairs]
        learned, labels = map(list, zip(*pairs, strict=True))
        tested = X_test
        if name == "without edges":
            learned, tested = ([Example(x.node_features, []) for x in part] for part in (learned, tested))
        start = time.process_time()
        model.fit(learned, labels)
        seconds = time.process_time() - start
        found = model.predict(tested)
        true, found, _ = flatten_nodes(list(y_test), found, missing_label=-1)
        shares = accuracy_score(true, found), balanced_accuracy_score(true, found)
        print(
            f"{name:18s} {100 * shares[0]:.2f} % of labelled nodes, {100 * shares[1]:.2f} % in the mean of classes, "
            f"{model.n_iter_} iterations, {seconds:.0f} s",
            flush=True,
        )


def field(name, options):
    common = {"C": options.C, "edge_features": contrast, "missing_label": -1, "max_iter": options.max_iter}
    if name == "drf":
        return DRFClassifier(**common)
    return TRWCRF(learning=named_learning("exact" if name == "without edges" else name, tol=1e-4), **common)


if __name__ == "__main__":
    main()
