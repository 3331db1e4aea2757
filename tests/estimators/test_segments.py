"""Classifiers with scores of the durations of runs of a label."""

import pickle
from dataclasses import replace
from itertools import groupby, product

import numpy as np
import pytest
import scipy.sparse as sp
from finite_differences import five_point
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from segment_reference import enumerated, runs_of_all, score_of
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Example, M3NClassifier, Shards
from sklearn_crf.encoding import encode_X, encode_y, make_batches, tie_constant_edges
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import JunctionTree
from sklearn_crf.inference.exact._segments import SegmentInference
from sklearn_crf.learning import Relaxation
from sklearn_crf.learning._reparameterized_margins import ReparameterizedMargin
from sklearn_crf.metrics import entities
from sklearn_crf.models import FactorGraph, PairwiseModel, SegmentModel
from sklearn_crf.objectives import (
    EmpiricalRisk,
    Likelihood,
    Pseudolikelihood,
    SlackRescaledHinge,
    SoftmaxMargin,
    loss_and_gradient,
)
from sklearn_crf.potentials import LinearPotentials, PairwiseTables, SegmentPotentials, Segments, make_pairwise_form

CLASSIFIERS = [TRWCRF, DRFClassifier, M3NClassifier]


def activities(n, seed, n_nodes=60, least=6):
    """Return noisy features of sequences whose activities take at least some nodes."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels, label = [], int(rng.integers(3))
        while len(labels) < n_nodes:
            labels += [label] * int(rng.integers(least, 2 * least))
            label = (label + int(rng.integers(1, 3))) % 3
        y.append(np.array(labels[:n_nodes]))
        X.append(np.eye(3)[y[-1]] + rng.normal(scale=1.6, size=(n_nodes, 3)))
    return X, y


def with_segments(*arguments, **options):
    return PairwiseTables("full", segments=Segments(*arguments, **options))


def lengths_inside(labels):
    return [len(list(run)) for _, run in groupby(labels.tolist())][1:-1]


X, Y = activities(20, 0)
X_TEST, Y_TEST = activities(20, 1)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_durations_help(kind):
    plain, field = kind().fit(X, Y), kind(pairwise=with_segments(14)).fit(X, Y)
    assert field.score(X_TEST, Y_TEST) > plain.score(X_TEST, Y_TEST) + 0.03
    assert field.duration_coef_.shape == (3, 14)
    assert plain.duration_coef_ is None
    # Runs have at least six nodes.
    assert field.duration_coef_[:, :4].max() < field.duration_coef_[:, 7:11].mean()
    copied = pickle.loads(pickle.dumps(field))
    assert_array_equal(np.concatenate(copied.predict(X_TEST)), np.concatenate(field.predict(X_TEST)))


@pytest.mark.parametrize("inference", ["auto", "map"])
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_predictions_obey_the_least_duration(kind, inference):
    field = kind(pairwise=with_segments(8, min_duration=6), inference=inference).fit(X, Y)
    predicted = field.predict(X_TEST)
    assert min(min(lengths_inside(labels), default=6) for labels in predicted) >= 6
    # Runs at the ends of a sequence may be cut off, so that short sequences have labels, too.
    assert field.predict([X_TEST[0][:1], X_TEST[0][:3]])[1].shape == (3,)


def test_log_likelihood_and_probabilities_equal_enumeration():
    short = [x[:5] for x in X_TEST[:3]]
    field = TRWCRF(pairwise=with_segments(4)).fit(X, Y)
    for x, labels, model in zip(short, field.predict(short), field.models(short), strict=True):
        _, _, log_z, expected = enumerated(model)
        assert_allclose(field.predict_proba([x])[0], expected.unary, atol=1e-10)
        assert field.log_likelihood([x], [labels]).values[0] == pytest.approx(score_of(model, labels) - log_z)
    drawn = field.sample(short, 2, random_state=0)
    assert np.shape(drawn[0]) == (2, 5) or len(drawn) == 2


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("is_partial", [False, True])
@pytest.mark.parametrize("cost", [None, "hamming"])
def test_gradient_of_the_risk(n_classes, is_partial, cost):
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(n, 2)) for n in (5, 1, 7)]
    y = [rng.integers(n_classes, size=len(x)) for x in data]
    encoded = encode_X(data, edge_features="difference")
    if is_partial:
        y[0][1:3] = -1
    labels = encode_y(y, encoded, missing_label=-1, classes=range(n_classes)).labels
    batches = make_batches(encoded, labels, np.array([1.0, 2.0, 0.5]))
    linear = LinearPotentials(2, n_classes, make_pairwise_form("full", n_classes), n_edge_features=3)
    potentials = SegmentPotentials(linear, Segments(3))
    objective = Likelihood(SegmentInference())
    if cost is not None:
        objective = SoftmaxMargin(objective, 1 - np.eye(n_classes), 0.5)
    risk = EmpiricalRisk(objective, potentials, batches)
    coef = rng.normal(size=potentials.n_coef)
    numeric = five_point(lambda w: risk.value_grad(w).value, coef)
    assert_allclose(risk.value_grad(coef).gradient, numeric, atol=1e-7)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_weights_equal_copies(kind):
    options = {
        "pairwise": with_segments(5),
        "tol": 1e-7,
        "max_iter": 2000,
        "solver": "bmrm" if kind is M3NClassifier else "auto",
    }
    weight = np.array([1, 2, 3, 1, 2, 0])
    few, labels = [x[:20] for x in X[:6]], [y[:20] for y in Y[:6]]
    once = kind(**options).fit(few, labels, sample_weight=weight)
    copies = [i for i, n in enumerate(weight) for _ in range(n)]
    often = kind(**options).fit([few[i] for i in copies], [labels[i] for i in copies])
    tol = 1e-4 if kind is not M3NClassifier else 5e-3
    assert_allclose(once.duration_coef_, often.duration_coef_, atol=tol)
    assert_allclose(once.coef_, often.coef_, atol=tol)


def test_forms_of_input_agree():
    options = {"pairwise": with_segments(6), "tol": 1e-6}
    dense = TRWCRF(**options).fit(X, Y)
    inputs = {
        "array": (np.stack(X), np.stack(Y)),
        "sparse": ([sp.csr_matrix(x) for x in X], Y),
        "examples": ([Example(x, np.column_stack([np.arange(59), np.arange(1, 60)])) for x in X], Y),
        "shards": (Shards.from_arrays([(X[:7], Y[:7]), (X[7:], Y[7:])]), None),
    }
    for name, (given, labels) in inputs.items():
        field = TRWCRF(**options, edge_features="constant").fit(given, labels)
        assert_allclose(field.duration_coef_, dense.duration_coef_, atol=5e-3, err_msg=name)
    single = TRWCRF(**options).fit([x.astype(np.float32) for x in X], Y)
    assert_allclose(single.duration_coef_, dense.duration_coef_, atol=5e-3)
    assert single.predict_proba(X_TEST[:1])[0].dtype.kind == "f"


def test_results_do_not_depend_on_threads():
    fields = [TRWCRF(pairwise=with_segments(6), n_jobs=n).fit(X, Y) for n in (1, 2)]
    assert_array_equal(fields[0].duration_coef_, fields[1].duration_coef_)
    assert_array_equal(*(np.concatenate(field.predict_proba(X_TEST)) for field in fields))


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_missing_labels(kind):
    partial = [labels.copy() for labels in Y]
    for labels in partial:
        labels[20:40:3] = -1
    field = kind(pairwise=with_segments(14, min_duration=4), missing_label=-1).fit(X, partial)
    assert field.score(X_TEST, Y_TEST) > 0.6
    if kind is not M3NClassifier:
        known = [np.where(np.arange(60) == 30, labels, -1) for labels in Y_TEST]
        given = field.predict_proba(X_TEST, evidence=known)
        assert_allclose([p[30, labels[30]] for p, labels in zip(given, Y_TEST, strict=True)], 1)


def test_boundary_weights_and_forbidden_pairs():
    tables = PairwiseTables("full", segments=Segments(6), boundary_weights=True, forbidden=[[0, 1]], forbidden_last=[2])
    kept = [i for i, y in enumerate(Y) if not np.any((y[:-1] == 0) & (y[1:] == 1)) and y[-1] != 2]
    more, labels = activities(200, 5, n_nodes=20)
    kept = [i for i, y in enumerate(labels) if not np.any((y[:-1] == 0) & (y[1:] == 1)) and y[-1] != 2]
    field = TRWCRF(pairwise=tables).fit([more[i] for i in kept], [labels[i] for i in kept])
    predicted = field.predict(X_TEST)
    assert not any(np.any((y[:-1] == 0) & (y[1:] == 1)) or y[-1] == 2 for y in predicted)
    assert field.boundary_coef_.shape == (2, 3)


def test_search_clone_warm_start_and_partial_fit():
    field = TRWCRF(pairwise=with_segments(4), warm_start=True)
    assert clone(field).get_params()["pairwise__segments__max_duration"] == 4
    search = GridSearchCV(field, {"pairwise__segments__max_duration": [1, 10]}, cv=2).fit(X, Y)
    assert search.best_params_["pairwise__segments__max_duration"] == 10
    again = clone(field).fit(X, Y)
    n_iter = again.n_iter_
    assert again.fit(X, Y).n_iter_ < n_iter
    online = TRWCRF(pairwise=with_segments(10))
    for _ in range(5):
        online.partial_fit(X, Y, classes=[0, 1, 2])
    assert online.duration_coef_.shape == (3, 10)
    assert online.score(X_TEST, Y_TEST) > 0.6
    plain = again.set_params(pairwise="full", warm_start=False).fit(X, Y)
    assert plain.duration_coef_ is None


def test_plain_rows_and_learning_by_steps():
    rows, labels = np.concatenate(X), np.concatenate(Y)
    assert TRWCRF(pairwise=with_segments(2)).fit(rows, labels).score(rows, labels) > 0.5
    for learning in ("exact", "pma", "spa", "mma"):
        field = TRWCRF(pairwise=with_segments(14), learning=learning, max_iter=40).fit(X, Y)
        assert field.score(X_TEST, Y_TEST) > 0.5, learning


APPROXIMATE = "pl", "piecewise", "contrastive", "cd", "truncated", "mean_field", "dual_margin", "joint_margin"


@pytest.mark.parametrize("learning", [*APPROXIMATE, Relaxation(entropy="trivial"), "joint_relaxation"], ids=str)
def test_learning_that_does_not_support_segments(learning):
    with pytest.raises(ValueError, match="does not support segments, because it avoids exact inference"):
        TRWCRF(pairwise=with_segments(4), learning=learning).fit(X, Y)


PARTLY = [np.where(np.arange(len(y)) % 5 == i % 5, -1, y) for i, y in enumerate(Y)]


@pytest.mark.parametrize("labels", [Y, PARTLY], ids=["complete", "partly"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "learning", ["relaxation", Relaxation(trees="uniform"), "reparameterization", "spanning_trees", "loopy"], ids=str
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_relaxations_are_exact(learning, dtype, labels):
    rows = [x.astype(dtype) for x in X[:6]]
    options = {"pairwise": with_segments(9, features="mean"), "missing_label": -1, "max_iter": 30}
    field = TRWCRF(**options, learning=learning).fit(rows, labels[:6])
    exact = TRWCRF(**options, learning="exact").fit(rows, labels[:6])
    assert_allclose(field.loss_curve_, exact.loss_curve_, rtol=1e-9 if dtype == np.float64 else 1e-5)
    loaded = pickle.loads(pickle.dumps(field))
    for found, expected in zip(loaded.predict_proba(rows), exact.predict_proba(rows), strict=True):
        assert_allclose(found, expected, atol=1e-9 if dtype == np.float64 else 1e-3)
    model = field.models([rows[0][:6]])[0]
    labelings, scores, *_ = enumerated(model)
    expected = logsumexp(scores, b=(labelings[:, 2] == 1)) - logsumexp(scores)
    assert field.predict_log_proba([rows[0][:6]])[0][2, 1] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("learning", ["relaxed_margin", ReparameterizedMargin(temperature=0)], ids=str)
def test_relaxed_margins_are_those_of_labelings(learning):
    options = {"pairwise": with_segments(6), "C": 0.01, "tol": 1e-3, "max_iter": 3000, "random_state": 0}
    few, labels = [x[:25] for x in X[:8]], [y[:25] for y in Y[:8]]
    field = M3NClassifier(**options, learning=learning).fit(few, labels)
    expected = M3NClassifier(**options).fit(few, labels)
    assert_allclose(field.loss_curve_[-1], expected.loss_curve_[-1], rtol=0.01)


@pytest.mark.parametrize("features", ["mean", ["ends", lambda x, first, last: x[last] - x[first]]], ids=["mean", "own"])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_a_sequence_without_labels_adds_nothing_to_a_margin(features, convert):
    few, labels = [convert(x[:20]) for x in X[:6]], [y[:20] for y in Y[:6]]
    field = M3NClassifier(pairwise=with_segments(4, features=features), missing_label=-1, C=0.01, max_iter=1000)
    expected = clone(field).fit(few, labels).loss_curve_
    found = field.fit([few[0], convert(X[7]), *few[1:]], [labels[0], np.full(len(X[7]), -1), *labels[1:]])
    assert_allclose(found.loss_curve_[-1], expected[-1], rtol=0.02)


@pytest.mark.parametrize("learning", ["smoothed_margin", "reparameterized_margin"])
def test_smoothed_margins_are_soft_maxima(learning):
    few, labels = [x[:6] for x in X[:8]], [y[:6] for y in Y[:8]]
    field = M3NClassifier(pairwise=with_segments(4), learning=learning).fit(few, labels)
    loss = 0.0
    for model, own in zip(field.models(few), labels, strict=True):
        labelings, scores, *_ = enumerated(model)
        cost = (labelings != own).sum(axis=1)
        loss += 0.1 * logsumexp((scores + cost) / 0.1) - scores[(labelings == own).all(axis=1)].item()
    weights = field.coef_, field.intercept_, field.edge_coef_, field.duration_coef_
    penalty = sum(np.sum(part**2) for part in weights) / 2
    assert field.loss_curve_[-1] == pytest.approx(loss + penalty, rel=1e-6)


def test_own_objectives_learn_segments_by_exact_inference():
    options = {"pairwise": with_segments(6, features="ends"), "max_iter": 20}
    own = TRWCRF(**options, learning=Likelihood()).fit(X[:6], Y[:6])
    assert_allclose(own.loss_curve_, TRWCRF(**options, learning="exact").fit(X[:6], Y[:6]).loss_curve_, rtol=1e-9)
    with pytest.raises(ValueError, match="does not support segments, because it avoids exact inference"):
        TRWCRF(**options, learning=Pseudolikelihood()).fit(X[:6], Y[:6])
    with pytest.raises(ValueError, match="does not support a SegmentModel, because it avoids exact inference"):
        loss_and_gradient(own.models(X[:1])[0], Y[0], objective=Pseudolikelihood())


def test_slack_rescaling_bounds_the_product():
    labels = np.array([0, 0, 0, 1, 1, 2])
    rng = np.random.default_rng(0)
    pairwise = PairwiseModel(lattice((6,)), rng.normal(size=(6, 3)), rng.normal(size=(1, 3, 3)))
    model = SegmentModel(pairwise, rng.normal(size=(3, 4)), min_duration=2)
    labelings, scores, *_ = enumerated(model)
    cost = (labelings != labels).sum(axis=1)
    truth = scores[(labelings == labels).all(axis=1)].item()
    product = np.where(cost > 0, cost * (1 + scores - truth), 0).max()
    found = SlackRescaledHinge(SegmentInference(), 1 - np.eye(3)).most_violated(model, labels.astype(np.int32))
    assert found.score <= product + 1e-9
    assert found.score + found.gap >= product - 1e-9


def test_errors():
    with pytest.raises(ValueError, match=r"learning='contrastive' with these options does not support segments"):
        ContrastiveCRF(pairwise=with_segments(4)).fit(X, Y)
    with pytest.raises(ValueError, match=r"min_duration must be at most max_duration, got 5 and 4"):
        TRWCRF(pairwise=with_segments(4, min_duration=5)).fit(X, Y)
    for n_durations in (0, 10**9):
        with pytest.raises(ValueError, match="max_duration"):
            TRWCRF(pairwise=with_segments(n_durations)).fit(X, Y)
    images = np.zeros((2, 4, 4, 1))
    with pytest.raises(ValueError, match="segments need sequences, but X holds lattices of 2 axes"):
        TRWCRF(pairwise=with_segments(4)).fit(images, np.zeros((2, 4, 4), int) + np.eye(4, dtype=int))
    tree = Example(np.zeros((3, 1)), [[0, 1], [0, 2]])
    with pytest.raises(ValueError, match="segments need chains"):
        TRWCRF(pairwise=with_segments(4)).fit([tree, tree], [[0, 1, 0], [1, 0, 1]])
    short = [labels.copy() for labels in Y]
    short[3][30] = (short[3][30] + 1) % 3
    with pytest.raises(
        ValueError, match=r"Sequence 3 contains a run of \d+ nodes of \d, which min_duration=6 rules out"
    ):
        TRWCRF(pairwise=with_segments(8, min_duration=6)).fit(X, short)
    with pytest.raises(TypeError, match="These algorithms accept it"):
        TRWCRF(pairwise=with_segments(4), inference="viterbi").fit(X, Y).predict(X)


def test_methods_without_segments_say_so():
    field = TRWCRF(pairwise=with_segments(4)).fit(X, Y)
    with pytest.raises(TypeError, match="segments"):
        field.decision_function(X_TEST)
    energies = field.energy(X_TEST[:2], Y_TEST[:2])
    models = field.models(X_TEST[:2])
    assert_allclose(energies, [-score_of(model, y) for model, y in zip(models, Y_TEST, strict=False)])
    certified = field.certify(X_TEST[:1])
    assert certified is not None


def test_joint_results_equal_enumeration():
    names = np.array(["B-x", "I-x", "O"])
    tables = PairwiseTables("full", segments=Segments(3, features=["mean", "ends"]), forbidden="IOB2")
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(6, 2)) for _ in range(8)]
    y = [np.array(["B-x", "I-x", "I-x", "O", "B-x", "O"]) if k % 2 else np.repeat("O", 6) for k in range(8)]
    field = TRWCRF(pairwise=tables, C=0.1).fit(data, y)
    model = field.models(data[:1])[0]
    labelings, scores, log_z, _ = enumerated(model)
    labels, best = field.predict_topk(data[:1], k=4)
    assert_allclose(best[0], np.sort(scores)[::-1][:4])
    assert labels[0].shape == (4, 6)
    p = np.exp(scores - log_z)
    pairs = [[p[(labelings[:, 2] == a) & (labelings[:, 3] == b)].sum() for b in range(3)] for a in range(3)]
    assert_allclose(field.predict_edge_proba(data[:1])[0][2], pairs, atol=1e-9)
    spans = [("x", 0, 3), ("x", 0, 1), ("x", 2, 6), ("x", 5, 6)]
    found = field.predict_entity_proba(data[:2], spans=[spans, spans[:1]])
    text = [entities(names[own].tolist()) for own in labelings]
    expected = [sum(q for own, q in zip(text, p, strict=True) if span in own) for span in spans]
    assert_allclose([each.probability for each in found[0]], expected, atol=1e-9)


def test_temperature_divides_durations():
    from sklearn_crf.objectives import apply_temperature

    field = TRWCRF(pairwise=with_segments(3)).fit(X, Y)
    model = field.models([X_TEST[0][:4]])[0]
    scores = enumerated(model)[1]
    assert SegmentInference().marginals(apply_temperature(model, 2.0)).log_z == pytest.approx(logsumexp(scores / 2))


@pytest.mark.parametrize("solver", ["frank_wolfe", "bmrm", "one_slack", "cutting_plane"])
def test_solvers_of_margins_agree(solver):
    # Some solvers use cutting planes of single sequences, other solvers use planes of sums over sequences.
    few, labels = [x[:25] for x in X[:8]], [y[:25] for y in Y[:8]]
    options = {"pairwise": with_segments(6), "C": 0.01, "tol": 1e-3, "max_iter": 3000, "random_state": 0}
    exact = M3NClassifier(**options, solver="bmrm").fit(few, labels)
    field = M3NClassifier(**options, solver=solver).fit(few, labels)
    assert_allclose(field.loss_curve_[-1], exact.loss_curve_[-1], rtol=0.01)
    assert_allclose(field.duration_coef_, exact.duration_coef_, atol=0.02)


def shape_of_runs(x, first, last):
    """Return the largest value in a run, its first difference and its squared duration."""
    x = x.toarray() if sp.issparse(x) else x
    largest = np.array([x[a : b + 1, 0].max() for a, b in zip(first, last, strict=True)])
    return np.column_stack([largest, x[last, 0] - x[first, 0], ((last - first + 1) / 10.0) ** 2])


def sparse_shape_of_runs(x, first, last):
    return sp.csr_matrix(np.round(shape_of_runs(x, first, last)))


FEATURES = ["mean", "ends", shape_of_runs, sparse_shape_of_runs, ["ends", "mean", shape_of_runs, sparse_shape_of_runs]]


def plain_run_features(x, features, n_durations, first, last):
    """Return the features of one run in the order of the weights, computed by a plain loop."""
    given = features if isinstance(features, list) else [features]
    parts = []
    if "mean" in given:
        parts.append(x[first : last + 1].sum(axis=0) / min(last - first + 1, n_durations))
    if "ends" in given:
        parts += [x[first], x[last]]
    for function in given:
        if callable(function):
            found = function(x, np.array([first]), np.array([last]))
            found = (found.toarray() if sp.issparse(found) else found)[0]
            parts.append(found if last - first + 1 < n_durations else 0 * found)
    return np.concatenate(parts)


def add_plain_run_scores(model, x, field):
    """Return the score of a labeling by the model without features of runs, plus the scores of its features."""
    segments = field.pairwise.segments

    def score(labels):
        total = score_of(replace(model, ends=None, spans=None), labels)
        if segments.features is not None:
            for _, label, first, length, _ in runs_of_all(model, labels):
                own = plain_run_features(x, segments.features, segments.max_duration, first, first + length - 1)
                total += own @ field.segment_coef_[label]
        return total

    return score


@pytest.mark.parametrize("boundaries", [False, True])
@pytest.mark.parametrize("features", FEATURES, ids=["mean", "ends", "dense", "sparse", "all"])
def test_scores_of_run_features_equal_plain_loops(features, boundaries):
    tables = PairwiseTables("full", segments=Segments(3, features=features), boundary_weights=boundaries)
    field = TRWCRF(pairwise=tables, C=0.1, max_iter=30, tol=0.1).fit(X, Y)
    copied = pickle.loads(pickle.dumps(field))
    for x in (X_TEST[0][:5], X_TEST[1][20:25]):
        labelings = np.array(list(product(range(3), repeat=5)))
        nodes = x @ field.coef_.T + field.intercept_
        if boundaries:
            nodes[0] += field.boundary_coef_[0]
            nodes[-1] += field.boundary_coef_[1]
        pairwise = PairwiseModel(lattice((5,)), nodes, [field.edge_coef_.reshape(3, 3)])
        score = add_plain_run_scores(SegmentModel(pairwise, field.duration_coef_), x, field)
        scores = np.array([score(labels) for labels in labelings])
        log_z = logsumexp(scores)
        expected = [[np.exp(scores[labelings[:, s] == k] - log_z).sum() for k in range(3)] for s in range(5)]
        assert_allclose(field.predict_proba([x])[0], expected, atol=1e-9)
        assert_allclose(copied.predict_proba([x])[0], expected, atol=1e-9)
        assert field.log_likelihood([x], [labelings[7]]).values[0] == pytest.approx(scores[7] - log_z)


@pytest.mark.parametrize("features", FEATURES, ids=["mean", "ends", "dense", "sparse", "all"])
@pytest.mark.parametrize("is_partial", [False, True])
@pytest.mark.parametrize("scale", [1, 1000])
def test_gradient_with_run_features(features, is_partial, scale):
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(n, 2)) for n in (5, 1, 7)]
    y = [rng.integers(3, size=len(x)) for x in data]
    encoded = encode_X(data, edge_features="constant")
    if is_partial:
        y[0][1:3] = -1
    labels = encode_y(y, encoded, missing_label=-1, classes=range(3)).labels
    segments = Segments(4, features=features)
    prepare = segments.feature_kinds.added_to(tie_constant_edges, n_added=0)
    batches = make_batches(encoded, labels, np.array([1.0, 2.0, 0.5]), prepare=prepare)
    linear = LinearPotentials(2, 3, make_pairwise_form("full", 3))
    potentials = SegmentPotentials(linear, segments, segments.feature_kinds.count(encoded))
    risk = EmpiricalRisk(Likelihood(SegmentInference()), potentials, batches)
    coef = scale * rng.normal(size=potentials.n_coef)
    # At large scores, one labeling has all the probability, and the value is linear around the weights.
    numeric = five_point(lambda w: risk.value_grad(w).value, coef)
    assert_allclose(risk.value_grad(coef).gradient, numeric, atol=1e-6 if scale == 1 else 1e-4)


def trends(n, seed):
    """Return noisy values that rise in runs of label 0, fall in runs of label 1, and are level in runs of label 2."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = (rng.integers(3) + np.cumsum(rng.integers(1, 3, size=7))) % 3
        sizes = rng.integers(4, 9, size=7)
        parts = [{0: 1, 1: -1, 2: 0}[k] * np.linspace(-1, 1, size) for k, size in zip(labels, sizes, strict=True)]
        y.append(np.repeat(labels, sizes))
        X.append((np.concatenate(parts) + rng.normal(scale=0.3, size=sizes.sum()))[:, np.newaxis])
    return X, y


