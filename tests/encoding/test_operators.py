"""Node features that are linear operators: the same fields as with arrays, and errors if entries are needed."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from sklearn.preprocessing import StandardScaler

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Example, M3NClassifier
from sklearn_crf.encoding import OperatorFeatures, encode_X, make_batches
from sklearn_crf.encoding._examples import stacked
from sklearn_crf.graphs import lattice
from sklearn_crf.preprocessing import NodeTransformer


class TimesTwo:
    """A minimal operator, without dtype and further products."""

    def __init__(self, matrix):
        self._matrix = matrix
        self.shape = matrix.shape

    def __matmul__(self, weights):
        return 2 * (self._matrix @ weights)

    @property
    def T(self):
        return TimesTwo(self._matrix.T)


def examples(make=aslinearoperator, n_classes=2, chains=False, typed=False):
    rng = np.random.default_rng(0)
    X, y = [], []
    for i in range(5):
        graph = lattice((6 + i,) if chains else (3, 3 + i))
        labels = rng.integers(n_classes, size=graph.n_nodes)
        rows = np.eye(n_classes)[labels] @ rng.normal(size=(n_classes, 4)) + rng.normal(size=(graph.n_nodes, 4))
        types = np.arange(graph.n_nodes) % 2 if typed else None
        X.append(Example(make(rows), graph, node_type=types))
        y.append(labels)
    return X, y


ESTIMATORS = {
    "relaxation": TRWCRF(edge_features="constant"),
    "pseudolikelihood": TRWCRF(learning="pseudolikelihood", edge_features="constant"),
    "piecewise": TRWCRF(learning="piecewise", edge_features="constant"),
    "drf": DRFClassifier(edge_features="constant"),
    "drf pl": DRFClassifier(learning="pl", edge_features="constant"),
    "smoothed margin": M3NClassifier(learning="smoothed_margin", edge_features="constant"),
    "one slack": M3NClassifier(solver="one_slack", edge_features="constant"),
    "contrastive": ContrastiveCRF(edge_features="constant", random_state=0),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("options", [{}, {"n_classes": 3}, {"chains": True}, {"typed": True}], ids=str)
def test_fields_are_those_of_the_entries(name, options):
    estimator = ESTIMATORS[name]
    X, y = examples(np.asarray, **options)
    dense = estimator.fit(X, y)
    coef, labels = dense.coef_, dense.predict(X)
    X, _ = examples(**options)
    found = estimator.fit(X, y)
    assert_allclose(found.coef_, coef, rtol=1e-6, atol=1e-6 * np.abs(coef).max())
    assert all(np.array_equal(a, b) for a, b in zip(found.predict(X), labels, strict=True))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["cutting_plane", "frank_wolfe", "auto"])
def test_margins_reach_the_same_optimum_by_any_solver(solver):
    X, y = examples(chains=True)
    rows, _ = examples(np.asarray, chains=True)
    options = {"edge_features": "constant", "tol": 1e-4, "max_iter": 3000, "random_state": 0}
    bounds = []
    for data in (X, rows):
        fitted = M3NClassifier(solver=solver, **options).fit(data, y)
        bounds.append((np.min(fitted.loss_curve_) - fitted.duality_gap_, np.min(fitted.loss_curve_)))
    (low, high), (low_of_rows, high_of_rows) = bounds
    assert low <= high_of_rows * (1 + 1e-9)
    assert low_of_rows <= high * (1 + 1e-9)
    assert high - low < 1e-3 * high


def test_any_object_with_products_is_an_operator():
    X, y = examples(lambda rows: TimesTwo(rows / 2))
    dense, _ = examples(np.asarray)
    field = TRWCRF(edge_features="constant")
    assert_allclose(field.fit(X, y).coef_, field.fit(dense, y).coef_, rtol=1e-6)


def test_precision_is_that_of_the_operator():
    X, y = examples(lambda rows: aslinearoperator(rows.astype(np.float32)))
    assert make_batches(encode_X(X, edge_features="constant"))[0].example.node_features.dtype == np.float32
    assert TRWCRF(edge_features="constant").fit(X, y).models(X)[0].unary.dtype == np.float32


def test_threads_and_pickles():
    X, y = examples()
    one, two = (TRWCRF(edge_features="constant", n_jobs=n).fit(X, y) for n in (1, 2))
    assert_array_equal(one.coef_, two.coef_)
    assert_array_equal(one.predict(pickle.loads(pickle.dumps(X)))[0], two.predict(X)[0])


def test_rows_and_stacks():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    whole = np.concatenate([first, second])
    parts = [OperatorFeatures([aslinearoperator(rows)]) for rows in (first, second)]
    chosen = np.array([7, 0, 3])
    weights, numbers = rng.normal(size=(3, 2)), rng.normal(size=(9, 2))
    both = stacked(parts)
    assert both.shape == (9, 3)
    assert len(both) == 9
    assert both[:] is both
    assert_allclose(both @ weights, whole @ weights)
    assert_allclose(both.T @ numbers, whole.T @ numbers)
    for part in (slice(0, 4), slice(4, 9), slice(4, None), slice(2, 6), slice(3, 3), slice(None, None, 2)):
        assert_allclose(both[part] @ weights, whole[part] @ weights)
        assert_allclose(both[part].T @ numbers[part], whole[part].T @ numbers[part])
    assert_allclose(both[chosen] @ weights, whole[chosen] @ weights)
    assert_allclose(both[chosen].T @ numbers[:3], whole[chosen].T @ numbers[:3])
    assert_allclose(both[chosen][1:] @ weights, whole[chosen][1:] @ weights)
    again = stacked([parts[0][[1, 2]], parts[1]])
    assert_allclose(again @ weights, np.concatenate([first[1:3], second]) @ weights)


def test_operators_beside_arrays():
    X, y = examples()
    rows, _ = examples(np.asarray)
    field = TRWCRF(edge_features="constant")
    mixed = field.fit([*X[:2], *rows[2:]], y).coef_
    assert_allclose(mixed, field.fit(rows, y).coef_, rtol=1e-6)


def with_products(forward, backward, shape=(4, 3)):
    return LinearOperator(shape, matvec=forward, rmatvec=backward, matmat=forward, rmatmat=backward, dtype=np.float64)


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (aslinearoperator(np.full((4, 3), np.nan)), "whose product `@` with an array of shape .3, 1. is not finite"),
        (aslinearoperator(np.ones((4, 3), dtype=complex)), "node_features must be a real operator, got complex128"),
        (with_products(lambda w: np.ones((4, w.shape[1])), None), "`.T @` with an array of shape .4, 1. failed"),
        (TimesTwo(np.ones((4, 3, 2))), r"must have shape \(n_nodes, n_features\), got \(4, 3, 2\)"),
        (aslinearoperator(np.ones((5, 3))), "edges is a graph of 4 nodes, but node_features has 5 rows"),
    ],
)
def test_bad_operators(operator, message):
    with pytest.raises(ValueError, match=message):
        Example(operator, lattice((4,)))


def test_errors_where_entries_are_needed():
    X, y = examples()
    with pytest.raises(ValueError, match="cannot be computed from a linear operator as node_features"):
        DRFClassifier(edge_features="difference").fit(X, y)
    sparse = [Example(sp.csr_matrix(np.ones((x.n_nodes, 4))), x.graph) for x in X[:1]]
    with pytest.raises(ValueError, match="a linear operator with sparse"):
        TRWCRF(edge_features="constant").fit([*sparse, *X[1:]], y)
    with pytest.raises(ValueError, match="has no rows to transform"):
        NodeTransformer(StandardScaler()).fit(X, y)
