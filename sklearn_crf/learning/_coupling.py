"""Which inference learns and which predicts: the coupling of Kumar et al. 2005, section 3.2."""

from functools import partial
from typing import NamedTuple

from sklearn.base import clone

from sklearn_crf.inference import (
    AD3,
    ICM,
    TRWS,
    AlphaBetaSwap,
    AlphaExpansion,
    AutoMap,
    AutoMarginals,
    BruteForce,
    GibbsSampler,
    GraphCut,
    Inference,
    JunctionTree,
    LoopyBP,
    MeanField,
    TreeInference,
    TRWMessagePassing,
)
from sklearn_crf.objectives import (
    ContrastiveDivergence,
    Likelihood,
    MaximumMarginal,
    Pseudolikelihood,
    SaddlePoint,
)

#: Names of inferences, as in the user guide's page on choosing one: what makes one, and how it predicts.
INFERENCES = {
    "auto": (AutoMarginals, "mpm"),
    "mpm": (AutoMarginals, "mpm"),
    "map": (AutoMap, "map"),
    "icm": (ICM, "map"),
    "tree": (TreeInference, "mpm"),
    "junction_tree": (JunctionTree, "mpm"),
    "bp": (LoopyBP, "mpm"),
    "max_product": (LoopyBP, "map"),
    "mean_field": (MeanField, "mpm"),
    "trw": (TRWMessagePassing, "mpm"),
    "trws": (TRWS, "map"),
    "ad3": (AD3, "map"),
    "gibbs": (GibbsSampler, "mpm"),
    # Training may pass through weights that no minimum cut represents.
    "graph_cut": (partial(GraphCut, nonsubmodular="qpbo"), "map"),
    "alpha_expansion": (partial(AlphaExpansion, nonsubmodular="truncate"), "map"),
    "alpha_beta_swap": (partial(AlphaBetaSwap, nonsubmodular="truncate"), "map"),
    "brute_force": (BruteForce, "mpm"),
}

#: Learning rules by name.
LEARNING = ("auto", "pma", "spa", "mma", "pl", "cd", "likelihood")


class Decoding(NamedTuple):
    """How labels are predicted."""

    inference: Inference
    rule: str  # "map": the best labeling; "mpm": each node's best state under its marginals


def resolve_decoding(inference):
    """The inference of a constructor parameter, cloned, and its rule.

    Parameters
    ----------
    inference : str or Inference

    Returns
    -------
    Decoding
    """
    if isinstance(inference, Inference):
        return Decoding(clone(inference), "mpm" if "marginals" in inference.tasks else "map")
    if inference not in INFERENCES:
        raise ValueError(f"inference must be an Inference or one of {sorted(INFERENCES)}, got {inference!r}.")
    maker, rule = INFERENCES[inference]
    return Decoding(maker(), rule)


def map_inference(inference, name):
    """The inference of a constructor parameter for best labelings alone, cloned.

    Parameters
    ----------
    inference : str or Inference
        ``"auto"`` is :class:`~sklearn_crf.inference.AutoMap`.
    name : str
        Of the estimator, for the error.

    Returns
    -------
    Inference

    Raises
    ------
    ValueError
        If it cannot do ``"map"``.
    """
    found = AutoMap() if isinstance(inference, str) and inference == "auto" else resolve_decoding(inference).inference
    if "map" not in found.tasks or (isinstance(inference, str) and inference == "mpm"):
        raise ValueError(
            f"inference={inference!r} finds no best labelings (MAP), which {name} needs: use 'auto', 'max_product', "
            "'icm' or another that does."
        )
    return found


def resolve_objective(learning, decoding, cd_steps):
    """The learning rule of a constructor parameter, on the inference that predicts where that can serve it.

    Parameters
    ----------
    learning : str
        ``"auto"`` is the rule that matches the decoding: saddle point for MAP, pseudo-marginals for MPM.
    decoding : Decoding
    cd_steps : int
        Gibbs sweeps of contrastive divergence.

    Returns
    -------
    Objective
    """
    if learning == "auto":
        learning = "pma" if decoding.rule == "mpm" else "spa"
    if learning == "pl":
        return Pseudolikelihood()
    if learning == "cd":
        return ContrastiveDivergence(cd_steps)
    if learning == "spa":
        return SaddlePoint(_able("map", decoding.inference, AutoMap))
    inference = _able("marginals", decoding.inference, AutoMarginals)
    if learning == "likelihood":
        return Likelihood(inference if inference.exact_on == "any" else TreeInference())
    return MaximumMarginal(inference) if learning == "mma" else Likelihood(inference)


def _able(task, inference, otherwise):
    return inference if task in inference.tasks else otherwise()


def marginal_inference(decoding):
    """The inference behind ``predict_proba``: the one that predicts if it has marginals.

    Parameters
    ----------
    decoding : Decoding

    Returns
    -------
    Inference
    """
    return _able("marginals", decoding.inference, AutoMarginals)


def sampling_inference(decoding):
    """The inference that draws samples: the one that predicts if it can.

    Parameters
    ----------
    decoding : Decoding

    Returns
    -------
    Inference
    """
    return _able("sample", decoding.inference, AutoMarginals)
