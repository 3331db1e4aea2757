"""Training by single passes of stochastic steps."""

import pickle
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.base import clone

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Example, M3NClassifier
from sklearn_crf.learning import SGD, ContrastiveTraining
from sklearn_crf.models import CountTable, score
from sklearn_crf.objectives import GibbsGenerator
from sklearn_crf.optimize import AdaGradState, adagrad_steps
from sklearn_crf.potentials import FactorPotentials, LinearPotentials, make_pairwise_form
from sklearn_crf.potentials._factors import FactorType

RNG = np.random.default_rng(0)
Y = np.cumsum(RNG.random((120, 6)) < 0.3, axis=1) % 3
X = (RNG.normal(size=(3, 4))[Y] + RNG.normal(size=(120, 6, 4))) * [1.0, 20.0, 0.05, 1.0]
ESTIMATORS = {
    "trw": TRWCRF(edge_features="constant", random_state=0),
    "trw relaxation": TRWCRF(edge_features="constant", learning="relaxation", random_state=0),
    "drf": DRFClassifier(edge_features="constant", random_state=0),
    "drf pl": DRFClassifier(edge_features="constant", learning="pl", class_weight={1: 2.0}, random_state=0),
    "drf spa": DRFClassifier(edge_features="constant", inference="map", random_state=0),
    "contrastive": ContrastiveCRF(edge_features="constant", random_state=0),
    "contrastive gibbs": ContrastiveCRF(
        learning=ContrastiveTraining(init="empty", generator=GibbsGenerator(5), n_new=3),
        edge_features="constant",
        random_state=0,
    ),
    "m3n": M3NClassifier(edge_features="constant", max_iter=30, random_state=0),
}


def weights(estimator):
    return np.concatenate([np.ravel(getattr(estimator, name)) for name in ("coef_", "intercept_", "edge_coef_")])


def in_parts(estimator, n_passes=1):
    estimator = clone(estimator)
    for start in list(range(0, 80, 20)) * n_passes:
        estimator.partial_fit(X[start : start + 20], Y[start : start + 20], classes=[0, 1, 2])
    return estimator


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_one_pass_comes_near_the_full_fit(name):
    estimator = in_parts(ESTIMATORS[name], n_passes=2)
    full = clone(ESTIMATORS[name]).fit(X[:80], Y[:80])
    assert estimator.score(X[80:], Y[80:]) > full.score(X[80:], Y[80:]) - 0.06
    assert estimator.partial_fit_state_["n_nodes"] == pytest.approx(960, rel=0.5)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_pickles_go_on_where_they_were(name):
    estimator = clone(ESTIMATORS[name]).partial_fit(X[:20], Y[:20], classes=[0, 1, 2])
    loaded = pickle.loads(pickle.dumps(estimator))
    for each in (estimator, loaded):
        each.set_params(n_jobs=2 if each is loaded else 1).partial_fit(X[20:40], Y[20:40])
    np.testing.assert_array_equal(weights(estimator), weights(loaded))
    assert all(isinstance(part, np.ndarray | float | int | tuple) for part in loaded.partial_fit_state_.values())


def test_many_passes_come_nearer():
    """Twenty passes come nearer to the optimum than one pass. Repeated examples count again, hence the larger C."""
    best = clone(ESTIMATORS["trw"]).set_params(C=20.0).fit(X[:80], Y[:80])
    once, often = (in_parts(ESTIMATORS["trw"], n_passes) for n_passes in (1, 20))
    loss = [-np.mean(each.log_likelihood(X[:80], Y[:80]).values) for each in (once, often, best)]
    assert loss[1] - loss[2] < 0.5 * (loss[0] - loss[2])


def test_plain_rows_and_sparse_rows_are_the_same():
    sparse = pytest.importorskip("scipy.sparse")
    rows, labels = X.reshape(-1, 4)[:200], Y.ravel()[:200]
    dense = TRWCRF(random_state=0).partial_fit(rows, labels, classes=[0, 1, 2])
    other = TRWCRF(random_state=0).partial_fit(sparse.csr_matrix(rows), labels, classes=[0, 1, 2])
    np.testing.assert_allclose(other.coef_, dense.coef_, atol=1e-9)
    assert dense.score(rows, labels) > TRWCRF().fit(rows, labels).score(rows, labels) - 0.1


def test_classes_come_with_the_first_call():
    crf = TRWCRF()
    with pytest.raises(ValueError, match="classes must be passed on the first call to partial_fit"):
        crf.partial_fit(X, Y)
    crf.partial_fit(X[:4], np.zeros((4, 6), dtype=int), classes=[2, 1, 0])
    assert crf.classes_.tolist() == [0, 1, 2]
    before = weights(crf)
    with pytest.raises(ValueError, match="is not the same as on last call to partial_fit"):
        crf.partial_fit(X, Y, classes=[0, 1])
    with pytest.raises(ValueError, match="unknown label 7"):
        crf.partial_fit(X, Y + 7)
    with pytest.raises(ValueError, match="3 features"):
        crf.partial_fit(X[..., :3], Y)
    np.testing.assert_array_equal(weights(crf), before)
    named = TRWCRF(classes=[0, 1, 2]).partial_fit(X, Y)
    assert named.classes_.tolist() == [0, 1, 2]


