"""Batches of examples as blocks of the dual of a relaxed likelihood."""

from dataclasses import replace
from typing import Any

import numpy as np

from sklearn_crf.inference import convergence_left_to_caller
from sklearn_crf.models import Statistics, labeling_statistics, with_table_of_each_edge
from sklearn_crf.objectives._base import Objective, observed_model

# Of the label of a node above its other states, to begin with.
_FIRST_SCORE = 10.0

# Of the least parameter below the largest of its factor: its probability is far below rounding, and still above zero.
_LOWEST_SCORE = -300.0


class DualBlock:
    r"""One batch in the dual of a penalised likelihood, where marginals are the unknowns.

    .. math::
        \max_\tau \; C \sum_i \omega_i \tilde H(\tau_i) - \tfrac12 \lVert w(\tau) \rVert^2, \qquad
        w(\tau) = C \sum_i \omega_i B(x_i)^\top (\phi(y_i) - \tau_i)

    Marginals and the exponential parameters behind them are vectors of a number for every state of every node and
    every entry of the tables: edges that share a table share what is kept of them, since parameters are sums of scores.

    Parameters
    ----------
    risk : EmpiricalRisk
        Of :class:`RelaxedLikelihood`, as it is or in a :class:`SoftmaxMargin`.
    i : int
        Number of the batch. The marginals of its unlabelled nodes given the others, at ``start``, stand for labels.
    weight : float
        :math:`C \omega_i`.
    start : ndarray of shape (n_coef,)
        Point x whose marginals are the first.
    scale : ndarray of shape (n_coef,) or float, default=1.0
        The dual is that of the penalty on x of weights :math:`w = \mathrm{scale} \cdot x`.

    Notes
    -----
    Source: Jancsary 2012, CRF recipe 5.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.encoding import encode_X, encode_y, make_batches
    >>> from sklearn_crf.inference import TRWMessagePassing
    >>> from sklearn_crf.objectives import DualBlock, EmpiricalRisk, RelaxedLikelihood
    >>> from sklearn_crf.potentials import LinearPotentials, pairwise_form
    >>> encoded = encode_X(
    ...     [[[0.0], [0.2], [0.9]], [[1.0], [0.8]]],
    ...     edge_features="constant",
    ...     edge_types="tied",
    ... )
    >>> batches = make_batches(encoded, encode_y([[0, 0, 1], [1, 1]], encoded).labels)
    >>> potentials = LinearPotentials(1, 2, pairwise_form("potts", 2), fit_intercept=False)
    >>> risk = EmpiricalRisk(RelaxedLikelihood(TRWMessagePassing()), potentials, batches)
    >>> block = DualBlock(risk, 0, 1.0, np.zeros(potentials.n_coef))
    >>> marginals, entropy = block.forward(block.start())
    >>> marginals.shape, bool(entropy >= 0)
    ((14,), True)
    """

    def __init__(self, risk, i, weight, start, scale=1.0):
        batch, objective = risk.batches[i], risk.objective
        self._potentials, self._example, self._first = risk.potentials, batch.example, start
        self._temperature = objective.temperature
        self._likelihood = getattr(objective, "likelihood", objective)
        self._state = None
        self.weight, self.n = weight, risk.potentials.n_coef
        self.touched = self._potentials.touched_by(batch.example)
        self._scale = np.broadcast_to(scale, self.n)
        # At weights of zero scores are zero, or -inf for forbidden states.
        self._model = self._potentials.model(np.zeros(self.n), batch.example)
        self._allowed = np.isfinite(_vector(self._model))
        self.truth = _vector(self._truth(batch, objective))
        augmented = objective.augmented(self._model, batch.labels, batch.node_weight)
        self.costs = np.where(self._allowed, _vector(augmented) * self._temperature, 0.0)

    @classmethod
    def of_risk(cls, risk, C, start, scale):
        """Blocks of all batches: one example each, but those of weight zero, which have no say.

        Parameters
        ----------
        risk : EmpiricalRisk
        C : float
        start : ndarray of shape (n_coef,)
        scale : ndarray of shape (n_coef,)

        Returns
        -------
        list of DualBlock
        """
        weights = [1.0 if batch.weight is None else batch.weight[0] for batch in risk.batches]
        return [cls(risk, i, C * weight, start, scale) for i, weight in enumerate(weights) if weight > 0]

    def _truth(self, batch: Any, objective: Objective) -> Statistics:
        """Statistics of the labels, completed by marginals at the first weights."""
        model = objective.augmented(
            self._potentials.model(self._scale * self._first, batch.example), batch.labels, batch.node_weight
        )
        observed = observed_model(model, batch.labels)
        if observed is None:
            return labeling_statistics(self._model, batch.labels)
        with convergence_left_to_caller(), batch.named_in_errors():
            return self._likelihood.inference.marginals_for_learning(observed).statistics

    def start(self):
        """Parameters to begin with: those of the first weights, or of the labels where these are zero.

        Returns
        -------
        ndarray, float64
        """
        if self._first.any():
            return self.scores(self._first) / self._temperature
        # Uniform marginals may belong to weights far beyond the best, those of the labels to weights near zero.
        n = self._model.unary.size
        return np.concatenate((_FIRST_SCORE * self.truth[:n], np.zeros(len(self.truth) - n)))

    def scores(self, x):
        """Scores at a point, costs of wrong states added.

        Parameters
        ----------
        x : ndarray of shape (n_coef,)

        Returns
        -------
        ndarray, float64
            With 0 for forbidden states.
        """
        scores = _vector(self._potentials.model(self._scale * x, self._example))
        return np.where(self._allowed, scores, 0.0) + self.costs

    def forward(self, parameters):
        """Marginals of parameters, and their entropy.

        Parameters
        ----------
        parameters : ndarray

        Returns
        -------
        marginals : ndarray, float64
        entropy : float
        """
        unary, tables = self._parts(np.where(self._allowed, parameters, -np.inf))
        model = replace(self._model, unary=unary, tables=tables)
        found = self._likelihood.inference.marginals_for_learning(model, init=self._state)
        self._state = found.state
        marginals = _vector(found.statistics)
        return marginals, found.log_z - float(parameters @ marginals)

    def feasible(self, parameters):
        """Marginals near those of parameters that fit together at every edge, which messages reach in the limit only.

        Parameters
        ----------
        parameters : ndarray

        Returns
        -------
        ndarray, float64
            The same as of :meth:`forward` on graphs without cycles, where sums are exact.
        """
        unary, tables = self._parts(np.where(self._allowed, parameters, -np.inf))
        model = replace(self._model, unary=unary, tables=tables)
        if model.graph.is_forest:
            return self.forward(parameters)[0]
        weight = np.ones((model.graph.n_edges, 1)) if model.edge_weight is None else model.edge_weight
        untied = with_table_of_each_edge(model)
        found = self._likelihood.inference.marginals_for_learning(untied, init=self._state)
        nodes = found.unary.astype(np.float64)
        nodes /= nodes.sum(axis=1, keepdims=True)
        pairs = fitted_pairs(found.tables[:, 0], *(nodes[ends] for ends in model.graph.edges.T))
        if pairs[np.isneginf(untied.tables[:, 0])].any():
            # What the ends lack may be left to forbidden pairs alone. The labels are allowed.
            return self.truth
        sums = np.zeros(tables.shape)
        np.add.at(sums, model.edge_type, weight[:, :, None, None] * pairs[:, None])
        return np.concatenate((nodes.ravel(), sums.ravel()))

    @staticmethod
    def feasible_dual(blocks, parameters):
        """The dual without a temperature at feasible marginals: those that do not fit together may have more.

        Parameters
        ----------
        blocks : list of DualBlock
        parameters : list of ndarray

        Returns
        -------
        float
        """
        x, gain = np.zeros(blocks[0].n), 0.0
        for block, own in zip(blocks, parameters, strict=True):
            marginals = block.feasible(own)
            gain += block.weight * float(block.costs @ marginals)
            x[block.touched] += block.weight * block.pullback(block.truth - marginals)
        return gain - 0.5 * float(x @ x)

    def bounded(self, parameters):
        """Parameters of nearly the same marginals, at most 300 apart within a factor.

        Parameters
        ----------
        parameters : ndarray

        Returns
        -------
        ndarray, float64
            The largest of every node and every table is zero.
        """
        unary, tables = self._parts(np.where(self._allowed, parameters, -np.inf))
        highest = np.concatenate(
            [
                np.ravel(np.broadcast_to(part.max(axis=axes, keepdims=True), part.shape))
                for part, axes in ((unary, -1), (tables, (-2, -1)))
            ]
        )
        return np.where(self._allowed, np.maximum(parameters - np.nan_to_num(highest), _LOWEST_SCORE), 0.0)

    def pullback(self, marginals):
        """Scaled B' marginals for the weights that the batch touches.

        Parameters
        ----------
        marginals : ndarray

        Returns
        -------
        ndarray, float64
        """
        pulled = self._potentials.pullback(self._example, Statistics(*self._parts(marginals)))
        return (self._scale * pulled)[self.touched]

    def _parts(self, vector):
        n = self._model.unary.size
        return vector[:n].reshape(self._model.unary.shape), vector[n:].reshape(self._model.tables.shape)


def fitted_pairs(pairs, first, second):
    """Joint probabilities near given ones whose sums are given marginals of both ends.

    What rows, then columns, have too much is taken from all of their entries alike, and what is then missing at both
    ends is added as a product (Altschuler, Weed, Rigollet 2017).
    """
    # pairs: (E, K, K); first, second: (E, K), rows of which sum to one; returns (E, K, K)
    pairs = np.maximum(pairs, 0.0)
    for ends, axis in ((first, 2), (second, 1)):
        total = pairs.sum(axis=axis)
        share = np.divide(ends, total, out=np.ones_like(total), where=total > ends)
        pairs = pairs * np.expand_dims(share, axis)
    lacks = np.maximum(first - pairs.sum(axis=2), 0.0), np.maximum(second - pairs.sum(axis=1), 0.0)
    # Less is rounding.
    missing = np.maximum(lacks[0].sum(axis=1), np.finfo(np.float64).eps)[:, None, None]
    return pairs + lacks[0][:, :, None] * (lacks[1][:, None, :] / missing)


def _vector(values):
    """Unary part and tables in one vector."""
    return np.concatenate([np.ravel(part).astype(np.float64) for part in (values.unary, values.tables)])
