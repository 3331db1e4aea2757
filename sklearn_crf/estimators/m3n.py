"""M3NClassifier, a max-margin Markov network trained with any MAP inference."""

from sklearn_crf._options import options
from sklearn_crf.estimators._classifier import FieldClassifier


@options(learning="max_margin", max_iter=1000)
class M3NClassifier(FieldClassifier):
    r"""Max-margin Markov network: a structured support vector machine on the scores of a field.

    Pass a single sequence as ``X[np.newaxis]`` and ``y[np.newaxis]``. X of shape ``(T, F)`` with y of shape ``(T,)`` is
    read as plain rows, which are nodes without edges.

    .. math::
        \min_w \; \tfrac12 \lVert w \rVert^2 + C \sum_i \max_y \bigl[ \Delta(y, y_i)
            + \mathrm{score}_w(x_i, y) - \mathrm{score}_w(x_i, y_i) \bigr]

    The score is defined as in :class:`DRFClassifier`. The true labeling should outscore every other labeling by a
    margin, the cost :math:`\Delta` of its errors. Training only needs best labelings, for example by minimum cuts, and
    neither marginals nor the partition function. Without edges the model is the multi-class support vector machine of
    Crammer and Singer, and for two classes the usual support vector machine.

    Training stops at a duality gap. Inference that undergenerates (iterated conditional modes, max-product, expansion
    moves) may miss the worst labeling, and the loss is then too small. ``duality_gap_`` therefore includes the gap of
    the inference, and is infinite if the inference has no bound. Training also ends when the labelings found no longer
    change the weights. With the default inference, there is no warning about a gap of up to a quarter of the objective.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty, as in scikit-learn's LinearSVC. Very weak penalties would be lost in rounding
        errors, so the weight of a feature with a spread of one has at least the penalty of ``C=1e10 / n_nodes``.
        Intercepts are penalised, too, since the dual has no block structure otherwise. Dense features are centred if
        they have a spread above ten, or a mean of more than ten standard deviations.
    learning : str, Learning or Objective, default="max_margin"
        Learning method. "max_margin" uses the exact maximum over labelings, found by any MAP inference.
        Other names are listed in :class:`TRWCRF`. An object of :mod:`sklearn_crf.learning`, such as
        :class:`~sklearn_crf.learning.MaxMargin`, has options (cost of errors, rescaling of the margin, penalty of
        intercepts), which can be set as ``learning__cost`` and so on. A
        :class:`~sklearn_crf.objectives.StructuredHinge` of your own is allowed too.
    inference : str or Inference, default="auto"
        MAP inference for training and prediction: "icm", "max_product", "graph_cut", "alpha_expansion"
        or another name of the user guide (:ref:`choosing_inference`). An :class:`~sklearn_crf.inference.Inference` is
        cloned, and its options can be set as ``inference__max_iter`` and so on. "auto" uses ``AutoMap(budget="fast")``
        for prediction, and an inference with a bound for training: max-product on forests, minimum cuts for two classes
        and 20 iterations of ``TRWS`` for more classes, but ``AD3()`` for "relaxed_margin" and "dual_margin". "map"
        trains with the same algorithms and up to 100 iterations of ``TRWS`` (``AutoMap(bounded=True)``).

    References
    ----------
    B. Taskar, C. Guestrin, D. Koller. Max-Margin Markov Networks. NIPS 2003.

    J. Jancsary. Approximate Discriminative Training of Graphical Models. PhD thesis, TU Wien, 2012.

    S. Lacoste-Julien, M. Jaggi, M. Schmidt, P. Pletscher. Block-Coordinate Frank-Wolfe Optimization for Structural
    SVMs. ICML 2013, :arxiv:`1207.4747`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import M3NClassifier
    >>> y = np.zeros((20, 8, 8), dtype=int)
    >>> y[:, 2:6, 2:6] = 1
    >>> X = y[..., np.newaxis] + np.random.default_rng(0).normal(
    ...     scale=0.5, size=(20, 8, 8, 1)
    ... )
    >>> print(
    ...     f"{M3NClassifier(random_state=0).fit(X[:10], y[:10]).score(X[10:], y[10:]):.2f}"
    ... )
    0.98
    """
