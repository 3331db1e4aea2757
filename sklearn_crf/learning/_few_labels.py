"""Training with few labelled nodes: coarser lattices, and restriction to the nodes near labels."""

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import scipy.sparse as sp

from sklearn_crf.encoding import Batch, make_trusted_example, replace_fields
from sklearn_crf.graphs import build_trusted_graph, lattice
from sklearn_crf.objectives import EmpiricalRisk

# Default maximum number of nodes of an example that training uses.
MAX_NODES = 10_000

# Minimum reach. Whatever the size of the graph, training uses all nodes within this number of edges of a labelled node.
_LEAST_REACH = 4

# The edge features between two blocks are divided by the block length to this power.
# The reason for the division is that the border between two blocks consists of many pixel edges.
# The power was chosen on ten photographs with scribbles. A power of 0 gave too rough labels, a power of 1 too smooth.
_EDGE_POWER = 0.5


def reduce_risk_to_labels(
    risk: EmpiricalRisk, reach: int | None = None, max_nodes: int | None = MAX_NODES
) -> EmpiricalRisk:
    """If few nodes are labelled, return a risk of coarser lattices that is restricted to the nodes near labels.

    Close to a label, all neighbours have equal labels, so these nodes do not limit the weights of edges. The nodes
    farther away limit these weights, because labels have to change somewhere between two strokes.
    """
    # reach: maximum number of edges between a node and the nearest labelled node
    # With ``reach=None``, the reach is increased until an example has max_nodes nodes.
    # max_nodes: maximum number of nodes of an example; None for no limit
    if max_nodes is not None:
        risk = risk.derived(partial(coarsen_risk, max_nodes=max_nodes))
    return risk.derived(partial(restrict_risk_to_labels, reach=reach, max_nodes=max_nodes))


def coarsen_risk(risk: EmpiricalRisk, max_nodes: int) -> EmpiricalRisk:
    """Return a risk in which large lattices with few labels are reduced to a coarser scale."""
    # max_nodes: maximum number of nodes of a reduced lattice
    # returns the given risk itself unless some large lattice has few labels
    if risk.potentials.by_columns or risk.potentials.edge_costs is not None:
        return risk
    can_be_coarse = [_can_be_coarse(batch, max_nodes) for batch in risk.batches]
    if not any(can_be_coarse):
        return risk
    lengths = [
        _choose_block_length(batch.example.graph.shape, max_nodes) if possible else 1
        for batch, possible in zip(risk.batches, can_be_coarse, strict=True)
    ]
    potentials, power = risk.potentials, _EDGE_POWER
    if not potentials.form.prefers_no_state:
        # Full tables contain scores of single states, besides scores of pairs of states.
        # Scores of single states belong to nodes, so edge features of full tables must not be divided.
        power = 0.0
        if len(set(lengths)) == 1:
            potentials = copy.copy(potentials)
            potentials.form = potentials.form.softened(lengths[0] ** _EDGE_POWER)
    batches = [
        batch if length == 1 else _coarsen_batch(batch, length, power)
        for batch, length in zip(risk.batches, lengths, strict=True)
    ]
    return risk.having(potentials=potentials, batches=batches)


def _can_be_coarse(batch, max_nodes):
    example, graph = batch.example, batch.example.graph
    return (
        graph.n_nodes > max_nodes
        and graph.offsets is not None
        # An edge that is longer than a block might not end in the adjacent block.
        and bool(np.all(np.abs(graph.offsets) <= 1))
        and 2 * np.count_nonzero(batch.labels >= 0) < graph.n_nodes
        and isinstance(example.node_features, np.ndarray)
        and example.node_type is None
        and example.n_states is None
        and not example.is_forest
        and not example.has_factors
    )


def _choose_block_length(shape, max_nodes):
    """Return the smallest block length at which a lattice has at most `max_nodes` blocks."""
    length = 2
    while np.prod(_count_blocks(shape, length)) > max_nodes:
        length += 1
    return length


