"""DRFClassifier without options on ten small tasks, a photograph with strokes (reduced and whole), and small horses.

Beside logistic regression of the nodes and the same field with loopy belief propagation (``inference="mpm"``): accuracy
on test labels, CPU seconds of fit and predict, and warnings of convergence.

    python benchmarks/quality/drf_defaults.py                        # all but horses and the whole photograph
    SKLEARN_CRF_DATA=folder python benchmarks/quality/drf_defaults.py    # folder holds weizmann_horses/
    python benchmarks/quality/drf_defaults.py --tasks photograph squares --alone
"""

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from sklearn_crf import DRFClassifier, Example
from sklearn_crf.datasets import make_binary_shapes, make_noisy_digits, make_noisy_shapes
from sklearn_crf.learning import PseudoMarginalTraining
from sklearn_crf.preprocessing import LocalImageFeatures, NodeTransformer

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import demo
from support.horse_pixels import twenty_horses

FOLDER = os.environ.get("SKLEARN_CRF_DATA")


def halves(X, y):
    """Split the data into a first half for training and a second half for testing."""
    n = len(X) // 2
    return X[:n], y[:n], X[n:], y[n:]


def squares(noise):
    """Return ten images of a square of 16 x 16 pixels for training, and ten for testing."""
    y = np.zeros((20, 16, 16), dtype=int)
    y[:, 4:12, 4:12] = 1
    return halves(y[..., np.newaxis] + np.random.default_rng(0).normal(scale=noise, size=(20, 16, 16, 1)), y)


def digits(noise):
    """Return sixty noisy digits of 8 x 8 pixels for training, and sixty for testing."""
    X, y, _ = make_noisy_digits(120, noise=noise, random_state=0)
    return halves(X, y)


def shapes(noise):
    """Return ten noisy copies of one shape for training, and three of each of four shapes for testing."""
    X, y, _ = make_noisy_shapes(noise, 10, shapes=make_binary_shapes().names[:1], random_state=0)
    X_test, y_test, _ = make_noisy_shapes(noise, 3, random_state=1)
    return X, y, X_test, y_test


def chains():
    """Return sequences of three states that change every tenth step."""
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.random((40, 50)) < 0.1, axis=1) % 3
    return halves(np.eye(3)[y] + rng.normal(size=(40, 50, 3)), y)


