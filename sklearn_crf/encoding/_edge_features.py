"""Edge features: registered functions, their computation from node features, scaling, and weighted sums."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf._numbers import as_reals
from sklearn_crf.encoding._node_features import OperatorFeatures, multiply_rows
from sklearn_crf.graphs import Graph
from sklearn_crf.kernels.graphs.graphs import absolute_differences
from sklearn_crf.kernels.graphs.graphs import weighted_differences as sum_of_differences


def difference(x_tail, x_head):
    """Compute the edge features ``[1, |x_i - x_j|]``."""
    # x_tail, x_head: (E, F); returns: (E, 1 + F)
    if sp.issparse(x_tail):
        raise ValueError(
            "edge_features='difference' would make sparse features dense: use edge_features='constant', "
            "or a function of your own."
        )
    features = np.empty((x_tail.shape[0], 1 + x_tail.shape[1]), dtype=x_tail.dtype)
    features[:, 0] = 1
    np.abs(np.subtract(x_tail, x_head, out=features[:, 1:]), out=features[:, 1:])
    return features


def constant(x_tail, x_head):
    """Return the edge features ``[1]``, with which pairwise scores do not depend on the data."""
    # x_tail, x_head: ndarray or CSR of shape (E, F); returns: (E, 1)
    return np.ones((x_tail.shape[0], 1), dtype=x_tail.dtype)


#: Functions that compute edge features, by name; see :func:`register_edge_features`.
EDGE_FEATURES = {"difference": difference, "constant": constant}


def register_edge_features(name: str, function: Callable[..., Any]) -> None:
    """Register a function that computes edge features, under a name for the parameter ``edge_features``.

    Parameters
    ----------
    name : str
    function : callable(x_tail, x_head) -> ndarray or CSR of shape (E, R)
        Takes two arrays of shape (E, F): the features of the first node of every edge, and the features of the second
        node. Row e of the result may only depend on row e of both arrays. A function that is defined in a module can be
        pickled, but a lambda cannot.

    Raises
    ------
    ValueError
        If the name is already registered for another function, or ``function`` is not callable.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import DRFClassifier
    >>> from sklearn_crf.encoding import register_edge_features
    >>> def contrast(x_tail, x_head):
    ...     return np.exp(-np.abs(x_tail - x_head).sum(axis=1, keepdims=True))
    >>> register_edge_features("contrast", contrast)
    >>> DRFClassifier(edge_features="contrast").edge_features
    'contrast'
    """
    if not callable(function):
        raise ValueError(f"function must be callable, got {function!r}.")
    if name == "auto" or EDGE_FEATURES.setdefault(name, function) is not function:
        raise ValueError(f"Edge features named {name!r} are registered already.")


def edge_feature_function(edge_features):
    """Return the function that computes edge features, given a registered name or the function itself."""
    # the function returns (E, R)
    if callable(edge_features):
        return edge_features
    function = EDGE_FEATURES.get(edge_features) if isinstance(edge_features, str) else None
    if function is None:
        names = ", ".join(repr(name) for name in ("auto", *EDGE_FEATURES))
        raise InvalidParameterError(f"edge_features must be a callable or one of {names}, got {edge_features!r}.")
    return function


@dataclass(frozen=True)
class SpacedEdges:
    r"""Edge features that depend on the distances between neighbours of a lattice.

    .. math:: [1, 1 / d] \text{ for } "constant", \qquad [1, 1 / d, |x_i - x_j| / d] \text{ for } "difference"

    The distance d is a multiple of the smallest spacing, so that its unit does not matter under a penalty.
    """

    function: Callable
    spacing: tuple[float, ...]

    @classmethod
    def of(cls, edge_features: Any, spacing: Any, encoded: Any) -> "SpacedEdges":
        """Make edge features from a name or function and a spacing; check that the spacing fits the lattices."""
        steps = as_reals(spacing, "spacing", np.float64)
        if steps.ndim != 1 or not np.all(np.isfinite(steps) & (steps > 0)):
            raise ValueError(f"spacing must be positive numbers, one for each axis of the lattice, got {spacing!r}.")
        if encoded.lattice_ndim not in (None, len(steps)):
            raise ValueError(
                f"spacing has {len(steps)} numbers, but X holds lattices of {encoded.lattice_ndim} axes: pass a number "
                "for each axis."
            )
        if encoded.has_own_edges:
            raise ValueError("spacing is for computed edge features, but X has edge_features: use spacing=None.")
        return cls(edge_feature_function(edge_features), tuple(steps.tolist()))

    def __call__(self, x_tail: Any, x_head: Any, distance: np.ndarray | None = None) -> Any:
        # distance: (E,), or None if only the number of features matters; returns: (E, R)
        distance = np.ones(x_tail.shape[0], x_tail.dtype) if distance is None else distance.astype(x_tail.dtype)
        if self.function not in (constant, difference):
            return self.function(x_tail, x_head, distance)
        given = self.function(x_tail, x_head)
        closeness = min(self.spacing) / distance
        return np.concatenate([given[:, :1], given * closeness[:, np.newaxis]], axis=1)

    def measure(self, graph: Graph) -> np.ndarray:
        """Return the length of each edge of a lattice, or of a union of lattices, (E,)."""
        return graph.keep(("lengths", self.spacing), lambda: np.concatenate(list(map(self._measure_part, graph.parts))))

    def _measure_part(self, part: Graph) -> np.ndarray:
        if part.offsets is None or part.offsets.shape[1] != len(self.spacing):
            found = "a graph without offsets" if part.offsets is None else f"{part.offsets.shape[1]} axes"
            raise ValueError(
                f"spacing needs lattices of {len(self.spacing)} axes, got {found}: pass edge_features with each "
                "Example whose graph is not such a lattice."
            )
        return np.linalg.norm(part.offsets * self.spacing, axis=1)[part.lattice_edge_type]


def _call_on_inputs(function, n_added, x_tail, x_head, *distance):
    """Compute edge features from all node features except the last ``n_added``, which are not features of X."""
    return function(x_tail[:, :-n_added], x_head[:, :-n_added], *distance)


def leave_out_added(function: Callable, n_added: int) -> Callable:
    """Wrap a function of edge features, to hide the last ``n_added`` node features, which are not features of X."""
    return function if function is constant or not n_added else partial(_call_on_inputs, function, n_added)


def get_function_of_inputs(function: Callable) -> Callable:
    """Return the function that :func:`leave_out_added` wrapped, or the given function itself if it is not wrapped."""
    while isinstance(function, partial) and function.func is _call_on_inputs:
        function = function.args[0]
    return function


def scale_edge_features(features, edge_type, scale):
    """Divide the features of each edge by the scales of the edge's type, in the precision of the features."""
    # features: (E, R); edge_type: (E,) or None; scale: (n_edge_types, R)
    return features / scale.astype(features.dtype)[0 if edge_type is None else edge_type]


