"""The labeling of highest score: exact wherever the budget affords it, else by a portfolio of algorithms."""

import numpy as np
from sklearn.base import clone

from sklearn_crf._numbers import n_joint_states
from sklearn_crf._options import options
from sklearn_crf.inference.automatic._base import Automatic, AutoState, joined_parts
from sklearn_crf.inference.automatic._cost import Budget
from sklearn_crf.inference.automatic._portfolio import best_of_portfolio
from sklearn_crf.inference.cuts._graph_cut import exact_cut, n_not_submodular
from sklearn_crf.inference.exact._brute_force import BruteForce, n_labelings
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.inference.messages._belief_propagation import LoopyBP
from sklearn_crf.inference.messages._factor_layers import is_forest_of_factors
from sklearn_crf.inference.messages._trws import TRWS
from sklearn_crf.models import FactorGraph, PairwiseModel, score


@options(kw_only=False)
class AutoMap(Automatic):
    """The labeling of highest score: exact wherever that is affordable, else the best that several algorithms find.

    Forests go to max-product on trees, graphs of up to 4,096 labelings to enumeration, models of two states to min-cut
    where every pair is submodular, and connected components of other graphs to :class:`JunctionTree` as far as
    :func:`exact_inference` says that elimination is affordable.

    What is left goes to a portfolio: roof duality with two states (:class:`GraphCut`), :class:`AlphaExpansion` with
    more, and :class:`TRWS`, whose bound may certify the best labeling. Depth-first branch and bound with soft arc
    consistency follows for a while. With two states, at most 12,000 nodes and edges and three edges a node,
    :class:`CycleRelaxation` mostly proves a labeling, too. If nothing does, :class:`ICM` with five restarts and
    :class:`LoopyBP` with and without damping follow. Labelings are changed one node at a time as long as that gains,
    and fused (:func:`fuse_labelings`). Factors of more than two nodes go to :class:`MPLP`, branch and bound,
    :class:`LoopyBP` and :class:`AD3`. Branch and bound then goes on up to 500 nodes. Where the bound stays above the
    best score, as in models of mixed couplings, :class:`LargeNeighborhoodSearch` goes on from the best labels, and
    reads up to as many table entries as 50,000 sweeps over the nodes do, in two runs. Pairwise models of many states on
    few nodes are first eliminated over the states of each node that belief propagation finds likeliest, where at least
    five are affordable.

    Each algorithm has a budget of table entries that it may read, so that results do not depend on the machine, and
    models so large that it is used up within a few iterations get the first of them alone. ``method`` of the result
    names what was used.

    Where ``init`` is given, the former labeling takes the place of the algorithms without a bound, and of the search.

    Parameters
    ----------
    max_iter : int, default=100
        Cycles of alpha-expansion, and most iterations of every other algorithm (of :class:`MPLP` five times as many).
    tol : float, default=1e-4
        Tolerance of :class:`TRWS` with ``bounded=True``.
    bounded : bool, default=False
        Whether :class:`TRWS` alone takes pairwise models of more than two states where no exact algorithm is
        affordable, minimum cuts alone those of two states of which they leave little unproven, and the search is left
        out: many calls on models that change a little, as in learning, warm-start each other. With ``budget="step"``
        :class:`TRWS` makes one iteration a call.
    budget : {"step", "fast", "default", "long"} or float, default="default"
        Table cells up to which elimination is affordable in a connected component (:func:`exact_inference`): "default"
        is some two seconds and 1 GB, and "fast" where ``bounded``. A smaller one gives the portfolio less to read in
        proportion. With a larger one it goes on from where the default ends: further searches, branch and bound, and
        :class:`ClusterTightening` of the bound.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import AutoMap
    >>> from sklearn_crf.models import PairwiseModel
    >>> rng, grid = np.random.default_rng(0), lattice((8, 8))
    >>> model = PairwiseModel(
    ...     grid,
    ...     rng.normal(size=(64, 2)),
    ...     [np.eye(2)],
    ...     edge_weight=rng.normal(size=grid.n_edges),
    ... )
    >>> found = AutoMap().map(model)
    >>> found.method, found.certified
    ('JunctionTree', True)
    """

    tasks = frozenset({"map"})
    enumerates = 4096
    max_iter: int = 100
    tol: float = 1e-4
    bounded: bool = False

    def for_learning(self) -> "AutoMap":
        return clone(self).set_params(bounded=True)

    def _map(self, model, *, init=None, n_threads=1):
        exact = self._exact(model)
        if exact is not None:
            return self._by(exact, model, init, n_threads)
        cut = exact_cut(model, n_threads) if isinstance(model, PairwiseModel) else None
        if cut is not None:
            return cut._replace(state=AutoState("GraphCut", cut.state), method="GraphCut")
        # Learning has less work for elimination.
        budget = Budget.of("fast" if self.bounded and self.budget == "default" else self.budget)
        parts, places = self._split(
            model,
            budget,
            init,
            lambda part, former: self._by(budget.junction_tree(), part, former, n_threads),
            lambda part, former: self._approximately(part, former, n_threads),
        )
        return parts[0] if len(parts) == 1 else self._joined(model, parts, places)

    def _exact(self, model):
        """The exact algorithm, if one other than cuts and elimination is known to be."""
        if isinstance(model, FactorGraph):
            if is_forest_of_factors(model):
                return LoopyBP()
            is_small = n_joint_states(model.n_states) <= self.enumerates
            return BruteForce() if is_small else None
        if model.graph.is_forest:
            return TreeInference()
        if n_labelings(model.graph.n_nodes, model.n_columns) <= self.enumerates:
            return BruteForce()
        return None

    def _approximately(self, model, init, n_threads):
        if self.bounded and isinstance(model, PairwiseModel) and model.n_columns > 2:
            # Labels on the way to better ones are not worth a climb.
            is_step = self.budget == "step"
            messages = TRWS(max_iter=1 if is_step else self.max_iter, tol=self.tol, climb=not is_step)
            return self._by(messages, model, init, n_threads)
        former = AutoState.of(init, "portfolio")
        effort = Budget.of(self.budget).most_cells / Budget.of("default").most_cells
        found = best_of_portfolio(model, self.max_iter, former, n_threads, not self.bounded, effort)
        return found._replace(state=AutoState("portfolio", found.state, n_not_submodular(model)))

    def _by(self, chosen, model, init, n_threads):
        """The result of an algorithm, whose state means nothing to another."""
        name = type(chosen).__name__
        former = AutoState.of(init, name) if name in ("JunctionTree", "TRWS") else None
        found = chosen._map(model, init=former, n_threads=n_threads)
        return found._replace(state=AutoState(name, found.state, n_not_submodular(model)), method=name)

    @staticmethod
    def _joined(model, parts, places):
        """The labeling of a model from those of its parts."""
        # places: nodes of each part
        labels = np.empty(model.n_nodes, dtype=np.int32)
        for found, nodes in zip(parts, places, strict=True):
            labels[nodes] = found.labels
        total, joined = score(model, labels), joined_parts(parts)
        joined["state"] = joined["state"]._replace(n_nonsubmodular=n_not_submodular(model))
        bound = max(sum(part.bound for part in parts), total)
        return parts[-1]._replace(labels=labels, score=total, bound=bound, fractional=None, **joined)
