"""Costs of nodes, edges and factors in margins, softmax-margins, truncated learning and predictions."""

import pickle
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from factor_examples import factor_examples
from finite_differences import five_point, five_point_along
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from sklearn_crf import TRWCRF, DRFClassifier, Example, M3NClassifier, Shards
from sklearn_crf.encoding import encode_X, encode_y, make_batches
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import AutoMap
from sklearn_crf.inference.messages._fixed_sweeps import FixedSweeps
from sklearn_crf.learning import ErrorCost, Exact, MaxMargin, TruncatedInference, set_joint_costs
from sklearn_crf.models import _tuning, score
from sklearn_crf.objectives import EmpiricalRisk, TruncatedLoss
from sklearn_crf.potentials import (
    FactorPotentials,
    LinearPotentials,
    PairwiseTables,
    collect_factor_types,
    make_pairwise_form,
)

C = 0.3


def random_edge_costs(n_classes, seed=0):
    """Return random costs of the labels of an edge, zero if both labels are correct."""
    cost = np.random.default_rng(seed).random((n_classes,) * 4)
    a, b = np.indices((n_classes,) * 2)
    cost[a, b, a, b] = 0.0
    return cost


def images(n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=(4, 2, 3))
    return rng.normal(size=(*y.shape, 2)) + 0.3 * y[..., None], y


def cost_of(labels, truth, edges, edge_cost, factors=(), factor_cost=0.0):
    """Return the Hamming cost, plus the costs of edges and of wrong factors, of which unlabelled ones have none."""
    total = np.count_nonzero((labels != truth) & (truth >= 0))
    for s, t in edges:
        if truth[s] >= 0 and truth[t] >= 0:
            total += edge_cost[labels[s], labels[t], truth[s], truth[t]]
    return total + factor_cost * sum(np.any(labels[nodes] != truth[nodes]) for nodes in factors)


def enumerated_loss(models, y, costs, kind):
    """Return the sum of the hinge losses or softmax-margins, by enumeration."""
    total = 0.0
    for model, truth, cost in zip(models, y, costs, strict=True):
        every = [np.array(labels) for labels in product(*map(range, np.broadcast_to(model.n_columns, len(truth))))]
        scores = np.array([score(model, labels) + cost(labels) for labels in every])
        total += (scores.max() if kind == "hinge" else np.logaddexp.reduce(scores)) - score(model, truth)
    return total


def regularised(field, loss, C=C):
    weights = [field.coef_, field.edge_coef_, *getattr(field, "factor_coef_", {}).values()]
    dense = (w.toarray() if sp.issparse(w) else w for w in weights)
    return sum((w**2).sum() for w in dense) / 2 + C * loss


@pytest.mark.parametrize("solver", ["bmrm", "one_slack", "frank_wolfe"])
def test_margins_have_costs_of_edges(solver):
    X, y = images()
    edge_cost = random_edge_costs(3)
    tol = 1e-4 if solver == "frank_wolfe" else 1e-6
    field = M3NClassifier(
        cost=ErrorCost(edges=edge_cost), solver=solver, C=C, tol=tol, max_iter=5000, edge_features="constant",
        fit_intercept=False,
    ).fit(X, y)  # fmt: skip
    models, truths = field.models(X), y.reshape(len(y), -1)
    costs = [
        lambda labels, truth=truth, model=model: cost_of(labels, truth, model.graph.edges, edge_cost)
        for truth, model in zip(truths, models, strict=True)
    ]
    value = regularised(field, enumerated_loss(models, truths, costs, "hinge"))
    assert_allclose(field.loss_curve_[-1], value, rtol=1e-6)
    assert field.duality_gap_ <= 2 * tol * value


@pytest.mark.parametrize("learning", ["relaxed_margin", "reparameterized_margin", "joint_margin", "dual_margin"])
def test_every_margin_has_costs_of_edges(learning):
    X, y = images(2)
    X, y = [x[:1] for x in X], [own[:1] for own in y]  # chains, on which every relaxation is exact
    edge_cost = random_edge_costs(2)
    options = {"C": C, "tol": 1e-6, "max_iter": 2000, "edge_features": "constant", "fit_intercept": False}

    def hinge(field):
        truths = [own.ravel() for own in y]
        costs = [lambda labels, truth=truth: cost_of(labels, truth, [(0, 1), (1, 2)], edge_cost) for truth in truths]
        return regularised(field, enumerated_loss(field.models(X), truths, costs, "hinge"))

    cost = ErrorCost(edges=edge_cost)
    exact = hinge(M3NClassifier(cost=cost, solver="bmrm", **options).fit(X, y))
    found = hinge(M3NClassifier(cost=cost, learning=learning, **options).fit(X, y))
    plain = hinge(M3NClassifier(solver="bmrm", **options).fit(X, y))
    assert exact - 1e-6 <= found <= exact + 0.1 * (plain - exact)


