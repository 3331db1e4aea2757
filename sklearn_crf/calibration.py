"""Calibration of structured probabilities: all scores are divided by a temperature chosen on held-out examples."""

from dataclasses import KW_ONLY
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.validation import check_is_fitted

from sklearn_crf import encoding
from sklearn_crf._fits import fits
from sklearn_crf._options import options
from sklearn_crf._own_methods import require_classes, require_numbers
from sklearn_crf._parameters import get_missing_label, hide_type_in_halving
from sklearn_crf._versions import get_versioned_state, restore_versioned_state
from sklearn_crf.distributed import compute_correct_share
from sklearn_crf.encoding import take_examples
from sklearn_crf.estimators._classifier import FieldClassifier
from sklearn_crf.estimators._fitted_field import FittedField
from sklearn_crf.inference import Inference, convergence_left_to_caller
from sklearn_crf.metrics import node_accuracy_score
from sklearn_crf.model_selection import get_field_and_input, make_example_splits
from sklearn_crf.models import FactorGraph
from sklearn_crf.objectives import apply_temperature

__all__ = ["TemperatureScaling"]

# The temperature is searched between 1 / _LARGEST and _LARGEST.
_LARGEST = 1e3
# Minimum probability in the loss. Without it, a single forbidden label would determine the temperature.
_LEAST_PROBABILITY = 1e-12


