"""Likelihoods with costs of errors, at any temperature: between the likelihood and the structured hinge."""

import numpy as np

from sklearn_crf.objectives._base import Objective
from sklearn_crf.objectives.margin._loss_augmented import at_temperature, loss_augmented


class SoftmaxMargin(Objective):
    r"""A likelihood, exact or approximate, with costs added to the scores and at a temperature.

    .. math::
        \ell(\theta) = T \log Z\bigl((\theta + \Delta_{y^*}) / T\bigr) - \mathrm{score}(y^*; \theta), \qquad
        \Delta_{y^*}(y) = \sum_s \omega_s \, c_{y_s y^*_s}

    At :math:`T = 1` without costs it is the likelihood, with costs softmax-margin. As T falls to zero it falls to
    the structured hinge, from which it differs by no more than T times the largest entropy: :math:`T \log Z(\cdot / T)`
    is the maximum of expected score plus T times the entropy. The same holds where a relaxation stands for
    :math:`\log Z`. Unlabelled nodes cost nothing.

    Source: Gimpel and Smith 2010; Jancsary 2012, section 5.2.

    Parameters
    ----------
    likelihood : Objective
        The loss at temperature one without costs, such as :class:`Likelihood`, :class:`RelaxedLikelihood`.
    cost : array-like of shape (K, K), optional
        ``cost[a, b]`` of state a where b is true: not negative, zero on the diagonal. None is no cost.
    temperature : float, default=1.0
        T, positive.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import Likelihood, SoftmaxMargin
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> labels = np.array([1, 1, 1], dtype=np.int32)
    >>> cost = 1.0 - np.eye(2)
    >>> loss = SoftmaxMargin(Likelihood(TreeInference()), cost).loss_statistics(
    ...     model, labels
    ... )
    >>> round(float(loss.terms.sum()), 3)
    2.411
    """

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
        return at_temperature(model, self.temperature)

    @property
    def is_settled(self):
        return self.likelihood.is_settled

    @property
    def noise(self):
        return self.likelihood.noise

    def settle(self, gradient=None):
        return self.likelihood.settle(gradient)

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1, node_weight=None):
        # Where errors cost, nodes weigh by their costs alone.
        weighs = self.cost is None and node_weight is not None
        options = {"node_weight": node_weight} if weighs else {}
        loss = self.likelihood.loss_statistics(
            self.augmented(model, labels, node_weight), labels, state=state, seed=seed, n_threads=n_threads, **options
        )
        # The temperature that multiplies the loss cancels the one that divides its scores in the derivative.
        terms = None if loss.terms is None else self.temperature * loss.terms
        return loss._replace(terms=terms, gap=self.temperature * loss.gap)


def with_likelihood(objective: Objective, likelihood: Objective) -> Objective:
    """Return an objective with another likelihood, at its costs and its temperature."""
    if isinstance(objective, SoftmaxMargin):
        return SoftmaxMargin(likelihood, objective.cost, objective.temperature)
    return likelihood
