"""Max-margin learning methods, compared with each other, the exact optimum and a linear program."""

import warnings

import numpy as np
import pytest
from built_fields import m3n_classifier
from factor_examples import factor_examples
from factor_strategies import random_factor_graph
from field_data import chains
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import random_model
from numpy.testing import assert_allclose, assert_array_equal
from relaxed_problems import graphs
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import (
    AD3,
    ICM,
    TRWS,
    BruteForce,
    CountingNumbers,
    GraphCut,
    IncMP,
    LinearProgram,
    LoopyBP,
    best_coupling_statistics,
    best_couplings,
)
from sklearn_crf.learning import JointMargin, SmoothedMargin
from sklearn_crf.models import PairwiseModel, compute_labeling_statistics
from sklearn_crf.objectives import RelaxedHinge, StructuredHinge

SMOOTHED = ["smoothed_margin", "reparameterized_margin", "joint_margin"]
OPTIONS = {
    "C": 0.1,
    "edge_features": "constant",
    "pairwise": "full",
    "connectivity": 2,
    "random_state": 0,
    "max_iter": 500,
}


def frustrated(n_examples=6, seed=0):
    """Return grids of 3 x 3 nodes that differ from all neighbours, also diagonal ones: the relaxation is not tight."""
    model = PairwiseModel(lattice((3, 3), 2), np.zeros((9, 2)), -1.5 * np.eye(2)[None])
    y = BruteForce().sample(model, n_examples, random_state=seed).reshape(-1, 3, 3).astype(int)
    rng = np.random.default_rng(seed)
    return 0.5 * y[..., None] + rng.normal(size=(*y.shape, 1)), y


