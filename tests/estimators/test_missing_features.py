"""Missing node features: filled with means, marked by indicators, as by an imputer before the field."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse.linalg import aslinearoperator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Example, M3NClassifier, Shards
from sklearn_crf.inspection import top_features, top_transitions
from sklearn_crf.learning import ContrastiveTraining, MaximumLikelihood, MaxMargin
from sklearn_crf.pipeline import make_pipeline
from sklearn_crf.potentials import PairwiseTables, Segments
from sklearn_crf.preprocessing import NodeTransformer

FIELDS = [TRWCRF(), DRFClassifier(), M3NClassifier(random_state=0), ContrastiveCRF(random_state=0)]
LAYOUTS = {"rows": (40,), "chains": (12, 7), "images": (6, 5, 4)}


def gappy(shape, seed=0, dtype=np.float64):
    """Return features, of which the first two have gaps, and labels that depend on all of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(*shape, 3)) + 5
    y = (X.sum(axis=-1) + 0.5 * rng.normal(size=shape) > 15).astype(int)
    X[..., :2][rng.random((*shape, 2)) < 0.25] = np.nan
    return X.astype(dtype), y


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("field", FIELDS, ids=lambda field: type(field).__name__)
def test_fields_fill_as_an_imputer_does(field, layout, dtype):
    X, y = gappy(LAYOUTS[layout], dtype=dtype)
    new, _ = gappy(LAYOUTS[layout], 1, dtype)
    options = {"edge_features": "constant", "tol": 1e-6}
    found = type(field)(**field.get_params() | options).fit(X, y)
    wanted = make_pipeline(
        NodeTransformer(SimpleImputer(add_indicator=True)), type(field)(**field.get_params() | options)
    ).fit(X, y)
    assert (found.n_features_in_, found.indicator_features_.tolist()) == (3, [0, 1])
    assert_allclose(found.fill_values_, np.nanmean(X.reshape(-1, 3), axis=0), rtol=1e-5)
    # The random labelings of ContrastiveCRF on graphs with cycles depend on the last digit of the features.
    is_random = layout == "images" and isinstance(field, ContrastiveCRF)
    if not is_random:
        assert_allclose(found.coef_, wanted[-1].coef_, atol=2e-3 if dtype == np.float32 else 1e-6)
    assert np.mean(found.predict(new) == wanted.predict(new)) > (0.8 if is_random else 0.97)
    assert np.mean(found.predict(list(new)) == found.predict(new)) == 1 if layout == "rows" else True
    assert_array_equal(pickle.loads(pickle.dumps(found)).predict(new), found.predict(new))


def test_examples_lists_and_arrays_are_filled_alike():
    X, y = gappy((12, 7))
    chain = [[i, i + 1] for i in range(6)]
    of_array, of_list = TRWCRF(tol=1e-7).fit(X, y), TRWCRF(tol=1e-7).fit(list(X), list(y))
    of_examples = TRWCRF(tol=1e-7, pairwise="full").fit([Example(x, chain) for x in X], list(y))
    assert_allclose(of_list.coef_, of_array.coef_, atol=1e-6)
    assert_allclose(of_examples.coef_, of_array.coef_, atol=1e-6)


@pytest.mark.parametrize("kind", [TRWCRF, DRFClassifier])
def test_weights_are_copies(kind):
    X, y = gappy((8, 6))
    weighted = kind(tol=1e-8).fit(X, y, sample_weight=[2, 2, 2, 2, 1, 1, 1, 1])
    copied = kind(tol=1e-8).fit(np.concatenate((X[:4], X)), np.concatenate((y[:4], y)))
    assert_allclose(weighted.fill_values_, copied.fill_values_)
    assert_allclose(weighted.coef_, copied.coef_, atol=1e-6)


@pytest.mark.parametrize(
    "tables", [PairwiseTables(boundary_weights=True), PairwiseTables(segments=Segments(max_duration=3))]
)
def test_other_added_features_stay_apart(tables):
    X, y = gappy((12, 7))
    field = TRWCRF(pairwise=tables).fit(X, y)
    assert field.coef_.shape == (1, 5)
    assert field.score(X, y) > 0.7
    if tables.boundary_weights:
        assert field.boundary_coef_.shape == (2, 1)


