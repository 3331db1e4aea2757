"""Names of inference algorithms, as the estimators take them."""

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from typing import Literal, NamedTuple

from sklearn_crf.inference._automatic import AutoMap, AutoMarginals
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference.bounds._edge_entropy import EdgeEntropyBP
from sklearn_crf.inference.bounds._tighten_bound import TightenBound
from sklearn_crf.inference.cuts._alpha_expansion import AlphaBetaSwap, AlphaExpansion
from sklearn_crf.inference.cuts._graph_cut import GraphCut
from sklearn_crf.inference.exact._brute_force import BruteForce
from sklearn_crf.inference.exact._junction_tree import JunctionTree
from sklearn_crf.inference.exact._linear_program import LinearProgram
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.inference.local._gibbs import GibbsSampler
from sklearn_crf.inference.local._icm import ICM
from sklearn_crf.inference.local._mean_field import MeanField
from sklearn_crf.inference.local._neighborhood_search import LargeNeighborhoodSearch
from sklearn_crf.inference.messages._loopy_bp import LoopyBP
from sklearn_crf.inference.messages._mplp import MPLP
from sklearn_crf.inference.messages._norm_product import NormProductBP
from sklearn_crf.inference.messages._trw import TRWMessagePassing
from sklearn_crf.inference.messages._trws import TRWS
from sklearn_crf.inference.relaxations._ad3 import AD3
from sklearn_crf.inference.relaxations._cluster_tightening import ClusterTightening
from sklearn_crf.inference.relaxations._dual_decomposition import DualDecomposition
from sklearn_crf.inference.relaxations._incmp import IncMP


class NamedInference(NamedTuple):
    """The inference that a name stands for.

    Attributes
    ----------
    inference : Inference
        With its default options.
    rule : {"mpm", "map"}
        How it labels: each node's best state under its marginals, or the best labeling as a whole.
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
    "icm": (ICM, "map"),
    # Predictions repeat.
    "large_neighborhood_search": (partial(LargeNeighborhoodSearch, random_state=0), "map"),
}

#: Names that :func:`by_name` knows, in the order of the table in the user guide.
NAMES: tuple[str, ...] = tuple(_MAKERS)


def by_name(name: str) -> NamedInference:
    """The inference of a name, as the parameter ``inference`` of an estimator takes it.

    Parameters
    ----------
    name : str
        One of ``sklearn_crf.inference.NAMES``.

    Returns
    -------
    NamedInference
        A new object with its default options, and the rule by which it labels.

    Raises
    ------
    ValueError
        If the name is unknown. The message lists the known ones, those that look like it first.

    Examples
    --------
    >>> from sklearn_crf.inference import by_name
    >>> by_name("viterbi")
    NamedInference(inference=TreeInference(), rule='map')
    """
    if name not in _MAKERS:
        near = get_close_matches(str(name).lower().replace("-", "_"), NAMES, n=3, cutoff=0.5)
        ordered = [*near, *(known for known in NAMES if known not in near)]
        listed = ", ".join(map(repr, ordered))
        raise ValueError(f"inference must be an Inference or one of {listed}; got {name!r}.")
    make, rule = _MAKERS[name]
    return NamedInference(make(), rule)
