"""Base of subgradient methods for the dual of the linear relaxation: options, loop and its end."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import checkpoint
from sklearn_crf.inference import _relaxed_problem
from sklearn_crf.inference._base import FACTOR, NOT_NEGATIVE, Inference
from sklearn_crf.inference._proofs import Proof
from sklearn_crf.inference._results import Infeasible, scored_labeling
from sklearn_crf.inference.relaxations._best_labels import BestLabels


class AnnealedSteps:
    """Steps that shrink by a little while the bound falls and by more where it does not; in the end ``least / k``.

    The sum of all steps is then infinite, so that the bound converges to its minimum (Nedic and Bertsekas 2001), and
    those before ``least`` are what makes it fall fast.
    """

    def __init__(self, start: float, least: float, decay: float, backoff: float) -> None:
        self.step, self.least, self.decay, self.backoff = start, least, decay, backoff
        self.n_harmonic = int(start <= least)

    def advance(self, fell: bool) -> None:
        """Set the next step; ``fell`` says whether the last one lowered the bound."""
        if self.n_harmonic:
            self.n_harmonic += 1
            self.step = self.least / self.n_harmonic
            return
        self.step *= self.decay if fell else self.backoff
        if self.step <= self.least:
            self.step, self.n_harmonic = self.least, 1


def first_step(change_of_gap, unit, least):
    """First step of a warm start, relative to that of a cold one: between ``least`` and 1.

    A start that is off by some amount needs steps of that amount; larger ones would lose what it knows.
    """
    # change_of_gap: what the gap has changed by since the former result
    # unit: what the bound can change by in an iteration with a step of 1
    if not np.isfinite(change_of_gap):
        return 1.0
    return float(np.clip(abs(change_of_gap) / unit, min(least, 1.0), 1.0))


class Run(ABC):
    """Current dual variables, the bound that they give, and labels."""

    # model: in double precision and arc consistent; spread: standard deviation of its scores
    # present, bound: the dual now, and the least of all so far

    def __init__(self, model, climb, init):
        self.model = _relaxed_problem.consistent(_relaxed_problem.in_double_precision(model))
        self.spread = _relaxed_problem.spread_of_scores(self.model)
        self.least = _relaxed_problem.least_score(self.model)
        self.best = BestLabels(self.model, climb, None if init is None else init.labels)
        self.former_gap = None if init is None else init.gap
        self.present = self.bound = np.inf
        self.proof = Proof(self.model)

    @property
    def gap(self) -> float:
        """Difference of the bound and the best score."""
        return self.bound - self.best.score

    @abstractmethod
    def first_step(self, least):
        """The step to begin with, of at least ``least``, relative to what is usual for the method."""

    @abstractmethod
    def iterate(self, step):
        """Change the dual variables by a relative step, offer candidates, and call :meth:`note`."""

    @abstractmethod
    def state(self):
        """For a warm start."""

    def note(self, value: float) -> None:
        """The dual has a new value."""
        if np.isneginf(value):
            raise Infeasible("model is infeasible: every labeling has a score of -inf.")
        self.present, self.bound = value, min(self.bound, value)
        _relaxed_problem.check_not_below(self.bound, self.least)

    def is_certain(self) -> bool:
        """The score meets the bound up to rounding."""
        return self.proof.meets(self.best.score, self.bound)


@options
class SubgradientMap(Inference):
    """Base of :class:`IncMP` and :class:`DualDecomposition`, which have the same options and loop.

    Parameters
    ----------
    max_iter : int, default=1000
        Most iterations.
    tol : float, default=1e-5
        Factor of the step at which it ends.
    decay : float, default=0.995
        Factor of the step after an iteration in which the bound fell.
    backoff : float, default=0.95
        Factor of the step after an iteration in which it did not.
    least_step : float, default=1e-3
        Factor from which on steps are ``least_step / k``.
    climb : bool, default=True
        Change each candidate one node at a time as long as that gains, before looking at its score.
    random_state : int, RandomState instance or None, default=0
        Draws labels of candidates.
    """

    tasks = frozenset({"map"})
    exact_on = "forest"
    _ranges: ClassVar[dict] = {"least_step": NOT_NEGATIVE, "decay": FACTOR, "backoff": FACTOR}
    max_iter: int = 1000
    tol: float = 1e-5
    decay: float = 0.995
    backoff: float = 0.95
    least_step: float = 1e-3
    climb: bool = True
    random_state: int | np.random.RandomState | None = 0

    def _minimised(self, model, run):
        """The result of iterating until steps are small, labels are certain, or ``max_iter`` is reached."""
        steps = AnnealedSteps(run.first_step(self.least_step), self.least_step, self.decay, self.backoff)
        n_iter, converged = 0, False
        while n_iter < self.max_iter and not converged:
            checkpoint()
            before = run.present
            run.iterate(steps.step)
            steps.advance(run.present < before)
            n_iter, converged = n_iter + 1, steps.step <= self.tol or run.is_certain()
        if not converged:
            warn_unconverged(
                f"{type(self).__name__} stopped after max_iter={self.max_iter} iterations with a relative step of "
                f"{steps.step:.2g}: raise max_iter or tol (now {self.tol:g})."
            )
        found = scored_labeling(model, run.best.labels, n_iter=n_iter, converged=converged, state=run.state())
        return found._replace(bound=found.score if run.is_certain() else max(run.bound, found.score))


def relative_first_step(run, unit, least):
    """1, or after a warm start the change of the gap in multiples of ``unit``."""
    return 1.0 if run.former_gap is None else first_step(run.gap - run.former_gap, unit, least)
