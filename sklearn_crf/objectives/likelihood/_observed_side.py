"""The log-partition of a relaxation given the known labels, apart from that of all labelings."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sklearn_crf.inference import Inference
from sklearn_crf.models import check_labels, labeling_statistics, score_terms
from sklearn_crf.objectives._base import EmpiricalRisk, Loss, Objective, RiskValue, observed_model
from sklearn_crf.objectives.likelihood._likelihood import RelaxedLikelihood


class ObservedLogPartition(Objective):
    r"""The log-partition of a relaxation given the known labels, by which that of all labelings is lessened.

    .. math:: \tilde A(\theta \mid y_{\mathrm{observed}})

    It is the score of the labels where none is missing, and convex elsewhere.
    """

    needs = frozenset({"marginals"})

    def __init__(self, inference: Inference):
        self.inference = inference

    def loss_statistics(
        self, model: Any, labels: np.ndarray, *, state: Any = None, seed: int = 0, n_threads: int = 1
    ) -> Loss:
        fixed = self.inference.marginals_for_learning(observed_model(model, labels), init=state, n_threads=n_threads)
        return Loss(statistics=fixed.statistics, terms=fixed.log_z_terms, state=fixed.state, converged=fixed.converged)


class FreeLikelihood(RelaxedLikelihood):
    """A relaxed likelihood whose partly labelled models lack the log-partition given the known labels."""

    def loss_statistics(
        self, model: Any, labels: np.ndarray, *, state: Any = None, seed: int = 0, n_threads: int = 1
    ) -> Loss:
        labels = check_labels(model, labels, may_miss=True)
        free = self.inference.marginals_for_learning(model, init=state, n_threads=n_threads)
        return loss_of_bound(model, labels, free)._replace(state=free.state)


def loss_of_bound(model: Any, labels: np.ndarray, free: Any, temperature: float = 1.0) -> Loss:
    """Return the loss of a bound against labels; the bound alone where some of these are missing."""
    # free: Marginals
    statistics, terms = free.statistics, free.log_z_terms
    if np.all(labels >= 0):
        statistics, terms = statistics.minus(labeling_statistics(model, labels)), terms - score_terms(model, labels)
    return Loss(
        statistics=statistics,
        terms=temperature * terms,
        predicted=np.argmax(free.unary, axis=1),
        converged=free.converged,
    )


def observed_risk(risk: EmpiricalRisk, objective: Objective) -> EmpiricalRisk | None:
    """Return the risk of an observed log-partition on the partly labelled batches, or None without any."""
    batches = [batch for batch in risk.batches if np.any(batch.labels < 0)]
    return EmpiricalRisk(objective, risk.potentials, batches, n_jobs=risk.n_jobs, seed=risk.seed) if batches else None


class Tangent:
    """A convex risk replaced by its tangent at some weights, which is nowhere above it."""

    def __init__(self, risk: EmpiricalRisk, coef: np.ndarray):
        self._at, self._found = coef, risk.value_grad(coef)

    def value_grad(self, coef: np.ndarray) -> RiskValue:
        """Return value and gradient of the tangent."""
        slope = self._found.gradient
        return self._found._replace(value=self._found.value + float(slope @ (coef - self._at)), gradient=slope)


class RiskLessObserved(EmpiricalRisk):
    """A risk whose partly labelled batches lack the log-partition given the known labels, less that or its tangent."""

    # observed: None where all nodes are labelled

    def __init__(self, risk: EmpiricalRisk, observed: EmpiricalRisk | Tangent | None = None):
        super().__init__(risk.objective, risk.potentials, risk.batches, n_jobs=risk.n_jobs, seed=risk.seed)
        self._weights, self._observed = risk.potentials, observed

    def value_grad(self, coef: np.ndarray, members: Sequence[int] | None = None) -> RiskValue:
        found = super().value_grad(coef, members)
        if self._observed is None:
            return found
        n_weights = self._weights.n_coef
        fixed = self._observed.value_grad(coef[:n_weights])
        found.gradient[:n_weights] -= fixed.gradient
        return found._replace(value=found.value - fixed.value, converged=found.converged and fixed.converged)
