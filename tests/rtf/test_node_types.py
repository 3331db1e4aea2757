"""RegressionTreeFieldClassifier on examples with node types, and with other solvers."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from sklearn_crf import Example, RegressionTreeField, RegressionTreeFieldClassifier, Shards
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import ConjugateGradient, GaussianBP, GaussianDirect
from sklearn_crf.large_images import predict_in_tiles
from sklearn_crf.rtf import FieldSolver, Splits, Window
from sklearn_crf.rtf._trees import RegressionTree, build_factor_templates

pytestmark = pytest.mark.filterwarnings("ignore:the last round stopped:sklearn.exceptions.ConvergenceWarning")

QUICK = {"max_depth": 1, "max_iter": 10, "split": Splits(min_samples_leaf=20), "random_state": 0}
SHAPES = [(9, 11), (30,), (3, 4, 5)]


def typed(shape, n_types=3, n=8, dtype=np.float64, seed=0):
    """Return examples whose feature is the noisy label, with the sign reversed for nodes of type 1."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        label, kind = rng.integers(2, size=shape), rng.integers(n_types, size=shape)
        feature = label + 0.3 * rng.normal(size=shape)
        feature = np.where(kind == 1, 1 - feature, feature)
        nodes = feature.reshape(-1, 1).astype(dtype)
        nodes.flags.writeable = False
        X.append(Example(nodes, lattice(shape), node_type=kind.ravel()))
        y.append(label.ravel())
    return X, y


def leaf_of(tree, plane, place):
    """Return the leaf of a factor, found test by test."""
    node = 0
    while tree["leaf"][node] < 0:
        test = [*tree["test"][node].tolist(), 0, 0]
        step = (test[7], test[1], test[2])[-len(place) :]
        assert test[3] == -1
        node = tree["children"][node][int(plane[(*np.add(place, step), test[0])] > tree["threshold"][node])]
    return tree["leaf"][node]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_types", [2, 3, 5])
