"""Test a field trained on BSDS500 on images from elsewhere: the grey images of scikit-image at full size.

The field is trained on clean images of BSDS500 at half scale, with Gaussian noise of 25 that is not clipped. Nothing is
chosen on the test images. BM3D and NL-means are given the noise level; the strength of NL-means is chosen on images of
the validation part of BSDS500. All methods restore the same noisy images.

    python benchmarks/quality/rtf_elsewhere.py
    python benchmarks/quality/rtf_elsewhere.py --images 40 --names camera text
    python benchmarks/quality/rtf_elsewhere.py --table       # print all stored results

Images of BM3D and NL-means, the field and each row are stored in `--folder`, and an interrupted run continues.
"""

import argparse
import json
from pathlib import Path

import _path  # noqa: F401  finds the support package
import joblib
import numpy as np
from support.denoised_images import RIVALS, noisy_and_clean, with_noise
from support.record import write_record
from support.restoration import by_default_filters, clean_images, fit_on, kept_field, measures

from sklearn_crf.rtf import GaussianNoise

NAMES = ("camera", "coins", "brick", "grass", "gravel", "text", "moon", "page", "astronaut", "chelsea", "coffee")
LARGEST = 512

# A field's filters, by the name of the bank.
FILTERS = {"auto": "default filters", "groups": "groups too"}


def elsewhere(name):
    """Return the middle of a grey image of scikit-image, at most 512 pixels a side."""
    import skimage.data
    from skimage.color import rgb2gray

    image = getattr(skimage.data, name)()
    image = 255 * rgb2gray(image) if image.ndim == 3 else image
    corner = [max(0, (length - LARGEST) // 2) for length in image.shape]
    return image[corner[0] : corner[0] + LARGEST, corner[1] : corner[1] + LARGEST].astype(np.float32)


def trained(args):
    path = args.folder / f"field_{args.sigma}_{args.images}_{args.window}_{args.filters}.joblib"
    if not path.exists():
        options = {"window": args.window, "filter_bank": args.filters, "corruption": GaussianNoise(args.sigma)}
        field = by_default_filters("mse", args, **options)
        fit_on(field, np.zeros(2), clean_images("train", args.images), None, path)
    return kept_field(path)


def strength_of_nl_means(args):
    path = args.folder / f"strength_{args.sigma}.json"
    if not path.exists():
        method, strengths = RIVALS["NL-means"]
        tried, clean = noisy_and_clean("val", args.sigma, 4, seed=2)
        values = [measures([method(x, args.sigma, s) for x in tried], clean)[:, 0].mean() for s in strengths]
        write_record(path, {"strength": strengths[int(np.argmax(values))]})
    return json.loads(path.read_text(encoding="utf-8"))["strength"]


def rival_image(method, name, noisy, args, strength):
    path = args.folder / f"{method}_{name}_{args.sigma}.joblib"
    if not path.exists():
        found = RIVALS[method][0](noisy, args.sigma, strength)
        joblib.dump(np.asarray(found, dtype=np.float32), path)
    return joblib.load(path)


def keep_image(name, args):
    """Compute and write the row of one image."""
    path = args.folder / f"row_{name}_{args.sigma}_{args.images}_{args.filters}.json"
    if path.exists():
        return
    clean = elsewhere(name)
    noisy = with_noise(clean, args.sigma, np.random.default_rng(NAMES.index(name)))
    images = {
        "NL-means": rival_image("NL-means", name, noisy, args, strength_of_nl_means(args)),
        "BM3D": rival_image("BM3D", name, noisy, args, 1.0),
    }
    if args.rivals:
        return
    field, seconds = trained(args)
    images["field"] = field.set_params(verbose=0).predict([noisy])[0]
    figures = {method: float(measures([image], [clean])[0, 0].round(3)) for method, image in images.items()}
    options = {"training_images": args.images, "window": args.window, "filters": args.filters}
    options["training_seconds"] = seconds.round(1).tolist()
    write_record(path, {"name": name, "sigma": args.sigma, "shape": list(clean.shape), "psnr": figures} | options)


def row_of(name, filters, args):
    path = args.folder / f"row_{name}_{args.sigma}_{args.images}_{filters}.json"
    return json.loads(path.read_text(encoding="utf-8"))["psnr"] if path.exists() else None


def print_rows(args):
    """Print and keep the rows of images that have been restored by every kind of field in the folder."""
    found = {filters: {name: row_of(name, filters, args) for name in NAMES} for filters in FILTERS}
    found = {filters: rows for filters, rows in found.items() if any(rows.values())}
    names = [name for name in NAMES if found and all(rows[name] for rows in found.values())]
    if not names:
        print(f"no figures in {args.folder}")
        return
    rivals = next(iter(found.values()))
    columns = [[rows[name]["field"] for name in names] for rows in found.values()]
    columns += [[rivals[name][method] for name in names] for method in ("BM3D", "NL-means")]
    values = np.array(columns).T
    n_fields = len(found)
    table = [["image", *(FILTERS[own] for own in found), "BM3D", "NL-means", *("less BM3D" for _ in found)]]
    for name, row in zip([*names, "mean"], [*values, values.mean(axis=0)], strict=True):
        less = [f"{own - row[n_fields]:+.2f}" for own in row[:n_fields]]
        table.append([name, *(f"{value:.2f}" for value in row), *less])
    for cells in table:
        print(f"{cells[0]:<12}" + "".join(f"{cell:>17}" for cell in cells[1:]))
    write_record(args.folder / "table_psnr.json", table)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--sigma", type=int, default=25)
    parser.add_argument("--images", type=int, default=200, help="training images")
    parser.add_argument("--window", type=int, default=3)
    parser.add_argument("--depth", type=int)
    parser.add_argument("--filters", choices=tuple(FILTERS), default="groups", help="what the field sees")
    parser.add_argument("--rivals", action="store_true", help="only run the other methods")
    parser.add_argument("--table", action="store_true", help="only print stored results")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("rtf_elsewhere"), help="folder for all results")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in () if args.table else args.names:
        keep_image(name, args)
    print_rows(args)


if __name__ == "__main__":
    main()
