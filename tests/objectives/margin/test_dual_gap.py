"""The duality gap of max-margin learning in the dual."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklearn_crf import M3NClassifier
from sklearn_crf.learning import DualMargin
from sklearn_crf.objectives.likelihood._dual_blocks import fit_pairs


@pytest.mark.parametrize("seed", range(6))
def test_gaps_are_no_less_than_what_the_objective_lacks(seed):
    rng = np.random.default_rng(seed)
    n_classes = 2 + seed % 2
    y = rng.integers(n_classes, size=(2, 2, 2))
    X = np.eye(n_classes)[y] + rng.normal(size=(2, 2, 2, n_classes)) * (0.5 + seed % 3)
    options = {"C": 10.0 ** (seed % 3 - 1), "edge_features": "constant", "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # With a coarse tolerance, messages are far from consistent marginals.
        model = M3NClassifier(learning=DualMargin(tol=0.1), max_iter=15, tol=1e-4, **options).fit(X, y)
        best = M3NClassifier(learning="relaxed_margin", tol=1e-5, max_iter=300, **options).fit(X, y)
    lacks = model.loss_curve_[-1] - best.loss_curve_[-1]
    assert model.duality_gap_ >= lacks - 1e-6 * abs(best.loss_curve_[-1])


def test_fitted_pairs_have_the_marginals_of_their_ends():
    rng = np.random.default_rng(0)
    pairs = rng.dirichlet(np.full(9, 0.3), size=50).reshape(50, 3, 3)
    first, second = rng.dirichlet(np.ones(3), size=(2, 50))
    fitted = fit_pairs(pairs, first, second)
    assert np.all(fitted >= 0)
    assert_allclose(fitted.sum(axis=2), first, atol=1e-14)
    assert_allclose(fitted.sum(axis=1), second, atol=1e-14)
    # Consistent pairs are not changed.
    assert_allclose(fit_pairs(pairs, pairs.sum(axis=2), pairs.sum(axis=1)), pairs, atol=1e-15)
