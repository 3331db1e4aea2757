"""Information-weighted multi-scale structural similarity (Wang and Li 2011), and its derivative."""

from functools import lru_cache, partial

import numpy as np
import scipy.sparse as sp

# SCALES: exponent of the similarity at each scale, from fine to coarse.
# WINDOW, _SIGMA: side and standard deviation of the Gaussian window.
SCALES = np.array([0.0448, 0.2856, 0.3001, 0.2363, 0.1333])
WINDOW, _SIGMA = 11, 1.5

# _C1, _C2: constants that stabilise the similarity, for values from 0 to 255.
# _NOISE: variance of the perceptual noise.
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
_NOISE = 0.4

# _FLAT: variance below which a neighbourhood counts as flat.
# _LEAST: minimum similarity at a scale; it is positive, so that powers of similarities are real.
_FLAT = 1e-15
_LEAST = 1e-6

# Filter of the pyramid, with gain 2 in two dimensions, as in the authors' code.
_BINOMIAL = np.sqrt(2) / 16 * np.array([1.0, 4.0, 6.0, 4.0, 1.0])


def similarity(prediction, target):
    r"""Return the similarity :math:`\prod_s S_s^{\beta_s}` of two images, and its gradient.

    The gradient is taken with respect to the prediction.
    """
    # prediction, target: (H, W), values from 0 to 255
    n_scales = min(len(SCALES), int(np.log2(min(target.shape) / WINDOW)) + 1)
    exponents = SCALES[:n_scales] / SCALES[:n_scales].sum()
    bands_p, bands_t = _build_pyramid(prediction, n_scales), _build_pyramid(target, n_scales)
    scales = []
    for s in range(n_scales):
        is_last = s == n_scales - 1
        parent = bands_t[s + 1] if s < n_scales - 2 else None
        scales.append(_compare_bands(bands_p[s], bands_t[s], parent, is_last))
    values = np.array([max(value, _LEAST) for value, _ in scales])
    score = float(np.prod(values**exponents))
    slopes = [
        score * exponent / own * gradient if value > _LEAST else 0.0 * gradient
        for (value, gradient), exponent, own in zip(scales, exponents, values, strict=True)
    ]
    return score, _pull_back_pyramid(slopes, prediction.shape)


class Windows:
    """Local means, variances and covariances of two images, with derivatives with respect to the first image."""

    def __init__(self, p, t, means, adjoint):
        # means: function of an image that returns the means of its windows; adjoint: adjoint of this linear map
        self.p, self.t, self._adjoint = p, t, adjoint
        self.mean_p, self.mean_t = means(p), means(t)
        self.variance_p, self.variance_t = means(p**2) - self.mean_p**2, means(t**2) - self.mean_t**2
        self.covariance = means(p * t) - self.mean_p * self.mean_t

    def pulled_back(self, by_mean, by_variance, by_covariance):
        """Convert derivatives with respect to the first image's moments to the derivative with respect to the image."""
        by_mean = by_mean - by_covariance * self.mean_t - 2 * by_variance * self.mean_p
        own, cross = 2 * self.p * self._adjoint(by_variance), self.t * self._adjoint(by_covariance)
        return self._adjoint(by_mean) + own + cross

    @classmethod
    def of_filter(cls, p, t, matrix):
        """Return the moments for a separable filter; ``matrix(length)`` returns the filter's matrix along an axis."""
        matrices = [matrix(length) for length in p.shape]
        return cls(p, t, partial(_filter_axes, matrices), partial(_back, matrices))


