"""Relaxed likelihood in one problem over weights and how scores are shared out among trees or edges."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from sklearn_crf._threads import map_tasks
from sklearn_crf.inference import edge_shared_bound, nodes_of_edge_shares, nodes_of_shares, shared_bound
from sklearn_crf.objectives._base import RiskValue, total_of, weighted_loss
from sklearn_crf.objectives._example_weights import weight_of_nodes
from sklearn_crf.objectives.likelihood._observed_side import RiskLessObserved, loss_of_bound


class JointRisk(RiskLessObserved):
    r"""Sum over examples of an upper bound at given shares, less the score of the labels.

    .. math::
        R(w, \lambda) = \sum_i \omega_i \Bigl( \sum_T \rho(T) \log Z(\theta_i(T)) - \mathrm{score}(y_i) \Bigr)

    Convex in the weights and the shares together, smooth, and without inner problem; its minimum over the shares is
    the risk by :class:`TightenBound`. Of partly labelled examples the log-partition given the known labels takes the
    place of the score. With the trivial entropy the pieces are single edges, each of weight one, with
    that of factors they are nodes as well. One flat vector holds the weights and then the shares of each batch.

    Parameters
    ----------
    risk : EmpiricalRisk
        Its potentials, batches and threads are taken over.
    entropy : {"trw", "trivial", "factors"}, default="trw"
    observed : EmpiricalRisk, optional
        Log-partitions given the known labels, as :func:`observed_risk` makes them; None where all nodes are labelled.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, CRF recipe 4.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.encoding import encode_X, encode_y, make_batches
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.objectives import EmpiricalRisk, JointRisk, Likelihood
    >>> from sklearn_crf.potentials import LinearPotentials, pairwise_form
    >>> encoded = encode_X(
    ...     [[[0.0], [0.2], [0.9]], [[1.0], [0.8]]],
    ...     edge_features="constant",
    ...     edge_types="tied",
    ... )
    >>> batches = make_batches(encoded, encode_y([[0, 0, 1], [1, 1]], encoded).labels)
    >>> potentials = LinearPotentials(1, 2, pairwise_form("potts", 2), fit_intercept=False)
    >>> risk = EmpiricalRisk(Likelihood(TreeInference()), potentials, batches)
    >>> joint = JointRisk(risk)
    >>> round(joint.value_grad(np.zeros(joint.potentials.n_coef)).value, 3)
    3.466
    """

    def __init__(self, risk, entropy="trw", observed=None):
        super().__init__(risk, observed)
        weights = risk.potentials
        start = np.zeros(weights.n_coef)
        nodes, self._bound = nodes_of_shares, shared_bound
        if entropy != "trw":
            nodes, self._bound = nodes_of_edge_shares, partial(edge_shared_bound, entropy=entropy)
        self._weight_of_shares = [
            weight_of_nodes(batch)[nodes(weights.model(start, batch.example))] for batch in risk.batches
        ]
        sizes = [len(own) for own in self._weight_of_shares]
        self._bounds = np.concatenate(([weights.n_coef], weights.n_coef + np.cumsum(sizes)))
        self.potentials = WeightsAndOthers(weights, int(self._bounds[-1]))

    def _evaluate(self, coef: np.ndarray, members: Sequence[int] | None) -> RiskValue:
        members = range(len(self.batches)) if members is None else members
        weights = coef[: self._weights.n_coef]
        found = map_tasks(lambda i, n_threads: self._shared_loss(i, weights, coef), members, self.n_jobs)
        gradient = np.zeros(len(coef))
        for i, (part, of_shares) in zip(members, found, strict=True):
            gradient[: len(weights)] += self._weights.pullback(self.batches[i].example, part.statistics)
            gradient[self._bounds[i] : self._bounds[i + 1]] = of_shares
        return total_of([part for part, _ in found], gradient)

    def _shared_loss(self, i, weights, coef):
        batch = self.batches[i]
        objective = self.objective
        model, by_weight = self.model_by_weight(i, weights)
        model = objective.augmented(model, batch.labels, batch.node_weight)
        found = self._bound(model, coef[self._bounds[i] : self._bounds[i + 1]])
        loss = loss_of_bound(model, batch.labels, found.marginals, objective.temperature)
        gradient = objective.temperature * found.gradient * self._weight_of_shares[i]
        return weighted_loss(batch, loss, by_weight), gradient


class WeightsAndOthers:
    """Potentials for a vector of weights that is followed by other unknowns, free of penalty."""

    def __init__(self, weights, n_coef):
        self.weights = weights
        self.n_coef = n_coef
        self.n_classes = weights.n_classes

    def model(self, coef, example, edges=None):
        return self.weights.model(coef[: self.weights.n_coef], example, edges)

    def kept_edges(self, example):
        return self.weights.kept_edges(example)

    @property
    def penalty(self):
        return self._padded(self.weights.penalty)

    @property
    def tails(self):
        return np.maximum(self._padded(self.weights.tails), 1.0)

    @property
    def on_edges(self):
        return self._padded(self.weights.on_edges)

    def _padded(self, of_weights):
        padded = np.zeros(self.n_coef, dtype=of_weights.dtype)
        padded[: self.weights.n_coef] = of_weights
        return padded
