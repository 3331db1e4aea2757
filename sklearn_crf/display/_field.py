"""FieldDisplay, which draws an example with its marginals, predicted labels and errors."""

from dataclasses import KW_ONLY
from typing import Any

import numpy as np

from sklearn_crf._options import options
from sklearn_crf._parameters import get_missing_label
from sklearn_crf.display._matplotlib import require_pyplot
from sklearn_crf.encoding import Example
from sklearn_crf.encoding._labels import _columns, split_labels

_UNLABELLED = "#9c9c9c"
_RIGHT, _WRONG = "#eeeeec", "#d1362f"
_TWO_CLASSES = ("#f4f1de", "#1d3557")


@options(kw_only=False)
class FieldDisplay:
    r"""Image, true labels, marginals, predicted labels and errors of one example, side by side.

    Create displays with :meth:`from_estimator` or :meth:`from_predictions`; the constructor only stores its arguments.

    Parameters
    ----------
    y_pred : ndarray of shape (H, W), (T,) or (n_nodes,)
        Predicted labels.
    y_true : ndarray, optional
        True labels, of the same shape as ``y_pred``.
    proba : ndarray of shape (\*y_pred.shape, n_classes), optional
        Marginal probabilities.
    image : ndarray, optional
        Picture of the input: per node a grey value, or three or four colour values in [0, 1] (0 to 255 for uint8).
    classes : array-like of shape (n_classes,), optional
        Classes of the columns of ``proba``; None finds them in the labels.
    missing_label : object, default=None
        Value of unlabelled nodes in ``y_true``. These nodes are drawn grey and do not count as errors.
    pos_label : object, default=None
        Class whose marginals are drawn. None draws the second of two classes, or the largest marginal of more classes.
    positions : array-like of shape (n_nodes, 2), optional
        Coordinates at which the nodes of a graph are drawn.
    edges : array-like of shape (E, 2), optional
        Edges, drawn as lines between the positions of their nodes.

    Attributes
    ----------
    figure_ : matplotlib Figure
    axes_ : ndarray of matplotlib Axes
        One Axes per panel.
    panels_ : list of str
        Names of the panels, in the order of ``axes_``.
    error_rate_ : float
        Fraction of labelled nodes whose label is wrong; NaN without ``y_true``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.display import FieldDisplay
    >>> y = np.eye(6, dtype=int)
    >>> display = FieldDisplay.from_predictions(y, 0 * y)  # doctest: +SKIP
    """

    y_pred: Any
    _: KW_ONLY
    y_true: Any = None
    proba: Any = None
    image: Any = None
    classes: Any = None
    missing_label: Any = None
    pos_label: Any = None
    positions: Any = None
    edges: Any = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X_i: Any,
        y_i: Any = None,
        *,
        image: Any = None,
        missing_label: Any = "estimator",
        pos_label: Any = None,
        positions: Any = None,
        panels: Any = None,
        axes: Any = None,
    ) -> "FieldDisplay":
        """Predict one example and draw it.

        Parameters
        ----------
        estimator : fitted classifier, pipeline or search
        X_i : array-like of shape (H, W, F) or (T, F), or Example
            One example, without the leading axis of examples.
        y_i : array-like, optional
            True labels of the example.
        image : array-like, optional
            Picture of the input. None shows X_i itself: three features in [0, 1] as colours, otherwise the first
            feature as grey.
        missing_label : object, default="estimator"
            Value of unlabelled nodes in y_i; "estimator" uses the estimator's ``missing_label``.
        pos_label : object, default=None
            See :class:`FieldDisplay`.
        positions : array-like of shape (n_nodes, 2), optional
            Coordinates of the nodes of an Example, required unless its graph is a lattice with one or two axes.
        panels, axes
            See :meth:`plot`.

        Returns
        -------
        FieldDisplay

        Raises
        ------
        ValueError
            If X_i is not a single example, or is a graph and ``positions`` is not given.
        """
        edges = shape = None
        if isinstance(X_i, Example):
            edges, shape = X_i.edges, X_i.graph.shape
            if positions is None and (shape is None or len(shape) > 2):
                raise ValueError("positions must be given to draw an Example: a place (x, y) for each of its nodes.")
        else:
            X_i = read_example(X_i, "X_i")
        y_pred = np.asarray(estimator.predict([X_i])[0])
        proba = np.asarray(estimator.predict_proba([X_i])[0]) if hasattr(estimator, "predict_proba") else None
        if shape is not None and positions is None:
            y_pred = y_pred.reshape(shape)
            proba = None if proba is None else proba.reshape(*shape, -1)
            y_i = None if y_i is None else np.asarray(y_i).reshape(shape)
        if isinstance(missing_label, str) and missing_label == "estimator":
            missing_label = get_missing_label(estimator)
        display = cls(
            y_pred,
            y_true=y_i,
            proba=proba,
            image=_convert_features_to_image(X_i) if image is None else image,
            classes=estimator.classes_,
            missing_label=missing_label,
            pos_label=pos_label,
            positions=positions,
            edges=edges,
        )
        return display.plot(panels=panels, axes=axes)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        *,
        proba: Any = None,
        image: Any = None,
        classes: Any = None,
        missing_label: Any = None,
        pos_label: Any = None,
        positions: Any = None,
        edges: Any = None,
        panels: Any = None,
        axes: Any = None,
    ) -> "FieldDisplay":
        """Draw given predictions of one example.

        Parameters
        ----------
        y_true : array-like or None
            True labels of one example.
        y_pred : array-like
            Predicted labels, of the same shape as ``y_true``.
        proba, image, classes, missing_label, pos_label, positions, edges
            See :class:`FieldDisplay`.
        panels, axes
            See :meth:`plot`.

        Returns
        -------
        FieldDisplay
        """
        display = cls(
            np.asarray(y_pred),
            y_true=y_true,
            proba=proba,
            image=image,
            classes=classes,
            missing_label=missing_label,
            pos_label=pos_label,
            positions=positions,
            edges=edges,
        )
        return display.plot(panels=panels, axes=axes)

    def plot(self, *, panels: Any = None, axes: Any = None) -> "FieldDisplay":
        """Draw the panels.

        Parameters
        ----------
        panels : sequence of {"image", "truth", "marginals", "prediction", "errors"}, optional
            Panels to draw, in this order; None draws every panel whose data are known.
        axes : sequence of matplotlib Axes, optional
            One Axes per panel; None creates a figure.

        Returns
        -------
        FieldDisplay
            self

        Raises
        ------
        ValueError
            If shapes do not fit each other, a panel is unknown or lacks its data, or there are too few axes.
        """
        plt = require_pyplot("FieldDisplay")
        canvas = _Canvas(np.shape(self.y_pred), self.positions, self.edges)
        content = self._list_panels()
        panels = list(content) if panels is None else list(panels)
        for name in panels:
            if name not in content:
                raise ValueError(f"panels must be among {', '.join(content)} for this example, got {name!r}.")
        if axes is None:
            width, height = canvas.size
            shape = (len(panels), 1) if canvas.stacked else (1, len(panels))
            size = shape[1] * width, shape[0] * (height + 0.35)
            _, axes = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
        axes = np.ravel(np.asarray(axes, dtype=object))
        if len(axes) != len(panels):
            raise ValueError(f"axes must hold one Axes for each of the {len(panels)} panels, got {len(axes)}.")
        for ax, name in zip(axes, panels, strict=True):
            title, colours = content[name]
            canvas.draw(ax, colours)
            ax.set_title(title, fontsize=9, loc="left" if canvas.stacked else "center", pad=4)
        self.figure_, self.axes_, self.panels_ = axes[0].figure, axes, panels
        return self

    def _list_panels(self):
        """Return the title and the colours (N, 4) of every panel that can be drawn."""
        predicted, true, classes = self._encode_labels()
        self.error_rate_ = float(np.mean((predicted != true)[true >= 0])) if np.any(true >= 0) else np.nan
        palette = _choose_class_colours(len(classes))
        content = {}
        if self.image is not None:
            content["image"] = ("input", _compute_image_colours(self.image, np.shape(self.y_pred)))
        if self.y_true is not None:
            content["truth"] = ("true labels", palette[true])
        if self.proba is not None:
            content["marginals"] = self._marginals(classes)
        content["prediction"] = ("predicted labels", palette[predicted])
        if self.y_true is not None:
            content["errors"] = (f"errors: {100 * self.error_rate_:.1f} %", _choose_error_colours(predicted, true))
        return content

    def _encode_labels(self):
        shape = np.shape(self.y_pred)
        parts = [split_labels(np.ravel(np.asarray(self.y_pred)), None, "y_pred")]
        if self.y_true is not None:
            y_true = np.asarray(self.y_true)
            if y_true.shape != shape:
                raise ValueError(f"y_true has shape {y_true.shape}, but y_pred has {shape}.")
            parts.append(split_labels(y_true.ravel(), self.missing_label, "y_true"))
        if self.classes is None:
            classes = np.unique(np.concatenate([present for present, _ in parts if len(present)]))
        else:
            classes = np.unique(np.asarray(self.classes))
        named = zip(parts, ("y_pred", "y_true"), strict=False)
        encoded = [_columns(present, where, classes, name) for (present, where), name in named]
        true = encoded[1] if self.y_true is not None else np.full(encoded[0].shape, -1)
        return encoded[0], true, classes

    def _marginals(self, classes):
        proba = np.asarray(self.proba)
        if proba.shape != (*np.shape(self.y_pred), len(classes)):
            raise ValueError(
                f"proba must have shape {(*np.shape(self.y_pred), len(classes))}, a column per class, "
                f"got {proba.shape}."
            )
        proba = proba.reshape(-1, len(classes))
        label = self.pos_label
        if label is None and len(classes) > 2:
            return "largest marginal", _interpolate_colours(proba.max(axis=1))
        column = len(classes) - 1 if label is None else int(_columns(np.ravel(label), None, classes, "pos_label")[0])
        return f"marginal of {classes[column]}", _interpolate_colours(proba[:, column])


