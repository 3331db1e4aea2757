"""``solve`` and ``marginals``: labels for given scores or costs, in all shapes that users may pass."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_crf import Graph, marginals, solve
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import ICM, TRWS, AlphaExpansion, BruteForce
from sklearn_crf.models import PairwiseModel, score

RNG = np.random.default_rng(0)


def best_by_enumeration(unary, cost_of_pair):
    """Return the lowest cost of a 2-D image, straight from the formula."""
    height, width, n_states = unary.shape
    best = np.inf
    for labels in product(range(n_states), repeat=height * width):
        y = np.reshape(labels, (height, width))
        cost = np.take_along_axis(unary, y[..., None], -1).sum()
        cost += sum(cost_of_pair(0, y[r, c], y[r, c + 1], (r, c)) for r in range(height) for c in range(width - 1))
        cost += sum(cost_of_pair(1, y[r, c], y[r + 1, c], (r, c)) for r in range(height - 1) for c in range(width))
        best = min(best, cost)
    return best


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_potts_costs_of_an_image(dtype):
    costs = RNG.random((2, 3, 3)).astype(dtype)
    costs.flags.writeable = False
    found = solve(costs, 0.3, costs=True)
    assert found.labels.shape == (2, 3)
    assert -found.score == pytest.approx(best_by_enumeration(costs, lambda _, a, b, at: 0.3 * (a != b)), rel=1e-5)


def test_scores_are_negative_costs():
    costs = RNG.random((2, 3, 2))
    by_cost, by_score = solve(costs, 0.3, costs=True), solve(-costs, 0.3)
    assert np.array_equal(by_cost.labels, by_score.labels)
    assert by_cost.score == by_score.score


def test_weights_for_each_direction():
    costs, across, down = RNG.random((3, 3, 2)), RNG.random((3, 2)), RNG.random((2, 3))
    found = solve(costs, 0.5, costs=True, edge_weight=[across, down])
    weights = across, down
    expected = best_by_enumeration(costs, lambda offset, a, b, at: 0.5 * weights[offset][at] * (a != b))
    assert -found.score == pytest.approx(expected)
    flat = solve(costs, 0.5, costs=True, edge_weight=np.concatenate([across.ravel(), down.ravel()]))
    assert flat.score == found.score


def test_tables_for_each_direction():
    costs, tables = RNG.random((2, 3, 2)), RNG.random((2, 2, 2))
    found = solve(costs, tables, costs=True, inference="brute_force")
    assert -found.score == pytest.approx(best_by_enumeration(costs, lambda offset, a, b, at: tables[offset, a, b]))


def test_graph_with_a_table_for_each_edge():
    edges, scores, tables = [[0, 1], [1, 2], [2, 0]], RNG.normal(size=(3, 2)), RNG.normal(size=(3, 2, 2))
    found = solve(scores, tables, edges=edges)
    model = PairwiseModel(Graph(3, edges), scores, tables, np.arange(3))
    assert found.score == max(score(model, labels) for labels in product(range(2), repeat=3))
    assert found.labels.shape == (3,)


def test_edges_in_other_forms():
    scores = RNG.normal(size=(4, 2))
    edges = np.array([[0, 1], [1, 2], [2, 3]])
    adjacency = sp.coo_array((np.ones(3), edges.T), shape=(4, 4))
    expected = marginals(scores, 1.0).unary  # a chain
    for form in (edges, Graph(4, edges), adjacency):
        assert np.allclose(marginals(scores, 1.0, edges=form).unary, expected)


def test_marginals_of_a_chain_and_an_image():
    scores = RNG.normal(size=(2, 2, 3))
    tables = RNG.normal(size=(3, 3))
    found = marginals(scores, tables, inference="junction_tree")
    assert found.unary.shape == (2, 2, 3)
    model = PairwiseModel(lattice((2, 2)), scores.reshape(4, 3), tables[None])
    weight = {y: np.exp(score(model, y)) for y in product(range(3), repeat=4)}
    assert found.log_z == pytest.approx(np.log(sum(weight.values())))
    first = sum(value for y, value in weight.items() if y[0] == 1) / sum(weight.values())
    assert found.unary[0, 0, 1] == pytest.approx(first)


@pytest.mark.parametrize("inference", ["auto", "map", "icm", "trws", "alpha_expansion", "ad3", ICM(), TRWS()])
def test_named_and_given_inference(inference):
    costs = RNG.random((3, 3, 3))
    found = solve(costs, 0.2, costs=True, inference=inference)
    best = solve(costs, 0.2, costs=True, inference=BruteForce())
    assert found.score <= best.score + 1e-9


def test_states_that_are_forbidden():
    costs = np.zeros((3, 4, 2))
    costs[1, 1] = [np.inf, 0]
    assert solve(costs, 1.0, costs=True).labels[1, 1] == 1
    assert solve(-costs, 1.0).labels[1, 1] == 1
    assert marginals(-costs, 1.0).unary[1, 1] == pytest.approx([0, 1])


def test_one_state_integers_and_one_pixel():
    assert solve(np.zeros((2, 3, 1), dtype=int), 1).labels.tolist() == [[0] * 3] * 2
    assert solve([[[1, 2]]], 1.0).labels.tolist() == [[1]]


@pytest.mark.parametrize("inference", ["auto", "alpha_expansion", AlphaExpansion(max_iter=9)])
def test_costs_of_labels(inference):
    """Each label that occurs costs its price once. ``costs`` only tells how to read the costs of nodes, not prices."""
    costs, prices = RNG.random((2, 3, 2)), np.array([0.3, 0.5])
    found = solve(costs, 0.2, costs=True, label_costs=prices, inference=inference)
    by_score = solve(-costs, 0.2, label_costs=prices, inference=inference)
    best = np.inf
    for labels in product(range(2), repeat=6):
        y = np.reshape(labels, (2, 3))
        cost = np.take_along_axis(costs, y[..., None], -1).sum() + prices[np.unique(y)].sum()
        best = min(best, cost + 0.2 * ((y[:, 1:] != y[:, :-1]).sum() + (y[1:] != y[:-1]).sum()))
    assert -found.score == pytest.approx(best)
    assert found.certified
    assert found.score == by_score.score


def test_costs_of_labels_in_the_inference():
    costs = RNG.random((3, 4, 3))
    given, in_inference = (
        solve(costs, 0.1, costs=True, label_costs=0.4),
        solve(costs, 0.1, costs=True, inference=AlphaExpansion(nonsubmodular="truncate", label_costs=0.4)),
    )
    assert given.score == in_inference.score
    zero, none = solve(costs, 0.1, costs=True, label_costs=0), solve(costs, 0.1, costs=True)
    assert (zero.score, zero.bound, zero.method) == (none.score, none.bound, none.method)


def test_threads_change_nothing():
    costs = RNG.random((30, 40, 4))
    one, two = (solve(costs, 0.1, costs=True, n_jobs=n) for n in (1, 2))
    assert np.array_equal(one.labels, two.labels)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"unary": np.zeros(3)}, r"unary must have shape \(\*lattice, n_states\)"),
        ({"unary": np.zeros((0, 3))}, "unary must have shape"),
        ({"unary": [["a", "b"]]}, "unary must hold numbers"),
        ({"unary": np.full((2, 2), np.nan)}, "found NaN"),
        ({"unary": np.full((2, 2), np.inf)}, "costs=True reads costs"),
        ({"unary": np.full((2, 2), -np.inf), "costs": True}, r"finite or \+inf"),
        ({"pairwise": np.inf}, "pairwise must be a finite number"),
        ({"pairwise": "potts"}, "pairwise must be a finite number"),
        ({"pairwise": np.zeros((3, 3))}, r"a table \(2, 2\), or one table for each offset, \(2, 2, 2\)"),
        ({"edges": [[0, 1]]}, r"unary must have shape \(n_nodes, n_states\) if edges are given"),
        ({"edge_weight": np.zeros((3, 4))}, r"with shapes \[\(3, 3\), \(2, 4\)\]"),
        ({"edge_weight": np.zeros(5)}, r"edge_weight must have shape \(17,\)"),
        ({"label_costs": [1, -1]}, "label_costs must not be negative"),
        ({"label_costs": 1, "inference": "trws"}, "label_costs needs AlphaExpansion"),
        ({"inference": "mpm"}, "does not compute best labelings"),
        ({"inference": "simplex"}, "inference must be an Inference or one of"),
        ({"inference": []}, "inference must be an Inference or one of"),
        ({"inference": np.zeros(2)}, "inference must be an Inference or one of"),
        ({"pairwise": [[1, 2], [3]]}, "pairwise must be a rectangular array"),
        ({"connectivity": [[0, 1], [1]]}, "connectivity given as offsets needs rows of equal length"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        solve(**({"unary": np.zeros((3, 4, 2)), "pairwise": 1.0} | arguments))


@pytest.mark.parametrize("costs", [None, [], np.zeros(2), "yes"])
def test_costs_is_a_flag(costs):
    with pytest.raises(ValueError, match="costs must be True or False"):
        solve(np.zeros((3, 4, 2)), 1.0, costs=costs)


def test_no_marginals():
    with pytest.raises(ValueError, match=r"does not compute marginals, which marginals\(\) needs: use one of 'auto'"):
        marginals(np.zeros((3, 2)), 1.0, inference="icm")
