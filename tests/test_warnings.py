"""Warnings point at the user's line, however deep in the package the cause is."""

import copy
import warnings

import numpy as np
import pytest
from field_data import noisy_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DenseCRF,
    DRFClassifier,
    M3NClassifier,
    MultiConditionalMFA,
    RegressionTreeField,
    RegressionTreeFieldClassifier,
    Spatial,
)
from sklearn_crf.inference import LoopyBP, TRWMessagePassing
from sklearn_crf.learning import (
    GradientSteps,
    Reparameterization,
)
from sklearn_crf.preprocessing import NodeTransformer

X, Y = noisy_blobs(4, side=8)
GRADIENT = GradientSteps(step_size=1e-3)
# Estimators that cannot converge in one iteration.
HURRIED = {
    "DRFClassifier": DRFClassifier(max_iter=1),
    "DRFClassifier, pl": DRFClassifier(learning="pl", solver=GRADIENT, max_iter=2),
    "DRFClassifier, bundle": DRFClassifier(learning="spa", solver="bundle", inference="map", max_iter=1),
    "DRFClassifier, bp": DRFClassifier(learning="pma", solver=GRADIENT, inference=LoopyBP(max_iter=1), max_iter=2),
    "TRWCRF": TRWCRF(max_iter=1),
    "TRWCRF, reparameterization": TRWCRF(learning=Reparameterization(), max_iter=1),
    "M3NClassifier": M3NClassifier(max_iter=1),
    "ContrastiveCRF": ContrastiveCRF(max_iter=1),
    "DenseCRF": DenseCRF(kernels=[Spatial(2.0)], image_channels=0, max_iter=1),
    "RegressionTreeField": RegressionTreeField(max_iter=1),
    "RegressionTreeFieldClassifier": RegressionTreeFieldClassifier(max_iter=1),
    "MultiConditionalMFA": MultiConditionalMFA(n_components=2, n_factors=0, max_iter=2, random_state=0),
}


def warnings_of(call, *arguments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*arguments)
    return caught


def data_for(estimator):
    if isinstance(estimator, MultiConditionalMFA):
        # Two features that are not multiples of each other.
        rows = X.reshape(-1, 1)
        return np.hstack((rows, np.random.default_rng(0).normal(size=rows.shape))), Y.ravel()
    if isinstance(estimator, DenseCRF):
        return np.concatenate((X, 1 - X), axis=-1), Y
    return X, Y.astype(np.float64) if type(estimator) is RegressionTreeField else Y


@pytest.mark.parametrize("name", HURRIED)
def test_warnings_of_fit(name):
    estimator = HURRIED[name]
    caught = warnings_of(estimator.fit, *data_for(estimator))
    assert any(issubclass(each.category, ConvergenceWarning) for each in caught)
    assert {each.filename for each in caught} == {__file__}


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("inference", [LoopyBP(max_iter=1, tol=1e-9), TRWMessagePassing(max_iter=1, tol=1e-9)])
@pytest.mark.parametrize("method", ["predict", "predict_proba", "score"])
def test_warnings_of_prediction(method, inference, n_jobs):
    field = copy.copy(FITTED).set_params(inference=inference, n_jobs=n_jobs)
    caught = warnings_of(getattr(field, method), *((X, Y) if method == "score" else (X,)))
    assert {each.category for each in caught} == {ConvergenceWarning}
    assert {each.filename for each in caught} == {__file__}


FITTED = DRFClassifier(learning="pl").fit(X, Y)


def test_warnings_behind_tools_of_scikit_learn():
    pipeline = make_pipeline(NodeTransformer(StandardScaler()), HURRIED["TRWCRF"])
    search = GridSearchCV(pipeline, {"trwcrf__C": [1.0]}, cv=2)
    caught = warnings_of(search.fit, X, Y)
    assert {each.filename for each in caught} == {__file__}


def test_line_of_the_call_and_filters_by_module():
    first = warnings_of(lambda: HURRIED["TRWCRF"].fit(X, Y))[0]
    assert first.lineno == test_line_of_the_call_and_filters_by_module.__code__.co_firstlineno + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", module=__name__)
        HURRIED["TRWCRF"].fit(X, Y)


def test_rows_of_one_image_with_strokes_are_not_read_as_chains_silently():
    row = np.argmax(Y[0].min(axis=1) < Y[0].max(axis=1))  # a row with both classes
    strokes = np.where(np.arange(8)[:, np.newaxis] == row, Y[0], -1)
    with pytest.warns(UserWarning, match=r"8 sequences; 7 have no label.*X\[np.newaxis\]"):
        TRWCRF(missing_label=-1).fit(X[0], strokes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TRWCRF(missing_label=-1).fit(X[:1], strokes[np.newaxis])
        TRWCRF(missing_label=-1, lattice_ndim=1).fit(X[0], strokes)
        # Two of eight sequences are labelled in full: they are no strokes.
        two_complete = np.where(np.isin(np.arange(8), [row, (row + 1) % 8])[:, np.newaxis], Y[0], -1)
        TRWCRF(missing_label=-1).fit(X[0], two_complete)
