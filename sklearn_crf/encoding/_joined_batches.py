"""Batches of single examples with cycles, joined to larger ones."""

import numpy as np

from sklearn_crf.encoding._examples import Batch, stacked, stacked_types, trusted_example
from sklearn_crf.graphs import disjoint_union, lattice


def joined_batches(batches, max_nodes=4096):
    """Batches in which small examples with cycles are together, as forests are from the start."""
    # returns edges of one member come one after the other
    return [union_of(group) for group in groups_to_join(batches, max_nodes)]


def groups_to_join(batches, max_nodes, may_join=None, one_weight=False):
    """Consecutive batches that can be joined."""
    # may_join: whether a batch with cycles may be joined with others; None is always
    # one_weight: whether examples of different weights stay apart
    groups: list[list] = []
    n_nodes = 0
    for batch in batches:
        alone = batch.example.graph.is_forest or not (may_join is None or may_join(batch))
        n_nodes += len(batch.labels)
        if alone or not groups or n_nodes > max_nodes or not _alike(groups[-1][-1], batch, one_weight):
            groups.append([batch])
            # Nothing joins what stays alone.
            n_nodes = np.inf if alone else len(batch.labels)
        else:
            groups[-1].append(batch)
    return groups


def _alike(a, b, one_weight):
    """Whether one example can hold both."""
    first, second = a.example, b.example
    return (
        (first.edge_features is None) == (second.edge_features is None)
        and (first.n_states is None) == (second.n_states is None)
        and (not one_weight or a.weight is None or a.weight[0] == b.weight[0])
    )


def union_of(batches, as_lattice=False):
    """One batch of several."""
    # as_lattice: lattices of one shape become one of an axis more, for which minimum cuts have kernels of their own
    if len(batches) == 1:
        return batches[0]
    examples = [batch.example for batch in batches]
    graphs = [example.graph for example in examples]
    graph, order = _stacked_lattices(graphs) if as_lattice else (None, slice(None))
    example = trusted_example(
        stacked([example.node_features for example in examples]),
        disjoint_union(graphs) if graph is None else graph,
        _in_order(stacked([example.edge_features for example in examples]), order),
        _types([example.node_type for example in examples], [example.n_nodes for example in examples]),
        _in_order(_types([example.edge_type for example in examples], [own.n_edges for own in graphs]), order),
        stacked([example.n_states for example in examples]),
    )
    sizes = np.concatenate([np.diff(batch.node_ptr) for batch in batches])
    return Batch(
        example,
        np.concatenate([batch.members for batch in batches]),
        np.concatenate(([0], np.cumsum(sizes))),
        np.concatenate([batch.labels for batch in batches]),
        stacked([batch.weight for batch in batches]),
        stacked([batch.node_weight for batch in batches]),
    )


def _stacked_lattices(graphs):
    """A lattice of lattices and its edges' places in the union, or None and all places."""
    first = graphs[0]
    if first.offsets is None or any(
        graph is not first
        and (graph.offsets is None or graph.shape != first.shape or not np.array_equal(graph.offsets, first.offsets))
        for graph in graphs
    ):
        return None, slice(None)
    stacked = lattice((len(graphs), *first.shape), np.pad(first.offsets, ((0, 0), (1, 0))))
    return stacked, np.argsort(np.tile(first.lattice_edge_type, len(graphs)), kind="stable")


def _in_order(values, order):
    return None if values is None else values[order]


def _types(parts, lengths):
    return None if all(part is None for part in parts) else stacked_types(parts, lengths)
