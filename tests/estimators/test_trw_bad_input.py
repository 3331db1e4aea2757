"""TRWCRF on invalid input: errors name the argument, the example, the found value and the expected one."""

import re
import warnings
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from built_fields import trw_crf
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import Example
from sklearn_crf.learning import Exact

Y = [np.array([0, 1, 2, 1]), np.array([2, 0, 1])]
X = [np.eye(3)[labels] for labels in Y]


def chains(convert=np.asarray, **fields):
    """Return the examples, with the given fields in the last example; ``convert`` makes its features."""
    found = [Example(convert(x), [[t, t + 1] for t in range(len(x) - 1)]) for x in X]
    return [found[0], Example(convert(X[1]), [[0, 1], [1, 2]], **fields)]


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("trained", [[0, 0, 0], [0, 1, 0]])
def test_unknown_types_of_nodes(convert, trained):
    """Unknown types raise an error: the kernels would otherwise read weights beyond the end of an array."""
    model = trw_crf().fit(chains(convert, node_type=trained), Y)
    strange = chains(convert, node_type=[0, 0, 7])
    message = re.escape(f"X[1] has nodes of type 7, but TRWCRF was fitted with {max(trained) + 1} types of nodes")
    for ask in (model.predict, model.predict_proba, lambda x: model.energy(x, Y), model.certify):
        with pytest.raises(ValueError, match=message):
            ask(strange)


def test_unknown_states_at_prediction():
    with pytest.raises(ValueError, match=r"X\[1\].n_states goes up to 4, but there are 3 classes"):
        trw_crf().fit(X, Y).predict(chains(n_states=[3, 4, 3]))


class OfWholeLabelings(Exact):
    """A user's learning method that rejects missing labels."""

    needs_labels = True
    why_not: ClassVar[dict[str, str]] = {"missing labels": "it counts labelings"}


def test_missing_labels_where_a_learning_needs_all():
    model = trw_crf(learning=OfWholeLabelings(), missing_label=-1)
    message = r"y\[1\] has unlabelled nodes, but learning='exact' \(it counts labelings\) needs a label for every"
    with pytest.raises(ValueError, match=message):
        model.fit(X, [Y[0], np.array([2, -1, 1])])


@pytest.mark.parametrize(
    ("X_then", "y_then", "changed", "message"),
    [
        (
            X,
            [np.array(list("abc"))[y] for y in Y],
            {},
            r"needs the classes of the previous fit, \[0, 1, 2\], got \['a'",
        ),
        ([x[:, :2] for x in X], Y, {}, "needs as many features as the previous fit had, 3, got 2"),
        (chains(node_type=[0, 1, 0]), Y, {}, "needs as many types of nodes as the previous fit had, 1, got 2"),
        (chains(edge_type=[0, 1]), Y, {}, "needs as many types of edges as the previous fit had, 1, got 2"),
        (X, Y, {"edge_features": "difference"}, "needs as many edge features as the previous fit had, 1, got 4"),
        (
            X,
            Y,
            {"pairwise": "potts"},
            "pairwise='potts' has tables of 1 weights, but .* the last fit have 9",
        ),
    ],
)
def test_warm_starts_from_other_weights(X_then, y_then, changed, message):
    model = trw_crf(warm_start=True).fit(X, Y).set_params(**changed)
    before = model.coef_.copy()
    with pytest.raises(ValueError, match=message):
        model.fit(X_then, y_then)
    assert np.array_equal(model.coef_, before)


def test_sparse_features_of_edges_after_dense_ones():
    features = np.array([[1.0, 0.0], [1.0, 2.0]])
    dense, sparse = (chains(edge_features=convert(features)) for convert in (np.asarray, sp.csr_matrix))
    dense[0] = sparse[0] = Example(X[0], [[0, 1]], edge_features=[[1.0, 0.5]])
    options = {"weights": "all", "tol": 1e-8}
    fitted = trw_crf(**options).fit(dense, Y)
    assert np.isclose(trw_crf(**options).fit(sparse, Y).loss_curve_[-1], fitted.loss_curve_[-1])
    with pytest.raises(ValueError, match="X has sparse edge features, but TRWCRF was fitted with dense edge features"):
        fitted.predict(sparse)


def test_best_labelings_of_what_they_cannot_be_found_for():
    triples = [Example(x, [[0, 1]], factors={"triple": [[0, 1, 2]]}) for x in X]
    model = trw_crf(learning="exact").fit(triples, Y)
    with pytest.raises(ValueError, match=r"X\[0\] has factors besides nodes and edges, which predict_topk does not"):
        model.predict_topk(triples)
    with pytest.raises(ValueError, match=r"k must be between 1 and .*, got 0"):
        model.predict_topk(X, k=0)


def test_labels_that_are_known_are_named_by_their_argument():
    model = trw_crf().fit(X, Y)
    unknown = [Y[0], np.array([1, 9, 1])]
    for ask, name in (
        (lambda y: model.predict(X, evidence=y), "evidence"),
        (lambda y: model.energy(X, y), "y"),
    ):
        with pytest.raises(ValueError, match=rf"^{name}\[1\] holds the unknown label 9"):
            ask(unknown)
        with pytest.raises(ValueError, match=rf"^{name}\[0\] has shape \(3,\)"):
            ask([Y[0][:3], Y[1]])


def test_certificates_by_name():
    model = trw_crf().fit(X, Y)
    assert np.all(model.certify(X, inference="trws").gaps <= 1e-9)
    with pytest.raises(ValueError, match="inference must be an Inference or one of"):
        model.certify(X, inference="unheard of")


def test_what_is_no_features_and_no_cost():
    tokens = [[{"word": "a"}] * len(y) for y in Y]
    with pytest.raises(ValueError, match=r"X\[0\] is a list of dicts: convert them to features with"):
        trw_crf().fit(tokens, Y)
    with pytest.raises(ValueError, match=r"cost must be a matrix of shape \(3, 3\), got a list of rows"):
        trw_crf(cost=[[1.0] * len(y) for y in Y]).fit(X, Y)


@pytest.mark.parametrize("options", [{"solver": "sgd"}, {"learning": "dual_relaxation", "fit_intercept": False}])
def test_an_inner_problem_that_does_not_converge_is_named_once(options):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=(3, 3, 3))
    images = 2 * np.eye(3)[y] + rng.normal(size=(3, 3, 3, 3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trw_crf(C=100, inner_max_iter=1, inner_tol=1e-12, max_iter=3, random_state=0, **options).fit(images, y)
    assert [warning.category for warning in caught] == [ConvergenceWarning]
    assert "increase the max_iter of the learning" in str(caught[0].message)


def test_approximations_without_a_consistent_gradient_name_what_there_is_to_change():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=(3, 3, 3))
    images = 2 * np.eye(3)[y] + rng.normal(size=(3, 3, 3, 3))
    with pytest.warns(
        ConvergenceWarning,
        match="increase the max_iter of the learning method, decrease C, or use learning='relaxation'",
    ):
        trw_crf(C=100, learning="mean_field", inner_max_iter=1, max_iter=20).fit(images, y)
