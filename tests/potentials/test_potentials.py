"""theta = B(x) w: the model against loops, the pullback against its definition as the adjoint."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from sklearn_crf.encoding import Example
from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.models import Statistics, compute_labeling_statistics, score
from sklearn_crf.potentials import PAIRWISE_FORMS, LinearPotentials, make_pairwise_form


def make_case(n_classes, form, *, n_node_types=1, n_edge_types=1, fit_intercept=True, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    graph = lattice((3, 4))
    example = Example(
        rng.normal(size=(12, 5)).astype(dtype),
        graph,
        edge_features=rng.normal(size=(graph.n_edges, 2)).astype(dtype),
        node_type=rng.integers(n_node_types, size=12),
        edge_type=rng.integers(n_edge_types, size=graph.n_edges),
    )
    potentials = LinearPotentials(
        5,
        n_classes,
        make_pairwise_form(form, n_classes),
        n_edge_features=2,
        n_node_types=n_node_types,
        n_edge_types=n_edge_types,
        fit_intercept=fit_intercept,
    )
    return example, potentials, rng.normal(size=potentials.n_coef), rng


CASES = [
    (2, "ising", {}),
    (2, "potts", {"fit_intercept": False}),
    (3, "potts", {"n_edge_types": 2}),
    (3, "symmetric", {"n_node_types": 2}),
    (4, "full", {"n_node_types": 3, "n_edge_types": 3}),
]


@pytest.mark.parametrize(("n_classes", "form", "options"), CASES)
def test_pullback_is_the_adjoint_of_the_model(n_classes, form, options):
    example, potentials, coef, rng = make_case(n_classes, form, **options)
    labels = rng.integers(n_classes, size=12)
    model = potentials.model(coef, example)
    # The score of a labeling is linear in the weights: <stats, theta(w)> = <B' stats, w>.
    gradient = potentials.pullback(example, compute_labeling_statistics(model, labels))
    assert_allclose(gradient @ coef, score(model, labels), rtol=1e-12)


@pytest.mark.parametrize(("n_classes", "form", "options"), CASES)
def test_float32_features_keep_float64_sums(n_classes, form, options):
    example, potentials, coef, rng = make_case(n_classes, form, dtype=np.float32, **options)
    model = potentials.model(coef, example)
    labels = rng.integers(n_classes, size=12)
    gradient = potentials.pullback(example, compute_labeling_statistics(model, labels))
    double, _, _, _ = make_case(n_classes, form, **options)
    expected = potentials.pullback(double, compute_labeling_statistics(potentials.model(coef, double), labels))
    assert model.dtype == np.float32
    assert gradient.dtype == np.float64
    assert_allclose(gradient, expected, atol=1e-5)


def test_model_by_hand():
    example, potentials, coef, _ = make_case(3, "symmetric", n_edge_types=2)
    weights = potentials.unpack(coef)
    model = potentials.model(coef, example)
    assert_allclose(model.unary, example.node_features @ weights.coef[0].T + weights.intercept[0], rtol=1e-12)
    assert_allclose(model.edge_weight, example.edge_features)
    assert_allclose(model.tables, np.swapaxes(model.tables, 2, 3))
    v = weights.edge_coef[1, 0]
    assert_allclose(model.tables[1, 0], [[v[0], v[1], v[2]], [v[1], v[3], v[4]], [v[2], v[4], v[5]]])


def test_two_classes_share_one_weight_vector():
    example, potentials, coef, _ = make_case(2, "ising")
    weights = potentials.unpack(coef)
    assert weights.coef.shape == (1, 1, 5)
    z = example.node_features @ weights.coef[0, 0] + weights.intercept[0, 0]
    assert_allclose(potentials.model(coef, example).unary, np.stack((-z / 2, z / 2), axis=1))


def test_sparse_features_give_the_same():
    example, potentials, coef, rng = make_case(4, "full")
    sparse = Example(sp.csr_matrix(example.node_features), example.graph, edge_features=example.edge_features)
    dense_model, sparse_model = potentials.model(coef, example), potentials.model(coef, sparse)
    assert_allclose(sparse_model.unary, dense_model.unary, rtol=1e-12)
    statistics = compute_labeling_statistics(dense_model, rng.integers(4, size=12))
    assert_allclose(potentials.pullback(sparse, statistics), potentials.pullback(example, statistics), rtol=1e-12)


@pytest.mark.parametrize("divisor", [None, 3.0])
@pytest.mark.parametrize("name", sorted(PAIRWISE_FORMS))
def test_forms_expand_and_adjoint(name, divisor):
    rng = np.random.default_rng(0)
    form = make_pairwise_form(name, 2)
    if divisor is not None:
        form = form.softened(divisor)
    weights, tables = rng.normal(size=(3, 2, form.n_weights)), rng.normal(size=(3, 2, 2, 2))
    assert_allclose((form.expand(weights) * tables).sum(), (weights * form.adjoint(tables)).sum(), rtol=1e-12)


@pytest.mark.parametrize("name", ["potts", "symmetric", "full"])
def test_softened_forms_keep_what_tables_say_of_single_states(name):
    rng = np.random.default_rng(0)
    form = make_pairwise_form(name, 3)
    weights = rng.normal(size=form.n_weights)
    table, softened = form.expand(weights), form.softened(4.0).expand(weights)
    of_states = (np.diag(table)[:, np.newaxis] + np.diag(table)) / 2
    assert_allclose(softened - of_states, (table - of_states) / 4, atol=1e-14)
    assert_allclose(np.diag(softened), np.diag(table))
    assert_allclose(form.softened(1.0).expand(weights), table)
    assert_allclose(form.softened(4.0).contract(softened), weights)


def test_pack_inverts_unpack_and_intercepts_are_free():
    _, potentials, coef, _ = make_case(3, "full", n_node_types=2)
    weights = potentials.unpack(coef)
    assert_allclose(potentials.pack(*weights), coef)
    assert np.count_nonzero(potentials.penalty) == potentials.n_coef - weights.intercept.size
    assert not potentials.unpack(potentials.penalty).intercept.any()


def test_unknown_form_and_ising_of_three():
    with pytest.raises(ValueError, match="pairwise must be"):
        make_pairwise_form("cubic", 3)
    with pytest.raises(ValueError, match="two classes"):
        make_pairwise_form("ising", 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_types_in_turn_have_the_bits_of_types_in_any_order(n_classes, order, dtype):
    """Nodes whose types repeat in order are found without a search."""
    n_types, rng = 3, np.random.default_rng(0)
    features = np.asarray(rng.normal(size=(60, 17)), dtype=dtype, order=order)
    potentials = LinearPotentials(17, n_classes, make_pairwise_form("full", n_classes), n_node_types=n_types)
    coef, tables = rng.normal(size=potentials.n_coef), np.zeros((1, 1, n_classes, n_classes))
    in_turn = np.tile(np.arange(n_types), 20)
    # One more node at the end breaks the repetition, and has a separate type.
    one_more = LinearPotentials(17, n_classes, make_pairwise_form("full", n_classes), n_node_types=n_types + 1)
    longer = np.zeros(one_more.n_coef)
    for parts in ("coef", "intercept"):
        getattr(one_more.unpack(longer), parts)[:n_types] = getattr(potentials.unpack(coef), parts)
    found = potentials.model(coef, Example(features, Graph(60, []), node_type=in_turn)).unary
    more = Example(
        np.asarray(np.concatenate((features, features[:1])), order=order), Graph(61, []), node_type=[*in_turn, n_types]
    )
    np.testing.assert_array_equal(found, one_more.model(longer, more).unary[:60])
    unary = rng.normal(size=(61, n_classes)).astype(dtype)
    gradients = [
        potentials.unpack(
            potentials.pullback(Example(features, Graph(60, []), node_type=in_turn), Statistics(unary[:60], tables))
        ),
        one_more.unpack(one_more.pullback(more, Statistics(unary, tables))),
    ]
    for parts in ("coef", "intercept"):
        np.testing.assert_array_equal(getattr(gradients[0], parts), getattr(gradients[1], parts)[:n_types])
