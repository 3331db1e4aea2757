"""Restoration of photographs with other noise levels than in training: one field for all levels, or one field each.

Images are grey images of BSDS500 at half scale, with Gaussian noise that is not clipped. Four predictions are compared:
a field trained for one level that rescales images by their noise (``predict(X, noise="auto")``), the same field without
``noise``, a field trained for each level, and a field trained for all levels (``GaussianNoise(5, 50)``).

    python benchmarks/quality/restoration.py --json restoration.json
    python benchmarks/quality/restoration.py --train 20 --tests 20 --levels 5 25 50
"""

import argparse
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.record import write_record
from support.restoration import clean_images, measures

from sklearn_crf import RegressionTreeField
from sklearn_crf.rtf import GaussianNoise

TRAINED, LEVELS = 25, (5, 10, 15, 25, 50, 75)


def trained(images, noise, n_jobs):
    """Train a field with all other parameters at their defaults."""
    return RegressionTreeField(corruption=noise, random_state=0, n_jobs=n_jobs).fit(images)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, default=20, help="training images")
    parser.add_argument("--tests", type=int, default=20, help="test images")
    parser.add_argument("--levels", type=float, nargs="+", default=LEVELS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for results")
    args = parser.parse_args()
    clean = [y.astype(np.uint8) for y in clean_images("train", args.train)]
    test = clean_images("test", args.tests)
    of_one, of_many = (trained(clean, noise, args.jobs) for noise in (GaussianNoise(TRAINED), GaussianNoise(5, 50)))
    rows = {"no noise": [y.astype(np.float32) for y in test]}
    for level in args.levels:
        rng = np.random.default_rng(1)
        rows[f"noise {level:g}"] = [(y + level * rng.normal(size=y.shape)).astype(np.float32) for y in test]
    print(f"{'PSNR':<12} {'input':>8} {'for it':>8} {'auto':>8} {'given':>8} {'as it is':>8} {'5 to 50':>8}")
    figures = {}
    for (name, noisy), level in zip(rows.items(), (None, *args.levels), strict=True):
        found = {"auto": of_one.predict(noisy, noise="auto"), "as it is": of_one.predict(noisy)}
        found["5 to 50"] = of_many.predict(noisy)
        if level is not None:
            own_field = trained(clean, GaussianNoise(level), args.jobs)
            found |= {"input": noisy, "for it": own_field.predict(noisy), "given": of_one.predict(noisy, noise=level)}
        own = figures[name] = {key: float(measures(images, test)[:, 0].mean()) for key, images in found.items()}
        columns = ("input", "for it", "auto", "given", "as it is", "5 to 50")
        cells = (f"{own[key]:9.2f}" if key in own else f"{'-':>9}" for key in columns)
        print(f"{name:<12}" + "".join(cells), flush=True)
    write_record(args.json, figures)


if __name__ == "__main__":
    main()
