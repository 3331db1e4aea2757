"""Two indicator features that mark the first and the last node of each sequence."""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from sklearn_crf.encoding._compact_lists import ChainList
from sklearn_crf.encoding._edge_features import leave_out_added
from sklearn_crf.encoding._examples import replace_fields


def append_boundaries(encoded):
    """Append indicators of first and last nodes to the features of sequences; a single row is both first and last."""
    n_axes = encoded.lattice_ndim or 0
    if n_axes > 1 or (encoded.layout == "array" and encoded.lattice_ndim is None):
        what = f"lattices of {n_axes} axes" if n_axes > 1 else "fields over labels"
        raise ValueError(
            f"boundary_weights=True needs sequences, but X holds {what}, which have no first node: use "
            "boundary_weights=False."
        )
    if encoded.has_operators:
        raise ValueError(
            "boundary_weights=True adds node features, but node_features in X is a linear operator: pass arrays or "
            "sparse matrices."
        )
    parts = {"array": encoded.array, "items": encoded.items}
    if encoded.layout == "nodes":
        parts["array"] = _append_columns(encoded.array, np.ones((encoded.n_examples, 2)))
    elif encoded.layout == "array":
        ends = np.zeros((*encoded.array.shape[:-1], 2))
        ends[:, 0, 0] = ends[:, -1, 1] = 1
        parts["array"] = _append_columns(encoded.array, ends)
    elif isinstance(encoded.items, ChainList):
        chains = list(map(_append_to_chain, encoded.items.chains))
        parts["items"] = ChainList.of(chains, (encoded.dtype,))
    else:
        parts["items"] = [
            replace_fields(x, node_features=_append_columns(x.node_features, _mark_ends(x))) for x in encoded.items
        ]
    return replace(
        encoded,
        n_features=encoded.n_features + 2,
        has_boundaries=True,
        edge_feature_function=leave_out_added(encoded.edge_feature_function, 2),
        **parts,
    )


def _mark_ends(example):
    """Return the two indicators (first node, last node) of all nodes of an example, (N, 2)."""
    ends = np.zeros((example.n_nodes, 2))
    for k, nodes in enumerate(example.graph.ends):
        ends[nodes, k] = 1
    return ends


def _append_columns(features, columns):
    """Append columns to features, in the format and precision of the features."""
    if sp.issparse(features):
        return sp.hstack([features, columns.astype(features.dtype)], format=features.format)
    return np.concatenate([features, columns.astype(features.dtype)], axis=-1)


def _append_to_chain(features):
    """Append indicators of the first and the last node to a chain, fast, because there may be thousands of chains."""
    n_nodes, n_features = features.shape
    if not sp.issparse(features):
        widened = np.zeros((n_nodes, n_features + 2), dtype=features.dtype)
        widened[:, :-2] = features
        widened[0, -2] = widened[-1, -1] = 1
        return widened
    # The new columns are the last columns, so their entries are inserted at the ends of rows.
    places = [features.indptr[1], len(features.indices)]
    indptr = features.indptr.copy()
    indptr[1:] += 1
    indptr[-1] += 1
    indices = np.insert(features.indices, places, [n_features, n_features + 1])
    widened = type(features)((n_nodes, n_features + 2), dtype=features.dtype)
    widened.data, widened.indices, widened.indptr = np.insert(features.data, places, 1), indices, indptr
    return widened
