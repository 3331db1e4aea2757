"""Direct minimisation of the tree-reweighted bound over the scores of spanning trees."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import checkpoint, limit_blas_threads, make_ordered_map
from sklearn_crf.graphs import SpanningTrees
from sklearn_crf.inference._base import Inference, at_least, convergence_left_to_caller
from sklearn_crf.inference.bounds import _tuning
from sklearn_crf.inference.bounds._factor_parts import FactorForests, FactorShares
from sklearn_crf.inference.bounds._series_parallel import SeriesParallel, SeriesParallelShares
from sklearn_crf.inference.bounds._shared_bound import Averages, NodeShares
from sklearn_crf.inference.bounds._tree_choice import choose_spanning_trees
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.inference.messages._belief_propagation import TRWMessagePassing, propagate_messages
from sklearn_crf.inference.messages._factor_layers import is_forest_of_factors
from sklearn_crf.inference.messages._factor_messages import propagate_reweighted
from sklearn_crf.inference.messages._norm_product import NormProductBP
from sklearn_crf.models import FactorGraph, PairwiseModel
from sklearn_crf.optimize import minimize_pqn, minimize_spg

SOLVERS: dict[str, Callable[..., Any]] = {"spg": minimize_spg, "pqn": partial(minimize_pqn, memory=4)}


#: Scores of trees, sets of factors or series-parallel subgraphs.
Shares = NodeShares | FactorShares | SeriesParallelShares


class Tight(NamedTuple):
    """Result of the minimisation of the bound for given trees."""

    scores: Shares
    x: np.ndarray
    means: Averages
    n_iter: int
    trace: np.ndarray  # (n_iter + 1,), the bound at the start and after each iteration

    @property
    def bound(self) -> float:
        assert self.means.marginals.log_z is not None, "a bound is a log-partition"
        return self.means.marginals.log_z

    @property
    def disagreement(self) -> float:
        return self.means.disagreement


class Tightening:
    """Minimisation of the bound for given trees, with its options."""

    # mapped: a function from :func:`~sklearn_crf._threads.make_ordered_map`
    # start_sweeps, max_iter, tol: as in :class:`TightenBound`

    def __init__(self, model, mapped, solver, start_sweeps, max_iter, tol, n_threads):
        self.model, self.mapped, self.solver, self.max_iter, self.tol = model, mapped, SOLVERS[solver], max_iter, tol
        self.start_sweeps, self.n_threads = start_sweeps, n_threads
        self.messages = None

    def scores(self, trees: SpanningTrees) -> Shares:
        """Return the scores of given trees, which are the unknowns of the minimisation."""
        if isinstance(self.model, FactorGraph):
            return FactorShares(self.model, trees)
        if isinstance(trees, SeriesParallel):
            return SeriesParallelShares(self.model, trees, self.mapped)
        return NodeShares(self.model, trees, self.mapped)

    def _choose_better_start(self, scores: Shares, start: np.ndarray) -> np.ndarray:
        """Return the better start: the result of message passing from messages for earlier trees, or ``start``."""
        if self.start_sweeps == 0 or isinstance(scores, SeriesParallelShares):
            return start
        if isinstance(scores, FactorShares):
            sweeps = TRWMessagePassing(max_iter=self.start_sweeps, tol=0.1 * self.tol)
            with convergence_left_to_caller():
                messages = propagate_reweighted(sweeps, self.model, scores.trees.edge_probabilities)
            x = scores.from_messages(*messages)
            return x if scores.value_grad(x)[0] <= scores.value_grad(start)[0] else start
        best, best_value = start, scores.value_grad(start)[0]
        damping, value, n_left, converged = 0.0, best_value, self.start_sweeps, False
        while n_left > 0 and not converged:
            sweeps = TRWMessagePassing(
                scores.trees, max_iter=min(n_left, _tuning.SWEEPS_AT_ONCE), tol=0.1 * self.tol, damping=damping
            )
            n_left -= sweeps.max_iter
            with convergence_left_to_caller():
                messages, converged = propagate_messages(sweeps, self.model, self.messages, self.n_threads)
            x = scores.project(scores.from_messages(messages))
            before, (value, gradient) = value, scores.value_grad(x)
            if value > before + 1e-12 * abs(value) and damping == 0:
                # The bound has increased: discard these messages and use damping.
                damping, converged = _tuning.DAMPING, False
                continue
            self.messages = messages
            best, best_value = (x, value) if value <= best_value else (best, best_value)
            converged = converged or np.abs(gradient).max() <= self.tol * scores.scale.min()
        return best

    def tighten(self, scores: Shares, start: np.ndarray) -> Tight:
        """Minimise the bound from a starting point until the marginals of all trees agree."""
        x, n_iter, trace = self._choose_better_start(scores, scores.project(start)), 0, np.zeros(0)
        tol = self.tol * scores.scale.min()
        while True:
            found = self.solver(
                scores.value_grad,
                x,
                # Project again: combinations of projected gradients with large coefficients accumulate rounding errors.
                project=scores.project,
                max_iter=self.max_iter - n_iter,
                tol=tol,
                callback=lambda _: checkpoint(),
            )
            x, n_iter = found.x, n_iter + found.nit
            trace = np.concatenate((trace[:-1], found.loss_curve))
            x = scores.project(x)
            tight = Tight(scores, x, scores.average(x), n_iter, np.array(trace))
            # If the gradient is exactly zero, a smaller tolerance does not help.
            is_at_end = not found.success or n_iter >= self.max_iter or found.residual == 0
            if tight.disagreement <= self.tol or is_at_end:
                return tight
            # All nodes agree within the tolerance, but a pair of nodes still differs by more.
            tol *= 0.5 * self.tol / tight.disagreement


class Chosen(NamedTuple):
    """Result of the optimisation over trees."""

    best: Tight
    n_iter: int  # total number of iterations of all minimisations
    converged: bool
    bounds: np.ndarray  # bounds of the accepted distributions over trees
    gap: float  # last upper bound on the decrease that the best distribution over trees could achieve


def choose_trees(tightening, scores, start, outer_iter, outer_step):
    """Optimise the distribution over trees by conditional gradients over the spanning tree polytope (OPTIMALTREES)."""
    # outer_iter: maximum number of trees to add
    current = best = tightening.tighten(scores, start)
    n_trees, n_iter, bounds, step = scores.trees.n_trees, current.n_iter, [current.bound], 1.0
    tree, gap = _find_steepest_tree(current)
    for _ in range(outer_iter):
        if gap <= tightening.tol * max(1.0, abs(current.bound)):
            break
        n_trees += 1
        tried = _take_harmonic_step(tightening, current, tree, 1 / n_trees) if outer_step == "harmonic" else None
        if tried is None:
            tried, step, spent = _search_armijo_step(tightening, current, tree, gap, min(0.5, 2 * step))
            n_iter += spent
            if tried is None:
                break
        else:
            n_iter += tried.n_iter
        current = tried
        bounds.append(current.bound)
        best = current if current.bound < best.bound else best
        tree, gap = _find_steepest_tree(current)
    converged = gap <= tightening.tol * max(1.0, abs(current.bound)) and best.disagreement <= tightening.tol
    return Chosen(best, n_iter, converged, np.array(bounds), gap)


def _take_harmonic_step(tightening, current, tree, step):
    return tightening.tighten(*stepped(tightening, current, tree, step))


def _search_armijo_step(tightening, current, tree, gap, step):
    """Halve the step until the bound decreases enough; return the result or None, the step and the iteration count."""
    spent = 0
    for _ in range(_tuning.MOST_HALVINGS):
        tried = _take_harmonic_step(tightening, current, tree, step)
        spent += tried.n_iter
        if tried.bound <= current.bound - _tuning.SUFFICIENT_DECREASE * step * gap:
            return tried, step, spent
        step /= 2
    return None, step, spent


def _find_steepest_tree(tight):
    """Return the tree in whose direction the bound decreases fastest, and the largest possible decrease.

    The derivative of the bound with respect to the probability of an edge is minus the mutual information of its ends.
    """
    information = tight.means.information()
    tree = tight.scores.find_steepest_tree(information)
    return tree, float(information @ (tree - tight.scores.trees.edge_probabilities))


def stepped(tightening, tight, tree, step):
    """Return the scores of trees after a step towards a new tree, and a start that gives the new tree an even share.

    In this start, the weighted means of the deviations from even shares remain zero for any step.
    """
    before = tight.scores
    trees = before.trees.stepped(tree, step).merged()
    scores = before.on(trees)
    start = np.zeros(scores.shape)
    kept = slice(before.trees.n_trees)
    share = (1 - step) * before.weights / trees.weights[kept] * scores.scale[kept] / before.scale
    start[kept] = share[:, None, None] * tight.x.reshape(before.shape)
    return scores, start.ravel()


class TightenedBound(NamedTuple):
    """Final variables of :class:`TightenBound`, stored for a warm start."""

    trees: SpanningTrees
    scores: np.ndarray  # (n,), float64
    disagreement: float
    bounds: np.ndarray


@options(kw_only=False)
class TightenBound(Inference):
    r"""Tightest upper bound on the log-partition over spanning trees, by direct minimisation.

    .. math::
        \log Z(\theta) \le \min_{\theta(T)} \sum_T \rho(T) \log Z(\theta(T))
        \quad \text{subject to} \quad \sum_T \rho(T) \theta(T) = \theta,

    where :math:`\theta(T)` are scores that only use the edges of tree T. The problem is convex, and its minimum is the
    optimum of the tree-reweighted free energy at the trees' edge probabilities, which :class:`TRWMessagePassing` seeks.
    Unlike message passing, the method always converges and has a valid bound at every iteration, even if ``max_iter``
    ends it. An iteration runs sum-product on all trees in parallel threads, and takes a step of a projected gradient
    method. At the minimum all trees have equal marginals. ``marginals`` returns their means, which are the derivatives
    of the bound at the final scores of the trees. ``disagreement`` in the ``state`` of a result tells how far the trees
    are from equal marginals.

    In a factor graph, maximal sets of factors without cycles take the place of trees.

    Parameters
    ----------
    trees : str, int, SpanningTrees or list of array-like, default="covering"
        ``"covering"``: a few trees that cover all edges. ``"uniform"``: as many trees as make the edge probabilities
        even, which usually gives a tighter bound. ``"snakes"``: four paths that run back and forth, on lattices with
        axis neighbours. ``"series_parallel"``: subgraphs whose junction trees have cliques of three nodes, in place of
        trees; the bound is usually tighter still, but takes more time. ``"optimal"``: the trees and probabilities that
        give the tightest bound. An int: this number of trees. The trees themselves can also be given, for instance as a
        list with the indices of the edges of each tree. In a factor graph, ``"optimal"`` adds sets that are grown
        greedily; ``"snakes"`` and ``"series_parallel"`` are not supported.
    solver : {"spg", "pqn"}, default="spg"
        Spectral projected gradient, or projected quasi-Newton. Quasi-Newton never increases the bound, but takes more
        time between evaluations.
    start_sweeps : int, default=0
        Maximum number of sweeps of tree-reweighted message passing to compute the start, unless ``trees`` are
        series-parallel. The result of the sweeps is used if it is better than even shares, than ``init``, and than the
        result for earlier trees. On pairwise models, sweeps are damped once the bound no longer decreases, and end when
        the trees agree. A few hundred sweeps make most iterations unnecessary.
    max_iter : int, default=500
        Maximum number of iterations for each distribution over trees. With 0, scores are divided evenly among trees.
    tol : float, default=1e-4
        Iterations stop when the marginals of each tree differ from the mean of all trees by at most this (for nodes,
        relative to ``sqrt(min rho / rho(T))``). For ``trees="optimal"`` it is also the relative tolerance of the bound,
        measured by the gap of the conditional gradient method.
    outer_iter : int, default=50
        Maximum number of trees that ``trees="optimal"`` adds to the initial trees, which are the trees of ``init`` if
        ``init`` is given. With 0, the initial trees are kept.
    outer_step : {"harmonic", "armijo"}, default="harmonic"
        Weight of an added tree. ``"harmonic"`` weights all trees equally; the bound may rise temporarily, and the best
        bound is returned. ``"armijo"`` halves the weight until the bound decreases enough.
    random_state : int, RandomState instance or None, default=0
        Determines the choice among trees that cover the edges equally well.

    See Also
    --------
    TRWMessagePassing : Is often faster, but may not converge.

    Notes
    -----
    Every tree gives an edge e the score :math:`\theta_e / \nu_e`; only scores of nodes are optimised. Trees that agree
    on the marginals of nodes also agree on the marginals of edges, so the minimum is the same. The metric of the steps
    is weighted by :math:`\rho(T)`. In this metric, the gradient for a tree is its marginals, and Eq. 139 of the
    reference is a projection. If several trees forbid pairs or states only in combination, these are excluded only in
    the limit, which takes more iterations.

    The derivative of the bound with respect to an edge probability is the negative mutual information of the ends.
    Hence a step towards the tree with the most information decreases the bound fastest. An added tree begins with an
    even share.

    If the trees are chosen by name or number, they depend on the numbering of nodes and edges, and so do the bound and
    the marginals.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Figures 19 and 22, Eq. 134. M. J.
    Wainwright, T. S. Jaakkola, A. S. Willsky. A new class of upper bounds on the log partition function. IEEE Trans.
    Information Theory 51, 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import TightenBound
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> found = TightenBound().marginals(model)
    >>> round(found.log_z, 2), found.bound
    (4.35, 'upper')
    """

    tasks = frozenset({"marginals"})
    takes = (PairwiseModel, FactorGraph)
    _starts_from: ClassVar[tuple[type, ...]] = (TightenedBound,)
    exact_on = "forest"
    convex = True
    _choices: ClassVar[dict] = {"solver": SOLVERS, "outer_step": ("harmonic", "armijo")}
    _ranges: ClassVar[dict] = {"start_sweeps": at_least(0), "outer_iter": at_least(0), "max_iter": at_least(0)}
    trees: Any = "covering"
    solver: str = "spg"
    start_sweeps: int = 0
    max_iter: int = 500
    tol: float = 1e-4
    outer_iter: int = 50
    outer_step: str = "harmonic"
    random_state: int | np.random.RandomState | None = 0

    def _marginals(self, model, *, init=None, n_threads=1):
        if isinstance(model, FactorGraph):
            if is_forest_of_factors(model):
                return NormProductBP("bethe")._marginals(model)._replace(state=None)
        elif model.graph.is_forest:
            return TreeInference()._marginals(model, n_threads=n_threads)
        # For inner products, BLAS threads would take ten times as long as sum-product on a busy machine.
        mapped = make_ordered_map(n_threads)
        with limit_blas_threads():
            tightening = Tightening(model, mapped, self.solver, self.start_sweeps, self.max_iter, self.tol, n_threads)
            is_optimal = isinstance(self.trees, str) and self.trees == "optimal"
            rule = "covering" if is_optimal else self.trees
            trees = init.trees if is_optimal and init is not None else self._choose_trees(model, rule)
            scores = tightening.scores(trees)
            start = _start(scores, trees, init)
            if is_optimal and self.outer_iter:
                found = choose_trees(tightening, scores, start, self.outer_iter, self.outer_step)
            else:
                tight = tightening.tighten(scores, start)
                converged = not self.max_iter or tight.disagreement <= self.tol
                found = Chosen(tight, tight.n_iter, converged, tight.trace, 0.0)
        best = found.best
        result = best.means.marginals._replace(
            n_iter=found.n_iter,
            converged=found.converged,
            state=TightenedBound(best.scores.trees, best.x, best.disagreement, found.bounds),
        )
        if not result.converged:
            warn_unconverged(self._explain_unconverged(found))
        return result

    def _choose_trees(self, model, rule):
        if isinstance(model, FactorGraph):
            return FactorForests.of(model, rule)
        if isinstance(rule, str) and rule == "series_parallel":
            return SeriesParallel.covering(model.graph)
        return choose_spanning_trees(model.graph, rule, self.random_state)

    def _explain_unconverged(self, found: Chosen) -> str:
        disagreement = found.best.disagreement
        if disagreement <= self.tol:
            return (
                f"TightenBound stopped after {len(found.bounds) - 1} of outer_iter={self.outer_iter} added trees, "
                f"but the best distribution over trees may decrease the bound by {found.gap:.2g}, more than "
                f"tol={self.tol:g} times the bound: increase outer_iter."
            )
        return (
            f"TightenBound stopped after {found.best.n_iter} of max_iter={self.max_iter} iterations while marginals "
            f"of trees differed by {disagreement:.2g} from their mean, more than tol={self.tol:g}: increase "
            "max_iter."
        )


def _start(scores, trees, init):
    """Return the deviations of each tree's initial scores from an even split of the scores among the trees."""
    if init is None:
        return np.zeros(scores.size)
    former = init.trees
    same = np.array_equal(former.trees, trees.trees) and np.array_equal(former.weights, trees.weights)
    if not same or init.scores.shape != (scores.size,):
        raise ValueError("init must be the state of a result for the same graph, number of states and trees.")
    return init.scores