@pytest.mark.parametrize("form", ["dense", "sparse", "sparse edges", "weighted", "missing"])
def test_softmax_margins_have_costs_of_edges(form):
    X, y = images()
    edge_cost, truths = random_edge_costs(3), y.reshape(len(y), -1).copy()
    graph = lattice((2, 3))
    ones = np.ones((graph.n_edges, 1))
    rows = [x.reshape(6, 2) for x in X]
    if form.startswith("sparse"):
        rows = [sp.csr_matrix(own) for own in rows]
        ones = sp.csr_matrix(ones) if form == "sparse edges" else ones
    weight = np.array([1.0, 2.0, 1.0, 0.5]) if form == "weighted" else None
    examples = [Example(own, graph.edges, ones) for own in rows]
    if form == "missing":
        truths[:, 0] = -1
    field = TRWCRF(
        learning=Exact(cost=ErrorCost(edges=edge_cost)), C=C, tol=1e-9, max_iter=2000, pairwise="full",
        fit_intercept=False, edge_features="constant", missing_label=-1,
    ).fit(examples, list(truths), sample_weight=weight)  # fmt: skip
    total = 0.0
    for i, (model, truth) in enumerate(zip(field.models(examples), truths, strict=True)):
        every = np.array(list(product(range(3), repeat=6)))
        agrees = ((every == truth) | (truth < 0)).all(axis=1)
        scores = np.array([score(model, labels) for labels in every])
        costs = np.array([cost_of(labels, truth, graph.edges, edge_cost) for labels in every])
        loss = np.logaddexp.reduce(scores + costs) - np.logaddexp.reduce(scores[agrees])
        total += loss if weight is None else weight[i] * loss
    assert_allclose(field.loss_curve_[-1], regularised(field, total), rtol=1e-6)
    assert field.converged_


@pytest.mark.parametrize("factors", [0.7, {"triple": 0.7}])
def test_factors_have_costs(factors):
    X, y = factor_examples(3, n_classes=2)
    edge_cost = random_edge_costs(2)
    cost = ErrorCost(edges=edge_cost, factors=factors)
    for kind, learning in (("hinge", MaxMargin(cost=cost)), ("soft", Exact(cost=cost))):
        estimator = M3NClassifier if kind == "hinge" else TRWCRF
        field = estimator(
            learning=learning, C=C, tol=1e-6, max_iter=3000, edge_features="constant", fit_intercept=False
        ).fit(X, y)
        costs = []
        for x, truth in zip(X, y, strict=True):
            charged = x.factors if isinstance(factors, float) else factors
            nodes = [own for name in charged for own in x.factors[name].scope]
            costs.append(
                lambda labels, x=x, truth=truth, nodes=nodes: cost_of(labels, truth, x.edges, edge_cost, nodes, 0.7)
            )
        value = regularised(field, enumerated_loss(field.models(X), y, costs, kind))
        assert_allclose(field.loss_curve_[-1], value, rtol=1e-6)


def test_shards_have_costs_of_edges():
    X, y = images()
    field = TRWCRF(learning=Exact(cost=ErrorCost(edges="boundary")), tol=1e-8, edge_features="difference")
    whole = clone(field).fit(X, y)
    parts = clone(field).fit(Shards.from_arrays([(X[:1], y[:1]), (X[1:], y[1:])]))
    assert_allclose(parts.coef_, whole.coef_, atol=1e-5)
    assert_allclose(parts.edge_coef_, whole.edge_coef_, atol=1e-5)


