"""Weizmann horses: relaxed likelihood, piecewise and pseudolikelihood training (Fig. 35 of Jancsary 2012).

    SKLEARN_CRF_DATA=folder python benchmarks/papers/horses.py            # all results that are not yet in --json
    SKLEARN_CRF_DATA=folder python benchmarks/papers/horses.py relaxation --strengths 1e-4
    SKLEARN_CRF_DATA=folder python benchmarks/papers/horses.py --every 2 --reduction 4        # half the images, smaller
    SKLEARN_CRF_DATA=folder python benchmarks/papers/horses.py --full-size  # images as large as in the thesis

The data are 200 training and 128 test images in grey. The features of pixels come from patches at the boundaries of
training horses. The mask of each patch is laid over the image at the place with the largest normalised
cross-correlation, and multiplied by this correlation. Horizontal and vertical edges have two features: a constant and
the difference of grey values. MPLP predicts the labels. The scores of three labelings are also printed: the true
labeling, only background, and only horse. If a constant labeling has a higher score than the true labeling, the weights
are wrong; otherwise, errors are due to inference.

Differences from the thesis: images are reduced by block means, and so are patches. Patches have four sizes (50 pixels
in the thesis). The sizes were chosen by the accuracy without edges on 25 held-out images of 100 training images: 85.0 %
with 1,000 patches of the smallest size, and 89.6 % with about 500 patches of each size. A patch is not laid over the
image that it was taken from. The default entropy is tree-reweighted; ``--entropy trivial`` changes it. As in the
thesis, the split is random (the first permutation of NumPy's default generator with seed 0). ``--split order`` trains
on the first 200 images, which are less similar to the other images.

``--full-size`` uses images of the original size, and the features of the thesis: 1,000 patches of 50 x 50 pixels
(``PatchOverlays``), whose entries are never stored. The peak memory is printed. MPLP then makes 50 iterations, and only
labels every 16th training image. The labels of ``predict`` are evaluated in addition to the labels of MPLP.
``--thesis-patches`` uses these patches at any reduction.

``--size 48 80 112 144 --patches 500`` uses 500 patches of each of four sizes. ``--distance`` is the largest distance of
the centres of patches from a boundary, by default half the size of a patch. Records without a distance used patches
with their centre on a boundary (``--distance 1``). ``--held-out`` evaluates on a quarter of the training images, which
are then not used for training, so that options can be chosen without test images. ``--blur 2`` adds edge features: the
differences of the image blurred by two pixels; ``--blur 3 6`` adds differences of two blurred images. ``--place 4``
adds pixel features: products of cosines of row and column, with up to three half waves over the image.
``--brightness`` adds pixel features: curves of the brightness of a pixel and its surroundings, relative to the image,
its border and its middle. ``--coarse 4`` first trains the same field on every fourth row and column of the training
images, for up to ``--coarse-iter`` iterations, and starts from its weights.
"""

import argparse
import functools
import os
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
import scipy.sparse as sp
from scipy.ndimage import gaussian_filter
from support.bundles import load_weizmann_horses
from support.certified import certified_accuracy, run_missing
from support.memory import peak_megabytes
from support.named_learning import named_learning
from support.patch_masks import PatchMasks
from support.pixel_operators import Curves, EveryPixels, PlaceCosines, SideBySide

from sklearn_crf import TRWCRF, Example
from sklearn_crf.graphs import lattice
from sklearn_crf.potentials import PairwiseTables
from sklearn_crf.preprocessing import PatchOverlays

ESTIMATORS = ("relaxation", "piecewise", "shared_pieces", "pseudolikelihood", "without edges")
# Heights and widths of patches, in pixels of the images before they are reduced.
SIZES = (48, 80, 112, 144)
# Knots of the brightness curves, in standard deviations of the image.
BRIGHTNESS = np.linspace(-2, 2, 17)
# The thesis's patches.
THESIS_SIZE, THESIS_PATCHES = 50, 1000


