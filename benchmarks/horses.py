"""Weizmann horses by the relaxation, piecewise and pseudolikelihood training (Fig. 35 of Jancsary 2012).

    SKLEARN_CRF_DATA=folder python benchmarks/horses.py                        # all that is not in --json yet
    SKLEARN_CRF_DATA=folder python benchmarks/horses.py relaxation --strengths 1e-4
    SKLEARN_CRF_DATA=folder python benchmarks/horses.py --every 2 --reduction 4        # half the images, smaller
    SKLEARN_CRF_DATA=folder python benchmarks/horses.py --full-size                    # as large as in the thesis

Grey images, 200 to learn from and 128 to test on. Features of a pixel: the masks of patches from the boundaries of
training horses, laid over the image where normalised cross-correlation is best and multiplied by it. Edges, horizontal
and vertical, see a constant and the difference of grey values. Labels are predicted by MPLP. Scores of the truth, of
nothing but background and of nothing but horse tell weights that are wrong from labels that were not found.

What differs from the thesis: images are reduced by block means, and patches with them; patches of four sizes (50
pixels there), chosen by accuracy without edges on 25 held-out images of 100 of the training part: 85.0 % with 1,000 of
the smallest size, 89.6 % with about 500 of each; a patch is not looked for in the image that it was taken from; the
entropy is the tree-reweighted one unless ``--entropy trivial``. The split is at random, as there (the first permutation
of NumPy's default generator, seed 0); ``--split order`` learns from the first 200 images, which are less like the rest.

``--thesis-patches`` takes those of the thesis at any reduction, ``--size 48 80 112 144 --patches 500`` those of several
sizes, with their middles at most half of a patch from a boundary; ``--held-out`` tests on a quarter of the training
images, of which it does not learn, in place of the test images: for questions that are not to be asked of those.
``--blur 2`` gives edges the differences of the image blurred by two pixels besides, at any reduction.

Their middles lie within ``--distance`` pixels of a boundary, half of a patch unless it is given; records without a
distance are of patches with their middle on one, ``--distance 1``.

With ``--full-size`` images stay as they are, with the features of the thesis: 1,000 patches of 50 x 50 pixels
(``PatchOverlays``), whose entries are never stored. The peak of memory is printed. MPLP has 50 iterations then, and one
of 16 training images is labelled. The labels of ``predict`` are counted beside those of MPLP.
"""

import argparse
import functools
import os
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _certified import certified_accuracy, run_missing
from _memory import peak_megabytes
from _named_formulation import named_formulation
from _patch_masks import PatchMasks
from scipy.ndimage import gaussian_filter

from sklearn_crf import TRWCRF, Example
from sklearn_crf.datasets import load_weizmann_horses
from sklearn_crf.graphs import lattice
from sklearn_crf.preprocessing import PatchOverlays

ESTIMATORS = ("relaxation", "piecewise", "shared_pieces", "pseudolikelihood", "without edges")
# Heights and widths of patches, in pixels of the images before they are reduced.
SIZES = (48, 80, 112, 144)
# The thesis's patches.
THESIS_SIZE, THESIS_PATCHES = 50, 1000


