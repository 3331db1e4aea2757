"""The best algorithm at hand for a model, chosen by its graph and its tables, and the names of all algorithms."""

from collections.abc import Callable
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf._numbers import n_joint_states
from sklearn_crf.inference._base import Inference, convergence_left_to_caller
from sklearn_crf.inference._constraints import Infeasible, Refuted
from sklearn_crf.inference.automatic._affordable import affordable_components, exact_inference
from sklearn_crf.inference.automatic._phases import (
    PhaseState,
    can_be_favoured,
    may_have_phases,
    mixture_of_phases,
    with_node_factors,
)
from sklearn_crf.inference.automatic._portfolio import best_of_portfolio
from sklearn_crf.inference.bounds._edge_entropy import EdgeEntropyBP
from sklearn_crf.inference.bounds._tighten_bound import TightenBound
from sklearn_crf.inference.cuts._alpha_expansion import AlphaBetaSwap, AlphaExpansion
from sklearn_crf.inference.cuts._graph_cut import GraphCut, exact_cut, n_not_submodular
from sklearn_crf.inference.exact._brute_force import BruteForce, n_labelings
from sklearn_crf.inference.exact._junction_tree import JunctionTree
from sklearn_crf.inference.exact._linear_program import LinearProgram
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.inference.local._gibbs import GibbsSampler
from sklearn_crf.inference.local._icm import ICM
from sklearn_crf.inference.local._mean_field import MeanField
from sklearn_crf.inference.local._neighborhood_search import LargeNeighborhoodSearch
from sklearn_crf.inference.messages._belief_propagation import LoopyBP, TRWMessagePassing
from sklearn_crf.inference.messages._factor_layers import is_forest_of_factors
from sklearn_crf.inference.messages._mplp import MPLP
from sklearn_crf.inference.messages._norm_product import NormProductBP
from sklearn_crf.inference.messages._trws import TRWS
from sklearn_crf.inference.relaxations._ad3 import AD3
from sklearn_crf.inference.relaxations._cluster_tightening import ClusterTightening
from sklearn_crf.inference.relaxations._cycle_relaxation import CycleRelaxation
from sklearn_crf.inference.relaxations._dual_decomposition import DualDecomposition
from sklearn_crf.inference.relaxations._incmp import IncMP
from sklearn_crf.models import FactorGraph, PairwiseModel, model_of_components, score

# Where plain messages go round in circles; fixed on random grids of mixed couplings, with the parts of the average.
_DAMPING = 0.5
_PARTS, _SWEEPS_OF_A_PART = 20, 5


class AutoState(NamedTuple):
    """State of an automatic result: that of the algorithm that was chosen, by its name."""

    chosen: str
    state: object

    @staticmethod
    def of(init, chosen):
        """The part of a former state that warm-starts the chosen algorithm, or None."""
        return init.state if isinstance(init, AutoState) and init.chosen == chosen else None


