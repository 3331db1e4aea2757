"""Predict one image larger than memory tile by tile, and compare with the whole image if it fits.

    python benchmarks/speed/large_images.py [--size 2048] [--inference alpha_expansion] [--compare] [--result FILE]
    python benchmarks/speed/large_images.py --inference bp [--coupling 0.3]
    python benchmarks/speed/large_images.py --field labels        # RegressionTreeFieldClassifier
    python benchmarks/speed/large_images.py --field values        # RegressionTreeField

The image is a memory map of four channels of bytes: noisy blocks of four classes. The field is trained on a small image
of the same kind. For two classes (--n-classes 2), tiles prove that their labels equal the labels of the whole image.
The values of ``--field values`` are the first channel without noise.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from sklearn_crf import DRFClassifier, RegressionTreeField, RegressionTreeFieldClassifier
from sklearn_crf.large_images import predict_in_tiles
from sklearn_crf.learning import PseudolikelihoodTraining

ROWS = 256


def truth(start, stop, width, n_classes):
    rows, columns = np.mgrid[start:stop, 0:width]
    return ((rows // 32 + columns // 40) % n_classes).astype(np.uint8)


def strip(start, stop, width, n_classes):
    """Return rows of the image, and their labels."""
    y = truth(start, stop, width, n_classes)
    noise = np.random.default_rng(start + 1).normal(100, 40, size=(*y.shape, n_classes)).astype(np.float32)
    return np.clip(noise + 50 * (y[..., np.newaxis] == np.arange(n_classes)), 0, 255).astype(np.uint8), y


def write(path, size, n_classes):
    shape = (size, size, n_classes)
    image = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    for start in range(0, size, ROWS):
        image[start : start + ROWS] = strip(start, min(start + ROWS, size), size, n_classes)[0]


def clean(y):
    """Return the values of the first channel without noise."""
    return (100 + 50 * (y == 0)).astype(np.float32)


def trained(kind, n_classes, coupling):
    X, y = strip(0, 96, 120, n_classes)
    if kind == "values":
        return RegressionTreeField(random_state=0).fit(X[np.newaxis], clean(y)[np.newaxis])
    if kind == "labels":
        return RegressionTreeFieldClassifier(classes=range(n_classes), random_state=0).fit(X[np.newaxis], y[np.newaxis])
    plain = PseudolikelihoodTraining(edge_scale=1)
    field = DRFClassifier(learning=plain, inference="map", edge_features="constant", classes=range(n_classes))
    field = field.fit(X[np.newaxis], y[np.newaxis])
    field.edge_coef_ = coupling * field.edge_coef_
    return field


def mean_difference(out, other, size):
    """Return the mean difference, by blocks of rows, since the whole image may not fit into memory."""
    blocks = [slice(top, min(top + ROWS, size)) for top in range(0, size, ROWS)]
    return float(np.average([other(out[own], own) for own in blocks], weights=[own.stop - own.start for own in blocks]))


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=2048, help="number of rows and of columns")
    parser.add_argument("--n-classes", type=int, default=4)
    parser.add_argument("--field", choices=["scores", "labels", "values"], default="scores", help="what is predicted")
    parser.add_argument("--inference", default="alpha_expansion", help="inference for --field scores")
    parser.add_argument("--coupling", type=float, default=1.0, help="factor by which edge weights are multiplied")
    parser.add_argument("--tile", type=int, default=512)
    parser.add_argument("--margin", type=int, default=16)
    parser.add_argument("--compare", action="store_true", help="predict the whole image as well")
    parser.add_argument("--bound", action="store_true", help="bound the difference in score, by trws")
    parser.add_argument("--result", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    size, n_classes = arguments.size, arguments.n_classes
    field = trained(arguments.field, n_classes, arguments.coupling)
    are_values = arguments.field == "values"
    options = {"tile": arguments.tile, "margin": arguments.margin}
    own = {"inference": arguments.inference} if arguments.field == "scores" else {}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "image.npy", size, n_classes)
        image = np.load(Path(folder) / "image.npy", mmap_mode="r")
        dtype = np.float32 if are_values else np.uint8
        out = np.lib.format.open_memmap(Path(folder) / "labels.npy", mode="w+", dtype=dtype, shape=(size, size))
        before, start = peak(), time.process_time()
        found = predict_in_tiles(field, image, out, **options, **own)
        figures = {
            "size": size,
            "n_classes": n_classes,
            "field": arguments.field,
            **own,
            "cpu_seconds": round(time.process_time() - start, 1),
            "peak_gb_before": round(before, 2),
            "peak_gb": round(peak(), 2),
            "image_gb_as_float64": round(image.size * 8 / 2**30, 1),
            "largest_margin": int(found.margins.max()),
        }

        def expected(rows):
            return truth(rows.start, rows.stop, size, n_classes)

        if are_values:
            squares = mean_difference(out, lambda part, rows: np.mean((part - clean(expected(rows))) ** 2), size)
            figures |= {
                "residual": found.residual,
                "difference_bound": found.difference,
                "rmse": round(squares**0.5, 3),
            }
        else:
            wrong = mean_difference(out, lambda part, rows: np.mean(part != expected(rows)), size)
            figures |= {"certified": found.certified, "open_pixels": found.n_open, "wrong_share": round(wrong, 6)}
        if arguments.bound:
            figures["gap"] = predict_in_tiles(field, image, inference="trws", bound=True, **options).gap
        if arguments.compare:
            whole = field.predict(np.asarray(image)[np.newaxis], **own)[0]
            if are_values:
                figures["rms_from_whole"] = float(np.sqrt(np.mean((whole - out) ** 2)))
            else:
                figures["pixels_unlike_whole"] = int(np.count_nonzero(whole != out))
            figures["peak_gb_whole"] = round(peak(), 2)
    for name, value in figures.items():
        print(f"{name:22s} {value}")
    if arguments.result:
        arguments.result.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
