"""Belief propagation in Gaussian fields."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import checkpoint, make_range_runner
from sklearn_crf.inference.gaussian import _base
from sklearn_crf.kernels.gaussian.gaussian import invert_blocks, send_gaussians


class GaussianMessages(NamedTuple):
    """Messages of Gaussian belief propagation, stored at the slot of ``graph.incidence`` that receives them."""

    shift: np.ndarray  # (2E, D)
    precision: np.ndarray  # (2E, D, D)


@options(kw_only=False)
class GaussianBP(_base.GaussianInference):
    r"""Belief propagation with Gaussian messages, exact on forests. On other graphs, the mean is exact at convergence.

    .. math::
        P_{s \to t} = -J_{ts} P_{s \setminus t}^{-1} J_{st}, \qquad
        q_{s \to t} = -J_{ts} P_{s \setminus t}^{-1} q_{s \setminus t}

    where :math:`P_{s \setminus t}` is :math:`A_s` plus the precisions of all messages to s except the message from t,
    and :math:`q_{s \setminus t}` is :math:`h_s` plus the shifts of these messages. All messages are updated at once. On
    graphs with cycles, the covariance counts some paths more than once or not at all. The iteration converges if the
    spectral radius of the absolute values of the normalised couplings is below one. Such fields are called
    walk-summable; diagonally dominant fields are an example. On forests, positive precisions of all nodes prove that J
    is positive definite; on graphs with cycles, they do not.

    Parameters
    ----------
    max_iter : int, default=1000
        Maximum number of sweeps.
    tol : float, default=1e-9
        Iterations stop when the residual of the mean and the relative change of every message are at most this. Changes
        of precisions are divided by the diagonal of J at the receiving node. Changes of shifts are divided by this
        diagonal and by the largest magnitude in all :math:`A_s^{-1} h_s`.
    damping : float, default=0.0
        Weight of the old message in each update, below 1.

    Raises
    ------
    ValueError
        If an option is out of its range, ``init`` does not fit, or messages leave a node without positive precision.
        In the last case, the field is not walk-summable or not positive definite.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Figure 41. Y. Weiss and W. T. Freeman.
    Correctness of Belief Propagation in Gaussian Graphical Models of Arbitrary Topology. Neural Computation 13, 2001,
    :doi:`10.1162/089976601750541769`. D. M. Malioutov, J. K. Johnson and A. S. Willsky. Walk-Sums and Belief
    Propagation in Gaussian Graphical Models. Journal of Machine Learning Research 7, 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import GaussianBP
    >>> from sklearn_crf.models import GaussianModel
    >>> model = GaussianModel(lattice((3,)), [1.0, 0.0, 0.0], np.full(3, 2.0), [-1.0])
    >>> found = GaussianBP().marginals(model)
    >>> found.mean.ravel().round(3), found.covariance.ravel().round(3)
    (array([0.75, 0.5 , 0.25]), array([0.75, 1.  , 0.75]))
    """

    tasks = frozenset({"marginals"})
    exact_on = "forest"
    max_iter: int = 1000
    tol: float = 1e-9
    damping: float = 0.0

    def _marginals(self, model, *, init=None, n_threads=1):
        arrays, matrix = _base.Doubled.of(model), model.precision_matrix()
        inverse = _base.invert_diagonal_blocks(arrays.diagonal)
        old, new = _read_initial_messages(model, init), _read_initial_messages(model, None)
        largest = np.abs(np.einsum("sab,sb->sa", inverse, arrays.h)).max(initial=0.0)
        if largest == 0.0:
            old.shift[:] = 0.0
        # Factors that make changes of precisions and shifts relative: by node and value, and for shifts in addition.
        units = np.sqrt(1.0 / np.einsum("saa->sa", arrays.diagonal)), 1.0 / (largest or 1.0)
        n_iter, change = 0, np.inf if model.graph.n_edges else 0.0
        run = make_range_runner(n_threads)
        while True:
            is_last = n_iter == self.max_iter or change == 0.0
            if is_last or change <= self.tol:
                mean, covariance = _compute_gaussian_beliefs(model, arrays, old)
                residual = _base.measure_residual(matrix, inverse, arrays.h, mean)
                converged = max(change, residual) <= self.tol
                if is_last or converged:
                    break
            checkpoint()
            n_iter += 1
            change = _sweep(model, arrays, old, self.damping, units, new, run)
            old, new = new, old
        if not converged:
            warn_unconverged(
                f"GaussianBP stopped after {n_iter} sweeps. Messages were still changing by {change:.2g}, and the mean "
                f"has a residual of {residual:.2g}; both must be at most tol={self.tol:g}: "
                f"{'increase tol' if change == 0.0 else 'increase max_iter or damping'}."
            )
        return _base.GaussianMarginals(
            mean.astype(model.dtype), covariance, None, residual, n_iter=n_iter, converged=converged, state=old
        )

    def _solve(self, model, b, x, n_threads):
        runs = []
        for one, found in zip(b, x, strict=True):
            # Messages depend on the right-hand side, so x cannot be used as a start.
            marginals = self._marginals(replace(model, h=one), n_threads=n_threads)
            found[:] = marginals.mean
            runs.append((marginals.residual, marginals.n_iter, marginals.converged))
        if not runs:
            return 0.0, 0, True
        residuals, n_iter, converged = zip(*runs, strict=True)
        return max(residuals), max(n_iter), all(converged)


def _read_initial_messages(model, init):
    n_slots, n_values = 2 * model.graph.n_edges, model.n_values
    shapes = (n_slots, n_values), (n_slots, n_values, n_values)
    if init is None:
        return GaussianMessages(*map(np.zeros, shapes))
    messages = GaussianMessages(*(np.array(part, dtype=np.float64) for part in init))
    if tuple(part.shape for part in messages) != shapes:
        raise ValueError(f"init must hold messages of shapes {shapes}, got {tuple(part.shape for part in messages)}.")
    return messages


def _sweep(model, arrays, old, damping, units, new, run):
    """Update every message and return the largest relative change."""
    ptr, neighbor, half_edge, reverse = model.graph.incidence
    n_values = model.n_values
    changes = []

    def part(start, stop):
        work = np.empty(n_values + 2 * n_values * n_values)
        changes.append(
            send_gaussians(
                *(arrays.h, arrays.diagonal, model.edge_type, arrays.blocks, ptr, neighbor, half_edge, reverse),
                *(*old, damping, *units, start, stop, *new, work),
            )
        )

    run(part, model.graph.n_nodes)
    if min(changes) < 0:
        raise _make_precision_error(int(-1 - min(changes)))
    return max(changes)


def _make_precision_error(node: int) -> ValueError:
    return ValueError(
        f"GaussianBP left node {node} without precision, because the model is not walk-summable or its precision is "
        "not positive definite: use ConjugateGradient or GaussianDirect."
    )


def _compute_gaussian_beliefs(model, arrays, messages):
    """Return the mean and the covariance of each node, computed from the messages to it."""
    n_messages = np.diff(model.graph.incidence.ptr)
    node = np.repeat(np.arange(model.graph.n_nodes), n_messages)
    precision, shift = arrays.diagonal.copy(), arrays.h.copy()
    np.add.at(precision, node, messages.precision)
    np.add.at(shift, node, messages.shift)
    # If a precision is as small as the rounding errors of its sum, its true value may be zero or negative.
    rounding = np.finfo(np.float64).eps * (1 + n_messages)[:, None] * np.einsum("saa->sa", arrays.diagonal)
    workspace, covariance = np.empty(precision.shape[1:]), np.empty_like(precision)
    certain = precision - rounding[:, :, None] * np.eye(model.n_values)
    if (n_sound := invert_blocks(certain, workspace, covariance)) < len(precision):
        raise _make_precision_error(n_sound)
    invert_blocks(precision, workspace, covariance)
    return np.einsum("sab,sb->sa", covariance, shift), covariance
