"""Gibbs sampling in Gaussian fields."""

from functools import partial
from itertools import pairwise

import numpy as np
from sklearn.utils import check_random_state

from sklearn_crf._options import options
from sklearn_crf._threads import checkpoint, make_range_runner
from sklearn_crf.inference.gaussian import _base
from sklearn_crf.inference.local._gibbs import GibbsChains, swept
from sklearn_crf.kernels.gaussian.gaussian import gaussian_gibbs_update
from sklearn_crf.kernels.local.local import stream_key


@options
class GaussianGibbs(GibbsChains, _base.GaussianInference):
    r"""Gibbs sampling, in which every sweep redraws the D values of each node jointly, given its neighbours.

    .. math::
        y_s \sim \mathcal N (m_s, A_s^{-1}), \qquad
        m_s = A_s^{-1} \Big( h_s - \sum_{t \ne s} J_{st} y_t \Big)

    The mean is estimated by the average of the :math:`m_s`. The covariance block of a node is estimated by
    :math:`A_s^{-1}` plus the covariance of its :math:`m_s` over sweeps. Both estimates vary less than averages of the
    drawn values (Rao and Blackwell).

    Raises
    ------
    ValueError
        If an option is out of its range, ``init`` does not fit, or a diagonal block is not positive definite. Also if
        the last values :math:`y` of a chain have :math:`y^\top J y < 0`. The precision is then not positive definite,
        and the values grow without bound.

    Notes
    -----
    Nodes of one colour of ``graph.colouring`` are drawn at once. The random numbers of a node depend only on the seed,
    the chain, the sweep and the node. ``init`` is an array of shape (N, D) or (n_chains, N, D), such as the ``state``
    of an earlier result.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Figure 40 and Eq. (233) to (235).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import GaussianGibbs
    >>> from sklearn_crf.models import GaussianModel
    >>> model = GaussianModel(lattice((3,)), [1.0, 0.0, 0.0], np.full(3, 2.0), [-1.0])
    >>> GaussianGibbs(n_sweeps=2000, random_state=0).marginals(model).mean.shape
    (3, 1)
    """

    def _marginals(self, model, *, init=None, n_threads=1):
        n_values = model.n_values
        total = np.zeros(model.h.shape)
        total_square = np.zeros((len(total), n_values, n_values))
        started = self._chains(model, init, self.random_state, make_range_runner(n_threads))
        chains = [swept(chain, self.n_sweeps, total, total_square) for chain in started]
        self._check_chains(model, chains)
        n_drawn = self.n_sweeps * self.n_chains
        mean = total / n_drawn
        covariance = chains[0].covariance + total_square / n_drawn - mean[:, :, None] * mean[:, None, :]
        return _base.GaussianMarginals(
            mean.astype(model.dtype),
            covariance,
            log_z=None,
            n_iter=self.burn_in + self.n_sweeps,
            state=np.stack([chain.values for chain in chains]),
        )

    def _chains(self, model, init, random_state, run):
        """Return Markov chains that have completed their burn-in."""
        seed = check_random_state(random_state).randint(np.iinfo(np.int64).max, dtype=np.int64)
        starts = np.zeros(model.h.shape) if init is None else _base.check_vectors(model, init, "init")
        starts = np.broadcast_to(starts, (self.n_chains, *model.h.shape))
        covariance = _base.invert_diagonal_blocks(model.diagonal)
        root = np.linalg.cholesky(covariance)
        make = partial(_GaussianChain, model, covariance=covariance, root=root, run=run)
        chains = [make(start.astype(np.float64), stream=(int(seed), number)) for number, start in enumerate(starts)]
        return [swept(chain, self.burn_in) for chain in chains]

    def _check_chains(self, model, chains):
        # If there are directions of negative curvature, the energy has no minimum, and values grow without bound.
        rounding = np.sqrt(np.finfo(model.dtype).eps) * np.abs(model.diagonal).max(initial=0.0)
        for chain in chains:
            largest = np.abs(chain.values).max(initial=1.0)
            unit = chain.values / largest if np.isfinite(largest) else None
            if unit is None or np.sum(unit * model.product(unit)) < -rounding * np.sum(unit**2):
                raise _base.make_not_definite_error("the values of a chain have negative curvature")


class _GaussianChain:
    """A Markov chain: its values, which change in place, and its position in the stream of random numbers."""

    def __init__(self, model, values, covariance, root, stream, run):
        self.values, self.covariance, self.root = values, covariance, root
        ptr, neighbor, half_edge, _ = model.graph.incidence
        self._graph = ptr, neighbor, half_edge
        self._arrays, self._edge_type = _base.Doubled.of(model), model.edge_type
        nodes, bounds = model.graph.colouring
        self._groups = [nodes[a:b] for a, b in pairwise(bounds)]
        self._stream, self._n_drawn, self._run = stream, 0, run

    def sweep(self, *totals):
        """Redraw every node; if totals are given, add the nodes' conditional means and their outer products."""
        checkpoint()
        key = stream_key(*self._stream, self._n_drawn)
        self._n_drawn += 1
        totals = totals or (np.empty((0, 0)), np.empty((0, 0, 0)))
        for nodes in self._groups:
            self._run(lambda start, stop, nodes=nodes: self._update(nodes, start, stop, key, totals), len(nodes))

    def _update(self, nodes, start, stop, key, totals):
        gaussian_gibbs_update(
            nodes,
            start,
            stop,
            self._arrays.h,
            self.covariance,
            self.root,
            self._edge_type,
            self._arrays.blocks,
            *self._graph,
            key,
            self.values,
            *totals,
            np.empty(2 * self.values.shape[1]),
        )
