"""Characters, colours and flags by regression tree fields: Table 3, Figures 63 and 64 of Jancsary (2012).

Handwritten characters whose middle is hidden, street scenes whose colours are lost, and bent flags that are to be found
and mapped to the flat flag. All stand in for data that are not public: compare the order of the rows with that of
the thesis's, not the figures. Rows are trained one by one and kept in a JSON file, if one is given.

    python benchmarks/rtf_pictures.py --json pictures.json
    python benchmarks/rtf_pictures.py --tasks characters --quick
"""

import argparse
from pathlib import Path
from typing import NamedTuple

from _picture_tasks import characters, flags, mean_squared_error, share_in_box, streets
from _record import read_record, write_record
from _restoration import option_objects
from _short_rounds import seconds_of_fit

from sklearn_crf import RegressionTreeField, RegressionTreeFieldClassifier


class Task(NamedTuple):
    """Data, measure, numbers of images (all and quick, to train and to test), and options of all rows."""

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

# Depth of pixels and of pairs (all, then quick), encoding of labels, and the thesis's figure.
ROWS = {
    ("characters", "regression tree, ordinal"): ((12, 0), (8, 0), "ordinal", 70.50),
    ("characters", "Gaussian field, ordinal"): ((12, 0), (8, 0), "ordinal", 70.14),
    ("characters", "Gaussian field, orthonormal"): ((12, 0), (8, 0), "orthonormal", 74.19),
    ("characters", "tree field, ordinal"): ((12, 6), (8, 5), "ordinal", 75.37),
    ("characters", "tree field, orthonormal"): ((12, 6), (8, 5), "orthonormal", 75.02),
    ("colours", "regression tree"): ((8, 0), (5, 0), None, 8.2e-4),
    ("colours", "Gaussian field"): ((8, 0), (5, 0), None, None),
    ("colours", "tree field"): ((8, 6), (5, 4), None, 4.7e-4),
    ("flags", "regression tree"): ((12, 0), (8, 0), None, 6.1e-2),
    ("flags", "Gaussian field"): ((12, 0), (8, 0), None, None),
    ("flags", "tree field"): ((12, 10), (8, 6), None, 1.0e-2),
}


def trained(key, args):
    """The measure on test images, and seconds of the processor for training."""
    whole, quick, encoding, _ = ROWS[key]
    task = TASKS[key[0]]
    n_train, n_test = task.quick if args.quick else task.sizes
    depth, of_pairs = quick if args.quick else whole
    options = task.options | {"max_depth": depth, "window__max_depth": of_pairs, "max_iter": args.max_iter}
    if "tree," in key[1] or key[1].endswith("tree"):
        options["window__size"] = 1
    options |= {"n_jobs": args.jobs, "random_state": 0, "verbose": args.verbose}
    if encoding is None:
        field = RegressionTreeField("pseudolikelihood", **option_objects())
    else:
        field = RegressionTreeFieldClassifier("pseudolikelihood", encoding=encoding, **option_objects())
    field.set_params(**options)
    X, y = task.data("train", n_train)
    _, seconds = seconds_of_fit(field, X, y)
    X, y = task.data("test", n_test)
    return task.measure(field.predict(X), y), float(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--quick", action="store_true", help="fewer images, shallower trees")
    parser.add_argument("--max-iter", type=int, default=8, help="iterations a round")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    kept = read_record(args.json, {})
    print(f"{'':<40} {'measure':>9} {'thesis':>9} {'seconds':>8}")
    for key, (*_, theirs) in ROWS.items():
        if key[0] not in args.tasks:
            continue
        name = f"{key[0]}: {key[1]}{' (quick)' if args.quick else ''}"
        if name not in kept:
            kept[name] = trained(key, args)
            write_record(args.json, kept)
        measure, seconds = kept[name]
        theirs = "-" if theirs is None else f"{theirs:.4g}"
        print(f"{name:<40} {measure:9.4g} {theirs:>9} {seconds:8.1f}", flush=True)


if __name__ == "__main__":
    main()