def _compare_bands(p, t, parent, is_last):
    """Return the weighted similarity of a band, and the derivative with respect to the band of the prediction."""
    windows = Windows.of_filter(p, t, _window)
    mean_p, mean_t = windows.mean_p, windows.mean_t
    scale = windows.variance_p + windows.variance_t + _C2
    structure = (2 * windows.covariance + _C2) / scale
    light = np.ones_like(structure)
    by_light = np.zeros_like(structure)
    if is_last:
        light_scale = mean_p**2 + mean_t**2 + _C1
        light = (2 * mean_p * mean_t + _C1) / light_scale
        by_light = 2 * (mean_t - light * mean_p) / light_scale
        weight, pulled_back = np.ones_like(structure), None
    else:
        weight, pulled_back = _compute_information(p, t, parent)
        border = (WINDOW - 1) // 2
        weight = weight[border:-border, border:-border]
    total = max(float(weight.sum()), np.finfo(float).tiny)
    share = weight / total if weight.any() else np.full(weight.shape, 1 / weight.size)
    quality = light * structure
    value = float(np.sum(share * quality))
    gradient = windows.pulled_back(share * structure * by_light, -share * quality / scale, share * light * 2 / scale)
    if pulled_back is not None and weight.any():
        border = (WINDOW - 1) // 2
        gradient = gradient + pulled_back(np.pad((quality - value) / total, border))
    return value, gradient


def _compute_information(p, t, parent):
    r"""Return the information of each pixel of a band, and a function that propagates derivatives back.

    The information is :math:`\sum_j \log_2 (1 + \cdot)`.

    In the model, neighbourhoods of the target follow a Gaussian scale mixture, and the prediction is the target times a
    gain plus noise. Target and prediction are perceived with noise.
    """
    boxes = Windows.of_filter(p, t, _box)
    covariance = boxes.covariance
    variance_p, variance_t = np.maximum(boxes.variance_p, 0), np.maximum(boxes.variance_t, 0)
    has_gain = (variance_t >= _FLAT) & (variance_p >= _FLAT)
    gain = np.where(has_gain, covariance / (variance_t + _FLAT), 0)
    noise = np.where(variance_p >= _FLAT, variance_p - gain * covariance, 0)
    multiplier, eigenvalues = _fit_scale_mixture(t, parent)
    signal = multiplier[..., None] * eigenvalues
    terms = (noise + (1 + gain**2) * _NOISE)[..., None] * signal + (_NOISE * noise)[..., None]
    ratio = 1 / (np.log(2) * (_NOISE**2 + np.maximum(terms, 0)))
    information = np.sum(np.log2(1 + np.maximum(terms, 0) / _NOISE**2), axis=2)
    by_noise = np.sum((signal + _NOISE) * ratio, axis=2) * (variance_p >= _FLAT)
    by_gain = 2 * gain * _NOISE * np.sum(signal * ratio, axis=2)

    def pulled_back(by_information):
        at_noise, at_gain = by_information * by_noise, by_information * by_gain
        by_covariance = np.where(has_gain, at_gain / (variance_t + _FLAT) - 2 * gain * at_noise, 0)
        return boxes.pulled_back(0.0, at_noise * (boxes.variance_p > 0), by_covariance)

    return information, pulled_back


def _fit_scale_mixture(band, parent):
    """Fit a Gaussian scale mixture to 3 x 3 neighbourhoods and parents; return multipliers and eigenvalues."""
    # returns the multipliers (H, W), 0 at the border, and the eigenvalues (N,)
    height, width = band.shape
    rows = [band[i : height - 2 + i, j : width - 2 + j] for j in range(3) for i in range(3)]
    if parent is not None:
        enlarged = _filter_axes([_build_enlarging_matrix(length) for length in parent.shape], parent)
        rows.append(enlarged[1 : height - 1, 1 : width - 1])
    samples = np.stack([row.ravel() for row in rows], axis=1)
    values, vectors = np.linalg.eigh(samples.T @ samples / len(samples))
    positive = np.maximum(values, 0)
    kept = positive > 1e-12 * max(positive.max(), np.finfo(float).tiny)
    # Rescale the remaining eigenvalues to keep the total variance.
    eigenvalues = np.where(kept, positive, 0) * (values.sum() / max(positive[kept].sum(), np.finfo(float).tiny))
    own = (samples @ vectors[:, kept]) ** 2 / np.where(kept, eigenvalues, 1)[kept]
    multiplier = np.zeros(band.shape)
    multiplier[1:-1, 1:-1] = (own.sum(axis=1) / len(values)).reshape(height - 2, width - 2)
    return multiplier, eigenvalues


