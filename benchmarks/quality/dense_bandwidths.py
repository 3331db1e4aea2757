"""Compare bandwidths of a dense field: as given, searched on held-out images, and learned by their gradient.

    python benchmarks/quality/dense_bandwidths.py synthetic
    # or camvid; folder holds weizmann_horses/
    SKLEARN_CRF_DATA=folder python benchmarks/quality/dense_bandwidths.py horses

Synthetic labels are drawn from the marginals of a field with known bandwidths; the fields that are trained start from
other bandwidths. Scores of real images are the out-of-fold scores of dense_quality.py, and fields start from the
published bandwidths. Weights are learned in the same way for all rows. Prints the final bandwidths, the log-loss per
labelled pixel of training and test images, the mean IoU and accuracy of test images in per cent, and the processor
seconds of the fit.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
from dense_quality import PUBLISHED, TASKS
from scipy.ndimage import gaussian_filter
from sklearn.base import clone

from sklearn_crf import Bilateral, DenseCRF, DenseExample, Spatial
from sklearn_crf.dense import BandwidthGradient, BandwidthSearch
from sklearn_crf.dense._gaussian_kernels import list_bandwidth_names
from sklearn_crf.inference import DenseMeanField

TRUE = (Spatial(1.5, weight=2.0), Bilateral(10.0, 20.0, weight=4.0))
AWAY = (Spatial(3.0), Bilateral(40.0, 60.0))
N_CLASSES, SHAPE = 3, (40, 48)
RULES = {"given": "given", "searched": BandwidthSearch(random_state=0), "learned": BandwidthGradient()}


def drawn(n_images, rng):
    """Return images of three regions, their noisy scores, and labels drawn from the marginals of the true field."""
    X = []
    for _ in range(n_images):
        region = gaussian_filter(rng.normal(size=(N_CLASSES, *SHAPE)), (0, 5, 5)).argmax(axis=0)
        scores = np.eye(N_CLASSES)[region] + rng.normal(size=(*SHAPE, N_CLASSES))
        X.append(DenseExample(scores, 30.0 * region[..., np.newaxis] + rng.normal(scale=9, size=(*SHAPE, 2))))
    any_labels = [np.arange(np.prod(SHAPE)).reshape(SHAPE) % N_CLASSES] * n_images
    q = DenseCRF(TRUE, learning="fixed", inference=DenseMeanField(max_iter=5)).fit(X, any_labels).predict_proba(X)
    y = [(own.cumsum(axis=-1) < rng.random((*SHAPE, 1))).sum(axis=-1) for own in q]
    return X, y


def synthetic(n_images):
    rng = np.random.default_rng(0)
    (X, y), (X_test, y_test) = (drawn(n_images, rng) for _ in range(2))
    return X, X_test, y, y_test


def real(task, n_images):
    load, step = TASKS[task]
    X, X_test, y, y_test = load(Path(os.environ["SKLEARN_CRF_DATA"]), step)
    every, every_test = (max(1, len(part) // n_images) for part in (X, X_test))
    return X[::every], X_test[::every_test], y[::every], y_test[::every_test]


def log_loss(probabilities, y):
    losses = []
    for q, own in zip(probabilities, y, strict=True):
        of_label = np.take_along_axis(q, np.maximum(own, 0)[..., np.newaxis], axis=-1)[..., 0]
        losses.append(-np.log(np.maximum(of_label[own >= 0], 1e-30)))
    return float(np.mean(np.concatenate(losses)))


def mean_iou(probabilities, y):
    labels = np.concatenate([own[own >= 0] for own in y])
    found = np.concatenate([q.argmax(axis=-1)[own >= 0] for q, own in zip(probabilities, y, strict=True)])
    ratios = [
        np.count_nonzero((labels == k) & (found == k)) / np.count_nonzero((labels == k) | (found == k))
        for k in np.unique(labels)
    ]
    return 100 * float(np.mean(ratios)), 100 * float(np.mean(labels == found))


def bandwidths(kernels):
    return "  ".join(
        f"{value:.3g}" for kernel in kernels for value in (getattr(kernel, p) for p in list_bandwidth_names(kernel))
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["synthetic", "horses", "camvid"])
    parser.add_argument(
        "--images", type=int, default=8, help="number of training images; there are about as many test images"
    )
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    known = options.task == "synthetic"
    X, X_test, y, y_test = synthetic(options.images) if known else real(options.task, options.images)
    print(f"{options.task}: {len(X)} images to learn from, {len(X_test)} to test on, about {y[0].size} pixels each")
    field = DenseCRF(inference=DenseMeanField(max_iter=5), missing_label=-1, max_iter=50, n_jobs=options.jobs)
    runs = [(name, AWAY if known else PUBLISHED, rule) for name, rule in RULES.items()]
    if known:
        runs.append(("true ones", TRUE, "given"))
    heads = ("training", "test", "IoU", "accuracy", "tried", "seconds")
    print(f"{'':10}{'bandwidths':>28}" + "".join(f"{head:>10}" for head in heads))
    for name, kernels, rule in runs:
        start = time.process_time()
        own = clone(field).set_params(kernels=kernels, bandwidths=rule).fit(X, y)
        seconds = time.process_time() - start
        training, test = log_loss(own.predict_proba(X), y), own.predict_proba(X_test)
        iou, accuracy = mean_iou(test, y_test)
        print(
            f"{name:10}{bandwidths(own.kernels_):>28}{training:10.4f}{log_loss(test, y_test):10.4f}{iou:10.2f}"
            f"{accuracy:10.2f}{len(own.bandwidth_trace_):10}{seconds:10.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
