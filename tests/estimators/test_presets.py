"""The four classifiers of fields are presets: same parameters and methods, different defaults."""

import inspect

import numpy as np
import pytest
from field_data import noisy_blobs
from numpy.testing import assert_array_equal
from sklearn.base import clone

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, M3NClassifier
from sklearn_crf.inference import AutoMap
from sklearn_crf.learning import LEARNINGS, Exact, Learning, MaxMargin
from sklearn_crf.objectives import Pseudolikelihood, StructuredHinge

PRESETS = [TRWCRF, DRFClassifier, M3NClassifier, ContrastiveCRF]
#: One value of each parameter whose defaults differ.
SAME = {
    "pairwise": "potts",
    "edge_features": "constant",
    "weights": "all",
    "max_iter": 5,
    "random_state": 0,
    "fit_intercept": False,
}


class OwnLearning(Learning):
    """A minimal learning method."""

    def objective(self, plan, data):
        return Pseudolikelihood()


def fitted(preset, X, y, **options):
    return preset(**SAME | options).fit(X, y)


def test_constructors_have_the_same_parameters():
    names = [list(inspect.signature(preset).parameters) for preset in PRESETS]
    assert all(each == names[0] for each in names)
    assert len(names[0]) == 20
    assert all(clone(preset(C=2.0)).C == 2.0 for preset in PRESETS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["coupled", "pl", *LEARNINGS])
def test_any_learning_goes_with_any_classifier(name):
    X, y = noisy_blobs(3, 5)
    first, *others = (fitted(preset, X, y, learning=name) for preset in PRESETS)
    assert first.score(X, y) >= 0.3
    for other in others:
        assert other.learning_ == first.learning_
        assert other.inference_ == first.inference_
        assert_array_equal(other.coef_, first.coef_)
        assert_array_equal(other.edge_coef_, first.edge_coef_)
        assert_array_equal(other.predict(X), first.predict(X))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "learning",
    [OwnLearning(), Pseudolikelihood(), StructuredHinge(AutoMap(bounded=True), 1.0 - np.eye(2))],
    ids=lambda own: type(own).__name__,
)
def test_own_objects_go_with_any_classifier(learning):
    X, y = noisy_blobs(3, 5)
    first, *others = (fitted(preset, X, y, learning=learning) for preset in PRESETS)
    for other in others:
        assert_array_equal(other.coef_, first.coef_)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("preset", PRESETS)
def test_probabilities_are_those_of_a_distribution(preset):
    X, y = noisy_blobs(3, 5)
    likely, margin = (fitted(preset, X, y, learning=name) for name in ("exact", "max_margin"))
    assert np.allclose(likely.predict_proba(X).sum(axis=-1), 1)
    assert not hasattr(margin, "predict_proba")
    assert margin.decision_function(X).shape == likely.decision_function(X).shape == y.shape


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("preset", PRESETS)
def test_costs_are_learned_by_margins_and_decided_by_probabilities(preset):
    X, y = noisy_blobs(4, 5)
    cost = np.array([[0.0, 1.0], [5.0, 0.0]])
    by_field = fitted(preset, X, y, learning="max_margin", cost=cost)
    by_learning = fitted(preset, X, y, learning=MaxMargin(cost=cost))
    assert_array_equal(by_field.coef_, by_learning.coef_)
    with pytest.raises(ValueError, match="cost is set twice"):
        fitted(preset, X, y, learning=MaxMargin(cost=cost), cost=cost)
    plain, careful = (fitted(preset, X, y, learning=Exact(), cost=each) for each in (None, cost))
    assert_array_equal(plain.coef_, careful.coef_)
    # Predicting class 1 for class 0 costs more than the opposite error.
    assert careful.predict(X).sum() < plain.predict(X).sum()


def test_an_unknown_learning_is_told_what_looks_like_it():
    X, y = noisy_blobs(2, 4)
    with pytest.raises(ValueError, match=r"one of pseudolikelihood, .*got 'pseudo_likelihood'"):
        TRWCRF(learning="pseudo_likelihood").fit(X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning": "pma", "solver": "frank_wolfe"}, "solver='frank_wolfe' is not supported with learning='pma'"),
        ({"learning": "max_margin", "solver": "lbfgs"}, "solver='lbfgs' is not supported with learning='max_margin'"),
        (
            {"learning": "contrastive", "solver": "gradient"},
            "solver='gradient' is not supported with learning='contrastive'",
        ),
        ({"learning": "pl", "solver": "bundle"}, "solver='bundle' is not supported with learning='pseudolikelihood'"),
        ({"learning": "relaxation", "pairwise": "associative"}, "'associative' needs"),
    ],
)
def test_what_does_not_go_together_is_an_error(options, message):
    X, y = noisy_blobs(2, 4)
    with pytest.raises(ValueError, match=message):
        DRFClassifier(**options).fit(X, y)
