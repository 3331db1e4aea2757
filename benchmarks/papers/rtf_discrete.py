"""Labels by regression tree fields: the snakes of Table 4 of Jancsary (2012).

The colour of each cell of a snake is the direction of the next cell. The label of a cell is its position, 1 to 10; all
other cells have label 0. The data are the data of the thesis (200 training grids, 100 test grids). Fields join each
cell with its four neighbours, and are trained by pseudolikelihood. The root mean squared error is computed on grey
values from 0 to 1 (label divided by 10). Trees and forests are from scikit-learn, on windows of 9 x 9 cells. Discrete
fields are :class:`~sklearn_crf.DRFClassifier` on the output of the forest. Rows are trained one by one. If a JSON file
is given, rows are stored there, and an interrupted run continues at its row.

    python benchmarks/papers/rtf_discrete.py --json snakes.json
    python benchmarks/papers/rtf_discrete.py --json snakes.json --table docs/results/rtf_discrete/table_snakes.json
"""

import argparse
import os
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.discrete_rows import DiscreteField, MostFrequent, PixelTrees
from support.record import read_record, write_record
from support.short_rounds import seconds_of_fit

from sklearn_crf import RegressionTreeFieldClassifier
from sklearn_crf.rtf import Splits, Window

# A tree or forest sees cells at most four away.
SEEN = [(i, j) for i in range(-4, 5) for j in range(-4, 5)]


def forest(n_trees):
    return PixelTrees(SEEN, 25, n_trees)


# Classifiers without Gaussian fields, then the thesis's accuracy and RMSE.
OTHERS = {
    "the most frequent label": (MostFrequent, None, None),
    "random forest": (lambda: forest(100), 90.30, None),
    "decision tree": (lambda: forest(1), 90.90, None),
    "discrete field": (lambda: DiscreteField(forest(100), 1), 91.90, None),
    "discrete field, pairs see colours": (lambda: DiscreteField(forest(100), 1, True), 99.40, None),
}

# Depth of the trees of pixels and of pairs, encoding, split criterion, then the thesis's accuracy and RMSE.
ROWS = {
    "regression trees, ordinal": ((10, 0), "ordinal", "gradient", 82.69, 0.1020),
    "regression trees, orthonormal": ((10, 0), "orthonormal", "gradient", 82.43, 0.1125),
    "Gaussian field, ordinal": ((10, 0), "ordinal", "gradient", 82.52, 0.0999),
    "Gaussian field, orthonormal": ((10, 0), "orthonormal", "gradient", 84.22, 0.1352),
    "separate trees, orthonormal": ((0, 7), "orthonormal", "residual", None, None),
    "tree field, ordinal": ((0, 10), "ordinal", "gradient", 91.14, 0.0512),
    "tree field, orthonormal": ((0, 7), "orthonormal", "gradient", 98.77, 0.0268),
}


def snakes(part, n):
    """Return colours of cells, one-hot, and labels."""
    archive = np.load(Path(os.environ["SKLEARN_CRF_DATA"]) / "snakes" / "snakes.npz")
    # Blue, red, green, cyan, yellow.
    colours = np.array([(0, 0, 255), (255, 0, 0), (0, 255, 0), (0, 255, 255), (255, 255, 0)])
    X, y = [], []
    for i in range(n):
        image = archive[f"{part}_{i:03d}_image"]
        X.append(np.all(image[:, :, None] == colours, axis=-1).astype(np.float32))
        y.append(archive[f"{part}_{i:03d}_label"].astype(int))
    return X, y


def field_of(name, args):
    (depth, of_pairs), encoding, split, _, _ = ROWS[name]
    return RegressionTreeFieldClassifier(
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


def trained(name, args):
    """Return accuracy in percent, RMSE, and processor seconds of training."""
    model = OTHERS[name][0]() if name in OTHERS else field_of(name, args)
    _, seconds = seconds_of_fit(model, *snakes("train", args.images))
    X, y = snakes("test", 100)
    predicted = np.concatenate([part.ravel() for part in model.predict(X)])
    truth = np.concatenate([part.ravel() for part in y])
    rmse = float(np.sqrt(np.mean((predicted - truth) ** 2))) / 10
    return 100 * float(np.mean(predicted == truth)), rmse, float(seconds)


def theirs_of(name):
    """Return the thesis's accuracy and RMSE as text."""
    accuracy, rmse = (OTHERS | ROWS)[name][-2:]
    return "" if accuracy is None else f"{accuracy:.2f}", "" if rmse is None else f"{rmse:.4f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=[*OTHERS, *ROWS], default=[*OTHERS, *ROWS])
    parser.add_argument("--images", type=int, default=200, help="training images")
    parser.add_argument("--radius", type=int, default=4, help="largest offset of feature tests")
    parser.add_argument("--min-samples", type=int, default=10, help="smallest size of a leaf")
    parser.add_argument("--max-iter", type=int, default=15, help="iterations per training round")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for results")
    parser.add_argument("--table", type=Path, help="only make a table of stored results")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    kept = read_record(args.json, {})
    table = [["snakes", "right, %", "in the thesis", "RMSE", "in the thesis", "training, s of the processor"]]
    for name in args.rows:
        if name not in kept and args.table is not None:
            continue
        if name not in kept:
            kept[name] = trained(name, args)
            write_record(args.json, kept)
        accuracy, rmse, seconds = kept[name]
        theirs = theirs_of(name)
        table.append([name, f"{accuracy:.2f}", theirs[0], f"{rmse:.4f}", theirs[1], f"{seconds:.1f}"])
        print("".join(f"{cell:<36}" if cell == name else f"{cell:>16}" for cell in table[-1]), flush=True)
    write_record(args.table, table)


if __name__ == "__main__":
    main()
