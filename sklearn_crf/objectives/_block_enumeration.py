"""Marginals of many small models side by side, by enumeration of the joint states of each."""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from sklearn_crf.models import Statistics

# Joint states of a block up to which a table of them is the quickest way; and numbers in the tables of one step.
_MOST_STATES = 2**12
_STEP = 2**20


class BlockMarginals(NamedTuple):
    """Marginals of the blocks, as an inference gives them."""

    statistics: Statistics
    log_z_terms: np.ndarray


def takes_enumeration(size, n_columns):
    """Whether the joint states of the largest block are few."""
    return n_columns ** int(size.max(initial=0)) <= _MOST_STATES


def enumerated_marginals(model, start, size):
    """Marginals of blocks, each of which has consecutive nodes and edges to no other.

    Parameters
    ----------
    model : PairwiseModel
        In float64.
    start, size : ndarray of shape (n_blocks,)
        First node and number of nodes of each block.

    Returns
    -------
    BlockMarginals
    """
    unary, tables = np.zeros(model.unary.shape), np.zeros(model.tables.shape)
    terms = np.zeros(len(unary))
    for n_nodes, first, edges in _alike(model.graph, start, size):
        step = max(1, _STEP // model.n_columns**n_nodes)
        for begin in range(0, len(first), step):
            part = slice(begin, begin + step)
            _add_marginals(
                model, n_nodes, first[part], [(ends, row[part]) for ends, row in edges], unary, tables, terms
            )
    return BlockMarginals(Statistics(unary, tables), terms)


def _alike(graph, start, size):
    """Blocks of one shape together: nodes, first node of each, and for every edge its ends and its numbers."""
    owner = np.searchsorted(start, graph.edges[:, 0], side="right") - 1
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(len(start) + 1))
    groups = {}
    for block, first in enumerate(start):
        rows = order[bounds[block] : bounds[block + 1]]
        shape = int(size[block]), tuple(map(tuple, (graph.edges[rows] - first).tolist()))
        groups.setdefault(shape, []).append((first, rows))
    for (n_nodes, ends), members in groups.items():
        rows = np.array([rows for _, rows in members], dtype=np.int64).reshape(len(members), len(ends))
        yield n_nodes, np.array([first for first, _ in members]), list(zip(ends, rows.T, strict=True))


def _add_marginals(model, n_nodes, first, edges, unary, tables, terms):
    n_columns = model.n_columns
    joint = np.zeros((len(first), *[n_columns] * n_nodes))
    for node in range(n_nodes):
        joint += _spread(model.unary[first + node], (node,), n_nodes)
    for (tail, head), rows in edges:
        scores = model.edge_tables(rows)
        joint += _spread(scores if tail < head else scores.swapaxes(1, 2), sorted((tail, head)), n_nodes)
    axes = tuple(range(1, n_nodes + 1))
    log_z = logsumexp(joint, axis=axes, keepdims=True)
    terms[first] = log_z.ravel()
    joint = np.exp(joint - log_z)
    for node in range(n_nodes):
        unary[first + node] = joint.sum(axis=tuple(axis for axis in axes if axis != node + 1))
    for (tail, head), rows in edges:
        pairs = joint.sum(axis=tuple(axis for axis in axes if axis not in (tail + 1, head + 1)))
        pairs = pairs if tail < head else pairs.swapaxes(1, 2)
        weight = np.ones((len(rows), 1)) if model.edge_weight is None else model.edge_weight[rows]
        np.add.at(tables, model.edge_type[rows], weight[:, :, None, None] * pairs[:, None])


def _spread(values, positions, n_nodes):
    """Values of some nodes of each block as an array over the states of all."""
    shape = [1] * n_nodes
    for position in positions:
        shape[position] = values.shape[1]
    return values.reshape(len(values), *shape)
