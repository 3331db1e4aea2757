"""Contrastive divergence: a few Gibbs sweeps from the data in place of the model's expectations."""

import numpy as np

from sklearn_crf.inference import gibbs_sweeps
from sklearn_crf.models import check_labels, labeling_statistics
from sklearn_crf.objectives._base import Loss, Objective


class ContrastiveDivergence(Objective):
    r"""Contrastive divergence CD-k.

    .. math:: J(\theta) = \phi(y^*) - \phi(y^{(k)}), \qquad y^{(k)} \text{ after } k \text{ Gibbs sweeps from } y^*

    There is no loss whose gradient this is; ``Loss.terms`` is None. Unlabelled nodes are completed by a Gibbs
    chain with the labelled ones held fixed, which goes on from call to call.

    Source: Hinton 2002; Kumar et al. 2005, section 3.1.

    Parameters
    ----------
    n_sweeps : int, default=1
        k.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import ContrastiveDivergence
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> loss = ContrastiveDivergence(n_sweeps=2).loss_statistics(
    ...     model, np.array([1, 1, 1], dtype=np.int32), seed=0
    ... )
    >>> loss.terms is None, loss.statistics.unary.shape
    (True, (3, 2))
    """

    has_value = False
    smooth = False
    draws = True
    missing = "completed"

    def __init__(self, n_sweeps=1):
        self.n_sweeps = n_sweeps

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        labels = check_labels(model, labels, may_miss=True)
        observed = labels >= 0
        if not observed.all():
            start = np.where(observed, labels, np.argmax(model.unary, axis=1) if state is None else state)
            labels = gibbs_sweeps(
                model, start.astype(np.int32), self.n_sweeps, seed + 1, n_threads=n_threads, frozen=observed
            )
        drawn = gibbs_sweeps(model, labels, self.n_sweeps, seed, n_threads=n_threads)
        return Loss(
            statistics=labeling_statistics(model, drawn).minus(labeling_statistics(model, labels)),
            state=labels,
        )
