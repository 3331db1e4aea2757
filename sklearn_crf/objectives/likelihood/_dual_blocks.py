"""Blocks of the dual problem of a relaxed likelihood, each for one batch of examples."""

from dataclasses import replace
from typing import Any

import numpy as np

from sklearn_crf.inference import compute_consistent_statistics, convergence_left_to_caller
from sklearn_crf.models import (
    FactorGraph,
    FactorStatistics,
    Statistics,
    compute_labeling_statistics,
    expand_edge_tables,
    replace_scores,
)
from sklearn_crf.objectives._base import clamp_known_labels

# Initial score of the true label of each node. All other states of the node start with score 0.
_FIRST_SCORE = 10.0

# Minimum difference between a parameter and the largest parameter of the same factor.
# At this difference, the probability of a state is far smaller than rounding errors, but not zero.
_LOWEST_SCORE = -300.0


class DualBlock:
    r"""One batch in the dual problem of a penalised likelihood, in which marginals are the unknowns.

    .. math::
        \max_\tau \; C \sum_i \omega_i \tilde H(\tau_i) - \tfrac12 \lVert w(\tau) \rVert^2, \qquad
        w(\tau) = C \sum_i \omega_i B(x_i)^\top (\phi(y_i) - \tau_i)

    Marginals and their exponential parameters are vectors with one entry for each state of each node and one entry for
    each entry of the tables. Edges that share a table share its entries, as parameters are sums of scores.
    Source: Jancsary 2012, CRF recipe 5.
    """

    # risk: risk of a RelaxedLikelihood, which may be wrapped in a SoftmaxMargin; i: index of the batch
    # weight: C times the weight of the batch
    # start: (n_coef,), point x, at which the marginals of the first step are computed
    # Unlabelled nodes get marginals given the labelled nodes in place of labels, computed at the point ``start``.
    # scale: (n_coef,) or float; the weights are w = scale * x, and x is penalised

    def __init__(self, risk, i, weight, start, scale=1.0):
        batch, objective = risk.batches[i], risk.objective
        self._potentials, self._example, self._first = risk.potentials, batch.example, start
        self._temperature = objective.temperature
        self._likelihood = getattr(objective, "likelihood", objective)
        # The trees of the risk's warm start, if training chooses trees.
        self._state = None if risk.carried[i] is None else risk.carried[i][0]
        self.weight, self.n = weight, risk.potentials.n_coef
        self.touched = self._potentials.find_touched_weights(batch.example)
        self._scale = np.broadcast_to(scale, self.n)
        self._batch, self._objective = batch, objective
        # At zero weights, the model contains only costs, scores of fixed factors, and -inf for forbidden states.
        self._model = self._build_augmented_model(np.zeros(self.n))
        self._allowed = np.isfinite(_flatten_parameters(self._model))
        # A factor graph with known labels has additional tables after the tables of the model. They are cut off.
        fields = zip(_list_fields(self._compute_true_statistics(batch)), _list_fields(self._model), strict=True)
        self.truth = np.concatenate([np.ravel(part).astype(np.float64)[: own.size] for part, own in fields])
        self.costs = self.scores(np.zeros(self.n))
        self._tightened = None

    @classmethod
    def of_risk(cls, risk, C, start, scale):
        """Return one block for each batch with positive weight; each batch contains one example."""
        weights = [1.0 if batch.weight is None else batch.weight[0] for batch in risk.batches]
        return [cls(risk, i, C * weight, start, scale) for i, weight in enumerate(weights) if weight > 0]

    def _build_augmented_model(self, x):
        """Return the model on which inference runs at a point x."""
        model = self._potentials.model(self._scale * x, self._example)
        return self._objective.augmented(model, self._batch.labels, self._batch.node_weight)

    def _compute_true_statistics(self, batch: Any) -> Statistics | FactorStatistics:
        """Return the statistics of the labels; unlabelled nodes have marginals at the initial weights instead."""
        observed = clamp_known_labels(self._build_augmented_model(self._first), batch.labels)
        if observed is None:
            return compute_labeling_statistics(self._model, batch.labels)
        with convergence_left_to_caller(), batch.named_in_errors():
            return self._likelihood.inference.marginals_for_learning(observed).statistics

    def start(self):
        """Compute initial parameters from the initial weights, or from the labels if the initial weights are zero."""
        if self._first.any():
            return self.scores(self._first) / self._temperature
        # Parameters computed from the labels correspond to weights near zero.
        # Do not start from uniform marginals, which may correspond to weights far larger than the best weights.
        return np.where(self._belongs_to_nodes(), _FIRST_SCORE * self.truth, 0.0)

    def _belongs_to_nodes(self):
        """Return a mask of the parameters that belong to single nodes."""
        model = self._model
        if isinstance(model, FactorGraph):
            is_single = np.zeros(model.n_tables, dtype=bool)
            is_single[model.table_id[model.arity == 1]] = True
            return np.concatenate((np.repeat(is_single, np.diff(model.table_ptr)), is_single))
        return np.arange(len(self.truth)) < model.unary.size

    def scores(self, x):
        """Return the scores plus costs of wrong states at a point x, as a vector with 0 for forbidden states."""
        scores = _flatten_parameters(self._build_augmented_model(x))
        return np.where(self._allowed, self._temperature * scores, 0.0)

    def forward(self, parameters):
        """Compute the marginals of given parameters, and the entropy of these marginals."""
        model = self._model_at(parameters)
        found = self._likelihood.inference.marginals_for_learning(model, init=self._state)
        self._state = found.state
        marginals = _flatten_parameters(found.statistics)
        return marginals, found.log_z - float(parameters @ marginals)

    def feasible(self, parameters):
        """Return marginals that are consistent at every edge and close to the marginals of the given parameters.

        Messages are only consistent in the limit of many sweeps. On graphs without cycles, the result equals the result
        of :meth:`forward`.
        """
        model = self._model_at(parameters)
        if isinstance(model, FactorGraph):
            with convergence_left_to_caller():
                found, self._tightened = compute_consistent_statistics(model, self._tightened)
            return self.truth if found is None else _flatten_parameters(found)
        if model.graph.is_forest:
            return self.forward(parameters)[0]
        weight = np.ones((model.graph.n_edges, 1)) if model.edge_weight is None else model.edge_weight
        untied = expand_edge_tables(model)
        found = self._likelihood.inference.marginals_for_learning(untied, init=self._state)
        nodes = found.unary.astype(np.float64)
        nodes /= nodes.sum(axis=1, keepdims=True)
        pairs = fit_pairs(found.tables[:, 0], *(nodes[ends] for ends in model.graph.edges.T))
        if pairs[np.isneginf(untied.tables[:, 0])].any():
            # If forbidden pairs would need positive probabilities, return the labels, which are always feasible.
            return self.truth
        sums = np.zeros(model.tables.shape)
        np.add.at(sums, model.edge_type, weight[:, :, None, None] * pairs[:, None])
        return np.concatenate((nodes.ravel(), sums.ravel()))

    @staticmethod
    def compute_feasible_dual(blocks, parameters):
        """Return the dual value at temperature zero, at feasible marginals near the marginals of the given parameters.

        The dual value at inconsistent marginals may exceed the maximum.
        """
        x, gain = np.zeros(blocks[0].n), 0.0
        for block, own in zip(blocks, parameters, strict=True):
            marginals = block.feasible(own)
            gain += block.weight * float(block.costs @ (marginals - block.truth))
            x[block.touched] += block.weight * block.pullback(block.truth - marginals)
        return gain - 0.5 * float(x @ x)

    def bounded(self, parameters):
        """Return parameters that have nearly the same marginals, but differ by at most 300 within each factor.

        The largest parameter of each node and of each table is zero.
        """
        parameters = np.where(self._allowed, parameters, -np.inf)
        highest = self._find_highest(*self._parts(parameters))
        return np.where(self._allowed, np.maximum(parameters - np.nan_to_num(highest), _LOWEST_SCORE), 0.0)

    def _find_highest(self, first, second):
        """Return, for each parameter, the largest parameter of the same node or table."""
        model = self._model
        if isinstance(model, FactorGraph):
            table = np.repeat(np.arange(model.n_tables), np.diff(model.table_ptr))
            highest = second.copy()
            np.maximum.at(highest, table, first)
            return np.concatenate((highest[table], highest))
        return np.concatenate(
            [
                np.ravel(np.broadcast_to(part.max(axis=axes, keepdims=True), part.shape))
                for part, axes in ((first, -1), (second, (-2, -1)))
            ]
        )

    def pullback(self, marginals):
        """Return the derivative with respect to the scaled weights that the batch depends on, given the marginals."""
        kind = FactorStatistics if isinstance(self._model, FactorGraph) else Statistics
        pulled = self._potentials.pullback(self._example, kind(*self._parts(marginals)))
        return (self._scale * pulled)[self.touched]

    def _model_at(self, parameters):
        """Return the model whose scores are the given parameters."""
        parts = self._parts(np.where(self._allowed, parameters, -np.inf))
        if isinstance(self._model, FactorGraph):
            return replace_scores(self._model, *parts)
        return replace(self._model, unary=parts[0], tables=parts[1])

    def _parts(self, vector):
        """Split a vector of parameters or marginals into arrays that have the shapes of the model's scores."""
        shapes = [part.shape for part in _list_fields(self._model)]
        n = int(np.prod(shapes[0]))
        return vector[:n].reshape(shapes[0]), vector[n:].reshape(shapes[1])


