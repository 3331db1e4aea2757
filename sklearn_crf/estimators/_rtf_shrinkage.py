"""A pull of the leaves towards the leaves that they were split from."""

import numpy as np

# Length of the step that curvature is measured by, in units of whitened weights.
_STEP = 0.05

# Random signs that the mean curvature of a type is taken over, at least.
_SIGNS = 256


class Shrinkage:
    r"""Penalty on what linear models change by in a round.

    .. math::
        \frac{s}{2} \sum_t \frac{\kappa_t}{N_t} \sum_l \| W_l - W_l^{(0)} \|^2

    with the :math:`N_t` factors of type t, the strength s, and the mean curvature :math:`\kappa_t` of the loss by a
    weight that all factors of the type share. So a leaf with s factors whose inputs are as white as those of all
    factors moves half as far as without it. The penalty is 0 where a round begins, so that the loss still falls from
    round to round.

    Parameters
    ----------
    risk : FieldRisk
    coef : ndarray of shape (n_coef,)
        Where the round begins.
    strength : float
        s.
    rng : RandomState
        Of the directions that curvature is measured along.
    """

    def __init__(self, risk, coef, strength, rng):
        self.start = coef.copy()
        self.weight = np.zeros(len(coef))
        types = risk.potentials.types
        n_weights = min(part.weight.size for part in risk.potentials.unpack(coef))
        n_directions = max(1, -(-_SIGNS // n_weights))
        curvatures = np.mean([_curvatures(risk, coef, rng) for _ in range(n_directions)], axis=0)
        for kind, curvature, own in zip(types, curvatures, risk.potentials.unpack(self.weight), strict=True):
            n_factors = sum(float(risk.factor_weights(k, kind).sum()) for k in range(len(risk.images)))
            if n_factors > 0:
                own.weight[:] = strength * max(curvature, 0.0) / n_factors

    def value_grad(self, coef):
        """The penalty, and its derivative.

        Parameters
        ----------
        coef : ndarray of shape (n_coef,)

        Returns
        -------
        value : float
        gradient : ndarray of shape (n_coef,)
        """
        pull = self.weight * (coef - self.start)
        return 0.5 * float(pull @ (coef - self.start)), pull


def _curvatures(risk, coef, rng):
    """Of the loss, along random signs of all weights: for each type by a weight that its factors share."""
    potentials = risk.potentials
    signs = np.zeros(len(coef))
    for part in potentials.unpack(signs):
        part.weight[:] = rng.choice(np.array([-1.0, 1.0]), size=part.weight.shape)
    signs /= np.sqrt(len(coef))
    turned = [risk.value_grad(coef + side * _STEP * signs)[1] for side in (1, -1)]
    curved = (turned[0] - turned[1]) / (2 * _STEP)
    found = []
    for share, sign, curve in zip(risk.shares(), potentials.unpack(signs), potentials.unpack(curved), strict=True):
        shared = np.sum(share[:, None, None] * sign.weight**2)
        found.append(float(np.sum(sign.weight * curve.weight)) / shared if shared > 0 else 0.0)
    return found
