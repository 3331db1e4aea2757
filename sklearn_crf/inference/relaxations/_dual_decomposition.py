"""Dual decomposition over spanning trees by projected subgradients."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from sklearn_crf._options import options
from sklearn_crf._threads import limit_blas_threads, make_ordered_map
from sklearn_crf.graphs import SpanningTrees
from sklearn_crf.inference.bounds._tree_choice import choose_spanning_trees
from sklearn_crf.inference.bounds._tree_scores import TreeScores
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.inference.relaxations._best_labels import RecentStates
from sklearn_crf.inference.relaxations._subgradient import Run, SubgradientMap

# If the squared length of a subgradient per tree is below this, all trees have equal labels up to rounding errors.
_NO_DISAGREEMENT = 1e-12

# Steps shorter than twice Polyak's step bring the dual variables closer to the optimum, if the gap can be closed.
_LONGEST = 2.0


class DualDecompositionState(NamedTuple):
    """Final variables of :class:`DualDecomposition`, stored for a warm start."""

    trees: SpanningTrees
    scores: np.ndarray  # (n,), float64
    labels: np.ndarray  # (N,), int32
    gap: float


@options(kw_only=False)
class DualDecomposition(SubgradientMap):
    r"""Dual decomposition of the linear relaxation over spanning trees, by projected subgradients.

    .. math::
        \max_y \mathrm{score}(y) \le \min_{\theta(T)} \sum_T \rho(T) \max_y \mathrm{score}(y; \theta(T))
        \quad \text{subject to} \quad \sum_T \rho(T) \theta(T) = \theta,

    where :math:`\theta(T)` are scores that only use the edges of tree T. The minimum is equal to the bound of
    :class:`LinearProgram` for any trees that cover all edges. Each iteration finds the best labeling of every tree,
    exactly and in parallel threads. If trees disagree at a node or edge, the scores of each tree's own labels are
    lowered there, and the difference is distributed over all trees. If all trees have equal labels, these labels are
    optimal. Before this, candidates are the labels of a tree, and mixtures in which every node takes its label from a
    random tree. The best candidate is kept. If its score equals the bound, it is optimal, too (``certified``). Forests
    are solved exactly without iterations.

    Parameters
    ----------
    trees : {"covering", "uniform", "snakes"}, int, SpanningTrees or list of array-like of int, default="covering"
        ``"covering"``: a few trees that cover all edges. ``"uniform"``: as many trees as make edge probabilities even.
        ``"snakes"``: four paths that run back and forth, on lattices with axis neighbours. An int: this number of
        trees. The trees themselves can also be given, for instance as a list with the indices of the edges of each
        tree.
    step : {"annealed", "polyak"}, default="annealed"
        ``"annealed"``: the step shrinks by ``decay`` or ``backoff``, starting from the standard deviation of the
        scores. ``"polyak"``: the step is a factor that shrinks in the same way, starting from 2, times the gap between
        the bound and the best score, divided by the squared length of the subgradient. ``"polyak"`` is best if the
        relaxation is tight; ``backoff=0.99`` keeps it from stopping early.
    climb : bool, default=True
        Whether to improve each candidate by changing one node at a time while the score increases, before its score is
        compared. The states that trees chose most often in recent iterations are then also tried.
    random_state : int, RandomState instance or None, default=0
        Determines the choice among trees that cover the edges equally well, and the labels of candidates.

    See Also
    --------
    IncMP : Minimises the same dual over single edges, with cheaper iterations, on one thread.
    TightenBound : Minimises the bound on the log-partition over the same trees.

    Notes
    -----
    The metric is weighted by :math:`\rho(T)`, as in :class:`TightenBound`. Forbidden states and pairs are excluded in
    advance as far as this follows from single edges. If the relaxation still has no solution, the bound decreases
    without end. An error is raised once the bound falls below the score of every labeling.

    References
    ----------
    N. Komodakis, N. Paragios, G. Tziritas. MRF optimization via dual decomposition: message-passing revisited. ICCV
    2007; MRF energy minimization and beyond via dual decomposition. IEEE Trans. Pattern Analysis and Machine
    Intelligence 33, 2011. J. Jancsary. Approximate discriminative training of graphical models, 2012, Eq. 146.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import DualDecomposition
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> found = DualDecomposition().map(model)
    >>> found.labels.tolist(), round(found.score, 3), round(found.bound, 3)
    ([1, 1, 1], 3.5, 3.5)
    """

    _choices: ClassVar[dict] = {"step": ("annealed", "polyak")}
    _starts_from: ClassVar[tuple[type, ...]] = (DualDecompositionState,)
    trees: Any = "covering"
    step: str = "annealed"

    def _map(self, model, *, init=None, n_threads=1):
        if model.graph.is_forest:
            return TreeInference()._map(model)
        trees = choose_spanning_trees(model.graph, self.trees, self.random_state)
        mapped = make_ordered_map(n_threads)
        with limit_blas_threads():
            return self._minimise(model, _DualSteps(self, model, init, trees, mapped))


class _DualSteps(Run):
    """Run of dual decomposition: the scores of the trees and the best labels of each tree, updated in each step."""

    # algorithm: DualDecomposition; its annealed steps are multiples of the standard deviation of the scores.
    # Polyak steps are multiples of the gap divided by the squared length of the subgradient.

    def __init__(self, algorithm, model, init, trees, mapped):
        if init is not None:
            if not (
                np.array_equal(init.trees.trees, trees.trees) and np.array_equal(init.trees.weights, trees.weights)
            ):
                raise ValueError("init must be the state of a result for the same graph and trees.")
            size = (trees.n_trees * trees.graph.n_nodes + int(trees.trees.sum()) * model.n_columns) * model.n_columns
            if init.scores.shape != (size,):
                raise ValueError(f"init must hold {size} scores of trees for this model, got {init.scores.shape}.")
        super().__init__(model, algorithm.climb, init)
        self.is_polyak, self.rng = algorithm.step == "polyak", check_random_state(algorithm.random_state)
        self.trees = trees
        self.scores = TreeScores(self.model, trees, mapped)
        self.x = np.zeros(self.scores.size) if init is None else init.scores.copy()
        self.turn = 0
        self.recent = RecentStates(self.best.labels, model.n_columns)
        self.nodes = np.tile(np.arange(model.graph.n_nodes), trees.n_trees)
        self.weights = np.repeat(trees.weights, model.graph.n_nodes)
        self._evaluate()

    @property
    def unit(self) -> float:
        return max(self.gap, np.finfo(float).tiny) if self.is_polyak else self.spread * self.model.graph.n_nodes

    def iterate(self, step: float) -> None:
        if self.is_polyak:
            self._take_polyak_step(step)
        else:
            # Each tree has only a part of the scores, but the subgradient refers to all scores.
            self.scores.subtract_labelings(self.x, self.labels, step * self.spread * len(self.labels))
            self.x = self.scores.project(self.x)
        self._evaluate()
        self.best.offer(self.labels[self.turn])
        self.turn = (self.turn + 1) % len(self.labels)
        drawn = self.rng.randint(len(self.labels), size=self.labels.shape[1])
        self.best.offer(np.take_along_axis(self.labels, drawn[None], axis=0)[0])
        if self.best.climb:
            self.best.offer(self.recent.add(self.nodes, self.labels.ravel(), self.weights))

    def state(self):
        return DualDecompositionState(self.trees, self.x, self.best.labels, self.gap)

    def _evaluate(self) -> None:
        self.labels, value = self.scores.labelings(self.x)
        self.note(value)

    def _take_polyak_step(self, step):
        minus_gradient = np.zeros(len(self.x))
        self.scores.subtract_labelings(minus_gradient, self.labels, 1.0)
        minus_gradient = self.scores.project(minus_gradient)
        squared = minus_gradient @ minus_gradient
        if squared <= _NO_DISAGREEMENT * len(self.labels):
            return
        gap = self.present - self.best.score
        # Without allowed labels, there is no finite gap that could be used.
        length = _LONGEST * gap / squared if np.isfinite(gap) else self.spread * len(self.labels)
        self.x = self.x + step * length * minus_gradient
