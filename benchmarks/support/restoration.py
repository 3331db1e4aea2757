"""Restoration of natural images by regression tree fields: data, measures, training level by level, rows of figures."""

import json
import os
import time
from pathlib import Path

import joblib
import numpy as np
from scipy.stats import wilcoxon

from sklearn_crf import RegressionTreeField
from sklearn_crf.preprocessing import ChannelUnion, FilterBank, PatchAverages, PatchShrinkage
from sklearn_crf.rtf import FieldSolver, Splits, Window
from sklearn_crf.rtf.losses import loss_function, ssim
from support.record import write_record
from support.short_rounds import seconds_of_fit


def clean_images(part, n_images):
    """Every so many-th image of a part of BSDS500 at half scale, reduced by an antialiased bicubic filter."""
    path = Path(os.environ["SKLEARN_CRF_DATA"]) / "bsds500" / f"bsds500_{part}_gray_half_bicubic.npz"
    archive = np.load(path)
    names = archive.files[:: max(1, len(archive.files) // n_images)][:n_images]
    return [archive[name].astype(np.float32) for name in names]


def measures(predicted, clean, limits=(0, 255)):
    """PSNR, MAE and SSIM (windows of 8 x 8) of each image, values kept within limits, by default those of bytes."""
    rows = []
    for p, y in zip(predicted, clean, strict=True):
        p, y = np.clip(p, *limits).astype(float), y.astype(float)
        psnr = 10 * np.log10(255**2 / np.mean((p - y) ** 2))
        rows.append((psnr, np.mean(np.abs(p - y)), 1 - ssim(p, y, data_range=255.0)[0]))
    return np.array(rows)


# Mirror images whose restorations are averaged.
TURNS = [(1, 1), (1, -1), (-1, 1), (-1, -1)]


def mirrored(image, turns=TURNS):
    """Mirror images of an image, one for each turn."""
    return [np.ascontiguousarray(image[:: turn[0], :: turn[1]]) for turn in turns]


def mean_of_mirrors(restored, turns=TURNS):
    """The mean of the restorations of mirror images, each mirrored back."""
    return np.mean([image[:: turn[0], :: turn[1]] for image, turn in zip(restored, turns, strict=True)], axis=0)


def loss_of_bytes(loss):
    """What ``loss=`` takes: likelihoods by name, losses of predictions with the range of bytes."""
    return loss if loss.endswith("likelihood") else loss_function(loss, data_range=255.0)


def option_objects():
    """Objects whose options are then set by nested names."""
    return {"window": Window(), "split": Splits(), "solver": FieldSolver(), "filter_bank": None}


# Most pixels of a round of fields that see the default filters: rounds have parts of images.
PIXELS_OF_ROUND = 400_000


def default_filters(noise, more=()):
    """The channels that fields have by default, for noise of this strength, and those of more filters."""
    shrinkage = PatchShrinkage([multiple * noise for multiple in (1.8, 2.7, 3.5)])
    averages = PatchAverages([0.9 * noise], guide_threshold=2.7 * noise)
    return ChannelUnion([FilterBank("gaussian_derivatives"), shrinkage, averages, *more])


def channels_of_pairs(bank, n_more=0):
    """Numbers of the channels of default filters that linear models of pairs see: not the derivatives.

    Channels that follow those of the bank are seen too.
    """
    derivatives = set(bank.transformers_[0].get_feature_names_out()[bank.n_channels_ :])
    names = list(bank.get_feature_names_out())
    return [k for k, name in enumerate(names) if name not in derivatives] + [len(names) + k for k in range(n_more)]


def by_default_filters(loss, args, pixels=PIXELS_OF_ROUND, **options):
    """A field to be fitted at once, to trees of a given depth or as deep as early stopping finds them worth."""
    return RegressionTreeField(
        loss_of_bytes(loss),
        max_depth="auto" if args.depth is None else args.depth,
        solver=FieldSolver(max_samples=pixels, early_stopping="auto" if args.depth is None else False),
        random_state=0,
        n_jobs=args.jobs,
        **options,
    )


def grown(loss, images, clean, depth, options, name, folder, deepest=None):
    """A field of trees of this depth, grown level by level, and seconds of all levels by the clock and the processor.

    Every level is kept in the folder: a run that was stopped goes on at the level it was at. ``images`` is called for
    the channels once there is something to train, and its seconds count. Levels beyond the deepest split nothing, and
    fit leaves on.
    """
    field, kept, channels, spent = None, None, None, np.zeros(2)
    for level in range(depth + 1):
        path = folder / f"field_{name}_depth{level}.joblib"
        if path.exists():
            kept = path
            continue
        if channels is None:
            start = _seconds()
            channels = images()
            spent = _seconds() - start
        if kept is not None:
            field, former = kept_field(kept)
        else:
            field, former = RegressionTreeField(loss_of_bytes(loss), warm_start=True, **option_objects()), np.zeros(2)
        field.set_params(max_depth=min(level, depth if deepest is None else deepest), random_state=level, **options)
        fit_on(field, former + spent, channels, clean, path)
        kept, spent = path, np.zeros(2)
    field, seconds = kept_field(kept)
    return field.set_params(verbose=0), seconds


def _seconds():
    """By the clock, and of the processor."""
    return np.array([time.perf_counter(), time.process_time()])


def fit_on(field, former, channels, clean, path):
    """Fit a field from where it is, and keep it with the seconds of all that was done for it."""
    seconds = former + seconds_of_fit(field.set_params(verbose=1), channels, clean)
    joblib.dump((field, seconds), path)


def kept_field(path):
    """A field and the seconds of its training; what earlier versions did not have yet is at its defaults."""
    field, seconds = joblib.load(path)
    fitted = {"filter_bank_": None, "precision_channels_": np.zeros(0, dtype=np.int64)}
    fitted["slopes_"] = [np.zeros((len(part), 0, *part.shape[1:])) for part in field.precisions_]
    for name, value in (RegressionTreeField().get_params(deep=False) | fitted).items():
        vars(field).setdefault(name, value)
    return field, seconds


def predictions(field, images):
    """Predictions one by one, and the least seconds that one took; ``images`` yields channels, in the time measured."""
    return seconds_of_each(field.predict([x])[0] for x in images)


def seconds_of_each(images):
    """Images as they are made one by one, and the least seconds that one took."""
    made, times = [], []
    start = time.perf_counter()
    for image in images:
        made.append(image)
        times.append(time.perf_counter() - start)
        start = time.perf_counter()
    return made, float(np.min(times))


def figures_of(rows, rival):
    """Means of the measures of a method, and how its PSNR compares with a rival's on the same images."""
    figures = dict(zip(("psnr", "mae", "ssim"), rows.mean(axis=0).round(4).tolist(), strict=True))
    figures["to_rival"] = round(float(rows[:, 0].mean() - rival[:, 0].mean()), 4)
    if np.any(rows[:, 0] != rival[:, 0]):
        figures["wilcoxon"] = float(wilcoxon(rows[:, 0], rival[:, 0]).pvalue)
    return figures


def keep_row(folder, setting, quick, method, rows, rival, **others):
    """Write the figures of one method under one setting as a row of the table."""
    row = {"setting": setting, "quick": quick, "method": method, "n_images": len(rows), "thesis": None}
    key = method.replace(" + ", "_").replace(" ", "_").replace(",", "")
    name = f"row_{setting}_{'quick' if quick else 'full'}_{key}.json"
    write_record(folder / name, row | figures_of(rows, rival) | others)


def print_rows(folder, setting, quick, title, rival):
    """Print the rows that are kept of one setting."""
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("row_*.json"))]
    rows = [row for row in rows if row.get("setting") == setting and row["quick"] == quick]
    if not rows:
        print(f"no figures for {title} in {folder}")
        return
    print(f"\n{title}, {rows[0]['n_images']} test images")
    print(
        f"{'':<26} {'PSNR':>7} {'MAE':>6} {'SSIM':>7} {f'to {rival}':>9} {'thesis':>8} {'p':>8} {'s/image':>8} "
        "training, s (processor)"
    )
    for row in sorted(rows, key=lambda row: row["psnr"]):
        text = f"{row['method']:<26} {row['psnr']:7.2f} {row['mae']:6.2f} {row['ssim']:7.3f} {row['to_rival']:+9.2f}"
        text += "        -" if row["thesis"] is None else f" {row['thesis']:+8.2f}"
        text += f" {row['wilcoxon']:8.0e}" if "wilcoxon" in row else "        -"
        text += f" {row['seconds']:8.3f}" if "seconds" in row else "        -"
        if "training_seconds" in row:
            text += " {:.0f} ({:.0f})".format(*row["training_seconds"])
        print(text)
