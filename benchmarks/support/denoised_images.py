"""Noisy images of BSDS500, and images denoised by other methods, which are kept on disk."""

import time

import joblib
import numpy as np

from support.restoration import clean_images, measures

# Seeds of the noise of training images that BM3D denoises. Levels of trees use them alternately.
DRAWS = {"train": 0, "train_again": 3}
# Number of validation images for choosing the parameters of rivals
N_CHOOSING = 10


def noisy_and_clean(part, sigma, n_images, seed):
    """Return noisy and clean images of a part of BSDS500."""
    clean = clean_images(part, n_images)
    rng = np.random.default_rng(seed)
    return [with_noise(y, sigma, rng) for y in clean], clean


def with_noise(y, sigma, rng):
    return (y + sigma * rng.normal(size=y.shape)).astype(np.float32)


def bm3d_method(noisy, sigma, strength):
    import bm3d

    return bm3d.bm3d(noisy.astype(float), strength * sigma)


def bm3d_again(noisy, sigma, strength, denoised):
    """Apply BM3D's second stage again, with smaller blocks and spectra estimated from the denoised image."""
    import bm3d

    profile = bm3d.BM3DProfile()
    profile.bs_wiener = 5
    return bm3d.bm3d(noisy.astype(float), strength * sigma, profile, stage_arg=denoised.astype(float))


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

    # OpenCV only accepts bytes, so values outside 0 to 255 are clipped.
    as_bytes = np.clip(np.rint(noisy), 0, 255).astype(np.uint8)
    return cv2.fastNlMeansDenoising(as_bytes, None, float(strength * sigma), 5, 17).astype(float)


# Methods, and multiples of sigma that are tried as strength. BM3D only uses its default, 1.
RIVALS = {
    "BM3D": (bm3d_method, (1.0,)),
    "NL-means": (nl_means_method, (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)),
    "TV": (tv_method, (0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4)),
    "wavelets": (wavelet_method, (0.85, 0.95, 1.0, 1.1, 1.25)),
    "OpenCV NL-means": (opencv_method, (0.7, 0.8, 0.9, 1.0, 1.1, 1.2)),
}


def denoised_by(name, part, noisy, args, methods=None, n_choosing=N_CHOOSING, pilots=None):
    """Return images denoised by a rival, median processor seconds per image, and the strength, from disk if present.

    Methods are called with the noisy image, sigma, a strength, and a pilot image if ``pilots`` is given.
    """
    path = args.folder / f"{name.replace(' ', '_')}_{part}_{args.sigma}_{len(noisy)}.joblib"
    if not path.exists():
        method, strengths = (RIVALS if methods is None else methods)[name]
        chosen = args.folder / f"{name.replace(' ', '_')}_strength_{args.sigma}_{n_choosing}.joblib"
        if not chosen.exists():
            joblib.dump(best_strength(method, strengths, args.sigma, n_choosing), chosen)
        strength = joblib.load(chosen)
        part_path = path.with_suffix(".part")
        images, seconds = joblib.load(part_path) if part_path.exists() else ([], [])
        for k in range(len(images), len(noisy)):
            start = time.process_time()
            more = () if pilots is None else (pilots[k],)
            images.append(np.asarray(method(noisy[k], args.sigma, strength, *more), dtype=np.float32))
            seconds.append(time.process_time() - start)
            if len(images) % 10 == 0:
                joblib.dump((images, seconds), part_path)
        joblib.dump((images, float(np.median(seconds)), strength), path)
        part_path.unlink(missing_ok=True)
    return joblib.load(path)


def best_strength(method, strengths, sigma, n_choosing):
    """Return the strength with the best PSNR on validation images."""
    if len(strengths) == 1:
        return strengths[0]
    tried, clean = noisy_and_clean("val", sigma, n_choosing, seed=2)
    values = [measures([method(x, sigma, s) for x in tried], clean)[:, 0].mean() for s in strengths]
    return strengths[int(np.argmax(values))]
