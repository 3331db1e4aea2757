"""Tree-reweighted messages in an order in which the bound never increases."""

import numpy as np
import pytest
from hypothesis import given, settings
from model_strategies import models, random_model
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import (
    Graph,
    compute_chain_probabilities,
    covering_trees,
    effective_resistances,
    follows_chains,
    lattice,
)
from sklearn_crf.inference import (
    BruteForce,
    CountingNumbers,
    LinearProgram,
    NormProductBP,
    TightenBound,
    TRWMessagePassing,
    convergence_left_to_caller,
)

CONVERGENT = {"schedule": "convergent", "max_iter": 5000, "tol": 1e-11}
CHAINS = {"edge_probabilities": "chains", **CONVERGENT}
LOOPY = ("grid", "cycle", "disconnected")


def bounds_of_sweeps(model, task, n_sweeps, **params):
    """Return the bound after each sweep; each sweep has a warm start from the sweep before."""
    bounds, state = [], None
    with convergence_left_to_caller():
        for _ in range(n_sweeps):
            found = getattr(TRWMessagePassing(max_iter=1, tol=0, schedule="convergent", **params), task)(
                model, init=state
            )
            state = found.state
            bounds.append(found.log_z if task == "marginals" else found.bound)
    return np.array(bounds)


def test_chain_probabilities():
    for topology in LOOPY:
        for seed in range(5):
            graph = random_model(topology, 2, seed=seed).graph
            probabilities = compute_chain_probabilities(graph)
            assert follows_chains(graph, probabilities)
            assert np.all((probabilities > 0) & (probabilities <= 1))
            assert not follows_chains(graph, 1.01 * probabilities)
    assert_allclose(compute_chain_probabilities(lattice((4, 5))), 0.5)
    assert_allclose(compute_chain_probabilities(lattice((7,))), 1)
    assert not follows_chains(lattice((4, 5)), effective_resistances(lattice((4, 5))))
    triangle = Graph(3, [[0, 1], [2, 1], [0, 2]])
    assert_allclose(compute_chain_probabilities(triangle), 0.5)


@pytest.mark.parametrize("task", ["marginals", "map"])
@pytest.mark.parametrize("edge_probabilities", ["chains", "auto"])
def test_the_bound_never_rises(edge_probabilities, task):
    for seed in range(6):
        for graph, n_columns, scale in (("grid", 3, 3.0), (lattice((7, 7)), 2, 5.0), ("disconnected", 3, 1.0)):
            # NormProductBP with a warm start may reconsider states that were impossible before.
            forbidden = 0.15 * (seed % 2) * (edge_probabilities == "chains")
            model = random_model(graph, n_columns, "untied", scale=scale, forbidden=forbidden, seed=seed)
            bounds = bounds_of_sweeps(model, task, 25, edge_probabilities=edge_probabilities)
            assert np.all(np.diff(bounds) <= 1e-9 * (1 + abs(bounds[0])))


@pytest.mark.parametrize("topology", LOOPY)
def test_bound_is_that_of_direct_minimisation_at_the_same_probabilities(topology):
    for seed in range(3):
        model = random_model(topology, 2, "untied", seed=seed)
        trees = covering_trees(model.graph)
        direct = TightenBound(trees, max_iter=3000, tol=1e-9).marginals(model)
        found = TRWMessagePassing(trees.edge_probabilities, **CONVERGENT).marginals(model)
        assert found.bound == direct.bound == "upper"
        assert found.log_z == pytest.approx(direct.log_z, abs=1e-6)
        assert_allclose(found.unary, direct.unary, atol=1e-5)


@pytest.mark.parametrize("kind", ["tied", "weighted", "untied"])
def test_chains_come_to_the_optimum_of_their_counting_numbers(kind):
    for topology in LOOPY:
        model = random_model(topology, 3, kind, seed=4)
        probabilities = compute_chain_probabilities(model.graph)
        sums = np.bincount(model.graph.edges.ravel(), weights=np.repeat(probabilities, 2))
        found = TRWMessagePassing(**CHAINS).marginals(model)
        other = NormProductBP(CountingNumbers(1 - sums, probabilities), max_iter=5000, tol=1e-11).marginals(model)
        assert found.converged
        assert found.log_z == pytest.approx(other.log_z, abs=1e-7)
        assert_allclose(found.unary, other.unary, atol=1e-6)
        assert_allclose(found.tables, other.tables, atol=1e-5)


@given(models(topologies=LOOPY, max_states=3, dtypes=(np.float64, np.float32)))
@settings(max_examples=40, deadline=None)
def test_bounds_are_bounds(model):
    exact, best = BruteForce().marginals(model).log_z, BruteForce().map(model).score
    tol = 1e-3 if model.dtype == np.float32 else 1e-8
    with convergence_left_to_caller():
        for edge_probabilities in ("chains", "auto"):
            for max_iter in (1, 50):
                algorithm = TRWMessagePassing(edge_probabilities, max_iter=max_iter, schedule="convergent")
                found, labeling = algorithm.marginals(model), algorithm.map(model)
                assert found.bound == "upper"
                assert found.log_z >= exact - tol * (1 + abs(exact))
                assert found.log_z == pytest.approx(found.log_z_terms.sum(), abs=1e-9)
                assert labeling.bound >= best - tol * (1 + abs(best))
                assert labeling.score <= best + tol * (1 + abs(best))


def test_labels_of_submodular_models_are_certified():
    for seed in range(4):
        model = random_model("grid", 2, "untied", structure="submodular", seed=seed)
        best = BruteForce().map(model).score
        for edge_probabilities in ("chains", "auto"):
            found = TRWMessagePassing(edge_probabilities, **CONVERGENT).map(model)
            assert found.score == pytest.approx(best, abs=1e-9)
            assert found.bound == pytest.approx(best, abs=1e-6)
    model = random_model("grid", 3, "untied", seed=0)
    assert TRWMessagePassing(**CHAINS).map(model).bound >= LinearProgram().map(model).bound - 1e-9


def test_forests_are_exact():
    model = random_model("tree", 3, "untied", seed=1)
    exact = BruteForce().marginals(model)
    found = TRWMessagePassing(**CHAINS).marginals(model)
    assert found.bound == "exact"
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-10)


def test_errors():
    model = random_model("grid", 2, seed=0)
    with pytest.raises(ValueError, match=r'damping must be 0 with schedule="convergent", got 0\.3'):
        TRWMessagePassing(schedule="convergent", damping=0.3).marginals(model)
    with pytest.raises(ValueError, match='needs edge_probabilities="chains"'):
        TRWMessagePassing(schedule="convergent").edge_marginals(model)
    pairs = TRWMessagePassing(**CHAINS).edge_marginals(model)
    assert_allclose(pairs.sum(axis=(1, 2)), 1)
    for edge_probabilities in ("chains", "auto"):
        for task in ("marginals", "map"):
            algorithm = TRWMessagePassing(edge_probabilities, max_iter=1, tol=0, schedule="convergent")
            with pytest.warns(ConvergenceWarning, match="TRWMessagePassing stopped after max_iter=1") as record:
                getattr(algorithm, task)(random_model("grid", 3, "untied", scale=3.0, seed=0))
            assert [warning.filename for warning in record] == [__file__]
