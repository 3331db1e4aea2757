"""Conversion between pairwise models and factor graphs, and extraction of parts of a model."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from sklearn_crf.graphs import Graph, build_trusted_graph
from sklearn_crf.models._factor_graph import FactorGraph, build_trusted_factor_graph
from sklearn_crf.models._pairwise import PairwiseModel
from sklearn_crf.models._segments import SegmentModel


def factor_graph_of(model: PairwiseModel | FactorGraph) -> FactorGraph:
    """Convert a model to a factor graph with equal scores: one factor for each node, then one factor for each edge.

    Edges share a table if they have no weights, have the same type, and join nodes with equal numbers of states.

    Parameters
    ----------
    model : PairwiseModel or FactorGraph
        A factor graph is returned unchanged.

    Returns
    -------
    FactorGraph
        Factor s belongs to node s, and factor N + e belongs to edge e.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel, factor_graph_of
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> factor_graph_of(model).n_factors
    5
    """
    if isinstance(model, FactorGraph):
        return model
    graph = model.graph
    n_nodes, n_edges = graph.n_nodes, graph.n_edges
    n_states = _states(model)
    listed = np.arange(model.n_columns) < n_states[:, None]
    first, inverse, shapes = _find_distinct_tables(model)
    length = np.concatenate((n_states, np.prod(shapes, axis=1))).astype(np.int64)
    return build_trusted_factor_graph(
        n_states=n_states.astype(np.int32),
        scope=np.concatenate((np.arange(n_nodes, dtype=np.int32), graph.edges.ravel())),
        scope_ptr=np.concatenate((np.arange(n_nodes), n_nodes + 2 * np.arange(n_edges + 1))),
        table_id=np.concatenate((np.arange(n_nodes), n_nodes + inverse)).astype(np.int32),
        log_table=np.concatenate((model.unary[listed], model.edge_tables(first)[_mask_cells(shapes, model.n_columns)])),
        table_ptr=np.concatenate(([0], np.cumsum(length))),
    )


def _states(model):
    return np.full(model.graph.n_nodes, model.n_columns) if model.n_states is None else model.n_states


def _find_distinct_tables(model):
    """Return the first edge of each distinct edge table, the table index of each edge, and the shapes of the tables."""
    tails, heads = model.graph.edges.T
    n_states = _states(model)
    value = model.edge_type if model.edge_weight is None else np.arange(model.graph.n_edges)
    # key: (E,), a number that encodes the type (or index) of each edge and the shape of its table
    radix = model.n_columns + 1
    key = (value.astype(np.int64) * radix + n_states[tails]) * radix + n_states[heads]
    distinct, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first, inverse, np.stack((distinct // radix % radix, distinct % radix), axis=1)


def convert_to_pairwise_statistics(model: PairwiseModel, log_table: np.ndarray) -> np.ndarray:
    """Convert derivatives of a factor graph's tables to derivatives of the tables of its pairwise model."""
    # log_table: (n_cells,); returns: (T, R, K, K), float64
    first, _, shapes = _find_distinct_tables(model)
    pairs = np.zeros((len(first), model.n_columns, model.n_columns))
    start = int(_states(model).sum())
    # Tables of additional factors may follow the tables of the edges.
    pairs[_mask_cells(shapes, model.n_columns)] = log_table[start : start + int(np.prod(shapes, axis=1).sum())]
    n_types, n_features = model.tables.shape[:2]
    weight = np.ones((len(first), n_features)) if model.edge_weight is None else model.edge_weight[first]
    # Row t * R + r is the sum of the tables of the edges of type t, multiplied by their feature r.
    place = model.edge_type[first].astype(np.int64)[:, None] * n_features + np.arange(n_features)
    member = np.repeat(np.arange(len(first)), n_features)
    sums = sp.csr_array(
        (weight.astype(np.float64).ravel(), (place.ravel(), member)), shape=(n_types * n_features, len(first))
    )
    return (sums @ pairs.reshape(len(first), model.n_columns**2)).reshape(model.tables.shape)


def _mask_cells(shapes: np.ndarray, n_columns: int) -> np.ndarray:
    """Return a mask of the cells of padded tables that lie within the shape of each table."""
    # shapes: (n, 2), rows and columns of each table; returns: (n, K, K) of bool
    rows, columns = shapes[:, 0, None, None], shapes[:, 1, None, None]
    state = np.arange(n_columns)
    return (state[:, None] < rows) & (state < columns)


def pairwise_model_of(model: FactorGraph) -> PairwiseModel:
    """Convert a factor graph whose factors have at most two nodes to a pairwise model with equal scores.

    Factors on the same nodes are summed. An edge that represents a single factor has the direction of this factor, and
    shares its table with other such edges. Constants are added to the scores of node 0.

    Parameters
    ----------
    model : FactorGraph

    Returns
    -------
    PairwiseModel

    Raises
    ------
    ValueError
        If a factor has more than two nodes.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel, factor_graph_of, pairwise_model_of
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> pairwise_model_of(factor_graph_of(model)).graph
    Graph(n_nodes=3, n_edges=2)
    """
    too_large = np.flatnonzero(model.arity > 2)
    if len(too_large):
        f = too_large[0]
        raise ValueError(
            f"factor {f} has {model.arity[f]} nodes, but a pairwise model only supports factors of at most two nodes."
        )
    unary = np.where(np.arange(model.n_columns) < model.n_states[:, None], 0.0, -np.inf).astype(model.dtype)
    edges, edge_type, tables = np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=np.int64), []
    for factors, scope in model.by_arity():
        if scope.shape[1] == 2:
            edges, edge_type, tables = _collect_edges(model, factors, scope)
            continue
        for f, node in zip(factors, scope[:, 0] if scope.shape[1] else np.zeros(len(factors), int), strict=True):
            table = model.dense_table(f).ravel()
            unary[node, : model.n_states[node] if scope.shape[1] else None] += table
    shape = (len(tables), model.n_columns, model.n_columns)
    padded = np.zeros(shape if tables else (1, *shape[1:]), dtype=model.dtype)
    for t, table in enumerate(tables):
        padded[t, : table.shape[0], : table.shape[1]] = table
    same = bool(np.all(model.n_states == model.n_columns))
    return PairwiseModel(
        Graph(model.n_nodes, edges), unary, padded, edge_type, n_states=None if same else model.n_states
    )


