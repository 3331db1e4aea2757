"""What "auto" chooses: exact wherever that is affordable, and it says so."""

import warnings
from itertools import combinations

import numpy as np
import pytest
from model_strategies import LOOPY, TABLE_KINDS, TOPOLOGIES, random_model
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.graphs import Graph, disjoint_union, lattice
from sklearn_crf.inference import (
    AutoMap,
    AutoMarginals,
    BruteForce,
    JunctionTree,
    LoopyBP,
    TreeInference,
    convergence_left_to_caller,
    exact_inference,
)
from sklearn_crf.models import PairwiseModel, factor_graph_of

SPIN = np.array([[1.0, -1.0], [-1.0, 1.0]])


def spin_glass(shape, seed, coupling=1.0):
    """A grid of two states with couplings of both signs."""
    rng = np.random.default_rng(seed)
    grid = lattice(shape)
    weight = coupling * rng.normal(size=grid.n_edges)
    return PairwiseModel(grid, 0.5 * rng.normal(size=(grid.n_nodes, 2)), SPIN[None], edge_weight=weight)


def clique(n_nodes):
    return Graph(n_nodes, list(combinations(range(n_nodes), 2)))


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("kind", TABLE_KINDS)
def test_exact_on_everything_small(topology, kind):
    for n_columns, extra in ((2, {}), (3, {"forbidden": 0.25}), (3, {"vary_states": True, "dtype": np.float32})):
        model = random_model(topology, n_columns, kind, scale=2.0, seed=5, **extra)
        tol = 1e-9 if model.dtype == np.float64 else 1e-3
        exact, best = BruteForce(2**19).marginals(model), BruteForce(2**19).map(model)
        for taken in (model, factor_graph_of(model)):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found, labeling = AutoMarginals().marginals(taken), AutoMap().map(taken)
            assert found.bound == "exact"
            assert_allclose(found.unary[:, : exact.unary.shape[1]], exact.unary[:, : found.unary.shape[1]], atol=tol)
            assert found.log_z == pytest.approx(exact.log_z, abs=tol, rel=tol)
            assert labeling.score == pytest.approx(best.score, abs=tol, rel=tol)
            assert labeling.certified


def test_exact_where_messages_are_far_off():
    triangle = PairwiseModel(Graph(3, [[0, 1], [1, 2], [2, 0]]), [[0.0, 0.5], [0.0, 0.0], [0.1, 0.0]], [3 * SPIN])
    exact = BruteForce().marginals(triangle)
    assert np.abs(LoopyBP().marginals(triangle).unary - exact.unary).max() > 0.05
    assert_allclose(AutoMarginals().marginals(triangle).unary, exact.unary, atol=1e-12)
    for seed in range(10):
        model = random_model(clique(14), 2, "untied", seed=seed, scale=1.5)
        assert AutoMap().map(model).score == pytest.approx(BruteForce().map(model).score)


@pytest.mark.parametrize(
    ("graph", "n_states", "kind"),
    [
        (lattice((500,)), 50, TreeInference),
        (lattice((9, 9)), 2, JunctionTree),
        (lattice((3, 100)), 3, JunctionTree),
        (lattice((2, 50)), 64, JunctionTree),
        (clique(16), 2, JunctionTree),
        (lattice((16, 16)), 8, type(None)),
        (lattice((40, 40)), 2, type(None)),
        (lattice((1000, 1000)), 2, type(None)),
        (clique(30), 2, type(None)),
    ],
)
def test_one_rule_says_what_is_affordable(graph, n_states, kind):
    assert isinstance(exact_inference(graph, n_states), kind)


def test_observed_nodes_cost_nothing():
    model = spin_glass((30, 30), 0)
    unary = model.unary.copy()
    assert exact_inference(model) is None
    unary.reshape(30, 30, 2)[::2, ::2, 0] = -np.inf
    unary.reshape(30, 30, 2)[1::2, ::2, 0] = -np.inf
    assert isinstance(exact_inference(PairwiseModel(model.graph, unary, model.tables)), JunctionTree)


