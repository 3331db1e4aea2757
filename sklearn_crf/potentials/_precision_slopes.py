"""Precisions of factors that grow with channels of the input: Eq. (239) of Jancsary (2012)."""

import numpy as np
import scipy.sparse as sp


def precisions_of_factors(part, kind, features, leaf):
    """The precisions that factors look up, and which of them each has.

    Parameters
    ----------
    part : LeafParameters
    kind : FactorType
    features : ndarray of shape (H, W, F)
    leaf : ndarray of shape (n_factors,), int32

    Returns
    -------
    precision : ndarray of shape (L, m, m) or (n_factors, m, m)
        One for each leaf, unless it depends on channels.
    place : ndarray of shape (n_factors,), int32
    """
    dtype = features.dtype
    precision = part.precision.astype(dtype)
    if not kind.multipliers:
        return precision, leaf
    more = np.einsum("fi,fiab->fab", kind.multiplied_by(features), part.slopes.astype(dtype)[leaf])
    return precision[leaf] + more, np.arange(len(leaf), dtype=np.int32)


def slope_gradient(kind, features, leaf, square, n_leaves):
    """Derivative by the slopes of leaves, from that by the precision of each factor.

    Parameters
    ----------
    kind : FactorType
    features : ndarray of shape (H, W, F)
    leaf : ndarray of shape (n_factors,), int32
    square : ndarray of shape (n_factors, m, m)
    n_leaves : int

    Returns
    -------
    ndarray of shape (n_leaves, I, m, m), float64
    """
    terms = slope_terms(kind.multiplied_by(features).astype(np.float64), square)
    # Column by column, that is factor by factor, in one order whatever the threads.
    members = sp.csc_matrix((np.ones(len(leaf)), leaf, np.arange(len(leaf) + 1)), shape=(n_leaves, len(leaf)))
    return (members @ terms.reshape(len(leaf), -1)).reshape(n_leaves, *terms.shape[1:])


def slope_terms(multipliers, square):
    """Derivative by the slopes of each factor, (n, I, m, m), from its multipliers (n, I)."""
    return multipliers[:, :, None, None] * square[:, None]
