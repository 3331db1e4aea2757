"""Likelihoods of labelled graphs with cycles, computed from features to gradients in one kernel call."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._threads import count_threads, map_tasks
from sklearn_crf.inference import LoopyBP, TRWMessagePassing
from sklearn_crf.inference._field import Messages
from sklearn_crf.inference.messages._swept_graphs import LinearScores, SweptGraphs, can_sweep_together
from sklearn_crf.inference.messages._with_fallback import MarginalsWithFallback
from sklearn_crf.objectives._risk import EmpiricalRisk, RiskValue, total_of
from sklearn_crf.objectives.likelihood._likelihood import Likelihood, RelaxedLikelihood
from sklearn_crf.potentials import LinearPotentials


def get_message_passing(inference: Any) -> Any:
    """Return the message-passing algorithm of an inference with a fallback, or an inference without fallback itself."""
    return inference.messages if type(inference) is MarginalsWithFallback else inference


def supports_sweeps(potentials: Any, algorithm: Any) -> bool:
    """Return whether the kernel for graphs supports the given potentials and message-passing algorithm."""
    if type(potentials) is not LinearPotentials or potentials.n_node_types > 1 or potentials.forbids:
        return False
    return type(algorithm) in (LoopyBP, TRWMessagePassing) and not algorithm.damping and potentials.n_features > 0


def count_trial_sweeps(algorithm: Any) -> int:
    """Return a quarter of the maximum number of sweeps, to allow damped sweeps afterwards if messages oscillate."""
    return -(-algorithm.max_iter // 4)


class PassOverGraphs:
    """Risk of likelihoods on labelled graphs with dense features, computed by message passing in one kernel call.

    The general implementation processes batches if messages do not converge without damping, if scores range too
    widely, or if the kernel does not support their graphs.
    """

    name = "graphs"
    objectives = (Likelihood, RelaxedLikelihood)

    def __init__(self, risk: EmpiricalRisk) -> None:
        algorithm = get_message_passing(risk.objective.inference)
        is_chosen = [can_sweep_together(batch, algorithm) for batch in risk.batches]
        edges = [risk.edges_of(i) if chosen else None for i, chosen in enumerate(is_chosen)]
        self._graphs = SweptGraphs(risk.batches, edges, algorithm, risk.n_jobs)

    @staticmethod
    def applies(objective: Any, potentials: Any, batches: list) -> bool:
        """Return whether undamped message passing supports at least one batch, which must be labelled and dense."""
        algorithm = get_message_passing(objective.inference)
        return supports_sweeps(potentials, algorithm) and any(can_sweep_together(b, algorithm) for b in batches)

    def value_grad(self, risk: EmpiricalRisk, coef: np.ndarray, members: Any) -> RiskValue:
        """Return the risk of the given batches, or of all batches if ``members`` is None."""
        members = range(len(risk.batches)) if members is None else members
        states = {i: _Start.of(risk, i) for i in members if i in self._graphs.batches}
        chosen = [i for i, start in states.items() if not start.is_damped]
        parts, gradients = [], []
        if chosen:
            algorithm = get_message_passing(risk.objective.inference)
            scores = LinearScores.of(risk.potentials, coef, self._graphs.dtype)
            limits = algorithm.tol, count_trial_sweeps(algorithm), count_threads(risk.n_jobs)
            sums, chosen, settled = self._graphs.excess(chosen, [states[i].messages for i in chosen], scores, *limits)
            part, gradient = _pull_back_sums(risk.potentials, sums)
            parts, gradients = [part], [gradient]
            for i, messages in zip(chosen, settled, strict=True):
                risk.carried[i] = states[i].kept(risk.objective, messages)
        others = [i for i in members if i not in set(chosen)]
        parts += map_tasks(partial(risk.oracle, coef=coef), others, risk.n_jobs)
        for i in states.keys() & set(others) if type(risk.objective) is Likelihood else ():
            # From now on, the general implementation processes batches that did not converge, without a warm start.
            risk.carried[i] = _Start(is_damped=True), None
        return total_of(parts, np.sum(gradients + [part.gradient for part in parts[len(gradients) :]], axis=0))


class _Start(NamedTuple):
    """Initial messages of inference on a batch, which may come from the previous evaluation of the batch."""

    messages: Messages | None = None
    fallback: Any = None  # state of the fallback algorithm
    is_damped: bool = False

    @classmethod
    def of(cls, risk: EmpiricalRisk, i: int) -> "_Start":
        """Return the initial messages that a risk stores for a batch."""
        # A risk stores two states for each batch.
        # The second state belongs to inference given the known labels, which is not needed if all labels are known.
        free = (risk.carried[i] or (None, None))[0]
        return cls(free) if isinstance(free, Messages) else cls(*(free or ()))

    def kept(self, objective: Any, messages: Messages) -> tuple | None:
        """Return the state, built from converged messages, that the risk stores for the next evaluation."""
        if type(objective) is Likelihood:
            return None
        has_fallback = type(objective.inference) is MarginalsWithFallback
        return (_Start(messages, self.fallback) if has_fallback else messages), None


def _pull_back_sums(potentials: LinearPotentials, sums: np.ndarray) -> tuple[RiskValue, np.ndarray]:
    """Convert the sums of the kernel to a RiskValue without gradient, and the gradient with respect to the weights."""
    n_columns = potentials.n_columns
    ends = np.cumsum([2, n_columns, n_columns * potentials.n_features])
    by_intercept, by_features, by_tables = np.split(sums, ends)[1:]
    shape = potentials.n_edge_types, potentials.n_edge_features, potentials.n_classes, potentials.n_classes
    by_edges = potentials.form.adjoint(by_tables.reshape(shape))
    gradient = potentials.pack(by_features, by_intercept if potentials.fit_intercept else [], by_edges)
    return RiskValue(float(sums[0]), None, float(sums[1]), converged=True, n_nonsubmodular=0), gradient
