"""Probabilities of a network or any other classifier, refined by a dense field in one call."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from sklearn_crf._numbers import as_integer, as_pixels, check_option
from sklearn_crf._threads import single_threaded_blas, split_threads
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
    max_memory: float = 2**33,
    n_jobs: int | None = None,
) -> np.ndarray:
    r"""Refine the probabilities of the pixels of an image by a fully connected field.

    .. math::
        q_i(k) \propto p_i(k) \exp\Big(\sum_m w_m \sum_j \hat k_m(i, j) \, q_j(k)\Big)

    iterated from :math:`q = p`, with the published kernels and weights. :class:`DenseCRF` learns the weights.

    Parameters
    ----------
    probabilities : array-like of shape (*lattice, n_classes)
        Such as the softmax of a network; float16 is worked on in float32.
    image : array-like of shape lattice or (*lattice, n_channels), optional
        Colours, which are read as colours of 0 to 255, the units of the bandwidths of kernels.
    kernels : tuple of Spatial and Bilateral, default=None
        None is ``(Spatial(3.0), Bilateral(80.0, 13.0))``, without an image ``(Spatial(3.0),)``.
    max_iter : int, default=10
        Updates of mean field.
    color_range : (float, float), default=None
        Range of the colours of the image. None takes that of the type of uint8, uint16 and bool. Of other numbers it is
        0 to 1 or -1 to 1 if all lie within, 0 to 255 if they span between a tenth and twice of it, and else their own
        range.
    lattice_ndim : int, default=None
        Axes of the lattice: 2 for images, 3 for volumes. None takes all axes of ``probabilities`` but the last one;
        with three of these it must be given, or ``spacing``. With an axis more, the first one holds images or volumes
        that are refined one by one, in one range of colours.
    spacing : sequence of float, optional
        Distance between neighbours along each axis of the lattice.
    clip : float, default=1e-5
        Least probability whose logarithm is taken.
    max_memory : float, default=2**33
        Bytes that the lattices may take.
    n_jobs : int, optional
        Threads; results do not depend on it.

    Returns
    -------
    ndarray
        Of the shape of ``probabilities``. Refined probabilities, float32 or float64.

    Raises
    ------
    ValueError
        If probabilities are negative or do not add up to one, the image has another size, a bandwidth is not positive
        or too small, or ``probabilities`` may be a volume or many images and ``lattice_ndim`` does not say which.
    MemoryError
        If the lattices would take more than ``max_memory``.

    References
    ----------
    P. Krähenbühl & V. Koltun (2011). Efficient inference in fully connected CRFs with Gaussian edge potentials.
    Advances in Neural Information Processing Systems 24, 109-117.

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
    if kernels is None:
        kernels = (Spatial(3.0),) if image is None else (Spatial(3.0), Bilateral(80.0, 13.0))
    check_kernels(kernels)
    probabilities = _checked(probabilities)
    ends = _color_range(image, color_range)
    _examples.check_channel_bandwidths(kernels, ends)
    _, n_threads = split_threads(n_jobs, 1)

    def refined(probabilities, image):
        try:
            example = _examples.DenseExample(np.log(np.maximum(probabilities, clip)), image, spacing)
        except ValueError as error:
            raise ValueError(str(error).replace("scores are", "probabilities are")) from error
        example = _examples.in_bytes(example, ends)
        filters = build_filters(kernels, example, "image", max_memory=max_memory, n_threads=n_threads)
        model = DenseModel(example.rows, filters, np.array([kernel.weight for kernel in kernels]))
        return DenseMeanField(max_iter=max_iter).node_marginals(model, n_threads=n_threads).reshape(probabilities.shape)

    with single_threaded_blas():
        if not _are_many(probabilities, lattice_ndim, spacing):
            return refined(probabilities, image)
        images = [None] * len(probabilities) if image is None else np.atleast_1d(np.asarray(image))
        if len(images) != len(probabilities):
            raise ValueError(f"image holds {len(images)} images, but probabilities are of {len(probabilities)}.")
        return np.stack([refined(*pair) for pair in zip(probabilities, images, strict=True)])


def _color_range(image, color_range):
    if color_range is not None:
        return _examples.check_color_range(color_range)
    values = np.asarray(image)
    # What is no image is an error of its own.
    if image is None or not values.size or values.dtype.kind not in "iufb" or not np.isfinite(values).all():
        return _examples.BYTES
    ends = _examples.range_of_type(image) or _examples.range_of_images([values])
    _examples.warn_of_unused_range([values], ends)
    return ends


def _are_many(probabilities, lattice_ndim, spacing):
    """Whether the first axis holds images or volumes."""
    n_axes = probabilities.ndim - 1
    if lattice_ndim is not None:
        lattice_ndim = as_integer(lattice_ndim, "lattice_ndim", lowest=1)
    elif spacing is not None or n_axes != 3:
        lattice_ndim = n_axes
    else:
        raise ValueError(
            f"probabilities of shape {probabilities.shape} are of a volume or of {len(probabilities)} images: pass "
            "lattice_ndim=3 for a volume, lattice_ndim=2 for images that are refined one by one."
        )
    if n_axes - lattice_ndim not in (0, 1):
        raise ValueError(
            f"probabilities of shape {probabilities.shape} do not fit lattice_ndim={lattice_ndim}: they must have its "
            "axes and a last one of classes, and may have a first one of images or volumes."
        )
    return n_axes > lattice_ndim


def _checked(probabilities):
    probabilities = as_pixels(probabilities, "probabilities")
    if probabilities.dtype == np.float16:
        probabilities = probabilities.astype(np.float32)
    if probabilities.ndim < 2 or 0 in probabilities.shape:
        raise ValueError(f"probabilities must have the shape (*lattice, n_classes), got {probabilities.shape}.")
    total = probabilities.sum(axis=-1, dtype=np.float64)
    wrong = ~(np.abs(total - 1) <= SUM_TOL)
    if wrong.any():
        pixel = tuple(int(i) for i in np.unravel_index(np.argmax(wrong), total.shape))
        raise ValueError(
            f"probabilities must add up to 1 over the last axis, which holds classes, but those of pixel {pixel} add "
            f"up to {total[pixel]:.4g}."
        )
    if probabilities.min() < 0:
        raise ValueError(f"probabilities must not be negative, found {probabilities.min():.4g}.")
    return probabilities
