"""Piecewise likelihood: sums of exponentials of rows."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.special import logsumexp

from sklearn_crf.objectives.likelihood._piecewise import _log_sums


@pytest.mark.parametrize("n_columns", [1, 2, 3, 4, 7, 8, 9, 17, 130])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0, 800.0])
def test_log_sums_are_those_of_more_digits(n_columns, scale):
    scores = scale * np.random.default_rng(0).normal(size=(300, n_columns))
    # Rows with several best entries, all of them, and forbidden ones.
    scores[::3] = np.round(scores[::3])
    scores[5] = 0.0
    scores[7, 1:] = -np.inf
    best = scores.max(axis=1, keepdims=True)
    expected = best + np.log(np.exp(scores.astype(np.longdouble) - best).sum(axis=1, keepdims=True))
    rounding = np.finfo(np.float64).eps * (np.abs(best) + np.log(n_columns) + 1)
    assert np.all(np.abs(_log_sums(scores) - expected) <= 2 * rounding)


def test_log_sums_of_rows_without_any_state():
    scores = np.random.default_rng(0).normal(size=(4, 3))
    scores[1] = -np.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        assert_array_equal(_log_sums(scores), logsumexp(scores, axis=1, keepdims=True))
