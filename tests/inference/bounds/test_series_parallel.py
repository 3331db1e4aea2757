"""Bounds over series-parallel subgraphs: exact on such graphs, tighter than over trees on others, and in training."""

from dataclasses import replace

import numpy as np
import pytest
from finite_differences import five_point
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import TRWCRF
from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.graphs import Graph, build_disjoint_union, lattice
from sklearn_crf.inference import BruteForce, JunctionTree, TightenBound, convergence_left_to_caller
from sklearn_crf.inference.bounds._series_parallel import SeriesParallel
from sklearn_crf.learning import Relaxation
from sklearn_crf.models import PairwiseModel
from sklearn_crf.objectives import EmpiricalRisk, RelaxedLikelihood
from sklearn_crf.potentials import LinearPotentials, make_pairwise_form

GRAPHS = {
    "grid": lattice((3, 4)),
    "volume": lattice((2, 2, 3)),
    "complete": Graph(6, [(i, j) for i in range(6) for j in range(i)]),
    "parts": build_disjoint_union([lattice((3, 3)), lattice((2,)), lattice((1,))]),
}
BOUND = TightenBound("series_parallel", tol=1e-6, max_iter=3000)


def random_model(graph, n_states=2, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    tables = rng.normal(size=(graph.n_edges, n_states, n_states)).astype(dtype)
    unary = rng.normal(size=(graph.n_nodes, n_states)).astype(dtype)
    return PairwiseModel(graph, unary, tables, np.arange(graph.n_edges))


@pytest.mark.parametrize("graph", [*GRAPHS.values(), lattice((9, 11))])
def test_subgraphs_cover_the_edges_and_have_width_two(graph):
    parts = SeriesParallel.covering(graph)
    assert parts.trees.any(axis=0).all()
    assert_allclose(parts.weights.sum(), 1)
    for kept in parts.trees:
        part = random_model(Graph(graph.n_nodes, graph.edges[kept]))
        JunctionTree(max_width=2).marginals(part)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("n_states", [2, 3])
def test_bound_is_tighter_than_over_trees(name, n_states):
    for seed in range(2):
        model = random_model(GRAPHS[name], n_states if name != "volume" else 2, seed)
        exact = JunctionTree().marginals(model)
        with convergence_left_to_caller():
            found, trees = (TightenBound(rule).marginals(model) for rule in ("series_parallel", "uniform"))
        assert found.bound == "upper"
        assert exact.log_z - 1e-9 <= found.log_z < trees.log_z
        assert np.abs(found.unary - exact.unary).mean() < np.abs(trees.unary - exact.unary).mean()


def test_exact_on_series_parallel_graphs():
    ladder = random_model(lattice((2, 6)), 3)
    found, exact = BOUND.marginals(ladder), JunctionTree().marginals(ladder)
    assert_allclose(found.log_z, exact.log_z, atol=1e-9)
    assert_allclose(found.unary, exact.unary, atol=1e-9)


def test_marginals_are_derivatives_of_the_bound():
    model = random_model(GRAPHS["grid"])
    found = BOUND.marginals(model)

    def moved(size, part):
        values = {"unary": model.unary, "tables": model.tables}
        rng = np.random.default_rng(3)
        step = rng.normal(size=values[part].shape)
        log_z = BOUND.marginals(replace(model, **{part: values[part] + size * step}), init=found.state).log_z
        return log_z, step

    for part in ("unary", "tables"):
        (upper, step), (lower, _) = moved(1e-3, part), moved(-1e-3, part)
        assert_allclose((upper - lower) / 2e-3, np.sum(getattr(found.statistics, part) * step), rtol=1e-4, atol=1e-5)


def test_a_component_does_not_depend_on_the_others():
    alone, both = lattice((3, 3)), GRAPHS["parts"]
    first = SeriesParallel.covering(alone).trees
    assert_array_equal(np.unique(SeriesParallel.covering(both).trees[:, :12], axis=0), np.unique(first, axis=0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_forbidden_pairs_and_single_precision(dtype):
    model = random_model(GRAPHS["grid"], dtype=dtype)
    tables = model.tables.copy()
    tables[::3, 0, 1, 1] = -np.inf
    model = replace(model, tables=tables)
    found, exact = TightenBound("series_parallel").marginals(model), BruteForce().marginals(model)
    assert found.unary.dtype == dtype
    assert found.log_z >= exact.log_z - 1e-6
    assert np.all(found.statistics.tables[::3, 0, 1, 1] < 1e-9)


def test_gradient_of_training_by_finite_differences():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=(2, 3, 3))
    X = rng.normal(size=(2, 3, 3, 1)) + y[..., None]
    encoded = encode_X(X, edge_features="constant", edge_types="tied")
    batches = make_batches(encoded, encode_y(y, encoded).labels)
    potentials = LinearPotentials(1, 2, make_pairwise_form("symmetric", 2), n_edge_features=1)
    risk = EmpiricalRisk(RelaxedLikelihood(BOUND.set_params(tol=1e-9)), potentials, batches)
    coef = 0.5 * rng.normal(size=potentials.n_coef)
    expected = five_point(lambda w: risk.value_grad(w).value, coef)
    assert_allclose(risk.value_grad(coef).gradient, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("missing", [False, True])
def test_training_and_prediction(missing):
    rng = np.random.default_rng(0)
    y = np.zeros((6, 5, 5), dtype=int)
    y[:, 1:4, 2:] = 1
    X = y[..., None] + 0.6 * rng.normal(size=(6, 5, 5, 1))
    if missing:
        y[:, 0] = -1
    options = {"C": 1.0, "edge_features": "constant", "pairwise": "potts", "missing_label": -1 if missing else None}
    exact, parts, trees = (
        TRWCRF(learning=learning, **options).fit(X, y)
        for learning in ("exact", Relaxation(trees="series_parallel"), Relaxation(trees="uniform"))
    )
    losses = [field.loss_curve_[-1] for field in (exact, parts, trees)]
    if not missing:
        assert losses[0] < losses[1] < losses[2]
    assert parts.inference_ == "TightenBound"
    assert parts.score(X, y) > 0.8
    chosen = TRWCRF(inference=TightenBound("series_parallel"), **options).fit(X, y)
    assert chosen.score(X, y) > 0.8
