"""Denoising of natural images, next to BM3D and other methods on the same noisy images: Table 6 of Jancsary (2012).

The thesis's protocol: BSDS500 at half scale, Gaussian noise that is not clipped, training on the train part, methods
with parameters at those best on the val part, means over the test part. The images were reduced by another filter than
the thesis's, with which BM3D loses 0.4 dB at sigma = 30: read the differences to BM3D, not the levels. `--quick` takes
40 training images, trees of depth 5, 40 test images.

    python benchmarks/rtf_denoising.py --quick             # the loss is PSNR
    python benchmarks/rtf_denoising.py --loss ssim         # all 200 images, trees of depth 7
    python benchmarks/rtf_denoising.py --expert            # BM3D's output as one more channel
    python benchmarks/rtf_denoising.py --rivals --quick    # what the parameters of the other methods are worth
    python benchmarks/rtf_denoising.py --table             # all figures in the folder, without any work

Trees grow level by level, and every level is kept in `--folder`, as are the rivals' images: a run that was stopped goes
on at the level it was at. Figures are kept there as one small JSON file a row.
"""

import argparse
import time
from pathlib import Path

import joblib
import numpy as np
from _restoration import clean_images, grown, keep_row, measures, predictions, print_rows

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

# Validation images that rivals' parameters are chosen on.
N_CHOOSING = 10


def noisy_and_clean(part, sigma, n_images, seed):
    """Images of a part of BSDS500, and the same with noise of its own."""
    clean = clean_images(part, n_images)
    rng = np.random.default_rng(seed)
    return [(y + sigma * rng.normal(size=y.shape)).astype(np.float32) for y in clean], clean


def bm3d_method(noisy, sigma, strength):
    import bm3d

    return bm3d.bm3d(noisy.astype(float), strength * sigma)


def nl_means_method(noisy, sigma, strength):
    from skimage.restoration import denoise_nl_means

    options = {"patch_size": 5, "patch_distance": 8, "fast_mode": False}
    return 255 * denoise_nl_means(noisy / 255, h=strength * sigma / 255, sigma=sigma / 255, **options)


def tv_method(noisy, sigma, strength):
    from skimage.restoration import denoise_tv_chambolle

    return 255 * denoise_tv_chambolle(noisy / 255, weight=strength * sigma / 255, eps=1e-5, max_num_iter=500)


def wavelet_method(noisy, sigma, strength):
    from skimage.restoration import denoise_wavelet

    options = {"wavelet": "bior4.4", "method": "BayesShrink", "rescale_sigma": False}
    return denoise_wavelet(noisy, sigma=strength * sigma, **options)


def opencv_method(noisy, sigma, strength):
    import cv2

    # It takes bytes alone, so that what is beyond them is lost.
    as_bytes = np.clip(np.rint(noisy), 0, 255).astype(np.uint8)
    return cv2.fastNlMeansDenoising(as_bytes, None, float(strength * sigma), 5, 17).astype(float)


# Methods, and multiples of sigma that are tried for their strength; BM3D's own is 1.
RIVALS = {
    "BM3D": (bm3d_method, (1.0,)),
    "NL-means": (nl_means_method, (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)),
    "TV": (tv_method, (0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4)),
    "wavelets": (wavelet_method, (0.85, 0.95, 1.0, 1.1, 1.25)),
    "OpenCV NL-means": (opencv_method, (0.7, 0.8, 0.9, 1.0, 1.1, 1.2)),
}


def denoised_by(name, part, noisy, args):
    """A rival's images, those of before if there are any, and seconds of the processor for each."""
    path = args.folder / f"{name.replace(' ', '_')}_{part}_{args.sigma}_{len(noisy)}.joblib"
    if not path.exists():
        method, strengths = RIVALS[name]
        strength = strengths[0]
        if len(strengths) > 1:
            tried, clean = noisy_and_clean("val", args.sigma, N_CHOOSING, seed=2)
            values = [measures([method(x, args.sigma, s) for x in tried], clean)[:, 0].mean() for s in strengths]
            strength = strengths[int(np.argmax(values))]
        images, seconds = [], []
        for x in noisy:
            start = time.process_time()
            images.append(np.asarray(method(x, args.sigma, strength), dtype=np.float32))
            seconds.append(time.process_time() - start)
        joblib.dump((images, float(np.median(seconds)), strength), path)
    return joblib.load(path)


