"""Deblurring, super-resolution and inpainting by regression tree fields beside scikit-image's, on images of BSDS500.

Each row trains one field from clean images and restores others. Rivals that have a parameter are given the best of
several values for each image, chosen by the true image: their figures are upper bounds.

    python benchmarks/rtf_degraded.py
    python benchmarks/rtf_degraded.py --train 40 --test 10 --tasks blur
"""

import argparse
import time

import numpy as np
from _restoration import clean_images, measures
from scipy.ndimage import zoom
from skimage.restoration import inpaint_biharmonic, richardson_lucy, unsupervised_wiener, wiener

from sklearn_crf import RegressionTreeField
from sklearn_crf.rtf import Blur, Downsampling, MissingPixels

# Pixels near the border that are not judged: no method knows what lies beyond.
BORDER = 8
NOISE = 2.55
BALANCES = (0.01, 0.03, 0.1, 0.3, 1.0)
ITERATIONS = (5, 10, 20, 40)


def kernels():
    """A disc, a motion and a Gaussian."""
    at = np.mgrid[-4:5, -4:5]
    radius = np.hypot(*at)
    disc = np.clip(3.5 - radius, 0, 1)
    motion = np.clip(1 - np.abs(at[0] - 0.5 * at[1]), 0, 1)
    gaussian = np.exp(-(radius**2) / (2 * 1.6**2))
    return {name: k / k.sum() for name, k in (("disc", disc), ("motion", motion), ("Gaussian", gaussian))}


def psnr(predicted, clean):
    """Mean peak signal-to-noise ratio of the inner pixels."""
    inner = (slice(BORDER, -BORDER),) * 2
    return measures([p[inner] for p in predicted], [y[inner] for y in clean])[:, 0]


def best(candidates, clean):
    """For each image, the best of the candidates."""
    return np.max([psnr(found, clean) for found in candidates], axis=0)


def blur_rivals(images, clean, kernel):
    """PSNR of each image by deconvolutions of scikit-image."""
    shares = [image / 255 for image in images]
    iterated = [[255 * richardson_lucy(np.clip(x, 1e-3, 1), kernel, num_iter=n) for x in shares] for n in ITERATIONS]
    filtered = [[255 * wiener(x, kernel, balance, clip=False) for x in shares] for balance in BALANCES]
    alone = [255 * unsupervised_wiener(x, kernel, clip=False, rng=0)[0] for x in shares]
    return {
        "Richardson-Lucy, best of 4": best(iterated, clean),
        "Wiener, best of 5": best(filtered, clean),
        "unsupervised Wiener": psnr(alone, clean),
    }


def trained(train, **options):
    """A field trained on clean images, and the seconds of CPU that it took."""
    start = time.process_time()
    field = RegressionTreeField(random_state=0, **options).fit(train)
    return field, time.process_time() - start


def report(name, rows, field):
    """Print the rows, and how many images the field wins."""
    own = rows["field"]
    for row, values in rows.items():
        wins = "" if row == "field" else f"   field better on {np.mean(own > values):4.0%}"
        print(f"{name:22} {row:28} {values.mean():6.2f} dB{wins}")
    print(f"{name:22} trained in {field[1]:.0f} s of CPU, leaves {len(field[0].precisions_[0])}", flush=True)


def blur(train, test, rng):
    """One field for all kernels."""
    degradations = {name: Blur(kernel, NOISE) for name, kernel in kernels().items()}
    field = trained(train, degradation=list(degradations.values()))
    for name, degradation in degradations.items():
        images = [degradation(image, rng) for image in test]
        rows = {"input": psnr(images, test)}
        rows["field"] = psnr(field[0].predict(images, degradation=degradation), test)
        report(f"blur, {name}", rows | blur_rivals(images, test, np.asarray(degradation.kernel)), field)


def halved(images):
    """Images with an even number of rows and columns."""
    return [image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2] for image in images]


def super_resolution(train, test, rng):
    """Twice the side."""
    train, test, degradation = halved(train), halved(test), Downsampling(2, 0.5)
    field = trained(train, degradation=degradation)
    images = [degradation(image, rng) for image in test]
    splines = [zoom(image, 2, order=3, mode="nearest", grid_mode=True) for image in images]
    report("super-resolution x2", {"cubic": psnr(splines, test), "field": psnr(field[0].predict(images), test)}, field)


def inpainting(train, test, rng):
    """Half of the pixels missing."""
    corruption = MissingPixels(0.5)
    field = trained(train, corruption=corruption)
    images = [corruption(image, rng) for image in test]
    filled = [inpaint_biharmonic(np.nan_to_num(image) / 255, np.isnan(image)) * 255 for image in images]
    predicted = [np.where(np.isnan(x), p, x) for x, p in zip(images, field[0].predict(images), strict=True)]
    report("inpainting, half", {"biharmonic": psnr(filled, test), "field": psnr(predicted, test)}, field)


TASKS = {"blur": blur, "super_resolution": super_resolution, "inpainting": inpainting}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, default=40)
    parser.add_argument("--test", type=int, default=10)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    given = parser.parse_args()
    data = clean_images("train", given.train), clean_images("test", given.test)
    for task in given.tasks:
        TASKS[task](*data, np.random.default_rng(0))
