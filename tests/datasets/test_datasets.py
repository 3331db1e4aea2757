"""Generators are what they say; loaders read the layout they ask for."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import label
from scipy.stats import kstest, norm
from sklearn.datasets import load_digits

from sklearn_crf import Example, datasets
from sklearn_crf.encoding import encode_X, encode_y

SHAPES = datasets.make_binary_shapes()
DATA = os.environ.get("SKLEARN_CRF_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="SKLEARN_CRF_DATA does not name the folder of the data sets")


# -- Shapes ---------------------------------------------------------------------------------------


def test_shapes_are_binary_and_differ():
    assert SHAPES.images.shape == (4, 64, 64)
    assert set(np.unique(SHAPES.images)) == {0, 1}
    share = SHAPES.images.mean(axis=(1, 2))
    assert np.all((share > 0.1) & (share < 0.5))
    assert np.array_equal(SHAPES.images, datasets.make_binary_shapes().images)
    assert len({image.tobytes() for image in SHAPES.images}) == 4


@pytest.mark.parametrize("image", SHAPES.images, ids=SHAPES.names)
def test_shapes_have_fine_structure(image):
    # Many pixels on a border, thin parts that a 3 x 3 square does not fit into, and closed or narrow background.
    differ = (image[1:] != image[:-1]).sum() + (image[:, 1:] != image[:, :-1]).sum()
    assert differ > 0.3 * image.sum()
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, 2), (3, 3))
    fits = windows.all(axis=(2, 3))
    covered = np.lib.stride_tricks.sliding_window_view(np.pad(fits, 0), (3, 3)).any(axis=(2, 3))
    assert (image.astype(bool) & ~covered).sum() > 30


def test_shapes_have_small_holes():
    n_holes = [label(image == 0)[1] - 1 for image in SHAPES.images]
    assert sum(n_holes) > 20


@pytest.mark.parametrize("noise", ["gaussian", "bimodal"])
def test_noisy_shapes(noise):
    X, y, names = datasets.make_noisy_shapes(noise, 3, random_state=0)
    assert X.shape == (12, 64, 64, 1)
    assert (X.dtype, y.dtype) == (np.float64, np.int64)
    assert names.tolist() == [name for name in SHAPES.names for _ in range(3)]
    assert np.array_equal(y[::3], SHAPES.images)
    assert np.array_equal(X, datasets.make_noisy_shapes(noise, 3, random_state=0)[0])
    assert not np.array_equal(X[0], X[1])
    assert encode_X(X).lattice_ndim == 2


def test_gaussian_noise():
    X, y, _ = datasets.make_noisy_shapes("gaussian", 5, random_state=1)
    assert kstest((X[..., 0] - y).ravel(), norm(0, 0.3).cdf).pvalue > 1e-3


def test_bimodal_noise():
    X, y, _ = datasets.make_noisy_shapes("bimodal", 5, random_state=1)
    components = {0: [(0.08, 0.03), (0.46, 0.03)], 1: [(0.55, 0.02), (0.42, 0.10)]}
    for state, parts in components.items():

        def mixture(x, parts=parts):
            return np.mean([norm(*part).cdf(x) for part in parts], axis=0)

        assert kstest(X[..., 0][y == state], mixture).pvalue > 1e-3


def test_chosen_shapes():
    X, y, names = datasets.make_noisy_shapes(n_per_shape=2, shapes=["gear"], random_state=0)
    assert X.shape == (2, 64, 64, 1)
    assert np.array_equal(y[1], SHAPES.images[2])
    assert names.tolist() == ["gear", "gear"]


@pytest.mark.parametrize(
    "options", [{"noise": "salt"}, {"shapes": ["square"]}, {"shapes": []}, {"n_per_shape": 0}], ids=str
)
def test_bad_options_of_shapes(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        datasets.make_noisy_shapes(**options)


# -- Digits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1, 3])
def test_noisy_digits(scale):
    X, y, digits = datasets.make_noisy_digits(20, scale=scale, random_state=0)
    assert X.shape == (20, 8 * scale, 8 * scale, 1)
    assert y.shape == (20, 8 * scale, 8 * scale)
    assert np.array_equal(digits, load_digits().target[:20])
    assert 0.05 < np.mean(X[..., 0] != y) < 0.15
    small = datasets.make_noisy_digits(20, random_state=0)[1]
    assert np.array_equal(small, load_digits().images[:20] >= 8)
    blocks = y.reshape(20, 8, scale, 8, scale).mean(axis=(2, 4))
    assert np.mean((blocks >= 0.5) == small) > 0.95


def test_gaussian_digits_and_levels():
    X, y, _ = datasets.make_noisy_digits(50, noise="gaussian", level=0.2, random_state=0)
    assert kstest((X[..., 0] - y).ravel(), norm(0, 0.2).cdf).pvalue > 1e-3
    X, y, _ = datasets.make_noisy_digits(5, level=0.0)
    assert np.array_equal(X[..., 0], y)
    assert len(datasets.make_noisy_digits()[0]) == 1797


@pytest.mark.parametrize(
    "options",
    [{"noise": "salt"}, {"level": -0.1}, {"level": 1.1}, {"scale": 0}, {"scale": 1.5}, {"n_samples": 0}],
    ids=str,
)
def test_bad_options_of_digits(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        datasets.make_noisy_digits(**options)


# -- Loaders, on small files of the same layout ----------------------------------------------------

RNG = np.random.default_rng(0)
SIZES = {"one": (3, 4), "two": (5, 2)}


def write(folder, name, **arrays):
    np.savez(folder / f"{name}.npz", **arrays)


def per_image(values, trailing=(), dtype=np.uint8):
    return {key: RNG.choice(values, size=(*size, *trailing)).astype(dtype) for key, size in SIZES.items()}


def test_horses(tmp_path):
    gray, mask = per_image(range(256)), per_image([0, 1])
    write(tmp_path, "gray", **gray)
    write(tmp_path, "mask", **mask)
    horses = datasets.load_weizmann_horses(tmp_path, n_train=1)
    assert horses.names == ["one", "two"]
    assert np.array_equal(horses.data[0][..., 0], gray["one"])
    assert np.array_equal(horses.target[1], mask["two"])
    assert (horses.train.tolist(), horses.test.tolist()) == ([0], [1])
    encode_y(horses.target, encode_X(horses.data))


def test_grabcut(tmp_path):
    trimap = per_image([0, 128, 255])
    write(tmp_path, "images", **per_image(range(256), (3,)))
    write(tmp_path, "trimap", **trimap)
    marks = [per_image([0, 1, 2]), per_image([0, 1, 2])]
    write(tmp_path, "scribbles1", **marks[0])
    write(tmp_path, "scribbles2", **marks[1])
    for which, name in enumerate(("few", "more")):
        bunch = datasets.load_grabcut(str(tmp_path), scribbles=name)
        assert np.array_equal(bunch.scribbles[0], marks[which]["one"].astype(int) - 1)
    assert bunch.data[1].shape == (5, 2, 3)
    assert np.array_equal(bunch.target[1] == 1, trimap["two"] == 255)
    assert np.array_equal(bunch.target[1] == -1, trimap["two"] == 128)
    encode_y(bunch.scribbles, encode_X(bunch.data), missing_label=-1)
    with pytest.raises(ValueError, match="scribbles"):
        datasets.load_grabcut(tmp_path, scribbles="many")


def test_camvid(tmp_path):
    labels = RNG.integers(12, size=(2, 4, 5)).astype(np.uint8)
    images = RNG.integers(256, size=(2, 4, 5, 3)).astype(np.uint8)
    write(tmp_path, "camvid_val", images=images, labels=labels, ids=np.array(["a", "b"]))
    bunch = datasets.load_camvid(tmp_path, subset="val")
    assert np.array_equal(bunch.target, np.where(labels == 11, -1, labels.astype(int)))
    assert np.array_equal(bunch.data, images)
    assert bunch.names == ["a", "b"]
    assert len(bunch.target_names) == 11
    with pytest.raises(ValueError, match="subset"):
        datasets.load_camvid(tmp_path, subset="all")


def test_superpixels(tmp_path):
    for name, arrays in {
        "features": {key: RNG.random((3, 519)).astype(np.float16) for key in SIZES},
        "edges": {key: np.array([[0, 1], [1, 2]], dtype=np.uint16) for key in SIZES},
        "segment_labels": {key: np.array([0, 7, -1], dtype=np.int8) for key in SIZES},
        "superpixels": per_image(range(3), dtype=np.uint16),
        "pixel_labels": per_image(range(8), dtype=np.int8),
    }.items():
        write(tmp_path, name, **arrays)
    bunch = datasets.load_stanford_superpixels(tmp_path)
    assert isinstance(bunch.data[0], Example)
    assert bunch.data[0].node_features.dtype == np.float32
    assert bunch.data[1].edges.tolist() == [[0, 1], [1, 2]]
    assert encode_y(bunch.target, encode_X(bunch.data), missing_label=-1).classes_.tolist() == [0, 7]
    assert bunch.superpixels[0].shape == SIZES["one"]


def test_letters(tmp_path):
    write(
        tmp_path,
        "ocr_letters",
        images=RNG.integers(2, size=(5, 16, 8)).astype(np.uint8),
        labels=np.array([0, 1, 2, 25, 0], dtype=np.uint8),
        word_ptr=np.array([0, 2, 5], dtype=np.int32),
        fold0=np.array([False, True]),
    )
    bunch = datasets.load_ocr_letters(tmp_path)
    assert ["".join(word) for word in bunch.target] == ["ab", "cza"]
    assert [word.shape for word in bunch.data] == [(2, 128), (3, 128)]
    assert (bunch.train.tolist(), bunch.test.tolist()) == ([1], [0])


def test_snakes(tmp_path):
    arrays = {}
    for name in ("train_000", "train_001", "test_000"):
        arrays[f"{name}_image"] = RNG.integers(2, size=(4, 5, 3)).astype(np.uint8) * 255
        arrays[f"{name}_label"] = RNG.integers(11, size=(4, 5)).astype(np.uint8)
    write(tmp_path, "snakes", **arrays)
    train, test = (datasets.load_snakes(tmp_path, subset=subset) for subset in ("train", "test"))
    assert (len(train.data), len(test.data)) == (2, 1)
    assert np.array_equal(train.target[1], arrays["train_001_label"])
    assert train.data.shape == (2,)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gray\.npz"):
        datasets.load_weizmann_horses(tmp_path)
    write(tmp_path, "gray", **per_image(range(256)))
    write(tmp_path, "mask", one=np.zeros((3, 4), dtype=np.uint8))
    with pytest.raises(ValueError, match="no array 'two'"):
        datasets.load_weizmann_horses(tmp_path)


# -- Loaders, on the real files -------------------------------------------------------------------


@needs_data
def test_real_files():
    root = Path(DATA)
    horses = datasets.load_weizmann_horses(root / "weizmann_horses")
    assert (len(horses.train), len(horses.test)) == (200, 128)
    assert all(x.shape[:2] == y.shape for x, y in zip(horses.data, horses.target, strict=True))
    assert len(datasets.load_grabcut(root / "grabcut").data) == 50
    assert datasets.load_camvid(root / "camvid", subset="val").data.shape == (101, 90, 120, 3)
    scenes = datasets.load_stanford_superpixels(root / "stanford_superpixels")
    assert sum(x.n_nodes for x in scenes.data) == 48_402
    letters = datasets.load_ocr_letters(root / "ocr_letters")
    assert (len(letters.train), len(letters.test)) == (626, 6251)
    snakes = datasets.load_snakes(root / "snakes")
    assert len(snakes.data) == 200
    for x, y in zip(snakes.data, snakes.target, strict=True):
        assert x.shape[:2] == y.shape
