"""Where few nodes are labelled: lattices at a coarser scale, and the nodes that labels say something about."""

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import scipy.sparse as sp

from sklearn_crf.encoding import Batch, trusted_example
from sklearn_crf.graphs import lattice, trusted_graph
from sklearn_crf.objectives import EmpiricalRisk

# Default: nodes that training looks at, of an example.
MAX_NODES = 10_000

# Edges between a node and the nearest labelled one that are looked at in graphs of any size.
_LEAST_REACH = 4

# Edges between blocks count less by this power of the length of a block, since a border between blocks is many edges of
# pixels long: chosen on ten photographs with scribbles. With 0 pixels are smoothed too little, with 1 too far.
_EDGE_POWER = 0.5


def risk_of_few_labels(
    risk: EmpiricalRisk, reach: int | None = None, max_nodes: int | None = MAX_NODES
) -> EmpiricalRisk:
    """The risk of large lattices at a coarser scale, and of the nodes that labels reach, if few nodes are labelled.

    Near labels alone neighbours are alike, so that nothing would limit the weights of edges: what does is that labels
    have to change somewhere between strokes.
    """
    # reach: edges between a node and the nearest labelled one, None as far as max_nodes nodes of an example
    # max_nodes: None is no limit
    if max_nodes is not None:
        risk = risk.derived(partial(coarse_risk, max_nodes=max_nodes))
    return risk.derived(partial(risk_near_labels, reach=reach, max_nodes=max_nodes))


def coarse_risk(risk: EmpiricalRisk, max_nodes: int) -> EmpiricalRisk:
    """The risk of large lattices with few labels at a coarser scale; other examples stay as they are."""
    # max_nodes: that a lattice is reduced to, at most
    # returns the given one where there are no such lattices
    if risk.potentials.by_columns:
        return risk
    can_be_coarse = [_can_be_coarse(batch, max_nodes) for batch in risk.batches]
    if not any(can_be_coarse):
        return risk
    lengths = [
        _length(batch.example.graph.shape, max_nodes) if possible else 1
        for batch, possible in zip(risk.batches, can_be_coarse, strict=True)
    ]
    potentials, power = risk.potentials, _EDGE_POWER
    if not potentials.form.prefers_no_state:
        # Features would also divide what tables say of single states, which belongs beside the scores of nodes.
        power = 0.0
        if len(set(lengths)) == 1:
            potentials = copy.copy(potentials)
            potentials.form = potentials.form.softened(lengths[0] ** _EDGE_POWER)
    batches = [
        batch if length == 1 else _coarse(batch, length, power)
        for batch, length in zip(risk.batches, lengths, strict=True)
    ]
    return risk.having(potentials=potentials, batches=batches)


def _can_be_coarse(batch, max_nodes):
    example, graph = batch.example, batch.example.graph
    return (
        graph.n_nodes > max_nodes
        and graph.offsets is not None
        # Longer edges would not lead into the next block.
        and bool(np.all(np.abs(graph.offsets) <= 1))
        and 2 * np.count_nonzero(batch.labels >= 0) < graph.n_nodes
        and isinstance(example.node_features, np.ndarray)
        and example.node_type is None
        and example.n_states is None
        and not example.is_forest
        and not example.has_factors
    )


def _length(shape, max_nodes):
    """Length of the blocks of a lattice."""
    length = 2
    while np.prod(_in_blocks(shape, length)) > max_nodes:
        length += 1
    return length