def test_fit_begins_anew_and_partial_fit_goes_on_from_it():
    crf = clone(ESTIMATORS["trw"])
    plain = weights(crf.fit(X, Y))
    np.testing.assert_array_equal(weights(in_parts(ESTIMATORS["trw"]).fit(X, Y)), plain)
    assert not hasattr(crf, "partial_fit_state_")
    assert crf.partial_fit(X[:8], Y[:8]).partial_fit_state_["n_steps"] == 1


def test_a_weight_of_two_is_an_example_seen_twice():
    crf = TRWCRF(C=1e6).partial_fit(X[:1], Y[:1], classes=[0, 1, 2], sample_weight=[2.0])
    assert crf.partial_fit_state_["n_nodes"] == 12


def test_associative_weights_stay_so():
    rough = M3NClassifier(pairwise="associative", edge_features="constant")
    rough.partial_fit(X[:8], RNG.permuted(Y[:8], axis=1), classes=[0, 1, 2])
    assert rough.edge_coef_.min() >= 0


def test_what_needs_all_examples_says_so():
    with pytest.raises(ValueError, match="use weights='all'"):
        TRWCRF(weights="seen").partial_fit(X, Y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="class_weight='balanced' is not supported by partial_fit"):
        M3NClassifier(class_weight="balanced").partial_fit(X, Y, classes=[0, 1, 2])


def test_adaptive_steps_do_not_depend_on_scales():
    def slopes(scale):
        return lambda row, x: scale * (scale * x - row)

    rows = [np.array([1.0, -2.0])] * 200
    small = adagrad_steps(slopes(0.1), AdaGradState.at(np.zeros(2)), rows, step_size=5.0)
    large = adagrad_steps(slopes(10.0), AdaGradState.at(np.zeros(2)), rows, step_size=0.05)
    np.testing.assert_allclose(small.average * 0.1, large.average * 10)
    np.testing.assert_allclose(large.average * 10, rows[0], atol=0.1)


def test_adaptive_steps_refuse_what_is_not_finite():
    with pytest.raises(ValueError, match="gradient must be finite, found NaN or infinity at step 0"):
        adagrad_steps(lambda row, x: x * np.nan, AdaGradState.at(np.zeros(2)), [0])


@pytest.mark.parametrize("kind", [TRWCRF, M3NClassifier, ContrastiveCRF])
def test_sparse_edge_features_learn_as_dense_ones(kind):
    rng = np.random.default_rng(0)
    ties = [np.c_[np.ones(5), rng.random(5)] * (rng.random((5, 2)) < 0.8) for _ in range(8)]
    chain, found = [[i, i + 1] for i in range(5)], []
    for form, pairs in ((np.asarray, "all"), (sp.csr_array, "auto")):
        graphs = [Example(form(x), chain, edge_features=form(own)) for x, own in zip(X[:8] / 20, ties, strict=True)]
        field = kind(pairwise="full", random_state=0, weights=pairs)
        found.append(field.partial_fit(graphs[:4], Y[:4], classes=[0, 1, 2]).partial_fit(graphs[4:], Y[4:8]))
        assert np.mean(np.stack(field.predict(graphs)) == Y[:8]) > 0.4
    dense, sparse = found
    assert_allclose(sparse.coef_.toarray() if sp.issparse(sparse.coef_) else sparse.coef_, dense.coef_, atol=1e-8)
    of_pairs = sparse.edge_coef_.toarray() if sp.issparse(sparse.edge_coef_) else sparse.edge_coef_
    assert_allclose(of_pairs.T, dense.edge_coef_[0], atol=1e-8)


def test_hard_constraints_hold_in_streams():
    one = CountTable([-np.inf, 0.0, -np.inf, -np.inf, -np.inf, -np.inf, -np.inf])
    y = np.eye(6, dtype=int)[np.arange(len(X)) % 6]
    chain = [[i, i + 1] for i in range(5)]
    graphs = [Example(x, chain, fixed_factors=[(range(6), one)]) for x in X]
    field = TRWCRF(edge_features="constant", random_state=0)
    field.partial_fit(graphs[:6], y[:6], classes=[0, 1]).partial_fit(graphs[6:], y[6:])
    assert {int(labels.sum()) for labels in field.predict(graphs)} == {1}
    whole = TRWCRF(edge_features="constant").fit(graphs, y)
    assert np.isfinite(whole.log_likelihood(graphs, y).values).all()
    assert np.isfinite(field.log_likelihood(graphs, y).values).all()


