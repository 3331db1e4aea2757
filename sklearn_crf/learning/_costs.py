"""Costs of wrong labels of nodes, edges and factors, for training losses and predictions."""

from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_array
from sklearn.utils._param_validation import StrOptions

from sklearn_crf._numbers import as_reals
from sklearn_crf._options import options
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.encoding import check_cost, compute_class_weights, replace_fields, sort_cost_by_class
from sklearn_crf.models import SparseTable
from sklearn_crf.objectives import JointCost
from sklearn_crf.potentials import add_edge_costs


@options
class ErrorCost(HoldsOptions):
    r"""Costs of wrong labels of nodes, edges and factors.

    .. math:: \Delta(y, y^*) = \sum_s c(y_s, y^*_s) + \sum_{st} e(y_s, y_t, y^*_s, y^*_t) + \sum_f g_f [y_f \ne y^*_f]

    For the parameter ``cost`` of learning methods and of classifiers. Loss-augmented inference adds the costs to the
    scores of nodes, edges and factors, so that margins and softmax-margins of every learning method use them. Edges and
    factors with an unlabelled node have no costs. Source: Jancsary 2012, Eq. 66.

    Parameters
    ----------
    nodes : {"hamming", "weighted"}, array-like of shape (n_classes, n_classes) or None, default="hamming"
        Costs of nodes, as the parameter ``cost`` without this class. None stands for no costs of nodes.
    edges : {"boundary", "pairs"}, array-like of shape (n_classes,) * 4 or None, default=None
        Costs of edges. "boundary" is 1 if the labels of the edge are equal and should differ, or differ and should be
        equal. "pairs" is 1 if any of the two labels is wrong. An array has the cost ``edges[a, b, c, d]`` of labelling
        the first node a and the second node b, if their labels are c and d. It is non-negative, and zero if both labels
        are correct.
    factors : float or dict of str to float, default=0.0
        Cost of a factor with any wrong label, or dict of these costs by the type's name in ``Example.factors``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.learning import ErrorCost
    >>> y = np.zeros((4, 6, 6), dtype=int)
    >>> y[:, 2:4, 2:4] = 1
    >>> X = (y + 0.3 * np.random.default_rng(0).normal(size=y.shape))[..., np.newaxis]
    >>> field = M3NClassifier(cost=ErrorCost(edges="boundary"))
    >>> print(f"{field.fit(X, y).score(X, y):.2f}")
    0.97
    """

    _parameter_constraints: ClassVar[dict] = {
        "nodes": [StrOptions({"hamming", "weighted"}), "array-like", None],
        "edges": [StrOptions({"boundary", "pairs"}), "array-like", None],
        "factors": [Real, Mapping],
    }
    nodes: Any = "hamming"
    edges: Any = None
    factors: Any = 0.0


def sort_costs(cost: Any, classes: Any) -> Any:
    """Return costs in the sorted order of the classes, given costs in the order of the user's list of classes."""
    if not isinstance(cost, ErrorCost):
        return sort_cost_by_class(cost, classes)
    found = clone(cost)
    found._validate_params()
    return found.set_params(
        nodes=sort_cost_by_class(cost.nodes, classes), edges=sort_cost_by_class(cost.edges, classes)
    )


def edge_cost(cost: Any, n_classes: int) -> np.ndarray | None:
    """Return the costs of edges, (K, K, K, K), or None if edges have no costs."""
    edges = cost.edges if isinstance(cost, ErrorCost) else None
    if edges is None:
        return None
    shape = (n_classes,) * 4
    a, b, c, d = np.indices(shape, sparse=True)
    is_right = np.broadcast_to((a == c) & (b == d), shape)
    if isinstance(edges, str):
        return np.where((a == b) != (c == d) if edges == "boundary" else ~is_right, 1.0, 0.0)
    found = check_array(as_reals(edges, "edges"), dtype=np.float64, ensure_2d=False, allow_nd=True, input_name="edges")
    if found.shape != shape:
        raise ValueError(f"edges must have shape {shape} (one entry per class on each axis), got {found.shape}.")
    if np.any(found < 0):
        raise ValueError(f"edges must not be negative, found {found.min():g}.")
    if np.any(found[is_right]):
        raise ValueError("edges must be zero where both labels are correct: edges[c, d, c, d] = 0 for all c and d.")
    return found


def decision_costs(cost: Any, n_classes: int) -> np.ndarray:
    """Return the costs of nodes, (K, K), for predictions; raise ValueError for invalid costs of nodes or edges."""
    if not isinstance(cost, ErrorCost):
        return check_cost(cost, n_classes)
    if isinstance(cost.nodes, str) and cost.nodes == "weighted":
        raise ValueError('Predictions do not support nodes="weighted": pass a matrix of costs.')
    edge_cost(cost, n_classes)
    is_wrong = 1.0 - np.eye(n_classes)
    if cost.nodes is None:
        return 0.0 * is_wrong
    return is_wrong if isinstance(cost.nodes, str) else check_cost(cost.nodes, n_classes)


