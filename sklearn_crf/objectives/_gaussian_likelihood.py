"""Exact likelihood of small Gaussian fields, the reference of the other learning principles."""

import numpy as np
import scipy.linalg

from sklearn_crf.inference._gaussian import not_positive_definite
from sklearn_crf.objectives._gaussian_field import GaussianLoss, GaussianPseudolikelihood
from sklearn_crf.potentials._regression_tree_field import GaussianStatistics

# The inverse of J is dense: at this many values it takes 130 megabytes and seconds.
_MOST_VALUES = 4096


class GaussianLikelihood:
    r"""Negative log-likelihood of the values of an image, divided by the number of its pixels.

    .. math::
        -\frac1N \log p(y) = \frac{1}{2 N} (y - u)^\top J (y - u) - \frac{1}{2 N} \log \det J + \frac{D}{2} \log 2 \pi,
        \qquad u = J^{-1} h

    Convex in the values of the field. It takes the whole inverse of J, so that fields are limited to 4096 values.

    Raises
    ------
    ValueError
        If a field is larger, or its precision is not positive definite.

    References
    ----------
    J. Jancsary. Approximate discriminative training of graphical models, 2012, Eq. (246) to (254).
    """

    def loss(self, model, y, *, weight=None, state=None, n_threads=1):
        """Loss of a field against values.

        Parameters
        ----------
        model : GaussianModel
        y : ndarray of shape (N, D)
        weight : ndarray of shape (N,), optional
            Equal numbers, the weight of the image; where there are no edges, of each pixel.
        state : object, optional
            Not used.
        n_threads : int, default=1
            Not used.

        Returns
        -------
        GaussianLoss
        """
        if model.graph.n_edges == 0:
            return GaussianPseudolikelihood().loss(model, y, weight=weight)
        n_nodes, n_values = y.shape
        if y.size > _MOST_VALUES:
            raise ValueError(
                f"loss='likelihood' inverts the precision of an image: at most {_MOST_VALUES} values, got {y.size}."
            )
        precision = model.precision_matrix().toarray()
        try:
            factor = scipy.linalg.cho_factor(precision, lower=True)
        except np.linalg.LinAlgError as error:
            raise not_positive_definite("as its Cholesky factorisation fails") from error
        covariance = scipy.linalg.cho_solve(factor, np.eye(y.size))
        y = np.asarray(y, dtype=np.float64)
        mean = (covariance @ model.h.ravel().astype(np.float64)).reshape(y.shape)
        off = (y - mean).ravel()
        log_det = 2 * np.log(np.diagonal(factor[0])).sum()
        value = 0.5 * (off @ precision @ off - log_det) / n_nodes + 0.5 * n_values * np.log(2 * np.pi)
        blocks = covariance.reshape(n_nodes, n_values, n_nodes, n_values)
        tails, heads = model.graph.edges.T
        scale = (1.0 if weight is None else weight[0]) / n_nodes
        own = blocks[np.arange(n_nodes), :, np.arange(n_nodes)]
        square = y[:, :, None] * y[:, None, :] - mean[:, :, None] * mean[:, None, :] - own
        # What y y' and u u' differ by, as a product of linear and values; the covariance is no such product.
        statistics = GaussianStatistics(
            scale * (mean - y), (mean + y) / 2, 0.5 * scale * square, -scale * blocks[tails, :, heads]
        )
        return GaussianLoss(float(scale * n_nodes * value), statistics)
