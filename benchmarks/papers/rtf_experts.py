"""Denoising by fields that see the images of other methods: the rows of all experts in Table 6 of Jancsary (2012).

The experts are BM3D and three methods that are trained on clean images: EPLL (a mixture of Gaussians of patches, by
scikit-learn), sparse codes (scikit-learn's dictionary learning; the thesis uses LSSC), and a field of experts (filters
of the cosine transform, weights by score matching; the thesis trains for the squared error). The experts and the fields
have different training images. Strengths of experts are chosen on validation images. One field for each expert reads
the noisy image and the expert's image; another field reads the images of all experts. The mean of all experts is also
evaluated. Images are a subset of the images of `rtf_denoising.py`.

    python benchmarks/papers/rtf_experts.py
    python benchmarks/papers/rtf_experts.py --images 30 --tests 20 --window 3
    python benchmarks/papers/rtf_experts.py --images 100 --tests 40 --depth 6 --pixels 800000 --turns 4
    python benchmarks/papers/rtf_experts.py --table       # print all stored results

Images of experts and fields are stored in `--folder`, and an interrupted run continues.
"""

import argparse
from functools import partial
from pathlib import Path

import _path  # noqa: F401  finds the support package
import joblib
import numpy as np
from support.beside_experts import SHARES, BesideExperts
from support.denoised_images import DRAWS, denoised_by, noisy_and_clean
from support.denoising_experts import FieldOfExperts, PatchMixture, SparseCodes
from support.restoration import (
    PIXELS_OF_ROUND,
    TURNS,
    by_default_filters,
    clean_images,
    fit_on,
    keep_row,
    kept_field,
    measures,
    print_rows,
    seconds_of_each,
)
from support.thesis_tables import DENOISING, beside

from sklearn_crf.rtf import Window

# How each expert is learned from clean images, and the strengths to try, as multiples of sigma or of the prior.
LEARNED = {
    "EPLL": (PatchMixture, (0.9, 1.0, 1.1)),
    "sparse codes": (SparseCodes, (1.0, 1.05, 1.1)),
    "FoE": (FieldOfExperts, (0.08, 0.11, 0.15, 0.2)),
}
EXPERTS = ("BM3D", *LEARNED)

# Number of images of BM3D made by `rtf_denoising.py`, of which a regular subset is used here.
N_OF_PART = 200

# Number of validation images for choosing strengths.
N_CHOOSING = 4

SEEDS = {"train": DRAWS["train"], "test": 1, "val": 2}


class Learned:
    """Experts as functions of a noisy image, sigma and strength; an expert is learned at its first call."""

    def __init__(self, args):
        self.args = args

    def methods(self):
        return {name: (partial(self._denoised, name), strengths) for name, (_, strengths) in LEARNED.items()}

    def _denoised(self, name, noisy, sigma, strength):
        path = self.args.folder / f"{name.replace(' ', '_')}_model_{self.args.images}.joblib"
        if not path.exists():
            # Train experts on other images than fields, which would otherwise rely on the experts too much.
            every = N_OF_PART // self.args.images
            images = clean_images("train", N_OF_PART)
            others = [image for k, image in enumerate(images) if k % every or k >= every * self.args.images]
            joblib.dump(LEARNED[name][0](others or images), path)
        return joblib.load(path)(noisy, sigma, strength)


def part_of(part, n_images, args):
    """Return noisy and clean images of a part, each expert's images, and the expert's seconds per image."""
    every = N_OF_PART // n_images
    noisy, clean = noisy_and_clean(part, args.sigma, N_OF_PART, SEEDS[part])
    images, of_bm3d, _ = denoised_by("BM3D", part, noisy, args)
    experts, seconds = {"BM3D": images[::every][:n_images]}, {"BM3D": of_bm3d}
    noisy, clean = (images[::every][:n_images] for images in (noisy, clean))
    for name in LEARNED:
        experts[name], seconds[name], _ = denoised_by(name, part, noisy, args, Learned(args).methods(), N_CHOOSING)
    return noisy, clean, experts, seconds


def keep_field(names, training, test, keep, args):
    """Train a field on the images of some experts, and keep its row."""
    title = "field + all" if len(names) > 1 else f"field + {names[0]}"
    key = f"{title.replace(' ', '_')}_{args.sigma}_{args.images}"
    noisy, clean, experts, _ = training
    experts = {name: experts[name] for name in names}
    seen = BesideExperts(args.sigma, noisy, experts, clean, args.folder, SHARES[:1])
    path = args.folder / f"field_{key}_{args.window}_{args.depth}_{args.pixels}.joblib"
    if not path.exists():
        window = Window(args.window, pairwise_channels=seen.of_pairs())
        field = by_default_filters("psnr", args, args.pixels, window=window, filter_bank=None)
        fit_on(field, np.zeros(2), seen.of_training(noisy, experts), clean, path)
    field, seconds = kept_field(path)
    beside = {name: test[2][name] for name in names}
    images = seen.restored([field.set_params(verbose=0)], test[0], beside, TURNS[: args.turns])
    predicted, least = seconds_of_each(images)
    options = {key: getattr(args, key) for key in ("images", "window", "depth", "jobs", "pixels", "turns")}
    keep(title, predicted, seconds=least, options=options, training_seconds=seconds.round(1).tolist())


def run(args):
    training = part_of("train", args.images, args)
    test = part_of("test", args.tests, args)
    _, clean, experts, seconds = test
    rival = measures(experts["BM3D"], clean)

    def keep(name, images, **others):
        rows = measures(images, clean)
        thesis = beside(DENOISING, name.replace("field", "field, psnr"), args.sigma, "BM3D")
        keep_row(args.folder, args.sigma, False, name, rows, rival, **thesis, **others)

    for name, images in experts.items():
        keep(name, images, seconds=seconds[name])
    keep("uniform average", [np.mean(own, axis=0) for own in zip(*experts.values(), strict=True)])
    for names in [[name] for name in EXPERTS] + [list(EXPERTS)]:
        keep_field(names, training, test, keep, args)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sigma", type=int, default=30)
    parser.add_argument("--images", type=int, default=60, help="training images, at most 200")
    parser.add_argument("--tests", type=int, default=40, help="test images, at most 200")
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--depth", type=int)
    parser.add_argument("--pixels", type=int, default=PIXELS_OF_ROUND, help="pixels per training round")
    parser.add_argument("--turns", type=int, default=1, help="number of mirror images whose mean is used, at most 4")
    parser.add_argument("--table", action="store_true", help="only print stored results")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("rtf_experts"), help="folder for all results")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if not args.table:
        run(args)
    print_rows(args.folder, args.sigma, False, f"sigma = {args.sigma}", "BM3D")


if __name__ == "__main__":
    main()