def test_predictions_have_the_least_expected_cost():
    X, y = images()
    cost = ErrorCost(nodes=None, edges=random_edge_costs(3, 1))
    # Costs that are lower for some wrong labels make the best labels differ from the most probable labels.
    field = TRWCRF(learning="exact", cost=cost, edge_features="constant").fit(X, y)
    pairs = field.predict_edge_proba(X)
    differs = False
    for x, own, model in zip(X, pairs, field.models(X), strict=True):
        every = np.array(list(product(range(3), repeat=6)))
        charges = np.einsum("abcd,ecd->eab", cost.edges, own)
        tail, head = model.graph.edges.T
        expected = [charges[np.arange(len(tail)), labels[tail], labels[head]].sum() for labels in every]
        found = field.predict(x[None])[0].ravel()
        charged = charges[np.arange(len(tail)), found[tail], found[head]].sum()
        assert_allclose(charged, np.min(expected), rtol=1e-6)
        differs |= bool(np.any(field.predict_proba(x[None])[0].reshape(6, 3).argmax(axis=1) != found))
    assert differs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("inference", ["auto", "evidence"])
@pytest.mark.parametrize(
    ("nodes", "edges", "factors"),
    [
        (None, None, 1.0),
        ("hamming", random_edge_costs(3, 1), {"ends": 0.7}),
        (np.array([[0, 1, 3], [2, 0, 1], [1, 0.5, 0]]), random_edge_costs(3), {"triple": 2.0, "ends": 0.5}),
    ],
)
def test_predictions_have_the_least_expected_cost_of_factors(nodes, edges, factors, inference, dtype):
    X, y = factor_examples(3, longest=4)
    X = [Example(x.node_features.astype(dtype), x.edges, factors=x.factors) for x in X]
    evidence = [np.where(np.arange(len(own)) == 1, own, -1) for own in y] if inference == "evidence" else None
    cost = ErrorCost(nodes=nodes, edges=edges, factors=factors)
    field = TRWCRF(learning="exact", cost=cost, edge_features="constant", missing_label=-1).fit(X, y)
    node_cost = {True: np.zeros((3, 3)), False: 1 - np.eye(3)}[nodes is None] if not np.ndim(nodes) else nodes
    of_type = factors if isinstance(factors, dict) else dict.fromkeys(X[0].factors, factors)
    found = field.predict(X, evidence=evidence)
    for i, (x, model, own) in enumerate(zip(X, field.models(X), found, strict=True)):
        every = np.array(list(product(range(3), repeat=x.n_nodes)))
        scores = np.array([score(model, labels) for labels in every])
        if evidence is not None:
            scores[(every[:, 1] != evidence[i][1])] = -np.inf
        probability = np.exp(scores - np.logaddexp.reduce(scores))
        # cost[i, j]: cost of the labeling every[i] if every[j] is true
        charged = sum(node_cost[s[:, None], s[None]] for s in every.T)
        if edges is not None:
            charged = charged + sum(edges[a[:, None], b[:, None], a[None], b[None]] for a, b in every.T[x.edges])
        for name, value in of_type.items():
            for scope in x.factors[name].scope:
                charged = charged + value * (every[:, None][..., scope] != every[None][..., scope]).any(axis=-1)
        expected = charged @ probability
        if evidence is not None:
            expected[np.isneginf(scores)] = np.inf
        at = np.flatnonzero((every == own).all(axis=1))[0]
        assert_allclose(expected[at], expected.min(), rtol=1e-5)


@pytest.mark.parametrize("kind", [TRWCRF, DRFClassifier, M3NClassifier])
def test_costs_of_unknown_factors_are_refused_by_fit(kind):
    X, y = factor_examples(4)
    field = kind(cost=ErrorCost(factors={"other": 1.0}), edge_features="constant")
    message = "names the type 'other', but the types in training were"
    with pytest.raises(ValueError, match=message):
        field.fit(X, y)
    with pytest.raises(ValueError, match=message):
        field.fit(Shards.from_arrays([(X[:2], y[:2]), (X[2:], y[2:])]))
    assert not hasattr(field, "coef_")


def test_costs_of_too_many_joint_states_are_refused(monkeypatch):
    X, y = factor_examples(4)
    field = TRWCRF(learning="exact", cost=ErrorCost(factors=1.0), edge_features="constant").fit(X, y)
    monkeypatch.setattr(_tuning, "MOST_EXPANDED_CELLS", 30)
    with pytest.raises(ValueError, match=r"factors with costs have .* joint states together"):
        field.predict(X)


