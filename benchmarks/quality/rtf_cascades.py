"""Compare cascades of regression tree fields: trained one by one, on out-of-fold predictions, and trained together.

Images are grey images of BSDS500 at half scale (reduced by an antialiased bicubic filter), with Gaussian noise that is
not clipped. Fields have default parameters and get the same noise. The PSNR is computed on test images, and on training
images with the noise used in training, which shows how much fields overfit. Every random state is a row and is written
at once; an interrupted run continues.

    python benchmarks/quality/rtf_cascades.py --json cascades.json
    python benchmarks/quality/rtf_cascades.py --images 60 --depth 6
"""

import argparse
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.record import read_record, write_record
from support.restoration import clean_images, measures

from sklearn_crf import RegressionTreeField
from sklearn_crf.rtf import Cascade

CASCADES = {
    "one field": 1,
    "two fields": 2,
    "two, out of fold": Cascade(2, n_folds=5),
    "two, together": Cascade(2, joint=4),
    "two, out of fold and together": Cascade(2, n_folds=5, joint=4),
}


def with_noise(images, sigma, seed):
    rng = np.random.default_rng(seed)
    return [(y + sigma * rng.normal(size=y.shape)).astype(np.float32)[..., None] for y in images]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sigma", type=float, default=25.0)
    parser.add_argument("--images", type=int, default=20, help="training images")
    parser.add_argument("--tests", type=int, default=40, help="test images")
    parser.add_argument("--draws", type=int, default=3, help="number of random states for each field")
    parser.add_argument("--depth", type=int, help="depth of the trees; default: the default of the estimator")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for results")
    args = parser.parse_args()
    train, test = clean_images("train", args.images), clean_images("test", args.tests)
    noisy, other = with_noise(train, args.sigma, 0), with_noise(test, args.sigma, 1)
    depth = "auto" if args.depth is None else args.depth
    setting = {"sigma": args.sigma, "images": args.images, "tests": args.tests, "depth": depth}
    record = read_record(args.json, {**setting, "rows": {}})
    if any(record[name] != value for name, value in setting.items()):
        parser.error(f"{args.json} was made with other options.")
    print(f"{'':<32} {'test':>7} {'train':>7} {'CPU, s':>7}  held-out loss of joint training")
    for seed in range(args.draws):
        for name, cascade in CASCADES.items():
            key = f"{name}, {seed}"
            if key not in record["rows"]:
                record["rows"][key] = measured(cascade, depth, seed, args.jobs, (noisy, train), (other, test))
                write_record(args.json, record)
            row = record["rows"][key]
            curve = " ".join(f"{value:.2f}" for value in row["joint_curve"])
            print(f"{key:<32} {row['test']:7.3f} {row['train']:7.3f} {row['seconds']:7.1f}  {curve}", flush=True)
    print("means")
    for name in CASCADES:
        rows = [record["rows"][f"{name}, {seed}"] for seed in range(args.draws)]
        means = {part: np.mean([row[part] for row in rows]) for part in ("test", "train", "seconds")}
        print(f"{name:<32} {means['test']:7.3f} {means['train']:7.3f} {means['seconds']:7.1f}")


def measured(cascade, depth, seed, n_jobs, training, tests):
    """Return PSNR on test and on training images, and processor seconds of training."""
    field = RegressionTreeField(cascade=cascade, max_depth=depth, random_state=seed, n_jobs=n_jobs)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field.fit(*training)
    seconds = time.process_time() - start
    found = [measures(field.predict(X), y).mean(axis=0)[0] for X, y in (tests, training)]
    curve = getattr(field, "joint_curve_", np.zeros(0)).tolist()
    return {"test": found[0], "train": found[1], "seconds": seconds, "joint_curve": curve}


if __name__ == "__main__":
    main()
