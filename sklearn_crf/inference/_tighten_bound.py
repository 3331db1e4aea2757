"""Direct minimisation of the tree-reweighted bound over the scores of spanning trees."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import ordered_map, single_threaded_blas
from sklearn_crf.inference._base import Inference, Marginals
from sklearn_crf.inference._tightening import SOLVERS, Chosen, Tightening, choose_trees
from sklearn_crf.inference._tree import TreeInference
from sklearn_crf.inference._tree_choice import spanning_trees_of
from sklearn_crf.spanning_trees import SpanningTrees


class TightenedBound(NamedTuple):
    """State of a result of :class:`TightenBound`, for a warm start.

    Attributes
    ----------
    trees : SpanningTrees
        Those that were used, each once.
    scores : ndarray of shape (n,), float64
        By what the scores of nodes in the trees differ from an even share.
    disagreement : float
        Largest difference of a marginal of a tree to the mean of all trees.
    bounds : ndarray, float64
        The bound at the start and after each iteration; for ``trees="optimal"``, with each distribution over trees.
    """

    trees: SpanningTrees
    scores: np.ndarray
    disagreement: float
    bounds: np.ndarray


class TightenBound(Inference):
    r"""The tightest upper bound on the log-partition that spanning trees give, by direct minimisation.

    .. math::
        \log Z(\theta) \le \min_{\theta(T)} \sum_T \rho(T) \log Z(\theta(T))
        \quad \text{subject to} \quad \sum_T \rho(T) \theta(T) = \theta,

    :math:`\theta(T)` being scores that use the edges of tree T alone. The problem is convex and its minimum that of the
    tree-reweighted free energy at the edge probabilities of the trees: what :class:`TRWMessagePassing` looks for, with
    convergence certain and a bound at every iteration, also if ``max_iter`` ends it. One iteration is sum-product on
    all trees, which threads share, and a step of a projected method. At the minimum all trees have
    the same marginals; ``marginals`` gives their means, the derivatives of the bound at the scores that the trees have
    come to. The ``state`` of a result says in ``disagreement`` how far trees are from that.

    Parameters
    ----------
    trees : {"minimal", "uniform", "snakes", "optimal"}, int, SpanningTrees or list of array-like, default="minimal"
        ``"minimal"``: few trees that cover all edges. ``"uniform"``: as many as make the edge probabilities even;
        tighter as a rule. ``"snakes"``: four paths to and fro, on lattices whose axis neighbours are joined.
        ``"optimal"``: trees and their probabilities are chosen such that the bound becomes the tightest of all. A
        number of trees. Or trees themselves; a list holds the numbers of the edges of each.
    solver : {"spg", "pqn"}, default="spg"
        Spectral projected gradient, or projected quasi-Newton, whose bound never rises on the way; it takes more time
        between two sums over trees.
    start_sweeps : int, default=0
        Most sweeps of tree-reweighted message passing that the start is made of, if that is better than an even share
        (or than where ``init`` and former trees came to). They are damped once the bound no longer falls, and end when
        the trees agree. A few hundred save most iterations.
    max_iter : int, default=500
        Most iterations, for each distribution over trees.
    tol : float, default=1e-4
        Largest difference of a tree's marginal to the mean of all trees that counts as none (relative to
        ``sqrt(min rho / rho(T))`` for nodes where trees differ in probability). For ``trees="optimal"`` also how far
        the bound may be above the best, relative to it, by the gap of the conditional gradient method.
    outer_iter : int, default=50
        Most trees that ``trees="optimal"`` adds to the few that it begins with.
    outer_step : {"harmonic", "armijo"}, default="harmonic"
        Weight of an added tree. ``"harmonic"`` counts all trees alike: the bound may rise for a while, and the best
        is what comes out. ``"armijo"`` halves it until the bound falls enough.
    random_state : int, RandomState instance or None, default=0
        Picks among trees that cover equally well.

    See Also
    --------
    TRWMessagePassing : Often faster, but not certain to converge.

    Notes
    -----
    In every tree an edge e has the score :math:`\theta_e / \nu_e`, and only scores of nodes are moved: trees that agree
    on the marginals of nodes agree on those of edges, so the minimum is the same. The metric of the steps is weighted
    by :math:`\rho(T)`, in which the gradient for a tree is its plain marginals and Eq. 139 of the reference a
    projection. Pairs or states that are forbidden by what follows from several trees together are ruled out in the
    limit only, which takes more iterations.

    The derivative of the bound by the probability of an edge is the negative mutual information of its ends. So a step
    towards the tree of most information lowers the bound fastest, and an added tree begins at an even share.

    ``trees`` that are chosen here depend on how nodes and edges are numbered, and so do bound and marginals.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Figures 19 and 22, Eq. 134. M. J.
    Wainwright, T. S. Jaakkola, A. S. Willsky. A new class of upper bounds on the log partition function. IEEE Trans.
    Information Theory 51, 2005.
    """

    tasks = frozenset({"marginals"})
    exact_on = "forest"

    def __init__(
        self,
        trees="minimal",
        solver="spg",
        start_sweeps=0,
        max_iter=500,
        tol=1e-4,
        outer_iter=50,
        outer_step="harmonic",
        random_state=0,
    ):
        self.trees = trees
        self.solver = solver
        self.start_sweeps = start_sweeps
        self.max_iter = max_iter
        self.tol = tol
        self.outer_iter = outer_iter
        self.outer_step = outer_step
        self.random_state = random_state

    def _check_model(self, model):
        super()._check_model(model)
        self._require_at_least(start_sweeps=0, outer_iter=0)
        for name, choices in (("solver", tuple(SOLVERS)), ("outer_step", ("harmonic", "armijo"))):
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")

    def _marginals(self, model, *, init=None, n_threads=1):
        if model.graph.is_forest:
            return TreeInference()._marginals(model, n_threads=n_threads)
        # Inner products shared by threads of BLAS took ten times as long as sum-product on a busy machine.
        with ordered_map(n_threads) as mapped, single_threaded_blas():
            tightening = Tightening(model, mapped, self.solver, self.start_sweeps, self.max_iter, self.tol, n_threads)
            if isinstance(self.trees, str) and self.trees == "optimal":
                trees = (
                    spanning_trees_of(model.graph, "minimal", self.random_state) if init is None else _trees_of(init)
                )
                start = _start(tightening.scores(trees), trees, init)
                found = choose_trees(tightening, trees, start, self.outer_iter, self.outer_step)
            else:
                trees = spanning_trees_of(model.graph, self.trees, self.random_state)
                scores = tightening.scores(trees)
                tight = tightening.tighten(scores, _start(scores, trees, init))
                found = Chosen(tight, tight.n_iter, tight.disagreement <= self.tol, tight.trace, 0.0)
        result = _result(model, found)
        if not result.converged:
            self._warn_unconverged(self._why_unconverged(found), depth=1)
        return result

    def _why_unconverged(self, found):
        disagreement = found.best.disagreement
        if disagreement <= self.tol:
            return (
                f"TightenBound stopped after {len(found.bounds) - 1} of outer_iter={self.outer_iter} added trees, and "
                f"the best distribution over trees may lower the bound by {found.gap:.2g}, more than tol={self.tol:g} "
                "of it: raise outer_iter."
            )
        return (
            f"TightenBound stopped after {found.best.n_iter} of max_iter={self.max_iter} iterations with marginals of "
            f"trees differing by {disagreement:.2g} from their mean, more than tol={self.tol:g}: raise max_iter."
        )


def _trees_of(init):
    if not isinstance(init, TightenedBound):
        raise ValueError(f"init must be the state of a former result of TightenBound, got {type(init).__name__}.")
    return init.trees


def _start(scores, trees, init):
    """Differences of the scores of trees to begin with."""
    if init is None:
        return np.zeros(scores.size)
    former = _trees_of(init)
    same = np.array_equal(former.trees, trees.trees) and np.array_equal(former.weights, trees.weights)
    if not same or init.scores.shape != (scores.size,):
        raise ValueError("init must come from the same graph, number of states and trees.")
    return init.scores


def _result(model, found):
    best = found.best
    weight = np.ones((len(best.pairs), 1)) if model.edge_weight is None else model.edge_weight.astype(np.float64)
    tables = np.zeros(model.tables.shape)
    np.add.at(tables, model.edge_type, weight[:, :, None, None] * best.pairs[:, None])
    return Marginals(
        best.unary.astype(model.dtype),
        tables,
        best.bound,
        best.log_z_terms,
        "upper",
        n_iter=found.n_iter,
        converged=found.converged,
        state=TightenedBound(best.scores.trees, best.x, best.disagreement, found.bounds),
    )
