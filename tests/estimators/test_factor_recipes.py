"""Every recipe on random factor graphs of mixed arities: the minimum that enumeration and a generic solver find."""

from itertools import product

import numpy as np
import pytest
from built_fields import trw_crf
from factor_examples import factor_examples
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from sklearn_crf import ContrastiveCRF, Example, M3NClassifier
from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.inference import BruteForce
from sklearn_crf.inference.exact._reduction import Reduction
from sklearn_crf.learning import ContrastiveTraining, JointMargin, ReparameterizedMargin, SmoothedMargin
from sklearn_crf.models import CountTable, compute_labeling_statistics, factor_graph_of, score
from sklearn_crf.objectives import (
    ContrastiveDivergence,
    FastRisk,
    Likelihood,
    MaximumMarginal,
    SaddlePoint,
    SoftmaxMargin,
)
from sklearn_crf.potentials import FactorPotentials, LinearPotentials, collect_factor_types, make_pairwise_form

C = 0.5


def forests(n=3, n_classes=2):
    """Return examples whose factors of one to four nodes have no cycle, so that every relaxation is exact."""
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(n):
        factors = {"triple": [[0, 1, 2]], "four": [[6, 3, 5, 4]], "weighted": ([[2, 4]], rng.normal(size=(1, 2)))}
        X.append(Example(rng.normal(size=(8, 2)), [[1, 7]], factors=factors))
        y.append(rng.integers(n_classes, size=8))
    return X, y


def risk_of(objective, X, y):
    """Return the risk of three classes, without intercepts."""
    encoded = encode_X(X, edge_features="constant", allow_factors=True)
    batches = make_batches(encoded, encode_y(y, encoded, classes=range(3)).labels, max_factor_nodes=1)
    nodes = LinearPotentials(2, 3, make_pairwise_form("full", 3), fit_intercept=False)
    potentials = FactorPotentials(nodes, collect_factor_types(encoded.items, batches, 3))
    return FastRisk(objective, potentials, batches)


def minimum_of(objective, X, y):
    """Return the least regularised loss, from a generic solver."""
    risk = risk_of(objective, X, y)

    def evaluate(w):
        found = risk.value_grad(w)
        return w @ w / 2 + C * found.value, w + C * found.gradient

    return minimize(evaluate, np.zeros(risk.potentials.n_coef), jac=True, method="BFGS", options={"gtol": 1e-8}).fun


@pytest.mark.parametrize(
    "learning",
    [
        "likelihood",
        "exact",
        "relaxation",
        "reparameterization",
        "joint_relaxation",
        "dual_relaxation",
        "edge_probabilities",
        "spanning_trees",
        "loopy",
    ],
)
def test_likelihoods_reach_the_minimum_by_enumeration(learning):
    X, y = forests(n_classes=3)
    options = {
        "C": C,
        "fit_intercept": False,
        "tol": 1e-8,
        "max_iter": 2000,
        "edge_features": "constant",
        "pairwise": "full",
    }
    field = trw_crf(learning=learning, **options, **({} if learning != "dual_relaxation" else {"inner_tol": 1e-10}))
    assert_allclose(field.fit(X, y).loss_curve_[-1], minimum_of(Likelihood(BruteForce()), X, y), rtol=1e-6)


@pytest.mark.parametrize("learning", [SmoothedMargin, ReparameterizedMargin, JointMargin])
def test_margins_with_a_temperature_reach_the_minimum_by_enumeration(learning):
    X, y = forests(n_classes=3)
    options = {"C": C, "tol": 1e-9, "max_iter": 3000, "edge_features": "constant", "pairwise": "full"}
    field = M3NClassifier(learning=learning(temperature=0.5), fit_intercept=False, **options).fit(X, y)
    smooth = SoftmaxMargin(Likelihood(BruteForce()), 1 - np.eye(3), 0.5)
    assert_allclose(field.loss_curve_[-1], minimum_of(smooth, X, y), rtol=1e-6)


def expectations(risk, coef, kind):
    """Return the derivatives by the weights that a rule follows, with expectations and maxima by enumeration."""
    total = np.zeros(len(coef))
    for batch in risk.batches:
        model = risk.potentials.model(coef, batch.example)
        every = np.array(list(product(range(3), repeat=len(batch.labels))), dtype=np.int32)
        scores = np.array([score(model, labels) for labels in every])
        share = np.exp(scores - np.logaddexp.reduce(scores))
        if kind == "spa":
            share = np.eye(len(every))[np.argmax(scores)]
        elif kind == "mma":
            nodes = np.stack([share @ (every == k) for k in range(3)], axis=1)
            share = (every == nodes.argmax(axis=1)).all(axis=1).astype(float)
        share[(every == batch.labels).all(axis=1)] -= 1.0
        for labels, weight in zip(every[share != 0], share[share != 0], strict=True):
            statistics = compute_labeling_statistics(model, labels)
            total += weight * risk.potentials.pullback(batch.example, statistics)
    return total


