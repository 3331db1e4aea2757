"""Names of all algorithms for parameter ``inference`` of estimators."""

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal, NamedTuple

from sklearn.base import clone
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf.inference._base import Inference
from sklearn_crf.inference.automatic._map import AutoMap
from sklearn_crf.inference.automatic._marginals import AutoMarginals
from sklearn_crf.inference.bounds._edge_entropy import EdgeEntropyBP
from sklearn_crf.inference.bounds._tighten_bound import TightenBound
from sklearn_crf.inference.cuts._alpha_expansion import AlphaBetaSwap, AlphaExpansion, as_label_costs
from sklearn_crf.inference.cuts._graph_cut import GraphCut
from sklearn_crf.inference.exact._brute_force import BruteForce
from sklearn_crf.inference.exact._junction_tree import JunctionTree
from sklearn_crf.inference.exact._linear_program import LinearProgram
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.inference.local._gibbs import GibbsSampler
from sklearn_crf.inference.local._icm import ICM
from sklearn_crf.inference.local._mean_field import MeanField
from sklearn_crf.inference.local._neighborhood_search import LargeNeighborhoodSearch
from sklearn_crf.inference.messages._belief_propagation import LoopyBP, TRWMessagePassing
from sklearn_crf.inference.messages._mplp import MPLP
from sklearn_crf.inference.messages._norm_product import NormProductBP
from sklearn_crf.inference.messages._trws import TRWS
from sklearn_crf.inference.relaxations._ad3 import AD3
from sklearn_crf.inference.relaxations._cluster_tightening import ClusterTightening
from sklearn_crf.inference.relaxations._cycle_relaxation import CycleRelaxation
from sklearn_crf.inference.relaxations._dual_decomposition import DualDecomposition
from sklearn_crf.inference.relaxations._incmp import IncMP


class NamedInference(NamedTuple):
    """Inference algorithm with a decoding rule: the most probable state of each node, or the best labeling."""

    inference: Inference
    rule: Literal["mpm", "map"]


_MAKERS: dict[str, tuple[Callable[[], Inference], Literal["mpm", "map"]]] = {
    # Use a small budget, because predict is usually called with many examples.
    "auto": (partial(AutoMarginals, budget="fast"), "mpm"),
    "mpm": (partial(AutoMarginals, budget="fast"), "mpm"),
    "map": (partial(AutoMap, budget="fast"), "map"),
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
    # Options for non-submodular pairs, which may occur during training.
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
    # A fixed seed makes predictions reproducible.
    "large_neighborhood_search": (partial(LargeNeighborhoodSearch, random_state=0), "map"),
}

#: Names accepted by :func:`resolve_inference`, in the order of the table in the user guide.
NAMES: tuple[str, ...] = tuple(_MAKERS)


def resolve_inference(inference: str | Inference) -> NamedInference:
    """Return the inference and labelling rule for an estimator's parameter ``inference``, a name or an object.

    Parameters
    ----------
    inference : str or Inference
        One of ``sklearn_crf.inference.NAMES``, or an object, which is cloned.

    Returns
    -------
    NamedInference
        A new object (with default options for a name), and its labelling rule. The rule for a name is fixed. For an
        object that computes marginals, the rule is ``"mpm"``, the most probable state of each node; for other objects
        it is ``"map"``, the best labeling.

    Raises
    ------
    ValueError
        If the name is unknown. The message lists the known names, with similar names first.

    Examples
    --------
    >>> from sklearn_crf.inference import resolve_inference
    >>> resolve_inference("viterbi")
    NamedInference(inference=TreeInference(), rule='map')
    """
    rule = choose_labeling_rule(inference)
    return NamedInference(clone(inference) if isinstance(inference, Inference) else _MAKERS[inference][0](), rule)


def choose_labeling_rule(inference: str | Inference) -> Literal["mpm", "map"]:
    """Return the decision rule (MPM or MAP) of a name or an object; raise ValueError for unknown names."""
    if isinstance(inference, Inference):
        if getattr(inference, "label_costs", None) is not None:
            raise ValueError(
                "inference must have label_costs=None, because only sklearn_crf.solve supports label costs."
            )
        return "mpm" if "marginals" in inference.tasks else "map"
    if not isinstance(inference, str) or inference not in _MAKERS:
        near = get_close_matches(str(inference).lower().replace("-", "_"), NAMES, n=3, cutoff=0.5)
        ordered = [*near, *(known for known in NAMES if known not in near)]
        listed = ", ".join(map(repr, ordered))
        # scikit-learn's error for invalid parameters, a subclass of ValueError.
        raise InvalidParameterError(f"inference must be an Inference or one of {listed}; got {inference!r}.")
    return _MAKERS[inference][1]


def choose_able_inference(
    inference: str | Inference, task: str, use: str, automatic: Inference | None = None
) -> Inference:
    """Return a new inference object, given a name or an object; raise ValueError if it does not support a task."""
    # use: name of the estimator or method that needs the task, for errors
    # automatic: inference for "auto"; None for the default choice
    if automatic is not None and isinstance(inference, str) and inference == "auto":
        return automatic
    found = resolve_inference(inference).inference
    if task not in found.tasks:
        able = ", ".join(repr(name) for name, (make, _) in _MAKERS.items() if task in make().tasks)
        sought = "best labelings (MAP)" if task == "map" else task
        raise ValueError(f"inference={inference!r} does not compute {sought}, which {use} needs: use one of {able}.")
    return found


def choose_map_inference(inference: str | Inference, label_costs: Any, n_states: int) -> Inference:
    """Return a new inference for best labelings with given label costs; None means the label costs of ``inference``."""
    if isinstance(inference, AlphaExpansion):
        label_costs = inference.label_costs if label_costs is None else label_costs
        inference = clone(inference).set_params(label_costs=None)
    if not as_label_costs(label_costs, n_states).any():
        return choose_able_inference(inference, "map", "solve()", AutoMap())
    chosen = choose_able_inference(inference, "map", "solve()", AlphaExpansion(nonsubmodular="truncate"))
    if not isinstance(chosen, AlphaExpansion):
        raise ValueError(
            f"label_costs needs AlphaExpansion: use inference='auto' or 'alpha_expansion', got {inference!r}."
        )
    return chosen.set_params(label_costs=label_costs)
