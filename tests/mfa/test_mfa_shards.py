"""Mixtures of factor analysers on shards: the same bits wherever shards are, and the optimum of training in memory."""

import numpy as np
import pytest
from mfa_problems import mixture
from sklearn.base import clone
from sklearn.datasets import load_iris
from small_shards import LosesShards

from sklearn_crf import Shards
from sklearn_crf.mfa import EM

X, Y = load_iris(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(X))
X, Y = X[ORDER], Y[ORDER]
WEIGHT = np.where(np.arange(len(X)) % 5, 1.0, 2.0)
PARTS = [(X[:60], Y[:60], WEIGHT[:60]), (X[60:90], Y[60:90], WEIGHT[60:90]), (X[90:], Y[90:], WEIGHT[90:])]
NAMES = (
    "class_prior_",
    "discriminative_prior_",
    "class_count_",
    "weights_",
    "means_",
    "loadings_",
    "noise_variance_",
    "loss_curve_",
    "restart_losses_",
)

pytestmark = pytest.mark.filterwarnings("ignore")
ESTIMATORS = {
    "em": mixture(objective="joint", n_init=2, random_state=0),
    "plain em": mixture(1, objective="joint", solver=EM(accelerate=False), noise="class"),
    "gradients": mixture(1, 1, max_iter=30, random_state=0),
    "missing values": mixture(1, 1, max_iter=30, allow_nan=True, objective="joint"),
}


def part(k):
    return PARTS[k]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_loaded_anew_or_kept_is_the_same(name):
    kept = clone(ESTIMATORS[name]).fit(Shards.from_arrays(PARTS))
    anew = clone(ESTIMATORS[name]).set_params(n_jobs=2).fit(Shards(range(3), part))
    for attribute in NAMES:
        np.testing.assert_array_equal(getattr(kept, attribute), getattr(anew, attribute))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_fit_is_that_in_memory(name):
    in_memory = clone(ESTIMATORS[name]).fit(X, Y, WEIGHT)
    sharded = clone(ESTIMATORS[name]).fit(Shards.from_arrays(PARTS))
    assert sharded.n_features_in_ == 4
    np.testing.assert_allclose(sharded.loss_curve_[:3], in_memory.loss_curve_[:3], rtol=1e-6)
    np.testing.assert_allclose(sharded.loss_curve_[-1], in_memory.loss_curve_[-1], atol=5e-3)


@pytest.mark.parametrize("class_weight", ["balanced", {0: 3.0}, {0: 0.0, 1: 2.0, 2: 1.0}])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_weights_of_classes_are_those_of_all_shards(name, class_weight):
    # One shard lacks the rarest class.
    order = np.argsort(Y == 0, kind="stable")[:130]
    x, y, weight = X[order], Y[order], WEIGHT[order]
    cut = 60
    parts = [(x[:cut], y[:cut], weight[:cut]), (x[cut:], y[cut:], weight[cut:])]
    assert 0 not in y[:cut]
    field = clone(ESTIMATORS[name]).set_params(class_weight=class_weight)
    sharded = clone(field).fit(Shards.from_arrays(parts))
    if class_weight == "balanced":
        counts = np.bincount(y, weight)
        of_classes = counts.sum() / (3 * counts)
    else:
        of_classes = np.array([class_weight.get(label, 1.0) for label in range(3)])
    given = [(a, b, of_classes[b] * c) for a, b, c in parts]
    by_samples = clone(field).set_params(class_weight=None, classes=[0, 1, 2]).fit(Shards.from_arrays(given))
    for attribute in NAMES:
        np.testing.assert_array_equal(getattr(sharded, attribute), getattr(by_samples, attribute))
    in_memory = clone(field).fit(x, y, weight)
    np.testing.assert_allclose(sharded.class_count_, in_memory.class_count_, rtol=1e-12)
    np.testing.assert_allclose(sharded.loss_curve_[:3], in_memory.loss_curve_[:3], rtol=1e-6)


