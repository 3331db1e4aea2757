"""Base class of subgradient methods for the dual of the linear relaxation."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import checkpoint
from sklearn_crf.inference import _relaxed_problem
from sklearn_crf.inference._base import FACTOR, FINITE, Inference
from sklearn_crf.inference._proofs import Proof
from sklearn_crf.inference._results import Infeasible, score_labeling
from sklearn_crf.inference.relaxations._best_labels import BestLabels


class AnnealedSteps:
    """Step sizes that shrink slowly while the bound decreases, faster otherwise, and finally like ``least / k``.

    The sum of all steps is therefore infinite, which makes the bound converge to its minimum (Nedic and Bertsekas
    2001). The steps larger than ``least`` make the bound decrease fast.
    """

    def __init__(self, start: float, least: float, decay: float, backoff: float) -> None:
        self.step, self.least, self.decay, self.backoff = start, least, decay, backoff
        self.n_harmonic = int(start <= least)

    def advance(self, fell: bool) -> None:
        """Compute the next step, given whether the last step lowered the bound."""
        if self.n_harmonic:
            self.n_harmonic += 1
            self.step = self.least / self.n_harmonic
            return
        self.step *= self.decay if fell else self.backoff
        if self.step <= self.least:
            self.step, self.n_harmonic = self.least, 1


class Run(ABC):
    """Current dual variables, the bound that they give, and the best labels."""

    # model: in double precision and arc consistent; spread: standard deviation of its scores
    # present, bound: current value of the dual, and its lowest value so far

    # source: the model whose labels are sought, if this is not ``model`` itself

    def __init__(self, model, climb, init, source=None):
        self.model = _relaxed_problem.enforce_arc_consistency(_relaxed_problem.convert_to_double(model))
        self.spread = _relaxed_problem.compute_score_spread(self.model)
        self.least = _relaxed_problem.compute_least_score(self.model)
        self.best = BestLabels(
            self.model if source is None or source is model else source, climb, None if init is None else init.labels
        )
        self.former_gap = None if init is None else init.gap
        self.present = self.bound = np.inf
        self.proof = Proof(self.model)

    @property
    def gap(self) -> float:
        """Difference between the bound and the best score."""
        return self.bound - self.best.score

    def first_step(self, least: float) -> float:
        """Return the first step relative to a cold start: 1, or at least ``least`` for a warm start.

        A start with some error needs steps of the size of the error. With larger steps, the information in the start
        would be lost.
        """
        if self.former_gap is None or not np.isfinite(self.gap - self.former_gap):
            return 1.0
        return float(np.clip(abs(self.gap - self.former_gap) / self.unit, min(least, 1.0), 1.0))

    @property
    @abstractmethod
    def unit(self) -> float:
        """Maximum change of the bound in an iteration with step 1."""

    @abstractmethod
    def iterate(self, step):
        """Change the dual variables by a relative step, offer candidates, and call :meth:`note`."""

    @abstractmethod
    def state(self):
        """Return the state for a warm start."""

    def note(self, value: float) -> None:
        """Record a new value of the dual."""
        if np.isneginf(value):
            raise Infeasible("model is infeasible: every labeling has a score of -inf.")
        self.present, self.bound = value, min(self.bound, value)
        _relaxed_problem.check_not_below(self.bound, self.least)

    def is_certain(self) -> bool:
        """Return whether the score equals the bound up to rounding errors."""
        return self.proof.meets(self.best.score, self.bound)


@options
class SubgradientMap(Inference):
    """Base class of :class:`IncMP` and :class:`DualDecomposition`, with their common options and loop.

    Parameters
    ----------
    max_iter : int, default=1000
        Maximum number of iterations.
    tol : float, default=1e-5
        Iterations stop when the relative step is at most this.
    decay : float, default=0.995
        Factor for the step after an iteration in which the bound decreased.
    backoff : float, default=0.95
        Factor for the step after any other iteration.
    least_step : float, default=1e-3
        Relative step below which steps are ``least_step / k``.
    climb : bool, default=True
        Whether to improve each candidate by changing one node at a time while the score increases, before comparing its
        score.
    random_state : int, RandomState instance or None, default=0
        Determines the labels of candidates.
    """

    tasks = frozenset({"map"})
    exact_on = "forest"
    _ranges: ClassVar[dict] = {"least_step": FINITE, "decay": FACTOR, "backoff": FACTOR}
    max_iter: int = 1000
    tol: float = 1e-5
    decay: float = 0.995
    backoff: float = 0.95
    least_step: float = 1e-3
    climb: bool = True
    random_state: int | np.random.RandomState | None = 0

    def _minimise(self, model, run):
        """Iterate until steps are small, labels are proven optimal, or ``max_iter`` is reached; return the result."""
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
                f"{steps.step:.2g}: increase max_iter or tol (now {self.tol:g})."
            )
        found = score_labeling(model, run.best.labels, n_iter=n_iter, converged=converged, state=run.state())
        return found._replace(bound=found.score if run.is_certain() else max(run.bound, found.score))
