"""Application of any scikit-learn transformer to the features of every node."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import TransformerMixin, clone
from sklearn.utils import get_tags
from sklearn.utils._param_validation import HasMethods
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sklearn_crf import encoding
from sklearn_crf._fits import fits
from sklearn_crf._numbers import convert_to_csr
from sklearn_crf._options import options
from sklearn_crf._parameters import get_missing_label
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.encoding._layouts import align_frames, order_frames, read_layout
from sklearn_crf.preprocessing import _tuning
from sklearn_crf.preprocessing._frame_output import FrameOutput


def _has(method):
    def check(self):
        inner = getattr(self, "transformer_", self.transformer)
        getattr(inner, method)  # an AttributeError of the transformer passes through
        return True

    return check


@options(kw_only=False)
class NodeTransformer(FrameOutput, TransformerMixin, HoldsOptions, auto_wrap_output_keys=None):
    """Apply a transformer to the last axis of every example.

    The transformer is fitted on the nodes of all examples, stacked to ``(n_nodes, n_features)``. The results are put
    back into the layout of X: an array for an array, a 1-D object array of examples for a list. An
    :class:`~sklearn_crf.Example` keeps its edges. Plain 2-D data is passed through. Data frames, and lists of them, are
    passed to the transformer as data frames, so that it can select columns by name and encode categories.

    Parameters
    ----------
    transformer : transformer
        Transformer that returns a row for each row. It is cloned by ``fit``. Its parameters are set as
        ``transformer__<name>``.
    missing_label : object, optional
        Label of nodes that are not used in ``fit``. None uses the missing label of the field at the end of the pipeline
        (:func:`~sklearn_crf.pipeline.make_pipeline`).

    Attributes
    ----------
    transformer_ : transformer
        The fitted clone.
    n_features_in_ : int
        Length of the last axis seen in ``fit``, if the transformer has this attribute.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns of a data frame, or of a list of data frames, if they are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn_crf.preprocessing import NodeTransformer
    >>> images = [np.zeros((3, 4, 2)), np.ones((5, 2, 2))]
    >>> [x.shape for x in NodeTransformer(StandardScaler()).fit_transform(images)]
    [(3, 4, 2), (5, 2, 2)]
    """

    _parameter_constraints: ClassVar[dict] = {"transformer": [HasMethods("fit")], "missing_label": "no_validation"}
    transformer: Any
    missing_label: object = None

    @fits(has_estimators=True)
    def fit(self, X: Any, y: Any = None) -> "NodeTransformer":
        """Fit a clone of the transformer on all nodes.

        Parameters
        ----------
        X : array-like, sparse matrix, list of array-like, or list of Example
            Examples in any form that estimators accept.
        y : array-like or list of array-like, optional
            Labels of the nodes, for transformers that use them.

        Returns
        -------
        NodeTransformer
        """
        if not hasattr(self.transformer, "transform") and hasattr(self.transformer, "predict"):
            kind = type(self.transformer).__name__
            raise TypeError(
                f"transformer must have a method transform, but {kind} has none: use ClassifierScores({kind}()) for "
                "the class scores of a classifier."
            )
        layout, X, names = read_nodes(X)
        if layout != "nodes":
            y = None if y is None else flatten_labels(y, X)
            X = stack_rows(X)
        if y is not None:
            X, y = labelled_rows(X, y, find_missing_label(self))
        transformer = clone(self.transformer)
        self.transformer_ = transformer.fit(X) if y is None else transformer.fit(X, y)
        self._frame_names = names
        return self

    def transform(self, X: Any) -> Any:
        """Transform the features of every node.

        Parameters
        ----------
        X : array-like, sparse matrix, list of array-like, or list of Example
            Examples.

        Returns
        -------
        ndarray, sparse matrix or data frame
            Transformed features in the layout of X; a 1-D object array if X is a list. Data frames if requested with
            ``set_output``.
        """
        check_is_fitted(self)
        return self._wrap_in_container(self._apply(self.transformer_.transform, X), X)

    @available_if(_has("inverse_transform"))
    def inverse_transform(self, X: Any) -> Any:
        """Undo ``transform``.

        Parameters
        ----------
        X : array-like, sparse matrix, list of array-like, or list of Example
            Transformed examples.

        Returns
        -------
        ndarray or sparse matrix
            Original features in the layout of X; a 1-D object array if X is a list.
        """
        check_is_fitted(self)
        return self._apply(self.transformer_.inverse_transform, X)

    @available_if(_has("get_feature_names_out"))
    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the features that the transformer returns.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the input features.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        names = getattr(self, "_frame_names", None) if input_features is None else input_features
        return self.transformer_.get_feature_names_out(names)

    def _check_fitted(self) -> None:
        self.transformer_.transform  # noqa: B018
        require_column_names(self._frame_names)

    def _apply(self, function, X):
        layout, X, _ = read_nodes(X, self._frame_names)
        if layout == "nodes":
            return function(X)
        _require_one_width(X)
        if layout == "array":
            return put_back(apply_to_rows(function, rows_of(X)), X)
        return encoding.make_object_array(
            [result for group in _iterate_groups(X) for result in _transform_group(function, group)]
        )

    @property
    def n_features_in_(self) -> int:
        """Length of the last axis seen in ``fit``."""
        return self._inner("n_features_in_")

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the columns of the data frame, or of the list of data frames, seen in ``fit``."""
        if getattr(self, "_frame_names", None) is not None:
            return self._frame_names
        return self._inner("feature_names_in_")

    def _inner(self, name):
        if not hasattr(self, "transformer_") or not hasattr(self.transformer_, name):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")
        return getattr(self.transformer_, name)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "transformer_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = get_tags(self.transformer)
        tags.input_tags = inner.input_tags
        tags.target_tags = inner.target_tags
        tags.transformer_tags = inner.transformer_tags
        return tags


