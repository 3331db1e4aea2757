"""Gibbs sampling, which draws labels node by node from their conditional distributions."""

from typing import ClassVar

import numpy as np
from sklearn.utils import check_random_state

from sklearn_crf._options import options
from sklearn_crf._threads import checkpoint, make_range_runner, run_fixed_ranges
from sklearn_crf.inference._allowed_labels import find_nearest_allowed, is_feasible
from sklearn_crf.inference._base import Inference, at_least
from sklearn_crf.inference._local_search import (
    allocate_table_buffers,
    build_local_arguments,
    copy_initial_labels,
    group_updates,
    label_nodes_independently,
    random_labels,
    search_problem,
)
from sklearn_crf.inference._results import Marginals
from sklearn_crf.kernels.local.local import SearchWorkspace, annealing_sweep, gibbs_update, stream_key
from sklearn_crf.models import FactorGraph, Statistics, check_labels


@options(kw_only=False)
class GibbsChains(Inference):
    """Base class of algorithms that redraw every node given its neighbours in each sweep.

    A subclass makes chains, which are objects with ``values`` that ``sweep()`` redraws in place.

    Parameters
    ----------
    n_sweeps : int, default=200
        Number of sweeps of each chain over which marginals are averaged.
    burn_in : int, default=50
        Number of initial sweeps of each chain that are discarded.
    thin : int, default=10
        Number of sweeps of a chain between two samples.
    n_chains : int, default=1
        Number of independent chains. Averages are over all chains; samples are taken from one chain after another.
    random_state : int, RandomState instance or None, default=None
        An integer gives reproducible results for any number of threads.
    """

    tasks = frozenset({"marginals", "sample"})
    _ranges: ClassVar[dict] = {
        "n_sweeps": at_least(1),
        "burn_in": at_least(0),
        "thin": at_least(1),
        "n_chains": at_least(1),
    }
    n_sweeps: int = 200
    burn_in: int = 50
    thin: int = 10
    n_chains: int = 1
    random_state: int | np.random.RandomState | None = None

    def _chains(self, model, init, random_state, run):
        """Return Markov chains that have completed their burn-in."""
        raise NotImplementedError(type(self).__name__)

    def _sample(self, model, n_samples, *, random_state=None, n_threads=1):
        chains = self._chains(
            model, None, self.random_state if random_state is None else random_state, make_range_runner(n_threads)
        )
        samples = np.empty((n_samples, *chains[0].values.shape), chains[0].values.dtype)
        for k in range(n_samples):
            samples[k] = swept(chains[k % self.n_chains], self.thin).values
        self._check_chains(model, chains)
        return samples

    def _check_chains(self, model, chains):
        """Raise ValueError if the values of chains diverge, which means that the model has no normalisable density."""


def swept(chain, n_sweeps, *totals):
    """Run a number of sweeps of a chain, which add to ``totals`` if given, and return the chain."""
    for _ in range(n_sweeps):
        chain.sweep(*totals)
    return chain


