"""Compare ``sklearn_crf.restore`` with methods of scikit-image, on photographs that no field was trained on.

Images are from BSD68, cut to 312 x 312 pixels. The tasks, with the methods for comparison in brackets, are noise of
four levels (non-local means and total variation, which are given the level); noise of cameras in bytes (restoration for
the root mean square level); JPEG blocks of four qualities (tree fields trained for each quality on the photographs of
``ready_fields.py``); missing pixels (biharmonic inpainting); three blurs (Wiener filters with the best of five balances
for each image; borders are cut off); and enlarging from a half and a third of the size (cubic splines). Every other
photograph takes about four minutes on one core.

    python benchmarks/quality/restore.py [--every 2] [--only camera]
"""

import argparse
import os
import time
from functools import cache
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from ready_fields import kernels, photographs, with_holes
from scipy.ndimage import zoom
from skimage.restoration import denoise_nl_means, denoise_tv_chambolle, inpaint_biharmonic, wiener
from support.restoration import measures

from sklearn_crf import RegressionTreeField, restore
from sklearn_crf.rtf import JPEG, Blur

SIDE, BORDER = 312, np.s_[10:-10, 10:-10]
BALANCES = (0.001, 0.003, 0.01, 0.03, 0.1)


class Kind:
    """A random generator whose first choice, the kind of the holes, is fixed."""

    def __init__(self, kind):
        self.kinds, self.rng = [kind], np.random.default_rng(7)

    def integers(self, *bounds):
        return self.kinds.pop() if self.kinds else self.rng.integers(*bounds)

    def __getattr__(self, name):
        return getattr(self.rng, name)


def test_images(every):
    archive = np.load(Path(os.environ["SKLEARN_CRF_DATA"]) / "denoise_test" / "bsd68.npz")
    return [archive[name][:SIDE, :SIDE].astype(float) for name in archive.files[::every]]


def psnr(restored, clean):
    return float(measures([restored], [clean])[0, 0])


def of_presets(image, **options):
    """Return the image restored with each preset."""
    names = {"default": "restore", "fast": "fast", "high": "high"}
    return {name: restore(image, quality=quality, **options) for quality, name in names.items()}


def of_noise(clean, level, rng):
    noisy = clean + level * rng.normal(size=clean.shape)
    given = {"patch_size": 5, "patch_distance": 6, "h": 0.8 * level, "sigma": level}
    found = {"given": noisy, **of_presets(noisy), "level given": restore(noisy, noise=level)}
    found["non-local means"] = denoise_nl_means(noisy, **given)
    return found | {"total variation": denoise_tv_chambolle(noisy / 255, weight=level / 200) * 255}, np.s_[:, :]


def of_camera(clean, variance, rng):
    """Return images with noise whose variance is linear in brightness, and which is clipped to bytes."""
    gain, base = variance
    deviation = np.sqrt(gain * clean + base)
    noisy = np.clip(np.rint(clean + deviation * rng.normal(size=clean.shape)), 0, 255).astype(np.uint8)
    white = restore(noisy, noise=np.sqrt(np.mean(deviation**2)))
    found = {"given": noisy, **of_presets(noisy), "root mean square level": white}
    return {name: image.astype(float) for name, image in found.items()}, np.s_[:, :]


@cache
def tree_field(quality):
    half, full = photographs()
    return RegressionTreeField(corruption=JPEG(quality), random_state=0, clip=None).fit(half + full)


def of_blocks(clean, quality, rng):
    blocks = JPEG(quality)(clean, rng).astype(np.uint8)
    (of_tree,) = tree_field(quality).predict([blocks])
    return {"given": blocks, **of_presets(blocks, jpeg=True), "tree field": of_tree}, np.s_[:, :]


def of_holes(clean, kind, rng):
    holed = with_holes(clean, Kind(kind)).astype(float)
    gaps = np.isnan(holed)
    filled = inpaint_biharmonic(np.where(gaps, 0, holed) / 255, gaps) * 255
    return {"given": np.where(gaps, 128, holed), "restore": restore(holed), "biharmonic": filled}, np.s_[:, :]


def of_blur(clean, kernel, rng):
    blurred = Blur(kernel, noise=2.0)(clean, rng).astype(float)
    found = {"given": blurred, "restore": restore(blurred, kernel=kernel)}
    found["level given"] = restore(blurred, kernel=kernel, noise=2.0)
    tries = [255 * wiener(blurred / 255, kernel, balance) for balance in BALANCES]
    return found | {"Wiener": max(tries, key=lambda image: psnr(image[BORDER], clean[BORDER]))}, BORDER


def of_size(clean, scale, rng):
    small = np.rint(clean.reshape(SIDE // scale, scale, SIDE // scale, scale).mean(axis=(1, 3)))
    splines = zoom(small, scale, order=3, grid_mode=True, mode="nearest")
    found = {"given": small.repeat(scale, axis=0).repeat(scale, axis=1), "restore": restore(small, scale=scale)}
    return found | {"cubic splines": splines}, np.s_[:, :]


def tasks():
    """Yield each task's name, function and parameter."""
    for level in (5, 15, 25, 50):
        yield f"noise of {level}", of_noise, level
    for gain, base in ((0, 25**2), (0, 50**2), (0, 75**2), (1, 4), (4, 25), (16, 100)):
        yield f"camera, variance {gain} x + {base}", of_camera, (gain, base)
    for quality in (5, 10, 20, 40):
        yield f"JPEG of quality {quality}", of_blocks, quality
    for kind, name in enumerate(("20 to 80 % of pixels missing", "bars missing", "scratches")):
        yield name, of_holes, kind
    for name, number in (("square of 9 x 9", 3), ("Gaussian of 1.6", 5), ("movement of 11", 8)):
        yield f"blur by a {name}, noise 2", of_blur, kernels()[number]
    for scale in (2, 3):
        yield f"enlarged {scale} times", of_size, scale


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=2, help="take every so many-th photograph")
    parser.add_argument("--only", default="", help="run the tasks whose names begin with this text")
    args = parser.parse_args()
    images = test_images(args.every)
    print(f"{len(images)} photographs, PSNR in dB")
    for name, damage, parameter in tasks():
        if not name.startswith(args.only):
            continue
        start, scores = time.process_time(), {}
        for i, clean in enumerate(images):
            found, part = damage(clean, parameter, np.random.default_rng(i))
            for method, image in found.items():
                scores.setdefault(method, []).append(psnr(image[part], clean[part]))
        means = {method: np.mean(own) for method, own in scores.items()}
        cells = ", ".join(f"{method} {mean:.2f}" for method, mean in means.items())
        print(f"{name:<32} {cells}  ({time.process_time() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
