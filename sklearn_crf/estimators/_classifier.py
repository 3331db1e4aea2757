"""Base class of the field classifiers, with all their prediction methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from sklearn_crf._numbers import as_integer
from sklearn_crf._options import options
from sklearn_crf._threads import limit_blas_threads, map_coarse
from sklearn_crf.distributed import Shards, call_on_each_shard, compute_correct_share, score_parts
from sklearn_crf.encoding import decode, make_object_array, require_complete
from sklearn_crf.estimators._field import TrainableField
from sklearn_crf.estimators._fitted_field import FittedField
from sklearn_crf.estimators._joint_results import (
    Certificates,
    certificates_of,
    checked_spans,
    common_bound,
    edges_of_members,
    entity_probabilities,
    log_likelihood_terms,
    require_chains,
    require_no_factors,
)
from sklearn_crf.graphs import Graph
from sklearn_crf.inference import (
    AutoMap,
    Inference,
    TreeBestLabelings,
    choose_able_inference,
    compute_conditional_scores,
)
from sklearn_crf.inference._results import LogLikelihood
from sklearn_crf.inference.automatic._cost import Budget
from sklearn_crf.inference.exact._segments import SegmentInference
from sklearn_crf.learning import find_learning_class, given
from sklearn_crf.metrics import entities, find_continuations
from sklearn_crf.models import FactorGraph, PairwiseModel, SegmentModel, compute_score_terms

_Method = TypeVar("_Method", bound=Callable)


def _require_distribution(method: _Method) -> _Method:
    """Decorate a method, so that the method only exists if the estimator defines a distribution over labelings."""

    def check(estimator):
        if not find_learning_class(estimator.learning, estimator.inference).has_distribution:
            raise AttributeError(
                f"{type(estimator).__name__} has no distribution over labelings, so it has no {method.__name__}: use "
                "TRWCRF or DRFClassifier, or an inference on its models(X)."
            )
        return True

    return available_if(check)(method)


@options
class FieldClassifier(TrainableField):
    """Base class of classifiers whose scores are linear in the features of the nodes and edges of a graph."""

    # Prediction ----------------------------------------------------------------------------------------------------

    def predict(self, X: Any, evidence: Any = None, *, inference: str | Inference | None = None) -> np.ndarray:
        """Predict the label of every node.

        Parameters
        ----------
        X : array-like, sparse matrix, list of examples, or Shards
            As in ``fit``.
        evidence : array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels. Unknown labels are predicted
            given the known labels.
        inference : str or Inference, optional
            Inference for prediction. None uses the inference of the estimator. ``cost`` needs marginals.

        Returns
        -------
        ndarray
            Predicted labels, in the shape of X without its last axis. For a list, a 1-D object array of arrays; for
            Shards, a list.

        Notes
        -----
        If nodes are labelled by their marginals, the marginals are first multiplied by ``decision_weight_``, if it is
        set. See :ref:`weights`.
        """
        if isinstance(X, Shards):
            return call_on_each_shard(self, "predict", X, evidence, inference=inference)
        return FittedField.of(self).labels(X, evidence, inference)

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy over labelled nodes.

        Parameters
        ----------
        X : array-like, sparse matrix, list of examples, or Shards
            As in ``fit``.
        y : array-like
            True labels. Nodes with ``missing_label`` are ignored. None for Shards.
        sample_weight : array-like of shape (n_examples,), optional
            Weight of each example.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If y has no labelled node with a positive weight.

        Notes
        -----
        Nodes whose label is not in ``classes_`` count as errors.
        """
        return compute_correct_share(score_parts(self, weigh_nodes_by_estimator, X, y, sample_weight))

    def models(self, X: Any, evidence: Any = None) -> list[PairwiseModel | FactorGraph]:
        """Return the model of every example under the fitted weights.

        Models are the input of all inference algorithms, file writers and displays.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        evidence : array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels. At nodes with a known label, all
            other states are forbidden.

        Returns
        -------
        list of PairwiseModel or FactorGraph
            Model of each example. States are in the order of ``classes_``.
        """
        field = FittedField.of(self)
        encoded, batches, potentials, weights = field.prepare(X, evidence, max_nodes=1)
        labeler = field.labeler()
        found = [labeler.model(potentials, weights, batch) for batch in batches]
        K = len(self.classes_)
        nothing = PairwiseModel(Graph(0, []), np.zeros((0, K)), np.zeros((1, K, K)))
        return gather_example_results(encoded, batches, found, lambda shape: nothing)

    def energy(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the energy of each labeling, its negated score. Labelings of lower energy are more probable.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        y : array-like
            Labels of all nodes.

        Returns
        -------
        ndarray of shape (n_examples,)
        """
        return self._compute_energy(X, y, "y")

    def _compute_energy(self, X, y, name):
        """Return the energy of each labeling; ``name`` is the name of the argument with the labelings, for errors."""
        encoded, batches, potentials, weights = FittedField.of(self).prepare(X, y, name=name)
        energies = np.zeros(encoded.n_examples)
        for batch in batches:
            labels = require_complete(batch, "energy", name)
            terms = compute_score_terms(potentials.model(weights, batch.example), labels)
            energies[batch.members] = -np.add.reduceat(terms, batch.node_ptr[:-1])
        return energies

    def certify(
        self, X: Any, evidence: Any = None, *, inference: str | Inference | None = None, budget: str | float = 1e8
    ) -> Certificates:
        """Return the duality gap of each prediction: a bound on how much higher the best labeling can score.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        evidence : array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels. Bounds hold for labelings with
            these known labels.
        inference : str or Inference, optional
            Inference that computes an upper bound on the best score, or its name. None is
            :class:`~sklearn_crf.inference.AutoMap` with this budget.
        budget : {"step", "fast", "default", "long"} or float, default=1e8
            Work for each example, as in :class:`~sklearn_crf.inference.AutoMap`. With more work than "default",
            clusters also tighten the bound. If a gap remains, the default takes about five seconds, "long" a minute.

        Returns
        -------
        Certificates

        Raises
        ------
        ValueError
            If ``inference`` does not compute best labelings, or ``budget`` is invalid.

        Notes
        -----
        Marginal decoding gives each node its most probable label. The resulting labeling need not be the best labeling,
        even if inference is exact. The gap then shows how much lower its score is.
        """
        Budget.of(budget)
        chosen = choose_able_inference(
            "auto" if inference is None else inference, "map", "certify()", AutoMap(budget=budget)
        )
        field = FittedField.of(self)
        _, batches, columns = field.columns(X, evidence)
        labels = [
            part
            for batch, predicted in zip(batches, columns, strict=True)
            for part in np.split(predicted, batch.node_ptr[1:-1])
        ]
        # Put each example into its own batch, because inference returns one bound for a whole model.
        encoded, single, potentials, weights = field.prepare(X, evidence, max_nodes=1)
        models = [given(potentials.model(weights, batch.example), batch.labels) for batch in single]
        with limit_blas_threads():
            named = [batch.named_in_errors for batch in single]
            found = certificates_of(models, labels, chosen, named, self.n_jobs)
        return Certificates(*(gather_example_results(encoded, single, part, lambda shape: 0.0) for part in found))

    def predict_topk(self, X: Any, k: int = 5, evidence: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the exact k best labelings of every example; examples must have no cycles.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        k : int, default=5
            Number of labelings. Fewer are returned if an example has fewer labelings.
        evidence : array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels. All returned labelings have the
            known labels.

        Returns
        -------
        labels : ndarray of shape (n_examples,), of object
            For each example an array ``(k, *lattice)`` of labelings, the best first.
        scores : ndarray of shape (n_examples,), of object
            For each example an array ``(k,)`` of the scores of these labelings.

        Raises
        ------
        ValueError
            If an example has cycles or factors.
        """
        k = as_integer(k, "k", lowest=1)
        encoded, batches, potentials, weights = FittedField.of(self).prepare(X, evidence, max_nodes=1)
        inference = TreeBestLabelings(k)

        def run(batch, n_threads):
            require_no_factors(batch, "predict_topk")
            with batch.named_in_errors():
                model = given(potentials.model(weights, batch.example), batch.labels)
                return SegmentInference().best(model, k) if isinstance(model, SegmentModel) else inference.best(model)

        with limit_blas_threads():
            found = map_coarse(run, batches, self.n_jobs)
        shapes = [encoded.label_shape(batch.members[0]) for batch in batches]
        labels = [self.classes_[best.labels].reshape(-1, *shape) for best, shape in zip(found, shapes, strict=True)]
        scores = [best.scores for best in found]
        # An example without nodes has a single labeling, whose score is 0.
        labels = gather_example_results(
            encoded, batches, labels, lambda shape: np.empty((1, *shape), self.classes_.dtype)
        )
        return make_object_array(labels), make_object_array(
            gather_example_results(encoded, batches, scores, lambda shape: np.zeros(1))
        )

    def decision_function(
        self, X: Any, evidence: Any = None, *, inference: str | Inference | None = None
    ) -> np.ndarray:
        """Return the scores of the states of every node, given the best labels of its neighbours.

        In the best labeling, each node has the state with the highest score. Changing the state of a single node lowers
        the score of the labeling by the difference between the scores of the two states.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        evidence : array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels. At nodes with a known label, all
            other states have a score of -inf.
        inference : str or Inference, optional
            Inference that labels the neighbours. None uses the inference of the estimator.

        Returns
        -------
        ndarray
            Scores in the form of the result of ``predict``, with an additional last axis of ``n_classes``. For two
            classes this axis is omitted, and the result is the score of the second class minus the score of the first.
        """
        field = FittedField.of(self)
        encoded, batches, potentials, weights = field.prepare(X, evidence)
        labeler = field.labeler(inference)
        asked = labeler.decoding.inference
        chosen = asked if "map" in asked.tasks else AutoMap(budget="fast")

        def run(batch, n_threads):
            model = labeler.model(potentials, weights, batch)
            scores = compute_conditional_scores(model, chosen.map(model, n_threads=n_threads).labels)
            return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

        with limit_blas_threads():
            found = map_coarse(run, batches, self.n_jobs)
        n_columns = None if len(self.classes_) == 2 else len(self.classes_)
        return decode(encoded, found, batches, n_columns=n_columns)

    @_require_distribution
    def predict_proba(self, X: Any, evidence: Any = None, *, inference: str | Inference | None = None) -> np.ndarray:
        """Return the marginal probability of each class at every node.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        evidence : array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels.
        inference : str or Inference, optional
            Inference of marginals. None uses the inference of the estimator if it computes marginals, and otherwise
            the automatic choice.

        Returns
        -------
        ndarray
            Probabilities in the form of the result of ``predict``, with an additional last axis of ``n_classes``.
        """
        return self._decode_marginals("predict_proba", X, evidence, inference, np.asarray)

    @_require_distribution
    def predict_log_proba(
        self, X: Any, evidence: Any = None, *, inference: str | Inference | None = None
    ) -> np.ndarray:
        """Return the logarithm of ``predict_proba``.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        evidence : array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels.
        inference : str or Inference, optional
            As in ``predict_proba``.

        Returns
        -------
        ndarray
            Log-probabilities in the form of the result of ``predict_proba``.
        """
        with np.errstate(divide="ignore"):
            return self._decode_marginals("predict_log_proba", X, evidence, inference, np.log)

    def _decode_marginals(self, method, X, evidence, inference, convert):
        """Return node marginals, converted by ``convert``, in the layout of X, for the method named ``method``."""
        if isinstance(X, Shards):
            return call_on_each_shard(self, method, X, evidence, inference=inference)
        field = FittedField.of(self)
        encoded, batches, marginals = field.marginals(X, evidence, inference)
        field.learning.warn_of_scale()
        return decode(encoded, list(map(convert, marginals)), batches, n_columns=len(self.classes_))

    @_require_distribution
    def predict_edge_proba(
        self, X: Any, evidence: Any = None, *, inference: str | Inference | None = None
    ) -> np.ndarray:
        """Return the joint probability of the labels of the two nodes of every edge.

        Parameters
        ----------
        X : list of examples or array-like
            As in ``fit``, with edges.
        evidence : array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels.
        inference : str or Inference, optional
            As in ``predict_proba``.

        Returns
        -------
        ndarray of shape (n_examples,), of object
            For each example an array ``(n_edges, n_classes, n_classes)``. Edges are in the order of the graph; in a
            chain, this is the order of the nodes. Entry (a, b) is the probability of class a at the first node of the
            edge and class b at the second node.

        Raises
        ------
        ValueError
            If an example has factors.
        """
        field = FittedField.of(self)
        encoded, batches, potentials, weights = field.prepare(X, evidence)
        labeler = field.labeler(inference)
        asked = labeler.able("marginals")

        def run(batch, n_threads):
            require_no_factors(batch, "predict_edge_proba")
            with batch.named_in_errors():
                return labeler.edge_marginals(labeler.model(potentials, weights, batch), asked, n_threads)

        with limit_blas_threads():
            parts = map_coarse(run, batches, self.n_jobs)
        nothing, found = np.zeros((0, len(self.classes_), len(self.classes_))), edges_of_members(batches, parts)
        return make_object_array(gather_example_results(encoded, batches, found, lambda shape: nothing))

    @_require_distribution
    def predict_entity_proba(
        self, X: Any, scheme: str | None = "IOB2", *, spans: Any = None, evidence: Any = None
    ) -> np.ndarray:
        """Return the exact probabilities of entities in sequences, summed over all labelings that mark the entity.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``. All examples must be chains.
        scheme : {"IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU"} or None, default="IOB2"
            Scheme by which labels mark entities, as in :func:`~sklearn_crf.metrics.entities`. None takes each run of
            equal labels as an entity, such as the segments of :class:`~sklearn_crf.potentials.Segments`.
        spans : sequence of sequences of (kind, start, stop), optional
            Entities of each example, from node start to stop - 1. None uses the entities in the labels of ``predict``.
        evidence : array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels.

        Returns
        -------
        ndarray of shape (n_examples,), of object
            For each example a list of tuples (kind, start, stop, probability).

        Raises
        ------
        ValueError
            If an example is not a chain, a class is not a label of the scheme, or an entity exceeds its example.
        """
        kinds, goes_on = find_continuations(self.classes_.tolist(), scheme)
        field = FittedField.of(self)
        if spans is None:
            spans = [entities(np.ravel(labels).tolist(), scheme) for labels in field.labels(X, evidence)]
        encoded, batches, potentials, weights = field.prepare(X, evidence)
        asked = checked_spans(spans, encoded)
        labeler = field.labeler()

        def run(batch, n_threads):
            require_no_factors(batch, "predict_entity_proba")
            require_chains(batch)
            model = labeler.model(potentials, weights, batch)
            with batch.named_in_errors():
                own = [asked[i] for i in batch.members]
                return entity_probabilities(batch, model, kinds, goes_on, own, n_threads)

        with limit_blas_threads():
            parts = [own for part in map_coarse(run, batches, self.n_jobs) for own in part]
        return make_object_array(gather_example_results(encoded, batches, parts, lambda shape: []))

    @_require_distribution
    def log_likelihood(self, X: Any, y: Any = None, *, inference: str | Inference | None = None) -> LogLikelihood:
        """Return the log-probability of each labeling, or of its known labels if labels are missing.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        y : array-like
            Labels. Nodes with ``missing_label`` are summed out.
        inference : str or Inference, optional
            As in ``predict_proba``.

        Returns
        -------
        LogLikelihood
            Log-likelihoods computed by the inference of marginals. If the log-partition of the inference is an upper
            bound, the log-likelihoods are lower bounds. Impossible labels have the value -inf. Labels are impossible
            if one of them is not in ``classes_``, or if every completion of the known labels is forbidden.

        Raises
        ------
        ValueError
            If the inference has no log-partition.
        """
        field = FittedField.of(self)
        encoded, batches, potentials, weights = field.prepare(X, y, name="y", allow_unknown=True)
        labeler = field.labeler(inference)
        chosen = labeler.able("marginals")

        def run(batch, n_threads):
            model = labeler.scores(potentials, weights, batch)
            with batch.named_in_errors():
                terms, bounds = log_likelihood_terms(model, batch.labels, len(self.classes_), chosen, n_threads)
            return np.add.reduceat(terms, batch.node_ptr[:-1]), bounds

        with limit_blas_threads():
            parts = map_coarse(run, batches, self.n_jobs)
        values = np.zeros(encoded.n_examples)
        for batch, (part, _) in zip(batches, parts, strict=True):
            values[batch.members] = part
        return LogLikelihood(values, common_bound({bound for _, bounds in parts for bound in bounds}))

    @_require_distribution
    def log_likelihood_ratio(self, X: Any, Y1: Any = None, Y2: Any = None) -> np.ndarray:
        r"""Return the logarithm of the ratio of the probabilities of two labelings.

        .. math:: \log p(Y_1 \mid x) - \log p(Y_2 \mid x) = \mathrm{score}(x, Y_1) - \mathrm{score}(x, Y_2)

        The result is exact on any graph, because the partition function cancels.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        Y1, Y2 : array-like
            Labels of all nodes.

        Returns
        -------
        ndarray of shape (n_examples,)
        """
        first, second = (self._compute_energy(X, labels, name) for name, labels in (("Y1", Y1), ("Y2", Y2)))
        return second - first

    @_require_distribution
    def sample(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: Any = None,
        evidence: Any = None,
        *,
        inference: str | Inference | None = None,
    ) -> np.ndarray:
        """Draw labelings from the conditional distribution, exactly on forests and otherwise by Gibbs sampling.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None
        evidence : array-like, optional
            Known labels, in the form of y, with ``missing_label`` for unknown labels.
        inference : str or Inference, optional
            Inference that draws samples. None uses the inference of the estimator if it can draw samples, and otherwise
            the automatic choice.

        Returns
        -------
        ndarray
            Labels in the form of the result of ``predict``, with an additional first axis of ``n_samples``. For a list
            of examples, a 1-D object array of arrays with this first axis.
        """
        n_samples = as_integer(n_samples, "n_samples")
        field = FittedField.of(self)
        encoded, batches, potentials, weights = field.prepare(X, evidence)
        labeler = field.labeler(inference)
        chosen = labeler.able("sample")
        seeds = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=len(batches))

        def run(task, n_threads):
            batch, seed = task
            model = labeler.model(potentials, weights, batch)
            with batch.named_in_errors():
                return chosen.sample(model, n_samples, random_state=int(seed), n_threads=n_threads)

        with limit_blas_threads():
            drawn = map_coarse(run, list(zip(batches, seeds, strict=True)), self.n_jobs)
        # ``decode`` needs nodes on the first axis, so the axis of samples is moved to the end and back.
        decoded = decode(encoded, [labels.T for labels in drawn], batches, classes=self.classes_, n_columns=n_samples)
        if encoded.layout == "list":
            return make_object_array([np.moveaxis(labels, -1, 0) for labels in decoded])
        return np.moveaxis(decoded, -1, 0)


def weigh_nodes_by_estimator(estimator, X, y, sample_weight):
    """Return the total weight of the nodes that a fitted field labels correctly, and of all labelled nodes."""
    return FittedField.of(estimator).weigh_correct_nodes(X, y, sample_weight)


def gather_example_results(encoded, batches, found, of_nothing):
    """Return the results of batches in the order of the examples, with defaults for examples without nodes."""
    # of_nothing: function that computes the default result from the shape of an example
    if len(found) == encoded.n_examples:
        return found
    results = [None] * encoded.n_examples
    for i, part in zip(np.concatenate([np.zeros(0, int), *(batch.members for batch in batches)]), found, strict=True):
        results[i] = part
    results = [of_nothing(encoded.label_shape(i)) if part is None else part for i, part in enumerate(results)]
    return np.array(results) if isinstance(found, np.ndarray) else results
