"""Builders of all estimators, and small data sets that they can be fitted to."""

import numpy as np
from field_data import noisy_blobs
from sklearn.datasets import make_multilabel_classification

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DenseCRF,
    DRFClassifier,
    LearnedFilters,
    M3NClassifier,
    MultiConditionalMFA,
    MultiLabelField,
    RegressionTreeField,
    RegressionTreeFieldClassifier,
    Spatial,
)
from sklearn_crf.inference import DenseMeanField
from sklearn_crf.learning import ContrastiveTraining
from sklearn_crf.rtf import Splits


def images(n=4, side=6):
    return noisy_blobs(n, side=side)


def targets(n=4, side=6):
    X, y = noisy_blobs(n, side=side)
    return X, y.astype(float)


def grey(n=4, side=6):
    X, y = targets(n, side)
    return X[..., 0], y


def scored(n=4, side=6):
    X, y = noisy_blobs(n, side=side)
    return np.concatenate([-np.square(X), -np.square(X - 1)], axis=-1), y


def rows(n=4, side=6):
    X, y = noisy_blobs(n, side=side)
    return np.column_stack([X.reshape(-1, 1), np.roll(X.reshape(-1, 1), 1)]), y.ravel()


def labelled_rows(n=4, side=6):
    return make_multilabel_classification(n_samples=n * side, n_classes=4, random_state=0)


TREES = {"max_depth": 0, "split": Splits(min_samples_leaf=20), "random_state": 0, "filter_bank": None}


def multi_label(max_iter=5, tol=1e-4, n_jobs=None, **options):
    return MultiLabelField(TRWCRF(pairwise="ising", max_iter=max_iter, tol=tol, n_jobs=n_jobs, **options))


def dense(**options):
    return DenseCRF((Spatial(1.5),), **{"image_channels": 0, "inference": DenseMeanField(3), "max_iter": 5, **options})


def contrastive(**options):
    return ContrastiveCRF(
        **{"learning": ContrastiveTraining(max_rounds=3), "random_state": 0, "max_iter": 5, **options}
    )


def with_defaults(kind, **defaults):
    return lambda **options: kind(**{**defaults, **options})


MAKERS = {
    "DRFClassifier": (with_defaults(DRFClassifier, max_iter=5), images),
    "TRWCRF": (with_defaults(TRWCRF, max_iter=5), images),
    "M3NClassifier": (with_defaults(M3NClassifier, max_iter=5, random_state=0), images),
    "ContrastiveCRF": (contrastive, images),
    "DenseCRF": (dense, scored),
    "MultiLabelField": (multi_label, labelled_rows),
    "MultiConditionalMFA": (with_defaults(MultiConditionalMFA, n_factors=1, max_iter=5, random_state=0), rows),
    "RegressionTreeField": (with_defaults(RegressionTreeField, max_iter=2, **TREES), targets),
    "LearnedFilters": (with_defaults(LearnedFilters, n_stages=2, filter_size=3, max_iter=5, random_state=0), grey),
    "RegressionTreeFieldClassifier": (with_defaults(RegressionTreeFieldClassifier, max_iter=2, **TREES), images),
}
