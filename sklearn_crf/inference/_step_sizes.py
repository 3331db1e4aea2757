"""Step sizes of subgradient methods."""

import numpy as np


class AnnealedSteps:
    """Steps that shrink by a little while the bound falls and by more where it does not; in the end ``least / k``.

    The sum of all steps is then infinite, so that the bound converges to its minimum (Nedic and Bertsekas 2001), and
    the sum up to where they reach ``least`` is what makes it fall fast.

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
        """The next step, ``fell`` telling whether the bound fell by the last one."""
        if self.n_harmonic:
            self.n_harmonic += 1
            self.step = self.least / self.n_harmonic
            return
        self.step *= self.decay if fell else self.backoff
        if self.step <= self.least:
            self.step, self.n_harmonic = self.least, 1


def first_step(spread, least, gap, former_gap, n_parts):
    """The spread of the scores, or after a warm start what the change of the gap since then asks for.

    A step of a moves the bound by about a for each part of the decomposition. A warm start that is off by some amount
    needs steps of that amount, divided by the number of parts, and larger ones would lose what it knows.
    """
    if former_gap is None or not np.isfinite(gap - former_gap):
        return spread
    return float(np.clip(abs(gap - former_gap) / max(n_parts, 1), min(least, spread), spread))
