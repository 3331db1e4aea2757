"""What the classifier of tree fields does without options."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sklearn_crf import RegressionTreeFieldClassifier


def squares(n, rng):
    y = np.zeros((n, 16, 16), dtype=int)
    for image in y:
        top, left = rng.integers(2, 8, size=2)
        image[top : top + 6, left : left + 6] = 1
    return y[..., np.newaxis] + 0.7 * rng.normal(size=(*y.shape, 1)), y


def blocks(n, rng):
    y = np.kron(rng.integers(3, size=(n, 4, 4)), np.ones((4, 4), dtype=int))
    return y[..., np.newaxis] + 0.7 * rng.normal(size=(*y.shape, 1)), y


@pytest.mark.parametrize("task", [squares, blocks])
def test_small_images_are_labelled_better_than_pixel_by_pixel_without_a_warning(task):
    rng = np.random.default_rng(0)
    (X, y), (X_test, y_test) = task(10, rng), task(10, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field = RegressionTreeFieldClassifier(random_state=0).fit(X, y)
    pixels = LogisticRegression().fit(X.reshape(-1, 1), y.ravel())
    assert field.score(X_test, y_test) > pixels.score(X_test.reshape(-1, 1), y_test.ravel()) + 0.05
    np.testing.assert_allclose(field.predict_proba(X_test).sum(axis=-1), 1.0, rtol=1e-6)
