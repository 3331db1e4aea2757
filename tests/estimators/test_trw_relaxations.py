"""TRWCRF on graphs with cycles: relaxations bound the likelihood, and ways of one relaxation agree."""

import copy
import pickle
import warnings
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from built_fields import m3n_classifier, trw_crf
from factor_examples import factor_examples
from finite_differences import five_point
from model_strategies import random_model
from numpy.testing import assert_allclose
from relaxed_problems import CYCLE, TIGHT, fitted, graphs
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from sklearn_crf import TRWCRF, M3NClassifier, Shards
from sklearn_crf.estimators._fitted_field import FittedField
from sklearn_crf.graphs import covering_trees, lattice
from sklearn_crf.inference import (
    BruteForce,
    NormProductBP,
    TightenBound,
    TRWMessagePassing,
    edge_shared_bound,
    nodes_of_edge_shares,
)
from sklearn_crf.inference.bounds import _tighten_bound
from sklearn_crf.inference.messages._with_fallback import MarginalsWithFallback
from sklearn_crf.learning import (
    LBFGS,
    DualMargin,
    DualRelaxation,
    Facts,
    JointMargin,
    JointRelaxation,
    Relaxation,
    Reparameterization,
    ReparameterizedMargin,
    SmoothedMargin,
)
from sklearn_crf.learning._relaxations import SpanningTreesTraining
from sklearn_crf.models import score
from sklearn_crf.objectives import EdgeProbabilityRisk, JointRisk, Likelihood, Piecewise, RelaxedLikelihood

NAMES = ["relaxation", "reparameterization", "joint_relaxation"]


def weights_of(model):
    return np.concatenate([model.coef_.ravel(), model.intercept_.ravel(), model.edge_coef_.ravel()])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_learnings_of_one_relaxation_agree(n_classes):
    X, y = graphs(n_classes=n_classes, n=3)
    models = [fitted(X, y, learning=name, pairwise="potts") for name in NAMES]
    for other in models[1:]:
        assert_allclose(other.loss_curve_[-1], models[0].loss_curve_[-1], rtol=1e-6)
        for name in ("coef_", "edge_coef_"):
            assert_allclose(getattr(other, name), getattr(models[0], name), atol=1e-5)
        for a, b in zip(other.predict_proba(X), models[0].predict_proba(X), strict=True):
            assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize(
    ("edges", "entropy"), [([[0, 1], [1, 2], [2, 3]], "trw"), (CYCLE, "trw"), (CYCLE, "trivial"), (CYCLE, "factors")]
)
def test_learnings_of_one_relaxation_agree_where_labels_are_missing(edges, entropy):
    X, y = graphs(edges, n=12)
    y = [np.where(np.arange(len(own)) == i % 4, -1, own) for i, own in enumerate(y)]
    y[0][1:] = -1
    options = {"missing_label": -1, "pairwise": "potts", "fit_intercept": False, "entropy": entropy, "tol": 1e-5}
    names = ["relaxation", "joint_relaxation"] + ["dual_relaxation"] * (entropy == "trw")
    models = [fitted(X, y, learning=name, **options | {"max_iter": 1000}) for name in names]
    for other in models[1:]:
        assert_allclose(other.loss_curve_[-1], models[0].loss_curve_[-1], rtol=1e-5)
        assert_allclose(weights_of(other), weights_of(models[0]), atol=5e-4)
    if len(edges) == 3:
        # Inference is exact, so the loss is the negative log-probability of the known labels.
        exact = fitted(X, y, learning="exact", **{k: v for k, v in options.items() if k != "entropy"})
        assert_allclose(models[0].loss_curve_[-1], exact.loss_curve_[-1], rtol=1e-6)


def test_rounds_of_completed_labels_end_at_max_iter():
    X, y = graphs(n=6)
    y = [np.where(np.arange(len(own)) < 3, -1, own) for own in y]
    field = trw_crf(**TIGHT | {"max_iter": 30}, learning="dual_relaxation", missing_label=-1, fit_intercept=False)
    with pytest.warns(ConvergenceWarning, match="increase max_iter"):
        field.fit(X, y)
    assert not field.converged_
    assert field.n_iter_ == 30


def lattices():
    rng = np.random.default_rng(0)
    y = (rng.normal(size=(2, 3, 3)) > 0).astype(int)
    return (y + rng.normal(size=y.shape))[..., np.newaxis], y


