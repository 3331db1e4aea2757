"""Learning principles: surrogates for log_z(theta) - score(theta, y), of one batch and of all examples."""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import clone

from sklearn_crf._own_methods import ChecksOwnMethods
from sklearn_crf._threads import cached_property, map_tasks
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.inference import AutoMap, AutoMarginals, Inference, convergence_left_to_caller
from sklearn_crf.models import PairwiseModel, Statistics, clamped
from sklearn_crf.objectives._example_weights import by_weights, tables_by_weight, weight_of_nodes
from sklearn_crf.objectives._results import checked_loss, checked_model
from sklearn_crf.potentials import SparsePotentials

# Of more nodes, calls of NumPy are so long that threads had better share them.
_MOST_NODES_IN_TURN = 2048


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


class RiskValue(NamedTuple):
    """Weighted losses of some examples: of one batch, or of one pass over all.

    Attributes
    ----------
    value : float or None
        Weighted sum of losses; None for rules without one.
    gradient : ndarray of shape (n_coef,), float64, or None
        Its derivative by the weights, or what stands for it; the caller's own. None before the pullback.
    n_errors : float or None
        Weighted number of wrong labels by the rule's own inference; None if it used none.
    converged : bool
        Whether every inference did.
    n_nonsubmodular : int
        Edges on which a binary MAP inference was not exact.
    gap : float
        Bound on the error of ``value``, where losses are maxima that were not proven; inf if unknown.
    statistics : Statistics or None
        Derivative by the scores of a batch, before the pullback.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.encoding import encode_X, encode_y, make_batches
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.objectives import EmpiricalRisk, Likelihood
    >>> from sklearn_crf.potentials import LinearPotentials, pairwise_form
    >>> encoded = encode_X(
    ...     [[[0.0], [0.2], [0.9]], [[1.0], [0.8]]],
    ...     edge_features="constant",
    ...     edge_types="tied",
    ... )
    >>> batches = make_batches(encoded, encode_y([[0, 0, 1], [1, 1]], encoded).labels)
    >>> potentials = LinearPotentials(1, 2, pairwise_form("potts", 2), fit_intercept=False)
    >>> risk = EmpiricalRisk(Likelihood(TreeInference()), potentials, batches)
    >>> found = risk.value_grad(np.zeros(potentials.n_coef))
    >>> round(found.value, 3), found.gradient.shape, found.converged
    (3.466, (2,), True)
    """

    value: float | None
    gradient: np.ndarray | None
    n_errors: float | None
    converged: bool
    n_nonsubmodular: int
    gap: float = 0.0
    statistics: Statistics | None = None


def weighted_loss(batch, loss, by_weight=None):
    """RiskValue of a batch before the pullback, of its loss before its examples are weighted."""
    # by_weight: of the model, by tables_by_weight
    wrong = None if loss.predicted is None else (loss.predicted != batch.labels) & (batch.labels >= 0)
    if batch.weight is None:
        n_errors = None if wrong is None else float(np.count_nonzero(wrong))
        value = None if loss.terms is None else float(loss.terms.sum())
        return RiskValue(value, None, n_errors, loss.converged, loss.n_nonsubmodular, loss.gap, loss.statistics)
    node_weight = weight_of_nodes(batch)
    if by_weight is None:
        statistics = loss.statistics.scaled(node_weight[:, None], batch.weight[0])
    else:
        statistics = by_weight.summed(loss.statistics, node_weight)
    n_errors = None if wrong is None else float(node_weight[wrong].sum())
    value = None if loss.terms is None else float(loss.terms @ node_weight)
    # Heaviest member: a bound, and exact where all weigh the same.
    gap = loss.gap and loss.gap * float(node_weight.max(initial=0.0))
    return RiskValue(value, None, n_errors, loss.converged, loss.n_nonsubmodular, gap, statistics)


def total_of(parts, gradient):
    """A RiskValue of parts, added in their order, and of the gradient that is theirs."""
    return RiskValue(
        value=None if any(part.value is None for part in parts) else sum(part.value for part in parts),
        gradient=gradient,
        n_errors=None if any(part.n_errors is None for part in parts) else sum(part.n_errors for part in parts),
        converged=all(part.converged for part in parts),
        n_nonsubmodular=sum(part.n_nonsubmodular for part in parts),
        gap=sum(part.gap for part in parts),
    )


