"""Training by margins in the dual: the relaxed quadratic programme, whose unknowns are marginals of examples."""

import numpy as np
from scipy.optimize import OptimizeResult

from sklearn_crf.objectives import DualBlock, EmpiricalRisk, RelaxedHinge
from sklearn_crf.optimize import exponentiated_gradient


class _ScaledBlock(DualBlock):
    """A block that sees x of w = scale x, as the solvers of primal problems do."""

    def __init__(self, scale, *arguments):
        self._scale = scale
        super().__init__(*arguments)

    def scores(self, coef):
        return super().scores(self._scale * coef)

    def pullback(self, marginals):
        return super().pullback(marginals) * self._scale[self.touched]


def dual_hinge_risk(risk, inference):
    """The same examples under the relaxed hinge, to which the relaxed quadratic programme is the dual.

    Parameters
    ----------
    risk : EmpiricalRisk
        Of a :class:`~sklearn_crf.objectives.SoftmaxMargin`.
    inference : Inference
        One with fractional solutions.

    Returns
    -------
    EmpiricalRisk
    """
    hinge = RelaxedHinge(inference, risk.objective.cost)
    return EmpiricalRisk(hinge, risk.potentials, risk.batches, n_jobs=risk.n_jobs, seed=risk.seed)


def train_by_marginals(risk, value_grad, options, rng, callback):
    r"""Maximise the relaxed dual by exponentiated gradient, one example after the other.

    .. math::
        \max_{\tau_i \in L_i} \; C \sum_i \omega_i \langle \Delta_i, \tau_i \rangle - \tfrac12 \lVert w(\tau) \rVert^2,
        \qquad w(\tau) = C \sum_i \omega_i B(x_i)^\top (\phi(y_i) - \tau_i)

    Parameters
    ----------
    risk : EmpiricalRisk
        Of a :class:`~sklearn_crf.objectives.SoftmaxMargin` over a relaxed likelihood, whose marginals stay within L.
    value_grad : callable
        Value and gradient of the relaxed hinges without penalty, at x.
    options : MarginOptions
    rng : RandomState
    callback : callable
        Called with ``x``, ``fun`` and ``dual`` of every epoch; True asks to stop.

    Returns
    -------
    scipy.optimize.OptimizeResult
        As block solvers return, each epoch checked.
    """
    weights = [1.0 if batch.weight is None else batch.weight[0] for batch in risk.batches]
    start = np.zeros(len(options.scale))
    blocks = [
        _ScaledBlock(options.scale, risk, i, options.C * weight, start)
        for i, weight in enumerate(weights)
        if weight > 0
    ]
    best, closed = OptimizeResult(x=start, fun=np.inf), False
    curves = [], []

    def primal(x):
        value, slope = value_grad(x)
        return 0.5 * float(x @ x) + value, x + slope

    def visit(point):
        nonlocal best, closed
        if point.fun < best.fun:
            best = OptimizeResult(x=point.x, fun=point.fun)
        curves[0].append(best.fun)
        curves[1].append(point.dual)
        closed = best.fun - point.dual <= options.tol * abs(best.fun)
        return callback(OptimizeResult(x=best.x, fun=best.fun, dual=point.dual)) or closed

    found = exponentiated_gradient(
        blocks, primal, temperature=0.0, max_iter=options.max_iter, tol=0.0, random_state=rng, callback=visit
    )
    dual = max(curves[1])
    return OptimizeResult(
        x=best.x,
        fun=best.fun,
        dual=dual,
        gap=best.fun - dual,
        loss_curve=np.array(curves[0]),
        dual_curve=np.maximum.accumulate(curves[1]),
        nit=found.nit,
        success=found.success,
        message="CONVERGENCE: duality gap within tol" if closed else found.message,
    )
