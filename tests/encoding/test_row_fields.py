"""Fields of the rows of a table, compared with examples in which every node has the features of the row."""

import numpy as np
import pytest

from sklearn_crf import TRWCRF, DRFClassifier, Graph, M3NClassifier
from sklearn_crf.encoding import RowFields, SharedRows, encode_X, make_batches
from sklearn_crf.encoding._examples import stacked
from sklearn_crf.inference import LoopyBP, TreeInference

pytestmark = pytest.mark.filterwarnings("ignore:L-BFGS ended")

TREE = Graph(4, [[0, 1], [1, 2], [1, 3]])
CYCLE = Graph(3, [[0, 1], [1, 2], [0, 2]])


def drawn(n_rows, graph, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, 3)).astype(dtype)
    return rows, (rows @ rng.normal(size=(3, graph.n_nodes)) + rng.normal(size=(n_rows, graph.n_nodes)) > 0).astype(int)


def test_shared_rows_are_as_repeated_ones():
    rng = np.random.default_rng(0)
    shared = SharedRows(rng.normal(size=(5, 3)), 2)
    dense = np.asarray(shared)
    assert dense.tolist() == np.repeat(shared.rows, 2, axis=0).tolist()
    coef, columns = rng.normal(size=(2, 4, 3)), rng.normal(size=(10, 4))
    types = np.arange(10) % 2
    assert shared.scores(coef) == pytest.approx(np.einsum("nf,nkf->nk", dense, coef[types]))
    by_coef, by_constant = shared.gradient(columns)
    for t in range(2):
        assert by_coef[t] == pytest.approx(columns[types == t].T @ dense[types == t])
        assert by_constant[t] == pytest.approx(columns[types == t].sum(axis=0))


@pytest.mark.parametrize(
    "nodes",
    [slice(None), slice(2, 6), slice(0, 0), slice(4, None), slice(1, 6), slice(0, 6, 2), [3, 1], np.arange(10) > 6],
    ids=str,
)
def test_shared_rows_are_indexed_as_repeated_ones(nodes):
    shared = SharedRows(np.arange(15.0).reshape(5, 3), 2)
    assert np.asarray(shared[nodes]).tolist() == np.asarray(shared)[nodes].tolist()


def test_shared_rows_are_stacked():
    first, second = SharedRows(np.ones((2, 3)), 2), SharedRows(np.zeros((1, 3)), 2)
    assert np.asarray(stacked([first, second])).tolist() == 4 * [[1.0] * 3] + 2 * [[0.0] * 3]


@pytest.mark.parametrize("graph", [TREE, CYCLE, Graph(1, [])], ids=["tree", "cycle", "one node"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("estimator", [TRWCRF(), DRFClassifier(learning="pl"), M3NClassifier()], ids=str)
def test_fields_learn_and_predict_as_from_examples(estimator, graph, dtype, weighted):
    rows, y = drawn(40, graph, dtype)
    rows[:, 1] = rows[:, 1] * 1000 + 5000  # features in other units, with means far from 0
    weight = np.random.default_rng(1).integers(1, 3, size=40).astype(float) if weighted else None
    fields = RowFields(rows, graph)
    options = {"max_iter": 40, "random_state": 0}
    found = estimator.set_params(**options).fit(fields, y, sample_weight=weight)
    coef, predicted = found.coef_, found.predict(fields)
    found = estimator.fit(list(fields), list(y), sample_weight=weight)
    tolerance = 1e-5 if dtype is np.float64 else 2e-2
    assert coef == pytest.approx(found.coef_, rel=tolerance, abs=tolerance * np.abs(coef).max())
    assert predicted.dtype == y.dtype
    assert np.mean(predicted == np.stack(found.predict(list(fields)))) > 0.98


@pytest.mark.parametrize("graph", [TREE, CYCLE], ids=["tree", "cycle"])
def test_the_same_bits_for_any_number_of_threads(graph):
    rows, y = drawn(3000, graph)
    one, two = (TRWCRF(max_iter=15, n_jobs=n_jobs).fit(RowFields(rows, graph), y) for n_jobs in (1, 2))
    assert one.coef_.tobytes() == two.coef_.tobytes()
    fields = RowFields(rows, graph)
    assert one.predict_proba(fields).tobytes() == two.predict_proba(fields).tobytes()


def test_batches_of_one_example_and_of_many():
    rows, _ = drawn(9000, TREE)
    encoded = encode_X(RowFields(rows, TREE))
    assert len(make_batches(encoded, max_nodes=1)) == 9000
    sizes = [len(batch.members) for batch in make_batches(encoded)]
    assert sizes == [4096, 4096, 808]
    wide = encode_X(RowFields(rows, Graph(60, [])))
    assert {len(batch.members) for batch in make_batches(wide)[:-1]} == {1092}
    few = encode_X(RowFields(rows[:800], Graph(60, [])))
    assert [len(batch.members) for batch in make_batches(few)] == [273, 273, 254]


@pytest.mark.parametrize("inference", [TreeInference(), LoopyBP()], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("spread", [1.0, 300.0])
def test_marginals_of_nodes_alone_are_those_of_all(inference, dtype, spread):
    rows, y = drawn(50, TREE, dtype)
    field = TRWCRF(max_iter=10).fit(RowFields(rows, TREE), y)
    field.edge_coef_ = field.edge_coef_ * spread
    for model in field.models(RowFields(rows[:5], TREE)):
        assert inference.node_marginals(model).tobytes() == inference.marginals(model).unary.tobytes()
