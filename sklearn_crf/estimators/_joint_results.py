"""Results that concern whole labelings: log-likelihoods, certificates, edge marginals, entity probabilities."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from sklearn_crf._numbers import as_integer
from sklearn_crf._threads import map_coarse
from sklearn_crf.encoding import Batch
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import TreeInference
from sklearn_crf.inference._proofs import Proof
from sklearn_crf.inference._results import Infeasible, Refuted
from sklearn_crf.inference.exact._segments import SegmentInference
from sklearn_crf.models import (
    PairwiseModel,
    SegmentModel,
    clamped,
    compute_score_terms,
    expand_edge_tables,
    extract_components,
    score,
)


class Certificates(NamedTuple):
    """Scores of predicted labelings, and upper bounds on the best possible scores.

    Attributes
    ----------
    scores : ndarray of shape (n_examples,)
        Scores of the predicted labelings.
    bounds : ndarray of shape (n_examples,)
        Upper bounds on the score of any labeling.
    gaps : ndarray of shape (n_examples,)
        Differences between bounds and scores. 0 proves that no labeling has a higher score.
    """

    scores: np.ndarray
    bounds: np.ndarray
    gaps: np.ndarray

    @property
    def optimal(self) -> np.ndarray:
        """For each example, whether the gap is zero up to rounding errors, which proves the labeling optimal."""
        return self.gaps <= 0


def certificates_of(models, labels, inference, named, n_jobs):
    """Return certificates for one labeling of each model.

    ``named[i]()`` is a context manager that adds the name of example i to errors.
    """

    def run(task, n_threads):
        model, labeling, name = task
        reached = score(model, labeling)
        with name():
            bound = max(inference.map(model, n_threads=n_threads).bound, reached)
            return reached, Proof(model).bound(reached, bound)

    found = map_coarse(run, zip(models, labels, named, strict=True), n_jobs)
    scores, bounds = np.array(found, dtype=np.float64).reshape(-1, 2).T
    return Certificates(scores, bounds, bounds - scores)


_OPPOSITE = {"exact": "exact", "upper": "lower", "lower": "upper"}


def log_likelihood_terms(model, labels, n_classes, inference, n_threads):
    """Return the log-likelihood of labels as one term per node, and the kinds of bounds on which it depends."""
    # labels: (N,), with -1 for missing labels, which are summed out, and n_classes for labels that are not classes
    # A label that is not a class has probability 0.
    # returns terms: (N,), whose sum over a connected component is the component's log-likelihood; bounds: list
    is_unknown = labels == n_classes
    labels = np.where(is_unknown, -1, labels)
    free, bound = _compute_log_z_terms(model, inference, n_threads)
    if np.all(labels >= 0):
        truth, bounds_of_truth = compute_score_terms(model, labels), ["exact"]
    else:
        truth, bounds_of_truth = _sum_out(clamped(model, labels), inference, n_threads)
    return np.where(is_unknown, -np.inf, truth - free), [_OPPOSITE.get(bound), *bounds_of_truth]


def _sum_out(model, inference, n_threads):
    """Return the terms of the log-partition, one for each node, and the kinds of bounds.

    Terms are -inf in components without an allowed labeling.
    """
    try:
        terms, bound = _compute_log_z_terms(model, inference, n_threads)
        return terms, [bound]
    except Infeasible as error:
        if not error.proven:
            raise
    n_components = model.n_components
    if n_components == 1:
        return np.full(model.n_nodes, -np.inf), ["exact"]
    # Bisection needs few steps, because most components have an allowed labeling.
    terms, bounds, is_first = np.empty(model.n_nodes), list[str | None](), np.arange(n_components) < n_components // 2
    for half in (is_first, ~is_first):
        part, nodes = extract_components(model, half)
        terms[nodes], kinds = _sum_out(part, inference, n_threads)
        bounds += kinds
    return terms, bounds


def _compute_log_z_terms(model, inference, n_threads):
    """Return terms of the log-partition, one for each node, and the kind of bound that their sum is."""
    if isinstance(model, SegmentModel):
        terms = np.zeros(model.n_nodes)
        terms[model.chain_ptr[:-1]] = SegmentInference().log_partitions(model, n_threads=n_threads)
        return terms, "exact"
    found = inference.marginals(model, n_threads=n_threads)
    if found.log_z_terms is None:
        raise ValueError(f"{type(inference).__name__} does not compute a log-partition: use inference='bp' or 'trw'.")
    return found.log_z_terms, found.bound


def common_bound(bounds):
    """Return the kind of bound that a sum is, given the kinds of its terms, or None if the sum is no bound."""
    # bounds: set of the kinds of bounds in the results of all batches: "exact", "upper", "lower" or None
    if None in bounds or {"upper", "lower"} <= bounds:
        return None
    return next(iter(bounds - {"exact"}), "exact")


class EntityProbability(NamedTuple):
    """Run of nodes, with the probability that the run is an entity of a given kind."""

    kind: str
    start: int
    stop: int
    probability: float


def entity_probabilities(batch, model, kinds, goes_on, spans: Sequence, n_threads: int) -> list[list]:
    r"""Compute the probability of each requested entity on chains; return a list of EntityProbability per chain.

    .. math:: p(y_s, \dots, y_e) = p(y_s) \prod_{t = s}^{e - 1} \frac{p(y_t, y_{t + 1})}{p(y_t)}

    The labels of two neighbouring nodes determine whether an entity continues from one node to the next. A run of nodes
    is an entity if its first node does not continue an entity, all other nodes in the run continue the entity, and the
    node after the run does not.
    """
    # kinds, goes_on: see :func:`~sklearn_crf.metrics.continuations`
    # spans: one list of (kind, start, stop) for each chain of the batch
    if isinstance(model, SegmentModel):
        return _weigh_entities_by_runs(batch, model, kinds, goes_on, spans, n_threads)
    inference = TreeInference()
    nodes = inference.marginals(model, n_threads=n_threads).unary.astype(np.float64)
    edges = inference.edge_marginals(model, n_threads=n_threads).astype(np.float64)
    found = []
    for number, (own, (a, b)) in enumerate(zip(spans, pairwise(batch.node_ptr), strict=True)):
        # The number of edges of a chain is the number of its nodes minus one.
        chain = nodes[a:b], edges[a - number : b - number - 1]
        of_chain = ((*span, _compute_entity_probability(*chain, kinds == span[0], goes_on, *span[1:])) for span in own)
        found.append([EntityProbability(*each) for each in of_chain])
    return found


def _weigh_entities_by_runs(
    batch: Batch, model: SegmentModel, kinds: np.ndarray, goes_on: np.ndarray, spans: Sequence, n_threads: int
) -> list[list]:
    """Compute the result of :func:`entity_probabilities` for segments, as ratios of two partition functions."""
    of_chains = SegmentInference().log_partitions(model, n_threads=n_threads)
    tables, found = expand_edge_tables(model.pairwise).tables, list[list]()
    for number, (own, (a, b)) in enumerate(zip(spans, pairwise(batch.node_ptr.tolist()), strict=True)):
        found.append([])
        for kind, start, stop in own:
            unary, of_edges = model.unary[a:b].copy(), np.zeros((max(b - a - 1, 1), *tables.shape[1:]), model.dtype)
            of_edges[: b - a - 1] = tables[a - number : b - number - 1]
            unary[start, kinds != kind] = -np.inf
            for e in range(max(start - 1, 0), min(stop, b - a - 1)):
                of_edges[e, 0][goes_on if e in (start - 1, stop - 1) else ~goes_on] = -np.inf
            part = PairwiseModel(lattice((b - a,)), unary, of_edges, edge_type=np.arange(b - a - 1))
            own_type = model.duration_type[number : number + 1]
            of_runs = own_type, model.min_duration, model.ends[:, a:b], model.spans[a:b], model.means[a:b]
            try:
                log_z = SegmentInference().log_partitions(SegmentModel(part, model.durations, *of_runs))[0]
            except Refuted:
                log_z = -np.inf
            found[-1].append(EntityProbability(kind, start, stop, float(np.exp(log_z - of_chains[number]))))
    return found


def _compute_entity_probability(nodes, edges, is_kind, goes_on, start, stop):
    """Compute the probability of one entity from the marginals of the nodes and edges of its chain."""
    weight = (edges[start - 1] * ~goes_on).sum(axis=0) if start else nodes[start]
    weight = weight * is_kind
    for t in range(start, min(stop, len(nodes) - 1)):
        moves = goes_on if t + 1 < stop else ~goes_on
        weight = np.divide(weight, nodes[t], out=np.zeros_like(weight), where=nodes[t] > 0) @ (edges[t] * moves)
    return float(weight.sum())


def require_chains(batch):
    """Raise ValueError unless every example is a chain in which edges join consecutive nodes."""
    graph = batch.example.graph
    if graph.chain_ptr is None or not np.array_equal(graph.chain_ptr, batch.node_ptr):
        raise ValueError(
            f"At least one of the examples X[{batch.members[0]}] to X[{batch.members[-1]}] is not a chain: entities "
            "are only defined in sequences, where an edge joins each node to the next node."
        )


def checked_spans(spans, encoded):
    """Check the entities requested for each example, and return them as tuples (kind, start, stop)."""
    if isinstance(spans, str) or not hasattr(spans, "__len__") or len(spans) != encoded.n_examples:
        found = f"{len(spans)} lists" if hasattr(spans, "__len__") else repr(spans)
        raise ValueError(f"spans must have a list of entities for each of {encoded.n_examples} examples, got {found}.")
    return [[_check_span(span, i, prod(encoded.label_shape(i))) for span in own] for i, own in enumerate(spans)]


def _check_span(span, i, n_nodes):
    if isinstance(span, str) or not hasattr(span, "__len__") or len(span) < 3:
        raise ValueError(f"spans[{i}] must hold entities of the form (kind, start, stop), got {span!r}.")
    start, stop = (as_integer(end, f"an end of {span!r} in spans[{i}]", highest=n_nodes) for end in span[1:3])
    if start >= stop:
        raise ValueError(f"spans[{i}] has {span!r}, which has no node: an entity must stop after its start.")
    return span[0], start, stop


def edges_of_members(batches, parts):
    """Split the edge marginals of batches into one array for each example."""
    marginals: list[np.ndarray] = []
    for batch, part in zip(batches, parts, strict=True):
        # In a batch, the edges of an example are stored together, in the order of the examples.
        first_nodes = batch.example.graph.edges[:, 0]
        member = np.searchsorted(batch.node_ptr, first_nodes, side="right") - 1
        ends = np.searchsorted(member, np.arange(len(batch.members) + 1))
        marginals.extend(part[a:b].copy() for a, b in pairwise(ends))
    return marginals


def require_no_factors(batch, method):
    """Raise ValueError if an example has factors besides nodes and edges."""
    if batch.example.has_factors:
        raise ValueError(f"X[{batch.members[0]}] has factors besides nodes and edges, which {method} does not support.")
