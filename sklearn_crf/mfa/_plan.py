"""Plan for training a mixture, with all parameters resolved."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf.mfa._criteria import JOINT_LIKELIHOOD, Criterion
from sklearn_crf.mfa._parameters import MixtureParameters, ParameterVector, PriorPrecisions, Priors
from sklearn_crf.mfa._solvers import EM, SOLVERS, MixtureSolver
from sklearn_crf.optimize._limits import FitLimits


class Choice(NamedTuple):
    """Parameters that may be "auto", and the temperature of class probabilities."""

    n_components: Any = 1
    noise: Any = "class"
    alpha: Any = 0.1
    temperature: float = 1.0

    @property
    def is_open(self) -> bool:
        """Whether any parameter is "auto"."""
        return any(map(_is_auto, self))

    @property
    def without_auto(self) -> "Choice":
        """Parameters as given, with "auto" replaced by default values."""
        return self.completed(Choice())

    def completed(self, former: "Choice") -> "Choice":
        """Return the given parameters, with the values of ``former`` in place of "auto"."""
        return Choice(
            former.n_components if _is_auto(self.n_components) else self.n_components,
            former.noise if _is_auto(self.noise) else self.noise,
            former.alpha if _is_auto(self.alpha) else self.alpha,
            former.temperature if self.is_open else 1.0,
        )


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


class MixtureFamily(NamedTuple):
    """Family of densities (component count, factor count, noise), with the criterion and the prior."""

    n_components: int
    n_factors: int
    noise: str
    criterion: Criterion
    prior: PriorPrecisions

    def packing(self, n_classes: int, n_features: int) -> ParameterVector:
        """Return the layout of all parameters in a flat vector."""
        return ParameterVector(n_classes, self.n_components, n_features, self.n_factors, self.noise)


def plan_family(
    n_components: int, n_factors: int, noise: str, *, objective: str, alpha: float, priors: Priors | None
) -> tuple[MixtureFamily, float]:
    """Return the family, whose criterion and prior are scaled, and the number by which they were divided."""
    priors = Priors() if priors is None else priors
    priors._validate_params()
    joint = objective == "joint"
    factor = 1.0 if joint else 1.0 + alpha
    criterion = JOINT_LIKELIHOOD if joint else Criterion.multi_conditional(alpha)
    return MixtureFamily(n_components, n_factors, noise, criterion, PriorPrecisions.of(priors, factor)), factor


@dataclass(frozen=True, eq=False, kw_only=True)
class MixturePlan(FitLimits):
    """Plan for training a mixture, with all parameters resolved."""

    family: MixtureFamily
    factor: float  # number by which the criterion was divided
    solver: MixtureSolver | None  # None for single passes of partial_fit
    init: str | dict | MixtureParameters
    seeds: list[int]  # one seed for each restart
    tol: float


def choose_solver(solver: Any, objective: str, has_missing: bool) -> MixtureSolver:
    """Return the solver that the parameter ``solver`` specifies, after a check of the solver's options."""
    joint = objective == "joint"
    if isinstance(solver, str):
        name = ("em" if joint and not has_missing else "lbfgs") if solver == "auto" else solver
        solver = SOLVERS[name]()
    if isinstance(solver, EM) and not joint:
        raise ValueError("solver='em' only maximises the joint likelihood: use objective='joint', or solver='lbfgs'.")
    if isinstance(solver, EM) and has_missing:
        raise ValueError("solver='em' needs complete samples, but X has missing values: use solver='lbfgs' or 'auto'.")
    solver._validate_params()
    return clone(solver)


def count_given_components(init: Any) -> int:
    """Return the number of components in given initial means, or 1 if the means have an invalid shape."""
    try:
        shape = np.shape(np.asarray(init.get("means") if isinstance(init, dict) else init))
    except ValueError:
        return 1
    return shape[1] if len(shape) == 3 and shape[1] else 1


def check_init(init: Any, present: np.ndarray, shape: tuple, noise_shape: tuple) -> str | dict:
    """Return initial values for the classes with samples, as a dict of arrays, or return the name of a strategy."""
    # init: (C, K, d) if it is an array
    if isinstance(init, str):
        return init
    given = dict(init) if isinstance(init, dict) else {"means": init}
    shapes = {
        "means": shape[:3],
        "loadings": shape,
        "noise_variance": noise_shape,
        "weights": shape[:2],
        "class_prior": shape[:1],
    }
    if "means" not in given or not set(given) <= set(shapes):
        raise InvalidParameterError(
            f"init must have the key 'means' and no other keys than {', '.join(shapes)}, got {list(given)}."
        )
    out = {}
    for name, value in given.items():
        try:
            value = np.asarray(value, dtype=float)
        except (TypeError, ValueError) as error:
            raise InvalidParameterError(f"init['{name}'] must be numbers of shape {shapes[name]}.") from error
        if value.shape != shapes[name]:
            raise InvalidParameterError(f"init['{name}'] must have shape {shapes[name]}, got {value.shape}.")
        total = value.sum(axis=-1)
        per_class = not (name == "noise_variance" and len(noise_shape) == 1)
        value = value[present] if per_class else value
        positive = name in ("noise_variance", "weights", "class_prior")
        if not np.isfinite(value).all() or (positive and not (value > 0).all()):
            raise InvalidParameterError(f"init['{name}'] must be finite{' and positive' if positive else ''}.")
        if name in ("weights", "class_prior"):
            if not np.allclose(total, 1, rtol=0, atol=1e-6):
                raise InvalidParameterError(f"init['{name}'] must sum to 1, got sums {total.tolist()}.")
            value = value / value.sum(axis=-1, keepdims=True)
        out[name] = value
    return out
