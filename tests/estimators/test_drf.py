"""DRFClassifier: scikit-learn's contract, logistic regression without edges, coupling, selection, interruption."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from built_fields import drf_classifier
from estimator_contract import missing_checks, passed_checks
from field_data import chains, noisy_blobs
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from sklearn_crf import DRFClassifier, Example
from sklearn_crf.datasets import make_noisy_shapes
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import ICM, TRWS, BruteForce, LoopyBP
from sklearn_crf.learning import PseudolikelihoodTraining
from sklearn_crf.preprocessing import NodeTransformer

TIGHT = {"tol": 1e-9, "max_iter": 2000}


# scikit-learn's contract -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"inference": "map"}, {"learning": "pl"}], ids=str)
def test_check_estimator(options):
    passed = passed_checks(drf_classifier(**options))
    assert missing_checks(passed) <= {
        "check_estimators_nan_inf",  # the check of estimators that refuse NaN
        "check_class_weight_balanced_linear_classifier",
        "check_sparsify_coefficients",
    }
    assert len(passed) >= 55


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
def test_without_edges_it_is_logistic_regression(n_classes, form):
    X, y = make_classification(300, 6, n_informative=5, n_redundant=0, n_classes=n_classes, random_state=0)
    weight = np.random.default_rng(0).uniform(0.2, 2, size=300)
    edge_features = "constant"
    ours = drf_classifier(C=0.7, edge_features=edge_features, **TIGHT).fit(form(X), y, sample_weight=weight)
    theirs = LogisticRegression(C=0.7, **TIGHT).fit(X, y, sample_weight=weight)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    if n_classes == 2:
        assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    else:  # intercepts are free, hence determined up to a constant
        assert_allclose(
            ours.intercept_ - ours.intercept_.mean(), theirs.intercept_ - theirs.intercept_.mean(), atol=1e-5
        )
    assert_allclose(ours.predict_proba(form(X)), theirs.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("learning", ["pl", "pma", "likelihood"])
def test_likelihood_rules_agree_without_edges(learning):
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    one = drf_classifier(learning=learning, **TIGHT).fit(X, y)
    assert_allclose(one.coef_, drf_classifier(**TIGHT).fit(X, y).coef_, atol=1e-5)


def test_pipeline_and_grid_search():
    X, y = noisy_blobs(12)
    pipeline = make_pipeline(
        NodeTransformer(PolynomialFeatures(2, include_bias=False)), NodeTransformer(StandardScaler()), drf_classifier()
    )
    grid = {"drfclassifier__C": [0.01, 1.0], "drfclassifier__learning": ["pma", "pl"]}
    search = GridSearchCV(pipeline, grid, cv=3, n_jobs=2, error_score="raise").fit(X, y)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))
    assert search.best_score_ > 0.82
    assert cross_val_score(drf_classifier(), X, y, cv=3).min() > 0.8


def test_grid_search_reaches_into_the_inference():
    X, y = chains()
    search = GridSearchCV(
        drf_classifier(inference=LoopyBP()), {"inference__max_iter": [1, 50]}, cv=2, n_jobs=2, error_score="raise"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(X, y)
    assert search.best_estimator_.inference.max_iter in (1, 50)


# Shapes and labels -----------------------------------------------------------------------------------------------


def test_predictions_have_the_shape_of_the_input():
    X, y = noisy_blobs(5)
    model = drf_classifier().fit(X, y)
    assert model.predict(X).shape == y.shape
    assert model.predict_proba(X).shape == (*y.shape, 2)
    assert_allclose(model.predict_proba(X).sum(axis=-1), 1, rtol=1e-6)
    ragged = [X[0], X[1, :5], X[2, :, :3]]
    predicted = model.predict(ragged)
    assert predicted.dtype == object
    assert [part.shape for part in predicted] == [(10, 10), (5, 10), (10, 3)]
    assert_array_equal(predicted[0], model.predict(X[:1])[0])
    assert model.predict_proba(ragged)[1].shape == (5, 10, 2)


def test_string_labels_and_named_classes():
    X, y = chains()
    names = np.array(["adenine", "cytosine", "guanine"])
    labels = [names[part] for part in y]
    model = drf_classifier(classes=["adenine", "cytosine", "guanine", "thymine"]).fit(X, labels)
    assert_array_equal(model.classes_, ["adenine", "cytosine", "guanine", "thymine"])
    assert set(np.concatenate(model.predict(X))) <= set(model.classes_)
    assert model.score(X, labels) > 0.5


def test_irregular_graphs_with_types_and_state_counts():
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
    model = drf_classifier(edge_features="constant").fit(X, y)
    assert model.coef_.shape == (2, 1, 1)
    assert model.edge_coef_.shape == (2, 1, 1)
    # The feature has the opposite meaning on odd nodes, which only separate weights can express.
    assert model.coef_[0, 0, 0] > 0 > model.coef_[1, 0, 0]
    assert model.score(X, y) > 0.9


def test_offset_types_tell_directions_apart():
    rng = np.random.default_rng(0)
    y = np.repeat(rng.integers(2, size=(20, 6, 1)), 6, axis=2)  # equal rows, independent columns
    X = y[..., None] + rng.normal(size=(20, 6, 6, 1))
    model = drf_classifier(edge_types="offset", edge_features="constant").fit(X, y)
    along, across = model.edge_coef_[:, 0, 0]
    assert along > across + 0.5


def test_missing_labels_are_summed_out_or_completed():
    X, y = noisy_blobs(8)
    partial = y.copy()
    partial[np.random.default_rng(0).random(y.shape) < 0.7] = -1
    for learning in ("pma", "spa", "mma", "cd", "piecewise"):
        model = drf_classifier(learning=learning, missing_label=-1, max_iter=60, random_state=0).fit(X, partial)
        assert_array_equal(model.classes_, [0, 1])
        assert model.score(X, y) > 0.8


# Learning --------------------------------------------------------------------------------------------------------


def test_chains_are_learned_exactly():
    X, y = chains(8)
    exact = drf_classifier(pairwise="full", **TIGHT).fit(X, y)
    brute = drf_classifier(pairwise="full", learning="likelihood", inference=BruteForce(2**18), **TIGHT)
    brute.fit([x[:7] for x in X], [part[:7] for part in y])
    same = drf_classifier(pairwise="full", **TIGHT).fit([x[:7] for x in X], [part[:7] for part in y])
    assert_allclose(brute.coef_, same.coef_, atol=1e-5)
    assert_allclose(brute.edge_coef_, same.edge_coef_, atol=1e-5)
    assert np.all(np.diff(exact.loss_curve_) <= 1e-9 * exact.loss_curve_[0])


@pytest.mark.parametrize("learning", ["pma", "spa", "mma", "pl", "cd"])
@pytest.mark.parametrize("inference", ["mpm", "map", "icm"])
def test_any_rule_goes_with_any_inference(learning, inference):
    X, y = noisy_blobs(8)
    model = drf_classifier(learning=learning, inference=inference, max_iter=40, random_state=0).fit(X, y)
    unary_only = (X[..., 0] > 0.5).astype(int)
    assert model.score(X, y) > np.mean(unary_only == y) + 0.02
    assert np.all(np.isfinite(model.predict_proba(X)))


@pytest.mark.parametrize("n_classes", [3, 4])
@pytest.mark.parametrize("inference", ["mpm", "map"])
def test_more_than_two_classes(n_classes, inference):
    X, y = noisy_blobs(8, noise=0.3, n_classes=n_classes)
    features = np.concatenate((X, X**2), axis=-1)
    model = drf_classifier(inference=inference, max_iter=100).fit(features, y)
    assert model.coef_.shape == (n_classes, 2)
    assert model.score(features, y) > 0.85


@pytest.mark.parametrize("inference", ["mean_field", "trw", "trws", "ad3", "graph_cut", "alpha_expansion"])
def test_named_inferences_learn(inference):
    X, y = noisy_blobs(8)
    assert drf_classifier(inference=inference).fit(X, y).score(X, y) > 0.82


def test_junction_trees_learn_on_narrow_grids():
    X, y = noisy_blobs(8)
    strips, labels = X[:4, :, :4], y[:4, :, :4]
    exact = drf_classifier(inference="junction_tree", **TIGHT).fit(strips, labels)
    assert np.all(np.diff(exact.loss_curve_) <= 1e-9 * exact.loss_curve_[0])
    assert exact.score(strips, labels) > 0.8


@pytest.mark.parametrize("learning", ["spa", "mma"])
def test_errors_bound_the_gradient_along_the_trajectory(learning):
    # Lemma 1 of Kumar et al. (2005), if each edge is counted once: |J| <= (R + 2 Q d) N_E.
    X, y = noisy_blobs(6)
    model = drf_classifier(
        learning=learning, inference="map" if learning == "spa" else "mpm", init="random", random_state=1, max_iter=60
    ).fit(X, y)
    features = X.reshape(-1, 1)
    node_norm = np.sqrt(1 + features**2).max()
    graph = lattice((10, 10))
    edge_norm = max(
        np.sqrt(1 + np.abs(x.ravel()[graph.edges[:, 0]] - x.ravel()[graph.edges[:, 1]]) ** 2).max() for x in X
    )
    bound = (node_norm + 2 * edge_norm * graph.degree.max()) * model.error_curve_
    norms = np.linalg.norm(model.gradient_path_, axis=1) * y.size
    assert len(norms) == model.n_iter_ > 3
    assert np.all(norms <= bound + 1e-9)
    assert norms.max() > 0


@pytest.mark.parametrize("select", ["best", "last", "averaged", "voted"])
def test_selection_among_the_trajectory(select):
    X, y = noisy_blobs(8)
    model = drf_classifier(learning="spa", inference="map", select=select, max_iter=30, n_cycles=100).fit(X, y)
    path, errors = model.coef_path_, model.error_curve_
    flat = np.concatenate([model.coef_.ravel(), model.intercept_.ravel(), model.edge_coef_.ravel()])
    if select == "best":
        chosen = np.flatnonzero(np.all(path == flat, axis=1))
        assert errors[chosen].min() == errors.min()
        assert np.sum(model.predict(X) != y) == errors.min()
    elif select == "last":
        assert_array_equal(flat, path[-1])
    elif select == "averaged":
        assert_allclose(flat, path.mean(axis=0), rtol=1e-12)
    else:
        assert_allclose(flat, model.voters_.mean(axis=0))
        assert 1 < len(model.voters_) <= 9
    assert model.score(X, y) > 0.82


def test_steps_along_approximate_marginals_keep_the_fewest_errors():
    X, y = noisy_blobs(5)
    model = drf_classifier(inference="bp", solver="gradient", step_size=20.0, max_iter=10)
    with pytest.warns(ConvergenceWarning, match="max_iter or change step_size"):
        model.fit(X, y)
    fewest = model.error_curve_.min()
    assert model.error_curve_[-1] > fewest
    assert np.sum(model.predict(X) != y) == fewest


def test_one_label_everywhere_is_no_cycle():
    X, y, _ = make_noisy_shapes("bimodal", 2, shapes=["key"], random_state=0)
    model = drf_classifier(inference="map", init="random", random_state=0, n_cycles=1).fit(X, y)
    assert model.error_curve_.min() < 0.6 * y.sum()


def test_spa_stops_after_its_cycles():
    X, y = noisy_blobs(8)
    model = drf_classifier(inference="map", n_cycles=1, max_iter=5000).fit(X, y)
    assert model.n_iter_ < 5000


def test_cost_moves_the_decision():
    X, y = noisy_blobs(8, noise=1.0)
    plain = drf_classifier().fit(X, y)
    wary = clone(plain).set_params(cost=[[0.0, 10.0], [1.0, 0.0]]).fit(X, y)
    assert_array_equal(wary.coef_, plain.coef_)
    assert (wary.predict(X) == 1).mean() > (plain.predict(X) == 1).mean()
    zero_one = clone(plain).set_params(cost=1 - np.eye(2)).fit(X, y)
    assert_array_equal(zero_one.predict(X), plain.predict(X))
    with pytest.raises(ValueError, match="cost needs marginals"):
        drf_classifier(inference="map", cost=1 - np.eye(2)).fit(X, y)


def test_constant_edge_features_learn_a_smoothing_parameter():
    X, y = noisy_blobs(10)
    model = drf_classifier(edge_features="constant", pairwise="ising").fit(X, y)
    assert model.edge_coef_.shape == (1, 1, 1)
    assert model.edge_coef_[0, 0, 0] > 0.2


@pytest.mark.parametrize("learning", ["pma", "spa", "mma", "pl", "cd"])
def test_bit_identical_for_any_n_jobs(learning):
    X, y = noisy_blobs(5)
    one, two = (
        drf_classifier(learning=learning, n_jobs=n_jobs, max_iter=15, random_state=0).fit(X, y) for n_jobs in (1, 2)
    )
    assert_array_equal(one.coef_, two.coef_)
    assert_array_equal(one.edge_coef_, two.edge_coef_)
    assert_array_equal(one.predict_proba(X), two.predict_proba(X))


@pytest.mark.parametrize("learning", ["pma", "spa", "pl"])
def test_weight_two_is_seen_twice(learning):
    X, y = noisy_blobs(4)
    weighted = drf_classifier(learning=learning, max_iter=30).fit(X, y, sample_weight=[2, 1, 1, 0])
    repeated = drf_classifier(learning=learning, max_iter=30).fit(X[[0, 0, 1, 2]], y[[0, 0, 1, 2]])
    assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-5, atol=1e-7)
    assert_allclose(weighted.edge_coef_, repeated.edge_coef_, rtol=1e-5, atol=1e-7)


def test_contrastive_divergence_is_not_stopped_by_the_noise_of_its_samples():
    X, y = noisy_blobs(4)
    model = drf_classifier(learning="cd", max_iter=300, n_cycles=1, random_state=0).fit(X, y)
    assert model.n_iter_ == 300


@pytest.mark.parametrize("solver", ["lbfgs", "gradient", "sgd"])
def test_solvers_reach_the_same_place(solver):
    X, y = chains(40)
    best = drf_classifier(C=0.1, **TIGHT).fit(X, y).loss_curve_[-1]
    options = {
        "lbfgs": {},
        "gradient": {"max_iter": 500, "step_size": 0.5},
        "sgd": {"max_iter": 40, "random_state": 0, "step_size": 0.5},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        reached = drf_classifier(C=0.1, solver=solver, **options[solver]).fit(X, y).loss_curve_[-1]
    assert reached < best * 1.02


@pytest.mark.parametrize("init", ["zeros", "random", "independent"])
def test_convex_learning_forgets_its_start(init):
    X, y = chains(20)
    reference = drf_classifier(**TIGHT).fit(X, y)
    model = drf_classifier(init=init, random_state=3, **TIGHT).fit(X, y)
    assert_allclose(model.coef_, reference.coef_, atol=1e-5)


# Methods ---------------------------------------------------------------------------------------------------------


def test_energy_is_the_negative_log_probability_up_to_a_constant():
    X, y = chains(6)
    model = drf_classifier().fit(X, y)
    x = X[int(np.argmax([len(part) for part in X]))][:3]
    labelings = np.array(np.meshgrid(*[[0, 1, 2]] * len(x))).reshape(len(x), -1).T
    energies = model.energy([x] * len(labelings), list(labelings))
    probability = np.exp(-energies) / np.exp(-energies).sum()
    for node in range(len(x)):
        marginal = [probability[labelings[:, node] == k].sum() for k in range(3)]
        assert_allclose(model.predict_proba([x])[0][node], marginal, rtol=1e-9)


def test_samples_follow_the_marginals():
    X, y = noisy_blobs(6)
    model = drf_classifier().fit(X, y)
    drawn = model.sample(X[:2], n_samples=400, random_state=0)
    assert drawn.shape == (400, 2, 10, 10)
    assert_array_equal(drawn, model.sample(X[:2], n_samples=400, random_state=0))
    assert np.abs((drawn == 1).mean(axis=0) - model.predict_proba(X[:2])[..., 1]).mean() < 0.1
    ragged = model.sample([X[0], X[1, :3]], n_samples=5, random_state=0)
    assert [part.shape for part in ragged] == [(5, 10, 10), (5, 3, 10)]


def test_log_proba_and_score():
    X, y = noisy_blobs(6)
    model = drf_classifier().fit(X, y)
    assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    assert model.score(X, y) == np.mean(model.predict(X) == y)


# What can go wrong -----------------------------------------------------------------------------------------------


BAD = {
    "infinity": (lambda X, y: (np.where(X > 1.5, np.inf, X), y), r"X\[\d+\] contains infinity"),
    "label shape": (lambda X, y: (X, y[:, :-1]), r"y\[0\] has shape \(9, 10\)"),
    "one class": (lambda X, y: (X, np.zeros_like(y)), "1 class"),
    "empty": (lambda X, y: ([], []), r"0 sample\(s\)"),
    "one image": (lambda X, y: (X[0], y[0]), "leading axis"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_bad_input_is_named_and_loses_nothing(case):
    X, y = noisy_blobs(5)
    model = drf_classifier(lattice_ndim=2).fit(X, y)
    before = pickle.dumps(model)
    change, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        model.fit(*change(X, y))
    assert pickle.dumps(model) == before
    assert_array_equal(model.predict(X), pickle.loads(before).predict(X))


def test_wrong_width_and_unknown_label_afterwards():
    X, y = noisy_blobs(5)
    model = drf_classifier().fit(X, y)
    with pytest.raises(ValueError, match="X has 2 features, but DRFClassifier is expecting 1"):
        model.predict(np.concatenate((X, X), axis=-1))
    assert model.score(X, np.full_like(y, 7)) == 0
    with pytest.raises(NotFittedError):
        drf_classifier().predict(X)


def test_exact_learning_of_graphs_with_cycles_is_by_junction_trees():
    X, y = noisy_blobs(3)
    field = drf_classifier(learning="likelihood", tol=1e-6).fit(X, y)
    exact = drf_classifier(learning="pma", inference="junction_tree", tol=1e-6).fit(X, y)
    assert field.learning_ == "exact"
    assert_allclose(field.coef_, exact.coef_, atol=1e-4)


def test_solver_that_does_not_suit_the_inference():
    X, y = noisy_blobs(3)
    with pytest.raises(ValueError, match="smooth"):
        drf_classifier(inference="gibbs", learning="pma", solver="lbfgs").fit(X, y)


def test_unconverged_inference_warns_once_and_names_what_to_change():
    X, y = noisy_blobs(5)
    with pytest.warns(ConvergenceWarning) as caught:
        drf_classifier(inference=LoopyBP(max_iter=1)).fit(X, y)
    assert len(caught) == 1
    assert "max_iter" in str(caught[0].message)


class Interrupting(ICM):
    """ICM that raises KeyboardInterrupt after some calls."""

    calls = 0

    def _map(self, model, *, init=None, n_threads=1):
        type(self).calls += 1
        if type(self).calls == 40:
            raise KeyboardInterrupt
        return super()._map(model, init=init, n_threads=n_threads)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_interrupted_fit_goes_on_with_warm_start(n_jobs):
    X, y = noisy_blobs(4)
    options = {"inference": Interrupting(), "warm_start": True, "select": "last", "max_iter": 12, "n_cycles": 1000}
    model = drf_classifier(n_jobs=n_jobs, **options)
    Interrupting.calls = 0
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    n_done = model.n_iter_
    assert 0 < n_done < 12
    stopped_at = model.coef_path_[-1]
    model.fit(X, y)
    uninterrupted = drf_classifier(**{**options, "max_iter": n_done + 12}).fit(X, y)
    assert_array_equal(uninterrupted.coef_path_[n_done - 1], stopped_at)


def test_interrupted_fit_without_warm_start_changes_nothing():
    X, y = noisy_blobs(4)
    model = drf_classifier(inference=Interrupting(), max_iter=5, n_cycles=1000)
    Interrupting.calls = 1000
    model.fit(X, y)
    before = pickle.dumps(model)
    Interrupting.calls = 20
    model.max_iter = 50
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    model.max_iter = 5
    assert pickle.dumps(model) == before


@pytest.mark.parametrize("learning", ["spa", "mma"])
def test_probabilities_of_an_arbitrary_scale_are_warned_of(learning):
    X, y = noisy_blobs(6)
    inference = "map" if learning == "spa" else "mpm"
    field = drf_classifier(learning=learning, inference=inference, init="zeros", max_iter=100).fit(X, y)
    for method in (field.predict_proba, field.predict_log_proba):
        with pytest.warns(UserWarning, match=f"With learning='{learning}' and init='zeros', .* TemperatureScaling"):
            method(X)
    anchored = drf_classifier(learning=learning, inference=inference, max_iter=100).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field.predict(X)
        anchored.predict_proba(X)


@pytest.mark.parametrize("make", [noisy_blobs, chains])
def test_pseudolikelihood_of_edges_alone(make):
    X, y = make(8)
    field = DRFClassifier(learning=PseudolikelihoodTraining(fixed_nodes=True), tol=1e-8).fit(X, y)
    rows = np.concatenate([np.reshape(x, (-1, np.shape(x)[-1])) for x in X])
    labels = np.concatenate([np.ravel(part) for part in y])
    logistic = LogisticRegression(tol=1e-8, max_iter=1000).fit(rows, labels)
    assert_allclose(field.coef_, logistic.coef_, atol=1e-3)
    assert_allclose(field.intercept_, logistic.intercept_, atol=1e-3)
    # Weights of nodes are optimal and never change; weights of edges end where no step improves the loss.
    free = field.coef_path_.shape[1] - field.edge_coef_.size
    assert_array_equal(field.gradient_path_[:, :free], 0)
    assert np.abs(field.gradient_path_[-1]).max() < 1e-6
    assert np.ptp(field.coef_path_[:, free:], axis=0).max() > 0.1


@pytest.mark.parametrize("shape", [(16, 16), (8, 8, 8)], ids=str)
def test_steps_of_many_classes_ask_for_one_iteration_each(shape, monkeypatch):
    rng = np.random.default_rng(0)
    blocks = rng.integers(4, size=(8, *(side // 4 for side in shape)))
    y = blocks
    for axis in range(1, y.ndim):
        y = y.repeat(4, axis=axis)
    X = np.eye(4)[y] + rng.normal(size=(*y.shape, 4))
    n_iterations, iterate = [], TRWS._map

    def counted(self, model, **options):
        found = iterate(self, model, **options)
        n_iterations.append(found.n_iter)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(TRWS, "_map", counted)
        field = DRFClassifier(inference="map").fit(X[:4], y[:4])
    assert set(n_iterations) == {1}
    assert len(n_iterations) == 4 * field.n_iter_
    assert field.stop_reason_ == "STOP: no fewer errors in the last 15 steps"
    assert field.error_curve_.argmin() == field.n_iter_ - 16
    alone = LogisticRegression().fit(X[:4].reshape(-1, 4), y[:4].ravel())
    assert field.score(X[4:], y[4:]) > alone.score(X[4:].reshape(-1, 4), y[4:].ravel()) + 0.1
