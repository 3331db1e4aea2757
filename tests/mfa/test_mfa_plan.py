"""The plan of a fit is resolved once, can be sent to other processes, and is immutable."""

import pickle
import warnings
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from mfa_problems import mixture
from numpy.testing import assert_array_equal
from sklearn.datasets import load_iris

from sklearn_crf import Shards
from sklearn_crf.mfa import EM, ScaledLBFGS
from sklearn_crf.mfa._fitted import build_fitted_attributes, get_auto_parameters
from sklearn_crf.mfa._training import choose_best_restart, train

X, Y = load_iris(return_X_y=True)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_a_plan_trains_without_the_estimator():
    model = mixture(2, 1, n_init=2, max_iter=10, random_state=0)
    data = model._read(X, Y, None)
    plan = pickle.loads(pickle.dumps(model._plan(data)))
    assert isinstance(plan.solver, ScaledLBFGS)
    assert len(plan.seeds) == 2
    with pytest.raises(FrozenInstanceError):
        plan.max_iter = 20
    found = build_fitted_attributes(
        choose_best_restart(train(data, plan)).params, data, plan.family, get_auto_parameters(model)
    )
    assert not vars(model).keys() & found.keys()
    model.fit(X, Y)
    for name, value in found.items():
        assert_array_equal(getattr(model, name), value)


def test_what_auto_means_is_in_the_plan():
    joint = mixture(objective="joint", allow_nan=True)
    holes = np.where(np.arange(X.size).reshape(X.shape) % 41, X, np.nan)
    assert isinstance(joint._plan(joint._read(X, Y, None)).solver, EM)
    assert isinstance(joint._plan(joint._read(holes, Y, None)).solver, ScaledLBFGS)


@pytest.mark.parametrize("sharded", [False, True])
def test_a_warning_that_is_an_error_leaves_the_last_fit(sharded):
    model = mixture(1, 1, max_iter=200, n_init=1, random_state=0).fit(X, Y)
    before = dict(vars(model))
    model.set_params(max_iter=1)
    data = [Shards.from_arrays([(X[::2], Y[::2]), (X[1::2], Y[1::2])])] if sharded else [X, Y]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="did not converge"):
            model.fit(*data)
    model.set_params(max_iter=200)
    assert vars(model).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(model).items() if name.endswith("_"))


def test_names_of_features_are_those_of_the_last_fit():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    model = mixture(1, 1, max_iter=5, n_init=1, objective="joint")
    assert model.fit(frame, Y).feature_names_in_.tolist() == list("abcd")
    sharded = Shards.from_arrays([(frame[::2], Y[::2]), (frame[1::2], Y[1::2])])
    assert model.fit(sharded).feature_names_in_.tolist() == list("abcd")
    assert not hasattr(model.fit(X, Y), "feature_names_in_")
