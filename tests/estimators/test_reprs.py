"""Text and HTML of fitted fields name their classes, weights and training."""

import numpy as np
import pytest
from field_data import noisy_blobs
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DenseCRF,
    DRFClassifier,
    M3NClassifier,
    MultiConditionalMFA,
    MultiLabelField,
    RegressionTreeField,
    RegressionTreeFieldClassifier,
    Spatial,
)

X, Y = noisy_blobs(3, side=6)


@pytest.mark.parametrize("kind", [TRWCRF, DRFClassifier, M3NClassifier, ContrastiveCRF])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fitted_fields_describe_their_fit(kind):
    field = kind(C=2.0, max_iter=3)
    before = repr(field)
    assert "\n" not in before
    field.fit(X, Y)
    first, line = repr(field).split("\n")
    n_weights = field.coef_.size + field.intercept_.size + field.edge_coef_.size
    assert first == before
    assert f"2 classes, images, {n_weights} weights, learning {field.learning_}, inference {field.inference_}" in line
    assert ("not converged" in line) is not field.converged_
    assert f"objective {field.loss_curve_[-1]:.5g}" in line
    for html in (field._repr_html_(), field._repr_mimebundle_()["text/html"]):
        assert line.removeprefix("# ") in html
    # Parameters alone are shown in pipelines, and of copies that are not fitted.
    assert "2 classes" not in repr(make_pipeline(field))
    assert repr(clone(field)) == before


ROWS, TABLE = X.reshape(36, 3), Y.reshape(36, 3)


@pytest.mark.parametrize(
    ("estimator", "data", "facts"),
    [
        (
            DenseCRF((Spatial(3.0),), unaries="linear", max_iter=2),
            (np.repeat(X, 4, axis=-1), Y),
            "2 classes, images, 5 weights",
        ),
        (RegressionTreeField(max_depth=1, max_iter=2), (X, X), "images, "),
        (RegressionTreeFieldClassifier(max_depth=1, max_iter=2), (X, Y), "2 classes, images, "),
        (MultiConditionalMFA(max_iter=2), (ROWS, TABLE[:, 0]), "2 classes, 26 weights"),
        (MultiLabelField(), (ROWS, TABLE), "3 classes, 3 edges, 15 weights, learning exact, inference map"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_all_estimators_describe_their_fit(estimator, data, facts):
    before = repr(estimator)
    estimator.fit(*data)
    first, line = repr(estimator).split("\n")
    assert first == before
    assert facts in line
    assert " weights" in line or " leaves" in line
    field = getattr(estimator, "estimator_", estimator)
    assert f"after {field.n_iter_} iterations, objective {field.loss_curve_[-1]:.5g}" in line
    assert line.removeprefix("# ") in estimator._repr_html_()


def test_fields_of_partial_fits_have_no_objective():
    field = TRWCRF(classes=[0, 1]).partial_fit(X, Y)
    assert "2 classes, images" in repr(field)
    assert "objective" not in repr(field)


def test_lattices_of_four_axes_are_named():
    field = TRWCRF(max_iter=3, tol=1.0, lattice_ndim=4).fit(X.reshape(3, 2, 3, 2, 3, 1), Y.reshape(3, 2, 3, 2, 3))
    assert "lattices of 4 axes" in repr(field)
