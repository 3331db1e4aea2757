"""Quantiles of noise, weighted by the weights of images."""

import numpy as np
import pytest

from sklearn_crf.preprocessing._default_bank import compute_weighted_quantiles


@pytest.mark.parametrize("seed", range(5))
def test_quantiles_count_a_value_of_weight_k_as_k_values(seed):
    rng = np.random.default_rng(seed)
    values, times, shares = rng.normal(size=8), rng.integers(4, size=8), (0.0, 0.1, 0.37, 0.5, 0.9, 1.0)
    times[0] = 1
    found = compute_weighted_quantiles(values, times, shares)
    assert found == pytest.approx(np.quantile(np.repeat(values, times), shares))
    assert compute_weighted_quantiles(values, None, shares) == pytest.approx(
        compute_weighted_quantiles(values, np.ones(8), shares)
    )
    # Weights that sum to less than one are valid, too.
    small = compute_weighted_quantiles(values, 0.01 * times, shares)
    assert values.min() <= small.min() <= small.max() <= values.max()
