"""Encoding of X by the lattice rule, with checks of X."""

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_array

from sklearn_crf._numbers import as_reals, convert_to_csr, is_sparse_matrix
from sklearn_crf._reports import warn_caller
from sklearn_crf.encoding import _tuning
from sklearn_crf.encoding._compact_lists import ChainList, RowFields
from sklearn_crf.encoding._edge_features import compute_one_edge, edge_feature_function
from sklearn_crf.encoding._encoded import Encoded, encode_row_fields
from sklearn_crf.encoding._examples import Example, get_stored_edge_types, make_trusted_example, replace_fields
from sklearn_crf.encoding._layouts import (
    align_frames,
    is_listed,
    read_layout,
    require_numeric_table,
    validate_rows,
)
from sklearn_crf.encoding._node_features import OperatorFeatures
from sklearn_crf.graphs import Graph, lattice, lattice_offsets


def encode_X(
    X,
    *,
    lattice_ndim=None,
    connectivity=1,
    edge_features="difference",
    edge_types="offset",
    dtype=(np.float64, np.float32),
    estimator=None,
    reset=True,
    allow_factors=False,
    allow_nan=False,
):
    """Encode X by the lattice rule: the last axis of an example contains features, all other axes form its lattice."""
    # connectivity: int or (n_offsets, lattice_ndim), default=1
    # edge_features: str or callable, default="difference"
    if edge_types not in ("offset", "tied"):
        raise ValueError(f"edge_types must be 'offset' or 'tied', got {edge_types!r}.")
    if isinstance(X, RowFields):
        return encode_row_fields(X, _require_finite(X.rows, "X", allow_nan=allow_nan))
    if lattice_ndim is None and not reset:
        # The number of axes is as in fit. Otherwise, a single image (H, W, F) would be read as a set of chains.
        lattice_ndim = getattr(estimator, "lattice_ndim_", None)
    if not reset and lattice_ndim != 0 and is_listed(X) and not len(X):
        # Read an empty list, such as an empty shard, as a list of one empty example, and then remove this example.
        nothing: Any = Example(np.zeros((0, estimator.n_features_in_)), []) if lattice_ndim is None else []
        options = {"connectivity": connectivity, "edge_features": edge_features, "edge_types": edge_types}
        found = encode_X([nothing], lattice_ndim=lattice_ndim, estimator=estimator, reset=False, **options)
        return found.take([])
    X, names = align_frames(X, None if reset else getattr(estimator, "feature_names_in_", None))
    layout, X = read_layout(X, lattice_ndim)
    function = edge_feature_function(edge_features)
    if layout == "nodes":
        return _encode_nodes(X, function, dtype, estimator, reset, allow_nan)
    if not reset and estimator is not None:
        _warn_of_names(names, estimator)
    n_features = None if reset else getattr(estimator, "n_features_in_", None)
    if layout == "array":
        encoded = _encode_array(X, connectivity, function, edge_types, dtype, reset, allow_nan)
    elif isinstance(X[0], Example):
        if not allow_factors:
            _require_no_factors(X, estimator)
        encoded = _encode_examples(X, function, dtype, n_features, allow_nan)
    else:
        n_jobs = getattr(estimator, "n_jobs", 1)
        encoded = _encode_lattices(X, connectivity, function, edge_types, dtype, n_jobs, n_features, allow_nan)
    if not reset and estimator is not None and encoded.n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {encoded.n_features} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input."
        )
    return encoded if names is None else replace(encoded, feature_names=names)


def _warn_of_names(names, estimator):
    """Warn, as scikit-learn does, if feature names were passed only in fit or only in prediction."""
    name = type(estimator).__name__
    fitted = hasattr(estimator, "feature_names_in_")
    if fitted and names is None:
        warn_caller(f"X does not have valid feature names, but {name} was fitted with feature names")
    elif names is not None and not fitted:
        warn_caller(f"X has feature names, but {name} was fitted without feature names")


def _encode_nodes(X, function, dtype, estimator, reset, allow_nan):
    if sp.issparse(X):
        X = convert_to_csr(X, "X")
    options = {"accept_sparse": "csr", "dtype": list(dtype), "order": "C"}
    if allow_nan:
        options["ensure_all_finite"] = "allow-nan"
    feature_names = None
    require_numeric_table(X)
    if estimator is None:
        X = check_array(X, input_name="X", **options)
    elif reset:
        # Validation sets attributes of a copy, so that a fitted estimator is unchanged if the fit fails later.
        probe = copy(estimator)
        X = validate_rows(probe, X, reset=True, **options)
        feature_names = getattr(probe, "feature_names_in_", None)
    else:
        X = validate_rows(estimator, X, reset=False, **options)
    return Encoded(
        layout="nodes",
        n_examples=X.shape[0],
        n_features=X.shape[1],
        lattice_ndim=0,
        edge_feature_function=function,
        n_edge_types=0,
        array=X,
        feature_names=feature_names,
        has_nan=allow_nan and _require_finite(X, "X", allow_nan=True),
    )


