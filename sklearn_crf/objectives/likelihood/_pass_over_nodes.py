"""Losses that are those of logistic regression: of nodes without edges, and given the labels of their neighbours."""

from functools import partial
from typing import NamedTuple

import numpy as np

from sklearn_crf._numbers import column_sums, gram
from sklearn_crf._threads import fixed_ranges, map_tasks, own_workspace
from sklearn_crf.kernels.learning.pseudolikelihood import (
    conditionals_of_many,
    conditionals_of_two,
    count_neighbours,
    losses_of_two,
)
from sklearn_crf.objectives._base import RiskValue
from sklearn_crf.objectives.likelihood._likelihood import Likelihood
from sklearn_crf.objectives.likelihood._pseudolikelihood import Pseudolikelihood
from sklearn_crf.potentials import LinearPotentials

# Nodes of a task, and products of features and weights: smaller batches are put together, larger ones cut. Short tasks
# leave threads waiting for the lock of the interpreter, where there are many; of few, threads have as much to do each.
_MOST_NODES, _FEWEST_PRODUCTS, _MOST_PRODUCTS, _TASKS = 16_384, 2**20, 2**22, 16
# Numbers of a node up to which one kernel does all: of longer rows products of matrices are quicker.
_LONGEST_ROW = 16
# More numbers than this are not kept for the neighbours of all nodes.
_MOST_KEPT = 2**26


class _Nodes(NamedTuple):
    """Some nodes with what their conditionals depend on."""

    features: np.ndarray  # (n, F)
    neighbours: np.ndarray  # (n, M) sums of edge features by the label at the other end
    labels: np.ndarray  # (n,) int32
    weight: np.ndarray  # (n,) float64, or empty for ones


