"""Segment models of random scores, and their labelings scored one by one."""

from itertools import groupby, product

import numpy as np
from scipy.special import logsumexp

from sklearn_crf.graphs import build_disjoint_union, lattice
from sklearn_crf.models import PairwiseModel, SegmentModel, SegmentStatistics


def random_segments(
    sizes,
    n_states,
    n_durations,
    *,
    scale=1.0,
    dtype=np.float64,
    seed=0,
    forbidden=0.0,
    n_types=1,
    n_edge_features=None,
    n_edge_types=1,
    min_duration=1,
    scores_runs=False,
):
    """Return a segment model of chains with random scores, a fraction of which are -inf."""
    rng = np.random.default_rng(seed)
    graph = build_disjoint_union([lattice((n,)) for n in sizes])

    def scores(*shape):
        values = scale * rng.normal(size=shape)
        values[rng.random(shape) < forbidden] = -np.inf
        return values.astype(dtype)

    n_features = n_edge_features or 1
    weight = None if n_edge_features is None else rng.uniform(0.1, 2, size=(graph.n_edges, n_features)).astype(dtype)
    pairwise = PairwiseModel(
        graph,
        scores(graph.n_nodes, n_states),
        scores(n_edge_types, n_features, n_states, n_states),
        edge_type=rng.integers(n_edge_types, size=graph.n_edges),
        edge_weight=weight,
    )
    types = rng.integers(n_types, size=len(sizes))
    durations = scores(n_types, n_states, n_durations)
    n = graph.n_nodes
    of_runs = {}
    if scores_runs:
        of_runs = {"ends": scores(2, n, n_states), "spans": scores(n, n_durations - 1, n_states)}
        of_runs["means"] = (scale * rng.normal(size=(n, n_states))).astype(dtype)
    return SegmentModel(pairwise, durations, types, min_duration, **of_runs)


def score_of(model, labels):
    """Return the score of a labeling, summed by a plain loop."""
    # Compute weighted tables in double precision, as the kernel does.
    weight, tables, total = model.pairwise.edge_weight, model.tables.astype(np.float64), 0.0
    weight = np.ones((model.graph.n_edges, 1)) if weight is None else weight.astype(np.float64)
    for s, label in enumerate(labels):
        total += float(model.unary[s, label])
    for e, (i, j) in enumerate(model.graph.edges.tolist()):
        total += float(weight[e] @ tables[model.pairwise.edge_type[e], :, labels[i], labels[j]])
    for kind, label, first, length, is_inside in runs_of_all(model, labels):
        if is_inside and length < model.min_duration:
            return -np.inf
        total += float(model.durations[kind, label, min(length, model.durations.shape[2]) - 1])
        if len(model.ends):
            total += float(model.ends[0, first, label]) + float(model.ends[1, first + length - 1, label])
        if length <= model.spans.shape[1]:
            total += float(model.spans[first, length - 1, label])
        if len(model.means):
            own = model.means[first : first + length, label].astype(np.float64)
            total += own.sum() / min(length, model.durations.shape[2])
    return total


def runs_of_all(model, labels):
    """Yield each run's table of durations, label, first node and length, and whether it touches no end of its chain."""
    ptr = model.graph.chain_ptr
    for kind, start, stop in zip(model.duration_type, ptr[:-1], ptr[1:], strict=True):
        lengths = [(label, len(list(run))) for label, run in groupby(labels[start:stop])]
        for k, (label, length) in enumerate(lengths):
            yield kind, label, start, length, 0 < k < len(lengths) - 1
            start += length


def enumerated(model):
    """Return the labelings, their scores, log Z, and the marginals as SegmentStatistics."""
    labelings = np.array(list(product(range(model.n_columns), repeat=model.n_nodes)))
    scores = np.array([score_of(model, labels) for labels in labelings])
    log_z = logsumexp(scores)
    names = SegmentStatistics._fields
    unary, tables, durations, ends, spans, means = (np.zeros(getattr(model, name).shape) for name in names)
    weight = model.pairwise.edge_weight
    weight = np.ones((model.graph.n_edges, 1)) if weight is None else weight
    shares = np.exp(scores - log_z) if log_z > -np.inf else np.zeros(len(scores))
    for labels, p in zip(labelings, shares, strict=True):
        unary[np.arange(len(labels)), labels] += p
        for e, (i, j) in enumerate(model.graph.edges.tolist()):
            tables[model.pairwise.edge_type[e], :, labels[i], labels[j]] += p * weight[e]
        for kind, label, first, length, _ in runs_of_all(model, labels):
            durations[kind, label, min(length, durations.shape[2]) - 1] += p
            if len(ends):
                ends[0, first, label] += p
                ends[1, first + length - 1, label] += p
            if length <= spans.shape[1]:
                spans[first, length - 1, label] += p
            if len(means):
                means[first : first + length, label] += p / min(length, durations.shape[2])
    return labelings, scores, log_z, SegmentStatistics(unary, tables, durations, ends, spans, means)
