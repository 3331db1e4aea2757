"""Gains of regression tree fields from images, depth and ways to grow: Figures 46, 56, 57 and 60 of Jancsary (2012).

Images are noisy crops of 96 x 96 pixels, one crop of each image of BSDS500 at half scale. Channels are responses of the
RFS filter bank, and windows are 3 x 3 pixels. New images are crops of the validation part. For Figure 46, the thesis
trains on up to 5000 images of MIRFLICKR. For all other figures, the text of the thesis only has two numbers, the ends
of Figure 56, so compare the shapes of the curves instead of their values.

    python benchmarks/papers/rtf_figures.py measure               # some minutes; continues an interrupted run
    python benchmarks/papers/rtf_figures.py measure --images 128 --tests 40    # twelve minutes
    python benchmarks/papers/rtf_figures.py figure                # draws docs/_static/rtf_figures.png

Curves are stored in `--folder`, with one JSON file for each figure.
"""

import argparse
from functools import cache
from pathlib import Path

import _path  # noqa: F401  finds the support package
import matplotlib.pyplot as plt
import numpy as np
from support.record import read_record, write_record
from support.restoration import clean_images, loss_of_bytes, measures, option_objects
from support.short_rounds import seconds_of_fit

from sklearn_crf import RegressionTreeField
from sklearn_crf.preprocessing import FilterBank
from sklearn_crf.rtf.losses import loss_function

SIDE = 96

# Iterations for each level of a tree, in either kind of training.
ITERATIONS = 8

# More than all pixels.
ALL_PIXELS = 10**8

# Depth of trees where the depth is not varied.
DEPTH = 5

# Linear models of pairs see the intensity and the two round filters.
OPTIONS = {"split__n_feature_tests": 32, "window__pairwise_channels": [0, 37, 38]}


def field_of(loss, **options):
    """Return a field with the given options and the options that all fields share."""
    field = RegressionTreeField(loss_of_bytes(loss), random_state=0, **option_objects())
    return field.set_params(**OPTIONS | options)


@cache
def cuts(part, n_images, sigma):
    """Return channels of a cut of each image, filtered before cutting, and the clean values."""
    rng = np.random.default_rng(0 if part == "train" else 1)
    clean = clean_images(part, n_images)
    noisy = [(y + sigma * rng.normal(size=y.shape)).astype(np.float32) for y in clean]
    X, y = [], []
    for channels, values in zip(FilterBank("rfs").fit_transform(noisy), clean, strict=True):
        i, j = (rng.integers(length - SIDE + 1) for length in values.shape)
        X.append(np.ascontiguousarray(channels[i : i + SIDE, j : j + SIDE]))
        y.append(values[i : i + SIDE, j : j + SIDE])
    return X, y


def fitted(loss, depth, X, y, **options):
    """Return a field and its processor seconds; iterations are equal for trees grown before and during training."""
    is_grown_before = options.get("split__criterion") == "residual"
    rounds = 1 if is_grown_before else depth + 1
    iterations = ITERATIONS * (depth + 1) // rounds
    if is_grown_before:
        # With the usual limit, all leaves together would see only the pixels of a single round.
        options["solver__max_samples"] = ALL_PIXELS
    field = field_of(loss, max_depth=depth, max_iter=iterations, **options)
    return field, seconds_of_fit(field, X, y)[1]


def by_level(loss, sigma, split, args):
    """Yield fields with trees of every depth up to the largest."""
    X, y = cuts("train", args.images, sigma)
    field = field_of(loss, max_iter=ITERATIONS, warm_start=True)
    seconds = 0.0
    for depth in range(args.depth + 1):
        if split == "residual":
            field, seconds = fitted(loss, depth, X, y, split__criterion=split)
        else:
            field.set_params(max_depth=depth, random_state=depth)
            seconds += seconds_of_fit(field, X, y)[1]
        yield depth, field, seconds, (X, y)


def by_images(args):
    """Yield fields for Figure 46, trained by pseudolikelihood on more and more images."""
    X, y = cuts("train", 2 * args.images, 25)
    for n in (4, 8, 16, 32, 64, 128):
        if n <= len(X):
            yield n, *fitted("pseudolikelihood", 4, X[:n], y[:n]), (X[:n], y[:n])


def by_depth(of_pairs, args):
    """Yield fields for Figure 56: one of the depths of pairs' and pixels' trees is varied, the other is fixed."""
    X, y = cuts("train", args.images, 25)
    for depth in range(args.depth + 2):
        unary, pairwise = (DEPTH, depth) if of_pairs else (depth, DEPTH)
        yield depth, *fitted("psnr", unary, X, y, window__max_depth=pairwise), (X, y)


