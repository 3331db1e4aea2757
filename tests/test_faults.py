"""Faults during a fit, by estimator and fault: the user's error, and the state after the fault."""

import itertools
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import time

import numpy as np
import pytest
from callback_recorder import Recorder
from forked import exit_code, forks
from interrupting import interrupted_after, may_drop_interrupts
from numpy.testing import assert_array_equal
from sklearn.base import clone
from small_fits import MAKERS

from sklearn_crf.datasets import write_labeling
from sklearn_crf.dense import LogLoss
from sklearn_crf.inference import ICM, ConjugateGradient
from sklearn_crf.learning import ContrastiveTraining, MaximumMarginalTraining, MaxMargin, Relaxation
from sklearn_crf.mfa import ScaledLBFGS
from sklearn_crf.objectives import MapGenerator

pytestmark = pytest.mark.filterwarnings("ignore")


class UserError(Exception):
    """Error that the code of a user raises."""


class UserCode:
    """User code inside a fit, which counts its calls and raises an error in one of them."""

    def __init__(self):
        self.reset()

    def reset(self, fails_at=None):
        self.fails_at, self.n_calls = fails_at, 0

    def __call__(self):
        self.n_calls += 1
        if self.n_calls == self.fails_at:
            raise UserError(f"call {self.n_calls}")


user_code = UserCode()


class UsersICM(ICM):
    def _map(self, model, *, init=None, n_threads=1):
        user_code()
        return super()._map(model, init=init, n_threads=n_threads)


class UsersConjugateGradient(ConjugateGradient):
    def solve(self, model, right_hand_side, *, init=None, n_threads=1):
        user_code()
        return super().solve(model, right_hand_side, init=init, n_threads=n_threads)


class UsersMMA(MaximumMarginalTraining):
    def objective(self, plan, data):
        user_code()
        return super().objective(plan, data)


class UsersRelaxation(Relaxation):
    def likelihood(self, plan):
        user_code()
        return super().likelihood(plan)


class UsersMargin(MaxMargin):
    def hinge(self, inference, cost, facts, single_nodes):
        user_code()
        return super().hinge(inference, cost, facts, single_nodes)


class UsersGenerator(MapGenerator):
    def __call__(self, model, labels, rng, **options):
        user_code()
        return super().__call__(model, labels, rng, **options)


class UsersLoss(LogLoss):
    def gradient(self, totals, q, labels, weight):
        user_code()
        return super().gradient(totals, q, labels, weight)


class UsersSolver(ScaledLBFGS):
    def minimize(self, *arguments, **options):
        user_code()
        return super().minimize(*arguments, **options)


def users_image_loss(prediction, target):
    user_code()
    difference = prediction - target
    return float(np.mean(difference**2)), 2 * difference / difference.size


def users_edge_features(*args):
    user_code()
    return np.ones((len(args[-1]), 1))


USER_CODE = {
    ("DRFClassifier", "inference"): {"inference": UsersICM(), "learning": "spa"},
    ("DRFClassifier", "learning"): {"learning": UsersMMA(), "inference": "icm"},
    ("DRFClassifier", "features"): {"edge_features": users_edge_features},
    ("TRWCRF", "learning"): {"learning": UsersRelaxation()},
    ("TRWCRF", "features"): {"edge_features": users_edge_features},
    ("M3NClassifier", "inference"): {"inference": UsersICM()},
    ("M3NClassifier", "learning"): {"learning": UsersMargin()},
    ("M3NClassifier", "features"): {"edge_features": users_edge_features},
    ("ContrastiveCRF", "inference"): {
        "learning": ContrastiveTraining(generator=MapGenerator(UsersICM()), max_rounds=3)
    },
    ("ContrastiveCRF", "learning"): {"learning": ContrastiveTraining(generator=UsersGenerator(ICM()), max_rounds=3)},
    ("ContrastiveCRF", "features"): {"edge_features": users_edge_features},
    ("DenseCRF", "learning"): {"learning": UsersLoss()},
    ("MultiLabelField", "learning"): {"learning": UsersRelaxation()},
    ("MultiConditionalMFA", "learning"): {"solver": UsersSolver()},
    ("RegressionTreeField", "inference"): {"inference": UsersConjugateGradient()},
    ("RegressionTreeField", "learning"): {"loss": users_image_loss},
}