def _build_pyramid(image, n_scales):
    """Return the bands of the Laplacian pyramid; the last band is the low-pass residual."""
    bands = []
    for _ in range(n_scales - 1):
        low = _filter_axes([_build_reducing_matrix(length) for length in image.shape], image)
        bands.append(image - _filter_axes([_build_expanding_matrix(length) for length in image.shape], low))
        image = low
    return [*bands, image]


def _pull_back_pyramid(slopes, shape):
    """Convert derivatives with respect to the bands to the derivative with respect to the image."""
    shapes = [shape]
    for _ in slopes[1:]:
        shapes.append(tuple((length + 1) // 2 for length in shapes[-1]))
    found = slopes[-1]
    for slope, own in zip(slopes[-2::-1], shapes[-2::-1], strict=True):
        expanding, reducing = (
            [make(length) for length in own] for make in (_build_expanding_matrix, _build_reducing_matrix)
        )
        found = slope + _back(reducing, found - _back(expanding, slope))
    return found


def _filter_axes(matrices, image):
    return (matrices[1] @ (matrices[0] @ image).T).T


def _back(matrices, values):
    return (matrices[1].T @ (matrices[0].T @ values).T).T


def _build_filter_matrix(taps, n, mode):
    """Return the matrix that correlates n values with ``taps``; unless ``mode="mirror"``, values outside are 0."""
    half = len(taps) // 2
    rows = np.repeat(np.arange(n), len(taps))
    columns = rows + np.tile(np.arange(len(taps)) - half, n)
    weight = np.tile(taps, n)
    if mode == "mirror":
        period = max(2 * (n - 1), 1)
        columns = np.abs((columns + n - 1) % period - (n - 1)) if n > 1 else 0 * columns
    inside = (columns >= 0) & (columns < n)
    return sp.csr_matrix((weight[inside], (rows[inside], columns[inside])), shape=(n, n))


@lru_cache(maxsize=64)
def _build_reducing_matrix(n):
    return _build_filter_matrix(_BINOMIAL, n, "mirror")[::2]


@lru_cache(maxsize=64)
def _build_expanding_matrix(n):
    return sp.csr_matrix(_build_filter_matrix(_BINOMIAL, n, "mirror")[:, ::2])


@lru_cache(maxsize=64)
def _window(n):
    taps = np.exp(-((np.arange(WINDOW) - WINDOW // 2) ** 2) / (2 * _SIGMA**2))
    return _build_filter_matrix(taps / taps.sum(), n, "zero")[WINDOW // 2 : n - WINDOW // 2]


@lru_cache(maxsize=64)
def _box(n):
    return _build_filter_matrix(np.full(3, 1 / 3), n, "zero")


@lru_cache(maxsize=64)
def _build_enlarging_matrix(n):
    """Return a matrix that doubles n values: interpolate to 4 n - 3 values, extrapolate the ends, keep every second."""
    places = (np.arange(4 * n - 3) + 0.5) * n / (4 * n - 3) - 0.5
    left = np.clip(np.floor(places), 0, max(n - 2, 0)).astype(int)
    share = np.clip(places - left, 0, 1)
    unit = np.eye(n)
    inner = unit[left] * (1 - share)[:, None] + unit[np.minimum(left + 1, n - 1)] * share[:, None]
    ends = 2 * inner[0] - inner[min(1, len(inner) - 1)], 2 * inner[-1] - inner[max(-2, -len(inner))]
    return sp.csr_matrix(np.concatenate([ends[:1], inner, ends[1:]])[::2])
