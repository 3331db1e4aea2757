"""Labels that nothing forbids: the one search for them, and the one proof that there are none."""

from typing import Any

import numpy as np

from sklearn_crf._threads import checkpoint, range_runner
from sklearn_crf.inference._climbing import climbed
from sklearn_crf.inference._constraints import Refuted, TooManyConstraints, constraints_of
from sklearn_crf.inference._local_updates import local_arguments, sweep, visits
from sklearn_crf.inference._search_problem import search_problem
from sklearn_crf.kernels.local.constraint_search import ConstraintSearch
from sklearn_crf.kernels.local.icm import icm_update
from sklearn_crf.kernels.local.neighborhood_search import SearchWorkspace, annealing_sweep
from sklearn_crf.models import FactorGraph, score, score_terms

# Each sweep removes violations; a few are enough where that is easy.
_REPAIR_SWEEPS = 100

# Steps of a search before it gives up, some two seconds, and between two looks at Ctrl-C.
_MOST_STEPS, _STEPS_OF_A_CALL = 4e8, 5_000_000

# Steps that a search by scores may take beyond those of the first one, some tenths of a second.
_STEPS_OF_SCORES = 4e7

# Steps that may go into a shorter proof that there are no labels, and nodes of it that are left out one by one.
_STEPS_OF_A_PROOF, _NODES_LEFT_OUT = 2e7, 100


def is_feasible(model, labels):
    """True if no node and no edge of a labeling has score -inf."""
    return not np.isneginf(score_terms(model, labels)).any()


def allowed_labels(model, labels):
    """Labels with a score above -inf, near the given ones; None if the search for them ended without an answer."""
    # labels: (N,) int32
    # returns (N,) int32 or None; raises Refuted where there are none
    found = nearest_allowed(model, labels)
    return found if is_feasible(model, found) else None


def nearest_allowed(model, labels):
    """Labels that nothing forbids, or that break as few constraints as were found to be broken.

    Labels of a pairwise model are first repaired node by node. Then a search decides node after node, rules out what
    does not go with that, and learns from each conflict what was wrong. It runs once with the labels as they were, and
    once decides the node first whose best state is the farthest ahead of its second, by its own scores and what its
    neighbours still can add; of what they find the better one is taken. The search ends with
    labels, with a proof that there are none, or after a number of steps that depends on nothing else.
    """
    # labels: (N,) int32, or None
    # returns (N,) int32; raises Refuted where there are none
    if labels is None:
        labels = search_problem(model)[1].argmax(axis=1).astype(np.int32)
    if is_feasible(model, labels):
        return labels
    if not isinstance(model, FactorGraph):
        labels = _repaired(model, labels)
        if is_feasible(model, labels):
            return labels
    try:
        constraints = constraints_of(model)
    except TooManyConstraints:
        return _with_fewest_violations(model, [labels])
    first, found, n_steps = _searched(constraints, labels, _MOST_STEPS)
    if not found:
        return _with_fewest_violations(model, [labels, first])
    second, found, _ = _searched(constraints, labels, 2 * n_steps + _STEPS_OF_SCORES, by_scores=True)
    candidates = [climbed(model, part) for part in ([first, second] if found else [first])]
    return max(candidates, key=lambda labels: score(model, labels))


def _repaired(model, labels):
    """The labels after sweeps of which each removes violations."""
    labels = labels.copy()
    arguments, groups = local_arguments(model), visits(model.graph, "sequential")
    pending = np.ones(len(labels), dtype=np.uint8)
    with range_runner(1) as run:
        for _ in range(_REPAIR_SWEEPS):
            checkpoint()
            n_changed = sum(sweep(run, groups, icm_update, *arguments, labels, pending))
            if not n_changed or is_feasible(model, labels):
                break
    return labels


def _searched(constraints, guide, most_steps, by_scores=False):
    """Labels, whether they are allowed, and the number of steps."""
    search, labels, involved = _run(constraints, guide, None, most_steps, by_scores)
    status = search.finish(labels, involved)
    if status == _REFUTED:
        raise Refuted(np.flatnonzero(_core(constraints, involved, search.work)).tolist())
    return labels[: constraints.n_nodes], status == _FOUND, search.work


_FOUND, _REFUTED = 1, 2


def _run(constraints, guide, nodes, most_steps, by_scores=False):
    """A search among some nodes, or all, and arrays for its results."""
    n_all = len(constraints.first) - 1
    start = np.zeros(n_all, dtype=np.int32)
    start[: constraints.n_nodes] = guide
    active = np.ones(n_all, dtype=np.uint8) if nodes is None else constraints.active_nodes(nodes)
    search = ConstraintSearch(constraints, start, active, by_scores)
    while not search.advance(min(_STEPS_OF_A_CALL, int(most_steps - search.work) + 1)) and search.work < most_steps:
        checkpoint()
    return search, start, np.zeros(n_all, dtype=np.uint8)


def _core(constraints, involved, n_steps):
    """Few nodes among which there are no allowed labels, (N,) bool."""
    nodes = constraints.nodes_of(involved)
    left = _STEPS_OF_A_PROOF - constraints.n_entries
    guide, most_steps = np.zeros(constraints.n_nodes, dtype=np.int32), 2 * n_steps + 1000

    def try_with(fewer):
        nonlocal left
        search, labels, involved = _run(constraints, guide, fewer, min(most_steps, left))
        left -= search.work + constraints.n_entries
        return constraints.nodes_of(involved) if search.finish(labels, involved) == _REFUTED else None

    while left > 0:
        fewer = try_with(nodes)
        if fewer is None or fewer.sum() == nodes.sum():
            break
        nodes = fewer
    if nodes.sum() <= _NODES_LEFT_OUT:
        for node in np.flatnonzero(nodes):
            if nodes[node] and left > 0:
                without = nodes.copy()
                without[node] = False
                fewer = try_with(without)
                nodes = nodes if fewer is None else fewer
    return nodes


def _with_fewest_violations(model, candidates):
    """Of some labelings, each changed node by node as long as that removes violations, the one with the fewest."""
    arrays, unary = search_problem(model)
    workspace = SearchWorkspace(len(unary), len(arrays.table), unary.shape[1])
    found: list[Any] = []
    for labels in candidates:
        labels = np.array(labels, dtype=np.int32)
        cells = arrays.cells(unary, labels)
        for _ in range(_REPAIR_SWEEPS):
            checkpoint()
            if not annealing_sweep(arrays, unary, 0.0, 0, labels, cells, workspace)[2]:
                break
        found.append((_n_violations(model, labels), len(found), labels))
    return min(found)[2]


def _n_violations(model, labels):
    """Number of nodes and edges, or of factors, that forbid what they are given."""
    if isinstance(model, FactorGraph):
        groups = model.by_arity()
        return sum(int(np.isneginf(model.factor_scores(factors, labels[scope])).sum()) for factors, scope in groups)
    tails, heads = model.graph.edges.T
    pairs = model.tables[model.edge_type, 0, labels[tails], labels[heads]]
    return int(np.isneginf(pairs).sum() + np.isneginf(model.unary[np.arange(len(labels)), labels]).sum())
