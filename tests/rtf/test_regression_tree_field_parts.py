"""Parts of regression tree fields: trees, potentials and their adjoint, losses of fields, the search for splits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from regression_tree_problems import (
    OFFSETS,
    OFFSETS_OF_VOLUMES,
    energy_by_loops,
    leaf_by_descent,
    random_field,
    random_tree,
    response_by_definition,
)
from scipy.stats import multivariate_normal

from sklearn_crf._threads import make_range_runner
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import ConjugateGradient, GaussianDirect
from sklearn_crf.models import score
from sklearn_crf.rtf import Splits
from sklearn_crf.rtf._objectives import (
    FieldRisk,
    GaussianLikelihood,
    GaussianPseudolikelihood,
    PredictionLoss,
    group_stacks,
)
from sklearn_crf.rtf._potentials import (
    FieldImage,
    GaussianStatistics,
    RegressionTreePotentials,
    clip_eigenvalues,
)
from sklearn_crf.rtf._scaling import InputMoments, LeafScaling, compute_whitening
from sklearn_crf.rtf._trees import (
    FactorTemplate,
    RegressionTree,
    build_factor_templates,
    compute_explained_variance,
    compute_projected_norm,
    draw_tests,
    enumerate_tests,
    find_best_split,
    find_splits,
)
from sklearn_crf.rtf.images._input import compute_window_offsets
from sklearn_crf.rtf.losses import LOSSES, WEIGHTED, loss_function

BOUNDS = (1e-2, 1e2)


def pixels_of(kind, shape):
    """Return the first pixels of the factors of a type, by trying all pixels."""
    offset = kind.offset[3 - len(shape) :]
    ends = {place: [p + o for p, o in zip(place, offset, strict=True)] for place in np.ndindex(*shape)}
    inside = [p for p, end in ends.items() if all(0 <= e < n for e, n in zip(end, shape, strict=True))]
    return inside if kind.paired else list(ends)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9999), st.integers(0, 12))
def test_leaves_are_found_by_descent(seed, n_splits):
    rng = np.random.RandomState(seed)
    wide, volumes = ((6, 33), OFFSETS, 2), ((3, 4, 30), OFFSETS_OF_VOLUMES, (1, 1, 2))
    for shape, offsets, radius in (wide, volumes, ((7, 6), OFFSETS, 2), ((4, 5, 3), OFFSETS_OF_VOLUMES, (2, 1, 2))):
        features = rng.normal(size=(*shape, 3)).astype(np.float32)
        tree = random_tree(3, n_splits, rng, radius)
        assert tree.n_leaves == n_splits + 1
        for kind in build_factor_templates(offsets):
            expected = [leaf_by_descent(tree, features, pixel) for pixel in pixels_of(kind, shape)]
            for n_threads in (1, 3):
                assert_array_equal(tree.leaves(features, kind, make_range_runner(n_threads)), expected)


@pytest.mark.parametrize("objective", [GaussianPseudolikelihood(), GaussianLikelihood(), "mse"])
@pytest.mark.parametrize("n_values", [1, 2])
def test_derivatives_on_volumes_are_finite_differences(objective, n_values):
    if objective == "mse":
        objective = PredictionLoss(loss_function("mse"), ConjugateGradient(tol=1e-13))
    _, potentials, coef, images, targets = random_field((3, 4, 3), n_values, seed=3, multipliers=(1,))
    risk = FieldRisk(objective, potentials, images, targets)
    gradient, rng, step = risk.value_grad(coef)[1], np.random.RandomState(0), 1e-5
    for _ in range(6):
        along = rng.normal(size=len(coef))
        # Precisions are symmetric.
        for part in potentials.unpack(along):
            for own in (part.precision, part.slopes):
                own += np.swapaxes(own, -1, -2).copy()
        ends = [risk.value(coef + side * step * along) for side in (1, -1)]
        assert gradient @ along == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-8)


def test_the_mean_on_a_volume_is_that_of_a_dense_solve():
    _, potentials, coef, images, _ = random_field((3, 4, 5), 2, seed=2)
    model = potentials.model(coef, images[0])
    found = ConjugateGradient(tol=1e-12).marginals(model).mean
    dense = np.linalg.solve(model.precision_matrix().toarray(), model.h.ravel())
    assert_allclose(found.ravel(), dense, atol=1e-9)


def test_a_split_renames_no_other_leaf():
    rng = np.random.RandomState(0)
    tree = random_tree(2, 4, rng)
    grown, parent = tree.split({1: (np.zeros(7, int), 0.0), 3: (np.zeros(7, int), 0.5)})
    assert_array_equal(parent, [0, 1, 2, 3, 4, 1, 3])
    features = rng.normal(size=(9, 9, 2))
    run = make_range_runner(1)
    before, after = (t.leaves(features, FactorTemplate(), run) for t in (tree, grown))
    assert_array_equal(parent[after], before)
    assert RegressionTree.stump().depth == 0
    assert grown.depth in (tree.depth, tree.depth + 1)


@pytest.mark.parametrize("multipliers", [(), (1,), (0, 2)])
@pytest.mark.parametrize("n_values", [1, 2])
@pytest.mark.parametrize("shape", [(6, 5), (1, 7), (3, 2), (1, 1), (3, 4, 5), (1, 2, 3), (4, 1, 2)])
def test_the_model_is_the_sum_of_the_factors(n_values, shape, multipliers):
    trees, potentials, coef, images, targets = random_field(shape, n_values, seed=1, multipliers=multipliers)
    for image, y in zip(images, targets, strict=True):
        energy = energy_by_loops(trees, potentials, coef, image, y)
        assert -score(potentials.model(coef, image), y) == pytest.approx(energy, rel=1e-10)


@pytest.mark.parametrize(
    ("n_channels", "channels"),
    [*((n, None) for n in (1, 3, 4, 5, 7, 8, 9, 16, 21)), (9, (7, 0, 3)), (9, (7, 0, 3, 1, 5))],
)
def test_channels_are_read_in_blocks_of_eight(n_channels, channels):
    trees, potentials, coef, images, targets = random_field((4, 3), 1, n_channels=n_channels, seed=5, channels=channels)
    energy = energy_by_loops(trees, potentials, coef, images[0], targets[0])
    assert -score(potentials.model(coef, images[0]), targets[0]) == pytest.approx(energy, rel=1e-10)
    # The linear part of the energy is the gradient by the weights times the weights.
    values = targets[0]
    gradient = potentials.pullback(images[0], GaussianStatistics(values, np.zeros_like(values), np.zeros((12, 1, 1))))
    h = potentials.model(coef, images[0]).h
    assert gradient @ coef == pytest.approx(np.sum(h * values), rel=1e-10)
    single = FieldImage.of(images[0].features.astype(np.float32), images[0].graph, potentials.types, trees)
    assert_allclose(potentials.model(coef, single).h, h, rtol=1e-4, atol=1e-4)


def test_threads_and_float32():
    _, potentials, coef, images, _ = random_field((40, 60), 2, seed=2)
    one, three = (potentials.model(coef, images[0], n_threads=n) for n in (1, 3))
    assert_array_equal(one.h, three.h)
    image = images[0]
    single = FieldImage(image.features.astype(np.float32), image.graph, image.leaves)
    found = potentials.model(coef, single)
    assert found.dtype == np.float32
    assert_allclose(found.h, one.h, atol=1e-4)
    assert_allclose(found.diagonal, one.diagonal, atol=1e-4)


def objectives():
    direct = ConjugateGradient(tol=1e-13)
    yield pytest.param(GaussianLikelihood(), (6, 5), id="likelihood")
    yield pytest.param(GaussianPseudolikelihood(), (6, 5), id="pseudolikelihood")
    for name in LOSSES:
        if name not in ("logistic", "multinomial"):
            loss = loss_function(name, data_range=3.0)
            yield pytest.param(
                PredictionLoss(loss, direct, 0.2, 1.5), (12, 11), id=name
            )  # at least a window of "iw_ssim"


def five_points(function, x, direction, step=1e-4):
    f = {k: function(x + k * step * direction) for k in (-2, -1, 1, 2)}
    return (f[-2] - 8 * f[-1] + 8 * f[1] - f[2]) / (12 * step)


@pytest.mark.parametrize(("objective", "shape"), list(objectives()))
@pytest.mark.parametrize("n_values", [1, 2])
@pytest.mark.parametrize("multipliers", [(), (0, 2)])
def test_gradient_of_the_risk(objective, shape, n_values, multipliers):
    _, potentials, coef, images, targets = random_field(shape, n_values, seed=3, multipliers=multipliers)
    rng = np.random.RandomState(0)
    weights = [np.full(len(y), w) for y, w in zip(targets, (1.0, 3.0), strict=True)]
    risk = FieldRisk(objective, potentials, images, targets, weights)
    value, gradient = risk.value_grad(coef)
    assert np.isfinite(value)
    for _ in range(3):
        direction = rng.normal(size=len(coef)) / 10
        for part in potentials.unpack(direction):
            part.precision[:] += part.precision.transpose(0, 2, 1).copy()
            part.slopes[:] += part.slopes.swapaxes(-1, -2).copy()
        slope = five_points(lambda x: risk.value_grad(x)[0], coef, direction)
        # The smoothed corner of the absolute error is narrower than the step of the finite differences.
        tolerance = 1e-3 if getattr(objective.__dict__.get("loss_function"), "keywords", {}).get("smoothing") else 1e-6
        assert gradient @ direction == pytest.approx(slope, rel=tolerance, abs=1e-8)


def test_shares_are_those_of_the_factors():
    _, potentials, _, images, targets = random_field(n_images=2, seed=6)
    rng = np.random.RandomState(1)
    weights = [np.full(len(y), w) for y, w in zip(targets, (1.0, 3.0), strict=True)]
    shares = FieldRisk(None, potentials, images, targets, weights).shares()
    for number, share in enumerate(shares):
        leaves = [image.leaves[number] for image in images]
        counts = [np.bincount(leaf, minlength=len(share)) for leaf in leaves]
        expected = (counts[0] + 3 * counts[1]) / (len(leaves[0]) + 3 * len(leaves[1]))
        assert_allclose(share, np.where(expected > 0, expected, 1 / len(share)), rtol=1e-12)
    spread = potentials.spread(shares)
    for part, share in zip(potentials.unpack(spread), shares, strict=True):
        leaf = rng.randint(len(share))
        assert np.all(part.precision[leaf] == share[leaf])
        assert np.all(part.weight[leaf] == share[leaf])


@pytest.mark.parametrize("n_values", [1, 2])
def test_pseudolikelihood_is_the_product_of_conditionals(n_values):
    _, potentials, coef, images, targets = random_field(n_values=n_values, seed=4)
    model, y = potentials.model(coef, images[0]), targets[0]
    matrix = model.precision_matrix().toarray().reshape(*y.shape, *y.shape)
    total = 0.0
    for s in range(len(y)):
        own = matrix[s, :, s]
        others = np.einsum("atb,tb->a", matrix[s], y) - own @ y[s]
        mean = np.linalg.solve(own, model.h[s] - others)
        total += 0.5 * (y[s] - mean) @ own @ (y[s] - mean) - 0.5 * np.linalg.slogdet(own / (2 * np.pi))[1]
    assert GaussianPseudolikelihood().loss(model, y).value == pytest.approx(total / len(y))


@pytest.mark.parametrize("n_values", [1, 2])
def test_likelihood_is_the_density(n_values):
    _, potentials, coef, images, targets = random_field((4, 3), n_values, seed=4)
    model = potentials.model(coef, images[0])
    mean, covariance = GaussianDirect().marginals(model).mean, np.linalg.inv(model.precision_matrix().toarray())
    expected = multivariate_normal(mean.ravel(), covariance).logpdf(targets[0].ravel())
    assert GaussianLikelihood().loss(model, targets[0]).value == pytest.approx(-expected / 12)
    _, potentials, coef, images, targets = random_field((70, 60), n_splits=0, n_images=1)
    model = potentials.model(coef, images[0])
    with pytest.raises(ValueError, match="at most 4096 values, got 4200"):
        GaussianLikelihood().loss(model, targets[0])


def test_pseudolikelihood_is_convex():
    _, potentials, coef, images, targets = random_field(seed=5)
    risk = FieldRisk(GaussianPseudolikelihood(), potentials, images, targets)
    rng = np.random.RandomState(1)
    for _ in range(20):
        other = potentials.project(coef + rng.normal(size=len(coef)), BOUNDS)
        between = rng.random_sample()
        ends = (1 - between) * risk.value_grad(coef)[0] + between * risk.value_grad(other)[0]
        assert risk.value_grad((1 - between) * coef + between * other)[0] <= ends + 1e-9


def test_value_and_gradient_do_not_depend_on_threads():
    _, potentials, coef, images, targets = random_field((12, 9), n_images=5, seed=6)
    for objective in (GaussianPseudolikelihood(), PredictionLoss(loss_function("psnr"), ConjugateGradient())):
        found = [FieldRisk(objective, potentials, images, targets, n_jobs=n).value_grad(coef) for n in (1, 3)]
        assert found[0][0] == found[1][0]
        assert_array_equal(found[0][1], found[1][1])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 9999), st.integers(1, 4))
def test_projection_is_the_nearest_point(seed, size):
    rng = np.random.RandomState(seed)
    matrices = 30 * rng.normal(size=(5, size, size))
    matrices = matrices + matrices.transpose(0, 2, 1)
    matrices[0] = 3 * np.eye(size)
    found = clip_eigenvalues(matrices, 0.5, 20.0)
    values, vectors = np.linalg.eigh(matrices)
    expected = np.einsum("kia,ka,kja->kij", vectors, np.clip(values, 0.5, 20.0), vectors)
    assert_allclose(found, expected, atol=1e-10)
    assert np.linalg.eigvalsh(found).min() >= 0.5 - 1e-9
    assert np.linalg.eigvalsh(found).max() <= 20 + 1e-9
    assert_allclose(clip_eigenvalues(found, 0.5, 20.0), found, atol=1e-10)
    assert_array_equal(found[0], matrices[0])


@pytest.mark.parametrize("n_values", [1, 2, 3])
def test_parameters_are_projected_matrix_by_matrix(n_values):
    _, potentials, coef, _, _ = random_field((3, 3), n_values, multipliers=(0, 2))
    coef = 10 * np.random.RandomState(0).normal(size=len(coef))
    found = potentials.unpack(potentials.project(coef, (0.5, 9.0)))
    for part, own in zip(found, potentials.unpack(coef), strict=True):
        for name, low in (("precision", 0.5), ("slopes", 0.0)):
            matrices = getattr(own, name)
            expected = clip_eigenvalues((matrices + matrices.swapaxes(-1, -2)) / 2, low, 9.0)
            assert_allclose(getattr(part, name), expected, atol=1e-12)
        assert_array_equal(part.weight, own.weight)


def split_gain(trees, potentials, coef, images, targets, number, splits):
    """Return the increase of the squared norm of the projected gradient after a split of a tree."""

    def norm(potentials, coef, images):
        gradient = FieldRisk(GaussianPseudolikelihood(), potentials, images, targets).value_grad(coef)[1]
        return np.sum((potentials.project(coef - gradient, BOUNDS) - coef) ** 2)

    grown = list(trees)
    grown[number], parent = trees[number].split(splits)
    parents = [np.arange(tree.n_leaves) for tree in trees]
    parents[number] = parent
    new_potentials, new_coef = potentials.grown(coef, parents, [tree.n_leaves for tree in grown])
    new_images = [FieldImage.of(image.features, image.graph, potentials.types, grown) for image in images]
    return norm(new_potentials, new_coef, new_images) - norm(potentials, coef, images)


@pytest.mark.parametrize(
    ("n_values", "channels", "shape"),
    [(1, None, (7, 6)), (2, None, (7, 6)), (1, (2, 0), (7, 6)), (1, None, (3, 4, 4))],
)
@pytest.mark.parametrize("multipliers", [(), (0, 2)])
def test_splits_are_the_best_by_brute_force(n_values, channels, shape, multipliers, monkeypatch):
    trees, potentials, coef, images, targets = random_field(
        shape, n_values, n_splits=1, seed=7, channels=channels, multipliers=multipliers
    )
    coef = potentials.project(coef, BOUNDS)
    tests = draw_tests(5, 3, 2 if len(shape) == 2 else (1, 2, 1), np.random.RandomState(2))
    monkeypatch.setattr("sklearn_crf.rtf._trees.draw_tests", lambda *_: tests)
    gains = []

    def recorded(*args, **options):
        found = find_best_split(*args, **options)
        gains.extend([] if found is None else [found.gain])
        return found

    monkeypatch.setattr("sklearn_crf.rtf._trees.find_best_split", recorded)
    risk = FieldRisk(GaussianPseudolikelihood(), potentials, images, targets)
    options = Splits(n_feature_tests=5, n_thresholds=3, feature_radius=2, max_samples=None, min_samples_leaf=5)
    found = find_splits(risk, trees, coef, [9] * len(trees), options, BOUNDS, np.random.RandomState(3))
    assert len(gains) == sum(map(len, found)) >= 5
    gains = iter(gains)
    arguments = trees, potentials, coef, images, targets
    for number, own in enumerate(found):
        for leaf, (test, threshold) in own.items():
            gain = next(gains)
            assert gain == pytest.approx(split_gain(*arguments, number, {leaf: (test, threshold)}), rel=1e-6)
            for other in tests:
                # No other test is better at any threshold that was tried.
                responses = responses_in(images, potentials.types[number], leaf, other)
                for k in (1, 2, 3):
                    at = np.sort(responses)[-(-k * len(responses) // 4) - 1]
                    if min(np.sum(responses <= at), np.sum(responses > at)) >= 5:
                        assert split_gain(*arguments, number, {leaf: (other, at)}) <= gain + 1e-9


def responses_in(images, kind, leaf, test):
    """Return the responses to a test of all factors in a leaf."""
    offsets = OFFSETS if images[0].features.ndim == 3 else OFFSETS_OF_VOLUMES
    number = build_factor_templates(offsets, kind.channels, kind.multipliers).index(kind) if kind.paired else 0
    return np.array(
        [
            response_by_definition(image.features, pixel, test)
            for image in images
            for pixel, own in zip(pixels_of(kind, image.features.shape[:-1]), image.leaves[number], strict=True)
            if own == leaf
        ]
    )


def test_splits_keep_the_objective_and_the_limits():
    trees, potentials, coef, images, targets = random_field((12, 11), seed=8)
    coef = potentials.project(coef, BOUNDS)
    risk = FieldRisk(GaussianPseudolikelihood(), potentials, images, targets)
    options = Splits(n_feature_tests=8, n_thresholds=5, feature_radius=2, max_samples=None, min_samples_leaf=30)
    depths = [tree.depth for tree in trees]
    splits = find_splits(risk, trees, coef, [depths[0], 9, 9, 9, 9], options, BOUNDS, np.random.RandomState(0))
    assert splits[0] == {}
    assert any(splits)
    grown = [tree.split(own) for tree, own in zip(trees, splits, strict=True)]
    trees = [tree for tree, _ in grown]
    new_potentials, new_coef = potentials.grown(coef, [parent for _, parent in grown], [t.n_leaves for t in trees])
    new_images = [FieldImage.of(image.features, image.graph, potentials.types, trees) for image in images]
    assert risk.replaced(new_potentials, new_images).value_grad(new_coef)[0] == pytest.approx(risk.value_grad(coef)[0])
    for number, own in enumerate(splits):
        counts = sum(np.bincount(i.leaves[number], minlength=trees[number].n_leaves) for i in new_images)
        for leaf in own:
            assert counts[leaf] >= 30


def test_sampled_splits_do_not_depend_on_threads():
    trees, potentials, coef, images, targets = random_field((12, 11), seed=9)
    coef = potentials.project(coef, BOUNDS)
    found = []
    for n_jobs in (1, 3):
        risk = FieldRisk(GaussianPseudolikelihood(), potentials, images, targets, n_jobs=n_jobs)
        options = Splits(n_feature_tests=8, n_thresholds=5, feature_radius=2, max_samples=100, min_samples_leaf=10)
        found.append(find_splits(risk, trees, coef, [9] * 5, options, BOUNDS, np.random.RandomState(0)))
    for one, three in zip(*found, strict=True):
        assert one.keys() == three.keys()
        for leaf in one:
            assert_array_equal(one[leaf][0], three[leaf][0])
            assert one[leaf][1] == three[leaf][1]


@pytest.mark.parametrize("n_values", [1, 2])
def test_residual_splits_explain_most(n_values):
    _, potentials, coef, images, targets = random_field((7, 6), n_values, n_splits=0, seed=12)
    trees = [RegressionTree.stump() for _ in potentials.types]
    risk = FieldRisk(GaussianPseudolikelihood(), potentials, images, targets)
    options = Splits(
        "residual", n_feature_tests=None, n_thresholds=3, feature_radius=1, max_samples=None, min_samples_leaf=5
    )
    found = find_splits(risk, trees, coef, [1] * len(trees), options, BOUNDS, np.random.RandomState(3))
    for kind, own in zip(potentials.types, found, strict=True):
        values = np.concatenate([factor_targets(kind, y.reshape(7, 6, n_values)) for y in targets])

        def left_over(responses, threshold, values=values):
            above = responses > threshold
            return sum(np.sum((values[side] - values[side].mean(axis=0)) ** 2) for side in (above, ~above))

        (test, threshold), others = own[0], []
        for other in enumerate_tests(3, 1):
            responses = responses_in(images, kind, 0, other)
            thresholds = np.sort(responses)[[-(-k * len(responses) // 4) - 1 for k in (1, 2, 3)]]
            others += [left_over(responses, own) for own in thresholds]
        assert len(others) == 3 * 27
        assert left_over(responses_in(images, kind, 0, test), threshold) == pytest.approx(min(others))


def factor_targets(kind, plane):
    return np.array([
        np.concatenate([plane[i, j], plane[i + kind.down, j + kind.right]] if kind.paired else [plane[i, j]])
        for i, j in pixels_of(kind, plane.shape[:2])
    ])  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9999))
@example(840)
def test_weighted_quantiles_are_those_of_repeated_responses(seed):
    rng = np.random.RandomState(seed)
    weight = rng.randint(0, 4, size=20)
    weight[0] = 1
    responses = rng.randint(12, size=(3, 20)).astype(float)
    terms = np.column_stack([weight, weight * rng.normal(size=20)])
    options = {"n_thresholds": 4, "min_samples": 2}
    once = find_best_split(terms, responses, compute_explained_variance, **options)
    repeated = np.repeat(responses, weight, axis=1)
    terms = np.repeat(terms / np.maximum(weight, 1)[:, None], weight, axis=0)
    many = find_best_split(terms, repeated, compute_explained_variance, **options)
    assert (once is None) == (many is None)
    if once is not None:
        # Two tests may split the samples in the same way; the last digit decides which of them comes first.
        above = [responses[split.test, weight > 0] > split.threshold for split in (once, many)]
        assert_array_equal(*above)
        assert once.gain == pytest.approx(many.gain)


def test_projected_norm_stops_at_the_bounds():
    precision = np.eye(2) * 0.01
    outward = np.eye(2)
    assert compute_projected_norm(np.zeros(3), outward, precision, BOUNDS) == pytest.approx(0)
    assert compute_projected_norm(np.zeros(3), -outward, precision, BOUNDS) == pytest.approx(2)


@pytest.mark.parametrize("kind", [FactorTemplate(), FactorTemplate(1, -1, True)])
def test_whitened_inputs_are_uncorrelated(kind):
    rng = np.random.RandomState(0)
    plane = rng.normal(size=(30, 40, 3)) @ rng.normal(size=(3, 3)) + 5
    # Zero-sum values and a constant contribute nothing.
    plane = np.concatenate([plane, plane.sum(axis=2, keepdims=True), np.ones((30, 40, 1))], axis=2)
    white = compute_whitening(InputMoments.of([plane], kind, rng))
    n_factors = kind.rows(plane.shape[:2]).n_factors
    inputs = kind.inputs(plane, np.arange(n_factors)) @ white.T
    assert inputs.shape == (n_factors, 1 + 3 * (2 if kind.paired else 1))
    assert_allclose(inputs.T @ inputs / len(inputs), np.eye(inputs.shape[1]), atol=1e-6)


def test_windows():
    assert compute_window_offsets(1, 2).shape == (0, 2)
    assert len(compute_window_offsets(3, 2)) == 4
    assert len(compute_window_offsets(5, 2)) == 12
    assert compute_window_offsets(5, 1).tolist() == [[2], [1]] or compute_window_offsets(5, 1).tolist() == [[1], [2]]
    assert compute_window_offsets([[0, 1], [0, -1]], 2).tolist() == [[0, 1]]
    graph = lattice((5, 6), compute_window_offsets(5, 2))
    assert_array_equal(graph.offsets, compute_window_offsets(5, 2))


def test_prediction_is_the_mean_of_the_field():
    _, potentials, coef, images, targets = random_field(seed=10)
    model = potentials.model(coef, images[0])
    mean = GaussianDirect().marginals(model).mean
    objective = PredictionLoss(loss_function("mse"), ConjugateGradient(tol=1e-12), 0.5, 2.0)
    assert objective.loss(model, targets[0]).value == pytest.approx(4 * np.mean((mean - targets[0]) ** 2))


def test_pack_is_the_inverse_of_unpack():
    _, potentials, coef, _, _ = random_field(seed=11)
    parts = potentials.unpack(coef)
    assert_array_equal(potentials.pack(*zip(*parts, strict=True)), coef)
    assert isinstance(potentials, RegressionTreePotentials)


@pytest.mark.parametrize("loss", ["pseudolikelihood", "psnr"])
def test_weights_equal_repetition(loss):
    _, potentials, coef, images, targets = random_field(n_images=3, seed=13)
    objective = GaussianPseudolikelihood()
    if loss != "pseudolikelihood":
        objective = PredictionLoss(loss_function(loss), ConjugateGradient(tol=1e-12))
    weight = [1, 3, 2]
    pixels = [np.full(len(y), w) for y, w in zip(targets, weight, strict=True)]
    value, gradient = FieldRisk(objective, potentials, images, targets, pixels).value_grad(coef)
    repeated = np.repeat(np.arange(3), weight)
    again = FieldRisk(objective, potentials, [images[i] for i in repeated], [targets[i] for i in repeated])
    expected, expected_gradient = again.value_grad(coef)
    assert value == pytest.approx(expected)
    assert_allclose(gradient, expected_gradient, atol=1e-9)


@pytest.mark.parametrize("is_chain", [False, True])
@pytest.mark.parametrize("n_values", [1, 2])
@pytest.mark.parametrize("options", [{}, {"channels": (2, 0), "multipliers": (1,)}])
@pytest.mark.parametrize("loss", ["pseudolikelihood", "mse"])
def test_images_of_one_shape_are_evaluated_as_one(is_chain, n_values, options, loss):
    shape, offsets = ((1, 7), [[0, 1], [0, 2], [0, 9]]) if is_chain else ((6, 5), None)
    _, potentials, coef, images, targets = random_field(shape, n_values, n_images=5, seed=4, offsets=offsets, **options)
    if is_chain:
        images = [replace(image, graph=lattice((7,), [[1], [2], [9]])) for image in images]
    rng = np.random.RandomState(0)
    weights = [np.full(len(y), w) for y, w in zip(targets, (1.0, 3.0, 1.0, 0.5, 2.0), strict=True)]
    objective = GaussianPseudolikelihood()
    if loss == "mse":
        objective = PredictionLoss(loss_function(loss), ConjugateGradient(tol=1e-13), 0.3, 2.0, WEIGHTED[loss])
        targets[1][rng.random(targets[1].shape) < 0.3] = np.nan
    assert group_stacks(images, objective) == [[0, 1, 2, 3, 4]]
    alone = FieldRisk(objective, potentials, images, targets, weights)
    together = FieldRisk(objective, potentials, images, targets, weights, stacks=[[0, 2, 3], [1, 4]])
    assert together.value(coef) == pytest.approx(alone.value(coef), rel=1e-10)
    value, gradient = together.value_grad(coef)
    expected, slope = alone.value_grad(coef)
    assert value == pytest.approx(expected, rel=1e-10)
    assert_allclose(gradient, slope, rtol=1e-7, atol=1e-9)
    pairs = zip(together.statistics(coef), alone.statistics(coef), strict=True)
    for found, by_itself in pairs:
        for part, own in zip(found[:3], by_itself[:3], strict=True):
            assert_allclose(part, own, rtol=1e-7, atol=1e-9)
    for part, own in zip(together.leaf_weights(), alone.leaf_weights(), strict=True):
        assert_array_equal(part, own)
    # Trees that grow keep the stacks and the solutions from which solves start.
    again = together.replaced(potentials, images)
    assert again.value(coef) == pytest.approx(expected, rel=1e-10)


def test_only_small_images_of_one_shape_are_evaluated_as_one():
    _, _, _, images, _ = random_field((40, 50), n_images=7, seed=0)
    _, _, _, others, _ = random_field((40, 60), n_images=1, seed=0)
    _, _, _, large, _ = random_field((80, 60), n_images=2, seed=0)
    mean, psnr = GaussianPseudolikelihood(), PredictionLoss(loss_function("psnr"), ConjugateGradient())
    mixed = [images[0], others[0], *images[1:], *large]
    assert group_stacks(mixed, mean) == [[0, 2, 3, 4], [1], [5, 6, 7], [8], [9]]
    # No stack is left over.
    assert [len(own) for own in group_stacks(images[:1] * 9, mean)] == [3, 3, 3]
    # The loss of several images is not a mean of their losses.
    assert group_stacks(mixed, psnr) == [[i] for i in range(10)]
    assert group_stacks(mixed, GaussianLikelihood()) == [[i] for i in range(10)]
    _, _, _, volumes, _ = random_field((3, 4, 5), n_images=2, seed=0)
    assert group_stacks(volumes, mean) == [[0], [1]]


@pytest.mark.parametrize("channels", [None, (2, 0)])
def test_leaves_are_scaled_by_their_inputs(channels):
    _, potentials, coef, images, targets = random_field((9, 8), seed=14, channels=channels)
    weights = [np.full(len(y), w) for y, w in zip(targets, (1.0, 2.0), strict=True)]
    risk = FieldRisk(GaussianPseudolikelihood(), potentials, images, targets, weights)
    rng = np.random.RandomState(0)
    scaling = LeafScaling(risk, rng)
    x = rng.normal(size=len(coef))
    assert_allclose(scaling.unscaled(scaling.scaled(coef)), coef, atol=1e-12)
    assert scaling.gradient(coef) @ x == pytest.approx(coef @ scaling.unscaled(x))
    assert_allclose(
        scaling.project(scaling.scaled(coef), BOUNDS), scaling.scaled(potentials.project(coef, BOUNDS)), atol=1e-12
    )
    # In these units, inputs within a leaf are uncorrelated, up to a fraction of 5 % for all leaves together.
    for number, (kind, white) in enumerate(zip(potentials.types, potentials.whitening, strict=True)):
        every = np.arange(kind.rows((9, 8)).n_factors)
        seen = [kind.inputs(image.seen(kind), every) @ white.T for image in images]
        leaf = np.concatenate([image.leaves[number] for image in images])
        weight = np.concatenate([np.full(len(part), w) for part, w in zip(seen, (1.0, 2.0), strict=True)])
        for own in range(potentials.n_leaves[number]):
            factor, inside = scaling.factor[number][own], leaf == own
            own_inputs = np.concatenate(seen)[inside]
            moments = own_inputs.T @ (weight[inside, None] * own_inputs) / max(weight[inside].sum(), 1e-300)
            moments = moments if inside.any() else np.eye(len(white))
            assert_allclose(factor @ factor.T, 0.95 * moments + 0.05 * np.eye(len(white)), atol=1e-12)
    # A weight of two equals two copies of an image.
    twice = FieldRisk(GaussianPseudolikelihood(), potentials, [*images, images[1]], [*targets, targets[1]])
    assert_allclose(LeafScaling(twice, rng).scaled(coef), scaling.scaled(coef), rtol=1e-12)


def test_half_of_the_tests_are_of_magnitudes():
    tests = draw_tests(2000, 5, 3, np.random.RandomState(0))
    assert 0.45 < tests[:, 6].mean() < 0.55
    assert set(tests[:, 6]) == {0, 1}
    # With radius 0, tests compare no neighbours, and each channel is tested directly.
    assert_array_equal(draw_tests(8, 5, 0, np.random.RandomState(0))[:5, [0, 3, 6]], [[k, -1, 0] for k in range(5)])
    assert not enumerate_tests(5, 1)[:, 6].any()
    # In volumes, tests also compare other slices.
    tests = draw_tests(500, 5, (1, 2, 3), np.random.RandomState(0))
    assert [np.abs(tests[:, k]).max() for k in (7, 1, 2, 8, 4, 5)] == [1, 2, 3] * 2
    assert not tests[tests[:, 3] < 0][:, [4, 5, 8]].any()
    assert len(np.unique(enumerate_tests(2, (1, 2, 3)), axis=0)) == 2 * 3 * 5 * 7
