"""Weizmann horses: gain of a field over a classifier of single pixels, and suitable pairs of learning and inference.

The data are grey images and masks, the first 200 of 328 for training and 128 for testing, reduced by block means to a
third of their size (about 6,000 pixels each). All methods use the same simple features of a pixel: its grey value, mean
and standard deviation of grey values around it, its position, and the products of these features. Edge features are a
constant and the similarity of grey values.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/horses_drf.py            # folder holds weizmann_horses/
    SKLEARN_CRF_DATA=folder python benchmarks/quality/horses_drf.py --quick    # every fourth image

The penalty C of PL, the solver of PMA and the step of SPA are chosen on the last 50 training images; the final fit uses
all training images. If edges are strong, loopy belief propagation has no consistent gradient, and training by gradient
steps is stopped. Warnings about this are expected, and counted.

    # one rule, under both inferences
    SKLEARN_CRF_DATA=folder python benchmarks/quality/horses_drf.py --methods "PMA + MPM"
    # node weights of one rule with edge weights of another rule
    SKLEARN_CRF_DATA=folder python benchmarks/quality/horses_drf.py --exchange
"""

import argparse
import copy
import os
import sys
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.stats import wilcoxon
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from support.bundles import load_weizmann_horses

from sklearn_crf import DRFClassifier
from sklearn_crf.learning import GradientSteps, PseudolikelihoodTraining, PseudoMarginalTraining, SaddlePointTraining
from sklearn_crf.potentials import PairwiseTables
from sklearn_crf.preprocessing import LocalImageFeatures, NodeTransformer

REDUCTION = 3
N_VALIDATION = 50
UNARY = "unary only"
# Pseudolikelihood as in the paper, without a reduction of the weights of edges.
PLAIN = PseudolikelihoodTraining(edge_scale=1)
# Learning, inference, and candidate settings for validation. Training starts from the unary weights.
METHODS = {
    "SPA + MAP": (
        SaddlePointTraining(init="independent", step_schedule="constant"),
        "map",
        [{"learning__step_size": 0.1}, {"learning__step_size": 2.0}],
    ),
    "PMA + MPM": (
        PseudoMarginalTraining(init="independent"),
        "mpm",
        [{"solver": "lbfgs"}, {"solver": GradientSteps(step_size=1.0), "max_iter": 40}],
    ),
    "TRW + TRW": (PseudoMarginalTraining(), "auto", [{}]),
    "PL + MAP": (PLAIN, "map", [{"C": 10.0**power} for power in (-8, -7, -6, -5, -4, -2, 0)]),
    "PL, edges + MAP": (PLAIN, "map", [{"pairwise": PairwiseTables(C=10.0**power)} for power in (-7, -6, -5, -4)]),
    "PL, edges alone + MAP": (PseudolikelihoodTraining(fixed_nodes=True, edge_scale=1), "map", [{}]),
}
# Rules whose node and edge weights are exchanged; independent pixels supply only node weights.
EXCHANGED = {
    "PL, edges alone": PseudolikelihoodTraining(fixed_nodes=True, edge_scale=1),
    "PL": PLAIN,
    "PMA, tree-reweighted": PseudoMarginalTraining(),
}
# These rows use the weights of another row with the other inference.
CROSSED = {
    "SPA + MAP": ("SPA + MPM", "mpm"),
    "PMA + MPM": ("PMA + MAP", "map"),
    "PL + MAP": ("PL + MPM", "mpm"),
    "TRW + TRW": ("TRW + MAP", "map"),
    "PL, edges + MAP": ("PL, edges + MPM", "mpm"),
    "PL, edges alone + MAP": ("PL, edges alone + MPM", "mpm"),
}


def contrast(x_tail, x_head):
    """Return a constant, and the similarity of grey values (the first feature, standardised) at two scales."""
    difference = np.abs(x_tail[:, 0] - x_head[:, 0])
    return np.stack([np.ones_like(difference), np.exp(-difference), np.exp(-5 * difference)], axis=1)


def load(folder, step):
    """Return reduced images and masks, split into training and test part."""
    bunch = load_weizmann_horses(Path(folder) / "weizmann_horses")
    images = [reduce(image[..., 0] / np.float32(255)) for image in bunch.data]
    masks = [(reduce(mask.astype(np.float32)) >= 0.5).astype(np.int8) for mask in bunch.target]
    train, test = bunch.train[::step], bunch.test[::step]
    return [[part[i] for i in index] for index in (train, test) for part in (images, masks)]


def reduce(image):
    """Return the means of square blocks; incomplete blocks are cut off."""
    height, width = (n // REDUCTION for n in image.shape)
    blocks = image[: height * REDUCTION, : width * REDUCTION].reshape(height, REDUCTION, width, REDUCTION)
    return blocks.mean(axis=(1, 3))


def make_features():
    """Return the transformer of features that every method uses."""
    return make_pipeline(
        LocalImageFeatures(("intensity", "mean", "deviation", "position"), scales=(1.0,)),
        NodeTransformer(make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False), StandardScaler())),
    )


def fit(learning, inference, settings, X, y):
    """Return a fitted field and the seconds of its fit."""
    field = DRFClassifier(
        learning=learning, inference=inference, edge_features=contrast, random_state=0, n_jobs=2
    ).set_params(**settings)
    start = time.process_time()
    with expected_warnings():
        field.fit(X, y)
    return field, time.process_time() - start


