"""Scores near the stated limit: results stay finite, and no algorithm warns of overflow."""

import itertools
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from test_inference_contract import ALGORITHMS

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import (
    AlphaBetaSwap,
    AlphaExpansion,
    AutoMap,
    BruteForce,
    GraphCut,
    LinearProgram,
    TreeBestLabelings,
    TreeInference,
    fuse_labelings,
)
from sklearn_crf.inference.cuts._lattice_cuts import CutScores, LatticeCuts
from sklearn_crf.models import (
    CountTable,
    EdgeLayout,
    FactorGraph,
    PairwiseModel,
    SparseTable,
    factor_graph_of,
    score,
)

FOREST_ONLY = (TreeInference, TreeBestLabelings)
# Algorithms that split scores among trees multiply tables by a few times the degree of a node.
NEAR = {np.float64: 1e98, np.float32: 1e16}


def extreme_model(dtype, shape, scale):
    rng = np.random.default_rng(0)
    graph = lattice(shape)
    unary = rng.choice([-1.0, -0.25, 0.0, 0.5, 1.0], (graph.n_nodes, 2)) * scale
    tables = np.array([[[1.0, -1.0], [-1.0, 0.5]]]) * scale
    return PairwiseModel(graph, unary.astype(dtype), tables)


TASKS = [
    pytest.param(cls, task, id=f"{cls.__name__}-{task}")
    for cls in ALGORITHMS
    for task in ("map", "marginals")
    if task in cls.tasks
]


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize(("cls", "task"), TASKS)
def test_results_are_finite(cls, task, dtype):
    for shape in [(4,)] if cls in FOREST_ONLY else [(4,), (2, 3)]:
        model = extreme_model(dtype, shape, NEAR[dtype])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = getattr(cls(), task)(model)
        if task == "map":
            assert found.score == pytest.approx(score(model, found.labels), rel=1e-6)
            assert np.isfinite(found.score)
        else:
            np.testing.assert_allclose(found.unary.sum(axis=1), 1, rtol=1e-4)
            assert found.log_z is None or np.isfinite(found.log_z)


@pytest.mark.parametrize("take", [lambda model: model, factor_graph_of])
def test_linear_programs_are_scaled_for_the_solver(take):
    model = extreme_model(np.float64, (4,), 1e98)
    found = LinearProgram().map(take(model))
    scaled = LinearProgram().map(take(PairwiseModel(model.graph, model.unary / 1e98, model.tables / 1e98)))
    assert np.array_equal(found.labels, scaled.labels)
    assert found.certified


@pytest.mark.parametrize("scale", [1e-300, 1e-310, 5e-324])
@pytest.mark.parametrize("cls", [cls for cls in ALGORITHMS if "map" in cls.tasks])
def test_scores_next_to_zero(cls, scale):
    for shape in [(4,)] if cls in FOREST_ONLY else [(4,), (2, 3)]:
        model = extreme_model(np.float64, shape, scale)
        for given in [model, factor_graph_of(model)] if FactorGraph in cls.takes else [model]:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", ConvergenceWarning)
                found = cls().map(given)
            assert abs(found.score - score(model, found.labels)) <= 1e-300
            assert found.bound >= found.score - 1e-12 * abs(found.score)


def _find_labelings_by_cuts(unary, table, scale):
    """Return labelings of a lattice and of a graph with two states, found by minimum cuts in all forms."""
    graph, n_nodes = lattice((8, 9)), 72
    features, layout = unary[:, 1:] - unary[:, :1], EdgeLayout(np.zeros(graph.n_edges, dtype=np.int32), None)
    cuts, found = LatticeCuts(), np.empty(n_nodes, dtype=np.int32)
    cuts.append(graph, features, layout, found=found)
    cuts.solve([0], CutScores(np.array([scale]), 0.0, scale * table[None, None]), 1)
    yield found
    for any_graph in (graph, Graph(n_nodes, graph.edges)):
        model = PairwiseModel(any_graph, scale * unary, scale * table[None])
        yield GraphCut().map(model).labels
        yield AlphaExpansion(label_costs=[0.0, 3 * scale]).map(model).labels
        mixed = PairwiseModel(
            any_graph, scale * unary, scale * np.stack((table, -table)), edge_type=np.arange(graph.n_edges) % 2
        )
        yield GraphCut("qpbo").map(mixed).labels
        yield AlphaExpansion(nonsubmodular="truncate").map(mixed).labels
        yield AlphaBetaSwap(nonsubmodular="truncate").map(mixed).labels
        yield fuse_labelings(mixed, [np.zeros(n_nodes, dtype=int), np.ones(n_nodes, dtype=int), np.arange(n_nodes) % 2])