@pytest.mark.parametrize("trees", ["covering", "uniform", "snakes", "own"])
def test_learnings_of_one_relaxation_agree_for_any_trees(trees):
    X, y = lattices()
    own = covering_trees(lattice((3, 3)), 5) if trees == "own" else trees
    options = {"pairwise": "potts", "fit_intercept": False, "trees": own, "tol": 1e-5}
    names = [*NAMES, "dual_relaxation", "spanning_trees"]
    found = {name: fitted(X, y, learning=name, **options).loss_curve_[-1] for name in names}
    # The probabilities of messages are exactly even, and those of covering trees only about even.
    rtol = 1e-3 if trees == "uniform" else 1e-5
    for name in ("joint_relaxation", "dual_relaxation"):
        assert_allclose(found[name], found["relaxation"], rtol=rtol)
    assert_allclose(found["joint_relaxation"], found["reparameterization"], rtol=1e-5)
    assert found["spanning_trees"] > found["joint_relaxation"] + 1e-3


def test_optimal_trees_are_those_of_learned_edge_probabilities():
    X, y = lattices()
    learnings = [kind(trees="optimal") for kind in (Relaxation, Reparameterization)]
    nested, divided, joint, covering = (
        TRWCRF(learning=learning, edge_features="constant").fit(X, y).loss_curve_[-1]
        for learning in (*learnings, "edge_probabilities", Relaxation(trees="covering"))
    )
    assert_allclose([nested, divided], joint, rtol=2e-3)
    assert max(nested, divided) < covering


@pytest.mark.parametrize("kind", [Relaxation, DualRelaxation])
def test_fits_that_end_before_trees_are_chosen_have_not_converged(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 3, 3, 2))
    y = (X[..., 0] + rng.normal(size=(4, 3, 3)) > 0).astype(int)
    options = {"C": 10, "pairwise": "potts", "fit_intercept": False, "tol": 1e-4}
    for max_iter in range(1, 10):
        with pytest.warns(ConvergenceWarning):
            assert not TRWCRF(learning=kind(trees="optimal"), **options, max_iter=max_iter).fit(X, y).converged_


def test_optimal_trees_are_chosen_between_minimisations(monkeypatch):
    X, y = lattices()
    chosen, trained, choose = [], [], _tighten_bound.choose_trees
    minimize = LBFGS.train
    monkeypatch.setattr(_tighten_bound, "choose_trees", lambda *args: chosen.append(1) or choose(*args))
    monkeypatch.setattr(LBFGS, "train", lambda *args: trained.append(1) or minimize(*args))
    field = TRWCRF(learning=Relaxation(trees="optimal", tol=1e-5), edge_features="constant", tol=1e-6).fit(X, y)
    assert field.converged_
    # Each choice of trees is one evaluation of all examples.
    assert len(chosen) == len(X) * len(trained) < field.n_iter_


def examples_with_cycles(kind):
    """Return lattices, or examples with factors of two and three nodes on cycles, and their labels."""
    return lattices() if kind == "lattices" else factor_examples(2, n_classes=2)


def losses_of_trees(estimator, learnings, X, y, **options):
    """Return the final losses of learning methods, for covering trees and for optimal trees, (2, n)."""
    losses = [
        [
            estimator(learning=clone(each).set_params(trees=trees), edge_features="constant", **options).fit(X, y)
            for each in learnings
        ]
        for trees in ("covering", "optimal")
    ]
    return np.array([[field.loss_curve_[-1] for field in row] for row in losses])


@pytest.mark.parametrize(("kind", "dtype"), [("lattices", np.float32), ("lattices", np.float64), ("factors", None)])
def test_all_relaxations_choose_the_same_trees(kind, dtype):
    X, y = examples_with_cycles(kind)
    X = X if dtype is None else X.astype(dtype)
    learnings = [Relaxation(), JointRelaxation(), DualRelaxation()] + [Reparameterization()] * (dtype is not None)
    options = {"fit_intercept": False, "tol": 1e-3, "random_state": 0}
    covering, optimal = losses_of_trees(TRWCRF, learnings, X, y, **options)
    assert_allclose(optimal, optimal[0], rtol=2e-3)
    assert_allclose(covering, covering[0], rtol=1e-4)
    assert optimal.max() < covering.min() - 1e-3


