"""Benchmarks of restoration with known corruption: one field per setting, compared with the corrupted images."""

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np

from sklearn_crf.preprocessing import FilterBank
from sklearn_crf.rtf import Window
from support.restoration import (
    PIXELS_OF_ROUND,
    by_default_filters,
    channels_of_pairs,
    clean_images,
    default_filters,
    fit_on,
    grown,
    keep_row,
    kept_field,
    measures,
    predictions,
    print_rows,
)
from support.thesis_tables import beside


def main(doc, folder, settings, corrupted, more_channels, thesis, rivals=None, task=None):
    """Train and test fields, and print tables.

    ``corrupted(clean, setting, seed)`` returns corrupted images. ``more_channels(image, responses)`` returns the
    channels of an image, including the responses of the filter bank. ``thesis`` is a table of the thesis.
    ``rivals[name](image)`` returns the image restored by another method. ``task(setting, inputs, clean, kept)`` returns
    an object that extends the default filters. It has ``filters``; ``channels`` in place of ``more_channels``;
    ``of_training``, the further argument of ``channels`` for each training image; ``of_pairs``, names of channels that
    linear models of pairs read; and ``restored(field, channels, image)``.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=settings, default=settings)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--loss", default="psnr")
    parser.add_argument("--images", type=int, help="training images")
    parser.add_argument("--tests", type=int, help="test images")
    parser.add_argument("--window", type=int)
    parser.add_argument("--depth", type=int)
    parser.add_argument("--max-iter", type=int, default=8, help="iterations per training round")
    parser.add_argument(
        "--pixels", type=int, default=PIXELS_OF_ROUND, help="pixels per training round with the default filters"
    )
    parser.add_argument("--shrinkage", type=float, default=10000.0)
    parser.add_argument("--filters", choices=("thesis", "default"), default="thesis", help="filters of the fields")
    parser.add_argument("--on", choices=("test", "val"), default="test", help="part of the data set that is evaluated")
    parser.add_argument("--rivals", action="store_true", help="only run the other methods")
    parser.add_argument("--table", action="store_true", help="only print stored results")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path(folder), help="folder for all results")
    args = parser.parse_args()
    args.images = args.images or (40 if args.quick else 200)
    args.tests = args.tests or (40 if args.quick else 200)
    args.window = args.window or (3 if args.quick else 5)
    if args.filters == "thesis" and args.depth is None:
        args.depth = 5 if args.quick else 7
    args.folder.mkdir(parents=True, exist_ok=True)
    for setting in args.settings:
        if not args.table:
            _run(args, setting, corrupted, more_channels, thesis, rivals or {}, task)
        print_rows(args.folder, _row_of(args, setting), args.quick, setting, "input")


def _row_of(args, setting):
    return setting if args.on == "test" else f"{setting}_{args.on}"


def _run(args, setting, corrupted, more_channels, thesis, rivals, task):
    clean = clean_images(args.on, args.tests)
    inputs = corrupted(clean, setting, seed=1)
    rival = measures(inputs, clean)

    def keep(name, rows, **others):
        beside_it = beside(thesis, name.split(", default")[0], setting, "input")
        keep_row(args.folder, _row_of(args, setting), args.quick, name, rows, rival, **beside_it, **others)

    keep("input", rival)
    if args.rivals:
        for name, method in rivals.items():
            keep(name, measures([method(x) for x in inputs], clean))
        return
    training = clean_images("train", args.images)
    size = "quick" if args.quick else "full"
    name = f"{setting}_{args.loss}_{size}_{args.images}_{args.window}_{args.shrinkage:g}"
    inputs_of_training = partial(corrupted, training, setting, seed=0)
    if args.filters == "default":
        made = (
            None if task is None else task(setting, inputs_of_training, training, args.folder / f"task_{name}.joblib")
        )
        field, seconds, channels = _trained_on_default_filters(
            args, name, inputs_of_training, training, more_channels, made
        )
    else:
        made = None
        found = _trained_as_in_the_thesis(args, name, inputs_of_training, training, more_channels)
        field, seconds, channels = found
    if made is None:
        predicted, least = predictions(field, (channels([x])[0] for x in inputs))
    else:
        predicted, least = restored_one_by_one(made, field, channels, inputs)
    keep(
        f"field, {args.loss}{', default filters' if args.filters == 'default' else ''}",
        measures(predicted, clean),
        seconds=least,
        options={key: getattr(args, key) for key in ("window", "max_iter", "pixels", "images", "depth", "jobs")},
        training_seconds=seconds.round(1).tolist(),
        leaves=[len(part) for part in field.precisions_],
    )


def _seen(bank, more_channels):
    def channels(images):
        responses = zip(images, bank.transform(images), strict=True)
        return [more_channels(image, response) for image, response in responses]

    return channels


def _seen_in_training(bank, task, images):
    parts = zip(images, bank.transform(images), task.of_training, strict=True)
    return [task.channels(*own) for own in parts]


def _trained_as_in_the_thesis(args, name, inputs, clean, more_channels):
    """Return a field with the filters of the thesis, its training seconds, and a function that makes channels."""
    channels = _seen(FilterBank("rfs", n_jobs=args.jobs).fit([np.zeros((8, 8, 1))]), more_channels)
    options = {"window__size": args.window, "max_iter": args.max_iter, "solver__shrinkage": args.shrinkage}
    options["n_jobs"] = args.jobs
    field, seconds = grown(args.loss, lambda: channels(inputs()), clean, args.depth, options, name, args.folder)
    return field, seconds, channels


def restored_one_by_one(task, field, channels, inputs):
    """Return images restored by the task, and the shortest seconds of one image."""
    restored, times = [], []
    for x in inputs:
        start = time.perf_counter()
        restored.append(task.restored(field, channels, x))
        times.append(time.perf_counter() - start)
    return restored, float(np.min(times))


def _trained_on_default_filters(args, name, inputs, clean, more_channels, task):
    """Return a field with the default filters and filters of the task, its seconds, and a function for channels."""
    corrupted = inputs()
    off = [np.mean((x - y) ** 2) for x, y in zip(corrupted, clean, strict=True)]
    more_filters = [] if task is None else task.filters
    bank = default_filters(float(np.sqrt(np.median(off))), more_filters).fit([np.zeros((8, 8, 1))])
    channels = _seen(bank, more_channels if task is None else task.channels)
    path = args.folder / f"field_{name}_default_{args.depth}_{args.pixels}_{args.max_iter}.joblib"
    if not path.exists():
        seen = channels(corrupted) if task is None else _seen_in_training(bank, task, corrupted)
        n_more = seen[0].shape[2] - len(bank.get_feature_names_out())
        of_pairs = channels_of_pairs(bank, n_more)
        if task is not None:
            of_pairs = [k for k, n in enumerate([*bank.get_feature_names_out(), *task.names]) if n in task.of_pairs]
        window = Window(args.window, pairwise_channels=of_pairs)
        options = {"window": window, "filter_bank": None, "max_iter": args.max_iter}
        field = by_default_filters(args.loss, args, pixels=args.pixels, **options)
        fit_on(field, np.zeros(2), seen, clean, path)
    field, seconds = kept_field(path)
    return field.set_params(verbose=0), seconds, channels
