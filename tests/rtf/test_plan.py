"""The plan of a fit: resolved for the data, immutable, picklable, and without the estimator."""

import pickle
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

from sklearn_crf import RegressionTreeField, RegressionTreeFieldClassifier
from sklearn_crf.rtf import _base
from sklearn_crf.rtf._base import FieldEstimator

RNG = np.random.default_rng(0)
Y = np.kron(RNG.random((6, 3, 3)), np.ones((4, 4)))
X = (Y + 0.2 * RNG.normal(size=Y.shape))[..., None]


@pytest.fixture
def plans(monkeypatch):
    found, train = [], _base.train

    def watched(data, plan, callbacks):
        found.append(plan)
        return train(data, plan, callbacks)

    monkeypatch.setattr(_base, "train", watched)
    return found


@pytest.mark.parametrize("Field", [RegressionTreeField, RegressionTreeFieldClassifier])
def test_plans_are_resolved_immutable_and_picklable(plans, Field):
    field = Field(random_state=np.random.RandomState(3), max_iter=2)
    field.fit(X, Y if Field is RegressionTreeField else (Y > 0.5).astype(int))
    (plan,) = plans
    values = {each.name: getattr(plan, each.name) for each in fields(plan)}
    # Filters are learned from the images.
    assert {name for name, value in values.items() if isinstance(value, str) and value == "auto"} <= {"filter_bank"}
    assert not [name for name, value in values.items() if isinstance(value, FieldEstimator)]
    assert isinstance(plan.seed, int)
    of_solver = plan.solver.get_params()
    # The penalty on scores depends on the number of leaves.
    assert {name for name, value in of_solver.items() if isinstance(value, str) and value == "auto"} <= {"ridge"}
    with pytest.raises(FrozenInstanceError):
        plan.seed = 1
    again = pickle.loads(pickle.dumps(plan))
    assert again.choose_type_depths(2) == plan.choose_type_depths(2) == [2] * 5
    assert (again.max_iter, again.seed, again.bounds) == (2, plan.seed, (1e-2, 1e2))


def test_options_of_the_user_are_not_those_of_the_plan(plans):
    field = RegressionTreeField(window=_base.Window(3), max_iter=1).fit(X, Y)
    field.window.max_depth = 7
    assert plans[0].window.max_depth is None
