"""Images and parameters of any magnitude: results are finite, or an error names the argument."""

import numpy as np
import pytest
from fitted_transformers import IMAGE_TRANSFORMERS, arrays_of
from sklearn.base import clone
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf.preprocessing import FilterBank, PatchAverages, PatchGroups, PatchShrinkage
from sklearn_crf.preprocessing._tuning import LARGEST_PIXEL, SMALLEST_BANDWIDTH, SMALLEST_NOISE


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", IMAGE_TRANSFORMERS)
def test_channels_are_finite_up_to_the_largest_pixel(name, dtype):
    transformer, (X, *y) = IMAGE_TRANSFORMERS[name]
    for magnitude in (1e-300, 1e-40, 1.0, LARGEST_PIXEL):
        images = (0.9 * magnitude * X / np.abs(X).max()).astype(dtype)
        if magnitude < 1e-30 and "Overlays" in name:
            continue  # has no window with contrast
        for array in arrays_of(clone(transformer).fit(images, *y).transform(images)):
            assert np.isfinite(array).all(), magnitude


@pytest.mark.parametrize("value", [1e16, -1e16, 1e30, 1e39, -1e300, np.int64(-(2**63)), np.uint64(2**64 - 1)])
@pytest.mark.parametrize("name", IMAGE_TRANSFORMERS)
def test_larger_pixels_are_refused(name, value):
    transformer, given = IMAGE_TRANSFORMERS[name]
    fitted = clone(transformer).fit(*given)
    images = np.zeros(given[0].shape, dtype=np.asarray(value).dtype)
    images[-1, 2, 3] = value
    for method in (fitted.transform, lambda X: clone(transformer).fit(X, *given[1:])):
        with pytest.raises(ValueError, match=rf"X\[{len(images) - 1}\] has values of magnitude"):
            method(images)


@pytest.mark.parametrize(
    "transformer",
    [
        PatchAverages([1e-20]),
        PatchAverages([1e-19], guide_threshold=None),
        PatchGroups(1e-22),
        FilterBank(np.full((1, 3, 3), 1e39)),
        FilterBank(np.full((1, 3, 3), -1e16)),
        FilterBank(np.full((1, 3, 3), np.nan)),
    ],
    ids=repr,
)
def test_parameters_that_float32_cannot_square_are_refused(transformer):
    with pytest.raises(InvalidParameterError, match=r"noise|bandwidths|bank"):
        transformer.fit(np.zeros((1, 9, 9)))


@pytest.mark.parametrize(
    "transformer",
    [
        PatchAverages([SMALLEST_BANDWIDTH, 1e-5, 1e20, 1e300]),
        PatchAverages([SMALLEST_BANDWIDTH], guide_threshold=1e39),
        PatchGroups(SMALLEST_NOISE),
        PatchGroups(1e25),
        PatchShrinkage([0.0, 1e-300, 1e39, 1e300]),
        FilterBank(np.full((1, 3, 3), LARGEST_PIXEL)),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_channels_are_finite_with_extreme_parameters(transformer):
    X = np.random.default_rng(0).normal(size=(1, 16, 18))
    X[:, :9] = 0
    for scale in (0.0, 1e-15, 1.0, LARGEST_PIXEL / 10):
        assert np.isfinite(transformer.fit_transform(scale * X)).all()