def _in_blocks(shape, length):
    return tuple(-(-n // length) for n in shape)


def _coarse(batch, length, power):
    """A lattice of blocks of nodes, with means of their features and the label that most of their nodes have."""
    graph = batch.example.graph
    shape = _in_blocks(graph.shape, length)
    places = np.meshgrid(*(np.arange(n) // length for n in graph.shape), indexing="ij")
    block = np.ravel_multi_index(places, shape).ravel()
    blocks = lattice(shape, graph.offsets)
    example = trusted_example(
        _means(batch.example.node_features, block, blocks.n_nodes),
        blocks,
        **_coarse_edges(batch.example, block, blocks, length**power),
    )
    labels = _commonest(batch.labels, block, blocks.n_nodes)
    return Batch(example, batch.members, np.array([0, blocks.n_nodes]), labels, batch.weight)


def _coarse_edges(example, block, blocks, divisor):
    """Features of edges between blocks and types: of means over the edges that cross there along one offset."""
    tail, head = block[example.graph.edges].T
    offset = example.graph.lattice_edge_type
    # Edges between blocks by where they begin and their offset.
    number = np.full((blocks.n_nodes, len(blocks.offsets)), -1)
    number[blocks.edges[:, 0], blocks.lattice_edge_type] = np.arange(blocks.n_edges)
    joined = number[tail, offset]
    crossing = joined >= 0
    crossing[crossing] = blocks.edges[joined[crossing], 1] == head[crossing]
    joined = joined[crossing]
    features, types = example.edge_features, example.edge_type
    if features is None:
        features = np.ones((example.graph.n_edges, 1), dtype=example.node_features.dtype)
    first = np.zeros(blocks.n_edges, dtype=np.intp)
    first[joined[::-1]] = np.flatnonzero(crossing)[::-1]
    return {
        "edge_features": _means(features[crossing], joined, blocks.n_edges) / features.dtype.type(divisor),
        "edge_type": None if types is None else types[first],
    }


def _commonest(labels, group, n_groups):
    """The commonest label of each group, the lowest of several, -1 where there is none."""
    known = labels >= 0
    n_labels = int(labels.max(initial=0)) + 1
    votes = np.bincount(group[known] * n_labels + labels[known], minlength=n_groups * n_labels).reshape(n_groups, -1)
    return np.where(votes.any(axis=1), np.argmax(votes, axis=1), -1).astype(np.int32)


def _means(values, group, n_groups):
    """Means over the rows of each group."""
    n_rows = len(values)
    sums = sp.csr_matrix((np.ones(n_rows), (group, np.arange(n_rows))), shape=(n_groups, n_rows)) @ values
    return np.asarray(sums / np.bincount(group, minlength=n_groups)[:, None], dtype=values.dtype)


def risk_near_labels(risk: EmpiricalRisk, reach: int | None, max_nodes: int | None = None) -> EmpiricalRisk:
    """The risk of the nodes that labels reach, if that leaves out at least half of the nodes."""
    # returns the given one where labels reach most nodes, or where features are kept by column
    if risk.potentials.by_columns:
        return risk
    near = [_reached(batch, reach, max_nodes) for batch in risk.batches]
    if 2 * sum(np.count_nonzero(kept) for kept in near) > sum(len(kept) for kept in near):
        return risk
    batches = [subgraph(batch, kept) for batch, kept in zip(risk.batches, near, strict=True)]
    return risk.having(batches=batches)


def of_labelled_components(risk: EmpiricalRisk) -> EmpiricalRisk:
    """Return the risk of the components with a labelled node: the loss of others is zero for any weights."""
    parts = [_labelled_components(batch) for batch in risk.batches]
    return risk.having(batches=[part for part in parts if part is not None])


def _labelled_components(batch: Batch) -> Batch | None:
    """The components with a labelled node, of which those of no such node are independent; None without any."""
    kept = _reached(batch, None, None)
    if kept.all():
        return batch
    has_labels = np.add.reduceat(kept, batch.node_ptr[:-1]) > 0
    if not has_labels.any():
        return None
    if not isinstance(batch.example.node_features, np.ndarray):
        # Features that are kept by column cannot be taken apart.
        weight = np.ones(len(has_labels)) if batch.weight is None else batch.weight
        return replace(batch, weight=weight * has_labels)
    part = subgraph(batch, kept)
    sizes = np.diff(part.node_ptr)[has_labels]
    return replace(
        part,
        members=batch.members[has_labels],
        node_ptr=np.concatenate(([0], np.cumsum(sizes))),
        weight=None if batch.weight is None else batch.weight[has_labels],
    )


def _reached(batch, reach, max_nodes):
    """The nodes that labels reach: all that are joined to one, if there are not too many."""
    # returns (N,) bool
    near = batch.labels >= 0
    if reach is None:
        component = batch.example.graph.component
        joined = np.bincount(component[near], minlength=component.max(initial=-1) + 1)[component] > 0
        if max_nodes is None or np.count_nonzero(joined) <= max_nodes:
            return joined
    ends = batch.example.graph.edges.T
    for n_steps in range(1, (len(near) if reach is None else reach) + 1):
        farther = _with_neighbours(near, ends)
        if reach is None and n_steps > _LEAST_REACH and np.count_nonzero(farther) > max_nodes:
            return near
        near = farther
    return near


def _with_neighbours(near, ends):
    """Nodes, and those that an edge joins to one of them."""
    tail, head = ends
    found = near.copy()
    found[head[near[tail]]] = True
    found[tail[near[head]]] = True
    return found


def subgraph(batch: Batch, kept: np.ndarray) -> Batch:
    """The subgraph of some nodes of a batch."""
    # kept: (N,) bool
    example = batch.example
    inside = kept[example.graph.edges].all(axis=1)
    edges = (np.cumsum(kept) - 1)[example.graph.edges[inside]].astype(np.int32)

    def of(values, chosen):
        return None if values is None else values[chosen]

    part = trusted_example(
        example.node_features[kept],
        trusted_graph(int(np.count_nonzero(kept)), edges),
        of(example.edge_features, inside),
        of(example.node_type, kept),
        of(example.edge_type, inside),
        of(example.n_states, kept),
    )
    node_ptr = np.concatenate(([0], np.cumsum(kept)))[batch.node_ptr]
    node_weight = of(batch.node_weight, kept)
    return Batch(part, batch.members, node_ptr, of(batch.labels, kept), batch.weight, node_weight)
