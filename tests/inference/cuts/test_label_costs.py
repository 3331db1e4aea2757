"""Label costs: expansions against enumeration of labelings and of single moves."""

from itertools import product

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_crf import DRFClassifier
from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import AlphaExpansion
from sklearn_crf.models import PairwiseModel, score

GRAPHS = {
    "chain": lambda: lattice((5,)),
    "grid": lambda: lattice((2, 3)),
    "general": lambda: Graph(5, [[0, 1], [1, 2], [2, 0], [3, 0]]),
    "no edges": lambda: Graph(5, []),
    "one node": lambda: Graph(1, []),
}


def random_model(name, n_states, dtype=np.float64, *, scale=1.0, forbids=False):
    """Return a model with weighted Potts edges and neutral modular terms, and label costs, of which one is 0."""
    rng = np.random.default_rng(len(name) + n_states)
    graph = GRAPHS[name]()
    unary = rng.normal(size=(graph.n_nodes, n_states))
    if forbids:
        unary[rng.random(unary.shape) < 0.3] = -np.inf
        unary[:, 0] = 0.0
    tables = rng.uniform(0, 1) * np.eye(n_states) + rng.normal(size=n_states)
    weight = rng.uniform(0, 2, size=(graph.n_edges, 1))
    costs = rng.uniform(0, 2, size=n_states)
    costs[rng.integers(n_states)] = 0
    model = PairwiseModel(graph, (scale * unary).astype(dtype), [scale * tables], edge_weight=weight)
    return model, scale * costs


def priced(model, costs, labels):
    """Return the score of a labeling minus the costs of its labels."""
    return score(model, np.array(labels, dtype=np.int32)) - sum(costs[label] for label in set(labels))


def enumerate_best(model, costs, allowed=None):
    """Return the highest score with label costs, over all labelings or over given states of each node."""
    allowed = [range(model.n_columns)] * model.n_nodes if allowed is None else allowed
    return max(priced(model, costs, labels) for labels in product(*allowed))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("forbids", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_no_expansion_is_better_and_bounds_hold(name, forbids, scale, dtype):
    model, costs = random_model(name, 3, dtype, scale=scale, forbids=forbids)
    found = AlphaExpansion(label_costs=costs).map(model)
    labels, near = found.labels.tolist(), scale * (1e-9 if dtype == np.float64 else 1e-4)
    assert found.score == pytest.approx(priced(model, costs, labels), abs=near)
    assert found.converged
    best = enumerate_best(model, costs)
    assert found.score <= best + near
    assert found.bound >= best - near
    for state in range(3):
        assert found.score >= enumerate_best(model, costs, [{label, state} for label in labels]) - near


@pytest.mark.parametrize("n_states", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("forbids", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_at_most_two_labels_are_exact(name, forbids, dtype, n_states):
    model, costs = random_model(name, n_states, dtype, forbids=forbids)
    costs += 0.3
    for init in (None, np.zeros(model.n_nodes, dtype=np.int32)):
        found = AlphaExpansion(label_costs=costs).map(model, init=init)
        assert found.score == pytest.approx(enumerate_best(model, costs), abs=1e-4 if dtype == np.float32 else 1e-9)
        assert found.certified


def test_tables_that_are_no_metric_are_truncated():
    rng = np.random.default_rng(0)
    for n_states in (2, 3):
        for _ in range(10):
            graph, costs = lattice((2, 3)), rng.uniform(0, 1, n_states)
            unary, tables = rng.normal(size=(6, n_states)), rng.normal(size=(graph.n_edges, n_states, n_states))
            model = PairwiseModel(graph, unary, tables, np.arange(graph.n_edges))
            start = rng.integers(n_states, size=6)
            found = AlphaExpansion(nonsubmodular="truncate", label_costs=costs).map(model, init=start)
            best = enumerate_best(model, costs)
            assert priced(model, costs, start.tolist()) <= found.score <= best + 1e-9 <= found.bound + 2e-9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zero_costs_change_no_bit(dtype):
    rng = np.random.default_rng(1)
    for n_states in (2, 4):
        unary = rng.normal(size=(72, n_states)).astype(dtype)
        model = PairwiseModel(lattice((8, 9)), unary, [0.4 * np.eye(n_states)])
        plain = AlphaExpansion().map(model)
        for costs in (0, np.zeros(n_states)):
            found = AlphaExpansion(label_costs=costs).map(model)
            np.testing.assert_array_equal(found.labels, plain.labels)
            assert (found.score, found.bound, found.n_iter) == (plain.score, plain.bound, plain.n_iter)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_costs_leave_the_best_single_label(dtype):
    rng = np.random.default_rng(2)
    graph, unary = lattice((12, 11)), rng.normal(size=(132, 5)).astype(dtype)
    unary[3, 1] = -np.inf
    model = PairwiseModel(graph, unary, [0.3 * np.eye(5)])
    costs = 1e4 + rng.uniform(0, 5, 5)
    found = AlphaExpansion(label_costs=costs).map(model)
    one = [priced(model, costs, [label] * 132) for label in range(5)]
    assert set(found.labels.tolist()) == {int(np.argmax(one))}
    assert found.score == pytest.approx(max(one), rel=1e-6)


def test_scores_far_from_zero_and_threads():
    rng = np.random.default_rng(3)
    model = PairwiseModel(lattice((9, 8)), rng.normal(size=(72, 4)) + 1e12, [0.3 * np.eye(4)])
    found, threaded = (AlphaExpansion(label_costs=3.0).map(model, n_threads=n) for n in (1, 2))
    assert found.score == score(model, found.labels) - 3.0 * len(np.unique(found.labels))
    assert found.bound >= found.score == threaded.score
    np.testing.assert_array_equal(found.labels, threaded.labels)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        (-1.0, "label_costs must not be negative, got -1"),
        ([0, 1, -2], "label_costs must not be negative, got -2"),
        ([0, np.nan, 1], "label_costs must be finite, .* found NaN"),
        (np.inf, "label_costs must be finite"),
        ([1, 2], r"label_costs must be a number or have shape \(3,\), one cost for each label, got \(2,\)"),
        ("high", "label_costs must hold numbers"),
    ],
)
def test_wrong_costs(costs, message):
    model = PairwiseModel(lattice((2, 2)), np.zeros((4, 3)), [np.eye(3)])
    with pytest.raises(ValueError, match=message):
        AlphaExpansion(label_costs=costs).map(model)


def test_tables_must_suit_the_moves_for_two_labels_too():
    graph, unary = lattice((2, 2)), np.zeros((4, 2))
    with pytest.raises(ValueError, match=r"edge 0 .* violates"):
        AlphaExpansion(label_costs=1).map(PairwiseModel(graph, unary, [-np.eye(2)]))
    with pytest.raises(ValueError, match="tables must be finite"):
        AlphaExpansion(label_costs=1).map(PairwiseModel(graph, unary, [[[0, -np.inf], [-np.inf, 0]]]))


def test_estimators_reject_label_costs():
    X = np.random.default_rng(0).normal(size=(4, 5, 2))
    inference = clone(AlphaExpansion(label_costs=np.ones(2)))
    with pytest.raises(ValueError, match=r"label_costs=None, because only sklearn_crf\.solve"):
        DRFClassifier(inference=inference).fit(X, (X[..., 0] > 0).astype(int))