def read_example(x, name, last="F"):
    """Return a single image or chain as an array, or raise ValueError that says how to select a single example."""
    shapes = f"(H, W, {last}) or (T, {last})"
    try:
        array = np.asarray(x)
    except ValueError:
        raise ValueError(f"{name} must be one example, {shapes}, got a list of arrays: pass one, {name}[0].") from None
    if array.ndim not in (2, 3):
        raise ValueError(f"{name} must be one example, {shapes}, got shape {array.shape}.")
    return array


def get_final_estimator(estimator):
    estimator = getattr(estimator, "best_estimator_", estimator)
    return estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator


def _convert_features_to_image(X_i):
    features = X_i.node_features if isinstance(X_i, Example) else X_i
    if hasattr(features, "toarray"):
        features = features.toarray()
    if features.shape[-1] == 3 and features.min() >= 0 and features.max() <= 1:
        return features
    return features[..., 0]


def _compute_image_colours(image, shape):
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    image = np.asarray(image)
    n_nodes = int(np.prod(shape))
    if image.size == n_nodes:
        return colormaps["gray"](Normalize()(image.ravel().astype(np.float64)))
    if image.size not in (3 * n_nodes, 4 * n_nodes):
        raise ValueError(f"image must hold 1, 3 or 4 values for each of the {n_nodes} nodes, got shape {image.shape}.")
    colours = image.reshape(n_nodes, -1)
    colours = colours / 255.0 if image.dtype == np.uint8 else colours.astype(np.float64)
    opaque = np.ones((n_nodes, 1))
    return np.clip(colours if colours.shape[1] == 4 else np.hstack([colours, opaque]), 0.0, 1.0)


