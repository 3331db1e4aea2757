"""Class scores of any classifier as node features, which serve as unary scores of a field."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, TransformerMixin, clone
from sklearn.model_selection import check_cv
from sklearn.utils import get_tags
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._fits import fits
from sklearn_crf._numbers import as_reals
from sklearn_crf._options import options
from sklearn_crf._own_methods import require_classes
from sklearn_crf._versions import HoldsOptions, get_versioned_state, restore_versioned_state
from sklearn_crf.encoding import has_nodes, make_object_array
from sklearn_crf.model_selection import cross_val_predict
from sklearn_crf.preprocessing import _node_transformer
from sklearn_crf.preprocessing._frame_output import FrameOutput
from sklearn_crf.preprocessing._tuning import FEW_FEATURES, RUNS_PER_FOLD

# Lower limit of probabilities before taking logarithms, since forests return probabilities of zero.
_SMALLEST = float(np.finfo(np.float32).eps)

_METHODS = ("predict_log_proba", "predict_proba", "decision_function")


@options(kw_only=False)
class ClassifierScores(FrameOutput, TransformerMixin, MetaEstimatorMixin, BaseEstimator, auto_wrap_output_keys=None):
    r"""Replace the features of each node by class scores from a classifier; a field then uses the scores as features.

    .. math::
        x_s \mapsto \bigl(\log p(y_s = 1 \mid x_s), \dots, \log p(y_s = K \mid x_s)\bigr)

    A field trained on these features learns how far to trust the classifier for each class, and how much neighbours
    add. Training requires scores of nodes that the classifier has not seen. ``fit_transform``, which pipelines call,
    therefore scores each example by a clone that was fitted without the example, as in stacked generalisation (Wolpert,
    1992). ``transform`` uses one classifier that was fitted on all examples.

    Parameters
    ----------
    estimator : classifier
        Any classifier of plain rows. ``fit`` clones it. Data frames are passed to the classifier as data frames.
    cv : int, splitter, iterable or "prefit", default=5
        Folds of whole examples: their number, stratified by the fractions of classes
        (:class:`~sklearn_crf.model_selection.StratifiedLatticeKFold`), or a splitter. If there are fewer examples than
        folds, such as a single image, examples are cut into runs of nodes (bands of rows in images), which form the
        folds. "prefit" uses ``estimator`` as it is, fitted on other data.
    method : {"predict_log_proba", "predict_proba", "decision_function"}, default="predict_log_proba"
        Method of the classifier that computes scores. Before the logarithm, probabilities below 1.2e-7 are set to
        1.2e-7.
    passthrough : bool or "auto", default="auto"
        Whether to append the features of X to the scores, so that edge features can depend on them. In photographs,
        labels change at borders in the image; scores of pixels do not show these borders. "auto" appends the features
        of dense images and volumes with two classes and at most 32 features. With more classes, fields use constant
        edge features by default, and node weights for the features tend to overfit.
    missing_label : object, default=None
        Label of nodes that do not train the classifier. Such nodes are scored like all other nodes. None uses the
        missing label of ``estimator``, if it has one, or of the field at the end of the pipeline
        (:func:`~sklearn_crf.pipeline.make_pipeline`).
    n_jobs : int, optional
        Number of folds that are fitted in parallel.

    Attributes
    ----------
    estimator_ : classifier
        The classifier fitted on all examples.
    classes_ : ndarray of shape (n_classes,)
        Classes, one for each column of scores.
    n_features_in_ : int
        Number of features of a node.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of data frames.
    passthrough_ : bool
        Whether the features of X follow the scores.

    See Also
    --------
    NodeTransformer : Applies a transformer, such as a scaler, to every node.

    References
    ----------
    D. H. Wolpert. Stacked Generalization. Neural Networks, 1992, :doi:`10.1016/S0893-6080(05)80023-1`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.preprocessing import ClassifierScores
    >>> rng = np.random.default_rng(0)
    >>> # labels that last for five steps or more
    >>> y = np.repeat(rng.integers(2, size=(30, 4)), 5, axis=1)
    >>> X = y[..., np.newaxis] + rng.normal(size=(30, 20, 3))
    >>> forest = RandomForestClassifier(n_estimators=20, random_state=0)
    >>> field = make_pipeline(ClassifierScores(forest, cv=3), TRWCRF()).fit(X[:20], y[:20])
    >>> alone = forest.fit(X[:20].reshape(-1, 3), y[:20].ravel())
    >>> right = alone.predict(X[20:].reshape(-1, 3)) == y[20:].ravel()
    >>> print(f"{right.mean():.2f} alone, {field.score(X[20:], y[20:]):.2f} in a field")
    0.76 alone, 0.81 in a field
    """

    __getstate__ = get_versioned_state
    __setstate__ = restore_versioned_state

    def _check_fitted(self) -> None:
        """Raise ValueError if fitted attributes contradict the fitted classifier."""
        require_classes(self.classes_)
        parts = self, self.estimator_, self._nodes, self._nodes.estimator_
        found = [(part.classes_.tolist(), part.n_features_in_) for part in parts]
        if any(own != found[1] for own in found) or not isinstance(self._nodes, _NodeClassifier):
            raise ValueError("classes_ and n_features_in_ must equal those of estimator_.")
        _node_transformer.require_column_names(self._nodes.feature_names_in_)
        if not isinstance(self.passthrough_, bool):
            raise ValueError(f"passthrough_ must be True or False, got {self.passthrough_!r}.")

    _parameter_constraints: ClassVar[dict] = {
        "estimator": [HasMethods("fit")],
        "cv": ["cv_object", StrOptions({"prefit"})],
        "method": [StrOptions(set(_METHODS))],
        "passthrough": ["boolean", StrOptions({"auto"})],
        "missing_label": "no_validation",
        "n_jobs": [Integral, None],
    }
    estimator: Any
    cv: int | str | Any = 5
    method: str = "predict_log_proba"
    passthrough: bool | str = "auto"
    missing_label: object = None
    n_jobs: int | None = None

    @fits(has_estimators=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> ClassifierScores:
        """Fit the classifier on the nodes of all examples.

        Parameters
        ----------
        X : array-like, sparse matrix, list of array-like, or list of Example
            Examples in any form that estimators accept.
        y : array-like or list of array-like
            Labels of the nodes.

        Returns
        -------
        ClassifierScores
            self

        Raises
        ------
        ValueError
            If the classifier does not have the method, or y does not fit the shape of X.
        """
        self._fit(X, y)
        return self

    @fits(has_estimators=True)
    def fit_transform(self, X: ArrayLike, y: ArrayLike) -> np.ndarray:
        """Fit, and score each example by a classifier that was fitted without the example.

        Parameters
        ----------
        X : array-like, sparse matrix, list of array-like, or list of Example
            Examples in any form that estimators accept.
        y : array-like or list of array-like
            Labels of the nodes.

        Returns
        -------
        ndarray
            Scores in place of features, in the layout of X; a 1-D object array if X is a list.

        Raises
        ------
        ValueError
            If ``cv`` asks for more folds than there are nodes, or does not test each example exactly once.
        """
        self._fit(X, y)
        if isinstance(self.cv, str):
            return self.transform(X)
        layout, examples, _ = _node_transformer.read_nodes(X)
        if layout != "nodes" and isinstance(self.cv, Integral) and int(self.cv) > sum(map(has_nodes, examples)):
            return self._replace_features(X, self._cross_validate_parts(examples, y, self.cv))
        # scikit-learn stratifies folds of rows. For lattices, cross_val_predict stratifies by the fractions of classes.
        cv = check_cv(self.cv, y, classifier=True) if layout == "nodes" else self.cv
        return self._replace_features(X, self._compute_left_out_scores(X, y, cv))

    def _compute_left_out_scores(self, X, y, cv):
        nodes = _NodeClassifier(self.estimator, _node_transformer.find_missing_label(self))
        method = self._choose_response(self.estimator)
        return cross_val_predict(nodes, X, y, cv=cv, n_jobs=self.n_jobs, method=method)

    def _cross_validate_parts(self, examples, y, n_folds):
        """Return scores (n_nodes, n_columns) of each example, by cross-validation with each example split into parts.

        This method is used if there are fewer examples than folds.
        """
        labels = [_node_transformer.flatten_labels([own], [x]) for own, x in zip(y, examples, strict=True)]
        rows, parts, owner = [], [], []
        for i, (x, own) in enumerate(zip(examples, labels, strict=True)):
            for nodes in np.array_split(np.arange(len(own)), RUNS_PER_FOLD * n_folds):
                if len(nodes):
                    found = _node_transformer.rows_of(x)
                    rows.append(found.iloc[nodes] if hasattr(found, "iloc") else found[nodes])
                    parts.append(own[nodes])
                    owner.append(i)
        if len(rows) < n_folds:
            raise ValueError(
                f"cv={n_folds} needs at least as many nodes as folds, but X has {len(rows)}: use fewer folds."
            )
        found = self._compute_left_out_scores(rows, parts, n_folds)
        of_example = [[part for part, j in zip(found, owner, strict=True) if j == i] for i in range(len(labels))]
        return make_object_array([np.concatenate(own or [found[0][:0]]) for own in of_example])

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Score each node by the classifier that was fitted on all examples.

        Parameters
        ----------
        X : array-like, sparse matrix, list of array-like, or list of Example
            Examples.

        Returns
        -------
        ndarray
            Scores in place of features, in the layout of X; a 1-D object array if X is a list.
        """
        check_is_fitted(self)
        self._validate_params()
        return self._replace_features(X, getattr(self._nodes, self._choose_response(self.estimator_))(X))

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> np.ndarray:
        """Return the names of the scores, followed by the names of the features if these are appended.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the features of X.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        is_binary = self.method == "decision_function" and len(self.classes_) == 2
        names = [f"score_{name}" for name in (self.classes_[1:] if is_binary else self.classes_)]
        if self.passthrough_:
            given = getattr(self, "feature_names_in_", None) if input_features is None else input_features
            names += [f"x{i}" for i in range(self.n_features_in_)] if given is None else map(str, np.asarray(given))
        return np.array(names, dtype=object)

    def _fit(self, X, y):
        self._choose_response(self.estimator)
        if isinstance(self.cv, str):
            check_is_fitted(self.estimator)
            nodes = _NodeClassifier(self.estimator)
            nodes.use(self.estimator, X)
        else:
            nodes = _NodeClassifier(self.estimator, _node_transformer.find_missing_label(self)).fit(X, y)
        self._nodes = nodes
        self.estimator_ = nodes.estimator_
        self.classes_ = nodes.classes_
        self.n_features_in_ = nodes.n_features_in_
        self.passthrough_ = self._passes_through(X)
        self.__dict__.pop("feature_names_in_", None)
        if nodes.feature_names_in_ is not None:
            self.feature_names_in_ = nodes.feature_names_in_

    def _passes_through(self, X):
        if self.passthrough != "auto":
            return bool(self.passthrough)
        if len(self.classes_) != 2 or self.n_features_in_ > FEW_FEATURES:
            return False
        layout, X, _ = _node_transformer.read_nodes(X)
        return layout != "nodes" and np.ndim(X[0]) > 2

    def _choose_response(self, estimator):
        """Return the name of the classifier's method to call; raise an error if the classifier lacks it."""
        found = "predict_proba" if self.method == "predict_log_proba" else self.method
        if not hasattr(estimator, found):
            others = [method for method in _METHODS if hasattr(estimator, method)]
            remedy = "choose one of its methods, or wrap the classifier in CalibratedClassifierCV"
            raise ValueError(
                f"method={self.method!r} is not a method of {type(estimator).__name__}, which has {others}: "
                f"{remedy if others else 'pass a classifier, such as LogisticRegression()'}."
            )
        return found

    def _replace_features(self, X, scores):
        """Replace the features of X by node scores; keep the layout and the container of X."""
        layout, read, _ = _node_transformer.read_nodes(X, self._nodes.feature_names_in_)

        def replaced(scores, x):
            return _node_transformer.put_back(self._as_features(scores, _node_transformer.rows_of(x)), x)

        if layout == "nodes":
            found = self._as_features(scores, read)
        elif layout == "array":
            found = replaced(np.concatenate(scores) if scores.dtype == object else scores, read)
        else:
            found = make_object_array([replaced(*pair) for pair in zip(scores, read, strict=True)])
        return self._wrap_in_container(found, X)

    def _as_features(self, scores, rows):
        """Return finite scores (n_nodes, n_columns), followed by the features of X if ``passthrough_`` is set."""
        scores = scores.reshape(rows.shape[0], scores.shape[-1] if scores.ndim > 1 else 1)
        if self.method == "predict_log_proba":
            scores = np.log(np.maximum(scores, _SMALLEST))
        elif self.method == "decision_function":
            scores = scores[:, 1:] if len(self.classes_) == 2 else scores
            # Scores of a class that a fold lacks are infinite, and are replaced by the smallest finite score.
            scores = np.maximum(scores, scores.min(where=np.isfinite(scores), initial=0.0))
        if not self.passthrough_:
            return scores
        rows = as_reals(rows, "X")
        return sp.hstack([scores, rows], format="csr") if sp.issparse(rows) else np.hstack([scores, rows])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
        return tags


