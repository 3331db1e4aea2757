"""Count the files, functions and depth of calls of ``fit`` and ``predict`` of every estimator.

    python tests/tools/journeys.py [--files ESTIMATOR]

The counts show how much code a reader must follow. They are counts of Python frames of the estimator's own package
(scikit-learn for LogisticRegression) on small data, without imports. Depth is the largest number of such frames on
the stack. The output also has the number of classes of the package among an estimator's bases, of its private
methods, own and inherited, and of its constructor parameters. With ``--files``, the files of one estimator are
listed, with the functions entered in each file, and the deepest stack.
"""

import argparse
import inspect
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import sklearn
from sklearn.linear_model import LogisticRegression

import sklearn_crf
from sklearn_crf.datasets import make_noisy_shapes


class Journey:
    """Context that records the frames of one package that any thread enters."""

    def __init__(self, package):
        self.folder = str(Path(package.__file__).parent)
        self.places = set()
        self.deepest = []

    def __enter__(self):
        threading.setprofile(self._enter)
        sys.setprofile(self._enter)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)
        threading.setprofile(None)

    def _enter(self, frame, event, argument):
        if event != "call" or not frame.f_code.co_filename.startswith(self.folder):
            return
        if frame.f_code.co_name == "<module>":
            return
        self.places.add((frame.f_code.co_filename, frame.f_code.co_qualname))
        stack = []
        while frame is not None:
            if frame.f_code.co_filename.startswith(self.folder):
                stack.append((frame.f_code.co_filename, frame.f_code.co_qualname))
            frame = frame.f_back
        self.deepest = max(self.deepest, stack, key=len)

    def __str__(self):
        n_files = len({file for file, _ in self.places})
        return f"{n_files:3d} files {len(self.places):4d} functions {len(self.deepest):3d} deep"

    def list_files(self):
        """Print each file with the functions entered, then the deepest stack."""
        for file in sorted({file for file, _ in self.places}):
            names = sorted(name for place, name in self.places if place == file)
            print(f"    {Path(file).relative_to(self.folder)}: {', '.join(names)}")
        for file, name in reversed(self.deepest):
            print(f"    > {Path(file).relative_to(self.folder)} {name}")


def shape_of(estimator):
    """Return a text with the numbers of base classes, private methods and constructor parameters of an estimator."""
    kind = type(estimator)
    package = kind.__module__.split(".")[0]
    bases = [base for base in kind.__mro__ if base.__module__.split(".")[0] == package]
    private = {
        name
        for base in bases
        for name, value in vars(base).items()
        if name.startswith("_") and not name.startswith("__") and inspect.isroutine(value)
    }
    n_parameters = len(inspect.signature(kind.__init__).parameters) - 1
    return f"{len(bases)} classes {len(private):2d} private methods {n_parameters:2d} parameters"


def problems():
    """Yield estimators, each with small but not trivial X and y."""
    shapes = make_noisy_shapes("gaussian", 1, shapes=["key", "gear"], random_state=0)
    X, y = shapes[0][:2, :16, :16], shapes[1][:2, :16, :16]
    rng = np.random.default_rng(0)
    rows, classes = rng.normal(size=(60, 4)), np.arange(60) % 2
    grey = rng.normal(size=(3, 12, 12, 1))
    for name in sklearn_crf.__all__:
        kind = getattr(sklearn_crf, name)
        if not (inspect.isclass(kind) and hasattr(kind, "fit")):
            continue
        if name == "MultiLabelField":  # it wraps other estimators
            continue
        data = {
            "RegressionTreeField": (grey, grey),
            "MultiConditionalMFA": (rows, classes),
            "DenseCRF": (rng.normal(size=(2, 12, 12, 5)), rng.integers(2, size=(2, 12, 12))),
        }.get(name, (X, y))
        yield kind(max_iter=3), *data
    yield LogisticRegression(), rows, classes


def main():
    parser = argparse.ArgumentParser(description="Files, functions and depth of calls of fit and predict.")
    parser.add_argument("--files", metavar="ESTIMATOR", help="list the files of this estimator")
    listed = parser.parse_args().files
    warnings.simplefilter("ignore")
    for estimator, X, y in problems():
        package = sklearn if estimator.__module__.startswith("sklearn.") else sklearn_crf
        name = type(estimator).__name__
        if listed not in (None, name):
            continue
        with Journey(package) as fit:
            estimator.fit(X, y)
        with Journey(package) as predict:
            estimator.predict(X)
        print(f"{name:30s} fit {fit}   predict {predict}   {shape_of(estimator)}", flush=True)
        if listed:
            for title, journey in [("fit", fit), ("predict", predict)]:
                print(title)
                journey.list_files()


if __name__ == "__main__":
    main()
