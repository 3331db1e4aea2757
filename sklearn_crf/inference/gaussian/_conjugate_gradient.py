"""Mean of a Gaussian field by conjugate gradients."""

from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import checkpoint, make_range_runner, run_alone, split_into_ranges
from sklearn_crf.inference._base import at_least
from sklearn_crf.inference.gaussian import _base, _tuning
from sklearn_crf.kernels.gaussian import gaussian as kernels


@options(kw_only=False)
class ConjugateGradient(_base.GaussianInference):
    r"""Mean of a Gaussian field by conjugate gradients, preconditioned with the diagonal blocks.

    .. math::
        J u = h, \qquad \text{until } \|A^{-1} (h - J u)\| \le \mathrm{tol} \, \|A^{-1} h\|

    with the diagonal blocks A of J. The residual is thus measured in the units of the mean, in which nodes of large
    precision, such as observed pixels, do not hide the errors of other nodes.

    J is never stored: products run over the edges, and on chains and planes row by row. The number of iterations grows
    with the square root of the condition number of J, which the ``eigenvalue_bounds`` of a field's factors keep small.

    Parameters
    ----------
    max_iter : int, default=1000
        Maximum number of iterations.
    tol : float, default=1e-6
        Iterations stop when the relative norm of the residual above, computed from the mean, is at most this. They also
        stop when rounding errors prevent further progress. ``converged`` is then true if the norm is at most the square
        root of the machine epsilon, 3e-4 in float32 and 1.5e-8 in float64.
    n_probes : int, default=0
        Number of random sign vectors for estimating the covariance blocks, with D solves for each vector; with 0, no
        covariance is returned. The estimate is unbiased, and its error decreases with the square root of the number of
        vectors.
    random_state : int, RandomState instance or None, default=None
        Determines the sign vectors.

    Raises
    ------
    ValueError
        If a direction has no positive curvature, so that the precision is not positive definite; if an option is out of
        its range, or ``init`` does not fit. A solution does not prove that the precision is positive definite.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Figure 38 and Eq. (232). C. Bekas, E.
    Kokiopoulou and Y. Saad. An estimator for the diagonal of a matrix. Applied Numerical Mathematics 57, 2007,
    :doi:`10.1016/j.apnum.2007.01.003`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import ConjugateGradient
    >>> from sklearn_crf.models import GaussianModel
    >>> model = GaussianModel(lattice((3,)), [1.0, 0.0, 0.0], np.full(3, 2.0), [-1.0])
    >>> ConjugateGradient().marginals(model).mean.ravel().round(3)
    array([0.75, 0.5 , 0.25])
    """

    tasks = frozenset({"marginals"})
    _takes_operators = True
    _ranges: ClassVar[dict] = {"n_probes": at_least(0)}
    max_iter: int = 1000
    tol: float = 1e-6
    n_probes: int = 0
    random_state: int | np.random.RandomState | None = None

    def _solve(self, model, b, x, n_threads):
        system = _System(model, make_range_runner(n_threads))
        runs = [
            system.solve(np.ascontiguousarray(one), start, self.tol, self.max_iter)
            for one, start in zip(b, x, strict=True)
        ]
        # If a run ended before max_iter and above tol, rounding errors prevented further progress.
        rounding = max(self.tol, np.sqrt(np.finfo(model.dtype).eps))
        failed = [run for run in runs if not run[0] <= (rounding if run[1] < self.max_iter else self.tol)]
        if failed:
            residual, n_iter = max(failed)
            reason, remedy = f"after max_iter={self.max_iter} iterations", "increase max_iter or tol"
            if n_iter < self.max_iter:
                reason = f"at the rounding errors of {model.dtype}, after {n_iter} iterations,"
                remedy = "increase tol" + " or use float64" * (model.dtype == np.float32)
            warn_unconverged(
                f"ConjugateGradient stopped {reason} with a residual of {residual:.2g}, above tol={self.tol}: {remedy}."
            )
        residual, n_iter = (max(column) for column in zip(*runs, strict=True)) if runs else (0.0, 0)
        return residual, n_iter, not failed

    def _marginals(self, model, *, init=None, n_threads=1):
        found = self._solution(model, model.h, init, n_threads)
        covariance = self._probe_covariance(model, n_threads) if self.n_probes else None
        return _base.GaussianMarginals(
            found.x, covariance, None, found.residual, found.n_iter, found.converged, state=found.x
        )

    def _probe_covariance(self, model, n_threads):
        n_nodes, n_values = model.h.shape
        rng = check_random_state(self.random_state)
        total = np.zeros((n_nodes, n_values, n_values))
        for _ in range(self.n_probes):
            signs = rng.choice(np.array([-1.0, 1.0]), size=n_nodes)
            for value in range(n_values):
                probe = np.zeros(model.h.shape)
                probe[:, value] = signs
                total[:, :, value] += signs[:, None] * self._solution(model, probe, None, n_threads).x
        return (total + total.transpose(0, 2, 1)) / (2 * self.n_probes)


