"""Standard deviations of predictions: a tree that says where errors are large."""

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from sklearn_crf.kernels.rtf.leaf_models import find_responses
from sklearn_crf.rtf._potentials import as_plane
from sklearn_crf.rtf._trees import RegressionTree, random_tests

# Tests to choose from, and their largest offset.
_N_TESTS = 128
TEST_RADIUS = 2

# Most pixels of an image that the tree is grown on, most of its leaves, and their least share of the pixels.
_PIXELS = 5000
_LEAVES = 32
_LEAST_SHARE = 0.01


def held_out_errors(objective, field, data, rng):
    r"""A regression tree of the squared errors on images that were held out, and their root mean in each leaf.

    .. math::
        \sigma_l = \sqrt{\frac{1}{n_l} \sum_{s : l(s) = l} (u_s - y_s)^2}
    """
    # data: images, here or in shards; deviations: (L, D), in the field's units
    shapes = np.array([shape for part in data.parts(_shapes) for shape in part])
    tests = random_tests(_N_TESTS, shapes[0, -1], np.minimum(TEST_RADIUS, shapes[:, :-1].min(axis=0) - 1), rng)
    parts = [found for part in data.parts(_errors, objective, field, tests) for found in part]
    responses, errors = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not len(errors):
        return None
    least = max(1, int(_LEAST_SHARE * len(errors)))
    grown = DecisionTreeRegressor(max_leaf_nodes=_LEAVES, min_samples_leaf=least, random_state=0)
    tree = grown.fit(responses, errors).tree_
    is_leaf = tree.children_left < 0
    number = np.where(is_leaf, np.cumsum(is_leaf) - 1, -1).astype(np.int32)
    found = RegressionTree(
        np.stack([tree.children_left, tree.children_right], axis=1).astype(np.int32),
        np.where(is_leaf[:, None], 0, tests[np.maximum(tree.feature, 0)]).astype(np.int32),
        np.where(is_leaf, 0.0, tree.threshold),
        number,
    )
    return {"tree": found._asdict(), "deviations": np.sqrt(tree.value[is_leaf].reshape(-1, errors.shape[1]))}


def _shapes(data, part):
    return [plane.shape for plane in data.features]


def _errors(data, part, objective, field, tests):
    """Responses to tests, and squared errors, at some pixels of each image."""
    found = []
    for image, target in zip(field.images(data, 1), data.targets, strict=True):
        model = field.potentials.model(field.coef, image, 1)
        start = None if image.observation is None else image.observation.start
        errors = (objective.solved(model, start).x.astype(np.float64) - target) ** 2
        counted = ~np.isnan(target).any(axis=1)
        if image.observation is not None and image.observation.diagonal is not None:
            counted &= (image.observation.diagonal == 0).all(axis=1)
        own = np.flatnonzero(counted)
        own = own[:: len(own) // _PIXELS + 1]
        pixels = np.stack(np.divmod(own, image.features.shape[-2]), axis=1).astype(np.int32)
        responses = np.empty((len(tests), len(own)), dtype=image.features.dtype)
        plane, place = as_plane(image.features), np.arange(len(own))
        find_responses(plane, image.features.shape[-3], pixels, tests, place, responses)
        found.append((responses.T, errors[own]))
    return found


def require_held_out(estimator, evidence):
    """Raise if a field that was trained for its predictions has no deviations."""
    if estimator.held_out_errors_ is None:
        raise ValueError(
            f"return_std after training for {estimator.loss!r} needs errors on held-out images: pass "
            "solver=FieldSolver(early_stopping=True), or train a second field with loss='pseudolikelihood'."
        )
    if evidence is not None:
        raise ValueError(
            f"return_std with evidence needs loss='pseudolikelihood' or 'likelihood', got {estimator.loss!r}."
        )