def fitted_state(model):
    return {key: pickle.dumps(value) for key, value in vars(model).items() if key.endswith("_")}


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(("name", "hook"), USER_CODE)
def test_errors_of_user_code_pass_through(name, hook, n_jobs):
    make, data = MAKERS[name]
    X, y = data()
    model = make(n_jobs=n_jobs, **USER_CODE[name, hook])
    user_code.reset()
    model.fit(X, y)
    n_calls, before, predicted = user_code.n_calls, fitted_state(model), model.predict(X)
    assert n_calls
    for fails_at in {1, (n_calls + 1) // 2, n_calls}:
        user_code.reset(fails_at)
        with pytest.raises(UserError):
            model.fit(X[::-1].copy(), y[::-1].copy())
        assert fitted_state(model) == before
    user_code.reset()
    assert_array_equal(model.fit(X, y).predict(X), predicted)


class FailingCallback(Recorder):
    """A callback that fails at the end of the second iteration, if there is one."""

    def on_fit_task_end(self, estimator, context, **options):
        super().on_fit_task_end(estimator, context, **options)
        if len(self.fitted) == 2:
            raise UserError("callback")


@pytest.mark.parametrize("name", MAKERS)
def test_errors_of_callbacks_pass_through(name):
    pytest.importorskip("sklearn.callback")
    make, data = MAKERS[name]
    X, y = data()
    model = make().fit(X, y)
    if not hasattr(model, "set_callbacks"):
        pytest.skip("has no callbacks: those of the field inside are its own")
    before = fitted_state(model)
    model.set_callbacks(FailingCallback())
    with pytest.raises(UserError):
        model.fit(X[::-1].copy(), y[::-1].copy())
    assert fitted_state(model) == before


LONG_FITS = {
    "DRFClassifier": {"max_iter": 10_000, "tol": 0.0},
    "TRWCRF": {"max_iter": 10_000, "tol": 0.0},
    "M3NClassifier": {"max_iter": 10_000, "tol": 1e-12},
    "ContrastiveCRF": {"max_iter": 10_000, "tol": 0.0},
    "DenseCRF": {"max_iter": 10_000, "tol": 0.0},
    "MultiLabelField": {"max_iter": 10_000, "tol": 0.0},
    "MultiConditionalMFA": {"max_iter": 10_000, "tol": 0.0, "n_init": 50},
    "RegressionTreeField": {"max_depth": 8, "max_iter": 10_000},
    "LearnedFilters": {"max_iter": 100_000},
    "RegressionTreeFieldClassifier": {"max_depth": 8, "max_iter": 10_000},
}


@pytest.fixture
def interruptible():
    """Restore Python's own reaction to Ctrl-C, which a shell disables in background processes."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("name", MAKERS)
@may_drop_interrupts
@pytest.mark.usefixtures("interruptible")
def test_interrupts_at_random_moments(name, n_jobs):
    make, data = MAKERS[name]
    model = make(n_jobs=n_jobs).fit(*data())
    before = fitted_state(model)
    X, y = data(40, 40)
    moment, is_over = np.random.default_rng([n_jobs, len(name)]).uniform(0.02, 0.4), True
    # A fit that ends before the interrupt is repeated with an earlier interrupt.
    while is_over:
        long = make(n_jobs=n_jobs, **LONG_FITS[name])
        vars(long).update({key: value for key, value in vars(model).items() if key.endswith("_")})
        is_over = False
        try:
            with interrupted_after(moment) as sent:
                long.fit(X, y)
                is_over = True
        except KeyboardInterrupt:
            stopped = time.monotonic()
        assert not is_over or len(sent) < 2
        moment /= 2
    # One second on an idle machine.
    assert stopped - sent[0] < 3
    assert fitted_state(long) == before


@pytest.mark.parametrize("name", MAKERS)
def test_no_temporary_folder_is_needed(name, monkeypatch, tmp_path):
    make, data = MAKERS[name]
    X, y = data()
    expected = make(n_jobs=2).fit(X, y).predict(X)
    missing = str(tmp_path / "missing")
    monkeypatch.setattr(tempfile, "tempdir", missing)
    for variable in ("TMPDIR", "JOBLIB_TEMP_FOLDER"):
        monkeypatch.setenv(variable, missing)
    assert_array_equal(make(n_jobs=2).fit(X, y).predict(X), expected)


def fits_alike_in_a_child(name, prepare=lambda: None):
    """Return whether a forked child, which first calls ``prepare``, predicts as this process does."""
    make, data = MAKERS[name]
    X, y = data()
    expected = make(n_jobs=2).fit(X, y).predict(X)
    child = os.fork()
    if child == 0:
        prepare()
        os._exit(0 if np.array_equal(make(n_jobs=2).fit(X, y).predict(X), expected) else 1)
    return exit_code(child) == 0


@forks
@pytest.mark.parametrize("name", MAKERS)
def test_a_forked_child_fits_after_threads_ran(name):
    assert fits_alike_in_a_child(name)


def forbid_writing():
    """Make every later write to a file fail, as on a full disk."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@forks
@pytest.mark.parametrize("name", MAKERS)
def test_fits_write_no_file(name):
    assert fits_alike_in_a_child(name, forbid_writing)


@forks
@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_a_full_disk_is_an_error_of_writing(name, tmp_path):
    child = os.fork()
    if child == 0:
        forbid_writing()
        try:
            write_labeling(tmp_path / name, np.zeros(100_000, dtype=int))
        except OSError:
            os._exit(42)
        os._exit(1)
    assert exit_code(child) == 42


def refitted_prediction(model, X, y):
    return clone(model).fit(X, y).predict(X)


def test_spawned_children_fit_and_predict_the_same():
    problems = [(make(n_jobs=2), *data()) for make, data in MAKERS.values()]
    expected = list(itertools.starmap(refitted_prediction, problems))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.starmap_async(refitted_prediction, problems).get(timeout=300)
    for name, own, other in zip(MAKERS, expected, found, strict=True):
        assert_array_equal(own, other, err_msg=name)


ALLOCATIONS = ("empty", "zeros", "ones", "full", "empty_like", "zeros_like")


class Memory:
    """Counted NumPy allocations, of which one raises MemoryError."""

    def __init__(self, monkeypatch):
        self.n_calls, self.fails_at = 0, None
        self._lock = threading.Lock()
        for name in ALLOCATIONS:
            monkeypatch.setattr(np, name, self._counted(getattr(np, name)))

    def reset(self, fails_at=None):
        self.n_calls, self.fails_at = 0, fails_at

    def _counted(self, allocate):
        def counted(*args, **options):
            with self._lock:
                self.n_calls += 1
                fails = self.n_calls == self.fails_at
            if fails:
                raise MemoryError
            return allocate(*args, **options)

        return counted


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("name", MAKERS)
def test_a_fit_without_memory_raises_and_changes_nothing(name, n_jobs, monkeypatch):
    make, data = MAKERS[name]
    X, y = data()
    model = make(n_jobs=n_jobs).fit(X, y)
    before, predicted = fitted_state(model), model.predict(X)
    # The failing fit uses other data, which would lead to another state.
    other = X[::-1].copy(), y[::-1].copy()
    memory = Memory(monkeypatch)
    clone(model).fit(*other)
    n_calls = memory.n_calls
    for fails_at in np.random.default_rng(0).integers(1, n_calls + 1, size=5):
        memory.reset(int(fails_at))
        with pytest.raises(MemoryError):
            model.fit(*other)
        memory.reset()
        assert fitted_state(model) == before
    assert_array_equal(model.fit(X, y).predict(X), predicted)