@pytest.mark.parametrize(
    ("kind", "rule"),
    [("pma", Likelihood(BruteForce())), ("spa", SaddlePoint(BruteForce())), ("mma", MaximumMarginal(BruteForce()))],
)
def test_directions_of_rules_by_enumeration(kind, rule):
    X, y = factor_examples(3, fixed=True, longest=4)
    risk = risk_of(rule, [x._with(node_features=x.node_features[:, :2]) for x in X], y)
    coef = np.random.default_rng(2).normal(size=risk.potentials.n_coef)
    assert_allclose(risk.value_grad(coef).gradient, expectations(risk, coef, kind), atol=1e-8)


def test_contrastive_divergence_tends_to_the_gradient_of_the_likelihood():
    X, y = factor_examples(1, fixed=True, longest=3)
    X = [x._with(node_features=x.node_features[:, :2]) for x in X]
    coef = 0.5 * np.random.default_rng(2).normal(size=risk_of(Likelihood(BruteForce()), X, y).potentials.n_coef)
    risk = risk_of(ContrastiveDivergence(30), X, y)
    draws = np.array([risk.value_grad(coef).gradient for _ in range(2000)])
    error = draws.std(axis=0) / np.sqrt(len(draws))
    expected = expectations(risk, coef, "pma")
    assert np.all(np.abs(draws.mean(axis=0) - expected) <= 5 * error + 1e-8)


def enumerated_hinge(field, X, y):
    """Return the regularised hinge loss of a fitted field, with maxima over all labelings."""
    total = 0.0
    for model, truth in zip(field.models(X), y, strict=True):
        every = [np.array(labels) for labels in product(range(2), repeat=len(truth))]
        total += max(score(model, labels) + np.count_nonzero(labels != truth) for labels in every) - score(model, truth)
    weights = [field.coef_, field.edge_coef_, *field.factor_coef_.values()]
    return sum((w**2).sum() for w in weights) / 2 + C * total


@pytest.mark.filterwarnings("ignore:Training ended with all weights zero")
@pytest.mark.parametrize(
    "learning", ["max_margin", "relaxed_margin", JointMargin(temperature=0), "dual_margin"], ids=str
)
def test_margins_reach_the_minimum_by_enumeration(learning):
    X, y = forests()
    y[0][:3] = [0, 1, 0]
    options = {"C": C, "fit_intercept": False, "tol": 1e-8, "max_iter": 2000, "edge_features": "constant"}
    field = M3NClassifier(learning=learning, **options).fit(X, y)
    assert_allclose(enumerated_hinge(field, X, y), minimum_of_hinge(X, y), rtol=1e-6)
    assert field.loss_curve_[-1] == pytest.approx(enumerated_hinge(field, X, y), rel=1e-6)


def models_of_units(X, y):
    """Return the models of each unit vector of weights; scores are linear in the weights."""
    field = M3NClassifier(C=C, fit_intercept=False, edge_features="constant", max_iter=1, tol=1.0).fit(X, y)
    parts = [field.coef_, field.edge_coef_, *(field.factor_coef_[name] for name in sorted(field.factor_coef_))]
    found = []
    for own in parts:
        for other in parts:
            other[...] = 0.0
        for place in np.ndindex(own.shape):
            own[place] = 1.0
            found.append(field.models(X))
            own[place] = 0.0
    return found


