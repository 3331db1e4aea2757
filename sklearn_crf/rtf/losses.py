r"""Differentiable losses for training regression tree fields, computed for each image.

Each loss returns its value (smaller is better) and the derivative with respect to the prediction.
"""

from functools import partial
from math import log, log10
from typing import Any

import numpy as np
from scipy.special import expit, log_softmax

from sklearn_crf.rtf._information import WINDOW, Windows, similarity
from sklearn_crf.rtf.images._channels import choose_decimal_unit, is_held

__all__ = ["iw_ssim", "logistic", "mse", "multinomial", "psnr", "ssim"]


def mse(prediction: Any, target: Any) -> tuple[float, np.ndarray]:
    r"""Return the mean squared error, :math:`\frac1n \sum_i (p_i - t_i)^2`.

    Parameters
    ----------
    prediction, target : array-like of one shape
        Values of one example.

    Returns
    -------
    value : float
    gradient : ndarray, float64
        Derivative with the shape of ``prediction``.

    Examples
    --------
    >>> from sklearn_crf.rtf.losses import mse
    >>> value, gradient = mse([0.0, 1.0], [0.0, 0.5])
    >>> round(float(value), 3), gradient.round(3).tolist()
    (0.125, [0.0, 0.5])
    """
    difference = np.subtract(*_check_same_shape(prediction, target))
    return float(np.mean(difference**2)), 2 / difference.size * difference


# Smoothing of absolute errors, in units of the prediction.
_SMOOTHING = 1e-3


def mae(prediction: Any, target: Any, smoothing: float = _SMOOTHING) -> tuple[float, np.ndarray]:
    """Return the mean of smoothed absolute errors, sqrt(error**2 + smoothing**2) - smoothing, and the derivative."""
    # Tappen et al., Learning Gaussian Conditional Random Fields for Low-Level Vision, CVPR 2007
    if not smoothing >= 0:
        raise ValueError(f"smoothing must not be negative, got {smoothing!r}.")
    difference = np.subtract(*_check_same_shape(prediction, target))
    root = np.hypot(difference, smoothing)
    slope = np.divide(difference, root, out=np.zeros_like(difference), where=root > 0)
    return float(np.mean(root)) - smoothing, slope / difference.size


def psnr(prediction: Any, target: Any, data_range: float = 1.0) -> tuple[float, np.ndarray]:
    r"""Return the negative peak signal-to-noise ratio in decibels, :math:`10 \log_{10} (\mathrm{mse} / r^2)`.

    Parameters
    ----------
    prediction, target : array-like of one shape
        Values of one example.
    data_range : float, default=1.0
        The peak r: 255 for images of bytes.

    Returns
    -------
    value : float
        -inf if the arrays are equal.
    gradient : ndarray, float64
        Derivative with the shape of ``prediction``.

    Examples
    --------
    >>> from sklearn_crf.rtf.losses import psnr
    >>> round(float(psnr([0.0, 1.0], [0.1, 0.9])[0]), 3)
    -20.0
    """
    _check_range(data_range)
    error, slope = mse(prediction, target)
    if error == 0:
        return -np.inf, np.zeros_like(slope)
    return 10 * log10(error / data_range**2), 10 / log(10) / error * slope