def fitted(X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return m3n_classifier(**{**OPTIONS, **options}).fit(X, y)


# Entropies of smoothed margins --------------------------------------------------------------------------------------


@pytest.mark.parametrize("entropy", ["trivial", "factors", CountingNumbers(0.5, 1.0)])
def test_every_entropy_smooths_the_same_programme(entropy):
    """The smoothed objective decreases to the linear relaxation, and the gap bounds the remaining difference."""
    X, y = frustrated()
    relaxed = fitted(X, y, learning="relaxed_margin", solver="bmrm", tol=1e-5)
    values = []
    for temperature in (0.3, 0.03):
        model = fitted(X, y, learning=SmoothedMargin(temperature=temperature, entropy=entropy), tol=1e-6)
        values.append(model.loss_curve_[-1])
        assert model.loss_curve_[-1] - model.duality_gap_ <= relaxed.loss_curve_[-1] + 1e-4
        assert model.loss_curve_[-1] >= relaxed.loss_curve_[-1] - relaxed.duality_gap_ - 1e-4
    assert values[1] < values[0]
    assert_allclose(values[1], relaxed.loss_curve_[-1], rtol=0.15)


def test_the_joint_problem_with_the_trivial_entropy_is_that_by_messages():
    X, y = frustrated(n_examples=3)
    losses = [
        fitted(X, y, learning=kind(temperature=0.3, entropy="trivial"), tol=1e-7).loss_curve_[-1]
        for kind in (SmoothedMargin, JointMargin)
    ]
    assert_allclose(losses[1], losses[0], rtol=1e-4)


def test_smoothed_margins_say_once_that_they_stopped():
    X, y = frustrated(n_examples=3)
    with pytest.warns(ConvergenceWarning, match="ended with 'STOP: max_iter reached'"):
        m3n_classifier(**{**OPTIONS, "max_iter": 2}, learning="joint_margin").fit(X, y)


@pytest.mark.parametrize("numbers", [CountingNumbers(-1.0, 1.0), CountingNumbers(np.ones(9), 1.0)])
def test_counting_numbers_that_are_no_entropy_of_every_example(numbers):
    X, y = frustrated(n_examples=2)
    with pytest.raises(ValueError, match="neither of them negative"):
        fitted(X, y, learning=SmoothedMargin(entropy=numbers))


# The relaxed hinge --------------------------------------------------------------------------------------------------


@given(n_columns=st.integers(2, 4), seed=st.integers(0, 10_000), n_decided=st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_couplings_are_the_best_of_their_marginals(n_columns, seed, n_decided):
    model = random_model("cycle", n_columns, "weighted", seed=seed)
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.ones(n_columns), size=model.graph.n_nodes)
    share[:n_decided] = np.eye(n_columns)[rng.integers(n_columns, size=n_decided)]
    joint = best_couplings(model, share)
    tables = model.edge_tables()
    for e, (tail, head) in enumerate(model.graph.edges):
        assert_allclose(joint[e].sum(axis=1), share[tail], atol=1e-7)
        assert_allclose(joint[e].sum(axis=0), share[head], atol=1e-7)
        cell = np.arange(n_columns**2).reshape(n_columns, n_columns)
        sums = np.array([np.isin(np.arange(n_columns**2), own) for own in (*cell, *cell.T)], dtype=float)
        best = linprog(-tables[e].ravel(), A_eq=sums, b_eq=np.concatenate((share[tail], share[head])))
        assert_allclose(np.sum(joint[e] * tables[e]), -best.fun, atol=1e-7)
    assert joint.min() >= 0


@given(n_columns=st.integers(2, 3), weighted=st.booleans(), seed=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_the_relaxed_hinge_is_the_linear_programme(n_columns, weighted, seed):
    rng = np.random.default_rng(seed)
    model = random_model("cycle", n_columns, "weighted", seed=seed)
    n_nodes = model.graph.n_nodes
    labels, cost = rng.integers(n_columns, size=n_nodes).astype(np.int32), 1.0 - np.eye(n_columns)
    node_weight = rng.random(n_nodes) if weighted else None
    hinge = RelaxedHinge(LinearProgram(), cost)
    loss = hinge.loss_statistics(model, labels, node_weight=node_weight)
    augmented = hinge.augmented(model, labels, node_weight)
    truth = compute_labeling_statistics(model, labels)
    bound = LinearProgram().map(augmented).bound
    assert_allclose(loss.terms.sum() + float(np.sum(truth.unary * model.unary) + np.sum(truth.tables * model.tables)),
                    bound, atol=1e-6)  # fmt: skip
    assert loss.gap <= 1e-6
    exact = StructuredHinge(BruteForce(), cost).loss_statistics(model, labels, node_weight=node_weight)
    assert loss.terms.sum() >= exact.terms.sum() - 1e-7
    # The statistics belong to the cost and the score that were found.
    moved = np.sum(loss.statistics.unary * augmented.unary) + np.sum(loss.statistics.tables * augmented.tables)
    assert_allclose(moved, loss.terms.sum(), atol=1e-6)


# Ways to learn -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learning", ["relaxed_margin", "dual_margin", *SMOOTHED])
def test_on_trees_learnings_agree_with_the_exact_optimum(learning):
    X, y = chains(4)
    exact = fitted(X, y, solver="bmrm", tol=1e-7)
    model = fitted(X, y, learning=learning, temperature=1e-3, tol=1e-4)
    optimum = exact.loss_curve_.min()
    entropy = OPTIONS["C"] * 1e-3 * sum(len(part) for part in y) * np.log(3)
    assert model.dual_curve_[-1] <= optimum * (1 + 1e-6)
    assert optimum * (1 - 1e-6) <= model.loss_curve_[-1] <= optimum * (1 + 1e-3) + entropy
    assert np.sum((model.coef_ - exact.coef_) ** 2) <= 2 * (model.duality_gap_ + exact.duality_gap_) + 1e-9


@pytest.fixture(scope="module")
def relaxed_optimum():
    return fitted(*frustrated(), learning="relaxed_margin", inference=LinearProgram(), solver="bmrm", tol=1e-6)


@pytest.mark.parametrize("solver", ["bmrm", "cutting_plane", "frank_wolfe"])
@pytest.mark.parametrize("inference", [AD3(tol=1e-6), LinearProgram(), IncMP()], ids=lambda own: type(own).__name__)
def test_solvers_agree_on_the_relaxed_optimum(relaxed_optimum, inference, solver):
    model = fitted(*frustrated(), learning="relaxed_margin", inference=inference, solver=solver, tol=1e-2)
    optimum = relaxed_optimum.loss_curve_.min()
    assert model.dual_curve_[-1] <= optimum * (1 + 1e-6)
    assert optimum <= model.loss_curve_.min() + model.duality_gap_ + 1e-6
    assert model.duality_gap_ <= 0.02 * optimum
    assert_allclose(model.loss_curve_.min(), optimum, rtol=2e-2)


@pytest.mark.parametrize("solver", ["auto", "bmrm", "one_slack"])
def test_shares_of_edges_without_temperature_have_the_relaxed_optimum(relaxed_optimum, solver):
    X, y = frustrated()
    model = fitted(X, y, learning="reparameterized_margin", temperature=0, solver=solver, tol=1e-2)
    optimum = relaxed_optimum.loss_curve_.min()
    assert model.dual_curve_[-1] <= optimum * (1 + 1e-6)
    assert optimum <= model.dual_curve_[-1] + model.duality_gap_ + 1e-9
    assert model.duality_gap_ <= 0.02 * optimum


@pytest.mark.parametrize("intercept_scaling", [1.0, 3.0])
def test_the_dual_programme_has_the_relaxed_optimum(intercept_scaling):
    X, y = frustrated()
    options = {"intercept_scaling": intercept_scaling, "inference": LinearProgram()}
    model = fitted(X, y, learning="dual_margin", tol=1e-2, **options)
    optimum = fitted(X, y, learning="relaxed_margin", solver="bmrm", tol=1e-6, **options).loss_curve_.min()
    assert model.dual_curve_[-1] <= optimum * (1 + 1e-5)
    assert optimum * (1 - 1e-6) <= model.loss_curve_[-1]
    assert model.duality_gap_ <= 0.011 * optimum
    assert np.all(np.diff(model.dual_curve_) >= 0)


@pytest.mark.parametrize("learning", ["relaxed_margin", "dual_margin", *SMOOTHED])
def test_without_edges_and_with_weights_learnings_agree(learning):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=30)
    X, weight = np.eye(3)[y] + rng.normal(size=(30, 3)), rng.uniform(0.5, 2, size=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        optimum = m3n_classifier(tol=1e-7).fit(X, y, weight).loss_curve_.min()
        options = {"learning": learning, "temperature": 1e-3, "tol": 1e-3, "random_state": 0}
        model = m3n_classifier(**options).fit(X, y, weight)
    assert model.dual_curve_[-1] <= optimum * (1 + 1e-6)
    assert optimum * (1 - 1e-6) <= model.loss_curve_.min() <= optimum * (1 + 1e-2)


@pytest.mark.parametrize("random_state", [1, 3, 8, 10])
def test_the_dual_programme_comes_back_from_vertices(random_state):
    # At the optimum most examples are at a vertex, but training may visit other vertices for a while.
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=30)
    X = np.eye(3)[y] + rng.normal(size=(30, 3))
    weight = rng.uniform(0.5, 2, size=30)
    model = m3n_classifier(learning="dual_margin", tol=1e-3, max_iter=200, random_state=random_state)
    model.fit(X, y, weight)
    assert model.n_iter_ < 150
    assert 0 <= model.duality_gap_ <= 1.001e-3 * model.loss_curve_[-1]


@pytest.mark.parametrize("learning", SMOOTHED)
@pytest.mark.parametrize("temperature", [0.5, 0.05])
def test_temperature_adds_no_more_than_entropy(relaxed_optimum, learning, temperature):
    X, y = frustrated()
    model = fitted(X, y, learning=learning, temperature=temperature, tol=1e-4)
    optimum, entropy = relaxed_optimum.loss_curve_.min(), OPTIONS["C"] * temperature * y.size * np.log(2)
    assert optimum * (1 - 1e-5) <= model.loss_curve_[-1] <= (optimum + entropy) * (1 + 1e-2)
    assert model.dual_curve_[-1] <= optimum * (1 + 1e-5)
    assert_allclose(model.duality_gap_, model.loss_curve_[-1] - model.dual_curve_[-1])
    assert np.all(np.diff(model.dual_curve_) >= 0)
    assert len(model.inference_calls_curve_) == len(model.loss_curve_)
    assert model.inference_calls_curve_[-1] == model.n_inference_calls_


def test_learnings_at_one_temperature_are_one_problem():
    X, y = frustrated()
    first, *others = (fitted(X, y, learning=name, temperature=0.2, tol=1e-6) for name in SMOOTHED)
    for model in others:
        assert_allclose(model.loss_curve_[-1], first.loss_curve_[-1], rtol=1e-4)
        assert_allclose(model.coef_, first.coef_, atol=1e-2)
        assert_allclose(model.edge_coef_, first.edge_coef_, atol=1e-2)


def test_the_relaxation_is_above_the_exact_problem():
    options = {"C": 10.0, "solver": "bmrm", "tol": 1e-5}
    relaxed = fitted(*frustrated(), learning="relaxed_margin", inference=LinearProgram(), **options)
    exact = fitted(*frustrated(), inference=BruteForce(), **options)
    assert relaxed.dual_curve_[-1] >= exact.loss_curve_.min() * (1 + 3e-4)


@pytest.mark.parametrize("learning", SMOOTHED)
def test_bounded_weights_stay_within_their_bounds(learning):
    X, y = frustrated()
    model = fitted(X, y, learning=learning, pairwise="associative", temperature=0.2, tol=1e-5)
    optimum = fitted(X, y, pairwise="associative", inference=BruteForce(), solver="bmrm", tol=1e-6).loss_curve_.min()
    assert model.edge_coef_.min() >= 0
    # Associative models of two states are tight.
    assert model.dual_curve_[-1] <= optimum * (1 + 1e-5)
    assert optimum <= model.loss_curve_[-1]


# Gaps, costs and errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inference",
    [GraphCut(nonsubmodular="qpbo"), TRWS(max_iter=20), LoopyBP(max_iter=20), AD3(max_iter=30)],
    ids=lambda inference: type(inference).__name__,
)
@pytest.mark.parametrize("solver", ["bmrm", "cutting_plane", "frank_wolfe", "subgradient"])
def test_the_gap_is_true_whatever_the_inference_misses(inference, solver):
    X, y = frustrated(4, seed=1)
    exact = fitted(X, y, inference=BruteForce(), solver="bmrm", tol=1e-7)
    model = fitted(X, y, inference=inference, solver=solver, tol=0.05, max_iter=60)
    optimum = exact.loss_curve_.min()
    assert model.dual_curve_[-1] <= optimum * (1 + 1e-6)
    # The objective at these weights, by the bundle method's first plane with exact inference.
    exact.set_params(warm_start=True, max_iter=1).__dict__.update(
        coef_=model.coef_, intercept_=model.intercept_, edge_coef_=model.edge_coef_
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        truth = exact.fit(X, y).loss_curve_[0]
    assert truth - optimum <= model.duality_gap_ + 1e-9


def test_calls_are_counted_at_each_point_of_the_curves():
    X, y = frustrated()
    for solver in ("bmrm", "cutting_plane", "frank_wolfe", "subgradient"):
        model = fitted(X, y, solver=solver, max_iter=15)
        calls = model.inference_calls_curve_
        assert len(calls) == len(model.loss_curve_) == len(model.checks_)
        assert np.all(np.diff(calls) > 0)
        assert calls[-1] == model.n_inference_calls_


def test_weighted_cost_is_balanced_classes():
    X, y = frustrated()
    y = np.where(np.arange(9).reshape(3, 3) < 6, 0, y)
    weighted = fitted(X, y, cost="weighted")
    assert_array_equal(weighted.coef_, fitted(X, y, class_weight="balanced").coef_)
    assert not np.array_equal(weighted.coef_, fitted(X, y).coef_)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"learning": "relaxed_margin", "inference": ICM()},
            "learning='relaxed_margin' needs an inference with fractional solutions",
        ),
        (
            {"learning": "relaxed_margin", "solver": "lbfgs"},
            "solver='lbfgs' is not supported with learning='relaxed_margin'",
        ),
        (
            {"learning": "smoothed_margin", "solver": "bmrm"},
            "solver='bmrm' is not supported with learning='smoothed_margin'",
        ),
        ({"learning": "dual_margin", "solver": "bmrm"}, "solver='bmrm' is not supported with learning='dual_margin'"),
        (
            {"learning": "dual_margin", "pairwise": "associative"},
            "'associative' needs a learning method that can keep",
        ),
        ({"learning": "smoothed_margin", "temperature": 0.0}, "'temperature' parameter of SmoothedMargin"),
        ({"learning": "smoothed_margin", "temperature": -1.0}, "'temperature' parameter"),
    ],
    ids=str,
)
def test_bad_combinations(options, message):
    with pytest.raises(ValueError, match=message):
        m3n_classifier(**options).fit(*frustrated())


