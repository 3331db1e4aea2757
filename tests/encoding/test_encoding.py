"""Conversion of X, y and sample_weight to batches, and of results to the user's layout."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from lattice_inputs import RNG, ROWS_OF_THE_TABLE, NodewiseClassifier, as_dense, images
from sklearn.base import BaseEstimator, clone
from sklearn.utils.estimator_checks import check_estimator

from sklearn_crf import TRWCRF, Example, MultiConditionalMFA, MultiLabelField
from sklearn_crf.encoding import decode, encode_X, make_batches, make_object_array, record_input
from sklearn_crf.graphs import lattice


def test_plain_rows_pass_the_checks_of_scikit_learn():
    results = check_estimator(NodewiseClassifier(max_nodes=50), on_fail=None, on_skip=None)
    failed = [r["check_name"] + str(r["exception"]) for r in results if r["status"] not in ("passed", "skipped")]
    assert not failed
    assert len(results) > 50


# -- What X may be --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROWS_OF_THE_TABLE)
def test_every_row_of_the_table_goes_in_and_comes_back(name):
    X, layout, ndim, n_nodes = ROWS_OF_THE_TABLE[name]
    encoded = encode_X(X, edge_features="constant")
    assert (encoded.layout, encoded.lattice_ndim) == (layout, ndim)
    batches = make_batches(encoded, max_nodes=7)
    assert sum(batch.example.n_nodes for batch in batches) == n_nodes
    back = decode(encoded, [as_dense(batch.example.node_features) for batch in batches], batches)
    if layout == "list":
        assert back.shape == (len(X),)
        for x, z in zip(X, back, strict=True):
            assert np.array_equal(as_dense(x.node_features if isinstance(x, Example) else x), z)
    else:
        assert np.array_equal(as_dense(X), back)


@pytest.mark.parametrize("name", ROWS_OF_THE_TABLE)
def test_examples_are_what_batches_hold(name):
    encoded = encode_X(ROWS_OF_THE_TABLE[name][0], edge_features="constant")
    if encoded.layout == "nodes":
        assert encoded.examples is None
        return
    batches = make_batches(encoded, max_nodes=8)
    assert np.concatenate([batch.members for batch in batches]).tolist() == list(range(encoded.n_examples))
    for batch in batches:
        for k, i in enumerate(batch.members):
            part, example = slice(*batch.node_ptr[k : k + 2]), encoded.examples[i]
            features = as_dense(batch.example.node_features)
            assert np.array_equal(features[part], as_dense(example.node_features))
            edges = batch.example.edges - part.start
            inside = np.all((edges >= 0) & (edges < example.n_nodes), axis=1)
            assert np.array_equal(edges[inside], example.edges)


def test_lattices_have_their_edges_and_types():
    encoded = encode_X(np.zeros((2, 3, 4, 1)), connectivity=2)
    assert encoded.n_edge_types == 4
    reference = lattice((3, 4), 2)
    for example in encoded.examples:
        assert np.array_equal(example.edges, reference.edges)
        assert np.array_equal(example.edge_type, reference.lattice_edge_type)
    tied = encode_X(images(), edge_types="tied", connectivity=[[0, 1], [2, 2]])
    assert tied.n_edge_types == 1
    assert np.array_equal(tied.examples[0].edges, lattice((3, 4), [[0, 1], [2, 2]]).edges)
    assert not tied.examples[0].edge_type.any()


def test_lattices_of_one_shape_share_a_graph():
    encoded = encode_X(images(((3, 4), (2, 2), (3, 4))))
    assert encoded.examples[0].graph is encoded.examples[2].graph
    batches = make_batches(encode_X(np.zeros((9, 4, 1))), max_nodes=12)
    assert [batch.example.n_nodes for batch in batches] == [12, 12, 12]
    assert len({id(batch.example.graph) for batch in batches}) == 1


def test_lists_can_mix_dense_and_sparse_chains():
    X = [np.ones((2, 3)), sp.csr_matrix(np.ones((3, 3)))]
    encoded = encode_X(X, edge_features="constant")
    assert [sp.issparse(batch.example.node_features) for batch in make_batches(encoded)] == [False, True]


@pytest.mark.parametrize("name", [name for name in ROWS_OF_THE_TABLE if "nested lists" not in name])
def test_float32_stays(name):
    X = in_float32(ROWS_OF_THE_TABLE[name][0])
    encoded = encode_X(X, edge_features="constant")
    assert encoded.dtype == np.float32
    for batch in make_batches(encoded):
        assert batch.example.node_features.dtype == np.float32
        assert batch.example.edge_features is None or batch.example.edge_features.dtype == np.float32


def in_float32(X):
    if sp.issparse(X) or getattr(X, "dtype", np.dtype(object)).kind == "f":
        return X.astype(np.float32)
    if isinstance(X[0], Example):
        return [Example(x.node_features.astype(np.float32), x.graph) for x in X]
    return [x.astype(np.float32) if sp.issparse(x) else np.asarray(x, dtype=np.float32) for x in X]


@pytest.mark.parametrize("dtype", [np.uint8, bool, np.int64, np.float16, object])
@pytest.mark.parametrize("shape", [(3, 2), (3, 4, 2), (3, 4, 5, 2)])
def test_other_numbers_become_float64(dtype, shape):
    X = RNG.integers(2, size=shape).astype(dtype)
    assert encode_X(X).dtype == np.float64
    assert np.array_equal(encode_X(X).array, X.astype(float))
    if len(shape) > 2:
        assert encode_X(list(X)).dtype == np.float64


def test_mixed_precision_becomes_float64():
    encoded = encode_X([np.zeros((2, 1), dtype=np.float32), np.zeros((2, 1))])
    assert {example.node_features.dtype.type for example in encoded.examples} == {np.float64}
    one, two = np.zeros((2, 1), dtype=np.float32), np.zeros((2, 1))
    encoded = encode_X([Example(one, [[0, 1]], edge_features=one[:1]), Example(two, [[0, 1]], edge_features=two[:1])])
    assert {example.edge_features.dtype.type for example in encoded.examples} == {np.float64}


@pytest.mark.parametrize("shape", [(6, 2), (3, 4, 2), (2, 3, 4, 2)])
def test_read_only_memory_maps(shape, tmp_path):
    np.save(tmp_path / "X.npy", RNG.normal(size=shape))
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    encoded = encode_X(X)
    assert np.shares_memory(encoded.array, X)
    batches = make_batches(encoded)
    assert np.shares_memory(batches[0].example.node_features, X)


def test_plain_rows_make_no_object_each():
    encoded = encode_X(np.zeros((100_000, 2)))
    assert len(make_batches(encoded, max_nodes=50_000)) == 2
    assert np.shares_memory(make_batches(encoded)[0].example.node_features, encoded.array)


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        ([], {}, r"0 sample\(s\)"),
        (np.zeros((0, 3)), {}, r"0 sample\(s\)"),
        (np.zeros((0, 4, 3)), {}, r"0 sample\(s\)"),
        (np.zeros((2, 4, 0)), {}, "length 0"),
        (np.zeros(3), {}, "Reshape your data"),
        ([1.0, 2.0], {}, "Reshape your data"),
        (np.array(3.0), {}, "Expected 2D array, got scalar"),
        ([[1, 2], [3]], {}, "different numbers of features, 1 to 2"),
        ([np.zeros((2, 3)), np.zeros((2, 4))], {}, r"X\[1\] has 4 features, but X\[0\] has 3"),
        ([np.zeros((2, 3)), np.zeros((2, 3, 3))], {}, r"X\[1\] of shape \(2, 3, 3\) has 3 axes, but X\[0\] has 2"),
        ([np.zeros((2, 3)), np.zeros((2, 0))], {}, r"X\[1\] of shape \(2, 0\) has no features"),
        ([np.zeros((0, 3)), np.zeros((0, 3))], {}, "X has no nodes"),
        ([np.zeros((2, 3)), np.zeros(3)], {}, r"X\[1\] of shape \(3,\)"),
        ([np.zeros((2, 3)), "text"], {}, r"X\[1\] of shape \(\)"),
        ([np.zeros((2, 3)), [[1, 2, 3], [4]]], {}, r"X\[1\] is not a rectangular array"),
        ([[[1, 2], [3]], [[1, 2]]], {}, "not rectangular"),
        ([np.zeros((2, 3)), Example(np.zeros((2, 3)), [])], {}, r"X\[1\] is an Example"),
        ([Example(np.zeros((2, 3)), []), np.zeros((2, 3))], {}, r"X\[1\] is a ndarray"),
        (Example(np.zeros((2, 3)), []), {}, r"one Example: pass a list"),
        (np.full((2, 3), "a"), {}, "must hold numbers, got strings"),
        (np.full((2, 3, 1), "a"), {}, "must hold numbers"),
        (make_object_array([np.full((2, 3), "a")]), {}, r"X\[0\] must hold numbers"),
        (np.zeros((2, 3), dtype=complex), {}, "Complex data not supported"),
        (np.zeros((2, 3, 1), dtype=complex), {}, "Complex data not supported"),
        ([np.zeros((2, 3), dtype=complex)], {}, "Complex data not supported"),
        (np.zeros((1,) * 6), {}, "4 lattice axes: pass lattice_ndim"),
        ([np.zeros((1,) * 5)], {}, "is not an example"),
        (np.zeros((5, 6, 3)), {"lattice_ndim": 2}, r"one example if lattice_ndim=2: add a leading axis"),
        (np.zeros((5, 6)), {"lattice_ndim": 1}, "add a leading axis"),
        (sp.csr_matrix((5, 6)), {"lattice_ndim": 1}, "add a leading axis"),
        (np.zeros((5, 6)), {"lattice_ndim": 2}, "n_examples, 2 lattice axes, n_features"),
        (np.zeros((5, 6, 3)), {"lattice_ndim": 0}, "does not fit lattice_ndim=0"),
        ([np.zeros((5, 6))] * 2, {"lattice_ndim": 0}, r"X\[0\] of shape \(5, 6\) has 2 axes, but lattice_ndim=0 needs"),
        ([np.zeros((5, 6))], {"lattice_ndim": 2}, r"X\[0\] of shape \(5, 6\) has 2 axes, but lattice_ndim=2 needs 3"),
        (np.zeros((5, 6)), {"lattice_ndim": -1}, "lattice_ndim"),
        (np.zeros((5, 6)), {"lattice_ndim": "2"}, "lattice_ndim"),
        (np.zeros((5, 6)), {"edge_types": "typed"}, "edge_types"),
        (np.zeros((5, 6)), {"edge_features": "no such"}, "edge_features"),
        (np.zeros((5, 6, 1)), {"connectivity": 7}, "connectivity"),
    ],
    ids=str,
)
def test_bad_X(X, options, message):
    with pytest.raises(ValueError, match=message):
        encode_X(X, **options)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_example_that_is_not_finite_is_named(value, dtype):
    X = np.zeros((3, 4, 5, 2), dtype=dtype)
    X[1, 2, 2, 0] = value
    word = "NaN" if np.isnan(value) else "infinity"
    chain = X[:, 2]
    for bad in (X, list(X), chain, [sp.csr_matrix(x) for x in chain], [Example(x, []) for x in chain]):
        with pytest.raises(ValueError, match=rf"X\[1\].* contains {word}"):
            encode_X(bad)
    with pytest.raises(ValueError, match=word):
        encode_X(chain[1])
    with pytest.raises(ValueError, match=rf"X\[0\].edge_features contains {word}"):
        encode_X([Example(X[0, 0, :2], [[0, 1]], edge_features=[[value]])])


def test_large_finite_features_are_not_taken_for_infinite():
    big = np.finfo(np.float32).max
    assert encode_X(np.full((2, 3, 1), big)).array.max() == big
    assert encode_X(np.full((2, 3, 1), np.finfo(np.float64).max)).n_features == 1


def test_lattice_ndim_that_fits_changes_nothing():
    assert encode_X(np.zeros((2, 3, 1)), lattice_ndim=1).layout == "array"
    assert encode_X(np.zeros((2, 3)), lattice_ndim=0).layout == "nodes"
    assert encode_X([np.zeros((2, 3, 1))], lattice_ndim=2).layout == "list"
    assert encode_X(np.zeros((1, 2, 2, 2, 2, 1)), lattice_ndim=4).graph.n_edges == 32


# -- The fitted estimator -------------------------------------------------------------------------


class Fitted(BaseEstimator):
    pass


@pytest.mark.parametrize("name", ROWS_OF_THE_TABLE)
def test_number_of_features_must_be_that_of_fit(name):
    X = ROWS_OF_THE_TABLE[name][0]
    estimator = Fitted()
    encoded = encode_X(X, estimator=estimator)
    assert not vars(estimator), "only record writes"
    record_input(encoded, estimator)
    assert estimator.n_features_in_ == encoded.n_features
    assert encode_X(X, estimator=estimator, reset=False).n_features == encoded.n_features
    estimator.n_features_in_ = 7
    with pytest.raises(ValueError, match="features, but Fitted is expecting 7 features as input"):
        encode_X(X, estimator=estimator, reset=False)


def test_number_of_lattice_axes_must_be_that_of_fit():
    estimator = Fitted()
    record_input(encode_X(np.zeros((3, 4, 5, 2)), estimator=estimator), estimator)
    for X in (np.zeros((4, 5, 2)), [np.zeros((5, 2))], np.zeros((3, 2))):
        with pytest.raises(ValueError, match="lattice_ndim=2"):
            encode_X(X, estimator=estimator, reset=False)
        encode_X(X, estimator=estimator)
    assert encode_X([np.zeros((4, 5, 2))], estimator=estimator, reset=False).lattice_ndim == 2
    assert encode_X([Example(np.zeros((4, 2)), [])], estimator=estimator, reset=False).n_features == 2
    record_input(encode_X([Example(np.zeros((4, 2)), [])], estimator=estimator), estimator)
    assert encode_X(np.zeros((3, 4, 2)), estimator=estimator, reset=False).lattice_ndim == 1


def test_names_of_columns_are_recorded_and_forgotten():
    pd = pytest.importorskip("pandas", reason="needs data frames")
    frame = pd.DataFrame({"a": [0.0, 1], "b": [2, 3]})
    estimator = Fitted()
    record_input(encode_X(frame, estimator=estimator), estimator)
    assert estimator.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="feature names"):
        encode_X(frame[["b", "a"]], estimator=estimator, reset=False)
    record_input(encode_X([frame.to_numpy()] * 2, estimator=estimator), estimator)
    assert not hasattr(estimator, "feature_names_in_")


# -- Numbers that would wrap or reach outside ------------------------------------------------------


def damaged_csr():
    matrix = sp.csr_matrix(np.arange(12.0).reshape(4, 3) + 1)
    matrix.indices[3] = 10**8
    return matrix


@pytest.mark.parametrize("make", [lambda: damaged_csr(), lambda: [damaged_csr(), damaged_csr()]])
def test_sparse_columns_out_of_range_are_refused(make):
    with pytest.raises(ValueError, match="damaged sparse matrix"):
        encode_X(make(), lattice_ndim=None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"node_features": damaged_csr()}, "node_features is a damaged sparse matrix"),
        ({"node_features": np.zeros((4, 1), complex)}, "Complex data not supported"),
        ({"edge_type": [2**32]}, "edge_type must be between 0 and"),
        ({"node_type": np.array([0, 0, 0, 2**64 - 1], dtype=np.uint64)}, "node_type must be between 0 and"),
        ({"n_states": [2, 2, 2, 2**32 + 2]}, "n_states must be between 1 and"),
        ({"factors": {"all": [[0, 1, 2**32 + 2]]}}, r"factors\['all'\] must be between"),
        ({"fixed_factors": [([0, 2**32 + 1], np.eye(2))]}, r"the scope of fixed_factors\[0\] must be between"),
    ],
)
def test_numbers_of_examples_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Example(**{"node_features": np.zeros((4, 1)), "edges": [[0, 1]], **fields})


@pytest.mark.parametrize("estimator", [MultiConditionalMFA(), MultiLabelField()])
@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([Example(np.ones((3, 2)), [[0, 1], [1, 2]])] * 4, "but X[0] is an Example: fit DRFClassifier or TRWCRF"),
        (np.ones((4, 5, 2)), "but each has 2 axes: fit DRFClassifier or TRWCRF"),
        ([np.ones((3, 2))] * 4, "but each has 2 axes"),
        (
            [{"word": "a"}] * 4,
            "X[0] is a dict: convert dicts to features with sklearn.feature_extraction.Dict",
        ),
    ],
    ids=["graphs", "array of chains", "list of chains", "dicts"],
)
def test_estimators_of_rows_say_what_else_takes_sequences_and_graphs(estimator, X, message):
    y = np.eye(4, dtype=int)
    with pytest.raises(ValueError, match=re.escape(message)):
        clone(estimator).fit(X, y if isinstance(estimator, MultiLabelField) else y[0])


@pytest.mark.parametrize("bad", [None, np.nan, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_threads_look_at_are_those_of_one(dtype, bad, monkeypatch):
    X = np.random.default_rng(0).normal(size=(90, 3)).astype(dtype)
    if bad is not None:
        X[57, 1] = bad
    monkeypatch.setattr("sklearn_crf.encoding._tuning.FEW_BYTES", 0)
    for rows in (X, np.asfortranarray(X), X[:, ::-1]):
        for n_jobs in (1, 2):
            field = TRWCRF(n_jobs=n_jobs, max_iter=5)
            if bad is None:
                assert encode_X(rows, estimator=field).array.flags.c_contiguous
                np.testing.assert_array_equal(encode_X(rows, estimator=field).array, rows)
                continue
            found = "NaN" if np.isnan(bad) else "infinity"
            with pytest.raises(ValueError, match=f"contains {found}"):
                encode_X(rows, estimator=field)
            assert not hasattr(field, "n_features_in_")
