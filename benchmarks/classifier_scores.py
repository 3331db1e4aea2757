"""What a field adds to a boosted classifier of single nodes: pixels of horses, superpixels of outdoor scenes.

    SKLEARN_CRF_DATA=folder python benchmarks/classifier_scores.py            # 25 images to learn from, 20 to test on
    SKLEARN_CRF_DATA=folder python benchmarks/classifier_scores.py --images 100

The classifier alone learns from all training images; the field learns from its scores out of fold, and sees those of
the same classifier on the test images. Nothing is chosen on the test images.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline

from sklearn_crf import TRWCRF
from sklearn_crf.datasets import load_stanford_superpixels, load_weizmann_horses
from sklearn_crf.metrics import flatten_nodes, node_accuracy_score, node_jaccard_score
from sklearn_crf.preprocessing import ClassifierScores, LocalImageFeatures

REDUCTION = 8


def horses(folder, n_images):
    """Features of pixels and masks, reduced by block means."""
    bunch = load_weizmann_horses(folder / "weizmann_horses")
    chosen = [*bunch.train[:n_images], *bunch.test[:20]]
    images = [reduced(bunch.data[i][..., 0] / 255.0)[..., None] for i in chosen]
    masks = [(reduced(bunch.target[i].astype(float)) >= 0.5).astype(int) for i in chosen]
    features = LocalImageFeatures(("intensity", "mean", "deviation", "position"), scales=(1.0, 3.0))
    X = features.fit_transform(images)
    return X[:n_images], masks[:n_images], X[n_images:], masks[n_images:], None


def reduced(image):
    height, width = (n // REDUCTION for n in image.shape)
    blocks = image[: height * REDUCTION, : width * REDUCTION].reshape(height, REDUCTION, width, REDUCTION)
    return blocks.mean(axis=(1, 3))


def superpixels(folder, n_images):
    """Superpixels joined where they touch; -1 marks those without a label."""
    bunch = load_stanford_superpixels(folder / "stanford_superpixels")
    chosen = np.random.default_rng(0).permutation(len(bunch.data))[: n_images + 20]
    X, y = [bunch.data[i] for i in chosen], [bunch.target[i].astype(int) for i in chosen]
    return X[:n_images], y[:n_images], X[n_images:], y[n_images:], -1


def compare(name, X, y, X_test, y_test, missing_label):
    boosting = HistGradientBoostingClassifier(max_iter=30, random_state=0)
    scores = ClassifierScores(boosting, cv=3, missing_label=missing_label)
    field = TRWCRF(edge_features="constant", missing_label=missing_label, max_iter=50)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        pipeline = make_pipeline(scores, field).fit(X, y)
    seconds = time.process_time() - start
    together = pipeline.predict(X_test)
    columns = [getattr(x, "node_features", x) for x in pipeline[0].transform(X_test)]
    alone = [pipeline[0].classes_[values.argmax(axis=-1)] for values in columns]
    print(f"{name}: {len(X)} images to learn from, {len(flatten_nodes(y_test, y_test)[0])} nodes to label")
    print(f"{'':18}accuracy  mean IoU")
    for label, labels in (("classifier alone", alone), ("with a field", together)):
        accuracy = node_accuracy_score(y_test, labels, missing_label=missing_label)
        iou = node_jaccard_score(y_test, labels, missing_label=missing_label)
        print(f"{label:18}{accuracy:8.4f}  {iou:8.4f}")
    print(f"{seconds:.0f} CPU seconds of training\n", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=25)
    options = parser.parse_args()
    data = Path(os.environ["SKLEARN_CRF_DATA"])
    for task in (horses, superpixels):
        compare(task.__name__, *task(data, options.images))