@pytest.mark.parametrize("kind", ["lattices", "factors"])
def test_smoothed_margins_choose_the_same_trees(kind):
    X, y = examples_with_cycles(kind)
    learnings = [each(temperature=0.5, tol=1e-4) for each in (SmoothedMargin, ReparameterizedMargin, JointMargin)]
    covering, optimal = losses_of_trees(M3NClassifier, learnings, X, y, tol=1e-3)
    assert_allclose(optimal, optimal[0], rtol=2e-3)
    assert optimal.max() < covering.min() - 1e-3


def test_trees_are_chosen_where_labels_are_missing():
    X, y = lattices()
    y = np.where(np.arange(y.size).reshape(y.shape) % 5 == 1, -1, y)
    options = {"missing_label": -1, "fit_intercept": False, "tol": 1e-4}
    learnings = [Relaxation(), JointRelaxation(), DualRelaxation()]
    covering, optimal = losses_of_trees(TRWCRF, learnings, X, y, **options)
    assert_allclose(optimal, optimal[0], rtol=1e-3)
    assert np.all(optimal < covering)


def test_learnings_agree_on_factors_where_labels_are_missing():
    X, y = factor_examples(4, n_classes=2)
    y = [np.where(np.arange(len(own)) == i % 3, -1, own) for i, own in enumerate(y)]
    options = {"edge_features": "constant", "fit_intercept": False, "missing_label": -1, "random_state": 0}
    losses = [
        TRWCRF(learning=each, **options).fit(X, y).loss_curve_[-1]
        for each in (Relaxation(), JointRelaxation(), DualRelaxation())
    ]
    assert_allclose(losses, losses[0], rtol=1e-4)


