"""Benchmarks of restoration whose corruption is known: one field for each setting, next to the corrupted images."""

import argparse
from pathlib import Path

from _restoration import clean_images, grown, keep_row, measures, predictions, print_rows

from sklearn_crf.preprocessing import FilterBank


def main(doc, folder, settings, corrupted, more_channels, thesis, rivals=None):
    """Train, test and print.

    ``corrupted(clean, setting, seed)`` are images, ``more_channels(image, responses)`` the channels of one, with those
    of the filter bank, ``thesis[setting, loss]`` the gain in PSNR over the input that the thesis has,
    ``rivals[name](image)`` the images of others.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=settings, default=settings)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--loss", default="psnr")
    parser.add_argument("--images", type=int, help="training images")
    parser.add_argument("--tests", type=int, help="test images")
    parser.add_argument("--window", type=int)
    parser.add_argument("--depth", type=int)
    parser.add_argument("--max-iter", type=int, default=8, help="iterations a round")
    parser.add_argument("--shrinkage", type=float, default=10000.0)
    parser.add_argument("--rivals", action="store_true", help="the other methods, and no field")
    parser.add_argument("--table", action="store_true", help="print what is there")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path(folder), help="where everything is kept")
    args = parser.parse_args()
    args.images = args.images or (40 if args.quick else 200)
    args.tests = args.tests or (40 if args.quick else 200)
    args.window = args.window or (3 if args.quick else 5)
    args.depth = (5 if args.quick else 7) if args.depth is None else args.depth
    args.folder.mkdir(parents=True, exist_ok=True)
    for setting in args.settings:
        if not args.table:
            _run(args, setting, corrupted, more_channels, thesis, rivals or {})
        print_rows(args.folder, setting, args.quick, setting, "input")


def _run(args, setting, corrupted, more_channels, thesis, rivals):
    clean = clean_images("test", args.tests)
    inputs = corrupted(clean, setting, seed=1)
    rival = measures(inputs, clean)

    def keep(name, rows, **others):
        keep_row(args.folder, setting, args.quick, name, rows, rival, **others)

    keep("input", rival)
    if args.rivals:
        for name, method in rivals.items():
            keep(name, measures([method(x) for x in inputs], clean))
        return
    bank = FilterBank("rfs", n_jobs=args.jobs).fit(inputs)

    def channels(images):
        responses = zip(images, bank.transform(images), strict=True)
        return [more_channels(image, response) for image, response in responses]

    options = {"window__size": args.window, "max_iter": args.max_iter, "solver__shrinkage": args.shrinkage}
    training = clean_images("train", args.images)
    name = f"{setting}_{args.loss}_{'quick' if args.quick else 'full'}_{args.images}_{args.window}_{args.shrinkage:g}"
    field, seconds = grown(
        args.loss,
        lambda: channels(corrupted(training, setting, seed=0)),
        training,
        args.depth,
        options | {"n_jobs": args.jobs},
        name,
        args.folder,
    )
    predicted, least = predictions(field, (channels([x])[0] for x in inputs))
    keep(
        f"field, {args.loss}",
        measures(predicted, clean),
        thesis=thesis.get((setting, args.loss)),
        seconds=least,
        options=options | {"images": args.images, "depth": args.depth, "jobs": args.jobs},
        training_seconds=seconds.round(1).tolist(),
    )
