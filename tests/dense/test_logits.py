"""Logits of networks, also in memory maps of float16 files: refined, learned from, and passed through a classifier."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from sklearn_crf import TRWCRF, Bilateral, DenseCRF, DenseExample, Spatial, refine
from sklearn_crf.pipeline import make_pipeline
from sklearn_crf.preprocessing import ClassifierScores

KERNELS = [Spatial(1.5), Bilateral(8.0, 20.0)]


def images(n_classes, n_images=4, shape=(12, 14), seed=0):
    """Return float16 logits, colours of bytes, and labels that form columns."""
    rng = np.random.default_rng(seed)
    labels = np.broadcast_to(np.arange(shape[1]) * n_classes // shape[1], (n_images, *shape))
    logits = 3 * np.eye(n_classes)[labels] + 2 * rng.normal(size=(n_images, *shape, n_classes)) + 5
    colours = (labels[..., np.newaxis] * [13, 7, 3] + rng.integers(20, size=(n_images, *shape, 3))) % 256
    return logits.astype(np.float16), colours.astype(np.uint8), labels


def mapped(path, array):
    """Save an array, and return a read-only memory map of the file."""
    np.save(path, array)
    return np.load(path, mmap_mode="r")


def peak_of(function):
    """Return the peak of the memory of arrays during a call, in bytes."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 21, 150])
def test_logits_are_refined_as_their_softmax(n_classes, dtype):
    logits, colours, _ = images(n_classes)
    logits = logits[0].astype(dtype)
    logits[0, 0, 0] = -np.inf
    wanted = refine(softmax(logits.astype(float), axis=-1), colours[0], kernels=KERNELS)
    found = refine(logits, colours[0], kernels=KERNELS, logits=True)
    assert found.dtype == (np.float64 if dtype == np.float64 else np.float32)
    assert_allclose(found, wanted, atol=1e-12 if dtype == np.float64 else 1e-4)
    # A number that is added to all logits of a pixel changes no probability.
    assert_allclose(refine(logits + dtype(3), colours[0], kernels=KERNELS, logits=True), found, atol=0.02)
    logits[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"finite logits, .* at pixel \(0, 0\) the logits are \[nan"):
        refine(logits, colours[0], logits=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4, 5, 1), (3, 4, 5, 1)])
def test_logits_of_one_class_are_refused(shape, dtype):
    logits = np.random.default_rng(0).normal(size=shape).astype(dtype)
    for image in (None, np.zeros(shape[:-1], dtype=np.uint8)):
        with pytest.raises(ValueError, match=r"pass np.concatenate\(\[0 \* l, l\], axis=-1\)"):
            refine(logits, image, logits=True, lattice_ndim=2)
    two = np.concatenate([0 * logits, logits], axis=-1)
    assert refine(two, logits=True, lattice_ndim=2).shape == (*shape[:-1], 2)


@pytest.mark.parametrize("logits", [None, "no", 0, [], np.zeros(2)])
def test_logits_is_a_flag(logits):
    with pytest.raises(ValueError, match="logits must be True or False"):
        refine(np.full((3, 4, 2), 0.5), logits=logits)


@pytest.mark.parametrize("n_classes", [21, 150])
def test_files_are_refined_one_image_at_a_time(n_classes, tmp_path):
    logits, colours, _ = images(n_classes, n_images=12)
    file = mapped(tmp_path / "logits.npy", logits)
    options = {"kernels": KERNELS, "lattice_ndim": 2, "logits": True}
    found = refine(file, colours, **options)
    assert_array_equal(found, refine(logits, colours, **options))
    assert_array_equal(found[3], refine(logits[3], colours[3], kernels=KERNELS, logits=True))
    few, many = (peak_of(lambda n=n: refine(file[:n], colours[:n], **options)) for n in (2, 12))
    # Further images only need memory for their results, and for the stacked results.
    assert many - few < 1.1 * 2 * found[2:].nbytes