def reduced(image, factor):
    """Means of square blocks; what does not fill a block is cut off."""
    height, width = (n // factor for n in image.shape)
    return image[: height * factor, : width * factor].reshape(height, factor, width, factor).mean(axis=(1, 3))


def load(options):
    """Examples and labels of the training part, and a function that makes those of the test.

    So graphs and features of edges of the test are not in memory during training.
    """
    bunch = load_weizmann_horses(Path(os.environ["SKLEARN_CRF_DATA"]) / "weizmann_horses")
    images = [reduced(image[..., 0] / 255.0, options.reduction) for image in bunch.data]
    masks = [reduced(mask.astype(float), options.reduction) >= 0.5 for mask in bunch.target]
    train, test = split(bunch, options)
    if options.held_out:
        n_learned = 3 * len(train) // 4
        train, test = train[:n_learned], train[n_learned:]
    train, test = train[:: options.every], test[:: options.every]
    y, y_test = ([masks[i].astype(np.int32).ravel() for i in part] for part in (train, test))
    if options.full_size or options.thesis_patches:
        of_train, of_test = overlays_of(images, masks, train, test, options)
        X = [example(images[i], x, options) for i, x in zip(train, of_train, strict=True)]
        return X, y, lambda: [example(images[i], x, options) for i, x in zip(test, of_test, strict=True)], y_test
    patches = [PatchMasks(size // options.reduction, options.patches) for size in SIZES]
    for part in patches:
        part.fit([images[i] for i in train], [masks[i] for i in train])

    def features(i, without=None):
        return sp.hstack([part.transform(images[i], without) for part in patches], format="csr")

    X = [example(images[i], features(i, k), options) for k, i in enumerate(train)]
    return X, y, lambda: [example(images[i], features(i), options) for i in test], y_test


def overlays_of(images, masks, train, test, options):
    """Overlays of patches on the images to learn from and to test on."""
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


def example(image, features, options):
    graph = lattice(image.shape)
    seen = [np.ones(graph.n_edges), difference(image, graph)]
    if options.blur:
        # a difference over about twice the blur, in place of one pixel
        blurred = gaussian_filter(image, options.blur / options.reduction)
        seen.append(2 * options.blur / options.reduction * difference(blurred, graph))
    edge_features = np.stack(seen, axis=1).astype(np.float32)
    return Example(features, graph, edge_features, edge_type=graph.lattice_edge_type)


def difference(image, graph):
    tail, head = image.ravel()[graph.edges].T
    return np.abs(tail - head)


def run(name, strength, data, options):
    X, y, make_test, y_test = data
    if without_edges := name == "without edges":
        name, X = "exact", [Example(x.node_features, []) for x in X]
    start = time.process_time()
    # The thesis divides the loss by the number of variables.
    model = TRWCRF(
        C=1 / (strength * sum(map(len, y))),
        formulation=named_formulation(name, entropy=options.entropy),
        max_iter=options.max_iter,
        n_jobs=options.jobs,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
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


def scores_per_pixel(model, X, y):
    """Mean scores of labelings that need no inference: weights under which a constant beats the truth are wrong."""
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
    parser.add_argument("--strengths", type=float, nargs="+", default=[1e-4, 1e-8], help="the thesis's C")
    parser.add_argument("--reduction", type=int, default=5)
    parser.add_argument("--full-size", action="store_true", help="the thesis's size of images, number of patches")
    parser.add_argument("--thesis-patches", action="store_true", help="as with --full-size, images reduced")
    parser.add_argument(
        "--size", type=int, nargs="+", default=[THESIS_SIZE], help="pixels of a side of the thesis's patches"
    )
    parser.add_argument("--distance", type=int, default=25, help="of their middles from boundaries, at most")
    parser.add_argument("--held-out", action="store_true", help="test on held-out training images")
    parser.add_argument("--patches", type=int, default=None, help="of each size; 300, or 1,000 of the thesis's")
    parser.add_argument("--every", type=int, default=1, help="take one image of so many")
    parser.add_argument("--split", choices=("random", "order"), default="random", help="of images into parts")
    parser.add_argument("--entropy", choices=("trw", "trivial", "factors"), default="trw")
    parser.add_argument("--blur", type=float, default=0.0, help="edges also see the image blurred by so many pixels")
    parser.add_argument("--max-iter", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path("horses.json"), help="where results are kept")
    options = parser.parse_args()
    if options.full_size:
        options.reduction = 1
    if options.patches is None:
        options.patches = THESIS_PATCHES if options.full_size or options.thesis_patches else 300
    names = ("reduction", "patches", "every", "split", "entropy", "max_iter", "full_size")
    settings = {name: getattr(options, name) for name in names}
    settings |= {name: True for name in ("thesis_patches", "held_out") if getattr(options, name)}
    if options.full_size or options.thesis_patches:
        size = options.size[0] if len(options.size) == 1 else options.size
        settings |= {"size": size} if size != THESIS_SIZE else {}
        settings |= {"distance": options.distance} if options.distance > 1 else {}
    settings |= {"blur": options.blur} if options.blur else {}
    names = options.estimators or ESTIMATORS
    task = functools.cache(lambda: load(options))
    pairs = [(name, strength) for name in names for strength in options.strengths if name in ESTIMATORS]
    run_missing(lambda name, strength: run(name, strength, task(), options), pairs, settings, options.json)


if __name__ == "__main__":
    main()
