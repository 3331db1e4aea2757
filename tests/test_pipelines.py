"""Behind a pipeline a field can say all that it can say by itself."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sklearn_crf import TRWCRF
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

    alone = TRWCRF(C=10).fit(transformer.fit_transform(X, y), y)
    expected = METHODS[method](alone, transformer.transform(X), y)
    for found, wanted in zip(behind, expected, strict=True):
        assert np.array_equal(np.ravel(found), np.ravel(wanted))


def test_arguments_of_predictions_pass_through_a_pipeline():
    tagger = make_pipeline(SequenceVectorizer(), TRWCRF(C=10)).fit(WORDS, TAGS)
    given = [np.array([None, "A"], dtype=object), np.array([None, None, "P"], dtype=object)]
    assert [labels[-1] for labels in tagger.predict(WORDS, evidence=given)] == ["A", "P"]
