"""Exponentiated gradient on the dual of a quadratic penalty and a sum of smoothed maxima, block after block."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import OptimizeResult

from sklearn_crf.optimize import _iterates

# Growth of steps that raised the dual, and most halvings of one that did not.
_GROWTH, _MOST_HALVINGS = 1.3, 12

# Change of the dual within rounding, relative to the share of a block.
_ROUNDING = 64 * np.finfo(np.float64).eps

# Share of the full step, where there is one, that a block begins with.
_FIRST_SHARE = 0.5

# Longest step of a score: enough to go from one vertex to another (DualBlock.bounded).
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
    r"""Minimize a quadratic penalty and a sum of smoothed maxima by exponentiated gradient steps on its dual.

    .. math::
        P(x) = \tfrac12 \lVert x \rVert^2 + \sum_i c_i \Bigl( \max_{\tau \in L_i}
            \bigl[ \langle s_i(x), \tau \rangle + T H_i(\tau) \bigr] - \langle s_i(x), \phi_i \rangle \Bigr)

    .. math::
        D(\tau) = \sum_i c_i \bigl[ T H_i(\tau_i) + \langle e_i, \tau_i \rangle \bigr]
            - \tfrac12 \lVert x(\tau) \rVert^2

    with :math:`s_i(x) = B_i x + e_i` and :math:`x(\tau) = \sum_i c_i B_i^\top (\phi_i - \tau_i)`, and costs
    :math:`e_i` that are zero for :math:`\phi_i`. The marginals of a block are those of exponential parameters without
    constraints, :math:`\tau_i = \arg\max_\tau \langle \theta_i, \tau \rangle + H_i(\tau)`, which move by

    .. math:: \theta_i \leftarrow \theta_i + \eta_i \bigl( s_i(x) - T \theta_i \bigr).

    The step is halved until the dual rises, which the block alone can tell; x is kept up to date. Blocks come in random
    order, each once an epoch.
    """
    # fun: callable; callback: callable
    rng = _iterates.random_state_of(random_state)
    state = _DualMarginals(blocks, temperature)
    losses, duals = [], []
    message, success = _iterates.AT_LIMIT, False
    for epoch in range(1, max_iter + 1):
        for i in rng.permutation(len(blocks)):
            state.step(i)
        value, gradient = fun(state.x)
        losses.append(value)
        duals.append(state.dual)
        fields = {"fun": value, "jac": gradient, "dual": state.dual, "nit": epoch, "parameters": state.parameters}
        if _iterates.stopped_by(callback, x=state.x.copy(), **fields):
            message, success = "STOP: by the callback", True
            break
        if _iterates.largest(gradient) <= tol:
            message, success = "CONVERGENCE: gradient within tol", True
            break
    return OptimizeResult(
        x=state.x,
        fun=value,
        jac=gradient,
        dual=state.dual,
        nit=epoch,
        success=success,
        message=message,
        loss_curve=np.array(losses),
        dual_curve=np.array(duals),
    )


class _DualMarginals:
    """Parameters of all blocks, their marginals, and the x that belongs to them."""

    def __init__(self, blocks, temperature):
        self.blocks, self.temperature = blocks, temperature
        self.parameters = [block.start() for block in blocks]
        found = [block.forward(parameters) for block, parameters in zip(blocks, self.parameters, strict=True)]
        self.marginals, _ = map(list, zip(*found, strict=True))
        self.gains = [self._gain(block, *at) for block, at in zip(blocks, found, strict=True)]
        self.longest = 1 / temperature if temperature > 0 else np.inf
        self.step_sizes = np.full(len(blocks), _FIRST_SHARE * self.longest if temperature > 0 else 1.0)
        self.x = np.zeros(blocks[0].n)
        for block, marginals in zip(blocks, self.marginals, strict=True):
            self.x[block.touched] += block.weight * block.pullback(block.truth - marginals)

    @property
    def dual(self):
        return sum(self.gains) - 0.5 * float(self.x @ self.x)

    def _gain(self, block, marginals, entropy):
        return block.weight * (self.temperature * entropy + float(block.costs @ marginals))

    def step(self, i):
        """Move the parameters of a block by a step that raises the dual."""
        block, parameters, marginals = self.blocks[i], self.parameters[i], self.marginals[i]
        direction = block.scores(self.x) - self.temperature * parameters
        size = min(self.step_sizes[i], self.longest, _LONGEST_MOVE / max(_iterates.largest(direction), _SMALLEST))
        for _ in range(_MOST_HALVINGS):
            new = parameters + size * direction
            if self.temperature == 0:
                # At a vertex every step goes the same way: without bounds, the way back would grow with every epoch.
                new = block.bounded(new)
            there, entropy = block.forward(new)
            gain = self._gain(block, there, entropy)
            moved = block.weight * block.pullback(marginals - there)
            square = float(moved @ moved)
            rise = gain - self.gains[i] - float(moved @ self.x[block.touched]) - 0.5 * square
            # Near the optimum what a step gains is lost in rounding. But as the dual is concave, it has not fallen if
            # it still rises from the new point on in the same direction. At a vertex both are nothing but rounding, and
            # vertices are only where there is no entropy.
            slope = block.weight * (1 - self.temperature * size) * float(direction @ (there - marginals)) - square
            exact = _ROUNDING * (abs(gain) + 1.0)
            if rise > exact or slope >= 0 or (self.temperature == 0 and min(rise, slope) >= -exact):
                self.parameters[i], self.marginals[i], self.gains[i] = new, there, gain
                self.x[block.touched] += moved
                self.step_sizes[i] = _GROWTH * size
                return
            size /= 2
