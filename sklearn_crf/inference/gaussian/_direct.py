"""Exact inference in Gaussian fields by sparse factorisation."""

from typing import Any

import numpy as np
import scipy.sparse.linalg
from sklearn.utils import check_random_state

from sklearn_crf._options import options
from sklearn_crf._threads import checkpoint
from sklearn_crf.inference.gaussian import _base, _tuning


@options(kw_only=False)
class GaussianDirect(_base.GaussianInference):
    r"""Mean, covariance, log-partition and samples of a Gaussian field by a sparse factorisation of its precision.

    .. math::
        u = J^{-1} h, \qquad
        \log Z = \tfrac12 h^\top J^{-1} h + \tfrac{N D}{2} \log 2 \pi - \tfrac12 \log \det J

    Results are exact up to rounding errors, in float64. On planes, the factors fill in: for an image of a million
    pixels, the factorisation takes minutes and gigabytes, while :class:`ConjugateGradient` takes a second. The
    covariance takes N D additional solves.

    Parameters
    ----------
    covariance : bool, default=True
        Whether ``marginals`` computes the diagonal blocks of the covariance.
    random_state : int, RandomState instance or None, default=None
        Determines the samples.

    Raises
    ------
    ValueError
        If the precision is not positive definite.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Eq. (208) to (210).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import GaussianDirect
    >>> from sklearn_crf.models import GaussianModel
    >>> model = GaussianModel(lattice((3,)), [1.0, 0.0, 0.0], np.full(3, 2.0), [-1.0])
    >>> found = GaussianDirect().marginals(model)
    >>> found.mean.ravel().round(3), found.covariance.ravel().round(3)
    (array([0.75, 0.5 , 0.25]), array([0.75, 1.  , 0.75]))
    """

    tasks = frozenset({"marginals", "sample"})
    covariance: bool = True
    random_state: int | np.random.RandomState | None = None

    def _marginals(self, model, *, init=None, n_threads=1):
        if not len(model.h):
            return _base.GaussianMarginals(model.h.copy(), np.zeros(model.diagonal.shape), 0.0, 0.0)
        factor, matrix = _factorise(model)
        mean, residual = _solve_system(factor, matrix, _base.invert_diagonal_blocks(model.diagonal), model.h)
        log_det = np.log(factor.U.diagonal()).sum()
        log_z = 0.5 * (np.vdot(model.h, mean) + mean.size * np.log(2 * np.pi) - log_det)
        covariance = _compute_diagonal_blocks(factor, model) if self.covariance else None
        return _base.GaussianMarginals(mean.astype(model.dtype), covariance, float(log_z), residual)

    def _solve(self, model, b, x, n_threads):
        residuals = [0.0]
        if x.size:
            factor, matrix = _factorise(model)
            inverse = _base.invert_diagonal_blocks(model.diagonal)
            for one, found in zip(b, x, strict=True):
                found[:], residual = _solve_system(factor, matrix, inverse, one)
                residuals.append(residual)
        return max(residuals), 0, True

    def _sample(self, model, n_samples, *, random_state=None, n_threads=1):
        rng = check_random_state(self.random_state if random_state is None else random_state)
        draws = rng.normal(size=(n_samples, model.h.size))
        if not model.h.size:
            return draws.reshape(n_samples, *model.h.shape)
        factor, _ = _factorise(model)
        mean = factor.solve(model.h.ravel().astype(np.float64))
        # With P' J P = L D L', x = P L'^-1 D^-1/2 z has covariance J^-1.
        scaled = draws / np.sqrt(factor.U.diagonal())
        solved = scipy.sparse.linalg.spsolve_triangular(factor.L.T.tocsr(), scaled.T, lower=False)
        samples = mean + solved[factor.perm_c].T
        return samples.reshape(n_samples, *model.h.shape)


def _factorise(model):
    """Factorise J by SuperLU without pivoting, which is stable for positive definite J; return the factors and J."""
    matrix = model.precision_matrix()
    options = {"SymmetricMode": True, "DiagPivotThresh": 0.0}
    try:
        factor = scipy.sparse.linalg.splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    except RuntimeError as error:
        raise _base.make_not_definite_error("it is singular") from error
    # If a pivot is as small as the rounding errors of its sum, its true value may be zero or negative.
    rounding = np.finfo(np.float64).eps * np.diff(matrix.indptr) * matrix.diagonal()
    is_sound = np.array_equal(factor.perm_r, factor.perm_c)
    if not is_sound or np.any(factor.U.diagonal()[factor.perm_c] <= rounding):
        raise _base.make_not_definite_error("its factorisation has a pivot that is not positive")
    return factor, matrix


def _solve_system(factor: Any, matrix: Any, inverse: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, float]:
    """Solve the system in float64; return the solution and its relative residual."""
    b = b.astype(np.float64)
    x = factor.solve(b.ravel()).reshape(b.shape)
    return x, _base.measure_residual(matrix, inverse, b, x)


def _compute_diagonal_blocks(factor, model):
    n_nodes, n_values = model.h.shape
    at_once = max(1, _tuning.COLUMNS_AT_ONCE // n_values)
    blocks = np.empty((n_nodes, n_values, n_values))
    for start in range(0, n_nodes, at_once):
        checkpoint()
        stop = min(start + at_once, n_nodes)
        columns = np.arange(start * n_values, stop * n_values)
        unit = np.zeros((n_nodes * n_values, len(columns)))
        unit[columns, np.arange(len(columns))] = 1.0
        square = factor.solve(unit)[columns].reshape(stop - start, n_values, stop - start, n_values)
        blocks[start:stop] = square[np.arange(stop - start), :, np.arange(stop - start)]
    return (blocks + blocks.transpose(0, 2, 1)) / 2