@pytest.mark.parametrize("features", ["ends", shape_of_runs], ids=["ends", "dense"])
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_run_features_help(kind, features):
    (values, labels), test = trends(30, 0), trends(30, 1)
    field = kind(pairwise=with_segments(10, features=features)).fit(values, labels)
    plain = kind(pairwise=with_segments(10)).fit(values, labels)
    assert field.score(*test) > plain.score(*test) + 0.1
    assert field.segment_coef_.shape == (3, 2 if features == "ends" else 3)
    assert plain.segment_coef_ is None


def test_forms_of_input_agree_with_run_features():
    options = {"pairwise": with_segments(6, min_duration=2, features=["mean", "ends", shape_of_runs]), "tol": 1e-5}
    few, y = [x[:30] for x in X[:12]], [labels[:30] for labels in Y[:12]]
    dense = TRWCRF(**options, warm_start=True).fit(few, y)
    inputs = {
        "array": (np.stack(few), np.stack(y)),
        "sparse": ([sp.csr_matrix(x) for x in few], y),
        "examples": ([Example(x, np.column_stack([np.arange(29), np.arange(1, 30)])) for x in few], y),
        "shards": (Shards.from_arrays([(few[:5], y[:5]), (few[5:], y[5:])]), None),
        "single precision": ([x.astype(np.float32) for x in few], y),
    }
    for name, (given, labels) in inputs.items():
        field = TRWCRF(**options, edge_features="constant").fit(given, labels)
        assert_allclose(field.segment_coef_, dense.segment_coef_, atol=5e-3, err_msg=name)
    weight = [2, 1] * 6
    once = TRWCRF(**options).fit(few, y, sample_weight=weight)
    twice = TRWCRF(**options).fit(few + few[::2], y + y[::2])
    assert_allclose(once.segment_coef_, twice.segment_coef_, atol=5e-3)
    online = TRWCRF(**options).partial_fit(few, y, classes=range(3))
    assert online.partial_fit(few, y).segment_coef_.shape == (3, 12)
    partial = [np.where(np.arange(30) % 5 == 0, -1, labels) for labels in y]
    for kind in CLASSIFIERS:
        assert kind(**options | {"tol": 0.01}, missing_label=-1).fit(few, partial).score(few, y) > 0.6
    n_iter = dense.n_iter_
    assert dense.fit(few, y).n_iter_ < n_iter


