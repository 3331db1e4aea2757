"""Results of inference, errors for infeasible models, and checks of results of user-defined algorithms."""

from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._numbers import as_integers, as_reals
from sklearn_crf._own_methods import with_private
from sklearn_crf.models import (
    FactorGraph,
    FactorStatistics,
    PairwiseModel,
    SegmentModel,
    SegmentStatistics,
    Statistics,
    check_labels,
    convert_to_pairwise_statistics,
    score,
)


class Marginals(NamedTuple):
    """Marginals of a pairwise model or a factor graph, the derivatives of ``log_z`` with respect to the scores.

    ``log_z_terms`` are the contributions of nodes to ``log_z``. The terms of a connected component sum to the
    log-partition of the component, so that examples joined into one model can be weighted separately.

    Attributes
    ----------
    unary : ndarray of shape (N, K), float32 or float64
        Marginals of nodes, in the data type of the model. Rows sum to one.
    statistics : Statistics or FactorStatistics
        Expected sufficient statistics. Each array is the derivative of ``log_z`` with respect to the field of the model
        with the same name. For a pairwise model, ``statistics.tables`` are sums over edges of ``edge_weight[e, r] *
        P(y_i, y_j)``.
    log_z : float or None
        Log-partition; None if the algorithm does not compute it.
    log_z_terms : ndarray of shape (N,), float64, or None
        Contribution of each node to ``log_z``.
    bound : {"exact", "upper", "lower"} or None
        Relation of ``log_z`` to the true log-partition: exact, an upper or lower bound, or unknown.
    n_iter : int
        Number of sweeps.
    converged : bool
        Whether the tolerance was reached within ``max_iter``.
    state : object
        State for a warm start with the same example.
    method : str or None
        Names of the algorithms that computed the result.
    error : float or None
        Estimated error of the marginals: half the sum of absolute differences, averaged over nodes, or over factors if
        these have a larger error. 0 for exact marginals, None if not estimated. Only :class:`AutoMarginals` estimates
        the error.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.models import PairwiseModel
    >>> unary = np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]])
    >>> model = PairwiseModel(lattice((3,)), unary, [0.5 * np.eye(2)])
    >>> found = TreeInference().marginals(model)
    >>> found.unary.shape, found.tables.shape, found.bound
    ((3, 2), (1, 1, 2, 2), 'exact')
    >>> bool(np.isclose(found.log_z_terms.sum(), found.log_z))
    True
    """

    unary: np.ndarray
    statistics: Any
    log_z: float | None
    log_z_terms: np.ndarray | None
    bound: str | None
    n_iter: int = 0
    converged: bool = True
    state: object = None
    method: str | None = None
    error: float | None = None

    @property
    def tables(self) -> np.ndarray:
        """Statistics of tables, ``statistics.tables``, for a pairwise model."""
        return self.statistics.tables

    def with_values(self, unary: np.ndarray, **values: Any) -> "Marginals":
        """Return a copy with other node marginals, and other statistics or fields given by name.

        Parameters
        ----------
        unary : ndarray of shape (N, K)
            Marginals of nodes.
        **values : Any
            Other arrays of ``statistics``, or other fields, by their names.

        Returns
        -------
        Marginals
        """
        names = self.statistics._fields
        statistics = {name: values.pop(name) for name in names if name in values}
        if "unary" in names:
            statistics["unary"] = unary
        return self._replace(unary=unary, statistics=self.statistics._replace(**statistics), **values)


