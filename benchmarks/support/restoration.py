"""Restoration of natural images by regression tree fields: data, measures, training by levels, and tables."""

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
    """Return evenly spaced images of a part of BSDS500 at half scale, reduced by an antialiased bicubic filter."""
    path = Path(os.environ["SKLEARN_CRF_DATA"]) / "bsds500" / f"bsds500_{part}_gray_half_bicubic.npz"
    archive = np.load(path)
    names = archive.files[:: max(1, len(archive.files) // n_images)][:n_images]
    return [archive[name].astype(np.float32) for name in names]


def measures(predicted, clean, limits=(0, 255)):
    """Return PSNR, MAE and SSIM (windows of 8 x 8) of each image, after clipping predictions to ``limits``."""
    rows = []
    for p, y in zip(predicted, clean, strict=True):
        p, y = np.clip(p, *limits).astype(float), y.astype(float)
        psnr = 10 * np.log10(255**2 / np.mean((p - y) ** 2))
        rows.append((psnr, np.mean(np.abs(p - y)), 1 - ssim(p, y, data_range=255.0)[0]))
    return np.array(rows)


# Steps by axis of the mirror images whose restorations are averaged
TURNS = [(1, 1), (1, -1), (-1, 1), (-1, -1)]


def mirrored(image, turns=TURNS):
    """Return the mirror images of an image, one for each turn."""
    return [np.ascontiguousarray(image[:: turn[0], :: turn[1]]) for turn in turns]


def mean_of_mirrors(restored, turns=TURNS):
    """Return the mean of the restorations of mirror images, after mirroring them back."""
    return np.mean([image[:: turn[0], :: turn[1]] for image, turn in zip(restored, turns, strict=True)], axis=0)


def loss_of_bytes(loss):
    """Return a value for ``loss=``: the name of a likelihood, or a loss of predictions in the range of bytes."""
    return loss if loss.endswith("likelihood") else loss_function(loss, data_range=255.0)


def option_objects():
    """Return option objects, whose options can then be set by nested names."""
    return {"window": Window(), "split": Splits(), "solver": FieldSolver(), "filter_bank": None}


# Largest number of pixels in a round of training of fields with default filters. Rounds use parts of images.
PIXELS_OF_ROUND = 400_000


def default_filters(noise, more=()):
    """Return the default filters of fields for a noise level, joined with ``more`` filters."""
    shrinkage = PatchShrinkage([multiple * noise for multiple in (1.8, 2.7, 3.5)])
    averages = PatchAverages([0.9 * noise], guide_threshold=2.7 * noise)
    return ChannelUnion([FilterBank("gaussian_derivatives"), shrinkage, averages, *more])


def channels_of_pairs(bank, n_more=0):
    """Return the indices of channels that linear models of pairs read: default filters without derivatives.

    The ``n_more`` channels after the channels of the bank are included.
    """
    derivatives = set(bank.transformers_[0].get_feature_names_out()[bank.n_channels_ :])
    names = list(bank.get_feature_names_out())
    return [k for k, name in enumerate(names) if name not in derivatives] + [len(names) + k for k in range(n_more)]


def by_default_filters(loss, args, pixels=PIXELS_OF_ROUND, **options):
    """Return a field to be fitted in one call, with trees of a given depth or with a depth by early stopping."""
    return RegressionTreeField(
        loss_of_bytes(loss),
        max_depth="auto" if args.depth is None else args.depth,
        solver=FieldSolver(max_samples=pixels, early_stopping="auto" if args.depth is None else False),
        random_state=0,
        n_jobs=args.jobs,
        **options,
    )


def grown(loss, images, clean, depth, options, name, folder, deepest=None):
    """Return a field with trees grown level by level, and the elapsed and processor seconds of all levels.

    Each level is stored in the folder, so a run that was stopped continues at its level. ``images`` returns the
    channels. It is only called if a level must be trained, and its time is included. Levels beyond ``deepest`` split
    no leaves but continue to fit them.
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
    """Return the elapsed and processor seconds."""
    return np.array([time.perf_counter(), time.process_time()])


def fit_on(field, former, channels, clean, path):
    """Continue to fit a field, and store it with the seconds of all its training."""
    seconds = former + seconds_of_fit(field.set_params(verbose=1), channels, clean)
    joblib.dump((field, seconds), path)


def kept_field(path):
    """Return a stored field and the seconds of its training. Attributes that older versions lack get defaults."""
    field, seconds = joblib.load(path)
    fitted = {"filter_bank_": None, "precision_channels_": np.zeros(0, dtype=np.int64)}
    fitted["slopes_"] = [np.zeros((len(part), 0, *part.shape[1:])) for part in field.precisions_]
    for name, value in (RegressionTreeField().get_params(deep=False) | fitted).items():
        vars(field).setdefault(name, value)
    return field, seconds


def predictions(field, images):
    """Return predictions and the shortest seconds of one image, including the time in which ``images`` yields it."""
    return seconds_of_each(field.predict([x])[0] for x in images)


def seconds_of_each(images):
    """Return the images that an iterator makes, and the shortest seconds of one image."""
    made, times = [], []
    start = time.perf_counter()
    for image in images:
        made.append(image)
        times.append(time.perf_counter() - start)
        start = time.perf_counter()
    return made, float(np.min(times))


def figures_of(rows, rival):
    """Return the mean measures of a method, and a comparison of its PSNR with a rival's on the same images."""
    figures = dict(zip(("psnr", "mae", "ssim"), rows.mean(axis=0).round(4).tolist(), strict=True))
    figures["to_rival"] = round(float(rows[:, 0].mean() - rival[:, 0].mean()), 4)
    if np.any(rows[:, 0] != rival[:, 0]):
        figures["wilcoxon"] = float(wilcoxon(rows[:, 0], rival[:, 0]).pvalue)
    return figures


def keep_row(folder, setting, quick, method, rows, rival, **others):
    """Write the figures of one method in one setting to a file, as a row of the table."""
    row = {"setting": setting, "quick": quick, "method": method, "n_images": len(rows), "thesis": None}
    key = method.replace(" + ", "_").replace(" ", "_").replace(",", "")
    name = f"row_{setting}_{'quick' if quick else 'full'}_{key}.json"
    write_record(folder / name, row | figures_of(rows, rival) | others)


def print_rows(folder, setting, quick, title, rival):
    """Print the stored rows of one setting."""
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
