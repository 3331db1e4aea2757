"""Small random regression tree fields, and reference computations of their energy by plain loops."""

import numpy as np

from sklearn_crf import RegressionTreeField
from sklearn_crf.graphs import lattice
from sklearn_crf.rtf import FieldSolver
from sklearn_crf.rtf._potentials import FieldImage, RegressionTreePotentials
from sklearn_crf.rtf._trees import RegressionTree, build_factor_templates, draw_tests

OFFSETS = np.array([[0, 1], [1, 0], [1, -1], [0, 2]])
OFFSETS_OF_VOLUMES = np.array([[0, 0, 1], [0, 1, -1], [1, 0, 0], [1, -1, 2], [2, 1, 0]])


def random_tree(n_channels, n_splits, rng, radius=2):
    """Return a tree grown by random splits of random leaves."""
    tree = RegressionTree.stump()
    for _ in range(n_splits):
        test = draw_tests(1, n_channels, radius, rng)[0]
        tree, _ = tree.split({int(rng.randint(tree.n_leaves)): (test, rng.normal())})
    return tree


def random_field(
    shape=(6, 5),
    n_values=1,
    n_channels=3,
    n_splits=3,
    n_images=2,
    seed=0,
    channels=None,
    multipliers=(),
    offsets=None,
):
    """Return trees, potentials, parameters, images and targets of a random field, in float64."""
    rng = np.random.RandomState(seed)
    if offsets is None:
        offsets = OFFSETS if len(shape) == 2 else OFFSETS_OF_VOLUMES
    graph = lattice(shape, offsets)
    radius = 2 if len(shape) == 2 else (2, 1, 2)
    types = build_factor_templates(graph.offsets, channels, multipliers)
    trees = [random_tree(n_channels, n_splits, rng, radius) for _ in types]
    whitening = [rng.normal(size=(n, n)) / n for n in (kind.n_inputs(n_channels) for kind in types)]
    potentials = RegressionTreePotentials(types, [tree.n_leaves for tree in trees], whitening, n_values)
    coef = rng.normal(size=potentials.n_coef)
    for part in potentials.unpack(coef):
        root = rng.normal(size=part.precision.shape)
        part.precision[:] = np.einsum("lab,lcb->lac", root, root) + 0.2 * np.eye(root.shape[1])
        part.slopes[:] = np.einsum("liab,licb->liac", part.slopes, part.slopes)
    features = [rng.normal(size=(*shape, n_channels)) for _ in range(n_images)]
    for x in features:
        x[..., list(multipliers)] = np.abs(x[..., list(multipliers)])
    images = [FieldImage.of(x, graph, types, trees) for x in features]
    targets = [rng.normal(size=(graph.n_nodes, n_values)) for _ in images]
    return trees, potentials, coef, images, targets


def response_by_definition(features, pixel, test):
    """Return the response to a test at a pixel or voxel, computed by the definition."""
    shape = features.shape[:-1]

    def value(channel, down, right, slices):
        offset = (slices, down, right)[3 - len(shape) :]
        place = [np.clip(p + o, 0, n - 1) for p, o, n in zip(pixel, offset, shape, strict=True)]
        return features[(*place, channel)]

    first, second = [*test[:3], *test[7:8]], [*test[3:6], *test[8:9]]
    slices = [] if len(test) > 7 else [0]
    response = value(*first, *slices) - (value(*second, *slices) if test[3] >= 0 else 0.0)
    return abs(response) if test[6] else response


def leaf_by_descent(tree, features, pixel):
    """Return the leaf of the factor at a pixel, by descending the tree."""
    node = 0
    while tree.children[node, 0] >= 0:
        response = response_by_definition(features, pixel, tree.test[node])
        node = tree.children[node, int(response > tree.threshold[node])]
    return tree.leaf[node]


def energy_by_loops(trees, potentials, coef, image, y):
    """Return the sum over factors of y' J y / 2 - y' H b, by loops over pixels."""
    shape = image.features.shape[:-1]
    y = y.reshape(*shape, -1)
    total = 0.0
    for kind, tree, part, white in zip(
        potentials.types, trees, potentials.unpack(coef), potentials.whitening, strict=True
    ):
        offset = kind.offset[3 - len(shape) :]
        for place in np.ndindex(*shape):
            ends = [place, tuple(p + o for p, o in zip(place, offset, strict=True))] if kind.paired else [place]
            if not all(0 <= a < length for end in ends for a, length in zip(end, shape, strict=True)):
                continue
            leaf = leaf_by_descent(tree, image.features, place)
            values = np.concatenate([y[end] for end in ends])
            seen = list(range(image.features.shape[-1])) if kind.channels is None else list(kind.channels)
            inputs = np.concatenate([[1.0], *(image.features[end][seen] for end in ends)])
            precision = part.precision[leaf].copy()
            for slope, channel in zip(part.slopes[leaf], kind.multipliers, strict=True):
                precision += np.mean([image.features[end][channel] for end in ends]) * slope
            total += 0.5 * values @ precision @ values
            total -= values @ part.weight[leaf] @ white @ inputs
    return total


def plain_field(loss="pseudolikelihood", **options):
    """Return a field without filter bank, trained on all pixels for a fixed number of iterations."""
    solver = FieldSolver(max_samples=None, shrinkage=0.0, early_stopping=False)
    fixed = {"filter_bank": None, "clip": None, "max_depth": 5, "max_iter": 50, "solver": solver}
    return RegressionTreeField(loss, **fixed | options)
