"""Training samples cut into blocks: one class and one pattern of missing features each, features in rows."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.mixtures.densities import blocks_of_columns, missing_patterns, with_ones


class Block(NamedTuple):
    """Samples of one class."""

    label: int
    samples: np.ndarray  # (d + 1, n), the last row is 1
    weight: np.ndarray  # (n,)


class Pattern(NamedTuple):
    """Blocks that have the same features observed."""

    features: object  # the full slice or an index array
    blocks: list


class TrainingData:
    """Samples in the layout that every pass over them uses.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        May hold NaN: a missing value.
    labels : ndarray of shape (n,), int
    weight : ndarray of shape (n,)
    n_classes : int
    width : int
        Numbers that a pass writes for one sample; decides how long blocks are.
    """

    def __init__(self, X, labels, weight, n_classes, width):
        self.n_features = X.shape[1]
        self.class_weight = np.bincount(labels, weights=weight, minlength=n_classes)
        self.total_weight = float(self.class_weight.sum())
        self.patterns = []
        for features, rows in missing_patterns(X):
            blocks = []
            for c in range(n_classes):
                own = rows[labels[rows] == c]
                for part in blocks_of_columns(len(own), width) if len(own) else []:
                    samples = with_ones(X[own[part]][:, features])
                    blocks.append(Block(c, samples, weight[own[part]]))
            self.patterns.append(Pattern(features, blocks))

    @property
    def complete(self):
        """Whether no value is missing."""
        return len(self.patterns) == 1 and isinstance(self.patterns[0].features, slice)
