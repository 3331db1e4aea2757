"""M3NClassifier: scikit-learn's contract, support vector machines without edges, costs, gaps and bad input."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from built_fields import m3n_classifier
from estimator_contract import missing_checks, passed_checks
from field_data import chains, noisy_blobs
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits, load_iris, load_wine, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf import Example, M3NClassifier
from sklearn_crf.inference import ICM, TRWS, AlphaExpansion, AutoMap, AutoMarginals, BruteForce, TreeInference
from sklearn_crf.models import score
from sklearn_crf.optimize import UNPROVEN
from sklearn_crf.potentials import PairwiseTables

SOLVERS = ["cutting_plane", "one_slack", "frank_wolfe", "bmrm", "subgradient"]


# scikit-learn's contract -----------------------------------------------------------------------------------------


def test_check_estimator():
    passed = passed_checks(m3n_classifier())
    assert missing_checks(passed) <= {
        "check_estimators_nan_inf",  # the check of estimators that refuse NaN
        "check_class_weight_balanced_linear_classifier",
        "check_sparsify_coefficients",
    }
    assert len(passed) >= 57


def some_digits():
    X, y = load_digits(return_X_y=True)
    return X[:200] / 16, y[:200]


def scaled_wine():
    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.mark.parametrize(
    ("data", "C"),
    [(lambda: load_iris(return_X_y=True), 0.3), (scaled_wine, 0.1), (scaled_wine, 10.0), (some_digits, 0.1)],
    ids=["iris", "wine", "wine, large C", "digits"],
)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_without_edges_it_is_crammer_singer(data, C, form, fit_intercept):
    X, y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours = m3n_classifier(C=C, fit_intercept=fit_intercept, tol=1e-9).fit(form(X), y)
        theirs = LinearSVC(
            C=C, multi_class="crammer_singer", fit_intercept=fit_intercept, tol=1e-9, max_iter=100_000
        ).fit(X, y)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    assert_allclose(ours.decision_function(form(X)), theirs.decision_function(X), atol=1e-3)


def test_two_classes_are_a_support_vector_machine():
    X, y = make_classification(80, 5, random_state=0)
    ours = m3n_classifier(C=0.2, fit_intercept=False, tol=1e-9).fit(X, y)
    # SVC's intercept is free: with one sample and its mirror image it is zero.
    theirs = SVC(C=0.1, kernel="linear", tol=1e-10).fit(np.concatenate((X, -X)), np.concatenate((y, 1 - y)))
    assert_allclose(theirs.intercept_, 0, atol=1e-6)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert ours.decision_function(X).shape == (80,)


# Solvers ---------------------------------------------------------------------------------------------------------


def objective_of(field, X, y, edge_C):
    """Compute half the squared weights plus C times the hinges, by enumeration."""
    # The second feature is far from 0: the intercept of the centred feature is penalised.
    intercept = field.intercept_ + np.mean(np.stack(X)[..., 1]) * field.coef_[:, 1]
    edge_coef = np.sqrt(field.C / edge_C) * field.edge_coef_[0]
    if field.edge_features == "difference":
        steps = [np.diff(x, axis=axis).reshape(-1, x.shape[-1]) for x in X for axis in range(x.ndim - 1)]
        sizes = np.sqrt(np.mean(np.concatenate(steps) ** 2, axis=0))
        # Full tables also affect single nodes: differences are counted in units of at least 1.
        edge_coef[1:] *= np.maximum(sizes, 1.0)[:, np.newaxis]
    weights = field.coef_.ravel(), intercept, edge_coef.ravel()
    total = 0.5 * sum(float(part @ part) for part in weights)
    for model, labels in zip(field.models(X), y, strict=True):
        labels = labels.ravel()
        errors = np.arange(model.unary.shape[1]) != labels[:, np.newaxis]
        augmented = replace(model, unary=model.unary + errors)
        total += field.C * (BruteForce().map(augmented).score - score(model, labels))
    return total


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("edge_features", ["difference", "constant"])
@pytest.mark.parametrize("shape", [(4,), (2, 4)], ids=["by a kernel", "by models"])
def test_units_of_features_and_the_penalty_of_edges_are_those_of_the_weights(solver, edge_features, shape):
    rng = np.random.default_rng(0)
    y = [rng.integers(3, size=shape) for _ in range(6)]
    X = [label[..., np.newaxis] + rng.normal(size=(*shape, 3)) for label in y]
    X = [x * [1.0, 30.0, 0.01] + [0.0, 2000.0, 0.0] for x in X]
    options = {"edge_features": edge_features, "inference": BruteForce(), "random_state": 0, "max_iter": 30}
    field = m3n_classifier(C=0.1, solver=solver, pairwise=PairwiseTables("full", C=0.02), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        field.fit(X, y)
    loss, objective = field.loss_curve_.min(), objective_of(field, X, y, edge_C=0.02)
    if solver != "frank_wolfe":
        assert_allclose(loss, objective, rtol=1e-6)
        return
    # The penalty is at least 1e-3 per node and C for weights in units of spread one, and five times that for edges.
    coef, tables = field.coef_.ravel(), field.edge_coef_.ravel()
    least = 1e-3 * 0.1 * np.prod(shape)
    spread = np.array([1.0, 40.0, 1.0])
    more = np.sum((np.tile(spread, 3) * coef) ** 2) + 5 * 60.0**2 * np.sum(tables**2)
    assert objective * (1 - 1e-9) <= loss <= objective + 0.5 * least * more


def test_rows_in_units_of_their_own_are_classified():
    X, y = load_wine(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert M3NClassifier().fit(X, y).score(X, y) > 0.9


@pytest.mark.parametrize("data", [chains, noisy_blobs], ids=["forests", "submodular"])
def test_solvers_reach_one_optimum(data):
    X, y = data(8)
    options = {"C": 0.02, "pairwise": "associative", "edge_features": "constant", "random_state": 0, "max_iter": 1000}
    optimum = m3n_classifier(solver="bmrm", tol=1e-7, **options).fit(X, y)
    assert optimum.duality_gap_ <= 1.1e-7 * optimum.loss_curve_.min()
    for solver in ("cutting_plane", "one_slack", "frank_wolfe", "subgradient"):
        model = m3n_classifier(solver=solver, tol=1e-2, **options).fit(X, y)
        loss, dual = model.loss_curve_[-1], model.dual_curve_[-1]
        assert_allclose(model.duality_gap_, loss - dual, rtol=1e-6)
        assert dual <= optimum.loss_curve_.min() <= loss + 1e-9
        assert loss - dual <= 1e-2 * loss
        assert len(model.loss_curve_) == len(model.dual_curve_) == len(model.checks_)
        assert model.checks_[-1] == model.n_iter_
        assert model.n_inference_calls_ >= len(X) * model.n_iter_
        assert model.edge_coef_.min() >= 0


@pytest.mark.parametrize("solver", SOLVERS)
def test_bit_identical_for_any_n_jobs(solver):
    X, y = noisy_blobs(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one, two = (m3n_classifier(solver=solver, max_iter=5, random_state=0, n_jobs=k).fit(X, y) for k in (1, 2))
    assert_array_equal(one.coef_, two.coef_)
    assert_array_equal(one.edge_coef_, two.edge_coef_)
    assert_array_equal(one.decision_function(X), two.decision_function(X))


@pytest.mark.parametrize("solver", SOLVERS)
def test_bit_identical_where_threads_share_blocks(solver):
    X, y = chains(200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one = m3n_classifier(solver=solver, max_iter=3, random_state=0).fit(X, y)
        two = m3n_classifier(solver=solver, max_iter=3, random_state=0, n_jobs=2).fit(X, y)
    assert_array_equal(one.coef_, two.coef_)
    assert_array_equal(one.edge_coef_, two.edge_coef_)


@pytest.mark.parametrize("solver", SOLVERS)
def test_weight_two_is_seen_twice(solver):
    X, y = chains(4)
    options = {"C": 0.05, "solver": solver, "random_state": 0, "tol": 1e-9 if solver == "bmrm" else 2e-2}
    weighted = m3n_classifier(max_iter=1000, **options).fit(X, y, sample_weight=[2, 1, 1, 0])
    repeated = m3n_classifier(max_iter=1000, **options).fit([X[0], X[0], *X[1:3]], [y[0], y[0], *y[1:3]])
    # Strong convexity: half the squared distance to the optimum is at most the gap.
    gap = weighted.duality_gap_ + repeated.duality_gap_
    atol = 2 * np.sqrt(2 * gap) + 1e-9
    assert_allclose(weighted.coef_, repeated.coef_, atol=atol)
    assert_allclose(weighted.edge_coef_, repeated.edge_coef_, atol=atol)


def test_unconverged_training_warns_and_names_what_to_change():
    X, y = chains()
    with pytest.warns(ConvergenceWarning, match="increase max_iter or tol"):
        m3n_classifier(max_iter=2).fit(X, y)


def test_zero_weights_say_what_learns_where_no_label_has_a_majority():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(300, 2))
    # The first of six labels is twice as likely as each other label, independently of the features.
    y = np.maximum(rng.randint(-1, 6, 300), 0)
    with pytest.warns(UserWarning, match="all weights zero.*use TRWCRF or DRFClassifier"):
        model = m3n_classifier(solver="bmrm").fit(X, y)
    assert not model.coef_.any()
    assert not model.intercept_.any()
    # With one informative feature there is no warning.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m3n_classifier(solver="bmrm").fit(np.column_stack([X, np.eye(6)[y]]), y)


def test_the_gap_counts_what_inference_cannot_prove():
    X, y = noisy_blobs(6)
    proven = m3n_classifier(tol=1e-3, random_state=0, pairwise="associative", edge_features="constant").fit(X, y)
    assert proven.duality_gap_ <= 1.1e-3 * proven.loss_curve_[-1]
    assert (proven.converged_, proven.learning_, proven.inference_) == (True, "max_margin", "map")
    assert proven.stop_reason_ == "CONVERGENCE: duality gap within tol"
    with pytest.warns(ConvergenceWarning, match="use an inference that proves more of its labelings") as caught:
        unproven = m3n_classifier(random_state=0, inference="icm", tol=0.1).fit(X, y)
    assert caught[0].filename == __file__
    assert unproven.duality_gap_ == np.inf
    assert not unproven.converged_
    assert np.all(unproven.loss_curve_ >= unproven.dual_curve_)


def test_what_the_default_inference_does_not_prove_is_no_warning():
    rng = np.random.default_rng(2)
    y = gaussian_filter(rng.normal(size=(2, 32, 32, 4)), (0, 3, 3, 0)).argmax(axis=-1)
    X = rng.normal(size=(4, 3))[y] + rng.normal(size=(*y.shape, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = M3NClassifier().fit(X, y)
    assert fitted.n_iter_ < 100
    assert fitted.duality_gap_ < 0.25 * fitted.loss_curve_[-1]
    assert (fitted.converged_, fitted.stop_reason_) == (False, UNPROVEN)
    with pytest.warns(ConvergenceWarning, match="proves more of its labelings"):
        M3NClassifier(inference=TRWS(max_iter=20)).fit(X, y)


def test_the_best_labelings_of_training_come_without_searches():
    rng = np.random.default_rng(0)
    y = gaussian_filter(rng.normal(size=(1, 24, 24, 4)), (0, 3, 3, 0)).argmax(axis=-1)
    X = np.eye(4)[y] + rng.normal(size=(*y.shape, 4))
    coefs = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for inference in ("map", AutoMap(), AutoMap(bounded=True)):
            coefs.append(M3NClassifier(inference=inference, max_iter=10).fit(X, y).edge_coef_)
    assert_array_equal(coefs[0], coefs[2])
    assert_array_equal(coefs[1], coefs[2])


def test_warm_start_of_the_bundle_method():
    X, y = chains()
    model = m3n_classifier(solver="bmrm", warm_start=True).fit(X, y)
    first = model.loss_curve_
    again = model.fit(X, y).loss_curve_
    assert again[0] <= 1.01 * first.min() < first[0]


# Model and cost --------------------------------------------------------------------------------------------------


def test_edges_help():
    X, y = noisy_blobs(12)
    model = m3n_classifier(random_state=0, edge_features="constant").fit(X[:8], y[:8])
    alone = m3n_classifier(random_state=0).fit(X[:8].reshape(-1, 1), y[:8].ravel())
    assert model.score(X[8:], y[8:]) > alone.score(X[8:].reshape(-1, 1), y[8:].ravel()) + 0.02
    assert model.predict(X[8:]).shape == y[8:].shape
    assert not hasattr(model, "predict_proba")


@pytest.mark.parametrize(
    "inference", ["auto", "max_product", "icm", "alpha_expansion", AlphaExpansion(nonsubmodular="truncate")]
)
def test_three_classes_on_grids(inference):
    X, y = noisy_blobs(6, noise=0.3, n_classes=3)
    features = np.concatenate((X, X**2), axis=-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = m3n_classifier(inference=inference, random_state=0, max_iter=10).fit(features, y)
    assert model.score(features, y) > 0.8


def test_decision_function_agrees_with_the_best_labeling():
    X, y = chains()
    model = m3n_classifier(random_state=0).fit(X, y)
    for labels, scores in zip(model.predict(X), model.decision_function(X), strict=True):
        assert scores.shape == (len(labels), 3)
        chosen = np.take_along_axis(scores, labels[:, None], 1)[:, 0]
        assert np.all(chosen >= scores.max(axis=1) - 1e-9)
    X, y = noisy_blobs(4)
    model = m3n_classifier(random_state=0, pairwise="associative", edge_features="constant").fit(X, y)
    assert_array_equal(model.decision_function(X) > 0, model.predict(X) == 1)


def test_cost_and_class_weight_move_the_decision():
    X, y = noisy_blobs(8, noise=1.0)
    options = {"random_state": 0, "edge_features": "constant", "C": 0.1}
    plain = m3n_classifier(**options).fit(X, y)
    wary = m3n_classifier(cost=[[0, 5], [1, 0]], **options).fit(X, y)
    weighted = m3n_classifier(class_weight={1: 5}, **options).fit(X, y)
    assert (wary.predict(X) == 1).mean() > (plain.predict(X) == 1).mean()
    assert_array_equal(wary.coef_, weighted.coef_)
    same = m3n_classifier(cost=1 - np.eye(2), **options).fit(X, y)
    assert_array_equal(same.coef_, plain.coef_)


@pytest.mark.parametrize("solver", ["cutting_plane", "bmrm"])
def test_costs_of_nodes(solver):
    X, y = chains(8)
    options = {"C": 0.1, "random_state": 0, "solver": solver, "tol": 1e-4}
    same = m3n_classifier(**options).fit(X, y, node_weight=[np.full(len(part), 2.0) for part in y])
    twice = m3n_classifier(cost=2 * (1 - np.eye(3)), **options).fit(X, y)
    assert_allclose(same.coef_, twice.coef_, rtol=1e-9)
    free = [np.zeros(len(part)) for part in y]
    first = m3n_classifier(**options).fit(X, y, node_weight=[np.ones(len(y[0])), *free[1:]])
    assert np.abs(first.coef_).max() > 0
    with pytest.raises(ValueError, match="node_weight is 0 for every node: at least one node needs a positive weight"):
        m3n_classifier(**options).fit(X, y, node_weight=free)
    with pytest.raises(ValueError, match="node_weight holds 7 arrays, but X has 8 examples"):
        m3n_classifier().fit(X, y, node_weight=[np.ones(len(part)) for part in y[1:]])
    with pytest.raises(ValueError, match=r"node_weight\[0\] has shape \(99,\)"):
        m3n_classifier().fit(X, y, node_weight=[np.ones(99) for _ in y])
    with pytest.raises(ValueError, match=r"node_weight\[0\] must hold numbers from 0 to 1e\+100"):
        m3n_classifier().fit(X, y, node_weight=[-np.ones(len(part)) for part in y])
    for wrong in (np.nan, np.inf, 1e200):
        with pytest.raises(ValueError, match=r"node_weight\[1\] must hold numbers from 0 to 1e\+100"):
            m3n_classifier().fit(
                X, y, node_weight=[np.full(len(part), wrong if i else 1.0) for i, part in enumerate(y)]
            )


def test_irregular_graphs_with_types():
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(20):
        n = int(rng.integers(4, 8))
        labels = rng.integers(2, size=n)
        edges = [[i, i + 1] for i in range(n - 1)] + [[0, n - 1]]
        node_type = np.arange(n) % 2
        features = (labels * np.where(node_type, -1, 1))[:, None] + 0.3 * rng.normal(size=(n, 1))
        X.append(Example(features, edges, node_type=node_type, edge_type=rng.integers(2, size=n)))
        y.append(labels)
    model = m3n_classifier(edge_features="constant", random_state=0).fit(X, y)
    assert model.coef_.shape == (2, 1, 1)
    assert model.coef_[0, 0, 0] > 0 > model.coef_[1, 0, 0]
    assert model.score(X, y) > 0.9


def test_sparse_chains_by_any_solver():
    X, y = chains(8)
    options = {"edge_features": "constant", "C": 0.1, "random_state": 0}
    for solver in ("bmrm", "frank_wolfe"):
        dense = m3n_classifier(solver=solver, **options).fit(X, y)
        sparse = m3n_classifier(solver=solver, **options).fit([sp.csr_matrix(x) for x in X], y)
        assert_allclose(sparse.coef_, dense.coef_, atol=1e-6)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
@pytest.mark.parametrize("solver", ["bmrm", "frank_wolfe", "cutting_plane", "one_slack", "auto"])
def test_forbidden_pairs_are_in_no_worst_labeling(solver, form):
    """Forbidden pairs lower the objective, since the hinge loss then is a maximum over fewer labelings."""
    rng = np.random.default_rng(0)
    y = [np.array([0, 1, 2] * 4)[: rng.integers(3, 7)] for _ in range(10)]
    X = [form(np.eye(3)[labels] + rng.normal(size=(len(labels), 3))) for labels in y]
    forbidden = PairwiseTables("full", forbidden=[[0, 2], [1, 0], [2, 1]])
    options = {"random_state": 0, "tol": 0.01, "C": 0.2}
    field = m3n_classifier(pairwise=forbidden, solver=solver, **options).fit(X, y)
    free = m3n_classifier(solver="bmrm", **options).fit(X, y)
    reference = m3n_classifier(pairwise=forbidden, solver="bmrm", inference=BruteForce(3**6), **options).fit(X, y)
    assert field.loss_curve_[-1] < 0.9 * free.loss_curve_[-1]
    assert_allclose(field.loss_curve_[-1], reference.loss_curve_[-1], rtol=0.02)


@pytest.mark.parametrize("solver", ["bmrm", "frank_wolfe"])
@pytest.mark.parametrize("edge_features", ["constant", "difference"])
def test_forbidden_pairs_and_ends_beside_features_of_edges(edge_features, solver):
    """Weights of the ends of chains, edge features and forbidden pairs are combined as in enumeration."""
    rng = np.random.default_rng(0)
    y = [(rng.integers(2) + np.cumsum(rng.random(rng.integers(1, 6)) < 0.4)) % 3 for _ in range(12)]
    y = [labels if labels[-1] else labels * 0 + 1 for labels in y]
    X = [np.column_stack([np.ones(len(labels)), np.eye(3)[labels]]) for labels in y]
    X = [x + rng.normal(size=x.shape) * [0, 1, 1, 1] for x in X]
    tables = PairwiseTables("full", forbidden=[[0, 2], [1, 0], [2, 1]], forbidden_first=[2], forbidden_last=[0])
    y = [labels if labels[0] != 2 else labels * 0 + 1 for labels in y]
    options = {"random_state": 0, "tol": 0.005, "C": 0.2, "pairwise": tables, "edge_features": edge_features}
    field = m3n_classifier(solver=solver, **options).fit(X, y)
    reference = m3n_classifier(solver="bmrm", inference=BruteForce(3**6), **options).fit(X, y)
    assert_allclose(field.loss_curve_[-1], reference.loss_curve_[-1], rtol=0.01)


def test_forbidden_pairs_that_labels_have():
    X, y = np.random.default_rng(0).normal(size=(4, 5, 2)), np.array([[0, 0, 1, 0, 0]] * 4)
    field = m3n_classifier(pairwise=PairwiseTables(forbidden=[[0, 1]]), edge_features="constant")
    with pytest.raises(ValueError, match="Sequence 0 contains 0 followed by 1, which forbidden rules out"):
        field.fit(X, y)


def test_sparse_features_may_all_be_zero():
    X, y = [sp.csr_matrix((5, 4))] * 4, [np.array([1, 1, 0, 1, 1])] * 4
    field = m3n_classifier(solver="frank_wolfe", random_state=0).fit(X, y)
    assert not field.coef_.any()
    assert_array_equal(np.concatenate(field.predict(X)), 1)


def test_sparse_chains_of_many_weights_go_by_frank_wolfe():
    rng = np.random.default_rng(0)
    y = [np.cumsum(rng.random(12) < 0.3) % 3 for _ in range(20)]
    X = [sp.csr_matrix((np.ones(12), (np.arange(12), 200 * labels + rng.integers(5, size=12)))) for labels in y]
    X = [sp.csr_matrix((x.data, x.indices, x.indptr), shape=(12, 600)) for x in X]
    options = {"random_state": 0, "max_iter": 20, "tol": 0.3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for inference, solver in (("auto", "frank_wolfe"), (ICM(), "bmrm")):
            automatic = m3n_classifier(inference=inference, **options).fit(X, y)
            explicit = m3n_classifier(inference=inference, solver=solver, **options).fit(X, y)
            assert_array_equal(automatic.coef_, explicit.coef_)
            assert automatic.score(X, y) > 0.9


@pytest.mark.parametrize("n_labels", [120, 150, 220])
def test_sparse_chains_of_many_labels_go_on_as_those_of_few(n_labels):
    # Slopes of all tables would take hundreds of megabytes for the larger numbers.
    rng = np.random.default_rng(0)
    y = [rng.integers(n_labels, size=4) for _ in range(1600)]
    X = [sp.csr_matrix((np.ones(4), labels, np.arange(5)), shape=(4, n_labels)) for labels in y]
    options = {"random_state": 0, "max_iter": 30, "classes": np.arange(n_labels)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field = m3n_classifier(**options).fit(X, y)
    assert field.stop_reason_ == "STOP: duality gap within 50% of the objective"
    assert not field.converged_
    assert field.score(X, y) > 0.99
    by_name = m3n_classifier(solver="frank_wolfe", **options).fit(X[:200], y[:200])
    assert_array_equal(m3n_classifier(**options).fit(X[:200], y[:200]).coef_, by_name.coef_)


# Bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": 0}, "'C' parameter"),
        ({"cost": [[0, 1], [-1, 0]]}, r"cost must not be negative, found cost\[1, 0\] = -1"),
        ({"cost": [[0, 1], [1, 2]]}, r"cost must be zero on its diagonal, found cost\[1, 1\] = 2"),
        ({"cost": np.ones((3, 3)) - np.eye(3)}, r"cost must have shape \(2, 2\)"),
        ({"inference": "gibbs"}, "inference='gibbs' does not compute best labelings"),
        ({"inference": "mpm"}, "inference='mpm' does not compute best labelings"),
        ({"class_weight": {0: -1}}, "class_weight must be finite and not negative"),
        ({"inference": TreeInference()}, "without cycles"),
    ],
    ids=str,
)
def test_bad_parameters(options, message):
    X, y = noisy_blobs(3)
    with pytest.raises(ValueError, match=message):
        m3n_classifier(**options).fit(X, y)


def test_bad_data():
    X, y = noisy_blobs(3)
    partial = y.copy()
    partial[1, 2, 2] = -1
    assert m3n_classifier(missing_label=-1, inference=ICM(), random_state=0, tol=0.1).fit(X, y).score(X, partial) > 0.5
    with pytest.raises(ValueError, match="pairwise='associative' needs edge features that are not negative, but X"):
        m3n_classifier(pairwise="associative", edge_features=_negative).fit(X, y)
    model = m3n_classifier(random_state=0, tol=0.05).fit(X, y)
    before = model.coef_.copy()
    with pytest.raises(ValueError, match="y has 2 examples"):
        model.fit(X, y[:2])
    assert_array_equal(model.coef_, before)


@pytest.mark.parametrize("method", ["predict_proba", "predict_edge_proba", "log_likelihood", "sample"])
def test_what_needs_a_distribution_is_not_there_and_says_why(method):
    model = m3n_classifier()
    assert not hasattr(model, method)
    with pytest.raises(AttributeError) as caught:
        getattr(model, method)
    assert f"no distribution over labelings, so it has no {method}: use TRWCRF" in str(
        caught.value.__cause__ or caught.value
    )


def _negative(x_tail, x_head):
    return -np.abs(x_tail - x_head)


def test_the_default_has_a_finite_and_true_gap_for_many_states():
    X, y = noisy_blobs(4, side=4, noise=0.3, n_classes=3)
    options = {"C": 0.1, "edge_features": "constant", "random_state": 0, "pairwise": "full"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = m3n_classifier(max_iter=20, **options).fit(X, y)
        relaxed = m3n_classifier(learning="relaxed_margin", tol=1e-3, max_iter=100, **options).fit(X, y)
    assert np.isfinite(model.duality_gap_)
    # Planes of labelings are below the relaxed hinges, and the relaxed hinges are below the bounds.
    assert model.dual_curve_[-1] <= relaxed.dual_curve_[-1] + relaxed.duality_gap_
    assert relaxed.dual_curve_[-1] <= model.dual_curve_[-1] + model.duality_gap_ + 1e-6


def test_evidence_in_scores_certificates_and_best_labelings():
    X, y = noisy_blobs(2, side=4)
    model = m3n_classifier(random_state=0, tol=0.05, missing_label=-1).fit(X, y)
    evidence = np.full(y.shape, -1)
    evidence[:, 1, 2] = 1 - model.predict(X)[:, 1, 2]
    scores = model.decision_function(X, evidence)
    assert_array_equal(np.isposinf(scores), evidence == 1)
    assert_array_equal(np.isneginf(scores), evidence == 0)
    assert_array_equal(model.predict(X, evidence), scores > 0)
    free, bound = model.certify(X), model.certify(X, evidence)
    assert np.all(bound.bounds <= free.bounds + 1e-9)
    assert np.all(bound.gaps >= -1e-9)


def test_best_labelings_agree_with_evidence():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3, 4, 2)), rng.integers(2, size=(3, 4))
    model = m3n_classifier(random_state=0, tol=0.05, missing_label=-1).fit(X, y)
    evidence = np.full(y.shape, -1)
    evidence[:, 0] = 1
    labels, scores = model.predict_topk(X, 8, evidence)
    every, all_scores = model.predict_topk(X, 16)
    for i in range(3):
        agree = every[i][:, 0] == 1
        assert_array_equal(labels[i][:, 0], 1)
        assert_allclose(scores[i], all_scores[i][agree])


def test_tables_and_edge_features_suit_the_graph():
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.random((20, 30)) < 0.3, axis=1) % 3
    X = np.eye(3)[y] + rng.normal(scale=0.7, size=(20, 30, 3))
    forms = (X, list(X), [sp.csr_matrix(x) for x in X])
    # Sparse features need another solver.
    options = {"random_state": 0, "tol": 1e-4}
    on_chains = [m3n_classifier(**options).fit(form, list(y)) for form in forms]
    explicit = m3n_classifier(pairwise="full", edge_features="constant", **options).fit(X, y)
    for field in on_chains:
        assert field.edge_coef_.shape == (1, 1, 9)
        assert_allclose(field.edge_coef_, explicit.edge_coef_, atol=0.1)
    assert_array_equal(on_chains[0].edge_coef_, explicit.edge_coef_)
    # States follow each other in a fixed order, which tables of unordered pairs cannot express.
    potts = m3n_classifier(pairwise="potts", random_state=0).fit(X[:10], y[:10])
    assert m3n_classifier(random_state=0).fit(X[:10], y[:10]).score(X[10:], y[10:]) > potts.score(X[10:], y[10:])
    grids = m3n_classifier(random_state=0).fit(X.reshape(20, 5, 6, 3), y.reshape(20, 5, 6))
    assert grids.edge_coef_.shape[1:] == (4, 1)
    resumed = m3n_classifier(random_state=0)
    for part in (slice(10), slice(10, 20)):
        resumed.partial_fit(X[part], y[part], classes=[0, 1, 2])
    assert resumed.edge_coef_.shape == (1, 1, 9)


def test_tolerance_suits_the_solver():
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.random((30, 10)) < 0.3, axis=1) % 3
    X = np.eye(3)[y] + rng.normal(scale=0.7, size=(30, 10, 3))
    for solver, tol in (("frank_wolfe", 0.5), ("cutting_plane", 0.01), ("one_slack", 0.01), ("bmrm", 0.01)):
        field = m3n_classifier(solver=solver, random_state=0).fit(X, y)
        explicit = m3n_classifier(solver=solver, tol=tol, random_state=0).fit(X, y)
        assert explicit.converged_
        # A user may choose half of the objective as tolerance, but by default this is no convergence.
        assert field.converged_ == (tol == 0.01)
        assert field.duality_gap_ <= tol * field.loss_curve_[-1]
        assert_array_equal(field.coef_, explicit.coef_)
    assert m3n_classifier(solver="frank_wolfe", random_state=0).fit(X, y).score(X, y) > 0.8
    with pytest.raises(InvalidParameterError, match="tol"):
        m3n_classifier(tol="loose").fit(X, y)


@pytest.mark.parametrize("form", ["images", "chains"])
def test_inference_of_a_call_labels_as_it_can(form):
    X, y = noisy_blobs(4) if form == "images" else chains(12)
    field = M3NClassifier(max_iter=20).fit(X, y)
    for labels, expected in zip(field.predict(X, inference="auto"), field.predict(X), strict=True):
        assert_array_equal(labels, expected)
    # Scores define marginals, which are not probabilities of labels for this loss.
    for model, labels in zip(field.models(X), field.predict(X, inference=AutoMarginals()), strict=True):
        assert_array_equal(labels.ravel(), AutoMarginals().marginals(model).unary.argmax(axis=1))


def test_predictions_by_default_are_the_best_labels_found_without_warnings_of_training():
    rng = np.random.default_rng(3)
    y = rng.integers(3, size=(2, 20, 20))
    X = np.eye(3)[y] + rng.normal(size=(2, 20, 20, 3))
    field = M3NClassifier(max_iter=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        field.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = field.predict(X)
    for model, found in zip(field.models(X), labels, strict=True):
        best = AutoMap().map(model)
        assert score(model, found.ravel()) == pytest.approx(best.score)


def test_predictions_use_the_budget_for_many_examples():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=(4, 60))
    rates = [np.where(np.equal.outer(own, own), 0.01, 0.14) for own in y]
    edges = [np.argwhere(np.triu(rng.random((60, 60)) < rate, 1)) for rate in rates]
    X = [Example(np.eye(3)[own] + 1.5 * rng.normal(size=(60, 3)), pairs) for own, pairs in zip(y, edges, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        field = M3NClassifier(max_iter=20).fit(X, list(y))
    for inference in (None, "map"):
        for model, found in zip(field.models(X), field.predict(X, inference=inference), strict=True):
            assert_array_equal(found, AutoMap(budget="fast").map(model).labels)


@pytest.mark.parametrize("solver", SOLVERS)
def test_all_solvers_reach_the_optimum_with_sparse_edge_features(solver):
    rng = np.random.default_rng(0)
    y = [rng.integers(3, size=6) for _ in range(40)]
    pairs = [2 * (labels[:-1] % 2) + labels[1:] % 2 for labels in y]
    edge_features = [sp.csr_matrix((np.ones(5), (np.arange(5), columns)), shape=(5, 4)) for columns in pairs]
    edges = np.column_stack([np.arange(5), np.arange(1, 6)])
    X = [Example(np.eye(3)[own] + rng.normal(size=(6, 3)), edges, f) for own, f in zip(y, edge_features, strict=True)]
    options = {"C": 0.1, "max_iter": 300, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = M3NClassifier(solver=solver, **options).fit(X, y)
    expected = M3NClassifier(solver="one_slack", **options).fit(X, y)
    assert min(found.loss_curve_) == pytest.approx(expected.loss_curve_[-1], rel=0.02)
    assert found.score(X, y) == pytest.approx(expected.score(X, y), abs=0.05)