def reduced(image, factor):
    """Return the means of square blocks; incomplete blocks are cut off."""
    height, width = (n // factor for n in image.shape)
    return image[: height * factor, : width * factor].reshape(height, factor, width, factor).mean(axis=(1, 3))


def load(options):
    """Return functions that make the examples of the training part and of the test part, each with its labels.

    Graphs and edge features of the test part are thus not in memory during training. Labels of the training part have
    the shape of its images.
    """
    bunch = load_weizmann_horses(Path(os.environ["SKLEARN_CRF_DATA"]) / "weizmann_horses")
    images = [reduced(image[..., 0] / 255.0, options.reduction) for image in bunch.data]
    masks = [reduced(mask.astype(float), options.reduction) >= 0.5 for mask in bunch.target]
    train, test = split(bunch, options)
    if options.held_out:
        n_learned = 3 * len(train) // 4
        train, test = train[:n_learned], train[n_learned:]
    train, test = train[:: options.every], test[:: options.every]
    y = [masks[i].astype(np.int32) for i in train]
    y_test = [masks[i].astype(np.int32).ravel() for i in test]
    if options.full_size or options.thesis_patches:
        of_train, of_test = overlays_of(images, masks, train, test, options)
        return (
            functools.partial(examples, images, train, of_train, options),
            y,
            functools.partial(examples, images, test, of_test, options),
            y_test,
        )
    patches = [PatchMasks(size // options.reduction, options.patches) for size in SIZES]
    for part in patches:
        part.fit([images[i] for i in train], [masks[i] for i in train])

    def features(i, without=None):
        return sp.hstack([part.transform(images[i], without) for part in patches], format="csr")

    of_train = [features(i, k) for k, i in enumerate(train)]
    return (
        functools.partial(examples, images, train, of_train, options),
        y,
        lambda: examples(images, test, map(features, test), options),
        y_test,
    )


def overlays_of(images, masks, train, test, options):
    """Return overlays of patches on the training images and on the test images."""
    overlays = PatchOverlays(
        [size // options.reduction for size in options.size],
        options.patches,
        max_distance=[max(1, min(options.distance, size // 2) // options.reduction) for size in options.size],
        random_state=0,
        n_jobs=options.jobs,
    )
    of_train = overlays.fit_transform([images[i] for i in train], [masks[i] for i in train])
    of_test = overlays.transform([images[i] for i in test])
    print(f"{overlays.n_patches_} patches, {peak_megabytes():.0f} MB at most so far", flush=True)
    return of_train, of_test


def split(bunch, options):
    if options.split == "order":
        return bunch.train, bunch.test
    order = np.random.default_rng(0).permutation(len(bunch.data))
    return order[: len(bunch.train)], order[len(bunch.train) :]


def examples(images, part, features, options, step=1):
    """Return examples of images with their pixels' features, at every ``step`` rows and columns."""
    return [example(images[i], x, options, step) for i, x in zip(part, features, strict=True)]


def example(image, features, options, step):
    if step > 1:
        features = EveryPixels(features, image.shape, step)
    if options.place:
        features = SideBySide(features, PlaceCosines(image.shape, options.place, step))
    if options.brightness:
        numbers = brightness_of(image, options.reduction)[:, ::step, ::step]
        features = SideBySide(features, Curves(numbers.reshape(len(numbers), -1), BRIGHTNESS))
    graph = lattice(image[::step, ::step].shape)
    seen = [np.ones(graph.n_edges), difference(image[::step, ::step], graph)]
    for blur in options.blur:
        width = blur / options.reduction
        # a difference over about twice the blur, instead of one pixel
        blurred = gaussian_filter(image, width)[::step, ::step]
        seen.append(max(2 * width / step, 1) * difference(blurred, graph))
    edge_features = np.stack(seen, axis=1).astype(np.float32)
    return Example(features, graph, edge_features, edge_type=graph.lattice_edge_type)


def brightness_of(image, reduction):
    """Return the pixels' brightness and its local deviation, in standard deviations of the image."""
    fine, middle, coarse = (gaussian_filter(image, blur / reduction) for blur in (2, 4, 8))
    contrast = np.sqrt(np.maximum(gaussian_filter(image**2, 4 / reduction) - middle**2, 0))
    height, width = image.shape
    margin = max(1, min(image.shape) // 12)
    is_border = np.pad(np.zeros((height - 2 * margin, width - 2 * margin), dtype=bool), margin, constant_values=True)
    centre = image[height // 3 : 2 * height // 3, width // 3 : 2 * width // 3]
    numbers = [fine - image.mean(), coarse - image.mean(), contrast]
    for part in (image[is_border], centre):
        numbers += [middle - part.mean(), np.abs(middle - np.median(part))]
    return np.stack(numbers) / max(image.std(), 0.05)


def difference(image, graph):
    tail, head = image.ravel()[graph.edges].T
    return np.abs(tail - head)


def run(name, strength, data, options):
    make_train, masks, make_test, y_test = data
    y = [mask.ravel() for mask in masks]
    without_edges, strengths = name == "without edges", (strength, options.edge_strength)
    start = time.process_time()
    model = TRWCRF(
        learning=named_learning("exact" if without_edges else name, entropy=options.entropy),
        warm_start=True,
        n_jobs=options.jobs,
    )
    if options.coarse > 1 and not without_edges:
        model.set_params(max_iter=options.coarse_iter)
        every = slice(None, None, options.coarse)
        fit(model, make_train(step=options.coarse), [mask[every, every].ravel() for mask in masks], *strengths)
        print(f"{time.process_time() - start:.0f} s for every {options.coarse} rows and columns", flush=True)
    X = make_train()
    if without_edges:
        X = [Example(x.node_features, []) for x in X]
    fit(model.set_params(max_iter=options.max_iter), X, y, *strengths)
    result = {"seconds": time.process_time() - start, "n_iter": model.n_iter_, "megabytes": peak_megabytes()}
    print(f"{name}, C={strength:g}: {result['seconds']:.0f} s, {result['megabytes']:.0f} MB at most", flush=True)
    X_test = make_test()
    if without_edges:
        X_test = [Example(x.node_features, []) for x in X_test]
    start = time.process_time()
    result["default labels"] = float(model.score(X_test, y_test))
    result["seconds of default labels"] = time.process_time() - start
    print(f"right by the labels of predict: {100 * result['default labels']:.2f} %", flush=True)
    result["scores"] = scores_per_pixel(model, X_test, y_test)
    print("score per pixel:", ", ".join(f"{what} {value:.3f}" for what, value in result["scores"].items()), flush=True)
    sweeps, every = (50, 16) if options.full_size else (200, 4)
    result["test"] = certified_accuracy(model, X_test, y_test, sweeps)
    result["train"] = certified_accuracy(model, X[::every], y[::every], sweeps)
    return result


def fit(model, X, y, strength, edge_strength):
    # The thesis divides the loss by the number of variables.
    n_pixels = sum(map(len, y))
    tables = "full" if edge_strength is None else PairwiseTables(C=1 / (edge_strength * n_pixels))
    model.set_params(C=1 / (strength * n_pixels), pairwise=tables)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)


def scores_per_pixel(model, X, y):
    """Return the mean scores of the true labeling and of constant labelings, per pixel.

    If a constant labeling has a higher score than the true labeling, the weights are wrong.
    """
    labelings = {
        "truth": y,
        "background": [np.zeros_like(part) for part in y],
        "horse": [np.ones_like(part) for part in y],
    }
    sizes = [len(part) for part in y]
    return {what: float(np.mean(-model.energy(X, labels) / sizes)) for what, labels in labelings.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("estimators", nargs="*", help=f"of {', '.join(ESTIMATORS)}, or report")
    parser.add_argument(
        "--strengths", type=float, nargs="+", default=[1e-4, 1e-8], help="C, in the normalisation of the thesis"
    )
    parser.add_argument(
        "--edge-strength", type=float, help="strength of the penalty on edges; default: the penalty of all weights"
    )
    parser.add_argument("--reduction", type=int, default=5)
    parser.add_argument(
        "--full-size", action="store_true", help="full-size images, with the number of patches of the thesis"
    )
    parser.add_argument("--thesis-patches", action="store_true", help="patches as with --full-size, on reduced images")
    parser.add_argument("--size", type=int, nargs="+", default=[THESIS_SIZE], help="side of patches in pixels")
    parser.add_argument(
        "--distance", type=int, default=25, help="largest distance of the centres of patches from boundaries"
    )
    parser.add_argument("--held-out", action="store_true", help="evaluate on held-out training images")
    parser.add_argument(
        "--patches",
        type=int,
        default=None,
        help="number of patches of each size; default: 300, or 1,000 with the patches of the thesis",
    )
    parser.add_argument("--every", type=int, default=1, help="use every so many-th image")
    parser.add_argument(
        "--split", choices=("random", "order"), default="random", help="split of the images into training and test part"
    )
    parser.add_argument("--entropy", choices=("trw", "trivial", "factors"), default="trw")
    parser.add_argument(
        "--blur",
        type=float,
        nargs="+",
        default=[],
        help="also use edge features of the image blurred by so many pixels",
    )
    parser.add_argument(
        "--place", type=int, default=0, help="also use products of so many cosines of row and column as pixel features"
    )
    parser.add_argument("--brightness", action="store_true", help="also use curves of the brightness as pixel features")
    parser.add_argument("--coarse", type=int, default=1, help="first train on every so many-th row and column")
    parser.add_argument("--coarse-iter", type=int, default=50, help="iterations of this first training")
    parser.add_argument("--max-iter", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path("horses.json"), help="file for results")
    options = parser.parse_args()
    if options.full_size:
        options.reduction = 1
    if options.patches is None:
        options.patches = THESIS_PATCHES if options.full_size or options.thesis_patches else 300
    names = ("reduction", "patches", "every", "split", "entropy", "max_iter", "full_size")
    settings = {name: getattr(options, name) for name in names}
    settings |= {name: True for name in ("thesis_patches", "held_out", "brightness") if getattr(options, name)}
    if options.full_size or options.thesis_patches:
        size = options.size[0] if len(options.size) == 1 else options.size
        settings |= {"size": size} if size != THESIS_SIZE else {}
        settings |= {"distance": options.distance} if options.distance > 1 else {}
    settings |= {"blur": options.blur[0] if len(options.blur) == 1 else options.blur} if options.blur else {}
    settings |= {"place": options.place} if options.place else {}
    settings |= {"edge_strength": options.edge_strength} if options.edge_strength is not None else {}
    settings |= {"coarse": [options.coarse, options.coarse_iter]} if options.coarse > 1 else {}
    names = options.estimators or ESTIMATORS
    task = functools.cache(lambda: load(options))
    pairs = [(name, strength) for name in names for strength in options.strengths if name in ESTIMATORS]
    run_missing(lambda name, strength: run(name, strength, task(), options), pairs, settings, options.json)


if __name__ == "__main__":
    main()