def _interpolate_colours(probability):
    """Interpolate between the colours of two classes by the probability of the second class."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("probability", [_TWO_CLASSES[0], "#7fb8ad", _TWO_CLASSES[1]])(probability)


def _choose_class_colours(n_classes):
    """Return the colours of all classes, followed by the colour of unlabelled nodes (index -1), (n_classes + 1, 4)."""
    from matplotlib import colormaps
    from matplotlib.colors import to_rgba_array

    if n_classes <= 2:
        # Pass a list, because Matplotlib 3.8 interprets a tuple of length two as (colour, alpha).
        colours = to_rgba_array(list(_TWO_CLASSES[:n_classes]))
    elif n_classes <= 10:
        colours = colormaps["tab10"](np.arange(n_classes))
    else:
        colours = colormaps["gist_ncar"](np.linspace(0.02, 0.95, n_classes))
    return np.vstack([colours, to_rgba_array(_UNLABELLED)])


def _choose_error_colours(predicted, true):
    from matplotlib.colors import to_rgba_array

    kind = np.where(true < 0, 2, (predicted != true).astype(int))
    return to_rgba_array([_RIGHT, _WRONG, _UNLABELLED])[kind]


class _Canvas:
    """Canvas on which nodes are drawn: as pixels of a lattice or chain, or at given positions with lines for edges."""

    # positions: (N, 2); edges: (E, 2)

    def __init__(self, shape, positions=None, edges=None):
        self.shape, self.positions, self.edges = shape, positions, edges
        self.stacked = positions is None and len(shape) == 1
        if positions is not None:
            n_nodes = int(np.prod(shape))
            self.positions = np.asarray(positions, dtype=np.float64)
            if self.positions.shape != (n_nodes, 2):
                raise ValueError(
                    f"positions must have shape ({n_nodes}, 2), one place per node, got {self.positions.shape}."
                )
            self.edges = edges = np.zeros((0, 2), dtype=np.intp) if edges is None else np.asarray(edges)
            if edges.ndim != 2 or edges.shape[1] != 2 or (edges.size and not 0 <= edges.min() <= edges.max() < n_nodes):
                raise ValueError(
                    f"edges must have shape (n_edges, 2) and indices of nodes below {n_nodes}, got {edges.shape}."
                )
        elif len(shape) not in (1, 2):
            raise ValueError(f"Labels of shape {shape} cannot be drawn: pass one slice, of one or two axes.")

    @property
    def size(self):
        """Width and height of a panel in inches."""
        if self.positions is not None:
            return 3.2, 3.2
        if self.stacked:
            return 8.0, 0.55
        height, width = self.shape
        return 2.6, min(max(2.6 * height / width, 0.6), 5.2)

    def draw(self, ax, colours):
        """Draw each node in its colour."""
        # colours: (N, 4)
        if self.positions is None:
            aspect = "auto" if self.stacked else None
            ax.imshow(colours.reshape(-1, self.shape[-1], 4), interpolation="nearest", aspect=aspect)
        else:
            from matplotlib.collections import LineCollection

            ax.add_collection(LineCollection(self.positions[self.edges], colors="#b5b5b5", linewidths=0.7, zorder=1))
            radius = np.clip(120.0 / np.sqrt(max(len(self.positions), 1)), 2.0, 10.0)
            ax.scatter(*self.positions.T, s=radius**2, c=colours, edgecolors="#555555", linewidths=0.4, zorder=2)
            ax.set_aspect("equal")
            ax.margins(0.05)
        ax.set_xticks([])
        ax.set_yticks([])
        for spine in ax.spines.values():
            spine.set_color("#b5b5b5")
