"""Examples that are joined and split again keep their models."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import Example
from sklearn_crf.encoding import encode_X, make_batches
from sklearn_crf.graphs import lattice
from sklearn_crf.learning._growing_sets import split_into_members
from sklearn_crf.potentials import LinearPotentials, make_pairwise_form


def graphs(with_states):
    rng = np.random.default_rng(0)
    for shape in ((2, 2), (3,), (2, 3), ()):
        graph = lattice(shape)
        n_states = np.full(graph.n_nodes, 2) if with_states else None
        yield Example(
            rng.normal(size=(graph.n_nodes, 2)), graph, rng.normal(size=(graph.n_edges, 2)),
            edge_type=rng.integers(2, size=graph.n_edges), n_states=n_states,
        )  # fmt: skip


@pytest.mark.parametrize("with_states", [False, True])
def test_members_have_the_models_of_their_examples(with_states):
    encoded = encode_X(list(graphs(with_states)))
    (batch,) = make_batches(encoded, max_cyclic_nodes=4096)
    batch = replace(batch, labels=np.zeros(batch.example.n_nodes, dtype=np.int32))
    potentials = LinearPotentials(2, 3, make_pairwise_form("full", 3), n_edge_features=2, n_edge_types=2)
    coef = np.random.default_rng(1).normal(size=potentials.n_coef)
    model = potentials.model(coef, batch.example)
    members = split_into_members(batch, encoded)
    assert len({member.key for member in members}) == len(members) == 4
    for member, example in zip(members, encoded.items, strict=True):
        part, alone = member.part_of(model), potentials.model(coef, example)
        assert part.graph is example.graph
        assert_allclose(part.unary, alone.unary, atol=1e-14)
        for name in ("tables", "edge_type", "edge_weight", "n_states"):
            assert_array_equal(getattr(part, name), getattr(alone, name))


@pytest.mark.parametrize(
    "X", [np.zeros((4, 2)), np.zeros((4, 3, 2)), np.zeros((1, 2, 2, 2))], ids=["rows", "chains", "image"]
)
def test_forests_stay_together(X):
    encoded = encode_X(X)
    (batch,) = make_batches(encoded, max_cyclic_nodes=4096)
    batch = replace(batch, labels=np.zeros(batch.example.n_nodes, dtype=np.int32))
    (member,) = split_into_members(batch, encoded, joins_forests=True)
    assert member.graph is batch.example.graph
    parts = split_into_members(batch, encoded)
    assert [part.graph.n_nodes for part in parts] == np.diff(batch.node_ptr).tolist()
    # Equal examples have equal keys.
    assert len({part.key for part in parts}) == 1


def test_lattices_of_an_array_share_their_graph():
    encoded = encode_X(np.zeros((3, 2, 2, 1)))
    (batch,) = make_batches(encoded, max_cyclic_nodes=4096)
    batch = replace(batch, labels=np.zeros(batch.example.n_nodes, dtype=np.int32))
    assert [member.nodes for member in split_into_members(batch, encoded)] == [slice(0, 4), slice(4, 8), slice(8, 12)]
    assert all(member.graph is encoded.graph for member in split_into_members(batch, encoded))