@pytest.mark.parametrize("exponent", [-1010, -900, 300])
def test_cuts_do_not_depend_on_the_unit_of_scores(exponent):
    unary, table = np.random.default_rng(0).normal(size=(72, 2)), np.array([[0.7, 0.0], [-0.2, 0.5]])
    expected = list(_find_labelings_by_cuts(unary, table, 1.0))
    assert all(0 < labels.sum() < 72 for labels in expected)
    np.testing.assert_array_equal(list(_find_labelings_by_cuts(unary, table, 2.0**exponent)), expected)


@pytest.mark.parametrize("scale", [1e-280, 1e-308])
def test_cuts_of_scores_next_to_zero_are_certified_only_if_optimal(scale):
    graph = Graph(6, list(itertools.combinations(range(6), 2)))
    for seed in range(10):
        rng = np.random.default_rng(seed)
        tables = rng.normal(size=(15, 2, 2))
        for signed in (tables, np.where(np.eye(2), np.abs(tables), -np.abs(tables))):
            model = PairwiseModel(graph, 2 * scale * rng.normal(size=(6, 2)), scale * signed, edge_type=np.arange(15))
            best = BruteForce().map(model).score
            for cut in (GraphCut("qpbo"), GraphCut("truncate"), AlphaExpansion(nonsubmodular="truncate"), AutoMap()):
                found = cut.map(model)
                assert found.bound >= best - 1e-13 * scale
                assert not found.certified or found.score >= best - 1e-13 * scale


def test_a_model_of_more_labelings_than_float64_can_count():
    rng, n = np.random.default_rng(0), 1200
    factors = [(range(s, s + 3), rng.normal(size=(2, 2, 2))) for s in range(n - 2)]
    states = rng.integers(2, size=(5, n))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = FactorGraph.from_factors([2] * n, factors)
        assert AutoMap().map(model).certified
        with pytest.raises(ValueError, match="more than max_labelings"):
            BruteForce().map(model)
        counted = FactorGraph.from_factors([2] * n, [(range(n), CountTable([0.0, 1.0], default=-1.0))])
        assert AutoMap().map(counted).score == 1.0
        with pytest.raises(ValueError, match="too many for a dense array"):
            counted.dense_table(0)
        with pytest.raises(ValueError, match="too many for a SparseTable"):
            FactorGraph.from_factors([2] * n, [(range(n), SparseTable(states, np.zeros(5), 0.0))])


@pytest.mark.parametrize("cls", [cls for cls in ALGORITHMS if "marginals" in cls.tasks])
@pytest.mark.parametrize("offset", [1e7, 6e8])
def test_marginals_are_distributions_where_one_node_is_far_from_zero(cls, offset):
    # Neighbouring float32 numbers at these offsets differ by 1 and 64. Such wide ranges need sums of scores.
    rng = np.random.default_rng(0)
    for graph in [lattice((4,)), lattice((2, 2))] * 4:
        unary, table = ((100 * rng.normal(size=shape)).astype(np.float32) for shape in ((4, 3), (1, 3, 3)))
        unary[0] += np.float32(offset)
        if cls in FOREST_ONLY and not graph.is_forest:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found = cls().marginals(PairwiseModel(graph, unary, table))
        assert np.allclose(found.unary.sum(axis=1), 1, atol=1e-4)
