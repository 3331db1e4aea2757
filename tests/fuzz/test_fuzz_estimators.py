"""Sequences of calls of estimators: a call that fails leaves what was fitted as it was."""

import pickle

import numpy as np
import pytest
from fuzzing import call, seeds
from sklearn.base import clone, is_regressor
from sklearn.exceptions import NotFittedError

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DRFClassifier,
    M3NClassifier,
    MultiConditionalMFA,
    RegressionTreeField,
    RegressionTreeFieldClassifier,
)

ESTIMATORS = {
    cls.__name__: cls
    for cls in (
        TRWCRF,
        ContrastiveCRF,
        DRFClassifier,
        M3NClassifier,
        MultiConditionalMFA,
        RegressionTreeField,
        RegressionTreeFieldClassifier,
    )
}
# Rows alone, without edges.
PLAIN = (MultiConditionalMFA,)
BAD_X = [
    None,
    "x",
    [],
    np.zeros((0, 2)),
    np.full((2, 3, 3, 2), np.nan),
    np.full((2, 3, 3, 2), np.inf),
]
# Right for a fit, but not the number of features that was fitted.
OTHER_FEATURES = np.zeros((2, 3, 3, 9))


def some_data(cls, rng):
    shape = (12,) if cls in PLAIN else [(3, 4), (2, 3, 3)][rng.integers(2)]
    y = rng.integers(2, size=shape)
    y.flat[:2] = 0, 1
    X = y[..., np.newaxis] + rng.normal(size=(*shape, 2))
    return (X, y.astype(float)) if is_regressor(cls()) else (X, y)


class Trial:
    """An estimator, the last data of a fit that succeeded, and what it predicted for it."""

    def __init__(self, cls, rng):
        self.cls, self.rng = cls, rng
        self.model = cls(max_iter=2)
        self.X = self.predicted = None

    def check(self):
        """The state is that of the last fit that succeeded."""
        if self.X is None:
            found = call(self.model.predict, some_data(self.cls, self.rng)[0])
            assert isinstance(found, NotFittedError)
        else:
            assert np.array_equal(self.model.predict(self.X), self.predicted)

    def fit(self):
        X, y = some_data(self.cls, self.rng)
        found = call(self.model.fit, X, y)
        if isinstance(found, Exception):
            # A warm start on data of another kind.
            assert self.model.get_params().get("warm_start")
            return
        self.X, self.predicted = X, self.model.predict(X)

    def fit_badly(self):
        X, y = some_data(self.cls, self.rng)
        bad = BAD_X[self.rng.integers(len(BAD_X))]
        arguments = (bad, y) if self.rng.random() < 0.5 else (X, y[:1])
        assert isinstance(call(self.model.fit, *arguments), Exception)

    def fit_with_bad_parameter(self):
        before = self.model.get_params(deep=False)
        self.model.set_params(max_iter=["x", -1, np.nan, None, np.zeros(2)][self.rng.integers(5)])
        call(self.model.fit, *some_data(self.cls, self.rng))
        failed = self.model.get_params(deep=False)["max_iter"]
        self.model.set_params(max_iter=before["max_iter"])
        if failed is None:  # None may be allowed
            self.refit()

    def refit(self):
        X, y = some_data(self.cls, self.rng)
        self.model = clone(self.model).set_params(max_iter=2).fit(X, y)
        self.X, self.predicted = X, self.model.predict(X)

    def predict_badly(self):
        bad = [*BAD_X, OTHER_FEATURES]
        call(self.model.predict, bad[self.rng.integers(len(bad))])

    def toggle_warm_start(self):
        if "warm_start" in self.model.get_params():
            self.model.set_params(warm_start=not self.model.warm_start)

    def pickle(self):
        self.model = pickle.loads(pickle.dumps(self.model))

    def clone(self):
        self.model, self.X = clone(self.model), None


STEPS = [
    Trial.fit,
    Trial.fit_badly,
    Trial.fit_with_bad_parameter,
    Trial.predict_badly,
    Trial.toggle_warm_start,
    Trial.pickle,
    Trial.clone,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_sequences_of_calls(name):
    for seed in seeds(f"sequences: {name}"):
        rng = np.random.default_rng(seed)
        trial = Trial(ESTIMATORS[name], rng)
        done = []
        for _ in range(6):
            step = STEPS[rng.integers(len(STEPS))]
            done.append(step.__name__)
            try:
                step(trial)
                trial.check()
            except AssertionError as error:
                raise AssertionError(f"{name}, seed {seed}: {done}") from error
