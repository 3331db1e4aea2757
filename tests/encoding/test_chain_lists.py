"""Lists of chains that are checked and joined in one call, compared with lists that are read one by one."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.encoding._compact_lists import ChainList


def toarray(x, dtype=None):
    """Return a chain as a dense array."""
    return np.ascontiguousarray(sp.csr_matrix(x, dtype=dtype).toarray())


def chains(dtype=np.float64, kind=sp.csr_matrix, n=9):
    rng = np.random.default_rng(0)
    X = [kind(sp.random(t, 8, 0.3, format="csr", random_state=rng, dtype=dtype)) for t in (4, 1, 3, 3, 1, 5, 2, 2, 6)]
    # Rows and whole chains without any feature.
    X[3] = kind((3, 8), dtype=dtype)
    return X[:n]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array, toarray])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("max_nodes", [1, 7, 100])
def test_batches_are_those_of_single_examples(dtype, kind, weighted, max_nodes, monkeypatch):
    X = chains(dtype, kind)
    together = encode_X(X, edge_features="constant")
    monkeypatch.setattr(ChainList, "of", lambda chains, dtypes, n_jobs: None)
    apart = encode_X(X, edge_features="constant")
    assert isinstance(together.items, ChainList)
    assert isinstance(apart.items, list)
    for name in ("n_examples", "n_nodes", "n_edges", "n_edge_types", "n_edge_features", "shapes", "dtype", "is_sparse"):
        assert getattr(together, name) == getattr(apart, name)
    weight = np.array([1, 1, 2, 2, 2, 1, 1, 1, 1.0]) if weighted else None
    labels = encode_y([np.arange(x.shape[0]) % 2 for x in X], together).labels
    both = [make_batches(each, labels, weight, max_nodes=max_nodes) for each in (together, apart)]
    for one, other in zip(*both, strict=True):
        assert_array_equal(one.members, other.members)
        assert_array_equal(one.node_ptr, other.node_ptr)
        assert_array_equal(one.labels, other.labels)
        assert_array_equal(one.example.edges, other.example.edges)
        assert_array_equal(one.example.edge_type, other.example.edge_type)
        assert_array_equal(one.example.edge_features, other.example.edge_features)
        assert_array_equal(*(sp.csr_matrix(each.example.node_features).toarray() for each in (one, other)))
        assert one.example.node_features.dtype == dtype


def test_single_examples_are_there_when_asked_for():
    X = chains()
    items = encode_X(X).items
    assert len(items) == len(list(items)) == len(X)
    assert items[2].node_features is X[2]
    assert [example.n_nodes for example in items[3:5]] == [3, 1]
    assert items[-1].graph.n_edges == 5


def damaged(attribute, values):
    X = chains()
    broken = X[5].copy()
    array = getattr(broken, attribute).copy()
    array[-1] = values
    setattr(broken, attribute, array)
    return [*X[:5], broken, *X[6:]]


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("indices", 8, r"X\[5\] is a damaged sparse matrix: it has indices"),
        ("indices", -1, r"X\[5\] is a damaged sparse matrix: it has indices"),
        ("indptr", 1000, r"X\[5\] is a damaged sparse matrix: indptr"),
        ("data", np.nan, r"X\[5\] contains NaN"),
        ("data", np.inf, r"X\[5\] contains infinity"),
    ],
)
def test_what_is_wrong_is_named(attribute, value, message):
    with pytest.raises(ValueError, match=message):
        encode_X(damaged(attribute, value))


def test_widths_that_differ_are_named():
    X = chains()
    with pytest.raises(ValueError, match=r"X\[9\] has 7 features, but X\[0\] has 8"):
        encode_X([*X, sp.csr_matrix((2, 7))])


def test_empty_chains_are_left_out_of_batches():
    X = chains()
    encoded = encode_X([sp.csr_matrix((0, 8)), *X[:4], sp.csr_matrix((0, 8)), *X[4:]], edge_features="constant")
    (batch,), (expected,) = make_batches(encoded), make_batches(encode_X(X, edge_features="constant"))
    assert batch.members.tolist() == [*range(1, 5), *range(6, 6 + len(X) - 4)]
    np.testing.assert_array_equal(batch.node_ptr, expected.node_ptr)
    assert (batch.example.node_features != expected.example.node_features).nnz == 0
    np.testing.assert_array_equal(batch.example.graph.edges, expected.example.graph.edges)
    assert isinstance(encoded.take(encoded.filled).items, ChainList)


def test_values_that_add_up_to_more_than_the_largest_number():
    X = [sp.csr_matrix(np.full((2, 1), np.finfo(np.float64).max)) for _ in range(3)]
    assert isinstance(encode_X(X).items, ChainList)


def test_offsets_of_their_own_are_read_one_by_one():
    encoded = encode_X(chains(), connectivity=np.array([[1], [2]]))
    assert isinstance(encoded.items, list)
    assert encoded.items[0].graph.n_edges == 5


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_chains_without_any_feature_are_joined(index):
    X = [sp.csr_matrix((n, 8)) for n in (2, 1, 3)]
    for x in X:
        x.indices, x.indptr = x.indices.astype(index), x.indptr.astype(index)
    encoded = encode_X(X, edge_features="constant")
    assert isinstance(encoded.items, ChainList)
    joined = encoded.items.joined(0, 3).node_features
    assert joined.shape == (6, 8)
    assert joined.indptr.tolist() == [0] * 7
