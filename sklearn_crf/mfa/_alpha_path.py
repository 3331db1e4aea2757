"""Paths of fits from generative to discriminative."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from sklearn_crf.mfa._estimator import MultiConditionalMFA


def alpha_path(
    estimator: MultiConditionalMFA,
    X: ArrayLike,
    y: ArrayLike,
    alphas: Sequence[float],
    *,
    sample_weight: ArrayLike | None = None,
) -> list[MultiConditionalMFA]:
    r"""Fit a model for each of several ``alpha``, each from where the next larger one ended.

    .. math::
        \theta(\alpha) = \operatorname{argmax}_\theta \sum_i w_i
        \left[ \log P(c_i \mid x_i) + \alpha \log P(x_i \mid c_i) \right]

    All restarts of the largest ``alpha`` begin with one set of initial values (k-means), and every restart is followed
    down to the smallest. That is quicker than as many fits, and neighbours on the path do not differ by the local
    maximum that they happened to find.

    Parameters
    ----------
    estimator : MultiConditionalMFA
        With ``objective="multi_conditional"``; its ``alpha`` is not used, and it is not changed.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    alphas : sequence of float
        Not negative, in any order.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    list of MultiConditionalMFA
        One fitted model for each ``alpha``, in the order of ``alphas``.

    Raises
    ------
    ValueError
        For ``objective="joint"``, which has no ``alpha``, or no ``alphas``.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn_crf.mfa import MultiConditionalMFA, alpha_path
    >>> X, y = load_wine(return_X_y=True)
    >>> path = alpha_path(MultiConditionalMFA(1, random_state=0), X, y, [0.1, 1.0])
    >>> [model.alpha for model in path]
    [0.1, 1.0]
    """
    return [model for _, model in sorted(_descend(estimator, X, y, alphas, sample_weight), key=lambda pair: pair[0])]


def _descend(estimator, X, y, alphas, sample_weight):
    """Pairs of a position in ``alphas`` and its model, from the largest alpha on."""
    if estimator.objective != "multi_conditional":
        raise ValueError(f"alpha_path needs objective='multi_conditional', got {estimator.objective!r}.")
    if not len(alphas):
        raise ValueError("alphas is empty; it needs at least one value.")
    found, starts = [], None
    for position in np.argsort(alphas, kind="stable")[::-1].tolist():
        model = clone(estimator).set_params(alpha=alphas[position])
        model._validate_params()
        ends = model._fit(X, y, sample_weight, starts)
        starts = [(end.params, seed) for seed, end in enumerate(ends)]
        found.append((position, model))
    return found
