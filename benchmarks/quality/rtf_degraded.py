"""Deblurring, super-resolution and inpainting by regression tree fields and by scikit-image, on images of BSDS500.

Each row trains one field on clean images and restores other images. If another method has a parameter, the best of
several values is chosen for each image by comparison with the true image, so its results are upper bounds. If a JSON
file is given, tasks are stored there, and an interrupted run continues at its task.

    python benchmarks/quality/rtf_degraded.py --json degraded.json
    python benchmarks/quality/rtf_degraded.py --train 40 --test 10 --tasks blur
"""

import argparse
import time
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.ndimage import zoom
from skimage.restoration import inpaint_biharmonic, richardson_lucy, unsupervised_wiener, wiener
from support.record import read_record, write_record
from support.restoration import clean_images, measures

from sklearn_crf import RegressionTreeField
from sklearn_crf.rtf import Blur, Downsampling, MissingPixels

# Pixels near the border do not count, since no method knows the pixels beyond the border.
BORDER = 8
NOISE = 2.55
BALANCES = (0.01, 0.03, 0.1, 0.3, 1.0)
ITERATIONS = (5, 10, 20, 40)


def kernels():
    """Return a disc, a motion and a Gaussian kernel."""
    at = np.mgrid[-4:5, -4:5]
    radius = np.hypot(*at)
    disc = np.clip(3.5 - radius, 0, 1)
    motion = np.clip(1 - np.abs(at[0] - 0.5 * at[1]), 0, 1)
    gaussian = np.exp(-(radius**2) / (2 * 1.6**2))
    return {name: k / k.sum() for name, k in (("disc", disc), ("motion", motion), ("Gaussian", gaussian))}


def psnr(predicted, clean):
    """Return the mean peak signal-to-noise ratio of the inner pixels."""
    inner = (slice(BORDER, -BORDER),) * 2
    return measures([p[inner] for p in predicted], [y[inner] for y in clean])[:, 0]


def best(candidates, clean):
    """Return the best candidate for each image."""
    return np.max([psnr(found, clean) for found in candidates], axis=0)


def blur_rivals(images, clean, kernel):
    """Return the PSNR of each image by scikit-image's deconvolutions."""
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
    """Return a field trained on clean images, and its processor seconds."""
    start = time.process_time()
    field = RegressionTreeField(random_state=0, **options).fit(train)
    return field, time.process_time() - start


def record(rows, field):
    """Return the figures of a task: means, the share of images on which the field wins, and the training time."""
    own = rows["field"]
    return {
        "psnr": {row: round(float(values.mean()), 3) for row, values in rows.items()},
        "field better on": {row: float(np.mean(own > values)) for row, values in rows.items() if row != "field"},
        "training seconds": round(field[1], 1),
        "least lead": {row: round(float(np.min(own - values)), 3) for row, values in rows.items() if row != "field"},
        "leaves": len(field[0].precisions_[0]),
    }


def report(name, found):
    """Print the figures of a task."""
    for row, value in found["psnr"].items():
        wins = "" if row == "field" else f"   field better on {found['field better on'][row]:4.0%}"
        print(f"{name:22} {row:28} {value:6.2f} dB{wins}")
    print(f"{name:22} trained in {found['training seconds']:.0f} s of CPU, leaves {found['leaves']}", flush=True)


def blur(train, test, rng):
    """Measure deblurring, with one field for all kernels."""
    degradations = {name: Blur(kernel, NOISE) for name, kernel in kernels().items()}
    field = trained(train, degradation=list(degradations.values()))
    found = {}
    for name, degradation in degradations.items():
        images = [degradation(image, rng) for image in test]
        rows = {"input": psnr(images, test)}
        rows["field"] = psnr(field[0].predict(images, degradation=degradation), test)
        rows |= blur_rivals(images, test, np.asarray(degradation.kernel))
        found[f"blur, {name}"] = record(rows, field)
    return found


def halved(images):
    """Return images with an even number of rows and columns."""
    return [image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2] for image in images]


def super_resolution(train, test, rng):
    """Measure super-resolution to twice the side."""
    train, test, degradation = halved(train), halved(test), Downsampling(2, 0.5)
    field = trained(train, degradation=degradation)
    images = [degradation(image, rng) for image in test]
    splines = [zoom(image, 2, order=3, mode="nearest", grid_mode=True) for image in images]
    rows = {"cubic": psnr(splines, test), "field": psnr(field[0].predict(images), test)}
    return {"super-resolution x2": record(rows, field)}


def inpainting(train, test, rng):
    """Measure inpainting of half of the pixels."""
    corruption = MissingPixels(0.5)
    field = trained(train, corruption=corruption)
    images = [corruption(image, rng) for image in test]
    filled = [inpaint_biharmonic(np.nan_to_num(image) / 255, np.isnan(image)) * 255 for image in images]
    rows = {"biharmonic": psnr(filled, test), "field": psnr(field[0].predict(images), test)}
    return {"inpainting, half": record(rows, field)}


TASKS = {"blur": blur, "super_resolution": super_resolution, "inpainting": inpainting}

# Number of training images. Each round uses equally many pixels, so more images take no more time.
N_TRAIN = {"blur": 40, "super_resolution": 40, "inpainting": 200}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, help="number of training images; default: the number of the task")
    parser.add_argument("--test", type=int, default=10)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--part", choices=("test", "val"), default="test", help="images to restore")
    parser.add_argument("--json", type=Path, help="file for results")
    given = parser.parse_args()
    kept = read_record(given.json, {})
    for task in given.tasks:
        if task not in kept:
            data = clean_images("train", given.train or N_TRAIN[task]), clean_images(given.part, given.test)
            kept[task] = TASKS[task](*data, np.random.default_rng(0))
            write_record(given.json, kept)
        for name, found in kept[task].items():
            report(name, found)