def test_trees_of_shards_are_those_of_whole_data():
    X, y = lattices()
    field = TRWCRF(learning=Relaxation(trees="optimal"), edge_features="constant", tol=1e-4)
    whole = clone(field).fit(X, y)
    parts = clone(field).fit(Shards.from_arrays([(X[:1], y[:1]), (X[1:], y[1:])]))
    assert_allclose(parts.coef_, whole.coef_, atol=1e-6)
    assert_allclose(pickle.loads(pickle.dumps(parts)).predict_proba(X), whole.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize(
    ("estimator", "learning", "message"),
    [
        (TRWCRF, SpanningTreesTraining(trees="optimal"), "only this bound is convex"),
        (TRWCRF, Relaxation(entropy="trivial", trees="optimal"), "needs entropy='trw'"),
        (M3NClassifier, DualMargin(trees="optimal"), "the same for all trees"),
        (M3NClassifier, JointMargin(trees="optimal", temperature=0), "the same for all trees"),
        (M3NClassifier, ReparameterizedMargin(trees="optimal", temperature=0), "the same for all trees"),
        (M3NClassifier, SmoothedMargin(trees="snakes", entropy="trivial"), "needs entropy='trw'"),
    ],
)
def test_trees_that_change_nothing_are_refused(estimator, learning, message):
    X, y = lattices()
    with pytest.raises(ValueError, match=message):
        estimator(learning=learning, edge_features="constant").fit(X, y)


@pytest.mark.parametrize("learning", [Relaxation, DualRelaxation, SmoothedMargin])
def test_own_edge_probabilities_are_those_of_trees(learning):
    X, y = lattices()
    trees = covering_trees(lattice((3, 3)), 5)
    options = {"edge_features": "constant", "fit_intercept": False, "tol": 1e-6}
    if learning is SmoothedMargin:
        make, given = M3NClassifier, {"temperature": 1.0}
    else:
        make, given = TRWCRF, {}
    losses = [
        make(learning=learning(trees=own, **given), **options).fit(X, y).loss_curve_[-1]
        for own in (trees, trees.edge_probabilities, "covering")
    ]
    assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert abs(losses[2] - losses[0]) > 1e-4 * losses[0]
    with pytest.raises(ValueError, match="probabilities"):
        make(learning=learning(trees=trees.edge_probabilities[1:]), **options).fit(X, y)


def test_series_parallel_subgraphs_in_all_relaxations_for_fixed_trees():
    X, y = lattices()
    options = {"edge_features": "constant", "fit_intercept": False, "tol": 1e-6}
    losses = [
        trw_crf(learning=kind(trees="series_parallel"), **options).fit(X, y).loss_curve_[-1]
        for kind in (Relaxation, Reparameterization, DualRelaxation)
    ]
    assert_allclose(losses[1:], losses[0], rtol=1e-5)


@pytest.mark.parametrize("learning", ["smoothed_margin", "reparameterized_margin", "joint_margin", "dual_margin"])
def test_smoothed_margins_of_given_trees(learning):
    X, y = lattices()
    losses = []
    for trees in ("covering", "snakes"):
        field = m3n_classifier(learning=learning, trees=trees, edge_features="constant", random_state=0)
        losses.append(field.fit(X, y).loss_curve_[-1])
    if learning == "dual_margin":
        # The dual of the local polytope has no entropy.
        assert_allclose(losses[0], losses[1], rtol=0.02)
    else:
        assert abs(losses[0] - losses[1]) > 1e-6


@pytest.mark.parametrize("edges", [CYCLE, [[0, 1], [1, 2]], [[0, 1], [1, 2], [0, 2], [3, 4]]])
@pytest.mark.parametrize("entropy", ["trivial", "factors"])
def test_learnings_of_entropies_of_edges_agree(edges, entropy):
    X, y = graphs(edges, n=3)
    models = [fitted(X, y, learning=name, entropy=entropy) for name in ("relaxation", "joint_relaxation")]
    assert_allclose(models[1].loss_curve_[-1], models[0].loss_curve_[-1], rtol=1e-6)
    assert_allclose(models[1].coef_, models[0].coef_, atol=1e-5)


@pytest.mark.parametrize("kind", ["typed", "weighted", "untied"])
@pytest.mark.parametrize("entropy", ["trivial", "factors"])
def test_shares_of_edges_are_differentiated_and_bound(kind, entropy):
    model = random_model("disconnected", 3, kind, seed=0)
    rng = np.random.default_rng(0)
    shares = rng.normal(size=len(nodes_of_edge_shares(model)))
    found = edge_shared_bound(model, shares, entropy)
    numeric = five_point(lambda x: edge_shared_bound(model, x, entropy).marginals.log_z, shares)
    assert_allclose(found.gradient, numeric, atol=1e-7)
    log_z = BruteForce().marginals(model).log_z
    tight = NormProductBP(entropy, tol=1e-10, max_iter=2000).marginals(model).log_z
    assert log_z <= tight + 1e-9 <= found.marginals.log_z + 1e-9
    for field in ("unary", "tables"):
        values = getattr(model, field)

        def bound(x, field=field, values=values):
            return edge_shared_bound(
                replace(model, **{field: x.reshape(values.shape)}), shares, entropy
            ).marginals.log_z

        expected = five_point(bound, values.ravel()).reshape(values.shape)
        assert_allclose(getattr(found.marginals, field), expected, atol=1e-7)


def test_entropies_that_edges_do_not_share_are_an_error():
    model = random_model("cycle", 2, "tied", seed=0)
    with pytest.raises(ValueError, match="entropy must be one of 'trivial', 'factors', got 'trw'"):
        edge_shared_bound(model, np.zeros(len(nodes_of_edge_shares(model))), "trw")


def test_the_best_trees_are_never_looser():
    model = random_model("cycle", 2, "untied", seed=4)
    labels = np.zeros(model.graph.n_nodes, dtype=np.int32)
    fixed, best = (
        RelaxedLikelihood(TightenBound(trees, tol=1e-6, max_iter=2000)).loss_statistics(model, labels).terms.sum()
        for trees in ("covering", "optimal")
    )
    assert best <= fixed + 1e-9


@pytest.mark.parametrize("n_classes", [2, 3])
def test_edge_probabilities_learned_with_the_weights_are_those_of_the_nested_problem(n_classes):
    X, y = graphs(n_classes=n_classes, n=3)
    weights = [1.0, 2.0, 0.5]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        fit = trw_crf(learning="edge_probabilities", tol=1e-5, max_iter=2000).fit(X, y, weights)
        relaxed = trw_crf(learning="relaxation", tol=1e-5).fit(X, y, weights)
    assert fit.converged_
    assert fit.loss_curve_[-1] < relaxed.loss_curve_[-1] - 1e-3

    def nested(coef):
        """Compute the penalised risk, with the trees that are best for each example at these weights."""
        moved = copy.copy(fit)
        n_node, n_intercept = fit.coef_.size, fit.intercept_.size
        moved.coef_ = coef[:n_node].reshape(fit.coef_.shape)
        moved.intercept_ = coef[n_node : n_node + n_intercept]
        moved.edge_coef_ = coef[n_node + n_intercept :].reshape(fit.edge_coef_.shape)
        penalised = np.delete(coef, slice(n_node, n_node + n_intercept))
        tight = RelaxedLikelihood(TightenBound("optimal", outer_iter=60, tol=1e-5, max_iter=2000))
        labels = [np.searchsorted(fit.classes_, each).astype(np.int32) for each in y]
        losses = [
            tight.loss_statistics(model, truth).terms.sum()
            for model, truth in zip(moved.models(X), labels, strict=True)
        ]
        return 0.5 * penalised @ penalised + fit.C * np.dot(weights, losses)

    coef = weights_of(fit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        value = nested(coef)
        # Nested conditional gradients stop short of the optimum.
        assert_allclose(fit.loss_curve_[-1], value, rtol=2e-3)
        assert fit.loss_curve_[-1] <= value * (1 + 1e-4)
        direction = np.random.default_rng(0).normal(size=len(coef))
        step = 0.3 * direction / np.linalg.norm(direction)
        assert nested(coef + step) > value
        assert nested(coef - step) > value


@pytest.mark.parametrize("is_partial", [False, True])
@pytest.mark.parametrize(
    ("learning", "risk_of"), [("joint_relaxation", JointRisk), ("edge_probabilities", EdgeProbabilityRisk)]
)
def test_joint_risks_are_differentiated_by_weights_and_the_other_unknowns(learning, risk_of, is_partial):
    X, y = graphs(n=2)
    if is_partial:
        y = [np.where(np.arange(len(own)) % 3 == 1, -1, own) for own in y]
    fit = trw_crf(learning=learning, max_iter=1, missing_label=-1, inner_tol=1e-12)
    seen = []
    original = risk_of.value_grad

    def spy(self, coef, members=None):
        seen.append(self)
        return original(self, coef, members)

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        patch.setattr(risk_of, "value_grad", spy)
        fit.fit(X, y, sample_weight=[1.0, 2.5])
    risk = seen[0]
    coef = np.random.default_rng(0).normal(size=risk.potentials.n_coef)
    directions = np.eye(len(coef))
    if learning == "edge_probabilities":
        # From equal weights towards one tree, away from all other trees of its example.
        n_weights = len(weights_of(fit))
        coef[n_weights:] = risk.project(0 * coef)[n_weights:]
        mixtures = [mixture.component + 10 * i for i, mixture in enumerate(risk.trees)]
        same = np.equal.outer(np.concatenate(mixtures), np.concatenate(mixtures))
        directions[n_weights:, n_weights:] -= same / same.sum(axis=0)
    along = directions @ risk.value_grad(coef).gradient
    assert_allclose(
        along,
        five_point(lambda steps: risk.value_grad(coef + steps @ directions).value, np.zeros(len(coef))),
        atol=1e-6,
    )


def test_edge_probabilities_where_messages_diverge_and_after_ctrl_c():
    """Use messages that always converge, and continue an interrupted fit to the same optimum."""
    X, y = graphs(n=3)
    fit = trw_crf(learning="edge_probabilities", tol=1e-5, max_iter=2000).fit(X, y)
    with pytest.MonkeyPatch.context() as patch:
        original = TRWMessagePassing.marginals
        patch.setattr(
            TRWMessagePassing,
            "marginals",
            lambda self, *args, **options: original(self, *args, **options)._replace(converged=False),
        )
        other = trw_crf(learning="edge_probabilities", tol=1e-5, max_iter=2000).fit(X, y)
    assert_allclose(other.loss_curve_[-1], fit.loss_curve_[-1], rtol=1e-4)
    stopped = trw_crf(learning="edge_probabilities", tol=1e-5, max_iter=5, warm_start=True)
    with pytest.warns(ConvergenceWarning, match="increase max_iter"):
        stopped.fit(X, y)
    again = stopped.set_params(max_iter=2000).fit(X, y)
    assert_allclose(again.loss_curve_[-1], fit.loss_curve_[-1], rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning": "edge_probabilities", "entropy": "trivial"}, "entropy='trw'"),
        ({"learning": "edge_probabilities", "trees": "snakes"}, "learns its trees"),
        ({"learning": "relaxation", "entropy": "trivial", "trees": "snakes"}, "entropy='trw'"),
        ({"learning": "relaxation", "trees": "snakes"}, "must be a lattice"),
        ({"learning": "joint_relaxation", "solver": "sgd"}, "solver='lbfgs'"),
        ({"learning": "edge_probabilities", "solver": "sgd"}, "solver='lbfgs'"),
        ({"learning": "edge_probabilities", "solver": LBFGS(l1_ratio=0.5)}, "l1_ratio=0"),
    ],
)
def test_what_learnings_refuse(options, message):
    X, y = graphs(n=3)
    with pytest.raises(ValueError, match=message):
        trw_crf(**options).fit(X, y)


def test_relaxations_are_ordered():
    X, y = graphs()
    least = {
        (name, entropy): fitted(X, y, learning=name, entropy=entropy).loss_curve_[-1]
        for name, entropy in [("exact", "trw"), ("relaxation", "trw"), ("relaxation", "trivial"), ("piecewise", "trw")]
    }
    assert list(least.values()) == sorted(least.values())
    assert np.all(np.diff(list(least.values())) > 1e-3)


def test_on_trees_the_reweighted_entropy_is_exact_and_the_trivial_one_is_not():
    X, y = graphs([[0, 1], [1, 2], [1, 3]])
    exact = fitted(X, y, learning="exact")
    assert trw_crf().fit(X, y).learning_ == "exact"
    for name in NAMES:
        model = fitted(X, y, learning=name)
        assert_allclose(weights_of(model), weights_of(exact), atol=1e-5)
    for options in ({"learning": "relaxation", "entropy": "trivial"}, {"learning": "piecewise"}):
        assert np.abs(weights_of(fitted(X, y, **options)) - weights_of(exact)).max() > 1e-2


def test_narrow_cycles_are_trained_exactly_by_default():
    X, y = graphs()
    model = trw_crf().fit(X, y)
    assert model.learning_ == "exact"
    assert model.has_cycles_
    assert model.score(X, y) > 0.8
    assert_allclose(model.loss_curve_[-1], trw_crf(learning="exact").fit(X, y).loss_curve_[-1], rtol=1e-4)


def test_wide_graphs_are_relaxed_by_default():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=(2, 14, 14))
    X = y[..., None] + rng.normal(size=(2, 14, 14, 1))
    assert trw_crf(max_iter=3, tol=10).fit(X, y).learning_ == "relaxation"
    narrow = trw_crf(max_iter=20, tol=1e-2).fit(X[:, :4], y[:, :4])
    assert narrow.learning_ == "exact"
    # Examples too wide for exact inference are still predicted.
    wide = rng.normal(size=(1, 40, 40, 1))
    assert_allclose(narrow.predict_proba(wide).sum(axis=-1), 1)


