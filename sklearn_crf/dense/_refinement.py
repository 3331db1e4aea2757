"""Function ``refine``, which refines the class probabilities of any classifier by a dense field."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from sklearn_crf._numbers import as_array, as_integer, as_pixels, check_option, check_switch
from sklearn_crf._ranges import BYTES, estimate_color_range, get_type_range
from sklearn_crf._threads import limit_blas_threads, split_threads
from sklearn_crf.dense import _examples
from sklearn_crf.dense._gaussian_kernels import Bilateral, GaussianKernel, Spatial, build_filters, check_kernels
from sklearn_crf.dense._tuning import SUM_TOL
from sklearn_crf.inference import DenseMeanField
from sklearn_crf.models import DenseModel


def refine(
    probabilities: ArrayLike,
    image: ArrayLike | None = None,
    *,
    kernels: Sequence[GaussianKernel] | None = None,
    max_iter: int = 10,
    color_range: Sequence[float] | None = None,
    lattice_ndim: int | None = None,
    spacing: Sequence[float] | None = None,
    clip: float = 1e-5,
    logits: bool = False,
    max_memory: float = 2**33,
    n_jobs: int | None = None,
) -> np.ndarray:
    r"""Refine the class probabilities of pixels by a fully connected field.

    .. math::
        q_i(k) \propto p_i(k) \exp\Big(\sum_m w_m \sum_j \hat k_m(i, j) \, q_j(k)\Big)

    iterated from :math:`q = p`. The default weights are low, because the weights that were published for weak scores
    on large images, ``kernels=[Spatial(3.0, weight=3.0), Bilateral(80.0, 13.0, weight=10.0)]``, make good scores worse.
    :class:`DenseCRF` learns the weights.

    Parameters
    ----------
    probabilities : array-like of shape (*lattice, n_classes)
        Class probabilities, or logits. float16 is converted to float32, for many images one by one, so that the array
        may be a memory map of a large file.
    image : array-like of shape lattice or (*lattice, n_channels), optional
        Colours, which are rescaled to 0 to 255, the units of the kernels' bandwidths.
    kernels : tuple of Spatial and Bilateral, default=None
        None is ``(Spatial(3.0), Bilateral(80.0, 13.0))``, or ``(Spatial(3.0),)`` without an image.
    max_iter : int, default=10
        Number of mean-field updates.
    color_range : (float, float), default=None
        Range of the colours of the image. None uses the range of the data type for uint8, uint16 and bool. For other
        types it is 0 to 1 or -1 to 1 if all values lie in that range, 0 to 255 if the span of values is between a tenth
        of 255 and twice 255, and otherwise the range of the values. Isolated colours, such as -9999, are clipped to the
        range of the other colours.
    lattice_ndim : int, default=None
        Number of axes of the lattice: 2 for images, 3 for volumes. None uses all axes of ``probabilities`` except the
        last, or the axes of the first element of a list of images or volumes. If an array leaves three or more axes,
        ``lattice_ndim`` or ``spacing`` must be given. If ``probabilities`` has an additional first axis, this axis
        enumerates images or volumes. They are refined one by one, with a common range of colours.
    spacing : sequence of float, optional
        Distance between neighbours along each axis of the lattice.
    clip : float, default=1e-5
        Smaller probabilities are replaced by this number before taking logarithms.
    logits : bool, default=False
        Whether ``probabilities`` holds the outputs of a network before the softmax, which is then applied.
    max_memory : float, default=2**33
        Maximum memory for the lattices, in bytes.
    n_jobs : int, optional
        Number of threads; results do not depend on it.

    Returns
    -------
    ndarray
        Refined probabilities with the shape of ``probabilities``, float32 or float64.

    Raises
    ------
    ValueError
        If probabilities are negative or do not add up to one, the image has another size, or a bandwidth is not
        positive or too small. If ``probabilities`` could be one volume or several images, and neither
        ``lattice_ndim`` nor ``spacing`` is given. If there are logits of only one class.
    MemoryError
        If the lattices would need more than ``max_memory``.

    References
    ----------
    P. Krähenbühl & V. Koltun (2011). Efficient inference in fully connected CRFs with Gaussian edge potentials.
    Advances in Neural Information Processing Systems 24, 109-117. :arxiv:`1210.5644`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import Bilateral, refine
    >>> image = np.repeat([20.0, 200.0], 8)[np.newaxis] * np.ones((16, 1))
    >>> probabilities = np.full((16, 16, 2), 0.5)
    >>> probabilities[4:12, 1:3], probabilities[4:12, 13:15] = [0.9, 0.1], [0.1, 0.9]
    >>> refine(probabilities, image, kernels=[Bilateral(20.0, 13.0)]).argmax(axis=-1)[0]
    array([0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1])
    """
    check_option(clip, "clip", lambda value: 0 < value < 1, "lie between 0 and 1")
    check_option(max_memory, "max_memory", lambda value: value > 0, "be positive")
    check_switch(logits, "logits")
    if kernels is None:
        kernels = (Spatial(3.0),) if image is None else (Spatial(3.0), Bilateral(80.0, 13.0))
    check_kernels(kernels)
    if lattice_ndim is None and isinstance(probabilities, list | tuple) and probabilities:
        n_axes = getattr(probabilities[0], "ndim", 0)
        # Arrays of fewer axes may be the rows of one image.
        lattice_ndim = n_axes - 1 if n_axes > 2 else None
    probabilities = _check_probabilities(probabilities)
    if logits and probabilities.shape[-1] == 1:
        raise ValueError(
            f"probabilities have shape {probabilities.shape}, but the softmax of the logits of one class is 1 "
            "everywhere: pass np.concatenate([0 * l, l], axis=-1) for the logits l of one of two classes."
        )
    image, ends = _choose_color_range(image, color_range)
    _examples.check_channel_bandwidths(kernels, ends)
    _, n_threads = split_threads(n_jobs, 1)

    def refined(probabilities, image):
        probabilities = probabilities.astype(np.promote_types(probabilities.dtype, np.float32), copy=False)
        probabilities = _compute_softmax(probabilities) if logits else probabilities
        try:
            if image is not None:  # checked first, because probabilities of another shape have wrong sums
                _require_last_axis_of_classes(probabilities, np.shape(image))
                _examples.check_example_image(image, probabilities)
            _check_sums(probabilities)
            example = _examples.DenseExample(np.log(np.maximum(probabilities, clip)), image, spacing)
        except ValueError as error:
            raise ValueError(str(error).replace("scores are", "probabilities are")) from error
        example = _examples.in_bytes(example, ends)
        filters = build_filters(kernels, example, "image", max_memory=max_memory, n_threads=n_threads)
        model = DenseModel(example.rows, filters, np.array([kernel.weight for kernel in kernels]))
        return DenseMeanField(max_iter=max_iter).node_marginals(model, n_threads=n_threads).reshape(probabilities.shape)

    _require_last_axis_of_classes_in_images(probabilities.shape, () if image is None else np.shape(image))
    with limit_blas_threads():
        if not _are_many(probabilities, lattice_ndim, spacing):
            return refined(probabilities, image)
        images = [None] * len(probabilities) if image is None else np.atleast_1d(np.asarray(image))
        if len(images) != len(probabilities):
            raise ValueError(f"image holds {len(images)} images, but probabilities has {len(probabilities)}.")
        found = [refined(*pair) for pair in zip(probabilities, images, strict=True)]
        return np.stack(found)


def _require_last_axis_of_classes(probabilities: np.ndarray, image_shape: tuple) -> None:
    """Raise ValueError if the last axis of the probabilities of an image is not the axis of classes."""
    shape = probabilities.shape
    # Equal shapes with three axes may be valid: colours, and probabilities of as many classes as there are channels.
    if shape == image_shape[:-1] or (shape == image_shape and len(shape) == 2):
        raise ValueError(
            f"probabilities of shape {shape} have no axis of classes: pass np.stack([1 - p, p], axis=-1) for one map "
            "of probabilities, or the probabilities from which labels were made."
        )
    if shape[:-1] != image_shape[: len(shape) - 1] and shape[1:] == image_shape[: len(shape) - 1]:
        raise ValueError(
            f"probabilities of shape {shape} have the classes first, but the classes must be the last axis: pass "
            "np.moveaxis(probabilities, 0, -1)."
        )


def _require_last_axis_of_classes_in_images(shape: tuple, image_shape: tuple) -> None:
    """Raise ValueError if probabilities are batches of a network, (n_images, n_classes, height, width)."""
    # The image may be one image, or have a first axis of images.
    lattices = image_shape[:2], image_shape[1:3]
    if len(shape) == 4 and shape[2:] in lattices and shape[1:3] not in lattices:
        raise ValueError(
            f"probabilities of shape {shape} have the classes before the pixels, but the classes must be the last "
            "axis: pass np.moveaxis(probabilities, 1, -1) and lattice_ndim=2."
        )


def _choose_color_range(image, color_range):
    """Return the image, without isolated colours if their range is estimated, and the range of the colours."""
    if color_range is not None:
        return image, _examples.check_color_range(color_range)
    values = as_array(image, "image")
    # Invalid images get an arbitrary range here, because they raise an error later.
    if image is None or not values.size or values.dtype.kind not in "iufb" or not np.isfinite(values).all():
        return image, BYTES
    (values,) = _examples.clip_isolated_colors([values], ["image"])
    ends = get_type_range(values) or estimate_color_range([values])
    _examples.warn_of_unused_range([values], ends)
    return values, ends


def _are_many(probabilities, lattice_ndim, spacing):
    """Return whether the first axis enumerates images or volumes."""
    n_axes = probabilities.ndim - 1
    if lattice_ndim is not None:
        lattice_ndim = as_integer(lattice_ndim, "lattice_ndim", lowest=1)
    elif spacing is not None or n_axes < 3:
        lattice_ndim = n_axes
    else:
        raise ValueError(
            f"probabilities of shape {probabilities.shape} could be one lattice with {n_axes} axes or "
            f"{len(probabilities)} {'images' if n_axes == 3 else 'volumes'}: pass lattice_ndim={n_axes} for one "
            f"lattice, or lattice_ndim={n_axes - 1} to refine {'images' if n_axes == 3 else 'volumes'} one by one."
        )
    if n_axes - lattice_ndim not in (0, 1):
        raise ValueError(
            f"probabilities of shape {probabilities.shape} do not fit lattice_ndim={lattice_ndim}: they must have the "
            "lattice axes and a last axis of classes, and may have a first axis of images or volumes."
        )
    return n_axes > lattice_ndim


def _check_probabilities(probabilities):
    probabilities = as_pixels(probabilities, "probabilities")
    if probabilities.ndim < 2 or 0 in probabilities.shape:
        raise ValueError(f"probabilities must have the shape (*lattice, n_classes), got {probabilities.shape}.")
    return probabilities


def _compute_softmax(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities of classes; raise ValueError if the logits of a pixel define none."""
    found = softmax(logits, axis=-1)
    wrong = np.isnan(found).any(axis=-1)
    if wrong.any():
        pixel = tuple(int(i) for i in np.unravel_index(np.argmax(wrong), wrong.shape))
        raise ValueError(
            f"probabilities must hold finite logits, or -inf for impossible classes, but at pixel {pixel} the logits "
            f"are {logits[pixel][:5]}."
        )
    return found


def _check_sums(probabilities: np.ndarray) -> None:
    total = probabilities.sum(axis=-1, dtype=np.float64)
    wrong = ~(np.abs(total - 1) <= SUM_TOL)
    if wrong.any():
        if probabilities.min() < 0:
            hint = " They have negative values: pass logits=True if they are the scores of a network."
        elif probabilities.max() > 1:
            hint = f" The largest value is {probabilities.max():.4g}: convert them to probabilities from 0 to 1."
        elif probabilities.shape[-1] == 1:
            hint = " They have one class: pass np.concatenate([1 - p, p], axis=-1)."
        else:
            hint = " For a single map p of probabilities, pass np.stack([1 - p, p], axis=-1)." * (total.ndim == 1)
        pixel = tuple(int(i) for i in np.unravel_index(np.argmax(wrong), total.shape))
        raise ValueError(
            f"probabilities must add up to 1 over the last axis, which holds classes, but at pixel {pixel} they add "
            f"up to {total[pixel]:.4g}.{hint}"
        )
    if probabilities.min() < 0:
        raise ValueError(f"probabilities must not be negative, found {probabilities.min():.4g}.")
