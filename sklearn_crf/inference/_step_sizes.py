"""Step sizes of subgradient methods."""

import numpy as np


class AnnealedSteps:
    """Steps that shrink by a little while the bound falls and by more where it does not; in the end ``least / k``.

    The sum of all steps is then infinite, so that the bound converges to its minimum (Nedic and Bertsekas 2001), and
    those before ``least`` are what makes it fall fast.

    Parameters
    ----------
    start, least : float
        The first step, and where harmonic ones begin.
    decay, backoff : float
        Factors in (0, 1] after a fall of the bound, and after none.

    Attributes
    ----------
    step : float
        The present one.
    """

    def __init__(self, start, least, decay, backoff):
        self.step, self.least, self.decay, self.backoff = start, least, decay, backoff
        self.n_harmonic = int(start <= least)

    def advance(self, fell):
        """Go on to the next step, ``fell`` telling whether the bound fell by the last one."""
        if self.n_harmonic:
            self.n_harmonic += 1
            self.step = self.least / self.n_harmonic
            return
        self.step *= self.decay if fell else self.backoff
        if self.step <= self.least:
            self.step, self.n_harmonic = self.least, 1


def first_step(change_of_gap, unit, least):
    """Where a warm start begins, relative to the first step of a cold one: between ``least`` and 1.

    A start that is off by some amount needs steps of that amount; larger ones would lose what it knows.

    Parameters
    ----------
    change_of_gap : float
        What the gap has changed by since the former result.
    unit : float
        What the bound can change by in an iteration with a step of 1.
    least : float
    """
    if not np.isfinite(change_of_gap):
        return 1.0
    return float(np.clip(abs(change_of_gap) / unit, min(least, 1.0), 1.0))
