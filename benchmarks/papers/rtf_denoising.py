"""Denoising of natural images, compared with BM3D and others on the same noisy images: Table 6 of Jancsary (2012).

The protocol follows the thesis: images of BSDS500 at half scale (reduced by an antialiased bicubic filter), Gaussian
noise that is not clipped, and training on the training part. The parameters of other methods are chosen on the
validation part. Results are means over the test part. `--quick` uses 40 training images, trees of depth 5 and 40 test
images.

    python benchmarks/papers/rtf_denoising.py --quick             # the loss is PSNR
    python benchmarks/papers/rtf_denoising.py --loss ssim         # all 200 images, trees of depth 8
    # continue training of the leaves of the PSNR field for SSIM
    python benchmarks/papers/rtf_denoising.py --loss ssim --after psnr
    python benchmarks/papers/rtf_denoising.py --expert bm3d       # the output of BM3D, filtered, as further channels
    python benchmarks/papers/rtf_denoising.py --expert bm3d --filters default    # also restored by adaptive filters
    python benchmarks/papers/rtf_denoising.py --expert bm3d --filters default --mixed 25  # mix output and inputs
    # the default filters of the package instead of the filter bank of the thesis
    python benchmarks/papers/rtf_denoising.py --filters default
    python benchmarks/papers/rtf_denoising.py --filters groups  # and groups of similar patches, shrunk together
    python benchmarks/papers/rtf_denoising.py --filters default --on val    # evaluate on validation images
    python benchmarks/papers/rtf_denoising.py --filters default --so-far    # only images that BM3D has finished
    # the output of a first field as further channels: a cascade of two fields
    python benchmarks/papers/rtf_denoising.py --expert field
    python benchmarks/papers/rtf_denoising.py --rivals --quick    # compare parameters of the other methods
    python benchmarks/papers/rtf_denoising.py --table             # print all stored results

Trees grow level by level. Every level and the images of other methods are stored in `--folder`, and an interrupted run
continues at its level. The folder also contains a JSON file with the results of each row.
"""

import argparse
from pathlib import Path

import _path  # noqa: F401  finds the support package
import joblib
import numpy as np
from support.beside_experts import BesideExperts
from support.denoised_images import DRAWS, RIVALS, bm3d_again, denoised_by, noisy_and_clean, with_noise
from support.restoration import (
    PIXELS_OF_ROUND,
    by_default_filters,
    clean_images,
    fit_on,
    grown,
    keep_row,
    kept_field,
    loss_of_bytes,
    measures,
    predictions,
    print_rows,
    seconds_of_each,
)
from support.thesis_tables import DENOISING, beside

from sklearn_crf.preprocessing import FilterBank
from sklearn_crf.rtf import GaussianNoise, Window

# Parameters of fields, by argument.
PARAMETERS = {
    "window": "window__size",
    "max_iter": "max_iter",
    "max_samples": "solver__max_samples",
    "shrinkage": "solver__shrinkage",
}
OPTIONS = tuple(PARAMETERS)

# Channels for the linear models of pairs: as good as all 39 channels, in half of the training time.
CHANNELS = ["intensity", "gaussian_10", "laplacian_10"]
CHANNELS += [f"{shape}_1_{angle}" for shape in ("edge", "bar") for angle in (0, 30, 60, 90, 120, 150)]
CHANNELS_OF_TWO = ["channel0", "channel1", "channel0_gaussian_10", "channel0_laplacian_10"]
CHANNELS_OF_TWO += [f"channel1_{name}" for name in CHANNELS[3:]]


class Seen:
    """Input of a field: the noisy image, another method's image if there is one, and filter responses to both.

    The other method is BM3D, or ``first``, a function of noisy images.
    """

    def __init__(self, args, first=None):
        self.args, self.first = args, first
        self.bank = FilterBank("rfs", n_jobs=args.jobs).fit([np.zeros((8, 8, 2 if args.expert else 1))])

    def __call__(self, noisy, experts=None):
        experts = experts if self.first is None else self.first(noisy)
        images = noisy if experts is None else [np.dstack(pair) for pair in zip(noisy, experts, strict=True)]
        return list(self.bank.transform(images))

    def of_pairs(self):
        """Return the indices of the channels for the linear models of pairs, or None for all channels."""
        if self.args.all_channels:
            return None
        names = list(self.bank.get_feature_names_out())
        return [names.index(name) for name in (CHANNELS_OF_TWO if self.args.expert else CHANNELS)]


