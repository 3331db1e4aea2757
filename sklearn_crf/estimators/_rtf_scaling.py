"""Units of parameters in which a step of training matters alike, whichever leaf and direction it is in."""

import numpy as np

from sklearn_crf._threads import map_tasks

# Factors of a type that the inputs of its leaves are looked at by.
_SAMPLES = 100_000

# Factors that a moment is summed over at once.
_PIECE = 8192

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

        self.factor = [
            np.linalg.cholesky(_moments(risk, number, np.random.RandomState(seeds[number])))
            for number in range(n_types)
        ]
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
    white = risk.potentials.whitening[number]
    inputs, leaf, weight = _sampled_inputs(risk, number, rng)
    size, n_leaves = len(white), risk.potentials.n_leaves[number]
    order = np.argsort(leaf, kind="stable")
    bounds = np.searchsorted(leaf[order], np.arange(n_leaves + 1))
    pieces = [
        (k, slice(start, min(start + _PIECE, bounds[k + 1])))
        for k in range(n_leaves)
        for start in range(bounds[k], bounds[k + 1], _PIECE)
    ]

    def moment(piece, n_threads):
        members = order[piece[1]]
        seen = np.sqrt(weight[members])[:, None] * inputs[members]
        return seen.T @ seen

    sums = np.zeros((n_leaves, inputs.shape[1], inputs.shape[1]))
    for (k, _), part in zip(pieces, map_tasks(moment, pieces, risk.n_jobs), strict=True):
        sums[k] += part
    total = np.bincount(leaf, weight, minlength=n_leaves)
    empty = total == 0
    total[empty] = 1.0
    moments = white @ (sums / total[:, None, None]) @ white.T
    moments[empty] = np.eye(size)
    return (1 - _COMMON_SHARE) * moments + _COMMON_SHARE * np.eye(size)


def _sampled_inputs(risk, number, rng):
    """Inputs, leaves and weights of some factors of a type."""
    kind, limit = risk.potentials.types[number], max(1, _SAMPLES // len(risk.images))
    chosen = []
    for image in risk.images:
        n = len(image.leaves[number])
        chosen.append(np.arange(n) if n <= limit else rng.randint(n, size=limit))

    def of_image(k, n_threads):
        image, own = risk.images[k], chosen[k]
        top, left, _, columns = kind.rectangle(image.features.shape)
        pixels = np.stack([top + own // max(columns, 1), left + own % max(columns, 1)], axis=1)
        return kind.inputs(image.seen(kind), pixels), image.leaves[number][own], risk.factor_weights(k, kind)[own]

    parts = map_tasks(of_image, range(len(risk.images)), risk.n_jobs)
    return [np.concatenate(column) for column in zip(*parts, strict=True)]
