"""Base class of inference in Gaussian fields, and its result types."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sklearn_crf._own_methods import with_private
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._results import as_finite
from sklearn_crf.kernels.gaussian.gaussian import copy_values, find_largest_magnitude, invert, invert_blocks
from sklearn_crf.models import GaussianModel


class GaussianMarginals(NamedTuple):
    r"""Mean and covariance of a Gaussian field, for each node.

    The derivative of ``log_z`` with respect to ``h`` is ``mean``. The derivative with respect to ``diagonal[s]`` is
    ``-(covariance[s] + mean[s] mean[s]') / 2``. ``residual`` is
    :math:`\|A^{-1} (h - J u)\| / \|A^{-1} h\|`, computed from the mean u, with the diagonal blocks A of J.
    """

    mean: np.ndarray  # (N, D), float32 or float64
    covariance: np.ndarray | None  # (N, D, D), float64, or None
    log_z: float | None
    residual: float | None = None
    n_iter: int = 0
    converged: bool = True
    state: object = None


class Solution(NamedTuple):
    r"""Solution of ``J x = b`` for one or several right-hand sides b.

    ``residual`` is the largest :math:`\|A^{-1} (b - J x)\| / \|A^{-1} b\|`, with the diagonal blocks A of J.
    """

    x: np.ndarray  # (N, D) or (R, N, D)
    residual: float
    n_iter: int
    converged: bool


def _check_marginals(found, model, *arguments, **options):
    """Return the marginals of a Gaussian field after checking them, with the mean in the model's precision."""
    if not isinstance(found, GaussianMarginals):
        raise TypeError(f"expected GaussianMarginals, got {type(found).__name__}.")
    shape, covariance, log_z = model.h.shape, found.covariance, found.log_z
    if covariance is not None:
        covariance = as_finite(covariance, "covariance", (*shape, shape[1]))
    if not (log_z is None or np.isfinite(log_z)):
        raise ValueError(f"log_z must be finite or None, got {log_z!r}.")
    return found._replace(mean=as_finite(found.mean, "mean", shape, model.dtype), covariance=covariance)


def _check_solution(found, model, right_hand_side, *arguments, **options):
    """Return a solution after checking that it has the shape of the right-hand side."""
    if not isinstance(found, Solution):
        raise TypeError(f"expected a Solution, got {type(found).__name__}.")
    return found._replace(x=as_finite(found.x, "x", np.shape(right_hand_side), model.dtype))


def _check_samples(found, model, n_samples=1, *arguments, **options):
    """Return samples of the values of all nodes after checking their shape."""
    return as_finite(found, "samples", (n_samples, *model.h.shape), None)


class GaussianInference(Inference):
    """Base class of the algorithms for Gaussian fields, which return :class:`GaussianMarginals`."""

    takes = (GaussianModel,)
    _takes_operators = False
    _returns: ClassVar[dict] = {
        **with_private(marginals=_check_marginals, sample=_check_samples),
        "solve": _check_solution,
        "_solution": _check_solution,
    }

    def solve(self, model: Any, right_hand_side: ArrayLike, *, init: Any = None, n_threads: int = 1) -> Solution:
        """Solve ``J x = b`` for one or several b.

        Parameters
        ----------
        model : GaussianModel
            Model with the precision J; its ``h`` is not used.
        right_hand_side : array-like of shape (N, D) or (R, N, D)
        init : array-like of the same shape, optional
            Starting point of the iterations, with the shape of ``right_hand_side``; zero by default.
        n_threads : int, default=1
            Number of threads for this model; results do not depend on it.

        Returns
        -------
        Solution

        Raises
        ------
        ValueError
            If the algorithm only draws samples, or shapes do not fit.
        """
        self._require("marginals", model)
        return self._solution(model, right_hand_side, init, n_threads)

    def _solution(self, model, right_hand_side, init, n_threads):
        b = check_vectors(model, right_hand_side, "right_hand_side")
        x = np.zeros(b.shape, b.dtype) if init is None else copied(check_vectors(model, init, "init"))
        if x.shape != b.shape:
            raise ValueError(f"init must have the shape of the right-hand side, {b.shape}, got {x.shape}.")
        several_b, several_x = (a if a.ndim == 3 else a[None] for a in (b, x))
        return Solution(x, *self._solve(model, several_b, several_x, n_threads))

    def _solve(self, model, b, x, n_threads):
        """Replace x by the solutions; return the largest residual and iteration count, and whether all converged."""
        # b, x: (R, N, D)
        raise ValueError(
            f"{type(self).__name__} does not solve linear systems: use ConjugateGradient, GaussianDirect or GaussianBP."
        )

    def _check_model(self, model):
        """Raise ValueError if the algorithm does not accept this model."""
        if model.precision_operator is not None and not self._takes_operators:
            raise ValueError(
                f"model has a precision_operator, which {type(self).__name__} does not support: use ConjugateGradient."
            )


class Doubled(NamedTuple):
    """Arrays of a model in float64, for the kernels that sum over messages or samples."""

    h: np.ndarray
    diagonal: np.ndarray
    blocks: np.ndarray

    @classmethod
    def of(cls, model):
        """Return the arrays of a model in float64; arrays that already have this type are not copied."""
        return cls(*(np.asarray(a, dtype=np.float64) for a in (model.h, model.diagonal, model.blocks)))


def measure_residual(matrix: Any, inverse: np.ndarray, b: np.ndarray, x: np.ndarray) -> float:
    """Return the norm of the residual divided by the norm of ``b``, after multiplying both by the inverse blocks."""
    # matrix: J, sparse; inverse: (N, D, D) inverse diagonal blocks; b, x: (N, D) float64
    rest = b - (matrix @ x.ravel()).reshape(x.shape)
    rest, whole = (np.einsum("sab,sb->sa", inverse, vector) for vector in (rest, b))
    # Divide before squaring, because squares of tiny numbers would underflow to 0.
    unit = np.abs(whole).max(initial=0.0)
    if unit == 0.0:
        return np.inf if rest.any() else 0.0
    return float(np.linalg.norm(rest / unit) / np.linalg.norm(whole / unit))


def make_not_definite_error(where):
    """Return the error for a precision matrix that is not positive definite."""
    return ValueError(f"model has no mean, because its precision is not positive definite: {where}.")


def invert_diagonal_blocks(diagonal, dtype=np.float64):
    """Return the inverses of the diagonal blocks, or raise ValueError if a block is not positive definite."""
    if diagonal.shape[1] == 1:
        found = np.empty(diagonal.shape, dtype)
        if diagonal.size and invert(np.ascontiguousarray(diagonal, dtype).ravel(), found.ravel()) <= 0:
            raise _make_bad_block_error(int(np.argmin(diagonal)))
        return found
    # For small blocks, LAPACK is ten times slower, and threads that call it wait for its lock.
    diagonal, workspace = np.ascontiguousarray(diagonal, dtype), np.empty(diagonal.shape[1:])
    found = np.empty(diagonal.shape, dtype)
    n_sound = invert_blocks(diagonal, workspace, found)
    if n_sound < len(diagonal):
        raise _make_bad_block_error(n_sound)
    return found


def _make_bad_block_error(node):
    return make_not_definite_error(f"the diagonal block of node {node} is not positive definite")


def check_vectors(model, vectors, name):
    """Check right-hand sides or starts, (N, D) or (R, N, D), and convert them to the precision of the model."""
    vectors = np.asarray(vectors, dtype=model.dtype)
    if vectors.shape[-2:] != model.h.shape or vectors.ndim not in (2, 3):
        n_nodes, n_values = model.h.shape
        raise ValueError(
            f"{name} must have shape ({n_nodes}, {n_values}) or (R, {n_nodes}, {n_values}), got {vectors.shape}."
        )
    if not np.isfinite(find_largest_magnitude(np.ascontiguousarray(vectors).ravel())):
        raise ValueError(f"{name} must be finite, found NaN or infinity.")
    return vectors


def copied(vectors):
    """Return a contiguous copy."""
    out = np.empty(vectors.shape, vectors.dtype)
    copy_values(np.ascontiguousarray(vectors).ravel(), out.ravel())
    return out
