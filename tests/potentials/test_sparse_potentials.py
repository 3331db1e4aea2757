"""Sparse features: weights for pairs of a feature and a column, against dense potentials and the definition."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.encoding import Batch, Example, make_trusted_example
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import TreeInference
from sklearn_crf.kernels.learning.learning import pair_gradient, pair_scores
from sklearn_crf.models import compute_labeling_statistics, score
from sklearn_crf.objectives import EmpiricalRisk, FastRisk, Likelihood
from sklearn_crf.potentials import (
    FeaturePairs,
    LinearPotentials,
    SparsePotentials,
    _feature_columns,
    build_feature_columns,
    convert_to_feature_columns,
    make_pairwise_form,
)


def make_batches(n_classes, *, n_node_types=1, ones=False, dtype=np.float64, seed=0, n_features=9):
    rng = np.random.default_rng(seed)
    batches = []
    for length in (5, 1, 8):
        dense = rng.random((length, n_features)) * (rng.random((length, n_features)) < 0.4)
        features = sp.csr_matrix(dense.astype(dtype))
        if ones:
            features.data[:] = 1
        example = Example(features, lattice((length,)), node_type=rng.integers(n_node_types, size=length))
        labels = rng.integers(n_classes, size=length).astype(np.int32)
        weight = np.array([rng.uniform(0.5, 2)])
        batches.append(Batch(example, np.array([0]), np.array([0, length]), labels, weight))
    return batches


def prepared(batches, n_node_types=1):
    return [
        Batch(convert_to_feature_columns(b.example, n_node_types), b.members, b.node_ptr, b.labels, b.weight)
        for b in batches
    ]


def labelled(batches):
    return [(batch.example.node_features, batch.labels) for batch in batches]


def both(n_classes, n_node_types=1, *, n_features=9, **options):
    form = make_pairwise_form("full", n_classes)
    pairs = FeaturePairs.all(n_features * n_node_types, 1 if n_classes == 2 else n_classes)
    options |= {"n_node_types": n_node_types}
    dense = LinearPotentials(n_features, n_classes, form, **options)
    return dense, SparsePotentials(pairs, n_features, n_classes, form, **options)


def to_sparse(dense, sparse, coef):
    """Return the weights of dense potentials in the order of the sparse potentials."""
    parts = dense.unpack(coef)
    return sparse.pack(np.moveaxis(parts.coef, 1, 2).ravel(), parts.intercept, parts.edge_coef)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_node_types", [1, 2])
@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_all_pairs_are_linear_potentials(n_classes, n_node_types, ones, fit_intercept):
    dense, sparse = both(n_classes, n_node_types, fit_intercept=fit_intercept)
    assert dense.n_coef == sparse.n_coef
    coef = np.random.default_rng(1).normal(size=dense.n_coef)
    for batch in make_batches(n_classes, n_node_types=n_node_types, ones=ones):
        expected = dense.model(coef, batch.example)
        for example in (batch.example, convert_to_feature_columns(batch.example, n_node_types)):
            model = sparse.model(to_sparse(dense, sparse, coef), example)
            assert_allclose(model.unary, expected.unary, atol=1e-12)
            assert_array_equal(model.tables, expected.tables)
            statistics = compute_labeling_statistics(model, batch.labels)
            gradient = dense.pullback(batch.example, statistics)
            assert_allclose(sparse.pullback(example, statistics), to_sparse(dense, sparse, gradient), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pullback_is_the_adjoint_for_some_pairs(dtype):
    batches = prepared(make_batches(4, dtype=dtype, n_features=30))
    pairs = FeaturePairs.seen(30, 4, labelled(batches))
    potentials = SparsePotentials(pairs, 30, 4, make_pairwise_form("full", 4))
    coef = np.random.default_rng(0).normal(size=potentials.n_coef)
    for batch in batches:
        model = potentials.model(coef, batch.example)
        assert model.dtype == dtype
        gradient = potentials.pullback(batch.example, compute_labeling_statistics(model, batch.labels))
        assert_allclose(gradient @ coef, score(model, batch.labels), rtol=1e-12 if dtype == np.float64 else 1e-5)


def test_seen_pairs_are_those_of_labelled_nodes_of_examples_that_count():
    features = sp.csr_matrix(np.array([[1.0, 0, 2], [0, 1, 0], [0, 0, 3], [4, 0, 0]]))
    example = convert_to_feature_columns(Example(features, lattice((4,))), 1)
    labels = np.array([1, 0, -1, 1], dtype=np.int32)
    batch = Batch(example, np.array([0, 1]), np.array([0, 3, 4]), labels, np.array([1.0, 0.0]))
    pairs = FeaturePairs.seen(4, 2, [(example.node_features, batch.counted_labels)])
    assert_array_equal(pairs.ptr, [0, 1, 2, 3, 3])
    assert_array_equal(pairs.column, [1, 0, 1])
    assert len(pairs) == 3


def test_pairs_and_matrices_of_weights_are_inverse():
    batches = prepared(make_batches(4, n_features=30))
    pairs = FeaturePairs.seen(30, 4, labelled(batches))
    values = np.random.default_rng(0).normal(size=len(pairs))
    matrix = pairs.matrix(values)
    assert matrix.shape == (4, 30)
    assert matrix.nnz == len(pairs)
    assert_array_equal(pairs.pick(matrix), values)
    assert_array_equal(pairs.pick(matrix.toarray()), values)
    again = FeaturePairs.of_matrix(matrix)
    assert_array_equal(again.ptr, pairs.ptr)
    assert_array_equal(again.column, pairs.column)
    values[::2] = 0
    assert pairs.matrix(values).nnz == np.count_nonzero(values)
    assert_array_equal(pairs.pick(pairs.matrix(values)), values)
    everything = FeaturePairs.all(30, 4)
    assert_array_equal(everything.pick(matrix.toarray()), matrix.toarray().T.ravel())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("n_node_types", [1, 2])
def test_rows_that_are_read_once_have_the_same_scores(dtype, seen, n_node_types):
    batches = make_batches(4, n_node_types=n_node_types, dtype=dtype)
    pairs = FeaturePairs.all(9 * n_node_types, 4)
    if seen:
        pairs = FeaturePairs.seen(9 * n_node_types, 4, labelled(prepared(batches, n_node_types)))
    potentials = SparsePotentials(pairs, 9, 4, make_pairwise_form("full", 4), n_node_types=n_node_types)
    coef = np.random.default_rng(0).normal(size=potentials.n_coef)
    for batch in batches:
        once, often = potentials.prepare_once(batch.example), potentials.prepared(batch.example)
        assert sp.issparse(once.node_features) == (n_node_types == 1)
        found, expected = (potentials.model(coef, each).unary for each in (once, often))
        assert found.dtype == dtype
        assert_allclose(found, expected, rtol=1e-6 if dtype == np.float32 else 1e-13)


@pytest.mark.parametrize("n_node_types", [1, 2])
def test_sparse_risk_is_the_empirical_risk(n_node_types):
    batches = make_batches(3, n_node_types=n_node_types)
    dense, sparse = both(3, n_node_types)
    coef = np.random.default_rng(2).normal(size=dense.n_coef)
    expected = EmpiricalRisk(Likelihood(TreeInference()), dense, batches).value_grad(coef)
    packed = to_sparse(dense, sparse, coef)
    results = [
        FastRisk(Likelihood(TreeInference()), sparse, prepared(batches, n_node_types), n_jobs=n).value_grad(packed)
        for n in (1, 2, 3)
    ]
    assert_allclose(results[0].value, expected.value, rtol=1e-12)
    assert_allclose(results[0].gradient, to_sparse(dense, sparse, expected.gradient), atol=1e-12)
    assert results[0].n_errors == expected.n_errors
    for other in results[1:]:
        assert_array_equal(other.gradient, results[0].gradient)
    risk = FastRisk(Likelihood(TreeInference()), sparse, prepared(batches, n_node_types))
    assert_allclose(risk.oracle(0, packed).gradient, risk.value_grad(packed, [0]).gradient, atol=1e-13)


@pytest.mark.parametrize(("form", "n_classes"), [("full", 3), ("potts", 3), ("symmetric", 4), ("ising", 2)])
@pytest.mark.parametrize("n_types", [1, 2])
def test_curvature_is_the_diagonal_of_the_hessian_at_zero(form, n_classes, n_types):
    rng = np.random.default_rng(3)
    batches = []
    for weight in (0.5, 2.0):
        # One edge per example: edges of a longer chain are not independent.
        features = sp.csr_matrix(rng.normal(size=(2, 5)) * (rng.random((2, 5)) < 0.7))
        types = {"node_type": rng.integers(n_types, size=2), "edge_type": rng.integers(n_types, size=1)}
        example = Example(features, lattice((2,)), rng.normal(size=(1, 2)), **types)
        labels = rng.integers(n_classes, size=2).astype(np.int32)
        batches.append(Batch(example, np.array([0]), np.array([0, 2]), labels, np.array([weight])))
    pairs = FeaturePairs.all(5 * n_types, 1 if n_classes == 2 else n_classes)
    options = {"n_node_types": n_types, "n_edge_types": n_types, "n_edge_features": 2}
    potentials = SparsePotentials(pairs, 5, n_classes, make_pairwise_form(form, n_classes), **options)
    risk = FastRisk(Likelihood(TreeInference()), potentials, batches)
    step = 1e-4
    shifted = [step * row for row in np.eye(potentials.n_coef)]
    slopes = [risk.value_grad(x).gradient - risk.value_grad(-x).gradient for x in shifted]
    assert_allclose(risk.curvature, np.diag(slopes) / (2 * step), atol=1e-6)


def test_restricted_form_keeps_the_allowed_entries():
    form = make_pairwise_form("full", 3)
    allowed = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 0]], dtype=bool)
    restricted = form.restricted(allowed)
    assert restricted.n_weights == 4
    tables = restricted.expand(np.array([[1.0, 2, 3, 4]]))
    assert_array_equal(tables[0], [[1, 0, 2], [0, 0, 0], [3, 4, 0]])
    assert_array_equal(restricted.contract(tables), [[1, 2, 3, 4]])
    assert_array_equal(restricted.adjoint(np.arange(9.0).reshape(1, 3, 3)), [[0, 2, 6, 7]])
    assert not form.restricted(np.zeros((3, 3), dtype=bool)).sign.any()


def test_too_many_features_are_refused():
    features = sp.csr_matrix(([1.0], [2], [0, 1]), shape=(1, 2**30))
    assert build_feature_columns(features).feature.tolist() == [2]
    with pytest.raises(ValueError, match="1073741824 features for 3 types"):
        build_feature_columns(features, np.array([2]))


def test_equal_columns_of_a_row_are_added():
    features = sp.csr_matrix((np.array([1.0, 1.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 1))
    columns = build_feature_columns(features)
    potentials = SparsePotentials(FeaturePairs.all(1, 3), 1, 3, make_pairwise_form("potts", 3), fit_intercept=False)
    example = make_trusted_example(columns, lattice((1,)))
    assert_array_equal(potentials.model(np.array([1.0, 2, 3, 0]), example).unary, [[2, 4, 6]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_feature_columns_are_the_same_counted_and_sorted(dtype, monkeypatch):
    features = sp.random(30, 40, 0.1, format="csr", dtype=dtype, random_state=0)
    node_type = np.arange(30, dtype=np.int32) % 2
    for rows, types in (
        (features, None),
        (features, node_type),
        (features[:0], None),
        ((features > 0) * dtype(1), None),
    ):
        monkeypatch.setattr(_feature_columns, "_COUNTED", 10**6)
        counted = _feature_columns.build_feature_columns(rows, types)
        monkeypatch.setattr(_feature_columns, "_COUNTED", 0)
        found = _feature_columns.build_feature_columns(rows, types)
        for a, b in zip(counted.arrays, found.arrays, strict=True):
            assert a.dtype == b.dtype
            assert_array_equal(a, b)


@pytest.mark.parametrize("ones", [True, False])
@pytest.mark.parametrize("n_columns", [1, 2, 3, 4, 5, 7, 8, 15, 16, 18, 22])
def test_kernels_of_whole_rows_are_products_of_matrices(n_columns, ones):
    rng = np.random.default_rng(n_columns)
    features = sp.random(40, 12, 0.3, format="csr", random_state=0)
    if ones:
        features = features.sign()
    columns = build_feature_columns(features)
    pairs = FeaturePairs.all(12, n_columns)
    weights, statistics = rng.normal(size=(12, n_columns)), rng.normal(size=(40, n_columns))
    scores, gradient, work = np.ones((40, n_columns)), np.ones(12 * n_columns), np.empty(n_columns)
    pair_scores(*columns.arrays, pairs.ptr, pairs.column, weights.ravel(), scores, work)
    assert_allclose(scores, 1 + features @ weights, atol=1e-13)
    stop = len(columns.feature)
    pair_gradient(*columns.arrays, 0, stop, pairs.ptr, pairs.column, statistics, gradient, work)
    assert_allclose(gradient, 1 + (features.T @ statistics).ravel(), atol=1e-13)
