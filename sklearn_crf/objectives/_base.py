"""Base class of objectives, the class ``Loss`` of their results, and checks of user-defined objectives."""

from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import clone

from sklearn_crf._own_methods import ChecksOwnMethods
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.inference import AutoMap, AutoMarginals, Inference
from sklearn_crf.inference._results import as_finite
from sklearn_crf.models import (
    FactorGraph,
    PairwiseModel,
    SegmentModel,
    SegmentStatistics,
    Statistics,
    check_labels,
    clamped,
)


def check_loss(found, model, labels, *arguments, **options):
    """Check the types and shapes of a Loss, and return it with int32 predicted labels."""
    if not hasattr(found, "statistics") or not hasattr(found, "_replace"):
        raise TypeError(f"the result must be a Loss, got {type(found).__name__}.")
    # Do not convert the statistics to another floating-point precision.
    names: tuple[str, ...] = ("unary", "tables")
    if isinstance(model, FactorGraph):
        names = ("log_table", "table_default")
    elif isinstance(model, SegmentModel):
        names = SegmentStatistics._fields
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


def check_model_type(found, model, *arguments, **options):
    """Check that the model ``found`` has the type and shape of ``model``, and return it."""
    shape = model.n_nodes, model.n_columns
    if not isinstance(found, type(model)) or (found.n_nodes, found.n_columns) != shape:
        raise TypeError(
            f"the result must be a {type(model).__name__} of {shape[0]} nodes and at most {shape[1]} states per node."
        )
    return found


class Loss(NamedTuple):
    """Loss of one model, and the derivative of the loss with respect to the scores of the model.

    ``terms`` has one term for each node; the terms of a connected component sum to the loss of the component. Some
    rules follow an approximate gradient that is not the gradient of any function (Kumar et al. 2005, section 7.2). Such
    rules have no terms.

    Attributes
    ----------
    statistics : Statistics
        Derivative of the loss with respect to unary scores and tables.
    terms : ndarray of shape (N,), float64, or None
        Contribution of each node to the loss.
    predicted : ndarray of shape (N,), int32, or None
        Labels predicted by the inference of the rule; None if the rule runs no inference.
    state : object
        Warm start for the next call with the same batch.
    converged : bool
        Whether inference converged.
    n_nonsubmodular : int
        Number of edges on which a binary MAP inference was not exact.
    gap : float
        Upper bound on the error of the loss, summed over nodes: 0 if inference proved its maximum, inf if the error is
        unknown.

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
    """Base class of objectives. A subclass implements ``loss_statistics``.

    The attributes of an objective are only options, which are constructor parameters. An objective that runs inference
    has a parameter ``inference``; None means the inference with which the estimator predicts.

    Attributes
    ----------
    needs : frozenset
        Tasks that the inference must support.
    has_value : bool
        Whether there is a loss to minimise. Otherwise there is only a direction.
    smooth : bool
        Whether the loss is differentiable everywhere.
    exact_on : str or None
        Graphs on which the gradient is exactly the gradient of the value: ``"any"``, ``"forest"``, or None.
    draws : bool
        Whether the objective draws random numbers and therefore needs a seed for each call.
    missing : str
        Treatment of unlabelled nodes: ``"marginalised"``, ``"completed"`` by the inference of the rule given the
        labelled nodes, ``"left out"`` with all terms that depend on them, or ``"rejected"``.
    temperature : float
        Factor by which the loss multiplies the log-partition of the :meth:`augmented` model.
    weighs_nodes : bool
        Whether nodes may have weights: ``loss_statistics`` and ``augmented`` then have a parameter ``node_weight``.
    of_examples : bool
        Whether the objective contains data of each example, such as sets of labelings. Such an objective stays in the
        process that has the examples.
    grown : object
        Data collected during training, which can be assigned to another objective for the same examples. Most
        objectives collect no data and have None.

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
    #: Whether the loss includes the ``joint_cost`` of a batch.
    takes_joint_cost = False
    grown: object = None
    _returns: ClassVar[dict] = {"loss_statistics": check_loss, "augmented": check_model_type}

    def is_exact_for(self, model: Any) -> bool:
        """Return whether the gradient is the exact gradient of the value, for models with the graph of ``model``.

        Parameters
        ----------
        model : PairwiseModel or FactorGraph

        Returns
        -------
        bool
        """
        if self.exact_on == "forest" and isinstance(model, PairwiseModel):
            return bool(model.graph.is_forest)
        return self.exact_on == "any"

    @property
    def is_settled(self) -> bool:
        """Whether the inner problem, if any, is solved to its final accuracy."""
        return True

    @property
    def gains_from_scaling(self) -> bool:
        """Whether estimating the curvature at the start reduces the total number of passes of a solver."""
        return not self.is_settled

    @property
    def noise(self) -> float:
        """Relative error of loss values, caused by the tolerance of an inner problem."""
        return 0.0

    def settle(self, gradient: float | None = None) -> bool:
        """Tighten the tolerance of the inner problem to suit the size of the gradient.

        Parameters
        ----------
        gradient : float, optional
            Largest absolute gradient entry of the risk, divided by the number of labelled nodes. None divides the
            tolerance by ten.

        Returns
        -------
        bool
            Whether the tolerance became tighter.
        """
        return False

    def coupled(self, inference: Inference) -> "Objective":
        """Return a copy that uses the inference of prediction, or the objective itself if its ``inference`` is set.

        Parameters
        ----------
        inference : Inference
            Inference of prediction. If it does not support a task in ``needs``, the automatic choice is used instead.

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
        """Return the model on which the objective runs inference.

        Subclasses add costs of errors or divide scores by a temperature.

        Parameters
        ----------
        model : PairwiseModel
        labels : ndarray of shape (N,), int32
            True state of each node.
        node_weight : ndarray of shape (N,), optional
            Factor by which the cost of each node is multiplied; None means ones.

        Returns
        -------
        PairwiseModel
        """
        return model

    def loss_statistics(
        self, model: PairwiseModel, labels: np.ndarray, *, state: object = None, seed: int = 0, n_threads: int = 1
    ) -> Loss:
        """Compute the loss of a model against labels, and its derivative with respect to the scores.

        Parameters
        ----------
        model : PairwiseModel
        labels : ndarray of shape (N,), int32
            State of each node, -1 for unlabelled nodes.
        state : object, optional
            ``Loss.state`` of the previous call for the same batch.
        seed : int, default=0
            Seed of this call, used by objectives that draw samples.
        n_threads : int, default=1

        Returns
        -------
        Loss
        """
        raise NotImplementedError(type(self).__name__)

    def of_batch(self, i: int) -> "Objective":
        """Return the objective of one batch of training examples: ``self``, unless each batch has a separate objective.

        Parameters
        ----------
        i : int
            Index of the batch.

        Returns
        -------
        Objective
        """
        return self


def clamp_known_labels(model, labels):
    """Clamp a model to the known labels; return None if all labels are known."""
    return None if np.all(labels >= 0) else clamped(model, labels)