def ssim(prediction: Any, target: Any, data_range: float = 1.0, window: int = 8) -> tuple[float, np.ndarray]:
    r"""Return one minus the structural similarity, averaged over all square windows in the image and over channels.

    .. math::
        S = \frac{(2 \mu_p \mu_t + c_1) (2 \sigma_{pt} + c_2)}
            {(\mu_p^2 + \mu_t^2 + c_1) (\sigma_p^2 + \sigma_t^2 + c_2)}, \qquad c_1 = (0.01 r)^2, \quad c_2 = (0.03 r)^2

    with means and (population) variances over the pixels of a window, without weights.

    Parameters
    ----------
    prediction, target : array-like of shape (H, W) or (H, W, D)
        One image.
    data_range : float, default=1.0
        The range r of values: 255 for images of bytes.
    window : int, default=8
        Side of a window, in pixels.

    Returns
    -------
    value : float
    gradient : ndarray, float64
        Derivative with the shape of ``prediction``.

    Raises
    ------
    ValueError
        If the image is smaller than the window, or shapes differ.

    References
    ----------
    Z. Wang, A. Bovik, H. Sheikh and E. Simoncelli. Image Quality Assessment: From Error Visibility to Structural
    Similarity. IEEE Transactions on Image Processing 13, 2004, :doi:`10.1109/TIP.2003.819861`. With windows of 8 x 8
    pixels: Z. Wang and E. Simoncelli. Maximum differentiation (MAD) competition. Journal of Vision 8, 2008,
    :doi:`10.1167/8.12.8`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.rtf.losses import ssim
    >>> image = np.linspace(0.0, 1.0, 256).reshape(16, 16)
    >>> round(abs(float(ssim(image, image)[0])), 6), bool(ssim(image, image[::-1])[0] > 0.5)
    (0.0, True)
    """
    _check_range(data_range)
    prediction, target = _check_same_shape(prediction, target)
    _require_windows(prediction, window)
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    # Structure does not change with a common shift, and variances lose fewer digits if means are small.
    shift = target.mean()
    windows = Windows(
        prediction - shift, target - shift, partial(_average, window=window), partial(_distribute, window=window)
    )
    light_p, light_t = windows.mean_p + shift, windows.mean_t + shift
    light_scale = light_p**2 + light_t**2 + c1
    light = (2 * light_p * light_t + c1) / light_scale
    scale = np.maximum(windows.variance_p, 0) + np.maximum(windows.variance_t, 0) + c2
    structure = (2 * windows.covariance + c2) / scale
    similarity = light * structure
    slope = np.full(similarity.shape, -1 / similarity.size)
    by_light = slope * structure * 2 * (light_t - light * light_p) / light_scale
    gradient = windows.pulled_back(by_light, -slope * similarity / scale, slope * light * 2 / scale)
    return float(1 - similarity.mean()), gradient


def iw_ssim(prediction: Any, target: Any, data_range: float = 1.0) -> tuple[float, np.ndarray]:
    r"""Return one minus the multi-scale structural similarity of Wang and Li, weighted by information.

    .. math::
        1 - \prod_s \Big( \frac{\sum_i w_{si} \, S_{si}}{\sum_i w_{si}} \Big)^{\beta_s}, \qquad
        w_{si} = \sum_j \log_2 \Big( 1 + \frac{(v_i + (1 + g_i^2) \nu) \, m_i \lambda_j + \nu v_i}{\nu^2} \Big)

    The scales s are up to five bands of a Laplacian pyramid; images of less than 176 pixels have fewer scales. S is the
    product of contrast and structure in Gaussian windows of 11 x 11 pixels. At the coarsest scale, S also includes
    luminance, and all weights are equal. The weight w is the information that pixel i provides about target and
    prediction. In the model of this information, neighbourhoods of the target follow a Gaussian scale mixture with
    multipliers m and eigenvalues :math:`\lambda`. The prediction is g times the target plus noise of variance v. Target
    and prediction are both perceived with noise of variance :math:`\nu = 0.4`.

    Parameters
    ----------
    prediction, target : array-like of shape (H, W) or (H, W, D)
        One image; channels are averaged.
    data_range : float, default=1.0
        The range of values: 255 for images of bytes.

    Returns
    -------
    value : float
    gradient : ndarray, float64
        Derivative with the shape of ``prediction``, which takes into account that the weights depend on the prediction.

    Raises
    ------
    ValueError
        If the image is smaller than the window, or shapes differ.

    References
    ----------
    Z. Wang and Q. Li. Information Content Weighting for Perceptual Image Quality Assessment. IEEE Transactions on Image
    Processing 20, 2011, :doi:`10.1109/TIP.2010.2092435`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.rtf.losses import iw_ssim
    >>> image = np.linspace(0.0, 1.0, 1024).reshape(32, 32)
    >>> round(abs(float(iw_ssim(image, image)[0])), 6)
    0.0
    >>> noisy = image + 0.1 * np.random.default_rng(0).normal(size=(32, 32))
    >>> bool(iw_ssim(noisy, image)[0] > 0.1)
    True
    """
    _check_range(data_range)
    prediction, target = _check_same_shape(prediction, target)
    _require_windows(prediction, WINDOW)
    unit = 255 / data_range
    planes = [np.atleast_3d(values) * unit for values in (prediction, target)]
    n_channels = planes[0].shape[2]
    found = [similarity(planes[0][..., c], planes[1][..., c]) for c in range(n_channels)]
    gradient = -unit / n_channels * np.stack([slope for _, slope in found], axis=2)
    return 1 - float(np.mean([score for score, _ in found])), gradient.reshape(prediction.shape)


