"""Denoising of natural images, next to BM3D on the same noisy images: Table 6 of Jancsary (2012).

The thesis's protocol: BSDS500 at half scale, Gaussian noise that is not clipped, training on the train part, means
over the test part. The images were reduced by another filter than the thesis's, with which BM3D loses 0.4 dB at sigma
= 30: read the differences to BM3D, not the levels. `--quick` takes 40 training images, trees of depth 5, 40 test
images.

    python benchmarks/rtf_denoising.py --quick             # the loss is PSNR
    python benchmarks/rtf_denoising.py --loss ssim         # all 200 images, trees of depth 7
    python benchmarks/rtf_denoising.py --expert            # BM3D's output as one more channel
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import bm3d
import numpy as np
from joblib import Parallel, delayed
from scipy.stats import wilcoxon
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import RegressionTreeField
from sklearn_crf.losses import ssim
from sklearn_crf.preprocessing import FilterBank

# PSNR of the thesis's fields less that of BM3D, in decibels (Table 6).
THESIS = {
    (20, "psnr", False): 28.95 - 29.25,
    (30, "psnr", False): 26.97 - 27.32,
    (40, "psnr", False): 25.71 - 25.98,
    (50, "psnr", False): 24.76 - 25.09,
    (20, "pseudolikelihood", False): 28.61 - 29.25,
    (30, "pseudolikelihood", False): 26.66 - 27.32,
    (40, "pseudolikelihood", False): 25.32 - 25.98,
    (50, "pseudolikelihood", False): 24.42 - 25.09,
    (20, "psnr", True): 29.52 - 29.25,
    (30, "psnr", True): 27.58 - 27.32,
    (40, "psnr", True): 26.24 - 25.98,
    (50, "psnr", True): 25.38 - 25.09,
    (30, "ssim", False): 26.55 - 27.32,
    (30, "mae", False): 26.94 - 27.32,
}


def noisy_and_clean(part, sigma, n_images, seed):
    """Every so many-th image of a part of BSDS500, and the same with noise of its own."""
    path = Path(os.environ["SKLEARN_CRF_DATA"]) / "bsds500" / f"bsds500_{part}_gray_half.npz"
    archive = np.load(path)
    names = archive.files[:: max(1, len(archive.files) // n_images)][:n_images]
    clean = [archive[name].astype(np.float32) for name in names]
    rng = np.random.default_rng(seed)
    return [(y + sigma * rng.normal(size=y.shape)).astype(np.float32) for y in clean], clean


def with_bm3d(noisy, sigma, n_jobs):
    return Parallel(n_jobs=n_jobs)(delayed(bm3d.bm3d)(x.astype(float), sigma) for x in noisy)


def measures(predicted, clean):
    """PSNR, MAE and SSIM (windows of 8 x 8) of each image, values kept within those of bytes."""
    rows = []
    for p, y in zip(predicted, clean, strict=True):
        p, y = np.clip(p, 0, 255).astype(float), y.astype(float)
        psnr = 10 * np.log10(255**2 / np.mean((p - y) ** 2))
        rows.append((psnr, np.mean(np.abs(p - y)), 1 - ssim(p, y, data_range=255.0)[0]))
    return np.array(rows)


def channels(bank, noisy, experts):
    features = bank.transform(noisy)
    if experts is None:
        return list(features)
    return [np.dstack([x, e.astype(np.float32)]) for x, e in zip(features, experts, strict=True)]


def line(name, rows, rival, thesis=None, seconds=None):
    psnr, mae, similarity = rows.mean(axis=0)
    text = f"{name:<22} {psnr:7.2f} {mae:6.2f} {similarity:7.3f} {psnr - rival[:, 0].mean():+9.2f}"
    text += "        -" if thesis is None else f" {thesis:+8.2f}"
    return text + ("" if seconds is None else f" {seconds:8.3f}")


def run(args):
    n_train, n_test = (40, 40) if args.quick else (args.images, 200)
    depth = args.depth or (5 if args.quick else 7)
    noisy, clean = noisy_and_clean("train", args.sigma, n_train, seed=0)
    test_noisy, test_clean = noisy_and_clean("test", args.sigma, n_test, seed=1)
    start = time.perf_counter()
    rival = with_bm3d(test_noisy, args.sigma, args.jobs)
    bm3d_seconds = (time.perf_counter() - start) * args.jobs / n_test
    experts = with_bm3d(noisy, args.sigma, args.jobs) if args.expert else None
    bank = FilterBank("rfs", n_jobs=args.jobs).fit(noisy)
    field = RegressionTreeField(
        args.loss,
        window=args.window,
        max_depth=depth,
        max_iter=args.max_iter,
        data_range=255.0,
        random_state=0,
        n_jobs=args.jobs,
        verbose=1,
    )
    start, start_cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # rounds are kept short on purpose
        field.fit(channels(bank, noisy, experts), clean)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    field.set_params(verbose=0)
    predicted, times = [], []
    for k, x in enumerate(test_noisy):
        start = time.perf_counter()
        predicted += list(field.predict(channels(bank, [x], [rival[k]] if args.expert else None)))
        times.append(time.perf_counter() - start)
    return {
        "input": measures(test_noisy, test_clean),
        "bm3d": measures(rival, test_clean),
        "field": measures(predicted, test_clean),
        "seconds": {
            "training": seconds,
            "training, processor": cpu_seconds,
            "prediction, median": float(np.median(times)),
            "prediction, least": float(np.min(times)),
            "bm3d": bm3d_seconds,
        },
        "rounds": field.loss_curve_[field.round_ends_].tolist(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--loss", default="psnr")
    parser.add_argument("--sigma", type=int, default=30)
    parser.add_argument("--images", type=int, default=200, help="training images")
    parser.add_argument("--window", type=int, default=3)
    parser.add_argument("--depth", type=int)
    parser.add_argument("--max-iter", type=int, default=30, help="iterations a round")
    parser.add_argument("--expert", action="store_true", help="BM3D's output as a channel")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    args = parser.parse_args()
    found = run(args)
    thesis = THESIS.get((args.sigma, args.loss, args.expert))
    seconds = found["seconds"]
    print(f"\nsigma = {args.sigma}, {len(found['field'])} test images")
    print(f"{'':<22} {'PSNR':>7} {'MAE':>6} {'SSIM':>7} {'to BM3D':>9} {'thesis':>8} {'s/image':>8}")
    print(line("input", found["input"], found["bm3d"]))
    print(line("BM3D", found["bm3d"], found["bm3d"], seconds=seconds["bm3d"]))
    name = f"field, {args.loss}" + (" + BM3D" if args.expert else "")
    print(line(name, found["field"], found["bm3d"], thesis, seconds["prediction, least"]))
    print(f"Wilcoxon, PSNR of field and BM3D: p = {wilcoxon(found['field'][:, 0], found['bm3d'][:, 0]).pvalue:.1e}")
    print("seconds: " + ", ".join(f"{key} {value:.3g}" for key, value in seconds.items()))
    if args.json is not None:
        kept = {
            key: value.mean(axis=0).tolist() if isinstance(value, np.ndarray) else value for key, value in found.items()
        }
        args.json.write_text(json.dumps({**vars(args), "json": None, **kept}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
