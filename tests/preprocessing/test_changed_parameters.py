"""Parameters set after ``fit``: ``transform`` checks them, and uses fitted state with the parameters of ``fit``."""

import pickle

import numpy as np
import pytest
from fitted_transformers import IMAGES, MASKS, TOKENS, TRANSFORMERS, all_are_listed, are_equal, join_words
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.utils._param_validation import InvalidParameterError, make_constraint

from sklearn_crf.preprocessing import AdaptiveFilters, ClassifierScores, FilterBank, SequenceVectorizer
from sklearn_crf.preprocessing._filter_bank import ChannelUnion

# Invalid values that satisfy the declared constraints
UNDECLARED = {
    "bandwidths": [[-1.0], [[1.0]], ["x"]],
    "dtype": [int, "x"],
    "kinds": [("x",), ()],
    "scales": [(0.0,), ("x",)],
    "thresholds": [[-1.0], [[1.0]], []],
    "transformers": [[], [1]],
}


def list_invalid(transformer, name):
    """Return invalid values of a parameter."""
    constraints = transformer._parameter_constraints[name]
    constraints = [] if constraints == "no_validation" else list(map(make_constraint, constraints))
    undeclared = [-1, 0, 12, 1.5, np.nan, "x", {}] if constraints else []
    found = [value for value in undeclared if not any(each.is_satisfied_by(value) for each in constraints)]
    return found + UNDECLARED.get(name, [])


def test_all_transformers_are_listed():
    assert all_are_listed()


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transform_checks_parameters(name):
    transformer, given = TRANSFORMERS[name]
    fitted = clone(transformer).fit(*given)
    # Only fit reads the inner estimators.
    parameters = set(fitted.get_params(deep=False)) - {"estimator", "transformer"}
    for parameter in sorted(parameters - {"missing_label"}):
        assert list_invalid(fitted, parameter), parameter
        for invalid in list_invalid(fitted, parameter):
            changed = pickle.loads(pickle.dumps(fitted)).set_params(**{parameter: invalid})
            with pytest.raises(InvalidParameterError, match=parameter):
                changed.transform(given[0])


def test_transform_checks_parameters_of_parts():
    union = ChannelUnion([FilterBank("haar"), FilterBank("dct")]).fit(IMAGES)
    union.transformers_[1].set_params(include_input=3)
    with pytest.raises(InvalidParameterError, match="include_input"):
        union.transform(IMAGES)


@pytest.mark.parametrize(
    "changes", [{"n_angles": 9}, {"radius": 5}, {"period": 1}, {"n_strengths": 2}, {"n_coherences": 1}]
)
def test_fitted_filters_keep_the_parameters_of_fit(changes):
    clean = MASKS.astype(float)
    fitted = AdaptiveFilters(2, radius=2).fit(IMAGES, clean)
    expected, period = fitted.transform(IMAGES), fitted.period_
    assert np.array_equal(fitted.set_params(**changes).transform(IMAGES), expected)
    assert fitted.period_ == period
    refitted = fitted.fit(IMAGES, clean).transform(IMAGES)
    assert not np.array_equal(refitted, expected)


def test_fitted_vocabulary_keeps_the_separator_of_fit():
    fitted = SequenceVectorizer().fit(TOKENS)
    expected = fitted.transform(TOKENS)
    assert are_equal(fitted.set_params(separator=":").transform(TOKENS), expected)
    assert next(iter(fitted.fit(TOKENS).vocabulary_)) == "word:a"


def test_edge_features_must_not_appear_or_vanish_after_fit():
    for before, after in ((None, join_words), (join_words, None)):
        fitted = SequenceVectorizer(edge_features=before).fit(TOKENS).set_params(edge_features=after)
        with pytest.raises(InvalidParameterError, match="edge_features was set or removed after fit"):
            fitted.transform(TOKENS)
        assert are_equal(fitted.fit(TOKENS).transform(TOKENS), fitted.fit_transform(TOKENS))


def test_scores_need_a_method_of_the_fitted_classifier():
    scores = ClassifierScores(RandomForestClassifier(2, random_state=0), cv=2).fit(IMAGES, MASKS[..., :2].sum(-1))
    with pytest.raises(ValueError, match="method='decision_function' is not a method of RandomForestClassifier"):
        scores.set_params(method="decision_function").transform(IMAGES)
