"""The names of all ways to learn, and the parameter ``learning`` as an object."""

from difflib import get_close_matches
from typing import Any

from sklearn.base import clone
from sklearn.utils._param_validation import HasMethods, InvalidParameterError

from sklearn_crf.inference import Inference, labeling_rule
from sklearn_crf.learning._contrastive_training import ContrastiveTraining
from sklearn_crf.learning._learning import Learning
from sklearn_crf.learning._likelihood import (
    Exact,
    LoopyTraining,
    MaximumLikelihood,
    MeanFieldTraining,
    OwnLearning,
    PiecewiseTraining,
    PseudolikelihoodTraining,
    PseudoMarginalTraining,
    SharedPiecesTraining,
)
from sklearn_crf.learning._margins import (
    DualMargin,
    JointMargin,
    MaxMargin,
    OwnMargin,
    RelaxedMargin,
    ReparameterizedMargin,
    SmoothedMargin,
)
from sklearn_crf.learning._relaxations import (
    DualRelaxation,
    JointRelaxation,
    OptimalEdgeProbabilities,
    Relaxation,
    Reparameterization,
)
from sklearn_crf.learning._steps import ContrastiveDivergenceTraining, MaximumMarginalTraining, SaddlePointTraining
from sklearn_crf.objectives import Objective, StructuredHinge

#: Ways to learn by name, in the order of the user guide.
LEARNINGS: dict[str, type[Learning]] = {
    kind.name: kind
    for kind in (
        MaximumLikelihood,
        Exact,
        PseudoMarginalTraining,
        SaddlePointTraining,
        MaximumMarginalTraining,
        ContrastiveDivergenceTraining,
        Relaxation,
        OptimalEdgeProbabilities,
        Reparameterization,
        JointRelaxation,
        DualRelaxation,
        PiecewiseTraining,
        SharedPiecesTraining,
        PseudolikelihoodTraining,
        LoopyTraining,
        MeanFieldTraining,
        MaxMargin,
        RelaxedMargin,
        SmoothedMargin,
        ReparameterizedMargin,
        JointMargin,
        DualMargin,
        ContrastiveTraining,
    )
}

# Acronyms of the papers that are no name of their own.
_ACRONYMS = {"pl": PseudolikelihoodTraining}

#: What validation takes for ``learning``.
LEARNING_CONSTRAINTS = [str, Learning, HasMethods(["loss_statistics", "coupled"])]


def resolve_learning(learning: str | Learning | Objective, inference: str | Inference) -> Learning:
    """Return a new object of the way to learn that a constructor parameter stands for."""
    # learning: "coupled" matches the inference, saddle point for MAP, pseudo-marginals for MPM
    # inference: what predicts, as the parameter of an estimator
    kind: Any = kind_of_learning(learning, inference)
    if isinstance(kind, type):
        return kind()
    if isinstance(learning, Learning):
        kind = clone(learning)
        kind._validate_params()
    return kind


def kind_of_learning(learning: str | Learning | Objective, inference: str | Inference) -> type[Learning] | Learning:
    """Return the class that a name stands for, or the object itself, for what it declares."""
    if isinstance(learning, Learning):
        return learning
    if isinstance(learning, StructuredHinge):
        return OwnMargin(learning)
    if isinstance(learning, Objective):
        return OwnLearning(learning)
    if learning == "coupled":
        learning = "pma" if labeling_rule(inference) == "mpm" else "spa"
    known = _ACRONYMS | LEARNINGS
    if learning not in known:
        near = get_close_matches(learning.lower(), known, n=3, cutoff=0.5)
        listed = ", ".join([*near, *(name for name in ("coupled", *LEARNINGS) if name not in near)])
        raise InvalidParameterError(
            f"learning must be an object of sklearn_crf.learning or one of {listed}; got {learning!r}."
        )
    return known[learning]