def least_sum(n, matrix, least, gain, start, equal=()):
    """Return the minimum of half the squared norm of the first n variables plus ``gain @ v``, by a generic solver."""
    found = minimize(
        lambda v: v[:n] @ v[:n] / 2 + gain @ v,
        start,
        jac=lambda v: np.append(v[:n], np.zeros(len(v) - n)) + gain,
        constraints=[{"type": "ineq", "fun": lambda v: matrix @ v - least, "jac": lambda v: matrix}, *equal],
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert found.success
    return found.fun


def minimum_of_hinge(X, y):
    """Return the least regularised hinge loss, with maxima over all labelings, from a generic quadratic solver."""
    units = models_of_units(X, y)
    every, n = np.array(list(product(range(2), repeat=len(y[0])))), len(units)
    features = np.array([[[score(model, labels) for labels in every] for model in models] for models in units])
    truth = [int(np.flatnonzero((every == own).all(axis=1))[0]) for own in y]
    slopes = np.concatenate([part - part[k] for part, k in zip(np.moveaxis(features, 0, -1), truth, strict=True)])
    costs = np.concatenate([(every != own).sum(axis=1) for own in y])
    member = np.repeat(np.arange(len(y)), len(every))
    # Variables: the weights, then the loss of each example, which bounds all of its planes.
    matrix = np.hstack([-slopes, np.eye(len(y))[member]])
    gain = np.append(np.zeros(n), np.full(len(y), C))
    return least_sum(n, matrix, costs, gain, np.append(np.zeros(n), np.full(len(y), costs.max())))


def loopy(seed):
    """Return examples with cycles and factors of one to four nodes, on which the relaxation is not tight."""
    rng = np.random.default_rng(seed)
    factors = {"triple": [[0, 1, 2], [2, 3, 4], [1, 4, 0]], "four": [[4, 0, 3, 1]]}
    X = [Example(3 * rng.normal(size=(5, 1)), [[0, 2], [1, 4], [3, 0], [3, 1]], factors=factors) for _ in range(3)]
    return X, [rng.integers(2, size=5) for _ in X]


def minimum_of_relaxed_hinge(X, y):
    """Return the least regularised hinge loss over the local polytope, from a generic quadratic solver.

    The maximum over the polytope is the least sum of maxima of the factors, over divisions of the costs.
    """
    units = models_of_units(X, y)
    n, rows, costs, equations, gain = len(units), [], [], [], np.zeros(len(units))
    n_variables = n
    for i, own in enumerate(y):
        graphs = [factor_graph_of(models[i]) for models in units]
        truth = np.array([score(model, own) for model in graphs])
        gain[:n] -= C * truth
        reductions = [Reduction(graph) for graph in graphs]
        graph, shares = graphs[0], [[] for _ in own]
        for f in range(len(graph.table_id)):
            scope = graph.scope[graph.scope_ptr[f] : graph.scope_ptr[f + 1]]
            tables = np.stack([each.table(f).ravel() for each in reductions], axis=1)
            maximum, first = n_variables, n_variables + 1
            n_variables += 1 + 2 * len(scope)
            gain = np.append(np.append(gain, C), np.zeros(2 * len(scope)))
            for states, slope in zip(product(range(2), repeat=len(scope)), tables, strict=True):
                shared = {first + 2 * j + state: -1.0 for j, state in enumerate(states)}
                rows.append({maximum: 1.0, **shared, **dict(enumerate(-slope))})
                costs.append(0.0)
            for j, node in enumerate(scope):
                shares[node].append(first + 2 * j)
        for node, places in enumerate(shares):
            equations += [({place + state: 1.0 for place in places}, float(state != own[node])) for state in range(2)]

    def dense(rows):
        matrix = np.zeros((len(rows), n_variables))
        for row, entries in zip(matrix, rows, strict=True):
            row[list(entries)] = list(entries.values())
        return matrix

    sums, needed = dense([row for row, _ in equations]), np.array([cost for _, cost in equations])
    equal = {"type": "eq", "fun": lambda v: sums @ v - needed, "jac": lambda v: sums}
    return least_sum(n, dense(rows), np.array(costs), gain, np.zeros(n_variables), [equal])


@pytest.mark.filterwarnings("ignore:Training ended with all weights zero")
@pytest.mark.parametrize("seed", [6, 14])
def test_relaxed_margins_reach_the_minimum_of_a_generic_solver(seed):
    X, y = loopy(seed)
    expected = minimum_of_relaxed_hinge(X, y)
    assert expected > (1 + 1e-3) * minimum_of_hinge(X, y)
    for learning in ("relaxed_margin", ReparameterizedMargin(temperature=0), "dual_margin"):
        options = {"C": C, "fit_intercept": False, "edge_features": "constant", "random_state": 0}
        field = M3NClassifier(learning=learning, tol=1e-6, **options).fit(X, y)
        assert field.converged_
        assert_allclose(field.loss_curve_.min(), expected, rtol=1e-6)
        rough = M3NClassifier(learning=learning, **options).fit(X, y)
        assert rough.dual_curve_.max() <= expected * (1 + 1e-6)
        assert expected * (1 - 1e-6) <= rough.loss_curve_.min() <= 1.02 * expected


@pytest.mark.parametrize("init", ["pl", "gpl"])
def test_contrastive_learning_in_single_precision_with_missing_labels(init):
    X, y = factor_examples(4, n_classes=2)
    options = {"C": 0.5, "edge_features": "constant", "random_state": 0, "missing_label": -1, "max_iter": 300}
    learning = ContrastiveTraining(init=init, max_rounds=0)
    y[0][0] = -1
    whole = ContrastiveCRF(learning=learning, **options).fit(X, y)
    single = [x._with(node_features=x.node_features.astype(np.float32)) for x in X]
    narrow = ContrastiveCRF(learning=learning, **options).fit(single, y)
    assert_allclose(narrow.factor_coef_["triple"], whole.factor_coef_["triple"], atol=2e-2)


@pytest.mark.parametrize("learning", ["relaxed_margin", "dual_margin"])
def test_relaxed_margins_have_hard_constraints(learning):
    # Node marginals of AD3 are slightly inconsistent with the constraint.
    rng = np.random.default_rng(0)
    one_or_more = [([0, 1, 2, 3], CountTable([-np.inf, 0.0, 0.0, 0.0, 0.0], 0.0, 1))]
    X, y = [], []
    for _ in range(4):
        labels = rng.integers(3, size=6)
        labels[:4] = 0, 1, 0, 2
        features = np.eye(3)[labels] + 0.7 * rng.normal(size=(6, 3))
        factors = {"triple": [[1, 2, 3], [3, 4, 5]]}
        X.append(Example(features, [[0, 1], [4, 5], [1, 4]], factors=factors, fixed_factors=one_or_more))
        y.append(labels)
    field = M3NClassifier(learning=learning, edge_features="constant", pairwise="full", random_state=0, max_iter=15)
    assert all(1 in labels[:4] for labels in field.fit(X, y).predict(X))