def fit_pairs(pairs, first, second):
    """Return joint probabilities near ``pairs`` whose row and column sums are the given marginals of both nodes.

    First, rows and then columns with too large sums are scaled down. Then the missing mass of rows and columns is added
    as the product of the row part and the column part (Altschuler, Weed, Rigollet 2017).
    """
    # pairs: (E, K, K), joint probabilities of the nodes of each edge
    # first, second: (E, K), marginals of the first and second node of each edge, whose rows sum to one
    pairs = np.maximum(pairs, 0.0)
    for ends, axis in ((first, 2), (second, 1)):
        total = pairs.sum(axis=axis)
        share = np.divide(ends, total, out=np.ones_like(total), where=total > ends)
        pairs = pairs * np.expand_dims(share, axis)
    lacks = np.maximum(first - pairs.sum(axis=2), 0.0), np.maximum(second - pairs.sum(axis=1), 0.0)
    # A missing probability smaller than the machine precision is a rounding error.
    missing = np.maximum(lacks[0].sum(axis=1), np.finfo(np.float64).eps)[:, None, None]
    return pairs + lacks[0][:, :, None] * (lacks[1][:, None, :] / missing)


def _flatten_parameters(values):
    """Join the scores of a model, or the arrays of statistics, into one vector."""
    return np.concatenate([np.ravel(part).astype(np.float64) for part in _list_fields(values)])


def _list_fields(values):
    """Return the arrays of scores of a model, or of statistics."""
    if isinstance(values, FactorGraph | FactorStatistics):
        return values.log_table, values.table_default
    return values.unary, values.tables