@options
class GibbsSampler(GibbsChains):
    r"""Gibbs sampling, in which every sweep redraws each node from its conditional distribution given its neighbours.

    .. math::
        y_s \sim p(y_s = k \mid y_{n(s)}) \propto
            \exp \Big( u_{s k} + \sum_{e \ni s} \theta_e(k, y_{n(e)}) \Big)

    Marginals are averages of these conditional probabilities over the sweeps, which vary less than counts of the drawn
    labels (Rao and Blackwell). The error of these averages decreases with the square root of the number of independent
    sweeps. The stronger the edges, the more sweeps depend on each other. There is no ``log_z``.

    Raises
    ------
    ValueError
        If an option is out of its range, ``init`` does not fit the model, or a chain still contains a forbidden pair of
        states after ``burn_in`` sweeps.

    Notes
    -----
    The first chain starts from the state with the best unary score at each node, the other chains from random labels.
    With ``init``, all chains start from it: labels of shape (N,), or (n_chains, N) such as the ``state`` of an earlier
    result. Forbidden pairs are removed from the start, on forests always and on other graphs if this is easy, and are
    never drawn afterwards. If changes of single nodes cannot connect all allowed labelings, a chain stays in its part
    of the allowed labelings.

    Nodes of one colour of ``graph.colouring`` are drawn at once. The random number of each draw depends only on the
    seed, the chain, the sweep and the node.

    References
    ----------
    S. Geman and D. Geman. Stochastic Relaxation, Gibbs Distributions, and the Bayesian Restoration of Images. IEEE
    Transactions on Pattern Analysis and Machine Intelligence 6, 1984, :doi:`10.1109/TPAMI.1984.4767596`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import GibbsSampler
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> sampler = GibbsSampler(n_sweeps=500, random_state=0)
    >>> sampler.marginals(model).unary.round(1)
    array([[0.2, 0.8],
           [0.4, 0.6],
           [0.2, 0.8]])
    >>> sampler.sample(model, 2).shape
    (2, 3)
    """

    def _marginals(self, model, *, init=None, n_threads=1):
        totals = np.zeros(model.unary.shape)
        buffers = allocate_table_buffers(model, model.graph.n_nodes)
        started = self._chains(model, init, self.random_state, make_range_runner(n_threads))
        chains = [swept(chain, self.n_sweeps, totals, buffers) for chain in started]
        n_drawn = self.n_sweeps * self.n_chains
        unary = (totals / n_drawn).astype(model.dtype)
        return Marginals(
            unary,
            Statistics(unary, buffers.sum(axis=0) / n_drawn),
            log_z=None,
            log_z_terms=None,
            bound=None,
            n_iter=self.burn_in + self.n_sweeps,
            state=np.stack([chain.values for chain in chains]),
        )

    def _chains(self, model, init, random_state, run):
        """Return Markov chains that have completed their burn-in."""
        rng = check_random_state(random_state)
        seed = rng.randint(np.iinfo(np.int64).max, dtype=np.int64)
        chains = []
        for number, labels in enumerate(self._starts(model, init, rng)):
            chain = swept(LabelChain(model, find_nearest_allowed(model, labels), seed, number, run), self.burn_in)
            # Allowed labels remain allowed in later sweeps.
            if not is_feasible(model, chain.values):
                raise ValueError(
                    f"GibbsSampler found no feasible labeling, neither by a search nor in burn_in={self.burn_in} "
                    "further sweeps: some pair of neighbours still has a forbidden pair of states. Pass a feasible "
                    "labeling as init, or increase burn_in."
                )
            chains.append(chain)
        return chains

    def _starts(self, model, init, rng):
        if init is None:
            return [
                random_labels(model, rng) if number else label_nodes_independently(model)
                for number in range(self.n_chains)
            ]
        init = np.asanyarray(init)
        if init.ndim == 2 and len(init) != self.n_chains:
            raise ValueError(f"init must hold labels for n_chains={self.n_chains} chains, got {len(init)}.")
        return [copy_initial_labels(model, labels) for labels in (init if init.ndim == 2 else [init] * self.n_chains)]


def gibbs_sweeps(model, labels, n_sweeps, seed, n_threads=1):
    """Return labels after some Gibbs sweeps from given labels: the negative phase of contrastive divergence."""
    # labels: (N,) of int, or None to start from the best state of each node; returns: (N,), int32
    labels = find_nearest_allowed(model, label_nodes_independently(model)) if labels is None else labels
    labels = check_labels(model, labels).copy()
    if n_sweeps < 0:
        raise ValueError(f"n_sweeps must not be negative, got {n_sweeps!r}.")
    if isinstance(model, FactorGraph):
        arrays, unary = search_problem(model)
        workspace = SearchWorkspace(len(unary), len(arrays.table), unary.shape[1])
        cells = arrays.cells(unary, labels)
        for number in range(n_sweeps):
            checkpoint()
            annealing_sweep(arrays, unary, 1.0, stream_key(int(seed), 0, number), labels, cells, workspace)
        return labels
    return swept(LabelChain(model, labels, seed, 0, make_range_runner(n_threads)), n_sweeps).values


class LabelChain:
    """A Markov chain: its labels, which change in place, and its position in the stream of random numbers."""

    def __init__(self, model, labels, seed, number, run):
        self.values = labels
        self._arguments = build_local_arguments(model)
        self._groups = group_updates(model.graph, "checkerboard")
        self._stream = int(seed), number
        self._n_drawn = 0
        self._run = run
        self._no_totals = np.empty((0, 0)), np.empty((0, 0, 0, 0))

    def sweep(self, totals=None, buffers=None):
        """Redraw every node; add probabilities of nodes to ``totals`` and of edges to ``buffers``, if given."""
        checkpoint()
        key = stream_key(*self._stream, self._n_drawn)
        self._n_drawn += 1
        for nodes in self._groups:
            if totals is None:
                self._run(lambda start, stop, nodes=nodes: self._update(nodes, start, stop, key), len(nodes))
            else:
                run_fixed_ranges(
                    self._run,
                    lambda k, start, stop, nodes=nodes: self._update(nodes, start, stop, key, totals, buffers[k]),
                    len(nodes),
                    len(buffers),
                )

    def _update(self, nodes, start, stop, key, *totals):
        scores = np.empty(self._arguments[0].shape[1])
        gibbs_update(nodes, start, stop, *self._arguments, key, self.values, scores, *(totals or self._no_totals))