def logistic(prediction: Any, target: Any, weight: Any = 1.0) -> tuple[float, np.ndarray]:
    r"""Return the mean logistic loss, :math:`\frac1n \sum_i w_i \log (1 + e^{-t_i p_i})`.

    Parameters
    ----------
    prediction : array-like
        Values of one example.
    target : array-like of the same shape
        Labels, each -1 or 1.
    weight : float or array-like of the same shape, default=1.0
        Weights :math:`w_i`; the sum is still divided by n.

    Returns
    -------
    value : float
    gradient : ndarray, float64
        Derivative with the shape of ``prediction``.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Eq. (274).

    Examples
    --------
    >>> from sklearn_crf.rtf.losses import logistic
    >>> round(float(logistic([2.0, -1.0], [1, -1])[0]), 3)
    0.22
    """
    prediction, target = _check_same_shape(prediction, target)
    if not np.all(np.abs(target) == 1):
        raise ValueError("target must contain only -1 and 1.")
    margin = target * prediction
    value = float(np.mean(weight * np.logaddexp(0, -margin)))
    return value, -weight * target * expit(-margin) / prediction.size


def multinomial(prediction: Any, target: Any, weight: Any = 1.0) -> tuple[float, np.ndarray]:
    r"""Return the mean multinomial logistic loss, :math:`\frac1n \sum_s w_s (\log \sum_k e^{p_{sk}} - p_{s t_s})`.

    Parameters
    ----------
    prediction : array-like of shape (..., K)
        A score for each label.
    target : array-like of shape (...) of int
        Labels, 0 to K - 1.
    weight : float or array-like of shape (...), default=1.0
        Weights :math:`w_s`; the sum is still divided by n.

    Returns
    -------
    value : float
    gradient : ndarray, float64
        Derivative with the shape of ``prediction``.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Eq. (275).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.rtf.losses import multinomial
    >>> round(
    ...     float(multinomial(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([0, 1]))[0]), 3
    ... )
    0.22
    """
    prediction, target = np.asarray(prediction, dtype=np.float64), np.asarray(target)
    if target.shape != prediction.shape[:-1]:
        raise ValueError(f"target must have shape {prediction.shape[:-1]}, got {target.shape}.")
    n_labels = prediction.shape[-1]
    if target.dtype.kind not in "iu" or target.min() < 0 or target.max() >= n_labels:
        raise ValueError(f"target must hold labels from 0 to {n_labels - 1}, got {target.dtype}.")
    weight = np.broadcast_to(np.asarray(weight, dtype=np.float64), target.shape) / target.size
    is_label, log_probability = np.arange(n_labels) == target[..., np.newaxis], log_softmax(prediction, axis=-1)
    value = -float(np.sum(weight * log_probability[is_label].reshape(target.shape)))
    return value, weight[..., np.newaxis] * (np.exp(log_probability) - is_label)