def trained(seen, args):
    """Return a field and the seconds of all levels; training resumes at the level where the last run stopped."""
    if args.after is not None:
        return trained_after(seen, args)
    clean = clean_images("train", args.images)
    options = {key: getattr(args, key) for key in OPTIONS}
    name = "_".join([row_name(args), *(str(getattr(args, key)) for key in ("images", *OPTIONS, "all_channels"))])
    options = {PARAMETERS[key]: value for key, value in options.items()}
    options |= {"window__pairwise_channels": seen.of_pairs(), "n_jobs": args.jobs}
    for level in range(args.depth + 1 + args.more_rounds):
        own, images = pairs_of_level(level, seen, clean, args)
        # Leaves that are split again need no full optimisation.
        options["max_iter"] = args.max_iter if level < 8 else max(20, args.max_iter)
        # With few leaves, a few factors suffice to choose among many tests; many leaves need the opposite.
        search = {
            "split__n_feature_tests": max(64, 512 >> level),
            "split__max_samples": min(200_000, 25_000 << level),
        }
        found = grown(args.loss, images, own, level, options | search, name, args.folder, deepest=args.depth)
    return found


def trained_after(seen, args):
    """Return a field trained for another loss, with its leaves fitted further for the current loss."""
    path = (
        args.folder / f"field_{row_name(args)}_{args.images}_after_{args.after}_{args.depth}_{args.more_rounds}.joblib"
    )
    if not path.exists():
        field, former = trained(seen, argparse.Namespace(**vars(args) | {"loss": args.after, "after": None}))
        clean = clean_images("train", args.images)
        own, images = pairs_of_level(args.depth + args.more_rounds + 1, seen, clean, args)
        fit_on(field.set_params(loss=loss_of_bytes(args.loss), max_iter=args.max_iter), former, images(), own, path)
    field, seconds = kept_field(path)
    return field.set_params(verbose=0), seconds


def field_on_default_filters(args):
    """Return a field on the default filters, optionally with groups of patches, and the seconds of its training.

    It is trained on clean images, with new noise in every round.
    """
    path = args.folder / f"field_{name_on_default_filters(args)}.joblib"
    if not path.exists():
        options = {"window": args.window, "filter_bank": "groups" if args.filters == "groups" else "auto"}
        options["max_iter"] = args.max_iter or "auto"
        field = by_default_filters(args.loss, args, args.pixels, corruption=GaussianNoise(args.sigma), **options)
        fit_on(field, np.zeros(2), clean_images("train", args.images), None, path)
    return kept_field(path)


def fields_beside_bm3d(args):
    """Return fields on the default filters and BM3D's image, the seconds of their training, and their inputs."""
    noisy, clean = noisy_and_clean("train", args.sigma, args.images, seed=DRAWS["train"])
    experts = bm3d_twice("train", noisy, denoised_by("BM3D", "train", noisy, args)[0], args)
    seen = BesideExperts(args.sigma, noisy, experts, clean, args.folder, has_rests=True)
    found = []
    for seed in range(args.fields):
        path = args.folder / f"field_{name_on_default_filters(args)}{f'_seed{seed}' if seed else ''}.joblib"
        if not path.exists():
            window = Window(args.window, pairwise_channels=seen.of_pairs())
            field = by_default_filters(args.loss, args, args.pixels, window=window, filter_bank=None)
            fit_on(field.set_params(random_state=seed), np.zeros(2), seen.of_training(noisy, experts), clean, path)
        found.append(kept_field(path))
    fields, seconds = zip(*found, strict=True)
    return [field.set_params(verbose=0) for field in fields], sum(seconds), seen


def bm3d_twice(part, noisy, once, args):
    """Return BM3D's images, and the images after a second run of its second stage, by name."""
    again = {"BM3D again": (bm3d_again, (1.0,))}
    return {"BM3D": once, "BM3D again": denoised_by("BM3D again", part, noisy, args, again, pilots=once)[0]}


def mixed(restored, noisy, experts):
    """Yield a matrix for each image, with a column each for the restored image, the noisy image and every expert."""
    for k, image in enumerate(restored):
        own = [image, noisy[k], *(images[k] for images in experts.values())]
        yield np.stack([part.ravel() for part in own], axis=1).astype(float)


