"""Handwritten words as chains of letters: fold 0 against the rest and the reverse, with full and tied pairwise terms.

    SKLEARN_CRF_DATA=folder python benchmarks/papers/letters.py            # folder holds ocr_letters/

Features are the 128 pixels of a letter. C is chosen by cross-validation on the training words. Without edges, the
field is logistic regression. "potts" has one weight for equal letters and one for all other pairs; "full" has a
weight for every pair.
"""

import argparse
import os
import time
import warnings
from pathlib import Path
from string import ascii_lowercase

import _path  # noqa: F401  finds the support package
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from support.bundles import load_ocr_letters

from sklearn_crf import TRWCRF


def chosen(X, y, pairwise, options):
    """Return a field with the best C, and the seconds of its last fit."""
    model = TRWCRF(pairwise=pairwise, classes=list(ascii_lowercase), max_iter=options.max_iter, tol=1e-3)
    search = GridSearchCV(model, {"C": options.C}, cv=3, refit=False).fit(X, y)
    model.set_params(**search.best_params_)
    start = time.process_time()
    model.fit(X, y)
    return model, time.process_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--C", type=float, nargs="+", default=[0.01, 0.1, 1.0])
    parser.add_argument("--max-iter", type=int, default=200)
    parser.add_argument("--reverse", action="store_true", help="exchange training and test part")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    bunch = load_ocr_letters(Path(os.environ["SKLEARN_CRF_DATA"]) / "ocr_letters")
    parts = bunch.train, bunch.test
    train, test = parts[::-1] if options.reverse else parts
    X, y = ([values[i] for i in train] for values in (bunch.data, bunch.target))
    X_test, y_test = ([values[i] for i in test] for values in (bunch.data, bunch.target))
    print(f"{len(X)} words to learn from, {len(X_test)} to test on")
    for name in ("without edges", "potts", "full"):
        data = [X, y, X_test, y_test]
        if name == "without edges":
            data = [np.concatenate(part) for part in data]
        model, seconds = chosen(*data[:2], "full" if name == "without edges" else name, options)
        accuracy = model.score(*data[2:])
        print(f"{name:14s} C={model.C:<6g} {100 * accuracy:.2f} % of letters, {seconds:.1f} s to train", flush=True)


if __name__ == "__main__":
    main()
