"""Lists of the largest fitted weights, with the names of their features and labels."""

from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from sklearn_crf.estimators._fitted_field import FittedField

__all__ = ["top_features", "top_transitions"]


class NodeWeight(NamedTuple):
    """Weight of a node feature for one label."""

    label: object
    feature: str
    weight: float
    node_type: int


class Transition(NamedTuple):
    """Weight of an edge feature for a pair of labels."""

    label: object
    next_label: object
    feature: str
    weight: float
    edge_type: int


def top_features(
    estimator: Any, k: int | None = 10, *, label: object = None, feature_names: Sequence[str] | None = None
) -> list[NodeWeight]:
    """Return the node weights with the largest absolute values, in descending order.

    Parameters
    ----------
    estimator : fitted field classifier, or a Pipeline that ends in one
        With ``coef_``, ``intercept_`` and ``classes_``.
    k : int, optional
        Number of weights; None returns all nonzero weights.
    label : object, optional
        Class whose weights are returned; None returns weights of all classes.
    feature_names : sequence of str, optional
        Names of the features. None means the output names of the pipeline's steps before the field. If there are none,
        ``feature_names_in_`` of the field is used, and otherwise "x0", "x1" and so on.

    Returns
    -------
    list of NodeWeight

    Raises
    ------
    ValueError
        If ``label`` is not a class, or the number of names is not the number of features.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.inspection import top_features
    >>> from sklearn_crf.preprocessing import SequenceVectorizer
    >>> X = [[{"w": "the"}, {"w": "cat"}], [{"w": "the"}, {"w": "dog"}]]
    >>> tagger = make_pipeline(SequenceVectorizer(), TRWCRF(edge_features="constant")).fit(
    ...     X, [["D", "N"]] * 2
    ... )
    >>> [(found.label, found.feature) for found in top_features(tagger, 1)]
    [('N', 'w=the')]
    """
    field, names = _get_field_and_names(estimator, feature_names)
    if label is not None and label not in field.classes_.tolist():
        raise ValueError(f"label={label!r} is not among the classes {field.classes_.tolist()}.")
    found = (weight for weight in _iterate_node_weights(field, names) if label is None or weight.label == label)
    return _largest(found, k)


def top_transitions(
    estimator: Any, k: int | None = 10, *, edge_feature_names: Sequence[str] | None = None
) -> list[Transition]:
    """Return the edge weights with the largest absolute values, each with its pair of labels, in descending order.

    Parameters
    ----------
    estimator : fitted field classifier, or a Pipeline that ends in one
        With ``edge_coef_`` and ``classes_``.
    k : int, optional
        Number of weights; None returns all nonzero weights.
    edge_feature_names : sequence of str, optional
        Names of the edge features. By default, the constant term is "constant" and differences of node features are
        ``"|difference of ...|"``; other edge features are "edge0", "edge1" and so on.

    Returns
    -------
    list of Transition
        Table entries that share a weight, as with ``pairwise="potts"``, are listed separately.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.inspection import top_transitions
    >>> y = [["a", "b", "a", "b"], ["b", "a", "b"]]
    >>> field = TRWCRF(pairwise="full", edge_features="constant").fit(
    ...     [np.ones((4, 1)), np.ones((3, 1))], y
    ... )
    >>> sorted(
    ...     (found.label, found.next_label)
    ...     for found in top_transitions(field)
    ...     if found.weight > 0
    ... )
    [('a', 'b'), ('b', 'a')]
    """
    field, names = _get_field_and_names(estimator, None)
    return _largest(_transitions(field, _get_edge_names(field, names, edge_feature_names)), k)


def _get_field_and_names(estimator, feature_names):
    """Return the field, and the names of the features on which the field was fitted."""
    field, given = estimator, feature_names
    if isinstance(estimator, Pipeline):
        field = estimator[-1]
        if given is None and len(estimator) > 1:
            given = estimator[:-1].get_feature_names_out()
    check_is_fitted(field)
    for name in ("coef_", "edge_coef_", "classes_"):
        if not hasattr(field, name):
            raise TypeError(f"estimator must be a field with linear weights, but {type(field).__name__} has no {name}.")
    if given is None:
        given = getattr(field, "feature_names_in_", None)
    names = [f"x{i}" for i in range(field.n_features_in_)] if given is None else [str(name) for name in given]
    if len(names) != field.n_features_in_:
        raise ValueError(f"feature_names has {len(names)} names, but the field has {field.n_features_in_} features.")
    return field, names