@pytest.mark.parametrize("learning", ["relaxation", "piecewise", "loopy", "mean_field", "pseudolikelihood"])
def test_images(learning):
    rng = np.random.default_rng(0)
    y = np.zeros((6, 6, 6), dtype=int)
    y[:, 1:5, 2:] = 1
    y ^= rng.random(y.shape) < 0.1
    X = y[..., None] + rng.normal(scale=0.5, size=(*y.shape, 1))
    model = trw_crf(learning=learning, pairwise="ising", inference="map", max_iter=50, C=0.1).fit(X, y)
    assert model.score(X, y) > max(y.mean(), 1 - y.mean()) + 0.1


@pytest.mark.parametrize("kind", ["tied", "typed", "weighted", "untied"])
def test_piecewise_is_differentiated_and_normalises_pieces(kind):
    model = random_model("cycle", 3, kind, seed=3)
    labels = np.random.default_rng(0).integers(3, size=model.graph.n_nodes).astype(np.int32)
    loss = Piecewise().loss_statistics(model, labels)
    pieces = sum(np.log(np.exp(table).sum()) for table in model.edge_tables())
    pieces += np.log(np.exp(model.unary).sum(axis=1)).sum()
    assert_allclose(loss.terms.sum(), pieces - score(model, labels))
    assert pieces >= BruteForce().marginals(model).log_z

    def value(**changes):
        return Piecewise().loss_statistics(random_changed(model, changes), labels).terms.sum()

    assert_allclose(loss.statistics.unary, five_point(lambda u: value(unary=u), model.unary), atol=1e-9)
    assert_allclose(loss.statistics.tables, five_point(lambda t: value(tables=t), model.tables), atol=1e-9)


