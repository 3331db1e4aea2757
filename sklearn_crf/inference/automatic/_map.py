"""Automatic choice of an algorithm for the best labeling: exact if affordable, else a portfolio of algorithms."""

import numpy as np
from sklearn.base import clone

from sklearn_crf._numbers import n_joint_states
from sklearn_crf._options import options
from sklearn_crf.inference.automatic._base import Automatic, AutoState, join_parts
from sklearn_crf.inference.automatic._cost import Budget, choose_recursion
from sklearn_crf.inference.automatic._portfolio import run_portfolio
from sklearn_crf.inference.cuts._graph_cut import count_not_submodular, solve_exact_cut
from sklearn_crf.inference.exact._brute_force import BruteForce, n_labelings
from sklearn_crf.inference.messages._belief_propagation import LoopyBP
from sklearn_crf.inference.messages._factor_layers import is_forest_of_factors
from sklearn_crf.inference.messages._trws import TRWS
from sklearn_crf.models import FactorGraph, PairwiseModel, score


@options(kw_only=False)
class AutoMap(Automatic):
    """Labeling of highest score: exact if affordable, else the best labeling that several algorithms find.

    Exact algorithms are max-product for forests, enumeration for models with up to 4,096 labelings, minimum cuts for
    two-state models with submodular pairs, and :class:`JunctionTree` for connected components in which elimination is
    affordable (:func:`exact_inference`).

    All other components are solved by a portfolio. The portfolio starts with roof duality for two states
    (:class:`GraphCut`), :class:`AlphaExpansion` for more states, and :class:`TRWS`, whose bound may prove a labeling to
    be optimal. A short branch and bound with soft arc consistency follows. On models of two states with at most 12,000
    nodes and edges, and three edges per node, :class:`CycleRelaxation` often finds a proof. Otherwise, :class:`ICM`
    with five restarts and :class:`LoopyBP` with and without damping follow. Labelings are improved by hill climbing and
    fused (:func:`fuse_labelings`). Models with factors of more than two nodes use :class:`MPLP`, branch and bound,
    :class:`LoopyBP` and :class:`AD3`. If a gap remains, two rounds of searches improve the best labels: branch and
    bound (for up to 500 nodes) and :class:`LargeNeighborhoodSearch`, with the work of up to 50,000 sweeps over the
    nodes. Before that, pairwise models with many states and few nodes are solved by elimination over the most probable
    states of each node (by belief propagation), if at least five are affordable.

    Each algorithm has a budget of table entries to read, so that results do not depend on the machine. For models so
    large that the budget only allows a few iterations, only the first algorithms are used. ``method`` of the result
    names the algorithms used.

    With ``init``, the previous labeling replaces the algorithms without a bound and the search.

    Parameters
    ----------
    max_iter : int, default=100
        Maximum number of cycles of alpha-expansion, and of iterations of every other algorithm (five times as many for
        :class:`MPLP`).
    tol : float, default=1e-4
        Tolerance of :class:`TRWS` with ``bounded=True``.
    bounded : bool, default=False
        Whether to use fast algorithms with a bound and warm starts, for many calls on models that change little, as in
        learning. If no exact algorithm is affordable, pairwise models with more than two states are then only solved by
        :class:`TRWS`, two-state models only by minimum cuts if these leave a small gap, and the search is skipped. With
        ``budget="step"``, :class:`TRWS` makes one iteration per call.
    budget : {"step", "fast", "default", "long"} or float, default="default"
        Maximum number of table cells for elimination in a connected component, see :func:`exact_inference`. "default"
        is about two seconds and 1 GB, and means "fast" if ``bounded``. The first round of searches is the work of
        "step" and "fast"; smaller numbers reduce it in proportion. A larger budget continues after the default with
        further rounds of searches, and :class:`ClusterTightening` of the bound. Of the named budgets, a larger one
        never gives a lower score.

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
            return self._run(exact, model, init, n_threads)
        cut = solve_exact_cut(model, n_threads) if isinstance(model, PairwiseModel) else None
        if cut is not None:
            return cut._replace(state=AutoState("GraphCut", cut.state), method="GraphCut")
        # In training, the budget for elimination is smaller.
        budget = Budget.of("fast" if self.bounded and self.budget == "default" else self.budget)
        parts, places = self._split(
            model,
            budget,
            init,
            lambda part, former: self._run(budget.junction_tree(), part, former, n_threads),
            lambda part, former: self._map_approximately(part, former, n_threads),
        )
        return parts[0] if len(parts) == 1 else self._join(model, parts, places)

    def _exact(self, model):
        """Return an exact algorithm other than cuts and elimination, or None if there is none."""
        if isinstance(model, FactorGraph):
            if is_forest_of_factors(model):
                return LoopyBP()
            is_small = n_joint_states(model.n_states) <= self.enumerates
            return BruteForce() if is_small else None
        found = choose_recursion(model)
        if found is not None:
            return found
        if n_labelings(model.graph.n_nodes, model.n_columns) <= self.enumerates:
            return BruteForce()
        return None

    def _map_approximately(self, model, init, n_threads):
        if self.bounded and isinstance(model, PairwiseModel) and model.n_columns > 2:
            # Hill climbing is not worth the time for the intermediate labels of single steps.
            is_step = self.budget == "step"
            messages = TRWS(max_iter=1 if is_step else self.max_iter, tol=self.tol, climb=not is_step)
            return self._run(messages, model, init, n_threads)
        former = AutoState.of(init, "portfolio")
        effort = Budget.of(self.budget).most_cells / Budget.of("default").most_cells
        found = run_portfolio(model, self.max_iter, former, n_threads, not self.bounded, effort)
        return found._replace(state=AutoState("portfolio", found.state, count_not_submodular(model)))

    def _run(self, chosen, model, init, n_threads):
        """Return the result of an algorithm, with a warm start if the previous state is from the same algorithm."""
        name = type(chosen).__name__
        former = AutoState.of(init, name) if name in ("JunctionTree", "TRWS") else None
        found = chosen._map(model, init=former, n_threads=n_threads)
        return found._replace(state=AutoState(name, found.state, count_not_submodular(model)), method=name)

    @staticmethod
    def _join(model, parts, places):
        """Join the labelings of the connected components of a model."""
        # places: nodes of each component
        labels = np.empty(model.n_nodes, dtype=np.int32)
        for found, nodes in zip(parts, places, strict=True):
            labels[nodes] = found.labels
        total, joined = score(model, labels), join_parts(parts)
        joined["state"] = joined["state"]._replace(n_nonsubmodular=count_not_submodular(model))
        bound = max(sum(part.bound for part in parts), total)
        return parts[-1]._replace(labels=labels, score=total, bound=bound, fractional=None, **joined)
