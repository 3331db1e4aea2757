"""Losses of the final mean-field marginals, and the derivatives of these losses."""

import numpy as np

from sklearn_crf._versions import HoldsOptions


class LogLoss(HoldsOptions):
    r"""Logarithmic loss: the weighted sum, over nodes, of the negative log-probability of the label.

    .. math::
        R = -\sum_i w_i \log q_i(y_i)
    """

    def totals(self, q: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return sums over the nodes of one example. The loss is computed from the totals of these sums."""
        # q: (n_nodes, n_classes); labels: (n_nodes,); weight: (n_nodes,), float64; returns: (2,)
        right = q[np.arange(len(q)), labels].astype(np.float64)
        floor = np.finfo(q.dtype).tiny
        return np.array([-(weight * np.log(np.maximum(right, floor))).sum(), weight.sum()])

    def value(self, totals: np.ndarray) -> float:
        """Return the loss of all examples."""
        return float(totals[0])

    def gradient(self, totals: np.ndarray | None, q: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return the derivative of the loss with respect to the logits of the marginals of one example."""
        # returns: (n_nodes, n_classes)
        gradient = q.copy()
        gradient[np.arange(len(q)), labels] -= 1
        gradient *= weight[:, np.newaxis].astype(q.dtype)
        return gradient

    needs_totals = False


class ExpectedIoU(HoldsOptions):
    r"""One minus the expected intersection over union, averaged over classes, times the weight of the nodes.

    .. math::
        R = W \Big(1 - \frac1K \sum_k \frac{\sum_i w_i \, q_i(k) \, [y_i = k]}
            {\sum_i w_i \, (q_i(k) + [y_i = k] - q_i(k) \, [y_i = k])}\Big), \qquad W = \sum_i w_i

    summed over the nodes of all examples. Classes without any labelled node are left out.
    """

    needs_totals = True

    def totals(self, q: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return sums over the nodes of one example. The loss is computed from the totals of these sums."""
        # returns: (3, n_classes)
        n_classes = q.shape[1]
        right = q[np.arange(len(q)), labels].astype(np.float64)
        return np.stack(
            [
                np.bincount(labels, weight * right, n_classes),
                np.einsum("ik,i->k", q, weight, dtype=np.float64),
                np.bincount(labels, weight, n_classes),
            ]
        )

    def value(self, totals: np.ndarray) -> float:
        """Return the loss of all examples."""
        # totals: (3, n_classes)
        inter, union, present = self._compute_ratios(totals)
        return float(totals[2].sum() * (1 - np.mean(inter[present] / union[present])))

    def gradient(self, totals: np.ndarray, q: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return the derivative of the loss with respect to the logits of the marginals of one example."""
        # totals: (3, n_classes); returns: (n_nodes, n_classes)
        inter, union, present = self._compute_ratios(totals)
        scale = np.where(present, -totals[2].sum() / (present.sum() * union), 0.0)
        # A larger marginal of a class increases the class's union at nodes with other labels.
        # At nodes that have the class as label, a larger marginal increases the intersection instead.
        slope = np.tile(-scale * inter / union, (len(q), 1))
        slope[np.arange(len(q)), labels] = scale[labels]
        slope *= weight[:, np.newaxis]
        slope = slope.astype(q.dtype)
        # Return the derivative with respect to the logits of the softmax q.
        return q * (slope - np.einsum("ik,ik->i", q, slope)[:, np.newaxis])

    @staticmethod
    def _compute_ratios(totals):
        present = totals[2] > 0
        union = np.where(present, totals[1] + totals[2] - totals[0], 1.0)
        return totals[0], union, present
