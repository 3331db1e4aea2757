"""Estimators with malformed data and parameters, and sequences of calls: failed calls change nothing."""

import inspect
import pickle

import numpy as np
import pytest
from fuzzing import CLEAR, call, malformed, seeds
from sklearn.base import clone, is_regressor
from sklearn.exceptions import NotFittedError

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DenseCRF,
    DRFClassifier,
    M3NClassifier,
    MultiConditionalMFA,
    MultiLabelField,
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
# Rows only, without edges.
PLAIN = (MultiConditionalMFA,)
BAD_X = [
    None,
    "x",
    [],
    np.zeros((0, 2)),
    np.full((2, 3, 3, 2), np.nan),
    np.full((2, 3, 3, 2), np.inf),
]
# Valid for a fit, but with another number of features than in the fit.
OTHER_FEATURES = np.zeros((2, 3, 3, 9))


def some_data(cls, rng):
    shape = (12,) if cls in PLAIN else [(3, 4), (2, 3, 3)][rng.integers(2)]
    y = rng.integers(2, size=shape)
    y.flat[:2] = 0, 1
    X = y[..., np.newaxis] + rng.normal(size=(*shape, 2))
    return (X, y.astype(float)) if is_regressor(cls()) else (X, y)


class Trial:
    """An estimator, the data of its last successful fit, and its predictions for these data."""

    def __init__(self, cls, rng):
        self.cls, self.rng = cls, rng
        self.model = cls(max_iter=2)
        self.X = self.predicted = None

    def check(self):
        """Check that the state belongs to the last successful fit."""
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


def labelled_rows(rng):
    X = rng.normal(size=(12, 2))
    return X, (X @ rng.normal(size=(2, 3)) > 0).astype(int)


def scored_images(rng):
    X, y = some_data(DRFClassifier, rng)
    return np.concatenate([-X, X, X], axis=-1), y


def maker(cls):
    return lambda **options: cls(**{"max_iter": 2, **options})


MAKERS = {name: (maker(cls), lambda rng, cls=cls: some_data(cls, rng)) for name, cls in ESTIMATORS.items()}
MAKERS["DenseCRF"] = (lambda **options: DenseCRF(**{"max_iter": 1, "image_channels": 4, **options}), scored_images)
MAKERS["MultiLabelField"] = (
    lambda **options: MultiLabelField(**{"estimator": TRWCRF(pairwise="ising", max_iter=2), **options}),
    labelled_rows,
)
# A billion iterations or stages would run forever.
MANY = 10**5


def some_parameter(model, rng):
    """Return the name of a constructor parameter and a malformed value, but no function: losses may be functions."""
    parameters = sorted(model.get_params(deep=False))
    values = [value for value in malformed() if not callable(value)]
    values = [value for value in values if not (np.isscalar(value) and np.isreal(value) and abs(value) > MANY)]
    return parameters[rng.integers(len(parameters))], values[rng.integers(len(values))]


def check_finite(model):
    for key, value in vars(model).items():
        # Contrastive training does not count errors, so its error curve is NaN.
        if key.endswith("_") and key != "error_curve_" and getattr(value, "dtype", None) in (np.float32, np.float64):
            assert np.isfinite(value).all(), f"{key} of {model} is not finite"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MAKERS)
def test_malformed_data_and_parameters(name):
    make, data = MAKERS[name]
    X, y = data(np.random.default_rng(0))
    model = make().fit(X, y)
    before, takes_weights = model.predict(X), "sample_weight" in inspect.signature(model.fit).parameters
    methods = [key for key in ("predict", "predict_proba", "decision_function") if hasattr(model, key)]
    for seed in seeds(f"malformed: {name}"):
        rng = np.random.default_rng(seed)
        values = malformed()
        value, kind = values[rng.integers(len(values))], rng.integers(6)
        if kind == 0:
            parameter, value = some_parameter(model, rng)
            changed = make(**{parameter: value})
            # Errors about a memory limit that is too small must name the limit.
            clear = (*CLEAR, MemoryError) if parameter == "max_memory" else CLEAR
            if call(changed.fit, X, y, clear=clear) is changed:
                check_finite(changed)
        elif kind == 1:
            found = call(getattr(model, methods[rng.integers(len(methods))]), value)
            assert isinstance(found, Exception) or found.dtype.kind != "f" or np.isfinite(found).all()
        elif kind == 2:
            call(model.score, X, value)
        elif kind == 3:
            call(clone(model).fit, value, y)
        elif kind == 4:
            call(clone(model).fit, X, value)
        elif takes_weights:
            call(clone(model).fit, X, y, sample_weight=value)
    assert np.array_equal(model.predict(X), before)
