"""Training on shards in this process: the same weights as in memory, and errors that name the shard."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from small_shards import weights

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, M3NClassifier, Shards
from sklearn_crf.distributed import LocalExecutor
from sklearn_crf.learning import SPA, MaxMargin, Relaxation, SharedPiecesTraining
from sklearn_crf.potentials import PairwiseTables

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(0)
Y = RNG.integers(3, size=(9, 4, 4))
X = np.eye(3)[Y] + RNG.normal(size=(9, 4, 4, 3))
PARTS = [(X[:4], Y[:4]), (X[4:6], Y[4:6], np.array([1.0, 2.0])), (X[6:], Y[6:])]

ESTIMATORS = {
    "exact": TRWCRF(),
    "relaxation": TRWCRF(formulation=Relaxation(tol=1e-4)),
    "softmax margin": TRWCRF(formulation=Relaxation(cost="hamming")),
    "piecewise": TRWCRF(formulation="piecewise"),
    "optimized shares": TRWCRF(formulation=SharedPiecesTraining("optimized")),
    "pseudolikelihood": TRWCRF(formulation="pseudolikelihood", edge_features="difference"),
    "pma": DRFClassifier(),
    "pma by bp": DRFClassifier(inference="bp", max_iter=10),
    "pl": DRFClassifier(learning="pl", pairwise=PairwiseTables(C=0.5)),
    "spa": DRFClassifier(inference="map", max_iter=5),
    "spa bundle": DRFClassifier(inference="map", learning=SPA(solver="bundle"), max_iter=5),
    "margins": M3NClassifier(max_iter=20),
    "margins by one slack": M3NClassifier(solver="one_slack", max_iter=20),
    "margins by subgradients": M3NClassifier(solver="subgradient", max_iter=10),
    "margins of the relaxation": M3NClassifier(formulation="lp", max_iter=5),
    "smoothed margins": M3NClassifier(formulation="smoothed", max_iter=5),
    "associative margins": M3NClassifier(pairwise="associative", edge_features="constant"),
    "cd": DRFClassifier(learning="cd", max_iter=5, random_state=0),
}


def part(k):
    return PARTS[k]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_loaded_anew_or_kept_is_the_same(name):
    kept = clone(ESTIMATORS[name]).fit(Shards.from_arrays(PARTS))
    anew = clone(ESTIMATORS[name]).set_params(n_jobs=2).fit(Shards(range(3), part))
    np.testing.assert_array_equal(weights(kept), weights(anew))
    np.testing.assert_array_equal(kept.loss_curve_, anew.loss_curve_)
    assert kept.predict(X).shape == Y.shape


MARGINS = sorted(name for name, crf in ESTIMATORS.items() if isinstance(crf, M3NClassifier))


@pytest.mark.parametrize("name", sorted(ESTIMATORS.keys() - {"cd", *MARGINS} | {"smoothed margins"}))
def test_one_shard_is_the_fit_in_memory(name):
    in_memory = clone(ESTIMATORS[name]).fit(X, Y)
    one = clone(ESTIMATORS[name]).fit(Shards.from_arrays([(X, Y)]))
    np.testing.assert_array_equal(weights(one), weights(in_memory))


@pytest.mark.parametrize("name", MARGINS)
def test_margins_enclose_the_optimum_in_memory(name):
    """Solvers differ, since planes of examples are not kept; the optimum lies within the gaps of both."""
    parts = [part for part in PARTS if len(part) == 2]
    sharded = clone(ESTIMATORS[name]).set_params(tol=0.1, max_iter=100).fit(Shards.from_arrays(parts))
    in_memory = (
        clone(ESTIMATORS[name]).set_params(tol=0.1, max_iter=100).fit(*map(np.concatenate, zip(*parts, strict=True)))
    )
    for one, other in ((sharded, in_memory), (in_memory, sharded)):
        assert one.loss_curve_.min() - one.duality_gap_ <= other.loss_curve_.min() * (1 + 1e-9)
    assert np.isfinite(sharded.duality_gap_)


@pytest.mark.parametrize("name", ["exact", "pma", "pl"])
def test_weighted_shards_minimise_the_loss_of_all(name):
    weight = np.array([1.0] * 5 + [2.0] + [1.0] * 3)
    in_memory = clone(ESTIMATORS[name]).set_params(tol=1e-9).fit(X, Y, sample_weight=weight)
    sharded = clone(ESTIMATORS[name]).set_params(tol=1e-9).fit(Shards.from_arrays(PARTS))
    np.testing.assert_allclose(weights(sharded), weights(in_memory), atol=1e-6)


def test_plain_rows_and_ragged_chains():
    rows = X[:, 0, 0]
    shards = Shards.from_arrays([(rows[:5], Y[:5, 0, 0]), (rows[5:], Y[5:, 0, 0])])
    flat = TRWCRF(tol=1e-8).fit(rows, Y[:, 0, 0])
    np.testing.assert_allclose(weights(TRWCRF(tol=1e-8).fit(shards)), weights(flat), atol=1e-6)
    chains = [(list(X[:2, 0]), list(Y[:2, 0])), (X[2:, 0], Y[2:, 0])]
    assert TRWCRF().fit(Shards.from_arrays(chains)).score(X[:, 0], Y[:, 0]) > 0.5


def test_classes_are_collected_from_all_shards():
    names = np.array(["a", "b", "c"])[Y]
    one_class = (X[:1], np.full((1, 4, 4), "d"))
    crf = TRWCRF().fit(Shards.from_arrays([one_class, (X, names)]))
    assert crf.classes_.tolist() == ["a", "b", "c", "d"]
    only_d = Shards.from_arrays([one_class])
    with pytest.raises(ValueError, match="at least 2 classes"):
        TRWCRF().fit(only_d)
    assert TRWCRF(classes=["c", "d"]).fit(only_d).classes_.tolist() == ["c", "d"]
    with pytest.raises(ValueError, match="mixes strings with other labels"):
        TRWCRF().fit(Shards.from_arrays([one_class, (X, Y)]))


def test_few_labels_in_some_shards():
    hidden = np.where(np.arange(Y.size).reshape(Y.shape) % 9, -1, Y)
    shards = Shards.from_arrays([(X[:4], hidden[:4]), (X[4:], hidden[4:])])
    drf = DRFClassifier(missing_label=-1).fit(shards)
    np.testing.assert_array_equal(weights(drf), weights(clone(drf).fit(shards)))


def test_predictions_of_each_shard():
    shards = Shards(range(3), part)
    crf = TRWCRF().fit(shards)
    np.testing.assert_array_equal(np.concatenate(crf.predict(shards)), crf.predict(X))
    np.testing.assert_allclose(np.concatenate(crf.predict_proba(shards)), crf.predict_proba(X))
    weight = np.array([1.0] * 5 + [2.0] + [1.0] * 3)
    assert crf.score(shards) == pytest.approx(crf.score(X, Y, sample_weight=weight))
    with pytest.raises(ValueError, match="evidence is not for Shards"):
        crf.predict(shards, Y)


def write(number, labels):
    return number, labels[0, 0, 0]


def test_predictions_are_written_where_their_shard_is():
    crf = TRWCRF().fit(X, Y)
    labels = crf.predict(X)
    shards = Shards(range(3), part)
    assert shards.apply(crf, write=write) == [(0, labels[0, 0, 0]), (1, labels[4, 0, 0]), (2, labels[6, 0, 0])]
    found = shards.apply(crf, inference="icm")
    np.testing.assert_array_equal(np.concatenate(found), crf.predict(X, inference="icm"))
    proba = shards.apply(crf, "predict_proba")
    np.testing.assert_array_equal(np.concatenate(proba), np.concatenate(crf.predict_proba(shards)))


def test_estimators_that_train_in_memory_predict_for_shards():
    forest = RandomForestClassifier(5, random_state=0).fit(X[:, 0, 0], Y[:, 0, 0])
    shards = Shards.from_arrays([(X[:4, 0, 0], Y[:4, 0, 0]), (X[4:, 0, 0], Y[4:, 0, 0])])
    np.testing.assert_array_equal(np.concatenate(shards.apply(forest)), forest.predict(X[:, 0, 0]))


def test_one_shard_is_in_memory_at_a_time():
    held = []
    shards = Shards(range(3), part)

    def cached(shard, broadcast):
        held.append(sum(len(other.cache) > 0 for other in shards._shards))
        shard.cache["batches"] = ()

    shards.map(cached)
    assert held == [0, 0, 0]


def test_fitted_estimators_are_plain():
    shards = Shards.from_arrays(PARTS)
    crf = TRWCRF().fit(shards)
    assert b"Shard" not in pickle.dumps(crf)
    assert not any(shard.cache or shard.memory for shard in shards._shards)


def test_warm_start_goes_on():
    shards = Shards.from_arrays(PARTS)
    crf = TRWCRF(warm_start=True, tol=1e-6).fit(shards)
    before = weights(crf)
    assert crf.fit(shards).n_iter_ == 1
    np.testing.assert_array_equal(weights(crf), before)


class LosesShards(LocalExecutor):
    """An engine that loads a shard anew before every third call."""

    n_calls = 0

    def map(self, function, broadcast):
        self.n_calls += 1
        if not self.n_calls % 3:
            shard = self.shards[self.n_calls % len(self.shards)]
            shard.cache.clear()
            shard.memory.clear()
        return super().map(function, broadcast)


@pytest.mark.parametrize(
    "name", ["exact", "relaxation", "pma", "cd", "margins", "margins of the relaxation", "smoothed margins"]
)
def test_shards_that_are_lost_repeat_their_passes(name):
    whole = clone(ESTIMATORS[name]).fit(Shards.from_arrays(PARTS))
    repaired = clone(ESTIMATORS[name]).fit(Shards.from_arrays(PARTS, client=LosesShards))
    np.testing.assert_array_equal(weights(repaired), weights(whole))


def test_an_engine_that_loses_every_pass_is_given_up():
    class LosesAll(LocalExecutor):
        def map(self, function, broadcast):
            if function.__name__ == "_evaluate":
                for shard in self.shards:
                    shard.memory.clear()
            return super().map(function, broadcast)

    with pytest.raises(RuntimeError, match="lost 10 times"):
        TRWCRF().fit(Shards.from_arrays(PARTS, client=LosesAll))


def broken(k):
    if k == 2:
        raise OSError("no such file")
    return PARTS[k]


def test_errors_name_the_shard():
    crf = TRWCRF().fit(X, Y)
    before = weights(crf)
    with pytest.raises(RuntimeError, match="load failed for shard 2: OSError: no such file"):
        crf.fit(Shards(range(3), broken))
    with pytest.raises(ValueError, match=r"In shard 1: y\[0\] has shape"):
        crf.fit(Shards.from_arrays([PARTS[0], (X[:1], Y[:1, :2])]))
    with pytest.raises(ValueError, match=r"load must return the tuple .* for shard 0"):
        crf.fit(Shards([0], lambda k: X))
    with pytest.raises(ValueError, match="same number of features: shard 0 has 3, shard 1 has 2"):
        crf.fit(Shards.from_arrays([PARTS[0], (X[:1, ..., :2], Y[:1])]))
    np.testing.assert_array_equal(weights(crf), before)


def test_what_takes_no_shards_says_so():
    shards = Shards.from_arrays(PARTS)
    with pytest.raises(ValueError, match="ContrastiveCRF takes no Shards: TRWCRF, DRFClassifier and M3NClassifier"):
        ContrastiveCRF().fit(shards)
    for crf in (TRWCRF(solver="sgd"), TRWCRF(formulation="joint"), TRWCRF(formulation="dual", fit_intercept=False)):
        with pytest.raises(ValueError, match="such as 'lbfgs'"):
            crf.fit(shards)
    for options in ({"solver": "frank_wolfe"}, {"formulation": "joint"}, {"formulation": "dual"}):
        with pytest.raises(ValueError, match="goes from example to example, which Shards do not allow"):
            M3NClassifier(**options).fit(shards)
    with pytest.raises(ValueError, match="cost='weighted' counts labels in memory"):
        M3NClassifier(formulation=MaxMargin(cost="weighted")).fit(shards)
    with pytest.raises(ValueError, match="Shards bring y and sample_weight along"):
        TRWCRF().fit(shards, Y)
    with pytest.raises(ValueError, match="at least one shard"):
        Shards([], part)
    with pytest.raises(ValueError, match="load must be a function"):
        Shards([0], "load")
    with pytest.raises(ValueError, match=r"client must be a dask.distributed.Client"):
        TRWCRF().fit(Shards([0], part, client=3))


def test_the_loss_is_that_of_all_shards():
    crf = TRWCRF(max_iter=1, tol=0).fit(Shards.from_arrays(PARTS))
    assert crf.loss_curve_[0] == pytest.approx(10 * 16 * np.log(3), rel=1e-12)
