"""Features of pixels as linear operators, whose entries are not stored."""

import numpy as np
from scipy.sparse.linalg import LinearOperator


class _Features(LinearOperator):
    """Base class that computes products with vectors by products with matrices, which older SciPy does not do."""

    def _matvec(self, weights):
        return self._matmat(np.reshape(weights, (-1, 1)))[:, 0]

    def _rmatvec(self, numbers):
        return self._rmatmat(np.reshape(numbers, (-1, 1)))[:, 0]


class SideBySide(_Features):
    """Features of two operators, side by side."""

    def __init__(self, first, second):
        self._parts, self._n_first = (first, second), first.shape[1]
        super().__init__(np.float64, (first.shape[0], first.shape[1] + second.shape[1]))

    def _matmat(self, weights):
        first, second = self._parts
        weights = np.asarray(weights)
        return first @ weights[: self._n_first] + second @ weights[self._n_first :]

    def _rmatmat(self, numbers):
        return np.concatenate([part.T @ numbers for part in self._parts])


class PlaceCosines(_Features):
    """Products of a cosine of the row and a cosine of the column, each with up to ``n - 1`` half waves over the image.

    With a step, only every ``step``-th row and column of pixels has features.
    """

    def __init__(self, shape, n, step=1):
        places = [(np.arange(0, side, step) + 0.5) / side for side in shape]
        self._waves = [np.cos(np.pi * np.outer(place, np.arange(n))) for place in places]
        super().__init__(np.float64, (len(places[0]) * len(places[1]), n * n))

    def _matmat(self, weights):
        rows, columns = self._waves
        planes = rows @ np.asarray(weights).T.reshape(-1, rows.shape[1], columns.shape[1]) @ columns.T
        return planes.reshape(len(planes), -1).T

    def _rmatmat(self, numbers):
        rows, columns = self._waves
        sums = rows.T @ np.asarray(numbers).T.reshape(-1, len(rows), len(columns)) @ columns
        return sums.reshape(len(sums), -1).T


class EveryPixels(_Features):
    """Features of the pixels in every ``step``-th row and column of an image."""

    def __init__(self, features, shape, step):
        self._features, self._image_shape, self._step = features, shape, step
        n_rows, n_columns = (-(-side // step) for side in shape)
        super().__init__(np.float64, (n_rows * n_columns, features.shape[1]))

    def _matmat(self, weights):
        planes = (self._features @ np.asarray(weights)).T.reshape(-1, *self._image_shape)
        return planes[:, :: self._step, :: self._step].reshape(len(planes), -1).T

    def _rmatmat(self, numbers):
        numbers = np.asarray(numbers)
        planes = np.zeros((numbers.shape[1], *self._image_shape))
        sampled = planes[:, :: self._step, :: self._step]
        sampled[...] = numbers.T.reshape(sampled.shape)
        return self._features.T @ planes.reshape(len(planes), -1).T


class Curves(_Features):
    """Hat functions of pixel values. Their weights are the values of piecewise linear curves at the knots."""

    def __init__(self, numbers, knots):
        # numbers: (n_curves, n_pixels), clipped to the range of the knots; knots: evenly spaced
        place = np.clip((np.asarray(numbers) - knots[0]) / (knots[1] - knots[0]), 0, len(knots) - 1)
        self._knot = np.minimum(place.astype(np.int8), len(knots) - 2)
        self._beyond = (place - self._knot).astype(np.float32)
        self._n_knots = len(knots)
        super().__init__(np.float64, (place.shape[1], len(place) * len(knots)))

    def _matmat(self, weights):
        values = np.zeros((self.shape[0], np.shape(weights)[1]))
        curves = np.asarray(weights).reshape(len(self._knot), self._n_knots, -1)
        for knot, beyond, curve in zip(self._knot, self._beyond, curves, strict=True):
            values += curve[knot] + beyond[:, None] * np.diff(curve, axis=0)[knot]
        return values

    def _rmatmat(self, numbers):
        sums = np.zeros((len(self._knot), self._n_knots, np.shape(numbers)[1]))
        for knot, beyond, of_curve in zip(self._knot, self._beyond, sums, strict=True):
            for column, values in enumerate(np.asarray(numbers).T):
                above = np.bincount(knot, beyond * values, self._n_knots)
                of_curve[:, column] = np.bincount(knot, values, self._n_knots) - above
                of_curve[1:, column] += above[:-1]
        return sums.reshape(self.shape[1], -1)