def parities(n, seed, dtype=np.float64, name="parity"):
    """Return triples of nodes; the features determine two labels, and the third label is the parity of these two."""
    rng = np.random.default_rng(seed)
    found = rng.integers(2, size=(n, 6))
    found[:, 2::3] = found[:, 0::3] ^ found[:, 1::3]
    values = np.stack((found + 0.3 * rng.normal(size=found.shape), np.ones(found.shape)), axis=-1)
    values[:, 2::3] = 0
    scopes = {name: [[0, 1, 2], [3, 4, 5]]}
    return [Example(x.astype(dtype), [[0, 1], [3, 4]], factors=scopes) for x in values], list(found)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "field",
    [
        TRWCRF(),
        DRFClassifier(inference="map"),
        M3NClassifier(),
        ContrastiveCRF(),
    ],
    ids=lambda field: f"{type(field).__name__} {field.learning}",
)
def test_factors_learn_in_streams(field, dtype):
    graphs, labels = parities(60, 0, dtype)
    # Joint states become known in two calls.
    later = np.array([y[2] == 1 or y[5] == 1 for y in labels])
    field = clone(field).set_params(random_state=0, edge_features="constant")
    for part in (np.flatnonzero(~later), np.flatnonzero(later), *[np.arange(60)] * 3):
        field = pickle.loads(pickle.dumps(field))
        field.partial_fit([graphs[i] for i in part], [labels[i] for i in part], classes=[0, 1])
    assert field.factor_states_["parity"].tolist() == [[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]
    coef = field.factor_coef_["parity"][0]
    assert coef[:-1].min() > coef[-1]  # labels of the wrong parity have the last weight
    assert field.score(*parities(100, 1, dtype)) > 0.7


@pytest.mark.parametrize("seed", range(3))
def test_new_factors_and_states_keep_the_scores_of_known_labelings(seed):
    rng = np.random.default_rng(seed)
    pairwise = LinearPotentials(2, 2, make_pairwise_form("full", 2))
    few, more = np.sort(rng.permutation(8)[:2]), rng.permutation(8)[:5]
    states = np.array(list(np.ndindex(2, 2, 2)))
    known = FactorPotentials(pairwise, [FactorType("parity", [2, 2, 2], 1, states[few])])
    new = FactorType("parity", [2, 2, 2], 1, states[more]), FactorType("other", [2, 2], 1, states[:1, :2])
    potentials, coef = known.extended(new), rng.normal(size=known.n_coef)
    converted = potentials.convert_weights(known, coef)
    assert len(converted) == potentials.n_coef == known.n_coef + len(set(more) - set(few)) + 2
    graphs, _ = parities(3, seed)
    for graph, labels in product(graphs, rng.integers(2, size=(5, 6))):
        assert score(potentials.model(converted, graph), labels) == pytest.approx(
            score(known.model(coef, graph), labels), rel=1e-12
        )


@pytest.mark.parametrize("kind", [TRWCRF, DRFClassifier, M3NClassifier, ContrastiveCRF])
@pytest.mark.parametrize("shape", [(6,), (2, 6), (2, 4, 4)], ids=["rows", "chains", "images"])
def test_a_part_without_labels_changes_nothing(kind, shape):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(*shape, 3)), rng.integers(2, size=shape)
    field = kind(missing_label=-1, random_state=0).partial_fit(X, np.full_like(y, -1), classes=[0, 1])
    assert not field.coef_.any()
    learned = field.partial_fit(X, y).coef_
    assert learned.any()
    np.testing.assert_array_equal(field.partial_fit(X, np.full_like(y, -1)).coef_, learned)


def test_weights_count_across_steps():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4, 2))
    y = np.where(rng.random((200, 4)) < 0.2, 1 - np.arange(200)[:, None] % 2, np.arange(200)[:, None] % 2)
    weight = np.where(np.arange(200) % 2, 9.0, 1.0)  # sequences that mostly have the label 1 count nine times

    def share(field):
        return field.predict_proba(X)[..., 1].mean()

    expected = share(TRWCRF().fit(X, y, sample_weight=weight))
    for size in (1, 4):
        solver = SGD(batch_size=size)
        assert share(TRWCRF(solver=solver, random_state=0).fit(X, y, sample_weight=weight)) == pytest.approx(
            expected, abs=0.02
        )
    for n_together in (1, 200):
        field = TRWCRF(random_state=0)
        for _ in range(5):
            for part in np.split(rng.permutation(200), 200 // n_together):
                field.partial_fit(X[part], y[part], classes=[0, 1], sample_weight=weight[part])
        assert share(field) == pytest.approx(expected, abs=0.05)


def test_sgd_passes_over_examples_without_labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 5, 3))
    y = (X[..., 0] > 0).astype(int)
    partly = np.where(np.arange(30)[:, None] % 3, -1, y)
    assert TRWCRF(missing_label=-1, solver="sgd", random_state=0).fit(X, partly).score(X, y) > 0.8
    weight = np.repeat([0.0, 1.0], [20, 10])
    assert TRWCRF(solver="sgd", random_state=0).fit(X, y, sample_weight=weight).score(X, y) > 0.8
