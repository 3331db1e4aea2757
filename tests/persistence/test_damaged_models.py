"""Saved models with altered arrays: indices that kernels use unchecked are checked when the state is set."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_crf import RegressionTreeField
from sklearn_crf.rtf import Splits


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    y = np.kron(rng.random((6, 2, 2)), np.ones((1, 4, 4)))
    X = (y + 0.2 * rng.normal(size=y.shape))[..., np.newaxis]
    model = RegressionTreeField(max_depth=2, max_iter=3, split=Splits(min_samples_leaf=10), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y), X


def altered(tree, name, value, node=0):
    arrays = {key: array.copy() for key, array in tree.items()}
    arrays[name][node] = value
    return arrays


DAMAGED = {
    "a child beyond the nodes": lambda tree: altered(tree, "children", (1, 10**6)),
    "a negative child": lambda tree: altered(tree, "children", (1, -5)),
    "a cycle": lambda tree: altered(tree, "children", (0, 0)),
    "a child with two parents": lambda tree: altered(tree, "children", (2, 2)),
    "a leaf with a child": lambda tree: altered(tree, "children", (-1, 3), node=-1),
    "a leaf beyond the parameters": lambda tree: altered(tree, "leaf", 10**6, node=-1),
    "a negative leaf": lambda tree: altered(tree, "leaf", -1, node=-1),
    "two leaves of one number": lambda tree: altered(tree, "leaf", 0, node=-1),
    "a channel beyond": lambda tree: altered(tree, "test", 10**6),
    "a negative channel": lambda tree: altered(tree, "test", -2),
    "an offset beyond": lambda tree: altered(tree, "test", [0, 2**31 - 1, 0, -1, 0, 0, 0]),
    "the lowest offset": lambda tree: altered(tree, "test", [0, 0, -(2**31), -1, 0, 0, 0]),
    "no nodes": lambda tree: {name: array[:0] for name, array in tree.items()},
    "fewer tests": lambda tree: {**tree, "test": tree["test"][:-1]},
    "fewer thresholds": lambda tree: {**tree, "threshold": tree["threshold"][:-1]},
    "tests of fewer columns": lambda tree: {**tree, "test": tree["test"][:, :5]},
    "no tests": lambda tree: {name: tree[name] for name in ("children", "leaf", "threshold")},
    "children of another type": lambda tree: {**tree, "children": tree["children"].astype(np.float64)},
    "no tree": lambda tree: None,
}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_trees_are_not_loaded(fitted, kind, number):
    model, _ = fitted
    saved = pickle.loads(pickle.dumps(model))
    saved.trees_ = list(saved.trees_)
    saved.trees_[number] = DAMAGED[kind](saved.trees_[number])
    with pytest.raises(ValueError, match="the saved RegressionTreeField is damaged"):
        pickle.loads(pickle.dumps(saved))


@pytest.mark.parametrize(
    "offsets",
    [
        np.full((4, 2), -1),
        np.array([[0, 1], [1, 0], [0, -1], [1, 1]]),
        np.array([[0, 0], [1, 0], [0, 1], [1, 1]]),
        np.array([[0, 1], [1, 0], [0, 2**31 - 1], [1, 1]]),
        np.array([[0, 1], [1, 0]]),
        np.array([[0.5, 1], [1, 0], [1, 1], [1, -1]]),
    ],
)
def test_damaged_offsets_are_not_loaded(fitted, offsets):
    model, _ = fitted
    assert model.offsets_.shape == (4, 2)
    saved = pickle.loads(pickle.dumps(model))
    saved.offsets_ = offsets
    with pytest.raises(ValueError, match="the saved RegressionTreeField is damaged: offsets_"):
        pickle.loads(pickle.dumps(saved))


def test_damaged_trees_of_errors_are_not_loaded(fitted):
    model, _ = fitted
    saved = pickle.loads(pickle.dumps(model))
    saved.held_out_errors_ = {"tree": DAMAGED["a cycle"](saved.trees_[0]), "deviations": np.ones((4, 1))}
    with pytest.raises(ValueError, match="the saved RegressionTreeField is damaged"):
        pickle.loads(pickle.dumps(saved))


def test_skops_does_not_load_damaged_trees(fitted):
    io = pytest.importorskip("skops.io")
    model, X = fitted
    whole = io.dumps(model)
    unknown = io.get_untrusted_types(data=whole)
    assert_array_equal(io.loads(whole, trusted=unknown).predict(X), model.predict(X))
    saved = pickle.loads(pickle.dumps(model))
    saved.trees_[0] = DAMAGED["a child beyond the nodes"](saved.trees_[0])
    with pytest.raises(ValueError, match="the saved RegressionTreeField is damaged"):
        io.loads(io.dumps(saved), trusted=unknown)


def test_whole_trees_are_loaded(fitted):
    model, X = fitted
    assert all(len(tree["leaf"]) > 1 for tree in model.trees_[:2])
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