@options(kw_only=False)
class _NodeClassifier(ClassifierMixin, HoldsOptions):
    """Classifier of plain rows that is applied to the nodes of examples.

    Results have the shape of the labels.
    """

    estimator: Any
    missing_label: object = None

    def fit(self, X, y):
        layout, X, names = _node_transformer.read_nodes(X)
        rows = X if layout == "nodes" else _node_transformer.stack_rows(X)
        labels = y if layout == "nodes" else _node_transformer.flatten_labels(y, X)
        self._set(clone(self.estimator).fit(*_node_transformer.labelled_rows(rows, labels, self.missing_label)), names)
        return self

    def use(self, fitted, X):
        """Use a classifier that is already fitted."""
        self._set(fitted, _node_transformer.read_nodes(X, getattr(fitted, "feature_names_in_", None))[2])

    def _set(self, fitted, names):
        self.estimator_ = fitted
        self.classes_ = fitted.classes_
        self.n_features_in_ = fitted.n_features_in_
        self.feature_names_in_ = getattr(fitted, "feature_names_in_", None) if names is None else names

    def predict_proba(self, X):
        return self._apply(self.estimator_.predict_proba, X)

    def decision_function(self, X):
        return self._apply(self._compute_decisions, X)

    def _compute_decisions(self, rows):
        values = self.estimator_.decision_function(rows)
        return np.stack([-values, values], axis=1) if values.ndim == 1 else values  # one column per class

    def _apply(self, function, X):
        layout, X, _ = _node_transformer.read_nodes(X, self.feature_names_in_)
        if layout == "nodes":
            return np.asarray(function(X))
        scores = np.asarray(_node_transformer.apply_to_rows(function, _node_transformer.stack_rows(X)))
        if layout == "array":
            return scores.reshape(*X.shape[:-1], *scores.shape[1:])
        stops = np.cumsum([_node_transformer.rows_of(x).shape[0] for x in X])
        return make_object_array(np.split(scores, stops[:-1]))