def sum_weighted_edges(features, edge_type, weights):
    """Return, for each edge, the sum of its features, each multiplied by its weight for the edge's type."""
    # features: (E, R); weights: (n_edge_types, R); returns: (E,), in the precision of the features
    sums = multiply_rows(features, weights)
    if edge_type is None or len(weights) == 1:
        return sums[:, 0]
    return np.take_along_axis(sums, edge_type[:, np.newaxis], axis=1)[:, 0]


def weighted_differences(node_features, edges, edge_type, weights):
    """Compute :func:`sum_weighted_edges` for the features of :func:`difference`, without storing the features."""
    # node_features: (N, F); edges: (E, 2); edge_type: (E,) or None; weights: (n_edge_types, R); returns: (E,)
    if isinstance(node_features, np.ndarray) and node_features.flags.c_contiguous:
        sums = np.empty(len(edges), dtype=node_features.dtype)
        kind = np.empty(0, dtype=np.int32) if edge_type is None or len(weights) == 1 else edge_type
        sum_of_differences(node_features, edges, kind, np.ascontiguousarray(weights, dtype=np.float64), sums)
        if np.isfinite(sums).all():
            return sums
    return sum_weighted_edges(compute_edge_features(difference, node_features, edges), edge_type, weights)


def compute_edge_features(function, node_features, edges, graph=None):
    """Compute the edge features of a graph by a user's or registered function, and check the result."""
    # node_features: (N, F); edges: (E, 2)
    # graph: graph of the edges, which is needed if features depend on distances
    # returns: (E, R), in the precision of ``node_features``
    if function is constant:
        # Constant features need no copies of the node features of both ends of all edges.
        return np.ones((len(edges), 1), dtype=node_features.dtype)
    if isinstance(node_features, OperatorFeatures):
        raise ValueError(
            "edge features cannot be computed from a linear operator as node_features, which has no entries: "
            "use edge_features='constant', or pass edge_features with each Example."
        )
    if function is difference and isinstance(node_features, np.ndarray) and node_features.flags.c_contiguous:
        # Differences are computed without copies of the node features of both ends of all edges.
        values = np.empty((len(edges), 1 + node_features.shape[1]), dtype=node_features.dtype)
        if absolute_differences(node_features, np.ascontiguousarray(edges, dtype=np.int32), values):
            return values
    spaced = get_function_of_inputs(function)
    lengths = (spaced.measure(graph),) if graph is not None and isinstance(spaced, SpacedEdges) else ()
    values = function(node_features[edges[:, 0]], node_features[edges[:, 1]], *lengths)
    values = as_reals(values, "what edge_features returned", node_features.dtype)
    if values.ndim != 2 or values.shape[0] != len(edges):
        raise ValueError(
            f"edge_features must return an array of shape (n_edges, n_edge_features), got {values.shape} "
            f"for {len(edges)} edges."
        )
    numbers = values.data if sp.issparse(values) else values
    if not np.isfinite(numbers.sum(dtype=np.float64)) and not np.all(np.isfinite(numbers)):
        raise ValueError("edge_features returned NaN or infinity.")
    return values


def compute_one_edge(function, node_features):
    """Compute the features of one edge, to find their number and whether they are sparse."""
    # node_features: (N, F) with N >= 1; the edge joins the first node with itself
    # returns: (1, R)
    return compute_edge_features(function, node_features[:1], np.zeros((1, 2), dtype=np.int32))
