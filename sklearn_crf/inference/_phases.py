"""Several fixed points of belief propagation: where edges attract strongly, each is a phase of its own."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

from sklearn_crf.inference._base import Marginals
from sklearn_crf.inference.messages._belief_propagation import LoopyBP
from sklearn_crf.models import FactorGraph, PairwiseModel

# Phases of larger models outweigh each other by so much that one remains, and take long to find.
_MOST_NODES = 2000

# States that are favoured one after the other.
_MOST_PHASES = 5

# Sweeps that favour a state, and by how much of the largest attraction of an edge.
_SWEEPS, _FAVOUR = 20, 2.0

# Fixed points are alike up to this difference of a probability.
_ALIKE = 0.01


class PhaseState(NamedTuple):
    """State of a mixture: that of the run that favours nothing, and those of the others."""

    plain: Any
    favoured: tuple


def may_have_phases(model: PairwiseModel | FactorGraph) -> bool:
    r"""Whether equal states attract each other so strongly that messages may have several fixed points.

    Messages of a Potts model with gains :math:`g_e \ge 0` have one fixed point only if

    .. math:: \max_s \max_{e \ni s} \sum_{f \ni s, f \ne e} \tanh(g_f / 2) < 1,

    whatever the scores of nodes (J. Mooij and H. Kappen. Sufficient conditions for convergence of the sum-product
    algorithm. IEEE Trans. Information Theory 53, 2007).

    Parameters
    ----------
    model : PairwiseModel or FactorGraph

    Returns
    -------
    bool
    """
    if isinstance(model, FactorGraph) or model.graph.n_nodes > _MOST_NODES or not model.graph.n_edges:
        return False
    if model.n_columns < 2 or model.n_states is not None or not model.is_potts:
        return False
    gains = _gains_of_edges(model)
    if not np.all(gains >= 0):
        return False
    ends = model.graph.edges.ravel()
    influence = np.repeat(np.tanh(gains / 2), 2)
    total = np.bincount(ends, influence, model.graph.n_nodes)
    least = np.full(model.graph.n_nodes, np.inf)
    np.minimum.at(least, ends, influence)
    return bool(np.max(total[ends] - least[ends]) >= 1)


def mixture_of_phases(
    inference: LoopyBP, model: PairwiseModel, plain: Marginals, init: PhaseState | None, n_threads: int
) -> Marginals:
    r"""Marginals of all fixed points that are found, weighted by their Bethe log-partitions.

    .. math::
        p(y_s) = \sum_m w_m \, p_m(y_s), \qquad w_m \propto Z_m, \qquad \log Z = \log \sum_m Z_m

    Besides the messages that begin at nothing, others begin where one state is favoured at all nodes. Each phase has a
    fixed point of its own, and a single one of them, whichever messages happen to come to, can be far from the truth.

    Parameters
    ----------
    inference : LoopyBP
    model : PairwiseModel
        Of :func:`may_have_phases`.
    plain : Marginals
        Settled ones.
    init : PhaseState or None
        Of a former mixture.
    n_threads : int

    Returns
    -------
    Marginals
        With a :class:`PhaseState`.
    """
    runs, distinct = [plain], [plain]
    for place, state in enumerate(_likeliest_states(model)):
        start = _favouring(inference, model, state, n_threads) if init is None else init.favoured[place]
        found = inference._marginals(model, init=start, n_threads=n_threads)
        runs.append(found)
        if found.converged and all(np.abs(found.unary - other.unary).max() > _ALIKE for other in distinct):
            distinct.append(found)
        if init is None and len(runs) == 3 and len(distinct) == 1:
            # If there are phases at all, those of the two likeliest states differ.
            return plain
    mixed = _mixed(distinct) if len(distinct) > 1 else plain
    states = PhaseState(plain.state, tuple(run.state for run in runs[1:]))
    return mixed._replace(state=states, n_iter=sum(run.n_iter for run in runs))


def _gains_of_edges(model):
    gains = (model.tables[:, :, 0, 0].astype(np.float64) - model.tables[:, :, 0, 1])[model.edge_type]
    # An edge of weight zero whose states must be equal has no gain.
    with np.errstate(invalid="ignore"):
        return (gains if model.edge_weight is None else gains * model.edge_weight).sum(axis=1)


def _likeliest_states(model):
    nodes = model.unary.astype(np.float64)
    total = softmax(nodes, axis=1).sum(axis=0)
    return np.argsort(-total, kind="stable")[:_MOST_PHASES]


def _favouring(inference, model, state, n_threads):
    """Messages where one state has a higher score at all nodes."""
    gains = _gains_of_edges(model)
    unary = model.unary.copy()
    unary[:, state] += _FAVOUR * gains[np.isfinite(gains)].max(initial=1.0)
    rough = LoopyBP(max_iter=_SWEEPS, tol=inference.tol, damping=inference.damping)
    return rough._marginals(replace(model, unary=unary), n_threads=n_threads).state


def _mixed(runs):
    log_z = np.array([run.log_z for run in runs])
    weights = softmax(log_z)
    names = [*runs[0].statistics._fields, "log_z_terms"]
    means = {
        name: sum(w * getattr(run, name).astype(np.float64) for w, run in zip(weights, runs, strict=True))
        for name in names
        if getattr(runs[0], name) is not None
    }
    means["unary"] = means["unary"].astype(runs[0].unary.dtype)
    total = float(logsumexp(log_z))
    means["log_z_terms"] += (total - means["log_z_terms"].sum()) / len(means["log_z_terms"])
    return runs[0]._replace(log_z=total, bound=None, method=f"LoopyBP, {len(runs)} fixed points", **means)
