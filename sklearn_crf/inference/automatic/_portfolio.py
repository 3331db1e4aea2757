"""Portfolio of algorithms for the best labeling of a model for which no exact algorithm is affordable."""

from dataclasses import replace
from math import ceil
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import cached_property
from sklearn_crf.inference._allowed_labels import find_nearest_allowed
from sklearn_crf.inference._base import (
    check_model,
    convergence_left_to_caller,
    run_map_unchecked,
    run_marginals_unchecked,
)
from sklearn_crf.inference._local_search import choose_climber, search_problem
from sklearn_crf.inference._proofs import Proof
from sklearn_crf.inference._results import Infeasible, Labeling
from sklearn_crf.inference.automatic import _tuning
from sklearn_crf.inference.automatic._cost import most_states
from sklearn_crf.inference.cuts._alpha_expansion import AlphaExpansion
from sklearn_crf.inference.cuts._fusion import choose_fusion
from sklearn_crf.inference.cuts._graph_cut import GraphCut
from sklearn_crf.inference.exact._junction_tree import JunctionTree
from sklearn_crf.inference.local._icm import ICM
from sklearn_crf.inference.local._neighborhood_search import LargeNeighborhoodSearch
from sklearn_crf.inference.messages._belief_propagation import LoopyBP
from sklearn_crf.inference.messages._mplp import MPLP
from sklearn_crf.inference.messages._trws import TRWS
from sklearn_crf.inference.relaxations._ad3 import AD3
from sklearn_crf.inference.relaxations._branch_and_bound import run_branch_and_bound
from sklearn_crf.inference.relaxations._cluster_tightening import ClusterTightening, tighten_labeling
from sklearn_crf.inference.relaxations._cycle_relaxation import choose_cycle_relaxation
from sklearn_crf.models import FactorGraph, PairwiseModel, pairwise_model_of, score

# Number of table entries that each algorithm may read; time per entry, relative to the time of TRWS.
# In training, TRWS has a smaller budget, because calls use warm starts.
_WORK = {"TRWS": 1e9, "LoopyBP": 6e7, "AD3": 1.2e8, "MPLP": 1.2e8, "ICM": 6e7, "AlphaExpansion": 6e8}
_WORK_OF_TRAINING = _WORK | {"TRWS": 6e7}
_COST_OF_ENTRY = {"TRWS": 1, "LoopyBP": 4, "AD3": 15, "MPLP": 30, "ICM": 1, "AlphaExpansion": 10}


class PortfolioState(NamedTuple):
    """State of a portfolio for a warm start."""

    labels: np.ndarray
    bounding: object  # state of the algorithm that computes the bound


