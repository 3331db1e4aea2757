"""Compare the accuracy of MultiConditionalMFA with four scikit-learn classifiers on scikit-learn's bundled data sets.

All classifiers use the same stratified folds and standardised features. The options of a row are the same in every
fold; the last row chooses alpha, noise and noise_floor by cross-validation inside every training fold.

    python benchmarks/papers/mcl_bundled.py [--repeats 2] [--jobs 2] [--no-search]
"""

import argparse
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, RepeatedStratifiedKFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_crf import MultiConditionalMFA
from sklearn_crf.mfa import Priors

DATA = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
FACTORS = {"wine": 2, "breast cancer": 5, "digits": 10}


def models(factors, search):
    mfa = MultiConditionalMFA(
        1, factors, noise="class", n_init=1, priors=Priors(noise_floor=0.1), max_iter=200, random_state=0
    )
    yield "LinearDiscriminantAnalysis", LinearDiscriminantAnalysis()
    yield "QuadraticDiscriminantAnalysis(reg_param=0.01)", QuadraticDiscriminantAnalysis(reg_param=0.01)
    yield "GaussianNB", GaussianNB()
    yield "LogisticRegression", LogisticRegression(max_iter=2000)
    yield f"MFA(1, {factors}, joint)", MultiConditionalMFA(**(mfa.get_params(deep=False) | {"objective": "joint"}))
    for alpha in (0.0, 0.01, 0.1, 1.0):
        options = mfa.get_params(deep=False) | {"objective": "multi_conditional", "alpha": alpha}
        yield f"MFA(1, {factors}, alpha={alpha:g})", MultiConditionalMFA(**options)
    tied = mfa.get_params(deep=False) | {"objective": "multi_conditional", "alpha": 0.01, "noise": "tied"}
    yield f"MFA(1, {factors}, alpha=0.01, tied noise)", MultiConditionalMFA(**tied)
    if search:
        grid = {"alpha": [0.01, 1.0], "noise": ["tied", "class"], "priors__noise_floor": [1e-4, 1e-2, 1e-1]}
        yield "MFA, chosen inside the fold", GridSearchCV(MultiConditionalMFA(**tied), grid, cv=3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-search", action="store_true")
    parser.add_argument("data", nargs="*", default=list(DATA))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in args.data:
        X, y = DATA[name](return_X_y=True)
        folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=args.repeats, random_state=0)
        print(f"\n{name}: {X.shape[0]} samples, {X.shape[1]} features, {len(np.unique(y))} classes", flush=True)
        for label, model in models(FACTORS[name], not args.no_search):
            scores = cross_val_score(make_pipeline(StandardScaler(), model), X, y, cv=folds, n_jobs=args.jobs)
            print(f"{label:48} {100 * scores.mean():6.2f} +- {100 * scores.std():4.2f}", flush=True)


if __name__ == "__main__":
    main()
