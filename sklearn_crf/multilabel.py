"""Multi-label classification with a field that has a node for each label."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import minimum_spanning_tree
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import check_array
from sklearn.utils._param_validation import HasMethods, InvalidParameterError, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from sklearn_crf import encoding
from sklearn_crf._fits import fits
from sklearn_crf._numbers import as_reals, convert_to_csr, different, replace_masked_values
from sklearn_crf._options import options
from sklearn_crf._own_methods import require_classes
from sklearn_crf._parameters import hide_type_in_halving, require_objects
from sklearn_crf._reports import FitReprMixin
from sklearn_crf._versions import get_versioned_state, restore_versioned_state
from sklearn_crf.encoding import Example, RowFields, require_one_label_each, require_rows
from sklearn_crf.estimators.trw import TRWCRF
from sklearn_crf.graphs import Graph, build_disjoint_union
from sklearn_crf.inference import Inference
from sklearn_crf.models import FactorGraph, PairwiseModel

__all__ = ["MultiLabelField", "chow_liu_edges"]


def chow_liu_edges(Y: ArrayLike, sample_weight: ArrayLike | None = None) -> np.ndarray:
    r"""Return the edges of the spanning tree of labels that maximises mutual information (Chow and Liu, 1968).

    .. math::
        \max_{T \text{ a spanning tree}} \; \sum_{(a, b) \in T} \sum_{u, v \in \{0, 1\}}
            \hat p_{ab}(u, v) \log \frac{\hat p_{ab}(u, v)}{\hat p_a(u) \, \hat p_b(v)}

    Among all trees, this tree has the highest likelihood on the training labels. Counts start at one for every pair of
    values. The counts of a pair of labels use the rows in which both labels are known.

    Parameters
    ----------
    Y : array-like or sparse matrix of shape (n_samples, n_labels)
        Zeros and ones; unknown labels are NaN, None, -1 or masked.
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the rows: a row of weight k is equivalent to k equal rows.

    Returns
    -------
    ndarray of shape (n_labels - 1, 2), int32
        Pairs of labels, the smaller label first, in sorted order.

    Raises
    ------
    ValueError
        If ``Y`` holds other values, or a weight is missing or negative.

    Examples
    --------
    >>> from sklearn_crf.multilabel import chow_liu_edges
    >>> chow_liu_edges([[0, 0, 1], [1, 1, 1], [1, 1, 0], [0, 0, 0]])
    array([[0, 1],
           [0, 2]], dtype=int32)
    """
    known, cells, values = _read_cells(Y, np.array([0, 1]))
    if not np.isin(cells, values).all():
        raise ValueError(
            "Y must hold zeros and ones, and NaN or -1 for unknown labels: MultiLabelBinarizer makes them."
        )
    weight = encoding.validate_sample_weight(1.0 if sample_weight is None else sample_weight, len(known))
    indicators = np.zeros((2, *known.shape))
    for value, indicator in zip(values, indicators, strict=True):
        indicator[known] = cells == value
    counts = np.array([[(first.T * weight).dot(second) for second in indicators] for first in indicators]) + 1
    joint = counts / counts.sum(axis=(0, 1))
    expected = joint.sum(axis=1)[:, None] * joint.sum(axis=0)[None]
    information = (joint * np.log(joint / expected)).sum(axis=(0, 1))
    # Lengths are at least 1, because SciPy interprets a length of 0 as a missing edge.
    length = 1 + information.max() - information
    tree = sp.coo_array(minimum_spanning_tree(np.triu(length, k=1)))
    edges = np.stack([np.minimum(tree.row, tree.col), np.maximum(tree.row, tree.col)], axis=1)
    return edges[np.lexsort(edges.T[::-1])].astype(np.int32)


# Maximum number of labels for which "auto" means "full"; 15 labels have 2^15 joint states.
_MOST_JOINED = 15


def _make_default_field():
    # Predict the most probable combination of labels, because the score counts rows whose labels are all correct.
    return TRWCRF(pairwise="ising", inference="map", max_iter=1000)


def _has_probabilities(estimator):
    # If the field has no distribution, attribute access raises an AttributeError with advice for the user.
    return bool(getattr(estimator, "estimator_", estimator.estimator or _make_default_field()).predict_proba)


@options(kw_only=False)
class MultiLabelField(FitReprMixin, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    r"""Multi-label classifier that models dependencies between labels by a field with a node for each label.

    .. math::
        p(y \mid x) \propto \exp \Bigl( \sum_{l} y_l (w_l^\top x + b_l)
            + \sum_{(l, m) \in \text{structure}} v_{lm} (2 [y_l = y_m] - 1) \Bigr)

    Every label has separate weights for the features of the row, and every edge has a separate weight for the agreement
    of its two labels. Without edges this is one logistic regression for each label. Some labels of a row may be
    unknown: learning sums over their values, with the ``missing_label`` of the field.

    Parameters
    ----------
    estimator : classifier of this package, default=None
        The field, cloned by ``fit``. None is ``TRWCRF(pairwise="ising", inference="map", max_iter=1000)``. It predicts
        the most probable combination of labels, which maximises the expected number of rows whose labels are all
        correct. With ``inference="auto"``, each label is predicted by its own probability, which makes fewer errors in
        single labels.
    structure : {"auto", "chow_liu", "full"} or array-like of shape (n_edges, 2), default="auto"
        Pairs of labels that depend on each other: the tree of :func:`chow_liu_edges`, all pairs, or an array of pairs.
        "auto" is "full" for at most 15 labels, for which exact learning takes seconds, and otherwise "chow_liu".

    Attributes
    ----------
    estimator_ : classifier
        The fitted field; ``estimator_.edge_coef_`` has a row for each of ``edges_``.
    edges_ : ndarray of shape (n_edges, 2)
        Pairs of labels.
    classes_ : ndarray of shape (n_labels,)
        Indices of the labels, which are the columns of ``y``.
    values_ : ndarray of shape (2,)
        Values in ``y`` of a label that a row does not have, and of a label that it has: usually 0 and 1.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only for data frames.

    See Also
    --------
    sklearn.multioutput.ClassifierChain : Predicts each label given the labels before it.

    References
    ----------
    C. K. Chow, C. N. Liu. Approximating Discrete Probability Distributions with Dependence Trees. IEEE Transactions on
    Information Theory, 1968, :doi:`10.1109/TIT.1968.1054142` (``structure="chow_liu"``).

    N. Ghamrawi, A. McCallum. Collective Multi-Label Classification. CIKM 2005 (``structure="full"``).

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from sklearn_crf import MultiLabelField
    >>> X, Y = make_multilabel_classification(n_samples=60, n_classes=4, random_state=0)
    >>> field = MultiLabelField().fit(X, Y)
    >>> field.predict(X).shape, field.predict_proba(X).shape
    ((60, 4), (60, 4))
    >>> len(field.edges_)
    6
    """

    __getstate__ = get_versioned_state
    __setstate__ = restore_versioned_state

    def _check_fitted(self) -> None:
        """Raise ValueError unless labels, label values, edges and the fitted field are consistent."""
        require_classes(self.values_)
        expected = 2, [0, 1], list(range(len(self.classes_))), self.estimator_.n_features_in_
        found = len(self.values_), *(part.classes_.tolist() for part in (self.estimator_, self)), self.n_features_in_
        if found != expected:
            raise ValueError("values_, classes_ or n_features_in_ contradict estimator_.")
        Graph(len(self.classes_), self.edges_)

    _parameter_constraints: ClassVar[dict] = {
        "estimator": [HasMethods(["fit", "predict"]), None],
        "structure": [StrOptions({"auto", "chow_liu", "full"}), "array-like"],
    }
    estimator: Any = None
    structure: str | ArrayLike = "auto"

    def set_params(self, **params: Any) -> MultiLabelField:
        """Set parameters, including parameters of the field ``estimator``, such as ``estimator__C=0.1``.

        Parameters
        ----------
        **params : dict

        Returns
        -------
        MultiLabelField
            self

        Raises
        ------
        ValueError
            If a parameter of the field is set while ``estimator`` is None.
        """
        require_objects(self, params, {"estimator": "TRWCRF(pairwise='ising')"})
        return super().set_params(**params)

    @fits(has_estimators=True)
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> MultiLabelField:
        """Fit the field to rows and to the labels of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the rows. The option ``missing_features`` of the learning method determines how NaN is treated.
        y : array-like or sparse matrix of shape (n_samples, n_labels)
            Labels of each row, as zeros and ones. With any other two values, the larger value means that the row has
            the label. NaN and None mark unknown labels. If the values of y are 0, 1 and -1, then -1 also
            marks unknown labels. Rows without a known label are left out.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows, for the choice of the structure and for the fit of the field.

        Returns
        -------
        MultiLabelField
            self

        Raises
        ------
        ValueError
            If y is not a table of two values, a label is unknown in all rows, or ``structure`` contains a label that is
            not in y.
        """
        values, Y = _encode_indicator(y)
        n_labels = Y.shape[1]
        X = self._rows(X, reset=True)
        check_consistent_length(X, Y)
        weight = encoding.scale_sample_weight(encoding.validate_sample_weight(sample_weight, len(Y)))
        is_used = (Y >= 0).any(axis=1)
        if not is_used.all():
            X, Y, weight = X[is_used], Y[is_used], None if weight is None else weight[is_used]
        graph = Graph(n_labels, _edges(self.structure, Y, weight))
        field = _make_default_field() if self.estimator is None else clone(self.estimator)
        if "missing_label" not in field.get_params(deep=False):
            raise ValueError(
                f"estimator must be a field classifier such as TRWCRF(pairwise='ising'), got {field!r}: "
                "MultiOutputClassifier of scikit-learn fits other classifiers."
            )
        # Pass both classes, because the field cannot infer them if all labels in Y are equal.
        field.set_params(classes=[0, 1], missing_label=-1)
        options = {} if weight is None else {"sample_weight": weight}
        self.estimator_ = field.fit(_build_row_examples(X, graph), Y, **options)
        self.edges_ = np.array(graph.edges)
        self.classes_ = np.arange(n_labels)
        self.values_ = values
        return self

    def predict(
        self, X: ArrayLike, evidence: ArrayLike | None = None, *, inference: str | Inference | None = None
    ) -> np.ndarray:
        """Predict the labels of each row with the decoding rule of the field.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the rows.
        evidence : array-like of shape (n_samples, n_labels), optional
            Known labels, with values as in y, and NaN or None for unknown labels. Unknown labels are predicted given
            the known labels.
        inference : str or Inference, optional
            Inference that predicts; None uses the inference of the field.

        Returns
        -------
        ndarray of shape (n_samples, n_labels)
            Zeros and ones, or the two values of the training labels.
        """
        examples, known = self._build_prediction_examples(X, evidence)
        labels = _concatenate_predictions(self.estimator_.predict(examples, known, inference=inference))
        labels = labels.reshape(-1, len(self.classes_))
        if self.values_.dtype == labels.dtype and np.array_equal(self.values_, [0, 1]):
            return labels
        return self.values_[labels.astype(np.intp, copy=False)]

    @available_if(_has_probabilities)
    def predict_proba(
        self, X: ArrayLike, evidence: ArrayLike | None = None, *, inference: str | Inference | None = None
    ) -> np.ndarray:
        """Predict the probability of each label, which is the marginal probability of the label's node in the field.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the rows.
        evidence : array-like of shape (n_samples, n_labels), optional
            As in ``predict``.
        inference : str or Inference, optional
            Inference that computes the marginals; None uses the inference of the field.

        Returns
        -------
        ndarray of shape (n_samples, n_labels)
            Probabilities that a row has a label, in the layout of :class:`~sklearn.multiclass.OneVsRestClassifier` and
            :class:`~sklearn.multioutput.ClassifierChain`.
        """
        examples, known = self._build_prediction_examples(X, evidence)
        found = _concatenate_predictions(self.estimator_.predict_proba(examples, known, inference=inference))
        return found[..., 1].reshape(-1, len(self.classes_))

    def score(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the fraction of rows whose known labels are all predicted correctly.

        Unknown labels, and rows without a known label, are ignored.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the rows.
        y : array-like or sparse matrix of shape (n_samples, n_labels)
            Their labels, as in ``fit``.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        float
        """
        predicted = self.predict(X)
        known, cells, _ = _read_cells(y, self.values_)
        if known.shape != predicted.shape:
            raise ValueError(
                f"y must have shape {predicted.shape}, for the rows of X and the labels of fit, got {known.shape}."
            )
        if not known.any():
            raise ValueError("y holds no known label: all of its cells are NaN, None or -1.")
        weight = encoding.scale_sample_weight(encoding.validate_sample_weight(sample_weight, len(known)))
        weight = known.any(axis=1) * (1.0 if weight is None else weight)
        is_wrong = np.zeros(known.shape, dtype=bool)
        is_wrong[known] = predicted[known] != cells
        return float(np.average(~is_wrong.any(axis=1), weights=weight))

    def models(self, X: ArrayLike, evidence: ArrayLike | None = None) -> list[PairwiseModel | FactorGraph]:
        """Return the graphical model of the labels of each row, under the fitted weights.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the rows.
        evidence : array-like of shape (n_samples, n_labels), optional
            Known labels, as in ``predict``. States that contradict them are forbidden.

        Returns
        -------
        list of PairwiseModel
            One model for each row, with a node for each label. State 0 means that the row does not have the label, and
            state 1 means that it has the label.
        """
        examples = self._build_fitted_examples(X)
        return self.estimator_.models(examples, self._read_evidence(evidence, len(examples)))

    def _read_evidence(self, evidence, n_rows):
        """Convert evidence to 0 and 1, with NaN for unknown labels, or return None if there is no evidence."""
        if evidence is None:
            return None
        table = as_reals(evidence, "evidence", np.float64)
        if table.shape != (n_rows, len(self.classes_)):
            raise ValueError(f"evidence must have shape ({n_rows}, {len(self.classes_)}), got {table.shape}.")
        is_open = np.isnan(table)
        wrong = ~is_open & ~np.isin(table, self.values_)
        if wrong.any():
            raise ValueError(f"evidence holds {table[wrong][0]:g}, but the values of y are {self.values_.tolist()}.")
        return list(np.where(is_open, np.nan, table == self.values_[1]))

    def _build_fitted_examples(self, X):
        check_is_fitted(self)
        return _build_row_examples(self._rows(X, reset=False), Graph(len(self.classes_), self.edges_))

    def _build_prediction_examples(self, X, evidence):
        """Build examples of one or more rows each; return the examples and the known labels (None without evidence)."""
        if evidence is not None:
            examples = self._build_fitted_examples(X)
            return examples, self._read_evidence(evidence, len(examples))
        check_is_fitted(self)
        graph = Graph(len(self.classes_), self.edges_)
        return _build_joined_examples(self._rows(X, reset=False), graph), None

    def _rows(self, X, reset):
        require_rows(X)
        X = convert_to_csr(X, "X") if sp.issparse(X) else replace_masked_values(X)
        # The field fills NaN, unless its learning method refuses NaN.
        options: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
        return validate_data(self, X, reset=reset, accept_sparse="csr", order="C", **options)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        return hide_type_in_halving(tags)


