"""Training of dense fields: learning of weights and bandwidths, with derivatives through mean-field updates."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._own_methods import errors_of
from sklearn_crf._reports import open_progress_reporter
from sklearn_crf._threads import keep_tasks_in_process, limit_blas_threads, map_tasks
from sklearn_crf.dense._gaussian_kernels import GaussianKernel, build_filters, compute_bandwidth_slopes
from sklearn_crf.dense._losses import LogLoss
from sklearn_crf.dense._tuning import (
    ITERATIONS_PER_CHOICE,
    LARGEST_SCORES,
    ROWS_OF_UNIT,
    SMALLEST_SCORES,
    START_FACTORS,
)
from sklearn_crf.inference import DenseMeanField
from sklearn_crf.inference._results import as_finite
from sklearn_crf.inference.local._dense_mean_field import DenseField
from sklearn_crf.kernels.dense.fields import pull_back_fields
from sklearn_crf.models import DenseModel, pad_rows
from sklearn_crf.optimize import SHARE_LEFT, minimize_lbfgs
from sklearn_crf.optimize._limits import FitLimits


class Gradient(NamedTuple):
    """Derivative of a loss with respect to the parameters of a dense model."""

    unary: np.ndarray  # (N, K), derivative with respect to the unary scores
    tables: np.ndarray  # (M, K, K), with independent entries; only the diagonal if all other entries are zero
    columns: list  # for each kernel, (d,), derivative with respect to the logarithms of the scales of feature columns


class _ScaleSlopes:
    r"""Derivative of :math:`h' \hat K q` with respect to the logarithms of the scales of feature columns.

    The derivative of the Gaussian kernel with respect to the logarithm of the scale :math:`\theta_a` is
    :math:`k(i, j) (f_{ia} - f_{ja})^2`, which is applied by filtering on the lattice. The lattice approximation itself
    is not differentiated, because it is not smooth.
    """

    def __init__(self, smooth, features, n_threads):
        self._smooth, self._n_threads = smooth, n_threads
        # Features are centred to lose fewer digits. This has no other effect, as only feature differences matter.
        self._features = features - features.mean(axis=0)
        squares = self._features**2
        # Barycentric weights sum to 1, so row i of the filter's weights sums to the normalisation factor n_i.
        norm = smooth.weight.sum(axis=1, keepdims=True)
        own, first, second = (self._filter(values / norm) for values in (1, self._features, squares))
        # Derivative of the logarithm of n_i^-2, which is the sum of row i of the kernel.
        by_sums = norm * (squares * own - 2 * self._features * first + second)
        self._moments = (squares - by_sums / 2).astype(np.float64)

    def of(self, left, right, adjoint):
        """Return the derivative for each feature column, (d,), given h and q as arrays (N, K).

        ``adjoint`` is the transposed filter applied to ``left``.
        """
        pairs = _row_products(left, self._filter(right)) + _row_products(adjoint, right)
        found = pairs @ self._moments
        for a, column in enumerate(self._features.T):
            found[a] -= 2 * (column @ _row_products(left, self._filter(column[:, np.newaxis] * right)))
        return found

    def _filter(self, values):
        return self._smooth.apply(values, n_threads=self._n_threads)


def _row_products(a, b):
    return np.einsum("ik,ik->i", a, b, dtype=np.float64)


class UnrolledUpdates:
    r"""Mean-field updates of a model, which store the marginals after each update for derivatives through all updates.

    The logits are :math:`s_t = u + \sum_m \hat K_m q_{t-1} \mu_m`. Let g be the derivative with respect to :math:`s_t`.
    Then the derivative with respect to :math:`\mu_m` is :math:`q_{t-1}' (\hat K_m' g)`, and the derivative with respect
    to :math:`q_{t-1}` is :math:`\sum_m (\hat K_m' g) \mu_m'`. Computing them requires one adjoint filtering per kernel
    and update.
    """

    # inference: mean field without damping

    def __init__(self, model, inference, n_threads=1):
        self._model, self._n_threads, self._field = model, n_threads, DenseField(model)
        self._marginals, self._n_updates, _ = self._field.updated(inference, keeps_all=True, n_threads=n_threads)

    @property
    def last(self):
        """Marginals after the last update, (N, K)."""
        return self._field.states_of(self._marginals[self._n_updates])

    def pull_back(self, slope, features=None):
        """Convert the derivative with respect to the last logits, (N, K), to derivatives with respect to parameters."""
        # features: array (N, d) for each filter, or None
        # Derivatives with respect to the scales of features are only computed if ``features`` are given.
        field, model = self._field, self._model
        slope = pad_rows(slope, field.unary.dtype)
        by_unary = slope.copy()
        by_tables = np.zeros((1, len(model.filters), field.width, field.width))
        kept = np.empty((0, 0, 0) if features is None else self._marginals.shape, slope.dtype)
        pull_back_fields(
            field.lattices, field.ptr, field.factors, field.tables, self._marginals, np.array([self._n_updates]), slope,
            by_unary, by_tables, kept, self._n_threads,
        )  # fmt: skip
        states, columns = slice(field.n_states), []
        for smooth, own, table in zip(model.filters, features or (), model.tables, strict=False):
            scales, total = _ScaleSlopes(smooth, own, self._n_threads), np.zeros(own.shape[1])
            for q, by_logits in zip(self._marginals, kept[: self._n_updates], strict=False):
                left = field.states_of(by_logits) @ table.T.astype(slope.dtype)
                adjoint = smooth.apply(left, adjoint=True, n_threads=self._n_threads)
                total += scales.of(left, field.states_of(q), adjoint)
            columns.append(total)
        return Gradient(field.states_of(by_unary), by_tables[0, :, states, states], columns)


class Weights(NamedTuple):
    """Weights of a dense field."""

    compatibility: np.ndarray  # (M,), (M, K) or (M, K, K), weights of the M kernels
    unary_scale: float = 1.0  # number by which given scores are multiplied; 1 if unary scores are linear in features
    coef: np.ndarray | None = None  # (K, F), weights of features, or None
    intercept: np.ndarray | None = None  # (K,), intercepts, or None

    def unary(self, rows):
        """Return the unary scores, given the scores or features of an example."""
        if self.coef is None:
            factor = rows.dtype.type(self.unary_scale)
            # Scores of -inf must remain -inf. A factor that is not positive would allow forbidden states.
            return rows * factor if factor > 0 else np.multiply(rows, factor, where=np.isfinite(rows), out=rows.copy())
        return rows @ self.coef.T.astype(rows.dtype) + np.asarray(self.intercept, rows.dtype)


class Layout:
    """Conversion of the weights of a field to a flat vector, and back."""

    # n_features: number of features of linear unary scores; None if unary scores are given
    # unit: number by which given scores are divided, so that their scale is about 1 in any unit

    def __init__(self, n_kernels, n_classes, compatibility, n_features=None, unit=1.0):
        self.n_kernels, self.n_classes, self.n_features, self._unit = n_kernels, n_classes, n_features, unit
        self.compatibility = compatibility
        self._upper = np.triu_indices(n_classes)
        equal = {"potts": [True], "diagonal": [True] * n_classes, "full": self._upper[0] == self._upper[1]}
        self._joins_equal_states = np.array(equal[compatibility], dtype=np.float64)
        self.n_pairwise = n_kernels * len(self._joins_equal_states)
        n_unary = 1 if n_features is None else n_classes * (n_features + 1)
        self.n_coef = self.n_pairwise + n_unary

    @property
    def penalised(self):
        """Mask of the penalised weights: all weights except intercepts and the scale of given scores."""
        flags = np.ones(self.n_coef, dtype=bool)
        flags[self.n_coef - (1 if self.n_features is None else self.n_classes) :] = False
        return flags

    def pack(self, weights):
        """Convert weights to a flat vector."""
        compatibility = weights.compatibility
        if self.compatibility == "full":
            compatibility = compatibility[:, *self._upper]
        unary = (
            [[weights.unary_scale * self._unit]] if weights.coef is None else [weights.coef.ravel(), weights.intercept]
        )
        return np.concatenate([compatibility.ravel(), *unary])

    def unpack(self, flat):
        """Return the :class:`Weights` that a flat vector contains."""
        pairwise, unary = np.split(flat, [self.n_pairwise])
        # The vector is copied, so that weights do not change with it.
        pairwise = pairwise.reshape(self.n_kernels, len(self._joins_equal_states)).copy()
        compatibility = pairwise[:, 0].copy() if self.compatibility == "potts" else pairwise
        if self.compatibility == "full":
            tables = np.zeros((self.n_kernels, self.n_classes, self.n_classes))
            tables[:, *self._upper] = pairwise
            compatibility = tables + np.triu(tables, 1).transpose(0, 2, 1)
        if self.n_features is None:
            return Weights(compatibility, float(unary[0]) / self._unit)
        coef, intercept = np.split(unary, [self.n_classes * self.n_features])
        return Weights(compatibility, 1.0, coef.reshape(self.n_classes, -1).copy(), intercept.copy())

    def start(self, kernels):
        """Return initial weights: for pairs of equal states the weight of the kernel, for other pairs 0."""
        weight = np.array([float(kernel.weight) for kernel in kernels])
        pairwise = np.multiply.outer(weight, self._joins_equal_states)
        unary = np.ones(1) if self.n_features is None else np.zeros(self.n_coef - self.n_pairwise)
        return self.unpack(np.concatenate([pairwise.ravel(), unary]))

    def gradient(self, by_tables, by_unary, rows):
        """Convert the gradients of the tables and unary scores of one example to the gradient of the flat vector."""
        pairwise = np.diagonal(by_tables, axis1=1, axis2=2)
        if self.compatibility == "potts":
            pairwise = pairwise.sum(axis=1)
        elif self.compatibility == "full":
            both = by_tables + by_tables.transpose(0, 2, 1)
            both[:, np.arange(self.n_classes), np.arange(self.n_classes)] /= 2
            pairwise = both[:, *self._upper]
        if self.n_features is None:
            # Scores of -inf have derivative 0. They are left out, because 0 * inf would be NaN.
            moved = np.multiply(by_unary, rows, where=by_unary != 0, out=np.zeros_like(rows))
            unary = [[moved.sum(dtype=np.float64) / self._unit]]
        else:
            unary = [(by_unary.T @ rows).ravel(), by_unary.sum(axis=0, dtype=np.float64)]
        return np.concatenate([np.ravel(pairwise), *unary])


def find_unit_of_scores(tasks):
    """Return the power of two that is closest to a typical range of scores, or 1 if scores are of moderate size."""
    # Rows may lie in files that are larger than memory.
    scores = [task.example.scores.reshape(-1, task.example.scores.shape[-1]) for task in tasks]
    rows = np.concatenate([own[:: 1 + len(tasks) * len(own) // ROWS_OF_UNIT] for own in scores]).astype(np.float64)
    spread = np.max(rows, axis=1) - np.min(rows, axis=1, where=np.isfinite(rows), initial=np.inf)
    spread = spread[(spread > 0) & np.isfinite(spread)]
    typical = float(np.median(spread)) if len(spread) else 1.0
    return 1.0 if SMALLEST_SCORES < typical < LARGEST_SCORES else 2.0 ** round(np.log2(typical))


@dataclass(frozen=True, eq=False, kw_only=True)
class DensePlan(FitLimits):
    """Resolved parameters for training a dense field."""

    kernels: tuple[GaussianKernel, ...]  # kernels with the initial bandwidths
    layout: Layout
    start: Weights
    continues: bool  # whether training continues the last fit, instead of starting from the kernels' weights
    loss: Any  # loss object, or None if weights are not learned
    bandwidths: Any  # BandwidthSearch, BandwidthGradient or a similar object; None for given bandwidths
    inference: DenseMeanField
    C: float
    tol: float
    max_memory: float


class TrainedField(NamedTuple):
    """Weights and kernels of a trained dense field, with the record of their training."""

    weights: Weights
    kernels: list
    trace: list  # kernels tried, with their losses
    course: Any  # result of the optimizer, or None if nothing is learned


def train(data, plan, on_iteration):
    """Choose the bandwidths, then learn the weights."""
    # on_iteration: function called with weights and kernels after each iteration; if it returns True, training stops
    with limit_blas_threads(), keep_tasks_in_process():
        kernels, trace, start = _choose_bandwidths(data.tasks, plan)
        # Lattices are built even for fixed weights, so that errors are raised in fit and not only in predict.
        risk = _risk(data.tasks, plan, kernels)
        if plan.loss is None:
            return TrainedField(plan.start, kernels, trace, None)
        start = start if plan.continues else risk.scale_to_best(start)
        found = _minimize(risk, start, plan, plan.max_iter, lambda weights: on_iteration(weights, kernels))
        return TrainedField(plan.layout.unpack(found.x), kernels, trace, found)


def _choose_bandwidths(tasks, plan):
    """Return the chosen kernels, the list of all kernels tried with their losses, and the initial weights."""
    if plan.bandwidths is None:
        return list(plan.kernels), [], plan.start
    if hasattr(plan.bandwidths, "descend"):
        return _descend_bandwidths(tasks, plan)
    return _search_bandwidths(tasks, plan)


def _search_bandwidths(tasks, plan):
    labelled = [task for task in tasks if task.weight.any()]
    held_out, kept = ([labelled[i] for i in part] for part in plan.bandwidths.split(len(labelled)))
    weights = plan.start

    def evaluate(kernels):
        nonlocal weights
        if plan.loss is not None:
            risk = _risk(kept, plan, kernels)
            weights = _train_briefly(risk, risk.scale_to_best(weights), plan)[0]
        return _risk(held_out, plan, kernels).value(weights)

    return *plan.bandwidths.choose(list(plan.kernels), evaluate), plan.start


def _descend_bandwidths(tasks, plan):
    weights, least = plan.start, np.inf

    def value_grad(kernels):
        nonlocal weights, least
        risk = _risk(tasks, plan, kernels)
        if plan.loss is None:
            return risk.value(plan.start), risk.estimate_bandwidth_slopes(plan.start)
        found, loss = _train_briefly(risk, risk.scale_to_best(weights) if np.isinf(least) else weights, plan)
        if loss < least:
            weights, least = found, loss
        return loss, risk.estimate_bandwidth_slopes(found)

    return *plan.bandwidths.descend(list(plan.kernels), value_grad), weights


def _risk(tasks, plan, kernels):
    blur = choose_blur(plan.inference)
    lattices = Lattices(kernels, tasks, blur=blur, max_memory=plan.max_memory, n_jobs=plan.n_jobs)
    loss = LogLoss() if plan.loss is None else plan.loss
    return UnrolledRisk(tasks, lattices, plan.layout, loss, plan.inference, plan.C, plan.n_jobs)


def choose_blur(inference):
    """Return the option ``blur`` of filters that the updates of an inference require."""
    return "symmetric" if inference.updates == "convergent" else "single"


def _train_briefly(risk, start, plan):
    """Return weights trained for one choice of bandwidths, and their loss."""
    found = _minimize(risk, start, plan, min(plan.max_iter, ITERATIONS_PER_CHOICE))
    return plan.layout.unpack(found.x), float(found.fun)


def _minimize(risk, start, plan, max_iter, on_iteration=None):
    # on_iteration: function called with the weights after each iteration; if it returns True, training stops
    layout = plan.layout
    bounded = np.zeros(layout.n_coef, dtype=bool)
    bounded[: layout.n_pairwise] = plan.inference.updates == "convergent"
    with open_progress_reporter(plan.verbose, max_iter, "lbfgs") as show:

        def callback(found):
            show(lambda: f"loss {found.fun:.6g}")
            return on_iteration is not None and on_iteration(layout.unpack(found.x))

        limits = {"lower_bounded": bounded, "max_iter": max_iter, "tol": plan.tol, "most_left": SHARE_LEFT}
        return minimize_lbfgs(risk.value_grad, layout.pack(start), **limits, callback=callback)


class Lattices:
    """Filters of the training examples, stored up to a memory limit. Other filters are rebuilt when needed."""

    # max_memory: maximum memory of all stored filters together, in bytes

    def __init__(self, kernels, tasks, *, blur, max_memory, n_jobs):
        self.kernels = kernels
        self._options = {"blur": blur, "max_memory": max_memory}
        self._kept, total = {}, 0
        for filters, task in zip(map_tasks(self._build, tasks, n_jobs), tasks, strict=True):
            total += sum(smooth.memory for smooth in filters)
            if total > max_memory:
                break
            self._kept[task.index] = filters

    def _build(self, task, n_threads):
        return build_filters(self.kernels, task.example, f"X[{task.index}]", n_threads=n_threads, **self._options)

    def of(self, task, n_threads):
        """Return the filters of one example."""
        kept = self._kept.get(task.index)
        return self._build(task, n_threads) if kept is None else kept


class UnrolledRisk:
    r"""Regularised loss of the final mean-field marginals, per labelled node.

    .. math::
        f(w) = \frac{1}{C W} \Big(\tfrac12 \lVert w \rVert^2 + C \, R(q^{(T)}(w))\Big)

    W is the sum of the node weights.
    """

    def __init__(self, tasks, lattices, layout, loss, inference, C, n_jobs):
        self.tasks, self.lattices, self.layout = tasks, lattices, layout
        self.loss, self.inference = loss, inference
        self.n_jobs = n_jobs
        self.total_weight = sum(float(task.weight.sum()) for task in tasks)
        self.strength = 1 / (C * self.total_weight)

    def value(self, weights):
        """Return the loss per labelled node, without the penalty."""
        return self._compute_loss_value(self._sum_totals(weights))

    def scale_to_best(self, weights):
        """Return the weights, with the compatibility multiplied by the factor that gives the smallest loss."""
        # The loss is not convex. With far too large weights, all pixels get one label, and the gradient vanishes.
        if weights.coef is not None:
            return weights
        tried = [weights._replace(compatibility=factor * weights.compatibility) for factor in START_FACTORS]
        return tried[int(np.argmin([self.value(each) for each in tried]))]

    def value_grad(self, flat):
        """Return the objective f and its gradient."""
        weights = self.layout.unpack(flat)
        totals = self._sum_totals(weights) if self.loss.needs_totals else None

        def of_task(task, n_threads):
            updates = UnrolledUpdates(self._model(weights, task, n_threads), self.inference, n_threads)
            last = updates.last
            found = updates.pull_back(self._compute_logit_slope(totals, last, task))
            return self._compute_example_totals(last, task), self.layout.gradient(
                found.tables, found.unary, task.example.rows
            )

        found = map_tasks(of_task, self.tasks, self.n_jobs)
        value = self._compute_loss_value(sum(own for own, _ in found))
        gradient = sum(part for _, part in found) / self.total_weight
        penalty = np.where(self.layout.penalised, flat, 0.0) * self.strength
        return value + 0.5 * float(penalty @ flat), gradient + penalty

    def estimate_bandwidth_slopes(self, weights):
        """Estimate the derivative of the objective f with respect to the logarithms of bandwidths, (n_bandwidths,)."""
        totals = self._sum_totals(weights) if self.loss.needs_totals else None
        kernels = self.lattices.kernels

        def of_task(task, n_threads):
            features = [kernel.features(task.example, f"kernels[{m}]") for m, kernel in enumerate(kernels)]
            updates = UnrolledUpdates(self._model(weights, task, n_threads), self.inference, n_threads)
            found = updates.pull_back(self._compute_logit_slope(totals, updates.last, task), features)
            pairs, n_axes = zip(kernels, found.columns, strict=True), len(task.example.shape)
            return np.concatenate([np.zeros(0), *(compute_bandwidth_slopes(*pair, n_axes) for pair in pairs)])

        return sum(map_tasks(of_task, self.tasks, self.n_jobs)) / self.total_weight

    def _compute_logit_slope(self, totals, q, task):
        with errors_of(f"{type(self.loss).__name__}.gradient"):
            slope = self.loss.gradient(totals, q, task.labels, task.weight)
            return as_finite(slope, "the derivative with respect to logits", q.shape, q.dtype)

    def _sum_totals(self, weights):
        def of_task(task, n_threads):
            field = DenseField(self._model(weights, task, n_threads))
            marginals = field.updated(self.inference, n_threads=n_threads)[0][0]
            return self._compute_example_totals(field.states_of(marginals), task)

        return sum(map_tasks(of_task, self.tasks, self.n_jobs))

    def _model(self, weights, task, n_threads):
        return DenseModel(weights.unary(task.example.rows), self.lattices.of(task, n_threads), weights.compatibility)

    def _compute_example_totals(self, q, task):
        found = self.loss.totals(q, task.labels, task.weight)
        with errors_of(f"{type(self.loss).__name__}.totals"):
            return as_finite(found, "sums over nodes", np.shape(found))

    def _compute_loss_value(self, totals):
        """Return the loss per labelled node, given sums over all nodes."""
        value = self.loss.value(totals)
        with errors_of(f"{type(self.loss).__name__}.value"):
            return float(as_finite(value, "the loss", ())) / self.total_weight