# The noise level and the curves of each figure.
FIGURES = {
    "46": (25, {"images": by_images}),
    "56": (25, {"pairs": lambda args: by_depth(True, args), "pixels": lambda args: by_depth(False, args)}),
    "57_mse": (25, {split: lambda args, s=split: by_level("mse", 25, s, args) for split in ("gradient", "residual")}),
    "57_iw_ssim": (
        25,
        {split: lambda args, s=split: by_level("iw_ssim", 25, s, args) for split in ("gradient", "residual")},
    ),
    "60": (
        10,
        {split: lambda args, s=split: by_level("pseudolikelihood", 10, s, args) for split in ("gradient", "residual")},
    ),
}


def measure(args):
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.figures:
        sigma, curves = FIGURES[name]
        path = args.folder / f"{name}.json"
        record = read_record(path, {})
        for curve, fields in curves.items():
            if curve not in record:
                record[curve] = figures_of_curve(fields(args), cuts("val", args.tests, sigma))
                write_record(path, record)
            for key, values in record[curve].items():
                print(f"{name}, {curve}, {key}: {np.round(values, 4).tolist()}", flush=True)


def figures_of_curve(fields, new):
    """Return the figures of a curve, for training images and for new images."""
    rows = []
    for x, field, seconds, seen in fields:
        row = {"x": x, "objective": float(field.loss_curve_[-1]), "seconds": round(float(seconds), 2)}
        for images, (X, y) in (("training", seen), ("new", new)):
            predicted = field.predict(X)
            row[f"psnr_{images}"] = float(measures(predicted, y)[:, 0].mean())
            for loss in ("mse", "iw_ssim") if images == "new" else ():
                value = loss_function(loss, 255.0)
                row[f"{loss}_new"] = float(np.mean([value(p, t)[0] for p, t in zip(predicted, y, strict=True)]))
        rows.append(row)
    return {key: [row[key] for row in rows] for key in rows[0]}


# Each figure, its curves with labels and values, and its axes.
NEW = "PSNR of new images (dB)"
SPLITS = {"gradient": "norm of the gradient", "residual": "residuals"}
TRAININGS = {"gradient": "joint", "residual": "separate"}
PANELS = [
    (
        "46",
        [("images", "psnr_training", "training images"), ("images", "psnr_new", "new images")],
        "images",
        "PSNR (dB)",
    ),
    ("56", [(name, "psnr_new", f"trees of {name}") for name in ("pairs", "pixels")], f"depth, others {DEPTH}", NEW),
    ("57_mse", [(key, "mse_new", text) for key, text in SPLITS.items()], "depth", "squared error of new images"),
    ("57_iw_ssim", [(key, "iw_ssim_new", text) for key, text in SPLITS.items()], "depth", "1 - IW-SSIM of new images"),
    ("60", [(key, "objective", text) for key, text in TRAININGS.items()], "depth", "minus log-pseudolikelihood"),
    ("60", [(key, "psnr_new", text) for key, text in TRAININGS.items()], "depth", NEW),
]


def figure(args):
    picture, axes = plt.subplots(2, 3, figsize=(11, 6.2), constrained_layout=True)
    for axis, (name, curves, x, y) in zip(axes.ravel(), PANELS, strict=True):
        record = read_record(args.folder / f"{name}.json", {})
        for curve, key, label in curves:
            if curve in record:
                axis.plot(record[curve]["x"], record[curve][key], "o-", label=label)
        axis.set(xlabel=x, ylabel=y, title=f"Figure {name[:2]}: noise of {FIGURES[name][0]}")
        if name == "46":
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter("{x:.0f}")
        axis.legend(fontsize="small")
    args.picture.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(args.picture, dpi=90)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function in (measure, figure):
        command = commands.add_parser(function.__name__)
        command.set_defaults(function=function)
        command.add_argument("--folder", type=Path, default=Path("docs/results/rtf_figures"))
        if function is measure:
            command.add_argument("--figures", nargs="+", choices=FIGURES, default=list(FIGURES))
            command.add_argument(
                "--images", type=int, default=24, help="number of training crops; Figure 46 uses up to twice as many"
            )
            command.add_argument("--tests", type=int, default=20, help="number of crops of the validation part")
            command.add_argument("--depth", type=int, default=4, help="largest depth; Figure 56 has one more level")
        else:
            command.add_argument("--picture", type=Path, default=Path("docs/_static/rtf_figures.png"))
    args = parser.parse_args()
    args.function(args)


if __name__ == "__main__":
    main()
