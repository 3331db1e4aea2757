"""Tree fields trained on shards: equal to training in memory up to rounding, and bitwise equal from disk."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from small_shards import Watching, images, leaves

from sklearn_crf import RegressionTreeField, RegressionTreeFieldClassifier, Shards
from sklearn_crf.distributed import LocalExecutor
from sklearn_crf.rtf import Blur, Downsampling, FieldSolver, GaussianNoise, MissingPixels, Splits, Window

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X, Y = (np.concatenate(part) for part in zip(*(images(seed) for seed in range(3)), strict=True))
CUTS = [slice(0, 2), slice(2, 3), slice(3, 9)]
# Inputs that differ by 1e-6 lead to losses that differ by at most 3e-4 after three iterations, but by 2e-3 after four.
SMALL = {"random_state": 0, "max_iter": 3}

FIELDS = {
    "mse": RegressionTreeField(max_depth=2, **SMALL),
    "pseudolikelihood": RegressionTreeField("pseudolikelihood", max_depth=1, window=1, **SMALL),
    "likelihood": RegressionTreeField("likelihood", max_depth=0, **SMALL),
    "parts of images": RegressionTreeField(
        max_depth=1, solver=FieldSolver(max_samples=500, early_stopping=False, shrinkage=10.0), **SMALL
    ),
    "early stopping": RegressionTreeField(max_depth=1, solver=FieldSolver(early_stopping=True), **SMALL),
    "residuals": RegressionTreeField(max_depth=1, split="residual", **SMALL),
    "few factors for splits": RegressionTreeField(max_depth=1, split=Splits(max_samples=300), **SMALL),
    "precision channels": RegressionTreeField(
        "mae", filter_bank=None, window=Window(precision_channels=[1]), max_depth=1, **SMALL
    ),
}
OF_CLEAN = {
    "noise": RegressionTreeField(corruption=GaussianNoise(0.3), max_depth=1, **SMALL),
    "gaps": RegressionTreeField(corruption=MissingPixels(0.2), max_depth=0, **SMALL),
    "blur": RegressionTreeField(
        degradation=[Blur(np.ones((3, 3)) / 9, 0.1), Blur(np.ones((1, 3)) / 3, 0.1)], max_depth=1, **SMALL
    ),
}
# Each shard draws its own factors for splits.
DRAWN = ("few factors for splits",)


def parts_of(*arrays):
    return [tuple(None if array is None else array[cut] for array in arrays) for cut in CUTS]


@pytest.mark.parametrize("name", [*FIELDS, *OF_CLEAN])
def test_as_in_memory_and_the_same_bits_from_disk(name):
    field = (FIELDS | OF_CLEAN)[name]
    inputs, targets = (Y, None) if name in OF_CLEAN else (X, Y)
    if name == "precision channels":
        inputs = np.concatenate([X, np.abs(X)], axis=3)
    in_memory = clone(field).fit(inputs, targets)
    parts = parts_of(inputs, targets)
    held = clone(field).fit(Shards.from_arrays(parts))
    loaded = clone(field).fit(Shards(range(3), parts.__getitem__))
    assert_array_equal(leaves(loaded), leaves(held))
    assert_array_equal(loaded.loss_curve_, held.loss_curve_)
    assert held.validation_curve_.shape == in_memory.validation_curve_.shape
    if name not in DRAWN:
        assert_allclose(held.loss_curve_, in_memory.loss_curve_, rtol=2e-3)
        assert_allclose(held.loss_curve_[:3], in_memory.loss_curve_[:3], rtol=1e-5)
    assert held.validation_curve_.size or any(len(tree["leaf"]) > 1 for tree in held.trees_) == (field.max_depth > 0)


@pytest.mark.parametrize("loss", ["multinomial", "mse", "pseudolikelihood"])
def test_labels_of_images(loss):
    labels = (3 * Y).astype(int)
    # The second shard has a single class.
    labels[2] = labels[0, 0, 0]
    field = RegressionTreeFieldClassifier(loss, max_depth=1, **SMALL)
    in_memory = clone(field).fit(X, labels)
    parts = parts_of(X, labels)
    held = clone(field).fit(Shards.from_arrays(parts))
    loaded = clone(field).fit(Shards(range(3), parts.__getitem__))
    assert_array_equal(leaves(loaded), leaves(held))
    assert_array_equal(held.classes_, in_memory.classes_)
    assert_allclose(held.loss_curve_[:3], in_memory.loss_curve_[:3], rtol=1e-5)
    shards = Shards.from_arrays(parts)
    assert_array_equal(np.concatenate(held.predict(shards)), held.predict(X))
    assert held.score(shards) == pytest.approx(held.score(X, labels))
    if loss == "multinomial":
        assert_array_equal(np.concatenate(held.predict_proba(shards)), held.predict_proba(X))
        assert_array_equal(np.concatenate(held.predict_log_proba(shards)), held.predict_log_proba(X))


@pytest.mark.parametrize("class_weight", ["balanced", {0: 3.0}])
@pytest.mark.parametrize("loss", ["multinomial", "pseudolikelihood", "likelihood"])
def test_weights_of_classes_are_those_of_all_shards(loss, class_weight):
    labels = (3 * Y).astype(int)
    # The second shard has a single class.
    labels[2] = labels[0, 0, 0]
    field = RegressionTreeFieldClassifier(loss, class_weight=class_weight, **SMALL | {"max_depth": 0})
    for weight in (None, np.arange(1.0, 10.0)):
        held = clone(field).fit(Shards.from_arrays(parts_of(X, labels, weight)))
        in_memory = clone(field).fit(X, labels, weight)
        assert_allclose(held.loss_curve_, in_memory.loss_curve_, rtol=1e-5)
        assert_array_equal(held.decision_weight_, in_memory.decision_weight_)
        counts = np.bincount(labels.ravel(), None if weight is None else np.repeat(weight, Y[0].size))
        given = dict(enumerate((counts.sum() / (3 * counts)).tolist())) if class_weight == "balanced" else class_weight
        by_hand = clone(field).set_params(class_weight=given).fit(Shards.from_arrays(parts_of(X, labels, weight)))
        assert_array_equal(leaves(held), leaves(by_hand))
        whole = clone(field).fit(Shards.from_arrays([(X, labels, weight)]))
        assert_array_equal(leaves(whole), leaves(in_memory))
    with pytest.raises(ValueError, match="class_weight contains the class 9"):
        clone(field).set_params(class_weight={9: 1.0}).fit(Shards.from_arrays(parts_of(X, labels)))


def test_rows_and_chains_are_weighted_as_in_memory():
    rows, targets = X.reshape(-1, 8)[:90], Y.reshape(-1, 8)[:90, 0]
    chains, values = X.reshape(9, 16, 16)[..., :2], Y[:, :, 0]
    weight = np.arange(1.0, 91.0)
    for inputs, y, w in ((rows, targets, None), (rows, targets, weight), (chains, values, weight[:9])):
        field = RegressionTreeField(max_depth=1, **SMALL)
        cut = [np.split(part, [len(y) // 9, len(y) // 3]) for part in (inputs, y, w) if part is not None]
        parts = list(zip(*cut, strict=True))
        held = clone(field).fit(Shards.from_arrays(parts))
        assert_allclose(held.loss_curve_[:3], clone(field).fit(inputs, y, w).loss_curve_[:3], rtol=1e-5)


def test_predictions_and_scores():
    field = RegressionTreeField("pseudolikelihood", max_depth=0, **SMALL)
    shards = Shards.from_arrays(parts_of(X, Y, np.arange(1.0, 10.0)))
    field.fit(shards)
    assert_array_equal(np.concatenate(field.predict(shards)), field.predict(X))
    assert field.predict(shards, return_std=True)[0][1].shape == (2, 16, 16)
    assert field.score(shards) == pytest.approx(field.score(X, Y, np.arange(1.0, 10.0)))
    lazily = shards.apply_lazily(field)
    assert_array_equal(next(lazily), field.predict(X[:2]))
    assert_array_equal(np.concatenate(list(lazily)), field.predict(X[2:]))


def test_training_goes_on_from_the_last_field():
    parts = parts_of(X, Y)
    field = RegressionTreeField(max_depth=0, filter_bank=None, warm_start=True, **SMALL)
    for shards in (Shards.from_arrays(parts), Shards(range(3), parts.__getitem__)):
        warm = clone(field).fit(shards)
        first = warm.loss_curve_[-1]
        warm.set_params(max_depth=1).fit(shards)
        assert warm.loss_curve_[-1] < first
        assert len(warm.trees_[0]["leaf"]) == 3


def test_downsampled_images():
    small = Y.reshape(9, 8, 2, 8, 2).mean(axis=(2, 4))[..., np.newaxis]
    field = RegressionTreeField(degradation=Downsampling(2, 0.1), max_depth=0, **SMALL)
    held = clone(field).fit(Shards.from_arrays(parts_of(small, Y)))
    assert_allclose(held.loss_curve_, clone(field).fit(small, Y).loss_curve_, rtol=1e-5)


def test_missing_pixels_and_targets():
    gaps = np.where(np.arange(X.size).reshape(X.shape) % 97 == 5, np.nan, X)
    gaps[3:] = X[3:]
    unknown = np.where(np.arange(Y.size).reshape(Y.shape) % 89 == 5, np.nan, Y)
    for loss in ("mse", "pseudolikelihood"):
        field = RegressionTreeField(loss, max_depth=0, **SMALL)
        in_memory, held = clone(field).fit(gaps, unknown), clone(field).fit(Shards.from_arrays(parts_of(gaps, unknown)))
        assert_array_equal(held.missing_channels_, in_memory.missing_channels_)
        assert_allclose(held.loss_curve_[:3], in_memory.loss_curve_[:3], rtol=1e-5)


class LosesShards(Watching, LocalExecutor):
    """An engine that drops the state of shards in some calls, and repeats others."""

    n_calls = 0

    def before(self, function, broadcast):
        self.n_calls += 1
        if self.n_calls % 7 == 3:
            for shard in self.shards[1:]:
                shard.cache.clear()
                shard.memory.clear()
        if self.n_calls % 5 == 1:
            LocalExecutor.map(self, function, broadcast)


@pytest.mark.parametrize("name", ["mse", "pseudolikelihood", "parts of images"])
def test_lost_shards_leave_no_trace(name):
    parts = parts_of(X, Y)
    whole = clone(FIELDS[name]).fit(Shards.from_arrays(parts))
    moved = clone(FIELDS[name]).fit(Shards.from_arrays(parts, client=LosesShards))
    assert_array_equal(leaves(moved), leaves(whole))


def test_what_takes_no_shards_says_so():
    shards = Shards.from_arrays(parts_of(X, Y))
    with pytest.raises(ValueError, match="cascade is not supported with Shards"):
        RegressionTreeField(cascade=2).fit(shards)
    with pytest.raises(ValueError, match=r"use FieldSolver\(max_samples=None\)"):
        RegressionTreeField("pseudolikelihood", solver=FieldSolver(max_samples=100)).fit(shards)
    with pytest.raises(ValueError, match="one degradation for each image, which Shards do not support"):
        RegressionTreeField(degradation=[Blur(np.ones((3, 3)) / 9, 0.1)]).fit(shards)
    with pytest.raises(ValueError, match="Shards get y and sample_weight from their load function"):
        RegressionTreeField().fit(shards, Y)
    rows = Shards.from_arrays([(X.reshape(-1, 8), Y.reshape(-1, 8)[:, 0])])
    with pytest.raises(ValueError, match="early_stopping=False"):
        RegressionTreeField(solver=FieldSolver(early_stopping=True)).fit(rows)
    with pytest.raises(ValueError, match=r"In shard 1: y\[0\] has shape"):
        RegressionTreeField().fit(Shards.from_arrays([(X[:1], Y[:1]), (X[1:2], Y[1:2, :3])]))
    with pytest.raises(ValueError, match="shard 0 has 1, shard 1 has 2"):
        RegressionTreeField().fit(Shards.from_arrays([(X[:1], Y[:1]), (np.repeat(X[:1], 2, axis=3), Y[:1])]))