def _collect_edges(model, factors, scope):
    """Return the edges, the type of each edge, and the table of each type.

    Edges are in the order of their first factors.
    """
    pair = np.sort(scope, axis=1)
    _, first, inverse = np.unique(pair, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.ravel()
    order = np.argsort(first)
    first, inverse = first[order], np.argsort(order)[inverse]
    is_single = np.bincount(inverse, minlength=len(first)) == 1
    shape = model.n_states[scope[first]]
    table_id = model.table_id[factors[first]]
    # Factors may share a count table even if their nodes have different numbers of states.
    key = np.stack((np.where(is_single, table_id, -1 - np.arange(len(first))), *shape.T), axis=1)
    _, edge_of_type, edge_type = np.unique(key, axis=0, return_index=True, return_inverse=True)
    members = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
    tables = []
    for e in edge_of_type:
        total = np.zeros(shape[e], dtype=model.dtype)
        for row in members[e]:
            table = model.dense_table(factors[row])
            total = total + (table if scope[row, 0] == scope[first[e], 0] else table.T)
        tables.append(total)
    return scope[first], edge_type.ravel(), tables


def extract_components(
    model: PairwiseModel | FactorGraph | SegmentModel, chosen: np.ndarray
) -> tuple[PairwiseModel | FactorGraph | SegmentModel, np.ndarray]:
    """Restrict a model to the chosen connected components; return the submodel and the indices of its nodes."""
    # chosen: (n_components,) of bool
    inside = chosen[model.component]
    part = _extract_chains(model, inside) if isinstance(model, SegmentModel) else extract_nodes(model, inside)
    return part, np.flatnonzero(inside)


def _extract_chains(model: SegmentModel, inside: np.ndarray) -> SegmentModel:
    """Return the model of the chains whose nodes are marked."""
    return replace(
        model,
        pairwise=_extract_pairwise_nodes(model.pairwise, inside),
        duration_type=model.duration_type[inside[model.chain_ptr[:-1]]],
        ends=model.ends[:, inside] if len(model.ends) else None,
        spans=model.spans[inside],
        means=model.means[inside] if len(model.means) else None,
    )


def extract_nodes(model: PairwiseModel | FactorGraph, inside: np.ndarray) -> PairwiseModel | FactorGraph:
    """Restrict a model to the given nodes, and to the factors whose nodes are all among the given nodes."""
    # inside: (N,) of bool
    if isinstance(model, FactorGraph):
        return _select_factors_inside(model, inside, np.cumsum(inside) - 1)
    return _extract_pairwise_nodes(model, inside)


def _extract_pairwise_nodes(model: PairwiseModel, inside: np.ndarray) -> PairwiseModel:
    """Return the pairwise model of the marked nodes and of the edges between them."""
    nodes, number = np.flatnonzero(inside), np.cumsum(inside) - 1
    edges = (
        np.flatnonzero(inside[model.graph.edges].all(axis=1)) if model.graph.n_edges else np.zeros(0, dtype=np.int64)
    )
    return replace(
        model,
        graph=build_trusted_graph(len(nodes), number[model.graph.edges[edges]].astype(np.int32).reshape(-1, 2)),
        unary=model.unary[nodes],
        edge_type=model.edge_type[edges],
        edge_weight=None if model.edge_weight is None else model.edge_weight[edges],
        n_states=None if model.n_states is None else model.n_states[nodes],
    )


def models_of_parts(model: PairwiseModel) -> list[PairwiseModel]:
    """Split a model into one model for each graph, if its graph is a disjoint union of graphs."""
    parts = model.graph.parts
    nodes = np.cumsum([0, *(part.n_nodes for part in parts)]).tolist()
    edges = np.cumsum([0, *(part.n_edges for part in parts)]).tolist()
    models = []
    for graph, of_nodes, of_edges in zip(parts, pairwise(nodes), pairwise(edges), strict=True):
        s, e = slice(*of_nodes), slice(*of_edges)
        models.append(
            replace(
                model,
                graph=graph,
                unary=model.unary[s],
                edge_type=model.edge_type[e],
                edge_weight=None if model.edge_weight is None else model.edge_weight[e],
                n_states=None if model.n_states is None else model.n_states[s],
            )
        )
    return models


def _select_factors_inside(model, inside, number):
    owner = np.repeat(np.arange(model.n_factors), model.arity)
    is_inside = np.bincount(owner, ~inside[model.scope], model.n_factors) == 0
    # Factors without nodes belong to the graph that contains the first node.
    is_inside[model.arity == 0] = inside[0]
    factors, slots = np.flatnonzero(is_inside), is_inside[owner]
    return replace(
        model,
        n_states=model.n_states[inside],
        scope=number[model.scope[slots]],
        scope_ptr=np.concatenate(([0], np.cumsum(model.arity[factors]))),
        table_id=model.table_id[factors],
    )
