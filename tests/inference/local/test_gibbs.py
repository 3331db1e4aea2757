"""Gibbs sampling: averages converge to exact marginals at the Monte-Carlo rate; threads do not change results."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_reference import log_conditional
from model_strategies import FORESTS, TABLE_KINDS, TOPOLOGIES, models, random_model
from scipy import stats

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import BruteForce, GibbsSampler
from sklearn_crf.inference._allowed_labels import find_nearest_allowed
from sklearn_crf.inference._local_search import random_labels
from sklearn_crf.inference.local._gibbs import gibbs_sweeps
from sklearn_crf.kernels.local.local import stream_key, uniforms
from sklearn_crf.models import PairwiseModel, clamped, factor_graph_of, score


def stream(seed, chain, sweep, n):
    out = np.empty(n)
    uniforms(stream_key(seed, chain, sweep), out)
    return out


def reference_sweep(model, labels, random_numbers):
    """Return new labels, the conditional of each node, and the mean of both conditionals of each edge as pairs."""
    labels = labels.copy()
    conditionals = np.zeros(model.unary.shape)
    tables = np.zeros(model.tables.shape)
    for node in model.graph.colouring.nodes:
        conditionals[node] = np.exp(log_conditional(model, labels, node))
        labels[node] = np.searchsorted(np.cumsum(conditionals[node]), random_numbers[node], side="right")
        for e, (tail, head) in enumerate(model.graph.edges):
            weight = np.ones(tables.shape[1]) if model.edge_weight is None else model.edge_weight[e]
            if node == tail:
                tables[model.edge_type[e], :, :, labels[head]] += 0.5 * np.outer(weight, conditionals[node])
            elif node == head:
                tables[model.edge_type[e], :, labels[tail], :] += 0.5 * np.outer(weight, conditionals[node])
    return labels, conditionals, tables


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("structure", ["full", "potts"])
@pytest.mark.parametrize("n_columns", [2, 3])
def test_one_sweep_is_the_reference(topology, kind, structure, n_columns):
    model = random_model(topology, n_columns, kind, structure=structure, seed=3)
    seed = np.random.RandomState(7).randint(np.iinfo(np.int64).max, dtype=np.int64)
    start = model.unary.argmax(axis=1)
    expected = reference_sweep(model, start, stream(int(seed), 0, 0, len(start)))
    result = GibbsSampler(n_sweeps=1, burn_in=0, random_state=7).marginals(model)
    np.testing.assert_array_equal(result.state[0], expected[0])
    np.testing.assert_allclose(result.unary, expected[1], atol=1e-12)
    np.testing.assert_allclose(result.tables, expected[2], atol=1e-12)
    np.testing.assert_array_equal(gibbs_sweeps(model, start, 1, int(seed)), expected[0])


def test_random_numbers_are_uniform_and_unrelated():
    n = 20000
    streams = np.stack([stream(seed, chain, sweep, n) for seed in (0, 1) for chain in (0, 1) for sweep in (0, 1, 2)])
    assert stats.kstest(streams.ravel(), "uniform").pvalue > 0.001
    # Random numbers differ between sweeps, chains, seeds and neighbouring nodes.
    related = np.corrcoef(np.concatenate([streams, np.roll(streams[:1], 1, axis=1)]))
    assert np.abs(related[np.triu_indices(len(related), 1)]).max() < 5 / np.sqrt(n)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("topology", "kind"), [("grid", "untied"), ("tree", "weighted"), ("disconnected", "typed")])
def test_marginals_converge_to_the_exact_ones(topology, kind, dtype):
    model = random_model(topology, 3, kind, scale=0.7, dtype=dtype, seed=1)
    exact = BruteForce().marginals(model)
    # Batches of sweeps estimate the standard error of their mean, including the correlation.
    batches = [GibbsSampler(n_sweeps=250, burn_in=20, random_state=k).marginals(model) for k in range(24)]
    for name in ("unary", "tables"):
        values = np.stack([getattr(batch, name).astype(np.float64) for batch in batches])
        error = np.abs(values.mean(axis=0) - getattr(exact, name))
        standard_error = values.std(axis=0, ddof=1) / np.sqrt(len(batches))
        assert np.all(error <= 5 * standard_error + 1e-6)
        assert standard_error.max() < 0.02 * max(1.0, np.abs(getattr(exact, name)).max())


def test_error_falls_with_the_square_root_of_the_sweeps():
    model = random_model("grid", 2, scale=0.7, seed=2)
    exact = BruteForce().marginals(model).unary

    def error(n_sweeps):
        found = [GibbsSampler(n_sweeps=n_sweeps, random_state=k).marginals(model).unary for k in range(30)]
        return np.sqrt(np.mean((np.stack(found) - exact) ** 2))

    assert error(25) / error(400) == pytest.approx(4, rel=0.25)


def test_averaged_conditionals_beat_counts():
    model = random_model("grid", 2, scale=0.5, seed=3)
    exact = BruteForce().marginals(model).unary[:, 1]
    averaged, counted = [], []
    for seed in range(30):
        sampler = GibbsSampler(n_sweeps=100, burn_in=20, thin=1, random_state=seed)
        averaged.append(sampler.marginals(model).unary[:, 1])
        counted.append(sampler.sample(model, 100).mean(axis=0))
    averaged, counted = (np.mean((np.stack(found) - exact) ** 2) for found in (averaged, counted))
    assert averaged < 0.7 * counted


@pytest.mark.parametrize("n_chains", [1, 3])
def test_samples_follow_the_joint_distribution(n_chains):
    model = random_model("chain", 2, seed=4)
    samples = GibbsSampler(thin=6, n_chains=n_chains, random_state=0).sample(model, 3000)
    assert samples.shape == (3000, 6)
    assert samples.dtype == np.int32
    probability = np.array([np.exp(score(model, labels)) for labels in np.indices((2,) * 6).reshape(6, -1).T])
    expected = 3000 * probability / probability.sum()
    counts = np.bincount(samples @ (2 ** np.arange(5, -1, -1)), minlength=64)
    frequent = expected > 5
    observed = np.append(counts[frequent], counts[~frequent].sum())
    expected = np.append(expected[frequent], expected[~frequent].sum())
    assert stats.chisquare(observed, expected).pvalue > 0.001


@given(model=models(topologies=("chain", "tree", "grid", "disconnected", "no_edges", "one_node")))
@settings(max_examples=40, deadline=None)
def test_nothing_forbidden_is_drawn(model):
    start = BruteForce().map(model).labels
    result = GibbsSampler(n_sweeps=20, burn_in=5, n_chains=2, random_state=0).marginals(model, init=start)
    assert result.log_z is None
    assert result.bound is None
    assert not np.any(result.unary[np.isneginf(model.unary)])
    assert not np.any(result.tables[np.isneginf(model.tables)])
    np.testing.assert_allclose(result.unary.sum(axis=1), 1, rtol=1e-6)
    for labels in result.state:
        assert np.isfinite(score(model, labels))


def test_a_feasible_start_is_found():
    # Outside, begin, inside: "inside" must not follow "outside", but single nodes prefer this.
    tables = np.zeros((1, 3, 3))
    tables[0, 0, 2] = -np.inf
    model = PairwiseModel(lattice((40,)), np.tile([[9.0, 0.0, 0.5], [0.0, 0.2, 9.0]], (20, 1)), tables)
    samples = GibbsSampler(burn_in=0, thin=1, n_chains=4, random_state=0).sample(model, 20)
    assert all(np.isfinite(score(model, labels)) for labels in samples)


@given(model=models(topologies=tuple(FORESTS)), seed=st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_on_forests_a_feasible_start_is_always_found(model, seed):
    start = random_labels(model, np.random.RandomState(seed))
    assert np.isfinite(score(model, find_nearest_allowed(model, start)))


def test_a_start_far_from_any_feasible_one():
    # States may only stay equal or increase by one: changes of single nodes do not find such labelings.
    steps = np.arange(5) - np.arange(5)[:, None]
    tables = np.where((steps == 0) | (steps == 1), 0.0, -np.inf)[None]
    model = PairwiseModel(lattice((40,)), np.random.default_rng(0).normal(size=(40, 5)), tables)
    samples = GibbsSampler(burn_in=0, n_chains=3, random_state=0).sample(model, 6)
    assert np.isin(np.diff(samples, axis=1), [0, 1]).all()


def test_no_feasible_start_is_an_error():
    tables = np.where(np.eye(2, dtype=bool), -np.inf, 0.0)[None]
    model = PairwiseModel(lattice((2,)), np.array([[0.0, -np.inf], [0.0, -np.inf]]), tables)
    with pytest.raises(ValueError, match="model is infeasible"):
        GibbsSampler().marginals(model)


def test_a_start_that_only_a_search_finds():
    # Sixteen queens: the columns of two rows must differ, and by another number than the rows.
    n = 16
    rows, columns = np.stack(np.triu_indices(n, 1), axis=1), np.arange(n)
    apart, steps = np.abs(columns - columns[:, None]), np.arange(1, n)[:, None, None]
    tables = np.where((apart == 0) | (apart == steps), -np.inf, 0.0)
    model = PairwiseModel(Graph(n, rows), np.zeros((n, n)), tables, rows[:, 1] - rows[:, 0] - 1)
    samples = GibbsSampler(burn_in=2, n_chains=2, random_state=0).sample(model, 4)
    assert all(np.isfinite(score(model, labels)) for labels in samples)


@pytest.mark.parametrize("n_columns", [2, 3])
@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_do_not_change_anything(n_columns, n_threads):
    rng = np.random.default_rng(2)
    shape = (80, 70)
    model = PairwiseModel(
        lattice(shape, 2), rng.normal(size=(5600, n_columns)), rng.normal(size=(1, n_columns, n_columns))
    )
    sampler = GibbsSampler(n_sweeps=5, burn_in=2, random_state=3)
    alone, shared = sampler.marginals(model), sampler.marginals(model, n_threads=n_threads)
    for name in ("unary", "tables", "state"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(shared, name))
    np.testing.assert_array_equal(sampler.sample(model, 2), sampler.sample(model, 2, n_threads=n_threads))
    labels = np.zeros(5600, dtype=np.int32)
    np.testing.assert_array_equal(
        gibbs_sweeps(model, labels, 2, seed=2**64 - 1), gibbs_sweeps(model, labels, 2, 2**64 - 1, n_threads=n_threads)
    )


def test_seeds_decide():
    model = random_model("grid", 3, seed=5)
    first, again, other = (GibbsSampler(random_state=seed).marginals(model).unary for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)
    sampler = GibbsSampler(random_state=1)
    np.testing.assert_array_equal(sampler.sample(model, 5), sampler.sample(model, 5, random_state=1))
    assert np.any(sampler.sample(model, 5) != sampler.sample(model, 5, random_state=2))


def test_warm_start_is_where_the_chains_begin():
    # Two modes: a chain stays in one of them during the few sweeps.
    model = PairwiseModel(lattice((8, 8)), np.zeros((64, 2)), 4 * np.eye(2)[None])
    sampler = GibbsSampler(n_sweeps=5, burn_in=0, n_chains=2, random_state=0)
    result = sampler.marginals(model, init=np.repeat([[0], [1]], 64, axis=1))
    assert np.all(np.abs(result.unary - 0.5) < 0.2)
    assert result.state[0].mean() < 0.1
    again = sampler.marginals(model, init=result.state)
    assert again.state[1].mean() > 0.9


@pytest.mark.parametrize("as_factors", [False, True])
def test_clamped_sweeps_keep_known_labels(as_factors):
    model = random_model("grid", 3, seed=6)
    labels = np.arange(9) % 3
    known = np.arange(9) % 2 == 0
    observed = clamped(factor_graph_of(model) if as_factors else model, np.where(known, labels, -1))
    found = np.stack([gibbs_sweeps(observed, None, 2, seed) for seed in range(200)])
    np.testing.assert_array_equal(found[:, known], np.tile(labels[known], (200, 1)))
    exact = BruteForce().marginals(observed).unary
    shares = np.stack([(found == k).mean(axis=0) for k in range(3)], axis=1)
    assert np.abs(shares - exact).max() < 0.15


def test_sweeps_leave_their_start_alone():
    model = random_model("grid", 3, seed=6)
    labels = np.zeros(9, dtype=np.int32)
    labels.flags.writeable = False
    assert np.any(gibbs_sweeps(model, labels, 3, 0) != 0)
    np.testing.assert_array_equal(gibbs_sweeps(model, labels, 0, 0), labels)


def test_a_long_chain_from_the_data_forgets_them():
    model = random_model("tree", 2, scale=0.5, seed=7)
    exact = BruteForce().marginals(model).unary[:, 1]
    found = np.stack([gibbs_sweeps(model, np.zeros(7, dtype=int), 12, seed) for seed in range(2000)])
    assert np.abs(found.mean(axis=0) - exact).max() < 5 * np.sqrt(0.25 / 2000)


def test_clamped_nodes_are_certain():
    model = clamped(random_model("grid", 3, seed=8), np.where(np.arange(9) == 4, 1, -1))
    result = GibbsSampler(random_state=0).marginals(model)
    np.testing.assert_array_equal(result.unary[4], [0, 1, 0])


def test_no_nodes():
    model = PairwiseModel(Graph(0, []), np.zeros((0, 2)), np.zeros((1, 2, 2)))
    assert GibbsSampler().marginals(model).unary.shape == (0, 2)
    assert GibbsSampler().sample(model, 3).shape == (3, 0)


@pytest.mark.parametrize("name", ["n_sweeps", "burn_in", "thin", "n_chains"])
def test_bad_options_are_named(name):
    with pytest.raises(ValueError, match=f"{name} must be at least"):
        GibbsSampler(**{name: -1}).sample(random_model("chain"))


def test_bad_starts_are_named():
    model = random_model("chain", 3)
    with pytest.raises(ValueError, match="n_chains=1"):
        GibbsSampler().marginals(model, init=np.zeros((2, 6), dtype=int))
    with pytest.raises(ValueError, match="labels must be between"):
        gibbs_sweeps(model, np.full(6, 3), 1, 0)
    with pytest.raises(ValueError, match="n_sweeps must not be negative"):
        gibbs_sweeps(model, np.zeros(6, dtype=int), -1, 0)
    forbidding = replace(model, unary=np.where(np.arange(3) == 1, -np.inf, model.unary))
    with pytest.raises(ValueError, match=r"init\[0\] is 1"):
        GibbsSampler().marginals(forbidding, init=np.ones(6, dtype=int))