def test_costs_of_factors_in_predictions_keep_forbidden_pairs():
    X, y = factor_examples(4, longest=5)
    y = [np.sort(own) for own in y]
    # Forbid falling labels.
    pairwise = PairwiseTables("full", forbidden=[(a, b) for a in range(3) for b in range(a)])
    cost = ErrorCost(nodes=None, factors=1.0)
    field = TRWCRF(learning="exact", cost=cost, pairwise=pairwise, edge_features="constant").fit(X, y)
    for x, labels in zip(X, field.predict(X), strict=True):
        assert np.all(np.diff(labels[x.edges], axis=1) >= 0)


def test_costs_follow_the_order_of_classes():
    X, y = images()
    order, edges = [2, 0, 1], random_edge_costs(3)
    names = np.array(["a", "b", "c"])[y]
    options = {"edge_features": "constant", "tol": 1e-8}
    sorted_cost = ErrorCost(nodes=1 - np.eye(3), edges=edges)
    first = TRWCRF(learning=Exact(cost=sorted_cost), **options).fit(X, names)
    listed = ErrorCost(nodes=1 - np.eye(3), edges=edges[np.ix_(order, order, order, order)])
    other = TRWCRF(learning=Exact(cost=listed), classes=["c", "a", "b"], **options).fit(X, names)
    assert_allclose(other.edge_coef_, first.edge_coef_, atol=1e-6)


