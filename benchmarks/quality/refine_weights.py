"""Compare weights of the two kernels of ``refine`` on scores of different strength.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/refine_weights.py     # camvid/, weizmann_horses/ and grabcut/

Scores are the out-of-fold scores of ``dense_quality.py`` on its training images, and the
probabilities of ``LogisticRegression`` on synthetic images: from single pixels, and from means of windows. For each
pair of weights, the fraction of pixels with the right label is printed with the mean log-loss.
"""

import os
from pathlib import Path

import numpy as np
from dense_quality import TASKS
from scipy.ndimage import gaussian_filter
from sklearn.linear_model import LogisticRegression

from sklearn_crf import Bilateral, DenseExample, Spatial, refine
from sklearn_crf.preprocessing import LocalImageFeatures

WEIGHTS = ((3, 10), (2, 6), (1, 3), (1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (2, 0.5), (0.5, 0.5))
STEPS = {"horses": 10, "camvid": 30, "grabcut": 2}  # every n-th image is used
SIDE = 96


def synthetic(features_of, seed):
    """Return four test images with scores from the given features, and their labels."""
    rng = np.random.default_rng(seed)
    labels = [(gaussian_filter(rng.normal(size=(SIDE, SIDE)), 6) > 0).astype(int) for _ in range(8)]
    images = [(128 + 60 * (y - 0.5) + 40 * rng.normal(size=y.shape))[..., np.newaxis] for y in labels]
    rows = [x.reshape(SIDE**2, -1) for x in features_of(images)]
    model = LogisticRegression(max_iter=500).fit(np.concatenate(rows[:4]), np.concatenate(labels[:4]).ravel())
    scores = [model.predict_log_proba(x).reshape(SIDE, SIDE, 2) for x in rows[4:]]
    return [DenseExample(s, image) for s, image in zip(scores, images[4:], strict=True)], labels[4:]


def quality(probabilities, labels):
    """Return the accuracy in per cent and the log-loss, averaged over images."""
    right = [np.mean((p.argmax(axis=-1) == y)[y >= 0]) for p, y in zip(probabilities, labels, strict=True)]
    shares = [
        np.take_along_axis(p, np.maximum(y, 0)[..., np.newaxis], -1) for p, y in zip(probabilities, labels, strict=True)
    ]
    losses = [-np.log(np.maximum(s[..., 0][y >= 0], 1e-4)).mean() for s, y in zip(shares, labels, strict=True)]
    return f"{100 * np.mean(right):6.2f} %  {np.mean(losses):.3f}"


def compare(name, examples, labels):
    """Print the quality of the scores, and of the refined scores for each pair of weights."""
    scores = [np.exp(x.scores - np.logaddexp.reduce(x.scores, axis=-1, keepdims=True)) for x in examples]
    print(f"{name}, {len(examples)} images\n{'as they are':<22}{quality(scores, labels)}")
    for spatial, bilateral in WEIGHTS:
        kernels = [Spatial(3.0, weight=spatial), Bilateral(80.0, 13.0, weight=bilateral)]
        refined = [refine(p, np.asarray(x.image), kernels=kernels) for p, x in zip(scores, examples, strict=True)]
        print(f"{f'weights {spatial}, {bilateral}':<22}{quality(refined, labels)}", flush=True)


def main():
    windows = LocalImageFeatures(("intensity", "mean"), scales=(1.0, 2.0, 3.0)).fit_transform
    for seed in range(2):
        compare(f"single pixels, seed {seed}", *synthetic(lambda images: [x / 100 for x in images], seed))
        compare(f"means of windows, seed {seed}", *synthetic(windows, seed))
    for name, step in STEPS.items():
        X, _, y, _ = TASKS[name][0](Path(os.environ["SKLEARN_CRF_DATA"]), step)
        compare(name, X, y)


if __name__ == "__main__":
    main()
