"""The plan of a fit: all parameters of an estimator, resolved for its training examples."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState

from sklearn_crf.inference import AutoMap, AutoMarginals, Inference, NamedInference, TRWMessagePassing, exact_inference
from sklearn_crf.inference.messages._with_fallback import MarginalsWithFallback
from sklearn_crf.learning._labeler import Labeler
from sklearn_crf.learning._training import compute_penalty_factors
from sklearn_crf.optimize import AdaGradState, adagrad_steps
from sklearn_crf.optimize._limits import FitLimits
from sklearn_crf.potentials import WeightLayout


class Facts(NamedTuple):
    """Properties of the training examples that automatic choices depend on."""

    have_cycles: bool = True  # Whether some example has a cycle
    have_factors: bool = False  # Whether some example has factors besides nodes and edges
    # Whether exact inference is affordable on all examples. This is False, without a check, if no choice depends on it.
    exact_is_affordable: bool = False
    lattice_ndim: int | None = None  # Number of lattice axes of the examples; None for a list of Example
    chosen: str | None = None  # Name of the inference for prediction, if training has chosen one
    have_segments: bool = False  # Whether runs of equal labels have scores

    @property
    def trees(self) -> str:
        """Rule for edge probabilities that suits the layout of the examples."""
        # On lattices, uniform trees have nearly the edge probabilities of chains, but are slow to compute.
        return "auto" if self.lattice_ndim is None else "chains"

    @classmethod
    def joined(cls, parts: "Iterable[Facts]") -> "Facts":
        """Combine the properties of several sets of examples."""
        parts = list(parts)
        return parts[0]._replace(
            have_cycles=any(part.have_cycles for part in parts),
            have_factors=any(part.have_factors for part in parts),
            exact_is_affordable=all(part.exact_is_affordable for part in parts),
            have_segments=any(part.have_segments for part in parts),
        )

    @classmethod
    def of_fitted(cls, field: Any) -> "Facts":
        """Return the facts stored in the fitted attributes of an estimator, or the defaults if it is not fitted."""
        if not hasattr(field, "has_cycles_"):
            return cls()
        return cls(
            field.has_cycles_,
            field.has_factors_,
            field.exact_is_affordable_,
            field.lattice_ndim_,
            field.inference_,
            getattr(field, "duration_coef_", None) is not None,
        )

    @property
    def attributes(self) -> dict[str, bool]:
        """Fitted attributes that store the facts; ``lattice_ndim_`` and ``inference_`` are stored elsewhere."""
        return {
            "has_cycles_": self.have_cycles,
            "has_factors_": self.have_factors,
            "exact_is_affordable_": self.exact_is_affordable,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class FitPlan(FitLimits):
    """All resolved parameters of a fit; :meth:`on` resolves the parameters that depend on the training examples."""

    asked: Any  # Learning method, resolved from the parameters of the estimator
    asked_solver: Any  # The estimator's parameter ``solver``
    inference: str | Inference  # The estimator's parameter ``inference``
    layout: WeightLayout
    C: float
    edge_C: float | None  # Inverse penalty strength for weights of edges and factors; None to use C
    asked_tol: float | str
    rng: RandomState
    seed: int  # Seed of the random numbers for the examples
    keeps_interrupted: bool
    is_associative: bool  # Whether weights of edges must not be negative
    learning: Any  # Learning method chosen for the examples
    solver: Any
    facts: Facts
    n_classes: int
    # Options of one training.
    # ``on_iteration``: function called with every accepted iterate; it returns True to stop.
    # ``outer_gradient``: function that converts a gradient for scaled features to a gradient for the features of X.
    # ``held_out``: HeldOutScores, which choose the iterate by its score on held-out examples.
    on_iteration: Any = None
    outer_gradient: Callable[[np.ndarray], np.ndarray] | None = None
    held_out: Any = None

    @classmethod
    def of(cls, learning: Any, solver: Any, encoded: Any, **parameters: Any) -> "FitPlan":
        """Return a preliminary plan from parameters, before the examples are packed into batches."""
        has_segments = parameters["layout"].segments is not None
        facts = Facts(lattice_ndim=encoded.lattice_ndim, have_segments=has_segments)
        plan = cls(
            asked=learning, asked_solver=solver, learning=learning.on(facts), solver=None, facts=facts, **parameters
        )
        plan = replace(plan, solver=plan.learning.solver(solver, plan, encoded))
        plan.learning.check(plan)
        return plan

    def on(self, facts: Facts, encoded: Any, potentials: Any) -> "FitPlan":
        """Return the final plan for examples packed into batches."""
        plan = replace(self, learning=self.asked.on(facts), facts=facts)
        return replace(plan, solver=plan.learning.solver(self.asked_solver, plan, encoded, potentials))

    @property
    def training_inference(self) -> NamedInference:
        """New inference object for training, with its decoding rule."""
        return self.asked.decoding(self.inference, self.facts, in_training=True)

    @property
    def decoding(self) -> NamedInference:
        """New inference object for prediction, with its decoding rule."""
        return self.asked.decoding(self.inference, self.facts)

    @property
    def inference_name(self) -> str:
        """Name of the inference for prediction, or its class name if the inference was passed as an object."""
        if not isinstance(self.inference, str):
            return type(self.inference).__name__
        if self.inference != "auto":
            return self.inference
        kind = type(self.decoding.inference)
        return _NAMES.get(kind, kind.__name__)

    def labeler(self, chosen: str | None = None) -> Labeler:
        """Return a labeler of the training examples, with the inference that training has chosen if it is given."""
        facts = self.facts if chosen is None else self.facts._replace(chosen=chosen)
        return Labeler(
            self.asked.decoding(self.inference, facts),
            self.n_classes,
            has_distribution=self.asked.has_distribution,
            n_jobs=self.n_jobs,
            fallback=self.asked.fallback(facts),
        )

    @property
    def tol(self) -> float:
        """Tolerance of training."""
        return self.learning.tolerance(self.solver) if isinstance(self.asked_tol, str) else self.asked_tol

    def collect_facts(self, batches: Sequence, potentials: Any) -> Facts:
        """Return the :class:`Facts` of examples that are packed into batches."""
        asks = self.asked.depends_on_width(self.inference)
        return self.facts._replace(
            have_cycles=not all(batch.example.is_forest for batch in batches),
            have_factors=any(batch.example.has_factors for batch in batches),
            exact_is_affordable=asks and exact_is_affordable(batches, potentials),
        )

    def bounded(self, potentials: Any) -> np.ndarray:
        """Return a mask, (n_coef,) bool, of the weights that must not be negative."""
        bounded = np.zeros(potentials.n_coef, dtype=bool)
        if self.is_associative:
            potentials.unpack(bounded).edge_coef[...] = True
        return bounded


# Names of the inferences that "auto" may choose.
_NAMES: dict[type[Inference], str] = {
    AutoMarginals: "mpm",
    AutoMap: "map",
    TRWMessagePassing: "trw",
    MarginalsWithFallback: "trw",
}


def exact_is_affordable(batches: Sequence, potentials: Any) -> bool:
    """Return whether :func:`~sklearn_crf.inference.exact_inference` has an affordable algorithm for every example."""
    zeros = np.zeros(potentials.n_coef)
    for example in (batch.example for batch in batches if not batch.example.is_forest):
        if example.has_factors:
            chosen = exact_inference(potentials.model(zeros, example), budget="step")
        else:
            chosen = exact_inference(example.graph, potentials.n_classes, budget="step")
        if chosen is None:
            return False
    return True


#: Number of examples in one step of online training.
ONLINE_BATCH_SIZE = 8

# Length of the first step along each weight.
_STEP_SIZE = 0.3


def make_online_pass(risk: Any, plan: FitPlan, former: dict | None, start: np.ndarray, n_together: int) -> dict:
    r"""Make one stochastic step for each mini-batch of examples, in random order.

    .. math:: g_t = \frac{1}{N_B} \nabla R_B(w_t) + \frac{1}{C N} \lambda w_t

    with B the mini-batch, :math:`N_B` the number of labelled nodes of as many examples as in B on average, and N the
    number of all labelled nodes so far.
    :math:`g_t` estimates the gradient per node of the objective on all examples seen so far.
    """
    # risk: EmpiricalRisk of the new examples
    # former: result of the previous pass, or None before the first pass
    # start: (n_coef,), weights before the first step
    # n_together: number of batches that one step combines
    # returns dict of arrays and numbers; ``average`` holds the weights for prediction
    # The entries ``x``, ``squares``, ``n_steps``, ``n_nodes`` and ``n_batches`` are the state for the next pass.
    if former is None:
        former = {**AdaGradState.at(start)._asdict(), "n_nodes": 0.0, "n_batches": 0}
    if not (risk.n_labelled and plan.learning.finds_terms(risk.batches)):
        return former
    learning, bounded = plan.learning, plan.bounded(risk.potentials)
    n_nodes, penalty = former["n_nodes"] + risk.n_labelled, np.zeros(len(start))
    if risk.objective.smooth if learning.has_penalty is None else learning.has_penalty:
        penalty = compute_penalty_factors(risk.potentials, plan.C, plan.edge_C) / (plan.C * n_nodes)

    order = plan.rng.permutation(len(risk.batches))
    members = [order[first : first + n_together] for first in range(0, len(order), n_together)]
    # States of earlier versions have no number of batches: assume that their batches were like those of this pass.
    n_batches = former.get("n_batches", former["n_nodes"] * len(order) / risk.n_labelled) + len(order)

    def gradient(members, coef):
        learning.before_step(risk, coef, members)
        n_nodes_of_step = len(members) * n_nodes / n_batches
        return risk.value_grad(coef, members).gradient / n_nodes_of_step + penalty * coef

    def project(coef):
        return np.where(bounded, np.maximum(coef, 0.0), coef)

    state = AdaGradState(*(former[name] for name in AdaGradState._fields))
    projection = project if bounded.any() else None
    found = adagrad_steps(gradient, state, members, step_size=_STEP_SIZE, project=projection)
    return {**found._asdict(), "n_nodes": n_nodes, "n_batches": n_batches}
