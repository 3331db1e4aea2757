"""ContrastiveCRF: contrastive objectives and constraint generation."""

from sklearn_crf._options import options
from sklearn_crf.estimators._classifier import FieldClassifier


@options(learning="contrastive")
class ContrastiveCRF(FieldClassifier):
    r"""Conditional random field trained to tell the truth from sets of other labelings.

    One sequence is given as ``X[np.newaxis]`` and ``y[np.newaxis]``: X of shape ``(T, F)`` with y of shape ``(T,)`` are
    plain rows, nodes without edges.

    .. math::
        \min_w \; \tfrac12 \lVert w \rVert^2 - C \sum_i \sum_{j: y_i \in S_j} w_j(x_i)
            \log \frac{\exp(\mathrm{score}_w(x_i, y_i))}{\sum_{y \in S_j} \exp(\mathrm{score}_w(x_i, y))}

    The score is that of :class:`DRFClassifier`. The truth is to be probable among the labelings of each set
    :math:`S_j`, which needs their scores alone and no partition function. A set of all labelings is the likelihood,
    sets of the states of one node are the pseudolikelihood. Sets of labelings far from the truth compare what local
    methods cannot; contrastive constraint generation finds them: it optimises, looks for labelings that the model
    likes, adds them to the set of their example, and repeats until none is new. Unlike a margin this calibrates
    probabilities. Where rounds end before that, the weights of the round are kept that labels the training examples
    best, by the inference that predicts. With :class:`~sklearn_crf.Shards` in place of X and y each shard generates the
    labelings of its own examples, and keeps them.

    Parameters
    ----------
    learning : str, Learning or Objective, default="contrastive"
        How the weights are found. "contrastive" begins with the sets of the pseudolikelihood. Or a
        :class:`~sklearn_crf.learning.ContrastiveTraining`, which names other sets to begin with (``init``), what finds
        further labelings (``generator``: max-product by default; iterated conditional modes, Gibbs sampling, labelings
        of most violated constraints, or nothing), how many and when; its options are reachable as
        ``learning__generator``, ``learning__max_rounds`` and so on. The other names are those of :class:`TRWCRF`.
    inference : str or Inference, default="auto"
        What predicts, as in :class:`DRFClassifier`: "auto" chooses each node's best state under its marginals, exact
        ones or those of tree-reweighted belief propagation; with more than 20,000 nodes to learn from and a penalty of
        edges that training chose, the best labeling where that is right on more of these nodes. The paper found "icm"
        better than max-product.
    pairwise : str or PairwiseTables, default="auto"
        Weights of a pairwise table: "auto", "ising", "potts", "symmetric" or "full", see
        :func:`~sklearn_crf.potentials.pairwise_form`; or a :class:`~sklearn_crf.potentials.PairwiseTables`, which can
        also have a ``C`` of its own, forbid pairs of labels, and let tables of a lattice differ by direction. "auto"
        is "full" on chains, and elsewhere "ising" for two classes and "potts" for more. Without a ``C`` of edges,
        where labelings are generated for examples with cycles by rounds, edges have a thousandth of ``C`` to a
        millionth, whichever makes the sets to begin with, which overrate edges, label training examples best. Up to
        20,000 nodes a training with ``C`` itself comes after it, and the better of the two is kept.

    References
    ----------
    D. Vickrey, C. Lin, D. Koller. Non-Local Contrastive Objectives. ICML 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import ContrastiveCRF
    >>> y = np.zeros((20, 8, 8), dtype=int)
    >>> y[:, 2:6, 2:6] = 1
    >>> X = y[..., np.newaxis] + np.random.default_rng(0).normal(
    ...     scale=0.5, size=(20, 8, 8, 1)
    ... )
    >>> ContrastiveCRF(random_state=0).fit(X[:10], y[:10]).score(X[10:], y[10:]) > 0.9
    True

    Pseudolikelihood alone overrates the neighbours here, so that one label takes all nodes:

    >>> from sklearn_crf.learning import ContrastiveTraining
    >>> alone = ContrastiveCRF(learning=ContrastiveTraining(generator=None))
    >>> alone.fit(X[:10], y[:10]).score(X[10:], y[10:]) < 0.3
    True
    """