def test_pieces_that_allow_nothing_are_an_error():
    model = random_model("cycle", 3, "tied", seed=3)
    labels = np.zeros(model.graph.n_nodes, dtype=np.int32)
    unused = np.full((1, *model.tables.shape[1:]), -np.inf)
    allowed = random_changed(model, {"tables": np.concatenate((model.tables, unused))})
    loss = Piecewise().loss_statistics(allowed, labels)
    assert_allclose(loss.terms, Piecewise().loss_statistics(model, labels).terms)
    with pytest.raises(ValueError, match="the table of edge type 1 allows no pair of states"):
        Piecewise().loss_statistics(random_changed(allowed, {"edge_type": np.ones_like(model.edge_type)}), labels)


def random_changed(model, changes):
    fields = {name: getattr(model, name) for name in ("graph", "unary", "tables", "edge_type", "edge_weight")}
    return type(model)(**fields | changes)


@pytest.mark.parametrize(
    "inference",
    [TRWMessagePassing("covering", tol=1e-12, max_iter=3000), NormProductBP(tol=1e-12, max_iter=3000)],
    ids=lambda inference: type(inference).__name__,
)
@pytest.mark.parametrize("missing", [0, 2])
def test_relaxed_likelihood_bounds_and_is_differentiated(inference, missing):
    model = random_model("cycle", 2, "tied", seed=1)
    labels = np.random.default_rng(0).integers(2, size=model.graph.n_nodes).astype(np.int32)
    labels[:missing] = -1
    objective = RelaxedLikelihood(inference)
    loss = objective.loss_statistics(model, labels)

    def value(unary):
        return objective.loss_statistics(random_changed(model, {"unary": unary}), labels).terms.sum()

    assert_allclose(loss.statistics.unary, five_point(value, model.unary), atol=1e-6)
    if not missing:
        exact = Likelihood(BruteForce()).loss_statistics(model, labels)
        assert loss.terms.sum() > exact.terms.sum()
    again = objective.loss_statistics(model, labels, state=loss.state)
    assert_allclose(again.terms.sum(), loss.terms.sum(), rtol=1e-9)


