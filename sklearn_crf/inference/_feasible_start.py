"""A labeling without forbidden pairs of states, for chains that never draw one."""

import numpy as np

from sklearn_crf._threads import checkpoint, range_runner
from sklearn_crf.inference._local_updates import local_arguments, sweep, visits
from sklearn_crf.kernels.icm import icm_update
from sklearn_crf.models import score_terms

# Each sweep removes violations; a few are enough where that is easy.
_REPAIR_SWEEPS = 100


def is_feasible(model, labels):
    """True if no node and no edge of a labeling has score -inf."""
    return not np.isneginf(score_terms(model, labels)).any()


def without_violations(model, labels):
    """Labels without forbidden pairs, near the given ones if they have some.

    Violations are removed node by node; where that gets stuck, from labels that satisfy a spanning forest. So
    on a forest a feasible labeling is found if there is one, elsewhere the result may still have violations.

    Parameters
    ----------
    model : PairwiseModel
    labels : ndarray of shape (N,), int32

    Returns
    -------
    ndarray of shape (N,), int32
        The labels themselves if nothing is forbidden in them.
    """
    if np.isfinite(model.tables).all() or is_feasible(model, labels):
        return labels
    repaired = _repaired(model, labels)
    if is_feasible(model, repaired):
        return repaired
    return _repaired(model, _feasible_on_spanning_forest(model))


def _repaired(model, labels):
    """The labels after sweeps of which each removes violations."""
    labels = labels.copy()
    arguments, groups = local_arguments(model), visits(model.graph, "sequential")
    with range_runner(1) as run:
        for _ in range(_REPAIR_SWEEPS):
            checkpoint()
            n_changed = sum(sweep(run, groups, icm_update, *arguments, labels))
            if not n_changed or is_feasible(model, labels):
                break
    return labels


def _feasible_on_spanning_forest(model):
    """Best labels one by one, from the roots of a spanning forest, among those that leave something to all below."""
    order, parent_slot = model.graph.forest
    _, neighbor, half_edge, _ = model.graph.incidence
    possible = ~np.isneginf(model.unary)
    allowed = ~np.isneginf(model.tables).any(axis=1)

    def allowed_with_parent(node):
        """Pairs (state of the node, state of its parent), and the parent."""
        slot = parent_slot[node]
        pairs = allowed[model.edge_type[half_edge[slot] >> 1]]
        return (pairs.T if half_edge[slot] & 1 else pairs), neighbor[slot]

    for node in order[::-1]:
        if parent_slot[node] >= 0:
            pairs, parent = allowed_with_parent(node)
            possible[parent] &= pairs[possible[node]].any(axis=0)
    labels = np.argmax(model.unary, axis=1).astype(np.int32)
    for node in order:
        if parent_slot[node] >= 0:
            pairs, parent = allowed_with_parent(node)
            possible[node] &= pairs[:, labels[parent]]
        if possible[node].any():
            labels[node] = np.argmax(np.where(possible[node], model.unary[node], -np.inf))
    return labels
