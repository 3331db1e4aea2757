"""Where the factors of a type sit on a plane."""

from typing import NamedTuple

import numpy as np


class FactorType(NamedTuple):
    """Factors at every pixel, or at every pixel and the one at an offset from it.

    Attributes
    ----------
    down, right : int
        Offset of the second pixel.
    paired : bool
        False for factors of one pixel.
    channels : tuple of int, or None
        Those that linear models see; None is all.
    multipliers : tuple of int
        Channels that precisions grow with.
    """

    down: int = 0
    right: int = 0
    paired: bool = False
    channels: tuple | None = None
    multipliers: tuple = ()

    def rectangle(self, shape):
        """First row and column, number of rows and columns of the first pixels, on a plane of this shape."""
        rows, columns = max(shape[0] - abs(self.down), 0), max(shape[1] - abs(self.right), 0)
        if rows == 0 or columns == 0:
            rows = columns = 0
        return max(-self.down, 0), max(-self.right, 0), rows, columns

    def ends(self, shape):
        """Slices of a plane: the first pixels of the factors, and the second."""
        top, left, rows, columns = self.rectangle(shape)
        first = slice(top, top + rows), slice(left, left + columns)
        second = (
            slice(top + self.down, top + self.down + rows),
            slice(left + self.right, left + self.right + columns),
        )
        return (first, second) if self.paired else (first,)

    def n_inputs(self, n_channels):
        """Length of what a factor's linear model sees: 1 and the channels of its pixels."""
        n_seen = n_channels if self.channels is None else len(self.channels)
        return 1 + n_seen * (2 if self.paired else 1)

    def seen(self, features):
        """The channels of a plane that linear models see, contiguous."""
        return features if self.channels is None else np.ascontiguousarray(features[..., self.channels])

    def multiplied_by(self, features):
        """Channels that precisions grow with, each a mean over the pixels of a factor, (n_factors, I)."""
        own = features[..., list(self.multipliers)]
        _, _, rows, columns = self.rectangle(features.shape)
        ends = [own[end].reshape(rows * columns, own.shape[2]) for end in self.ends(features.shape)]
        return sum(ends) / np.asarray(len(ends), dtype=features.dtype)

    def inputs(self, features, pixels):
        """What the linear models see at some first pixels.

        Parameters
        ----------
        features : ndarray of shape (H, W, F)
            The channels that linear models see.
        pixels : ndarray of shape (n, 2)

        Returns
        -------
        ndarray of shape (n, n_inputs)
        """
        i, j = pixels.T
        parts = [np.ones((len(pixels), 1), dtype=features.dtype), features[i, j]]
        if self.paired:
            parts.append(features[i + self.down, j + self.right])
        return np.concatenate(parts, axis=1)


def factor_types(offsets, channels=None, multipliers=()):
    """One unary type and one pairwise type for each offset.

    Parameters
    ----------
    offsets : ndarray of shape (n, 2)
    channels : tuple of int, optional
        Those that linear models of pairs see.
    multipliers : tuple of int, default=()
        Channels that precisions grow with.
    """
    of_pairs = (FactorType(int(down), int(right), True, channels, multipliers) for down, right in offsets)
    return [FactorType(multipliers=multipliers), *of_pairs]
