"""Stochastic subgradient steps for a quadratic penalty plus a sum of maxima."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize._iterates import Checks, DualPoint, Oracle, RandomSeed, make_random_state, mask_of_bounds


class _PegasosIterate(DualPoint):
    """Iterate of the Pegasos schedule; after each whole epoch, it is a dual point."""

    dual = 0.0  # largest dual value after an epoch
    n_steps = 0

    def step(self, slope, offset, n_blocks):
        self.n_steps += 1
        share = 1.0 / self.n_steps
        self.offset += share * (n_blocks * offset - self.offset)
        self._place((1.0 - share) * self._free - share * n_blocks * slope)

    def end_epoch(self):
        """Update the best dual value with the dual value at the current point."""
        self.dual = max(self.dual, super().dual)


def subgradient(
    oracle: Oracle,
    sizes: Sequence[int],
    risk: Callable[[np.ndarray], float],
    n: int,
    *,
    lower_bounded: ArrayLike | None = None,
    random_state: RandomSeed = None,
    **limits: Any,
) -> OptimizeResult:
    r"""Minimize a quadratic penalty plus a sum of maxima of planes by stochastic subgradient steps.

    .. math::
        x_t = \Pi \bigl[ (1 - \tfrac1t) \, z_{t-1} - \tfrac1t \, B \sum_{i \in b_t} s_{i \hat y_i} \bigr]

    for B blocks, with the step sizes of Pegasos. Each epoch visits every block once, so after whole epochs, the weights
    of every term's planes sum to one. The iterate is then a dual point, and its value is a lower bound on P.
    Source: Shalev-Shwartz, Singer, Srebro and Cotter 2011 (Pegasos).
    """
    # oracle, sizes, risk, n, lower_bounded, limits: as in ``frank_wolfe``
    rng = make_random_state(random_state)
    state = _PegasosIterate(mask_of_bounds(lower_bounded, n))
    found = Checks(risk, state, **limits)
    mean = np.zeros(n)
    for _ in range(found.max_iter):
        for block in rng.permutation(len(sizes)):
            slopes, offsets = oracle(block, state.x)
            state.step(slopes.sum(axis=0), float(offsets.sum()), len(sizes))
            mean += 2.0 / (state.n_steps + 1.0) * (state.x - mean)
        state.end_epoch()
        if found.ends([mean, state.x]):
            break
    return found.result()
