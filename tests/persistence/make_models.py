"""Save small models of this version, with data and their predictions, for test_saved_models.py.

    PYTHONPATH=. python tests/persistence/make_models.py

Writes a folder named after the version. Never change the folders of released versions, which later versions must load.
Recreate the folder of the version under development if the fitted state of a class or the module of a class changes.
Use the oldest supported NumPy: NumPy 2 can read arrays pickled by NumPy 1, but NumPy 1.26.0 cannot read arrays pickled
by NumPy 2.
"""

import pickle
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import make_multilabel_classification

import sklearn_crf
from sklearn_crf import (
    TRWCRF,
    Bilateral,
    ContrastiveCRF,
    DenseCRF,
    DRFClassifier,
    M3NClassifier,
    MultiConditionalMFA,
    MultiLabelField,
    RegressionTreeField,
    RegressionTreeFieldClassifier,
)
from sklearn_crf.rtf import Splits

TREES = {"max_depth": 1, "max_iter": 3, "split": Splits(min_samples_leaf=20), "random_state": 0, "filter_bank": None}


def images(rng):
    y = np.kron(rng.integers(2, size=(3, 2, 2)), np.ones((1, 3, 3), dtype=int))
    return y[..., np.newaxis] + 0.5 * rng.normal(size=(*y.shape, 1)), y


def real_images(rng):
    X, y = images(rng)
    return X, y.astype(float)


def named_images(rng):
    X, y = images(rng)
    return X, np.array(["grass", "sky"])[y]


def scored_images(rng):
    X, y = images(rng)
    return np.concatenate([-X, X, X], axis=-1), y


def rows(rng):
    y = np.arange(30) % 2
    return y[:, np.newaxis] + rng.normal(size=(30, 3)), y


def labelled_rows(rng):
    return make_multilabel_classification(n_samples=20, n_features=5, n_classes=3, random_state=0)


MODELS = {
    "DRFClassifier": (DRFClassifier(max_iter=5), images),
    "TRWCRF": (TRWCRF(max_iter=5), named_images),
    "M3NClassifier": (M3NClassifier(max_iter=5, random_state=0), images),
    "ContrastiveCRF": (ContrastiveCRF(max_iter=5, random_state=0), images),
    "DenseCRF": (DenseCRF([Bilateral(2.0, 0.5)], image_channels=1, color_range=(0, 255), max_iter=5), scored_images),
    "MultiLabelField": (MultiLabelField(TRWCRF(pairwise="ising", max_iter=5)), labelled_rows),
    "MultiConditionalMFA": (MultiConditionalMFA(n_factors=1, max_iter=5, random_state=0), rows),
    "RegressionTreeField": (RegressionTreeField(**TREES), real_images),
    "RegressionTreeFieldClassifier": (RegressionTreeFieldClassifier(**TREES), images),
}


def main():
    folder = Path(__file__).parent / sklearn_crf.__version__
    folder.mkdir(exist_ok=True)
    warnings.simplefilter("ignore")
    for name, (model, data) in MODELS.items():
        X, y = data(np.random.default_rng(0))
        model.fit(X, y)
        # Every supported Python version reads protocol 4.
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(model, protocol=4))
        arrays = {"X": X, "labels": model.predict(X)}
        if hasattr(model, "predict_proba"):
            arrays["probabilities"] = model.predict_proba(X)
        np.savez_compressed(folder / f"{name}.npz", **arrays)


if __name__ == "__main__":
    main()
