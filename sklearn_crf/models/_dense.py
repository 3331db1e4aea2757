"""Fully connected fields, whose pairwise scores are computed by filters over all nodes."""

from dataclasses import dataclass

import numpy as np

from sklearn_crf._numbers import as_scores
from sklearn_crf.models._pairwise import HasUnary, check_labels, compute_score_terms
from sklearn_crf.models._permutohedral import PermutohedralFilter


@dataclass(frozen=True, eq=False)
class DenseModel(HasUnary):
    r"""Scores of the labelings of a fully connected graph whose edges have Gaussian weights.

    .. math::
        \mathrm{score}(y) = \sum_i u_{i, y_i} + \frac12 \sum_m \sum_{i, j} \hat K_m(i, j) \, \mu_m(y_i, y_j)

    Larger is better. The sum over i and j contains all pairs of nodes, and each node paired with itself. The terms of a
    node with itself are the same for every labeling if the diagonal entries of :math:`\mu_m` are equal. No array of
    size N x N is stored, because :math:`\hat K_m` is a filter.

    Parameters
    ----------
    unary : array-like of shape (N, K)
        Score of each state of each node, float32 or float64 (other types are converted to float64). -inf forbids a
        state.
    filters : sequence of PermutohedralFilter
        M filters of N points, in the precision of ``unary``.
    compatibility : array-like of shape (M,), (M, K) or (M, K, K)
        Symmetric scores :math:`\mu_m` of pairs of states; a positive score favours the pair. A single number is the
        score of all pairs of equal states (Potts). K numbers are the scores of the pairs of equal states, one for each
        state. All other pairs score 0.

    Raises
    ------
    ValueError
        If shapes or precisions are inconsistent, a score is NaN or +inf, or a compatibility is not finite or not
        symmetric.

    References
    ----------
    P. Krähenbühl & V. Koltun (2011). Efficient inference in fully connected CRFs with Gaussian edge potentials.
    Advances in Neural Information Processing Systems 24, 109-117. :arxiv:`1210.5644`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.models import DenseModel, PermutohedralFilter, score
    >>> smooth = PermutohedralFilter(np.arange(6.0)[:, np.newaxis] / 2.0)
    >>> model = DenseModel(np.zeros((6, 2)), [smooth], [3.0])
    >>> score(model, [0, 0, 0, 1, 1, 1]) > score(model, [0, 1, 0, 1, 0, 1])
    True
    """

    unary: np.ndarray
    filters: tuple[PermutohedralFilter, ...]
    compatibility: np.ndarray

    def __post_init__(self):
        unary = as_scores(self.unary, "unary")
        if unary.ndim != 2 or unary.shape[1] < 1:
            raise ValueError(f"unary must have shape (n_nodes, n_states), got {unary.shape}.")
        filters = tuple(self.filters)
        for m, smooth in enumerate(filters):
            if (smooth.n_points, smooth.dtype) != (len(unary), unary.dtype):
                raise ValueError(
                    f"filters[{m}] must have {len(unary)} points in {unary.dtype}, as unary does, got "
                    f"{smooth.n_points} in {smooth.dtype}."
                )
        object.__setattr__(self, "unary", np.ascontiguousarray(unary))
        object.__setattr__(self, "filters", filters)
        object.__setattr__(
            self, "compatibility", _check_compatibility(self.compatibility, len(filters), unary.shape[1])
        )

    @property
    def tables(self) -> np.ndarray:
        """Compatibility matrices of all filters, (M, K, K) float64."""
        if self.compatibility.ndim == 3:
            return self.compatibility
        diagonal = self.compatibility.reshape(len(self.filters), -1 if len(self.filters) else 1)
        return diagonal[:, :, np.newaxis] * np.eye(self.n_columns)


def _check_compatibility(compatibility, n_filters, n_states):
    compatibility = as_scores(compatibility, "compatibility", np.float64, may_forbid=False).copy()
    shapes = [(n_filters, n_states, n_states)[:n] for n in (1, 2, 3)]
    if compatibility.shape not in shapes:
        allowed = ", ".join(map(str, shapes))
        raise ValueError(f"compatibility must have one of the shapes {allowed}, got {compatibility.shape}.")
    if compatibility.ndim == 3 and not np.allclose(compatibility, compatibility.transpose(0, 2, 1)):
        raise ValueError(
            "compatibility must be symmetric in its states, because edges of a dense field have no direction."
        )
    return compatibility


@compute_score_terms.register
def _compute_score_terms(model: DenseModel, labels):
    labels = check_labels(model, labels)
    nodes = np.arange(model.n_nodes)
    certain = np.zeros(model.unary.shape, model.dtype)
    certain[nodes, labels] = 1
    terms = model.unary[nodes, labels].astype(np.float64)
    for smooth, table in zip(model.filters, model.tables, strict=True):
        terms += 0.5 * np.einsum("ik,ik->i", smooth.apply(certain), table[labels], dtype=np.float64)
    return terms
