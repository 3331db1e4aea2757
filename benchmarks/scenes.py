"""Outdoor scenes as graphs of superpixels, and a drive through town as images: eight and eleven classes.

    SKLEARN_CRF_DATA=folder python benchmarks/scenes.py superpixels
    SKLEARN_CRF_DATA=folder python benchmarks/scenes.py camvid --every 4

Superpixels: 519 features of each node, standardised; 66 images to learn from and 33 to test on, by order. CamVid:
colours, their means and deviations around a pixel and its place, with their products; the customary split. Unlabelled
nodes are summed out. Edges see a constant and how alike their two ends are. Labels are those of the largest
marginals; without edges the field is logistic regression.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from sklearn_crf import TRWCRF, Example
from sklearn_crf.datasets import load_camvid, load_stanford_superpixels
from sklearn_crf.preprocessing import LocalImageFeatures, NodeTransformer

# Mean red, green and blue among the features of a superpixel.
COLOURS = slice(400, 403)
ESTIMATORS = ("without edges", "relaxation", "loopy")


def superpixels(folder, options):
    bunch = load_stanford_superpixels(folder / "stanford_superpixels")
    X, y = bunch.data[:: options.every], [labels.astype(int) for labels in bunch.target[:: options.every]]
    n_train = len(X) * 2 // 3
    scaled = NodeTransformer(StandardScaler()).fit(X[:n_train]).transform(X)
    X = [Example(x.node_features, raw.graph, _alike(raw, COLOURS)) for x, raw in zip(scaled, X, strict=True)]
    return X[:n_train], y[:n_train], X[n_train:], y[n_train:]


def _alike(example, columns):
    """Constant, and the likeness of colours."""
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
    return features.fit(X).transform(X), y, features.transform(X_test), y_test


def contrast(x_tail, x_head):
    """Constant, and the likeness of the first three features, which are colours."""
    distance = np.linalg.norm(x_tail[:, :3] - x_head[:, :3], axis=1)
    return np.stack([np.ones_like(distance), np.exp(-distance)], axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=("superpixels", "camvid"))
    parser.add_argument("--estimators", nargs="+", choices=ESTIMATORS, default=ESTIMATORS)
    parser.add_argument("--C", type=float, default=0.003)
    parser.add_argument("--every", type=int, default=1, help="take one image of so many")
    parser.add_argument("--max-iter", type=int, default=100)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    load = {"superpixels": superpixels, "camvid": camvid}[options.data]
    X, y, X_test, y_test = load(Path(os.environ["SKLEARN_CRF_DATA"]), options)
    n_nodes = sum(np.size(labels) for labels in y)
    print(f"{len(X)} images with {n_nodes} nodes to learn from, {len(X_test)} to test on; C={options.C:g}", flush=True)
    for name in options.estimators:
        model = TRWCRF(
            C=options.C,
            formulation="relaxation" if name == "without edges" else name,
            edge_features=contrast,
            missing_label=-1,
            max_iter=options.max_iter,
            inner_tol=1e-4,
        )
        start = time.process_time()
        if name == "without edges":
            model.fit(*_nodes(X, y))
            accuracy = model.score(*_nodes(X_test, y_test))
        else:
            model.fit(X, y)
            accuracy = model.score(X_test, y_test)
        seconds = time.process_time() - start
        print(
            f"{name:18s} {100 * accuracy:.2f} % of labelled nodes, {model.n_iter_} iterations, {seconds:.0f} s",
            flush=True,
        )


def _nodes(X, y):
    """Every labelled node by itself."""
    rows = [x.node_features if isinstance(x, Example) else x.reshape(-1, x.shape[-1]) for x in X]
    rows, labels = np.concatenate(rows), np.concatenate([np.ravel(part) for part in y])
    return rows[labels >= 0], labels[labels >= 0]


if __name__ == "__main__":
    main()