def _encode_array(X, connectivity, function, edge_types, dtype, needs_nodes, allow_nan):
    if 0 in (X.shape if needs_nodes else X.shape[-1:]):
        raise ValueError(
            f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required: no axis of X may be "
            "of length 0."
        )
    X = np.ascontiguousarray(as_reals(X, "X", X.dtype.type if X.dtype in dtype else dtype[0]))
    has_nan = _require_finite(X, "X", enumerate(X), allow_nan)
    graph = lattice(X.shape[1:-1], connectivity)
    assert graph.offsets is not None, "lattices have offsets"
    return Encoded(
        layout="array",
        n_examples=X.shape[0],
        n_features=X.shape[-1],
        lattice_ndim=X.ndim - 2,
        edge_feature_function=function,
        n_edge_types=len(graph.offsets) if edge_types == "offset" else 1,
        array=X,
        graph=graph,
        edge_type=edge_types,
        has_nan=has_nan,
    )


def _encode_lattices(X, connectivity, function, edge_types, dtype, n_jobs, n_features, allow_nan):
    # n_features: number of features in fit, or None during fit
    ndim = X[0].ndim - 1
    n_edge_types = 1 if edge_types == "tied" else len(lattice_offsets(ndim, connectivity))
    joinable = ChainList.of(X, dtype, n_jobs) if np.ndim(connectivity) == 0 else None
    kind, n_features = _find_form(X if joinable is None else X[:1], dtype, n_features)
    graphs: dict[tuple[int, ...], Graph] = {}
    items, shapes, has_nan = [], [], False
    for i, x in enumerate(X if joinable is None else []):
        shape = tuple(x.shape[:-1])
        x = np.zeros((*shape, n_features), kind) if 0 in shape else x
        _require_features(x, i, n_features)
        if shape not in graphs:
            graphs[shape] = lattice(shape, connectivity)
        features = as_reals(x, f"X[{i}]", kind)
        features = features if is_sparse_matrix(x) else features.reshape(-1, n_features)
        has_nan |= _require_finite(features, f"X[{i}]", allow_nan=allow_nan)
        items.append(make_trusted_example(features, graphs[shape], edge_type=edge_types))
        shapes.append(shape)
    return Encoded(
        layout="list",
        n_examples=len(X),
        n_features=n_features,
        lattice_ndim=ndim,
        edge_feature_function=function,
        n_edge_types=n_edge_types,
        items=items if joinable is None else joinable,
        shapes=shapes if joinable is None else list(zip(joinable.lengths.tolist(), strict=True)),
        has_nan=has_nan,
    )


def _find_form(arrays, dtype, n_features):
    """Return the common precision and the number of features of the arrays that have nodes."""
    # n_features: number of features in fit, or None during fit
    filled = [x for x in arrays if 0 not in x.shape[:-1]]
    if not filled and n_features is None:
        raise ValueError("X has no nodes, because all of its examples are empty: pass at least one node.")
    kinds = {x.dtype for x in filled}
    kind = kinds.pop().type if len(kinds) == 1 and next(iter(kinds)) in dtype else dtype[0]
    return kind, filled[0].shape[-1] if filled else n_features


def _encode_examples(X, function, dtype, n_features, allow_nan):
    kind, n_features = _find_form([x.node_features for x in X], dtype, n_features)
    nothing = make_trusted_example(np.zeros((0, n_features), kind), Graph(0, []))
    X = [x if x.n_nodes else nothing for x in X]
    items = []
    for i, x in enumerate(X):
        _require_features(x, i, n_features)
        items.append(_convert_precision(x, kind))
    has_nan = _require_finite_examples(X, allow_nan)
    encoded = Encoded(
        has_nan=has_nan,
        layout="list",
        n_examples=len(items),
        n_features=n_features,
        lattice_ndim=None,
        edge_feature_function=function,
        # Each graph and each array of types is checked only once, because thousands of examples may share it.
        n_edge_types=max(
            _count_types(x.edge_type) if x.graph.n_edges else 0
            for x in {(id(get_stored_edge_types(x)), id(x.graph)): x for x in items}.values()
        ),
        n_node_types=max(map(_count_types, {id(x.node_type): x.node_type for x in items}.values())),
        items=items,
        shapes=[(x.n_nodes,) for x in items],
    )
    _require_edge_features(items, function)
    if encoded.has_operators and (encoded.is_sparse or encoded.has_sparse_edges):
        raise ValueError(
            "X mixes node_features that are a linear operator with sparse node_features or edge_features: make all "
            "node_features operators (scipy.sparse.linalg.aslinearoperator) and all edge_features dense."
        )
    return encoded