def test_fallback_solves_where_messages_do_not_settle():
    model = random_model("cycle", 2, "tied", seed=1)
    labels = np.zeros(model.graph.n_nodes, dtype=np.int32)
    hopeless = TRWMessagePassing("covering", max_iter=1, tol=1e-12)
    objective = RelaxedLikelihood(MarginalsWithFallback(hopeless, TightenBound(tol=1e-9, max_iter=5000)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss = objective.loss_statistics(model, labels)
        again = objective.loss_statistics(model, labels, state=loss.state)
    settled = RelaxedLikelihood(TRWMessagePassing("covering", tol=1e-12, max_iter=3000)).loss_statistics(model, labels)
    assert loss.converged
    assert_allclose(loss.terms.sum(), settled.terms.sum(), rtol=1e-7)
    assert_allclose(again.terms.sum(), loss.terms.sum(), rtol=1e-9)


class Oscillating(TRWMessagePassing):
    """Message passing that converges only with damping, and records its calls."""

    calls: ClassVar[list] = []

    def _marginals(self, model, *, init=None, n_threads=1):
        found = super()._marginals(model, init=init, n_threads=n_threads)
        self.calls.append((self.damping, self.max_iter, init is not None))
        return found if self.damping else found._replace(converged=False)


def test_damping_comes_before_the_fallback_and_stays():
    model = random_model("cycle", 2, "tied", seed=1)
    labels = np.zeros(model.graph.n_nodes, dtype=np.int32)
    messages = Oscillating("covering", tol=1e-10, max_iter=2000)
    objective = RelaxedLikelihood(MarginalsWithFallback(messages, TightenBound(max_iter=1)))
    Oscillating.calls.clear()
    loss = objective.loss_statistics(model, labels)
    again = objective.loss_statistics(model, labels, state=loss.state)
    assert Oscillating.calls == [(0.0, 500, False), (0.2, 2000, False), (0.2, 2000, True)]
    settled = RelaxedLikelihood(TRWMessagePassing("covering", tol=1e-12, max_iter=3000)).loss_statistics(model, labels)
    assert loss.converged
    assert again.converged
    assert_allclose([loss.terms.sum(), again.terms.sum()], settled.terms.sum(), rtol=1e-7)


def test_prediction_falls_back_as_training_does():
    X, y = graphs()
    model = fitted(X, y, learning="relaxation", pairwise="potts")
    model.edge_coef_ = 8.0 * model.edge_coef_
    rough = clone(model).set_params(learning=Relaxation(max_iter=2, tol=1e-12))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = FittedField.of(rough.fit(X, y)).decoding.inference
        for found in rough.models(X):
            assert_allclose(
                chosen.marginals(found).unary, TightenBound(max_iter=2, tol=1e-12).marginals(found).unary, atol=1e-12
            )
    for found in model.models(X):
        assert_allclose(
            MarginalsWithFallback(
                TRWMessagePassing("covering", max_iter=1, tol=1e-12), TightenBound(tol=1e-9, max_iter=5000)
            )
            .marginals(found)
            .unary,
            TRWMessagePassing("covering", tol=1e-10, max_iter=5000, damping=0.3).marginals(found).unary,
            atol=1e-4,
        )


def test_the_inner_problem_follows_the_gradient_by_default_alone():
    accurate, given = Relaxation().for_fit("auto", None, 1e-5), Relaxation(tol=1e-5).for_fit("auto", None, 1e-4)
    objective = accurate.bound(Facts())
    assert not objective.is_settled
    while objective.settle():
        pass
    assert objective.inference.tol == pytest.approx(1e-4)
    assert accurate.automatic_inference(Facts()).inference.tol == pytest.approx(1e-4)
    assert given.bound(Facts()).is_settled
    assert given.bound(Facts()).inference.tol == 1e-5


def test_an_inner_problem_that_does_not_converge_is_named():
    X, y = graphs(n=3)
    with pytest.warns(ConvergenceWarning, match="increase the max_iter of the learning method"):
        trw_crf(learning="reparameterization", inner_max_iter=1, inner_tol=1e-12, max_iter=3).fit(X, y)


@pytest.mark.parametrize("entropy", ["trw", "trivial"])
def test_weights_of_examples_without_edges_in_the_joint_problem(entropy):
    """Examples without edges share a batch, even if their weights differ."""
    rng = np.random.default_rng(0)
    X, y, weight = rng.normal(size=(20, 2)), np.arange(20) % 3, 1.0 + np.arange(20) % 4
    joint, plain = (
        trw_crf(learning=learning, entropy=entropy, tol=1e-8).fit(X, y, sample_weight=weight)
        for learning in ("joint_relaxation", "relaxation")
    )
    assert_allclose(joint.coef_, plain.coef_, atol=1e-6)
    assert_allclose(joint.loss_curve_[-1], plain.loss_curve_[-1])
    assert joint.error_curve_[-1] == plain.error_curve_[-1]


def test_grid_search_over_strength_and_entropy():
    X, y = graphs(n=8)
    grid = {
        "C": [0.01, 1.0],
        "learning__entropy": ["trw", "trivial"],
        "learning__temperature": [0.5, 1.0],
    }
    search = GridSearchCV(TRWCRF(learning=Relaxation(), tol=1e-3), grid, cv=2, n_jobs=2).fit(X, y)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))
    assert search.best_estimator_.learning_ == "relaxation"


def test_defaults_are_silent_and_as_good_as_a_tight_inner_problem():
    rng = np.random.default_rng(0)
    y = np.zeros((4, 12, 12), dtype=int)
    for image in y:
        top, left = rng.integers(1, 5, size=2)
        image[top : top + 6, left : left + 6] = 1
    X = (y + rng.normal(scale=0.7, size=y.shape))[..., np.newaxis]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = TRWCRF().fit(X, y)
        probabilities = plain.predict_proba(X)
    tight = TRWCRF(learning=Relaxation(tol=1e-7, max_iter=20_000), tol=1e-6, max_iter=300).fit(X, y)
    assert_allclose(plain.loss_curve_[-1], tight.loss_curve_[-1], rtol=1e-4)
    assert_allclose(probabilities, tight.predict_proba(X), atol=0.02)