@pytest.mark.parametrize("solver", ["frank_wolfe", "bmrm", "one_slack", "cutting_plane"])
def test_solvers_of_margins_agree_with_run_features(solver):
    few, labels = [x[:15] for x in X[:6]], [y[:15] for y in Y[:6]]
    segments = with_segments(4, features=["mean", "ends", shape_of_runs])
    options = {"pairwise": segments, "C": 0.01, "tol": 1e-3, "max_iter": 3000, "random_state": 0}
    exact = M3NClassifier(**options, solver="bmrm").fit(few, labels)
    field = M3NClassifier(**options, solver=solver).fit(few, labels)
    assert_allclose(field.loss_curve_[-1], exact.loss_curve_[-1], rtol=0.01)
    assert_allclose(field.segment_coef_, exact.segment_coef_, atol=0.03)


def test_wrong_run_features():
    def fit(features, n_durations=4):
        return TRWCRF(pairwise=with_segments(n_durations, features=features)).fit(X, Y)

    for wrong in ("median", ["mean", "x"], [3]):
        with pytest.raises(ValueError, match="features of segments must be 'mean', 'ends' or callables, got"):
            fit(wrong)
    with pytest.raises(ValueError, match="need a max_duration of at least 2, got 1"):
        fit(shape_of_runs, 1)
    with pytest.raises(ValueError, match=r"must return an array of shape \(n_runs, n_features\), with n_runs = 1"):
        fit(lambda x, first, last: np.zeros(len(first)))
    with pytest.raises(ValueError, match="must return finite numbers, found NaN or infinity"):
        fit(lambda x, first, last: np.full((len(first), 1), np.nan))
    assert fit("mean", 1).segment_coef_.shape == (3, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("least", [2, 3, 4])
def test_factors_of_three_nodes_are_minimum_durations(least, dtype):
    n, rng = 7, np.random.default_rng(0)
    plain = PairwiseModel(
        lattice((n,)), rng.normal(size=(n, 2)).astype(dtype), rng.normal(size=(1, 2, 2)).astype(dtype)
    )
    model = SegmentModel(plain, np.zeros((2, least), dtype), min_duration=least)
    scores = np.array([score_of(model, labels) for labels in product(range(2), repeat=n)])
    assert 0 < np.count_nonzero(np.isneginf(scores)) < 2**n
    # As in the guide: if two successive labels differ, the second equals the labels after it.
    first, second, later = np.indices((2, 2, 2))
    limit = np.where((first != second) & (second != later), -np.inf, 0.0).astype(dtype)
    scopes = [(t, t + 1, t + k) for t in range(n - 2) for k in range(2, least + 1) if t + k < n]
    factors = [((t,), row) for t, row in enumerate(plain.unary)]
    factors += [((t, t + 1), plain.tables[0, 0]) for t in range(n - 1)]
    graph = FactorGraph.from_factors([2] * n, factors + [(scope, limit) for scope in scopes])
    found, wanted = JunctionTree().marginals(graph), SegmentInference().marginals(model)
    assert_allclose([found.log_z, wanted.log_z], logsumexp(scores), rtol=1e-5)
    assert_allclose(found.unary, wanted.unary, atol=1e-5)
