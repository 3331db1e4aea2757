"""Exponentiated gradient steps, block by block, on the dual of a quadratic penalty plus a sum of smoothed maxima."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize import _iterates
from sklearn_crf.optimize._bundle import bmrm
from sklearn_crf.optimize._tuning import LEAST_RISE

# Factor by which the step size grows after a step that increased the dual value; maximum number of halvings.
_GROWTH, _MOST_HALVINGS = 1.3, 12

# Maximum rounding error of a change of the dual value, relative to the block's term of the dual value.
_ROUNDING = 64 * np.finfo(np.float64).eps

# Initial step size of a block, as a fraction of the full step 1 / T, at positive temperatures T.
_FIRST_SHARE = 0.5

# Maximum change of a parameter in one step. It allows moves between any two vertices (see DualBlock.bounded).
# _SMALLEST only avoids a division by zero.
_LONGEST_MOVE, _SMALLEST = 700.0, np.finfo(np.float64).tiny


def exponentiated_gradient(
    blocks: Sequence,
    fun: _iterates.ValueGradient,
    *,
    temperature: float = 1.0,
    max_iter: int = 100,
    tol: float = 0.0001,
    random_state: _iterates.RandomSeed = None,
    callback: _iterates.Callback | None = None,
) -> OptimizeResult:
    r"""Minimize a quadratic penalty plus a sum of smoothed maxima by exponentiated gradient steps on the dual.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + \sum_i c_i \Bigl( \max_{\tau \in L_i}
            \bigl[ \langle s_i(x), \tau \rangle + T H_i(\tau) \bigr] - \langle s_i(x), \phi_i \rangle \Bigr)

    .. math::
        D(\tau) = \sum_i c_i \bigl[ T H_i(\tau_i) + \langle e_i, \tau_i \rangle \bigr]
            - \tfrac12 \lVert x(\tau) \rVert^2

    with :math:`s_i(x) = B_i x + e_i` and :math:`x(\tau) = \sum_i c_i B_i^\top (\phi_i - \tau_i)`. Here
    :math:`\phi_i` are the statistics of the true labels, and the costs :math:`e_i` of these labels are zero. The
    marginals of a block have unconstrained exponential parameters,
    :math:`\tau_i = \arg\max_\tau \langle \theta_i, \tau \rangle + H_i(\tau)`, which are updated by

    .. math:: \theta_i \leftarrow \theta_i + \eta_i \bigl( s_i(x) - T \theta_i \bigr).

    The step is halved until the dual increases, which can be tested within the block. The point x is updated after each
    step. Each epoch visits every block once, in random order.
    """
    # fun: function that returns the primal value and the gradient; callback: function called after every epoch
    rng = _iterates.make_random_state(random_state)
    state = _DualMarginals(blocks, temperature)
    losses, duals = [], []
    message = _iterates.AT_LIMIT
    for epoch in range(1, max_iter + 1):
        for i in rng.permutation(len(blocks)):
            state.step(i)
        value, gradient = fun(state.x)
        losses.append(value)
        duals.append(state.dual)
        found = {"fun": value, "jac": gradient, "dual": state.dual, "nit": epoch}
        if _iterates.notify_callback(callback, x=state.x.copy(), parameters=state.parameters, **found):
            message = "STOP: by the callback"
            break
        if _iterates.largest(gradient) <= tol:
            message = "CONVERGENCE: gradient within tol"
            break
    return OptimizeResult(
        x=state.x, **found, loss_curve=np.array(losses), dual_curve=np.array(duals), **_iterates.ended(message)
    )


def maximize_dual(blocks: Sequence, fun: Callable, dual_of: Callable, *, max_iter, tol, random_state, callback) -> Any:
    r"""Maximise a dual without temperature by exponentiated gradient steps, and then by cutting planes.

    .. math::
        \max_{\tau_i \in L_i} \; \sum_i c_i \langle e_i, \tau_i \rangle - \tfrac12 \lVert x(\tau) \rVert^2,
        \qquad x(\tau) = \sum_i c_i B_i^\top (\phi_i - \tau_i)

    If the maximum lies on the boundary of the polytope, the steps become ever smaller. When they hardly reduce the
    duality gap, cutting planes of the primal problem reduce it further.
    """
    # fun: as in bmrm, with an upper bound on the value
    # dual_of: function that maps parameters of all blocks to a value below the maximum of the dual
    best, best_dual, is_stopped = OptimizeResult(x=np.zeros(blocks[0].n), fun=np.inf), -np.inf, False
    curves: tuple[list, list] = [], []

    def primal(x):
        (_, value), slope = fun(x)
        return 0.5 * float(x @ x) + value, x + slope

    def is_over(point):
        nonlocal best, best_dual, is_stopped
        best_dual = max(best_dual, point.dual)
        if point.fun < best.fun:
            best = OptimizeResult(x=point.x, fun=point.fun)
        curves[0].append(best.fun)
        curves[1].append(best_dual)
        is_stopped = _iterates.notify_callback(callback, **best, dual=best_dual)
        return is_stopped or _iterates.is_closed(best.fun, best_dual, tol)

    def is_slow(point):
        before, point.dual = best_dual, dual_of(point.parameters)
        return is_over(point) or best_dual - before < LEAST_RISE * (best.fun - best_dual)

    steps = {"temperature": 0.0, "tol": 0.0, "random_state": random_state, "callback": is_slow}
    found = exponentiated_gradient(blocks, primal, max_iter=max_iter, **steps)
    closed, n_left = _iterates.is_closed(best.fun, best_dual, tol), max_iter - found.nit
    if n_left and not (closed or is_stopped):
        found = bmrm(fun, best.x, floor=0.0, max_iter=n_left, tol=tol, callback=is_over)
        closed = _iterates.is_closed(best.fun, best_dual, tol)
    message = "CONVERGENCE: duality gap within tol" if closed and not is_stopped else found.message
    loss_curve, dual_curve = map(np.array, curves)
    own = {"dual": best_dual, "gap": best.fun - best_dual, "nit": len(loss_curve)}
    return OptimizeResult(**best, **own, loss_curve=loss_curve, dual_curve=dual_curve, **_iterates.ended(message))


class _DualMarginals:
    """Parameters of all blocks, the marginals of these parameters, and the point x of these marginals."""

    def __init__(self, blocks, temperature):
        self.blocks, self.temperature = blocks, temperature
        self.parameters = [block.start() for block in blocks]
        found = [block.forward(parameters) for block, parameters in zip(blocks, self.parameters, strict=True)]
        self.marginals = [marginals for marginals, _ in found]
        self.terms = [self._dual_term(block, *at) for block, at in zip(blocks, found, strict=True)]
        self.longest = 1 / temperature if temperature > 0 else np.inf
        self.step_sizes = np.full(len(blocks), _FIRST_SHARE * self.longest if temperature > 0 else 1.0)
        self.x = np.zeros(blocks[0].n)
        for block, marginals in zip(blocks, self.marginals, strict=True):
            self.x[block.touched] += block.weight * block.pullback(block.truth - marginals)

    @property
    def dual(self):
        return sum(self.terms) - 0.5 * float(self.x @ self.x)

    def _dual_term(self, block, marginals, entropy):
        return block.weight * (self.temperature * entropy + float(block.costs @ (marginals - block.truth)))

    def step(self, i):
        """Change the parameters of a block by a step that increases the dual value."""
        block, parameters, marginals = self.blocks[i], self.parameters[i], self.marginals[i]
        direction = block.scores(self.x) - self.temperature * parameters
        size = min(self.step_sizes[i], self.longest, _LONGEST_MOVE / max(_iterates.largest(direction), _SMALLEST))
        for _ in range(_MOST_HALVINGS):
            new = parameters + size * direction
            if self.temperature == 0:
                # At a vertex, all steps go in one direction.
                # Without bounds on parameters, the distance back from a vertex would grow with every epoch.
                new = block.bounded(new)
            there, entropy = block.forward(new)
            term = self._dual_term(block, there, entropy)
            moved = block.weight * block.pullback(marginals - there)
            square = float(moved @ moved)
            rise = term - self.terms[i] - float(moved @ self.x[block.touched]) - 0.5 * square
            # Near the optimum, rounding errors hide ``rise``, the increase of the dual value.
            # ``slope`` is the derivative of the dual along the step, at the new point. The dual is concave.
            # If ``slope`` is positive, the dual value therefore has not decreased.
            # At a vertex, which is only reached at temperature 0, ``rise`` and ``slope`` consist of rounding errors.
            slope = block.weight * (1 - self.temperature * size) * float(direction @ (there - marginals)) - square
            rounding = _ROUNDING * (abs(term) + 1.0)
            if rise > rounding or slope >= 0 or (self.temperature == 0 and min(rise, slope) >= -rounding):
                self.parameters[i], self.marginals[i], self.terms[i] = new, there, term
                self.x[block.touched] += moved
                self.step_sizes[i] = _GROWTH * size
                return
            size /= 2