class AutoMarginals(Inference):
    """Exact marginals wherever that is affordable, belief propagation elsewhere.

    Forests go to :class:`TreeInference`; connected components of graphs with cycles to :class:`JunctionTree` as far as
    :func:`exact_inference` says that elimination is affordable, the others to :class:`LoopyBP`. Where its messages do
    not settle, they begin anew with damping of at least 0.5, and where that does not settle either, marginals are
    averages over 100 further sweeps, nearer to the true ones than those of any sweep or of a convex bound. Where edges
    are so strong that messages may have several fixed points, on up to 2,000 nodes without larger factors than pairs,
    marginals are those of all that are found, weighted by their log-partitions. ``method`` of the result names what was
    used.

    Samples are exact where marginals are, and Gibbs samples otherwise; of factor graphs, exact by
    :class:`JunctionTree`.

    Parameters
    ----------
    max_iter : int, default=100
        Sweeps of belief propagation, each with and without damping.
    tol : float, default=1e-4
        Its tolerance: largest change of a normalised message.
    damping : float, default=0.0
        Its damping to begin with, in [0, 1).
    search : bool, default=True
        Whether the search for several fixed points begins near labelings of high score too, besides those of one state
        everywhere. Learning does without it: labelings change in leaps from one model to the next.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import AutoMarginals
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [2, 0]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.0, 0.0], [0.5, 0.0]]), [2.0 * np.eye(2)]
    ... )
    >>> found = AutoMarginals().marginals(model)
    >>> found.method, found.bound
    ('JunctionTree', 'exact')
    """

    takes_turns_on_forests = True
    tasks = frozenset({"marginals", "sample"})
    exact_on = "forest"
    takes = (PairwiseModel, FactorGraph)

    def __init__(self, max_iter=100, tol=1e-4, damping=0.0, search=True):
        self.max_iter = max_iter
        self.tol = tol
        self.damping = damping
        self.search = search

    def for_learning(self):
        return clone(self).set_params(search=False)

    def is_exact_for(self, model):
        return exact_inference(model) is not None

    def labeler_of_chains(self, model, rule):
        self._require("marginals", model)
        return TreeInference().labeler_of_chains(model, rule)

    def _node_marginals(self, model, n_threads):
        if isinstance(model, PairwiseModel) and model.graph.is_forest:
            return TreeInference()._node_marginals(model, n_threads)
        return super()._node_marginals(model, n_threads)

    def _marginals(self, model, *, init=None, n_threads=1):
        if isinstance(model, PairwiseModel) and model.graph.is_forest:
            return TreeInference()._marginals(model, n_threads=n_threads)._replace(method="TreeInference")
        if isinstance(model, FactorGraph) and is_forest_of_factors(model):
            return LoopyBP()._marginals(model)._replace(method="LoopyBP", state=None)
        affordable = affordable_components(model)
        if affordable.all():
            found = JunctionTree()._marginals(model, init=AutoState.of(init, "JunctionTree"), n_threads=n_threads)
            return found._replace(method="JunctionTree", state=AutoState("JunctionTree", found.state))
        if affordable.any():
            return self._by_both(model, affordable, init, n_threads)
        found = self._by_messages(model, AutoState.of(init, "LoopyBP"), n_threads)
        return found._replace(state=AutoState("LoopyBP", found.state))

    def _by_both(self, model, affordable, init, n_threads):
        """Elimination on the components that can afford it, messages on the others."""
        states = AutoState.of(init, "JunctionTree, LoopyBP") or (None, None)
        (narrow, narrow_nodes), (wide, wide_nodes) = (
            model_of_components(model, affordable),
            model_of_components(model, ~affordable),
        )
        exact = JunctionTree()._marginals(narrow, init=states[0], n_threads=n_threads)
        loopy = self._by_messages(wide, states[1], n_threads)
        unary = np.zeros((len(narrow_nodes) + len(wide_nodes), model.n_columns), dtype=model.dtype)
        terms = np.zeros(len(unary))
        for found, nodes in ((exact, narrow_nodes), (loopy, wide_nodes)):
            unary[nodes, : found.unary.shape[1]], terms[nodes] = found.unary, found.log_z_terms
        sums = [name for name in exact.statistics._fields if name != "unary"]
        return loopy._replace(
            unary=unary,
            log_z=exact.log_z + loopy.log_z,
            log_z_terms=terms,
            state=AutoState("JunctionTree, LoopyBP", (exact.state, loopy.state)),
            method=f"JunctionTree, {loopy.method}",
            **{name: getattr(exact, name) + getattr(loopy, name) for name in sums},
        )

    def _by_messages(self, model, init, n_threads):
        """Marginals of messages, of all their fixed points where edges are strong."""
        if can_be_favoured(model):
            found = self._by_phases(with_node_factors(model), init, n_threads)
            own = found.log_table[: len(model.log_table)], found.table_default[: model.n_tables]
            return found._replace(log_table=own[0], table_default=own[1])
        return self._by_phases(model, init, n_threads)

    def _by_phases(self, model, init, n_threads):
        phases = init if isinstance(init, PhaseState) else None
        found, inference = self._settled(model, init if phases is None else phases.plain, n_threads)
        if not found.converged or not may_have_phases(model):
            return found
        with convergence_left_to_caller():
            return mixture_of_phases(inference, model, found, phases, self.search, n_threads)

    def _settled(self, model, init, n_threads):
        """The marginals of messages if these settle, else of damped ones, else averages; and what ran last."""
        inference = LoopyBP(max_iter=self.max_iter, tol=self.tol, damping=self.damping)
        with convergence_left_to_caller():
            found = inference._marginals(model, init=init, n_threads=n_threads)
            if found.converged:
                return found._replace(method="LoopyBP"), inference
            inference.set_params(damping=max(self.damping, _DAMPING))
            again = inference._marginals(model, n_threads=n_threads)
            n_iter = found.n_iter + again.n_iter
            method = f"LoopyBP(damping={inference.damping:g})"
            if again.converged:
                return again._replace(method=method, n_iter=n_iter), inference
            found = _averaged(clone(inference).set_params(max_iter=_SWEEPS_OF_A_PART), model, again, n_threads)
        self._warn_unconverged(
            f"Messages of belief propagation did not settle in {n_iter} sweeps, and marginals are averages over more: "
            'take inference="trw" for marginals of a convex bound, "gibbs" for samples, or an AutoMarginals of larger '
            f"max_iter (now {self.max_iter})."
        )
        found = found._replace(method=f"{method}, averaged", n_iter=n_iter + _PARTS * _SWEEPS_OF_A_PART)
        return found, inference

    def _sample(self, model, n_samples, *, random_state=None, n_threads=1):
        sampler = exact_inference(model) or (JunctionTree() if isinstance(model, FactorGraph) else GibbsSampler())
        return sampler.sample(model, n_samples, random_state=random_state, n_threads=n_threads)


