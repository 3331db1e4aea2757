"""TRWCRF: scikit-learn's contract, the exact field on chains and trees, sparse features, what is kept and refused."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from built_fields import drf_classifier, trw_crf
from estimator_contract import passed_checks
from numpy.testing import assert_allclose, assert_array_equal
from relaxed_problems import sparse_chains
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from sklearn_crf import Example, Shards
from sklearn_crf.estimators import _training_examples
from sklearn_crf.estimators._fitted_field import FieldParameters, FittedField
from sklearn_crf.inference import BruteForce
from sklearn_crf.models import score

TIGHT = {"tol": 1e-9, "max_iter": 2000}


def loss_by_enumeration(model, X, y):
    """Compute the regularised objective from its definition."""
    total = 0.0
    for x, labels in zip(X, y, strict=True):
        potentials = FittedField.of(model).potentials()
        example = Example(x, [[t, t + 1] for t in range(x.shape[0] - 1)])
        values = potentials.model(FittedField.of(model).weights(potentials), example)
        total += BruteForce().marginals(values).log_z - score(values, labels)
    penalty = (model.coef_**2).sum() if not sp.issparse(model.coef_) else (model.coef_.data**2).sum()
    return 0.5 * (penalty + (model.edge_coef_**2).sum()) + model.C * total


def test_check_estimator():
    passed = passed_checks(trw_crf())
    assert len(passed) >= 55


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
def test_without_edges_it_is_logistic_regression(n_classes, form):
    X, y = make_classification(300, 6, n_informative=5, n_redundant=0, n_classes=n_classes, random_state=0)
    weight = np.random.default_rng(0).uniform(0.2, 2, size=300)
    ours = trw_crf(C=0.7, **TIGHT).fit(form(X), y, sample_weight=weight)
    theirs = LogisticRegression(C=0.7, **TIGHT).fit(X, y, sample_weight=weight)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert_allclose(ours.intercept_ - ours.intercept_.mean(), theirs.intercept_ - theirs.intercept_.mean(), atol=1e-5)
    assert_allclose(ours.predict_proba(form(X)), theirs.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("weights", ["all", "seen"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_objective_is_the_likelihood(weights, n_classes):
    X, y = sparse_chains(n_classes=n_classes)
    model = trw_crf(C=0.3, weights=weights, **TIGHT).fit(X, y)
    value = loss_by_enumeration(model, X, y)
    assert_allclose(model.loss_curve_[-1], value, rtol=1e-10)
    # No direction decreases the objective.
    for name in ("coef_", "edge_coef_"):
        moved = clone(model)
        moved.__dict__.update(model.__dict__)
        for step in (-1e-3, 1e-3):
            setattr(moved, name, getattr(model, name) * (1 + step))
            assert loss_by_enumeration(moved, X, y) > value


@pytest.mark.parametrize("n_classes", [2, 3])
def test_sparse_and_dense_features_train_the_same_field(n_classes):
    X, y = sparse_chains(n_classes=n_classes)
    sparse = trw_crf(**TIGHT).fit(X, y)
    dense = trw_crf(**TIGHT).fit([x.toarray() for x in X], y)
    drf = drf_classifier(pairwise="full", edge_features="constant", **TIGHT).fit(X, y)
    for other in (dense, drf):
        assert_allclose(other.coef_, sparse.coef_, atol=1e-5)
        assert_allclose(other.edge_coef_, sparse.edge_coef_, atol=1e-5)
    proba = sparse.predict_proba(X)
    for other in (dense.predict_proba([x.toarray() for x in X]), dense.predict_proba(X)):
        for part, expected in zip(other, proba, strict=True):
            assert_allclose(part, expected, atol=1e-6)


def test_seen_weights_are_those_that_occur():
    X, y = sparse_chains(n_features=100)
    model = trw_crf(weights="seen", **TIGHT).fit(X, y)
    occurs = np.zeros((3, 100), dtype=bool)
    joined = np.zeros((3, 3), dtype=bool)
    for x, labels in zip(X, y, strict=True):
        rows = x.toarray() != 0
        for t, label in enumerate(labels):
            occurs[label] |= rows[t]
        joined[labels[:-1], labels[1:]] = True
    assert not joined.all()
    assert sp.issparse(model.coef_)
    assert_array_equal(model.coef_.toarray() != 0, occurs)
    assert_array_equal(model.edge_coef_.reshape(3, 3) != 0, joined)
    assert model.score(X, y) > 0.9
    # Unseen pairs have negative optimal weights, so leaving them out increases the objective.
    assert model.loss_curve_[-1] > trw_crf(**TIGHT).fit(X, y).loss_curve_[-1]


def wide_chains(n_classes=3, **options):
    """Return chains with more than 100,000 pairs of a feature and a class."""
    return sparse_chains(n_classes=n_classes, n_features=100_001 // n_classes + 1, **options)


def test_many_features_have_weights_for_what_occurs():
    X, y = wide_chains()
    automatic, seen = (trw_crf(weights=weights, **TIGHT).fit(X, y) for weights in ("auto", "seen"))
    assert_array_equal(automatic.coef_.toarray() != 0, seen.coef_.toarray() != 0)
    # Tables are small, so pairs of labels that never occur also have weights.
    assert np.all(automatic.edge_coef_ != 0)
    assert not np.all(seen.edge_coef_ != 0)
    assert automatic.loss_curve_[-1] < seen.loss_curve_[-1]
    again = clone(automatic).set_params(warm_start=True, max_iter=1, tol=1.0).fit(X, y).fit(X, y)
    assert sp.issparse(again.coef_)


def test_few_features_rows_two_classes_and_unlabelled_nodes_have_all_weights():
    X, y = wide_chains()
    fewer = [x[:, : x.shape[1] - 2] for x in X]
    assert isinstance(trw_crf(max_iter=1, tol=1.0).fit(fewer, y).coef_, np.ndarray)
    rows, labels = sp.vstack(X, format="csr"), np.concatenate(y)
    assert trw_crf(max_iter=1, tol=1.0).fit(rows, labels).coef_.shape == (3, rows.shape[1])
    hidden = [np.where(np.arange(len(part)) == 0, -1, part) for part in y]
    partly = trw_crf(missing_label=-1, max_iter=1, tol=1.0).fit(X, hidden)
    assert isinstance(partly.coef_, np.ndarray)
    X, y = wide_chains(n_classes=2)
    assert trw_crf(max_iter=1, tol=1.0).fit(X, y).coef_.shape == (1, X[0].shape[1])


def test_partial_fit_after_weights_for_what_occurs_has_them_for_all():
    X, y = wide_chains()
    model = trw_crf(max_iter=5, tol=1.0).fit(X, y)
    before = model.coef_.toarray()
    model.partial_fit(X, [(part + 1) % 3 for part in y])
    assert isinstance(model.coef_, np.ndarray)
    occurs = before != 0
    assert model.coef_.shape == before.shape
    assert np.any(model.coef_[~occurs])
    first = trw_crf().partial_fit(X, y, classes=[0, 1, 2])
    assert isinstance(first.coef_, np.ndarray)


def test_pickles_of_sparse_models_are_small():
    X, y = sparse_chains(n=60, n_features=3000)
    model = trw_crf(weights="seen").fit(X, y)
    n_bytes = model.coef_.nnz * (8 + 4) + model.edge_coef_.nbytes + model.intercept_.nbytes
    rest = len(pickle.dumps(clone(model))) + 8 * 3 * model.n_iter_
    assert len(pickle.dumps(model)) <= 1.1 * n_bytes + rest + 2000
    copy = pickle.loads(pickle.dumps(model))
    for one, other in zip(copy.predict_proba(X), model.predict_proba(X), strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("weights", ["all", "seen"])
def test_bit_identical_for_any_n_jobs(weights):
    X, y = sparse_chains(n=400, n_features=50, longest=30)
    models = [trw_crf(weights=weights, n_jobs=n_jobs, tol=0.02).fit(X, y) for n_jobs in (1, 2)]
    difference = models[0].coef_ - models[1].coef_
    assert not (difference.nnz if sp.issparse(difference) else difference.any())
    assert_array_equal(models[0].edge_coef_, models[1].edge_coef_)


@pytest.mark.parametrize("weights", ["all", "seen"])
def test_weight_two_is_seen_twice(weights):
    X, y = sparse_chains()
    options = {"weights": weights, **TIGHT}
    weight = np.arange(len(X)) % 3
    weighted = trw_crf(**options).fit(X, y, sample_weight=weight)
    repeated = trw_crf(**options).fit(
        [x for x, n in zip(X, weight, strict=True) for _ in range(n)],
        [labels for labels, n in zip(y, weight, strict=True) for _ in range(n)],
    )
    one, other = (sp.csr_matrix(model.coef_).toarray() for model in (weighted, repeated))
    assert_allclose(one, other, atol=1e-5)
    assert_allclose(weighted.edge_coef_, repeated.edge_coef_, atol=1e-5)


@pytest.mark.parametrize("weights", ["all", "seen"])
def test_warm_start_goes_on(weights):
    X, y = sparse_chains()
    model = trw_crf(weights=weights, warm_start=True, **TIGHT).fit(X, y)
    best = model.loss_curve_[-1]
    model.fit(X, y)
    assert_allclose(model.loss_curve_, best, rtol=1e-9)
    with pytest.raises(ValueError, match="warm_start"):
        model.fit([x[:, :5] for x in X], y)


def test_trees_with_types_of_nodes_and_edges():
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(30):
        n = int(rng.integers(3, 8))
        edges = [[int(rng.integers(i)), i] for i in range(1, n)]
        labels = rng.integers(2, size=n)
        node_type = np.arange(n) % 2
        features = np.stack((labels * np.where(node_type, -1, 1), rng.integers(2, size=n)), axis=1)
        X.append(
            Example(sp.csr_matrix(features.astype(float)), edges, node_type=node_type, edge_type=np.arange(n - 1) % 3)
        )
        y.append(labels)
    dense = [Example(x.node_features.toarray(), x.graph, node_type=x.node_type, edge_type=x.edge_type) for x in X]
    for weights in ("all", "seen"):
        model = trw_crf(weights=weights, **TIGHT).fit(X, y)
        assert model.edge_coef_.shape == (3, 1, 4)
        assert model.intercept_.shape == (2, 2 if weights == "seen" else 1)
        assert model.score(X, y) > 0.95
        assert model.score(dense, y) == model.score(X, y)
        assert_array_equal(pickle.loads(pickle.dumps(model)).fit(X, y).intercept_, model.intercept_)
    assert_allclose(trw_crf(**TIGHT).fit(dense, y).coef_, trw_crf(**TIGHT).fit(X, y).coef_, atol=1e-5)


def test_unlabelled_nodes_are_summed_out():
    X, y = sparse_chains(n=40)
    rng = np.random.default_rng(0)
    partial = [np.where(rng.random(len(labels)) < 0.4, -1, labels) for labels in y]
    for weights in ("all", "seen"):
        model = trw_crf(weights=weights, missing_label=-1).fit(X, partial)
        assert_array_equal(model.classes_, [0, 1, 2])
        assert model.score(X, y) > 0.8


@pytest.mark.parametrize("learning", ["exact", "loopy", "pseudolikelihood"])
def test_learnings_agree_where_they_must(learning):
    X, y = sparse_chains(n=60)
    model = trw_crf(learning=learning, **TIGHT).fit(X, y)
    exact = trw_crf(**TIGHT).fit(X, y)
    if learning == "pseudolikelihood":
        assert np.abs(model.edge_coef_ - exact.edge_coef_).max() > 1e-3
    else:
        assert_allclose(model.coef_, exact.coef_, atol=1e-4)
    assert model.score(X, y) > 0.9


def test_exact_on_cycles_by_junction_trees():
    rng = np.random.default_rng(0)
    X = [Example(rng.normal(size=(4, 2)), [[0, 1], [1, 2], [2, 3], [0, 3]]) for _ in range(12)]
    y = [rng.integers(2, size=4) for _ in X]
    model = trw_crf(learning="exact", **TIGHT).fit(X, y)
    reference = drf_classifier(
        learning="likelihood", inference=BruteForce(), pairwise="full", edge_features="constant", **TIGHT
    ).fit(X, y)
    assert_allclose(model.coef_, reference.coef_, atol=1e-5)


def test_sgd_comes_near():
    X, y = sparse_chains(n=15, n_features=10)
    model = trw_crf(solver="sgd", max_iter=40, step_size=3.0, random_state=0).fit(X, y)
    assert model.loss_curve_[-1] < 1.05 * trw_crf(**TIGHT).fit(X, y).loss_curve_[-1]


def test_grid_search():
    X, y = sparse_chains(n=24)
    search = GridSearchCV(trw_crf(classes=[0, 1, 2]), {"C": [0.01, 1.0], "weights": ["all", "seen"]}, cv=2, n_jobs=2)
    search.fit(X, y)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))


def test_viterbi_and_marginals_predict():
    X, y = sparse_chains()
    model = trw_crf(weights="seen").fit(X, y)
    paths = clone(model).set_params(inference="map").fit(X, y).predict(X)
    potentials = FittedField.of(model).potentials()
    for x, path in zip(X, paths, strict=True):
        values = potentials.model(
            FittedField.of(model).weights(potentials), Example(x, [[t, t + 1] for t in range(x.shape[0] - 1)])
        )
        assert_allclose(score(values, path), BruteForce().map(values).score)
    assert_array_equal(np.argmax(model.predict_proba(X)[0], axis=1), model.predict(X)[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X, [y[0][:-1], *y[1:]] if len(y[0]) > 1 else [np.r_[y[0], 0], *y[1:]]), r"y\[0\] has shape"),
        (lambda X, y: ([X[0], X[1][:, :7], *X[2:]], y), r"X\[1\] has 7 features, but X\[0\] has 40"),
        (lambda X, y: ([x.toarray() for x in X], y), "weights='seen' needs sparse X"),
    ],
)
def test_bad_input_is_named(change, message):
    X, y = change(*sparse_chains())
    with pytest.raises(ValueError, match=message):
        trw_crf(weights="seen").fit(X, y)


def test_bad_input_after_fit_is_named():
    X, y = sparse_chains()
    model = trw_crf().fit(X, y)
    with pytest.raises(ValueError, match="X has 7 features, but TRWCRF is expecting 40"):
        model.predict([X[0][:, :7]])
    assert model.score(X, [np.full_like(labels, 9) for labels in y]) == 0


@pytest.mark.parametrize("l1_ratio", [1.0, 0.4])
def test_elastic_net_without_edges_is_that_of_logistic_regression(l1_ratio):
    X, y = make_classification(200, 6, n_informative=3, n_redundant=0, random_state=0)
    ours = trw_crf(C=0.05, l1_ratio=l1_ratio, **TIGHT).fit(X, y)
    options = {"solver": "saga", "C": 0.05, "l1_ratio": l1_ratio, "tol": 1e-10, "max_iter": 100_000}
    if l1_ratio < 1 or "penalty" in LogisticRegression().get_params():
        options |= {"penalty": "elasticnet"} if LogisticRegression().penalty == "l2" else {}
    theirs = LogisticRegression(**options).fit(X, y)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert 0 < np.count_nonzero(ours.coef_) < 6 or l1_ratio < 1


@pytest.mark.parametrize("weights", ["all", "seen"])
def test_l1_leaves_few_weights_and_a_stationary_point(weights):
    X, y = sparse_chains(n=30)
    model = trw_crf(C=0.5, l1_ratio=1.0, weights=weights, **TIGHT).fit(X, y)
    n_kept = model.coef_.nnz if weights == "seen" else np.count_nonzero(model.coef_)
    assert 0 < n_kept < 40
    assert np.all(np.diff(model.loss_curve_) <= 1e-9)
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize("weights", ["all", "seen"])
def test_two_label_spaces_in_one_graph(weights):
    """Four labels on one chain, two on the other: the labels of each chain are indices into its own list."""
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(12):
        length = int(rng.integers(2, 4))
        first, second = rng.integers(4, size=length), rng.integers(2, size=length)
        nodes = np.arange(length)
        chain = np.stack([nodes[:-1], nodes[1:]], axis=1)
        features = np.eye(4)[first] + 2 * np.eye(4)[second]
        X.append(
            Example(
                sp.csr_matrix(np.concatenate([features, features])),
                np.concatenate([chain, chain + length, np.stack([nodes, nodes + length], axis=1)]),
                node_type=np.repeat([0, 1], length),
                edge_type=np.repeat([0, 1, 2], [length - 1, length - 1, length]),
                n_states=np.repeat([4, 2], length),
            )
        )
        y.append(np.concatenate([first, second]))
    model = trw_crf(learning="exact", weights=weights, fit_intercept=False, C=0.5, **TIGHT).fit(X, y)
    potentials = FittedField.of(model).potentials()
    total = 0.0
    for x, labels, proba in zip(X, y, model.predict_proba(X), strict=True):
        values = potentials.model(FittedField.of(model).weights(potentials), x)
        exact = BruteForce().marginals(values)
        total += exact.log_z - score(values, labels)
        # Loopy belief propagation, which predicts here, gives labels of the other list probability 0, too.
        assert_array_equal(proba[len(labels) // 2 :, 2:], 0)
    penalty = FittedField.of(model).weights(potentials)
    assert_allclose(model.loss_curve_[-1], 0.5 * penalty @ penalty + 0.5 * total, rtol=1e-8)
    assert all(np.all(labels[len(labels) // 2 :] < 2) for labels in model.predict(X))
    with pytest.raises(ValueError, match="only the first 2 of the 4 classes"):
        trw_crf(weights=weights).fit(X, [np.roll(labels, len(labels) // 2) for labels in y])


def test_labels_that_were_never_seen_are_named():
    X, y = sparse_chains(n=10)
    model = trw_crf(classes=[0, 1, 2]).fit(X, y)
    unseen = [labels.copy() for labels in y]
    unseen[4][0] = 7
    message = r"^{}\[4\] holds the unknown label 7: the classes are 0, 1, 2"
    with pytest.raises(ValueError, match=message.format("y")):
        model.fit(X, unseen)
    assert model.score(X, unseen) < model.score(X, y)
    assert np.isneginf(model.log_likelihood(X, unseen).values[4])
    with pytest.raises(ValueError, match=message.format("evidence")):
        model.predict(X, evidence=unseen)


def test_labels_beyond_the_states_of_a_node_are_named():
    x = Example(np.eye(3), [[0, 1], [1, 2]], n_states=[2, 2, 3])
    for learning in ("exact", "piecewise", "pseudolikelihood"):
        with pytest.raises(ValueError, match=r"y\[1\] gives node 0 the label 2, but the node has only the first 2"):
            trw_crf(learning=learning).fit([x, x], [np.array([0, 1, 2]), np.array([2, 1, 0])])


def test_dual_steps_have_no_free_intercepts():
    X, y = sparse_chains(n=4)
    with pytest.raises(ValueError, match="fit_intercept=False and l1_ratio=0, because it penalises every weight"):
        trw_crf(learning="dual_relaxation").fit(X, y)


def two_class_images(n_features):
    y = np.zeros((6, 5, 6), dtype=int)
    y[:, 1:4, 1:4] = 1
    return y[..., None] + np.random.default_rng(0).normal(scale=0.5, size=(6, 5, 6, n_features)), y


def test_edge_features_suit_the_examples():
    X, y = two_class_images(2)
    images = trw_crf().fit(X, y)
    explicit = trw_crf(edge_features="difference").fit(X, y)
    assert images.edge_coef_.shape == (1, 3, 4)
    assert_array_equal(images.edge_coef_, explicit.edge_coef_)
    assert_array_equal(np.stack(images.predict_proba(list(X))), np.stack(explicit.predict_proba(list(X))))
    shards = Shards.from_arrays([(X[:2], y[:2]), (X[2:], y[2:])])
    assert_allclose(trw_crf().fit(shards).edge_coef_, images.edge_coef_, atol=1e-3)
    online = trw_crf(random_state=0)
    for part in (slice(3), slice(3, 6)):
        online.partial_fit(X[part], y[part], classes=[0, 1])
    assert online.edge_coef_.shape == (1, 3, 4)


def test_edges_are_constant_where_differences_do_not_suit():
    X, y = two_class_images(2)
    graphs = [Example(x.reshape(-1, 2), [[0, 1], [1, 2], [0, 2]]) for x in X]
    for examples, labels in (
        (X[..., :1], y),
        (X, np.where(np.arange(6) == 5, 2, y)),
        (X.reshape(6, 30, 2), y.reshape(6, 30)),
        (graphs, list(y.reshape(6, 30))),
    ):
        assert trw_crf().fit(examples, labels).edge_coef_.shape[1] == 1


@pytest.mark.parametrize(("n", "sizes"), [(3, 3), (13, 12), (19, 20)])
def test_threads_have_as_many_batches_of_taggers(n, sizes, monkeypatch):
    # A batch holds at most 40 statistics: 20 nodes with two classes. Hence there is a multiple of 20 nodes.
    monkeypatch.setattr(_training_examples, "_MOST_STATISTICS", 40)
    X = [sp.csr_matrix(np.ones((1, 3)))] * 20 * n
    y = [np.array([i % 2]) for i in range(20 * n)]
    for field, expected in ((trw_crf(), sizes), (trw_crf(solver="sgd"), 20 * n)):
        parameters = FieldParameters.of(field)
        examples = parameters.read(X, y, None, None)
        assert len(range(0, 20 * n, examples._packing(parameters.plan(examples))["max_nodes"])) == expected
