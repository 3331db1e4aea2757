"""TrainingTraceDisplay, which draws weights, gradients and errors during training (Kumar et al. 2005, Figure 1)."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sklearn_crf.display._matplotlib import require_pyplot
from sklearn_crf.estimators._fitted_field import FittedField


@dataclass(eq=False, repr=False)
class TrainingTraceDisplay:
    """Weights, gradients and training errors at every iteration, in one column per estimator.

    Learning rules that use labelings in place of expectations (SPA, MMA) do not converge but cycle. Errors are few
    where the gradient is small (Kumar et al. 2005, Figure 1 and Lemma 1).

    Parameters
    ----------
    traces : list of dict
        Trace of each column, with the keys ``"weights"`` and ``"gradients"`` (dict of name to ndarray of shape
        (n_iter,)) and ``"errors"`` (ndarray of shape (n_iter,), NaN if the rule counts no errors). The log-likelihood,
        or the objective that replaces it, has these gradients per labelled node.
    names : list of str
        Title of each column.

    Attributes
    ----------
    figure_ : matplotlib Figure
    axes_ : ndarray of matplotlib Axes, shape (2 * n_weights + 1, n_columns)
        For each weight a row with its path and a row with its gradient; the last row has the errors.

    References
    ----------
    S. Kumar, J. August, M. Hebert. Exploiting Inference for Approximate Parameter Learning in Discriminative Fields: An
    Empirical Study. EMMCVPR 2005, Figure 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.display import TrainingTraceDisplay
    >>> path = np.array([0.0, 0.6, 0.9, 1.0])
    >>> trace = {
    ...     "weights": {"bias": path},
    ...     "gradients": {"bias": 1 - path},
    ...     "errors": np.array([9.0, 4.0, 2.0, 1.0]),
    ... }
    >>> TrainingTraceDisplay([trace], names=["PL"]).plot().axes_.shape
    (3, 1)
    """

    traces: Any
    _: KW_ONLY
    names: Any

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, weights: Any = None, name: str | None = None, axes: Any = None
    ) -> "TrainingTraceDisplay":
        """Draw the weights, gradients and errors that one estimator recorded during training.

        Parameters
        ----------
        estimator : fitted DRFClassifier
        weights : sequence of str, optional
            Names of the weights to draw, such as ``"coef_[0, 1]"``, ``"intercept_[0]"``, ``"edge_coef_[0, 0, 0]"``.
            None draws the first entry of ``intercept_`` and of ``coef_``, the paper's w0 and w1.
        name : str, optional
            Title; None uses the learning rule.
        axes : array-like of matplotlib Axes, shape (2 * n_weights + 1, 1), optional

        Returns
        -------
        TrainingTraceDisplay
        """
        return cls.from_estimators([estimator], weights=weights, names=None if name is None else [name], axes=axes)

    @classmethod
    def from_estimators(
        cls, estimators: Any, *, weights: Any = None, names: Any = None, axes: Any = None
    ) -> "TrainingTraceDisplay":
        """Draw the training of several estimators side by side.

        Parameters
        ----------
        estimators : sequence of fitted DRFClassifier
        weights, axes
            See :meth:`from_estimator`; there is a column of axes per estimator.
        names : sequence of str, optional
            Titles of the columns; None uses the learning rules.

        Returns
        -------
        TrainingTraceDisplay

        Raises
        ------
        ValueError
            If an estimator did not keep its path, or has no weight of a given name.
        """
        traces = [_read_trace(estimator, weights) for estimator in estimators]
        names = [estimator.learning for estimator in estimators] if names is None else list(names)
        if len(names) != len(traces):
            raise ValueError(f"names must hold {len(traces)} titles, one per estimator, got {len(names)}.")
        return cls(traces, names=names).plot(axes=axes)

    def plot(self, *, axes: Any = None) -> "TrainingTraceDisplay":
        """Draw the weights, gradients and errors at every iteration.

        Parameters
        ----------
        axes : array-like of matplotlib Axes, shape (2 * n_weights + 1, n_columns), optional
            Axes to draw on; None creates a figure.

        Returns
        -------
        TrainingTraceDisplay
            self
        """
        plt = require_pyplot("TrainingTraceDisplay")
        names = list(self.traces[0]["weights"])
        shape = (2 * len(names) + 1, len(self.traces))
        if axes is None:
            size = (2.9 * shape[1] + 0.5, 1.35 * shape[0] + 0.5)
            _, axes = plt.subplots(*shape, figsize=size, sharex="col", layout="constrained", squeeze=False)
        axes = np.asarray(axes, dtype=object)
        if axes.size != shape[0] * shape[1]:
            raise ValueError(f"axes must have shape {shape}, got {axes.shape}.")
        axes = axes.reshape(shape)
        for column, (trace, title) in enumerate(zip(self.traces, self.names, strict=True)):
            _draw_column(axes[:, column], trace, names)
            axes[0, column].set_title(title, fontsize=10)
        labels = []
        for name in names:
            labels += [name, f"gradient of\n{name}"]
        for row, label in enumerate([*labels, "training errors"]):
            axes[row, 0].set_ylabel(label, fontsize=8)
        self.figure_, self.axes_ = axes[0, 0].figure, axes
        return self


def _read_trace(estimator, weights):
    check_is_fitted(estimator)
    path, gradient = estimator.coef_path_, estimator.gradient_path_
    if not len(path):
        raise ValueError(
            f"{type(estimator).__name__} did not store coef_path_: it has too many weights, or max_iter is too large."
        )
    places = _index_weights(estimator, path.shape[1])
    if weights is None:
        firsts = (next((name for name in places if name.startswith(own)), None) for own in ("intercept_", "coef_"))
        weights = filter(None, firsts)
    chosen = list(weights)
    for name in chosen:
        if name not in places:
            known = ", ".join([*places][:8]) + (", ..." if len(places) > 8 else "")
            raise ValueError(f"weights contains {name!r}, but the estimator only has {known}.")
    # Negate gradients, because the estimator minimises a loss, whereas the paper shows the gradient of the likelihood.
    return {
        "weights": {name: path[:, places[name]] for name in chosen},
        "gradients": {name: -gradient[:, places[name]] for name in chosen},
        "errors": estimator.error_curve_,
    }


def _index_weights(estimator, n_coef):
    """Return a dict from the name of each weight to its position in the flat weight vector."""
    parts = FittedField.of(estimator).potentials().unpack(np.arange(n_coef))
    places = {}
    for part, attribute in zip(parts, ("coef_", "intercept_", "edge_coef_"), strict=True):
        if not part.size:
            continue
        part = part.reshape(np.shape(getattr(estimator, attribute)))
        for index, place in np.ndenumerate(part):
            places[f"{attribute}[{', '.join(map(str, index))}]"] = int(place)
    return places


def _draw_column(axes, trace, names):
    for k, name in enumerate(names):
        axes[2 * k].plot(trace["weights"][name], color="#1d3557", linewidth=1.0)
        axes[2 * k + 1].axhline(0.0, color="#b5b5b5", linewidth=0.6)
        axes[2 * k + 1].plot(trace["gradients"][name], color="#2a9d8f", linewidth=0.8)
    errors = axes[-1]
    if np.all(np.isnan(trace["errors"])):
        errors.text(0.5, 0.5, "counts no errors", transform=errors.transAxes, ha="center", va="center", fontsize=8)
    else:
        errors.plot(trace["errors"], color="#d1362f", linewidth=0.8)
    errors.set_xlabel("iteration", fontsize=8)
    for ax in axes:
        ax.tick_params(labelsize=7)