class Candidates:
    """Labelings found by several algorithms and improved by hill climbing, with the smallest upper bound."""

    def __init__(self, model, max_iter, n_threads):
        self.model, self.max_iter, self.n_threads = model, max_iter, n_threads
        self.climber, self.proof = choose_climber(model), Proof(model)
        self.found, self.bound, self.n_iter, self.names, self.states = [], np.inf, 0, [], {}
        self.n_branches = 0

    @cached_property
    def entries(self):
        """Total number of table entries that a message sweep reads, in both directions."""
        model = self.model
        if isinstance(model, FactorGraph):
            return 2.0 * float(np.diff(model.table_ptr)[model.table_id] @ model.arity)
        return 2.0 * model.graph.n_edges * model.n_columns * (1 if model.is_potts else model.n_columns)

    def iterations(self, name, work=_WORK, most=None):
        """Return the number of iterations within an algorithm's budget, or 0 if they are too few to be useful."""
        most = self.max_iter if most is None else most
        n_iter = int(min(most, work[name] / (_COST_OF_ENTRY[name] * max(self.entries, 1.0))))
        return n_iter if n_iter >= min(_tuning.FEWEST_ITERATIONS, most) else 0

    def affords(self, name, n_iter):
        """Return whether ``n_iter`` passes over the edges are within the budget of an algorithm."""
        return n_iter * (self.entries / self.model.n_columns) * _COST_OF_ENTRY[name] <= _WORK[name]

    def run(self, algorithm, init=None):
        """Run an algorithm and add its labeling; return its state."""
        name = type(algorithm).__name__
        try:
            with convergence_left_to_caller():
                check_model(algorithm, self.model)
                found = run_map_unchecked(algorithm, self.model, init=init, n_threads=self.n_threads)
        except Infeasible:
            # Whether the model is infeasible is decided later, by the search for allowed labels.
            self.states[name] = None
            return None
        self.states[name] = found.state
        self.names += [] if name in self.names else [name]
        self.n_iter += found.n_iter
        # A bound of -inf would also claim infeasibility, so it is ignored.
        self.bound = self.bound if np.isneginf(found.bound) else min(self.bound, found.bound)
        self.add(found.labels)
        return found.state

    def run_in_parts(self, algorithm):
        """Run an algorithm in parts, and add a labeling after each part, because labelings vary until convergence."""
        n_iter, former = max(1, algorithm.max_iter // _tuning.N_LOOKS), None
        algorithm.set_params(max_iter=n_iter)
        for _ in range(_tuning.N_LOOKS):
            before = self.n_iter
            former = self.run(algorithm, former)
            if self.n_iter - before < n_iter:
                break

    def branch(self, max_work: float) -> None:
        """Search all labelings by branch and bound, within a budget."""
        value, labels = self.best
        start, self.n_branches = labels if np.isfinite(value) else None, self.n_branches + 1
        found, bound, is_complete = run_branch_and_bound(self.model, start, max_work, self.n_branches)
        if is_complete and found is None:
            message = "model is infeasible: branch and bound over all labelings found that none is allowed."
            raise Infeasible(message, proven=True)
        if found is not None and (is_complete or found is not labels):
            self.names += [] if "branch and bound" in self.names else ["branch and bound"]
            self.add(found)
        self.bound = min(self.bound, bound)

    def tighten(self, max_work: float) -> None:
        """Lower the bound by cluster tightening, within a budget."""
        if ClusterTightening().fits(self.model):
            found = tighten_labeling(self.model, self.labeling(None), max_work, 8 * max_work)
            self.bound = min(self.bound, found.bound)
            self.add(found.labels)
            self.names.append("ClusterTightening")

    def add(self, labels):
        """Add a labeling after hill climbing."""
        value = score(self.model, labels)
        if np.isfinite(value):
            labels = self.climber.climb(labels.copy())
            value = score(self.model, labels)
        self.found.append((value, labels))

    @property
    def best(self):
        """Score and labels of the best labeling so far; among labelings with equal scores, of the first."""
        return max(self.found, key=lambda pair: pair[0], default=(-np.inf, None))

    @property
    def certain(self):
        """Whether the bound proves the best labeling to be optimal."""
        return self.proof.closes(self.best[0], self.bound)

    def require_allowed(self, init):
        """Add allowed labels if there are none yet and a search finds some."""
        value, labels = self.best
        if np.isneginf(value) and (init is None or np.isneginf(score(self.model, init.labels))):
            self.add(find_nearest_allowed(self.model, labels))

    def fuse(self) -> None:
        """Fuse all allowed labelings into a labeling that is at least as good as each of them, and add it."""
        found = [pair for pair in self.found if np.isfinite(pair[0])]
        if not found:
            return
        fuse = choose_fusion(self.model)
        ordered = [labels for _, labels in sorted(found, key=lambda pair: -pair[0])]
        best, before = ordered[0], None
        while best is not before:
            before = best
            for labels in ordered[1:]:
                best = fuse(best, labels)
        self.names += [] if "fusion" in self.names else ["fusion"]
        self.add(best)

    def labeling(self, state):
        """Return the result with the best labeling."""
        value, labels = self.best
        return Labeling(
            labels,
            value,
            bound=max(self.bound, value),
            n_iter=self.n_iter,
            state=state,
            method=" + ".join(self.names),
        )


def run_portfolio(
    model: PairwiseModel | FactorGraph,
    max_iter: int,
    init: PortfolioState | None = None,
    n_threads: int = 1,
    search: bool = True,
    effort: float = 1.0,
) -> Labeling:
    """Return the best labeling of several algorithms with limited budgets, after hill climbing and fusion."""
    # max_iter: maximum number of iterations of each algorithm; init: state of an earlier labeling
    # search: whether to continue with searches if a gap remains; effort: factor for the budget of searches
    if isinstance(model, FactorGraph) and model.arity.max(initial=0) <= 2:
        # Convert the model to a pairwise model, because this has faster kernels and fusion.
        model = pairwise_model_of(model)
    candidates, is_pairwise = Candidates(model, max_iter, n_threads), isinstance(model, PairwiseModel)
    if not search and is_pairwise and model.n_columns == 2:
        _cut(candidates, init)
        candidates.require_allowed(init)
        if not _compute_looseness(candidates, *search_problem(model)) > _tuning.LOOSE_CUTS:
            return candidates.labeling(PortfolioState(candidates.best[1], None))
    former = None if init is None else init.bounding
    if is_pairwise:
        _run_bounding_algorithms(candidates, init, former, _WORK if search else _WORK_OF_TRAINING)
    else:
        n_iter = max(candidates.iterations("MPLP", most=5 * max_iter), _tuning.FEWEST_ITERATIONS)
        candidates.run(MPLP(max_iter=n_iter), former)
    candidates.require_allowed(init)
    if init is None and search and not candidates.certain:
        candidates.branch(min(effort, _tuning.FIRST_EFFORT) * _tuning.FIRST_BRANCHES)
    if search and isinstance(model, PairwiseModel) and not candidates.certain:
        cycles = choose_cycle_relaxation(model, _tuning.MOST_OF_CYCLES)
        if cycles is not None:
            candidates.run(cycles)
    if init is not None:
        candidates.add(init.labels)
    elif not candidates.certain:
        _explore(candidates)
    if not candidates.certain and (init is None or is_pairwise):
        candidates.fuse()
    if init is None and search:
        _search(candidates, effort)
    bounding = candidates.states.get("TRWS" if is_pairwise else "MPLP")
    return candidates.labeling(PortfolioState(candidates.best[1], bounding))


def _cut(candidates, init):
    """Add fused labelings of minimum cuts, for a model with non-submodular pairs."""
    candidates.run(GraphCut(nonsubmodular="qpbo"))
    if candidates.certain:
        return
    if np.isfinite(candidates.model.tables).all():
        candidates.run(GraphCut(nonsubmodular="truncate"))
    if init is not None:
        candidates.add(init.labels)
    candidates.fuse()


def _compute_looseness(candidates, arrays, unary):
    """Return the gap between bound and best score, divided by the summed costs of changing each label."""
    best, labels = candidates.best
    if not np.isfinite(candidates.bound - best):
        return np.inf
    cost = arrays.compute_mean_change_cost(unary, labels, arrays.cells(unary, labels)) * len(labels)
    gap = max(candidates.bound - best, 0.0)
    return gap / cost if cost else np.inf * (gap > 0)


def _run_bounding_algorithms(candidates, init, former, work):
    """Run minimum cuts (or moves by minimum cuts), and message passing with an upper bound, on a pairwise model."""
    model, labels = candidates.model, None if init is None else init.labels
    if model.n_columns == 2:
        candidates.run(GraphCut(nonsubmodular="qpbo"))
    elif np.isfinite(model.tables).all() and candidates.affords("AlphaExpansion", _tuning.FEWEST_ITERATIONS):
        candidates.run(AlphaExpansion(max_iter=candidates.max_iter, nonsubmodular="truncate"), labels)
    if not candidates.certain:
        n_iter = candidates.iterations("TRWS", work)
        if n_iter or not candidates.found:
            candidates.run(TRWS(max_iter=max(n_iter, 1), tol=1e-7), former)


def _explore(candidates):
    """Run algorithms without a bound, or with a more expensive bound."""
    is_pairwise = isinstance(candidates.model, PairwiseModel)
    if is_pairwise and candidates.affords("ICM", 6 * _tuning.FEWEST_ITERATIONS):
        candidates.run(ICM(n_restarts=5, random_state=0))
    n_iter = candidates.iterations("LoopyBP")
    for damping in (0.0, 0.5) if n_iter else ():
        candidates.run_in_parts(LoopyBP(max_iter=n_iter, damping=damping))
    n_iter = 0 if is_pairwise else candidates.iterations("AD3")
    if n_iter:
        candidates.run(AD3(max_iter=n_iter))


def _search(candidates, effort):
    """Run branch and bound and large neighbourhood searches; with more effort, repeat them and tighten the bound."""
    # A larger budget continues where a smaller one ends, so that its result is never worse.
    marks = np.minimum(effort, [0.0, _tuning.FIRST_EFFORT, *range(1, ceil(effort) + 1)])
    is_small, start = candidates.model.n_nodes <= _tuning.FEW_NODES, candidates.best[1]
    for number, share in enumerate(np.diff(np.unique(marks))):
        if is_small and number == 0 and not candidates.certain:
            candidates.branch(share * _tuning.BRANCHES)
        if not candidates.certain:
            _search_neighborhoods(candidates, share, number, start if number < 2 else candidates.best[1])
        if is_small and not candidates.certain:
            candidates.branch(share * _tuning.BRANCHES)
    if effort > 1 and np.isfinite(candidates.best[0]) and not candidates.certain:
        candidates.tighten((effort - 1) * _tuning.TIGHTENING)


def _search_neighborhoods(candidates, effort, number, labels):
    """Run a large neighbourhood search from some labels, longer for larger gaps, and fuse the results."""
    # number: index of the call; the first call also tries elimination over the most probable states
    arrays, unary = search_problem(candidates.model)
    share = effort * min(_compute_looseness(candidates, arrays, unary) / _tuning.LOOSE, 1.0)
    n_sweeps = min(share * _tuning.SEARCH_SWEEPS, share * _tuning.SEARCH_WORK / arrays.work_of_sweep)
    if n_sweeps < _tuning.FEWEST_SEARCH_SWEEPS:
        return
    if number == 0 and np.isfinite(candidates.best[0]) and _narrow(candidates):
        n_sweeps *= _tuning.LEFT_TO_SEARCH
    work = n_sweeps * arrays.work_of_sweep
    candidates.run(LargeNeighborhoodSearch(work, n_restarts=8, random_state=number), labels)
    if not candidates.certain:
        candidates.fuse()


def _narrow(candidates):
    """Add the best labelings over each node's most probable states; return False if too few states are affordable."""
    model = candidates.model
    if isinstance(model, FactorGraph) or model.n_columns < _tuning.FEWEST_STATES:
        return False
    n_kept = most_states(model.graph, _tuning.NARROW_CELLS)
    if n_kept < _tuning.FEWEST_STATES:
        return False
    messages, nodes = LoopyBP(max_iter=_tuning.NARROW_SWEEPS, damping=0.5), np.arange(model.graph.n_nodes)
    for temperature in _tuning.TEMPERATURES:
        cooled = replace(model, unary=model.unary / temperature, tables=model.tables / temperature)
        try:
            with convergence_left_to_caller():
                likely = run_marginals_unchecked(messages, cooled, n_threads=candidates.n_threads).unary
        except Infeasible:
            # At low temperatures, messages may underflow although allowed labels exist.
            break
        likely[nodes, candidates.best[1]] = np.inf
        kept = np.argsort(-likely, axis=1, kind="stable")[:, :n_kept]
        unary = np.full_like(model.unary, -np.inf)
        np.put_along_axis(unary, kept, np.take_along_axis(model.unary, kept, axis=1), axis=1)
        restricted = replace(model, unary=unary)
        candidates.add(run_map_unchecked(JunctionTree(), restricted, n_threads=candidates.n_threads).labels)
    candidates.names.append("elimination over likely states")
    return True
