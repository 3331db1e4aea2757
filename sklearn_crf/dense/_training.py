"""Learning the weights of a dense field through the updates of its mean field."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._own_methods import errors_of
from sklearn_crf._threads import checkpoint, map_tasks, range_runner
from sklearn_crf.dense._gaussian_kernels import build_filters
from sklearn_crf.dense._losses import through_softmax
from sklearn_crf.inference import convergence_left_to_caller
from sklearn_crf.inference._results import as_finite
from sklearn_crf.inference.local._dense_mean_field import DenseUpdates, product_over_nodes
from sklearn_crf.kernels.dense.small_fields import pull_back_small_field, update_small_field
from sklearn_crf.models import DenseModel, padded_rows


class Weights(NamedTuple):
    """Weights of a field."""

    compatibility: np.ndarray  # (M,)
    unary_scale: float = 1.0  # Factor of given scores; 1 where unary scores are linear in features
    coef: np.ndarray | None = None  # (K, F) or None
    intercept: np.ndarray | None = None  # (K,) or None: of linear unary scores

    def unary(self, rows):
        """Unary scores of the rows of an example."""
        if self.coef is None:
            return rows * rows.dtype.type(self.unary_scale)
        return rows @ self.coef.T.astype(rows.dtype) + self.intercept.astype(rows.dtype)


class Layout:
    """Conversion between the weights of a field and one flat vector."""

    # n_features: of linear unary scores; None where scores are given

    def __init__(self, n_kernels, n_classes, compatibility, n_features=None):
        self.n_kernels, self.n_classes, self.n_features = n_kernels, n_classes, n_features
        self.compatibility = compatibility
        self._upper = np.triu_indices(n_classes)
        self._per_kernel = {"potts": 1, "diagonal": n_classes, "full": len(self._upper[0])}[compatibility]
        self.n_pairwise = n_kernels * self._per_kernel
        n_unary = 1 if n_features is None else n_classes * (n_features + 1)
        self.n_coef = self.n_pairwise + n_unary

    @property
    def penalised(self):
        """Mask of penalised weights: neither the scale of given scores nor intercepts are."""
        flags = np.ones(self.n_coef, dtype=bool)
        flags[self.n_coef - (1 if self.n_features is None else self.n_classes) :] = False
        return flags

    def pack(self, weights):
        """Flat vector of weights."""
        compatibility = weights.compatibility
        if self.compatibility == "full":
            compatibility = compatibility[:, *self._upper]
        unary = [[weights.unary_scale]] if weights.coef is None else [weights.coef.ravel(), weights.intercept]
        return np.concatenate([compatibility.ravel(), *unary])

    def unpack(self, flat):
        """Weights of a flat vector."""
        pairwise, unary = np.split(flat, [self.n_pairwise])
        compatibility = self._tables(pairwise.reshape(self.n_kernels, self._per_kernel))
        if self.n_features is None:
            return Weights(compatibility, float(unary[0]))
        coef, intercept = np.split(unary, [self.n_classes * self.n_features])
        return Weights(compatibility, 1.0, coef.reshape(self.n_classes, -1).copy(), intercept.copy())

    def _tables(self, pairwise):
        if self.compatibility == "potts":
            return pairwise[:, 0].copy()
        if self.compatibility == "diagonal":
            return pairwise.copy()
        tables = np.zeros((self.n_kernels, self.n_classes, self.n_classes))
        tables[:, *self._upper] = pairwise
        return tables + np.triu(tables, 1).transpose(0, 2, 1)

    def start(self, kernels):
        """Weights to begin with: those of the kernels, the same for all pairs of equal states."""
        weight = np.array([float(kernel.weight) for kernel in kernels])
        if self.compatibility == "potts":
            compatibility = weight
        elif self.compatibility == "diagonal":
            compatibility = np.repeat(weight[:, np.newaxis], self.n_classes, axis=1)
        else:
            compatibility = weight[:, np.newaxis, np.newaxis] * np.eye(self.n_classes)
        if self.n_features is None:
            return Weights(compatibility)
        return Weights(compatibility, 1.0, np.zeros((self.n_classes, self.n_features)), np.zeros(self.n_classes))

    def gradient(self, by_tables, by_unary, rows):
        """Derivative by the flat vector, of the derivatives by tables and unary scores of one example."""
        if self.compatibility == "potts":
            pairwise = np.trace(by_tables, axis1=1, axis2=2)
        elif self.compatibility == "diagonal":
            pairwise = np.diagonal(by_tables, axis1=1, axis2=2)
        else:
            both = by_tables + by_tables.transpose(0, 2, 1)
            both[:, np.arange(self.n_classes), np.arange(self.n_classes)] /= 2
            pairwise = both[:, *self._upper]
        if self.n_features is None:
            # Scores of -inf have derivative 0, and 0 * inf would be NaN.
            moved = np.multiply(by_unary, rows, where=by_unary != 0, out=np.zeros_like(rows))
            unary = [[moved.sum(dtype=np.float64)]]
        else:
            unary = [(by_unary.T @ rows).ravel(), by_unary.sum(axis=0, dtype=np.float64)]
        return np.concatenate([np.ravel(pairwise), *unary])


class Gradient(NamedTuple):
    """Derivative of a loss by the values of a dense model."""

    unary: np.ndarray  # (N, K)
    tables: np.ndarray  # (M, K, K), all entries as independent variables
    columns: list  # per kernel (d,): by the logarithm of the scale of each column of its features


def marginals_of_updates(model, inference, n_threads=1):
    """Marginals at the start and after each update."""
    # returns list of (N, K)
    # inference: its updates must not average with old scores
    with range_runner(n_threads) as run:
        updates = DenseUpdates(model, run)
        trajectory = [updates.marginals.copy()]
        for _ in range(inference.max_iter):
            checkpoint()
            change = updates.step()
            trajectory.append(updates.marginals.copy())
            if change <= inference.tol:
                break
    return trajectory


class _ScaleSlopes:
    r"""Derivative of :math:`h' \hat K q` by the logarithm of the scale :math:`\theta_a` of each column of features.

    The derivative of the Gaussian kernel, :math:`k(i, j) (f_{ia} - f_{ja})^2`, is filtered by the lattice; the lattice
    itself is not differentiated, as points move over its cells.
    """

    def __init__(self, smooth, features, n_threads):
        self._smooth, self._n_threads = smooth, n_threads
        # Only differences count, and moments about the centre lose fewer digits.
        self._features = features - features.mean(axis=0)
        squares = self._features**2
        # Barycentric weights sum to one, so that rows of the filter's weights sum to the factors n_i of normalisation.
        norm = smooth.weight.sum(axis=1, keepdims=True)
        own, first, second = (self._filtered(values / norm) for values in (1, self._features, squares))
        # Derivative of the logarithm of n_i^-2, the sum of row i.
        by_sums = norm * (squares * own - 2 * self._features * first + second)
        self._moments = (squares - by_sums / 2).astype(np.float64)

    def of(self, left, right, adjoint):
        """Derivatives (d,); ``adjoint`` is the transposed filter applied to ``left``, all (N, K)."""
        pairs = _row_products(left, self._filtered(right)) + _row_products(adjoint, right)
        found = pairs @ self._moments
        for a, column in enumerate(self._features.T):
            found[a] -= 2 * (column @ _row_products(left, self._filtered(column[:, np.newaxis] * right)))
        return found

    def _filtered(self, values):
        return self._smooth.apply(values, n_threads=self._n_threads)


def _row_products(a, b):
    return np.einsum("ik,ik->i", a, b, dtype=np.float64)


def pull_back(model, trajectory, slope, n_threads=1, features=()):
    r"""Derivatives by unary scores and compatibilities, given that by the last logits.

    Logits are :math:`s_t = u + \sum_m \hat K_m q_{t-1} \mu_m`, so that with g the derivative by s_t, that by
    :math:`\mu_m` is :math:`q_{t-1}' (\hat K_m' g)` and that by :math:`q_{t-1}` is
    :math:`\sum_m (\hat K_m' g) \mu_m'`: one adjoint filtering per kernel and update.
    """
    # trajectory: list of (N, K), as returned by :func:`marginals_of_updates`
    # slope: (N, K), derivative of the loss by the logits of the last marginals
    # features: (N, d), those of each filter, where the derivative by their scales is wanted
    tables = model.tables
    scales = [_ScaleSlopes(*pair, n_threads) for pair in zip(model.filters, features, strict=bool(features))]
    by_columns = [np.zeros(own.shape[1]) for own in features]
    by_tables = np.zeros(tables.shape)
    by_unary = slope.copy()
    for q in reversed(trajectory[:-1]):
        checkpoint()
        by_q = np.zeros_like(slope)
        for m, smooth in enumerate(model.filters):
            adjoint = smooth.apply(slope, adjoint=True, n_threads=n_threads)
            by_tables[m] += product_over_nodes(q, adjoint)
            table = tables[m].T.astype(slope.dtype)
            by_neighbors = adjoint @ table
            by_q += by_neighbors
            if features:
                by_columns[m] += scales[m].of(slope @ table, q, by_neighbors)
        slope = through_softmax(q, by_q)
        by_unary += slope
    return Gradient(by_unary, by_tables, by_columns)


# Nodes of a field up to which its updates are too short for more threads than one, and for an interruption.
_MOST_NODES = 2**13


class SmallField:
    """A field of few nodes, whose compatibilities join equal states alone: the updates of its mean field.

    Marginals have the bits that single updates give them. Whether a field is small does not depend on threads.
    """

    def __init__(self, model, unary, lattices):
        self._n_columns, self._unary, self._lattices = model.n_columns, unary, lattices
        self._factors = np.zeros((len(lattices), unary.shape[1]), unary.dtype)
        self._factors[:, : model.n_columns] = model.compatibility.reshape(len(lattices), -1) if lattices else 0

    @classmethod
    def of(cls, model):
        """That of a model; None of those that are larger, or have other compatibilities."""
        if model.n_nodes > _MOST_NODES or model.compatibility.ndim == 3:
            return None
        unary = padded_rows(model.unary, model.dtype, -np.inf)
        lattices = [smooth.small_lattice(smooth.workspace(unary.shape[1])) for smooth in model.filters]
        return None if any(lattice is None for lattice in lattices) else cls(model, unary, lattices)

    def trajectory(self, max_iter, tol):
        """Marginals at the start and after each update, rows padded, (n_updates + 1, N, width)."""
        checkpoint()
        trajectory = np.empty((max_iter + 1, *self._unary.shape), self._unary.dtype)
        n_updates = update_small_field(self._lattices, self._factors, self._unary, tol, trajectory)
        return trajectory[: n_updates + 1]

    def last_of(self, trajectory):
        """Marginals (N, K) at the end."""
        return np.ascontiguousarray(trajectory[-1, :, : self._n_columns])

    def pull_back(self, trajectory, slope):
        """Derivatives by unary scores and compatibilities, given that by the last logits, (N, K)."""
        checkpoint()
        slope = padded_rows(slope, self._unary.dtype)
        by_unary = slope.copy()
        width, states = slope.shape[1], slice(self._n_columns)
        by_tables = np.zeros((len(self._lattices), width, width))
        pull_back_small_field(self._lattices, self._factors, trajectory, slope, by_unary, by_tables)
        return Gradient(np.ascontiguousarray(by_unary[:, states]), by_tables[:, states, states], [])


class Task(NamedTuple):
    """One example of training."""

    index: int  # type: ignore[assignment]
    example: object
    labels: np.ndarray  # (N,) columns, 0 where unlabelled
    weight: np.ndarray  # (N,) float64, 0 where unlabelled


class Lattices:
    """Filters of the training examples, kept up to a limit of memory and rebuilt in each iteration beyond it."""

    # max_memory: of all filters together

    def __init__(self, kernels, tasks, *, blur, max_memory, n_jobs):
        self.kernels = kernels
        self._blur, self._max_memory = blur, max_memory
        self._kept, total = {}, 0
        for filters, task in zip(map_tasks(self._build, tasks, n_jobs), tasks, strict=True):
            total += sum(smooth.memory for smooth in filters)
            if total > max_memory:
                break
            self._kept[task.index] = filters

    def _build(self, task, n_threads):
        return build_filters(
            self.kernels,
            task.example,
            name=f"X[{task.index}]",
            blur=self._blur,
            max_memory=self._max_memory,
            n_threads=n_threads,
        )

    def of(self, task, n_threads):
        """Filters of one example."""
        kept = self._kept.get(task.index)
        return self._build(task, n_threads) if kept is None else kept


_START_FACTORS = (1.0, 0.3, 0.1, 0.0)


class UnrolledRisk:
    r"""Regularised loss of the marginals after the updates of mean field, per labelled node.

    .. math::
        f(w) = \frac{1}{C W} \Big(\tfrac12 \lVert w \rVert^2 + C \, R(q^{(T)}(w))\Big)

    W is the sum of the weights of nodes.
    """

    def __init__(self, tasks, lattices, layout, loss, inference, C, n_jobs):
        self.tasks, self.lattices, self.layout = tasks, lattices, layout
        self.loss, self.inference = loss, inference
        self.n_jobs = n_jobs
        self.total_weight = sum(float(task.weight.sum()) for task in tasks)
        self.strength = 1 / (C * self.total_weight)

    def value(self, weights):
        """Loss per labelled node, without penalty."""
        return self._value_of(self._totals(weights))

    def best_scaled(self, weights):
        """The weights, with those of pairs multiplied by the factor of least loss."""
        # The loss is not convex: with far too large weights all pixels get the same label, and the gradient vanishes.
        if weights.coef is not None:
            return weights
        tried = [weights._replace(compatibility=factor * weights.compatibility) for factor in _START_FACTORS]
        return tried[int(np.argmin([self.value(each) for each in tried]))]

    def value_grad(self, flat):
        """Value of f and its gradient."""
        weights = self.layout.unpack(flat)
        totals = self._totals(weights) if self.loss.needs_totals else None

        def run(task, n_threads):
            own, found = self._pulled_back(weights, totals, task, n_threads)
            return own, self.layout.gradient(found.tables, found.unary, task.example.rows)

        found = map_tasks(run, self.tasks, self.n_jobs)
        value = self._value_of(sum(own for own, _ in found))
        gradient = sum(part for _, part in found) / self.total_weight
        penalty = np.where(self.layout.penalised, flat, 0.0) * self.strength
        return value + 0.5 * float(penalty @ flat), gradient + penalty

    def bandwidth_slopes(self, weights):
        """Estimated derivative of f by the logarithm of each bandwidth of each kernel, (n_bandwidths,)."""
        totals = self._totals(weights) if self.loss.needs_totals else None
        kernels = self.lattices.kernels

        def run(task, n_threads):
            features = [kernel.features(task.example, f"kernels[{m}]") for m, kernel in enumerate(kernels)]
            columns = self._pulled_back(weights, totals, task, n_threads, features)[1].columns
            n_axes = len(task.example.shape)
            parts = [kernel._by_bandwidths(own, n_axes) for kernel, own in zip(kernels, columns, strict=True)]
            return np.concatenate([np.zeros(0), *parts])

        return sum(map_tasks(run, self.tasks, self.n_jobs)) / self.total_weight

    def _pulled_back(self, weights, totals, task, n_threads, features=()):
        """Totals of the loss of one example, and its derivatives."""
        model = self._model(weights, task, n_threads)
        small = None if features else SmallField.of(model)
        if small is not None:
            trajectory = small.trajectory(self.inference.max_iter, self.inference.tol)
            last = small.last_of(trajectory)
        else:
            trajectory = marginals_of_updates(model, self.inference, n_threads)
            last = trajectory[-1]
        own = self._totals_of(last, task)
        with errors_of(f"{type(self.loss).__name__}.gradient"):
            slope = self.loss.gradient(totals, last, task.labels, task.weight)
            slope = as_finite(slope, "the derivative by logits", last.shape, last.dtype)
        if small is not None:
            return own, small.pull_back(trajectory, slope)
        return own, pull_back(model, trajectory, slope, n_threads, features)

    def _totals(self, weights):
        def run(task, n_threads):
            q = self.inference.node_marginals(self._model(weights, task, n_threads), n_threads=n_threads)
            return self._totals_of(q, task)

        with convergence_left_to_caller():
            return sum(map_tasks(run, self.tasks, self.n_jobs))

    def _totals_of(self, q, task):
        found = self.loss.totals(q, task.labels, task.weight)
        with errors_of(f"{type(self.loss).__name__}.totals"):
            return as_finite(found, "sums over nodes", np.shape(found))

    def _value_of(self, totals):
        """Loss per labelled node, of sums over all nodes."""
        value = self.loss.value(totals)
        with errors_of(f"{type(self.loss).__name__}.value"):
            return float(as_finite(value, "the loss", ())) / self.total_weight

    def _model(self, weights, task, n_threads):
        return DenseModel(weights.unary(task.example.rows), self.lattices.of(task, n_threads), weights.compatibility)


class Losses:
    """Losses for the progress reporter."""

    def __init__(self):
        self.loss = []

    def summary(self):
        """The last of them, in words."""
        return f"loss {self.loss[-1]:.5g}"
