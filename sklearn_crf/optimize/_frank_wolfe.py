"""Block-coordinate Frank-Wolfe for a quadratic penalty and a sum of maxima."""

from sklearn_crf.optimize._block_dual import BlockDual
from sklearn_crf.optimize._checks import Checks
from sklearn_crf.optimize._duality import checked_bounds, is_closed
from sklearn_crf.optimize._random import random_state_of


def frank_wolfe(
    oracle,
    sizes,
    risk,
    n,
    *,
    lower_bounded=None,
    max_iter=100,
    tol=1e-3,
    average=True,
    check_every=10,
    random_state=None,
    callback=None,
    dual=None,
):
    r"""Minimize a quadratic penalty plus a sum of maxima of planes, block by block in the dual.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + \sum_i \max_y \bigl( o_{iy} + s_{iy}^\top x \bigr)

    Every step asks for the highest plane of each term of one block and moves the terms' convex combinations of planes
    towards them. The steps of a block are jointly optimal, each term with one of its own, so that the dual value never
    falls however many terms share a block. Blocks come in random order, each once an epoch.

    Parameters
    ----------
    oracle : callable
        ``oracle(block, x)`` returns slopes (m, n) and offsets (m,) of the highest plane of each term of the block.
        Every term must have a plane that is zero everywhere among its own.
    sizes : sequence of int
        Terms of each block.
    risk : callable
        ``risk(x)`` returns the sum of maxima, for the duality gap.
    n : int
        Length of x, which starts at zero.
    lower_bounded : array-like of shape (n,) of bool, optional
        Entries of x that must not be negative.
    max_iter : int, default=100
        Most epochs.
    tol : float, default=1e-3
        Duality gap, of the primal value, at which to stop.
    average : bool, default=True
        Whether the average of the iterates, which weighs late ones more, is a candidate too.
    check_every : int, default=10
        Epochs after which the gap is worked out. It is at other times if the slacks that an epoch met promise it.
    random_state : int, RandomState instance or None, default=None
        Draws the order of the blocks.
    callback : callable, optional
        ``callback(intermediate)`` after each epoch with fields ``x``, ``fun``, the least P of all checks,
        ``dual``, ``nit``. Returning a true value or raising StopIteration stops here.
    dual : object, optional
        What holds the dual variables and makes the steps, with ``x``, ``mean``, ``dual`` and ``pass_over(rng)``, where
        there is a quicker way than to ask the oracle block by block.

    Returns
    -------
    scipy.optimize.OptimizeResult
        ``x``, the best point checked; ``fun``, its P; ``dual``; ``gap``; ``loss_curve`` and ``dual_curve``, the least
        P so far and the dual value at each check; ``checks``, the epochs of these; ``nit``, epochs; ``success``;
        ``message``.

    References
    ----------
    S. Lacoste-Julien, M. Jaggi, M. Schmidt and P. Pletscher. Block-Coordinate Frank-Wolfe Optimization for Structural
    SVMs. ICML 2013.
    """
    rng = random_state_of(random_state)
    state = BlockDual(oracle, sizes, checked_bounds(lower_bounded, n)) if dual is None else dual
    found = Checks(risk, state, tol, callback)
    for epoch in range(1, max_iter + 1):
        slack = state.pass_over(rng)
        # Slacks were met at points of before: they are seldom less than the gap now.
        promising = is_closed(state.dual + slack, state.dual, tol)
        due = promising or epoch % check_every == 0 or epoch == max_iter
        if found.ends(epoch, [state.mean, state.x] if average else [state.x], due):
            break
    return found.result(epoch, max_iter)
