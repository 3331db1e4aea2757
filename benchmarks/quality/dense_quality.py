"""Measure the gain of fields over a classifier of single pixels: no field, grid field, dense field fixed and learned.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/dense_quality.py camvid     # folder holds camvid/
    SKLEARN_CRF_DATA=folder python benchmarks/quality/dense_quality.py horses     # weizmann_horses/
    SKLEARN_CRF_DATA=folder python benchmarks/quality/dense_quality.py grabcut    # grabcut/

Scores are log-probabilities of gradient-boosted trees on local features of the image. Fields are trained on out-of-fold
scores. For GrabCut, trees are trained on the strokes of each image, and fields are trained on half of the images. All
fields use the same scores of the same test images, and nothing is chosen on test images. Fixed weights are the
published weights with the published bandwidths, which were chosen for larger images. Bandwidths are chosen on a quarter
of some of the training images.

Prints for each method the mean IoU over the pixels of all test images, the accuracy, the 95 % interval of the
difference to no field (by resampling images), and Wilcoxon's test over images. The same comparison is printed for
learned weights with fixed weights. The last lines are processor seconds.
"""

import argparse
import os
import time
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.stats import wilcoxon
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from support.bundles import load_camvid, load_grabcut, load_weizmann_horses

from sklearn_crf import Bilateral, DenseCRF, DenseExample, Spatial
from sklearn_crf.dense import BandwidthSearch, GridField, refinement_report
from sklearn_crf.inference import DenseMeanField
from sklearn_crf.preprocessing import LocalImageFeatures

N_FOLDS = 3
LEAST_PROBABILITY = 1e-4
PUBLISHED = (Spatial(3.0, weight=3.0), Bilateral(80.0, 13.0, weight=10.0))
CHOSEN_FROM = 8  # images