def test_many_features():
    """Beyond 32 features expectation-maximisation takes other moments."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 2
    wide = rng.normal(size=(90, 40)) + y[:, None]
    mfa = mixture(1, 2, objective="joint", max_iter=5, n_init=1)
    sharded = clone(mfa).fit(Shards.from_arrays([(wide[:50], y[:50]), (wide[50:], y[50:])]))
    np.testing.assert_allclose(sharded.loss_curve_, mfa.fit(wide, y).loss_curve_, rtol=1e-8)


def test_missing_values_and_missing_classes():
    holes = X.copy()
    holes[::7, 1] = np.nan
    parts = [(holes[Y == 2], Y[Y == 2]), (holes[Y < 2], Y[Y < 2])]
    mfa = mixture(1, 1, max_iter=20, allow_nan=True, random_state=0)
    sharded = clone(mfa).fit(Shards.from_arrays(parts))
    in_memory = clone(mfa).fit(holes, Y)
    assert sharded.classes_.tolist() == [0, 1, 2]
    assert abs(sharded.loss_curve_[-1] - in_memory.loss_curve_[-1]) < 1e-2
    assert sharded.score(X, Y) > 0.9


def test_large_shards_start_from_some_of_their_samples():
    rng = np.random.default_rng(0)
    y = np.arange(9000) % 2
    many = rng.normal(size=(9000, 3)) + 2 * y[:, None]
    shards = Shards.from_arrays([(many[:5000], y[:5000]), (many[5000:], y[5000:])])
    mfa = mixture(2, 1, objective="joint", max_iter=10, n_init=1, random_state=0).fit(shards)
    assert mfa.score(many, y) > 0.95
    np.testing.assert_allclose(mfa.class_prior_, 0.5)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_shards_that_are_lost_are_read_again(name):
    whole = clone(ESTIMATORS[name]).fit(Shards.from_arrays(PARTS))
    repaired = clone(ESTIMATORS[name]).fit(Shards.from_arrays(PARTS, client=LosesShards))
    np.testing.assert_array_equal(repaired.means_, whole.means_)
    np.testing.assert_array_equal(repaired.loss_curve_, whole.loss_curve_)


def broken(k):
    if k == 2:
        raise OSError("no such file")
    return PARTS[k]


def test_what_cannot_be_done_is_said():
    mfa = mixture(1).fit(X, Y)
    before = mfa.means_
    with pytest.raises(RuntimeError, match="load failed for shard 2: OSError: no such file"):
        mfa.fit(Shards(range(3), broken))
    with pytest.raises(ValueError, match="same number of features: shard 0 has 4, shard 1 has 3"):
        mfa.fit(Shards.from_arrays([PARTS[0], (X[:, :3], Y)]))
    with pytest.raises(ValueError, match=r"In shard 1: .*inconsistent numbers of samples"):
        mfa.fit(Shards.from_arrays([PARTS[0], (X[:4], Y[:3])]))
    with pytest.raises(ValueError, match="Shards get y and sample_weight from their load function"):
        mfa.fit(Shards.from_arrays(PARTS), Y)
    with pytest.raises(ValueError, match="solver='sgd' processes single samples"):
        clone(mfa).set_params(solver="sgd").fit(Shards.from_arrays(PARTS))
    with pytest.raises(ValueError, match=r"must map classes of y, which are \[0, 1, 2\], to numbers"):
        clone(mfa).set_params(class_weight={2: 1.0, 5: 2.0}).fit(Shards.from_arrays(PARTS))
    assert mfa.means_ is before


@pytest.mark.parametrize(
    "method", ["predict", "predict_proba", "predict_log_proba", "score_samples", "joint_log_likelihood"]
)
def test_methods_return_the_results_of_each_shard(method):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=60)
    X = rng.normal(size=(60, 3)) + y[:, np.newaxis]
    parts = [(X[:20], y[:20]), (X[20:25], y[20:25]), (X[25:], y[25:])]
    fitted = mixture(1, 1, max_iter=5, random_state=0).fit(X, y)
    found = getattr(fitted, method)(Shards.from_arrays(parts))
    assert isinstance(found, list)
    for part, (own, _) in zip(found, parts, strict=True):
        np.testing.assert_array_equal(part, getattr(fitted, method)(own))


def test_scores_and_factors_of_shards():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=60)
    X, weight = rng.normal(size=(60, 3)) + y[:, np.newaxis], rng.random(60)
    weight[:20] = 0
    fitted = mixture(1, 1, max_iter=5, random_state=0).fit(X, y)
    cuts = slice(20), slice(20, 25), slice(25, None)
    shards = Shards.from_arrays([(X[cut], y[cut]) for cut in cuts])
    weighed = Shards.from_arrays([(X[cut], y[cut], weight[cut]) for cut in cuts])
    assert fitted.score(shards) == pytest.approx(fitted.score(X, y))
    assert fitted.score(weighed) == pytest.approx(fitted.score(X, y, weight))
    with pytest.raises(ValueError, match="do not pass y"):
        fitted.score(shards, y)
    with pytest.raises(ValueError, match="no sample of positive weight"):
        fitted.score(Shards.from_arrays([(X[:20], y[:20], weight[:20])]))
    factors = fitted.transform(shards).map(lambda shard, _: shard.load()[0])
    for part, cut in zip(factors, cuts, strict=True):
        np.testing.assert_array_equal(part, fitted.transform(X[cut]))