def test_differences_on_edges_are_of_filled_features_only():
    X, y = gappy((6, 5, 4))
    field = TRWCRF(edge_features="difference", pairwise="potts").fit(X, y)
    assert field.edge_coef_.shape == (1, 4, 1)
    filled = np.where(np.isnan(X), field.fill_values_, X)
    marked = np.concatenate([filled, np.isnan(X[..., :2])], axis=-1)
    by_hand = TRWCRF(edge_features=lambda a, b: np.c_[np.ones(len(a)), np.abs(a - b)[:, :3]], pairwise="potts")
    assert np.mean(by_hand.fit(marked, y).predict(marked) == field.predict(X)) > 0.95


def test_weights_of_indicators_have_names():
    field = TRWCRF().fit(*gappy((12, 7)))
    names = {weight.feature for weight in top_features(field, None)}
    assert names == {"x0", "x1", "x2", "x0 missing", "x1 missing", "intercept"}


def test_partial_fit_and_warm_starts_keep_the_filling():
    X, y = gappy((12, 7))
    field = TRWCRF(random_state=0).partial_fit(X[:6], y[:6], classes=[0, 1])
    values = field.fill_values_
    assert_array_equal(field.partial_fit(X[6:], y[6:]).fill_values_, values)
    warm = TRWCRF(warm_start=True).fit(X, y)
    assert warm.fit(X, y).n_iter_ <= 3


LEARNINGS = {TRWCRF: MaximumLikelihood, M3NClassifier: MaxMargin, ContrastiveCRF: ContrastiveTraining}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", LEARNINGS)
def test_means_without_marks_fill_as_an_imputer_does(kind, dtype):
    means = {"learning": LEARNINGS[kind](missing_features="mean"), "random_state": 0, "tol": 1e-6}
    X, y = gappy(LAYOUTS["chains"], dtype=dtype)
    new, _ = gappy(LAYOUTS["chains"], 1, dtype)
    X.flags.writeable = new.flags.writeable = False
    imputer = NodeTransformer(SimpleImputer())
    for given in (X, np.nan_to_num(X)):  # with and without gaps in training
        found = kind(**means).fit(given, y)
        wanted = make_pipeline(imputer, kind(**means | {"learning": LEARNINGS[kind]()})).fit(given, y)
        assert found.indicator_features_.tolist() == []
        assert_allclose(found.fill_values_, np.nanmean(given.reshape(-1, 3), axis=0), rtol=1e-5)
        assert_allclose(found.coef_, wanted[-1].coef_, atol=2e-3 if dtype == np.float32 else 1e-6)
        assert np.mean(found.predict(new) == wanted.predict(new)) > 0.97
        assert_array_equal(pickle.loads(pickle.dumps(found)).predict(new), found.predict(new))


@pytest.mark.parametrize("kind", LEARNINGS)
def test_gaps_that_first_occur_later(kind):
    X, y = gappy((12, 7))
    complete = np.nan_to_num(X, nan=5.0)
    field = kind(random_state=0, learning=LEARNINGS[kind](missing_features="mean"))
    field.partial_fit(complete[:6], y[:6], classes=[0, 1]).partial_fit(X[6:], y[6:])
    assert_allclose(field.fill_values_, complete[:6].reshape(-1, 3).mean(axis=0))
    filled = np.where(np.isnan(X[6:]), field.fill_values_, X[6:])
    by_hand = kind(random_state=0).partial_fit(complete[:6], y[:6], classes=[0, 1]).partial_fit(filled, y[6:])
    assert_allclose(field.coef_, by_hand.coef_)
    for later in (field, kind(random_state=0, learning=LEARNINGS[kind](missing_features="mean")).fit(complete, y)):
        everywhere = np.full_like(X, np.nan)
        assert_array_equal(later.predict(everywhere), later.predict(np.zeros_like(X) + later.fill_values_))
    marked = kind(random_state=0).partial_fit(X[:6], y[:6], classes=[0, 1])
    lacking = complete.copy()
    lacking[7, 0, 2] = np.nan
    with pytest.raises(ValueError, match=r"feature 2, which had no missing values in fit: set missing_features='mean'"):
        marked.partial_fit(lacking[6:], y[6:])
    with pytest.raises(ValueError, match="contains NaN: fill in missing values"):
        kind(random_state=0).partial_fit(complete[:6], y[:6], classes=[0, 1]).partial_fit(X[6:], y[6:])


