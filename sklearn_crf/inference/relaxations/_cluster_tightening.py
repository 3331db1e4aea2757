"""Proofs of optimality by tightening a relaxation with clusters, by elimination, and by branch and bound."""

from typing import ClassVar

import numpy as np

from sklearn_crf import models
from sklearn_crf._numbers import n_joint_states
from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import checkpoint
from sklearn_crf.inference._base import Inference, at_least, convergence_left_to_caller
from sklearn_crf.inference._proofs import Proof
from sklearn_crf.inference._relaxed_problem import convert_to_double
from sklearn_crf.inference._results import Labeling
from sklearn_crf.inference.exact._elimination import EliminationPlan, Limits
from sklearn_crf.inference.exact._junction_tree import Buckets
from sklearn_crf.inference.exact._reduction import Reduction
from sklearn_crf.inference.local._neighborhood_search import LargeNeighborhoodSearch
from sklearn_crf.inference.relaxations import _tuning
from sklearn_crf.inference.relaxations._branch_and_bound import run_branch_and_bound
from sklearn_crf.inference.relaxations._cycle_relaxation import choose_cycle_relaxation
from sklearn_crf.inference.relaxations._regions import Regions


@options(kw_only=False)
class ClusterTightening(Inference):
    r"""Best labelings with a proof of optimality: the linear relaxation, tightened by clusters along frustrated cycles.

    The bound is the dual of the relaxation over regions :math:`r`, which are nodes, factors, and clusters of three
    nodes,

    .. math::
        \max_y \mathrm{score}(y) \le \min_{\theta'} \; \sum_r \max_{y_r} \theta'_r(y_r)
        \qquad \text{over all } \theta' \text{ with } \sum_r \theta'_r(y_r) = \mathrm{score}(y) \text{ for all } y,

    in which regions pass scores to regions that share nodes or pairs of nodes with them. The bound is lowered in
    sweeps over nodes and pairs, forwards and backwards, which never raise it. When the sweeps make little progress,
    clusters are added along frustrated cycles. A cycle of pairs is frustrated if an odd number of its pairs prefer
    different states, so that not all preferences can be met. Clusters for such a cycle lower the bound by at least the
    weakest preference. Cycles of more than three nodes are divided into triplets.

    Pairwise models with two states and few edges per node are first passed to :class:`CycleRelaxation`. Otherwise,
    initial labels come from :class:`LargeNeighborhoodSearch`. States and pairs of states that cannot be part of a
    better labeling are excluded. The rest of the problem is solved by elimination once it fits in ``max_memory``. If it
    never fits, branch and bound over the states of single nodes uses the rest of the budget.

    Parameters
    ----------
    max_work : float, default=1e9
        Budget, as a number of table entries that are read. The search for labels gets a quarter of it, at most 3e8
        entries. Elimination may exceed the budget.
    max_memory : float, default=2**31
        Maximum size in bytes of the tables of elimination, which also have at most ``max_work`` entries. Models that
        fit from the start are solved without a relaxation.
    random_state : int, RandomState instance or None, default=0
        Determines the search for labels.

    Raises
    ------
    ValueError
        If a table has more than 65,536 joint states, or all tables together have more than 2**24.

    See Also
    --------
    TRWS : Computes the bound without clusters, for pairwise models of any size.
    LinearProgram : Solves the relaxation without clusters, by the simplex or interior point method.
    JunctionTree : Uses elimination alone.

    Notes
    -----
    ``init`` is a labeling from which the search starts. The bound is proven up to rounding errors: if ``certified`` is
    true, no labeling scores higher by more than 1e-9 of the score. Small count tables are written out in full.

    References
    ----------
    D. Sontag, T. Meltzer, A. Globerson, T. Jaakkola, Y. Weiss. Tightening LP relaxations for MAP using message passing.
    UAI 2008, :arxiv:`1206.3288`. D. Sontag, D. K. Choe, Y. Li. Efficiently searching for frustrated cycles in MAP
    inference. UAI 2012, :arxiv:`1210.4902`. V. Kolmogorov. A new look at reweighted message passing. TPAMI 37, 2015
    (the sweeps).

    Examples
    --------
    Three nodes that each should differ from the other two, but have two states only:

    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import TRWS, ClusterTightening
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(triangle, np.zeros((3, 2)), 1 - np.eye(2)[None])
    >>> found = ClusterTightening().map(model)
    >>> round(found.score, 6), found.certified, round(TRWS().map(model).bound, 6)
    (2.0, True, 3.0)
    """

    tasks = frozenset({"map"})
    _starts_from: ClassVar[tuple[type, ...]] = (np.ndarray,)
    takes = (models.PairwiseModel, models.FactorGraph)
    _ranges: ClassVar[dict] = {"max_work": at_least(0.0), "max_memory": at_least(0.0)}
    max_work: float = 1e9
    max_memory: float = 2**31
    random_state: int | np.random.RandomState | None = 0

    def _check_model(self, model):
        super()._check_model(model)
        most, total = _compute_table_sizes(model)
        if most > _tuning.MOST_CELLS:
            raise ValueError(
                f"model has a table of {most:.3g} joint states, but ClusterTightening supports at most "
                f"{_tuning.MOST_CELLS}: use TRWS, MPLP or AD3."
            )
        if total > _tuning.MOST_ENTRIES:
            raise ValueError(
                f"model has tables of {total:.3g} joint states in total, but ClusterTightening supports at most "
                f"{_tuning.MOST_ENTRIES}: use TRWS, MPLP or AD3."
            )

    def fits(self, model: models.PairwiseModel | models.FactorGraph) -> bool:
        """Return whether the tables of a model are small enough to be written out in full.

        Parameters
        ----------
        model : PairwiseModel or FactorGraph

        Returns
        -------
        bool
        """
        most, total = _compute_table_sizes(model)
        return bool(most <= _tuning.MOST_CELLS and total <= _tuning.MOST_ENTRIES)

    def _map(self, model, *, init=None, n_threads=1):
        relaxed = self._relax_over_cycles(model)
        if relaxed is not None and relaxed.certified:
            return relaxed._replace(state=relaxed.labels)
        work = min(_tuning.SEARCH_SHARE * self.max_work, _tuning.MOST_SEARCH)
        with convergence_left_to_caller():
            found = LargeNeighborhoodSearch(work, random_state=self.random_state).map(
                model, init=init, n_threads=n_threads
            )
        if found.certified or not np.isfinite(found.score):
            return found
        if relaxed is not None:
            found = found._replace(bound=min(found.bound, relaxed.bound))
        result = tighten_labeling(model, found, self.max_work - work, min(self.max_memory, 8 * self.max_work))
        if result.certified:
            return result
        warn_unconverged(
            f"ClusterTightening stopped after max_work={self.max_work:g} with a gap of {result.gap:.3g} between bound "
            "and score: increase max_work or max_memory."
        )
        return result._replace(converged=False)

    def _relax_over_cycles(self, model):
        """Return the result of the relaxation over cycles if this takes a small part of the budget, otherwise None."""
        if isinstance(model, models.FactorGraph):
            if model.n_columns != 2 or model.arity.max(initial=0) > 2:
                return None
            model = models.pairwise_model_of(model)
        chosen = choose_cycle_relaxation(model, self.max_work / _tuning.WORK_OF_VARIABLE)
        with convergence_left_to_caller():
            return None if chosen is None else chosen.map(model)


