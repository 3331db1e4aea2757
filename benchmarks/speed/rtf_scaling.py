"""Time regression tree fields: prediction by number of pixels, training by number of images, on one and two threads.

One grey image of each size is predicted, including the responses of the filter bank, in a separate process whose peak
memory is printed. A field with a filter bank predicts images of more than a million pixels in tiles. Training uses
crops of natural images and a fixed number of iterations.

    python benchmarks/speed/rtf_scaling.py
    python benchmarks/speed/rtf_scaling.py --sizes 512 1024 --bank none
    python benchmarks/speed/rtf_scaling.py --sizes 4096 --images --bank auto     # a field with default options
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _path  # noqa: F401  finds the support package
import joblib
import numpy as np
from support.memory import peak_megabytes
from support.restoration import clean_images
from support.short_rounds import seconds_of_fit

from sklearn_crf import RegressionTreeField
from sklearn_crf.preprocessing import FilterBank
from sklearn_crf.rtf import GaussianNoise, Splits

SIGMA = 30


def noisy_cuts(n_images, side):
    """Return cuts of natural images, with noise."""
    clean = np.stack([image[:side, :side] for image in clean_images("train", n_images)])
    noise = np.random.default_rng(0).normal(size=clean.shape)
    return (clean + SIGMA * noise)[..., None].astype(np.float32), clean


def trained(args, n_images, jobs):
    """Return a field and the seconds of its training."""
    X, y = noisy_cuts(n_images, args.side)
    if args.bank == "auto":
        field = RegressionTreeField(corruption=GaussianNoise(SIGMA), random_state=0, n_jobs=jobs)
        return field, float(seconds_of_fit(field, y.astype(np.uint8), None)[0])
    bank = None if args.bank == "none" else FilterBank(args.bank)
    options = {"max_depth": args.depth, "window": args.window, "max_iter": 8, "split": Splits(min_samples_leaf=50)}
    field = RegressionTreeField("psnr", filter_bank=bank, random_state=0, n_jobs=jobs, **options)
    seconds, _ = seconds_of_fit(field, X, y)
    return field, float(seconds)


def predict_one(path, side, jobs):
    """Print the seconds and the peak memory of one prediction; called in its own process."""
    field = joblib.load(path).set_params(n_jobs=jobs)
    tile = clean_images("test", 1)[0]
    repeats = [-(-side // length) for length in tile.shape]
    image = np.tile(tile, repeats)[:side, :side]
    image = image + np.float32(SIGMA) * np.random.default_rng(1).standard_normal(image.shape, dtype=np.float32)
    before = peak_megabytes()
    start = time.perf_counter()
    predicted = field.predict(image[None, :, :, None])
    seconds = time.perf_counter() - start
    print(seconds, before, peak_megabytes(), float(predicted.std()))


def measured(path, side, jobs, repeats):
    """Return the shortest time in seconds, and the peak memory before and after."""
    runs = []
    for _ in range(repeats):
        command = [sys.executable, __file__, "--one", str(path), str(side), str(jobs)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        runs.append([float(word) for word in answer.split()])
    assert len({run[3] for run in runs}) == 1
    return min(run[0] for run in runs), runs[0][1], runs[0][2], runs[0][3]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[256, 512, 1024, 2048, 4096])
    parser.add_argument("--images", type=int, nargs="*", default=[10, 20, 40], help="numbers of training images")
    parser.add_argument("--side", type=int, default=96, help="side of training images")
    parser.add_argument("--bank", default="rfs", help="'none' for the grey value alone, 'auto' for all defaults")
    parser.add_argument("--window", type=int, default=3)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=1, help="number of fits, of which the fastest counts")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        predict_one(args.one[0], int(args.one[1]), int(args.one[2]))
        return
    if args.sizes:
        print_predictions(args)
    print(f"\n{'training':<14} {'threads':>7} {'seconds':>8} {'ms/image':>9}")
    for n_images in args.images:
        for jobs in args.jobs:
            seconds = min(trained(args, n_images, jobs)[1] for _ in range(args.repeats))
            print(f"{n_images:<14} {jobs:7} {seconds:8.2f} {1e3 * seconds / n_images:9.1f}", flush=True)


def print_predictions(args):
    field, _ = trained(args, 20, max(args.jobs))
    print(f"{'prediction':<14} {'threads':>7} {'seconds':>8} {'us/pixel':>9} {'MB before':>10} {'MB at most':>11}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "field.joblib"
        joblib.dump(field, path)
        for side in args.sizes:
            for jobs in args.jobs:
                seconds, before, peak, _ = measured(path, side, jobs, repeats=1 if side > 1024 else 3)
                size = f"{side} x {side}"
                print(
                    f"{size:<14} {jobs:7} {seconds:8.2f} {1e6 * seconds / side**2:9.2f} {before:10.0f} {peak:11.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