def shares_of_mixture(fields, seen, args):
    """Return the weights of the mixture of fields', noisy and experts' images that is nearest to clean images.

    The images are of the validation part.
    """
    noisy, clean = noisy_and_clean("val", args.sigma, args.mixed, seed=1)
    experts = bm3d_twice("val", noisy, denoised_by("BM3D", "val", noisy, args)[0], args)
    squares, products = 0.0, 0.0
    for parts, y in zip(mixed(seen.restored(fields, noisy, experts), noisy, experts), clean, strict=True):
        squares, products = squares + parts.T @ parts, products + parts.T @ y.ravel()
    return np.linalg.solve(squares, products)


def name_on_default_filters(args):
    """Return the name of a field's files."""
    iterations = "" if args.max_iter is None else f"_{args.max_iter}"
    return f"{row_name(args)}_{args.filters}_{args.images}_{args.window}_{args.depth}_{args.pixels}{iterations}"


def pairs_of_level(level, seen, clean, args):
    """Return the training data of a level: clean images, and a function that makes the channels.

    Every level has its own images, mirrored at random, and its own noise, so leaves cannot rely on the noise of earlier
    levels. BM3D is only run on two draws of noise, which alternate over levels, and its images are also flipped
    vertically at random. The first levels use fewer images.
    """
    rng = np.random.default_rng(level)
    n = min(len(clean), max(40, int(0.2 * 1.5 ** max(level - 2, 0) * len(clean))))
    members = np.sort(rng.permutation(len(clean))[:n])
    across = 1 - 2 * rng.integers(2, size=n)
    down = 1 - 2 * rng.integers(2, size=n) if args.expert == "bm3d" else np.ones(n, dtype=int)

    def mirrored(images):
        return [images[i][:: down[k], :: across[k]].copy() for k, i in enumerate(members)]

    own = mirrored(clean)

    def images():
        if args.expert == "bm3d":
            draw = list(DRAWS)[level % len(DRAWS)]
            noisy, _ = noisy_and_clean("train", args.sigma, args.images, seed=DRAWS[draw])
            return seen(mirrored(noisy), mirrored(denoised_by("BM3D", draw, noisy, args)[0]))
        return seen([with_noise(y, args.sigma, rng) for y in own])

    return own, images


def row_name(args):
    size = "quick" if args.quick else "full"
    return f"{args.loss}{'' if args.expert is None else f'_{args.expert}'}_{args.sigma}_{size}"


def run(args):
    noisy, clean = noisy_and_clean(args.on, args.sigma, args.tests, seed=1)
    if args.so_far:
        bm3d_images, seconds = joblib.load(args.folder / f"BM3D_{args.on}_{args.sigma}_{len(noisy)}.part")
        noisy, clean, seconds = noisy[: len(bm3d_images)], clean[: len(bm3d_images)], float(np.median(seconds))
    else:
        bm3d_images, seconds, _ = denoised_by("BM3D", args.on, noisy, args)
    rival = measures(bm3d_images, clean)
    setting = args.sigma if args.on == "test" else f"{args.sigma}_{args.on}"

    def keep(name, rows, **others):
        thesis = beside(DENOISING, name.split(", default")[0].split(", groups")[0], args.sigma, "BM3D")
        keep_row(args.folder, setting, args.quick, name, rows, rival, **thesis, **others)

    keep("BM3D", rival, seconds=seconds)
    keep("input", measures(noisy, clean, limits=(None, None)))
    for name in list(RIVALS)[1:] if args.rivals else ():
        images, seconds, strength = denoised_by(name, args.on, noisy, args)
        keep(name, measures(images, clean), seconds=seconds, strength=strength)
    if args.rivals:
        return
    name = f"field, {args.loss}" + {None: "", "bm3d": " + BM3D", "field": " + field before it"}[args.expert]
    keys = "images", "depth", "window", "loss", "jobs", "pixels", "max_iter"
    if args.filters == "thesis":
        field, training, inputs = trained_as_in_the_thesis(args, noisy, bm3d_images)
        keys += "more_rounds", "after", *OPTIONS, "all_channels"
        predicted, seconds = predictions(field, inputs)
    elif args.expert == "bm3d":
        fields, training, seen = fields_beside_bm3d(args)
        field = fields[0]
        experts = bm3d_twice(args.on, noisy, bm3d_images, args)
        keep("BM3D again", measures(experts["BM3D again"], clean))
        predicted, seconds = seconds_of_each(seen.restored(fields, noisy, experts))
        keys += "fields", "mixed"
        if args.mixed:
            shares = shares_of_mixture(fields, seen, args)
            print("shares of the fields' image, the noisy one, BM3D's and that of BM3D again:", shares.round(3))
            parts = mixed(predicted, noisy, experts)
            predicted = [(own @ shares).reshape(y.shape) for own, y in zip(parts, clean, strict=True)]
    else:
        field, training = field_on_default_filters(args)
        predicted, seconds = predictions(field.set_params(verbose=0), [x[..., None] for x in noisy])
    if args.filters != "thesis":
        name += {"default": ", default filters", "groups": ", groups of patches"}[args.filters]
    keep(
        name, measures(predicted, clean), seconds=seconds,
        options={key: getattr(args, key) for key in keys}, training_seconds=training.round(1).tolist(),
        leaves=[len(part) for part in field.precisions_],
    )  # fmt: skip


