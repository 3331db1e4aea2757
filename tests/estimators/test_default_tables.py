"""Default form of pairwise tables."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, M3NClassifier

UNITS = {
    "ones": lambda X: X,
    "uint16": lambda X: ((X + 3) / 7 * 65535).clip(0, 65535).astype(np.uint16),
    "bytes": lambda X: ((X + 3) / 7 * 255).clip(0, 255).astype(np.uint8),
    "millions": lambda X: 1e6 * X,
    "far from zero": lambda X: X + 1e4,
}


def squares(n=12, size=16, n_features=1):
    """Return noisy images of one rectangle each."""
    y = np.zeros((n, size, size), dtype=int)
    y[:, size // 4 : 3 * size // 4, 3 : size - 3] = 1
    noise = np.random.default_rng(0).normal(scale=0.7, size=(*y.shape, n_features))
    return y[..., np.newaxis] + noise, y


@pytest.mark.parametrize("unit", UNITS)
def test_margins_label_as_well_as_likelihood_in_any_unit(unit):
    X, y = squares()
    X = UNITS[unit](X)
    margins, likelihood = (kind().fit(X[:8], y[:8]).score(X[8:], y[8:]) for kind in (M3NClassifier, TRWCRF))
    assert margins > likelihood - 0.03
    assert margins > 0.95


@pytest.mark.parametrize("field", [TRWCRF(), DRFClassifier(), M3NClassifier(), ContrastiveCRF()])
def test_tables_have_no_direction_on_images(field):
    X, y = squares(4, 8)
    assert clone(field).fit(X, y).edge_coef_.shape == (1, 2, 3)
    volumes = X.reshape(2, 2, 8, 8, 1), y.reshape(2, 2, 8, 8)
    assert clone(field).fit(*volumes).edge_coef_.shape == (1, 2, 3)
    three = np.where(np.arange(8) == 7, 2, y)
    assert clone(field).fit(X, three).edge_coef_.shape == (1, 2, 1)
    sequences = X.reshape(32, 8, 1), y.reshape(32, 8)
    assert clone(field).fit(*sequences).edge_coef_.shape == (1, 1, 4)


@pytest.mark.parametrize("turn", [lambda a: a[:, ::-1], lambda a: a[:, :, ::-1], lambda a: np.swapaxes(a, 1, 2)])
@pytest.mark.parametrize("kind", [TRWCRF, M3NClassifier, DRFClassifier])
def test_mirrored_and_transposed_images_get_mirrored_and_transposed_labels(kind, turn):
    X, y = squares(6, 10, 2)
    field, turned = kind().fit(X, y), kind().fit(turn(X), turn(y))
    labels = turn(field.predict(X))
    assert 0 < labels.mean() < 1
    assert_array_equal(field.predict(turn(X)), labels)
    assert_array_equal(turned.predict(turn(X)), labels)


@pytest.mark.parametrize("shape", [(6, 40, 40), (3, 12, 12, 12)])
def test_relaxations_of_large_lattices_have_no_direction(shape):
    rng = np.random.default_rng(0)
    y = np.zeros(shape, dtype=int)
    y[:, 3:9, 2:8], y[:, 4:, 5:] = 1, 2
    X = np.eye(3)[y] + rng.normal(scale=1.7, size=(*shape, 3))
    field = TRWCRF().fit(X, y)
    assert field.learning_ == "relaxation"
    labels = field.predict(X)
    for turn in (lambda a: a[:, ::-1], lambda a: a[:, :, ::-1], lambda a: np.swapaxes(a, 1, 2)):
        # Messages have only converged up to a tolerance, so nodes with nearly equal marginals may change.
        assert np.mean(field.predict(turn(X)) != turn(labels)) < 5e-4


@pytest.mark.parametrize("form", ["ising", "symmetric", "full"])
def test_fields_fitted_by_another_default_still_predict_and_learn(form):
    X, y = squares(6, 8)
    field = M3NClassifier(pairwise=form, random_state=0).partial_fit(X, y, classes=[0, 1])
    # A pickle of a version with another default holds pairwise="auto", and tables of the other form.
    other = M3NClassifier(random_state=0)
    vars(other).update({name: value for name, value in vars(field).items() if name != "pairwise"})
    assert_array_equal(other.predict(X), field.predict(X))
    assert_array_equal(other.partial_fit(X, y).edge_coef_, field.partial_fit(X, y).edge_coef_)
