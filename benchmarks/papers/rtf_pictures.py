"""Characters, colours and flags by regression tree fields: Table 3, Figures 63 and 64 of Jancsary (2012).

The tasks are handwritten characters whose middle is hidden, street scenes whose colours are lost, and bent flags that
have to be found and mapped to the flat flag. These data replace data of the thesis that are not public, so compare the
order of the rows instead of their values. Rows are trained one by one. If a JSON file is given, rows are stored there.
The task of characters also has rows without Gaussian fields: chance, a forest of scikit-learn, and a discrete field on
the output of the forest.

    python benchmarks/papers/rtf_pictures.py --json pictures.json
    python benchmarks/papers/rtf_pictures.py --tasks characters --quick
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import _path  # noqa: F401  finds the support package
import numpy as np
from support.discrete_rows import DiscreteField, MostFrequent, PixelTrees
from support.picture_tasks import characters, flags, mean_squared_error, share_in_box, streets
from support.record import read_record, write_record
from support.restoration import option_objects
from support.short_rounds import seconds_of_fit

from sklearn_crf import RegressionTreeField, RegressionTreeFieldClassifier


class Task(NamedTuple):
    """Data, measure, numbers of images (all and quick, training and test), and options of all rows."""

    data: object
    measure: object
    sizes: tuple
    quick: tuple
    options: dict


TASKS = {
    "characters": Task(
        characters,
        share_in_box,
        (300, 100),
        (60, 50),
        {"split__feature_radius": 20, "split__n_feature_tests": 100, "window__size": 5},
    ),
    "colours": Task(
        streets,
        mean_squared_error,
        (100, 50),
        (15, 15),
        {"split__feature_radius": 5, "split__min_samples_leaf": 200, "window__size": 3},
    ),
    "flags": Task(
        flags,
        mean_squared_error,
        (400, 100),
        (40, 20),
        {"split__feature_radius": 6, "split__min_samples_leaf": 50, "window__size": 5},
    ),
}

# A forest sees every third pixel around a hidden pixel, at most 20 away.
SEEN = [(i, j) for i in range(-18, 21, 3) for j in range(-18, 21, 3)] + [(-20, 0), (20, 0), (0, -20), (0, 20)]


def is_hidden(x):
    return x[..., 2] == 1


def forest(jobs):
    return PixelTrees(SEEN, 15, 50, min_samples_leaf=5, chosen=is_hidden, n_jobs=jobs)


def neighbours(size):
    """Return offsets that join a pixel with all other pixels of a square, each pair once."""
    reach = size // 2
    square = [(i, j) for i in range(reach + 1) for j in range(-reach, reach + 1)]
    return [offset for offset in square if offset > (0, 0)]


# Classifiers without Gaussian fields, as functions of the number of threads, and the thesis's figure.
OTHERS = {
    ("characters", "the most frequent label"): (lambda jobs: MostFrequent(is_hidden), None),
    ("characters", "random forest"): (forest, 67.74),
    ("characters", "discrete field"): (lambda jobs: DiscreteField(forest(jobs), neighbours(5), n_jobs=jobs), 75.18),
}

# Depth of the trees of pixels and of pairs (all, then quick), encoding of labels, and the thesis's figure.
ROWS = {
    ("characters", "ordinal, regression tree"): ((15, 0), (8, 0), "ordinal", 70.50),
    ("characters", "orthonormal, regression tree"): ((15, 0), (8, 0), "orthonormal", 69.70),
    ("characters", "ordinal, Gaussian field"): ((15, 0), (8, 0), "ordinal", 70.14),
    ("characters", "orthonormal, Gaussian field"): ((15, 0), (8, 0), "orthonormal", 74.19),
    ("characters", "ordinal, tree field"): ((15, 6), (8, 5), "ordinal", 75.37),
    ("characters", "orthonormal, tree field"): ((15, 6), (8, 5), "orthonormal", 75.02),
    ("characters", "ordinal, deep tree field"): ((20, 20), (12, 12), "ordinal", 76.39),
    ("characters", "orthonormal, deep tree field"): ((20, 20), (12, 12), "orthonormal", 77.55),
    ("colours", "regression tree"): ((8, 0), (5, 0), None, 8.2e-4),
    ("colours", "Gaussian field"): ((8, 0), (5, 0), None, None),
    ("colours", "tree field"): ((8, 6), (5, 4), None, 4.7e-4),
    ("flags", "regression tree"): ((12, 0), (8, 0), None, 6.1e-2),
    ("flags", "Gaussian field"): ((12, 0), (8, 0), None, None),
    ("flags", "tree field"): ((12, 10), (8, 6), None, 1.0e-2),
}


def field_of(key, args):
    whole, quick, encoding, _ = ROWS[key]
    task = TASKS[key[0]]
    depth, of_pairs = quick if args.quick else whole
    options = task.options | {"max_depth": depth, "window__max_depth": of_pairs, "max_iter": args.max_iter}
    if key[1].endswith("regression tree"):
        options["window__size"] = 1
    options |= {"n_jobs": args.jobs, "random_state": 0, "verbose": args.verbose}
    if encoding is None:
        field = RegressionTreeField("pseudolikelihood", **option_objects())
    else:
        field = RegressionTreeFieldClassifier("pseudolikelihood", encoding=encoding, **option_objects())
    return field.set_params(**options)


def trained(key, args):
    """Train a model; return its measure on test images and the processor seconds of training."""
    task = TASKS[key[0]]
    n_train, n_test = task.quick if args.quick else task.sizes
    model = OTHERS[key][0](args.jobs) if key in OTHERS else field_of(key, args)
    _, seconds = seconds_of_fit(model, *task.data("train", n_train))
    X, y = task.data("test", n_test)
    return task.measure(np.stack(list(model.predict(X))), y), float(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--quick", action="store_true", help="fewer images, shallower trees")
    parser.add_argument("--max-iter", type=int, default=8, help="iterations per training round")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for results")
    parser.add_argument("--table", type=Path, help="only make a table of stored results")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    kept = read_record(args.json, {})
    table = [["task", "row", "measure", "in the thesis", "training, s of the processor"]]
    for key, (*_, theirs) in (OTHERS | ROWS).items():
        if key[0] not in args.tasks:
            continue
        name = f"{key[0]}: {key[1]}{' (quick)' if args.quick else ''}"
        if name not in kept and args.table is not None:
            continue
        if name not in kept:
            kept[name] = trained(key, args)
            write_record(args.json, kept)
        measure, seconds = kept[name]
        table.append([*key, f"{measure:.4g}", "" if theirs is None else f"{theirs:.4g}", f"{seconds:.1f}"])
        print("".join(f"{cell:<36}" if cell in key else f"{cell:>14}" for cell in table[-1]), flush=True)
    write_record(args.table, table)


if __name__ == "__main__":
    main()
