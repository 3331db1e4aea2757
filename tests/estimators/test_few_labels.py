"""Training with few labelled nodes: coarse lattices, and the nodes within reach of labels."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression

from sklearn_crf import TRWCRF, DRFClassifier
from sklearn_crf.encoding import Batch, make_trusted_example
from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import TRWMessagePassing
from sklearn_crf.learning import MaximumLikelihood, PseudoMarginalTraining, Relaxation
from sklearn_crf.learning._few_labels import coarsen_risk, reduce_risk_to_labels
from sklearn_crf.learning._training import PenalisedRisk
from sklearn_crf.objectives import EmpiricalRisk, RelaxedLikelihood
from sklearn_crf.potentials import LinearPotentials, make_pairwise_form


def risk_of(shape, labels, connectivity=1, dtype=np.float64):
    """Return a risk of one lattice with random features and a type of edges for each offset."""
    rng = np.random.default_rng(0)
    graph = lattice(shape, connectivity)
    example = make_trusted_example(
        rng.normal(size=(graph.n_nodes, 3)).astype(dtype),
        graph,
        rng.random((graph.n_edges, 2)).astype(dtype),
        edge_type=graph.lattice_edge_type,
    )
    form = make_pairwise_form("potts", 3)
    potentials = LinearPotentials(3, 3, form, n_edge_features=2, n_edge_types=len(graph.offsets))
    batch = Batch(example, np.array([4]), np.array([0, graph.n_nodes]), np.ravel(labels).astype(np.int32))
    return EmpiricalRisk(RelaxedLikelihood(TRWMessagePassing("uniform")), potentials, [batch])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("connectivity", [1, 2])
@pytest.mark.parametrize(("shape", "max_nodes", "length"), [((6, 9), 6, 3), ((5, 7), 12, 2), ((3, 4, 5), 12, 2)])
def test_blocks_hold_means_and_the_commonest_labels(shape, max_nodes, length, connectivity, dtype):
    labels = np.random.default_rng(1).choice([-1, -1, -1, -1, 0, 1, 2], size=shape)
    risk = risk_of(shape, labels, connectivity, dtype)
    coarse = coarsen_risk(risk, max_nodes).batches[0]
    fine, found = risk.batches[0].example, coarse.example
    assert found.graph.shape == tuple(-(-n // length) for n in shape)
    assert found.node_features.dtype == found.edge_features.dtype == dtype
    assert_array_equal(found.graph.offsets, fine.graph.offsets)
    assert_array_equal(found.edge_type, found.graph.lattice_edge_type)
    assert_array_equal(coarse.members, [4])
    assert_array_equal(coarse.node_ptr, [0, found.n_nodes])
    place = np.stack(np.unravel_index(np.arange(fine.n_nodes), shape), axis=-1) // length
    for node, at in enumerate(np.ndindex(*found.graph.shape)):
        inside = (place == at).all(axis=1)
        assert_allclose(found.node_features[node], fine.node_features[inside].mean(axis=0), rtol=1e-5, atol=1e-6)
        votes = np.bincount(labels.ravel()[inside & (labels.ravel() >= 0)], minlength=3)
        assert coarse.labels[node] == (np.argmax(votes) if votes.any() else -1)
    ends, offset = place[fine.graph.edges], fine.graph.lattice_edge_type
    coarse_place = np.stack(np.unravel_index(np.arange(found.n_nodes), found.graph.shape), axis=-1)
    for edge, (tail, head) in enumerate(found.graph.edges):
        crossing = (ends == coarse_place[[tail, head]]).all(axis=(1, 2)) & (offset == found.edge_type[edge])
        expected = fine.edge_features[crossing].mean(axis=0) / np.sqrt(length)
        assert_allclose(found.edge_features[edge], expected, rtol=1e-5)


@pytest.mark.parametrize(("shape", "max_nodes"), [((7, 7), 12), ((2, 60), 7), ((9, 4), 1), ((5, 6, 7), 30)])
def test_coarse_lattices_have_no_more_nodes_than_asked_for(shape, max_nodes):
    labels = np.full(shape, -1)
    labels.flat[0] = 1
    assert coarsen_risk(risk_of(shape, labels), max_nodes).batches[0].example.n_nodes <= max_nodes


def reached(graph, labels, reach, max_nodes):
    """Return the nodes of an irregular graph that training uses, identified by their feature."""
    numbers = np.arange(graph.n_nodes, dtype=float)[:, None]
    batch = Batch(make_trusted_example(numbers, graph), np.array([0]), np.array([0, graph.n_nodes]), labels)
    potentials = LinearPotentials(2, 1, make_pairwise_form("potts", 2))
    risk = EmpiricalRisk(RelaxedLikelihood(TRWMessagePassing("uniform")), potentials, [batch])
    return reduce_risk_to_labels(risk, reach, max_nodes).batches[0].example.node_features[:, 0].astype(int).tolist()


def test_labels_reach_what_they_are_joined_to_as_far_as_there_is_room():
    # Two rings of 40 nodes, one label in the first, and ten nodes alone.
    ring = np.stack([np.arange(40), (np.arange(40) + 1) % 40], axis=1)
    graph = Graph(90, np.concatenate([ring, ring + 40]))
    labels = np.full(90, -1, dtype=np.int32)
    labels[20] = 1

    def within(n):
        return list(range(20 - n, 21 + n))

    assert reached(graph, labels, None, None) == reached(graph, labels, None, 40) == list(range(40))
    assert reached(graph, labels, None, 39) == within(19)
    assert reached(graph, labels, None, 14) == within(6)
    # A minimum number of steps is made in graphs of any size.
    assert reached(graph, labels, None, 1) == within(4)
    assert reached(graph, labels, 2, None) == reached(graph, labels, 2, 1) == within(2)
    assert reached(graph, labels, 0, None) == [20]


def test_what_stays_as_it_is():
    few, most = np.full(20, -1), np.zeros(20)
    few[0] = 1
    for risk, max_nodes in (
        (risk_of((4, 5), few), 20),
        (risk_of((4, 5), most), 4),
        (risk_of((20,), few), 4),
        (risk_of((4, 5), few, [[0, 2], [1, 0]]), 4),
    ):
        assert coarsen_risk(risk, max_nodes) is risk
    assert coarsen_risk(risk_of((4, 5), few), 4).batches[0].example.n_nodes < 20


def test_weights_of_a_coarse_lattice_label_the_whole():
    rng = np.random.default_rng(0)
    truth = np.zeros((60, 60), dtype=int)
    truth[15:45, 20:50] = 1
    X = (truth + rng.normal(size=truth.shape))[None, ..., None]
    y = np.full((1, 60, 60), -1)
    y[0, 25:35, 30:40], y[0, 2:10, 5:55] = 1, 0
    options = {"missing_label": -1, "edge_features": "constant"}
    whole, coarse = (
        DRFClassifier(learning=PseudoMarginalTraining(reach=None, max_nodes=n), **options).fit(X, y)
        for n in (None, 1000)
    )
    assert not np.array_equal(whole.edge_coef_, coarse.edge_coef_)
    for field in (whole, coarse):
        assert np.mean(field.predict(X)[0] == truth) > 0.97
    again = DRFClassifier(learning=PseudoMarginalTraining(reach=None, max_nodes=1000), n_jobs=3, **options).fit(X, y)
    assert_array_equal(again.coef_, coarse.coef_)
    assert_array_equal(again.edge_coef_, coarse.edge_coef_)


@pytest.mark.parametrize("learning", [MaximumLikelihood(max_nodes=250), Relaxation()])
def test_a_relaxation_chosen_automatically_sees_large_images_at_a_coarser_scale(learning):
    rng = np.random.default_rng(0)
    truth = np.repeat(np.repeat(np.add.outer(np.arange(15), np.arange(15)) > 14, 2, axis=0), 2, axis=1).astype(int)
    X = truth[..., None] + 0.5 * rng.normal(size=(30, 30, 2))
    # Each label is the label of all four pixels of a block.
    y = np.where(np.arange(30)[:, None] % 12 < 4, truth, -1)
    options = {"missing_label": -1, "edge_features": "constant", "C": 10.0}
    found = TRWCRF(learning=learning, **options).fit(X[None], y[None])
    assert found.learning_ == "relaxation"
    blocks = X.reshape(15, 2, 15, 2, 2).mean(axis=(1, 3))
    alone = TRWCRF(learning="relaxation", **options).fit(blocks[None], y[None, ::2, ::2])
    by_pixel, by_block = (field.edge_coef_[0, 0] @ [1, -2, 1] for field in (found, alone))
    assert (abs(by_pixel / np.sqrt(2) - by_block) < 0.1 * by_block) == isinstance(learning, MaximumLikelihood)
    assert np.mean(found.predict(X[None])[0] == truth) > 0.9


@pytest.mark.parametrize("pairwise", ["ising", "potts", "full", "symmetric"])
def test_edges_between_blocks_count_less(pairwise):
    risk = risk_of((4, 6), few_labels((4, 6)))
    form = make_pairwise_form(pairwise, 2)
    few = EmpiricalRisk(risk.objective, LinearPotentials(3, 2, form), [without_edge_features(risk)])
    coarse, length = coarsen_risk(few, 6), 2
    coef = np.random.default_rng(0).normal(size=few.potentials.n_coef)
    fine_table = few.potentials.model(coef, few.batches[0].example).tables.reshape(2, 2)
    model = coarse.potentials.model(coef, coarse.batches[0].example)
    weight = 1.0 if model.edge_weight is None else model.edge_weight[0]
    table = model.tables.reshape(2, 2) * weight
    # The same, except for the divisor, the probability that neighbours differ.
    assert_allclose(
        table[0, 0] + table[1, 1] - table[0, 1] - table[1, 0],
        (fine_table[0, 0] + fine_table[1, 1] - fine_table[0, 1] - fine_table[1, 0]) / np.sqrt(length),
    )
    assert_allclose(table[0, 0] - table[1, 1], fine_table[0, 0] - fine_table[1, 1])


def test_tables_of_lattices_in_blocks_of_several_lengths_stay_as_they_are():
    large, small = (risk_of(shape, few_labels(shape)) for shape in ((8, 12), (4, 6)))
    potentials = LinearPotentials(2, 3, make_pairwise_form("full", 2), n_edge_features=2, n_edge_types=2)
    both = EmpiricalRisk(large.objective, potentials, [large.batches[0], small.batches[0]])
    coarse = coarsen_risk(both, 6)
    assert coarse.potentials is potentials
    alike = EmpiricalRisk(large.objective, potentials, [large.batches[0]] * 2)
    assert coarsen_risk(alike, 6).potentials is not potentials


def few_labels(shape):
    labels = np.full(shape, -1)
    labels[0, 0] = 1
    return labels


def without_edge_features(risk):
    batch = risk.batches[0]
    example = make_trusted_example(batch.example.node_features, batch.example.graph)
    return Batch(example, batch.members, batch.node_ptr, batch.labels)


@pytest.mark.parametrize("estimator", [DRFClassifier, TRWCRF])
def test_strokes_in_regions_of_their_own_do_not_smooth_everything_away(estimator):
    rng = np.random.default_rng(0)
    truth = np.digitize(np.arange(48), [16, 32])[:, None].repeat(48, axis=1)
    X = np.eye(3)[truth] + rng.normal(size=(48, 48, 3))
    y = np.full(truth.shape, -1)
    for row in (7, 23, 40):
        y[row - 1 : row + 2, 14:34] = truth[row, 0]
    alone = LogisticRegression().fit(X[y >= 0], y[y >= 0]).predict(X.reshape(-1, 3)).reshape(truth.shape)
    field = estimator(missing_label=-1).fit(X[None], y[None])
    assert np.mean(alone == truth) < 0.7
    assert np.mean(field.predict(X[None])[0] == truth) > 0.9


def test_exact_learnings_see_all_nodes():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4, 30, 2)), np.full((4, 30), -1)
    y[:, :2] = rng.integers(2, size=(4, 2))
    automatic, exact = (TRWCRF(learning=name, missing_label=-1).fit(X, y) for name in ("likelihood", "exact"))
    assert automatic.learning_ == "exact"
    assert_array_equal(automatic.coef_, exact.coef_)


def test_fields_learn_small_photographs_at_a_coarser_scale():
    rng = np.random.default_rng(0)
    truth = np.zeros((110, 120), dtype=int)
    truth[30:80, 40:90] = 1
    X = 0.5 * truth[..., np.newaxis] + rng.normal(scale=0.5, size=(110, 120, 1))
    strokes = np.full(truth.shape, -1)
    strokes[50:53, 50:80] = 1
    strokes[10:13, 20:100] = 0
    n_nodes, whole = [], PenalisedRisk.__init__

    def counted(self, risk, *args, **options):
        n_nodes.append(risk.n_nodes)
        whole(self, risk, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PenalisedRisk, "__init__", counted)
        field = DRFClassifier(missing_label=-1).fit(X[np.newaxis], strokes[np.newaxis])
        full = DRFClassifier(missing_label=-1, learning=PseudoMarginalTraining(max_nodes=None))
        full.fit(X[np.newaxis], strokes[np.newaxis])
    assert n_nodes[-1] == truth.size
    assert n_nodes[0] <= truth.size / 4
    right, of_full = (np.mean(found.predict(X[np.newaxis])[0] == truth) for found in (field, full))
    assert right >= of_full - 0.002
