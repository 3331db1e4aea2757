"""Logistic losses: of nodes without edges, and of nodes given their neighbours' labels."""

from functools import partial
from typing import NamedTuple

import numpy as np

from sklearn_crf._threads import count_threads, map_tasks, split_into_ranges
from sklearn_crf.kernels.learning.learning import count_neighbours, losses_of_nodes
from sklearn_crf.objectives._risk import RiskValue
from sklearn_crf.objectives.likelihood._likelihood import Likelihood
from sklearn_crf.objectives.likelihood._pseudolikelihood import Pseudolikelihood
from sklearn_crf.potentials import LinearPotentials

# Number of parts with separate sums; minimum number of products of features and weights in a part.
# With 128 parts, each of sixteen threads has eight parts.
# A part with the minimum number of products takes about 50 microseconds. Smaller parts would not justify a task.
_PARTS, _FEWEST_PRODUCTS = 128, 2**17
# Maximum number of nodes whose scores a kernel stores at a time.
_MOST_NODES = 8192
# Maximum total number of stored sums over neighbours.
_MOST_KEPT = 2**26


class _Nodes(NamedTuple):
    """Nodes of a batch with the data on which their conditional distributions depend."""

    features: np.ndarray  # (n, F), features of each node
    neighbours: np.ndarray  # (n, M), sums of edge features, separately for each label of the neighbour
    labels: np.ndarray  # (n,) int32, label of each node
    weight: np.ndarray  # (n,) float64, weight of each node, or empty for ones

    def blocks(self, size):
        """Yield, for blocks of at most ``size`` nodes, the addresses of the arrays and the number of nodes."""
        n_nodes = len(self.labels)
        for start, stop in split_into_ranges(n_nodes, -(-n_nodes // size)) if n_nodes else ():
            yield *(each[start:].ctypes.data if each.size else 0 for each in self), stop - start


class NodePass:
    r"""Risk of labelled nodes with dense features, in one pass: without edges, or given the neighbours' labels.

    .. math::
        f_s(k) = u_{s k} + \sum_{t, r, l} c_{s t r l} \, \theta_{t r k l} + c'_{s t r l} \, \theta_{t r l k}

    Here c and c' are sums of edge features over the edges whose other end has label l. The sum c is over edges whose
    first end is node s, and c' is over edges whose second end is node s. As labels do not change, the sums are computed
    only once. With two classes, the score of a node is the difference between the scores of its states. The sums are
    then multiplied by the form of the tables, which results in one column for each weight.
    """

    def __init__(self, potentials, batches, n_jobs, sees_neighbours):
        self._potentials = potentials
        self._width = _count_neighbour_sums(potentials) if sees_neighbours else 0
        read = partial(
            _build_nodes,
            potentials=potentials,
            sees_neighbours=sees_neighbours,
            differences=_build_difference_factors(potentials.form) if potentials.n_classes == 2 else None,
        )
        # Store the arrays of nodes, because kernels read them by their addresses.
        self._nodes = map_tasks(read, batches, n_jobs)
        n_products = max((potentials.n_features + self._width) * potentials.n_columns, 1)
        n_nodes = sum(len(nodes.labels) for nodes in self._nodes)
        size = int(np.clip(max(n_nodes // _PARTS, _FEWEST_PRODUCTS // n_products), 64, None))
        blocks = [block for nodes in self._nodes for block in nodes.blocks(min(size, _MOST_NODES))]
        self._blocks = np.array(blocks, dtype=np.int64).reshape(-1, 5)
        first = np.cumsum(self._blocks[:, 4]) - self._blocks[:, 4]
        self._parts = np.append(np.unique(first // size, return_index=True)[1], len(blocks))

    @staticmethod
    def is_for(potentials, batches, sees_neighbours):
        """Return whether all nodes have one type, dense features and labels, and need few sums over neighbours."""
        if type(potentials) is not LinearPotentials or potentials.n_node_types > 1 or potentials.forbids:
            return False
        width = _count_neighbour_sums(potentials) if sees_neighbours else 0
        n_nodes = sum(batch.example.n_nodes for batch in batches)
        one_precision = len({batch.example.node_features.dtype for batch in batches if _is_plain(batch)}) <= 1
        return n_nodes * width <= _MOST_KEPT and one_precision and all(map(_is_plain, batches))

    def at(self, coef, n_jobs):
        """Return the loss, the number of errors and the gradient of all nodes."""
        potentials = self._potentials
        weights = potentials.unpack(np.asarray(coef, dtype=np.float64))
        n_columns, n_features = potentials.n_columns, potentials.n_features
        dtype = self._nodes[0].features.dtype if self._nodes else np.dtype(np.float64)
        of_edges = np.zeros((n_columns, 0))
        if self._width:
            of_edges = np.ascontiguousarray(_build_table_columns(potentials, weights.edge_coef).T)
        of_features = np.ascontiguousarray(weights.coef[0])
        sums = np.empty(2 + n_columns * (n_features + self._width + 1))
        losses_of_nodes(
            self._blocks, self._parts, potentials.n_classes, of_features, of_features.astype(dtype), of_edges,
            of_edges.astype(dtype), np.ascontiguousarray(weights.intercept[0]), sums, count_threads(n_jobs),
        )  # fmt: skip
        by_features, by_neighbours, by_intercept = np.split(
            sums[2:], [n_columns * n_features, n_columns * (n_features + self._width)]
        )
        by_edges = np.zeros_like(weights.edge_coef)
        if self._width:
            by_edges = _pull_back_columns(potentials, by_neighbours.reshape(n_columns, -1))
        gradient = potentials.pack(by_features, by_intercept if potentials.fit_intercept else [], by_edges)
        return float(sums[0]), float(sums[1]), gradient


class NodesGivenNeighbours:
    """Pseudolikelihood of all batches. Errors are not counted, because no labels are inferred."""

    name = "nodes given neighbours"
    objectives = (Pseudolikelihood,)

    sees_neighbours = True

    def __init__(self, risk):
        self._pass = NodePass(risk.potentials, risk.batches, risk.n_jobs, self.sees_neighbours)

    @staticmethod
    def applies(objective, potentials, batches):
        """Return whether nodes have labels, and dense features that the pass over nodes supports."""
        return NodePass.is_for(potentials, batches, sees_neighbours=True)

    def value_grad(self, risk, coef, members):
        """Return the risk of all batches; return None if the risk is not finite or only some batches are requested."""
        if members is not None:
            return None
        return sum_risks([self._pass.at(coef, risk.n_jobs)], counts_errors=not self.sees_neighbours)


class NodesWithoutEdges(NodesGivenNeighbours):
    """Likelihood of all batches, if no batch has edges."""

    name = "nodes without edges"
    objectives = (Likelihood,)
    sees_neighbours = False

    @staticmethod
    def applies(objective, potentials, batches):
        """Return whether there are no edges, nodes have labels and dense features, and inference is exact."""
        if objective.exact_on is None:
            return False
        has_edges = any(batch.example.graph.n_edges for batch in batches)
        return not has_edges and NodePass.is_for(potentials, batches, sees_neighbours=False)


def sum_risks(found, counts_errors):
    """Add parts (loss, number of errors, gradient) to one RiskValue; return None if the result is not finite."""
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


def _count_neighbour_sums(potentials):
    """Return the number M of sums over neighbours for each node."""
    width = potentials.n_edge_types * potentials.n_edge_features
    return width * (potentials.form.n_weights if potentials.n_classes == 2 else 2 * potentials.n_classes)


def _build_nodes(batch, potentials, sees_neighbours, differences, n_threads):
    """Build the :class:`_Nodes` of a batch."""
    example, labels = batch.example, np.ascontiguousarray(batch.labels, dtype=np.int32)
    weight = np.empty(0)
    if batch.weight is not None:
        weight = np.repeat(batch.weight, np.diff(batch.node_ptr))
    # Without edges, the loss is the likelihood, which ignores weights of nodes.
    if sees_neighbours and batch.node_weight is not None:
        weight = batch.node_weight * weight if len(weight) else np.asarray(batch.node_weight, dtype=np.float64)
    dtype = example.node_features.dtype
    counts = np.empty((len(labels), 0))
    if sees_neighbours:
        counts = _count_neighbour_labels(example, labels, potentials)
        if differences is not None:
            counts = counts.reshape(-1, counts.shape[-1]) @ differences
        counts = counts.reshape(len(labels), -1)
    counts = np.ascontiguousarray(counts, dtype=dtype)
    return _Nodes(np.ascontiguousarray(example.node_features), counts, labels, np.ascontiguousarray(weight))


def _count_neighbour_labels(example, labels, potentials):
    """Sum edge features for each node, its position in the edge, and the label of the neighbour, (N, T, R, 2 K)."""
    n_classes, n_features = potentials.n_classes, potentials.n_edge_features
    counts = np.zeros((example.n_nodes, potentials.n_edge_types, n_features, 2, n_classes))
    features, edge_type = example.edge_features, example.edge_type
    # Read the edge features only once, because some edge features are computed again at each access.
    features = np.empty((0, n_features)) if features is None else np.ascontiguousarray(features)
    edge_type = np.empty(0) if edge_type is None else edge_type
    count_neighbours(example.graph.edges, edge_type.astype(np.int32, copy=False), labels, features, counts)
    return counts.reshape(*counts.shape[:3], 2 * n_classes)


def _build_difference_factors(form):
    """Return the factors of weights in the score difference of states 1 and 0, (2 K, P)."""
    by_weight = form.sign[..., np.newaxis] * (form.index[..., np.newaxis] == np.arange(form.n_weights))
    return np.concatenate((by_weight[1] - by_weight[0], by_weight[:, 1] - by_weight[:, 0]))


def _build_table_columns(potentials, edge_coef):
    """Return the factors (M, n_columns) of the sums over neighbours in the scores of nodes."""
    if potentials.n_classes == 2:
        return edge_coef.reshape(-1, 1)
    tables = potentials.form.expand(edge_coef)
    return np.concatenate((np.swapaxes(tables, 2, 3), tables), axis=2).reshape(-1, potentials.n_classes)


def _pull_back_columns(potentials, columns):
    """Return the derivative with respect to the edge weights, by the adjoint of :func:`_build_table_columns`."""
    # columns: (n_columns, M), derivative with respect to the factors of the sums over neighbours
    shape = potentials.n_edge_types, potentials.n_edge_features
    if potentials.n_classes == 2:
        return columns.reshape(*shape, -1)
    first, second = np.split(columns.T.reshape(*shape, -1, potentials.n_classes), 2, axis=2)
    return potentials.form.adjoint(np.swapaxes(first, 2, 3) + second)
