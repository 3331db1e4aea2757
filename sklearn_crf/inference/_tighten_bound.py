"""Direct minimisation of the tree-reweighted bound over the scores of spanning trees."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import checkpoint, ordered_map, single_threaded_blas
from sklearn_crf.inference._base import Inference, Marginals
from sklearn_crf.inference._tree import TreeInference
from sklearn_crf.inference._tree_choice import spanning_trees_of
from sklearn_crf.inference._tree_scores import TreeScores
from sklearn_crf.optimize import minimize_spg
from sklearn_crf.spanning_trees import SpanningTrees


class TightenedBound(NamedTuple):
    """State of a result of :class:`TightenBound`, for a warm start.

    Attributes
    ----------
    trees : SpanningTrees
        Those that were used, each once.
    scores : ndarray of shape (n,), float64
        By what the scores of the trees differ from an even share.
    disagreement : float
        Largest difference of a marginal of a tree to the mean of all trees.
    """

    trees: SpanningTrees
    scores: np.ndarray
    disagreement: float


class TightenBound(Inference):
    r"""The tightest upper bound on the log-partition that spanning trees give, by direct minimisation.

    .. math::
        \log Z(\theta) \le \min_{\theta(T)} \sum_T \rho(T) \log Z(\theta(T))
        \quad \text{subject to} \quad \sum_T \rho(T) \theta(T) = \theta,

    :math:`\theta(T)` being scores that use the edges of tree T alone. The problem is convex and its minimum that of the
    tree-reweighted free energy at the edge probabilities of the trees: what :class:`TRWMessagePassing` looks for, with
    convergence certain and a bound at every iteration, also if ``max_iter`` ends it. One iteration is sum-product on
    all trees, which threads share, and a step of the spectral projected gradient method. At the minimum all trees have
    the same marginals; ``marginals`` gives their means, the derivatives of the bound at the scores that the trees have
    come to. The ``state`` of a result says in ``disagreement`` how far trees are from that.

    Parameters
    ----------
    trees : {"minimal", "uniform", "snakes"}, int, SpanningTrees or list of array-like of int, default="minimal"
        ``"minimal"``: few trees that cover all edges. ``"uniform"``: as many as make the edge probabilities even;
        tighter as a rule. ``"snakes"``: four paths to and fro, on lattices whose axis neighbours are joined. A number
        of trees. Or trees themselves; a list holds the numbers of the edges of each.
    max_iter : int, default=500
        Most iterations.
    tol : float, default=1e-4
        Largest difference of a tree's marginal to the mean of all trees that counts as none (relative to
        ``sqrt(min rho / rho(T))`` where trees differ in probability).
    random_state : int, RandomState instance or None, default=0
        Picks among trees that cover equally well.

    See Also
    --------
    TRWMessagePassing : Often faster, but not certain to converge.

    Notes
    -----
    The metric of the steps is weighted by :math:`\rho(T)`, in which the gradient for a tree is its plain marginals and
    Eq. 139 of the reference a projection. Pairs or states that are forbidden by what follows from several trees
    together are ruled out in the limit only, which takes more iterations.

    ``trees`` that are chosen here depend on how nodes and edges are numbered, and so do bound and marginals.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Figure 19 and Eq. 134. E. G. Birgin,
    J. M. Martinez, M. Raydan. Nonmonotone spectral projected gradient methods on convex sets. SIAM J. Optimization 10,
    2000.
    """

    tasks = frozenset({"marginals"})
    exact_on = "forest"

    def __init__(self, trees="minimal", max_iter=500, tol=1e-4, random_state=0):
        self.trees = trees
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _check_model(self, model):
        super()._check_model(model)
        if not self.max_iter >= 1:
            raise ValueError(f"max_iter must be at least 1, got {self.max_iter!r}.")
        if not self.tol >= 0:
            raise ValueError(f"tol must not be negative, got {self.tol!r}.")

    def _marginals(self, model, *, init=None, n_threads=1):
        if model.graph.is_forest:
            return TreeInference()._marginals(model, n_threads=n_threads)
        trees = spanning_trees_of(model.graph, self.trees, self.random_state)
        # Inner products shared by threads of BLAS took ten times as long as sum-product on a busy machine.
        with ordered_map(n_threads) as mapped, single_threaded_blas():
            scores = TreeScores(model, trees, mapped)
            found = minimize_spg(
                scores.value_grad,
                _start(scores, trees, init),
                project=scores.project,
                max_iter=self.max_iter,
                tol=self.tol * np.sqrt(trees.weights.min()),
                callback=lambda _: checkpoint(),
            )
            result = _averaged(model, scores, trees, found)
        if not result.converged:
            self._warn_unconverged(
                f"TightenBound stopped after {found.nit} of max_iter={self.max_iter} iterations with marginals of "
                f"trees differing by {result.state.disagreement:.2g} from their mean, more than tol={self.tol:g}: "
                "raise max_iter.",
                depth=1,
            )
        return result


def _start(scores, trees, init):
    if init is None:
        return np.zeros(scores.size)
    if not isinstance(init, TightenedBound):
        raise ValueError(f"init must be the state of a former result of TightenBound, got {type(init).__name__}.")
    same = np.array_equal(init.trees.trees, trees.trees) and np.array_equal(init.trees.weights, trees.weights)
    if not same or init.scores.shape != (scores.size,):
        raise ValueError("init must come from the same graph, number of states and trees.")
    return init.scores


def _averaged(model, scores, trees, found):
    """Means over trees; they are the derivatives of the bound whether or not the trees agree."""
    at = scores.marginals(found.x)
    unary, pairs = scores.mean_over_nodes(at.unary), scores.mean_over_edges(at.tables)
    differences = np.abs(at.unary - unary).max(), np.abs(at.tables - pairs[scores.edge]).max(initial=0.0)
    weight = np.ones((len(pairs), 1)) if model.edge_weight is None else model.edge_weight.astype(np.float64)
    tables = np.zeros(model.tables.shape)
    np.add.at(tables, model.edge_type, weight[:, :, None, None] * pairs[:, None])
    log_z_terms = scores.weights @ at.log_z_terms
    return Marginals(
        unary.astype(model.dtype),
        tables,
        float(log_z_terms.sum()),
        log_z_terms,
        "upper",
        n_iter=found.nit,
        converged=found.success,
        state=TightenedBound(trees, found.x, float(max(differences))),
    )