@contextmanager
def expected_warnings():
    """Replace convergence warnings by a printed count of them; other warnings pass."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        yield
    expected = [each for each in caught if issubclass(each.category, ConvergenceWarning)]
    if expected:
        print(f"  ({len(expected)} warnings of convergence, as expected)")
    for other in caught:
        if other not in expected:
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)


def fit_unary(X, y):
    """Return logistic regression of single pixels, which is the field without edges."""
    rows = np.concatenate([x.reshape(-1, x.shape[-1]) for x in X])
    start = time.process_time()
    field = DRFClassifier().fit(rows, np.concatenate([labels.ravel() for labels in y]))
    return field, time.process_time() - start


def accuracies(field, X, y, inference=None):
    """Return the share of correct pixels of each image, optionally by another inference than the field's own."""
    if inference is not None:
        field = copy.copy(field).set_params(inference=inference)
    with expected_warnings():
        predicted = field.predict(X)
    return np.array([np.mean(labels == true) for labels, true in zip(predicted, y, strict=True)])


def unary_accuracies(field, X, y):
    """Return what :func:`accuracies` returns, for a field without edges."""
    return np.array(
        [np.mean(field.predict(x.reshape(-1, x.shape[-1])) == true.ravel()) for x, true in zip(X, y, strict=True)]
    )


def choose(method, X, y):
    """Return the settings with the highest accuracy on validation images."""
    learning, inference, candidates = METHODS[method]
    n_train = len(X) * (200 - N_VALIDATION) // 200
    scores = []
    for settings in candidates:
        field, _ = fit(learning, inference, settings, X[:n_train], y[:n_train])
        scores.append(accuracies(field, X[n_train:], y[n_train:]).mean())
        print(f"  {method} {settings}: {100 * scores[-1]:.2f} % of validation pixels right", flush=True)
    return candidates[int(np.argmax(scores))]


def measure(X_train, y_train, X_test, y_test, methods):
    """Measure the accuracy of each test image by method, and print it at once."""
    print("mean over test images of the share of right pixels, and what the field adds to the unary model")
    found = {}
    field, seconds = fit_unary(X_train, y_train)
    found[UNARY] = unary_accuracies(field, X_test, y_test)
    print_line(UNARY, {}, found, seconds)
    for method in methods:
        learning, inference, _ = METHODS[method]
        settings = choose(method, X_train[::2], y_train[::2])
        field, seconds = fit(learning, inference, settings, X_train, y_train)
        found[method] = accuracies(field, X_test, y_test)
        print_line(method, settings, found, seconds)
        crossed, other = CROSSED[method]
        found[crossed] = accuracies(field, X_test, y_test, other)
        print_line(crossed, {}, found, 0.0)
        print_pair(method, crossed, found)
    for rival in methods[1:]:
        print_pair(methods[0], rival, found)
    return found


def exchange(X_train, y_train, X_test, y_test):
    """Print the accuracy for the node weights of one rule with the edge weights of another."""
    fields = {name: fit(learning, "trw", {}, X_train, y_train)[0] for name, learning in EXCHANGED.items()}
    for nodes, field in fields.items():
        for edges, other in fields.items():
            mixed = copy.copy(field)
            mixed.edge_coef_ = other.edge_coef_
            found = {name: 100 * accuracies(mixed, X_test, y_test, name).mean() for name in ("map", "mpm", "trw")}
            print(f"nodes of {nodes:24} edges of {edges:24}", *(f"{k} {v:.2f} %" for k, v in found.items()), flush=True)


def print_line(method, settings, found, seconds):
    """Print one row of the table."""
    accuracy = found[method]
    against = ""
    if method != UNARY:
        difference = accuracy - found[UNARY]
        p = wilcoxon(difference).pvalue
        against = (
            f"{100 * difference.mean():+6.2f}, better on {np.sum(difference > 0)} of {len(difference)}, p = {p:.1g}"
        )
    print(f"{method:16} {100 * accuracy.mean():6.2f} %  {against}  {settings}  {seconds:.0f} s", flush=True)


def print_pair(first, second, found):
    """Print whether one method leads another, by a test paired over images."""
    difference = found[first] - found[second]
    p = wilcoxon(difference).pvalue if np.any(difference) else 1.0
    print(f"  {first} over {second}: {100 * difference.mean():+.2f} points, p = {p:.1g}", flush=True)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="every fourth image")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument(
        "--exchange", action="store_true", help="only combine node weights of one rule with edge weights of another"
    )
    arguments = parser.parse_args()
    folder = os.environ.get("SKLEARN_CRF_DATA")
    if folder is None:
        sys.exit("SKLEARN_CRF_DATA must name the folder that holds weizmann_horses/.")
    images, y_train, test_images, y_test = load(folder, 4 if arguments.quick else 1)
    features = make_features().fit(images)
    X_train, X_test = features.transform(images), features.transform(test_images)
    print(f"{len(X_train)} training and {len(X_test)} test images, {X_train[0].shape[-1]} features of a pixel")
    if arguments.exchange:
        exchange(X_train, y_train, X_test, y_test)
    else:
        measure(X_train, y_train, X_test, y_test, arguments.methods)


if __name__ == "__main__":
    main()
