"""Visits of one node at a time: arguments of the kernels, order of visits, labels to start with."""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sklearn_crf.models import check_labels

SCHEDULES = ("sequential", "checkerboard")

# Numbers in the buffers of partial sums of tables: where tables are untied there are many, and fewer ranges.
_BUFFER_SIZE = 2**22

# Nodes of one buffer: with fewer, calls cost more than threads save.
_SMALLEST_RANGE = 1024


class LocalArguments(NamedTuple):
    """A model as the kernels of :mod:`sklearn_crf.kernels.local_scores` take it, in their order."""

    unary: np.ndarray
    tables: np.ndarray
    agreement: np.ndarray  # (T, R) float64; (0, 0) where tables are not Potts
    edge_type: np.ndarray
    edge_weight: np.ndarray  # (E, R); (0, 0) where all are one
    ptr: np.ndarray
    neighbor: np.ndarray
    half_edge: np.ndarray


def local_arguments(model):
    """The arguments of ``model`` for kernels that look at one node given its neighbours."""
    ptr, neighbor, half_edge, _ = model.graph.incidence
    edge_weight = np.empty((0, 0), dtype=model.dtype) if model.edge_weight is None else model.edge_weight
    return LocalArguments(
        model.unary, model.tables, _agreement(model), model.edge_type, edge_weight, ptr, neighbor, half_edge
    )


def _agreement(model):
    if model.n_columns == 1 or not model.is_potts or not np.all(np.isfinite(model.tables)):
        return np.empty((0, 0))
    tables = model.tables.astype(np.float64)
    return np.ascontiguousarray(tables[..., 0, 0] - tables[..., 0, 1])


def visits(graph, schedule, frozen=None):
    """Arrays of nodes to visit one after the other; the nodes of a coloured array may be visited at once."""
    # frozen: (N,) bool or None, nodes that are left out
    if schedule == "sequential":
        groups = [np.arange(graph.n_nodes, dtype=np.int32)]
    else:
        nodes, ptr = graph.colouring
        groups = [nodes[a:b] for a, b in pairwise(ptr)]
    if frozen is not None:
        groups = [nodes[~frozen[nodes]] for nodes in groups]
    return groups


def sweep(run, groups, update, unary, *arguments):
    """Call ``update(nodes, start, stop, unary, *arguments, scores)`` over each group of :func:`visits` in turn."""
    # unary: (N, K)
    # update: a kernel that visits ``nodes[start:stop]``; ``scores`` is its workspace, (K,) float64
    # returns what the calls returned, in no particular order
    returned = []

    def part(nodes, start, stop):
        returned.append(update(nodes, start, stop, unary, *arguments, np.empty(unary.shape[1])))

    for nodes in groups:
        run(partial(part, nodes), len(nodes))
    return returned


def table_buffers(model, n_items):
    """Zeros for partial sums of tables, (n_ranges, T, R, K, K) float64.

    The number of ranges depends on the model alone, so that sums do not depend on the number of threads.
    """
    n_ranges = max(1, min(16, n_items // _SMALLEST_RANGE, _BUFFER_SIZE // max(model.tables.size, 1)))
    return np.zeros((n_ranges, *model.tables.shape))


def random_labels(model, rng):
    """Labels drawn evenly from the states that ``unary`` allows, (N,) int32."""
    allowed = ~np.isneginf(model.unary)
    rank = (rng.uniform(size=len(allowed)) * allowed.sum(axis=1)).astype(np.int64)
    return np.argmax(np.cumsum(allowed, axis=1) > rank[:, None], axis=1).astype(np.int32)


def best_alone(model):
    """The best label of each node without its neighbours, (N,) int32."""
    return np.argmax(model.unary, axis=1).astype(np.int32)


def given_labels(model, init):
    """A private copy of labels given as a start, checked against the model."""
    labels = check_labels(model, init).copy()
    forbidden = np.flatnonzero(np.isneginf(np.take_along_axis(model.unary, labels[:, None], axis=1)[:, 0]))
    if len(forbidden):
        s = forbidden[0]
        raise ValueError(f"init[{s}] is {labels[s]}, a state that unary forbids.")
    return labels
