"""Probabilities of a network or any other classifier, refined by a dense field in one call."""

import numpy as np

from sklearn_crf._threads import single_threaded_blas, split_threads
from sklearn_crf.dense._examples import DenseExample
from sklearn_crf.dense._gaussian_kernels import Bilateral, Spatial, build_filters, check_kernels
from sklearn_crf.inference import DenseMeanField
from sklearn_crf.models import DenseModel

# How far the probabilities of a pixel may be from adding up to one: those of half precision are.
_SUM_TOL = 0.01


def refine(
    probabilities,
    image=None,
    *,
    kernels=None,
    max_iter: int = 10,
    spacing=None,
    clip: float = 1e-5,
    max_memory: float = 2**33,
    n_jobs: int | None = None,
) -> np.ndarray:
    r"""Refine the probabilities of the pixels of one image by a fully connected field.

    .. math::
        q_i(k) \propto p_i(k) \exp\Big(\sum_m w_m \sum_j \hat k_m(i, j) \, q_j(k)\Big)

    iterated from :math:`q = p`, with the published kernels and weights. :class:`DenseCRF` learns the weights.

    Parameters
    ----------
    probabilities : array-like of shape (*lattice, n_classes)
        Such as the softmax of a network; float16 is worked on in float32.
    image : array-like of shape lattice or (*lattice, n_channels), optional
        Colours of 0 to 255 for the default kernels.
    kernels : tuple of Spatial and Bilateral, default=None
        None is ``(Spatial(3.0), Bilateral(80.0, 13.0))``, without an image ``(Spatial(3.0),)``.
    max_iter : int, default=10
        Updates of mean field.
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
        Of shape ``(*lattice, n_classes)``. Refined probabilities, float32 or float64.

    Raises
    ------
    ValueError
        If probabilities are negative or do not add up to one, the image has another size, or a bandwidth is not
        positive or too small.
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
    if not 0 < clip < 1:
        raise ValueError(f"clip must lie between 0 and 1, got {clip!r}.")
    if kernels is None:
        kernels = (Spatial(3.0),) if image is None else (Spatial(3.0), Bilateral(80.0, 13.0))
    check_kernels(kernels)
    probabilities = _checked(probabilities)
    try:
        example = DenseExample(np.log(np.maximum(probabilities, clip)), image, spacing)
    except ValueError as error:
        raise ValueError(str(error).replace("scores are", "probabilities are")) from error
    _, n_threads = split_threads(n_jobs, 1)
    filters = build_filters(kernels, example, name="image", max_memory=max_memory, n_threads=n_threads)
    model = DenseModel(example.rows, filters, np.array([kernel.weight for kernel in kernels]))
    with single_threaded_blas():
        q = DenseMeanField(max_iter=max_iter).node_marginals(model, n_threads=n_threads)
    return q.reshape(probabilities.shape)


def _checked(probabilities):
    probabilities = np.asarray(probabilities)
    if probabilities.dtype == np.float16:
        probabilities = probabilities.astype(np.float32)
    if probabilities.dtype.kind not in "fiub" or probabilities.ndim < 2 or 0 in probabilities.shape:
        raise ValueError(
            f"probabilities must be numbers of shape (*lattice, n_classes), got {probabilities.dtype} of shape "
            f"{probabilities.shape}."
        )
    total = probabilities.sum(axis=-1, dtype=np.float64)
    wrong = ~(np.abs(total - 1) <= _SUM_TOL)
    if wrong.any():
        pixel = tuple(int(i) for i in np.unravel_index(np.argmax(wrong), total.shape))
        raise ValueError(
            f"probabilities must add up to 1 over the last axis, which holds classes, but those of pixel {pixel} add "
            f"up to {total[pixel]:.4g}."
        )
    if probabilities.min() < 0:
        raise ValueError(f"probabilities must not be negative, found {probabilities.min():.4g}.")
    return probabilities