def _convert_to_table(y):
    """Convert y to an array (n_samples, n_labels)."""
    if y is None:
        raise ValueError("MultiLabelField requires y to be passed, but the target y is None.")
    use = "y must be zeros and ones of shape (n_samples, n_labels): MultiLabelBinarizer().fit_transform(y) makes them."
    require_one_label_each(y, use)
    options: dict[str, Any] = {"dtype": None, "ensure_2d": False, "ensure_all_finite": "allow-nan", "input_name": "y"}
    y = convert_to_csr(y, "y").toarray() if sp.issparse(y) else check_array(replace_masked_values(y), **options)
    if y.ndim != 2:
        raise ValueError(
            f"y must have shape (n_samples, n_labels) of zeros and ones, got {y.shape}: for one label per row, fit "
            "the field itself."
        )
    return y


def _read_cells(y: Any, values: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a mask of the known cells of y, the known cells as a flat array, and the sorted values of y."""
    # returns: (n_samples, n_labels), bool; (n_known,); (n_values,)
    table = _convert_to_table(y)
    known = ~encoding.mask_missing_nodes(table, np.nan)
    cells = table[known]
    if cells.dtype == object:
        cells = encoding.convert_object_labels(cells, "y")
    values = different(cells) if values is None else values
    encoding.require_same_kind(cells, values, "y", "the values of fit")
    if values.tolist() in ([0, 1], [-1, 0, 1]) and not sp.issparse(y):
        known[known] = is_known = cells != -1
        cells, values = cells[is_known], values[-2:]
    return known, cells, values


def _encode_indicator(y):
    """Return the two values in y, and an int32 table with 1 for the larger value and -1 for unknown cells."""
    known, cells, values = _read_cells(y)
    occurs = known.any(axis=0)
    if not occurs.all():
        label = np.argmin(occurs)
        raise ValueError(f"y[:, {label}] holds no known label: its cells are NaN, None or -1. Leave this column out.")
    if cells.dtype.kind == "f" and np.any(cells != np.floor(cells)):
        check_classification_targets(cells)
    if len(values) != 2:
        raise ValueError(
            f"y must hold two classes, zeros and ones, got {len(values)} class{'es' * (len(values) > 1)}: use "
            "MultiLabelBinarizer to convert sets of labels to zeros and ones."
        )
    Y = np.full(known.shape, -1, dtype=np.int32)
    Y[known] = cells == values[1]
    return values, Y


def _edges(structure, Y, weight):
    n_labels = Y.shape[1]
    if isinstance(structure, str):
        if structure == "full" or (structure == "auto" and n_labels <= _MOST_JOINED):
            return np.stack(np.triu_indices(n_labels, k=1), axis=1)
        return chow_liu_edges(Y, weight) if n_labels > 1 else []
    try:
        return Graph(n_labels, structure).edges
    except ValueError as error:
        raise InvalidParameterError(
            f"structure must be 'auto', 'chow_liu', 'full' or pairs of the {n_labels} labels: {error}"
        ) from error


def _build_row_examples(X, graph):
    """Build an example for each row, whose nodes (the labels) all have the features of the row."""
    if not sp.issparse(X):
        return RowFields(X, graph)
    types = _build_types(graph, 1, X.dtype)
    rows = (sp.vstack([X[i : i + 1]] * graph.n_nodes, format="csr") for i in range(X.shape[0]))
    return [Example(x, graph, **types) for x in rows]


def _build_joined_examples(X, graph):
    """Build an example for each row, or for many rows together if X is sparse and the graph is a forest."""
    if not (sp.issparse(X) and graph.is_forest):
        return _build_row_examples(X, graph)
    n_labels, examples = graph.n_nodes, []
    n_together = max(1, _NODES_TOGETHER // n_labels)
    union, types = graph, _build_types(graph, 1, X.dtype)
    for start in range(0, X.shape[0], n_together):
        rows = np.repeat(np.arange(start, min(start + n_together, X.shape[0])), n_labels)
        if union.n_nodes != len(rows):
            n_rows = len(rows) // n_labels
            union, types = build_disjoint_union([graph] * n_rows), _build_types(graph, n_rows, X.dtype)
        examples.append(Example(X[rows], union, **types))
    return examples


_NODES_TOGETHER = 4096


def _build_types(graph, n_rows, dtype):
    """Return types and edge features for ``n_rows`` copies of a graph; each node and edge has separate weights."""
    return {
        "node_type": np.tile(np.arange(graph.n_nodes), n_rows),
        "edge_type": np.tile(np.arange(graph.n_edges), n_rows),
        "edge_features": np.ones((n_rows * graph.n_edges, 1), dtype=dtype),
    }


def _concatenate_predictions(predicted):
    """Join several arrays of predictions into one array for all rows; return a single array unchanged."""
    return np.concatenate(predicted) if predicted.dtype == object else predicted