def test_a_graph_needs_its_number_of_states():
    with pytest.raises(ValueError, match="n_states is needed"):
        exact_inference(lattice((3, 3)))


@pytest.mark.parametrize("as_factors", [False, True])
def test_components_are_judged_alone(as_factors):
    parts = [spin_glass((4, 4), 0), spin_glass((20, 20), 1, 0.3), spin_glass((5,), 2)]
    joined = PairwiseModel(
        disjoint_union([part.graph for part in parts]),
        np.concatenate([part.unary for part in parts]),
        parts[0].tables,
        edge_weight=np.concatenate([part.edge_weight for part in parts]),
    )
    if as_factors:
        parts, joined = [factor_graph_of(part) for part in parts], factor_graph_of(joined)
    auto = AutoMarginals(tol=1e-7)
    alone, together = [auto.marginals(part) for part in parts], auto.marginals(joined)
    assert together.method == "JunctionTree, LoopyBP"
    assert_allclose(together.unary, np.concatenate([found.unary for found in alone]), atol=1e-5)
    assert together.log_z == pytest.approx(sum(found.log_z for found in alone), rel=1e-6)
    assert together.log_z_terms.sum() == pytest.approx(together.log_z)
    again = auto.marginals(joined, init=together.state)
    assert again.n_iter <= 2
    best, bests = AutoMap().map(joined), [AutoMap().map(part) for part in parts]
    assert best.score >= sum(found.score for found in bests) - 1e-9
    assert best.bound >= best.score


def test_method_names_what_was_used():
    assert AutoMarginals().marginals(spin_glass((5,), 0)).method == "TreeInference"
    assert AutoMarginals().marginals(spin_glass((4, 4), 0)).method == "JunctionTree"
    assert AutoMarginals().marginals(spin_glass((20, 20), 0, 0.3)).method == "LoopyBP"
    assert AutoMap().map(spin_glass((3, 3), 0)).method == "BruteForce"
    assert AutoMap().map(spin_glass((4, 4), 0)).method == "JunctionTree"
    assert LoopyBP().map(spin_glass((5,), 0)).method == "LoopyBP"
    assert TreeInference().marginals(spin_glass((3,), 0)).method == "TreeInference"


def test_messages_that_do_not_settle_are_averaged():
    errors = {"auto": 0.0, "plain": 0.0, "damped": 0.0}
    for seed in range(6):
        model = spin_glass((10, 10), seed, 2.0)
        exact = JunctionTree().marginals(model).unary
        auto = AutoMarginals()
        with pytest.warns(UserWarning, match='did not settle in 200 sweeps.* inference="trw"'):
            found = auto._by_messages(model, None, 1)
        assert found.method == "LoopyBP(damping=0.5), averaged"
        assert not found.converged
        assert_allclose(found.unary.sum(axis=1), 1)
        with convergence_left_to_caller():
            plain, damped = LoopyBP().marginals(model), LoopyBP(damping=0.5).marginals(model)
        for name, result in (("auto", found), ("plain", plain), ("damped", damped)):
            errors[name] += np.abs(result.unary - exact).mean()
    assert errors["auto"] < 0.95 * min(errors["plain"], errors["damped"]), errors


def test_samples_are_exact_where_marginals_are():
    model = spin_glass((3, 3), 0)
    drawn = AutoMarginals().sample(model, 4000, random_state=0)
    assert_allclose((drawn == 1).mean(axis=0), BruteForce().marginals(model).unary[:, 1], atol=0.04)


@pytest.mark.parametrize("topology", LOOPY)
def test_identical_for_any_number_of_threads(topology):
    model = random_model(topology, 3, "untied", seed=3)
    one, two = (AutoMarginals().marginals(model, n_threads=k) for k in (1, 2))
    assert_array_equal(one.unary, two.unary)
