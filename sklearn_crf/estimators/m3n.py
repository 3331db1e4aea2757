"""M3NClassifier: learning by margins over any inference of best labelings."""

from sklearn_crf._options import options
from sklearn_crf.estimators._classifier import FieldClassifier


@options(learning="max_margin", max_iter=1000)
class M3NClassifier(FieldClassifier):
    r"""Max-margin Markov network: a structured support vector machine on the scores of a field.

    One sequence is given as ``X[np.newaxis]`` and ``y[np.newaxis]``: X of shape ``(T, F)`` with y of shape ``(T,)`` are
    plain rows, nodes without edges.

    .. math::
        \min_w \; \tfrac12 \lVert w \rVert^2 + C \sum_i \max_y \bigl[ \Delta(y, y_i)
            + \mathrm{score}_w(x_i, y) - \mathrm{score}_w(x_i, y_i) \bigr]

    The score is that of :class:`DRFClassifier`. The true labeling is to win by a margin of the cost :math:`\Delta` of
    every other, which needs best labelings alone, and no marginals or partition function: minimum cuts will do. Without
    edges it is the multi-class support vector machine of Crammer and Singer, for two classes the usual one.

    Training stops at a duality gap. Inference that undergenerates (iterated conditional modes, max-product, expansion
    moves) may miss the worst labeling, so that the loss is too small: ``duality_gap_`` then counts what the inference
    cannot prove, and is infinite if it has no bound. Training ends where the labelings found no longer move the
    weights; with the inference that is chosen by default a gap of up to a quarter of the objective brings no warning.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty, as in scikit-learn's LinearSVC. Rounding hides penalties that are too weak:
        each weight, for a feature of a spread of one, has at least the penalty of ``C=1e10 / n_nodes``. Intercepts are
        penalised as those of centred features, where features have a spread above ten.
    learning : str, Learning or Objective, default="max_margin"
        How the weights are found. "max_margin" has the maximum itself, over whatever finds best labelings. The other
        names are those of :class:`TRWCRF`; or an object of :mod:`sklearn_crf.learning`, such as
        :class:`~sklearn_crf.learning.MaxMargin`, whose options (cost of errors, rescaling of the margin, freedom of
        intercepts) are reachable as ``learning__cost`` and so on; or a
        :class:`~sklearn_crf.objectives.StructuredHinge` of your own.
    inference : str or Inference, default="auto"
        What finds best labelings, in training and at prediction: "icm", "max_product", "graph_cut", "alpha_expansion"
        and other names of the user guide (:ref:`choosing_inference`); or an
        :class:`~sklearn_crf.inference.Inference`, cloned, whose options are reachable as ``inference__max_iter`` and so
        on. "auto" predicts by ``AutoMap()`` and trains by inference with a bound: max-product on forests, minimum cuts
        for two classes, 20 iterations of ``TRWS`` for more; ``AD3()`` for "relaxed_margin" and "dual_margin".

    References
    ----------
    B. Taskar, C. Guestrin, D. Koller. Max-Margin Markov Networks. NIPS 2003.

    J. Jancsary. Approximate Discriminative Training of Graphical Models. PhD thesis, TU Wien, 2012.

    S. Lacoste-Julien, M. Jaggi, M. Schmidt, P. Pletscher. Block-Coordinate Frank-Wolfe Optimization for Structural
    SVMs. ICML 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> y = np.zeros((20, 8, 8), dtype=int)
    >>> y[:, 2:6, 2:6] = 1
    >>> X = y[..., np.newaxis] + np.random.default_rng(0).normal(
    ...     scale=0.5, size=(20, 8, 8, 1)
    ... )
    >>> M3NClassifier(random_state=0).fit(X[:10], y[:10]).score(X[10:], y[10:]) > 0.95
    True
    """