def test_trees_begin_with_types(shape, n_types):
    X, y = typed(shape, n_types)
    field = RegressionTreeFieldClassifier(**{**QUICK, "max_depth": 0, "max_iter": 1}).fit(X, y)
    assert [len(part) for part in field.precisions_] == [n_types] + [n_types**2] * len(field.offsets_)
    planar = (1, *shape) if len(shape) == 1 else shape
    plane = np.concatenate([X[0].node_features, X[0].node_type[:, None]], axis=1).reshape(*planar, 2)
    for tree, kind in zip(field.trees_, build_factor_templates(field.offsets_), strict=True):
        found = {}
        first, *second = kind.ends(planar)
        places = np.moveaxis(np.indices(planar), 0, -1)
        of_types = [plane[end][..., 1].ravel() for end in (first, *second)]
        for place, *types in zip(places[first].reshape(-1, len(planar)), *of_types, strict=True):
            found.setdefault(tuple(types), set()).add(leaf_of(tree, plane, place))
        assert all(len(leaves) == 1 for leaves in found.values())
        assert len(set.union(*found.values())) == len(found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_types_learn_for_themselves(shape, dtype):
    X, y = typed(shape, dtype=dtype)
    field = RegressionTreeFieldClassifier(**QUICK).fit(X[:6], y[:6])
    assert field.score(X[6:], y[6:]) > 0.9
    assert (field.n_node_types_, field.n_features_in_, field.lattice_ndim_) == (3, 1, len(shape))
    assert field.predict(X)[0].shape == y[0].shape
    assert field.predict_proba(X)[0].shape == (*y[0].shape, 2)
    without = [Example(x.node_features, x.graph) for x in X]
    assert clone(field).fit(without[:6], y[:6]).score(without[6:], y[6:]) < 0.85
    # As in other fields, nodes without a type have the first type.
    images = [x.node_features.reshape(*shape, 1) for x in X]
    of_first = [Example(x.node_features, x.graph, node_type=np.zeros(x.n_nodes, int)) for x in X]
    assert_array_equal(np.stack(field.predict(images)).reshape(len(X), -1), np.stack(field.predict(of_first)))
    again = pickle.loads(pickle.dumps(field))
    assert_array_equal(np.stack(again.predict(X)), np.stack(field.predict(X)))


def test_types_without_neighbours_are_fields_of_their_own():
    X, y = typed((9, 11), n_types=3)
    # The penalty on scores is shared by all types.
    options = {"window": 1, "max_depth": 0, "max_iter": 300, "tol": 1e-6, "solver": FieldSolver(ridge=0)}
    field = RegressionTreeFieldClassifier(**options).fit(X, y)
    found = field.predict_proba(X)
    for kind in range(3):
        own = [x.node_type == kind for x in X]
        rows = np.concatenate([x.node_features[k] for x, k in zip(X, own, strict=True)])
        labels = np.concatenate([label[k] for label, k in zip(y, own, strict=True)])
        alone = RegressionTreeFieldClassifier(**options).fit(rows, labels)
        together = np.concatenate([part[k] for part, k in zip(found, own, strict=True)])
        assert_allclose(together, alone.predict_proba(rows), atol=2e-3)


def test_one_type_is_none():
    X, y = typed((9, 11), n_types=1)
    field = RegressionTreeFieldClassifier(**QUICK).fit(X, y)
    images = RegressionTreeFieldClassifier(**QUICK).fit(
        [x.node_features.reshape(9, 11, 1) for x in X], [own.reshape(9, 11) for own in y]
    )
    assert field.n_node_types_ == 1
    assert_array_equal(np.stack(field.predict(X)), np.stack(images.predict(list(images_of(X)))).reshape(len(X), -1))


def images_of(X):
    return (x.node_features.reshape(*x.graph.shape, 1) for x in X)


@pytest.mark.parametrize("loss", ["pseudolikelihood", "likelihood", "mse", "logistic"])
def test_depth_counts_from_types_on(loss):
    X, y = typed((9, 11))
    options = {**QUICK, "split": Splits(min_samples_leaf=1), "window": Window(max_depth=0)}
    field = RegressionTreeFieldClassifier(loss, **options).fit(X, y)
    depths = [RegressionTree(**tree).depth for tree in field.trees_]
    assert depths == [3, 4, 4, 4, 4]
    assert len(field.precisions_[0]) > 3
    deeper = field.set_params(max_depth=2, warm_start=True).fit(X, y)
    assert RegressionTree(**deeper.trees_[0]).depth == 4


def test_evidence_missing_labels_and_filters_with_types():
    X, y = typed((9, 11))
    hidden = [np.where(np.arange(own.size) % 5 == 0, -1, own) for own in y]
    field = RegressionTreeFieldClassifier(filter_bank="dct", missing_label=-1, **QUICK).fit(X[:6], hidden[:6])
    # Without types it is 0.67.
    assert field.score(X[6:], y[6:]) > 0.75
    known = [np.where(np.arange(own.size) % 2 == 0, own, -1) for own in y]
    for found, own in zip(field.predict(X, known), known, strict=True):
        assert_array_equal(found[own >= 0], own[own >= 0])
    assert len(field.models(X)) == len(X)


def test_threads_and_shards_give_the_same():
    X, y = typed((9, 11))
    field = RegressionTreeFieldClassifier(**QUICK).fit(X, y)
    threads = RegressionTreeFieldClassifier(n_jobs=2, **QUICK).fit(X, y)
    for one, two in zip(field.weights_, threads.weights_, strict=True):
        assert_array_equal(one, two)
    # The second shard only has nodes of the first type.
    X[4:] = [Example(x.node_features, x.graph, node_type=np.zeros(x.n_nodes, int)) for x in X[4:]]
    parts = [(X[:4], y[:4]), (X[4:], y[4:])]
    sharded = RegressionTreeFieldClassifier(**QUICK).fit(Shards([0, 1], load=lambda k: parts[k]))
    whole = RegressionTreeFieldClassifier(**QUICK).fit(X, y)
    assert sharded.n_node_types_ == 3
    assert np.mean(np.stack(sharded.predict(X)) == np.stack(whole.predict(X))) > 0.97


def test_what_examples_may_not_have_is_named():
    X, y = typed((9, 11))
    field = RegressionTreeFieldClassifier(**QUICK).fit(X, y)
    features, graph = X[0].node_features, X[0].graph
    for bad, message in (
        (Example(features, [[0, 1]]), r"X\[1\] is an Example on a graph that is not a lattice"),
        (Example(features, lattice((99,))), r"X\[1\] is an Example on a lattice of 1 axes, but 2 axes are needed"),
        (Example(features, graph, node_type=np.full(99, 3)), r"X\[1\] has nodes of type 3, but .* 3 types of nodes"),
        (Example(features, graph, n_states=np.full(99, 2)), r"X\[1\] is an Example with n_states"),
        (Example(features, graph, edge_features=np.ones((graph.n_edges, 1))), r"an Example with edge_features"),
        (Example(np.ones((99, 2)), graph), r"X\[1\] has 2 features"),
    ):
        with pytest.raises(ValueError, match=message):
            field.predict([X[0], bad])
    with pytest.raises(ValueError, match="got Example"):
        RegressionTreeField().fit(X, y)
    with pytest.raises(ValueError, match="fitted to several node types"):
        predict_in_tiles(field, features.reshape(9, 11, 1), tile=5)


@pytest.mark.parametrize("inference", ["direct", "bp", "conjugate_gradient", GaussianDirect(), GaussianBP()])
@pytest.mark.parametrize("shape", SHAPES[:2])
def test_solvers_agree(shape, inference):
    X, y = typed(shape, n_types=1)
    options = {"max_depth": 0, "max_iter": 4, "random_state": 0}
    expected = RegressionTreeFieldClassifier(inference=ConjugateGradient(tol=1e-7), **options).fit(X, y)
    field = RegressionTreeFieldClassifier(inference=inference, **options).fit(X, y)
    assert_allclose(field.loss_curve_, expected.loss_curve_, rtol=1e-4)
    found = np.stack(expected.predict_proba(X)), np.stack(expected.set_params(inference=inference).predict_proba(X))
    assert_allclose(*found, atol=1e-4)


def test_solvers_that_do_not_fit_are_named():
    X, y = typed((9, 11), n_types=1)
    field = RegressionTreeFieldClassifier("mse", inference="mp")
    with pytest.raises(ValueError, match="'inference' parameter"):
        field.fit(X, y)
    field = RegressionTreeFieldClassifier(inference="direct", max_depth=0, max_iter=2).fit(X, y)
    with pytest.raises(ValueError, match="solves the whole image at once"):
        predict_in_tiles(field, np.zeros((9, 11, 1)), tile=5)