def channels(bank, noisy, experts):
    features = bank.transform(noisy)
    if experts is None:
        return list(features)
    return [np.dstack([x, e]) for x, e in zip(features, experts, strict=True)]


def trained(bank, args):
    """A field, grown level by level from where the last run stopped, and seconds of all levels."""
    noisy, clean = noisy_and_clean("train", args.sigma, args.images, seed=0)
    name = f"{row_name(args)}_{args.images}_{args.window}_{args.max_iter}_{args.max_samples}_{args.shrinkage:g}"
    options = {key: getattr(args, key) for key in ("window", "max_iter", "max_samples", "shrinkage")}

    def images():
        experts = denoised_by("BM3D", "train", noisy, args)[0] if args.expert else None
        return channels(bank, noisy, experts)

    return grown(args.loss, images, clean, args.depth, options | {"n_jobs": args.jobs}, name, args.folder)


def row_name(args):
    size = "quick" if args.quick else "full"
    return f"{args.loss}{'_bm3d' if args.expert else ''}_{args.sigma}_{size}"


def run(args):
    noisy, clean = noisy_and_clean("test", args.sigma, args.tests, seed=1)
    bm3d_images, seconds, _ = denoised_by("BM3D", "test", noisy, args)
    rival = measures(bm3d_images, clean)

    def keep(name, rows, **others):
        keep_row(args.folder, args.sigma, args.quick, name, rows, rival, **others)

    keep("BM3D", rival, seconds=seconds)
    keep("input", measures(noisy, clean))
    for name in list(RIVALS)[1:] if args.rivals else ():
        images, seconds, strength = denoised_by(name, "test", noisy, args)
        keep(name, measures(images, clean), seconds=seconds, strength=strength)
    if args.rivals:
        return
    bank = FilterBank("rfs", n_jobs=args.jobs).fit(noisy)
    field, training = trained(bank, args)
    experts = bm3d_images if args.expert else [None] * len(noisy)
    seen = (channels(bank, [x], None if e is None else [e])[0] for x, e in zip(noisy, experts, strict=True))
    predicted, seconds = predictions(field, seen)
    name = f"field, {args.loss}" + (" + BM3D" if args.expert else "")
    thesis = THESIS.get((args.sigma, args.loss, args.expert))
    options = {
        key: getattr(args, key) for key in ("images", "window", "depth", "max_iter", "max_samples", "shrinkage", "jobs")
    }
    keep(
        name, measures(predicted, clean), thesis=thesis, seconds=seconds, options=options,
        training_seconds=training.round(1).tolist(), leaves=[len(part) for part in field.precisions_],
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--loss", default="psnr")
    parser.add_argument("--sigma", type=int, default=30)
    parser.add_argument("--images", type=int, help="training images")
    parser.add_argument("--tests", type=int, help="test images")
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--depth", type=int)
    parser.add_argument("--max-iter", type=int, default=8, help="iterations a round")
    parser.add_argument("--max-samples", type=int, help="pixels that training looks at")
    parser.add_argument("--shrinkage", type=float, default=10000.0)
    parser.add_argument("--expert", action="store_true", help="BM3D's output as a channel")
    parser.add_argument("--rivals", action="store_true", help="the other methods, and no field")
    parser.add_argument("--table", action="store_true", help="print what is there")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("rtf_denoising"), help="where everything is kept")
    args = parser.parse_args()
    args.images = args.images or (40 if args.quick else 200)
    args.tests = args.tests or (40 if args.quick else 200)
    args.depth = (5 if args.quick else 7) if args.depth is None else args.depth
    args.folder.mkdir(parents=True, exist_ok=True)
    if not args.table:
        run(args)
    print_rows(args.folder, args.sigma, args.quick, f"sigma = {args.sigma}", "BM3D")


if __name__ == "__main__":
    main()
