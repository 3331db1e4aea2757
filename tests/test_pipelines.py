"""A field at the end of a pipeline offers all of its methods."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from sklearn_crf import TRWCRF, M3NClassifier
from sklearn_crf import pipeline as fields
from sklearn_crf.inspection import top_transitions
from sklearn_crf.preprocessing import ClassifierScores, SequenceVectorizer

WORDS = [[{"word": "old"}, {"word": "boats"}], [{"word": "they"}, {"word": "sail"}, {"word": "boats"}]]
TAGS = [["A", "N"], ["P", "V", "N"]]
NUMBERS = np.random.default_rng(0).normal(size=(6, 5, 2))
SIGNS = (NUMBERS[..., 0] > 0).astype(int)
STEPS = {
    "SequenceVectorizer": (SequenceVectorizer(), WORDS, TAGS),
    "ClassifierScores": (ClassifierScores(LogisticRegression(), cv=2), NUMBERS, SIGNS),
}
METHODS = {
    "predict_topk": lambda field, X, y: field.predict_topk(X, k=2)[0],
    "predict_edge_proba": lambda field, X, y: field.predict_edge_proba(X),
    "log_likelihood": lambda field, X, y: field.log_likelihood(X, y).values,
    "certify": lambda field, X, y: field.certify(X).scores,
    "sample": lambda field, X, y: field.sample(X, 2, random_state=0),
    "energy": lambda field, X, y: field.energy(X, y),
    "models": lambda field, X, y: [model.unary for model in field.models(X)],
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("step", STEPS)
def test_methods_that_a_pipeline_does_not_pass_on(step, method):
    transformer, X, y = STEPS[step]
    pipeline = make_pipeline(transformer, TRWCRF(C=10)).fit(X, y)
    behind = METHODS[method](pipeline[-1], pipeline[:-1].transform(X), y)
    passed_on = METHODS[method](fields.make_pipeline(transformer, TRWCRF(C=10)).fit(X, y), X, y)

    alone = TRWCRF(C=10).fit(transformer.fit_transform(X, y), y)
    expected = METHODS[method](alone, transformer.transform(X), y)
    for found, wanted, own in zip(behind, expected, passed_on, strict=True):
        assert np.array_equal(np.ravel(found), np.ravel(wanted))
        assert np.array_equal(np.ravel(own), np.ravel(wanted))


def test_arguments_of_predictions_pass_through_a_pipeline():
    tagger = make_pipeline(SequenceVectorizer(), TRWCRF(C=10)).fit(WORDS, TAGS)
    given = [np.array([None, "A"], dtype=object), np.array([None, None, "P"], dtype=object)]
    assert [labels[-1] for labels in tagger.predict(WORDS, evidence=given)] == ["A", "P"]


def test_a_pipeline_offers_what_its_last_step_offers():
    margin = fields.make_pipeline(SequenceVectorizer(), M3NClassifier())
    assert hasattr(margin, "predict_topk")
    assert not hasattr(margin, "log_likelihood")  # max-margin labels have no probabilities
    plain = fields.make_pipeline(LogisticRegression())
    assert not any(hasattr(plain, method) for method in METHODS)


def test_a_field_pipeline_is_a_pipeline():
    tagger = fields.make_pipeline(SequenceVectorizer(), TRWCRF(C=10))
    assert clone(tagger).set_params(trwcrf__C=1.0)[-1].C == 1.0
    search = GridSearchCV(tagger, {"trwcrf__C": [1.0, 10.0]}, cv=[([0, 1], [0, 1])]).fit(WORDS, TAGS)
    assert search.best_estimator_.predict_topk(WORDS, k=1)[0][1].shape == (1, 3)
    assert top_transitions(search.best_estimator_, 1)
    assert tagger.fit(WORDS, TAGS).score(WORDS, TAGS) == 1.0


def test_a_field_alone_is_a_pipeline_too():
    alone = fields.FieldPipeline([("field", TRWCRF())]).fit(NUMBERS, SIGNS)
    assert np.array_equal(alone.energy(NUMBERS, SIGNS), alone[-1].energy(NUMBERS, SIGNS))