def require_column_names(names: Any) -> None:
    """Raise ValueError unless names of columns are None or an array of strings."""
    if names is not None and not all(isinstance(name, str) for name in names.tolist()):
        raise ValueError(f"the names of columns must be strings, got {names!r}.")


def read_nodes(X, expected=None):
    """Return the layout of X, its examples, and the names of columns; data frames are not converted."""
    frames, names = order_frames(X, expected)
    if frames is not None and all(hasattr(frame, "iloc") for frame in frames):
        return "list", frames, names
    X, names = align_frames(X, expected)
    return *read_layout(X), names


def rows_of(x: Any) -> Any:
    """Return the node features of one example, or of an array of examples, as (n_nodes, n_features)."""
    if hasattr(x, "columns"):
        return x
    if isinstance(x, encoding.Example):
        if isinstance(x.node_features, encoding.OperatorFeatures):
            raise ValueError("X has node_features that are a linear operator, which has no rows to transform.")
        return x.node_features
    return x if sp.issparse(x) else x.reshape(-1, x.shape[-1])


def apply_to_rows(function: Callable[[Any], Any], rows: Any) -> Any:
    """Apply a function to rows; without rows, apply it to a row of zeros to find the column count of the result."""
    if rows.shape[0] or hasattr(rows, "columns"):
        found = function(rows)
        if np.shape(found)[0] != rows.shape[0]:
            raise ValueError(f"got {np.shape(found)[0]} rows for {rows.shape[0]} nodes: keep one row for each node.")
        return found
    zeros = sp.csr_matrix((1, rows.shape[1]), dtype=rows.dtype)
    return function(zeros if sp.issparse(rows) else zeros.toarray())[:0]


def stack_rows(examples: Any) -> Any:
    if isinstance(examples, np.ndarray):
        return rows_of(examples)
    _require_one_width(examples)
    parts = [rows_of(x) for x in examples]
    if hasattr(parts[0], "columns"):
        return _stack_frames(parts)
    if any(sp.issparse(part) for part in parts):
        return sp.vstack([convert_to_csr(x, "X") if sp.issparse(x) else x for x in parts], format="csr")
    return np.concatenate(parts)