@options(kw_only=False)
class TemperatureScaling(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    r"""Classifier that divides the scores of another classifier by a temperature chosen on held-out examples.

    .. math::
        p_T(y \mid x) \propto \exp \bigl( \mathrm{score}(x, y) / T \bigr), \qquad
        T = \arg\min_T \; - \sum_{i, s} \log p_T(y_{is} \mid x_i)

    Probabilities are the marginals of the field after all its scores are divided by T. The sum runs over the labelled
    nodes of held-out examples, which were not used to learn the weights. If the estimator chooses labels by marginals,
    it uses these marginals. Learning rules that only use best labelings (SPA, MMA, max-margin) do not determine the
    scale of their weights. Therefore, their probabilities need calibration. If a classifier has no scores on a graph,
    such as :class:`~sklearn_crf.mfa.MultiConditionalMFA`, the logarithms of its probabilities are divided by T.

    scikit-learn's ``CalibratedClassifierCV`` only supports one label for each example.

    Parameters
    ----------
    estimator : classifier
        A field classifier, or a classifier with ``predict_proba``. It is cloned and fitted for each fold, and at the
        end fitted to all examples.
    cv : int or splitter, default=5
        Folds of examples. An int is the number of folds of
        :class:`~sklearn_crf.model_selection.StratifiedLatticeKFold`.
    inference : Inference, optional
        Inference that computes the marginals. None uses the estimator's inference if it computes marginals, and
        otherwise :class:`~sklearn_crf.inference.AutoMarginals`.

    Attributes
    ----------
    temperature_ : float
    estimator_ : classifier
        The estimator, fitted to all examples.
    classes_ : ndarray of shape (n_classes,)
    log_loss_ : ndarray of shape (2,)
        Mean negative log-probability of the labels of held-out examples, at temperature 1 and at ``temperature_``.

    References
    ----------
    C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger. On Calibration of Modern Neural Networks. ICML 2017,
    :arxiv:`1706.04599`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> from sklearn_crf.calibration import TemperatureScaling
    >>> y = np.zeros((12, 6, 6), dtype=int)
    >>> y[:, 2:5, 2:5] = 1
    >>> X = y[..., np.newaxis] + np.random.default_rng(0).normal(
    ...     scale=0.7, size=(12, 6, 6, 1)
    ... )
    >>> calibrated = TemperatureScaling(M3NClassifier(random_state=0), cv=3).fit(X, y)
    >>> print("{:.2f} before, {:.2f} after".format(*calibrated.log_loss_))
    0.30 before, 0.26 after
    >>> calibrated.predict_proba(X).shape
    (12, 6, 6, 2)
    """

    __getstate__ = get_versioned_state
    __setstate__ = restore_versioned_state

    def _check_fitted(self) -> None:
        """Raise ValueError unless the temperature is positive and the classes equal the fitted classifier's classes."""
        require_classes(self.classes_)
        require_numbers("temperature_", np.asarray(self.temperature_), ())
        if self.temperature_ <= 0 or not np.array_equal(self.classes_, self.estimator_.classes_):
            raise ValueError("temperature_ must be positive, and classes_ must equal estimator_.classes_.")

    _parameter_constraints: ClassVar[dict] = {
        "estimator": [HasMethods(["fit", "predict"])],
        "cv": ["cv_object"],
        "inference": [Inference, None],
    }
    estimator: Any
    _: KW_ONLY
    cv: Any = 5
    inference: Inference | None = None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags = self.estimator.__sklearn_tags__().input_tags
        return hide_type_in_halving(tags)

    @fits(has_estimators=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "TemperatureScaling":
        """Choose the temperature on held-out examples, then fit the estimator to all examples.

        Parameters
        ----------
        X : array-like or list
            Examples, in the form that the estimator accepts.
        y : array-like or list of array-like
            Labels of the nodes of each example.
        sample_weight : array-like of shape (n_examples,), optional
            One weight for each example, for the fits of the estimator and for the choice of the temperature.

        Returns
        -------
        TemperatureScaling
            self
        """
        if isinstance(self.cv, Integral) and self.cv < 2:
            raise ValueError(f"cv must be at least 2, got {self.cv!r}.")
        given = 1.0 if sample_weight is None else sample_weight
        weight = encoding.validate_sample_weight(given, encoding.count_examples(y, "y"))

        def fitted_to(X, y, members):
            options = {} if sample_weight is None else {"sample_weight": weight[members]}
            return clone(self.estimator).fit(X, y, **options)

        parts = []
        for train, test in make_example_splits(self.cv, self.estimator, y):
            fitted = fitted_to(take_examples(X, train), take_examples(y, train), train)
            parts.append(self._hold_out(fitted, take_examples(X, test), take_examples(y, test), weight[test]))
        if not (total := sum(weight for weight, _ in parts)):
            raise ValueError(
                "The held-out folds of y have no labelled node of positive weight, so there is nothing to calibrate on."
            )

        def loss(log_temperature):
            return sum(part(np.exp(log_temperature)) for _, part in parts) / total

        bounds = (-np.log(_LARGEST), np.log(_LARGEST))
        found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-3})
        estimator = fitted_to(X, y, slice(None))
        self.estimator_, self.classes_ = estimator, estimator.classes_
        self.temperature_ = float(np.exp(found.x))
        self.log_loss_ = np.array([loss(0.0), found.fun])
        return self

    def _hold_out(self, fitted, X, y, weight):
        field, X = get_field_and_input(fitted, X)
        # Dense fields and regression tree fields also have models, but cannot compute marginals at another temperature.
        if isinstance(field, FieldClassifier):
            own = FittedField.of(field).labeler().able("marginals") if self.inference is None else self.inference
            models, inference, n_classes = field.models(X), clone(own), len(field.classes_)
            return _make_loss(field, y, weight, lambda i, T: _compute_marginals(models[i], inference, T, n_classes))
        found = [np.reshape(part, (-1, len(fitted.classes_))) for part in fitted.predict_proba(X)]
        return _make_loss(fitted, y, weight, lambda i, T: _divide_by_temperature(found[i], T))

    def _get_tempered_field(self, X):
        """Return the field with scores divided by the temperature, and the input of the field.

        For other classifiers, return None in place of the field.
        """
        check_is_fitted(self)
        field, X = get_field_and_input(self.estimator_, X)
        if not isinstance(field, FieldClassifier):
            return None, X
        return FittedField.of(field).apply_temperature(self.temperature_), X

    def predict(self, X: Any) -> np.ndarray:
        """Predict labels at the fitted temperature, with the estimator's decoding rule.

        If the estimator labels each node by marginals, the marginals of ``predict_proba`` are used: a node gets the
        label with the largest marginal, or with the least expected ``cost``. Best labelings do not depend on the
        temperature.

        Parameters
        ----------
        X : array-like or list
            Examples.

        Returns
        -------
        ndarray
            Labels, in the layout of the estimator's ``predict``.
        """
        field, of_field = self._get_tempered_field(X)
        if field is None:
            cost = getattr(self.estimator_, "cost", None)
            return self.estimator_.predict(X) if cost is None else self._choose_cheapest_labels(X, np.asarray(cost))
        return field.labels(of_field, inference=self.inference if field.labeler().by_marginals else None)

    def _choose_cheapest_labels(self, X, cost):
        """Return the labels with the least expected cost under the probabilities at the fitted temperature."""
        # cost: (K, K); cost[a, b] is the cost of predicting class a if class b is true
        probability = self.predict_proba(X)
        if probability.dtype == object:
            return encoding.make_object_array(
                [self.classes_[np.argmin(part @ cost.T, axis=-1)] for part in probability]
            )
        return self.classes_[np.argmin(probability @ cost.T, axis=-1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict the marginal probability of each class at every node, at the fitted temperature.

        Parameters
        ----------
        X : array-like or list
            Examples.

        Returns
        -------
        ndarray
            Probabilities, in the layout of ``predict`` with an additional last axis of length ``n_classes``.
        """
        field, of_field = self._get_tempered_field(X)
        if field is None:
            return _divide_by_temperature(self.estimator_.predict_proba(X), self.temperature_)
        encoded, batches, marginals = field.marginals(of_field, None, self.inference)
        return encoding.decode(encoded, marginals, batches, n_columns=len(self.classes_))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the fraction of labelled nodes that ``predict`` labels correctly.

        Parameters
        ----------
        X : array-like or list
            Examples.
        y : array-like or list of array-like
            Labels.
        sample_weight : array-like, optional
            One weight for each example.

        Returns
        -------
        float
        """
        field, of_field = self._get_tempered_field(X)
        if field is not None and self.inference is None:
            return compute_correct_share([field.weigh_correct_nodes(of_field, y, sample_weight)])
        missing = get_missing_label(self.estimator_)
        return node_accuracy_score(y, self.predict(X), missing_label=missing, sample_weight=sample_weight)


def _make_loss(fitted, y, weight, probability_of):
    """Return the total weight of labelled nodes in held-out examples, and the loss as a function of the temperature.

    The loss is the weighted sum of the negative log-probabilities of the labels.
    """
    # fitted: estimator that was fitted without the examples; weight: (n_examples,)
    # probability_of: function of i and a temperature that returns the class probabilities at the nodes of example i
    missing, labelled = get_missing_label(fitted), []
    for labels in y:
        flat = encoding.convert_to_label_array(labels).ravel()
        nodes = np.flatnonzero(~encoding.mask_missing_nodes(flat, missing))
        # Ignore nodes whose class is missing from the training examples of the fold.
        # The classifier has no probability for such classes.
        nodes = nodes[np.isin(flat[nodes], fitted.classes_)]
        labelled.append((nodes, np.searchsorted(fitted.classes_, flat[nodes])))

    def loss(temperature):
        total = 0.0
        for i, own in enumerate(labelled):
            if len(own[0]) and weight[i]:
                probability = probability_of(i, temperature)[own]
                total -= weight[i] * float(np.log(np.maximum(probability, _LEAST_PROBABILITY)).sum())
        return total

    return float(sum(w * len(nodes) for w, (nodes, _) in zip(weight, labelled, strict=True))), loss


def _compute_marginals(model, inference, temperature, n_classes):
    """Compute the marginals (N, K) of a model at a given temperature."""
    if not len(model.n_states if isinstance(model, FactorGraph) else model.unary):
        return np.zeros((0, n_classes))
    with convergence_left_to_caller():
        unary = inference.marginals(apply_temperature(model, temperature)).unary.astype(np.float64)
    return np.pad(unary, ((0, 0), (0, n_classes - unary.shape[1])))


def _divide_by_temperature(probability, temperature):
    """Divide the logarithms of probabilities by a temperature, and normalise the probabilities."""
    if probability.dtype == object:
        return encoding.make_object_array([_divide_by_temperature(part, temperature) for part in probability])
    with np.errstate(divide="ignore"):
        scores = np.log(probability) / temperature
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return scores / scores.sum(axis=-1, keepdims=True)
