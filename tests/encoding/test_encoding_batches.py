"""Edge features, batches of examples, and the conversion of results."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from lattice_inputs import ROWS_OF_THE_TABLE, as_dense, chains, triangle_and_more
from numpy.testing import assert_array_equal

from sklearn_crf import Example
from sklearn_crf.encoding import (
    _edge_features,
    chain_features,
    complete_batch,
    decode,
    encode_X,
    encode_y,
    make_batches,
)
from sklearn_crf.encoding._examples import stacked
from sklearn_crf.potentials import convert_to_feature_columns

# -- Edge features --------------------------------------------------------------------------------


def scaled_difference(x_tail, x_head):
    return np.exp(-((x_tail - x_head) ** 2))


@pytest.mark.parametrize("name", ["chains", "images", "list of images", "examples"])
def test_edge_features(name):
    X = ROWS_OF_THE_TABLE[name][0]
    expected = {
        "difference": lambda x, y: np.concatenate(([1], np.abs(x - y))),
        "constant": lambda x, y: np.ones(1),
        scaled_difference: lambda x, y: np.exp(-((x - y) ** 2)),
    }
    for spec, reference in expected.items():
        encoded = encode_X(X, edge_features=spec)
        for batch in make_batches(encoded, max_nodes=8):
            example = batch.example
            rows = [reference(*example.node_features[edge]) for edge in example.edges]
            if rows:
                assert np.allclose(example.edge_features, rows)
                assert example.edge_features.shape[1] == encoded.n_edge_features


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_differences_by_the_kernel_are_those_of_the_function(dtype):
    rng = np.random.default_rng(0)
    x, edges = rng.normal(size=(9, 4)).astype(dtype), rng.integers(9, size=(30, 2))
    found = _edge_features.compute_edge_features(_edge_features.difference, x, edges)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, _edge_features.difference(x[edges[:, 0]], x[edges[:, 1]]))
    x[edges[3, 1], 2] = np.finfo(dtype).max
    x[edges[3, 0], 2] = -np.finfo(dtype).max
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="NaN or infinity"):
        _edge_features.compute_edge_features(_edge_features.difference, x, edges)


@pytest.mark.parametrize("name", ["chains", "images", "list of images", "examples"])
def test_edge_features_that_take_much_memory_are_computed_where_used(name, monkeypatch):
    X = ROWS_OF_THE_TABLE[name][0]
    kept = make_batches(encode_X(X), max_nodes=8)
    monkeypatch.setattr("sklearn_crf.encoding._tuning.MOST_KEPT", 0)
    computed = make_batches(encode_X(X), max_nodes=8)
    for a, b in zip(kept, computed, strict=True):
        assert np.array_equal(a.example.edge_features, b.example.edge_features)
        if a.example.graph.n_edges:
            assert a.example.edge_features is a.example.edge_features
            assert b.example.edge_features is not b.example.edge_features
        again = pickle.loads(pickle.dumps(b)).example
        assert np.array_equal(again.edge_features, a.example.edge_features)
        assert np.array_equal(again.edge_type, a.example.edge_type)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
def test_computed_edge_features_give_way_to_others(form, monkeypatch):
    monkeypatch.setattr("sklearn_crf.encoding._tuning.MOST_KEPT", 0)
    X = [form(x) for x in chains()]
    (batch,) = make_batches(encode_X(X, edge_features="constant"))
    columns = convert_to_feature_columns(batch.example, 1)
    assert columns.edge_features is None
    assert np.array_equal(columns.graph.edges, batch.example.graph.edges)
    assert batch.example.edge_features.shape == (columns.graph.n_edges, 1)


def test_edge_features_of_an_example_win():
    X = [Example(np.zeros((2, 3)), [[0, 1]], edge_features=[[5.0, 6]]), Example(np.zeros((2, 3)), [])]
    encoded = encode_X(X)
    assert encoded.n_edge_features == 2
    assert make_batches(encoded)[0].example.edge_features.tolist() == [[5, 6]]


def test_edge_features_of_sparse_nodes():
    X = [sp.csr_matrix(x) for x in chains()]
    with pytest.raises(ValueError, match="use edge_features='constant'"):
        make_batches(encode_X(X))
    encoded = encode_X(X, edge_features="constant")
    assert make_batches(encoded)[0].example.edge_features.shape == (8, 1)

    def product(x_tail, x_head):
        return x_tail.multiply(x_head).sum(axis=1)

    values = make_batches(encode_X(X, edge_features=product))[0].example.edge_features
    rows = np.concatenate([(x.toarray()[:-1] * x.toarray()[1:]).sum(axis=1) for x in X])
    assert np.allclose(values[:, 0], rows)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, y: np.ones(len(x)), "must return an array of shape"),
        (lambda x, y: np.ones((len(x) + 1, 2)), "must return an array of shape"),
        (lambda x, y: np.full((len(x), 1), np.nan), "NaN or infinity"),
    ],
)
def test_bad_edge_features(function, message):
    with pytest.raises(ValueError, match=message):
        make_batches(encode_X(np.zeros((2, 3, 1)), edge_features=function))


def test_different_numbers_of_edge_features():
    one, two = (Example(np.zeros((2, 3)), [[0, 1]], edge_features=np.ones((1, r))) for r in (1, 2))
    none = Example(np.zeros((2, 3)), [[0, 1]])
    with pytest.raises(ValueError, match=r"X\[1\] has 2 edge features, but X\[0\] has 1"):
        encode_X([one, two])
    with pytest.raises(ValueError, match=r"X\[0\] has 4 edge features, but X\[1\] has 1"):
        encode_X([none, one])
    assert encode_X([none, one], edge_features="constant").n_edge_features == 1


def test_registered_edge_features(monkeypatch):
    monkeypatch.setattr(_edge_features, "EDGE_FEATURES", dict(_edge_features.EDGE_FEATURES))
    _edge_features.register_edge_features("bell", scaled_difference)
    _edge_features.register_edge_features("bell", scaled_difference)
    assert encode_X(np.zeros((1, 3, 2)), edge_features="bell").edge_feature_function is scaled_difference
    with pytest.raises(ValueError, match="registered already"):
        _edge_features.register_edge_features("bell", _edge_features.constant)
    with pytest.raises(ValueError, match="callable"):
        _edge_features.register_edge_features("flat", "constant")


# -- Batches --------------------------------------------------------------------------------------


def test_examples_with_cycles_are_alone_and_forests_together():
    X = triangle_and_more()
    batches = make_batches(encode_X([X[1], X[2], X[0], X[3], X[1], X[2]]), max_nodes=6)
    assert [batch.members.tolist() for batch in batches] == [[0, 1], [2], [3, 4], [5]]
    assert [batch.node_ptr.tolist() for batch in batches] == [[0, 4, 6], [0, 3], [0, 2, 6], [0, 2]]


def test_examples_with_cycles_are_together_where_asked_for():
    X = triangle_and_more()
    batches = make_batches(encode_X([X[1], X[2], X[0], X[3], X[1], X[2]]), max_nodes=9, max_cyclic_nodes=9)
    assert [batch.members.tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5]]
    images = encode_X(np.zeros((5, 2, 2, 1)))
    for max_nodes, members in ((8, [[0, 1], [2, 3], [4]]), (1, [[0], [1], [2], [3], [4]])):
        batches = make_batches(images, max_nodes=max_nodes, max_cyclic_nodes=max_nodes)
        assert [batch.members.tolist() for batch in batches] == members


def test_batches_of_chains_are_alike_and_even_in_number():
    lengths = np.random.default_rng(0).integers(5, 40, 1500)
    batches = make_batches(encode_X([np.zeros((n, 1)) for n in lengths]))
    sizes = [batch.example.n_nodes for batch in batches]
    assert sum(sizes) == lengths.sum() > 8 * 4096
    assert len(sizes) == 10
    assert max(sizes) <= 4096
    assert min(sizes) > 0.9 * max(sizes)


def test_a_forest_larger_than_a_batch_is_alone():
    batches = make_batches(encode_X(chains((3, 9, 3, 3))), max_nodes=6)
    assert [batch.members.tolist() for batch in batches] == [[0], [1], [2, 3]]
    batches = make_batches(encode_X(np.zeros((2, 9, 1))), max_nodes=6)
    assert [batch.members.tolist() for batch in batches] == [[0], [1]]


@pytest.mark.parametrize("layout", [list, np.asarray])
@pytest.mark.parametrize("length", [1, 2])
def test_examples_of_different_weights_share_a_batch(layout, length):
    weight = np.array([1.0, 1, 2, 2, 0, 1])
    (batch,) = make_batches(encode_X(layout(chains((length,) * 6))), sample_weight=weight)
    assert batch.weight.tolist() == weight.tolist()


def test_examples_with_factors_and_different_weights_share_a_batch():
    X = [Example(np.zeros((3, 1)), [], fixed_factors=[((0, 1, 2), np.zeros((2, 2, 2)))]) for _ in range(4)]
    encoded = encode_X(X, allow_factors=True)
    (batch,) = make_batches(encoded, sample_weight=np.arange(4.0), max_factor_nodes=100)
    assert batch.weight.tolist() == [0, 1, 2, 3]


def test_types_and_states_are_joined():
    features = np.zeros((2, 1))
    X = [
        Example(features, [[0, 1]], node_type=[0, 2], edge_type=[3]),
        Example(features, [[0, 1]]),
        Example(features, [[0, 1]], n_states=[1, 2]),
        Example(features, [[0, 1]], n_states=[2, 1], edge_type=[1]),
    ]
    encoded = encode_X(X)
    assert (encoded.n_node_types, encoded.n_edge_types) == (3, 4)
    first, second = make_batches(encoded)
    assert first.example.node_type.tolist() == [0, 2, 0, 0]
    assert first.example.edge_type.tolist() == [3, 0]
    assert first.example.n_states is None
    assert second.example.n_states.tolist() == [1, 2, 2, 1]
    assert second.example.edge_type.tolist() == [0, 1]
    assert X[1].edge_type is None, "what the user holds is not written to"
    assert X[1].edge_features is None


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=12),
    st.integers(1, 20),
    st.integers(0, 99),
)
def test_labels_go_through_batches_and_back(lengths, max_nodes, seed):
    rng = np.random.default_rng(seed)
    encoded = encode_X([rng.normal(size=(length, 1)) for length in lengths])
    y = [rng.integers(3, size=length) for length in lengths]
    labels = encode_y(y, encoded, classes=[0, 1, 2]).labels
    weight = rng.integers(2, size=len(lengths)) + 0.5
    batches = make_batches(encoded, labels, weight, max_nodes=max_nodes)
    back = decode(encoded, [batch.labels for batch in batches], batches, classes=np.arange(3))
    assert all(np.array_equal(a, b) for a, b in zip(y, back, strict=True))
    assert np.array_equal(np.concatenate([batch.weight for batch in batches]), weight)
    for batch in batches:
        assert batch.example.n_nodes <= max_nodes or len(batch.members) == 1


def test_decode_adds_the_axis_of_classes():
    for name, (X, layout, _, _) in ROWS_OF_THE_TABLE.items():
        encoded = encode_X(X, edge_features="constant")
        batches = make_batches(encoded)
        back = decode(encoded, [np.ones((batch.example.n_nodes, 5)) for batch in batches], batches)
        if layout == "list":
            assert [part.shape for part in back] == [(*shape, 5) for shape in encoded.shapes], name
        else:
            assert back.shape == (*np.shape(as_dense(X))[:-1], 5), name


def test_lists_of_equal_lattices_come_back_as_objects():
    encoded = encode_X([np.zeros((2, 2, 1))] * 3)
    batches = make_batches(encoded)
    back = decode(encoded, [np.zeros((4, 2))] * 3, batches)
    assert (back.shape, back.dtype) == ((3,), object)


def test_copies_of_a_row_are_stacked_row_by_row():
    rows = np.arange(12.0).reshape(3, 4)
    parts = [np.broadcast_to(row, (5, 4)) for row in rows]
    found = stacked(parts)
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, np.repeat(rows, 5, axis=0))


def test_a_row_that_is_not_finite_is_found_in_its_copies():
    rows = np.ones((3, 4))
    rows[1, 2] = np.nan
    X = [Example(np.broadcast_to(row, (5, 4)), np.empty((0, 2))) for row in rows]
    with pytest.raises(ValueError, match=r"X\[1\]"):
        encode_X(X)


@pytest.mark.parametrize(
    ("kind", "edge_features"),
    [
        (np.array, "constant"),
        (np.array, "difference"),
        (sp.csr_matrix, "constant"),
        (sp.csr_array, "constant"),
    ],
)
def test_pending_batches_are_made_when_they_are_used(kind, edge_features):
    rng = np.random.default_rng(0)
    sequences = [kind(rng.normal(size=(n, 3))) for n in (2, 5, 1, 4)]
    encoded = encode_X(sequences, edge_features=edge_features)
    made, pending = make_batches(encoded, max_nodes=7), make_batches(encoded, max_nodes=7, is_pending=True)
    for one, other in zip(made, pending, strict=True):
        assert complete_batch(one) is one
        assert complete_batch(other) is not other
        # Only the example itself is sent to another process.
        for found in (complete_batch(other), complete_batch(pickle.loads(pickle.dumps(other)))):
            assert_array_equal(dense(found.example.node_features), dense(one.example.node_features))
            assert_array_equal(found.example.edges, one.example.edges)
            assert_array_equal(dense(found.example.edge_features), dense(one.example.edge_features))
            assert_array_equal(found.node_ptr, one.node_ptr)
        # Edges of different features are checked.
        features = chain_features(other)
        assert (features is None) == (edge_features == "difference")
        if features is not None:
            assert_array_equal(features.lengths, np.diff(one.node_ptr))
            assert len(features.places) == len(one.members)
            assert features.fields(7)[:2] == [7, 0]
    # Other examples are not delayed.
    others = make_batches(encode_X(rng.normal(size=(3, 4, 2))), is_pending=True)
    assert all(complete_batch(batch) is batch for batch in others)


def dense(features):
    """Return features as an array."""
    return features.toarray() if sp.issparse(features) else features
