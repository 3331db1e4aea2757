"""Piecewise likelihood: sums of exponentials of rows."""

from dataclasses import replace

import numpy as np
import pytest
from factor_strategies import random_factor_graph
from finite_differences import five_point
from model_strategies import random_model
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from sklearn_crf.inference import edge_shared_bound, nodes_of_edge_shares
from sklearn_crf.models import CountTable, FactorGraph, SparseTable, clamped
from sklearn_crf.objectives import Piecewise, SharedPieces
from sklearn_crf.objectives.likelihood._piecewise import _compute_log_sums


@pytest.mark.parametrize("n_columns", [1, 2, 3, 4, 7, 8, 9, 17, 130])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0, 800.0])
def test_log_sums_are_those_of_more_digits(n_columns, scale):
    scores = scale * np.random.default_rng(0).normal(size=(300, n_columns))
    # Rows with several best entries, rows with only best entries, and rows with forbidden entries.
    scores[::3] = np.round(scores[::3])
    scores[5] = 0.0
    scores[7, 1:] = -np.inf
    best = scores.max(axis=1, keepdims=True)
    expected = best + np.log(np.exp(scores.astype(np.longdouble) - best).sum(axis=1, keepdims=True))
    rounding = np.finfo(np.float64).eps * (np.abs(best) + np.log(n_columns) + 1)
    assert np.all(np.abs(_compute_log_sums(scores) - expected) <= 2 * rounding)


def test_log_sums_of_rows_without_any_state():
    scores = np.random.default_rng(0).normal(size=(4, 3))
    scores[1] = -np.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        assert_array_equal(_compute_log_sums(scores), logsumexp(scores, axis=1, keepdims=True))


def with_gaps(model, seed=0):
    """Return labels of a model, half of them missing, including both ends of some edge."""
    rng = np.random.default_rng(seed)
    n_states = np.full(model.n_nodes, model.n_columns) if model.n_states is None else model.n_states
    labels = rng.integers(n_states).astype(np.int32)
    labels[rng.permutation(model.n_nodes)[: model.n_nodes // 2]] = -1
    return labels


def enumerated(pieces, labels):
    """Return the negative log-likelihood of the known labels in independent factors (scope, scores)."""
    total = 0.0
    for scope, scores in pieces:
        known = tuple(slice(None) if label < 0 else int(label) for label in labels[list(scope)])
        total += logsumexp(scores) - logsumexp(scores[known])
    return total


def pieces_of(model):
    if isinstance(model, FactorGraph):
        scopes = np.split(model.scope, model.scope_ptr[1:-1])
        return [(scope, scores_of(model, f, model.n_states[scope])) for f, scope in enumerate(scopes)]
    tables = model.edge_tables()
    return [([s], row) for s, row in enumerate(model.unary)] + list(zip(model.graph.edges, tables, strict=True))


def scores_of(model, factor, shape):
    states = np.indices(shape).reshape(len(shape), np.prod(shape, dtype=int)).T
    return model.factor_scores(np.full(len(states), factor), states).reshape(shape)


MODELS = {
    "grid": lambda: random_model("grid", 3, "typed", seed=1),
    "weighted": lambda: random_model("cycle", 3, "weighted", seed=2),
    "factors": lambda: random_factor_graph(n_nodes=6, n_factors=9, seed=3),
    "listed": lambda: FactorGraph.from_factors(
        [3, 3, 2, 3],
        [
            ([0, 1, 2], SparseTable([(0, 1, 0), (1, 1, 1), (2, 2, 1)], [0.7, 1.1, -0.4], 0.2)),
            ([0, 1, 2, 3], CountTable([0.3, -0.2, 0.9], 0.5, 1)),
            ([3], np.array([0.1, 0.5, -0.3])),
            ([1, 3], np.arange(9.0).reshape(3, 3) / 4),
        ],
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(4))
def test_missing_labels_are_summed_out_in_each_piece(name, seed):
    model = MODELS[name]()
    labels = with_gaps(model, seed)
    loss = Piecewise().loss_statistics(model, labels)
    assert_allclose(loss.terms.sum(), enumerated(pieces_of(model), labels), rtol=1e-10)
    fields = ("log_table", "table_default") if isinstance(model, FactorGraph) else ("unary", "tables")
    for field in fields:
        values = getattr(model, field).astype(np.float64)

        def value(x, field=field, shape=values.shape):
            return Piecewise().loss_statistics(replace(model, **{field: x.reshape(shape)}), labels).terms.sum()

        derivative = getattr(loss.statistics, field).ravel()
        assert_allclose(derivative, five_point(value, values.ravel()), atol=1e-6)


@pytest.mark.parametrize("name", ["grid", "factors"])
def test_weights_of_nodes_are_those_of_their_pieces(name):
    model = MODELS[name]()
    labels, weight = with_gaps(model), np.random.default_rng(0).random(model.n_nodes)
    pieces = pieces_of(model)
    expected = sum(
        (weight[scope[0]] if len(scope) == 1 else 1.0) * enumerated([(scope, scores)], labels)
        for scope, scores in pieces
    )
    found = Piecewise().loss_statistics(model, labels, node_weight=weight)
    assert_allclose(found.terms.sum(), expected, rtol=1e-10)


@pytest.mark.parametrize("objective", [Piecewise(), SharedPieces()])
def test_no_labels_have_no_loss(objective):
    model = MODELS["grid"]()
    loss = objective.loss_statistics(model, np.full(model.n_nodes, -1, dtype=np.int32))
    assert_allclose(loss.terms.sum(), 0.0, atol=1e-12)
    assert_allclose(loss.statistics.unary, 0.0, atol=1e-12)
    assert_allclose(loss.statistics.tables, 0.0, atol=1e-12)


@pytest.mark.parametrize("name", ["grid", "weighted"])
def test_shared_pieces_of_missing_labels_are_bounds_of_both_sides(name):
    model = MODELS[name]()
    labels = with_gaps(model)
    bounds = [
        edge_shared_bound(each, np.zeros(len(nodes_of_edge_shares(model)))) for each in (model, clamped(model, labels))
    ]
    loss = SharedPieces().loss_statistics(model, labels)
    assert_allclose(loss.terms.sum(), bounds[0].marginals.log_z - bounds[1].marginals.log_z, rtol=1e-10)
    values = model.tables.astype(np.float64)

    def value(x):
        return SharedPieces().loss_statistics(replace(model, tables=x.reshape(values.shape)), labels).terms.sum()

    assert_allclose(loss.statistics.tables.ravel(), five_point(value, values.ravel()), atol=1e-6)
