"""What the optimizers of an estimator see, and what they leave behind."""

from dataclasses import dataclass, field

import numpy as np

# Weights are recorded at every iteration while the whole record stays below this many numbers.
_RECORD_LIMIT = 2_000_000


@dataclass(eq=False)
class Trace:
    """What training has visited, an entry an iteration."""

    loss: list = field(default_factory=list)
    errors: list = field(default_factory=list)
    gradient_norm: list = field(default_factory=list)
    n_nonsubmodular: list = field(default_factory=list)
    coef: list = field(default_factory=list)
    gradient: list = field(default_factory=list)
    inference_converged: bool = True  # at the latest entry
    latest: np.ndarray | None = None

    def summary(self):
        """The latest entry in words, for a progress bar."""
        parts = [f"gradient {self.gradient_norm[-1]:.3g}"]
        if self.loss[-1] is not None:
            parts.insert(0, f"loss {self.loss[-1]:.6g}")
        if self.errors[-1] is not None:
            parts.append(f"errors {self.errors[-1]:g}")
        return ", ".join(parts)

    def arrays(self):
        """Every record as an array; NaN where a rule has no loss or counts no errors."""
        curves = {
            name: np.array([np.nan if item is None else item for item in getattr(self, name)], dtype=np.float64)
            for name in ("loss", "errors", "gradient_norm", "n_nonsubmodular")
        }
        return curves | {"coef": np.array(self.coef), "gradient": np.array(self.gradient)}


class PenalisedRisk:
    r"""The regularised primal objective, and the same per labelled node.

    .. math::
        P(w) = \tfrac{1 - \alpha}2 \lVert w \rVert^2 + \alpha \lVert w \rVert_1 + C \, R(w),
        \qquad f(w) = P(w) / (C N)

    Intercepts are free. Optimizers see f, whose gradients do not grow with the data: ``tol`` then means what it
    means for scikit-learn's LogisticRegression. The trace records P.

    Parameters
    ----------
    risk : EmpiricalRisk
    C : float or None
        Inverse strength of the penalty; None is no penalty (f is then R / N and P is R).
    max_iter : int
        Decides whether weights are recorded in full.
    l1_ratio : float, default=0.0
        Share alpha of the L1 penalty. :meth:`evaluate` leaves it to the optimizer, who is given :attr:`l1`.
    """

    def __init__(self, risk, C, max_iter, l1_ratio=0.0):
        self.risk = risk
        self.C = C
        self.trace = Trace()
        self.n_nodes = max(risk.n_labelled, np.finfo(np.float64).tiny)
        self.l1_ratio = l1_ratio
        self._penalised = risk.potentials.penalised
        self._keeps_coef = risk.potentials.n_coef * max_iter <= _RECORD_LIMIT
        self._last = None

    @property
    def _strength(self):
        return 0.0 if self.C is None else 1.0 / (self.C * self.n_nodes)

    @property
    def l1(self):
        """Weight of the L1 penalty on each weight, in units of f; one number for none."""
        return self.l1_ratio * self._strength * self._penalised if self.l1_ratio else 0.0

    def evaluate(self, coef, members=None):
        """One pass over the examples.

        Parameters
        ----------
        coef : ndarray of shape (n_coef,)
        members : sequence of int, optional
            Batches to visit; their sum stands for all.

        Returns
        -------
        value : float or None
            f without its L1 penalty; None if the rule has no loss.
        gradient : ndarray of shape (n_coef,)
        """
        result = self.risk.value_grad(coef, members)
        share = 1.0 if members is None else self.risk.labelled_share(members)
        n_nodes = self.n_nodes * share
        penalty = np.where(self._penalised, coef, 0.0)
        strength = (1 - self.l1_ratio) * self._strength
        # In place, and kept once: there may be many million weights.
        gradient = result.gradient
        gradient /= n_nodes
        value = None if result.value is None else result.value / n_nodes + 0.5 * strength * (penalty @ penalty)
        penalty *= strength
        gradient += penalty
        self._last = (np.array(coef), value, gradient, result._replace(gradient=None))
        return value, gradient

    def direction(self, coef):
        """Direction of a gradient step: down f, pairwise weights in steps of their own.

        Kumar et al. count every edge from both its ends and hold half of our pairwise weight, which makes their
        pairwise steps four times as long. So are these on sparse graphs; nodes of more than four neighbours share it.
        """
        direction = -self.evaluate(coef)[1]
        self.risk.potentials.unpack(direction).edge_coef[...] *= 4 * min(1.0, 2 / max(self.risk.edges_per_node, 1e-9))
        return direction

    def record(self, coef):
        """Enter an iterate in the trace; free if it is the one evaluated last."""
        if self._last is None or not np.array_equal(self._last[0], coef):
            self.evaluate(coef)
        latest, value, gradient, result = self._last
        scale = self.n_nodes if self.C is None else self.C * self.n_nodes
        if value is not None:
            value += float(np.sum(self.l1 * np.abs(coef)))
        trace = self.trace
        trace.loss.append(None if value is None else value * scale)
        trace.errors.append(result.n_errors)
        trace.gradient_norm.append(float(np.linalg.norm(gradient)))
        trace.n_nonsubmodular.append(result.n_nonsubmodular)
        trace.inference_converged = result.converged
        trace.latest = latest
        if self._keeps_coef:
            trace.coef.append(latest)
            trace.gradient.append(gradient)
