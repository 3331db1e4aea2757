"""Learning principles: surrogates for log_z(theta) - score(theta, y) of one model, and what users may make of them."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import clone

from sklearn_crf._own_methods import ChecksOwnMethods
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.inference import AutoMap, AutoMarginals, Inference
from sklearn_crf.inference._results import as_finite
from sklearn_crf.models import FactorGraph, PairwiseModel, Statistics, check_labels, clamped


def checked_loss(found, model, labels, *arguments, **options):
    """A loss of a model, its predicted labels in int32."""
    if not hasattr(found, "statistics") or not hasattr(found, "_replace"):
        raise TypeError(f"a Loss is needed, got {type(found).__name__}.")
    # In the precision that they have.
    names = ("log_table", "table_default") if isinstance(model, FactorGraph) else ("unary", "tables")
    values = {
        name: as_finite(getattr(found.statistics, name, None), f"statistics.{name}", getattr(model, name).shape, None)
        for name in names
    }
    terms, predicted = found.terms, found.predicted
    if not found.gap >= 0:
        raise ValueError(f"gap must not be negative, got {found.gap!r}.")
    return found._replace(
        statistics=found.statistics._replace(**values),
        terms=None if terms is None else as_finite(terms, "terms", (model.n_nodes,)),
        predicted=None if predicted is None else check_labels(model, predicted),
    )


def checked_model(found, model, *arguments, **options):
    """A model of the type and shape of another."""
    shape = model.n_nodes, model.n_columns
    if not isinstance(found, type(model)) or (found.n_nodes, found.n_columns) != shape:
        raise TypeError(f"a {type(model).__name__} of {shape[0]} nodes and up to {shape[1]} states is needed.")
    return found


def checked_assignment(found, model, *arguments, **options):
    """Labels of a model, in int32."""
    return check_labels(model, found)


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
        Bound on the error of the loss of all nodes, where it is a maximum that was not proven; inf if unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import Pseudolikelihood
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> labels = np.array([1, 1, 1], dtype=np.int32)
    >>> loss = Pseudolikelihood().loss_statistics(model, labels)
    >>> loss.terms.shape, loss.statistics.tables.shape, loss.converged
    ((3,), (1, 1, 2, 2), True)
    """

    statistics: Statistics
    terms: np.ndarray | None = None
    predicted: np.ndarray | None = None
    state: object = None
    converged: bool = True
    n_nonsubmodular: int = 0
    gap: float = 0.0


class Objective(ChecksOwnMethods, HoldsOptions):
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
        the labelled ones, ``"left out"`` with what depends on them, or ``"rejected"``.
    temperature : float
        Factor of the log-partition of the :meth:`augmented` model in the loss.
    weighs_nodes : bool
        Whether nodes may have weights: ``loss_statistics`` and ``augmented`` then take ``node_weight``.
    of_examples : bool
        Whether it holds something for each example, such as sets of labelings, and stays where the examples are.
    takes_turns : bool
        Whether its inference does, see :attr:`Inference.takes_turns`.
    grown : object
        What has come to it since it was made, to be given to another one made for the same examples; None for most.

    Examples
    --------
    >>> from sklearn_crf.objectives import Likelihood, Objective, Pseudolikelihood
    >>> issubclass(Likelihood, Objective), Pseudolikelihood().missing, Likelihood().missing
    (True, 'left out', 'marginalised')
    """

    needs: frozenset[str] = frozenset()
    has_value = True
    smooth = True
    draws = False
    missing = "marginalised"
    exact_on: str | None = "any"
    temperature = 1.0
    weighs_nodes = False
    of_examples = False
    takes_turns = False
    grown: object = None
    _returns: ClassVar[dict] = {"loss_statistics": checked_loss, "augmented": checked_model}

    def is_exact_for(self, model: Any) -> bool:
        """Whether value and gradient are those of one function for the models of a structure.

        Parameters
        ----------
        model : PairwiseModel or FactorGraph

        Returns
        -------
        bool
        """
        return self.exact_on == "any" or (self.exact_on == "forest" and bool(model.graph.is_forest))

    @property
    def is_settled(self) -> bool:
        """Whether its inner problem, if it has one, is solved to its final accuracy."""
        return True

    @property
    def noise(self) -> float:
        """Relative noise of values, of an inner problem that is solved to a tolerance."""
        return 0.0

    def settle(self, gradient: float | None = None) -> bool:
        """Let an inner problem be as accurate as an iterate deserves.

        Parameters
        ----------
        gradient : float, optional
            Largest entry of the gradient of the risk, per labelled node; None asks for ten times the accuracy.

        Returns
        -------
        bool
            Whether it is more accurate from now on.
        """
        return False

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
        if not self.needs <= inference.tasks:
            inference = AutoMarginals() if "marginals" in self.needs else AutoMap()
        return clone(self).set_params(inference=inference.for_learning())

    def augmented(self, model: Any, labels: np.ndarray, node_weight: np.ndarray | None = None) -> Any:
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

    def of_batch(self, i: int) -> "Objective":
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