def _iterate_node_weights(field, names) -> Iterator[NodeWeight]:
    names = _append_marked(names, _get_marked(field, "indicator_features_"))
    intercept = np.atleast_2d(field.intercept_)
    n_columns = intercept.shape[1]
    classes = field.classes_.tolist()
    classes = classes[1:] if n_columns == 1 else classes
    coef = field.coef_
    if not sp.issparse(coef):
        coef = coef.reshape(-1, n_columns, len(names)).swapaxes(0, 1).reshape(n_columns, -1)
    coef = sp.coo_array(coef)  # columns: node features for type 0, then for type 1, ...
    for row, column, weight in zip(coef.row.tolist(), coef.col.tolist(), coef.data.tolist(), strict=True):
        node_type, feature = divmod(column, len(names))
        yield NodeWeight(classes[row], names[feature], weight, node_type)
    boundaries = () if getattr(field, "boundary_coef_", None) is None else field.boundary_coef_
    for feature, rows in zip(("intercept", "first node", "last node"), (intercept, *boundaries), strict=False):
        for node_type, row in enumerate(np.atleast_2d(rows).tolist()):
            yield from (NodeWeight(name, feature, weight, node_type) for name, weight in zip(classes, row, strict=True))


def _transitions(field, names) -> Iterator[Transition]:
    n_features, classes = len(names), field.classes_.tolist()
    form = FittedField.of(field).layout.form
    if sp.issparse(field.edge_coef_):
        found = field.edge_coef_.tocoo()  # rows: table weights; columns: features by edge type
        entries = zip(found.col // n_features, found.col % n_features, found.row, found.data, strict=True)
    else:
        places = np.nonzero(field.edge_coef_)
        entries = zip(*places, field.edge_coef_[places], strict=True)
    cells: list[list[tuple]] = [[] for _ in range(form.n_weights)]
    for a, b in zip(*np.nonzero(form.sign), strict=True):
        cells[form.index[a, b]].append((a, b, form.sign[a, b]))
    for edge_type, feature, place, weight in entries:
        for a, b, sign in cells[place]:
            yield Transition(classes[a], classes[b], names[feature], float(sign * weight), int(edge_type))


def _get_edge_names(field, names, given):
    coef = field.edge_coef_
    n_features = coef.shape[1] // (field.n_edge_types_ if sp.issparse(coef) else 1)
    marked = _get_marked(field, "edge_indicator_features_")
    if given is not None:
        edge_names = _append_marked([str(name) for name in given], marked)
        if len(edge_names) != n_features:
            raise ValueError(f"edge_feature_names has {len(given)} names, but edges have {n_features} features.")
        return edge_names
    if field.edge_features in ("auto", "constant") and n_features == 1:
        return ["constant"]
    if field.edge_features in ("auto", "difference") and n_features == 1 + len(names):
        return ["constant", *(f"|difference of {name}|" for name in names)]
    return _append_marked([f"edge{i}" for i in range(n_features - len(marked))], marked)


def _get_marked(field, attribute):
    """Return the indices of the features with an indicator of missing values, or an empty array without indicators."""
    marked = getattr(field, attribute, None)
    return [] if marked is None else marked.tolist()


def _append_marked(names, marked):
    """Return the names of features, followed by names for the indicators of missing values."""
    return [*names, *(f"{names[i]} missing" for i in marked)]


def _largest(weights, k):
    if k is not None and (isinstance(k, bool) or not isinstance(k, Integral) or k < 1):
        raise ValueError(f"k must be an int of at least 1, or None for all weights, got {k!r}.")
    ordered = sorted((found for found in weights if found.weight), key=lambda found: -abs(found.weight))
    return ordered if k is None else ordered[:k]