def test_means_of_edges_and_shards_without_marks():
    X, y = gappy_edges()
    means = MaximumLikelihood(missing_features="mean")
    found = TRWCRF(learning=means, tol=1e-7).fit(X, y)
    assert found.edge_indicator_features_.tolist() == []
    assert found.edge_coef_.shape[:2] == (1, 2)
    ties = np.concatenate([x.edge_features for x in X])
    assert_allclose(found.edge_fill_values_, np.nanmean(ties, axis=0))
    whole = [Example(x.node_features, x.graph.edges, edge_features=np.nan_to_num(x.edge_features)) for x in X]
    parts = [slice(k, k + 10) for k in (0, 10, 20)]
    field = TRWCRF(learning=means, tol=1e-7).fit(Shards(parts, lambda part: (whole[part], y[part])))
    assert_allclose(field.edge_fill_values_, np.nan_to_num(ties).mean(axis=0))
    filled = [
        Example(x.node_features, x.graph.edges, edge_features=np.where(np.isnan(own), field.edge_fill_values_, own))
        for x in X
        for own in [x.edge_features]
    ]
    assert all(map(np.array_equal, field.predict(X), field.predict(filled)))


@pytest.mark.parametrize("kind", LEARNINGS)
def test_refused_gaps_and_invalid_options(kind):
    X, y = gappy((12, 7))
    field = kind(learning=LEARNINGS[kind](missing_features="error"))
    with pytest.raises(ValueError, match="contains NaN: fill in missing values"):
        field.fit(X, y)
    with pytest.raises(ValueError, match="contains NaN: fill in missing values"):
        field.fit(Shards([0], lambda _: (X, y)))
    assert field.fit(np.nan_to_num(X), y).fill_values_ is None
    with pytest.raises(ValueError, match="missing_features"):
        kind(learning=LEARNINGS[kind](missing_features="median")).fit(X, y)
    search = GridSearchCV(field, {"learning__missing_features": ["mark", "mean"]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.6


def test_means_leave_operators_alone():
    X, y = gappy((12, 7))
    graphs = [Example(aslinearoperator(np.nan_to_num(x)), [[i, i + 1] for i in range(6)]) for x in X]
    field = TRWCRF(learning=MaximumLikelihood(missing_features="mean"), max_iter=20, tol=1e-2).fit(graphs, list(y))
    assert field.fill_values_ is None


def test_searches_work_with_gaps():
    X, y = gappy((12, 7))
    search = GridSearchCV(TRWCRF(), {"C": [0.1, 1.0]}, cv=3, n_jobs=2).fit(X, y)
    assert search.best_score_ > 0.7


def gappy_edges(seed=0, dtype=np.float64):
    """Return graphs with edge features, of which the second has gaps, and labels that agree where it is large."""
    rng = np.random.default_rng(seed)
    edges = np.array([[i, i + 1] for i in range(7)] + [[0, 4], [2, 7]])
    X, labels = [], []
    for _ in range(30):
        y = rng.integers(2, size=8)
        agrees = y[edges[:, 0]] == y[edges[:, 1]]
        ties = np.c_[np.ones(len(edges)), agrees + 0.5 * rng.normal(size=len(edges))]
        ties[rng.random(len(edges)) < 0.3, 1] = np.nan
        nodes = (y + rng.normal(size=8))[:, np.newaxis]
        X.append(Example(nodes.astype(dtype), edges, edge_features=ties.astype(dtype)))
        labels.append(y)
    return X, labels


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("field", FIELDS[:3], ids=lambda field: type(field).__name__)
def test_edge_features_are_filled_as_by_hand(field, dtype):
    X, y = gappy_edges(dtype=dtype)
    new, _ = gappy_edges(1, dtype)
    weight = np.arange(1.0, 31.0)
    ties = np.concatenate([x.edge_features for x in X])
    mean = np.average(np.nan_to_num(ties), axis=0, weights=np.repeat(weight, 9)[:, np.newaxis] * ~np.isnan(ties))

    def by_hand(examples):
        return [
            Example(
                x.node_features,
                x.graph.edges,
                edge_features=np.c_[
                    np.where(np.isnan(x.edge_features), mean, x.edge_features), np.isnan(x.edge_features)[:, 1]
                ],
            )
            for x in examples
        ]

    def make():
        return type(field)(**field.get_params() | {"tol": 1e-6})

    found, wanted = make().fit(X, y, sample_weight=weight), make().fit(by_hand(X), y, sample_weight=weight)
    assert_allclose(found.edge_fill_values_, mean, rtol=1e-5)
    assert found.edge_indicator_features_.tolist() == [1]
    assert found.indicator_features_.tolist() == []
    assert_allclose(found.edge_coef_, wanted.edge_coef_, atol=2e-3 if dtype == np.float32 else 1e-6)
    assert all(map(np.array_equal, found.predict(new), wanted.predict(by_hand(new))))
    again = pickle.loads(pickle.dumps(found))
    assert all(map(np.array_equal, again.predict(new), found.predict(new)))
    assert {weight.feature for weight in top_transitions(found, None)} <= {"edge0", "edge1", "edge1 missing"}


def test_gaps_of_edges_that_cannot_be_filled():
    X, y = gappy_edges()
    field = TRWCRF().fit(X, y)
    lacking = Example(X[0].node_features, X[0].graph.edges, edge_features=np.full((9, 2), np.nan))
    with pytest.raises(
        ValueError, match=r"X\[0\].edge_features contains NaN in feature 0, which had no missing values in fit"
    ):
        field.predict([lacking])
    with pytest.raises(ValueError, match=r"X\[0\] has no edge_features, but edge_features had missing values in fit"):
        field.predict([Example(X[0].node_features, X[0].graph.edges)])
    with pytest.raises(ValueError, match="Feature 0 of edge_features has no known value"):
        TRWCRF().fit([lacking], y[:1])
    nodes = np.where(np.arange(8) % 3 == 0, np.nan, X[0].node_features[:, 0])[:, np.newaxis]
    both = [Example(nodes, X[0].graph.edges, edge_features=X[0].edge_features), *X[1:]]
    assert TRWCRF().fit(both, y).indicator_features_.tolist() == [0]


def test_what_was_complete_in_fit_must_stay_complete():
    X, y = gappy((12, 7))
    field = TRWCRF().fit(X, y)
    lacking = X.copy()
    lacking[3, 2, 2] = np.nan
    with pytest.raises(ValueError, match="X contains NaN in feature 2, which had no missing values in fit"):
        field.predict(lacking)
    with pytest.raises(ValueError, match=r"X\[3\] contains NaN in feature 2"):
        field.predict(list(lacking))
    complete = TRWCRF().fit(np.nan_to_num(X), y)
    assert complete.fill_values_ is None
    with pytest.raises(ValueError, match="contains NaN: fill in missing values"):
        complete.predict(X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("field", FIELDS, ids=lambda field: type(field).__name__)
def test_shards_are_filled_by_the_means_of_all_shards(field, layout, dtype):
    X, y = gappy(LAYOUTS[layout], dtype=dtype)
    X[: len(X) // 3] = np.nan_to_num(X[: len(X) // 3])
    parts = [slice(k, k + len(X) // 3) for k in range(0, len(X), len(X) // 3)]
    weight = 1.0 + np.arange(len(X)) % 2
    options = field.get_params() | {"tol": 1e-6}
    whole = type(field)(**options).fit(X, y, sample_weight=weight)
    found = type(field)(**options).fit(Shards(parts, lambda part: (X[part], y[part], weight[part])))
    assert_allclose(found.fill_values_, whole.fill_values_, rtol=1e-6)
    assert_array_equal(found.indicator_features_, whole.indicator_features_)
    # The random labelings of ContrastiveCRF on graphs with cycles depend on the last digit of the features.
    if layout != "images" or not isinstance(field, ContrastiveCRF):
        assert_allclose(found.coef_, whole.coef_, atol=2e-3 if dtype == np.float32 else 1e-6)
    assert_array_equal(pickle.loads(pickle.dumps(found)).predict(X), found.predict(X))


def test_edge_features_in_shards_are_filled():
    X, y = gappy_edges()
    parts = [slice(k, k + 10) for k in (0, 10, 20)]
    found = TRWCRF(tol=1e-7).fit(Shards(parts, lambda part: (X[part], y[part])))
    whole = TRWCRF(tol=1e-7).fit(X, y)
    assert_allclose(found.edge_fill_values_, whole.edge_fill_values_)
    assert_allclose(found.edge_coef_, whole.edge_coef_, atol=1e-5)


def test_a_feature_without_a_value_in_one_shard():
    X, y = gappy((12, 7))
    X[:4, :, 0] = np.nan
    shards = Shards(range(0, 12, 4), lambda i: (X[i : i + 4], y[i : i + 4]))
    assert_allclose(TRWCRF().fit(shards).fill_values_, np.nanmean(X.reshape(-1, 3), axis=0))
    X[..., 0] = np.nan
    with pytest.raises(ValueError, match="Feature 0 of X has no known value"):
        TRWCRF().fit(shards)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array, sp.coo_array])
@pytest.mark.parametrize("field", FIELDS, ids=lambda field: type(field).__name__)
def test_sparse_features_are_filled_as_dense_ones(field, kind, dtype):
    options = field.get_params() | {"edge_features": "constant", "tol": 1e-6}
    for shape in [(40,), (12, 7)]:
        X, y = gappy(shape, dtype=dtype)
        X[..., 2][X[..., 2] < 5] = 0
        sparse = kind(X) if len(shape) == 1 else list(map(kind, X))
        weight = 1.0 + np.arange(len(X)) % 2
        wanted = type(field)(**options).fit(X, y, sample_weight=weight)
        found = type(field)(**options).fit(sparse, y if len(shape) == 1 else list(y), sample_weight=weight)
        assert_allclose(found.fill_values_, wanted.fill_values_, rtol=1e-6)
        assert_array_equal(found.indicator_features_, wanted.indicator_features_)
        assert_allclose(np.asarray(found.coef_), wanted.coef_, atol=2e-3 if dtype == np.float32 else 1e-6)
        assert np.mean(np.stack(found.predict(sparse)) == wanted.predict(X)) > 0.97
        rows = sparse if len(shape) == 1 else sparse[0]
        assert np.isnan(rows.data).sum() == np.isnan(X if len(shape) == 1 else X[0]).sum()


def test_sparse_edge_features_are_filled_as_dense_ones():
    X, y = gappy_edges()
    sparse = [Example(x.node_features, x.graph.edges, edge_features=sp.csr_array(x.edge_features)) for x in X]
    found, wanted = TRWCRF(tol=1e-8, weights="all").fit(sparse, y), TRWCRF(tol=1e-8, pairwise="full").fit(X, y)
    assert_allclose(found.edge_fill_values_, wanted.edge_fill_values_)
    assert found.edge_indicator_features_.tolist() == [1]
    assert all(map(np.array_equal, found.predict(sparse), wanted.predict(X)))
    lacking = Example(X[0].node_features, X[0].graph.edges, edge_features=sp.csr_array(np.full((9, 2), np.nan)))
    with pytest.raises(
        ValueError, match=r"X\[0\].edge_features contains NaN in feature 0, which had no missing values in fit"
    ):
        found.predict([lacking])


def test_gaps_that_are_refused():
    X, y = gappy((12, 7))
    with pytest.raises(ValueError, match="infinity"):
        TRWCRF().fit(np.where(np.isnan(X), np.inf, X), y)
    with pytest.raises(ValueError, match="infinity"):
        TRWCRF().fit([sp.csr_array(np.where(np.isnan(x), np.inf, x)) for x in X], list(y))
    with pytest.raises(ValueError, match="infinity"):
        TRWCRF().fit(Shards([0], lambda _: (np.where(np.isnan(X), np.inf, X), y)))
