"""Models whose scores include costs of wrong labels or a temperature, and the likelihoods of these models."""

from dataclasses import replace

import numpy as np

from sklearn_crf.models import FactorGraph, SegmentModel, check_labels, clamped, replace_unary, unite_factors
from sklearn_crf.objectives._base import Objective


def loss_augmented(model, labels, cost, node_weight=None):
    r"""Add the cost of every state to its unary score.

    .. math:: u_s(a) + \omega_s \, c_{a y_s}

    Nodes labelled -1 have no costs. In a factor graph, factors with costs come after all other factors.
    """
    # labels: (N,) int32; cost: (K, K), cost[a, b] of state a if b is the true state
    # node_weight: (N,), factor by which the cost of each node is multiplied
    labels = check_labels(model, labels, may_miss=True)
    # In a factor graph, ``cost`` may have more rows than the largest number of states of a node.
    least, shape = model.n_columns, np.shape(cost)
    if shape != (len(cost),) * 2 or len(cost) < least or (len(cost) > least and not isinstance(model, FactorGraph)):
        raise ValueError(f"cost must have shape {(least, least)}, got {shape}.")
    if not np.isfinite(cost).all():
        raise ValueError("cost must be finite, found NaN or infinity.")
    if node_weight is not None and not (np.shape(node_weight) == labels.shape and np.isfinite(node_weight).all()):
        raise ValueError(f"node_weight must be finite, of shape {labels.shape}, got shape {np.shape(node_weight)}.")
    # The last row, whose index is -1, contains the costs of nodes without a label.
    rows = np.concatenate((cost.T, np.zeros((1, len(cost)))))
    if node_weight is None and not isinstance(model, FactorGraph):
        rows = rows.astype(model.dtype, copy=False)
    added = rows.take(labels, axis=0, mode="wrap")
    if node_weight is not None:
        added *= node_weight[:, None]
    if isinstance(model, FactorGraph):
        return unite_factors(model, _build_node_factors(model.n_states, added))
    return replace_unary(model, model.unary + added.astype(model.dtype, copy=False))


def complete_labels(model, labels, node_weight, inference, n_threads=1):
    """Complete labels by MAP inference given the known labels; also return node weights, with 0 at completed nodes."""
    # labels: (N,) int32, -1 for missing labels; node_weight: (N,) or None
    # returns labels: (N,) int32; node_weight: (N,), or the argument node_weight if no label is missing
    known = labels >= 0
    if known.all():
        return labels, node_weight
    found = inference.map(clamped(model, labels), n_threads=n_threads).labels
    return np.where(known, labels, found), known * (1.0 if node_weight is None else node_weight)


def apply_temperature(model, temperature):
    """Divide all scores by a temperature; a temperature below one makes the distribution sharper."""
    if temperature == 1:
        return model
    scale = model.dtype.type(1 / temperature)
    if isinstance(model, SegmentModel):
        pairwise = apply_temperature(model.pairwise, temperature)
        of_runs = {name: getattr(model, name) * scale for name in ("durations", "ends", "spans", "means")}
        return replace(model, pairwise=pairwise, **of_runs)
    if isinstance(model, FactorGraph):
        return replace(model, log_table=model.log_table * scale, table_default=model.table_default * scale)
    return replace(model, unary=model.unary * scale, tables=model.tables * scale)


def _build_node_factors(n_states, scores):
    """Build a factor graph in which each node has one factor, with scores from a row of an array."""
    n_nodes = len(n_states)
    return FactorGraph(
        n_states=n_states,
        scope=np.arange(n_nodes),
        scope_ptr=np.arange(n_nodes + 1),
        table_id=np.arange(n_nodes),
        log_table=scores[np.arange(scores.shape[1]) < n_states[:, None]],
        table_ptr=np.concatenate(([0], np.cumsum(n_states))),
    )


class SoftmaxMargin(Objective):
    r"""Exact or approximate likelihood of a model with costs added to its scores, and with a temperature.

    .. math::
        \ell(\theta) = T \log Z\bigl((\theta + \Delta_{y^*}) / T\bigr) - \mathrm{score}(y^*; \theta), \qquad
        \Delta_{y^*}(y) = \sum_s \omega_s \, c_{y_s y^*_s}

    At :math:`T = 1` the loss without costs is the likelihood, and the loss with costs is the softmax-margin. As T falls
    to zero, the loss falls to the structured hinge. The difference is at most T times the largest entropy, because
    :math:`T \log Z(\cdot / T)` is the maximum of the expected score plus T times the entropy. The same bound is valid
    if :math:`\log Z` is replaced by a relaxation. Unlabelled nodes have no costs.
    Source: Gimpel and Smith 2010; Jancsary 2012, section 5.2.
    """

    # likelihood: loss at temperature one without costs, such as Likelihood or RelaxedLikelihood
    # cost: (K, K), cost[a, b] of state a if b is the true state, not negative, zero on the diagonal; None for no costs

    def __init__(self, likelihood, cost=None, temperature=1.0):
        self.likelihood = likelihood
        self.cost = None if cost is None else np.asarray(cost, dtype=np.float64)
        self.temperature = temperature
        self.needs, self.exact_on = likelihood.needs, likelihood.exact_on
        self.has_value, self.smooth, self.missing = likelihood.has_value, likelihood.smooth, likelihood.missing
        self.weighs_nodes = cost is not None or likelihood.weighs_nodes

    def augmented(self, model, labels, node_weight=None):
        if self.cost is not None:
            model = loss_augmented(model, labels, self.cost, node_weight)
        return apply_temperature(model, self.temperature)

    @property
    def is_settled(self):
        return self.likelihood.is_settled

    @property
    def noise(self):
        return self.likelihood.noise

    def settle(self, gradient=None):
        return self.likelihood.settle(gradient)

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1, node_weight=None):
        # If there are costs, node weights multiply only the costs, not the loss.
        weighs = self.cost is None and node_weight is not None
        options = {"node_weight": node_weight} if weighs else {}
        loss = self.likelihood.loss_statistics(
            self.augmented(model, labels, node_weight), labels, state=state, seed=seed, n_threads=n_threads, **options
        )
        # The derivatives need no factor, because the factor T of the loss cancels the division of scores by T.
        terms = None if loss.terms is None else self.temperature * loss.terms
        return loss._replace(terms=terms, gap=self.temperature * loss.gap)


def replace_likelihood(objective: Objective, likelihood: Objective) -> Objective:
    """Return an objective with another likelihood and the same costs and temperature."""
    if isinstance(objective, SoftmaxMargin):
        return SoftmaxMargin(likelihood, objective.cost, objective.temperature)
    return likelihood