def cost_matrix(cost: Any, class_weight: np.ndarray | None, labels: Any) -> np.ndarray:
    """Return the matrix of costs of each state of a node for each true class of the node."""
    # class_weight: (K,), factors by which the costs at nodes of each true class are multiplied; None for no factors
    # returns (K, K) float64
    # cost: ErrorCost, "hamming", "weighted" or (K, K), ``cost[a, b]`` of predicting class a if the true class is b
    n_classes = len(labels.classes_)
    edge_cost(cost, n_classes)
    if isinstance(cost, ErrorCost):
        cost = np.zeros((n_classes, n_classes)) if cost.nodes is None else cost.nodes
    matrix = 1.0 - np.eye(n_classes) if isinstance(cost, str) else check_cost(cost, n_classes)
    if isinstance(cost, str) and cost == "weighted":
        matrix = matrix * compute_class_weights("balanced", labels)
    return matrix if class_weight is None else matrix * class_weight


def add_joint_costs(cost: Any, potentials: Any, batches: list) -> tuple[Any, list]:
    """Return potentials and batches whose models include the costs of edges and factors, for loss-augmented training.

    The costs are zero for the true labels.

    Parameters
    ----------
    cost : ErrorCost or other costs
    potentials : LinearPotentials or FactorPotentials
    batches : list of Batch

    Returns
    -------
    potentials : LinearPotentials or FactorPotentials
    batches : list of Batch
    """
    of_factors = factor_costs(cost, [kind.name for kind in getattr(potentials, "types", ())])
    batches = [_add_factor_costs(of_factors, batch) for batch in batches]
    edges = edge_cost(cost, potentials.n_classes)
    return (potentials, batches) if edges is None else add_edge_costs(potentials, edges, batches)


def set_joint_costs(cost: Any, potentials: Any, batches: list) -> tuple[Any, list]:
    """Return the potentials, and batches with the costs of edges and factors, for losses that are expected costs.

    Parameters
    ----------
    cost : ErrorCost or other costs
    potentials : LinearPotentials or FactorPotentials
    batches : list of Batch

    Returns
    -------
    potentials : LinearPotentials or FactorPotentials
    batches : list of Batch
    """
    of_factors = factor_costs(cost, [kind.name for kind in getattr(potentials, "types", ())])
    edges, n_classes = edge_cost(cost, potentials.n_classes), potentials.n_classes
    if edges is None and not of_factors:
        return potentials, batches
    pairs = np.zeros((n_classes,) * 4) if edges is None else edges
    # Row c * n_classes + d has the costs of all labels of an edge with the true labels c and d.
    pairs = np.ascontiguousarray(pairs.transpose(2, 3, 0, 1)).reshape(-1, n_classes, n_classes)

    def charge(batch: Any) -> Any:
        example, labels = batch.example, batch.counted_labels
        tail, head = labels[example.graph.edges.T]
        is_charged = (tail >= 0) & (head >= 0) & (edges is not None)
        kind = np.where(is_charged, tail * n_classes + head, -1).astype(np.int32)
        numbers = potentials.number_factors(example) if example.has_factors else {}
        n_others = sum(len(numbers[name]) for name in numbers if name) + len(example.fixed_factors)
        factors = np.zeros(example.n_nodes + example.graph.n_edges + n_others)
        for name in numbers.keys() & of_factors.keys():
            factors[numbers[name]] = of_factors[name] * (labels[example.factors[name].scope] >= 0).all(axis=1)
        return replace(batch, joint_cost=JointCost(pairs, kind, factors))

    return potentials, list(map(charge, batches))


def factor_costs(cost: Any, names: list[str]) -> dict[str, float]:
    """Return the cost of a wrong labeling of a factor by the name of its type, without types of cost zero."""
    # names: names of all types of factors
    given: Any = cost.factors if isinstance(cost, ErrorCost) else 0.0
    for value in given.values() if isinstance(given, Mapping) else [given]:
        if not isinstance(value, Real) or not 0 <= float(value) < np.inf:
            raise ValueError(f"factors must be finite and not negative, got {value!r}.")
    found = dict(given) if isinstance(given, Mapping) else dict.fromkeys(names, given)
    for name in found:
        if name not in names:
            raise ValueError(f"factors names the type {name!r}, but the types in training were {sorted(names)}.")
    return {name: float(value) for name, value in found.items() if value}


def _add_factor_costs(cost: dict[str, float], batch: Any) -> Any:
    """Add a fixed factor with the cost of wrong labels for each labelled factor with a cost; return the new batch."""
    # cost: dict from the name of a type of factors to the cost of a wrong labeling
    example, found = batch.example, []
    for name in filter(cost.__contains__, example.factors):
        scope = example.factors[name].scope
        found += [
            (nodes, SparseTable(truth[np.newaxis], np.zeros(1), default=cost[name]))
            for nodes, truth in zip(scope, batch.counted_labels[scope], strict=True)
            if (truth >= 0).all()
        ]
    if not found:
        return batch
    return replace(batch, example=replace_fields(example, fixed_factors=[*example.fixed_factors, *found]))