class NodeTasks:
    r"""Risk and gradient of labelled nodes with dense features, given their neighbours or without, in one pass.

    .. math::
        f_s(k) = u_{s k} + \sum_{t, r, l} c_{s t r l} \, \theta_{t r k l} + c'_{s t r l} \, \theta_{t r l k}

    Labels of neighbours do not change: the sums c and c' of features of edges, of which a node is the first or the
    second end and whose other end has label l, are counted once. With two classes scores are differences, and the
    sums are multiplied with the form of the tables, which leaves a column for each weight.
    """

    def __init__(self, potentials, batches, n_jobs, sees_neighbours):
        self._potentials = potentials
        width = _width(potentials) if sees_neighbours else 0
        n_nodes = sum(batch.example.n_nodes for batch in batches)
        read = partial(
            _nodes_of,
            potentials=potentials,
            sees_neighbours=sees_neighbours,
            differences=_differences(potentials.form) if potentials.n_classes == 2 else None,
        )
        parts = map_tasks(read, batches, n_jobs)
        n_products = (potentials.n_features + width) * potentials.n_columns
        most = np.clip(n_nodes * n_products // _TASKS, _FEWEST_PRODUCTS, _MOST_PRODUCTS)
        size = int(np.clip(most // max(n_products, 1), 1, _MOST_NODES))
        self._pieces = list(_pieces(parts, size))

    @staticmethod
    def are_for(potentials, batches, sees_neighbours):
        """Return whether nodes are of one kind, with dense features and labels, and sums over neighbours are few."""
        if type(potentials) is not LinearPotentials or potentials.n_node_types > 1 or potentials.forbids:
            return False
        width = _width(potentials) if sees_neighbours else 0
        n_nodes = sum(batch.example.n_nodes for batch in batches)
        return n_nodes * width <= _MOST_KEPT and all(map(_is_plain, batches))

    def at(self, coef):
        """Return functions that give loss, errors and gradient of some nodes each."""
        return [partial(self._loss, piece, np.asarray(coef)) for piece in self._pieces]

    def _loss(self, piece, coef, n_threads):
        parts = self._potentials.unpack(coef)
        if self._potentials.n_classes == 2 and piece.features.shape[1] + piece.neighbours.shape[1] <= _LONGEST_ROW:
            return self._loss_of_short_rows(piece, parts)
        dtype = piece.features.dtype
        scores = (piece.features @ parts.coef[0].T.astype(dtype)).astype(np.float64, copy=False)
        has_edges = piece.neighbours.shape[1] > 0
        if has_edges:
            scores += piece.neighbours @ _columns_of_tables(self._potentials, parts.edge_coef).astype(dtype)
        intercept = np.ascontiguousarray(parts.intercept[0])
        if self._potentials.n_classes == 2:
            if len(intercept):
                scores += intercept
            loss, n_errors = conditionals_of_two(scores[:, 0], piece.labels, piece.weight)
        else:
            work = own_workspace(64 * scores.shape[1])
            loss, n_errors = conditionals_of_many(scores, intercept, piece.labels, piece.weight, work)
        gradient = np.zeros(self._potentials.n_coef)
        own = self._potentials.unpack(gradient)
        own.coef[0] = gram(piece.features, scores)
        if self._potentials.fit_intercept:
            own.intercept[0] = column_sums(scores)
        if has_edges:
            own.edge_coef[...] = _weights_of_columns(self._potentials, gram(piece.neighbours, scores))
        return loss, n_errors, gradient

    def _loss_of_short_rows(self, piece, parts):
        """The same of two classes by one kernel, without an array of scores."""
        intercept = parts.intercept[0] if self._potentials.fit_intercept else [0.0]
        n_neighbours = piece.neighbours.shape[1]
        of_edges = parts.edge_coef.ravel() if n_neighbours else []
        factors = np.concatenate((parts.coef[0, 0], of_edges, intercept))
        by_factors = own_workspace(len(factors))
        loss, n_errors = losses_of_two(*piece[:2], factors, *piece[2:], by_factors)
        gradient = np.zeros(self._potentials.n_coef)
        own, n_features = self._potentials.unpack(gradient), piece.features.shape[1]
        own.coef[0, 0] = by_factors[:n_features]
        if n_neighbours:
            own.edge_coef[...] = by_factors[n_features:-1].reshape(own.edge_coef.shape)
        if self._potentials.fit_intercept:
            own.intercept[0] = by_factors[-1]
        return loss, n_errors, gradient


class NodesGivenNeighbours:
    """The pseudolikelihood of all batches, which infers no labels."""

    name = "nodes given neighbours"

    def __init__(self, risk):
        self._tasks = NodeTasks(risk.potentials, risk.batches, risk.n_jobs, sees_neighbours=True)

    @staticmethod
    def applies(objective, potentials, batches):
        """Return whether the objective is the pseudolikelihood of labelled nodes with dense features."""
        return type(objective) is Pseudolikelihood and NodeTasks.are_for(potentials, batches, sees_neighbours=True)

    def value_grad(self, risk, coef, members):
        """Return the risk of all batches, or None of some of them alone and if it is not finite."""
        return None if members is not None else risk_of_tasks(self._tasks.at(coef), risk.n_jobs, counts_errors=False)


class NodesWithoutEdges:
    """The likelihood of all batches, none of which has edges."""

    name = "nodes without edges"

    def __init__(self, risk):
        self._tasks = NodeTasks(risk.potentials, risk.batches, risk.n_jobs, sees_neighbours=False)

    @staticmethod
    def applies(objective, potentials, batches):
        """Return whether no example has an edge, and inference is exact on labelled nodes with dense features."""
        if type(objective) is not Likelihood or objective.exact_on is None:
            return False
        has_edges = any(batch.example.graph.n_edges for batch in batches)
        return not has_edges and NodeTasks.are_for(potentials, batches, sees_neighbours=False)

    def value_grad(self, risk, coef, members):
        """Return the risk of all batches, or None of some of them alone and if it is not finite."""
        return None if members is not None else risk_of_tasks(self._tasks.at(coef), risk.n_jobs, counts_errors=True)


def risk_of_tasks(tasks, n_jobs, counts_errors):
    """Return the risk of which tasks give loss, errors and gradient in parts, or None if it is not finite."""
    found = map_tasks(lambda task, n_threads: task(n_threads=n_threads), tasks, n_jobs)
    value, n_errors = (sum(part[k] for part in found) for k in (0, 1))
    if not np.isfinite(value):
        return None
    gradient = np.sum([part for _, _, part in found], axis=0)
    return RiskValue(value, gradient, n_errors if counts_errors else None, converged=True, n_nonsubmodular=0)


def _is_plain(batch):
    example = batch.example
    if example.has_factors or example.n_states is not None or not isinstance(example.node_features, np.ndarray):
        return False
    return batch.labels is not None and np.min(batch.labels, initial=0) >= 0


def _width(potentials):
    """Number M of sums over neighbours."""
    width = potentials.n_edge_types * potentials.n_edge_features
    return width * (potentials.form.n_weights if potentials.n_classes == 2 else 2 * potentials.n_classes)


def _nodes_of(batch, potentials, sees_neighbours, differences, n_threads):
    """Return the nodes of a batch."""
    example, labels = batch.example, np.ascontiguousarray(batch.labels, dtype=np.int32)
    weight = np.empty(0)
    if batch.weight is not None:
        weight = np.repeat(batch.weight, np.diff(batch.node_ptr))
    # Losses of nodes by themselves count errors, which have no weight of the node.
    if sees_neighbours and batch.node_weight is not None:
        weight = batch.node_weight * weight if len(weight) else np.asarray(batch.node_weight, dtype=np.float64)
    dtype = example.node_features.dtype
    counts = np.empty((len(labels), 0))
    if sees_neighbours:
        counts = _counts(example, labels, potentials)
        if differences is not None:
            counts = counts.reshape(-1, counts.shape[-1]) @ differences
        counts = counts.reshape(len(labels), -1)
    return _Nodes(example.node_features, counts.astype(dtype, copy=False), labels, weight)


def _counts(example, labels, potentials):
    """(N, T, R, 2 K): sums of edge features over first and second ends, by the label at the other end."""
    n_classes, n_features = potentials.n_classes, potentials.n_edge_features
    counts = np.zeros((example.n_nodes, potentials.n_edge_types, n_features, 2, n_classes))
    features, edge_type = example.edge_features, example.edge_type
    # Once, as they may be computed when they are read.
    features = np.empty((0, n_features)) if features is None else np.ascontiguousarray(features)
    edge_type = np.empty(0) if edge_type is None else edge_type
    count_neighbours(example.graph.edges, edge_type.astype(np.int32, copy=False), labels, features, counts)
    return counts.reshape(*counts.shape[:3], 2 * n_classes)


def _differences(form):
    """(2 K, P): by how much a weight of the form lets state 1 exceed state 0, for both ends and labels of the other."""
    by_weight = form.sign[..., np.newaxis] * (form.index[..., np.newaxis] == np.arange(form.n_weights))
    return np.concatenate((by_weight[1] - by_weight[0], by_weight[:, 1] - by_weight[:, 0]))


def _columns_of_tables(potentials, edge_coef):
    """(M, n_columns): factors of the sums over neighbours."""
    if potentials.n_classes == 2:
        return edge_coef.reshape(-1, 1)
    tables = potentials.form.expand(edge_coef)
    return np.concatenate((np.swapaxes(tables, 2, 3), tables), axis=2).reshape(-1, potentials.n_classes)


def _weights_of_columns(potentials, columns):
    """The adjoint of that."""
    # columns: (n_columns, M)
    shape = potentials.n_edge_types, potentials.n_edge_features
    if potentials.n_classes == 2:
        return columns.reshape(*shape, -1)
    first, second = np.split(columns.T.reshape(*shape, -1, potentials.n_classes), 2, axis=2)
    return potentials.form.adjoint(np.swapaxes(first, 2, 3) + second)


def _pieces(parts, size):
    """Nodes put together, or cut, to tasks of at most a size, in their order."""
    together, n_together = [], 0
    for part in parts:
        n_nodes = len(part.labels)
        for start, stop in fixed_ranges(n_nodes, -(-n_nodes // size)):
            if together and n_together + stop - start > size:
                yield _joined(together)
                together, n_together = [], 0
            together.append(_Nodes(*(array[start:stop] for array in part)))
            n_together += stop - start
    if together:
        yield _joined(together)


def _joined(pieces):
    if len(pieces) == 1:
        return pieces[0]
    weights = [piece.weight for piece in pieces]
    if any(len(weight) for weight in weights):
        weights = [piece.weight if len(piece.weight) else np.ones(len(piece.labels)) for piece in pieces]
    columns = (np.concatenate([piece[k] for piece in pieces]) for k in range(3))
    return _Nodes(*columns, np.concatenate(weights))
