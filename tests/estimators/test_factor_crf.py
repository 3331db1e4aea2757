"""TRWCRF on examples with factors: equivalence with edges, prediction, constraints, stored attributes and errors."""

import pickle
import warnings
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from built_fields import drf_classifier, trw_crf
from factor_examples import factor_examples
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from sklearn_crf import TRWCRF, ContrastiveCRF, Example, M3NClassifier
from sklearn_crf.estimators._fitted_field import FittedField
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import AD3, MPLP, BruteForce, JunctionTree, LoopyBP, NormProductBP, TreeInference
from sklearn_crf.learning import (
    ContrastiveTraining,
    MaxMargin,
    PseudolikelihoodTraining,
    SharedPiecesTraining,
    TruncatedInference,
)
from sklearn_crf.models import exactly_one, score
from sklearn_crf.objectives.margin import _slack_rescaling

TIGHT = {"tol": 1e-7, "max_iter": 500, "inner_tol": 1e-10, "inner_max_iter": 2000}
LEARNINGS_OF_FACTORS = ("exact", "relaxation", "loopy", "piecewise", "pseudolikelihood")


def graphs(n=9, *, cycle=False, as_factors=False, shuffle=False, seed=0):
    """Return chains or rings with edges, or with factors of type "edge" in any order; all pairs of labels occur."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        length = int(rng.integers(3, 6))
        labels = rng.integers(3, size=length)
        features = np.eye(3)[labels] + rng.normal(size=(length, 3))
        pairs = np.array([[t, t + 1] for t in range(length - 1)] + ([[length - 1, 0]] if cycle else []))
        order = np.random.default_rng(length).permutation(len(pairs)) if shuffle else np.arange(len(pairs))
        X.append(Example(features, [], factors={"edge": pairs[order]}) if as_factors else Example(features, pairs))
        y.append(labels)
    return X, y


@pytest.mark.parametrize(
    ("learning", "entropy", "cycle"),
    [
        ("exact", "trw", False),
        ("exact", "trw", True),
        ("relaxation", "trw", False),
        ("relaxation", "trw", True),
        ("relaxation", "trivial", True),
        ("loopy", "trw", False),
        ("piecewise", "trw", True),
        ("pseudolikelihood", "trw", True),
        ("likelihood", "trw", False),
    ],
)
def test_factors_of_two_nodes_are_edges(learning, entropy, cycle):
    model = trw_crf(C=0.5, learning=learning, entropy=entropy, **TIGHT)
    X, y = graphs(cycle=cycle)
    # The choice of covering trees depends on the order of the edges.
    F, _ = graphs(cycle=cycle, as_factors=True, shuffle=(learning, entropy, cycle) != ("relaxation", "trw", True))
    plain, factors = clone(model).fit(X, y), clone(model).fit(F, y)
    assert len(factors.factor_states_["edge"]) == 9
    assert_allclose(factors.loss_curve_[-1], plain.loss_curve_[-1], rtol=1e-7)
    assert_allclose(factors.coef_, plain.coef_, atol=1e-5)
    assert_allclose(factors.factor_coef_["edge"][0, :-1], plain.edge_coef_.ravel(), atol=1e-5)
    assert factors.factor_coef_["edge"][0, -1] == 0
    assert factors.learning_ == plain.learning_
    for found, expected in zip(factors.predict_proba(F), plain.predict_proba(X), strict=True):
        assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("learning", ["exact", "relaxation", "pseudolikelihood"])
def test_the_order_of_nodes_and_factors_means_nothing(learning):
    X, y = factor_examples(4)
    rng = np.random.default_rng(0)
    moved, labels = [], []
    for x, truth in zip(X, y, strict=True):
        place = rng.permutation(x.n_nodes)
        order = np.argsort(place)
        factors = {name: (place[found.scope][::-1], found.features) for name, found in x.factors.items()}
        moved.append(Example(x.node_features[order], place[x.edges], factors=factors))
        labels.append(truth[order])
    model = trw_crf(learning=learning, entropy="trivial", **TIGHT)
    one, other = clone(model).fit(X, y), clone(model).fit(moved, labels)
    for name in ("triple", "ends"):
        assert_allclose(other.factor_coef_[name], one.factor_coef_[name], atol=1e-5)


def test_other_solvers():
    X, y = factor_examples(6)
    model = trw_crf(learning="relaxation", entropy="trivial", solver="sgd", max_iter=20, random_state=0).fit(X, y)
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    few = trw_crf(learning="pseudolikelihood", l1_ratio=1.0, C=0.1).fit(X, y)
    assert (few.factor_coef_["triple"] == 0).any()


def test_bounds_are_ordered():
    X, y = factor_examples(4)
    ways = [("exact", "trw"), ("relaxation", "trw"), ("relaxation", "trivial"), ("piecewise", "trivial")]
    least = [trw_crf(learning=name, entropy=entropy, **TIGHT).fit(X, y).loss_curve_[-1] for name, entropy in ways]
    assert sorted(set(least)) == least


def lattices_of_squares(n, side=14):
    """Return images with a rectangle, on lattices of which every square of four nodes is a factor."""
    rng = np.random.default_rng(0)
    graph, number = lattice((side, side)), np.arange(side**2).reshape(side, side)
    squares = np.stack([number[:-1, :-1], number[:-1, 1:], number[1:, :-1], number[1:, 1:]], axis=-1).reshape(-1, 4)
    X, y = [], []
    for _ in range(n):
        labels = np.zeros((side, side), dtype=int)
        top, left = rng.integers(side // 2, size=2)
        labels[top : top + side // 2, left : left + side // 2 - 1] = 1
        features = (labels + rng.normal(size=labels.shape)).reshape(-1, 1)
        X.append(Example(features, graph.edges, factors={"square": squares}))
        y.append(labels.ravel())
    return X, y


@pytest.mark.parametrize("make", [trw_crf, drf_classifier])
def test_defaults_converge_with_large_factors_on_a_wide_lattice(make):
    X, y = lattices_of_squares(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field = make().fit(X[:1], y[:1])
        assert field.converged_
        assert field.inference_ == "trw"
        assert field.score(X[1:], y[1:]) > 0.9


def test_on_forests_the_tree_reweighted_relaxation_is_exact():
    X, y = factor_examples(6, longest=3)
    X = [Example(x.node_features, [], factors={"triple": x.factors["triple"].scope}) for x in X]
    exact = trw_crf(learning="exact", **TIGHT).fit(X, y)
    relaxed = trw_crf(learning="relaxation", **TIGHT).fit(X, y)
    assert not relaxed.has_cycles_
    assert_allclose(relaxed.factor_coef_["triple"], exact.factor_coef_["triple"], atol=1e-5)


@pytest.mark.parametrize("learning", LEARNINGS_OF_FACTORS)
def test_threads_and_sparse_features_change_nothing(learning):
    X, y = factor_examples(6)
    model = trw_crf(learning=learning, entropy="trivial", max_iter=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, two = clone(model).fit(X, y), clone(model).set_params(n_jobs=2).fit(X, y)
        csr = clone(model).fit(factor_examples(6, sparse=True)[0], y)
        for name in one.factor_coef_:
            assert_array_equal(one.factor_coef_[name], two.factor_coef_[name])
            assert_allclose(one.factor_coef_[name], csr.factor_coef_[name], atol=1e-8)
        for a, b in zip(one.predict_proba(X), two.predict_proba(X), strict=True):
            assert_array_equal(a, b)


def test_many_sparse_features():
    rng = np.random.RandomState(0)
    X = [
        Example(sp.random(4, 1500, 0.01, format="csr", random_state=rng), [[0, 1], [1, 2]], factors={"t": [[0, 1, 2]]})
        for _ in range(6)
    ]
    y = [rng.randint(3, size=4) for _ in X]
    few = [x._with(node_features=x.node_features[:, :500]) for x in X]
    model = trw_crf(learning="exact", edge_features="constant", tol=1e-7)
    assert clone(model).fit(X, y).loss_curve_[-1] < clone(model).fit(few, y).loss_curve_[-1]


def test_sparse_features_of_edges():
    X, y = factor_examples(4)
    dense, sparse = [], []
    for x in X:
        features = np.random.default_rng(x.n_nodes).normal(size=(x.graph.n_edges, 2))
        dense.append(x._with(edge_features=features))
        sparse.append(x._with(edge_features=sp.csr_matrix(features)))
    model = trw_crf(learning="pseudolikelihood", weights="all", **TIGHT)
    one, other = clone(model).fit(dense, y), clone(model).fit(sparse, y)
    assert_allclose(other.factor_coef_["triple"], one.factor_coef_["triple"], atol=1e-5)
    for a, b in zip(other.predict_proba(sparse), one.predict_proba(dense), strict=True):
        assert_allclose(a, b, atol=1e-5)


def test_weights_are_repetition():
    X, y = factor_examples(3)
    twice = trw_crf(learning="exact", classes=[0, 1, 2], **TIGHT).fit(X + X[:1], y + y[:1])
    weighted = trw_crf(learning="exact", classes=[0, 1, 2], **TIGHT).fit(X, y, sample_weight=[2, 1, 1])
    assert_allclose(weighted.factor_coef_["triple"], twice.factor_coef_["triple"], atol=1e-5)
    none = trw_crf(learning="exact", classes=[0, 1, 2], **TIGHT).fit(X, y, sample_weight=[1, 1, 0])
    without = trw_crf(learning="exact", classes=[0, 1, 2], **TIGHT).fit(X[:2], y[:2])
    assert_array_equal(none.factor_states_["triple"], without.factor_states_["triple"])
    assert_allclose(none.factor_coef_["triple"], without.factor_coef_["triple"], atol=1e-5)


@pytest.fixture(scope="module")
def fitted():
    X, y = factor_examples(10)
    return trw_crf(learning="exact", tol=1e-3).fit(X, y), X, y


@pytest.mark.parametrize("inference", [MPLP(), AD3(), NormProductBP(), JunctionTree(), LoopyBP(), "map", "mpm"])
def test_predictions(fitted, inference):
    model, X, y = fitted
    model = clone(model).set_params(inference=inference)
    model.__dict__.update({name: value for name, value in fitted[0].__dict__.items() if name.endswith("_")})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model.score(X, y) > 0.6
        for rows in model.predict_proba(X):
            assert rows.shape[1] == 3
            assert_allclose(rows.sum(axis=1), 1)


def test_marginals_bounds_and_likelihood(fitted):
    model, X, y = fitted
    potentials = FittedField.of(model).potentials()
    weights = FittedField.of(model).weights(potentials)
    likelihood = model.log_likelihood(X, y)
    assert likelihood.bound == "exact"
    certificates = model.certify(X)
    predicted = model.predict(X)
    for i, x in enumerate(X):
        values = potentials.model(weights, x)
        exact = BruteForce().marginals(values)
        assert_allclose(model.predict_proba(X)[i], exact.unary, atol=1e-10)
        assert_allclose(likelihood.values[i], score(values, y[i]) - exact.log_z, atol=1e-10)
        best = BruteForce().map(values).score
        assert_allclose(certificates.scores[i], score(values, predicted[i]), atol=1e-10)
        assert certificates.scores[i] <= best + 1e-9 <= certificates.bounds[i] + 2e-9
    assert_allclose(
        model.energy(X, y), [-score(potentials.model(weights, x), truth) for x, truth in zip(X, y, strict=True)]
    )
    assert model.sample(X, 3, random_state=0)[0].shape == (3, X[0].n_nodes)


def test_constraints_at_prediction_alone(fitted):
    model, X, _ = fitted
    constrained = [x.with_fixed_factors([(np.arange(x.n_nodes), exactly_one(2))]) for x in X]
    assert any((labels == 2).sum() != 1 for labels in model.predict(X))
    potentials = FittedField.of(model).potentials()
    weights = FittedField.of(model).weights(potentials)
    for inference in ("map", JunctionTree()):
        mapped = pickle.loads(pickle.dumps(model)).set_params(inference=inference)
        for x, labels in zip(constrained, mapped.predict(constrained), strict=True):
            assert inference != "map" or (labels == 2).sum() == 1
            if inference == "map":
                assert_allclose(
                    score(potentials.model(weights, x), labels), BruteForce().map(potentials.model(weights, x)).score
                )
    for rows in model.predict_proba(constrained):
        assert_allclose(rows[:, 2].sum(), 1)


def test_constraints_on_what_was_trained_without_factors():
    X, y = graphs()
    model = trw_crf(inference="map").fit(X, y)
    assert model.factor_coef_ == {}
    constrained = [x.with_fixed_factors([(np.arange(x.n_nodes), exactly_one(2))]) for x in X]
    assert all((labels == 2).sum() == 1 for labels in model.predict(constrained))


def test_evidence(fitted):
    model, X, y = fitted
    model = pickle.loads(pickle.dumps(model)).set_params(missing_label=-1, inference="map")
    evidence = [np.where(np.arange(len(labels)) == 0, labels, -1) for labels in y]
    assert all(found[0] == labels[0] for found, labels in zip(model.predict(X, evidence=evidence), y, strict=True))


def test_pickles_and_grid_search(fitted):
    model, X, y = fitted
    again = pickle.loads(pickle.dumps(model))
    for a, b in zip(again.predict(X), model.predict(X), strict=True):
        assert_array_equal(a, b)
    search = GridSearchCV(trw_crf(learning="pseudolikelihood"), {"C": [0.01, 1]}, cv=2, n_jobs=2)
    search.fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_warm_start_takes_over_what_it_knows():
    X, y = factor_examples(6)
    rule = PseudolikelihoodTraining(edge_scale=1)
    model = trw_crf(learning=rule, warm_start=True, **TIGHT).fit(X, y)
    n_iter = model.n_iter_
    assert model.fit(X, y).n_iter_ < n_iter / 3
    cold = trw_crf(learning=rule, **TIGHT).fit(X[:4], y[:4])
    assert_allclose(model.fit(X[:4], y[:4]).factor_coef_["triple"], cold.factor_coef_["triple"], atol=1e-5)
    with pytest.raises(ValueError, match="type 'triple' have nodes of"):
        model.fit([Example(x.node_features, x.graph, factors={"triple": [[0, 1]]}) for x in X], y)


def test_label_spaces():
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(15):
        large, small = rng.integers(4, size=3), rng.integers(2, size=3)
        labels = np.concatenate((large, small))
        features = np.eye(4)[labels] + 0.5 * rng.normal(size=(6, 4))
        X.append(
            Example(
                sp.csr_matrix(features),
                [[0, 1], [1, 2]],
                node_type=[0, 0, 0, 1, 1, 1],
                n_states=[4, 4, 4, 2, 2, 2],
                factors={"mixed": [[3, 0, 4], [4, 1, 5]]},
            )
        )
        y.append(labels)
    model = trw_crf(learning="exact").fit(X, y)
    assert_array_equal(model.factor_shapes_["mixed"], [2, 4, 2])
    assert model.score(X, y) > 0.9
    assert model.predict_proba(X)[0][3:, 2:].max() == 0


@pytest.mark.parametrize("cost", [None, "hamming"])
def test_costs_and_temperature(cost):
    X, y = factor_examples(3)
    model = trw_crf(learning="exact", cost=cost, temperature=0.5, C=1, **TIGHT).fit(X, y)
    if cost is None:
        # The loss at T is T times the likelihood of scores divided by T.
        plain = trw_crf(learning="exact", C=2, **TIGHT).fit(X, y)
        assert_allclose(model.factor_coef_["triple"], 0.5 * plain.factor_coef_["triple"], atol=1e-5)
    assert model.score(X, y) > 0.6


def test_examples_too_short_for_factors():
    X, y = factor_examples(4)
    short = Example(np.ones((2, 3)), [[0, 1]], factors={"triple": [[t, t + 1, t + 2] for t in range(0)]})
    assert not short.has_factors
    model = trw_crf(learning="relaxation", entropy="trivial").fit([*X, short], [*y, np.array([0, 1])])
    assert model.predict([short, X[0]])[0].shape == (2,)


BAD = {
    "out of range": (
        lambda x: {"triple": [[0, 1, 9]]},
        r"factors\['triple'\] has the nodes \[0, 1, 9\], but nodes are numbered 0 to 2",
    ),
    "repeated": (lambda x: {"triple": [[0, 1, 1]]}, r"factors\['triple'\] has a node twice in \[0, 1, 1\]"),
    "no scopes": (
        lambda x: {"triple": [0, 1, 2]},
        r"factors\['triple'\] must be integers of shape \(n_factors, arity\)",
    ),
    "no string": (lambda x: {3: [[0, 1, 2]]}, "must be strings, got 3"),
    "features": (lambda x: {"triple": ([[0, 1, 2]], [1.0])}, r"features of factors\['triple'\] must be finite numbers"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_factors_of_an_example(name):
    make, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        Example(np.ones((3, 1)), [], factors=make(None))


def test_bad_fixed_factors():
    for scope, message in (([0, 3], "has the nodes"), ([0, 0], "a node twice"), ([0.5], "must be integers")):
        for make in (
            lambda f: Example(np.ones((3, 1)), [], fixed_factors=f),
            Example(np.ones((3, 1)), []).with_fixed_factors,
        ):
            with pytest.raises(ValueError, match=rf"fixed_factors\[0\] .*{message}"):
                make([(scope, np.zeros(3))])
    x = Example(np.ones((3, 1)), [], fixed_factors=[([0, 1], np.zeros((2, 2)))])
    with pytest.raises(
        ValueError, match=r"X\[0\].fixed_factors: factors\[0\] needs a table of shape \(3, 3\), got \(2, 2\)"
    ):
        trw_crf(classes=[0, 1, 2]).fit([x], [np.array([0, 1, 2])])


def test_bad_input(fitted):
    model, X, y = fitted
    x = X[0]
    unseen = x._with(factors=Example(x.node_features, x.graph, factors={"new": [[0, 1]]}).factors)
    with pytest.raises(ValueError, match=r"X\[1\] has factors of type 'new', which no training example had"):
        model.predict([x, unseen])
    other = x._with(factors=Example(x.node_features, x.graph, factors={"triple": [[0, 1]]}).factors)
    with pytest.raises(ValueError, match=r"X\[0\] has factors of type 'triple' with nodes of \[3, 3\] states"):
        model.predict([other])
    with pytest.raises(ValueError, match=r"X\[1\] has factors of type 'triple'.*this type have nodes of \[3, 3, 3\]"):
        trw_crf(learning="exact", classes=[0, 1, 2]).fit([x, other], [y[0], y[0]])
    mixed = Example(np.ones((3, 1)), [], n_states=[3, 3, 2], factors={"pair": [[0, 1], [1, 2]]})
    with pytest.raises(ValueError, match=r"X\[0\] has two factors of type 'pair' whose nodes have"):
        trw_crf(classes=[0, 1, 2]).fit([mixed], [np.array([0, 2, 1])])


def test_shared_pieces_of_factors_are_the_trivial_bound_at_even_shares():
    X, y = factor_examples(3, fixed=True)
    options = {"C": 0.5, "tol": 1e-6, "fit_intercept": False}
    shared, pieces = (trw_crf(learning=name, **options).fit(X, y) for name in ("shared_pieces", "piecewise"))
    relaxed = trw_crf(learning="relaxation", entropy="trivial", **options).fit(X, y)
    assert relaxed.loss_curve_[-1] < shared.loss_curve_[-1] < pieces.loss_curve_[-1]
    with pytest.raises(ValueError, match="shares='optimized' supports only nodes and edges"):
        trw_crf(learning=SharedPiecesTraining(shares="optimized"), **options).fit(X, y)


@pytest.mark.parametrize("init", ["pl", "gpl", "empty"])
@pytest.mark.parametrize("generator", ["map", "icm", "gibbs", "map_mv"])
def test_contrastive_sets_with_factors(init, generator):
    X, y = factor_examples(3, fixed=True)
    y = [np.minimum(own, 1) for own in y]
    learning = ContrastiveTraining(init=init, generator=generator, max_rounds=2)
    field = ContrastiveCRF(learning=learning, C=1.0, random_state=0, edge_features="constant").fit(X, y)
    # With exact blocks, the best labelings are the true labelings.
    assert field.n_assignments_ > 0 or (init, generator) == ("gpl", "map")
    assert np.isfinite(field.loss_curve_).all()
    assert field.score(X, y) > 0.5
    assert "triple" in field.factor_coef_


def test_one_set_of_all_labelings_is_the_likelihood_of_factors():
    X, y = factor_examples(3, fixed=True, n_classes=2, longest=3)
    every = np.array(list(product(range(2), repeat=3)))
    learning = ContrastiveTraining(init="empty", generator=None, given=[every])
    options = {"C": 0.5, "tol": 1e-8, "edge_features": "constant"}
    sets = ContrastiveCRF(learning=learning, **options).fit(X, y, sample_weight=[1.0, 2.0, 1.0])
    exact = trw_crf(learning="exact", **options, pairwise=sets.pairwise).fit(X, y, sample_weight=[1.0, 2.0, 1.0])
    assert_allclose(sets.loss_curve_[-1], exact.loss_curve_[-1], rtol=1e-6)
    assert_allclose(sets.factor_coef_["triple"], exact.factor_coef_["triple"], atol=1e-3)


def test_one_block_of_all_nodes_is_the_likelihood_of_factors():
    X, y = factor_examples(3, fixed=True, longest=4)
    whole = [[np.arange(len(own))] for own in y]
    learning = ContrastiveTraining(init="gpl", generator=None, blocks=whole)
    options = {"C": 0.5, "tol": 1e-8, "edge_features": "constant"}
    blocks = ContrastiveCRF(learning=learning, **options).fit(X, y)
    exact = trw_crf(learning="exact", **options, pairwise=blocks.pairwise).fit(X, y)
    assert_allclose(blocks.loss_curve_[-1], exact.loss_curve_[-1], rtol=1e-6)


def test_truncated_learning_minimises_the_loss_that_predicts():
    X, y = factor_examples(3)
    for loss in ("clique", "univariate"):
        learning = TruncatedInference(n_sweeps=3, loss=loss)
        field = trw_crf(C=0.5, learning=learning, tol=1e-6).fit(X, y, sample_weight=[1.0, 2.0, 1.0])
        assert field.converged_
        start = trw_crf(C=0.5, learning=learning, max_iter=1).fit(X, y, sample_weight=[1.0, 2.0, 1.0])
        assert field.loss_curve_[-1] < start.loss_curve_[0]
        shares = np.concatenate([p[np.arange(len(t)), t] for p, t in zip(field.predict_proba(X), y, strict=True)])
        assert np.all(shares > 0)
        if loss == "univariate":
            weight = np.repeat([1.0, 2.0, 1.0], [len(t) for t in y])
            flat = [field.coef_, field.edge_coef_, *field.factor_coef_.values()]
            penalty = 0.5 * sum(float(np.sum(each**2)) for each in flat)
            assert_allclose(penalty - 0.5 * weight @ np.log(shares), field.loss_curve_[-1], rtol=1e-6)


@pytest.mark.parametrize("entropy", ["trw", "trivial", "factors"])
def test_learnings_of_one_relaxation_agree(entropy):
    X, y = factor_examples(2, fixed=True)
    names = ["relaxation", "joint_relaxation"] + ["reparameterization", "dual_relaxation"] * (entropy == "trw")
    options = TIGHT | {"inner_tol": 1e-8, "tol": 1e-6, "C": 0.5, "entropy": entropy, "fit_intercept": False}
    models = [trw_crf(learning=name, **options).fit(X, y, sample_weight=[1.0, 2.5]) for name in names]
    for other in models[1:]:
        assert other.converged_
        assert_allclose(other.loss_curve_[-1], models[0].loss_curve_[-1], rtol=1e-6)
        assert_allclose(other.factor_coef_["triple"], models[0].factor_coef_["triple"], atol=2e-4)


def test_probabilities_of_factors_learned_with_the_weights_are_tighter():
    X, y = factor_examples(2)
    options = {"fit_intercept": False, "tol": 1e-4, "inner_tol": 1e-6}
    fixed, learned = (trw_crf(learning=name, **options).fit(X, y) for name in ("relaxation", "edge_probabilities"))
    exact = trw_crf(learning="exact", fit_intercept=False, tol=1e-6).fit(X, y)
    assert learned.converged_
    assert exact.loss_curve_[-1] < learned.loss_curve_[-1] < fixed.loss_curve_[-1] - 1e-3


@pytest.mark.parametrize("learning", ["joint_relaxation", "reparameterization"])
def test_relaxations_of_partly_labelled_factors(learning):
    X, y = factor_examples(3)
    y = [np.where(np.arange(len(own)) == i, -1, own) for i, own in enumerate(y)]
    options = {"missing_label": -1, "fit_intercept": False, "tol": 1e-5, "inner_tol": 1e-8}
    models = [trw_crf(learning=name, **options).fit(X, y) for name in ("relaxation", learning)]
    assert_allclose(models[1].loss_curve_[-1], models[0].loss_curve_[-1], rtol=1e-5)


@pytest.mark.parametrize(
    "field", [TRWCRF(), TRWCRF(learning="pseudolikelihood"), M3NClassifier(), M3NClassifier(solver="frank_wolfe")]
)
def test_labels_that_fixed_factors_forbid(field):
    x = Example(np.eye(3), [[0, 1], [1, 2]], fixed_factors=[([0, 1, 2], exactly_one())])
    allowed, forbidden = np.array([0, 1, 0]), np.array([1, 1, 0])
    with pytest.raises(ValueError, match=r"X\[1\]\.fixed_factors forbid the labels y\[1\]: correct the labels"):
        field.fit([x, x], [allowed, forbidden])
    assert np.isfinite(field.fit([x, x], [allowed, allowed[::-1]]).coef_).all()


@pytest.mark.parametrize("way", ["enumeration", "search", "solver"])
def test_slack_rescaling_of_factors_by_enumeration(way, monkeypatch):
    X, y = factor_examples(4, fixed=True, longest=4)
    cost = np.array([[0.0, 1.0, 3.0], [2.0, 0.0, 1.0], [1.0, 0.5, 0.0]])
    solver, tol = ("cutting_plane", 1e-4) if way == "solver" else ("bmrm", 1e-6)
    if way == "search":
        monkeypatch.setattr(_slack_rescaling, "ENUMERABLE", 0)
    field = M3NClassifier(
        learning=MaxMargin(rescaling="slack"), cost=cost, C=0.5, tol=tol, max_iter=3000, edge_features="constant",
        fit_intercept=False, inference=BruteForce(), solver=solver, random_state=0,
    ).fit(X, y)  # fmt: skip
    value = sum((w**2).sum() for w in [field.coef_, field.edge_coef_, *field.factor_coef_.values()]) / 2
    for model, truth in zip(field.models(X), y, strict=True):
        every = np.array(list(product(range(3), repeat=len(truth))))
        slack = 1.0 + np.array([score(model, labels) for labels in every]) - score(model, truth)
        value += 0.5 * max(0.0, (cost[every, truth].sum(axis=1) * slack).max())
    least = field.loss_curve_.min()
    if way == "search":
        # A labeling below the hull is not best at any price; the gap includes the difference.
        assert least - field.duality_gap_ <= value <= least * (1 + 1e-6)
    else:
        assert_allclose(least, value, rtol=1e-6)
        assert field.duality_gap_ <= 2 * tol * value


@pytest.mark.parametrize("solver", ["one_slack", "cutting_plane", "frank_wolfe"])
def test_solvers_agree_on_margins_with_factors(solver):
    X, y = factor_examples(5, longest=4, fixed=True)
    options = {"edge_features": "constant", "pairwise": "full", "inference": BruteForce(), "C": 0.5, "random_state": 0}
    best = M3NClassifier(solver="bmrm", tol=1e-5, max_iter=1000, **options).fit(X, y)
    found = M3NClassifier(solver=solver, tol=1e-2, max_iter=1000, **options).fit(X, y)
    assert found.dual_curve_[-1] <= best.loss_curve_.min() * (1 + 1e-6)
    assert found.loss_curve_.min() >= best.loss_curve_.min() - best.duality_gap_
    assert found.duality_gap_ <= 0.011 * best.loss_curve_.min()
    commonest = np.bincount(np.concatenate(y)).max() / sum(map(len, y))
    assert found.score(X, y) > commonest + 0.1


@pytest.mark.parametrize("learning", ["pma", "spa", "mma"])
def test_rules_of_inference_take_factors(learning):
    X, y = factor_examples(8, fixed=True)
    options = {"edge_features": "constant", "pairwise": "full", "tol": 1e-7, "max_iter": 200}
    field = drf_classifier(learning=learning, random_state=0, **options).fit(X, y)
    commonest = np.bincount(np.concatenate(y)).max() / sum(map(len, y))
    assert field.score(X, y) > commonest + 0.1
    if learning == "pma":
        exact = trw_crf(learning="exact", **options).fit(X, y)
        assert_allclose(field.coef_, exact.coef_, atol=1e-3)
        assert_allclose(field.factor_coef_["triple"], exact.factor_coef_["triple"], atol=1e-3)


def test_refusals(fitted):
    model, X, _ = fitted
    with pytest.raises(ValueError, match=r"X\[0\] has factors .* which predict_edge_proba does not support"):
        model.predict_edge_proba(X)
    with pytest.raises(ValueError, match=r"X\[0\] has factors .* which predict_topk does not support"):
        model.predict_topk(X)
    with pytest.raises(TypeError, match="model must be a PairwiseModel for TreeInference"):
        pickle.loads(pickle.dumps(model)).set_params(inference=TreeInference()).predict(X)
