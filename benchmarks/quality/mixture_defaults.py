"""Compare mixtures of factor analysers without options with densities of classes and logistic regression, on 14 tables.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/mixture_defaults.py --seeds 3 --record mixture_defaults.json

Prints, for each table, the mean log-loss of test samples for MultiConditionalMFA, linear and quadratic discriminant
analysis, a Gaussian mixture per class (two components), and logistic regression. Features are standardised for all
methods except MultiConditionalMFA. The last lines count the tables on which the log-loss of MultiConditionalMFA is
lower than the log-loss of all other densities, and on which it is at most 10 % higher than that of logistic regression.
"""

import argparse
import time
import warnings
from functools import partial
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.special import softmax
from sklearn import datasets
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.default_tasks import letters, scene_labels, streets
from support.record import recorded

from sklearn_crf import MultiConditionalMFA


class GaussiansOfClasses(ClassifierMixin, BaseEstimator):
    """Gaussian mixture of each class."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self._models = [GaussianMixture(2, random_state=0, reg_covar=1e-3).fit(X[y == c]) for c in self.classes_]
        self._log_prior = np.log([np.mean(y == c) for c in self.classes_])
        return self

    def predict_proba(self, X):
        return softmax(np.stack([each.score_samples(X) for each in self._models], axis=1) + self._log_prior, axis=1)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


DENSITIES = {
    "LDA": LinearDiscriminantAnalysis,
    "QDA": partial(QuadraticDiscriminantAnalysis, reg_param=1e-3),
    "Gaussians": GaussiansOfClasses,
}
METHODS = {
    "MFA": lambda: MultiConditionalMFA(random_state=0),
    **{name: partial(lambda make: make_pipeline(StandardScaler(), make()), make) for name, make in DENSITIES.items()},
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
}


def _thirds_of_diabetes(seed):
    X, y = datasets.load_diabetes(return_X_y=True)
    return X, np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))


def _letters(seed):
    task = letters(np.random.default_rng(seed), 500)
    X, y = np.concatenate(task.X), np.concatenate(task.y)
    names, counts = np.unique(y, return_counts=True)
    kept = np.isin(y, names[np.argsort(-counts)[:10]])
    return X[kept], y[kept]


def _street_pixels(seed):
    rng = np.random.default_rng(seed)
    task = streets(rng, 6)
    X, y = task.X.reshape(-1, task.X.shape[-1]), task.y.ravel()
    kept = rng.permutation(np.flatnonzero(y != task.missing_label))[:2000]
    return X[kept], y[kept]


def _scenes(seed):
    task = scene_labels(np.random.default_rng(seed), 1000)
    kept = task.y.sum(axis=1) == 1
    return task.X[kept], task.y[kept].argmax(axis=1)


def _loaded(load):
    return lambda seed: load(return_X_y=True)


def _drawn(make, n_features=None, **options):
    size = {} if n_features is None else {"n_features": n_features}
    return lambda seed: make(n_samples=1300, random_state=seed, **size, **options)


# Function of a seed that returns samples and classes; number of training samples (None is half of all); number of
# principal components that replace the features (None keeps the features).
TABLES = {
    "digits": (_loaded(datasets.load_digits), None, None),
    "wine": (_loaded(datasets.load_wine), None, None),
    "cancer": (_loaded(datasets.load_breast_cancer), None, None),
    "iris": (_loaded(datasets.load_iris), None, None),
    "digits, 10 components": (_loaded(datasets.load_digits), None, 10),
    "thirds of diabetes": (_thirds_of_diabetes, None, None),
    "moons": (_drawn(datasets.make_moons, noise=0.25), 300, None),
    "circles": (_drawn(datasets.make_circles, noise=0.15, factor=0.5), 300, None),
    "clusters": (
        _drawn(datasets.make_classification, 10, n_informative=4, n_classes=3, n_clusters_per_class=2),
        300,
        None,
    ),
    "shells": (_drawn(datasets.make_gaussian_quantiles, 5, n_classes=3), 300, None),
    "spheres": (_drawn(datasets.make_hastie_10_2), 300, None),
    "letters, 20 components": (_letters, 1000, 20),
    "street pixels": (_street_pixels, 600, None),
    "scenes, 20 components": (_scenes, 600, 20),
}


def measured(name, method, seed):
    """Return the log-loss, the share of right samples, and the seconds of a fit."""
    draw, size, n_components = TABLES[name]
    X, y = draw(seed)
    X, X_test, y, y_test = train_test_split(X, y, train_size=size or 0.5, stratify=y, random_state=seed)
    if n_components is not None:
        reduction = PCA(n_components, random_state=0).fit(X)
        X, X_test = reduction.transform(X), reduction.transform(X_test)
    model, start = METHODS[method](), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    seconds = time.process_time() - start
    loss = log_loss(y_test, model.predict_proba(X_test), labels=model.classes_)
    return {"log_loss": float(loss), "right": float(np.mean(model.predict(X_test) == y_test)), "seconds": seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    print(
        f"{'log-loss':24s}" + "".join(f"{method:>10s}" for method in METHODS) + "   right (MFA, logistic), fit (MFA), s"
    )
    n_best = n_near = 0
    for name in options.tables:
        runs = {
            method: [
                recorded(options.record, f"{name} | {method} | {seed}", partial(measured, name, method, seed))
                for seed in range(options.seeds)
            ]
            for method in METHODS
        }
        loss = {method: np.mean([run["log_loss"] for run in runs[method]]) for method in METHODS}
        n_best += loss["MFA"] < min(loss[method] for method in DENSITIES)
        n_near += loss["MFA"] <= 1.1 * loss["logistic"]
        right = [np.mean([run["right"] for run in runs[method]]) for method in ("MFA", "logistic")]
        seconds = np.mean([run["seconds"] for run in runs["MFA"]])
        print(f"{name:24s}" + "".join(f"{loss[method]:10.3f}" for method in METHODS), end="")
        print(f"   {right[0]:.3f} {right[1]:.3f} {seconds:6.2f}", flush=True)
    print(f"MFA is below all densities of classes on {n_best} of {len(options.tables)} tables, and at most 10 % above")
    print(f"logistic regression on {n_near}.")


if __name__ == "__main__":
    main()
