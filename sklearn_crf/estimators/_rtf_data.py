"""What a regression tree field is trained on: all images or crops of them, less those held out."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.graphs import lattice


class TrainingData(NamedTuple):
    """Images of one set, or one plane of one row for plain samples.

    Attributes
    ----------
    features : list of ndarray of shape (H, W, F)
    graphs : list of Graph
    targets : list of ndarray of shape (N, D)
        Of mean 0 and variance 1.
    weights : list of ndarray of shape (N,), or None
        Of each pixel.
    """

    features: list
    graphs: list
    targets: list
    weights: list | None

    @property
    def n_pixels(self):
        """Pixels of all images."""
        return sum(len(target) for target in self.targets)

    def is_within(self, max_samples):
        """Whether there are no more pixels than that; None is no limit."""
        return max_samples is None or self.n_pixels <= max_samples

    def taken(self, members):
        """Some of the images."""
        return TrainingData(*(None if part is None else [part[i] for i in members] for part in self))

    def cut(self, number, rows, columns):
        """A rectangle of one image, given as slices."""
        features, graph = self.features[number], self.graphs[number]
        height, width = features.shape[:2]
        own = np.ascontiguousarray(features[rows, columns])
        shape = own.shape[2 - len(graph.shape) : 2]

        def of(values):
            plane = values.reshape(height, width, *values.shape[1:])[rows, columns]
            return plane.reshape(-1, *values.shape[1:])

        weights = None if self.weights is None else [of(self.weights[number])]
        return TrainingData([own], [lattice(shape, graph.offsets)], [of(self.targets[number])], weights)


def plane_graph(shape, offsets, n_axes):
    """The lattice of a plane; that of a chain or a table has one axis.

    Parameters
    ----------
    shape : (int, int)
    offsets : ndarray of shape (n_offsets, 2)
    n_axes : int

    Returns
    -------
    Graph
    """
    return lattice(shape[2 - n_axes :], offsets[:, 2 - n_axes :])


def joined(parts):
    """One set of several."""
    columns = zip(*parts, strict=True)
    return TrainingData(*(None if column[0] is None else [x for part in column for x in part] for column in columns))


def held_out(data, fraction, is_table, rng):
    """Split off images, or rows of a table, to validate on.

    Parameters
    ----------
    data : TrainingData
    fraction : float
    is_table : bool
        Whether the data is plain samples.
    rng : RandomState

    Returns
    -------
    training, validation : TrainingData

    Raises
    ------
    ValueError
        If nothing would be left for one of them.
    """
    n = data.features[0].shape[1] if is_table else len(data.features)
    n_out = max(1, round(fraction * n))
    if n_out >= n:
        raise ValueError(f"early_stopping needs examples to hold out and others to train on, got {n}.")
    order = rng.permutation(n)
    sets = np.sort(order[n_out:]), np.sort(order[:n_out])
    if is_table:
        return tuple(data.cut(0, slice(None), members) for members in sets)
    return tuple(data.taken(members) for members in sets)


def at_most(data, max_samples, is_table, rng):
    """At most so many pixels: of each image a rectangle at random, all of the same share; or some rows of a table.

    Parameters
    ----------
    data : TrainingData
    max_samples : int or None
    is_table : bool
    rng : RandomState

    Returns
    -------
    TrainingData
    """
    if data.is_within(max_samples):
        return data
    n_pixels = data.n_pixels
    if is_table:
        return data.cut(0, slice(None), np.sort(rng.choice(n_pixels, max_samples, replace=False)))
    crops = []
    for number, graph in enumerate(data.graphs):
        share = (max_samples / n_pixels) ** (1 / len(graph.shape))
        sides = [slice(None)] * (2 - len(graph.shape))
        for length in graph.shape:
            kept = max(1, int(share * length))
            start = rng.randint(length - kept + 1)
            sides.append(slice(start, start + kept))
        crops.append(data.cut(number, *sides))
    return joined(crops)
