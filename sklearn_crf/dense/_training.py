"""Training of a dense field: learning of weights and bandwidths, with derivatives through mean-field updates."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._own_methods import errors_of
from sklearn_crf._reports import progress_reporter
from sklearn_crf._threads import map_tasks, single_threaded_blas, tasks_stay_here, thread_count
from sklearn_crf.dense._gaussian_kernels import GaussianKernel, build_filters, slopes_by_bandwidths
from sklearn_crf.dense._losses import LogLoss
from sklearn_crf.dense._tuning import ITERATIONS_PER_CHOICE, NUMBERS_AT_ONCE, START_FACTORS
from sklearn_crf.dense._weights import Layout, Weights
from sklearn_crf.inference import DenseMeanField
from sklearn_crf.inference._results import as_finite
from sklearn_crf.inference.local._dense_mean_field import DenseFields
from sklearn_crf.kernels.dense.fields import pull_back_fields
from sklearn_crf.models import DenseModel, padded_rows
from sklearn_crf.optimize import SHARE_LEFT, minimize_lbfgs
from sklearn_crf.optimize._limits import FitLimits


class Gradient(NamedTuple):
    """Derivative of a loss by the parameters of a dense model."""

    unary: np.ndarray  # (N, K)
    tables: np.ndarray  # (M, K, K), entries as independent variables; only the diagonal if other entries are zero
    columns: list  # for each kernel (d,), derivative by the logarithm of the scale of each feature column


class _ScaleSlopes:
    r"""Derivative of :math:`h' \hat K q` by the logarithm of the scale :math:`\theta_a` of each column of features.

    The derivative of the Gaussian kernel, :math:`k(i, j) (f_{ia} - f_{ja})^2`, is applied by filtering on the lattice.
    The lattice approximation itself is not differentiated, since it is not smooth.
    """

    def __init__(self, smooth, features, n_threads):
        self._smooth, self._n_threads = smooth, n_threads
        # Only differences of features matter, and centred features lose fewer digits.
        self._features = features - features.mean(axis=0)
        squares = self._features**2
        # Barycentric weights sum to 1, so each row of the filter's weights sums to its normalisation factor n_i.
        norm = smooth.weight.sum(axis=1, keepdims=True)
        own, first, second = (self._filter(values / norm) for values in (1, self._features, squares))
        # Derivative of the logarithm of n_i^-2, which is the sum of row i of the kernel.
        by_sums = norm * (squares * own - 2 * self._features * first + second)
        self._moments = (squares - by_sums / 2).astype(np.float64)

    def of(self, left, right, adjoint):
        """Return the derivatives (d,). ``adjoint`` is the transposed filter applied to ``left``; all are (N, K)."""
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
    r"""Mean-field updates of several models, with the marginals of all updates, and derivatives through them.

    The logits are :math:`s_t = u + \sum_m \hat K_m q_{t-1} \mu_m`. Let g be the derivative by :math:`s_t`. Then the
    derivative by :math:`\mu_m` is :math:`q_{t-1}' (\hat K_m' g)`, and the derivative by :math:`q_{t-1}` is
    :math:`\sum_m (\hat K_m' g) \mu_m'`. This requires one adjoint filtering per kernel and update.
    """

    # inference: mean field without damping

    def __init__(self, models, inference, n_threads=1):
        self._models, self._n_threads = models, n_threads
        self._fields = DenseFields(models)
        self._marginals, self._n_updates, _ = self._fields.updated(inference, keeps_all=True, n_threads=n_threads)

    @property
    def last(self):
        """Marginals of each model after its last update, (N, K)."""
        bounds = zip(self._n_updates, pairwise(self._fields.ptr), strict=True)
        return [self._fields.states_of(self._marginals[n, start:stop]) for n, (start, stop) in bounds]

    def pull_back(self, slopes, features=None):
        """Return the derivatives by each model, given the derivatives by its last logits, (N, K)."""
        # features: (N, d) for each model and filter, to also compute derivatives by their scales; None otherwise
        fields, n_filters = self._fields, len(self._models[0].filters)
        slope = padded_rows(np.concatenate(slopes), fields.unary.dtype)
        by_unary = slope.copy()
        by_tables = np.zeros((len(self._models), n_filters, fields.width, fields.width))
        kept = np.empty((0, 0, 0) if features is None else (self._marginals.shape), slope.dtype)
        pull_back_fields(
            fields.lattices, fields.ptr, fields.factors, fields.tables, self._marginals, self._n_updates, slope,
            by_unary, by_tables, kept, self._n_threads,
        )  # fmt: skip
        states = slice(fields.n_states)
        found = []
        for i, (start, stop) in enumerate(pairwise(fields.ptr)):
            own = slice(start, stop)
            columns = (
                [] if features is None else self._slopes_of_columns(i, features[i], kept[: self._n_updates[i], own])
            )
            found.append(Gradient(fields.states_of(by_unary[own]), by_tables[i, :, states, states], columns))
        return found

    def _slopes_of_columns(self, i, features, slopes):
        """Return for each filter the derivatives by the logarithm of the scale of each feature column."""
        # slopes: (n_updates, N, width), derivatives by the logits of each update
        model, own = self._models[i], slice(*self._fields.ptr[i : i + 2])
        found = []
        for smooth, columns, table in zip(model.filters, features, model.tables, strict=True):
            scales, total = _ScaleSlopes(smooth, columns, self._n_threads), np.zeros(columns.shape[1])
            for q, slope in zip(self._marginals[:, own], slopes, strict=False):
                left = self._fields.states_of(slope) @ table.T.astype(slope.dtype)
                adjoint = smooth.apply(left, adjoint=True, n_threads=self._n_threads)
                total += scales.of(left, self._fields.states_of(q), adjoint)
            found.append(total)
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class DensePlan(FitLimits):
    """Parameters for training a dense field, all resolved."""

    kernels: tuple[GaussianKernel, ...]  # with the initial bandwidths
    layout: Layout
    start: Weights
    continues: bool  # whether training continues the last fit, instead of starting from the kernels' weights
    loss: Any  # None if weights are not learned
    bandwidths: Any  # BandwidthSearch, BandwidthGradient or a similar object, None for given bandwidths
    inference: DenseMeanField
    C: float
    tol: float
    max_memory: float


class TrainedField(NamedTuple):
    """Result of training."""

    weights: Weights
    kernels: list
    trace: list  # kernels tried, with their losses
    course: Any  # result of the optimizer, None if nothing is learned


def train(data, plan, on_iteration):
    """Choose the bandwidths, then learn the weights."""
    # on_iteration: function called with weights and kernels after each iteration; returns True to stop
    with single_threaded_blas(), tasks_stay_here():
        kernels, trace, start = _choose_bandwidths(data.tasks, plan)
        # Build lattices even for fixed weights, so that errors are raised in fit and not only in predict.
        risk = _risk(data.tasks, plan, kernels)
        if plan.loss is None:
            return TrainedField(plan.start, kernels, trace, None)
        start = start if plan.continues else risk.best_scaled(start)
        found = _minimize(risk, start, plan, plan.max_iter, lambda weights: on_iteration(weights, kernels))
        return TrainedField(plan.layout.unpack(found.x), kernels, trace, found)


def _choose_bandwidths(tasks, plan):
    """Return the kernels, the trace of kernels tried with their losses, and the initial weights."""
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
            weights = _train_briefly(risk, risk.best_scaled(weights), plan)[0]
        return _risk(held_out, plan, kernels).value(weights)

    return *plan.bandwidths.choose(list(plan.kernels), evaluate), plan.start


def _descend_bandwidths(tasks, plan):
    weights, least = plan.start, np.inf

    def value_grad(kernels):
        nonlocal weights, least
        risk = _risk(tasks, plan, kernels)
        if plan.loss is None:
            return risk.value(plan.start), risk.bandwidth_slopes(plan.start)
        found, loss = _train_briefly(risk, risk.best_scaled(weights) if np.isinf(least) else weights, plan)
        if loss < least:
            weights, least = found, loss
        return loss, risk.bandwidth_slopes(found)

    return *plan.bandwidths.descend(list(plan.kernels), value_grad), weights


def _risk(tasks, plan, kernels):
    blur = blur_of(plan.inference)
    lattices = Lattices(kernels, tasks, blur=blur, max_memory=plan.max_memory, n_jobs=plan.n_jobs)
    loss = LogLoss() if plan.loss is None else plan.loss
    return UnrolledRisk(tasks, lattices, plan.layout, loss, plan.inference, plan.C, plan.n_jobs)


def blur_of(inference):
    """Return the blur option of filters that the updates require."""
    return "symmetric" if inference.updates == "convergent" else "single"


def _train_briefly(risk, start, plan):
    """Return weights trained for one choice of bandwidths, and their loss."""
    found = _minimize(risk, start, plan, min(plan.max_iter, ITERATIONS_PER_CHOICE))
    return plan.layout.unpack(found.x), float(found.fun)


def _minimize(risk, start, plan, max_iter, on_iteration=None):
    # on_iteration: function called with the weights after each iteration; returns True to stop
    layout = plan.layout
    bounded = np.zeros(layout.n_coef, dtype=bool)
    bounded[: layout.n_pairwise] = plan.inference.updates == "convergent"
    with progress_reporter(plan.verbose, max_iter, "lbfgs") as show:

        def callback(found):
            show(lambda: f"loss {found.fun:.6g}")
            return on_iteration is not None and on_iteration(layout.unpack(found.x))

        limits = {"lower_bounded": bounded, "max_iter": max_iter, "tol": plan.tol, "most_left": SHARE_LEFT}
        return minimize_lbfgs(risk.value_grad, layout.pack(start), **limits, callback=callback)


class Lattices:
    """Filters of the training examples, stored up to a memory limit; further filters are rebuilt when needed."""

    # max_memory: limit for all filters together

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
        """Return the loss per labelled node, without penalty."""
        return self._value_of(self._totals(weights))

    def best_scaled(self, weights):
        """Return the weights, with compatibility multiplied by the factor that gives the smallest loss."""
        # The loss is not convex: with far too large weights all pixels get the same label, and the gradient vanishes.
        if weights.coef is not None:
            return weights
        tried = [weights._replace(compatibility=factor * weights.compatibility) for factor in START_FACTORS]
        return tried[int(np.argmin([self.value(each) for each in tried]))]

    def value_grad(self, flat):
        """Return the value of f and its gradient."""
        weights = self.layout.unpack(flat)
        totals = self._totals(weights) if self.loss.needs_totals else None
        found = []
        for tasks, slopes, own, updates in self._update_groups(weights, totals):
            for task, part, each in zip(tasks, own, updates.pull_back(slopes), strict=True):
                found.append((part, self.layout.gradient(each.tables, each.unary, task.example.rows)))
        value = self._value_of(sum(own for own, _ in found))
        gradient = sum(part for _, part in found) / self.total_weight
        penalty = np.where(self.layout.penalised, flat, 0.0) * self.strength
        return value + 0.5 * float(penalty @ flat), gradient + penalty

    def bandwidth_slopes(self, weights):
        """Estimate the derivative of f by the logarithm of each bandwidth of each kernel, (n_bandwidths,)."""
        totals = self._totals(weights) if self.loss.needs_totals else None
        kernels = self.lattices.kernels

        total = 0
        for tasks, slopes, _, updates in self._update_groups(weights, totals):
            features = [self._features(task) for task in tasks]
            for task, found in zip(tasks, updates.pull_back(slopes, features), strict=True):
                n_axes = len(task.example.shape)
                pairs = zip(kernels, found.columns, strict=True)
                parts = [slopes_by_bandwidths(kernel, own, n_axes) for kernel, own in pairs]
                total += np.concatenate([np.zeros(0), *parts])
        return total / self.total_weight

    def _features(self, task):
        return [kernel.features(task.example, f"kernels[{m}]") for m, kernel in enumerate(self.lattices.kernels)]

    def _update_groups(self, weights, totals):
        """Yield groups of tasks, with derivatives by their last logits, sums for the loss, and their updates."""
        for tasks in self._groups:
            updates = UnrolledUpdates(self._models(weights, tasks), self.inference, thread_count(self.n_jobs))
            last = updates.last
            own = [self._totals_of(*each) for each in zip(last, tasks, strict=True)]
            yield tasks, [self._slope(totals, *each) for each in zip(last, tasks, strict=True)], own, updates

    def _slope(self, totals, q, task):
        with errors_of(f"{type(self.loss).__name__}.gradient"):
            slope = self.loss.gradient(totals, q, task.labels, task.weight)
            return as_finite(slope, "the derivative by logits", q.shape, q.dtype)

    def _totals(self, weights):
        found = []
        for tasks in self._groups:
            fields = DenseFields(self._models(weights, tasks))
            marginals = fields.updated(self.inference, n_threads=thread_count(self.n_jobs))[0][0]
            rows = np.split(fields.states_of(marginals), fields.ptr[1:-1])
            found += [self._totals_of(*each) for each in zip(rows, tasks, strict=True)]
        return sum(found)

    def _totals_of(self, q, task):
        found = self.loss.totals(q, task.labels, task.weight)
        with errors_of(f"{type(self.loss).__name__}.totals"):
            return as_finite(found, "sums over nodes", np.shape(found))

    def _value_of(self, totals):
        """Return the loss per labelled node, given sums over all nodes."""
        value = self.loss.value(totals)
        with errors_of(f"{type(self.loss).__name__}.value"):
            return float(as_finite(value, "the loss", ())) / self.total_weight

    def _models(self, weights, tasks):
        def model(task, n_threads):
            filters = self.lattices.of(task, n_threads)
            return DenseModel(weights.unary(task.example.rows), filters, weights.compatibility)

        return map_tasks(model, tasks, self.n_jobs)

    @property
    def _groups(self):
        """Groups of consecutive tasks of one data type. Marginals of all updates of a group are in memory at once."""
        groups: list[list] = []
        size = 0
        for task in self.tasks:
            own = task.example.rows.shape[0] * self.layout.n_classes * (self.inference.max_iter + 1)
            if groups and groups[-1][0].example.rows.dtype == task.example.rows.dtype and size + own <= NUMBERS_AT_ONCE:
                groups[-1].append(task)
                size += own
            else:
                groups.append([task])
                size = own
        return groups
