"""Baselines for Gaussian fields: the most frequent label, scikit-learn's trees and forests, and discrete fields."""

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from sklearn_crf import DRFClassifier
from sklearn_crf.potentials import PairwiseTables

# Lower limit of the probabilities of a forest that a field reads
LEAST = 1e-3


def mask_of(chosen, x):
    """Return the mask of pixels that a function chooses for labelling, or of all pixels if it is None."""
    return np.ones(x.shape[:2], dtype=bool) if chosen is None else chosen(x)


class PixelTrees:
    """A tree or forest of scikit-learn whose features are the channels of pixels at some offsets."""

    # chosen: function from an image (H, W, C) to the mask of pixels to label; None for all pixels

    def __init__(self, offsets, max_depth, n_trees, min_samples_leaf=1, chosen=None, n_jobs=1):
        self.offsets, self.chosen = np.asarray(offsets), chosen
        options = {"max_depth": max_depth, "min_samples_leaf": min_samples_leaf, "random_state": 0}
        if n_trees == 1:
            self.model = DecisionTreeClassifier(**options)
        else:
            self.model = RandomForestClassifier(n_trees, oob_score=True, n_jobs=n_jobs, **options)

    def fit(self, X, y):
        labels = [target[self._mask(x)] for x, target in zip(X, y, strict=True)]
        self.model.fit(np.concatenate([self._seen(x) for x in X]), np.concatenate(labels))
        return self

    def predict(self, X):
        """Return the labels of each image, 0 for pixels that are not chosen."""
        found = []
        for x in X:
            labels = np.zeros(x.shape[:2], dtype=int)
            labels[self._mask(x)] = self.model.predict(self._seen(x))
            found.append(labels)
        return found

    def scores(self, X):
        """Return the log-probabilities of labels, by image."""
        return [self._scores(x, self.model.predict_proba(self._seen(x))) for x in X]

    def scores_of_training(self, X):
        """Return the log-probabilities of labels of training images, by trees that were not trained on the pixel."""
        ends = np.cumsum([self._mask(x).sum() for x in X])[:-1]
        return [
            self._scores(x, own) for x, own in zip(X, np.split(self.model.oob_decision_function_, ends), strict=True)
        ]

    def _mask(self, x):
        return mask_of(self.chosen, x)

    def _seen(self, x):
        reach = int(np.abs(self.offsets).max())
        padded = np.pad(x, ((reach, reach), (reach, reach), (0, 0)))
        rows, columns = (places[:, None] for places in np.nonzero(self._mask(x)))
        down, right = (self.offsets + reach).T
        return padded[rows + down, columns + right].reshape(len(rows), -1)

    def _scores(self, x, probabilities):
        scores = np.zeros((*x.shape[:2], probabilities.shape[1]))
        scores[self._mask(x)] = np.log(np.maximum(np.nan_to_num(probabilities), LEAST))
        return scores


class DiscreteField:
    """A field whose features are the scores of a forest, and whose pair scores may depend on channels of both ends.

    It is trained with pseudo-marginals. Each offset between neighbours has its own weights.
    """

    def __init__(self, forest, connectivity, sees_channels=False, max_iter=60, n_jobs=1):
        self.forest = forest
        self.field = DRFClassifier(
            learning="pma",
            pairwise=PairwiseTables("full", edge_types="offset"),
            edge_features=self._of_ends if sees_channels else "constant",
            connectivity=connectivity,
            max_iter=max_iter,
            n_jobs=n_jobs,
        )

    def fit(self, X, y):
        self.n_channels = X[0].shape[-1]
        self.forest.fit(X, y)
        self.field.fit(self._joined(X, self.forest.scores_of_training(X)), list(y))
        return self

    def predict(self, X):
        return self.field.predict(self._joined(X, self.forest.scores(X)))

    def _joined(self, X, scores):
        return [np.concatenate([x, own], axis=2) for x, own in zip(X, scores, strict=True)]

    def _of_ends(self, tail, head):
        """Return edge features: a constant, the channels of both ends, and products of the channels."""
        tail, head = tail[..., : self.n_channels], head[..., : self.n_channels]
        products = (tail[..., :, None] * head[..., None, :]).reshape(*tail.shape[:-1], -1)
        return np.concatenate([np.ones_like(tail[..., :1]), tail, head, products], axis=-1)


class MostFrequent:
    """Baseline that predicts the most frequent label of chosen pixels."""

    def __init__(self, chosen=None):
        self.chosen = chosen

    def fit(self, X, y):
        labels = [target[mask_of(self.chosen, x)] for x, target in zip(X, y, strict=True)]
        self.label = int(np.bincount(np.concatenate(labels)).argmax())
        return self

    def predict(self, X):
        return [np.full(x.shape[:2], self.label) for x in X]