# Factors of more than two nodes, and recipe 4 without temperature ---------------------------------------------------


@pytest.mark.parametrize("has_factors", [True, False])
def test_maxima_of_parts_approach_the_linear_relaxation(has_factors):
    X, y = factor_examples(3, n_classes=2, longest=4, fixed=True) if has_factors else graphs(n=3)
    options = {"pairwise": "auto", "connectivity": 1, "C": 0.3}
    relaxed = fitted(X, y, learning="relaxed_margin", inference=LinearProgram(), solver="bmrm", tol=1e-7, **options)
    values = []
    for share_penalty in (1e-2, 1e-4):
        learning = JointMargin(temperature=0, share_penalty=share_penalty)
        found = fitted(X, y, learning=learning, tol=1e-6, **options)
        assert found.converged_
        values.append(found.loss_curve_[-1])
    least = relaxed.loss_curve_[-1]
    assert least - 1e-6 <= values[1] <= values[0]
    assert_allclose(values[1], least, rtol=1e-3)


def test_couplings_of_factors_solve_their_linear_programme():
    model = random_factor_graph(6, 9, 4, 3, seed=1)
    found = LinearProgram().map(model)
    statistics, terms = best_coupling_statistics(model, found.fractional)
    assert found.fractional.max(axis=1).min() < 0.99
    assert_allclose(terms.sum(), found.bound, atol=1e-6)
    default = np.where(statistics.table_default > 0, model.table_default, 0.0)
    assert_allclose(statistics.log_table @ model.log_table + statistics.table_default @ default, terms.sum(), atol=1e-9)
