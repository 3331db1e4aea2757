"""Mean field of fully connected fields, compared with dense matrices and with enumeration of labelings."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.inference import DenseMeanField, MeanField
from sklearn_crf.models import DenseModel, PermutohedralFilter, clamped, score

TABLES = {
    "potts": [1.5, 0.8],
    "diagonal": [[1.0, 0.2, 0.5], [0.3, 2.0, 0.0]],
    "full": [
        [[1.0, 0.3, -0.5], [0.3, 0.5, 0.2], [-0.5, 0.2, 0.8]],
        [[0.5, -0.2, 0.1], [-0.2, 0.6, 0.0], [0.1, 0.0, 0.4]],
    ],
    "repelling": [-1.5, -0.8],
    "mixed": [
        [[-1.0, 1.3, -0.5], [1.3, 0.5, 0.9], [-0.5, 0.9, -0.8]],
        [[0.5, -0.2, 0.1], [-0.2, -0.6, 0.0], [0.1, 0.0, 0.4]],
    ],
}


def dense_model(kind="potts", *, n_nodes=7, blur="symmetric", dtype=np.float64, seed=0, scale=1.0, **options):
    rng = np.random.default_rng(seed)
    filters = [PermutohedralFilter(rng.normal(size=(n_nodes, d)).astype(dtype), blur=blur, **options) for d in (2, 3)]
    return DenseModel(rng.normal(size=(n_nodes, 3)).astype(dtype), filters, scale * np.array(TABLES[kind]))


def matrices(model):
    return [smooth.apply(np.eye(model.n_nodes)) for smooth in model.filters]


def reference_update(model, q):
    scores = model.unary.copy()
    for matrix, table in zip(matrices(model), model.tables, strict=True):
        scores += matrix @ q @ table
    return softmax(scores, axis=1)


def reference_free_energy(model, q):
    total = np.sum(q * model.unary) - np.sum(q * np.log(q))
    for matrix, table in zip(matrices(model), model.tables, strict=True):
        total += 0.5 * np.einsum("ij,ik,kl,jl", matrix, q, table, q)
    return total


def exact_log_z(model):
    labelings = product(range(model.n_columns), repeat=model.n_nodes)
    return logsumexp([score(model, labels) for labels in labelings])


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("blur", ["single", "symmetric"])
def test_score_sums_over_all_pairs(kind, blur):
    model = dense_model(kind, blur=blur)
    labels = np.array([0, 2, 1, 1, 0, 2, 2])
    expected = model.unary[np.arange(7), labels].sum()
    for matrix, table in zip(matrices(model), model.tables, strict=True):
        expected += 0.5 * np.sum(matrix * table[np.ix_(labels, labels)])
    assert score(model, labels) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_updates_are_the_reference(kind, dtype, atol):
    model = dense_model(kind, blur="single", dtype=dtype)
    q = softmax(model.unary, axis=1)
    for n_iter in (1, 2, 3):
        q = reference_update(model, q)
        found = DenseMeanField(max_iter=n_iter).marginals(model)
        assert found.unary.dtype == dtype
        assert_allclose(found.unary, q, atol=atol)
        assert found.n_iter == n_iter


@pytest.mark.parametrize("n_states", [1, 2, 4, 5, 8, 9, 33, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_number_of_states(n_states, dtype):
    rng = np.random.default_rng(1)
    smooth = PermutohedralFilter(rng.normal(size=(50, 2)).astype(dtype))
    model = DenseModel(3 * rng.normal(size=(50, n_states)).astype(dtype), [smooth], [2.0])
    expected = reference_update(model, softmax(model.unary, axis=1))
    assert_allclose(DenseMeanField(max_iter=1).marginals(model).unary, expected, atol=1e-5)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("blur", ["single", "symmetric"])
@pytest.mark.parametrize("normalization", ["symmetric", None])
def test_log_z_is_a_lower_bound_at_every_iteration(kind, blur, normalization):
    for scale in (0.5, 3.0):
        model = dense_model(kind, n_nodes=5, blur=blur, normalization=normalization, scale=scale)
        exact = exact_log_z(model)
        for n_iter in (1, 2, 5, 30):
            found = DenseMeanField(max_iter=n_iter).marginals(model)
            assert found.bound == "lower"
            assert found.log_z <= exact + 1e-10


@pytest.mark.parametrize("kind", ["potts", "diagonal", "full"])
def test_log_z_is_the_free_energy_where_compatibilities_are_positive(kind):
    model = dense_model(kind)
    found = DenseMeanField().marginals(model)
    assert found.log_z == pytest.approx(reference_free_energy(model, found.unary), abs=1e-10)


def test_log_z_without_filters_is_exact():
    model = DenseModel(np.random.default_rng(0).normal(size=(4, 3)), [], [])
    found = DenseMeanField().marginals(model)
    assert found.log_z == pytest.approx(exact_log_z(model), abs=1e-10)
    assert found.converged


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("normalization", ["symmetric", None])
def test_free_energy_of_convergent_updates_never_rises(kind, normalization):
    for scale in (1.0, 5.0):
        model = dense_model(kind, n_nodes=60, normalization=normalization, scale=scale)
        bounds, state = [], None
        for _ in range(25):
            # certain labels would have no entropy
            found = DenseMeanField(max_iter=1, updates="convergent").marginals(model, init=state)
            state = found.state
            bounds.append(reference_free_energy(model, np.maximum(state, 1e-300)))
        assert np.diff(bounds).min() >= -1e-9
        assert bounds[-1] - bounds[0] > 1e-6


def test_parallel_updates_may_oscillate_where_convergent_ones_do_not():
    model = DenseModel(np.zeros((40, 2)), [PermutohedralFilter(np.zeros((40, 1)), blur="symmetric")], [-8.0])
    start = np.tile([0.7, 0.3], (40, 1))
    with pytest.warns(ConvergenceWarning, match="updates='convergent'"):
        DenseMeanField(max_iter=500, tol=1e-6).marginals(model, init=start)
    found = DenseMeanField(max_iter=500, tol=1e-6, updates="convergent").marginals(model, init=start)
    assert found.converged
    assert_allclose(found.unary, 0.5, atol=1e-5)


def test_stationary_marginals_are_derivatives_of_the_bound():
    model = dense_model("full", n_nodes=8)
    tight = DenseMeanField(max_iter=5000, tol=1e-14, updates="convergent")
    found = tight.marginals(model)

    def bound(unary_step, table_step):
        moved = DenseModel(model.unary + unary_step, model.filters, model.tables + table_step)
        return tight.marginals(moved, init=found.state).log_z

    rng = np.random.default_rng(0)
    direction, step = rng.normal(size=model.unary.shape), 1e-5
    slope = (bound(step * direction, 0) - bound(-step * direction, 0)) / (2 * step)
    assert slope == pytest.approx(np.sum(direction * found.unary), rel=1e-5)
    direction = rng.normal(size=model.tables.shape)
    direction += direction.transpose(0, 2, 1)
    slope = (bound(0, step * direction) - bound(0, -step * direction)) / (2 * step)
    assert slope == pytest.approx(np.sum(direction * found.tables), rel=1e-5)


def test_labels_are_the_likeliest_and_have_their_score():
    model = dense_model("full", n_nodes=30)
    labeling, marginals = DenseMeanField().map(model), DenseMeanField().marginals(model)
    assert_array_equal(labeling.labels, marginals.unary.argmax(axis=1))
    assert labeling.score == pytest.approx(score(model, labeling.labels))


@pytest.mark.parametrize("updates", ["parallel", "convergent"])
def test_forbidden_states_and_evidence(updates):
    model = dense_model("mixed", n_nodes=6)
    observed = clamped(model, [-1, 2, -1, 0, -1, -1])
    found = DenseMeanField(updates=updates).marginals(observed)
    assert_array_equal(found.unary[[1, 3]], np.eye(3)[[2, 0]])
    assert np.isfinite(found.unary).all()
    assert found.log_z <= exact_log_z(observed)
    with pytest.raises(ValueError, match="every state of node 1 is forbidden"):
        DenseMeanField().map(DenseModel([[0.0, 0.0], [-np.inf, -np.inf]], [], []))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["potts", "mixed"])
def test_same_bits_for_any_number_of_threads(dtype, kind):
    model = dense_model(kind, n_nodes=3000, dtype=dtype)
    method = DenseMeanField(updates="convergent")
    expected = method.marginals(model)
    for n_threads in (2, 8):
        found = method.marginals(model, n_threads=n_threads)
        assert_array_equal(found.unary, expected.unary)
        assert found.log_z == expected.log_z


def test_large_scores_stay_finite():
    smooth = PermutohedralFilter(np.zeros((4, 1), np.float32))
    unary = np.array([[1e17, 0], [0, 1e17], [-1e17, 0], [0, 0]], np.float32)
    found = DenseMeanField().marginals(DenseModel(unary, [smooth], [1.0]))
    assert np.isfinite(found.unary).all()
    assert_allclose(found.unary[:3], [[1, 0], [0, 1], [0, 1]])


def test_start_from_marginals_or_labels():
    model = dense_model("potts", n_nodes=20)
    halfway = DenseMeanField(max_iter=4).marginals(model)
    whole = DenseMeanField(max_iter=9).marginals(model)
    assert_allclose(DenseMeanField(max_iter=5).marginals(model, init=halfway.state).unary, whole.unary, atol=1e-12)
    labels = halfway.unary.argmax(axis=1)
    certain = DenseMeanField(max_iter=1).marginals(model, init=labels)
    assert_allclose(certain.unary, reference_update(model, np.eye(3)[labels]), atol=1e-12)
    with pytest.raises(ValueError, match="init must be marginals of shape"):
        DenseMeanField().marginals(model, init=np.ones((3, 3)))


def test_invalid_options_and_models():
    model = dense_model(blur="single")
    with pytest.raises(ValueError, match="needs filters with blur='symmetric'"):
        DenseMeanField(updates="convergent").map(model)
    with pytest.raises(ValueError, match="updates must be"):
        DenseMeanField(updates="serial").map(model)
    with pytest.raises(ValueError, match="max_iter must be at least 1"):
        DenseMeanField(max_iter=0).map(model)
    with pytest.raises(TypeError, match="MeanField"):
        MeanField().map(model)
    smooth = model.filters[0]
    with pytest.raises(ValueError, match=r"filters\[0\] must have 3 points"):
        DenseModel(np.zeros((3, 2)), [smooth], [1.0])
    with pytest.raises(ValueError, match=r"filters\[0\] must have 7 points in float32"):
        DenseModel(np.zeros((7, 2), np.float32), [smooth], [1.0])
    with pytest.raises(ValueError, match="compatibility must have one of the shapes"):
        DenseModel(np.zeros((7, 2)), [smooth], [1.0, 2.0])
    with pytest.raises(ValueError, match="compatibility must be symmetric"):
        DenseModel(np.zeros((7, 2)), [smooth], [[[0.0, 1.0], [0.0, 0.0]]])
    with pytest.raises(ValueError, match="compatibility must be finite"):
        DenseModel(np.zeros((7, 2)), [smooth], [np.nan])
    with pytest.raises(ValueError, match="unary must be finite"):
        DenseModel(np.full((7, 2), np.nan), [smooth], [1.0])
    with pytest.raises(ValueError, match="labels must have shape"):
        score(model, [0, 1])
