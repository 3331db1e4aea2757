"""Measure whether factors over patches of 2 x 2 pixels help on photographs of horses.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/patch_factors.py --record patches.json    # three minutes

Eight training and twenty test photographs of 16 x 20 pixels, for five random draws. Edges have tables with features of
differences. Every patch of 2 x 2 pixels is also a factor with a weight for each joint labeling. Training is by ten
sweeps of the inference for prediction. Accuracy, log-loss and processor time are printed, with differences to the field
without patches, which are paired by test image, and their standard errors over draws.
"""

import argparse
import time
from functools import partial
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.default_tasks import drawn
from support.record import recorded

from sklearn_crf import TRWCRF, Example
from sklearn_crf.graphs import lattice


def build_examples(X, has_patches):
    """Return examples with edges between neighbours, and with a factor for each patch of 2 x 2 pixels if requested."""
    found = []
    for x in X:
        rows, columns, n_features = x.shape
        pixels, number = x.reshape(-1, n_features), np.arange(rows * columns).reshape(rows, columns)
        corners = number[:-1, :-1], number[:-1, 1:], number[1:, :-1], number[1:, 1:]
        graph = lattice((rows, columns))
        differences = np.abs(pixels[graph.edges[:, 0]] - pixels[graph.edges[:, 1]])
        edge_features = np.hstack([np.ones((len(differences), 1)), differences])
        factors = {"patch": np.stack(corners, axis=-1).reshape(-1, 4)} if has_patches else None
        found.append(Example(pixels, graph.edges, edge_features, factors=factors))
    return found


def measured(has_patches, seed):
    """Return accuracy and log-loss of each test image, and the processor time of the fit."""
    _, task = drawn("horses, 8 of 32 x 40", seed)
    mean, spread = task.X.mean(axis=(0, 1, 2)), task.X.std(axis=(0, 1, 2))
    X, X_test = ((part[:, ::2, ::2] - mean) / spread for part in (task.X, task.X_test))
    truth = task.y_test[:, ::2, ::2].reshape(len(X_test), -1)
    start = time.process_time()
    field = TRWCRF(learning="truncated", pairwise="symmetric")
    field.fit(build_examples(X, has_patches), [labels[::2, ::2].ravel() for labels in task.y])
    seconds = time.process_time() - start
    shares = np.stack(list(field.predict_proba(build_examples(X_test, has_patches))))
    right = (shares.argmax(axis=-1) == truth).mean(axis=1)
    of_truth = np.take_along_axis(shares, truth[..., np.newaxis], axis=-1)
    log_loss = -np.log(np.maximum(of_truth, 1e-15)).mean(axis=(1, 2))
    return [(100 * right).tolist(), log_loss.tolist(), seconds]


def main():
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    runs = {
        name: [
            recorded(options.record, f"{name}/{seed}", partial(measured, name == "patches", seed))
            for seed in range(options.seeds)
        ]
        for name in ("edges", "patches")
    }
    for name, own in runs.items():
        right, log_loss, seconds = zip(*own, strict=True)
        print(
            f"{name:8s} {np.mean(right):6.2f} % correct, log-loss {np.mean(log_loss):.3f}, fit {np.mean(seconds):.1f} s"
        )
    for k, what in enumerate(("correct", "log-loss")):
        gains = [np.mean(np.subtract(b[k], a[k])) for a, b in zip(runs["edges"], runs["patches"], strict=True)]
        print(
            f"{what}: difference {np.mean(gains):+.3f} ({np.std(gains, ddof=1) / np.sqrt(len(gains)):.3f} over draws)"
        )


if __name__ == "__main__":
    main()