def compute_consistent_statistics(model: FactorGraph, init: TightenedBound | None = None) -> tuple:
    """Return statistics of consistent marginals near the marginals of a factor graph, and a state for the next call.

    The statistics are None if the marginals found use forbidden joint states.
    """
    if is_forest_of_factors(model):
        return NormProductBP("bethe").marginals_for_learning(model).statistics, None
    state = TightenBound().marginals_for_learning(model, init=init).state
    found = FactorShares(model, state.trees).parts.feasible(model, state.scores)
    return (None if found is None else found[0]), state


def tighten_with_information(
    model: FactorGraph, trees: FactorForests, init: TightenedBound | None, **limits: Any
) -> tuple:
    """Return the marginals for a distribution over sets of factors, and the information of each factor.

    ``init`` may be the state for another distribution, whose scores are then kept for the sets that remain.
    """
    if is_forest_of_factors(model):
        # Every set then contains all factors, so their probabilities are one.
        found = NormProductBP("bethe").marginals_for_learning(model)
        return found._replace(state=None), np.zeros(np.count_nonzero(model.arity >= 2))
    if init is not None:
        init = init._replace(trees=trees, scores=_carry_scores(init, trees))
    found = TightenBound(trees, **limits).marginals_for_learning(model, init=init)
    return found, FactorShares(model, trees).average(found.state.scores).information()


def _carry_scores(init, trees):
    """Convert the scores of one distribution over sets of factors to scores of another distribution."""
    former = init.scores.reshape(init.trees.n_trees, -1)
    place = {row.tobytes(): k for k, row in enumerate(init.trees.trees)}
    scores = np.zeros((trees.n_trees, former.shape[1]))
    for k, row in enumerate(trees.trees):
        if row.tobytes() in place:
            t = place[row.tobytes()]
            scores[k] = former[t] * np.sqrt(trees.weights[k] / init.trees.weights[t])
    return scores.ravel()
