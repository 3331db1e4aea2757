"""Mean of a Gaussian field by conjugate gradients."""

from typing import ClassVar

import numpy as np
from sklearn.utils import check_random_state

from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import checkpoint, make_range_runner, run_alone, split_into_ranges
from sklearn_crf.inference._base import at_least
from sklearn_crf.inference.gaussian import _base, _tuning
from sklearn_crf.kernels.gaussian.gaussian import inner_product, solve_on_lattice, take_step, turn


@options(kw_only=False)
class ConjugateGradient(_base.GaussianInference):
    r"""Mean of a Gaussian field by conjugate gradients, preconditioned with the diagonal blocks.

    .. math::
        J u = h, \qquad \text{until } \|h - J u\| \le \mathrm{tol} \, \|h\|

    J is never stored: products run over the edges, and on chains and planes row by row. The number of iterations grows
    with the square root of the condition number of J, which the ``eigenvalue_bounds`` of a field's factors keep small.

    Parameters
    ----------
    max_iter : int, default=1000
        Maximum number of iterations.
    tol : float, default=1e-6
        Iterations stop when the norm of the residual, relative to the norm of the right-hand side, is at most this. In
        float32, the recursively updated residual drifts away from the true residual at about 1e-6.
    n_probes : int, default=0
        Number of random sign vectors for estimating the covariance blocks, with D solves for each vector; with 0, no
        covariance is returned. The estimate is unbiased, and its error decreases with the square root of the number of
        vectors.
    random_state : int, RandomState instance or None, default=None
        Determines the sign vectors.

    Raises
    ------
    ValueError
        If the precision is not positive definite, an option is out of its range, or ``init`` does not fit.

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
        runs = []
        system = _System(model, make_range_runner(n_threads))
        for one, start in zip(b, x, strict=True):
            runs.append(system.solve(np.ascontiguousarray(one), start, self.tol, self.max_iter))
        residual, n_iter = (max(values, default=0) for values in (zip(*runs, strict=True) if runs else ((), ())))
        converged = residual <= self.tol
        if not converged:
            warn_unconverged(
                f"ConjugateGradient stopped after max_iter={self.max_iter} iterations at a residual of {residual:.2g}, "
                f"above tol={self.tol}: increase max_iter or tol."
            )
        return float(residual), n_iter, converged

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
        self.n_nodes = len(model.h)
        # Starts of the ranges of nodes that are summed separately, followed by the number of nodes
        ranges = split_into_ranges(self.n_nodes, max(1, min(16, model.h.size // _tuning.SMALLEST_RANGE)))
        self.bounds = np.array([start for start, _ in ranges] + [self.n_nodes], dtype=np.int64)
        self.sums = np.zeros((len(self.bounds) - 1, 2))
        self.scaled, self.product = np.empty_like(model.h), np.empty_like(model.h)

    def solve(self, b, x, tol, max_iter):
        """Improve ``x`` in place; return the relative residual and the number of iterations."""
        if self.is_block_diagonal:
            # Solve separately for each node, so that the result of a node does not depend on other nodes.
            x[:] = np.einsum("sab,sb->sa", self.inverse, b)
            return 0.0, 0
        lattice = getattr(self.operator, "lattice", None)
        if self.run is run_alone and lattice is not None and self.more is None:
            return self._solve_on_lattice(lattice, b, x, tol, max_iter)
        self._multiply(x)
        residual = b - self.product
        scale = np.sqrt(self._inner(b, b))
        if scale == 0.0:
            x[:] = 0
            return 0.0, 0
        direction = np.zeros_like(b)
        weighted, squared = self._step(0.0, direction, x, residual)
        direction[:] = self.scaled
        for n_iter in range(max_iter):
            if squared <= (tol * scale) * (tol * scale):
                return np.sqrt(squared) / scale, n_iter
            checkpoint()
            self._multiply(direction)
            curvature = self._inner(direction, self.product)
            if curvature <= 0.0:
                raise _make_curvature_error()
            former = weighted
            weighted, squared = self._step(weighted / curvature, direction, x, residual)
            self._turn(weighted / former, direction)
        return np.sqrt(squared) / scale, max_iter

    def _solve_on_lattice(self, lattice, b, x, tol, max_iter):
        """Solve a linear system on a lattice with few kernel calls."""
        vectors = self.inverse, self.bounds, x, np.empty_like(b), np.empty_like(b), self.product, self.scaled
        n_iter, begins, found, at_once = 0, True, (0.0, 0.0, 0.0), 1 + _tuning.NUMBERS_AT_ONCE // max(1, x.size)
        while True:
            checkpoint()
            most = min(max_iter - n_iter, at_once)
            n_made, curvature, *found = solve_on_lattice(most, tol, begins, *found, b, *lattice, *vectors)
            if curvature <= 0.0 and found[2] > 0.0:
                raise _make_curvature_error()
            n_iter, begins, (_, squared, scale) = n_iter + n_made, False, found
            if scale == 0.0:
                return 0.0, 0
            if n_iter >= max_iter or squared <= (tol * scale) * (tol * scale):
                return np.sqrt(squared) / scale, n_iter

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
        return self._sum_over_ranges(lambda start, stop: inner_product(a, b, self.bounds, start, stop, self.sums))[0]

    def _turn(self, share, direction):
        def kernel(start, stop):
            turn(share, self.scaled, start, stop, direction)

        self.run(kernel, self.n_nodes, smallest_range=_tuning.SMALLEST_RANGE)

    def _step(self, length, direction, x, residual):
        vectors = direction, self.product, self.inverse
        return self._sum_over_ranges(
            lambda start, stop: take_step(
                length, *vectors, self.bounds, start, stop, x, residual, self.scaled, self.sums
            )
        )
