"""Training on shards in this process: the same weights as in memory, and errors that name the shard."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from callback_recorder import Recorder
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from small_shards import LosesShards, Watching, weights

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DenseCRF,
    DRFClassifier,
    Example,
    M3NClassifier,
    MultiLabelField,
    Shards,
)
from sklearn_crf.calibration import TemperatureScaling
from sklearn_crf.distributed import LocalExecutor
from sklearn_crf.learning import ContrastiveTraining, MaxMargin, Relaxation, SharedPiecesTraining
from sklearn_crf.objectives import GibbsGenerator, MostViolated
from sklearn_crf.potentials import PairwiseTables
from sklearn_crf.preprocessing import ClassifierScores, FilterBank, NodeTransformer

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(0)
Y = RNG.integers(3, size=(9, 4, 4))
X = np.eye(3)[Y] + RNG.normal(size=(9, 4, 4, 3))
PARTS = [(X[:4], Y[:4]), (X[4:6], Y[4:6], np.array([1.0, 2.0])), (X[6:], Y[6:])]

ESTIMATORS = {
    "exact": TRWCRF(),
    "relaxation": TRWCRF(learning=Relaxation(tol=1e-4)),
    "softmax margin": TRWCRF(learning=Relaxation(cost="hamming")),
    "piecewise": TRWCRF(learning="piecewise"),
    "optimized shares": TRWCRF(learning=SharedPiecesTraining(shares="optimized")),
    "pseudolikelihood": TRWCRF(learning="pseudolikelihood", edge_features="difference"),
    "pma": DRFClassifier(),
    "pma by bp": DRFClassifier(inference="bp", max_iter=10),
    "pl": DRFClassifier(learning="pl", pairwise=PairwiseTables(C=0.5)),
    "spa": DRFClassifier(inference="map", max_iter=5),
    "spa bundle": DRFClassifier(inference="map", learning="spa", solver="bundle", max_iter=5),
    "margins": M3NClassifier(max_iter=20),
    "margins by one slack": M3NClassifier(solver="one_slack", max_iter=20),
    "margins by subgradients": M3NClassifier(solver="subgradient", max_iter=10),
    "margins of the relaxation": M3NClassifier(learning="relaxed_margin", max_iter=5),
    "smoothed margins": M3NClassifier(learning="smoothed_margin", max_iter=5),
    "associative margins": M3NClassifier(pairwise="associative", edge_features="constant"),
    "cd": DRFClassifier(learning="cd", max_iter=5, random_state=0),
    "contrastive": ContrastiveCRF(random_state=0, max_iter=50),
    "contrastive on sets seen": ContrastiveCRF(learning=ContrastiveTraining(init="observed", generator=None)),
    "contrastive on draws": ContrastiveCRF(
        learning=ContrastiveTraining(
            init="gpl", generator=GibbsGenerator(2, persistent=True), are_drawn=True, max_rounds=3
        ),
        pairwise=PairwiseTables(C=0.1),
        random_state=0,
    ),
    "contrastive on violated sets": ContrastiveCRF(
        learning=ContrastiveTraining(init="empty", generator=["icm_mv", "map"], n_new=2, max_rounds=2),
        pairwise=PairwiseTables(C=1),
        random_state=0,
    ),
}
DRAWN = {"cd", "contrastive on draws", "contrastive on violated sets"}


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


@pytest.mark.parametrize("name", sorted(ESTIMATORS.keys() - {*DRAWN, *MARGINS} | {"smoothed margins"}))
def test_one_shard_is_the_fit_in_memory(name):
    in_memory = clone(ESTIMATORS[name]).fit(X, Y)
    one = clone(ESTIMATORS[name]).fit(Shards.from_arrays([(X, Y)]))
    np.testing.assert_array_equal(weights(one), weights(in_memory))


@pytest.mark.parametrize("name", MARGINS)
def test_margins_enclose_the_optimum_in_memory(name):
    """Solvers on shards do not keep planes of single examples, so results differ, but both gaps contain the optimum."""
    parts = [part for part in PARTS if len(part) == 2]
    sharded = clone(ESTIMATORS[name]).set_params(tol=0.1, max_iter=100).fit(Shards.from_arrays(parts))
    in_memory = (
        clone(ESTIMATORS[name]).set_params(tol=0.1, max_iter=100).fit(*map(np.concatenate, zip(*parts, strict=True)))
    )
    for one, other in ((sharded, in_memory), (in_memory, sharded)):
        assert one.loss_curve_.min() - one.duality_gap_ <= other.loss_curve_.min() * (1 + 1e-9)
    assert np.isfinite(sharded.duality_gap_)


@pytest.mark.parametrize("name", ["exact", "pma", "pl", "contrastive on sets seen"])
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


WEIGHTED = {
    "pl": DRFClassifier(learning="pl", class_weight="balanced"),
    "pseudolikelihood": TRWCRF(learning="pseudolikelihood", class_weight={0: 3.0}),
    "margins": M3NClassifier(learning="smoothed_margin", max_iter=5, class_weight="balanced"),
}


@pytest.mark.parametrize("name", WEIGHTED)
def test_classes_are_weighed_by_the_labels_of_all_shards(name):
    crf, uneven = WEIGHTED[name], np.minimum(Y, 1)
    parts = [(X[:4], uneven[:4]), (X[4:], uneven[4:])]
    one = clone(crf).fit(Shards.from_arrays([(X, uneven)]))
    in_memory, plain = clone(crf).fit(X, uneven), clone(crf).set_params(class_weight=None).fit(X, uneven)
    np.testing.assert_array_equal(weights(one), weights(in_memory))
    for shards in (Shards.from_arrays(parts), Shards(range(2), parts.__getitem__)):
        np.testing.assert_allclose(clone(crf).fit(shards).loss_curve_[:3], in_memory.loss_curve_[:3], rtol=1e-6)
    assert not np.allclose(weights(one), weights(plain), atol=1e-3)


@pytest.mark.parametrize("class_weight", ["balanced", {0: 0.5, 2: 3.0}], ids=str)
@pytest.mark.parametrize(
    "field", [DRFClassifier(tol=1e-8), DRFClassifier(learning="pl", tol=1e-8), M3NClassifier(solver="bmrm")], ids=str
)
def test_weights_of_classes_are_those_of_all_shards(field, class_weight):
    # A shard with a single class, and weights of examples, which affect balanced class weights.
    one_class = np.full_like(Y[:2], 1)
    parts = [(X[:2], one_class, np.array([2.0, 0.5])), (X[2:], Y[2:], np.linspace(0.5, 2, len(Y) - 2))]
    whole = [np.concatenate(found) for found in zip(*parts, strict=True)]
    field = clone(field).set_params(class_weight=class_weight)
    in_memory = clone(field).fit(*whole)
    sharded = field.fit(Shards.from_arrays(parts))
    np.testing.assert_allclose(weights(sharded), weights(in_memory), atol=1e-4)
    for found, expected in zip(sharded.predict(X), in_memory.predict(X), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_weighed_rows_and_what_cannot_be_weighed():
    rows, labels = X.reshape(-1, 3), np.where(Y.ravel() == 2, "b", "a")
    parts = [(rows[:50], labels[:50]), (rows[50:], labels[50:])]
    crf = TRWCRF(class_weight="balanced", classes=["a", "b"], tol=1e-8)
    sharded = clone(crf).fit(Shards.from_arrays(parts))
    np.testing.assert_allclose(weights(sharded), weights(clone(crf).fit(rows, labels)), atol=1e-6)
    with pytest.raises(ValueError, match="class_weight contains the class 7"):
        TRWCRF(class_weight={7: 2.0}).fit(Shards.from_arrays(PARTS))


def test_few_labels_in_some_shards():
    hidden = np.where(np.arange(Y.size).reshape(Y.shape) % 9, -1, Y)
    shards = Shards.from_arrays([(X[:4], hidden[:4]), (X[4:], hidden[4:])])
    drf = DRFClassifier(missing_label=-1).fit(shards)
    np.testing.assert_array_equal(weights(drf), weights(clone(drf).fit(shards)))


EMPTY = {
    "no examples": ([], []),
    "empty lists": ([[], []], [[], []]),
    "empty arrays": ([np.zeros((0, 3))] * 2, [np.zeros(0, dtype=int)] * 2),
    "an empty array": (np.zeros((0, 4, 3)), np.zeros((0, 4), dtype=int)),
}


@pytest.mark.parametrize("kind", [TRWCRF, DRFClassifier, M3NClassifier, ContrastiveCRF])
@pytest.mark.parametrize("form", EMPTY)
def test_shards_without_nodes_are_as_absent(kind, form):
    chains, labels = list(X[:, 0]), list(Y[:, 0])
    parts = [(chains[:4], labels[:4]), (chains[4:], labels[4:])]
    field = kind(max_iter=20)
    with_empty = Shards.from_arrays([EMPTY[form], parts[0], EMPTY[form], parts[1]])
    expected = weights(clone(field).fit(Shards.from_arrays(parts)))
    np.testing.assert_array_equal(weights(field.fit(with_empty)), expected)
    assert field.score(with_empty) == field.score(chains, labels)
    if form != "an empty array":
        found = field.predict(with_empty)
        assert [len(each) for each in found] == [len(EMPTY[form][0]), 4, len(EMPTY[form][0]), 5]
        assert all(each.shape == (0,) for each in found[0])
    with pytest.raises(ValueError, match="Shards have no nodes"):
        clone(field).fit(Shards.from_arrays([EMPTY[form]]))


def test_examples_of_empty_shards_count_in_lists_of_all_examples():
    chains, labels = list(X[:, 0]), list(Y[:, 0])
    nothing = [[], []], [[], []]
    learning = ContrastiveTraining(given=[np.unique(Y[:, 0], axis=0)], given_weight=[np.arange(1.0, 12)], init="empty")
    field = ContrastiveCRF(learning=learning.set_params(generator=None), missing_label=-1)
    whole = clone(field).fit(chains[:4] + nothing[0] + chains[4:], labels[:4] + nothing[1] + labels[4:])
    parts = (chains[:4], labels[:4]), nothing, (chains[4:], labels[4:])
    np.testing.assert_allclose(weights(field.fit(Shards.from_arrays(parts))), weights(whole), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("has_sparse_nodes", [False, True])
@pytest.mark.parametrize("kind", [TRWCRF, DRFClassifier, M3NClassifier, ContrastiveCRF])
def test_sparse_edge_features_are_those_in_memory(kind, has_sparse_nodes, dtype):
    rng, chain = np.random.default_rng(0), [[0, 1], [1, 2], [2, 3]]
    ties = [sp.csr_matrix(((rng.random((3, 5)) < 0.4) * rng.normal(size=(3, 5))).astype(dtype)) for _ in X]
    rows = [sp.csr_matrix(x[0].astype(dtype)) if has_sparse_nodes else x[0].astype(dtype) for x in X]
    graphs = [Example(x, chain, each) for x, each in zip(rows, ties, strict=True)]
    labels = list(Y[:, 0])
    field = kind(weights="all", tol=1e-4, max_iter=300)
    expected = clone(field).fit(graphs, labels)
    shards = Shards.from_arrays([(graphs[:4], labels[:4]), (graphs[4:], labels[4:])])
    for found in (clone(field).fit(shards), clone(field).set_params(weights="auto").fit(shards)):
        assert_allclose(
            found.edge_coef_.toarray(), expected.edge_coef_.toarray(), atol=1e-6 if dtype is np.float64 else 0.02
        )
        assert found.score(shards) == pytest.approx(expected.score(graphs, labels), abs=0.03)


@pytest.mark.parametrize("learning", ["pseudolikelihood", "contrastive"])
def test_only_some_shard_needs_labelled_neighbourhoods(learning):
    hidden = np.where(np.arange(9)[:, np.newaxis, np.newaxis] < 4, Y, -1)
    field = TRWCRF(learning=learning, missing_label=-1, max_iter=20)
    shards = Shards.from_arrays([(X[:4], hidden[:4]), (X[4:], hidden[4:])])
    expected = weights(clone(field).fit(X[:4], hidden[:4]))
    np.testing.assert_allclose(weights(clone(field).fit(shards)), expected, rtol=1e-4, atol=1e-6)
    apart = np.where(np.indices(Y[4:].shape)[2] % 2, Y[4:], -1)
    with pytest.raises(ValueError, match="no labelled node whose neighbours"):
        field.fit(Shards.from_arrays([(X[4:], hidden[4:]), (X[4:], apart)]))


def test_predictions_of_each_shard():
    shards = Shards(range(3), part)
    crf = TRWCRF().fit(shards)
    np.testing.assert_array_equal(np.concatenate(crf.predict(shards)), crf.predict(X))
    np.testing.assert_allclose(np.concatenate(crf.predict_proba(shards)), crf.predict_proba(X))
    weight = np.array([1.0] * 5 + [2.0] + [1.0] * 3)
    assert crf.score(shards) == pytest.approx(crf.score(X, Y, sample_weight=weight))
    with pytest.raises(ValueError, match="evidence is not supported with Shards"):
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


@pytest.mark.parametrize("field", [TRWCRF(tol=1e-6), ContrastiveCRF(learning=ContrastiveTraining(generator=None))])
def test_warm_start_goes_on(field):
    shards = Shards.from_arrays(PARTS)
    crf = clone(field).set_params(warm_start=True).fit(shards)
    before = weights(crf)
    assert crf.fit(shards).n_iter_ == 1
    np.testing.assert_array_equal(weights(crf), before)


@pytest.mark.parametrize(
    "name",
    [
        "exact",
        "relaxation",
        "pma",
        "cd",
        "margins",
        "margins of the relaxation",
        "smoothed margins",
        *sorted(name for name, crf in ESTIMATORS.items() if isinstance(crf, ContrastiveCRF)),
    ],
)
def test_shards_that_are_lost_repeat_their_passes(name):
    whole = clone(ESTIMATORS[name]).fit(Shards.from_arrays(PARTS))
    repaired = clone(ESTIMATORS[name]).fit(Shards.from_arrays(PARTS, client=LosesShards))
    np.testing.assert_array_equal(weights(repaired), weights(whole))
    if isinstance(whole, ContrastiveCRF):
        np.testing.assert_array_equal(repaired.n_generated_, whole.n_generated_)
        assert repaired.n_assignments_ == whole.n_assignments_


class AsksTwice(LocalExecutor):
    """An engine that repeats every call, and moves shards in between as if to another process."""

    def map(self, function, broadcast):
        self._ask(super().map, function, broadcast)
        return super().map(function, broadcast)

    def sum(self, function, broadcast):
        self._ask(super().sum, function, broadcast)
        return super().sum(function, broadcast)

    def _ask(self, call, function, broadcast):
        call(function, broadcast)
        self.shards = [pickle.loads(pickle.dumps(shard)) for shard in self.shards]


@pytest.mark.parametrize("name", ["relaxation", "contrastive", "contrastive on draws"])
def test_shards_that_move_and_are_asked_twice_take_each_step_once(name):
    whole = clone(ESTIMATORS[name]).fit(Shards.from_arrays(PARTS))
    moved = clone(ESTIMATORS[name]).fit(Shards.from_arrays(PARTS, client=AsksTwice))
    np.testing.assert_array_equal(weights(moved), weights(whole))


def test_an_engine_that_loses_every_pass_finds_the_same():
    class LosesAll(Watching, LocalExecutor):
        def before(self, function, broadcast):
            for shard in self.shards:
                shard.cache.clear()
                shard.memory.clear()

    for name in ("exact", "relaxation"):
        whole = clone(ESTIMATORS[name]).set_params(max_iter=5).fit(Shards.from_arrays(PARTS))
        repeated = clone(whole).fit(Shards.from_arrays(PARTS, client=LosesAll))
        np.testing.assert_array_equal(weights(repeated), weights(whole))


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
    with pytest.raises(ValueError, match="solver='sgd' processes examples one by one, which Shards do not support"):
        ContrastiveCRF(solver="sgd").fit(shards)
    weighted = MostViolated(MostViolated("icm", "weighted"), "hamming")
    with pytest.raises(ValueError, match=r"MostViolated\(cost='weighted'\) is only supported for X and y in memory"):
        ContrastiveCRF(learning=ContrastiveTraining(generator=["map", weighted])).fit(shards)
    with pytest.raises(ValueError, match="such as 'lbfgs'"):
        TRWCRF(solver="sgd").fit(shards)
    for learning in ("joint_relaxation", "dual_relaxation", "edge_probabilities"):
        with pytest.raises(ValueError, match=f"learning='{learning}' processes single examples in memory"):
            TRWCRF(learning=learning, fit_intercept=False).fit(shards)
    for options in ({"solver": "frank_wolfe"}, {"learning": "joint_margin"}, {"learning": "dual_margin"}):
        with pytest.raises(ValueError, match="processes examples one by one, which Shards do not support"):
            M3NClassifier(**options).fit(shards)
    with pytest.raises(ValueError, match="cost='weighted' is only supported for X and y in memory"):
        M3NClassifier(learning=MaxMargin(cost="weighted")).fit(shards)
    with pytest.raises(ValueError, match="Shards get y and sample_weight from their load function"):
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


# Sets of labelings --------------------------------------------------------------------------------------------------


def test_best_labelings_of_chains_are_those_in_memory():
    """Max-product finds the same labelings from any start, so the random numbers of each shard make no difference."""
    chains, labels = X.reshape(36, 4, 3), Y.reshape(36, 4)
    parts = [(chains[:7], labels[:7]), (chains[7:20], labels[7:20]), (chains[20:], labels[20:])]
    crf = ContrastiveCRF(random_state=0, tol=1e-7)
    in_memory, sharded = clone(crf).fit(chains, labels), clone(crf).fit(Shards.from_arrays(parts))
    np.testing.assert_array_equal(sharded.n_generated_, in_memory.n_generated_)
    np.testing.assert_allclose(weights(sharded), weights(in_memory), atol=1e-5)
    assert in_memory.n_generated_[0] > 0


def test_sets_of_single_examples_go_to_their_shards():
    blocks = [[[0, 1, k], [5, 9]] for k in range(2, 11)]
    flipped = np.concatenate((Y, (Y + 1) % 3))
    given_weight = np.arange(1.0, 10.0)[np.newaxis]
    sets = ContrastiveTraining(init="gpl", generator=None, blocks=blocks, given=[flipped], given_weight=given_weight)
    parts = [(X[:4], Y[:4]), (X[4:6], Y[4:6]), (X[6:], Y[6:])]
    crf = ContrastiveCRF(learning=sets, tol=1e-8)
    in_memory, sharded = clone(crf).fit(X, Y), clone(crf).fit(Shards.from_arrays(parts))
    np.testing.assert_allclose(weights(sharded), weights(in_memory), atol=1e-6)
    assert sharded.n_assignments_ == in_memory.n_assignments_ == 9 * 17


def test_sets_that_do_not_fit_the_shards():
    shards = Shards.from_arrays(PARTS)

    def fit(shards=shards, **options):
        ContrastiveCRF(learning=ContrastiveTraining(**options)).fit(shards)

    with pytest.raises(ValueError, match="blocks holds lists for 2 examples, but X has 9"):
        fit(init="gpl", blocks=[[[0, 1]], [[2]]])
    with pytest.raises(ValueError, match=r"In shard 1: blocks\[5\]\[0\]"):
        fit(init="gpl", blocks=[[[0, 1]]] * 5 + [[[0, 16]]] + [[[0, 1]]] * 3)
    with pytest.raises(ValueError, match=r"given_weight must have shape \(1,\) or \(1, 9\), got \(1, 4\)"):
        fit(given=[Y], given_weight=np.ones((1, 4)))
    with pytest.raises(ValueError, match=r"given\[0\] contains the label 7, which is not one of the classes"):
        fit(given=[np.full((1, 4, 4), 7)])
    sizes = Shards.from_arrays([PARTS[0], (X[4:, :2], Y[4:, :2])])
    with pytest.raises(ValueError, match="init='observed' needs examples with one lattice shape, found labels of"):
        fit(sizes, init="observed")


@pytest.mark.parametrize("generator", [None, "map"])
def test_contrastive_learning_of_shards_with_missing_labels(generator):
    hidden = np.where(np.arange(Y.size).reshape(Y.shape) == 80, -1, Y)
    learning = ContrastiveTraining(generator=generator, max_rounds=1)
    field = ContrastiveCRF(learning=learning, missing_label=-1, pairwise=PairwiseTables(C=0.01), tol=1e-7, C=0.1)
    here = clone(field).set_params(max_iter=1000).fit(X, hidden)
    there = clone(field).set_params(max_iter=1000).fit(Shards.from_arrays([(X[:4], hidden[:4]), (X[4:], hidden[4:])]))
    assert np.isfinite(there.coef_).all()
    if generator is None:
        np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-4)


class Interrupts(Watching, LocalExecutor):
    """An engine in which the user interrupts the second growth of sets."""

    n_growths = 0

    def before(self, function, broadcast):
        arguments = getattr(getattr(broadcast, "step", None), "arguments", ())
        is_growth = "extend_sets" in [getattr(argument, "__name__", "") for argument in arguments]
        self.n_growths += is_growth
        if is_growth and self.n_growths == 2:
            raise KeyboardInterrupt


def test_an_interrupted_fit_keeps_the_weights_of_now():
    crf = clone(ESTIMATORS["contrastive on draws"]).set_params(warm_start=True)
    with pytest.raises(KeyboardInterrupt):
        crf.fit(Shards.from_arrays(PARTS, client=Interrupts))
    assert crf.n_rounds_ == 1
    assert crf.n_iter_ > 1
    assert crf.fit(Shards.from_arrays(PARTS)).n_rounds_ == 3


def test_callbacks_see_every_round_and_may_stop():
    pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")
    recorders, fits = [], []
    for shards in (Shards.from_arrays(PARTS), Shards(range(3), part)):
        recorders.append(Recorder(2))
        fits.append(clone(ESTIMATORS["contrastive on draws"]).set_callbacks(recorders[-1]).fit(shards))
        assert len(recorders[-1].fitted) == 2
        assert fits[-1].n_rounds_ == 1
        assert recorders[-1].fitted[0].predict(X).shape == Y.shape
    np.testing.assert_array_equal(weights(fits[0]), weights(fits[1]))
    np.testing.assert_array_equal(*(weights(recorder.fitted[0]) for recorder in recorders))


def test_nothing_of_the_sets_is_left_after_the_fit():
    shards, crf = Shards(range(3), part), clone(ESTIMATORS["contrastive on draws"])
    crf.fit(shards)
    assert not any(shard.cache or shard.memory for shard in shards._shards)
    assert b"Shard" not in pickle.dumps(crf)


IN_MEMORY_ONLY = {
    "MultiLabelField": MultiLabelField(),
    "DenseCRF": DenseCRF(),
    "TemperatureScaling": TemperatureScaling(TRWCRF()),
    "ClassifierScores": ClassifierScores(LogisticRegression()),
    "NodeTransformer": NodeTransformer(StandardScaler()),
    "FilterBank": FilterBank(),
}


@pytest.mark.parametrize("name", IN_MEMORY_ONLY)
def test_what_needs_arrays_says_so(name):
    with pytest.raises(ValueError, match=r"needs X in memory, got Shards: .* shards.apply\(estimator, method\)"):
        clone(IN_MEMORY_ONLY[name]).fit(Shards.from_arrays(PARTS))


def test_methods_that_need_arrays_say_so():
    shards, crf = Shards.from_arrays(PARTS), TRWCRF(max_iter=3).fit(X, Y)
    needs_memory = pytest.raises(ValueError, match="needs X in memory, got Shards")
    with needs_memory:
        crf.models(shards)
    with needs_memory:
        crf.partial_fit(shards)
    with needs_memory:
        list(shards)
    with needs_memory:
        np.asarray(shards)
    with needs_memory:
        TemperatureScaling(TRWCRF(max_iter=3), cv=2).fit(X, Y).predict(shards)
