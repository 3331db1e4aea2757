"""One image larger than memory: labels tile by tile, beside those of the whole image where that can be run.

    python benchmarks/large_images.py [--size 2048] [--inference alpha_expansion] [--compare] [--result FILE]

The image is a memory map of four channels in bytes: noisy blocks of four classes. The field is trained on a small image
of the same kind. For two classes (--n-classes 2) the labels are proven to be those of the whole image.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from sklearn_crf import DRFClassifier
from sklearn_crf.large_images import predict_in_tiles

ROWS = 256


def truth(start, stop, width, n_classes):
    rows, columns = np.mgrid[start:stop, 0:width]
    return ((rows // 32 + columns // 40) % n_classes).astype(np.uint8)


def strip(start, stop, width, n_classes):
    """Rows of the image, and their labels."""
    y = truth(start, stop, width, n_classes)
    noise = np.random.default_rng(start + 1).normal(100, 40, size=(*y.shape, n_classes)).astype(np.float32)
    return np.clip(noise + 50 * (y[..., np.newaxis] == np.arange(n_classes)), 0, 255).astype(np.uint8), y


def write(path, size, n_classes):
    shape = (size, size, n_classes)
    image = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    for start in range(0, size, ROWS):
        image[start : start + ROWS] = strip(start, min(start + ROWS, size), size, n_classes)[0]


def trained(n_classes):
    X, y = strip(0, 96, 120, n_classes)
    field = DRFClassifier(learning="pl", inference="map", edge_features="constant", classes=range(n_classes))
    return field.fit(X[np.newaxis], y[np.newaxis])


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=2048, help="rows, and columns")
    parser.add_argument("--n-classes", type=int, default=4)
    parser.add_argument("--inference", default="alpha_expansion")
    parser.add_argument("--tile", type=int, default=512)
    parser.add_argument("--margin", type=int, default=16)
    parser.add_argument("--compare", action="store_true", help="predict the whole image as well")
    parser.add_argument("--bound", action="store_true", help="bound the difference in score, by trws")
    parser.add_argument("--result", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    size, n_classes = arguments.size, arguments.n_classes
    field = trained(n_classes)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "image.npy", size, n_classes)
        image = np.load(Path(folder) / "image.npy", mmap_mode="r")
        out = np.lib.format.open_memmap(Path(folder) / "labels.npy", mode="w+", dtype=np.uint8, shape=(size, size))
        before, start = peak(), time.process_time()
        options = {"tile": arguments.tile, "margin": arguments.margin, "inference": arguments.inference}
        found = predict_in_tiles(field, image, out, **options)
        figures = {
            "size": size,
            "n_classes": n_classes,
            "inference": arguments.inference,
            "cpu_seconds": round(time.process_time() - start, 1),
            "peak_gb_before": round(before, 2),
            "peak_gb": round(peak(), 2),
            "image_gb_as_float64": round(image.size * 8 / 2**30, 1),
            "certified": found.certified,
            "open_pixels": found.n_open,
            "largest_margin": int(found.margins.max()),
            "wrong_share": round(
                float(
                    np.mean(
                        [
                            np.mean(out[top : top + ROWS] != truth(top, min(top + ROWS, size), size, n_classes))
                            for top in range(0, size, ROWS)
                        ]
                    )
                ),
                6,
            ),
        }
        if arguments.bound:
            figures["gap"] = predict_in_tiles(
                field, image, tile=arguments.tile, margin=arguments.margin, inference="trws", bound=True
            ).gap
        if arguments.compare:
            whole = field.predict(np.asarray(image)[np.newaxis], inference=arguments.inference)[0]
            figures["pixels_unlike_whole"] = int(np.count_nonzero(whole != out))
            figures["peak_gb_whole"] = round(peak(), 2)
    for name, value in figures.items():
        print(f"{name:22s} {value}")
    if arguments.result:
        arguments.result.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