@pytest.mark.parametrize("method", ["trw", "loopy", "mean_field"])
def test_expected_cost_of_sweeps(method):
    rng = np.random.default_rng(1)
    cost = rng.random((3, 3)) * (1 - np.eye(3))
    y = rng.integers(3, size=(2, 3, 4))
    X = rng.normal(size=(2, 3, 4, 2)) + y[..., None]
    encoded = encode_X(X, edge_features="difference", edge_types="tied")
    batches = make_batches(encoded, encode_y(y, encoded).labels)
    potentials = LinearPotentials(2, 3, make_pairwise_form("symmetric", 3), n_edge_features=3)
    sweeps = FixedSweeps(method=method, n_sweeps=4)
    risk = EmpiricalRisk(TruncatedLoss(sweeps, "expected_cost", cost), potentials, batches)
    coef = 0.5 * rng.normal(size=potentials.n_coef)
    found = risk.value_grad(coef)
    expected = 0.0
    for batch in batches:
        b = sweeps.marginals(potentials.model(coef, batch.example)).unary
        expected += float(sum(b[s] @ cost[:, label] for s, label in enumerate(batch.labels)))
    assert_allclose(found.value, expected, rtol=1e-10)
    assert_allclose(found.gradient, five_point(lambda w: risk.value_grad(w).value, coef), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("method", ["trw", "mean_field"])
def test_expected_cost_with_factors(method):
    X, y = factor_examples(3, n_classes=3)
    cost = np.array([[0.0, 1.0, 3.0], [2.0, 0.0, 1.0], [1.0, 0.5, 0.0]])
    learning = TruncatedInference(inference=method, n_sweeps=3, loss="expected_cost", cost=cost)
    field = TRWCRF(learning=learning, edge_features="constant", C=2.0).fit(X, y)
    total = sum(
        float(np.einsum("sa,as->", probability, cost[:, truth]))
        for probability, truth in zip(field.predict_proba(X), y, strict=True)
    )
    weights = [field.coef_, field.edge_coef_, *field.factor_coef_.values()]
    assert_allclose(field.loss_curve_[-1], sum((w**2).sum() for w in weights) / 2 + 2.0 * total, rtol=1e-6)


def graphs_of_all_arities(edges):
    """Return two examples of eight nodes with the given edges and factors of one to four nodes."""
    rng = np.random.default_rng(0)
    factors = {"triple": [[0, 1, 2]], "four": [[6, 3, 5, 4]], "pair": ([[4, 2]], rng.normal(size=(1, 2))), "one": [[5]]}
    X = [Example(rng.normal(size=(8, 2)), edges, factors=factors) for _ in range(2)]
    return X, [rng.integers(3, size=8) for _ in X]


NODE_COST = np.array([[0.0, 1.0, 3.0], [2.0, 0.0, 1.0], [1.0, 0.5, 0.0]])
JOINT_COST = ErrorCost(
    nodes=NODE_COST, edges=random_edge_costs(3), factors={"triple": 2.0, "four": 1.5, "pair": 0.7, "one": 0.4}
)


def expected_joint_cost(model, x, truth, costs):
    """Return the expected cost of a labeling drawn from a model, by enumeration."""
    every = np.array(list(product(range(3), repeat=len(truth))))
    scopes = [pair for factors in model.by_arity() for pair in zip(*factors, strict=True)]
    scores = sum(model.dense_table(factor)[tuple(every[:, scope].T)] for factor, scope in scopes)
    total = sum(costs.nodes[every[:, s], truth[s]] for s in np.flatnonzero(truth >= 0))
    for s, t in x.edges:
        if truth[s] >= 0 and truth[t] >= 0:
            total = total + costs.edges[every[:, s], every[:, t], truth[s], truth[t]]
    for name, value in costs.factors.items():
        for scope in x.factors[name].scope:
            if np.all(truth[scope] >= 0):
                total = total + value * (every[:, scope] != truth[scope]).any(axis=1)
    return float(np.exp(scores - np.logaddexp.reduce(scores)) @ total)


def truncated_risk(X, y, method, cost, weight=None):
    """Return the risk of the expected cost after six sweeps."""
    encoded = encode_X(X, edge_features="constant", edge_types="tied", allow_factors=True)
    labels = encode_y(y, encoded, classes=range(3), missing_label=-1).labels
    # Examples without weights have a batch each.
    batches = make_batches(encoded, labels, weight, max_factor_nodes=1 if weight is None else 1024)
    potentials = LinearPotentials(2, 3, make_pairwise_form("full", 3), fit_intercept=False)
    if encoded.has_factors:
        potentials = FactorPotentials(potentials, collect_factor_types(encoded.items, batches, 3))
    loss = TruncatedLoss(FixedSweeps(method=method, n_sweeps=6), "expected_cost", cost.nodes)
    return EmpiricalRisk(loss, *set_joint_costs(cost, potentials, batches))


@pytest.mark.parametrize("edges", [[[7, 1]], [[7, 1], [0, 3], [2, 6], [4, 2], [2, 0]]], ids=["forest", "cycles"])
@pytest.mark.parametrize("method", ["trw", "loopy", "mean_field"])
def test_expected_costs_of_edges_and_factors_of_sweeps(method, edges):
    X, y = graphs_of_all_arities(edges)
    y[1][3] = -1
    weight = np.array([1.0, 0.5]) if len(edges) > 1 else None
    risk = truncated_risk(X, y, method, JOINT_COST, weight)
    coef = 0.7 * np.random.default_rng(1).normal(size=risk.potentials.n_coef)
    found = risk.value_grad(coef)
    directions = np.random.default_rng(2).normal(size=(6, len(coef)))
    numeric = five_point_along(lambda w: risk.value_grad(w).value, coef, directions, step=3e-4)
    assert_allclose(directions @ found.gradient, numeric, rtol=1e-6, atol=1e-7)
    if len(edges) == 1 and method != "mean_field":
        # On forests, sweeps are exact.
        examples = [batch.example for batch in risk.batches]
        models = [risk.potentials.model(coef, example) for example in examples]
        exact = map(expected_joint_cost, models, X, y, [JOINT_COST] * 2)
        assert_allclose(found.value, sum(exact), rtol=1e-9)


@pytest.mark.parametrize("method", ["trw", "loopy", "mean_field"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_expected_costs_of_edges_on_lattices(method, dtype):
    X, y = images()
    y[0, 0, 0] = -1
    cost = ErrorCost(nodes=NODE_COST, edges=random_edge_costs(3))
    risk = truncated_risk(X.astype(dtype), y, method, cost)
    coef = 0.7 * np.random.default_rng(1).normal(size=risk.potentials.n_coef)
    found = risk.value_grad(coef)
    numeric = five_point(lambda w: truncated_risk(X, y, method, cost).value_grad(w).value, coef)
    assert_allclose(found.gradient, numeric, rtol=1e-6, atol=1e-7 if dtype == np.float64 else 1e-3)


def test_fits_minimise_the_expected_costs_of_edges_and_factors():
    X, y = graphs_of_all_arities([[7, 1]])
    options = {"edge_features": "constant", "C": 2.0, "pairwise": "full", "missing_label": -1, "tol": 1e-6}
    y[0][6] = -1
    field = TRWCRF(learning=TruncatedInference(loss="expected_cost", cost=JOINT_COST), **options).fit(X, y)
    total = sum(map(expected_joint_cost, field.models(X), X, y, [JOINT_COST] * 2))
    assert_allclose(field.loss_curve_[-1], regularised(field, total, 2.0), rtol=1e-6)
    shared = TRWCRF(learning=TruncatedInference(loss="expected_cost"), cost=JOINT_COST, **options).fit(X, y)
    assert_allclose(shared.coef_, field.coef_, atol=1e-6)
    parts = clone(field).fit(Shards.from_arrays([(X[:1], y[:1]), (X[1:], y[1:])]))
    assert_allclose(parts.factor_coef_["four"], field.factor_coef_["four"], atol=1e-4)
    loaded = pickle.loads(pickle.dumps(shared))
    assert all(map(np.array_equal, loaded.predict(X), shared.predict(X)))


def test_the_cost_of_the_estimator_is_the_cost_of_the_loss():
    X, y = images()
    cost = np.array([[0.0, 1.0, 3.0], [2.0, 0.0, 1.0], [1.0, 0.5, 0.0]])
    own = TRWCRF(learning=TruncatedInference(loss="expected_cost", cost=cost)).fit(X, y)
    shared = TRWCRF(learning=TruncatedInference(loss="expected_cost"), cost=cost).fit(X, y)
    assert_array_equal(shared.coef_, own.coef_)
    with pytest.raises(ValueError, match="set twice"):
        TRWCRF(learning=TruncatedInference(loss="expected_cost", cost=cost), cost=cost).fit(X, y)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (TRWCRF(learning=TruncatedInference(cost=1 - np.eye(3))), "cost needs loss='expected_cost'"),
        (TRWCRF(learning=Exact(cost=ErrorCost(edges=np.ones((3, 3))))), "edges must have shape"),
        (TRWCRF(learning=Exact(cost=ErrorCost(edges=np.ones((3,) * 4)))), "edges must be zero where"),
        (TRWCRF(learning=Exact(cost=ErrorCost(edges=-random_edge_costs(3)))), "edges must not be negative"),
        (TRWCRF(learning=Exact(cost=ErrorCost(edges="border"))), "edges"),
        (TRWCRF(learning=Exact(cost=ErrorCost(factors={"triple": 1.0}))), "names the type 'triple'"),
        (TRWCRF(learning="exact", cost=ErrorCost(factors=-1.0)), "must be finite and not negative"),
        (TRWCRF(learning="exact", cost=ErrorCost(factors={"triple": None})), "must be finite and not negative"),
        (M3NClassifier(learning=MaxMargin(rescaling="slack"), cost=ErrorCost(edges="pairs")), "only costs of nodes"),
    ],
)
def test_wrong_costs(field, message):
    X, y = images()
    with pytest.raises(ValueError, match=message):
        field.fit(X, y)


@pytest.mark.parametrize("kind", [TRWCRF, DRFClassifier])
@pytest.mark.parametrize("cost", [1.0 - np.eye(3), ErrorCost(edges="boundary")], ids=["nodes", "edges"])
@pytest.mark.parametrize("inference", ["map", "viterbi", AutoMap(budget="fast")], ids=["map", "viterbi", "object"])
def test_best_labelings_refuse_costs(kind, cost, inference):
    X, y = images()
    X, y = X[:, 0], y[:, 0]
    with pytest.raises(ValueError, match="cost needs marginals"):
        kind(cost=cost, inference=inference).fit(X, y)
    field = kind(cost=cost).fit(X, y)
    with pytest.raises(ValueError, match="cost needs marginals"):
        field.predict(X, inference=inference)
    # These methods use the inference for scores and bounds, not for labels.
    assert field.certify(X, inference=inference).gaps.min() > -1e-6
    assert field.decision_function(X, inference=inference).shape == (*y.shape, 3)
    assert_array_equal(field.predict(X, inference="mpm"), field.predict(X))
    # Margins use the cost in training only.
    for other in (kind(), M3NClassifier(cost=cost)):
        assert other.fit(X, y).predict(X, inference=inference).shape == y.shape
