"""Train the models that are part of ``sklearn_crf.restore``, and write them into the package.

The photographs are included in scikit-image (astronaut by NASA, public domain; brick, camera, chelsea, coffee, gravel
and rocket, CC0) and in scikit-learn (china and flower, CC BY). They are converted to grey and reduced to half scale.
Learned filters are also trained at full scale. Fits have fixed seeds, so the same versions of the libraries give the
same files. A run takes twenty minutes on one core.

    python benchmarks/quality/ready_fields.py [--fields noise_default jpeg_high missing ...] [--folder FOLDER]
"""

import argparse
import time
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter
from skimage import data
from skimage.draw import line
from skimage.transform import resize
from sklearn.datasets import load_sample_images

from sklearn_crf import LearnedFilters
from sklearn_crf.restoration import _restore as ready
from sklearn_crf.rtf import Blur, Downsampling

SAMPLES = ("astronaut", "brick", "camera", "chelsea", "coffee", "gravel", "rocket")
LUMA = np.array([0.299, 0.587, 0.114])
STEPS = {"noise_high": 6000, "jpeg_high": 3000}  # steps of training of the large models
MULTIPLE = 12  # sides are multiples of this number, so that they are divisible by every scale


def photographs():
    """Return grey photographs (H, W) of bytes at half scale, and the same photographs at full scale."""
    images = [getattr(data, name)() for name in SAMPLES] + list(load_sample_images().images)
    full = [image @ LUMA if image.ndim == 3 else image.astype(float) for image in images]
    shapes = [[side // (2 * MULTIPLE) * MULTIPLE for side in grey.shape] for grey in full]
    half = [resize(grey, shape, anti_aliasing=True) for grey, shape in zip(full, shapes, strict=True)]
    return tuple([np.rint(np.clip(grey, 0, 255)).astype(np.uint8) for grey in scale] for scale in (half, full))


def with_holes(image, rng):
    """Return the image with missing pixels: single pixels, bars, or scratches."""
    gone = np.zeros(image.shape[:2], dtype=bool)
    height, width = gone.shape
    kind = rng.integers(3)
    if kind == 0:
        gone |= rng.random(gone.shape) < rng.uniform(0.2, 0.8)
    for _ in range((0, gone.size // 2500, gone.size // 1200)[kind]):
        top, left = rng.integers(height), rng.integers(width)
        if kind == 1:
            sides = rng.permutation([rng.integers(2, 9), rng.integers(4, 25)])
            gone[top : top + sides[0], left : left + sides[1]] = True
        else:
            turn, length, thick = rng.uniform(0, 2 * np.pi), rng.uniform(20, 80), rng.integers(1, 4)
            end = int(top + length * np.sin(turn)), int(left + length * np.cos(turn))
            for shift in range(thick):
                rows, columns = line(top + shift, left, end[0] + shift, end[1])
                inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
                gone[rows[inside], columns[inside]] = True
    holed = image.astype(np.float32)
    holed[gone] = np.nan
    return holed


def kernels():
    """Return square, Gaussian and straight motion kernels."""
    found = [np.full((side, side), 1 / side**2) for side in (3, 5, 7, 9)]
    point = np.zeros((17, 17))
    point[8, 8] = 1
    found += [gaussian_filter(point, width) for width in (1.0, 1.6, 2.4)]
    for turn in (0.0, 0.7, 1.6, 2.4):
        moved = np.zeros((17, 17))
        for step in np.linspace(-5, 5, 200):
            moved[round(8 + step * np.sin(turn)), round(8 + step * np.cos(turn))] += 1
        found.append(moved / moved.sum())
    return found


def training(name):
    """Return the field's parameters that describe its training data."""
    noises = (0.7, 2.0, 6.0)
    if name == "missing":
        return {"corruption": with_holes}
    if name == "blur":
        return {"degradation": [Blur(kernel, noise) for kernel in kernels() for noise in noises]}
    if name == "zoom":
        return {"degradation": [Downsampling(2, noise) for noise in noises]}
    return {"max_iter": STEPS.get(name, 1500)}


def shortened(filters):
    """Return learned filters with 16-bit numbers, for images of any range."""
    for name in ("filters_", "weights_", "pull_", "unit_"):
        setattr(filters, name, np.float64(np.float16(getattr(filters, name))))
    del filters.channel_range_, filters.input_dtype_
    return filters


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fields", nargs="+", choices=ready.FIELDS, default=list(ready.FIELDS))
    parser.add_argument("--folder", type=Path, default=ready.FOLDER)
    args = parser.parse_args()
    half, full = photographs()
    for name in args.fields:
        start = time.process_time()
        field = ready.make_damage_estimator(name).set_params(**training(name))
        field = shortened(field.fit(half + full)) if isinstance(field, LearnedFilters) else field.fit(half)
        path = ready.save(name, field, args.folder)
        print(f"{name:<8} {time.process_time() - start:6.1f} s  {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
