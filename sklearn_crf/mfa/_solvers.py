"""Solvers that optimise a criterion from one start: expectation-maximisation, L-BFGS and stochastic gradient descent.

L-BFGS and stochastic gradient descent use the flat vector of all parameters in units of their standard errors, which is
a diagonal scaling by the Fisher information.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._own_methods import ChecksOwnMethods
from sklearn_crf._threads import checkpoint
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.mfa._criteria import compute_value_gradient, sum_noise_groups
from sklearn_crf.mfa._densities import precisions
from sklearn_crf.mfa._em import choose_em_step
from sklearn_crf.mfa._parameters import MixtureParameters
from sklearn_crf.mfa._samples import SampleBlocks
from sklearn_crf.mfa._tuning import N_CLOSED, N_FLAT, N_STALE, SHARE_LEFT
from sklearn_crf.optimize import minimize_lbfgs, minimize_sgd


class Ascent(NamedTuple):
    """Result of a solver: the final parameters, and the loss after each iteration."""

    params: MixtureParameters
    losses: np.ndarray  # -(criterion + log prior) / (total weight), at the start and after each iteration
    converged: bool
    was_stopped: bool = False  # whether a callback ended the iterations


class NegativeCriterion:
    """Loss as a function of the flat vector: -(criterion + log prior) / (total weight)."""

    def __init__(self, samples, data, criterion, prior, packing, n_threads=1):
        self.samples, self.data = samples, data
        self.criterion, self.prior = criterion, prior
        # The loss contains the prior once, so a mini-batch includes a proportional fraction of the log prior.
        self.prior_share = 1.0 / data.total_weight
        self.packing, self.n_threads = packing, n_threads

    def __call__(self, vector, data=None):
        checkpoint()
        data = self.data if data is None else data
        params = self.packing.unpack(vector)
        value, gradient = data.total_of(compute_value_gradient, params, self.criterion, n_threads=self.n_threads)
        flat = self.packing.pack_gradient(params, gradient) / data.total_weight
        share = self.prior_share
        _, _, means, loadings, _ = self.packing.split(flat)
        means -= self.prior.mean_precision * params.means * share
        loadings -= self.prior.loading_precision * params.loadings * share
        return -(value / data.total_weight + self.prior.log_density(params) * share), -flat

    def of_rows(self, rows, vector):
        """Estimate the loss and its gradient from a mini-batch of samples."""
        samples = self.samples
        batch = samples.batch(rows)
        data = SampleBlocks(batch.X, batch.labels, batch.weight, len(self.data.class_weight))
        # Divide by the expected weight of a mini-batch, so that a sample has the same effect in any mini-batch.
        data.total_weight = self.data.total_weight / len(samples.X) * len(rows)
        return self(vector, data)


class ScaledCriterion:
    """Loss as a function of ``z = (x - lowest) / standard error``, with ``z >= 0`` for the log noise."""

    def __init__(self, objective, start, lengths=None):
        # lengths: (size,), scale of each entry of flat vectors; if None, the standard errors at the start are used
        self.objective = objective
        packing = objective.packing
        low, self._high = objective.prior.log_noise_bounds
        self._lowest = np.zeros(packing.size)
        self.lower_bounded = np.zeros(packing.size, dtype=bool)
        packing.split(self._lowest)[4][...] = low
        packing.split(self.lower_bounded)[4][...] = True
        if lengths is None:
            data = objective.data
            lengths = compute_standard_errors(packing, start, data.class_weight / data.total_weight)
        self.lengths = lengths
        self.start = self.coordinates(packing.pack(start))

    @cached_property
    def _at_start(self):
        return self._at(self.start, self.objective)

    @property
    def value(self):
        """Loss at the start."""
        return self._at_start[0]

    def project(self, z):
        return np.where(self.lower_bounded, np.maximum(z, 0.0), z)

    def params(self, z):
        return self.objective.packing.unpack(self.vector(z))

    def __call__(self, z):
        return self._at_start if np.array_equal(z, self.start) else self._at(z, self.objective)

    def of_rows(self, rows, z):
        return self._at(z, lambda vector: self.objective.of_rows(rows, vector))

    def coordinates(self, vector):
        """Return the feasible z that is nearest to a flat vector."""
        return self.project((vector - self._lowest) / self.lengths)

    def vector(self, z):
        """Return the flat vector that corresponds to z."""
        x = self._lowest + z * self.lengths
        log_noise = self.objective.packing.split(x)[4]
        np.minimum(log_noise, self._high, out=log_noise)
        return x

    def _at(self, z, function):
        x = self.vector(z)
        value, gradient = function(x)
        log_noise = self.objective.packing.split(x)[4]
        self.objective.packing.split(gradient)[4][log_noise >= self._high] = 0.0
        return value, gradient * self.lengths


def compute_fisher_information(params, class_share):
    """Return the diagonal of the Fisher information per sample, as if the component of each sample were known.

    For a Gaussian the entry is ``Sigma^-1_jj`` for a mean, ``Sigma^-1_jj (L' Sigma^-1 L)_kk`` for a loading (without
    the term of second order in the inverse), and ``(Psi_jj Sigma^-1_jj)^2 / 2`` for the log noise.
    """
    # class_share: (C,)
    precision = precisions(params)
    share = class_share[:, None] * np.exp(params.log_weights)
    n = share.ravel()[:, None]
    inverse = precision.inverse_noise - np.einsum("sjp,sjp->sj", precision.projections, precision.projections)
    explained = np.einsum("sjp,sjp->sp", precision.projections @ precision.rotations, params.loadings)
    noise = np.exp(params.log_noise)[params.noise_group]
    return replace(
        params,
        log_prior=class_share * (1 - class_share),
        log_weights=share,
        means=n * inverse,
        loadings=n[:, :, None] * inverse[:, :, None] * explained[:, None, :],
        log_noise=sum_noise_groups(0.5 * n * np.square(noise * inverse), params.noise_group),
    )


def compute_standard_errors(packing, params, class_share):
    """Return the standard errors, for one sample, of the entries of the flat vector, clipped to a range."""
    information = packing.pack(compute_fisher_information(params, class_share))
    return 1 / np.sqrt(np.maximum(information, 1e-6 * information.max()))


def ignore_iterations(loss, params):
    """Do nothing and return False; used in place of a callback."""
    return False


def _check_ascent(found, objective, start, **options):
    """Return the result of a solver, after a check that final and initial parameters have equal shapes."""
    if not isinstance(found, Ascent) or not isinstance(found.params, MixtureParameters):
        raise TypeError(f"The solver must return an Ascent with MixtureParameters, got {type(found).__name__}.")
    for name, values in vars(start).items():
        own = np.asarray(getattr(found.params, name), dtype=np.float64)
        if own.shape != values.shape or np.isnan(own).any():
            got = "NaN" if own.shape == values.shape else f"shape {own.shape}"
            raise ValueError(f"{name} of the solver's result must have shape {values.shape} and no NaN, got {got}.")
    return found


class MixtureSolver(ChecksOwnMethods, HoldsOptions):
    """Base class of the solvers."""

    _returns: ClassVar[dict] = {"minimize": _check_ascent}
    _parameter_constraints: ClassVar[dict] = {}

    def minimize(
        self,
        objective: NegativeCriterion,
        start: MixtureParameters,
        *,
        max_iter: int,
        tol: float,
        seed: int = 0,
        on_iteration: Callable = ignore_iterations,
    ) -> Ascent:
        """Minimise a negative criterion from one start.

        Parameters
        ----------
        objective : NegativeCriterion
        start : MixtureParameters
        max_iter : int
            Maximum number of iterations or epochs.
        tol : float
            Tolerance, as documented in each solver.
        seed : int
            Determines the order of the samples, if the solver is stochastic.
        on_iteration : callable
            Called as ``on_iteration(loss, params)`` after each iteration, where ``params`` is a function without
            arguments that returns the parameters. If it returns a true value, the solver stops.

        Returns
        -------
        Ascent
        """
        raise NotImplementedError(type(self).__name__)


@dataclass(eq=False, repr=False)
class EM(MixtureSolver):
    r"""Expectation-maximisation of the joint likelihood, in which no iteration decreases the likelihood.

    .. math::
        \theta_{t+1} = M(\theta_t) = \operatorname{argmax}_\theta \; \sum_i w_i \,
        \mathbb{E}_{P(s, z \mid x_i, c_i, \theta_t)} \log P(x_i, c_i, s, z \mid \theta)

    If components overlap, successive steps shrink by a factor :math:`\lambda` close to 1. With :math:`r = M(\theta) -
    \theta` and :math:`v = M(M(\theta)) - M(\theta) - r`, the extrapolated point is

    .. math::
        \theta + 2 a r + a^2 v, \qquad a = \frac{\lVert r \rVert}{\lVert v \rVert} \approx \frac{1}{1 - \lambda}

    unless the likelihood is lower there. The solver needs ``objective="joint"`` and samples without missing values.
    Iterations end when the estimated gain of all further iterations together is less than ``tol`` per sample. After an
    iteration with the gain :math:`g`, this estimate is about :math:`g \lambda^2 / (1 - \lambda^2)`.

    A faster method is used if there is one component per class, more than 32 features, on average at least as many
    samples per class as features, and no prior on loadings. One pass then collects the scatter matrices :math:`T` of
    the classes. Each iteration begins by computing the most likely loadings for the current noise, in the span of the
    current loadings :math:`L` and of :math:`T \Sigma^{-1} L`.

    Parameters
    ----------
    accelerate : bool, default=True
        Whether to extrapolate.

    References
    ----------
    Zoubin Ghahramani, Geoffrey E. Hinton. The EM Algorithm for Mixtures of Factor Analyzers. Technical report, 1997.

    Michael E. Tipping, Christopher M. Bishop. Probabilistic Principal Component Analysis. Journal of the Royal
    Statistical Society B 61, 1999, :doi:`10.1111/1467-9868.00196` (loadings for given noise).

    Ravi Varadhan, Christophe Roland. Simple and Globally Convergent Methods for Accelerating the Convergence of Any EM
    Algorithm. Scandinavian Journal of Statistics 35, 2008, :doi:`10.1111/j.1467-9469.2007.00585.x` (scheme S3).

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn_crf.mfa import EM, MultiConditionalMFA
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MultiConditionalMFA(1, objective="joint", solver=EM(accelerate=False)).fit(
    ...     X, y
    ... )
    >>> model.converged_
    True
    """

    _parameter_constraints: ClassVar[dict] = {"accelerate": ["boolean"]}

    accelerate: bool = True

    def minimize(
        self,
        objective: Any,
        start: Any,
        *,
        max_iter: int,
        tol: float,
        seed: int = 0,
        on_iteration: Any = ignore_iterations,
    ) -> Ascent:
        # Clip noise at the floor now. If the first step clipped it, the likelihood would decrease in this step.
        current = replace(start, log_noise=np.clip(start.log_noise, *objective.prior.log_noise_bounds))
        steps = _EMSteps(objective, current, max_iter, on_iteration)
        extrapolation = _Extrapolation(objective, current)
        loss, following = steps.take(current)
        n_closed = 0
        # Use the largest of the last shrinkage factors, because factors are too small just after an extrapolation.
        factors: deque = deque(maxlen=5)
        while not steps.are_over:
            previous, current = current, following
            before, (loss, following) = loss, steps.take(current)
            factor = extrapolation.factor(previous, current, following)
            factors.append(factor)
            # Estimate the total gain of all later iterations, if each gain is (1 - 1 / factor) times the previous gain.
            shrinkage = max(1 - 1 / max(factors), 0.0) ** 2
            left = max(before - loss, 0.0) * shrinkage / (1 - shrinkage) if shrinkage < 1 else np.inf
            n_closed = n_closed + 1 if left < tol else 0
            if n_closed == N_CLOSED:
                return Ascent(current, np.array(steps.losses), True)
            if steps.are_over:
                break
            if self.accelerate and factor > 1:
                current, loss, following = extrapolation.take(steps, current, loss, following)
        return Ascent(current, np.array(steps.losses), False, steps.was_stopped)


class _EMSteps:
    """Iterations of expectation-maximisation, with the losses of the accepted iterations."""

    def __init__(self, objective, start, max_iter, on_iteration):
        self._objective, self._on_iteration = objective, on_iteration
        self._step = choose_em_step(start, objective.data, objective.prior, objective.n_threads)
        self._n_left = max_iter + 1  # plus 1, because the first step only computes the loss at the start
        self.was_stopped = False
        self.losses = []

    @property
    def are_over(self):
        return self.was_stopped or self._n_left == 0

    def take(self, params, limit=np.inf):
        """Make one step: return the loss at the given parameters, and the next parameters.

        The loss is recorded unless it exceeds ``limit``.
        """
        checkpoint()
        value, following = self._step(params)
        loss = -value / self._objective.data.total_weight
        self._n_left -= 1
        if loss <= limit or not self.losses:
            self.losses.append(loss)
            if len(self.losses) > 1:
                self.was_stopped = bool(self._on_iteration(loss, lambda: params))
        return loss, following


class _Extrapolation:
    """Extrapolation from the parameters of three successive iterations, in units of the initial standard errors."""

    def __init__(self, objective, start):
        self._objective, self._packing = objective, objective.packing
        data = objective.data
        self._scale = compute_standard_errors(self._packing, start, data.class_weight / data.total_weight)
        self._longest = 4.0

    def factor(self, previous, current, following):
        """Return the extrapolation factor ``a`` for the parameters of three successive iterations."""
        first, second, third = (self._packing.pack(params) / self._scale for params in (previous, current, following))
        self._start, self._step = first, second - first
        self._turn = third - second - self._step
        turn = np.linalg.norm(self._turn)
        return np.linalg.norm(self._step) / turn if turn > 0 else 1.0

    def take(self, steps, current, loss, following):
        """Continue from the extrapolated parameters if their loss is at most ``loss``, otherwise from ``following``."""
        a = min(float(np.linalg.norm(self._step) / np.linalg.norm(self._turn)), self._longest)
        params = self._packing.unpack((self._start + 2 * a * self._step + a * a * self._turn) * self._scale)
        low, high = self._objective.prior.log_noise_bounds
        params = replace(params, log_noise=np.clip(params.log_noise, low, high))
        found, beyond = steps.take(params, limit=loss)
        if found <= loss:
            if a == self._longest:
                self._longest *= 4
            return params, found, beyond
        self._longest = max(self._longest / 4, 2.0)
        if steps.are_over:
            return current, loss, following
        return following, *steps.take(following)


class _ScaledSolver(MixtureSolver):
    """Base of solvers for parameters in units of their standard errors."""

    def minimize(
        self,
        objective: Any,
        start: Any,
        *,
        max_iter: int,
        tol: float,
        seed: int = 0,
        on_iteration: Any = ignore_iterations,
    ) -> Ascent:
        problem = ScaledCriterion(objective, start)
        if not np.isfinite(problem.value):
            return Ascent(start, np.array([problem.value]), False)
        return self._minimize(problem, max_iter, tol, seed, on_iteration)

    def _minimize(self, problem: ScaledCriterion, max_iter: int, tol: float, seed: int, on_iteration: Any) -> Ascent:
        """Minimise a criterion whose value at the start is finite."""
        raise NotImplementedError(type(self).__name__)


@dataclass(eq=False, repr=False)
class ScaledLBFGS(_ScaledSolver):
    """Limited-memory BFGS over all parameters in units of their standard errors, for any criterion.

    The solver stops when no entry of the scaled projected gradient exceeds ``tol``, or when 20 iterations together gain
    less than ``tol`` per sample.

    Parameters
    ----------
    history_size : int, default=20
        Number of previous steps whose changes of the gradient are stored.

    See Also
    --------
    sklearn_crf.optimize.minimize_lbfgs : The optimizer that is used.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn_crf.mfa import ScaledLBFGS, MultiConditionalMFA
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MultiConditionalMFA(
    ...     1, solver=ScaledLBFGS(history_size=10), random_state=0
    ... ).fit(X, y)
    >>> model.set_params(solver__history_size=30).solver
    ScaledLBFGS(history_size=30)
    """

    _parameter_constraints: ClassVar[dict] = {"history_size": [Interval(Integral, 1, None, closed="left")]}

    history_size: int = 20

    def _minimize(self, problem: ScaledCriterion, max_iter: int, tol: float, seed: int, on_iteration: Any) -> Ascent:
        def callback(point: Any) -> bool:
            return on_iteration(point.fun, lambda: problem.params(point.x))

        start_point = problem.start, problem.value
        found, has_ended, was_stopped = _descend(problem, *start_point, max_iter, tol, self.history_size, callback)
        losses = found.loss_curve
        if found.fun < losses[-1]:
            losses = np.append(losses, found.fun)
        return Ascent(problem.params(found.x), losses, has_ended, was_stopped)


def _descend(
    problem: Any, start: np.ndarray, value: float, max_iter: int, tol: float, history_size: int, callback: Callable
) -> tuple[Any, bool, bool]:
    """Run L-BFGS; return the result, whether L-BFGS has converged, and whether the callback stopped it."""
    # value: loss at the start
    # converged: whether the gradient is within the tolerance, or recent iterations gained too little
    # callback: function called after each iteration; if it returns True, the run stops without convergence
    latest: deque = deque([value], maxlen=N_FLAT + 1)
    was_stopped = False

    def is_flat() -> bool:
        return len(latest) > N_FLAT and latest[0] - latest[-1] < tol

    def each(point: Any) -> bool:
        nonlocal was_stopped
        latest.append(point.fun)
        was_stopped = bool(callback(point))
        return was_stopped or is_flat()

    options = {"lower_bounded": problem.lower_bounded, "history_size": history_size}
    found = minimize_lbfgs(problem, start, max_iter=max_iter, tol=tol, callback=each, **options)
    return found, is_flat() or (bool(found.success) and not was_stopped), was_stopped


@dataclass(eq=False, repr=False)
class ScaledSGD(_ScaledSolver):
    r"""Averaged stochastic gradient descent over mini-batches of samples, for any criterion.

    .. math::
        \theta_{t+1} = \theta_t - \eta_t S^2 \tilde g_t

    with the diagonal matrix ``S`` of the standard errors of the parameters for a single sample. Training stops after
    five consecutive epochs that gain less than ``tol``, and returns the best parameters among the ends of all epochs.
    Training has converged if L-BFGS, started from these parameters, stops with a gain below a hundredth of the gain of
    all epochs.

    Parameters
    ----------
    step_size : float, default=0.1
        Initial step size :math:`\eta_0`.
    step_schedule : {"sqrt", "annealed", "constant"}, default="sqrt"
        Step size after ``t`` epochs: :math:`\eta_0 / \sqrt{1 + t}`, :math:`\eta_0 / (1 + t)`, or the constant
        :math:`\eta_0`.
    batch_size : int, default=256
        Number of samples per step.

    See Also
    --------
    sklearn_crf.optimize.minimize_sgd : The optimizer that is used.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn_crf.mfa import ScaledSGD, MultiConditionalMFA
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MultiConditionalMFA(
    ...     1, solver=ScaledSGD(step_size=0.2, batch_size=32), random_state=0
    ... ).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "step_schedule": [StrOptions({"sqrt", "annealed", "constant"})],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
    }

    step_size: float = 0.1
    step_schedule: str = "sqrt"
    batch_size: int = 256

    def _minimize(self, problem: ScaledCriterion, max_iter: int, tol: float, seed: int, on_iteration: Any) -> Ascent:
        losses, best, n_stale, was_stopped = [problem.value], problem.start, 0, False

        def after_epoch(point: Any) -> bool:
            """Compute the loss over all samples, and stop training if the loss no longer decreases."""
            nonlocal best, n_stale, was_stopped
            value, _ = problem(point.x)
            if not np.isfinite(value):  # steps are too long, so further steps would not help
                return True
            least = min(losses)
            n_stale = 0 if value < least - tol else n_stale + 1
            best = point.x if value <= least else best
            losses.append(value)
            was_stopped = bool(on_iteration(value, lambda: problem.params(point.x)))
            return was_stopped or n_stale == N_STALE

        minimize_sgd(
            problem.of_rows,
            problem.start,
            len(problem.objective.samples.X),
            step_size=self.step_size,
            schedule=self.step_schedule,
            n_epochs=max_iter,
            batch_size=self.batch_size,
            random_state=seed,
            project=problem.project,
            callback=after_epoch,
        )
        converged = n_stale == N_STALE
        if converged:
            # Small gains of epochs do not prove convergence: L-BFGS must also gain little from the best parameters.
            least = min(losses)
            floor = least - max(tol, SHARE_LEFT * (losses[0] - least))
            options = max_iter, tol, 20, lambda point: point.fun < floor
            found, has_ended, _ = _descend(problem, best, least, *options)
            converged = has_ended and found.fun >= floor
        return Ascent(problem.params(best), np.array(losses), converged, was_stopped)


SOLVERS = {"em": EM, "lbfgs": ScaledLBFGS, "sgd": ScaledSGD}