def tighten_labeling(
    model: models.PairwiseModel | models.FactorGraph, found: Labeling, max_work: float, max_memory: float
) -> Labeling:
    """Return a labeling and a bound at least as good as in ``found``, which must contain an allowed labeling."""
    search = _Proof(model, found, max_work, max_memory)
    bound = min(search.run(), found.bound)
    reached = models.score(model, search.labels)
    bound = search.proof.bound(reached, max(bound, reached))
    return Labeling(search.labels, reached, bound=bound, n_iter=search.n_sweeps, state=search.labels)


def _compute_table_sizes(model):
    """Return the number of joint states of the largest table, and of all tables together."""
    if isinstance(model, models.PairwiseModel):
        pairs = float(model.n_columns**2)
        return pairs, model.unary.size + model.graph.n_edges * pairs
    cells = [n_joint_states(model.n_states[scope], axis=1) for _, scope in model.by_arity()]
    return max((part.max(initial=1.0) for part in cells), default=1.0), sum(part.sum() for part in cells)


class _Proof:
    """Search for a proof that no labeling is better than the best labeling found."""

    def __init__(self, model, found, work, max_memory):
        self.model = models.factor_graph_of(convert_to_double(model))
        self.labels, self.best, self.proof = found.labels, models.score(self.model, found.labels), Proof(self.model)
        self.work, self.limits = work, Limits(1000, max_memory)
        self.n_sweeps = 0
        self.fewest_tried = np.inf

    @property
    def target(self):
        """Bound at or below which the best labeling is proven to be optimal."""
        return self.proof.needed(self.best)

    def run(self):
        """Run the search and return an upper bound on the best score."""
        if self._eliminate(self.model):
            return self.target
        regions = Regions(self.model, _tuning.MOST_CELLS_OF_CLUSTER)
        bound = self._lower(regions)
        while self.target < bound < np.inf and self.work > 0:
            if not regions.add_clusters():
                break
            before, bound = bound, min(bound, self._lower(regions))
            if before - bound < _tuning.SLOW_ROUND * (bound - self.best):
                break
        return bound if bound <= self.target or self.work <= 0 else self._branch(bound)

    def _lower(self, regions):
        """Make sweeps while these lower the bound enough; return the bound, or the target if no labeling is better."""
        bound = np.inf
        for _ in range(_tuning.MOST_SWEEPS):
            checkpoint()
            before, bound = bound, regions.sweep()
            self.work -= regions.work_of_sweep
            self.n_sweeps += 1
            if bound <= self.target:
                return self.target
            if regions.rule_out(bound, self.target) and self._eliminate(_restrict(self.model, regions)):
                return self.target
            if self.work <= 0 or before - bound < _tuning.SLOW * (bound - self.best):
                break
        return bound

    def _eliminate(self, model):
        """Return whether the rest of the problem was solved exactly; if the solution is better, keep its labeling."""
        try:
            problem = Reduction(model)
        except ValueError:  # a node has no state left
            return True
        n_free = int(problem.is_free.sum())
        if n_free > max(0.8 * self.fewest_tried, _tuning.FEW_NODES):
            return False
        self.fewest_tried = min(n_free, self.fewest_tried)
        try:
            plan = EliminationPlan(problem, None, self.limits, "best")
        except ValueError:  # the width exceeds the limits
            return False
        try:
            self._offer(Buckets(problem, plan).best())
        except ValueError:  # no labeling is left
            return True
        return True

    def _offer(self, labels):
        found = models.score(self.model, labels)
        if found > self.best:
            self.labels, self.best = labels, found

    def _branch(self, bound):
        """Run branch and bound over all labelings and return an upper bound."""
        labels, reached, is_complete = run_branch_and_bound(self.model, self.labels, self.work)
        self._offer(labels)
        return self.target if is_complete else min(bound, reached)


def _restrict(model, regions):
    """Return the model without the states that have been ruled out."""
    factors = []
    for node in range(model.n_nodes):
        allowed = regions.table(node) > -np.inf
        if not allowed.all():
            factors.append(((node,), np.where(allowed, 0.0, -np.inf)))
    return models.unite_factors(model, models.FactorGraph.from_factors(model.n_states, factors))
