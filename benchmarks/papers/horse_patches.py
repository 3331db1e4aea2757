"""Patches that are informative of horses: fields without edges on the thesis's features (Fig. 35 of Jancsary 2012).

    SKLEARN_CRF_DATA=folder python benchmarks/papers/horse_patches.py [--reduction 4] [--json horse_patches.json]

A model of single pixels is trained on three quarters of the training images of ``horses.py``, and evaluated on the last
quarter. Its features are the masks of patches that are laid over the images. Test images are not used. One property of
the patches is changed at a time: their number, their size, the largest distance of their centres from the boundary, the
largest correlation of two patches, whether a patch is laid over the image that it was taken from, and the strength of
the penalty. Sizes and distances are in pixels of the images before reduction.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from horses import THESIS_PATCHES, THESIS_SIZE, reduced, split
from support.bundles import load_weizmann_horses
from support.record import read_record, write_record

from sklearn_crf import TRWCRF, Example
from sklearn_crf.preprocessing import PatchOverlays

PLAIN = {"patches": THESIS_PATCHES, "size": THESIS_SIZE, "distance": 1, "likeness": 0.8, "own": False, "strength": 1e-4}
CHANGES = (
    {},
    {"strength": 1e-8},
    {"own": True},
    {"likeness": 0.5},
    {"patches": 300},
    {"patches": 2000, "likeness": 0.9},
    {"distance": 13},
    {"distance": 25},
    {"distance": 40},
    {"distance": 64},
    {"size": 80},
    {"size": 112},
    {"size": 144},
    {"size": 80, "distance": 40},
    {"size": 112, "distance": 56},
)


def run(patches, parts, options):
    """Return accuracies without edges, and processor seconds."""
    start = time.process_time()
    (images, masks), (held_out, masks_held_out) = parts
    overlays = PatchOverlays(
        patches["size"] // options.reduction,
        patches["patches"],
        max_correlation=patches["likeness"],
        max_distance=max(1, patches["distance"] // options.reduction),
        random_state=0,
    )
    features = (
        overlays.fit(images, masks).transform(images) if patches["own"] else overlays.fit_transform(images, masks)
    )
    X, y = [Example(x, []) for x in features], [mask.ravel() for mask in masks]
    model = TRWCRF(C=1 / (patches["strength"] * sum(map(len, y))), max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    X_held_out = [Example(x, []) for x in overlays.transform(held_out)]
    return {
        "held out": float(model.score(X_held_out, [mask.ravel() for mask in masks_held_out])),
        "training": float(model.score(X, y)),
        "n_patches": overlays.n_patches_,
        "n_iter": model.n_iter_,
        "seconds": time.process_time() - start,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reduction", type=int, default=4)
    parser.add_argument("--every", type=int, default=1, help="use every so many-th image")
    parser.add_argument(
        "--split", choices=("random", "order"), default="random", help="split of the images into training and test part"
    )
    parser.add_argument("--json", type=Path, default=Path("horse_patches.json"), help="file for results")
    options = parser.parse_args()
    bunch = load_weizmann_horses(Path(os.environ["SKLEARN_CRF_DATA"]) / "weizmann_horses")
    train, _ = split(bunch, options)
    n_learned = 3 * len(train) // 4
    parts = []
    for chosen in (train[:n_learned], train[n_learned:]):
        chosen = chosen[:: options.every]
        images = [reduced(bunch.data[i][..., 0] / 255.0, options.reduction) for i in chosen]
        masks = [(reduced(bunch.target[i].astype(float), options.reduction) >= 0.5).astype(np.int32) for i in chosen]
        parts.append((images, masks))
    record = read_record(options.json, [])
    settings = {name: getattr(options, name) for name in ("reduction", "every", "split")}
    print(f"{'held out %':>10s}{'training %':>12s}{'seconds':>9s}  patches")
    for change in CHANGES:
        known = [row for row in record if row["settings"] == settings and row["change"] == change]
        if not known:
            known = [{"settings": settings, "change": change, **run(PLAIN | change, parts, options)}]
            record += known
            write_record(options.json, record)
        what = ", ".join(f"{name} {value}" for name, value in change.items()) or f"plain: {PLAIN}"
        row = known[0]
        numbers = f"{100 * row['held out']:10.2f}{100 * row['training']:12.2f}{row['seconds']:9.0f}"
        print(f"{numbers}  {what}", flush=True)


if __name__ == "__main__":
    main()
