"""Examples with factors, class weights, and outlines of parts: conversions and errors."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import Example
from sklearn_crf.encoding import (
    Outline,
    collect_distinct_labels,
    compute_class_weights,
    encode_X,
    encode_y,
    make_batches,
    record_input,
    require_complete,
)

NODES = [[0.0], [1.0], [2.0]]
CHAINS = [[[0.0], [0.2], [0.9]], [[1.0], [0.8]]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0, 1.0], []), "node_features must have shape"),
        ((NODES, None), "edges is None: pass an empty list"),
        ((NODES, Example(NODES[:2], []).graph), "edges is a graph of 2 nodes, but node_features has 3 rows"),
        ((NODES, [[0, 1]], np.zeros((2, 1))), r"edge_features must have shape \(1, n_edge_features\), got \(2, 1\)"),
        ((NODES, [], None, None, None, None, [[0, 1]]), "factors must be a dict that maps names to nodes, got list"),
        ((NODES, [], None, None, None, None, {0: [[0, 1]]}), "must be strings, got 0"),
        ((NODES, [], None, None, None, None, {"a": [0, 1]}), r"factors\['a'\] must be integers of shape"),
        ((NODES, [], None, None, None, None, {"a": [[0, 3]]}), r"factors\['a'\] has the nodes \[0, 3\]"),
        ((NODES, [], None, None, None, None, {"a": [[1, 1]]}), r"factors\['a'\] has a node twice"),
        (
            (NODES, [], None, None, None, None, {"a": ([[0, 1]], [[np.nan]])}),
            r"features of factors\['a'\] must be finite",
        ),
        ((NODES, [], None, None, None, None, None, [([0, 3], np.zeros((2, 2)))]), r"fixed_factors\[0\] has the nodes"),
    ],
)
def test_what_is_no_example_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Example(*arguments)


def test_factors_close_cycles_and_are_shown():
    forest = Example(NODES, [[0, 1]], factors={"pair": [[1, 2]], "none": []})
    assert forest.is_forest
    assert list(forest.factors) == ["pair"]
    assert repr(forest) == "Example(n_nodes=3, n_features=1, n_edges=1, n_factors=1)"
    cycle = forest.with_fixed_factors([([0, 1, 2], np.zeros((2, 2, 2)))])
    assert not cycle.is_forest
    assert not forest.fixed_factors
    assert not Example(NODES, []).has_factors
    assert_array_equal(cycle.edges, [[0, 1]])


def test_factors_of_joined_examples_are_numbered_by_their_place():
    table = np.zeros((2, 2))
    first = Example(NODES, [], factors={"pair": [[0, 2]], "other": [[1, 2]]}, fixed_factors=[([0, 1], table)])
    second = Example(NODES[:2], [], factors={"pair": ([[1, 0]], [[2.0]])}, fixed_factors=[([1], table[0])])
    encoded = encode_X([first, second], allow_factors=True)
    (batch,) = make_batches(encoded, max_factor_nodes=10)
    pair = batch.example.factors["pair"]
    assert_array_equal(pair.scope, [[0, 2], [4, 3]])
    assert_array_equal(pair.features, [[1.0], [2.0]])
    assert batch.example.factors["other"].features is None
    assert [scope.tolist() for scope, _ in batch.example.fixed_factors] == [[0, 1], [4]]


def test_a_vector_of_edge_features_is_one_column():
    assert Example(NODES, [[0, 1], [1, 2]], edge_features=[0.5, 2.0]).edge_features.shape == (2, 1)


def test_nodes_without_a_label_are_named():
    encoded = encode_X(CHAINS)
    batches = make_batches(encoded, encode_y([[0, 1, 1], [1, -1]], encoded, missing_label=-1).labels)
    with pytest.raises(ValueError, match=r"y\[1\] has unlabelled nodes, but pseudolikelihood needs a label"):
        require_complete(batches[0], "pseudolikelihood")


def test_classes_are_balanced_by_the_weights_of_nodes():
    encoded = encode_X(CHAINS)
    labels = encode_y([["a", "b", "b"], ["b", None]], encoded)
    assert_allclose(compute_class_weights("balanced", labels), [2.0, 2 / 3])
    weights = [np.array([1.0, 0.5, 0.5]), np.array([1.0, 9.0])]
    assert_allclose(compute_class_weights("balanced", labels, weights), [1.5, 0.75])
    assert_array_equal(compute_class_weights({"b": 3}, labels), [1.0, 3.0])
    rows = encode_X([[0.0], [1.0], [2.0]])
    unseen = encode_y([0, 0, 1], rows, classes=[0, 1, 2])
    assert_allclose(compute_class_weights("balanced", unseen), [0.75, 1.5, 1.0])


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({"c": 1.0}, "contains the class 'c'"),
        ({"a": "heavy"}, "got 'heavy' for the class 'a'"),
        ({"a": np.inf}, "got inf"),
    ],
)
def test_wrong_weights_of_classes_are_refused(class_weight, message):
    encoded = encode_X(CHAINS)
    with pytest.raises(ValueError, match=message):
        compute_class_weights(class_weight, encode_y([["a", "b", "b"], ["b", "a"]], encoded))


def test_labels_that_occur_are_found():
    encoded = encode_X(CHAINS)
    assert [found.tolist() for found in collect_distinct_labels([[3, 1, 3], [2, -1]], encoded, missing_label=-1)] == [
        [1, 3],
        [2],
    ]


def test_outlines_are_joined_in_numbers_and_types():
    plain = Outline.of(encode_X([Example(NODES, [[0, 1]])]))
    typed = Outline.of(encode_X([Example(NODES, [[0, 1], [1, 2]], node_type=[0, 2, 1], edge_type=[1, 0])]))
    whole = Outline.joined([plain, typed], ["a", "b"])
    assert (whole.n_examples, whole.n_nodes, whole.n_edges) == (2, 6, 3)
    assert (whole.n_node_types, whole.n_edge_types) == (3, 2)

    estimator = SimpleNamespace(feature_names_in_=np.array(["x"], dtype=object))
    record_input(whole, estimator)
    assert estimator.n_features_in_ == 1
    assert "feature_names_in_" not in vars(estimator)


def test_outlines_that_do_not_belong_together_are_refused():
    parts = [Outline.of(encode_X(CHAINS)), Outline.of(encode_X([[[0.0, 1.0]], [[1.0, 0.0]]]))]
    with pytest.raises(ValueError, match="All shards need the same number of features: a has 1, b has 2"):
        Outline.joined(parts, ["a", "b"])


@pytest.mark.parametrize("part", ["node_features", "edge_features"])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_of_many_examples_the_first_is_named_that_is_not_finite(part, value):
    shared = np.ones((1, 2))
    X = [Example(np.full((2, 3), float(i)), [[0, 1]], edge_features=shared) for i in range(600)]
    assert len(encode_X(X).items) == 600
    for i in (411, 500):
        values = getattr(X[i], part).copy()
        values[-1, 1] = value
        X[i] = X[i]._with(**{part: values})
    with pytest.raises(ValueError, match=rf"X\[411\].{part} contains {'NaN' if np.isnan(value) else 'infinity'}"):
        encode_X(X)


def test_squares_of_features_may_be_too_large_for_their_type():
    X = [Example(np.full((2, 3), 1e200), [[0, 1]]) for _ in range(3)]
    assert encode_X(X).items[2].node_features[1, 2] == 1e200
