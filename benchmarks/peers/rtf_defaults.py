"""Compare regression tree fields with default parameters with methods of scikit-image, on the same images.

Images are grey images of BSDS500 at half scale (reduced by an antialiased bicubic filter), with Gaussian noise that is
not clipped. Fields are trained on pairs of noisy and clean images, and only on clean images with
``corruption=GaussianNoise``. Total variation and non-local means are given the noise level, and their strength is
chosen on images of the validation part. Training and test images are from the training and the test part. Times are
processor seconds of training, and of restoring one test image.

    python benchmarks/peers/rtf_defaults.py
    python benchmarks/peers/rtf_defaults.py --sigma 15 --images 40 --tests 40
    python benchmarks/peers/rtf_defaults.py --json defaults.json
"""

import argparse
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.record import write_record
from support.restoration import clean_images, measures

from sklearn_crf import RegressionTreeField
from sklearn_crf.rtf import GaussianNoise


def total_variation(noisy, sigma, strength):
    from skimage.restoration import denoise_tv_chambolle

    return 255 * denoise_tv_chambolle(noisy / 255, weight=strength * sigma / 255)


def nl_means(noisy, sigma, strength):
    from skimage.restoration import denoise_nl_means

    options = {"patch_size": 5, "patch_distance": 8, "fast_mode": True}
    return 255 * denoise_nl_means(noisy / 255, h=strength * sigma / 255, sigma=sigma / 255, **options)


# Methods, and the strengths to try, as multiples of sigma.
PEERS = {
    "total variation (skimage)": (total_variation, (0.6, 0.7, 0.8, 0.9, 1.0, 1.2)),
    "fast NL-means (skimage)": (nl_means, (0.4, 0.5, 0.6, 0.7, 0.8)),
}


def with_noise(images, sigma, seed):
    rng = np.random.default_rng(seed)
    return [(y + sigma * rng.normal(size=y.shape)).astype(np.float32) for y in images]


def seconds_of(function):
    """Return the result of a function and its processor seconds."""
    start = time.process_time()
    result = function()
    return result, time.process_time() - start


def fitted_fields(args):
    """Yield each field, the seconds of its training, and whether it warned."""
    clean = [y.astype(np.uint8) for y in clean_images("train", args.images)]
    noisy = [x[..., None] for x in with_noise(clean, args.sigma, 0)]
    tasks = {
        "field, pairs of images": lambda: RegressionTreeField(random_state=0, n_jobs=args.jobs).fit(noisy, clean),
        "field, clean images alone": lambda: RegressionTreeField(
            corruption=GaussianNoise(args.sigma), random_state=0, n_jobs=args.jobs
        ).fit(clean),
    }
    for name, fit in tasks.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            field, seconds = seconds_of(fit)
        yield name, field, seconds, len(caught)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sigma", type=float, default=25.0)
    parser.add_argument("--images", type=int, default=20, help="training images")
    parser.add_argument("--tests", type=int, default=20, help="test images")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for results")
    args = parser.parse_args()
    test = clean_images("test", args.tests)
    noisy = with_noise(test, args.sigma, 1)
    choosing = clean_images("val", 8)
    tried = with_noise(choosing, args.sigma, 2)
    print(f"{'':<28} {'PSNR':>7} {'SSIM':>7} {'training, s':>12} {'s/image':>8} {'warnings':>9}")
    figures = {}

    def show(name, images, seconds, training=None, n_warnings=None):
        psnr, _, ssim = measures(images, test).mean(axis=0)
        figures[name] = {"psnr": psnr, "ssim": ssim, "training": training, "seconds": seconds, "warnings": n_warnings}
        text = f"{name:<28} {psnr:7.2f} {ssim:7.3f}"
        text += f" {'-' if training is None else format(training, '.1f'):>12} {seconds:8.3f}"
        print(f"{text} {'-' if n_warnings is None else n_warnings:>9}", flush=True)

    show("noisy", noisy, 0.0)
    for name, (method, strengths) in PEERS.items():
        values = [measures([method(x, args.sigma, s) for x in tried], choosing)[:, 0].mean() for s in strengths]
        strength = strengths[int(np.argmax(values))]
        images, seconds = seconds_of(lambda method=method, s=strength: [method(x, args.sigma, s) for x in noisy])
        show(name, images, seconds / len(noisy))
    for name, field, training, n_warnings in fitted_fields(args):
        given = noisy if name.endswith("alone") else [x[..., None] for x in noisy]
        images, seconds = seconds_of(lambda field=field, given=given: field.predict(given))
        show(name, images, seconds / len(noisy), training, n_warnings)
    if args.json is not None:
        write_record(args.json, {"sigma": args.sigma, "images": args.images, "tests": args.tests, "rows": figures})


if __name__ == "__main__":
    main()
