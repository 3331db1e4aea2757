"""Tightening by clusters: bounds never increase and always hold, and proofs are true."""

import numpy as np
import pytest
from factor_strategies import CONSTRAINTS, random_factor_graph
from model_strategies import TABLE_KINDS, TOPOLOGIES, random_model
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import TRWS, BruteForce, ClusterTightening, JunctionTree, Labeling
from sklearn_crf.inference.relaxations._cluster_tightening import _Proof
from sklearn_crf.inference.relaxations._regions import Regions, _places
from sklearn_crf.models import FactorGraph, PairwiseModel, at_most_one, factor_graph_of, score


def spin_glass(shape, seed=0, field=0.0, connectivity=1):
    graph, rng, spin = lattice(shape, connectivity=connectivity), np.random.default_rng(seed), np.array([-1.0, 1.0])
    unary = field * rng.normal(size=graph.n_nodes)[:, None] * spin
    return PairwiseModel(graph, unary, np.outer(spin, spin)[None], edge_weight=rng.normal(size=graph.n_edges))


def small_models():
    for seed in range(48):
        if seed % 2:
            topology, kind = list(TOPOLOGIES)[seed % 9], TABLE_KINDS[seed // 2 % 4]
            yield random_model(topology, 1 + seed % 4, kind, forbidden=0.2 * (seed % 4 == 1), scale=3.0, seed=seed)
        else:
            constraint = (None, None, *CONSTRAINTS)[seed % 5]
            forbidden = 0.2 * (seed % 3 == 0)
            yield random_factor_graph(
                1 + seed % 6, seed % 9, 4, 1 + seed % 3, forbidden=forbidden, constraint=constraint, seed=seed
            )


def regions_of(model):
    return Regions(model if isinstance(model, FactorGraph) else factor_graph_of(model), 2**10)


def total_of(regions, labels):
    """Return the sum of all tables' scores at a labeling."""
    total = regions.constant
    for region, scope in enumerate(regions.scopes):
        shape = [regions.n_states[s] for s in scope]
        total += regions.table(region).reshape(shape)[tuple(labels[s] for s in scope)]
    return total


def test_bounds_hold_fall_and_keep_the_score():
    n_tight = 0
    for model in small_models():
        best = BruteForce().map(model)
        regions, before = regions_of(model), np.inf
        for _ in range(3):
            for _ in range(20):
                bound = regions.sweep()
                assert bound <= before + 1e-9
                assert bound >= best.score - 1e-9 * (1 + abs(best.score))
                before = bound
            assert total_of(regions, best.labels) == pytest.approx(best.score, abs=1e-8)
            regions.add_clusters()
        n_tight += bound <= best.score + 1e-6
    assert n_tight >= 43


def test_clusters_close_the_gap_of_frustrated_cycles():
    for n_nodes, n_states in ((3, 2), (5, 2), (8, 2), (4, 3)):
        edges = np.stack((np.arange(n_nodes), (np.arange(n_nodes) + 1) % n_nodes), axis=1)
        rng = np.random.default_rng(n_nodes)
        tables = rng.uniform(0.5, 1.0, size=(n_nodes, 1, 1)) * (1.0 - np.eye(n_states))
        if n_nodes % 2 == 0:
            tables[0] = tables[0, ::-1] if n_states == 2 else rng.normal(size=(3, 3))
        cycle = PairwiseModel(Graph(n_nodes, edges), np.zeros((n_nodes, n_states)), tables, np.arange(n_nodes))
        best = BruteForce().map(cycle).score
        regions = regions_of(cycle)
        loose = [regions.sweep() for _ in range(30)][-1]
        if n_states == 2:
            assert loose > best + 0.1
            assert regions.add_clusters() >= n_nodes - 2
        tight = [regions.sweep() for _ in range(200)][-1]
        assert tight == pytest.approx(best, abs=1e-3)


def test_cells_of_parts():
    shape = (2, 3, 4)
    numbers = np.arange(24).reshape(shape)
    for inside in ((True, False, False), (True, False, True), (False, True, True)):
        kept = [axis for axis in range(3) if inside[axis]]
        places = _places(shape, inside)
        for cell in numbers.ravel():
            states = np.unravel_index(cell, shape)
            own = np.ravel_multi_index([states[axis] for axis in kept], [shape[axis] for axis in kept])
            assert places[cell] == own


@pytest.mark.parametrize("max_memory", [1, 2**20])
def test_proofs_are_true(max_memory):
    # From the worst start, and without memory for elimination, branch and bound has to do all the work.
    for model in small_models():
        best = BruteForce().map(model)
        start = np.zeros_like(best.labels)
        if np.isneginf(score(model, start)):
            start = best.labels
        proof = _Proof(model, Labeling(start, score(model, start)), 5e6, max_memory)
        bound = proof.run()
        assert bound >= best.score - 1e-9 * (1 + abs(best.score))
        assert bound <= proof.target
        assert proof.best == pytest.approx(best.score, abs=1e-8)


def test_larger_models_are_proven():
    for seed, (model, max_memory) in enumerate(
        [
            (spin_glass((9, 9), 1, field=0.5), 2**12),
            (random_model(lattice((9, 9)), 3, "weighted", seed=2, scale=0.7), 2**12),
            (spin_glass((8, 8), 3), 2**27),
        ]
    ):
        found = ClusterTightening(3e8, max_memory=max_memory, random_state=seed).map(model)
        assert found.certified
        assert found.score == pytest.approx(JunctionTree().map(model).score, abs=1e-8)


def test_tighter_than_the_relaxation_within_any_budget():
    # Eight neighbours: too many edges for the relaxation over cycles.
    model = spin_glass((16, 16), connectivity=2)
    loose = TRWS().map(model).bound
    bounds = []
    for max_work in (0, 1e6, 2e7):
        with pytest.warns(ConvergenceWarning, match=r"max_work=.* with a gap of \d"):
            found = ClusterTightening(max_work, max_memory=2**10).map(model)
        assert not found.certified
        assert found.bound >= found.score
        bounds.append(found.bound)
    assert bounds[0] >= bounds[1] >= bounds[2]
    assert bounds[2] < loose - 0.5 * (loose - found.score)


def test_what_is_too_large_is_refused():
    wide = FactorGraph.from_factors([2] * 40, [(range(40), at_most_one())])
    search = ClusterTightening()
    assert not search.fits(wide)
    with pytest.raises(ValueError, match=r"1\.1e\+12 joint states.* use TRWS, MPLP or AD3"):
        search.map(wide)
    model = PairwiseModel(lattice((200, 200)), np.zeros((40000, 20)), np.zeros((1, 20, 20)))
    with pytest.raises(ValueError, match="in total"):
        search.map(model)
    with pytest.raises(ValueError, match="max_work must be at least 0"):
        ClusterTightening(-1).map(spin_glass((2, 2)))
    assert search.fits(spin_glass((20, 20)))
