"""Extrapolated sweeps of tree-reweighted messages reach the same fixed point in fewer sweeps."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import ICM, JunctionTree, LoopyBP, TRWMessagePassing
from sklearn_crf.inference.messages import _extrapolation
from sklearn_crf.kernels.messages.sweeps import shares_of_changes
from sklearn_crf.models import PairwiseModel

GRID = lattice((70, 70))


def grid_model(n_states, coupling, seed=0, dtype=np.float64, graph=GRID):
    rng = np.random.default_rng(seed)
    unary = rng.normal(size=(graph.n_nodes, n_states))
    tables = coupling * np.eye(n_states) + 0.1 * rng.normal(size=(n_states, n_states))
    return PairwiseModel(graph, unary.astype(dtype), tables[None].astype(dtype))


def plain(model, monkeypatch, **options):
    with monkeypatch.context() as patch:
        patch.setattr(TRWMessagePassing, "_extrapolates", lambda self: False)
        return TRWMessagePassing("covering", max_iter=3000, **options).marginals(model)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n_states", "coupling"), [(2, 1.5), (2, -1.5), (3, 1.5), (4, -2.0)])
def test_it_ends_at_the_same_point_after_fewer_sweeps(n_states, coupling, dtype, monkeypatch):
    model = grid_model(n_states, coupling, dtype=dtype)
    tol = 1e-7 if dtype == np.float64 else 1e-5
    slow = plain(model, monkeypatch, tol=tol)
    fast = TRWMessagePassing("covering", max_iter=3000, tol=tol).marginals(model)
    assert slow.converged
    assert fast.converged
    assert fast.n_iter < 0.7 * slow.n_iter
    assert_allclose(fast.unary, slow.unary, atol=1e3 * tol)
    assert_allclose(fast.log_z, slow.log_z, rtol=1e-6)


def test_scores_too_large_for_probabilities(monkeypatch):
    model = grid_model(3, 1.5)
    model = PairwiseModel(
        GRID, model.unary, model.tables, edge_weight=np.where(np.arange(GRID.n_edges) == 7, 500.0, 1.0)
    )
    slow, fast = plain(model, monkeypatch, tol=1e-6), TRWMessagePassing("covering", tol=1e-6).marginals(model)
    assert fast.state.as_scores
    assert fast.n_iter < slow.n_iter
    assert_allclose(fast.unary, slow.unary, atol=1e-3)


def test_states_and_pairs_that_are_forbidden(monkeypatch):
    model = grid_model(3, 1.0)
    unary, tables = model.unary.copy(), model.tables.copy()
    unary[::7, 1] = -np.inf
    tables[0, 0, 2] = -np.inf
    model = PairwiseModel(GRID, unary, tables)
    slow, fast = plain(model, monkeypatch, tol=1e-7), TRWMessagePassing("covering", tol=1e-7).marginals(model)
    assert np.all(fast.unary[::7, 1] == 0)
    assert_allclose(fast.unary, slow.unary, atol=1e-4)


@pytest.mark.parametrize("n_states", [2, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_messages_that_do_not_settle_stay_finite(n_states, dtype):
    rng = np.random.default_rng(0)
    n_nodes = 4200
    # Each node is joined to the next, and to one at random.
    edges = np.concatenate(
        [np.stack([np.arange(n_nodes - 1), np.arange(1, n_nodes)], axis=1), rng.permutation(n_nodes).reshape(-1, 2)]
    )
    graph = Graph(n_nodes, np.unique(np.sort(edges, axis=1), axis=0))
    spins = np.linspace(-1, 1, n_states)
    unary = rng.normal(size=(n_nodes, 1)) * spins
    weight = 9 * rng.normal(size=graph.n_edges)
    model = PairwiseModel(
        graph, unary.astype(dtype), np.outer(spins, spins)[None].astype(dtype), edge_weight=weight.astype(dtype)
    )
    with pytest.warns(ConvergenceWarning):
        found = TRWMessagePassing(max_iter=60, tol=1e-9).marginals(model)
    assert np.isfinite(found.unary).all()
    # The score of any labeling is less than the log-sum over all labelings.
    assert found.log_z > ICM().map(model).score


def test_the_bound_is_above_the_exact_value():
    model = grid_model(2, 2.0, graph=lattice((2100, 2)))
    found = TRWMessagePassing("covering", tol=1e-6).marginals(model)
    assert found.converged
    assert found.log_z > JunctionTree().marginals(model).log_z


def test_invariance_to_the_order_of_states():
    model = grid_model(3, 1.5)
    order = np.array([2, 0, 1])
    turned = PairwiseModel(GRID, model.unary[:, order], model.tables[..., order, :][..., order])
    inference = TRWMessagePassing("covering", tol=1e-8, max_iter=1000)
    assert_allclose(inference.marginals(turned).unary, inference.marginals(model).unary[:, order], atol=1e-5)


def test_bit_identical_for_any_number_of_threads():
    for n_states in (2, 3):
        model = grid_model(n_states, 1.5)
        one, two = (TRWMessagePassing("covering").marginals(model, n_threads=n) for n in (1, 2))
        assert one.n_iter == two.n_iter
        assert_array_equal(one.unary, two.unary)


def test_a_warm_start_needs_no_sweeps_more():
    model = grid_model(3, 1.5)
    found = TRWMessagePassing("covering", tol=1e-5).marginals(model)
    again = TRWMessagePassing("covering", tol=1e-5).marginals(model, init=found.state)
    assert again.n_iter == 1


@pytest.mark.parametrize(
    "inference",
    [
        LoopyBP(),
        TRWMessagePassing(damping=0.1),
        TRWMessagePassing(schedule="residual"),
        TRWMessagePassing("chains", schedule="convergent"),
    ],
    ids=["belief propagation", "damped", "residual", "convergent"],
)
def test_where_sweeps_are_left_alone(inference, monkeypatch):
    # Belief propagation may have several fixed points; all other algorithms are called with their defaults.
    monkeypatch.setattr(_extrapolation, "extrapolate", lambda *arguments: pytest.fail("extrapolated"))
    inference.marginals(grid_model(2, 0.5))


def test_neither_labels_nor_small_nor_too_large_graphs_are_extrapolated(monkeypatch):
    monkeypatch.setattr(_extrapolation, "extrapolate", lambda *arguments: pytest.fail("extrapolated"))
    TRWMessagePassing().map(grid_model(2, 0.5))
    TRWMessagePassing().marginals(grid_model(2, 0.5, graph=lattice((60, 60))))
    monkeypatch.setattr("sklearn_crf.inference.messages._tuning.MOST_BYTES", 1000)
    TRWMessagePassing().marginals(grid_model(2, 0.5))


def test_shares_give_the_shortest_combination():
    rng = np.random.default_rng(0)
    changes = rng.normal(size=(4, 50))
    shares = np.empty(4)
    shares_of_changes(changes @ changes.T, 1e-8, shares)
    steps = changes[1:] - changes[0]
    others = np.linalg.lstsq(steps.T, -changes[0], rcond=None)[0]
    assert_allclose(shares, [1 - others.sum(), *others], atol=1e-6)
    # Equal changes leave the messages as they are.
    shares_of_changes(np.ones((3, 3)), 1e-8, shares[:3])
    assert_array_equal(shares[:3], [1.0, 0.0, 0.0])
