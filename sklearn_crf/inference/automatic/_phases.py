"""Mixtures of several fixed points of belief propagation (phases), which occur if edges are strong."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

from sklearn_crf.inference._base import run_map_unchecked, run_marginals_unchecked
from sklearn_crf.inference._local_search import random_labels
from sklearn_crf.inference._results import Marginals
from sklearn_crf.inference.automatic import _tuning
from sklearn_crf.inference.local._icm import ICM
from sklearn_crf.inference.local._neighborhood_search import LargeNeighborhoodSearch
from sklearn_crf.inference.messages._belief_propagation import LoopyBP
from sklearn_crf.models import FactorGraph, PairwiseModel, pairwise_model_of, unite_factors


class PhaseState(NamedTuple):
    """State of a mixture: state of the run from uniform messages, and states of runs that favoured a labeling."""

    plain: Any
    favoured: tuple


def is_large(model: PairwiseModel | FactorGraph) -> bool:
    """Return whether a search for all fixed points would take long."""
    if isinstance(model, FactorGraph):
        return model.n_nodes > _tuning.MOST_NODES_WITH_PHASES
    is_wide = _count_entries(model) > _tuning.MOST_ENTRIES_WITH_PHASES
    return model.graph.n_nodes > _tuning.MOST_NODES_WITH_PHASES or is_wide


def _count_entries(model):
    """Return the number of entries in the tables of all edges."""
    return model.graph.n_edges * model.n_columns**2


def may_have_phases(model: PairwiseModel | FactorGraph) -> bool:
    r"""Return whether edges are so strong that messages may have several fixed points.

    If the influence of an edge is

    .. math:: d_e = \max_{a, a', b, b'} \theta_e(a, b) + \theta_e(a', b') - \theta_e(a, b') - \theta_e(a', b),

    there is only one fixed point if

    .. math:: \max_s \max_{e \ni s} \sum_{f \ni s, f \ne e} \tanh(d_f / 4) < 1,

    for any scores of nodes (J. Mooij and H. Kappen. Sufficient conditions for convergence of the sum-product
    algorithm. IEEE Trans. Information Theory 53, 2007).
    """
    if isinstance(model, FactorGraph):
        return can_be_favoured(model) and may_have_phases(pairwise_model_of(model))
    if model.n_columns < 2 or not model.graph.n_edges:
        return False
    if not _is_tied(model) and _count_entries(model) > _tuning.MOST_ENTRIES_WITH_PHASES:
        return False
    ends = model.graph.edges.ravel()
    influence = np.repeat(np.tanh(_compute_influences(model) / 4), 2)
    total = np.bincount(ends, influence, model.graph.n_nodes)
    least = np.full(model.graph.n_nodes, np.inf)
    np.minimum.at(least, ends, influence)
    return bool(np.max(total[ends] - least[ends]) >= 1)


def can_be_favoured(model: PairwiseModel | FactorGraph) -> bool:
    """Return whether a factor graph suits a search for several fixed points: small, with arity at most two."""
    if not isinstance(model, FactorGraph):
        return False
    return bool(not is_large(model) and model.arity.max(initial=0) <= 2)


def add_node_factors(model: FactorGraph) -> FactorGraph:
    """Return a factor graph with an additional factor of zero scores for each node, after all other factors."""
    zero = [((node,), np.zeros(size, dtype=model.dtype)) for node, size in enumerate(model.n_states.tolist())]
    return unite_factors(model, FactorGraph.from_factors(model.n_states, zero))


def mix_phases(
    inference: LoopyBP,
    model: PairwiseModel | FactorGraph,
    plain: Marginals,
    init: PhaseState | None,
    search: bool,
    n_threads: int,
) -> Marginals:
    r"""Return marginals averaged over all fixed points found, weighted by their Bethe partition functions.

    .. math::
        p(y_s) = \sum_m w_m \, p_m(y_s), \qquad w_m \propto Z_m, \qquad \log Z = \log \sum_m Z_m

    ``error`` is the mean distance of fixed points from their average, because their weights are approximate. Besides
    uniform initial messages, message passing also starts from messages that favour a labeling: a constant labeling, or
    labels of high score. Each phase has its own fixed point. The marginals of a single fixed point, found by chance,
    can be far from the true marginals.
    """
    # model: pairwise model, or factor graph returned by add_node_factors
    # init: state of a mixture computed earlier
    # search: whether to also favour labels of high score
    distinct, n_iter = [plain], plain.n_iter
    starts = _iterate_starts(inference, model, search, n_threads) if init is None else iter(init.favoured)
    for number, start in enumerate(starts, 1):
        found = run_marginals_unchecked(inference, model, init=start, n_threads=n_threads)
        n_iter += found.n_iter
        if found.converged and all(np.abs(found.unary - other.unary).max() > _tuning.ALIKE for other in distinct):
            distinct.append(found)
        if init is None and number == _tuning.N_ALIKE_LABELINGS - (not search) and len(distinct) == 1:
            break
    states = PhaseState(plain.state, tuple(run.state for run in distinct[1:]))
    found = _mix(distinct) if len(distinct) > 1 else plain
    return found._replace(state=states, n_iter=n_iter)


def _is_tied(model):
    """Return whether the table of each edge is the table of its type, times a number."""
    return model.edge_weight is None or model.tables.shape[1] == 1


def _compute_influences(model):
    """Return the influence of each edge, (E,), see :func:`may_have_phases`; inf if pairs are forbidden."""
    is_tied = _is_tied(model)
    tables = model.tables[:, 0] if is_tied else model.edge_tables()
    allowed = np.isfinite(tables).all(axis=(1, 2))
    tables = np.where(allowed[:, None, None], tables, 0).astype(np.float64)
    largest = np.zeros(len(tables))
    for state in range(model.n_columns - 1):
        difference = tables[:, state + 1 :] - tables[:, state, None]
        np.maximum(largest, np.ptp(difference, axis=2).max(axis=1), out=largest)
    largest[~allowed] = np.inf
    if not is_tied:
        return largest
    largest = largest[model.edge_type]
    # A weight of zero removes the influence of forbidden pairs (0 * inf is NaN).
    return largest if model.edge_weight is None else np.nan_to_num(np.abs(model.edge_weight[:, 0]) * largest, nan=0.0)


def _iterate_starts(inference, model, search, n_threads) -> Iterator[Any]:
    """Yield initial messages, each computed by sweeps in which the scores of one labeling are increased."""
    pairwise = pairwise_model_of(model) if isinstance(model, FactorGraph) else model
    influences = _compute_influences(pairwise)
    favour = _tuning.FAVOUR * influences[np.isfinite(influences)].max(initial=1.0)
    rough = LoopyBP(max_iter=_tuning.FAVOURING_SWEEPS, tol=inference.tol, damping=inference.damping)
    for labels in _propose_labelings(pairwise, search):
        yield run_marginals_unchecked(rough, _favour(model, labels, favour), n_threads=n_threads).state


def _favour(model, labels, favour):
    """Return the model with the scores of one labeling increased."""
    if isinstance(model, PairwiseModel):
        unary = model.unary.copy()
        unary[np.arange(len(labels)), labels] += favour
        return replace(model, unary=unary)
    log_table, own = model.log_table.copy(), model.table_ptr[-1 - model.n_nodes : -1]
    log_table[own + np.minimum(labels, model.n_states - 1)] += favour
    return replace(model, log_table=log_table)


def _propose_labelings(model, search):
    """Yield labelings that may lead to different fixed points, the most informative labelings first."""
    n_nodes = model.graph.n_nodes
    constant = [np.full(n_nodes, state) for state in _find_likeliest_states(model)]
    if is_large(model):
        # A single fixed point usually dominates, but messages from a uniform start may not find it.
        climbed = run_map_unchecked(ICM(), model).labels
        yield from constant if np.ptp(climbed) == 0 else [climbed]
        return
    if not search:
        yield from constant
        return
    yield from constant[:2]
    work = _tuning.SWEEPS_OF_A_SEARCH * 2.0 * model.graph.n_edges * model.n_columns
    for seed in range(_tuning.N_SEARCHES):
        search_once = LargeNeighborhoodSearch(work, n_restarts=1, random_state=seed)
        yield run_map_unchecked(search_once, model).labels
    yield from constant[2:]
    rng = np.random.RandomState(0)
    for _ in range(_tuning.N_CLIMBS):
        yield run_map_unchecked(ICM(), model, init=random_labels(model, rng)).labels


def _find_likeliest_states(model):
    nodes = model.unary.astype(np.float64)
    total = softmax(nodes, axis=1).sum(axis=0)
    return np.argsort(-total, kind="stable")[: _tuning.N_FAVOURED_STATES]


def _mix(runs):
    log_z = np.array([run.log_z for run in runs])
    weights = softmax(log_z)
    means = average_results(runs, weights)
    total = float(logsumexp(log_z))
    means["log_z_terms"] += (total - means["log_z_terms"].sum()) / len(means["log_z_terms"])
    method = f"{runs[0].method}, {len(runs)} fixed points"
    unary = means["unary"]
    error = sum(
        w * 0.5 * float(np.abs(run.unary - unary).sum(axis=1).mean()) for w, run in zip(weights, runs, strict=True)
    )
    return runs[0].with_values(**means, log_z=total, bound=None, method=method, error=error)


def average_results(runs: list[Marginals], weights: np.ndarray) -> dict[str, np.ndarray]:
    """Return weighted means of node marginals, statistics and ``log_z_terms`` of several results."""
    values = [{"unary": run.unary, "log_z_terms": run.log_z_terms, **run.statistics._asdict()} for run in runs]
    means = {
        name: sum(w * value[name].astype(np.float64) for w, value in zip(weights, values, strict=True))
        for name in values[0]
    }
    means["unary"] = means["unary"].astype(runs[0].unary.dtype)
    return means
