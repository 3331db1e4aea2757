"""What a field trained by margins minimises: the programmes of likelihoods, with a cost in place of the entropy."""

from typing import NamedTuple

from sklearn_crf.estimators._coupling import map_inference
from sklearn_crf.estimators._formulations import resolve_formulation
from sklearn_crf.inference import AD3, TRWS, Inference
from sklearn_crf.objectives import Objective, RelaxedHinge, SoftmaxMargin, StructuredHinge

#: Formulations at a temperature, and what they are called where the entropy has its full weight.
SMOOTHED = {"smoothed": "relaxation", "reparameterization": "reparameterization", "joint": "joint"}

#: What stands for the best cost plus score.
MARGIN_FORMULATIONS = ("max_margin", "lp", "dual", *SMOOTHED)


class MarginFormulation(NamedTuple):
    """A choice of what is minimised, and of the best labelings that go with it at prediction."""

    make_objective: object  # callable(cost, has_cycles) -> Objective
    inference: Inference


def resolve_margin_formulation(formulation, inference, temperature, name, *, max_iter, tol):
    """The objective behind a name, and its best labelings.

    Parameters
    ----------
    formulation : str
        One of ``MARGIN_FORMULATIONS``.
    inference : str or Inference
        A constructor parameter; "auto" is what matches the formulation.
    temperature : float
        Of formulations at one.
    name : str
        Of the estimator, for errors.
    max_iter : int
        Of the inner problem of formulations at a temperature.
    tol : float
        Of that too.

    Returns
    -------
    MarginFormulation

    Raises
    ------
    ValueError
        If the inference finds no best labelings, or no fractional ones where these are needed.
    """
    is_auto = isinstance(inference, str) and inference == "auto"
    if formulation == "max_margin" or not is_auto:
        found = map_inference(inference, name)
    else:
        found = TRWS() if formulation in SMOOTHED else AD3()
    if formulation == "max_margin":
        return MarginFormulation(lambda cost, has_cycles: StructuredHinge(found, cost), found)
    if formulation not in SMOOTHED and not found.has_fractional:
        raise ValueError(
            f"formulation={formulation!r} needs an inference with fractional solutions, AD3() or LinearProgram(), got "
            f"{type(found).__name__}."
        )
    if formulation == "lp":
        return MarginFormulation(lambda cost, has_cycles: RelaxedHinge(found, cost), found)

    # The dual has no temperature: its marginals alone are those of a likelihood.
    def at_temperature(cost, has_cycles) -> Objective:
        likelihood = resolve_formulation(
            SMOOTHED.get(formulation, "relaxation"), "trw", has_cycles, max_iter=max_iter, tol=tol
        ).objective
        return SoftmaxMargin(likelihood, cost, temperature if formulation in SMOOTHED else 1.0)

    return MarginFormulation(at_temperature, found)
