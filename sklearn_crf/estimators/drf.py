"""DRFClassifier, a discriminative random field whose learning is coupled to its inference."""

from sklearn_crf._options import options
from sklearn_crf.estimators._classifier import FieldClassifier


@options(learning="coupled")
class DRFClassifier(FieldClassifier):
    r"""Discriminative random field whose learning is coupled to its inference.

    Pass a single sequence as ``X[np.newaxis]`` and ``y[np.newaxis]``. X of shape ``(T, F)`` with y of shape ``(T,)`` is
    read as plain rows, which are nodes without edges.

    .. math::
        p(y \mid x) \propto \exp \Bigl( \sum_s w_{y_s}^\top x_s + b_{y_s}
            + \sum_{(i, j)} v_{y_i y_j}^\top \mu_{ij}(x) \Bigr)

    The weights are learned by replacing the expectations in the gradient of the likelihood with results of the
    inference that is also used for prediction. These results are pseudo-marginals for marginal decoding (PMA), and the
    best labeling for MAP decoding (SPA). A field without edges is exactly logistic regression.

    Each edge counts once. Kumar et al. count it from both its ends, so their :math:`v` is half of ``edge_coef_``. For
    two classes the unary score is :math:`\pm (w^\top x + b) / 2`, as in their Eq. (3).

    Parameters
    ----------
    learning : str, Learning or Objective, default="coupled"
        Learning method. "coupled" follows ``inference``: it is "pma", pseudo-marginals, for marginal decoding, and
        "spa", the saddle point approximation, for MAP decoding. Other names are listed in :class:`TRWCRF`. An object of
        :mod:`sklearn_crf.learning`, such as :class:`~sklearn_crf.learning.SaddlePointTraining`, has options, which can
        be set as ``learning__step_size`` and so on. An :class:`~sklearn_crf.objectives.Objective` of your own is
        allowed too.

    References
    ----------
    S. Kumar, J. August, M. Hebert. Exploiting Inference for Approximate Parameter Learning in Discriminative Fields: An
    Empirical Study. EMMCVPR 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import DRFClassifier
    >>> y = np.zeros((20, 8, 8), dtype=int)
    >>> y[:, 2:6, 2:6] = 1
    >>> X = y[..., np.newaxis] + np.random.default_rng(0).normal(
    ...     scale=0.5, size=(20, 8, 8, 1)
    ... )
    >>> print(
    ...     f"{DRFClassifier(inference='map').fit(X[:10], y[:10]).score(X[10:], y[10:]):.2f}"
    ... )
    0.97
    """
