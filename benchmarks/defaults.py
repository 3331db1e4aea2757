"""What newcomers get: every field classifier at its defaults on small tasks, beside logistic regression of the nodes.

    SKLEARN_CRF_DATA=folder python benchmarks/defaults.py                              # all tasks
    python benchmarks/defaults.py --tasks squares --estimators TRWCRF M3NClassifier

Prints CPU seconds of ``fit``, the share of right test nodes, their log-loss where there are probabilities, and every
warning. Squares are drawn at random with Gaussian noise; horses are 20 photographs of the Weizmann set to learn from
and 20 to test on, reduced to 64 x 80 pixels, with eight features a pixel: its grey value, two blurred ones, the
gradient, its place and the squares of that.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter, sobel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, M3NClassifier
from sklearn_crf.datasets import load_weizmann_horses
from sklearn_crf.preprocessing import NodeTransformer

ESTIMATORS = (TRWCRF, DRFClassifier, M3NClassifier, ContrastiveCRF)


def squares(noise=0.7, seed=0):
    """Ten images of 16 x 16 pixels to learn from, ten to test on."""
    rng = np.random.default_rng(seed)
    y = np.zeros((20, 16, 16), dtype=int)
    for image in y:
        top, left = rng.integers(2, 7, size=2)
        image[top : top + 7, left : left + 7] = 1
    X = (y + rng.normal(scale=noise, size=y.shape))[..., np.newaxis]
    return X[:10], y[:10], X[10:], y[10:]


def horses():
    """Twenty reduced photographs to learn from, twenty to test on."""
    if "SKLEARN_CRF_DATA" not in os.environ:
        raise SystemExit("the horses need the environment variable SKLEARN_CRF_DATA: the folder of weizmann_horses/")
    bunch = load_weizmann_horses(Path(os.environ["SKLEARN_CRF_DATA"]) / "weizmann_horses")
    images = [_reduced(image[..., 0] / 255.0) for image in bunch.data]
    masks = np.array([_reduced(mask.astype(float)) >= 0.5 for mask in bunch.target]).astype(int)
    train, test = bunch.train[:20], bunch.test[:20]
    X_train, X_test = (np.array([_features(images[i]) for i in part]) for part in (train, test))
    scaled = NodeTransformer(StandardScaler())
    return scaled.fit_transform(X_train), masks[train], scaled.transform(X_test), masks[test]


def _features(image):
    """Eight features of every pixel of a grey image."""
    row, column = (np.arange(n) / n - 0.5 for n in image.shape)
    row, column = np.meshgrid(row, column, indexing="ij")
    gradient = np.hypot(sobel(image, 0), sobel(image, 1))
    blurred = [gaussian_filter(image, scale) for scale in (2, 4)]
    return np.stack((image, *blurred, gradient, column, row, column**2, row**2), axis=-1)


def _reduced(image, shape=(64, 80)):
    """Means of the blocks of a 64 x 80 grid that an image is cut into."""
    rows, columns = (np.linspace(0, n, m + 1).astype(int) for n, m in zip(image.shape, shape, strict=True))
    totals = np.add.reduceat(np.add.reduceat(image, rows[:-1], axis=0), columns[:-1], axis=1)
    return totals / np.outer(np.diff(rows), np.diff(columns))


def unary(X, y, X_test, y_test):
    """Logistic regression of single nodes."""
    start = time.process_time()
    model = LogisticRegression(max_iter=1000).fit(X.reshape(-1, X.shape[-1]), y.ravel())
    seconds = time.process_time() - start
    probabilities = model.predict_proba(X_test.reshape(-1, X.shape[-1]))
    return seconds, np.mean(probabilities.argmax(axis=1) == y_test.ravel()), log_loss(y_test.ravel(), probabilities), []


def defaults(kind, X, y, X_test, y_test):
    """The estimator of no options."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.process_time()
        estimator = kind().fit(X, y)
        seconds = time.process_time() - start
        accuracy = np.mean(estimator.predict(X_test) == y_test)
        loss = None
        if hasattr(estimator, "predict_proba"):
            probabilities = estimator.predict_proba(X_test)
            loss = log_loss(y_test.ravel(), probabilities.reshape(-1, probabilities.shape[-1]))
    return seconds, accuracy, loss, [str(each.message) for each in caught]


def report(name, seconds, accuracy, loss, messages):
    loss = "" if loss is None else f"log-loss {loss:.4f}"
    print(f"{name:20s} fit {seconds:7.2f} s   right {accuracy:.4f}   {loss:16s} {len(messages)} warnings", flush=True)
    for message in dict.fromkeys(messages):
        print(f"    {message}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=["squares", "horses"], default=["squares", "horses"])
    parser.add_argument("--estimators", nargs="+", default=[kind.__name__ for kind in ESTIMATORS])
    arguments = parser.parse_args()
    for task in arguments.tasks:
        data = {"squares": squares, "horses": horses}[task]()
        print(f"{task}: {data[0].shape} to learn from, {data[2].shape} to test on")
        report("LogisticRegression", *unary(*data))
        for kind in ESTIMATORS:
            if kind.__name__ in arguments.estimators:
                report(kind.__name__, *defaults(kind, *data))


if __name__ == "__main__":
    main()
