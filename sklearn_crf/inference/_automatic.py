"""The best algorithm at hand for a model, chosen by its graph and its tables."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.inference._base import Inference
from sklearn_crf.inference.cuts._alpha_expansion import AlphaExpansion
from sklearn_crf.inference.cuts._graph_cut import GraphCut
from sklearn_crf.inference.exact._brute_force import BruteForce, n_labelings
from sklearn_crf.inference.exact._junction_tree import JunctionTree
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.inference.local._gibbs import GibbsSampler
from sklearn_crf.inference.messages._factor_layers import is_forest_of_factors
from sklearn_crf.inference.messages._loopy_bp import LoopyBP
from sklearn_crf.inference.messages._mplp import MPLP
from sklearn_crf.inference.messages._trws import TRWS
from sklearn_crf.models import FactorGraph, PairwiseModel


class AutoMarginals(Inference):
    """Exact marginals on forests, loopy belief propagation on graphs with cycles.

    Samples are exact on forests and Gibbs samples otherwise; of factor graphs, exact by :class:`JunctionTree`.

    Parameters
    ----------
    max_iter : int, default=100
        Sweeps of belief propagation.
    tol : float, default=1e-4
        Its tolerance: largest change of a normalised message.
    damping : float, default=0.0
        Its damping, in [0, 1).
    """

    tasks = frozenset({"marginals", "sample"})
    exact_on = "forest"
    takes = (PairwiseModel, FactorGraph)

    def __init__(self, max_iter=100, tol=1e-4, damping=0.0):
        self.max_iter = max_iter
        self.tol = tol
        self.damping = damping

    def _marginals(self, model, *, init=None, n_threads=1):
        if isinstance(model, PairwiseModel) and model.graph.is_forest:
            return TreeInference()._marginals(model, init=None, n_threads=n_threads)
        loopy = LoopyBP(max_iter=self.max_iter, tol=self.tol, damping=self.damping)
        return loopy._marginals(model, init=init, n_threads=n_threads)

    def _sample(self, model, n_samples, *, random_state=None, n_threads=1):
        if isinstance(model, FactorGraph):
            sampler = JunctionTree()
        else:
            sampler = TreeInference() if model.graph.is_forest else GibbsSampler()
        return sampler.sample(model, n_samples, random_state=random_state, n_threads=n_threads)


class AutoMapState(NamedTuple):
    """State of a result of :class:`AutoMap`: of the algorithm that was chosen."""

    maker: type
    state: object
    n_nonsubmodular: int  # edges that min-cut could not represent


class AutoMap(Inference):
    """The labeling of highest score: exact on forests and on binary submodular models.

    Forests go to max-product on trees, graphs of up to 4,096 labelings to enumeration, two states to min-cut (quadratic
    pseudo-boolean optimisation with iterated conditional modes where a pair is not submodular), more states to
    alpha-expansion where every edge is a Potts term that prefers equal states, and to loopy max-product elsewhere, or
    both to sequential tree-reweighted max-product, which bounds what it may have missed.
    Factor graphs go to max-product where they have no cycles, to enumeration where they are small, else to
    :class:`MPLP`.

    Parameters
    ----------
    max_iter : int, default=100
        Cycles of alpha-expansion, sweeps of max-product, iterations of the tree-reweighted kind.
    tol : float, default=1e-4
        Tolerance of max-product, of either kind.
    damping : float, default=0.0
        Damping of max-product, in [0, 1).
    bounded : bool, default=False
        Whether pairwise models with cycles and more than two states go to :class:`TRWS`, and have a finite bound.
    """

    tasks = frozenset({"map"})
    exact_on = "forest"
    takes = (PairwiseModel, FactorGraph)
    enumerates = 4096

    def __init__(self, max_iter=100, tol=1e-4, damping=0.0, bounded=False):
        self.max_iter = max_iter
        self.tol = tol
        self.damping = damping
        self.bounded = bounded

    def _map(self, model, *, init=None, n_threads=1):
        chosen, warm = self._choose(model)
        # A state made by one algorithm means nothing to another: it travels with its maker's name.
        usable = warm and init is not None and init.maker is type(chosen)
        result = chosen._map(model, init=init.state if usable else None, n_threads=n_threads)
        n_nonsubmodular = getattr(result.state, "n_nonsubmodular", 0)
        return result._replace(state=AutoMapState(type(chosen), result.state, n_nonsubmodular))

    def _choose(self, model):
        """Algorithm for the model, and whether it takes a warm start."""
        if isinstance(model, FactorGraph):
            if is_forest_of_factors(model):
                return LoopyBP(), False
            is_small = np.prod(model.n_states, dtype=float) <= self.enumerates
            return (BruteForce(), False) if is_small else (MPLP(), True)
        if model.graph.is_forest:
            return TreeInference(), False
        if n_labelings(model.graph.n_nodes, model.n_columns) <= self.enumerates:
            return BruteForce(), False
        if model.n_columns <= 2:
            return GraphCut(nonsubmodular="qpbo"), False
        if self.bounded:
            return TRWS(max_iter=self.max_iter, tol=self.tol), True
        if _rewards_equal_states(model):
            return AlphaExpansion(max_iter=self.max_iter), True
        return LoopyBP(max_iter=self.max_iter, tol=self.tol, damping=self.damping), True


def _rewards_equal_states(model):
    """Whether every edge is a Potts term that prefers equal states: then alpha-expansion applies."""
    if model.n_columns == 1 or not model.is_potts:
        return False
    gain = (model.tables[:, :, 0, 0] - model.tables[:, :, 0, 1])[model.edge_type]
    weighted = gain if model.edge_weight is None else gain * model.edge_weight
    return bool(np.all(weighted.sum(axis=1) >= 0))
