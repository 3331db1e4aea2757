"""DRFClassifier: learning coupled to inference."""

from sklearn_crf._options import options
from sklearn_crf.estimators._classifier import FieldClassifier


@options(learning="coupled")
class DRFClassifier(FieldClassifier):
    r"""Discriminative random field whose learning is coupled to its inference.

    One sequence is given as ``X[np.newaxis]`` and ``y[np.newaxis]``: X of shape ``(T, F)`` with y of shape ``(T,)`` are
    plain rows, nodes without edges.

    .. math::
        p(y \mid x) \propto \exp \Bigl( \sum_s w_{y_s}^\top x_s + b_{y_s}
            + \sum_{(i, j)} v_{y_i y_j}^\top \mu_{ij}(x) \Bigr)

    Parameters are learned by replacing the expectations of the likelihood's gradient with the results of an inference
    algorithm, which predicts as well: pseudo-marginals for marginal decoding (PMA), the
    best labeling for MAP decoding (SPA). A field without edges is exactly logistic regression.

    Each edge is counted once. Kumar et al. count it from both its ends, so their :math:`v` is half of
    ``edge_coef_``. For two classes the unary score is :math:`\pm (w^\top x + b) / 2`, as in their Eq. (3).

    Parameters
    ----------
    learning : str, Learning or Objective, default="coupled"
        How the weights are found. "coupled" matches ``inference``: "pma", pseudo-marginals, for marginal decoding, and
        "spa", the saddle point approximation, for MAP. The other names are those of :class:`TRWCRF`; or an object of
        :mod:`sklearn_crf.learning`, such as :class:`~sklearn_crf.learning.SaddlePointTraining`, whose options are
        reachable as ``learning__step_size`` and so on; or an :class:`~sklearn_crf.objectives.Objective` of your own.

    References
    ----------
    S. Kumar, J. August, M. Hebert. Exploiting Inference for Approximate Parameter Learning in Discriminative
    Fields: An Empirical Study. EMMCVPR 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import DRFClassifier
    >>> y = np.zeros((20, 8, 8), dtype=int)
    >>> y[:, 2:6, 2:6] = 1
    >>> X = y[..., np.newaxis] + np.random.default_rng(0).normal(
    ...     scale=0.5, size=(20, 8, 8, 1)
    ... )
    >>> DRFClassifier(inference="map").fit(X[:10], y[:10]).score(X[10:], y[10:]) > 0.95
    True
    """
