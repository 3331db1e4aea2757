"""Denoising by ``LearnedFilters``, compared with a tree field and non-local means, on BSD68 at full size.

Models are trained on the training and test images of BSDS500 at half scale, none of which is in BSD68. Noise is not
clipped, and predictions are not rounded. One model is trained for a noise level of 25; images with other noise levels
are predicted by ``predict(X, noise=level)``. Training options are chosen on the images that ``fit`` holds out
(``--held-out``), without BSD68. BM3D is included if the package ``bm3d`` is installed.

    python benchmarks/quality/learned_filters.py --json learned_filters.json
    python benchmarks/quality/learned_filters.py --size 7 --iterations 6000 --jobs 2 --save filters.joblib
    python benchmarks/quality/learned_filters.py --held-out --set FIRST_STEP=0.02 REACH=8.0
"""

import argparse
import os
import time
from pathlib import Path

import _path  # noqa: F401  finds the support package
import joblib
import numpy as np
from skimage.restoration import denoise_nl_means
from support.record import write_record
from support.restoration import clean_images, measures

from sklearn_crf import LearnedFilters, RegressionTreeField
from sklearn_crf.restoration import _tuning
from sklearn_crf.rtf import GaussianNoise

TRAINED, LEVELS = 25, (15, 25, 50)


def photographs(every):
    archive = np.load(Path(os.environ["SKLEARN_CRF_DATA"]) / "denoise_test" / "bsd68.npz")
    return [archive[name].astype(float) for name in archive.files[::every]]


def non_local_means(noisy, level):
    options = {"patch_size": 5, "patch_distance": 6, "h": 0.8 * level, "sigma": level}
    return [denoise_nl_means(image, **options) for image in noisy]


def block_matching():
    """Return BM3D from the package ``bm3d``, if it is installed."""
    try:
        from bm3d import bm3d
    except ImportError:
        return {}
    return {"BM3D": lambda noisy, level: [bm3d(image, level) for image in noisy]}


def seconds_of(function):
    """Return the result of a function and its processor seconds."""
    start = time.process_time()
    return function(), time.process_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=5, help="rows of a filter")
    parser.add_argument("--stages", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=LearnedFilters().max_iter)
    parser.add_argument("--every", type=int, default=1, help="take every so many-th photograph of BSD68")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--save", type=Path, help="file for the model; an existing model is loaded")
    parser.add_argument("--held-out", action="store_true", help="only print the error on held-out images")
    parser.add_argument(
        "--set", nargs="+", default=[], help="values for constants of sklearn_crf/restoration/_tuning.py"
    )
    parser.add_argument("--json", type=Path, help="file for results")
    args = parser.parse_args()
    for name, value in (given.split("=") for given in args.set):
        setattr(_tuning, name, type(getattr(_tuning, name))(float(value)))
    clean = [y.astype(np.uint8) for part in ("train", "test") for y in clean_images(part, 200)]
    options = {"n_stages": args.stages, "filter_size": args.size, "max_iter": args.iterations, "n_jobs": args.jobs}
    if args.save is not None and args.save.exists():
        filters, seconds = joblib.load(args.save)
    else:
        filters = LearnedFilters(GaussianNoise(TRAINED), clip=None, random_state=0, **options)
        filters, seconds = seconds_of(lambda: filters.fit(clean))
        if args.save is not None:
            joblib.dump((filters, seconds), args.save)
    errors = TRAINED**2 * filters.validation_curve_
    held_out = 10 * np.log10(255**2 / errors)
    print(
        f"trained in {seconds:.0f} s, {filters.n_iter_} steps; PSNR of held-out crops {held_out.max():.3f}", flush=True
    )
    if args.held_out:
        return
    field, field_seconds = seconds_of(
        lambda: RegressionTreeField(corruption=GaussianNoise(TRAINED), random_state=0, n_jobs=args.jobs).fit(clean)
    )
    methods = {
        "LearnedFilters": lambda noisy, level: filters.predict(noisy, noise=level),
        "RegressionTreeField": lambda noisy, level: field.predict(noisy, noise=level),
        "non-local means": non_local_means,
        **block_matching(),
    }
    figures = {
        "training": {"LearnedFilters": seconds, "RegressionTreeField": field_seconds, "held out": held_out.max()}
    }
    test = photographs(args.every)
    megapixels = sum(y.size for y in test) / 1e6
    print(f"{len(test)} photographs of BSD68: PSNR in dB, and seconds of the processor for a megapixel")
    for level in LEVELS:
        rng = np.random.default_rng(level)
        noisy = [y + level * rng.normal(size=y.shape) for y in test]
        own = figures[f"noise {level}"] = {}
        for name, method in methods.items():
            found, spent = seconds_of(lambda method=method: method(noisy, level))  # noqa: B023
            own[name] = [float(measures(found, test)[:, 0].mean()), spent / megapixels]
        cells = (f"{name} {psnr:.2f} ({spent:.2f} s)" for name, (psnr, spent) in own.items())
        print(f"noise {level}: " + ", ".join(cells), flush=True)
    write_record(args.json, figures)


if __name__ == "__main__":
    main()
