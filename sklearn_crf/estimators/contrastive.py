"""ContrastiveCRF: fields trained by contrastive objectives and constraint generation."""

from sklearn_crf._options import options
from sklearn_crf.estimators._classifier import FieldClassifier


@options(learning="contrastive")
class ContrastiveCRF(FieldClassifier):
    r"""Conditional random field trained to distinguish the true labeling from sets of other labelings.

    Pass a single sequence as ``X[np.newaxis]`` and ``y[np.newaxis]``. X of shape ``(T, F)`` with y of shape ``(T,)``
    are plain rows: nodes without edges.

    .. math::
        \min_w \; \tfrac12 \lVert w \rVert^2 - C \sum_i \sum_{j: y_i \in S_j} w_j(x_i)
            \log \frac{\exp(\mathrm{score}_w(x_i, y_i))}{\sum_{y \in S_j} \exp(\mathrm{score}_w(x_i, y))}

    The scores are defined as for :class:`DRFClassifier`. The objective makes the true labeling probable among the
    labelings of each set :math:`S_j`. The objective needs the scores of these labelings, and no partition function.
    With one set of all labelings it is the likelihood; with a set for each node, which varies the state of this node,
    it is the pseudolikelihood. Local methods do not use labelings far from the truth. Contrastive constraint generation
    finds such labelings: it optimises, searches for labelings with high scores, adds them to the set of their example,
    and repeats until no labeling is new. The sets contain few of all labelings, so probabilities of labels are usually
    too close to uniform; :class:`~sklearn_crf.calibration.TemperatureScaling` corrects them. If the maximum number of
    rounds is reached, the final weights are from the round that labels the training examples best, by the inference
    that predicts. With :class:`~sklearn_crf.Shards` in place of X and y, each shard generates and keeps the labelings
    of its own examples.

    Parameters
    ----------
    learning : str, Learning or Objective, default="contrastive"
        Loss that determines the weights. "contrastive" begins with the sets of the pseudolikelihood. A
        :class:`~sklearn_crf.learning.ContrastiveTraining` can choose other initial sets (``init``), the method that
        finds further labelings (``generator``: max-product by default; iterated conditional modes, Gibbs sampling,
        labelings of most violated constraints, or None), and their number and times. ``learning`` has nested parameters
        such as ``learning__generator`` and ``learning__max_rounds``. All other names are as in :class:`TRWCRF`.
    inference : str or Inference, default="auto"
        Inference that predicts, as in :class:`DRFClassifier`. "auto" predicts each node's most probable state, by exact
        marginals or by tree-reweighted belief propagation. If there are more than 20,000 training nodes, and training
        chose the penalty of edges, it predicts the best labeling instead if that is correct on more training nodes. The
        paper found iterated conditional modes ("icm") better than max-product.
    pairwise : str or PairwiseTables, default="auto"
        Form of the pairwise tables: "auto", "ising", "potts", "symmetric" or "full", see
        :func:`~sklearn_crf.potentials.make_pairwise_form`. A :class:`~sklearn_crf.potentials.PairwiseTables` can also
        set a separate ``C`` for edges, forbid pairs of labels, and let tables of a lattice differ by direction. "auto"
        is "full" on chains; elsewhere it is "ising" for two classes and "potts" for more.

        The initial sets overrate edges. Therefore, if labelings of examples with cycles are generated in rounds and no
        ``C`` for edges is given, edges get between a thousandth and a millionth of ``C``: the value with which
        training on the initial sets labels the training examples best. With at most 20,000 nodes, a second training
        uses ``C`` itself for edges, and the better of the two is kept.

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
    >>> print(
    ...     f"{ContrastiveCRF(random_state=0).fit(X[:10], y[:10]).score(X[10:], y[10:]):.2f}"
    ... )
    0.95

    Pseudolikelihood alone overrates the neighbours here, so all nodes get the same label:

    >>> from sklearn_crf.learning import ContrastiveTraining
    >>> alone = ContrastiveCRF(learning=ContrastiveTraining(generator=None))
    >>> print(f"{alone.fit(X[:10], y[:10]).score(X[10:], y[10:]):.2f}")
    0.25
    """