def _count_blocks(shape, length):
    return tuple(-(-n // length) for n in shape)


def _coarsen_batch(batch, length, power):
    """Reduce a lattice to blocks of nodes, with the mean features and the most common label in each block."""
    graph = batch.example.graph
    shape = _count_blocks(graph.shape, length)
    places = np.meshgrid(*(np.arange(n) // length for n in graph.shape), indexing="ij")
    block = np.ravel_multi_index(places, shape).ravel()
    blocks = lattice(shape, graph.offsets)
    example = make_trusted_example(
        _average_groups(batch.example.node_features, block, blocks.n_nodes),
        blocks,
        **_coarsen_edges(batch.example, block, blocks, length**power),
    )
    labels = _find_commonest_labels(batch.labels, block, blocks.n_nodes)
    return Batch(example, batch.members, np.array([0, blocks.n_nodes]), labels, batch.weight)


def _coarsen_edges(example, block, blocks, divisor):
    """Return the features and types of edges between blocks.

    Features are means over all original edges that join the two blocks and have the same offset.
    """
    tail, head = block[example.graph.edges].T
    offset = example.graph.lattice_edge_type
    # number: (n_blocks, n_offsets), index of the edge that leads from a block in the direction of an offset, or -1
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
        "edge_features": _average_groups(features[crossing], joined, blocks.n_edges) / features.dtype.type(divisor),
        "edge_type": None if types is None else types[first],
    }


def _find_commonest_labels(labels, group, n_groups):
    """Return the most common label of each group (the lowest in a tie), or -1 for a group without labels."""
    known = labels >= 0
    n_labels = int(labels.max(initial=0)) + 1
    votes = np.bincount(group[known] * n_labels + labels[known], minlength=n_groups * n_labels).reshape(n_groups, -1)
    return np.where(votes.any(axis=1), np.argmax(votes, axis=1), -1).astype(np.int32)


def _average_groups(values, group, n_groups):
    """Return the mean of the rows of each group."""
    n_rows = len(values)
    sums = sp.csr_matrix((np.ones(n_rows), (group, np.arange(n_rows))), shape=(n_groups, n_rows)) @ values
    return np.asarray(sums / np.bincount(group, minlength=n_groups)[:, None], dtype=values.dtype)


def restrict_risk_to_labels(risk: EmpiricalRisk, reach: int | None, max_nodes: int | None = None) -> EmpiricalRisk:
    """Restrict a risk to the nodes near labels, if the restriction excludes at least half of the nodes."""
    # returns the given risk itself if most nodes are near labels, or if features are stored by column
    if risk.potentials.by_columns or risk.potentials.edge_costs is not None:
        return risk
    near = [_mask_near_labels(batch, reach, max_nodes) for batch in risk.batches]
    if 2 * sum(np.count_nonzero(kept) for kept in near) > sum(len(kept) for kept in near):
        return risk
    batches = [subgraph(batch, kept) for batch, kept in zip(risk.batches, near, strict=True)]
    # The ends of a restricted chain may be inner nodes of the original chain, so all labels are allowed at ends.
    return risk.having(batches=batches, potentials=risk.potentials.without_ends())


def keep_labelled_components(risk: EmpiricalRisk) -> EmpiricalRisk:
    """Restrict a risk to the components with a labelled node; components without labels have no loss."""
    parts = [_keep_labelled_components(batch) for batch in risk.batches]
    return risk.having(batches=[part for part in parts if part is not None])


def _keep_labelled_components(batch: Batch) -> Batch | None:
    """Restrict a batch to the components with a labelled node; return None if no node is labelled."""
    kept = _mask_near_labels(batch, None, None)
    if kept.all():
        return batch
    has_labels = np.add.reduceat(kept, batch.node_ptr[:-1]) > 0
    if not has_labels.any():
        return None
    if not isinstance(batch.example.node_features, np.ndarray):
        # Features that are stored by column cannot be split by node.
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


def _mask_near_labels(batch, reach, max_nodes):
    """Return a mask of the nodes near labels; ``reach=None`` increases the reach up to ``max_nodes`` nodes."""
    # returns (N,) bool, mask of the nodes near labels
    near = batch.labels >= 0
    if reach is None:
        component = batch.example.graph.component
        joined = np.bincount(component[near], minlength=component.max(initial=-1) + 1)[component] > 0
        if max_nodes is None or np.count_nonzero(joined) <= max_nodes:
            return joined
    tail, head = batch.example.graph.edges.T
    for n_steps in range(1, (len(near) if reach is None else reach) + 1):
        farther = near.copy()
        farther[head[near[tail]]] = True
        farther[tail[near[head]]] = True
        if reach is None and n_steps > _LEAST_REACH and np.count_nonzero(farther) > max_nodes:
            return near
        near = farther
    return near


def subgraph(batch: Batch, kept: np.ndarray) -> Batch:
    """Restrict a batch to the subgraph of the selected nodes."""
    # kept: (N,) bool, mask of the selected nodes
    example = batch.example
    inside = kept[example.graph.edges].all(axis=1)
    edges = (np.cumsum(kept) - 1)[example.graph.edges[inside]].astype(np.int32)

    def of(values, chosen):
        return None if values is None else values[chosen]

    part = make_trusted_example(
        example.node_features[kept],
        build_trusted_graph(int(np.count_nonzero(kept)), edges),
        of(example.edge_features, inside),
        of(example.node_type, kept),
        of(example.edge_type, inside),
        of(example.n_states, kept),
    )
    if example.run_features is not None:
        part = replace_fields(part, run_features=example.run_features.select(kept))
    node_ptr = np.concatenate(([0], np.cumsum(kept)))[batch.node_ptr]
    node_weight = of(batch.node_weight, kept)
    return Batch(part, batch.members, node_ptr, of(batch.labels, kept), batch.weight, node_weight)