def trained_as_in_the_thesis(args, noisy, bm3d_images):
    """Return a field, the seconds of its training, and an iterator over its inputs."""
    first = None
    if args.expert == "field":
        plain = argparse.Namespace(**vars(args) | {"expert": None})
        of_first = Seen(plain)
        first_field, of_training = trained(of_first, plain)

        def first(noisy):
            return first_field.predict(of_first(noisy))

    seen = Seen(args, first)
    field, training = trained(seen, args)
    if first is not None:
        training = training + of_training
    experts = [[image] for image in bm3d_images] if args.expert == "bm3d" else [None] * len(noisy)
    return field, training, (seen([x], expert)[0] for x, expert in zip(noisy, experts, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--loss", default="psnr")
    parser.add_argument("--sigma", type=int, default=30)
    parser.add_argument("--images", type=int, help="training images")
    parser.add_argument("--tests", type=int, help="test images")
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--depth", type=int)
    parser.add_argument("--max-iter", type=int, help="iterations per training round; default: 8, or 50 for likelihoods")
    parser.add_argument("--max-samples", type=int, help="number of pixels used in training")
    parser.add_argument(
        "--pixels", type=int, default=PIXELS_OF_ROUND, help="pixels per training round with the default filters"
    )
    parser.add_argument(
        "--fields", type=int, default=1, help="number of fields with different seeds whose mean is used, with BM3D"
    )
    parser.add_argument(
        "--mixed", type=int, default=0, help="number of validation images for fitting the mixture of fields and BM3D"
    )
    parser.add_argument("--shrinkage", type=float, default=10000.0)
    parser.add_argument(
        "--more-rounds", type=int, default=0, help="number of training rounds with new noise after the last split"
    )
    parser.add_argument("--after", help="loss of a stored field whose training is continued with --loss")
    parser.add_argument("--all-channels", action="store_true", help="use all channels in linear models of pairs")
    parser.add_argument("--expert", choices=("bm3d", "field"), help="method whose output is a second input")
    parser.add_argument(
        "--filters", choices=("thesis", "default", "groups"), default="thesis", help="filters of the fields"
    )
    parser.add_argument("--on", choices=("test", "val"), default="test", help="part of the data set that is evaluated")
    parser.add_argument("--so-far", action="store_true", help="only the first test images, for which BM3D has finished")
    parser.add_argument("--rivals", action="store_true", help="only run the other methods")
    parser.add_argument("--table", action="store_true", help="only print stored results")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("rtf_denoising"), help="folder for all results")
    args = parser.parse_args()
    if (args.expert, args.filters) in (("field", "default"), ("field", "groups"), ("bm3d", "groups")):
        parser.error(f"--expert {args.expert} is not for --filters {args.filters}")
    args.images = args.images or (40 if args.quick else 200)
    args.tests = args.tests or (40 if args.quick else 200)
    if args.filters == "thesis":
        args.max_iter = args.max_iter or 8
        if args.depth is None:
            args.depth = 5 if args.quick else 8
    args.folder.mkdir(parents=True, exist_ok=True)
    if not args.table:
        run(args)
    setting = args.sigma if args.on == "test" else f"{args.sigma}_{args.on}"
    print_rows(args.folder, setting, args.quick, f"sigma = {args.sigma}", "BM3D")


if __name__ == "__main__":
    main()