@pytest.mark.parametrize("n_classes", [21, 150])
def test_dense_fields_learn_from_files(n_classes, tmp_path):
    logits, colours, labels = images(n_classes, n_images=6)
    files = [mapped(tmp_path / f"{i}.npy", own) for i, own in enumerate(logits)]
    X = [DenseExample(*pair) for pair in zip(files, colours, strict=True)]
    assert all(np.shares_memory(x.scores, file) for x, file in zip(X, files, strict=True))
    assert {x.rows.dtype.name for x in X} == {"float32"}
    field = DenseCRF(KERNELS, max_iter=3, classes=np.arange(n_classes), tol=0.0)
    field.fit(X[:4], labels[:4])
    normalised = [
        DenseExample(log_softmax(own.astype(np.float32), axis=-1), image)
        for own, image in zip(logits, colours, strict=True)
    ]
    wanted = DenseCRF(**field.get_params()).fit(normalised[:4], labels[:4])
    # Scores that are equal for all classes of a pixel have no effect.
    assert_allclose(field.compatibility_, wanted.compatibility_, rtol=1e-2)
    assert field.unary_scale_ == pytest.approx(wanted.unary_scale_, rel=1e-2)
    proba = zip(field.predict_proba(X[4:]), wanted.predict_proba(normalised[4:]), strict=True)
    assert all(np.abs(a - b).max() < 5e-3 for a, b in proba)
    alone = np.mean(logits[4:].argmax(axis=-1) == labels[4:])
    assert field.score(X[4:], labels[4:]) > alone
    # The last axis of an array may also hold scores and colours.
    joined = np.concatenate([logits, colours.astype(np.float16)], axis=-1)
    both = DenseCRF(**field.get_params() | {"color_range": (0, 255)}).fit(
        mapped(tmp_path / "joined.npy", joined[:4]), labels[:4]
    )
    assert_allclose(both.compatibility_, field.compatibility_, rtol=1e-3)


def test_scores_in_files_are_not_kept_in_memory(tmp_path):
    n_classes = 150
    logits, colours, labels = images(n_classes, n_images=8, shape=(24, 24))
    files = [mapped(tmp_path / f"{i}.npy", own) for i, own in enumerate(logits)]

    def fit(n):
        X = [DenseExample(*pair) for pair in zip(files[:n], colours[:n], strict=True)]
        DenseCRF(KERNELS, max_iter=1, classes=np.arange(n_classes)).fit(X, labels[:n])

    fit(2)
    growth = (peak_of(lambda: fit(8)) - peak_of(lambda: fit(2))) / 6
    # Lattices, colours and labels stay in memory, but not the scores, of 4 bytes in float32.
    assert growth < 0.6 * logits[0].size * 4


@pytest.mark.parametrize("n_classes", [3, 21])
def test_classifiers_score_files(n_classes, tmp_path):
    logits, _, labels = images(n_classes, shape=(4, 42))
    rows = logits.reshape(-1, n_classes).astype(float)
    prefit = LogisticRegression(max_iter=20).fit(rows[::3], labels.ravel()[::3])
    files = mapped(tmp_path / "all.npy", logits.reshape(-1, 42, n_classes))
    for estimator, cv in ((prefit, "prefit"), (LogisticRegression(max_iter=20), 2)):
        scores = ClassifierScores(estimator, cv=cv)
        found = make_pipeline(scores, TRWCRF(max_iter=5, tol=1.0)).fit(files, labels.reshape(-1, 42))
        given = np.asarray(files, dtype=np.float64)
        wanted = make_pipeline(scores, TRWCRF(max_iter=5, tol=1.0)).fit(given, labels.reshape(-1, 42))
        assert_allclose(found[-1].coef_, wanted[-1].coef_, atol=1e-3)
        assert np.mean(found.predict(files) == wanted.predict(given)) > 0.99
    # Logits need no classifier: a field learns how far to trust them.
    alone, of_array = (TRWCRF(max_iter=5, tol=1.0).fit(own, labels.reshape(-1, 42)) for own in (files, given))
    assert_allclose(alone.coef_, of_array.coef_, atol=1e-10)
    assert alone.score(files, labels.reshape(-1, 42)) > np.mean(logits.argmax(axis=-1) == labels)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_define_no_probabilities_are_named(value):
    logits = np.zeros((3, 4, 2), np.float32)
    logits[1, 2] = -np.inf, 0.0  # an impossible class
    assert np.isfinite(refine(logits, logits=True)).all()
    logits[2, 1, 0] = value
    with pytest.raises(ValueError, match=r"finite logits, or -inf for impossible classes, but at pixel \(2, 1\)"):
        refine(logits, logits=True)