def _stack_frames(frames):
    import pandas
    from pandas.api.types import union_categoricals

    stacked = pandas.concat(frames, ignore_index=True)
    for name in frames[0].columns:
        columns = [frame[name] for frame in frames]
        # pandas.concat converts a categorical column to dtype object if its categories differ between frames.
        if all(isinstance(column.dtype, pandas.CategoricalDtype) for column in columns):
            stacked[name] = union_categoricals(columns, ignore_order=True)
    return stacked


def _require_one_width(examples):
    for i, x in enumerate(examples):
        if x.shape[-1] != examples[0].shape[-1]:
            raise ValueError(f"X[{i}] has {x.shape[-1]} features, but X[0] has {examples[0].shape[-1]}.")


def _iterate_groups(examples):
    """Yield groups of consecutive examples, with enough nodes for one call of the transformer."""
    group, n_nodes = [], 0
    for x in examples:
        group.append(x)
        n_nodes += rows_of(x).shape[0]
        if n_nodes >= _tuning.NODES_AT_ONCE:
            yield group
            group, n_nodes = [], 0
    if group:
        yield group


def _transform_group(function, group):
    rows = apply_to_rows(function, stack_rows(group))
    start = 0
    for x in group:
        stop = start + rows_of(x).shape[0]
        yield put_back(rows[start:stop], x)
        start = stop


def put_back(rows, x):
    """Return an example, or an array of examples, with transformed rows in place of its features."""
    if hasattr(rows, "columns"):  # if scikit-learn is configured to return data frames
        rows = rows.to_numpy()
    if isinstance(x, encoding.Example):
        return encoding.Example(
            rows, x.graph, x.edge_features, x.node_type, x.edge_type, x.n_states, x.factors, x.fixed_factors
        )
    if not sp.issparse(rows):
        return rows.reshape(*x.shape[:-1], rows.shape[1])
    if x.ndim == 2:
        return rows
    raise ValueError(
        f"The transformer returned a sparse matrix, which cannot take the shape {tuple(x.shape[:-1])} of a lattice: "
        "configure the transformer to return dense output."
    )


def find_missing_label(transformer):
    """Return the value of ``missing_label``: the transformer's, else its classifier's, else the field's."""
    if transformer.missing_label is not None:
        return transformer.missing_label
    own = get_missing_label(getattr(transformer, "estimator", None))
    return encoding.missing_label_of_field.get() if own is None else own


def flatten_labels(y, examples):
    """Return the labels of all nodes of all examples as a flat array."""
    if len(y) != len(examples):
        raise ValueError(f"y has {len(y)} examples, but X has {len(examples)}.")
    parts = []
    for i, (labels, x) in enumerate(zip(y, examples, strict=True)):
        labels = encoding.convert_to_label_array(labels)
        shape = x.shape[:1] if isinstance(x, encoding.Example) else x.shape[:-1]
        if labels.shape != tuple(shape):
            raise ValueError(f"y[{i}] has shape {labels.shape}, but the lattice of X[{i}] has shape {tuple(shape)}.")
        parts.append(labels.ravel())
    return np.concatenate(parts)


def labelled_rows(rows, labels, missing_label):
    """Return the rows with known labels, and these labels."""
    values = encoding.convert_to_label_array(labels)
    missing = encoding.mask_missing_nodes(values, missing_label)
    known = np.flatnonzero(~missing)
    if values.dtype == object:
        # Convert object arrays even if no label is missing, because scikit-learn rejects integers in them.
        labels = values = encoding.convert_object_labels(values[known], "y")
    else:
        values = values[known]
    if len(known) == len(missing):
        return rows, labels
    if hasattr(rows, "iloc"):
        return rows.iloc[known], values
    return (rows.tocsr() if sp.issparse(rows) else np.asarray(rows))[known], values
