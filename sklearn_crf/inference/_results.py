"""What results of an algorithm must be for a model: checked where an algorithm is the user's own."""

from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._numbers import as_integers, as_reals
from sklearn_crf.models import check_labels


class LogLikelihood(NamedTuple):
    """Log-probabilities of labelings.

    Attributes
    ----------
    values : ndarray of shape (n_examples,)
    bound : {"exact", "upper", "lower"} or None
        Whether all values are exact, upper bounds or lower bounds; None if that is not known.
    """

    values: np.ndarray
    bound: str | None


# Of the sums of the marginals of a node, in either precision.
_ROUNDING = 1e-3

# Fields of marginals beside those of nodes, and the field of the model whose shape they have.
_SHAPE_OF = {
    "tables": "tables",
    "compatibility": "tables",
    "log_table": "log_table",
    "table_default": "table_default",
}


def as_finite(values: Any, name: str, shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """A contiguous array of finite numbers of one shape."""
    # name: what errors call it
    values = np.asarray(as_reals(values, name, dtype), order="C")
    if values.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {values.shape}.")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, found NaN or infinity.")
    return values


def checked_labeling(found: Any, model: Any, *arguments: Any, **options: Any) -> Any:
    """A labeling of a model, its labels in int32."""
    _require_fields(found, "a Labeling", ("labels", "score", "bound"))
    for name in ("score", "bound"):
        _check_number(getattr(found, name), name)
    fractional = getattr(found, "fractional", None)
    if fractional is not None:
        fractional = as_finite(fractional, "fractional", (len(found.labels), model.n_columns))
    return found._replace(labels=check_labels(model, found.labels), fractional=fractional)


def checked_marginals(found: Any, model: Any, *arguments: Any, **options: Any) -> Any:
    """Marginals of a model, those of nodes in its precision."""
    _require_fields(found, "Marginals", ("unary", "log_z"))
    changed = {"unary": checked_node_marginals(found.unary, model)}
    for name in found._fields:
        if name in _SHAPE_OF:
            changed[name] = as_finite(getattr(found, name), name, getattr(model, _SHAPE_OF[name]).shape)
    if found.log_z is not None:
        _check_number(found.log_z, "log_z", may_be_infinite=False)
    terms = getattr(found, "log_z_terms", None)
    if terms is not None:
        changed["log_z_terms"] = as_finite(terms, "log_z_terms", (len(found.unary),))
    if found.bound not in (None, "exact", "upper", "lower"):
        raise ValueError(f"bound must be 'exact', 'upper', 'lower' or None, got {found.bound!r}.")
    return found._replace(**changed)


def checked_node_marginals(found: Any, model: Any, *arguments: Any, **options: Any) -> np.ndarray:
    """Marginals of nodes alone, in the precision of the model."""
    shape = (model.n_nodes, model.n_columns)
    found = as_finite(found, "marginals of nodes", shape, model.dtype)
    if found.size and (found.min() < -_ROUNDING or abs(found.sum(axis=1, dtype=np.float64) - 1).max() > _ROUNDING):
        raise ValueError("marginals of nodes must not be negative, and sum to one for each node.")
    return found


def checked_samples(found: Any, model: Any, n_samples: Any = 1, *arguments: Any, **options: Any) -> np.ndarray:
    """Samples of the labelings of a model, in int32."""
    shape = (n_samples, model.n_nodes)
    found = as_integers(found, "samples", shape=shape, lowest=0, highest=model.n_columns - 1, kinds="iub")
    for labels in found:
        check_labels(model, labels)
    return found


#: Of every method by which an algorithm gives results.
CHECKS = {
    "map": checked_labeling,
    "_map": checked_labeling,
    "marginals": checked_marginals,
    "_marginals": checked_marginals,
    "node_marginals": checked_node_marginals,
    "_node_marginals": checked_node_marginals,
    "sample": checked_samples,
    "_sample": checked_samples,
}


def _require_fields(found, kind, names):
    missing = [name for name in (*names, "_replace") if not hasattr(found, name)]
    if missing:
        raise TypeError(f"{kind} is needed, got {type(found).__name__}.")


def _check_number(value, name, may_be_infinite=True):
    if not isinstance(value, Real) or not (np.isfinite(float(value)) or (may_be_infinite and value == value)):
        raise ValueError(f"{name} must be a {'' if may_be_infinite else 'finite '}number, got {value!r}.")
