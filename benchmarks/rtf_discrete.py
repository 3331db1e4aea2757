"""Labels by regression tree fields: the snakes of Table 4 of Jancsary (2012).

Each cell of a snake tells the direction of the next, and is to be labelled by its position, 1 to 10, the rest by 0. The
data are those of the thesis (200 grids to train on, 100 to test), 4-connected fields trained by pseudolikelihood. Rows
are trained one by one and kept in a JSON file, if one is given: a run that was stopped goes on with the row that it was
at. The root mean squared error is that of grey values from 0 to 1, label over 10.

    python benchmarks/rtf_discrete.py --json snakes.json
"""

import argparse
import os
from pathlib import Path

import numpy as np
from _record import read_record, write_record
from _short_rounds import seconds_of_fit

from sklearn_crf import RegressionTreeFieldClassifier
from sklearn_crf.rtf import Splits, Window

# Depth of pixels and of pairs, encoding, where leaves are split; then accuracy and RMSE of the thesis.
ROWS = {
    "regression trees, orthonormal": ((10, 0), "orthonormal", "gradient", 82.43, 0.1125),
    "Gaussian field, ordinal": ((10, 0), "ordinal", "gradient", 82.52, 0.0999),
    "Gaussian field, orthonormal": ((10, 0), "orthonormal", "gradient", 84.22, 0.1352),
    "separate trees, orthonormal": ((0, 7), "orthonormal", "residual", None, None),
    "tree field, ordinal": ((0, 10), "ordinal", "gradient", 91.14, 0.0512),
    "tree field, orthonormal": ((0, 7), "orthonormal", "gradient", 98.77, 0.0268),
}


def snakes(part, n):
    """Colours of the cells, 1 for the one that a cell has and 0 for the others, and labels."""
    archive = np.load(Path(os.environ["SKLEARN_CRF_DATA"]) / "snakes" / "snakes.npz")
    # Blue, red, green, cyan, yellow.
    colours = np.array([(0, 0, 255), (255, 0, 0), (0, 255, 0), (0, 255, 255), (255, 255, 0)])
    X, y = [], []
    for i in range(n):
        image = archive[f"{part}_{i:03d}_image"]
        X.append(np.all(image[:, :, None] == colours, axis=-1).astype(np.float32))
        y.append(archive[f"{part}_{i:03d}_label"].astype(int))
    return X, y


def trained(name, args):
    """Accuracy in percent, RMSE, and seconds of the processor for training."""
    (depth, of_pairs), encoding, split, _, _ = ROWS[name]
    X, y = snakes("train", args.images)
    field = RegressionTreeFieldClassifier(
        "pseudolikelihood",
        encoding=encoding,
        window=Window([[0, 1], [1, 0]] if "field" in name or split == "residual" else 1, max_depth=of_pairs),
        max_depth=depth,
        split=Splits(
            split,
            n_feature_tests=None,
            n_thresholds=1,
            feature_radius=args.radius,
            max_samples=None,
            min_samples_leaf=args.min_samples,
        ),
        max_iter=args.max_iter,
        n_jobs=args.jobs,
        random_state=0,
        verbose=args.verbose,
    )
    _, seconds = seconds_of_fit(field, X, y)
    X, y = snakes("test", 100)
    predicted = np.concatenate([part.ravel() for part in field.predict(X)])
    truth = np.concatenate([part.ravel() for part in y])
    rmse = float(np.sqrt(np.mean((predicted - truth) ** 2))) / 10
    return 100 * float(np.mean(predicted == truth)), rmse, float(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--images", type=int, default=200, help="training images")
    parser.add_argument("--radius", type=int, default=4, help="of feature tests")
    parser.add_argument("--min-samples", type=int, default=10, help="of a leaf")
    parser.add_argument("--max-iter", type=int, default=15, help="iterations a round")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    kept = read_record(args.json, {})
    print(f"{'snakes':<32} {'%':>7} {'thesis':>7} {'RMSE':>7} {'thesis':>7} {'seconds':>8}")
    for name in args.rows:
        if name not in kept:
            kept[name] = trained(name, args)
            write_record(args.json, kept)
        accuracy, rmse, seconds = kept[name]
        theirs = ROWS[name][3:]
        theirs = ("-", "-") if theirs[0] is None else (f"{theirs[0]:.2f}", f"{theirs[1]:.4f}")
        print(f"{name:<32} {accuracy:7.2f} {theirs[0]:>7} {rmse:7.4f} {theirs[1]:>7} {seconds:8.1f}", flush=True)


if __name__ == "__main__":
    main()
