"""Photographs with several labels: a field over six labels compared with a logistic regression for each label.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/multilabel_scene.py    # folder holds multilabel/scene.npz

The split is the usual split of this data set. C is chosen by three-fold cross-validation on the training part,
separately for each method.
"""

import os
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, hamming_loss
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.preprocessing import StandardScaler

from sklearn_crf import TRWCRF, MultiLabelField

GRID = [0.001, 0.01, 0.1]


def main():
    parts = np.load(Path(os.environ["SKLEARN_CRF_DATA"]) / "multilabel" / "scene.npz")
    scaler = StandardScaler().fit(parts["X_train"])
    X, X_test = (scaler.transform(parts[name]).astype(np.float64) for name in ("X_train", "X_test"))
    Y, Y_test = parts["Y_train"].astype(int), parts["Y_test"].astype(int)
    alone = LogisticRegression(max_iter=500)
    field = TRWCRF(pairwise="ising", inference="junction_tree", max_iter=300)
    methods = {
        "each label alone": MultiOutputClassifier(alone),
        "classifier chain": ClassifierChain(alone),
        "field, chow_liu": MultiLabelField(field, "chow_liu"),
        "field, full": MultiLabelField(field, "full"),
    }
    print(f"{'':18}subset accuracy   Hamming loss   micro F1        C   CPU s")
    for name, method in methods.items():
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            search = GridSearchCV(method, {"estimator__C": GRID}, cv=3).fit(X, Y)
        seconds = time.process_time() - start
        labels = search.predict(X_test)
        print(
            f"{name:18}{accuracy_score(Y_test, labels):15.4f}{hamming_loss(Y_test, labels):15.4f}"
            f"{f1_score(Y_test, labels, average='micro'):11.4f}{search.best_params_['estimator__C']:9}{seconds:8.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
