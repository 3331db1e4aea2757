"""What a field adds to a boosted classifier of single nodes: pixels of horses, superpixels of outdoor scenes.

    SKLEARN_CRF_DATA=folder python benchmarks/classifier_scores.py             # 99 images of each kind, four folds
    SKLEARN_CRF_DATA=folder python benchmarks/classifier_scores.py --images 40

Horses are reduced to 64 x 80 pixels with eight features each. "small horses" are reduced to an eighth of their size,
some 20 x 30 pixels, whose features are means over neighbourhoods of up to 19 pixels: there the classifier sees nearly
the whole picture at every pixel.

Images are tested in four folds. The classifier alone learns from all training images of a fold; the field, at its
defaults, learns from scores of the same classifier out of fold and predicts from those of all. Nothing is chosen on
the test images. The two are compared image by image (Wilcoxon's signed-rank test).
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
from _horse_pixels import horse_photographs, pixels_of
from scipy.stats import wilcoxon
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline

from sklearn_crf import TRWCRF
from sklearn_crf.datasets import load_stanford_superpixels
from sklearn_crf.metrics import node_accuracy_score, node_jaccard_score
from sklearn_crf.preprocessing import ClassifierScores, LocalImageFeatures

REDUCTION = 8
N_FOLDS = 4


def horses(n_images):
    """Photographs of 64 x 80 pixels."""
    bunch = horse_photographs()
    X, y = pixels_of(bunch, chosen_of(bunch, n_images))
    return list(X), list(y), None


def small_horses(n_images):
    """Features of pixels and masks, reduced by block means."""
    bunch = horse_photographs()
    chosen = chosen_of(bunch, n_images)
    images = [reduced(bunch.data[i][..., 0] / 255.0)[..., None] for i in chosen]
    masks = [(reduced(bunch.target[i].astype(float)) >= 0.5).astype(int) for i in chosen]
    features = LocalImageFeatures(("intensity", "mean", "deviation", "position"), scales=(1.0, 3.0))
    return list(features.fit_transform(images)), masks, None


def chosen_of(bunch, n_images):
    return np.random.default_rng(0).permutation(len(bunch.data))[:n_images]


def reduced(image):
    height, width = (n // REDUCTION for n in image.shape)
    blocks = image[: height * REDUCTION, : width * REDUCTION].reshape(height, REDUCTION, width, REDUCTION)
    return blocks.mean(axis=(1, 3))


def superpixels(n_images):
    """Superpixels joined where they touch; -1 marks those without a label."""
    bunch = load_stanford_superpixels(Path(os.environ["SKLEARN_CRF_DATA"]) / "stanford_superpixels")
    chosen = chosen_of(bunch, n_images)
    return [bunch.data[i] for i in chosen], [bunch.target[i].astype(int) for i in chosen], -1


def labels_of_fold(X, y, X_test, missing_label):
    """Labels of the test images by the classifier alone and with a field, and seconds of training."""
    boosting = HistGradientBoostingClassifier(max_iter=30, random_state=0)
    pipeline = make_pipeline(
        ClassifierScores(boosting, cv=3, missing_label=missing_label), TRWCRF(missing_label=missing_label)
    )
    start = time.process_time()
    pipeline.fit(X, y)
    seconds = time.process_time() - start
    scores, classes = pipeline[0].transform(X_test), pipeline[0].classes_
    columns = [getattr(x, "node_features", x) for x in scores]
    alone = [classes[values.argmax(axis=-1)] for values in columns]
    return alone, list(pipeline[1].predict(scores)), seconds


def compare(name, X, y, missing_label):
    folds = KFold(N_FOLDS, shuffle=True, random_state=0)
    found = {"classifier alone": [None] * len(X), "with a field": [None] * len(X)}
    seconds = 0.0
    for train, test in folds.split(X):
        *labelings, of_fold = labels_of_fold(
            [X[i] for i in train], [y[i] for i in train], [X[i] for i in test], missing_label
        )
        seconds += of_fold
        for labels, of_images in zip(found.values(), labelings, strict=True):
            for i, image in zip(test, of_images, strict=True):
                labels[i] = image
    print(f"{name}: {len(X)} images, {N_FOLDS} folds")
    print(f"{'':18}accuracy  mean IoU")
    for label, labels in found.items():
        accuracy = node_accuracy_score(y, labels, missing_label=missing_label)
        iou = node_jaccard_score(y, labels, missing_label=missing_label)
        print(f"{label:18}{accuracy:8.4f}  {iou:8.4f}")
    alone, field = (
        np.array([node_accuracy_score([a], [b], missing_label=missing_label) for a, b in zip(y, labels, strict=True)])
        for labels in found.values()
    )
    better, worse = int((field > alone).sum()), int((field < alone).sum())
    p = wilcoxon(field - alone).pvalue
    print(f"accuracy better on {better} images, worse on {worse}, p = {p:.1e}")
    print(f"{seconds:.0f} CPU seconds of training\n", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=99)
    options = parser.parse_args()
    for task in (superpixels, horses, small_horses):
        compare(task.__name__.replace("_", " "), *task(options.images))