class Labeling(NamedTuple):
    """Labeling with its score, and an upper bound on the best score.

    Attributes
    ----------
    labels : ndarray of shape (N,), int32
        State of each node.
    score : float
        Score of the labeling under the model.
    bound : float
        Upper bound on the best score; inf if the algorithm computes no bound.
    n_iter : int
        Number of sweeps.
    converged : bool
        Whether the algorithm finished before ``max_iter``.
    state : object
        State for a warm start with the same example.
    fractional : ndarray of shape (N, K), float64, or None
        Solution of the linear relaxation, if the algorithm computes it. Rows sum to one.
    method : str or None
        Names of the algorithms that computed the result.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import TreeInference
    >>> from sklearn_crf.models import PairwiseModel
    >>> unary = np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]])
    >>> model = PairwiseModel(lattice((3,)), unary, [0.5 * np.eye(2)])
    >>> found = TreeInference().map(model)
    >>> found.labels.tolist(), round(found.score, 3), found.gap, found.method
    ([1, 1, 1], 3.0, 0.0, 'TreeInference')
    """

    labels: np.ndarray
    score: float
    bound: float = np.inf
    n_iter: int = 0
    converged: bool = True
    state: object = None
    fractional: np.ndarray | None = None
    method: str | None = None

    @property
    def gap(self) -> float:
        """Upper bound on the difference between the best score and the score; 0 proves that the labeling is optimal."""
        return max(self.bound - self.score, 0.0)

    @property
    def certified(self) -> bool:
        """Whether the gap is zero, so that no labeling has a higher score.

        Algorithms set the gap to zero if it is within rounding errors, or smaller than the step between scores.
        """
        return bool(np.isfinite(self.score) and self.bound <= self.score)


def convert_factor_marginals(
    model: PairwiseModel | FactorGraph,
    terms: np.ndarray,
    unary: np.ndarray,
    log_table: np.ndarray,
    table_default: np.ndarray,
    **fields: Any,
) -> Marginals:
    """Convert the marginals of a model's factor graph to marginals of the model."""
    # terms: (N,); unary: (N, K) with at most as many states as the model; log_table: (n_cells,)
    # fields: further fields of the result
    fields = {"log_z": float(terms.sum()), "log_z_terms": terms, **fields}
    if isinstance(model, FactorGraph):
        return Marginals(unary.astype(model.dtype), FactorStatistics(log_table, table_default), **fields)
    padded = np.zeros(model.unary.shape, dtype=model.dtype)
    padded[:, : unary.shape[1]] = unary
    return Marginals(padded, Statistics(padded, convert_to_pairwise_statistics(model, log_table)), **fields)


def compare_statistics(model: PairwiseModel | FactorGraph, first: Any, second: Any) -> float:
    r"""Return the mean difference of two results: over nodes, or over factors if these differ more.

    The difference of two distributions is half the sum of absolute differences. Expected statistics of edges or factors
    with the same table are summed before they are compared.
    """
    # first, second: Statistics, or for a factor graph Marginals
    if isinstance(model, FactorGraph):
        number, tables = model.n_factors, first.statistics.log_table - second.statistics.log_table
    else:
        number = model.graph.n_edges if model.edge_weight is None else np.abs(model.edge_weight).sum()
        tables = first.tables - second.tables
    nodes = np.abs(first.unary.astype(np.float64) - second.unary).sum() / max(1, model.n_nodes)
    return 0.5 * float(max(nodes, np.abs(tables).sum() / (number or 1.0)))


class LogLikelihood(NamedTuple):
    """Log-probabilities of labelings.

    Attributes
    ----------
    values : ndarray of shape (n_examples,)
    bound : {"exact", "upper", "lower"} or None
        Whether all values are exact, all are upper bounds or all are lower bounds; None if unknown.
    """

    values: np.ndarray
    bound: str | None


def score_labeling(model: Any, labels: np.ndarray, **fields: Any) -> Labeling:
    """Return a labeling together with its score under the model."""
    return Labeling(labels=labels, score=score(model, labels), **fields)


# Maximum number of nodes listed in an error.
_NAMED = 10


class Infeasible(ValueError):
    """Error raised by an algorithm that finds no labeling with a score above -inf.

    If ``proven`` is true, no such labeling exists. Otherwise, a search for allowed labels decides whether one exists.
    """

    def __init__(self, text, proven=False, nodes=()):
        # text: message with a placeholder {nodes} for the list of nodes
        self.text, self.proven, self.nodes = text, proven, nodes
        super().__init__(self.format_message(0))

    def format_message(self, first):
        """Return the message with ``first`` subtracted from node indices, for a model inside another model."""
        listed = ", ".join(str(node - first) for node in self.nodes[:_NAMED])
        more = f" and {len(self.nodes) - _NAMED} more" if len(self.nodes) > _NAMED else ""
        return self.text.format(nodes=listed + more)

    def __reduce__(self):
        return type(self), (self.text, self.proven, self.nodes)