def compute_weighted_mse(prediction: np.ndarray, target: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the mean squared error, in which each pixel has a weight, and the derivative of the error."""
    root = np.sqrt(weight)
    value, slope = mse(root * prediction, root * target)
    return value, root * slope


def compute_unit_vector_multinomial(
    prediction: np.ndarray, target: np.ndarray, weight: Any = 1.0
) -> tuple[float, np.ndarray]:
    """Return the multinomial loss for targets given as unit vectors, and the derivative of this loss."""
    return multinomial(prediction, target.argmax(axis=-1), np.squeeze(weight, axis=-1) if np.ndim(weight) else weight)


LOSSES: dict[str, Any] = {
    "mse": mse,
    "psnr": psnr,
    "mae": mae,
    "ssim": ssim,
    "iw_ssim": iw_ssim,
    "logistic": logistic,
    "multinomial": multinomial,
}

# LOSSES_OF_CODES: losses for targets that are codes of labels.
# WEIGHTED, WEIGHTED_OF_CODES: losses that accept a weight for each pixel.
LOSSES_OF_CODES = {"mse": mse, "logistic": logistic, "multinomial": compute_unit_vector_multinomial}
WEIGHTED = {"mse": compute_weighted_mse}
WEIGHTED_OF_CODES = WEIGHTED | {"logistic": logistic, "multinomial": compute_unit_vector_multinomial}

_WITH_RANGE = ("psnr", "ssim", "iw_ssim")


def loss_function(loss: Any, data_range: float = 1.0) -> Any:
    """Return the function of a named loss, or a callable loss itself; raise ValueError for anything else."""
    # data_range: range of the values, for losses with this parameter; "mae" smooths by a thousandth of this range
    # returns: function of prediction and target that returns value and gradient
    if callable(loss):
        return loss
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(map(repr, LOSSES))} or a callable, got {loss!r}.")
    if loss in _WITH_RANGE:
        return partial(LOSSES[loss], data_range=data_range)
    return partial(mae, smoothing=_SMOOTHING * data_range) if loss == "mae" else LOSSES[loss]


# Losses are computed after scaling y to a standard deviation of 32 to 128, which is typical of 8-bit photographs.
# The unit of y is fixed because splits are chosen by projected gradients, which depend on the unit of the loss.
_DEVIATION_DOUBLINGS, _LARGEST_DEVIATION = 6, 128.0

# If the standard deviation of y is in this range, float32 can represent the derivatives of a callable loss.
_LEAST_OF_FUNCTIONS, _LARGEST_OF_FUNCTIONS = 1e-12, 1e12


def choose_loss_unit(loss: Any, deviation: float) -> float:
    """Return the factor by which y of a given standard deviation is multiplied before a loss is computed."""
    if callable(loss):
        if not _LEAST_OF_FUNCTIONS < deviation < _LARGEST_OF_FUNCTIONS:
            raise ValueError(
                f"loss is a function, and y has a standard deviation of {deviation:.3g}, for which float32 may be "
                "unable to represent the derivative: rescale y, or use a named loss."
            )
        return 1.0
    if is_held(deviation):
        return float(np.ldexp(1.0, -2 * ((np.frexp(deviation)[1] - _DEVIATION_DOUBLINGS) // 2)))
    return float(choose_decimal_unit(deviation, _LARGEST_DEVIATION))


def compute_loss_unit(loss: Any, scale: float, data_range: float) -> float:
    """Return the unit of a named loss for values of standard deviation ``scale``.

    If the values are multiplied by a constant, the unit and the loss grow by the same factor.
    """
    if loss == "mse":
        return scale**2
    # Errors that are small compared with the smoothing contribute quadratically.
    return scale**2 / np.hypot(scale, _SMOOTHING * data_range) if loss == "mae" else 1.0


def _average(image, window):
    """Return the mean of each window inside the image, (H - window + 1, W - window + 1, ...)."""
    for axis in (0, 1):
        sums = np.cumsum(np.insert(image, 0, 0.0, axis=axis), axis=axis)
        n = sums.shape[axis]
        image = np.take(sums, np.arange(window, n), axis=axis) - np.take(sums, np.arange(n - window), axis=axis)
    return image / window**2


def _distribute(values, window):
    """Return the adjoint of :func:`_average`, which distributes each window's value over its pixels."""
    padding = [(window - 1, window - 1)] * 2 + [(0, 0)] * (values.ndim - 2)
    return _average(np.pad(values, padding), window)


def _require_windows(prediction, window):
    """Raise ValueError unless a prediction is an image at least as large as a window."""
    if prediction.ndim not in (2, 3) or min(prediction.shape[:2]) < window or window < 1:
        raise ValueError(
            f"prediction must be an image at least as large as the window, {window} x {window} pixels, got shape "
            f"{prediction.shape}."
        )


def _check_same_shape(prediction, target):
    prediction, target = (np.asarray(values, dtype=np.float64) for values in (prediction, target))
    if prediction.shape != target.shape:
        raise ValueError(f"target must have the shape of prediction, {prediction.shape}, got {target.shape}.")
    return prediction, target


def _check_range(data_range):
    if not data_range > 0:
        raise ValueError(f"data_range must be positive, got {data_range!r}.")
