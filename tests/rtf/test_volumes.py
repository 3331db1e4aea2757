"""Tree fields on volumes: shapes, defaults, features of images, and images as volumes of one slice."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import gaussian_filter
from sklearn.base import clone

from sklearn_crf import RegressionTreeField, RegressionTreeFieldClassifier, Shards
from sklearn_crf.inference import GaussianDirect
from sklearn_crf.rtf import FieldSolver, GaussianNoise, MissingPixels, Window

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

QUICK = {"filter_bank": None, "max_depth": 1, "max_iter": 5, "random_state": 0}


def boxes(n, side, seed):
    """Return volumes (n, D, H, W) of boxes of random grey."""
    rng = np.random.default_rng(seed)
    volumes = np.zeros((n, side, side, side))
    for volume in volumes:
        for _ in range(5):
            corner, size = rng.integers(0, side // 2, 3), rng.integers(side // 4, side // 2, 3)
            volume[tuple(slice(c, c + s) for c, s in zip(corner, size, strict=True))] = rng.uniform(0.2, 1)
    return volumes


CLEAN = boxes(6, 12, 0)
NOISY = CLEAN + 0.3 * np.random.default_rng(1).normal(size=CLEAN.shape)
X = NOISY[..., None]


def error(found, truth):
    return np.mean([np.mean((a - b) ** 2) for a, b in zip(found, truth, strict=True)])


def test_defaults_are_quick_and_better_than_a_gaussian_filter():
    clean = boxes(8, 20, 2)
    noisy = clean + 0.3 * np.random.default_rng(3).normal(size=clean.shape)
    field = RegressionTreeField(random_state=0).fit(noisy[:6, ..., None], clean[:6])
    filtered = min(error([gaussian_filter(v, s) for v in noisy[6:]], clean[6:]) for s in (0.5, 0.7, 0.9, 1.1, 1.3))
    assert error(field.predict(noisy[6:, ..., None]), clean[6:]) < 0.5 * filtered
    assert field.lattice_ndim_ == 3
    assert field.offsets_.shape == (13, 3)
    assert field.filter_bank_ is not None


@pytest.mark.parametrize("has_channels", [False, True])
def test_lists_and_arrays_keep_their_shapes(has_channels):
    y = CLEAN[..., None] if has_channels else CLEAN
    field = RegressionTreeField(**QUICK).fit(X, y)
    found = field.predict(X)
    assert found.shape == y.shape
    assert_array_equal(np.stack(list(field.predict(list(X)))), found)
    ragged = [X[0], X[1][:5, :7, :6]]
    again = RegressionTreeField(**QUICK).fit(ragged, [y[0], y[1][:5, :7, :6]])
    assert [own.shape for own in again.predict(ragged)] == [y[0].shape, y[1][:5, :7, :6].shape]
    assert field.predict(X.astype(np.float32)).dtype == found.dtype
    assert_array_equal(pickle.loads(pickle.dumps(field)).predict(X), found)
    with pytest.raises(ValueError, match="6 volumes without an axis of channels"):
        field.predict(NOISY)


def test_labels_of_volumes():
    labels = (CLEAN > 0).astype(int)
    blurred = labels[..., None] + np.random.default_rng(5).normal(size=(*labels.shape, 1))
    field = RegressionTreeFieldClassifier(max_depth=1, random_state=0).fit(blurred[:4], labels[:4])
    assert field.predict(blurred[4:]).shape == labels[4:].shape
    alone = RegressionTreeFieldClassifier(window=1, max_depth=0, random_state=0).fit(blurred[:4], labels[:4])
    assert field.score(blurred[4:], labels[4:]) > alone.score(blurred[4:], labels[4:]) + 0.1
    assert field.predict_proba(blurred[4:]).shape == (*labels[4:].shape, 2)


def test_a_volume_of_one_slice_is_an_image():
    offsets = np.array([[0, 1], [1, 0], [1, -1]])
    options = QUICK | {"loss": "pseudolikelihood", "max_depth": 0, "clip": None, "max_iter": 1000, "tol": 1e-6}
    of_image = RegressionTreeField(window=offsets, **options).fit(X[:, 3], CLEAN[:, 3])
    volumes = np.hstack([np.zeros((3, 1), dtype=int), offsets])
    of_volume = RegressionTreeField(window=volumes, **options).fit(X[:, 3:4], CLEAN[:, 3:4])
    assert_allclose(of_volume.predict(X[:, 3:4])[:, 0], of_image.predict(X[:, 3]), atol=1e-3)


def test_axes_in_another_order_are_another_order_of_offsets():
    options = QUICK | {"loss": "pseudolikelihood", "max_depth": 0, "clip": None, "max_iter": 300, "tol": 1e-6}
    offsets = np.array([[1, 0, 0], [0, 2, 0], [0, 0, 1]])
    found = RegressionTreeField(window=offsets, **options).fit(X, CLEAN).predict(X)
    turned = RegressionTreeField(window=offsets[:, [2, 0, 1]], **options)
    turned.fit(X.transpose(0, 3, 1, 2, 4), CLEAN.transpose(0, 3, 1, 2))
    assert_allclose(turned.predict(X.transpose(0, 3, 1, 2, 4)), found.transpose(0, 3, 1, 2), atol=2e-3)


def test_deviations_and_samples():
    field = RegressionTreeField("pseudolikelihood", **QUICK).fit(X, CLEAN)
    small = X[:2, :5, :6, :4]
    mean, deviation = field.predict(small, return_std=True)
    exact = [GaussianDirect().marginals(model) for model in field.models(small)]
    of_exact = np.stack([np.sqrt(own.covariance[:, 0, 0]).reshape(5, 6, 4) for own in exact])
    assert_allclose(deviation, of_exact, rtol=1e-4)
    drawn = field.sample(small, 2000, random_state=0)
    assert drawn.shape == (2000, *mean.shape)
    assert_allclose(drawn.std(axis=0), deviation, rtol=0.2)
    # Volumes of more than 4096 values are sampled by Gibbs.
    large = np.tile(X[:1], (1, 2, 2, 1, 1))
    assert field.sample(large, random_state=0).shape == (1, 1, 24, 24, 12)
    held_out = RegressionTreeField(**QUICK, solver=FieldSolver(early_stopping=True)).fit(X, CLEAN)
    assert held_out.predict(X, return_std=True)[1].shape == CLEAN.shape


def test_missing_voxels_are_filled_and_known_ones_kept():
    rng = np.random.default_rng(0)
    z, y, x = np.meshgrid(*[np.arange(10.0)] * 3, indexing="ij")
    smooth = [np.sin((a * z + b * y + c * x) / 10) for a, b, c in rng.normal(size=(6, 3))]
    given = [np.where(rng.random(v.shape) < 0.5, np.nan, v)[..., None] for v in smooth]
    field = RegressionTreeField(random_state=0).fit(given[:4], smooth[:4])
    assert field.keeps_known_
    for found, own, truth in zip(field.predict(given[4:]), given[4:], smooth[4:], strict=True):
        known = ~np.isnan(own[..., 0])
        assert_allclose(found[known], truth[known], atol=1e-6)
        assert np.mean((found - truth)[~known] ** 2) < 0.02 * truth.var()
    # Missing values of y do not contribute to the loss.
    gaps = np.where(rng.random(CLEAN.shape) < 0.3, np.nan, CLEAN)
    partly = RegressionTreeField(**QUICK).fit(X, gaps)
    assert error(partly.predict(X), CLEAN) < error(NOISY, CLEAN)
    evidence = np.where(rng.random(CLEAN.shape) < 0.5, CLEAN, np.nan)
    assert_allclose(field_given(evidence)[~np.isnan(evidence)], evidence[~np.isnan(evidence)], atol=1e-5)


def field_given(evidence):
    field = RegressionTreeField("pseudolikelihood", **QUICK | {"clip": None}).fit(X, CLEAN)
    return field.predict(X, evidence=evidence)


def test_fresh_corruptions_of_clean_volumes():
    field = RegressionTreeField(corruption=GaussianNoise(0.3), **QUICK).fit(CLEAN[..., None])
    assert error(field.predict(X)[..., 0], CLEAN) < 0.5 * error(NOISY, CLEAN)
    sure = RegressionTreeField(corruption=GaussianNoise(0.1, 0.5, level_channel=True), **QUICK).fit(CLEAN[..., None])
    assert sure.n_features_in_ == 2
    filled = RegressionTreeField(corruption=MissingPixels(0.4), **QUICK).fit(CLEAN[..., None])
    assert filled.missing_channels_.tolist() == [0]


def test_parts_of_volumes_and_early_stopping():
    solver = FieldSolver(max_samples=3000, early_stopping=True)
    field = RegressionTreeField(**QUICK, solver=solver).fit(X, CLEAN)
    assert len(field.validation_curve_) >= 1
    assert error(field.predict(X), CLEAN) < error(NOISY, CLEAN)
    wide = np.concatenate([X, X, X], axis=3)[:2]
    strips = RegressionTreeField(**QUICK, solver=solver).fit(wide, np.concatenate([CLEAN] * 3, axis=3)[:2])
    assert len(strips.validation_curve_) >= 1
    for loss in ("pseudolikelihood", "mse"):
        some = RegressionTreeField(loss, **QUICK, solver=FieldSolver(max_samples=2000)).fit(X, CLEAN)
        assert error(some.predict(X), CLEAN) < error(NOISY, CLEAN)


def test_threads_shards_and_warm_starts():
    field = RegressionTreeField(**QUICK).fit(X, CLEAN)
    assert_array_equal(RegressionTreeField(**QUICK, n_jobs=3).fit(X, CLEAN).predict(X), field.predict(X))
    parts = [(X[:2], CLEAN[:2]), (X[2:], CLEAN[2:])]
    held = RegressionTreeField(**QUICK).fit(Shards.from_arrays(parts))
    assert_allclose(held.loss_curve_[:3], field.loss_curve_[:3], rtol=1e-5)
    deeper = clone(field).set_params(warm_start=True, max_depth=1).fit(X, CLEAN).set_params(max_depth=2).fit(X, CLEAN)
    assert max(tree["test"].shape[1] for tree in deeper.trees_) == 9


def test_what_volumes_do_not_have():
    with pytest.raises(ValueError, match="loss='ssim' supports only images, but X holds volumes"):
        RegressionTreeField("ssim", **QUICK).fit(X, CLEAN)
    with pytest.raises(ValueError, match="window joins voxels"):
        RegressionTreeField(window=[[0, 0, 30]], **QUICK).fit(X, CLEAN)
    with pytest.raises(ValueError, match=r"corruption must return finite images of 12 x 12 x 12 pixels"):
        RegressionTreeField(corruption=lambda image, rng: image[:3], **QUICK).fit(CLEAN[..., None])
    with pytest.raises(ValueError, match="or one volume with 1 channels"):
        RegressionTreeField(**QUICK).fit(X, CLEAN).predict(X[:, 0])
    assert RegressionTreeField(**QUICK, window=Window(1, lattice_ndim=3)).fit(X, CLEAN).lattice_ndim_ == 3
