"""Denoising of the 68 test images of Roth and Black at full size, compared with BM3D and published figures of DnCNN.

Images are grey, with Gaussian noise that is not clipped. Fields are trained on the training part of BSDS500 at full
size, from a folder of JPEG files; none of the 68 images is in this part. (The 68 images are in the validation part.
Images of this part at half size were used to choose the default filters of fields.) The published values are from
Table II of K. Zhang et al., "Beyond a Gaussian denoiser", IEEE Transactions on Image Processing, 2017, for networks
trained for one noise level.

    python benchmarks/peers/rtf_bsd68.py --training BSDS500/data/images/train
    python benchmarks/peers/rtf_bsd68.py --training BSDS500/data/images/train --sigma 25 --jobs 2
    # BM3D on a quarter of the images
    python benchmarks/peers/rtf_bsd68.py --training BSDS500/data/images/train --rival-images 17
    python benchmarks/peers/rtf_bsd68.py --rivals        # only BM3D
    python benchmarks/peers/rtf_bsd68.py --table         # print all stored results

Images of BM3D, fields and rows are stored in `--folder`, and an interrupted run continues.
"""

import argparse
import json
import os
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from PIL import Image
from support.denoised_images import denoised_by, with_noise
from support.record import write_record
from support.restoration import PIXELS_OF_ROUND, by_default_filters, fit_on, keep_row, kept_field, measures, predictions

from sklearn_crf.rtf import GaussianNoise

# Mean PSNR of BM3D and DnCNN by noise level.
PUBLISHED = {15: (31.07, 31.73), 25: (28.57, 29.23), 50: (25.62, 26.23)}
LUMA = np.array([0.299, 0.587, 0.114])


def test_images():
    """Return all images: every fourth image from the first on, then every fourth from the second on, and so on."""
    archive = np.load(Path(os.environ["SKLEARN_CRF_DATA"]) / "denoise_test" / "bsd68.npz")
    order = [name for k in range(4) for name in archive.files[k::4]]
    return [archive[name].astype(np.float32) for name in order]


def training_images(folder):
    """Return the rounded luma of all JPEG files of a folder."""
    paths = sorted(folder.glob("*.jpg"))
    if not paths:
        raise FileNotFoundError(f"--training must be a folder of JPEG files, {str(folder)!r} has none")
    return [np.rint(np.asarray(Image.open(path).convert("RGB")) @ LUMA).astype(np.float32) for path in paths]


def trained(sigma, args):
    """Return a field on the default filters and the seconds of its training; each round draws new noise."""
    path = args.folder / f"field_{sigma}_{args.window}_{args.pixels}.joblib"
    if not path.exists():
        corruption = GaussianNoise(sigma)
        field = by_default_filters("psnr", args, args.pixels, window=args.window, corruption=corruption)
        fit_on(field, np.zeros(2), training_images(args.training), None, path)
    field, seconds = kept_field(path)
    return field.set_params(verbose=0), seconds


def run(sigma, args):
    clean = test_images()
    rng = np.random.default_rng(sigma)
    noisy = [with_noise(y, sigma, rng) for y in clean]
    options = argparse.Namespace(sigma=sigma, folder=args.folder)
    n = args.rival_images
    images, seconds, _ = denoised_by("BM3D", "bsd68", noisy[:n], options)
    rival = measures(images, clean[:n])
    keep_row(args.folder, sigma, False, "BM3D", rival, rival, seconds=seconds)
    if args.rivals:
        return
    field, training = trained(sigma, args)
    images, least = predictions(field, [x[..., None] for x in noisy])
    rows = measures(images, clean)
    others = {
        "options": {key: getattr(args, key) for key in ("window", "pixels", "jobs")},
        "training_seconds": training.round(1).tolist(),
        "leaves": [len(part) for part in field.precisions_],
        "psnr_of_all": round(float(rows[:, 0].mean()), 4),
        "n_of_all": len(rows),
    }
    keep_row(args.folder, sigma, False, "field", rows[:n], rival, seconds=least, **others)


def print_table(folder):
    """Print and keep the table of all noise levels that have rows of a field."""
    table = [["noise", "field", "BM3D, published", "DnCNN, published", "BM3D, measured on", "field less BM3D there"]]
    table[0] += ["seconds an image, field", "BM3D", "training, s of the processor"]
    for sigma, published in PUBLISHED.items():
        paths = [folder / f"row_{sigma}_full_{method}.json" for method in ("field", "BM3D")]
        if all(path.exists() for path in paths):
            field, rival = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
            cells = [str(sigma), *(f"{value:.2f}" for value in (field["psnr_of_all"], *published))]
            cells += [f"{rival['psnr']:.2f} ({rival['n_images']} images)", f"{field['to_rival']:+.2f}"]
            cells += [f"{row['seconds']:.2f}" for row in (field, rival)]
            table.append([*cells, f"{field['training_seconds'][1]:.0f}"])
    for cells in table:
        print("".join(f"{cell:>25}" for cell in cells))
    if len(table) > 1:
        write_record(folder / "table_psnr.json", table)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--training", type=Path, default=Path("train"), help="folder of JPEG files for training")
    parser.add_argument("--sigma", nargs="+", type=int, choices=PUBLISHED, default=list(PUBLISHED))
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--depth", type=int)
    parser.add_argument("--pixels", type=int, default=PIXELS_OF_ROUND, help="pixels per training round")
    parser.add_argument("--rival-images", type=int, default=68, help="number of images for BM3D")
    parser.add_argument("--rivals", action="store_true", help="only run BM3D")
    parser.add_argument("--table", action="store_true", help="only print stored results")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("rtf_bsd68"), help="folder for all results")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for sigma in () if args.table else args.sigma:
        run(sigma, args)
    print_table(args.folder)


if __name__ == "__main__":
    main()