def _averaged(inference, model, found, n_threads):
    """Means of the marginals of several parts of a run that goes on from a result."""
    parts = []
    for _ in range(_PARTS):
        found = inference._marginals(model, init=found.state, n_threads=n_threads)
        parts.append(found)
    names = [*found.statistics._fields, "log_z_terms"]
    means = {name: sum(getattr(part, name) for part in parts) / _PARTS for name in dict.fromkeys(names)}
    means["unary"] = (sum(part.unary.astype(np.float64) for part in parts) / _PARTS).astype(model.dtype)
    return found._replace(log_z=float(means["log_z_terms"].sum()), converged=False, **means)


class AutoMapState(NamedTuple):
    """State of a result of :class:`AutoMap`: of the algorithm that was chosen."""

    chosen: str
    state: object
    n_nonsubmodular: int  # edges that min-cut could not represent


class AutoMap(Inference):
    """The labeling of highest score: exact wherever that is affordable, else the best that several algorithms find.

    Forests go to max-product on trees, graphs of up to 4,096 labelings to enumeration, models of two states to min-cut
    where every pair is submodular, and connected components of other graphs to :class:`JunctionTree` as far as
    :func:`exact_inference` says that elimination is affordable.

    What is left goes to a portfolio: roof duality with two states (:class:`GraphCut`), :class:`AlphaExpansion` with
    more, and :class:`TRWS`, whose bound may certify the best labeling; with two states, at most 12,000 nodes and edges
    and three edges a node, also :class:`CycleRelaxation`, which mostly proves one. If nothing does, :class:`ICM`
    with five restarts, :class:`LoopyBP` with and without damping, and :class:`AD3` follow. Labelings are changed one
    node at a time as long as that gains, and fused (:func:`fuse_labelings`). Factors of more than two nodes go to
    :class:`MPLP`, :class:`LoopyBP` and :class:`AD3`. Where the bound stays far above the best score, as in models of
    mixed couplings, :class:`LargeNeighborhoodSearch` goes on from the best labels, and reads as many table entries as
    50,000 sweeps over the nodes do, in two runs. Pairwise models of many states on few nodes are first eliminated over
    the states of each node that belief propagation finds likeliest, where at least five are affordable.

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
        out: many calls on models that change a little, as in learning, warm-start each other.

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

    takes_turns_on_forests = True
    tasks = frozenset({"map"})
    exact_on = "forest"
    takes = (PairwiseModel, FactorGraph)
    enumerates = 4096

    def __init__(self, max_iter=100, tol=1e-4, bounded=False):
        self.max_iter = max_iter
        self.tol = tol
        self.bounded = bounded

    def labeler_of_chains(self, model, rule):
        self._require("map", model)
        return TreeInference().labeler_of_chains(model, rule)

    def _map(self, model, *, init=None, n_threads=1):
        exact = self._exact(model)
        if exact is not None:
            return self._by(exact, model, init, n_threads)
        cut = exact_cut(model, n_threads) if isinstance(model, PairwiseModel) else None
        if cut is not None:
            return cut._replace(state=AutoMapState("GraphCut", cut.state, 0), method="GraphCut")
        affordable = affordable_components(model)
        if affordable.all():
            return self._by(JunctionTree(), model, init, n_threads)
        if affordable.any():
            return self._by_both(model, affordable, init, n_threads)
        return self._approximately(model, init, n_threads)

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
            return self._by(TRWS(max_iter=self.max_iter, tol=self.tol), model, init, n_threads)
        former = init.state if init is not None and init.chosen == "portfolio" else None
        found = best_of_portfolio(model, self.max_iter, former, n_threads, search=not self.bounded)
        return found._replace(state=AutoMapState("portfolio", found.state, n_not_submodular(model)))

    def _by(self, chosen, model, init, n_threads):
        """The result of an algorithm, whose state means nothing to another."""
        name = type(chosen).__name__
        usable = init is not None and init.chosen == name and name in ("JunctionTree", "TRWS")
        found = chosen._map(model, init=init.state if usable else None, n_threads=n_threads)
        return found._replace(state=AutoMapState(name, found.state, n_not_submodular(model)), method=name)

    def _by_both(self, model, affordable, init, n_threads):
        """Elimination on the components that can afford it, approximation on the others."""
        states = init.state if init is not None and init.chosen == "both" else (None, None)
        (narrow, narrow_nodes), (wide, wide_nodes) = (
            model_of_components(model, affordable),
            model_of_components(model, ~affordable),
        )
        with _nodes_of_whole(narrow_nodes):
            exact = self._by(JunctionTree(), narrow, states[0], n_threads)
        with _nodes_of_whole(wide_nodes):
            other = self._approximately(wide, states[1], n_threads)
        labels = np.empty(len(narrow_nodes) + len(wide_nodes), dtype=np.int32)
        labels[narrow_nodes], labels[wide_nodes] = exact.labels, other.labels
        total = score(model, labels)
        return other._replace(
            labels=labels,
            score=total,
            bound=max(exact.bound + other.bound, total),
            fractional=None,
            state=AutoMapState("both", (exact.state, other.state), n_not_submodular(model)),
            method=f"{exact.method}, {other.method}",
        )


@contextmanager
def _nodes_of_whole(nodes):
    """Context in which an error that names nodes of a part of a model comes to name those of the model."""
    # nodes: (n_part,), of the part
    try:
        yield
    except Refuted as error:
        raise Refuted(nodes[error.nodes].tolist()) from None
    except Infeasible as error:
        message = "model is infeasible: no labeling of one of its connected components is allowed."
        raise Infeasible(message, error.proven) from None


class NamedInference(NamedTuple):
    """The inference that a name stands for.

    Attributes
    ----------
    inference : Inference
        With its default options.
    rule : {"mpm", "map"}
        How it labels: each node's best state under its marginals, or the best labeling as a whole.

    Examples
    --------
    >>> from sklearn_crf.inference import resolve_inference
    >>> named = resolve_inference("viterbi")
    >>> named.inference, named.rule
    (TreeInference(), 'map')
    """

    inference: Inference
    rule: Literal["mpm", "map"]


_MAKERS: dict[str, tuple[Callable[[], Inference], Literal["mpm", "map"]]] = {
    "auto": (AutoMarginals, "mpm"),
    "mpm": (AutoMarginals, "mpm"),
    "map": (AutoMap, "map"),
    "tree": (TreeInference, "mpm"),
    "viterbi": (TreeInference, "map"),
    "junction_tree": (JunctionTree, "mpm"),
    "brute_force": (BruteForce, "mpm"),
    "bp": (LoopyBP, "mpm"),
    "max_product": (LoopyBP, "map"),
    "trw": (TRWMessagePassing, "mpm"),
    "tighten_bound": (TightenBound, "mpm"),
    "norm_product": (NormProductBP, "mpm"),
    "edge_entropy": (EdgeEntropyBP, "mpm"),
    "mean_field": (MeanField, "mpm"),
    "gibbs": (GibbsSampler, "mpm"),
    # Training may pass through weights that no minimum cut represents.
    "graph_cut": (partial(GraphCut, nonsubmodular="qpbo"), "map"),
    "alpha_expansion": (partial(AlphaExpansion, nonsubmodular="truncate"), "map"),
    "alpha_beta_swap": (partial(AlphaBetaSwap, nonsubmodular="truncate"), "map"),
    "trws": (TRWS, "map"),
    "mplp": (MPLP, "map"),
    "ad3": (AD3, "map"),
    "incmp": (IncMP, "map"),
    "dual_decomposition": (DualDecomposition, "map"),
    "lp": (LinearProgram, "map"),
    "cluster_tightening": (ClusterTightening, "map"),
    "cycles": (CycleRelaxation, "map"),
    "icm": (ICM, "map"),
    # Predictions repeat.
    "large_neighborhood_search": (partial(LargeNeighborhoodSearch, random_state=0), "map"),
}

#: Names that :func:`resolve_inference` knows, in the order of the table in the user guide.
NAMES: tuple[str, ...] = tuple(_MAKERS)

#: Rule by which the inference of each name labels.
LABELING_RULES: dict[str, Literal["mpm", "map"]] = {name: rule for name, (_, rule) in _MAKERS.items()}


def resolve_inference(inference: str | Inference) -> NamedInference:
    """The inference that a name or an object stands for, as the parameter ``inference`` of an estimator takes it.

    Parameters
    ----------
    inference : str or Inference
        One of ``sklearn_crf.inference.NAMES``, or an object, which is cloned.

    Returns
    -------
    NamedInference
        A new object, for a name with its default options, and the rule by which it labels: most probable states of
        nodes (``"mpm"``) where it gives marginals, unless its name says otherwise, else the best labeling (``"map"``).

    Raises
    ------
    ValueError
        If the name is unknown. The message lists the known ones, those that look like it first.

    Examples
    --------
    >>> from sklearn_crf.inference import resolve_inference
    >>> resolve_inference("viterbi")
    NamedInference(inference=TreeInference(), rule='map')
    """
    if isinstance(inference, Inference):
        return NamedInference(clone(inference), "mpm" if "marginals" in inference.tasks else "map")
    if inference not in _MAKERS:
        near = get_close_matches(str(inference).lower().replace("-", "_"), NAMES, n=3, cutoff=0.5)
        ordered = [*near, *(known for known in NAMES if known not in near)]
        listed = ", ".join(map(repr, ordered))
        # A ValueError, and what scikit-learn raises for parameters of estimators.
        raise InvalidParameterError(f"inference must be an Inference or one of {listed}; got {inference!r}.")
    make, rule = _MAKERS[inference]
    return NamedInference(make(), rule)
