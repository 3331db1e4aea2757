"""Losses of the marginals after a fixed number of sweeps, with gradients propagated through the sweeps."""

from typing import Any

import numpy as np

from sklearn_crf._options import options
from sklearn_crf.inference.messages._fixed_sweeps import FixedSweeps
from sklearn_crf.models import Statistics, check_labels
from sklearn_crf.objectives._base import Loss, Objective


@options(kw_only=False)
class TruncatedLoss(Objective):
    r"""Loss of the marginals after a fixed number of sweeps.

    .. math:: \ell(\theta) = L\bigl(b^{(n)}(\theta), y\bigr), \qquad
        \nabla \ell = \Bigl(\frac{\partial b^{(n)}}{\partial \theta}\Bigr)^{\!\top} \frac{\partial L}{\partial b}

    The gradient is exact for the computed marginals, even if the sweeps have not converged. Unlabelled nodes do not
    contribute to the loss.

    Source: Domke 2013; Stoyanov, Ropson, Eisner 2011.

    Parameters
    ----------
    inference : FixedSweeps
    loss : {"clique", "univariate", "quadratic", "smooth_hamming"}, default="clique"
    """

    needs = frozenset({"marginals"})
    missing = "left out"
    # Without scaling, correlated edge features need three times as many passes, each through all sweeps.
    gains_from_scaling = True

    inference: FixedSweeps
    loss: str = "clique"

    @property
    def weighs_nodes(self) -> bool:  # type: ignore[override]  # a class attribute of most objectives
        """Whether the loss is a sum over nodes."""
        return self.loss != "clique"

    def loss_statistics(
        self, model: Any, labels: np.ndarray, *, node_weight: Any = None, n_threads: int = 1, **unused: Any
    ) -> Loss:
        labels = check_labels(model, labels, may_miss=True)
        found = self.inference.loss_through_sweeps(
            model, labels, self.loss, node_weight=node_weight, n_threads=n_threads
        )
        impossible = np.flatnonzero(np.isposinf(found.terms))
        if len(impossible):
            s = impossible[0]
            raise ValueError(f"labels[{s}] is {labels[s]}, which the scores of the node or of its edges forbid.")
        return Loss(
            statistics=Statistics(found.unary.astype(model.dtype), found.tables.sum(axis=0)),
            terms=found.terms,
            predicted=np.argmax(found.beliefs, axis=1).astype(np.int32),
        )
