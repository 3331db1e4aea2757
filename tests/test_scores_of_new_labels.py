"""Scores: labels unseen in training count as errors, and a common factor of sample weights has no effect."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DenseCRF,
    DenseExample,
    DRFClassifier,
    M3NClassifier,
    MultiConditionalMFA,
    RegressionTreeFieldClassifier,
)
from sklearn_crf.learning import PseudoMarginalTraining
from sklearn_crf.metrics import (
    NODE_SCORERS,
    flatten_nodes,
    node_accuracy_score,
    node_f1_score,
    node_log_likelihood_score,
)

FIELDS = {
    "drf": DRFClassifier(),
    "trw": TRWCRF(),
    "m3n": M3NClassifier(random_state=0),
    "contrastive": ContrastiveCRF(random_state=0),
    "tree field": RegressionTreeFieldClassifier(max_depth=1),
}
LAYOUTS = {"rows": (40,), "chains": (8, 5), "images": (6, 4, 3)}


def labelled(shape, names=("a", "b"), seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=shape)
    X = np.eye(2)[y] + rng.normal(scale=0.6, size=(*shape, 2))
    return X, np.array(names)[y]


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
@pytest.mark.parametrize("shape", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("names", [("a", "b"), (0, 1)], ids=["strings", "numbers"])
def test_a_new_label_is_an_error(field, shape, names):
    X, y = labelled(shape, names)
    field.fit(X, y)
    predicted = field.predict(X)
    new = np.array(y, dtype=object)
    new[0] = "new" if names == ("a", "b") else 7
    expected = np.mean(np.array(predicted == new, dtype=bool))
    assert expected < field.score(X, y)
    assert field.score(X, new) == pytest.approx(expected)
    assert field.score(list(X), list(new)) == pytest.approx(expected)


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_labels_of_another_type_are_named(field):
    X, y = labelled((8, 5))
    field.fit(X, y)
    with pytest.raises(ValueError, match=r"string|Labels in y_true and y_pred should be of the same type"):
        field.score(X, (y == "b").astype(int))


def test_a_dense_field_counts_new_labels_as_errors():
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(8) // 4, (3, 8, 1))
    X = [DenseExample(np.eye(2)[t] + rng.normal(size=(8, 8, 2)), 90.0 * t) for t in y]
    field = DenseCRF().fit(X, list(y))
    new = y.copy()
    new[0, 0] = 5
    assert field.score(X, list(new)) == pytest.approx(np.mean(np.array([p for p in field.predict(X)]) == new))


def test_cross_validation_and_search_see_folds_without_a_class():
    rng = np.random.default_rng(0)
    y = [rng.integers(3, size=6).astype("U1") for _ in range(30)]
    X = [np.eye(3)[part.astype(int)] + 2 * rng.normal(size=(6, 3)) for part in y]
    y[4] = np.where(np.arange(6) == 1, "rare", y[4])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.all(np.isfinite(cross_val_score(TRWCRF(), X, y, cv=KFold(3))))
        for scorer in NODE_SCORERS.values():
            assert np.all(np.isfinite(cross_val_score(TRWCRF(), X, y, cv=KFold(3), scoring=scorer)))
    search = GridSearchCV(TRWCRF(), {"C": [1e-6, 1.0]}, cv=KFold(3)).fit(X, y)
    assert search.best_params_ == {"C": 1.0}


def test_rows_are_scored_as_by_logistic_regression():
    X, y = labelled((60,))
    new = y.astype(object)
    new[::7] = "new"
    new = new.astype(str)
    theirs = LogisticRegression(tol=1e-8, max_iter=1000).fit(X, y)
    assert TRWCRF(tol=1e-8, max_iter=1000).fit(X, y).score(X, new) == pytest.approx(theirs.score(X, new))


def test_new_labels_among_examples_held_out_are_errors():
    X, y = labelled((8, 5))
    y_val = y.astype("U3")
    y_val[:, 0] = "new"
    field = DRFClassifier(learning=PseudoMarginalTraining(n_iter_no_change=3)).fit(X, y, X_val=X, y_val=y_val)
    assert np.all(field.validation_scores_ <= 0.8)
    assert field.validation_scores_.max() == pytest.approx(np.mean(field.predict(X) == y_val))


def test_the_log_likelihood_of_a_new_label_is_that_of_probability_0():
    X, y = labelled((4, 5))
    field = TRWCRF().fit(X, y)
    new = y.astype("U3")
    new[1, 2] = "new"
    found = field.log_likelihood(X, new).values
    assert found[1] == -np.inf
    assert_allclose(np.delete(found, 1), np.delete(field.log_likelihood(X, y).values, 1))


def test_log_likelihood_score_counts_a_new_label_as_the_least_probability():
    probability = np.array([[0.5, 0.5], [0.25, 0.75]])
    expected = (np.log(0.5) + np.log(np.finfo(np.float64).tiny)) / 2
    assert node_log_likelihood_score([0, 5], probability, labels=[0, 1]) == pytest.approx(expected)


@pytest.mark.parametrize("weight", [[1e308, 1.5], [1e308, 1e308], [1e-310, 1e-310]], ids=str)
@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_weights_of_any_size_are_compared(field, weight):
    X, y = labelled((2, 40))
    field.fit(X, y)
    weight = np.array(weight)
    share = weight / weight.max() / np.sum(weight / weight.max())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = share @ np.mean(field.predict(X) == y, axis=1)
        assert field.score(X, y, sample_weight=weight) == pytest.approx(expected)
        assert NODE_SCORERS["node_accuracy"](field, X, y, sample_weight=weight) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["drf", "trw", "m3n", "contrastive"])
def test_training_names_weights_that_are_too_large(name):
    X, y = labelled((4, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"sample_weight must be at most 1e\+100 in training, found 1e\+308"):
            FIELDS[name].fit(X, y, [1e308, 1.5, 1.0, 1.0])


def test_metrics_take_weights_of_any_size():
    true, found = [[0, 1, 1], [1, 0, 0]], [[0, 1, 0], [1, 1, 1]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for metric in (node_accuracy_score, node_f1_score):
            expected = metric(true, found, sample_weight=[2.0, 1.0])
            assert metric(true, found, sample_weight=[1.5e308, 0.75e308]) == pytest.approx(expected)
        probability = np.full((2, 3, 2), 0.5)
        huge = node_log_likelihood_score(true, probability, labels=[0, 1], sample_weight=[1.5e308, 1e308])
    assert huge == pytest.approx(np.log(0.5))
    with pytest.raises(ValueError, match="sample_weight must be finite"):
        node_accuracy_score(true, found, sample_weight=[np.inf, 1.0])


def test_metrics_name_labels_of_two_types():
    with pytest.raises(ValueError, match="y_true holds strings, such as 'a', but the labels of y_pred are numbers"):
        flatten_nodes([["a", "b"], ["a"]], [[0, 1], [0]])


def test_mixtures_count_new_labels_as_errors():
    X, y = labelled((60,))
    new = y.astype("U3")
    new[::4] = "new"
    model = MultiConditionalMFA(n_components=1, n_factors=1, random_state=0).fit(X, y)
    assert model.score(X, new) == pytest.approx(np.mean(model.predict(X) == new))
    weight = np.full(60, 1e308)
    weight[0] = 1.0
    expected = np.mean((model.predict(X) == y)[1:])
    assert model.score(X, y, sample_weight=weight) == pytest.approx(expected)
