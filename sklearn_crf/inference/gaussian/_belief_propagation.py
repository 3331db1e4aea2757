"""Belief propagation in Gaussian fields."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import checkpoint, make_range_runner
from sklearn_crf.inference.gaussian._base import Doubled, GaussianInference, GaussianMarginals
from sklearn_crf.kernels.gaussian.gaussian import send_gaussians


class GaussianMessages(NamedTuple):
    """Messages of Gaussian belief propagation, stored at the slot of ``graph.incidence`` that receives them."""

    shift: np.ndarray  # (2E, D)
    precision: np.ndarray  # (2E, D, D)


@options(kw_only=False)
class GaussianBP(GaussianInference):
    r"""Belief propagation with Gaussian messages, exact on forests. On other graphs, the mean is exact at convergence.

    .. math::
        P_{s \to t} = -J_{ts} P_{s \setminus t}^{-1} J_{st}, \qquad
        q_{s \to t} = -J_{ts} P_{s \setminus t}^{-1} q_{s \setminus t}

    where :math:`P_{s \setminus t}` is :math:`A_s` plus the precisions of all messages to s except the message from t,
    and :math:`q_{s \setminus t}` is :math:`h_s` plus the shifts of these messages. All messages are updated at once. On
    graphs with cycles, the covariance counts some paths more than once or not at all. The iteration converges if the
    spectral radius of the absolute values of the normalised couplings is below one. Such fields are called
    walk-summable; diagonally dominant fields are an example.

    Parameters
    ----------
    max_iter : int, default=1000
        Maximum number of sweeps.
    tol : float, default=1e-9
        Iterations stop when no coefficient of a message changes by more than this, relative to the largest coefficient
        of the model.
    damping : float, default=0.0
        Weight of the old message in each update, below 1.

    Raises
    ------
    ValueError
        If an option is out of its range, ``init`` does not fit, or a precision is not positive. If a precision is not
        positive, the field is not walk-summable or not positive definite.

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
        arrays = Doubled.of(model)
        old, new = _read_initial_messages(model, init), _read_initial_messages(model, None)
        scale = max((np.abs(array).max(initial=0.0) for array in arrays), default=0.0)
        n_iter, converged = 0, model.graph.n_edges == 0
        run = make_range_runner(n_threads)
        while n_iter < self.max_iter and not converged:
            checkpoint()
            n_iter += 1
            change = _sweep(model, arrays, old, self.damping, new, run)
            old, new = new, old
            converged = change <= self.tol * scale
        if not converged:
            warn_unconverged(
                f"GaussianBP stopped after max_iter={self.max_iter} sweeps while messages were still changing by "
                f"{change / scale:.2g} of the largest number of the model, more than tol={self.tol:g}: increase "
                "max_iter or damping."
            )
        mean, covariance = _compute_gaussian_beliefs(model, arrays, old)
        return GaussianMarginals(
            mean.astype(model.dtype), covariance, log_z=None, n_iter=n_iter, converged=converged, state=old
        )

    def _solve(self, model, b, x, n_threads):
        runs = []
        for one, found in zip(b, x, strict=True):
            # Messages depend on the right-hand side, so x cannot be used as a start.
            marginals = self._marginals(replace(model, h=one), n_threads=n_threads)
            found[:] = marginals.mean
            off = np.linalg.norm(one - model.product(found)) / (np.linalg.norm(one) or 1.0)
            runs.append((float(off), marginals.n_iter, marginals.converged))
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


def _sweep(model, arrays, old, damping, new, run):
    """Update every message and return the largest change."""
    ptr, _, half_edge, reverse = model.graph.incidence
    n_values = model.n_values
    changes = []

    def part(start, stop):
        work = np.empty(n_values + 2 * n_values * n_values)
        changes.append(
            send_gaussians(
                *(arrays.h, arrays.diagonal, model.edge_type, arrays.blocks, ptr, half_edge, reverse),
                *(*old, damping, start, stop, *new, work),
            )
        )

    run(part, model.graph.n_nodes)
    if min(changes) < 0:
        raise ValueError(
            f"GaussianBP left node {int(-1 - min(changes))} without precision, because the model is not walk-summable "
            "or its precision is not positive definite: use ConjugateGradient or GaussianDirect."
        )
    return max(changes)


def _compute_gaussian_beliefs(model, arrays, messages):
    """Return the mean and the covariance of each node, computed from the messages to it."""
    ptr = model.graph.incidence.ptr
    node = np.repeat(np.arange(model.graph.n_nodes), np.diff(ptr))
    precision, shift = arrays.diagonal.copy(), arrays.h.copy()
    np.add.at(precision, node, messages.precision)
    np.add.at(shift, node, messages.shift)
    covariance = np.linalg.inv(precision)
    return np.einsum("sab,sb->sa", covariance, shift), covariance
