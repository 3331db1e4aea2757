"""Displays of pairwise tables, coupling audits, reliability of probabilities, and entropy of marginals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._parameters import get_missing_label
from sklearn_crf.display._field import get_final_estimator, read_example
from sklearn_crf.display._matplotlib import collect_axes, require_pyplot
from sklearn_crf.estimators._fitted_field import FittedField
from sklearn_crf.graphs import lattice
from sklearn_crf.inspection import top_features
from sklearn_crf.metrics import flatten_nodes
from sklearn_crf.model_selection import coupling_audit


@dataclass(eq=False, repr=False)
class PairwiseTablesDisplay:
    """Coloured matrices that show learned pairwise tables, or errors in the frequencies of label pairs on edges.

    Create displays with :meth:`from_estimator` or :meth:`from_predictions`; the constructor only stores its arguments.

    Parameters
    ----------
    tables : ndarray of shape (n_tables, K, K)
        Tables, with a row per label of the first node of an edge and a column per label of the second node.
    classes : ndarray of shape (K,)
        Labels.
    titles : list of str
        Title of each table.
    unit : str, default="score"
        Label of the colour bar.

    Attributes
    ----------
    figure_ : matplotlib Figure
    axes_ : ndarray of matplotlib Axes
        One Axes for each table.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.display import PairwiseTablesDisplay
    >>> display = PairwiseTablesDisplay(
    ...     np.eye(2)[None], np.array(["sea", "sky"]), ["edges"]
    ... )
    >>> display.plot().axes_.shape  # doctest: +SKIP
    (1,)
    """

    tables: np.ndarray
    classes: np.ndarray
    titles: list[str]
    unit: str = "score"

    @classmethod
    def from_estimator(cls, estimator: Any, *, edge_feature: int = 0, axes: Any = None) -> PairwiseTablesDisplay:
        """Draw the tables of a fitted field, one for each edge type.

        Parameters
        ----------
        estimator : fitted field classifier
            A field with dense ``edge_coef_``, ``pairwise`` and ``classes_``, or a pipeline or search that ends in a
            field.
        edge_feature : int, default=0
            Edge feature whose tables are drawn. Feature 0 is the constant term of "constant" and "difference".
        axes : ndarray of matplotlib Axes, optional
            One Axes for each edge type.

        Returns
        -------
        PairwiseTablesDisplay

        Raises
        ------
        ValueError
            If there is no such edge feature.
        """
        estimator = get_final_estimator(estimator)
        check_is_fitted(estimator)
        coef = estimator.edge_coef_
        if not 0 <= edge_feature < coef.shape[1]:
            raise ValueError(f"edge_feature must be between 0 and {coef.shape[1] - 1}, got {edge_feature}.")
        classes = estimator.classes_
        tables = FittedField.of(estimator).layout.form.expand(np.asarray(coef)[:, edge_feature])
        titles = ["edges"] if len(tables) == 1 else [f"edges of type {t}" for t in range(len(tables))]
        return cls(tables, classes, titles).plot(axes=axes)

    @classmethod
    def from_predictions(
        cls, y_true: Sequence, y_pred: Sequence, *, edges: Sequence | None = None, axes: Any = None
    ) -> PairwiseTablesDisplay:
        r"""Draw, for each pair of labels on edges, its predicted frequency minus its true frequency.

        .. math::
            d_{ab} = \frac{100}{|E|} \sum_{(i, j) \in E} [\hat y_i = a, \hat y_j = b] - [y_i = a, y_j = b]

        A positive value off the diagonal means that neighbours are predicted to have these unequal labels too often.

        Parameters
        ----------
        y_true, y_pred : sequence of array-like
            True and predicted labels of each example, without missing labels.
        edges : sequence of array-like of shape (E, 2), optional
            Edges of each example. None joins the neighbours on the axes of lattices.
        axes : ndarray of matplotlib Axes, optional
            An array of one Axes.

        Returns
        -------
        PairwiseTablesDisplay

        Raises
        ------
        ValueError
            If shapes differ, or there are no edges.
        """
        true, predicted = [[np.asarray(y) for y in labels] for labels in (y_true, y_pred)]
        if [y.shape for y in true] != [y.shape for y in predicted]:
            raise ValueError("y_true and y_pred must have labels of equal shapes for every example.")
        if edges is None:
            edges = [lattice(y.shape).edges for y in true]
        ends = [np.asarray(pairs, dtype=np.int64).reshape(-1, 2) for pairs in edges]
        if len(ends) != len(true) or not any(map(len, ends)):
            raise ValueError("edges must hold an array of edges for each example, with at least one edge in total.")
        classes = np.unique(np.concatenate([y.ravel() for y in true + predicted]))
        counts = []
        for labels in (predicted, true):
            pairs = np.concatenate([y.ravel()[e] for y, e in zip(labels, ends, strict=True)])
            first, second = np.searchsorted(classes, pairs).T
            counts.append(np.bincount(first * len(classes) + second, minlength=len(classes) ** 2))
        table = 100.0 * (counts[0] - counts[1]) / counts[1].sum()
        table = table.reshape(1, len(classes), len(classes))
        return cls(table, classes, ["predicted minus true"], "% of edges").plot(axes=axes)

    def plot(self, *, axes: Any = None) -> PairwiseTablesDisplay:
        """Draw each table as a coloured matrix.

        Parameters
        ----------
        axes : ndarray of matplotlib Axes, optional
            One Axes for each table.

        Returns
        -------
        PairwiseTablesDisplay
            self
        """
        axes = collect_axes(axes, len(self.tables), "PairwiseTablesDisplay")
        limit = max(np.abs(self.tables).max(initial=0.0), 1e-12)
        for ax, table, title in zip(axes, self.tables, self.titles, strict=True):
            picture = ax.imshow(table, cmap="RdBu", vmin=-limit, vmax=limit)
            ax.set(title=title, xlabel="second node", ylabel="first node")
            ax.set_xticks(range(len(self.classes)), self.classes, rotation=90)
            ax.set_yticks(range(len(self.classes)), self.classes)
        axes[0].figure.colorbar(picture, ax=list(axes), label=self.unit)
        self.axes_, self.figure_ = axes, axes[0].figure
        return self


@dataclass(eq=False, repr=False)
class TopWeightsDisplay:
    """Bar chart of the largest learned weights of node features.

    Create displays with :meth:`from_estimator`; the constructor only stores its arguments.

    Parameters
    ----------
    weights : ndarray of shape (n_weights,)
        Weights, in the order of the bars from top to bottom.
    names : list of str
        Feature and label of each weight.

    Attributes
    ----------
    figure_ : matplotlib Figure
    ax_ : matplotlib Axes

    See Also
    --------
    sklearn_crf.inspection.top_features : The same weights as a list.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.display import TopWeightsDisplay
    >>> TopWeightsDisplay(
    ...     np.array([2.0, -1.0]), ["title: PER", "end=ly: PER"]
    ... ).plot()  # doctest: +SKIP
    """

    weights: np.ndarray
    names: list[str]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        k: int = 15,
        label: object = None,
        feature_names: Sequence[str] | None = None,
        ax: Any = None,
    ) -> TopWeightsDisplay:
        """Draw the weights that are largest in absolute value.

        Parameters
        ----------
        estimator : fitted field classifier, or a Pipeline that ends in one
            The field has ``coef_`` and ``classes_``.
        k : int, default=15
            Number of weights to draw.
        label : object, optional
            Class whose weights are drawn; None draws weights of all classes.
        feature_names : sequence of str, optional
            Names of the features; None finds them as :func:`~sklearn_crf.inspection.top_features` does.
        ax : matplotlib Axes, optional

        Returns
        -------
        TopWeightsDisplay

        Raises
        ------
        ValueError
            If ``label`` is not a class, or the number of names differs from the number of features.
        """
        found = top_features(estimator, k, label=label, feature_names=feature_names)
        found = sorted(found, key=lambda weight: -weight.weight)
        return cls(np.array([w.weight for w in found]), [f"{w.feature}: {w.label}" for w in found]).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> TopWeightsDisplay:
        """Draw one bar for each weight.

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Returns
        -------
        TopWeightsDisplay
            self
        """
        ax = collect_axes(ax, 1, "TopWeightsDisplay")[0]
        # Use the colours of PairwiseTablesDisplay: blue for positive weights, red for other weights.
        ax.barh(self.names, self.weights, color=np.where(self.weights > 0, "#2166ac", "#b2182b"))
        ax.axvline(0, color="#9c9c9c", linewidth=1)
        ax.invert_yaxis()
        ax.set(xlabel="weight")
        self.ax_, self.figure_ = ax, ax.figure
        return self


@dataclass(eq=False, repr=False)
class CouplingAuditDisplay:
    """Heat map of the score of each learning rule with each inference algorithm; frames mark matched pairs.

    Create displays with :meth:`from_results` or :meth:`from_estimators`; the constructor only stores its arguments.

    Parameters
    ----------
    results : dict of ndarray
        ``results`` of :func:`~sklearn_crf.model_selection.coupling_audit`.

    Attributes
    ----------
    figure_ : matplotlib Figure
    ax_ : matplotlib Axes
    im_ : matplotlib AxesImage

    Examples
    --------
    >>> from sklearn_crf import DRFClassifier
    >>> from sklearn_crf.datasets import make_noisy_digits
    >>> from sklearn_crf.display import CouplingAuditDisplay
    >>> X, y, _ = make_noisy_digits(12, random_state=0)
    >>> display = CouplingAuditDisplay.from_estimators(
    ...     {"pl": DRFClassifier(learning="pl")}, X, y, inference={"MAP": "map"}, cv=3
    ... )  # doctest: +SKIP
    """

    results: dict

    @classmethod
    def from_results(cls, results: dict, *, ax: Any = None) -> CouplingAuditDisplay:
        """Draw the results of an audit.

        Parameters
        ----------
        results : dict of ndarray
            ``results`` of :func:`~sklearn_crf.model_selection.coupling_audit`.
        ax : matplotlib Axes, optional

        Returns
        -------
        CouplingAuditDisplay
        """
        return cls(results).plot(ax=ax)

    @classmethod
    def from_estimators(
        cls, estimators: Any, X: Any, y: Any, *, inference: Any, ax: Any = None, **options: Any
    ) -> CouplingAuditDisplay:
        """Run an audit and draw its results.

        Parameters
        ----------
        estimators : mapping of str to field classifier
        X : array-like or list
        y : array-like or list of array-like
        inference : mapping of str to str or Inference
        ax : matplotlib Axes, optional
        **options : object
            ``cv``, ``scoring``, ``n_jobs`` and ``random_state`` of
            :func:`~sklearn_crf.model_selection.coupling_audit`.

        Returns
        -------
        CouplingAuditDisplay
        """
        return cls(coupling_audit(estimators, X, y, inference=inference, **options).results).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> CouplingAuditDisplay:
        """Draw the scores as a heat map.

        Stars mark pairs that are worse than the best pair at the 5 % level.

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Returns
        -------
        CouplingAuditDisplay
            self
        """
        plt = require_pyplot("CouplingAuditDisplay")
        results = self.results
        learning, inference = (list(dict.fromkeys(results[name])) for name in ("learning", "inference"))
        if ax is None:
            size = (3.2 + 0.9 * len(inference), 1.2 + 0.5 * len(learning))
            ax = plt.subplots(figsize=size, layout="constrained")[1]
        (ax,) = collect_axes(np.array([ax]), 1, "CouplingAuditDisplay")
        scores = np.reshape(results["mean_test_score"], (len(learning), len(inference)))
        self.im_ = ax.imshow(scores, cmap="viridis", aspect="auto")
        middle = (scores.min() + scores.max()) / 2
        for k, score in enumerate(scores.flat):
            row, column = divmod(k, len(inference))
            star = "*" if results["p_value"][k] < 0.05 else ""
            ax.text(column, row, f"{score:.3f}{star}", ha="center", va="center", color="wk"[int(score > middle)])
            if results["matched"][k]:
                ax.plot(
                    column + np.array([-0.47, 0.47, 0.47, -0.47, -0.47]),
                    row + np.array([-0.47, -0.47, 0.47, 0.47, -0.47]),
                    color="#d1362f",
                    linewidth=2,
                )
        ax.set_xticks(range(len(inference)), inference)
        ax.set_yticks(range(len(learning)), learning)
        ax.set(xlabel="predicted by", ylabel="learned by")
        ax.figure.colorbar(self.im_, ax=ax, label="score left out")
        self.ax_, self.figure_ = ax, ax.figure
        return self


@dataclass(eq=False, repr=False)
class ReliabilityDisplay:
    """Reliability diagram over labelled nodes: the observed frequency of a class for each predicted probability.

    Create displays with :meth:`from_estimator` or :meth:`from_predictions`; the constructor only stores its arguments.

    Parameters
    ----------
    observed : ndarray of shape (n_bins,)
        For each bin, the fraction of its nodes that have the class ``label``.
    predicted : ndarray of shape (n_bins,)
        For each bin, the mean predicted probability of its nodes.
    label : object
        Class that is drawn.

    Attributes
    ----------
    figure_ : matplotlib Figure
    ax_ : matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.display import ReliabilityDisplay
    >>> ReliabilityDisplay(
    ...     np.array([0.1, 0.8]), np.array([0.2, 0.7]), "sea"
    ... ).plot()  # doctest: +SKIP
    """

    observed: np.ndarray
    predicted: np.ndarray
    label: object

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, pos_label: object = None, n_bins: int = 10, ax: Any = None
    ) -> ReliabilityDisplay:
        """Predict probabilities and draw their reliability.

        Parameters
        ----------
        estimator : fitted classifier with predict_proba
        X : array-like or list
            Examples.
        y : array-like or list of array-like
            Labels of the examples. Nodes labelled with the estimator's ``missing_label`` are ignored.
        pos_label : object, optional
            Class that is drawn; None draws the last class.
        n_bins : int, default=10
            Number of bins, each of equally many nodes.
        ax : matplotlib Axes, optional

        Returns
        -------
        ReliabilityDisplay
        """
        proba, missing = estimator.predict_proba(X), get_missing_label(estimator)
        options = {"pos_label": pos_label, "missing_label": missing, "n_bins": n_bins, "ax": ax}
        return cls.from_predictions(y, proba, classes=estimator.classes_, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_proba: ArrayLike,
        *,
        classes: ArrayLike,
        pos_label: object = None,
        missing_label: object = None,
        n_bins: int = 10,
        ax: Any = None,
    ) -> ReliabilityDisplay:
        """Draw the reliability of given probabilities.

        Parameters
        ----------
        y_true : array-like or list of array-like
            True labels.
        y_proba : array-like or list of array-like
            Probabilities, whose last axis runs over classes.
        classes : array-like of shape (n_classes,)
            The class of each column.
        pos_label : object, optional
            Class that is drawn; None draws the last class.
        missing_label : object, optional
            Nodes with this true label are ignored.
        n_bins : int, default=10
            Number of bins, each of equally many nodes.
        ax : matplotlib Axes, optional

        Returns
        -------
        ReliabilityDisplay

        Raises
        ------
        ValueError
            If ``pos_label`` is not a class.
        """
        classes = np.asarray(classes).tolist()
        label = classes[-1] if pos_label is None else pos_label
        if label not in classes:
            raise ValueError(f"pos_label={label!r} is not among the classes {classes}.")
        true, proba, _ = flatten_nodes(y_true, y_proba, missing_label=missing_label)
        proba = proba[:, classes.index(label)]
        # Bins have equal node counts, because bins of equal width may hold too few nodes for a meaningful frequency.
        bins = np.array_split(np.argsort(proba, kind="stable"), min(n_bins, len(proba)))
        observed, predicted = (np.array([values[nodes].mean() for nodes in bins]) for values in (true == label, proba))
        return cls(observed, predicted, label).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> ReliabilityDisplay:
        """Draw the observed frequency in each bin against the mean predicted probability.

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Returns
        -------
        ReliabilityDisplay
            self
        """
        ax = collect_axes(ax, 1, "ReliabilityDisplay")[0]
        ax.plot([0, 1], [0, 1], color="#9c9c9c", linestyle=":")
        ax.plot(self.predicted, self.observed, marker="o")
        ax.set(xlabel=f"predicted probability of {self.label}", ylabel="observed share", xlim=(0, 1), ylim=(0, 1))
        self.ax_, self.figure_ = ax, ax.figure
        return self


@dataclass(eq=False, repr=False)
class MarginalEntropyDisplay:
    r"""Entropy of the marginals over an image or a chain.

    .. math:: H_s = -\sum_k p(y_s = k) \log_2 p(y_s = k)

    Parameters
    ----------
    entropy : ndarray of shape (H, W) or (T,)
        Entropy of each node in bits.

    Attributes
    ----------
    figure_ : matplotlib Figure
    ax_ : matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.display import MarginalEntropyDisplay
    >>> MarginalEntropyDisplay(np.zeros((4, 5))).plot()  # doctest: +SKIP
    """

    entropy: np.ndarray

    @classmethod
    def from_estimator(cls, estimator: Any, x: ArrayLike, *, ax: Any = None) -> MarginalEntropyDisplay:
        """Predict probabilities for one example and draw the entropy of its marginals.

        Parameters
        ----------
        estimator : classifier
            Fitted, with ``predict_proba``.
        x : array-like of shape (H, W, F) or (T, F)
            One image or one chain.
        ax : matplotlib Axes, optional

        Returns
        -------
        MarginalEntropyDisplay

        Raises
        ------
        ValueError
            If x is not one image or one chain.
        """
        return cls.from_predictions(estimator.predict_proba(read_example(x, "x")[np.newaxis])[0], ax=ax)

    @classmethod
    def from_predictions(cls, proba: ArrayLike, *, ax: Any = None) -> MarginalEntropyDisplay:
        """Draw the entropy of given probabilities of one example.

        Parameters
        ----------
        proba : array-like of shape (H, W, K) or (T, K)
            Result of ``predict_proba`` for one image or one chain.
        ax : matplotlib Axes, optional

        Returns
        -------
        MarginalEntropyDisplay

        Raises
        ------
        ValueError
            If proba does not have shape (H, W, K) or (T, K).
        """
        proba = np.asarray(read_example(proba, "proba", "K"), dtype=np.float64)
        positive = np.maximum(proba, np.finfo(np.float64).tiny)
        return cls(-(proba * np.log2(positive)).sum(axis=-1)).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> MarginalEntropyDisplay:
        """Draw the entropy of each pixel as an image, or the entropy of the nodes of a chain as a line.

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Returns
        -------
        MarginalEntropyDisplay
            self
        """
        ax = collect_axes(ax, 1, "MarginalEntropyDisplay")[0]
        if self.entropy.ndim == 1:
            ax.plot(self.entropy, drawstyle="steps-mid")
            ax.set(xlabel="node", ylabel="entropy in bits", ylim=(0, None))
        else:
            picture = ax.imshow(self.entropy, cmap="magma", vmin=0)
            ax.set_xticks([])
            ax.set_yticks([])
            ax.figure.colorbar(picture, ax=ax, label="bits")
        self.ax_, self.figure_ = ax, ax.figure
        return self
