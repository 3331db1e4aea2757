"""Some of the variables of a pseudolikelihood: squares of pixels all over the images, seen with what is around them."""

from math import isqrt

import numpy as np

from sklearn_crf.estimators._rtf_data import joined

# Squares of an image that are wanted at least, and sides of squares. Small ones are spread better, large ones need
# less around them.
_SQUARES = 4
_LEAST_SIDE, _LARGEST_SIDE = 4, 32


def sampled_variables(data, max_samples, margin, rng):
    """At most so many variables, the pixels of squares chosen at random, with weight 0 for what is around them.

    The terms of these variables are those that they have in the whole images, so that the mean over the sample has the
    mean over all pixels as its expectation.

    Parameters
    ----------
    data : TrainingData
    max_samples : int or None
    margin : int
        Rows and columns around a square that the terms of its pixels depend on.
    rng : RandomState

    Returns
    -------
    TrainingData
    """
    if data.is_within(max_samples):
        return data
    side = min(max(isqrt(max_samples // (_SQUARES * len(data.features))), _LEAST_SIDE), _LARGEST_SIDE)
    squares = squares_of(data, side)
    kept, n_kept = [], 0
    for number in rng.permutation(len(squares)):
        _, rows, columns = squares[number]
        n_own = (rows.stop - rows.start) * (columns.stop - columns.start)
        if not kept or n_kept + n_own <= max_samples:
            kept.append(number)
            n_kept += n_own
    return with_surroundings(data, [squares[number] for number in sorted(kept)], margin)


def squares_of(data, side):
    """Squares that cover the images, as (image, rows, columns), cut off at the borders; of chains as many pixels each.

    Parameters
    ----------
    data : TrainingData
    side : int

    Returns
    -------
    list of (int, slice, slice)
    """
    found = []
    for number, plane in enumerate(data.features):
        height, width = plane.shape[:2]
        across = side if height > 1 else side**2
        for top in range(0, height, side):
            for left in range(0, width, across):
                rows, columns = slice(top, min(top + side, height)), slice(left, min(left + across, width))
                found.append((number, rows, columns))
    return found


def with_surroundings(data, squares, margin):
    """Cuts of the images around squares; pixels outside the squares have weight 0.

    Parameters
    ----------
    data : TrainingData
    squares : list of (int, slice, slice)
    margin : int

    Returns
    -------
    TrainingData
    """
    cuts = []
    for number, rows, columns in squares:
        shape = data.features[number].shape[:2]
        around = [
            slice(max(part.start - margin, 0), min(part.stop + margin, length))
            for part, length in zip((rows, columns), shape, strict=True)
        ]
        cut = data.cut(number, *around)
        weight = np.zeros(cut.features[0].shape[:2])
        inside = tuple(
            slice(part.start - whole.start, part.stop - whole.start)
            for part, whole in zip((rows, columns), around, strict=True)
        )
        # A loss is a mean over the pixels of a cut, and is to be one over those of the image.
        weight[inside] = weight.size / np.prod(shape)
        own = np.ones(1) if data.weights is None else cut.weights[0]
        cuts.append(cut._replace(weights=[weight.ravel() * own]))
    found = joined(cuts)
    # Leaves are measured in factors: a pixel of a square counts as one, on average.
    used = [np.count_nonzero(weight) for weight in found.weights]
    scale = sum(used) / sum(weight.sum() for weight in found.weights)
    if data.weights is not None:
        scale *= np.mean(np.concatenate(data.weights))
    return found._replace(weights=[scale * weight for weight in found.weights])
