"""TRWCRF: conditional random fields trained by maximum likelihood or by convex relaxations of the likelihood."""

from sklearn_crf._options import options
from sklearn_crf.estimators._classifier import FieldClassifier


@options(weights="auto", pairwise="directed")
class TRWCRF(FieldClassifier):
    r"""Conditional random field trained by maximum likelihood, computed exactly or by a convex relaxation.

    Pass a single sequence as ``X[np.newaxis]`` and ``y[np.newaxis]``. X of shape ``(T, F)`` with y of shape ``(T,)``
    are plain rows: nodes without edges.

    .. math::
        \min_w \; \tfrac12 \lVert w \rVert^2 + C \sum_i \bigl( \log Z(\theta_i) - \mathrm{score}(y_i; \theta_i) \bigr),
        \qquad \theta_i = B(x_i) w,

    where :math:`\theta_i` are the scores of example i, linear in the weights w. On chains, trees and graphs of low tree
    width, :math:`\log Z` is exact; on chains this is the linear-chain conditional random field of sequence taggers.
    Elsewhere, a convex upper bound replaces it, such as

    .. math:: \tilde A(\theta) = \max_{\tau \in L} \langle \theta, \tau \rangle + \tilde H(\tau),

    the maximum over the marginals :math:`\tau` in the local polytope L of their expected score plus an approximate
    entropy :math:`\tilde H`. Node features may be sparse, with millions of columns. Weights may be restricted to pairs
    of a feature and a label seen in training.

    References
    ----------
    J. Lafferty, A. McCallum, F. Pereira. Conditional Random Fields: Probabilistic Models for Segmenting and Labeling
    Sequence Data. ICML 2001.

    J. Jancsary. Approximate Discriminative Training of Graphical Models. PhD thesis, TU Wien, 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.preprocessing import SequenceVectorizer
    >>> sentences = [["the", "old", "man"], ["old", "boats"], ["man", "the", "boats"]]
    >>> tags = [["D", "A", "N"], ["A", "N"], ["V", "D", "N"]]
    >>> vectorizer = SequenceVectorizer()
    >>> X = vectorizer.fit_transform(
    ...     [[{"word": w} for w in sentence] for sentence in sentences]
    ... )
    >>> tagger = TRWCRF(C=10, weights="seen", inference="map").fit(
    ...     X, [np.array(t) for t in tags]
    ... )
    >>> tagger.predict(
    ...     vectorizer.transform([[{"word": "man"}, {"word": "the"}, {"word": "man"}]])
    ... )[0]
    array(['V', 'D', 'N'], dtype='<U1')
    """
