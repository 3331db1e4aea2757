"""What a learning principle is: a surrogate for log_z(theta) - score(theta, y) of one batch of examples."""

from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone

from sklearn_crf.inference import AutoMap, AutoMarginals, Inference
from sklearn_crf.models import PairwiseModel, Statistics, clamped


class Loss(NamedTuple):
    """Loss of one model and its derivative by the model's values.

    ``terms`` are per node; the terms of a connected component sum to that component's loss. Rules that follow an
    approximate gradient which is the gradient of nothing (Kumar et al. 2005, section 7.2) have no terms.

    Attributes
    ----------
    statistics : Statistics
        Derivative of the loss by unary scores and tables.
    terms : ndarray of shape (N,), float64, or None
        What each node adds to the loss.
    predicted : ndarray of shape (N,), int32, or None
        Labels by the inference that the rule used; None if it used none.
    state : object
        Warm start of the next call, for this batch only.
    converged : bool
        Whether the inference did.
    n_nonsubmodular : int
        Edges on which a binary MAP inference was not exact.
    gap : float
        What the loss of all nodes may be too small by, where it is a maximum that was not proven; inf if unknown.
    """

    statistics: Statistics
    terms: np.ndarray | None = None
    predicted: np.ndarray | None = None
    state: object = None
    converged: bool = True
    n_nonsubmodular: int = 0
    gap: float = 0.0


class Objective(BaseEstimator):
    """Base of the learning principles: a subclass writes ``loss_statistics``.

    An objective holds options only, as constructor parameters. One that asks an inference has a parameter
    ``inference``; None stands for the one that the estimator predicts with.

    Attributes
    ----------
    needs : frozenset
        Tasks it asks of its inference.
    has_value : bool
        Whether there is a loss to minimise, or a direction alone.
    smooth : bool
        Whether the loss is differentiable everywhere.
    exact_on : str or None
        Graphs on which value and gradient are those of one function: ``"any"``, ``"forest"``, or None.
    draws : bool
        Whether it draws random numbers, and needs the seed of a call.
    missing : str
        What happens to unlabelled nodes: ``"marginalised"``, ``"completed"`` by the rule's own inference given
        the labelled ones, or ``"rejected"``.
    temperature : float
        What a log-partition of the :meth:`augmented` model counts in the loss.
    weighs_nodes : bool
        Whether nodes may have weights: ``loss_statistics`` and ``augmented`` then take ``node_weight``.
    """

    needs: frozenset[str] = frozenset()
    has_value = True
    smooth = True
    draws = False
    missing = "marginalised"
    exact_on = "any"
    temperature = 1.0
    weighs_nodes = False

    def coupled(self, inference: Inference) -> "Objective":
        """A copy that asks the inference of prediction wherever none was given.

        Parameters
        ----------
        inference : Inference
            The one that predicts. Where it cannot do a task in ``needs``, the automatic choice for that task serves.

        Returns
        -------
        Objective
        """
        if "inference" not in self.get_params(deep=False) or self.inference is not None:
            return clone(self)
        able = self.needs <= inference.tasks
        return clone(self).set_params(
            inference=inference if able else AutoMarginals() if "marginals" in self.needs else AutoMap()
        )

    def augmented(self, model, labels, node_weight=None):
        """The model that inference is asked about: the given one, unless errors cost or a temperature divides.

        Parameters
        ----------
        model : PairwiseModel
        labels : ndarray of shape (N,), int32
            The true state of each node.
        node_weight : ndarray of shape (N,), optional
            Factors of the costs of nodes; None is one.

        Returns
        -------
        PairwiseModel
        """
        return model

    def loss_statistics(
        self, model: PairwiseModel, labels: np.ndarray, *, state: object = None, seed: int = 0, n_threads: int = 1
    ) -> Loss:
        """Loss of a model against labels.

        Parameters
        ----------
        model : PairwiseModel
        labels : ndarray of shape (N,), int32
            -1 where a node is unlabelled.
        state : object, optional
            ``Loss.state`` of the last call for the same batch.
        seed : int, default=0
            Seed of this call, for rules that draw samples.
        n_threads : int, default=1

        Returns
        -------
        Loss
        """
        raise NotImplementedError(type(self).__name__)

    def of_batch(self, i):
        """The objective of one batch of training examples: this one, unless each batch has its own.

        Parameters
        ----------
        i : int
            Number of the batch.

        Returns
        -------
        Objective
        """
        return self


def observed_model(model, labels):
    """The model clamped to the labels that are known; None if all are."""
    return None if np.all(labels >= 0) else clamped(model, labels)
