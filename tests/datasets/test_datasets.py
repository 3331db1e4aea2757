"""Generated data match their docstrings."""

import numpy as np
import pytest
from scipy.ndimage import label
from scipy.stats import kstest, norm
from sklearn.datasets import load_digits

from sklearn_crf import datasets
from sklearn_crf.encoding import encode_X

SHAPES = datasets.make_binary_shapes()


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
    # Shapes have many border pixels, parts too thin for a 3 x 3 square, and closed or narrow areas of background.
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
