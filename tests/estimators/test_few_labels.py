"""Training where few nodes are labelled: coarse lattices, and nodes near labels."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import TRWCRF, DRFClassifier
from sklearn_crf.encoding import Batch, Example
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import TRWMessagePassing
from sklearn_crf.learning import PMA
from sklearn_crf.learning._few_labels import coarse_risk
from sklearn_crf.objectives import EmpiricalRisk, RelaxedLikelihood
from sklearn_crf.potentials import LinearPotentials, pairwise_form


def risk_of(shape, labels, connectivity=1, dtype=np.float64):
    """A risk of one lattice with random features, whose edges are typed by their offsets."""
    rng = np.random.default_rng(0)
    graph = lattice(shape, connectivity)
    example = Example._trusted(
        rng.normal(size=(graph.n_nodes, 3)).astype(dtype),
        graph,
        rng.random((graph.n_edges, 2)).astype(dtype),
        edge_type=graph.lattice_edge_type,
    )
    form = pairwise_form("potts", 3)
    potentials = LinearPotentials(3, 3, form, n_edge_features=2, n_edge_types=len(graph.offsets))
    batch = Batch(example, np.array([4]), np.array([0, graph.n_nodes]), np.ravel(labels).astype(np.int32))
    return EmpiricalRisk(RelaxedLikelihood(TRWMessagePassing("uniform")), potentials, [batch])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("connectivity", [1, 2])
@pytest.mark.parametrize(("shape", "max_nodes", "length"), [((6, 9), 6, 3), ((5, 7), 12, 2), ((3, 4, 5), 8, 2)])
def test_blocks_hold_means_and_the_commonest_labels(shape, max_nodes, length, connectivity, dtype):
    labels = np.random.default_rng(1).choice([-1, -1, -1, -1, 0, 1, 2], size=shape)
    risk = risk_of(shape, labels, connectivity, dtype)
    coarse = coarse_risk(risk, max_nodes).batches[0]
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
        assert_allclose(found.edge_features[edge], fine.edge_features[crossing].mean(axis=0), rtol=1e-5)


def test_what_stays_as_it_is():
    few, most = np.full(20, -1), np.zeros(20)
    few[0] = 1
    for risk, max_nodes in (
        (risk_of((4, 5), few), 20),
        (risk_of((4, 5), most), 4),
        (risk_of((20,), few), 4),
        (risk_of((4, 5), few, [[0, 2], [1, 0]]), 4),
    ):
        assert coarse_risk(risk, max_nodes) is risk
    assert coarse_risk(risk_of((4, 5), few), 4).batches[0].example.n_nodes < 20


def test_weights_of_a_coarse_lattice_label_the_whole():
    rng = np.random.default_rng(0)
    truth = np.zeros((60, 60), dtype=int)
    truth[15:45, 20:50] = 1
    X = (truth + rng.normal(size=truth.shape))[None, ..., None]
    y = np.full((1, 60, 60), -1)
    y[0, 25:35, 30:40], y[0, 2:10, 5:55] = 1, 0
    options = {"missing_label": -1, "edge_features": "constant"}
    whole, coarse = (DRFClassifier(learning=PMA(reach=None, max_nodes=n), **options).fit(X, y) for n in (None, 1000))
    assert not np.array_equal(whole.edge_coef_, coarse.edge_coef_)
    for field in (whole, coarse):
        assert np.mean(field.predict(X)[0] == truth) > 0.97
    again = DRFClassifier(learning=PMA(reach=None, max_nodes=1000), n_jobs=3, **options).fit(X, y)
    assert_array_equal(again.coef_, coarse.coef_)
    assert_array_equal(again.edge_coef_, coarse.edge_coef_)


@pytest.mark.parametrize("formulation", ["auto", "relaxation"])
def test_a_relaxation_chosen_automatically_learns_near_labels(formulation):
    rng = np.random.default_rng(0)
    truth = (np.arange(30)[:, None] + np.arange(30) > 28).astype(int)
    X = truth[..., None] + rng.normal(size=(30, 30, 2))
    # Nodes in the first three rows are labelled, so that those of the first seven are within four edges of one.
    y = np.where(np.arange(30)[:, None] < 3, truth, -1)
    found = TRWCRF(formulation=formulation, missing_label=-1, edge_features="constant").fit(X[None], y[None])
    assert found.formulation_ == "relaxation"
    # The nodes are no lattice any more.
    near = Example(X[:7].reshape(210, 2), lattice((7, 30)).edges)
    alone = TRWCRF(formulation="relaxation", missing_label=-1).fit([near], [y[:7].ravel()])
    is_same = np.allclose(found.coef_, alone.coef_, rtol=1e-6)
    assert is_same == (formulation == "auto")
    if is_same:
        assert_allclose(found.edge_coef_, alone.edge_coef_, rtol=1e-6)
        assert np.mean(found.predict(X[None])[0] == truth) > 0.8


def test_exact_formulations_see_all_nodes():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4, 30, 2)), np.full((4, 30), -1)
    y[:, :2] = rng.integers(2, size=(4, 2))
    automatic, exact = (TRWCRF(formulation=name, missing_label=-1).fit(X, y) for name in ("auto", "exact"))
    assert automatic.formulation_ == "exact"
    assert_array_equal(automatic.coef_, exact.coef_)
