"""Piecewise likelihood: sums of exponentials of rows."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.special import logsumexp

from sklearn_crf.objectives.likelihood._piecewise import _log_sums


@pytest.mark.parametrize("n_columns", [1, 2, 3, 4, 7, 8, 9, 17, 130])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0, 800.0])
def test_log_sums_have_the_bits_of_scipy(n_columns, scale):
    scores = scale * np.random.default_rng(0).normal(size=(300, n_columns))
    # Rows with several best entries, all of them, and forbidden ones.
    scores[::3] = np.round(scores[::3])
    scores[5] = 0.0
    scores[7, 1:] = -np.inf
    assert_array_equal(_log_sums(scores), logsumexp(scores, axis=1, keepdims=True))
    scores[9] = -np.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        assert_array_equal(_log_sums(scores), logsumexp(scores, axis=1, keepdims=True))
