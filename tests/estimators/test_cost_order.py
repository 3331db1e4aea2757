"""Costs of classes named by the user: rows and columns follow the order of the names."""

import numpy as np
import pytest

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, M3NClassifier, RegressionTreeFieldClassifier
from sklearn_crf.encoding import sort_cost_by_class
from sklearn_crf.learning import ContrastiveTraining, Exact, MaxMargin
from sklearn_crf.objectives import MostViolated

NAMES = ["sea", "land", "air"]  # sorted: air, land, sea
COST = np.array([[0.0, 1.0, 9.0], [2.0, 0.0, 3.0], [4.0, 0.5, 0.0]])
SORTED = np.array([[0.0, 0.5, 4.0], [3.0, 0.0, 2.0], [9.0, 1.0, 0.0]])


def data(seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat(rng.integers(3, size=(20, 2)), 3, axis=1)
    return np.eye(3)[y] + rng.normal(size=(20, 6, 3)), np.array(NAMES)[y]


def test_order():
    np.testing.assert_array_equal(sort_cost_by_class(COST, NAMES), SORTED)
    np.testing.assert_array_equal(sort_cost_by_class(COST.tolist(), [*NAMES, "sea"]), SORTED)
    np.testing.assert_array_equal(sort_cost_by_class(SORTED, sorted(NAMES)), SORTED)
    assert sort_cost_by_class("hamming", NAMES) == "hamming"
    assert sort_cost_by_class(COST, None) is COST


ESTIMATORS = {
    "DRFClassifier": lambda cost, classes: DRFClassifier(cost=cost, classes=classes),
    "M3NClassifier": lambda cost, classes: M3NClassifier(learning=MaxMargin(cost=cost), classes=classes),
    "TRWCRF": lambda cost, classes: TRWCRF(learning=Exact(cost=cost), classes=classes),
    "ContrastiveCRF": lambda cost, classes: ContrastiveCRF(
        learning=ContrastiveTraining(generator=MostViolated("icm", cost)), classes=classes, random_state=0
    ),
    "RegressionTreeFieldClassifier": lambda cost, classes: RegressionTreeFieldClassifier(
        loss="multinomial", cost=cost, classes=classes, random_state=0
    ),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_costs_are_in_the_order_of_the_named_classes(name):
    X, y = data()
    if name == "RegressionTreeFieldClassifier":
        X, y = np.repeat(X[:, :, np.newaxis], 6, axis=2), np.repeat(y[:, :, np.newaxis], 6, axis=2)
    make = ESTIMATORS[name]
    # Without names, classes are in sorted order, as if named in that order.
    expected = make(SORTED, None).fit(X, y).predict(X)
    np.testing.assert_array_equal(make(COST, NAMES).fit(X, y).predict(X), expected)
    np.testing.assert_array_equal(make(SORTED, sorted(NAMES)).fit(X, y).predict(X), expected)
    assert np.any(make(COST, sorted(NAMES)).fit(X, y).predict(X) != expected)


@pytest.mark.parametrize("name", [*ESTIMATORS])
@pytest.mark.parametrize("classes", [None, NAMES])
def test_frames_are_read_by_their_names(name, classes):
    pd = pytest.importorskip("pandas")
    named = pd.DataFrame(COST, index=NAMES, columns=NAMES)
    X, y = data()
    expected = ESTIMATORS[name](SORTED, None).fit(X, y).predict(X)
    for order in (NAMES, NAMES[::-1]):
        found = ESTIMATORS[name](named.loc[order, NAMES], classes).fit(X, y)
        np.testing.assert_array_equal(found.predict(X), expected)


def test_frames_with_other_names():
    pd = pytest.importorskip("pandas")
    np.testing.assert_array_equal(sort_cost_by_class(pd.DataFrame(COST), NAMES), SORTED)
    for frame in (
        pd.DataFrame(COST, columns=NAMES),
        pd.DataFrame(COST, index=list("abc"), columns=list("abc")),
        pd.DataFrame(COST, index=NAMES, columns=["sea", "sea", "air"]),
    ):
        with pytest.raises(ValueError, match="rows and columns must both be named by the classes, got rows"):
            sort_cost_by_class(frame, NAMES)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (COST - 9 * (COST == 9), None),
        (-COST, r"cost must not be negative, found cost\[0, 1\] = -"),
        (COST + np.diag([0, 2, 0]), r"cost must be zero on its diagonal, found cost\[1, 1\] = 2"),
        (COST[:2], r"cost must have shape \(3, 3\)"),
        (np.where(COST == 9, np.nan, COST), "cost must be finite, found nan"),
        ([[0, 1], [1]], "different lengths"),
    ],
    ids=["valid", "negative", "diagonal", "shape", "NaN", "ragged"],
)
def test_costs_are_checked(name, cost, message):
    X, y = data()
    if name == "RegressionTreeFieldClassifier":
        X, y = np.repeat(X[:, :, np.newaxis], 6, axis=2), np.repeat(y[:, :, np.newaxis], 6, axis=2)
    field = ESTIMATORS[name](cost, None)
    if message is None:
        field.fit(X, y)
        return
    with pytest.raises(ValueError, match=message):
        field.fit(X, y)
