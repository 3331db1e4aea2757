"""Measure the gain of a field over a boosted classifier of single nodes: horses' pixels, superpixels of scenes.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/classifier_scores.py  # 99 images of each kind, four folds
    SKLEARN_CRF_DATA=folder python benchmarks/quality/classifier_scores.py --images 40

Horses are images of 64 x 80 pixels with eight features each. "small horses" are images of an eighth of the original
size (about 20 x 30 pixels). Their features are means over neighbourhoods of up to 19 pixels, so the classifier uses
nearly the whole image for every pixel. By default, the features of images are appended to the scores, so that edges can
use them; "scores alone" is ``passthrough=False``.

Images are tested in four folds. The classifier alone is trained on all training images of a fold. The field, with
default options, is trained on out-of-fold scores of the same classifier, and predicts from the scores of the classifier
that was trained on all training images. Nothing is chosen on test images. Both are compared image by image by
Wilcoxon's signed-rank test.
"""

import argparse
import os
import time
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.stats import wilcoxon
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from support.bundles import load_stanford_superpixels
from support.horse_pixels import horse_photographs, pixels_of

from sklearn_crf import TRWCRF
from sklearn_crf.metrics import node_accuracy_score, node_jaccard_score
from sklearn_crf.preprocessing import ClassifierScores, LocalImageFeatures

REDUCTION = 8
N_FOLDS = 4


def horses(n_images):
    """Return photographs of 64 x 80 pixels."""
    bunch = horse_photographs()
    X, y = pixels_of(bunch, chosen_of(bunch, n_images))
    return list(X), list(y), None


def small_horses(n_images):
    """Return features of pixels and masks, reduced by block means."""
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
    """Return superpixels, joined where they touch; -1 marks superpixels without a label."""
    bunch = load_stanford_superpixels(Path(os.environ["SKLEARN_CRF_DATA"]) / "stanford_superpixels")
    chosen = chosen_of(bunch, n_images)
    return [bunch.data[i] for i in chosen], [bunch.target[i].astype(int) for i in chosen], -1


def labels_of_fold(X, y, X_test, missing_label, passthrough):
    """Return labels of the test images by the classifier alone and with a field, and seconds of training."""
    boosting = HistGradientBoostingClassifier(max_iter=30, random_state=0)
    scores = ClassifierScores(boosting, cv=3, passthrough=passthrough, missing_label=missing_label)
    pipeline = make_pipeline(scores, TRWCRF(missing_label=missing_label))
    start = time.process_time()
    pipeline.fit(X, y)
    seconds = time.process_time() - start
    classes = pipeline[0].classes_
    features = [getattr(x, "node_features", x) for x in pipeline[0].transform(X_test)]
    alone = [classes[values[..., : len(classes)].argmax(axis=-1)] for values in features]
    return alone, list(pipeline.predict(X_test)), seconds


def labels_by_folds(X, y, missing_label, passthrough):
    """Return labels of all images by the classifier alone and with a field, and seconds of training."""
    alone, together, seconds = [None] * len(X), [None] * len(X), 0.0
    for train, test in KFold(N_FOLDS, shuffle=True, random_state=0).split(X):
        X_train, y_train, X_test = ([part[i] for i in chosen] for part, chosen in ((X, train), (y, train), (X, test)))
        *labelings, of_fold = labels_of_fold(X_train, y_train, X_test, missing_label, passthrough)
        seconds += of_fold
        for labels, of_images in zip((alone, together), labelings, strict=True):
            for i, image in zip(test, of_images, strict=True):
                labels[i] = image
    return alone, together, seconds


def compare(name, X, y, missing_label, passthrough):
    alone, together, seconds = labels_by_folds(X, y, missing_label, passthrough)
    print(f"{name}, {'default' if passthrough else 'scores alone'}: {len(X)} images, {N_FOLDS} folds")
    print(f"{'':18}accuracy  mean IoU")
    for label, labels in (("classifier alone", alone), ("with a field", together)):
        accuracy = node_accuracy_score(y, labels, missing_label=missing_label)
        iou = node_jaccard_score(y, labels, missing_label=missing_label)
        print(f"{label:18}{accuracy:8.4f}  {iou:8.4f}")
    before, after = (
        np.array([node_accuracy_score([a], [b], missing_label=missing_label) for a, b in zip(y, labels, strict=True)])
        for labels in (alone, together)
    )
    p = wilcoxon(after - before).pvalue
    print(f"accuracy better on {(after > before).sum()} images, worse on {(after < before).sum()}, p = {p:.1e}")
    print(f"{seconds:.0f} CPU seconds of training\n", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=99)
    options = parser.parse_args()
    for task, passthrough in (
        (superpixels, "auto"),
        (horses, "auto"),
        (horses, False),
        (small_horses, "auto"),
        (small_horses, False),
    ):
        compare(task.__name__.replace("_", " "), *task(options.images), passthrough)
