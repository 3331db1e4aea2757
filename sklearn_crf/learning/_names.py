"""Names of all learning methods, and resolution of the parameter ``learning``."""

from difflib import get_close_matches
from typing import Any

from sklearn.base import clone
from sklearn.utils._param_validation import HasMethods, InvalidParameterError

from sklearn_crf.inference import Inference, choose_labeling_rule
from sklearn_crf.learning import _likelihood, _margins, _relaxations, _reparameterized_margins
from sklearn_crf.learning._contrastive_training import ContrastiveTraining
from sklearn_crf.learning._edge_probabilities import OptimalEdgeProbabilities
from sklearn_crf.learning._learning import Learning
from sklearn_crf.learning._likelihood import TruncatedInference
from sklearn_crf.learning._pseudolikelihood import PseudolikelihoodTraining
from sklearn_crf.learning._steps import ContrastiveDivergenceTraining, MaximumMarginalTraining, SaddlePointTraining
from sklearn_crf.objectives import Objective, StructuredHinge

#: Learning methods by name, in the order of the user guide.
LEARNINGS: dict[str, type[Learning]] = {
    kind.name: kind
    for kind in (
        _likelihood.MaximumLikelihood,
        _likelihood.Exact,
        _likelihood.PseudoMarginalTraining,
        SaddlePointTraining,
        MaximumMarginalTraining,
        ContrastiveDivergenceTraining,
        _relaxations.Relaxation,
        OptimalEdgeProbabilities,
        _relaxations.Reparameterization,
        _relaxations.SpanningTreesTraining,
        _relaxations.JointRelaxation,
        _relaxations.DualRelaxation,
        _likelihood.PiecewiseTraining,
        _likelihood.SharedPiecesTraining,
        PseudolikelihoodTraining,
        _likelihood.LoopyTraining,
        _likelihood.MeanFieldTraining,
        TruncatedInference,
        _margins.MaxMargin,
        _margins.RelaxedMargin,
        _margins.SmoothedMargin,
        _reparameterized_margins.ReparameterizedMargin,
        _reparameterized_margins.JointMargin,
        _margins.DualMargin,
        ContrastiveTraining,
    )
}

# Acronyms from papers that ``learning`` accepts in place of names.
_ACRONYMS = {"pl": PseudolikelihoodTraining}

#: Allowed values of ``learning``.
LEARNING_CONSTRAINTS = [str, Learning, HasMethods(["loss_statistics", "coupled"])]


def resolve_learning(learning: str | Learning | Objective, inference: str | Inference) -> Learning:
    """Return a new object of the learning method that an estimator's parameter stands for."""
    # learning: the estimator's parameter ``learning``
    # inference: the estimator's parameter ``inference``
    # learning="coupled" stands for the saddle point if inference is MAP, and for pseudo-marginals if inference is MPM.
    kind: Any = find_learning_class(learning, inference)
    if isinstance(kind, type):
        return kind()
    if isinstance(learning, Learning):
        kind = clone(learning)
        kind._validate_params()
    return kind


def find_learning_class(learning: str | Learning | Objective, inference: str | Inference) -> type[Learning] | Learning:
    """Return the class of a named learning method, or the given learning method itself.

    A class and its objects have the same class attributes.
    """
    if isinstance(learning, Learning):
        return learning
    if isinstance(learning, StructuredHinge):
        return _margins.OwnMargin(learning)
    if isinstance(learning, Objective):
        return _likelihood.OwnLearning(learning)
    if learning == "coupled":
        learning = "pma" if choose_labeling_rule(inference) == "mpm" else "spa"
    known = _ACRONYMS | LEARNINGS
    if learning not in known:
        near = get_close_matches(learning.lower(), known, n=3, cutoff=0.5)
        listed = ", ".join([*near, *(name for name in ("coupled", *LEARNINGS) if name not in near)])
        raise InvalidParameterError(
            f"learning must be an object of sklearn_crf.learning or one of {listed}; got {learning!r}."
        )
    return known[learning]
