"""Every field classifier at its defaults on small tasks, beside logistic regression of the nodes.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/defaults.py                              # all tasks
    python benchmarks/quality/defaults.py --tasks squares --estimators TRWCRF M3NClassifier

Prints CPU seconds of ``fit``, the share of right test nodes, their log-loss where there are probabilities, and every
warning. Squares are drawn at random with Gaussian noise; horses are 20 photographs of the Weizmann set to learn from
and 20 to test on, reduced to 64 x 80 pixels, with eight features a pixel: its grey value, two blurred ones, the
gradient, its place and the squares of that.
"""

import argparse
import time
import warnings

import _path  # noqa: F401  finds the support package
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler
from support.horse_pixels import horse_photographs, pixels_of

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, M3NClassifier
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
    bunch = horse_photographs()
    X_train, y_train = pixels_of(bunch, bunch.train[:20])
    X_test, y_test = pixels_of(bunch, bunch.test[:20])
    scaled = NodeTransformer(StandardScaler())
    return scaled.fit_transform(X_train), y_train, scaled.transform(X_test), y_test


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
