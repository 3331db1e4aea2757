"""Edge features: what the two ends of an edge say about it."""

import numpy as np
import scipy.sparse as sp


def difference(x_tail, x_head):
    """Edge features ``[1, |x_i - x_j|]``.

    Parameters
    ----------
    x_tail, x_head : ndarray of shape (E, F)
        Features of the first and of the second node of each edge.

    Returns
    -------
    ndarray of shape (E, 1 + F)

    Raises
    ------
    ValueError
        For sparse features: the differences would be dense.
    """
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
    """Edge features ``[1]``: pairwise terms that do not depend on the data.

    Parameters
    ----------
    x_tail, x_head : ndarray or CSR of shape (E, F)
        Features of the first and of the second node of each edge.

    Returns
    -------
    ndarray of shape (E, 1)
    """
    return np.ones((x_tail.shape[0], 1), dtype=x_tail.dtype)


#: Edge features by name; see :func:`register_edge_features`.
EDGE_FEATURES = {"difference": difference, "constant": constant}


def register_edge_features(name, function):
    """Give edge features a name, so that ``edge_features=name`` finds them.

    Parameters
    ----------
    name : str
    function : callable(x_tail, x_head) -> ndarray or CSR of shape (E, R)
        Gets the features (E, F) of the two ends of each edge; row e of the result may depend on row e alone.
        A function of a module can be pickled, a lambda cannot.

    Raises
    ------
    ValueError
        If the name belongs to another function already, or the function cannot be called.
    """
    if not callable(function):
        raise ValueError(f"function must be callable, got {function!r}.")
    if EDGE_FEATURES.setdefault(name, function) is not function:
        raise ValueError(f"Edge features named {name!r} are registered already.")


def edge_feature_function(edge_features):
    """The function behind ``edge_features``, a registered name or a callable.

    Parameters
    ----------
    edge_features : str or callable

    Returns
    -------
    callable(x_tail, x_head) -> ndarray or CSR of shape (E, R)

    Raises
    ------
    ValueError
        If the name is unknown, or it is neither name nor callable.
    """
    if callable(edge_features):
        return edge_features
    function = EDGE_FEATURES.get(edge_features) if isinstance(edge_features, str) else None
    if function is None:
        names = ", ".join(repr(name) for name in EDGE_FEATURES)
        raise ValueError(f"edge_features must be a callable or one of {names}, got {edge_features!r}.")
    return function


def compute_edge_features(function, node_features, edges):
    """Edge features of a graph, checked.

    Parameters
    ----------
    function : callable
        As :func:`edge_feature_function` returns.
    node_features : ndarray or CSR of shape (N, F)
    edges : ndarray of shape (E, 2)

    Returns
    -------
    ndarray or CSR of shape (E, R)
        In the precision of ``node_features``.

    Raises
    ------
    ValueError
        If the function gives another shape, or NaN or infinity.
    """
    values = function(node_features[edges[:, 0]], node_features[edges[:, 1]])
    values = values.tocsr() if sp.issparse(values) else np.asarray(values)
    if values.ndim != 2 or values.shape[0] != len(edges):
        raise ValueError(
            f"edge_features must return an array of shape (n_edges, n_edge_features), got {values.shape} "
            f"for {len(edges)} edges."
        )
    values = values.astype(node_features.dtype, copy=False)
    numbers = values.data if sp.issparse(values) else values
    if not np.isfinite(numbers.sum(dtype=np.float64)) and not np.all(np.isfinite(numbers)):
        raise ValueError("edge_features returned NaN or infinity.")
    return values


def one_computed_edge(function, node_features):
    """What a function gives an edge, to tell how many features these are and whether they are sparse.

    Parameters
    ----------
    function : callable
        As :func:`edge_feature_function` returns.
    node_features : ndarray or CSR of shape (N, F)
        Of one node or more; the first is tried on itself.

    Returns
    -------
    ndarray or CSR of shape (1, R)
    """
    return compute_edge_features(function, node_features[:1], np.zeros((1, 2), dtype=np.int32))