def regions():
    """Return images of three regions, 24 x 24 pixels."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:24, :24]
    y = np.array(
        [np.where(rows < 8 + a, 0, np.where(columns < 8 + b, 1, 2)) for a, b in rng.integers(0, 8, size=(20, 2))]
    )
    return halves(np.eye(3)[y] + rng.normal(size=(*y.shape, 3)), y)


def balls():
    """Return volumes of 10 x 10 x 10 voxels."""
    rng = np.random.default_rng(0)
    place = np.stack(np.mgrid[:10, :10, :10], axis=-1)
    y = np.array([np.linalg.norm(place - rng.uniform(3, 7, 3), axis=-1) < 3.2 for _ in range(12)]).astype(int)
    return halves(y[..., np.newaxis] + rng.normal(scale=0.7, size=(*y.shape, 1)), y)


def superpixels():
    """Return superpixels of a photograph, labelled by strokes; other strokes label the test superpixels."""
    from skimage.graph import RAG
    from skimage.segmentation import slic

    photo = load_sample_image("china.jpg")[::3, ::3] / 255.0
    regions = slic(photo, n_segments=350, start_label=0)
    members = [regions == r for r in np.unique(regions)]
    colours = StandardScaler().fit_transform(
        [np.concatenate((photo[part].mean(axis=0), photo[part].std(axis=0))) for part in members]
    )
    given, checks = ([majority(drawn[part]) for part in members] for drawn in strokes(photo.shape[:2]))
    X = [Example(colours, RAG(regions))]
    return X, [np.array(given)], X, [np.array(checks)]


def strokes(shape, factor=3):
    """Return the labels of given strokes and of held-out strokes."""
    return [demo.draw_strokes(lines, shape, factor) for lines in (demo.STROKES, demo.CHECKS)]


def majority(labels):
    """Return the most common known label, or -1 if no label is known."""
    known = labels[labels >= 0]
    return np.bincount(known).argmax() if len(known) else -1


def photograph():
    """Return the photograph of examples/demo.py at a third of its size."""
    image = demo.reduced(load_sample_image("china.jpg") / np.float32(255), 3)
    features = make_pipeline(
        LocalImageFeatures(("intensity", "mean", "deviation"), scales=(1.5,)),
        NodeTransformer(make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False), StandardScaler())),
    )
    X = features.fit_transform(image[np.newaxis])
    given, checks = strokes(image.shape[:2])
    return X, given[np.newaxis], X, checks[np.newaxis]


def whole_photograph(factor=1):
    """Return the photograph reduced by a factor, with colours and positions as features."""
    image = demo.reduced(load_sample_image("china.jpg") / 255.0, factor)
    rows, columns = np.meshgrid(*(np.linspace(0, 1, length) for length in image.shape[:2]), indexing="ij")
    X = NodeTransformer(StandardScaler()).fit_transform(np.dstack((image, rows, columns))[np.newaxis])
    given, checks = strokes(image.shape[:2], factor)
    return X, given[np.newaxis], X, checks[np.newaxis]


FEW_LABELS = {"missing_label": -1}
TASKS = {
    "clean squares": (lambda: squares(0.05), {}),
    "squares": (lambda: squares(0.7), {}),
    "digits, flips": (lambda: digits("flip"), {}),
    "digits, gaussian": (lambda: digits("gaussian"), {}),
    "shapes, gaussian": (lambda: shapes("gaussian"), {}),
    "shapes, bimodal": (lambda: shapes("bimodal"), {}),
    "chains": (chains, {}),
    "three classes": (regions, {}),
    "balls": (balls, {}),
    "superpixels": (superpixels, FEW_LABELS),
    "photograph": (
        photograph,
        {"C": 0.1, "pairwise": "potts", "edge_features": demo.colour_likeness, **FEW_LABELS},
    ),
    "china.jpg": (whole_photograph, {"n_jobs": 2, **FEW_LABELS}),
    # A fit to all pixels at half the size reaches this accuracy, but slowly.
    "china.jpg, half": (
        lambda: whole_photograph(2),
        {"n_jobs": 2, "learning": PseudoMarginalTraining(max_nodes=None), **FEW_LABELS},
    ),
    "horses": (twenty_horses, {}),
}


def nodes_of(X, y):
    """Return features and labels of the labelled nodes."""
    rows = [x.node_features if isinstance(x, Example) else np.asarray(x) for x in X]
    rows, labels = np.concatenate([x.reshape(-1, x.shape[-1]) for x in rows]), flat(y)
    return rows[labels >= 0], labels[labels >= 0]


def flat(y):
    """Return the labels of all nodes as one array."""
    return np.concatenate([np.ravel(labels) for labels in y])


def measure(field, X, y, X_test, y_test):
    """Return accuracy, CPU seconds of fit and predict, and the number of convergence warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        start = time.process_time()
        field.fit(X, y)
        fitted = time.process_time()
        labels, truth = flat(field.predict(X_test)), flat(y_test)
        predicted = time.process_time()
    known = truth >= 0
    n_warnings = sum(issubclass(each.category, ConvergenceWarning) for each in caught)
    return np.mean(labels[known] == truth[known]), fitted - start, predicted - fitted, n_warnings


def main():
    """Print a line for each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, metavar="TASK")
    parser.add_argument("--alone", action="store_true", help="without belief propagation beside it")
    arguments = parser.parse_args()
    names = arguments.tasks or [name for name in TASKS if "china" not in name and (name != "horses" or FOLDER)]
    fields = {"default": {}} if arguments.alone else {"default": {}, "mpm": {"inference": "mpm"}}
    print("accuracy in per cent; CPU seconds of fit and predict; warnings of convergence")
    for name in names:
        make, options = TASKS[name]
        X, y, X_test, y_test = make()
        alone = LogisticRegression(C=options.get("C", 1.0), max_iter=1000).fit(*nodes_of(X, y))
        line = f"{name:17} nodes alone {100 * alone.score(*nodes_of(X_test, y_test)):6.2f}"
        for label, inference in fields.items():
            found = measure(DRFClassifier(**options, **inference), X, y, X_test, y_test)
            line += " | {} {:6.2f} {:6.2f} s {:5.2f} s {}".format(label, 100 * found[0], *found[1:])
        print(line, flush=True)


if __name__ == "__main__":
    main()
