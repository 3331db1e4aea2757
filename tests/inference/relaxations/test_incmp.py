"""IncMP: its kernels against plain loops, and the shares of the edges."""

import numpy as np
import pytest
from model_strategies import TABLE_KINDS, random_model
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import IncMP, best_couplings, convergence_left_to_caller
from sklearn_crf.inference._field import make_field
from sklearn_crf.kernels.relaxations.relaxations import (
    decode_shares,
    dual_value,
    incremental_sweep,
    pick_labels,
    shuffle,
)


class Shares:
    """Arguments of the kernels, and a reference with one array of shares, projected as in Figure 26."""

    def __init__(self, model):
        graph = model.graph
        self.model, self.edges = model, graph.edges
        self.field, _ = make_field(model, maximum=True)
        self.share = 1 / np.maximum(graph.degree, 1)
        self.moved = np.zeros((2 * graph.n_edges, self.field.width))
        self.base = np.empty((graph.n_nodes, self.field.width))
        self.picked = np.empty(2 * graph.n_edges, dtype=np.int32)
        self.tables = model.edge_tables()
        self.plain = (model.unary * self.share[:, None])[graph.edges]

    def value(self):
        arguments = self.share, self.moved, self.base, self.picked, self.field.workspace()
        return dual_value(self.field, self.edges, *arguments)

    def sweep(self, order, step):
        arguments = self.share, step, self.moved, self.base, self.picked, self.field.workspace()
        incremental_sweep(self.field, self.edges, order, *arguments)

    def shares(self):
        moved = self.moved.reshape(len(self.edges), 2, -1)
        return (moved + self.base[self.edges])[..., : self.model.n_columns]

    def plain_pairs(self, e):
        return self.plain[e, 0][:, None] + self.plain[e, 1] + self.tables[e]

    def plain_value(self):
        lonely = self.model.graph.degree == 0
        return sum(self.plain_pairs(e).max() for e in range(len(self.edges))) + self.model.unary[lonely].max(1).sum()

    def plain_sweep(self, order, step):
        for e in order:
            best = np.unravel_index(self.plain_pairs(e).argmax(), self.tables[e].shape)
            for side, (node, state) in enumerate(zip(self.edges[e], best, strict=True)):
                self.plain[e, side, state] -= step
                around = self.edges == node
                self.plain[around, state] += step * self.share[node]


@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("structure", ["full", "potts"])
@pytest.mark.parametrize("extra", [{}, {"forbidden": 0.2}, {"vary_states": True}])
def test_sweeps_against_plain_projections(structure, kind, extra):
    for topology in ("grid", "disconnected"):
        model = random_model(topology, 3, kind, structure=structure, seed=1, **extra)
        shares = Shares(model)
        assert shares.value() == pytest.approx(shares.plain_value(), abs=1e-10)
        order = np.random.default_rng(0).permutation(len(shares.edges)).astype(np.int32)
        for step in (0.5, 0.2):
            shares.sweep(order, step)
            shares.plain_sweep(order, step)
            assert_allclose(shares.shares(), shares.plain, atol=1e-10)
            assert shares.value() == pytest.approx(shares.plain_value(), abs=1e-10)
            assert_allclose(shares.shares(), shares.plain, atol=1e-10)


@pytest.mark.parametrize("structure", ["full", "potts"])
@pytest.mark.parametrize("direction", [1, -1])
def test_decoding_against_plain_loops(direction, structure):
    model = random_model("grid", 3, "untied", structure=structure, seed=2)
    shares = Shares(model)
    shares.value()
    shares.sweep(np.arange(len(shares.edges), dtype=np.int32), 0.3)
    shares.value()
    labels = np.empty(9, dtype=np.int32)
    work = shares.field.workspace()
    decode_shares(shares.field, shares.moved, shares.base, direction, labels, work)
    plain = np.full(9, -1)
    for s in range(9)[::direction]:
        total = model.unary[s].copy()
        for (i, j), table, own in zip(shares.edges, shares.tables, shares.shares(), strict=True):
            if s in (i, j):
                other, pair, share = (j, table, own[1]) if s == i else (i, table.T, own[0])
                total += (pair + share).max(axis=1) if plain[other] < 0 else pair[:, plain[other]]
        plain[s] = total.argmax()
    assert_array_equal(labels, plain)


def test_shuffling_is_even():
    state = np.array([17], dtype=np.uint64)
    counts = np.zeros((5, 5), dtype=int)
    for _ in range(4000):
        items = np.arange(5, dtype=np.int32)
        shuffle(items, state)
        counts[np.arange(5), items] += 1
    assert_array_equal(counts.sum(axis=0), 4000)
    # Five standard deviations of a count
    assert_allclose(counts, 800, atol=5 * np.sqrt(4000 * 0.2 * 0.8))


def test_labels_are_drawn_from_the_edges_of_a_node():
    graph = lattice((3, 3))
    picked = np.arange(2 * graph.n_edges, dtype=np.int32)
    state, seen = np.array([5], dtype=np.uint64), np.zeros((9, 2 * graph.n_edges), dtype=int)
    labels = np.empty(9, dtype=np.int32)
    for _ in range(300):
        pick_labels(graph.incidence.ptr, graph.incidence.half_edge, picked, state, labels)
        seen[np.arange(9), labels] += 1
    assert_array_equal(seen > 0, graph.edges.ravel() == np.arange(9)[:, None])
    assert_allclose(seen[4, seen[4] > 0], 75, atol=5 * np.sqrt(300 * 0.25 * 0.75))


def test_shares_of_the_edges_add_up_to_the_scores_and_give_the_bound():
    for kind, dtype in (("untied", np.float64), ("weighted", np.float32)):
        model = random_model(lattice((4, 5)), 3, kind, dtype=dtype, scale=2.0, seed=4)
        with convergence_left_to_caller():
            found = IncMP(max_iter=50).map(model)
        shares = found.state.shares(model)
        total = np.zeros(model.unary.shape)
        np.add.at(total, model.graph.edges, shares)
        assert_allclose(total, model.unary, atol=1e-9)
        pairs = shares[:, 0, :, None] + shares[:, 1, None, :] + model.edge_tables()
        assert pairs.max(axis=(1, 2)).sum() >= found.bound - 1e-4


@pytest.mark.parametrize("climb", [True, False])
def test_averages_of_the_edges_nearly_solve_the_linear_programme(climb):
    for seed in range(5):
        model = random_model(lattice((3, 3), 2), 3, scale=2.0, seed=seed)
        with convergence_left_to_caller():
            found = IncMP(climb=climb).map(model)
        assert_allclose(found.fractional.sum(axis=1), 1.0)
        joint = best_couplings(model, found.fractional)
        value = np.sum(found.fractional * model.unary) + np.sum(joint * model.edge_tables())
        assert value <= found.bound + 1e-9
        assert value >= found.bound - 0.03 * abs(found.bound)


def test_climbing_finds_better_labels():
    model = random_model(lattice((10, 10)), 4, "untied", seed=6)
    with convergence_left_to_caller():
        climbed, plain = (IncMP(max_iter=20, climb=climb).map(model) for climb in (True, False))
    assert climbed.score > plain.score
    assert climbed.bound == plain.bound


@pytest.mark.parametrize("option", ["decay", "backoff"])
def test_wrong_factors(option):
    with pytest.raises(ValueError, match=f"{option} must lie above 0"):
        IncMP(**{option: 1.5}).map(random_model("grid", seed=0))