class EmpiricalRisk:
    r"""Sum of weighted losses over batches of examples.

    .. math:: R(w) = \sum_i \omega_i \, \ell(B(x_i) w, y_i), \qquad \nabla R = \sum_i \omega_i B(x_i)^\top \nabla\ell

    Batches are added in their order, whatever the number of threads; what an inference carries from call to call
    belongs to its batch.

    Parameters
    ----------
    objective : Objective
    potentials : LinearPotentials
    batches : list of Batch
        With labels.
    n_jobs : int or None, default=None
        Threads over batches, then inside one.
    seed : int, default=0
        Seed of rules that draw samples; every batch and every pass has its own.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.encoding import encode_X, encode_y, make_batches
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.objectives import EmpiricalRisk, Likelihood
    >>> from sklearn_crf.potentials import LinearPotentials, pairwise_form
    >>> encoded = encode_X(
    ...     [[[0.0], [0.2], [0.9]], [[1.0], [0.8]]],
    ...     edge_features="constant",
    ...     edge_types="tied",
    ... )
    >>> batches = make_batches(encoded, encode_y([[0, 0, 1], [1, 1]], encoded).labels)
    >>> potentials = LinearPotentials(1, 2, pairwise_form("potts", 2), fit_intercept=False)
    >>> risk = EmpiricalRisk(Likelihood(TreeInference()), potentials, batches)
    >>> found = risk.value_grad(np.zeros(potentials.n_coef))
    >>> round(found.value, 3), found.gradient.round(3).tolist()
    (3.466, [-1.25, -0.5])
    """

    #: How it is evaluated, in a few words.
    path = "general"

    def __init__(self, objective, potentials, batches, *, n_jobs=None, seed=0):
        self.objective = objective
        self.potentials = potentials
        self.batches = batches
        self.n_jobs = n_jobs
        self.seed = seed
        self._states = [None] * len(batches)
        self._edges, self._by_weight = {}, {}
        self.n_passes = 0
        self._labelled = np.array([weight_of_nodes(batch)[batch.labels >= 0].sum() for batch in batches])
        self.n_labelled = float(self._labelled.sum())

    @property
    def n_examples(self):
        """Number of examples."""
        return sum(len(batch.members) for batch in self.batches)

    @property
    def n_nodes(self):
        """Nodes of all examples, labelled or not."""
        return sum(batch.example.n_nodes for batch in self.batches)

    @property
    def has_unlabelled(self):
        """Whether labels of nodes are missing."""
        return any(bool(np.any(batch.labels < 0)) for batch in self.batches)

    @property
    def n_edges(self):
        """Edges of all examples."""
        return sum(batch.example.graph.n_edges for batch in self.batches)

    @property
    def is_forest(self):
        """Whether no example has a cycle."""
        return all(batch.example.is_forest for batch in self.batches)

    @property
    def edges_per_node(self):
        """Edges of all examples over their nodes."""
        return self.n_edges / max(self.n_nodes, 1)

    @property
    def carried(self):
        """State of the inferences between passes, an entry for each batch; to be given to a risk of the same."""
        return self._states

    @carried.setter
    def carried(self, states):
        self._states = states

    @property
    def curvature(self):
        """Rough diagonal of the Hessian at small weights, (n_coef,) float64; None where none is known."""
        if not isinstance(self.potentials, SparsePotentials):
            return None
        examples = [self.potentials.prepared(batch.example) for batch in self.batches]
        return self.potentials.curvature(examples, [weight_of_nodes(batch) for batch in self.batches])

    @cached_property
    def is_exact(self):
        """Whether values and gradients are those of one function on the graphs at hand."""
        if self.objective.exact_on != "forest":
            return self.objective.exact_on == "any"
        return all(batch.example.is_forest or self._is_exact_for(batch) for batch in self.batches)

    def _is_exact_for(self, batch):
        return self.objective.is_exact_for(self.potentials.model(np.zeros(self.potentials.n_coef), batch.example))

    @property
    def label_counts(self):
        """Weighted number of nodes of each label."""
        counts = np.zeros(self.potentials.n_classes)
        for batch in self.batches:
            labelled = batch.labels >= 0
            counts += np.bincount(batch.labels[labelled], weight_of_nodes(batch)[labelled], minlength=len(counts))
        return counts

    @property
    def n_constant_errors(self):
        """Weighted number of wrong labels if every node had the commonest label."""
        counts = self.label_counts
        return float(counts.sum() - counts.max())

    def summed(self, function, *arguments, changes=False):
        """A sum over examples that a function of the risk gives.

        Parameters
        ----------
        function : callable(EmpiricalRisk, *arguments) -> float or ndarray
        *arguments : object
        changes : bool, default=False
            Whether the function lets what the objective has grown, ``objective.grown``, grow further.

        Returns
        -------
        float or ndarray
        """
        return function(self, *arguments)

    def derived(self, function):
        """The risk that a function makes of this one, such as that of the nodes without their edges.

        Parameters
        ----------
        function : callable(EmpiricalRisk) -> EmpiricalRisk

        Returns
        -------
        EmpiricalRisk
        """
        return function(self)

    def oracle(self, i, coef, *, n_threads=1, pulls_back=True):
        """Weighted loss of batch i.

        Parameters
        ----------
        i : int
        coef : ndarray of shape (n_coef,)
        n_threads : int, default=1
        pulls_back : bool, default=True
            Whether the result has the gradient by the weights, or else the statistics of which that is made.

        Returns
        -------
        RiskValue
        """
        batch = self.batches[i]
        (model, by_weight), objective = self.model_by_weight(i, coef), self.objective.of_batch(i)
        seed = self._seed_of_pass(i) if objective.draws else 0
        # Weights of nodes have a meaning only to losses that are sums of costs.
        weighs = batch.node_weight is not None and objective.weighs_nodes
        options = {"node_weight": batch.node_weight} if weighs else {}
        with convergence_left_to_caller(), batch.named_in_errors():
            loss = objective.loss_statistics(
                model, batch.labels, state=self._states[i], seed=seed, n_threads=n_threads, **options
            )
        self._states[i] = loss.state
        part = weighted_loss(batch, loss, by_weight)
        if not pulls_back:
            return part
        return part._replace(gradient=self.potentials.pullback(batch.example, part.statistics), statistics=None)

    def edges_of(self, i):
        """Layout of edges that the models of a batch share.

        Parameters
        ----------
        i : int

        Returns
        -------
        EdgeLayout or None
        """
        if i not in self._edges:
            self._edges[i] = self.potentials.kept_edges(self.batches[i].example)
        return self._edges[i]

    def model_by_weight(self, i, coef):
        """Model of a batch, with tables of each weight where its examples differ in weight.

        Parameters
        ----------
        i : int
        coef : ndarray of shape (n_coef,)

        Returns
        -------
        model : PairwiseModel or FactorGraph
        by_weight : object or None
            Sums statistics of the model over weights, for ``weighted_loss``; None where all weights are equal.
        """
        model = self.potentials.model(coef, self.batches[i].example, self.edges_of(i))
        if i not in self._by_weight:
            self._by_weight[i] = tables_by_weight(self.batches[i], model)
        return by_weights(model, self._by_weight[i]), self._by_weight[i]

    def _seed_of_pass(self, i):
        return int(np.random.SeedSequence([self.seed, i, self.n_passes]).generate_state(1, np.uint32)[0])

    def value_grad(self, coef, members=None):
        """Loss over batches, added in their order.

        Parameters
        ----------
        coef : ndarray of shape (n_coef,)
        members : sequence of int, optional
            Batches to visit; None is all.

        Returns
        -------
        RiskValue
        """
        found = self._evaluate(coef, members)
        self.n_passes += 1
        return found

    def _evaluate(self, coef, members):
        members = range(len(self.batches)) if members is None else members
        parts = map_tasks(partial(self.oracle, coef=coef), members, self.n_jobs, self._takes_turns)
        return total_of(parts, np.sum([part.gradient for part in parts], axis=0))

    @cached_property
    def _takes_turns(self):
        """Whether batches are so small that what is not a kernel of the inference is done for one at a time."""
        most = max((batch.example.n_nodes for batch in self.batches), default=0)
        return self.objective.takes_turns and most <= _MOST_NODES_IN_TURN

    def labelled_share(self, members):
        """Share of the labelled nodes that some batches hold.

        Parameters
        ----------
        members : sequence of int

        Returns
        -------
        float
        """
        return float(self._labelled[list(members)].sum() / self.n_labelled)

    def forget(self):
        """Drop what inferences carry from call to call: the next pass starts cold."""
        self._states = [None] * len(self.batches)
