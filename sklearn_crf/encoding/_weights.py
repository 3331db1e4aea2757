"""Sample weights: one per example."""

from numbers import Real

import numpy as np
from sklearn.utils import check_array


def validate_sample_weight(sample_weight, n_examples):
    """Check ``sample_weight``, one weight per example.

    Parameters
    ----------
    sample_weight : None, number or array-like of shape (n_examples,)
        A number is the weight of every example.
    n_examples : int

    Returns
    -------
    None or ndarray of shape (n_examples,), float64

    Raises
    ------
    ValueError
        If it has another shape (weights per node have no meaning here), is negative or not finite, or is zero
        throughout.
    """
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Real):
        weight = np.full(n_examples, float(sample_weight))
    else:
        weight = _as_vector(sample_weight, n_examples)
    if not np.all(np.isfinite(weight)):
        raise ValueError("sample_weight must be finite, found NaN or infinity.")
    if np.any(weight < 0):
        i = int(np.argmax(weight < 0))
        raise ValueError(f"Negative values in data passed to `sample_weight`: sample_weight[{i}] is {weight[i]}.")
    if not np.any(weight):
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return weight


def _as_vector(sample_weight, n_examples):
    ragged = isinstance(sample_weight, list | tuple) or getattr(sample_weight, "dtype", None) == np.dtype(object)
    if ragged and any(np.ndim(weight) for weight in sample_weight):
        raise ValueError(_per_node("a sequence of arrays"))
    weight = check_array(
        sample_weight,
        ensure_2d=False,
        allow_nd=True,
        dtype=np.float64,
        order="C",
        ensure_min_samples=0,
        input_name="sample_weight",
    )
    if weight.ndim != 1:
        raise ValueError(_per_node(f"an array of shape {weight.shape}"))
    if weight.shape != (n_examples,):
        raise ValueError(f"sample_weight.shape == {weight.shape}, expected {(n_examples,)}!")
    return weight


def _per_node(found):
    return (
        f"Sample weights must be 1D array or scalar, one weight per example, got {found}: weights per node have no "
        "meaning here."
    )
