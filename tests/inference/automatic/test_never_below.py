"""Automatic choices are no worse than cheaper algorithms, on random models of fifteen families."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from factor_strategies import random_factor_graph
from model_strategies import random_model

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import (
    ICM,
    MPLP,
    TRWS,
    AutoMap,
    AutoMarginals,
    JunctionTree,
    LoopyBP,
    MeanField,
    TRWMessagePassing,
)
from sklearn_crf.inference.automatic import _tuning
from sklearn_crf.models import FactorGraph, PairwiseModel

SPIN = np.array([[[1.0, -1.0], [-1.0, 1.0]]])


def clique(n_nodes):
    return Graph(n_nodes, np.stack(np.triu_indices(n_nodes, 1), axis=1))


def sparse_graph(n_nodes, n_edges, seed):
    pairs = np.stack(np.triu_indices(n_nodes, 1), axis=1)
    return Graph(n_nodes, np.random.default_rng(seed).permutation(pairs)[:n_edges])


def spins(graph, seed, coupling, field=0.5):
    rng = np.random.default_rng(seed)
    unary = field * rng.normal(size=(graph.n_nodes, 2))
    return PairwiseModel(graph, unary, SPIN, edge_weight=coupling * rng.normal(size=graph.n_edges))


def potts(graph, seed, n_states, coupling):
    unary = np.random.default_rng(seed).normal(size=(graph.n_nodes, n_states))
    return PairwiseModel(graph, unary, coupling * np.eye(n_states)[None])


def tables(graph, seed, n_states, **options):
    return random_model(graph, n_states, "untied", seed=seed, **options)


FAMILIES = {
    "weak spins": lambda seed: spins(lattice((9, 9)), seed, 0.3),
    "spins": lambda seed: spins(lattice((8, 8)), seed, 1.0),
    "spins on a torus of triangles": lambda seed: spins(lattice((7, 7), [(0, 1), (1, 0), (1, 1)]), seed, 0.8),
    "spins of a volume": lambda seed: spins(lattice((3, 4, 4)), seed, 0.7),
    "spins of all pairs": lambda seed: spins(clique(14), seed, 0.4),
    "spins of a sparse graph": lambda seed: spins(sparse_graph(40, 60, seed), seed, 1.0),
    "attracting": lambda seed: PairwiseModel(lattice((9, 9)), spins(lattice((9, 9)), seed, 1.0).unary, 0.5 * SPIN),
    "Potts": lambda seed: potts(lattice((7, 7)), seed, 3, 0.9),
    "strong Potts": lambda seed: potts(lattice((6, 6)), seed, 4, 1.6),
    "repelling": lambda seed: potts(lattice((6, 6)), seed, 3, -1.5),
    "tables": lambda seed: tables(lattice((6, 6)), seed, 3, scale=1.0),
    "tables of many states": lambda seed: tables(lattice((4, 5)), seed, 6, scale=1.5),
    "forbidden pairs": lambda seed: tables(lattice((6, 6)), seed, 3, scale=1.0, forbidden=0.15),
    "factors": lambda seed: random_factor_graph(15, 20, 4, 3, seed=seed),
    "many factors": lambda seed: random_factor_graph(18, 40, 3, 3, seed=seed),
}


def quietly(call, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(model)


@pytest.mark.parametrize("name", FAMILIES)
def test_labelings_are_never_below_those_of_cheaper_algorithms(name):
    # Without a budget, neither elimination nor the search helps.
    for seed in range(3):
        model = FAMILIES[name](seed)
        found = AutoMap(budget=0).map(model)
        others = [LoopyBP(), LoopyBP(damping=0.5)]
        others += [MPLP()] if isinstance(model, FactorGraph) else [TRWS(), ICM(n_restarts=5, random_state=0)]
        best = max(quietly(other.map, model).score for other in others)
        assert found.score >= best - 1e-9 * max(1.0, abs(best))
        assert found.bound >= found.score


@pytest.mark.parametrize("name", FAMILIES)
def test_marginals_are_never_farther_off_than_those_of_cheaper_algorithms(name):
    errors = []
    for seed in range(3):
        model = FAMILIES[name](seed)
        exact = JunctionTree().marginals(model).unary
        ways = [AutoMarginals(budget=0), LoopyBP(), LoopyBP(damping=0.5)]
        ways += [] if isinstance(model, FactorGraph) else [TRWMessagePassing(), MeanField()]
        found = [quietly(way.marginals, model).unary for way in ways]
        errors.append([np.abs(unary - exact).sum(axis=1).mean() / 2 for unary in found])
        assert np.abs(AutoMarginals().marginals(model).unary - exact).max() < 1e-6
    mean = np.mean(errors, axis=0)
    assert mean[0] <= mean[1:].min() + 5e-4


def network_with_zeros(seed, n_nodes=60, n_states=3):
    """Return a network of three parents per node in which about half of the conditional probabilities are zero."""
    rng, factors = np.random.default_rng(seed), []
    for node in range(n_nodes):
        parents = sorted(rng.choice(node, min(node, 3), replace=False).tolist()) if node else []
        shape = (n_states,) * (len(parents) + 1)
        weight = rng.random(shape) * (rng.random(shape) < 0.5)
        weight[weight.sum(axis=-1) == 0] = 1.0
        with np.errstate(divide="ignore"):
            factors.append(((*parents, node), np.log(weight)))
    return FactorGraph.from_factors([n_states] * n_nodes, factors)


def hypergraph_colouring(seed, n_nodes=50, n_factors=180):
    """Return scores for sets of four nodes of the same colour."""
    rng, factors = np.random.default_rng(seed), []
    for _ in range(n_factors):
        table = np.zeros((2, 2, 2, 2))
        table[0, 0, 0, 0], table[1, 1, 1, 1] = rng.normal(size=2) - 0.5
        factors.append((tuple(np.sort(rng.choice(n_nodes, 4, replace=False)).tolist()), table))
    return FactorGraph.from_factors([2] * n_nodes, factors)


@pytest.mark.parametrize(
    "make",
    [
        # Too wide for elimination.
        lambda seed: random_model(lattice((12, 12), connectivity=2), 4, "untied", seed=seed, scale=2.0),
        network_with_zeros,
        hypergraph_colouring,
    ],
)
def test_larger_budgets_go_on_from_where_smaller_ones_end(monkeypatch, make):
    small = {"FIRST_BRANCHES": 1e3, "BRANCHES": 1e6, "SEARCH_SWEEPS": 1700, "TIGHTENING": 2e7}
    for name, value in small.items():
        monkeypatch.setattr(_tuning, name, value)
    methods, n_lower = [], 0
    for seed in range(2):
        budgets = ("step", "fast", "default", 1.6e8, 2.7e8)
        results = [quietly(AutoMap(budget=budget).map, make(seed)) for budget in budgets]
        for less, more in pairwise(results):
            assert less.score <= more.score <= more.bound <= less.bound
        n_lower += results[2].bound > results[3].bound
        methods += [results[2].method, results[4].method]
    assert n_lower
    assert not any("ClusterTightening" in method for method in methods[::2])
    assert any("ClusterTightening" in method for method in methods[1::2])
