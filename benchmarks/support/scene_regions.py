"""Street scenes as graphs of regions, for ``ccg_scenes.py``."""

import os
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from sklearn.cluster import AgglomerativeClustering
from sklearn.decomposition import PCA
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sklearn_crf import Example
from sklearn_crf.preprocessing import NodeTransformer
from support.bundles import load_stanford_superpixels
from support.labelled_part import labelled_part

N_FOLDS = 10
MEAN_COLOUR, TEXTONS = slice(400, 403), slice(0, 100)


def edge_features(x):
    """Return edge features: a constant and the difference of mean colours."""
    features, (tail, head) = x.node_features, x.edges.T
    colour = np.abs(features[tail, MEAN_COLOUR] - features[head, MEAN_COLOUR]).mean(axis=1) / 64
    return np.stack((np.ones(len(tail)), colour), axis=1).astype(features.dtype)


def merged(x, area, n_regions):
    """Merge neighbours of similar colour and texture to regions, and return the example and each superpixel's region.

    Features are means weighted by area.
    """
    alike = np.hstack((x.node_features[:, MEAN_COLOUR] / 64, np.sqrt(x.node_features[:, TEXTONS])))
    ones = np.ones(2 * len(x.edges))
    neighbours = coo_array((ones, np.concatenate((x.edges, x.edges[:, ::-1])).T), shape=(x.n_nodes, x.n_nodes))
    region = AgglomerativeClustering(n_regions, connectivity=neighbours, linkage="ward").fit_predict(alike)
    features = summed(x.node_features * area[:, None], region) / summed(area[:, None], region)
    pairs = np.unique(np.sort(region[x.edges], axis=1), axis=0)
    return Example(features.astype(np.float32), pairs[pairs[:, 0] != pairs[:, 1]]), region


def summed(rows, region):
    """Return the sum of rows for each region."""
    total = np.zeros((region.max() + 1, rows.shape[1]))
    np.add.at(total, region, rows)
    return total


class Scenes:
    """Graphs, labels, and numbers of pixels of regions by true label.

    Parameters
    ----------
    n_regions : int or None
        Number of regions to which the superpixels of an image are merged; None keeps the superpixels.
    """

    def __init__(self, n_regions):
        data = load_stanford_superpixels(Path(os.environ["SKLEARN_CRF_DATA"]) / "stanford_superpixels")
        n_labels = len(data.target_names) + 1
        self.X, self.y, self.pixels = [], [], []
        for x, node, truth in zip(data.data, data.superpixels, data.pixel_target, strict=True):
            key = node.astype(np.int64) * n_labels + truth + 1
            counts = np.bincount(key.ravel(), minlength=x.n_nodes * n_labels).reshape(x.n_nodes, n_labels)
            if n_regions is not None:
                x, region = merged(x, counts.sum(axis=1), n_regions)
                counts = summed(counts, region).astype(np.int64)
            self.X.append(Example(x.node_features, x.graph, edge_features(x)))
            # The first column counts pixels of unknown label.
            self.y.append(counts.argmax(axis=1) - 1)
            self.pixels.append(counts[:, 1:])

    def training(self, i):
        """Return the graph, labels and areas of regions of known label."""
        area = self.pixels[i].sum(axis=1)[self.y[i] >= 0]
        return *labelled_part(self.X[i], self.y[i]), area.astype(np.float64)

    def error_rate(self, images, labels):
        """Return the share of wrong pixels in all images, and in each image."""
        wrong, total = [], []
        for i, found in zip(images, labels, strict=True):
            counts = self.pixels[i]
            total.append(counts.sum())
            wrong.append(total[-1] - counts[np.arange(len(found)), found].sum())
        return float(np.sum(wrong) / np.sum(total)), np.divide(wrong, total).tolist()

    def best_error_rate(self):
        """Return the error rate of the best possible labels of regions."""
        return self.error_rate(range(len(self.X)), [counts.argmax(axis=1) for counts in self.pixels])[0]


def reduction(n_components):
    """Return a transformer to whitened principal components, or to scaled square roots of all features."""
    if n_components is None:
        return NodeTransformer(make_pipeline(FunctionTransformer(np.sqrt), StandardScaler()))
    return NodeTransformer(make_pipeline(StandardScaler(), PCA(n_components, whiten=True, random_state=0)))


class Fold:
    """Training and test images of a fold, with reduced features.

    Parameters
    ----------
    scenes : Scenes
    train, test : array-like of int
        Indices of images.
    protocol : Protocol
    """

    def __init__(self, scenes, train, test, protocol):
        self.scenes, self.test, self.protocol = scenes, test, protocol
        X, self.y, areas = map(list, zip(*(scenes.training(i) for i in train), strict=True))
        step = reduction(protocol.n_components).fit(X)
        self.X = list(step.transform(X))
        self.X_test = list(step.transform([scenes.X[i] for i in test]))
        mean = np.concatenate(areas).mean()
        self.costs = [area / mean for area in areas]

    def error(self, model, inference="icm"):
        """Return the share of wrong pixels in all test images, and in each image."""
        return self.scenes.error_rate(self.test, model.set_params(inference=inference).predict(self.X_test))


def parts_of_fold(scenes, number):
    """Return the indices of training and of test images of a fold."""
    return list(KFold(N_FOLDS, shuffle=True, random_state=0).split(scenes.X))[number]
