"""Units of parameters in which a step of training matters alike, whichever leaf and direction it is in."""

import numpy as np

from sklearn_crf._threads import map_tasks

# Factors of a type that the inputs of its leaves are looked at by.
_SAMPLES = 100_000

# Share of the inputs of all leaves in the moments of one: no direction counts for less.
_COMMON_SHARE = 0.05


class LeafScaling:
    r"""Parameters by which the loss is curved alike.

    .. math::
        \tilde J_l = \sqrt{p_l} \, J_l, \qquad \tilde W_l = \sqrt{p_l} \, W_l C_l, \qquad
        C_l C_l^\top = \mathrm{E}[b b^\top \mid l]

    with the share :math:`p_l` of a leaf in the factors of its type, which the curvature is in proportion to, and the
    inputs b of its linear models: in a leaf of smooth regions the responses of filters are small, and a step along
    their weights would matter little. One number for all of a precision keeps projections what they are.

    Parameters
    ----------
    risk : FieldRisk
    rng : RandomState
        Of the factors that are looked at.
    """

    def __init__(self, risk, rng):
        self.potentials = risk.potentials
        self.root = np.sqrt(risk.potentials.spread(risk.shares()))
        n_types = len(risk.potentials.types)
        seeds = rng.randint(np.iinfo(np.int32).max, size=n_types)

        def factor(number, n_threads):
            return np.linalg.cholesky(_moments(risk, number, np.random.RandomState(seeds[number])))

        self.factor = map_tasks(factor, range(n_types), risk.n_jobs)
        self.inverse = [np.linalg.inv(factor) for factor in self.factor]

    def scaled(self, coef):
        """The parameters in these units.

        Parameters
        ----------
        coef : ndarray of shape (n_coef,)

        Returns
        -------
        ndarray of shape (n_coef,)
        """
        return self.root * self._turned(coef, self.factor)

    def unscaled(self, x):
        """The parameters of ``x``, the inverse of :meth:`scaled`."""
        return self._turned(x, self.inverse) / self.root

    def gradient(self, gradient):
        """Derivative by ``x`` of what has a derivative by the parameters."""
        return self._turned(gradient, [inverse.transpose(0, 2, 1) for inverse in self.inverse]) / self.root

    def project(self, x, bounds):
        """The nearest ``x`` whose precisions have eigenvalues between bounds: linear models are free."""
        return self.root * self.potentials.project(x / self.root, bounds)

    def _turned(self, coef, matrices):
        """Every linear model times the matrix of its leaf."""
        out = coef.copy()
        for part, matrix in zip(self.potentials.unpack(out), matrices, strict=True):
            part.weight[:] = part.weight @ matrix
        return out


def _moments(risk, number, rng):
    """Second moments (L, B, B) of the whitened inputs in each leaf of a type, as pixels are weighted."""
    kind, white = risk.potentials.types[number], risk.potentials.whitening[number]
    n_leaves, size = risk.potentials.n_leaves[number], len(white)
    sums, total = np.zeros((n_leaves, size, size)), np.zeros(n_leaves)
    limit = max(1, _SAMPLES // len(risk.images))
    for k, image in enumerate(risk.images):
        top, left, rows, columns = kind.rectangle(image.features.shape)
        n = rows * columns
        own = np.arange(n) if n <= limit else rng.randint(n, size=limit)
        if not n:
            continue
        pixels = np.stack([top + own // columns, left + own % columns], axis=1)
        leaf, weight = image.leaves[number][own], risk.factor_weights(k, kind)[own]
        inputs = kind.inputs(image.seen(kind), pixels) @ white.T.astype(image.features.dtype)
        order = np.argsort(leaf, kind="stable")
        bounds = np.searchsorted(leaf[order], np.arange(n_leaves + 1))
        for number_of_leaf in np.flatnonzero(np.diff(bounds)):
            members = order[bounds[number_of_leaf] : bounds[number_of_leaf + 1]]
            seen = inputs[members].astype(np.float64)
            sums[number_of_leaf] += seen.T @ (weight[members, None] * seen)
            total[number_of_leaf] += weight[members].sum()
    sums[total == 0], total[total == 0] = np.eye(size), 1.0
    return (1 - _COMMON_SHARE) * sums / total[:, None, None] + _COMMON_SHARE * np.eye(size)