def _require_no_factors(X, estimator):
    for i, x in enumerate(X):
        if x.has_factors:
            name = "this estimator" if estimator is None else type(estimator).__name__
            raise ValueError(f"X[{i}] has factors besides nodes and edges, which {name} does not support: use TRWCRF.")


def _require_features(x, i, n_features):
    if not x.shape[-1]:
        raise ValueError(f"X[{i}] of shape {tuple(x.shape)} has no features: the last axis needs at least one.")
    if x.shape[-1] != n_features:
        raise ValueError(
            f"X[{i}] has {x.shape[-1]} features, but X[0] has {n_features}: the last axis holds features and must "
            "be the same for all examples."
        )


def _require_edge_features(items, function):
    widths = [None if x.edge_features is None else x.edge_features.shape[1] for x in items]
    given = {width for width in widths if width is not None}
    if not given:
        return
    first = next(i for i, width in enumerate(widths) if width is not None)
    for i, (x, width) in enumerate(zip(items, widths, strict=True)):
        if width is None and x.graph.n_edges:
            width = compute_one_edge(function, x.node_features).shape[1]
        if width not in (None, widths[first]):
            raise ValueError(f"X[{i}] has {width} edge features, but X[{first}] has {widths[first]}.")


def _convert_precision(x, kind):
    edge_features = x.edge_features
    if x.node_features.dtype == kind and (edge_features is None or edge_features.dtype == kind):
        return x
    edge_features = None if edge_features is None else edge_features.astype(kind)
    return replace_fields(x, node_features=x.node_features.astype(kind), edge_features=edge_features)


@np.errstate(invalid="ignore", over="ignore")
def _require_finite_examples(X, allow_nan):
    """Raise ValueError if features contain infinity, or NaN that is not allowed; return whether they contain NaN.

    Short examples are concatenated and checked together, which is faster.
    """
    has_nan = False
    for start in range(0, len(X), _tuning.EXAMPLES_TOGETHER):
        lot = X[start : start + _tuning.EXAMPLES_TOGETHER]
        arrays = {id(part): part for x in lot for part in (x.node_features, x.edge_features) if part is not None}
        if _are_short_and_finite(arrays.values()):
            continue
        for i, x in enumerate(lot, start):
            has_nan |= _require_finite(x.node_features, f"X[{i}].node_features", allow_nan=allow_nan)
            if x.edge_features is not None:
                has_nan |= _require_finite(x.edge_features, f"X[{i}].edge_features", allow_nan=allow_nan)
    return has_nan


def _are_short_and_finite(arrays):
    if any(type(x) is not np.ndarray for x in arrays):
        return False
    # If all rows are views of the same memory, only one row is checked.
    arrays = [x[:1] if x.ndim == 2 and x.strides[0] == 0 else x for x in arrays]
    if sum(x.size for x in arrays) > _tuning.NUMBERS_TOGETHER:
        return False
    flat = np.concatenate([x.ravel() for x in arrays])
    with np.errstate(over="ignore"):
        return bool(np.isfinite(flat.dot(flat)))


def _require_finite(x, name, parts=None, allow_nan=False):
    """Raise ValueError if x contains infinity, or NaN that is not allowed; return whether x contains NaN.

    The message names the first of ``parts``, a list of pairs (index, part), that is not finite.
    """
    if isinstance(x, OperatorFeatures):
        x.check(name)
        return False
    values = x.data if is_sparse_matrix(x) else x
    if values.flags.c_contiguous:
        # For thousands of short sequences, this product is faster than NumPy's sum, which checks floating-point flags.
        flat = values.reshape(-1)
        with np.errstate(over="ignore"):
            if np.isfinite(flat.dot(flat)):
                return False
    with np.errstate(invalid="ignore", over="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)) or np.all(np.isfinite(values)):
            return False
    if allow_nan and not np.isinf(values).any():
        return True
    for i, part in parts or ():
        _require_finite(part, f"{name}[{i}]", allow_nan=allow_nan)
    if np.isnan(values).any():
        raise ValueError(
            f"{name} contains NaN: fill in missing values, for example with "
            "make_pipeline(NodeTransformer(SimpleImputer(add_indicator=True)), ...)."
        )
    raise ValueError(f"{name} contains infinity.")


def _count_types(types):
    return 1 if types is None else int(types.max()) + 1