def reduced(image, factor):
    """Return the means of square blocks; incomplete blocks are cut off."""
    height, width = (n // factor for n in image.shape[:2])
    blocks = image[: height * factor, : width * factor].reshape(height, factor, width, factor, -1)
    return blocks.mean(axis=(1, 3), dtype=np.float32)


def reduced_labels(labels, factor):
    """Return the labels at the centres of square blocks."""
    height, width = (n // factor for n in labels.shape)
    return labels[factor // 2 :: factor, factor // 2 :: factor][:height, :width]


def features_of(images):
    """Return local features of pixels, one array per image."""
    return LocalImageFeatures(("intensity", "mean", "deviation", "position"), scales=(1.0, 3.0)).fit_transform(images)


def trees(max_iter):
    return HistGradientBoostingClassifier(max_iter=max_iter, random_state=0)


def rows_of(features, labels, share, rng):
    """Return a share of the labelled pixels of some images."""
    rows, columns = [], []
    for x, own in zip(features, labels, strict=True):
        kept = (own.ravel() >= 0) & (rng.random(own.size) < share)
        rows.append(x.reshape(-1, x.shape[-1])[kept])
        columns.append(own.ravel()[kept])
    return np.concatenate(rows), np.concatenate(columns)


def scores_of(model, features, n_classes):
    """Return log-probabilities of all classes, (*lattice, n_classes) float32 per image."""
    scores = []
    for x in features:
        found = np.full((x[..., 0].size, n_classes), LEAST_PROBABILITY)
        found[:, model.classes_] = np.maximum(model.predict_proba(x.reshape(-1, x.shape[-1])), LEAST_PROBABILITY)
        scores.append(np.log(found).reshape(*x.shape[:2], n_classes).astype(np.float32))
    return scores


def scored(images, labels, test_images, share, max_iter):
    """Return dense examples for training, scored out of fold, and for testing."""
    rng = np.random.default_rng(0)
    n_classes = max(int(own.max()) for own in labels) + 1
    features, test_features = features_of(images), features_of(test_images)
    # Folds are contiguous, since neighbouring frames are alike.
    folds = np.arange(len(images)) * N_FOLDS // len(images)
    scores = [None] * len(images)
    for fold in range(N_FOLDS):
        kept, held_out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        model = trees(max_iter).fit(*rows_of([features[i] for i in kept], [labels[i] for i in kept], share, rng))
        for i, found in zip(held_out, scores_of(model, [features[i] for i in held_out], n_classes), strict=True):
            scores[i] = found
    model = trees(max_iter).fit(*rows_of(features, labels, share, rng))
    test_scores = scores_of(model, test_features, n_classes)
    return [
        [DenseExample(one, image) for one, image in zip(part, pictures, strict=True)]
        for part, pictures in ((scores, images), (test_scores, test_images))
    ]


def camvid(folder, step):
    """Return frames of a drive through town, with 11 classes."""
    train, test = (load_camvid(folder / "camvid", subset=subset) for subset in ("train", "test"))
    images, y = [image.astype(np.float32) for image in train.data[::step]], list(train.target[::step])
    test_images, y_test = [image.astype(np.float32) for image in test.data[::step]], list(test.target[::step])
    return *scored(images, y, test_images, 0.08, 60), y, y_test


def horses(folder, step):
    """Return grey images of horses and their masks, at a quarter of their size."""
    bunch = load_weizmann_horses(folder / "weizmann_horses")
    images = [reduced(image, 4) for image in bunch.data]
    labels = [reduced_labels(mask.astype(np.int64), 4) for mask in bunch.target]
    train, test = bunch.train[::step], bunch.test[::step]
    X, X_test = scored([images[i] for i in train], [labels[i] for i in train], [images[i] for i in test], 0.1, 100)
    return X, X_test, [labels[i] for i in train], [labels[i] for i in test]


def grabcut(folder, step):
    """Return photographs of one object each, at a quarter of their size; trees learn from each image's strokes."""
    bunch = load_grabcut(folder / "grabcut")
    X, y = [], []
    for image, strokes, target in zip(bunch.data[::step], bunch.scribbles[::step], bunch.target[::step], strict=True):
        small = reduced(image, 4)
        features = features_of([small])[0][..., :-2]  # no positions, since users choose the places of strokes
        marks = reduced_labels(strokes, 4)
        model = HistGradientBoostingClassifier(max_iter=30, min_samples_leaf=40, l2_regularization=1.0, random_state=0)
        model.fit(features[marks >= 0], marks[marks >= 0])
        X.append(DenseExample(scores_of(model, [features], 2)[0], small))
        y.append(reduced_labels(target, 4).astype(np.int64))
    return X[::2], X[1::2], y[::2], y[1::2]


TASKS = {"camvid": (camvid, 12), "horses": (horses, 4), "grabcut": (grabcut, 1)}


class Timed:
    """A field with the processor seconds of its fit and predictions."""

    def __init__(self, field):
        self.field = field
        self.seconds = {}

    def fit(self, X, y):
        start = time.process_time()
        self.field.fit(X, y)
        self.seconds["fit"] = time.process_time() - start
        print(f"fitted {self.field}: {self.seconds['fit']:.0f} processor seconds", flush=True)
        return self

    def predict(self, X):
        start = time.process_time()
        found = self.field.predict(X)
        self.seconds["predict"] = time.process_time() - start
        return found


class BandwidthsFromSome:
    """A dense field whose bandwidths are chosen on some of the images, and whose weights are learned from all."""

    def __init__(self, field):
        self.field = field

    def fit(self, X, y):
        some = slice(None, None, max(1, len(X) // CHOSEN_FROM))
        start = clone(self.field).set_params(
            bandwidths=BandwidthSearch(random_state=0), compatibility="potts", max_iter=5
        )
        kernels = tuple(start.fit(X[some], y[some]).kernels_)
        print(f"bandwidths chosen: {', '.join(map(repr, kernels))}")
        self.field.set_params(kernels=kernels).fit(X, y)
        return self

    def predict(self, X):
        return self.field.predict(X)


def methods(n_jobs):
    options = {"missing_label": -1, "n_jobs": n_jobs, "inference": DenseMeanField(max_iter=5), "max_iter": 20}
    return {
        "dense, fixed": DenseCRF(PUBLISHED, learning="fixed", missing_label=-1, n_jobs=n_jobs),
        "dense, learned": DenseCRF(PUBLISHED, **options),
        "dense, for IoU": DenseCRF(PUBLISHED, learning="expected_iou", **options),
        "dense, bandwidths too": BandwidthsFromSome(DenseCRF(PUBLISHED, **options)),
        "grid field": GridField(missing_label=-1, n_jobs=n_jobs),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--step", type=int, help="use every n-th image")
    parser.add_argument("--methods", nargs="*", help="only run these methods")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    load, step = TASKS[options.task]
    start = time.process_time()
    X, X_test, y, y_test = load(Path(os.environ["SKLEARN_CRF_DATA"]), options.step or step)
    print(f"{options.task}: {len(X)} images to learn from, {len(X_test)} to test on, about {y[0].size} pixels each")
    print(f"{time.process_time() - start:.0f} processor seconds for the scores")
    fields = methods(options.jobs)
    fields = {name: Timed(field) for name, field in fields.items() if not options.methods or name in options.methods}
    report = refinement_report(X, y, X_test, y_test, fields=fields, missing_label=-1)
    print(report)
    if "dense, fixed" in report.names:
        fixed = report.names.index("dense, fixed")
        for k, name in enumerate(report.names):
            if k > fixed:
                gain = report.mean_iou[k] - report.mean_iou[fixed]
                p = wilcoxon(report.image_iou[k], report.image_iou[fixed]).pvalue
                better = np.mean(report.image_iou[k] > report.image_iou[fixed])
                print(f"{name} less fixed: {100 * gain:+.2f}, better on {100 * better:.0f} % of images, p {p:.2g}")
    for name, field in fields.items():
        print(f"{name}: " + ", ".join(f"{value:.0f} s to {what}" for what, value in field.seconds.items()))


if __name__ == "__main__":
    main()