class Refuted(Infeasible):
    """Error raised by the search for allowed labels, with nodes that have no joint allowed labeling."""

    def __init__(self, nodes):
        which = "labeling of nodes" if len(nodes) > 1 else "state of node"
        super().__init__(f"model is infeasible: every {which} {{nodes}} is forbidden.", True, nodes)

    def __reduce__(self):
        return type(self), (self.nodes,)


# Statistics class of each model class.
_STATISTICS = {PairwiseModel: Statistics, FactorGraph: FactorStatistics, SegmentModel: SegmentStatistics}

# Tolerance for the sums of node marginals, for both data types.
_ROUNDING = 1e-3


def as_finite(values: Any, name: str, shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Return a contiguous array of finite numbers; raise ValueError for another shape or other values."""
    # name: name of the array in errors
    values = np.asarray(as_reals(values, name, dtype), order="C")
    if values.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {values.shape}.")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, found NaN or infinity.")
    return values


def check_model_labeling(found: Any, model: Any, *arguments: Any, **options: Any) -> Any:
    """Check a labeling of a model; return it with labels in int32."""
    _require_type(found, "a labeling", Labeling)
    for name in ("score", "bound"):
        _check_number(getattr(found, name), name)
    fractional = getattr(found, "fractional", None)
    if fractional is not None:
        fractional = as_finite(fractional, "fractional", (len(found.labels), model.n_columns))
    return found._replace(labels=check_labels(model, found.labels), fractional=fractional)


def check_model_marginals(found: Any, model: Any, *arguments: Any, **options: Any) -> Any:
    """Check marginals of a model; return them with node marginals in the data type of the model."""
    _require_type(found, "marginals", Marginals)
    kind = next((kind for of_model, kind in _STATISTICS.items() if isinstance(model, of_model)), Statistics)
    _require_type(found.statistics, "Marginals.statistics", kind)
    unary = check_node_marginals(found.unary, model)
    changed = {
        name: as_finite(value, name, getattr(model, name).shape)
        for name, value in found.statistics._asdict().items()
        if name != "unary"
    }
    if found.log_z is not None:
        _check_number(found.log_z, "log_z", may_be_infinite=False)
    terms = getattr(found, "log_z_terms", None)
    if terms is not None:
        changed["log_z_terms"] = as_finite(terms, "log_z_terms", (len(found.unary),))
    if found.bound not in (None, "exact", "upper", "lower"):
        raise ValueError(f"bound must be 'exact', 'upper', 'lower' or None, got {found.bound!r}.")
    return found.with_values(unary, **changed)


def check_node_marginals(found: Any, model: Any, *arguments: Any, **options: Any) -> np.ndarray:
    """Check node marginals; return them in the data type of the model."""
    shape = (model.n_nodes, model.n_columns)
    found = as_finite(found, "marginals of nodes", shape, model.dtype)
    if found.size and (found.min() < -_ROUNDING or abs(found.sum(axis=1, dtype=np.float64) - 1).max() > _ROUNDING):
        raise ValueError("marginals of nodes must not be negative and must sum to one for each node.")
    return found


def check_samples(found: Any, model: Any, n_samples: Any = 1, *arguments: Any, **options: Any) -> np.ndarray:
    """Check samples of the labelings of a model; return them in int32."""
    shape = (n_samples, model.n_nodes)
    found = as_integers(found, "samples", shape=shape, lowest=0, highest=model.n_columns - 1, kinds="iub")
    for labels in found:
        check_labels(model, labels)
    return found


#: Functions that check results, by name of the method that returned the result.
CHECKS = with_private(
    map=check_model_labeling, marginals=check_model_marginals, node_marginals=check_node_marginals, sample=check_samples
)


def _require_type(value, name, kind):
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be of type {kind.__name__}, got {type(value).__name__}.")


def _check_number(value, name, may_be_infinite=True):
    if not isinstance(value, Real) or not (np.isfinite(float(value)) or (may_be_infinite and value == value)):
        raise ValueError(f"{name} must be a {'' if may_be_infinite else 'finite '}number, got {value!r}.")