def _make_curvature_error():
    return _base.make_not_definite_error("conjugate gradients found a direction without curvature")


def _build_whole_diagonal(model):
    """Return the diagonal blocks, plus the diagonal of ``precision_operator`` if this is known."""
    # returns: (N, D, D)
    more = getattr(model.precision_operator, "diagonal", None)
    if more is None:
        return model.diagonal
    n_nodes, n_values = model.h.shape
    more = np.reshape(more, (n_nodes, n_values, 1)).astype(model.dtype)
    return model.diagonal + more * np.eye(n_values, dtype=model.dtype)


class _System:
    """Linear system with its preconditioner, and the vectors that the iterations use."""

    def __init__(self, model, run):
        self.run = run
        self.operator = model.operator
        self.more = model.precision_operator
        self.is_block_diagonal = model.graph.n_edges == 0 and self.more is None
        self.inverse = _base.invert_diagonal_blocks(_build_whole_diagonal(model), model.dtype)
        self.largest_inverse = float(kernels.find_largest_magnitude(self.inverse.ravel()))
        self.n_nodes = len(model.h)
        # Starts of the ranges of nodes that are summed separately, followed by the number of nodes
        ranges = split_into_ranges(self.n_nodes, max(1, min(16, model.h.size // _tuning.SMALLEST_RANGE)))
        self.bounds = np.array([start for start, _ in ranges] + [self.n_nodes], dtype=np.int64)
        self.sums = np.zeros((len(self.bounds) - 1, 2))
        # (N, D) each: residual and direction are multiplied by ``unit``; scaled is the residual times ``inverse``
        self.residual, self.direction, self.scaled, self.product = (np.empty_like(model.h) for _ in range(4))
        self.unit = 1.0

    def solve(self, b, x, tol, max_iter):
        """Improve ``x`` in place; return the relative residual and the number of iterations.

        The residual that iterations update deviates from the true residual by rounding errors. Each round of iterations
        therefore ends with the true residual. Further rounds follow as long as each at least halves the true residual.
        """
        largest = float(kernels.find_largest_magnitude(b.ravel()))
        if largest == 0.0:
            x[:] = 0
            return 0.0, 0
        self._choose_unit(largest)
        self.product[:] = 0
        weighted, squared = self._begin(b)
        scale, former, n_iter = np.sqrt(squared), np.inf, 0
        if self.is_block_diagonal:
            # Solve separately for each node, so that the result of a node does not depend on other nodes.
            x[:] = np.einsum("sab,sb->sa", self.inverse, b)
        if kernels.find_largest_magnitude(x.ravel()) > 0:
            self._multiply(x)
            weighted, squared = self._begin(b)
        while True:
            left = np.sqrt(squared)
            if left <= tol * scale or n_iter >= max_iter or not left <= former / 2:
                return float(left / scale) if left < np.inf and scale > 0 else np.inf, n_iter
            limit = max(tol, np.finfo(b.dtype).eps) * scale
            made, curvature, squared = self._iterate(max_iter - n_iter, limit, weighted, squared, x)
            # The sign of the curvature is unreliable if the residual is as small as rounding errors.
            if curvature <= 0.0 and np.sqrt(squared) > limit:
                raise _make_curvature_error()
            n_iter, former = n_iter + made, left
            self._multiply(x)
            weighted, squared = self._begin(b)

    def _choose_unit(self, largest: float) -> None:
        """Choose the power of two that scales the products of a right-hand side and the inverse blocks to about one."""
        limit = np.finfo(self.residual.dtype).maxexp - 2
        exponent = np.frexp(largest)[1] + np.frexp(self.largest_inverse)[1]
        self.unit = float(np.ldexp(1.0, int(np.clip(-exponent, -limit, limit))))

    def _iterate(
        self, max_iter: int, limit: float, weighted: float, squared: float, x: np.ndarray
    ) -> tuple[int, float, float]:
        """Iterate until the norm of the scaled residual is at most ``limit``.

        Return the number of iterations, the curvature along the last direction, and the squared norm at the end.
        """
        lattice: Any = getattr(self.operator, "lattice", None)
        is_in_kernel = self.run is run_alone and lattice is not None and self.more is None
        n_iter, curvature, at_once = 0, 1.0, 1 + _tuning.NUMBERS_AT_ONCE // max(1, x.size)
        while n_iter < max_iter and curvature > 0.0 and not squared <= limit * limit:
            checkpoint()
            if is_in_kernel:
                most = min(max_iter - n_iter, at_once)
                vectors = x, self.residual, self.direction, self.product, self.scaled
                made, curvature, weighted, squared = kernels.iterate_on_lattice(
                    most, limit, self.unit, weighted, squared, *lattice, self.inverse, self.bounds, *vectors
                )
                n_iter += made
                continue
            self._multiply(self.direction)
            curvature = self._inner(self.direction, self.product)
            if curvature > 0.0:
                former = weighted
                weighted, squared = self._step(weighted / curvature, x)
                self._turn(weighted / former)
                n_iter += 1
        return n_iter, curvature, squared

    def _multiply(self, vector):
        n_rows = self.operator.n_items
        least = max(1, _tuning.SMALLEST_RANGE * n_rows // max(vector.size, 1))
        self.run(lambda start, stop: self.operator(vector, start, stop, self.product), n_rows, smallest_range=least)
        if self.more is not None:
            self.product += self.more.matvec(vector.ravel()).reshape(vector.shape)

    def _sum_over_ranges(self, kernel):
        """Add the partial sums of ranges in order, and return both totals."""
        self.run(kernel, len(self.sums), smallest_range=1)
        # cumsum adds in the order of the kernels, whereas Python's sum compensates rounding errors in newer versions.
        return np.cumsum(self.sums, axis=0)[-1].tolist()

    def _inner(self, a, b):
        return self._sum_over_ranges(
            lambda start, stop: kernels.inner_product(a, b, self.bounds, start, stop, self.sums)
        )[0]

    def _turn(self, share):
        def kernel(start, stop):
            kernels.turn(share, self.scaled, start, stop, self.direction)

        self.run(kernel, self.n_nodes, smallest_range=_tuning.SMALLEST_RANGE)

    def _begin(self, b):
        vectors = self.residual, self.scaled, self.direction, self.sums
        return self._sum_over_ranges(
            lambda start, stop: kernels.begin(
                self.unit, b, self.product, self.inverse, self.bounds, start, stop, *vectors
            )
        )

    def _step(self, length, x):
        before, after = (self.direction, self.product, self.inverse), (x, self.residual, self.scaled, self.sums)
        return self._sum_over_ranges(
            lambda start, stop: kernels.take_step(length, self.unit, *before, self.bounds, start, stop, *after)
        )
