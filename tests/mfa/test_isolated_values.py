"""Isolated values (sentinels or mistakes) in the training of mixtures."""

import warnings

import numpy as np
import pytest
from mfa_problems import mixture
from numpy.testing import assert_array_equal
from sklearn.datasets import load_digits

from sklearn_crf import Shards
from sklearn_crf.mfa._samples import remove_isolated_values

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:.*noise variances ended at their minimum"
)


def labelled(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 4))
    return X, (X[:, 0] > 0).astype(int)


X, Y = labelled(0)
X_TEST, Y_TEST = labelled(1)


def with_sentinels(*values):
    out = X.copy()
    out[np.arange(len(values)) * 37, 0] = values
    return out


@pytest.mark.parametrize("values", [(-9999,), (-9999,) * 8, (1e6, 1e12), (-500,)])
@pytest.mark.parametrize("options", [{"objective": "joint"}, {"alpha": 0.0}, {"alpha": 0.01}, {"noise": "component"}])
@pytest.mark.parametrize("n_components", [1, 2])
def test_sentinels_change_little(values, options, n_components):
    model = mixture(n_components, 1, n_init=1, random_state=0, max_iter=50, **options)
    clean = model.fit(X, Y).score(X_TEST, Y_TEST)
    with pytest.warns(
        match=rf"^{len(values)} value\(s\) of X, such as .* in feature 0, are more than 100 times as far"
    ):
        model.fit(with_sentinels(*values), Y)
    assert model.score(X_TEST, Y_TEST) > clean - 0.02 > 0.94


def test_sentinels_are_missing_values():
    gaps = with_sentinels(*[np.nan] * 3)
    model = mixture(1, 1, objective="joint", allow_nan=True).fit(gaps, Y)
    with pytest.warns(match="treats these values as missing"):
        other = mixture(1, 1, objective="joint").fit(with_sentinels(*[-9999] * 3), Y)
    assert_array_equal(other.means_, model.means_)
    with pytest.warns(match="value"), pytest.raises(ValueError, match="solver='em' needs complete samples"):
        mixture(1, 1, objective="joint", solver="em").fit(with_sentinels(-9999), Y)


def test_sentinels_in_shards_and_in_parts():
    bad = with_sentinels(-9999, -9999)
    with pytest.warns(match="treats these values as missing"):
        sharded = mixture(1, 1).fit(Shards.from_arrays([(bad[:200], Y[:200]), (bad[200:], Y[200:])]))
    assert sharded.score(X_TEST, Y_TEST) > 0.95
    in_parts = mixture(1, 1, random_state=0).partial_fit(X[:200], Y[:200], classes=[0, 1])
    for _ in range(5):
        with pytest.warns(match=r"^1 value\(s\) of X"):
            in_parts.partial_fit(np.where(np.arange(800).reshape(200, 4) == 40, 1e8, X[200:]), Y[200:])
    assert in_parts.score(X_TEST, Y_TEST) > 0.95


@pytest.mark.parametrize(
    "values",
    [
        lambda rng: rng.normal(size=(2000, 3)),
        lambda rng: rng.lognormal(sigma=1.0, size=(2000, 3)),
        lambda rng: rng.standard_t(3, size=(2000, 3)),
        lambda rng: rng.poisson(0.05, size=(2000, 3)).astype(float),
        lambda rng: np.where(rng.random((2000, 3)) < 0.02, 1000.0 + rng.normal(size=(2000, 3)), rng.random((2000, 3))),
        lambda rng: np.where(rng.random((2000, 3)) < 0.5, np.nan, rng.normal(size=(2000, 3))),
        lambda rng: np.eye(2000, 3),
        lambda rng: rng.lognormal(sigma=2.5, size=(2000, 3)),
        lambda rng: rng.standard_cauchy(size=(2000, 3)),
        lambda rng: np.where(rng.random((2000, 3)) < 0.2, rng.poisson(1.0, (2000, 3)), 0) * rng.integers(1, 900, 3),
        lambda rng: np.where(np.arange(6000).reshape(2000, 3) % 501 == 0, 5000.0, rng.poisson(0.2, (2000, 3))),
        lambda rng: rng.normal(size=(9, 3)) * [[1.0]] * 8 + [[1e5, 0, 0]],
    ],
)
def test_tails_clusters_and_counts_are_not_isolated(values):
    drawn = values(np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert remove_isolated_values(drawn, np.zeros(len(drawn), dtype=int)) is drawn


def test_digits_have_no_isolated_values():
    digits, y = load_digits(return_X_y=True)
    assert remove_isolated_values(digits, y) is digits
    for part in np.array_split(np.arange(len(y)), 3):
        own = digits[part]
        assert remove_isolated_values(own, y[part]) is own


def test_a_class_of_its_own_is_not_isolated():
    rare = np.arange(400) % 25 == 0
    far = np.where(rare[:, None], 1e5, X)
    assert remove_isolated_values(far, rare.astype(int)) is far
