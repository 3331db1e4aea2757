"""Examples with cycles that are joined for inference have the same cutting planes and losses as single examples."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import M3NClassifier
from sklearn_crf.encoding import Batch, Example, unite_batches
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import AutoMap, GraphCut
from sklearn_crf.inference.cuts._cut_network import LatticeFlow
from sklearn_crf.objectives import (
    EmpiricalRisk,
    PlaneOracle,
    RelaxedHinge,
    StructuredHinge,
    make_blocks,
    split_risk_into_blocks,
)
from sklearn_crf.objectives.margin import _planes
from sklearn_crf.potentials import LinearPotentials, make_pairwise_form


def grids(shapes, *, weighted=False, edge_features=True, connectivity=1, seed=0):
    """Return a batch for each grid, with a type of edges for each offset."""
    rng = np.random.default_rng(seed)
    graphs = {shape: lattice(shape, connectivity) for shape in shapes}
    batches = []
    for i, shape in enumerate(shapes):
        graph = graphs[shape]
        features = rng.uniform(0.5, 1, size=(graph.n_edges, 2)) if edge_features else None
        example = Example(
            rng.normal(size=(graph.n_nodes, 2)), graph, features, edge_type=graph.lattice_edge_type.copy()
        )
        labels = rng.integers(2, size=graph.n_nodes).astype(np.int32)
        weight = np.array([1.0 + i // 3]) if weighted else None
        batches.append(Batch(example, np.array([i]), np.array([0, graph.n_nodes]), labels, weight))
    return batches


def potentials_of(batches):
    first = batches[0].example
    n_features = 1 if first.edge_features is None else first.edge_features.shape[1]
    return LinearPotentials(
        2,
        2,
        make_pairwise_form("potts", 2),
        n_edge_types=int(first.edge_type.max()) + 1,
        n_edge_features=n_features,
    )


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(_planes, "_FEW_NODES", 1)


@pytest.mark.parametrize(
    "shapes", [[(4, 4)] * 7, [(4, 4), (4, 4), (3, 6), (3, 6), (4, 4), (5, 5)]], ids=["same", "mixed"]
)
@pytest.mark.parametrize("options", [{}, {"weighted": True}, {"edge_features": False}, {"connectivity": 2}], ids=str)
def test_joined_examples_have_their_own_planes(small_parts, monkeypatch, shapes, options):
    monkeypatch.setattr(_planes, "make_blocks", lambda batches, largest=4: make_blocks(batches, 2, largest))
    batches = grids(shapes, **options)
    potentials = potentials_of(batches)
    rng = np.random.default_rng(1)
    coef = rng.normal(size=potentials.n_coef)
    # Equal states are preferred: cuts are exact.
    places = potentials.unpack(np.arange(potentials.n_coef)).edge_coef.ravel()
    coef[places] = np.abs(coef[places])
    hinge = StructuredHinge(GraphCut(), 1.0 - np.eye(2))
    apart = EmpiricalRisk(hinge, potentials, batches)
    together, blocks = split_risk_into_blocks(apart)
    assert len(together.batches) < len(batches)
    assert_allclose(together.value_grad(coef).value, apart.value_grad(coef).value)
    assert_allclose(together.value_grad(coef).gradient, apart.value_grad(coef).gradient, atol=1e-9)
    scale = np.ones(potentials.n_coef)
    alone = PlaneOracle(apart, 0.3, scale, [[i] for i in range(len(batches))])
    oracle = PlaneOracle(together, 0.3, scale, blocks)
    slopes, offsets = (
        np.concatenate(part) for part in zip(*(oracle(k, coef) for k in range(len(blocks))), strict=True)
    )
    order = np.concatenate([together.batches[i].members for block in blocks for i in block])
    assert_array_equal(order, np.arange(len(batches)))
    for i in order:
        own_slopes, own_offsets = alone(i, coef)
        assert_allclose(slopes[i], own_slopes[0], atol=1e-9)
        assert_allclose(offsets[i], own_offsets[0], atol=1e-9)


def test_lattices_of_one_shape_stay_lattices():
    same, mixed = grids([(4, 4)] * 3), grids([(4, 4), (3, 6)])
    union = unite_batches(same, as_lattice=True)
    assert union.example.graph.shape == (3, 4, 4)
    assert LatticeFlow.fits(union.example.graph)
    assert_array_equal(np.sort(union.example.edges, axis=0), np.sort(unite_batches(same).example.edges, axis=0))
    assert unite_batches(mixed, as_lattice=True).example.graph.shape is None


def test_what_is_better_alone_stays_alone():
    batches = grids([(4, 4)] * 4)
    potentials = potentials_of(batches)
    relaxed = EmpiricalRisk(RelaxedHinge(GraphCut(), 1.0 - np.eye(2)), potentials, batches)
    assert split_risk_into_blocks(relaxed)[0] is relaxed
    # AutoMap enumerates the 2**9 labelings of one grid, but not the labelings of two joined grids.
    small = grids([(3, 3)] * 4)
    enumerated = EmpiricalRisk(StructuredHinge(AutoMap(), 1.0 - np.eye(2)), potentials, small)
    assert len(split_risk_into_blocks(enumerated)[0].batches) == 4


def test_training_on_joined_examples_is_identical_for_any_n_jobs(small_parts):
    rng = np.random.default_rng(0)
    y = (rng.normal(size=(200, 5, 5)).cumsum(axis=1) > 0).astype(int)
    X = y[..., None] + rng.normal(size=(*y.shape, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one, two = (M3NClassifier(max_iter=2, random_state=0, n_jobs=k).fit(X, y) for k in (1, 2))
    assert_array_equal(one.coef_, two.coef_)
    assert_array_equal(one.edge_coef_, two.edge_coef_)
