"""Cutting planes for every term of a sum of maxima: the n-slack method, block by block."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize import _iterates
from sklearn_crf.optimize._plane_cache import PlaneCache, affordable_planes


def cutting_plane(
    oracle: _iterates.Oracle,
    sizes: Sequence[int],
    risk: Callable[[np.ndarray], float],
    n: int,
    *,
    lower_bounded: ArrayLike | None = None,
    max_iter: int = 100,
    tol: float = 0.001,
    max_planes: int = 20,
    cache_size: float = 256,
    check_every: int = 10,
    random_state: _iterates.RandomSeed = None,
    callback: _iterates.Callback | None = None,
) -> OptimizeResult:
    r"""Minimize a quadratic penalty plus a sum of maxima of planes, all planes found kept.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + \sum_i \max_y \bigl( o_{iy} + s_{iy}^\top x \bigr)

    Every step asks for the highest plane of each term of one block, adds those above the planes kept, and raises the
    dual over the weights of all planes of the block. Between two epochs of that the kept planes of all blocks are gone
    through without asking for any. The dual never falls, and converges much faster than by :func:`frank_wolfe`, which
    keeps one plane a term, where a high accuracy is wanted or planes are expensive to find.
    """
    # lower_bounded: (n,) of bool; callback: callable
    rng = _iterates.random_state_of(random_state)
    max_planes = min(max_planes, affordable_planes(cache_size, sizes, n))
    state = PlaneCache(sizes, _iterates.checked_bounds(lower_bounded, n), max_planes)
    found = _iterates.Checks(risk, state, tol, callback)
    precision = 0.0
    for epoch in range(1, max_iter + 1):
        slack = 0.0
        for block in rng.permutation(len(sizes)):
            slack += state.add(block, *oracle(block, state.x))
            state.ascend(block, precision, _STEPS * sizes[block])
        promising = _iterates.is_closed(state.dual + slack, state.dual, tol)
        due = promising or epoch % check_every == 0 or epoch == max_iter
        if found.ends(epoch, [state.x], due):
            break
        # What is left in a term should be small next to what new planes of all terms promise.
        precision = 0.1 * slack / max(sum(sizes), 1)
        for _ in range(_PASSES):
            for block in rng.permutation(len(sizes)):
                state.ascend(block, precision, _STEPS * sizes[block])
    return found.result(epoch)


# Passes over the planes kept between two epochs, and steps a term in one visit of its block.
_PASSES = 2
_STEPS = 3
