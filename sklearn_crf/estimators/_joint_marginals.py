"""Joint marginals of neighbouring nodes of each example, and probabilities of entities on chains."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from sklearn_crf._numbers import as_integer
from sklearn_crf.inference import TreeInference


class EntityProbability(NamedTuple):
    """A run of nodes and the probability that it is an entity of a given kind."""

    kind: str
    start: int
    stop: int
    probability: float


def entity_probabilities(batch, model, kinds, goes_on, spans: Sequence, n_threads: int) -> list[list]:
    r"""Return the probability of each requested entity on chains, in one list of EntityProbability per chain.

    .. math:: p(y_s, \dots, y_e) = p(y_s) \prod_{t = s}^{e - 1} \frac{p(y_t, y_{t + 1})}{p(y_t)}

    The labels of two neighbouring nodes determine whether an entity continues from one node to the next. A run of nodes
    is an entity if its first node does not continue an entity, all its other nodes do, and the node after it does not.
    """
    # kinds, goes_on: see :func:`~sklearn_crf.metrics.continuations`
    # spans: one list of (kind, start, stop) for each chain of the batch
    inference = TreeInference()
    nodes = inference.marginals(model, n_threads=n_threads).unary.astype(np.float64)
    edges = inference.edge_marginals(model, n_threads=n_threads).astype(np.float64)
    found = []
    for number, (own, (a, b)) in enumerate(zip(spans, pairwise(batch.node_ptr), strict=True)):
        # A chain has one edge fewer than nodes.
        chain = nodes[a:b], edges[a - number : b - number - 1]
        of_chain = ((*span, _probability(*chain, kinds == span[0], goes_on, *span[1:])) for span in own)
        found.append([EntityProbability(*each) for each in of_chain])
    return found


def _probability(nodes, edges, is_kind, goes_on, start, stop):
    """Return the probability of one entity, given the marginals of the nodes and edges of its chain."""
    weight = (edges[start - 1] * ~goes_on).sum(axis=0) if start else nodes[start]
    weight = weight * is_kind
    for t in range(start, min(stop, len(nodes) - 1)):
        moves = goes_on if t + 1 < stop else ~goes_on
        weight = np.divide(weight, nodes[t], out=np.zeros_like(weight), where=nodes[t] > 0) @ (edges[t] * moves)
    return float(weight.sum())


def require_chains(batch):
    """Raise ValueError unless every example is a chain whose edges join consecutive nodes."""
    graph = batch.example.graph
    if graph.chain_ptr is None or not np.array_equal(graph.chain_ptr, batch.node_ptr):
        raise ValueError(
            f"At least one of the examples X[{batch.members[0]}] to X[{batch.members[-1]}] is not a chain: entities "
            "are only defined in sequences, where an edge joins each node to the next node."
        )


def checked_spans(spans, encoded):
    """Check the entities requested for each example and return them as (kind, start, stop) tuples."""
    if isinstance(spans, str) or not hasattr(spans, "__len__") or len(spans) != encoded.n_examples:
        found = f"{len(spans)} lists" if hasattr(spans, "__len__") else repr(spans)
        raise ValueError(f"spans must have a list of entities for each of {encoded.n_examples} examples, got {found}.")
    return [[_check_span(span, i, prod(encoded.label_shape(i))) for span in own] for i, own in enumerate(spans)]


def _check_span(span, i, n_nodes):
    if isinstance(span, str) or not hasattr(span, "__len__") or len(span) < 3:
        raise ValueError(f"spans[{i}] must hold entities, (kind, start, stop), got {span!r}.")
    start, stop = (as_integer(end, f"an end of {span!r} in spans[{i}]", highest=n_nodes) for end in span[1:3])
    if start >= stop:
        raise ValueError(f"spans[{i}] has {span!r}, which has no node: an entity must stop after its start.")
    return span[0], start, stop


def edges_of_members(batches, parts):
    """Split the edge marginals of batches into one array for each example."""
    marginals: list[np.ndarray] = []
    for batch, part in zip(batches, parts, strict=True):
        # Edges are stored example by example.
        first_nodes = batch.example.graph.edges[:, 0]
        member = np.searchsorted(batch.node_ptr, first_nodes, side="right") - 1
        ends = np.searchsorted(member, np.arange(len(batch.members) + 1))
        marginals.extend(part[a:b].copy() for a, b in pairwise(ends))
    return marginals


def require_no_factors(batch, method):
    """Raise ValueError if an example has factors besides nodes and edges."""
    if batch.example.has_factors:
        raise ValueError(f"X[{batch.members[0]}] has factors besides nodes and edges, which {method} does not support.")
