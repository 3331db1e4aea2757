"""What a field trained by margins minimises: the programmes of likelihoods, with a cost in place of the entropy."""

from functools import partial
from typing import NamedTuple

from sklearn_crf.estimators._coupling import map_inference
from sklearn_crf.estimators._formulations import have_cycles, resolve_formulation
from sklearn_crf.inference import AD3, TRWS, AutoMap, IncMP, Inference
from sklearn_crf.objectives import Objective, RelaxedHinge, SlackRescaledHinge, SoftmaxMargin, StructuredHinge

#: Formulations at a temperature, and what they are called where the entropy has its full weight.
SMOOTHED = {"smoothed": "relaxation", "reparameterization": "reparameterization", "joint": "joint"}

#: What stands for the best cost plus score.
MARGIN_FORMULATIONS = ("max_margin", "lp", "dual", *SMOOTHED)

#: What the cost is in the margin: added to the score, or multiplied by one plus the score.
RESCALINGS = ("margin", "slack")


def is_smoothed(formulation, temperature):
    """Whether training is a smooth problem, at a temperature.

    Parameters
    ----------
    formulation : str
    temperature : float

    Returns
    -------
    bool
    """
    return formulation in SMOOTHED and (temperature > 0 or formulation != "reparameterization")


def is_by_planes(formulation, temperature):
    """Whether the loss is a maximum of planes, for any of the solvers of those.

    Parameters
    ----------
    formulation : str
    temperature : float

    Returns
    -------
    bool
    """
    return formulation != "dual" and not is_smoothed(formulation, temperature)


# Of tree-reweighted max-product for each labeling: more, or smaller steps of the bound, give no better weights.
_ITERATIONS, _STEP_OF_BOUND = 20, 1e-5


class MarginFormulation(NamedTuple):
    """A choice of what is minimised, and of the best labelings that go with it at prediction."""

    make_objective: object  # callable(cost, batches) -> Objective
    inference: Inference


def resolve_margin_formulation(formulation, rescaling, inference, temperature, name, *, max_iter, tol):
    """The objective behind a name, and its best labelings.

    Parameters
    ----------
    formulation : str
        One of ``MARGIN_FORMULATIONS``.
    rescaling : str
        One of ``RESCALINGS``; "slack" is for the formulation "max_margin".
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
    if rescaling == "slack" and formulation != "max_margin":
        raise ValueError(
            f"rescaling='slack' needs formulation='max_margin', got {formulation!r}: a product of cost and score is no "
            "sum over nodes and edges, which is what relaxations have."
        )
    if temperature == 0 and is_smoothed(formulation, temperature):
        raise ValueError(
            f"temperature=0 with formulation={formulation!r} is not smooth: use formulation='lp', or "
            "'reparameterization', which has steps for that."
        )
    is_auto = isinstance(inference, str) and inference == "auto"
    if not is_auto:
        found = map_inference(inference, name)
    elif formulation == "max_margin":
        found = AutoMap(max_iter=_ITERATIONS, tol=_STEP_OF_BOUND, bounded=True)
    elif is_smoothed(formulation, temperature):
        found = TRWS()
    else:
        found = AD3() if formulation != "reparameterization" else IncMP(max_iter=max_iter, tol=tol)
    if formulation == "max_margin":
        make = _slack_rescaled if rescaling == "slack" else lambda found, cost, batches: StructuredHinge(found, cost)
        return MarginFormulation(partial(make, found), found)
    if not is_smoothed(formulation, temperature) and not found.has_fractional:
        raise ValueError(
            f"formulation={formulation!r} needs an inference with fractional solutions, AD3(), IncMP() or "
            f"LinearProgram(), got {type(found).__name__}."
        )
    if is_by_planes(formulation, temperature):
        return MarginFormulation(lambda cost, batches: RelaxedHinge(found, cost), found)

    # The dual has no temperature: its marginals alone are those of a likelihood.
    def at_temperature(cost, batches) -> Objective:
        likelihood = resolve_formulation(
            SMOOTHED.get(formulation, "relaxation"), "trw", have_cycles(batches), max_iter=max_iter, tol=tol
        ).objective
        return SoftmaxMargin(likelihood, cost, temperature if formulation in SMOOTHED else 1.0)

    return MarginFormulation(at_temperature, found)


def _slack_rescaled(inference, cost, batches):
    single_nodes = all(len(batch.members) == batch.example.n_nodes for batch in batches)
    return SlackRescaledHinge(inference, cost, single_nodes)
