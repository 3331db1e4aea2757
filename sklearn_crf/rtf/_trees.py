"""Binary trees over feature tests, as arrays."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.kernels.rtf.leaf_models import find_leaves


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


# Pixels worth a thread of their own.
_SMALLEST_RANGE = 4096


class RegressionTree(NamedTuple):
    """A binary tree; each inner node compares the response to a test with a threshold.

    The response at a pixel is a channel at an offset, or that less another channel at another offset; or the
    magnitude of either.

    Attributes
    ----------
    children : ndarray of shape (n_nodes, 2), int32
        Nodes for responses up to the threshold and above it; -1 at a leaf. Node 0 is the root.
    test : ndarray of shape (n_nodes, 7), int32
        Channel, rows down and columns right of it, the same of what is subtracted (channel -1 for nothing), and 1 for
        the magnitude of that.
    threshold : ndarray of shape (n_nodes,), float64
    leaf : ndarray of shape (n_nodes,), int32
        Number of each leaf, -1 at inner nodes.
    """

    children: np.ndarray
    test: np.ndarray
    threshold: np.ndarray
    leaf: np.ndarray

    @classmethod
    def stump(cls):
        """A tree of one leaf."""
        return cls(
            np.full((1, 2), -1, dtype=np.int32),
            np.zeros((1, 7), dtype=np.int32),
            np.zeros(1),
            np.zeros(1, dtype=np.int32),
        )

    @property
    def n_leaves(self):
        """Number of leaves L."""
        return int(self.leaf.max()) + 1

    @property
    def depth(self):
        """Most tests on a path to a leaf."""
        depth = np.zeros(len(self.leaf), dtype=np.int64)
        for node, pair in enumerate(self.children):
            if pair[0] >= 0:
                depth[pair] = depth[node] + 1
        return int(depth.max())

    def leaves(self, features, factor_type, run):
        """Leaf of each factor of a type.

        Parameters
        ----------
        features : ndarray of shape (H, W, F)
        factor_type : FactorType
        run : callable
            As :func:`~sklearn_crf._threads.range_runner` gives it.

        Returns
        -------
        ndarray of shape (n_factors,), int32
        """
        top, left, rows, columns = factor_type.rectangle(features.shape)
        out = np.zeros(rows * columns, dtype=np.int32)
        if out.size and self.n_leaves > 1:
            run(
                lambda start, stop: find_leaves(features, top, left, columns, *self, start, stop, out),
                rows,
                smallest_range=max(1, _SMALLEST_RANGE // columns),
            )
        return out

    def split(self, splits):
        """The tree with some leaves split in two.

        Parameters
        ----------
        splits : dict of int to (test, threshold)
            By number of the leaf.

        Returns
        -------
        tree : RegressionTree
        parent : ndarray of shape (n_leaves,)
            The old leaf of each new one.
        """
        children, leaf = self.children.copy(), self.leaf.copy()
        test, threshold = self.test.copy(), self.threshold.copy()
        n_nodes, n_leaves = len(leaf), self.n_leaves
        node_of_leaf = {int(number): node for node, number in enumerate(leaf) if number >= 0}
        parent, new_leaves = list(range(n_leaves)), []
        for number, (new_test, new_threshold) in sorted(splits.items()):
            node = node_of_leaf[number]
            children[node] = n_nodes + len(new_leaves), n_nodes + len(new_leaves) + 1
            test[node], threshold[node], leaf[node] = new_test, new_threshold, -1
            new_leaves += [number, len(parent)]
            parent.append(number)
        n_new = len(new_leaves)
        tree = RegressionTree(
            np.concatenate([children, np.full((n_new, 2), -1, dtype=np.int32)]),
            np.concatenate([test, np.zeros((n_new, 7), dtype=np.int32)]),
            np.concatenate([threshold, np.zeros(n_new)]),
            np.concatenate([leaf, np.array(new_leaves, dtype=np.int32)]),
        )
        return tree, np.array(parent, dtype=np.int64)
