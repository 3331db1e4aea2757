"""coupling_audit: scores of every learning method with every inference, and their comparison."""

import numpy as np
import pytest
from field_data import noisy_blobs
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import f1_score
from sklearn.model_selection import GroupKFold, KFold, RepeatedKFold
from sklearn.preprocessing import StandardScaler

from sklearn_crf import TRWCRF, DRFClassifier, M3NClassifier
from sklearn_crf.display import CouplingAuditDisplay
from sklearn_crf.metrics import NODE_SCORERS
from sklearn_crf.model_selection import compare_with_best, coupling_audit, cross_val_predict
from sklearn_crf.pipeline import make_pipeline
from sklearn_crf.preprocessing import NodeTransformer


def audit_of_blobs(**options):
    """Audit two learning methods and two inferences on small images."""
    X, y = noisy_blobs(6, 4)
    estimators = {"pl": DRFClassifier(learning="pl"), "spa": DRFClassifier(inference="map")}
    return X, y, coupling_audit(estimators, X, y, inference={"MAP": "map", "MPM": "mpm"}, cv=3, **options)


def test_audit_scores_are_those_of_cross_validation():
    X, y, audit = audit_of_blobs(random_state=0)
    for k, field in ((1, DRFClassifier(learning="pl")), (2, DRFClassifier(inference="map"))):
        predicted = cross_val_predict(field, X, y, cv=3)
        assert_array_equal(audit.scores[k], np.mean(predicted == y, axis=(1, 2)))
    results = audit.results
    assert results["learning"].tolist() == ["pl", "pl", "spa", "spa"]
    assert results["inference"].tolist() == ["MAP", "MPM"] * 2
    assert results["matched"].tolist() == [False, True, True, False]
    assert {len(values) for values in results.values()} == {4}
    assert_array_equal(results["mean_test_score"], audit.scores.mean(axis=1))
    assert np.all(np.isfinite(results["mean_log_loss"]))
    assert np.all(results["mean_fit_time"] > 0)


def test_audit_compares_with_the_best_pair():
    results = audit_of_blobs(random_state=0)[2].results
    best = int(np.argmax(results["mean_test_score"]))
    assert results["rank_test_score"][best] == 1
    assert results["difference"][best] == 0
    assert results["p_value"][best] == 1
    assert np.all(results["difference"] <= 0)
    assert np.all(results["difference_low"] <= results["difference"] + 1e-12)
    assert np.all(results["difference"] <= results["difference_high"] + 1e-12)


def all_signs(n):
    return 1 - 2 * np.array(np.meshgrid(*[[0, 1]] * n, indexing="ij")).reshape(n, -1).T


def test_p_values_are_those_of_all_signs_of_all_pairs():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4, 9)) + 1.2 * np.arange(4)[:, np.newaxis]
    found = compare_with_best(scores, np.random.RandomState(0))
    largest, own = np.zeros(2**9), np.zeros(4)
    for i in range(4):
        for j in range(4):
            if i != j:
                difference = scores[i] - scores[j]
                t = np.abs(all_signs(9) @ difference) / np.sqrt(np.sum(difference**2))
                largest = np.maximum(largest, t)
                own[j] = t[0] if i == 3 else own[j]
    expected = np.array([np.mean(largest >= t - 1e-9) for t in own])
    assert_allclose(found["p_value"][:3], expected[:3], atol=0.03)
    assert found["p_value"][3] == 1


def test_intervals_and_p_values_agree():
    for seed in range(20):
        scores = np.random.default_rng(seed).normal(size=(5, 20)) + 0.4 * np.arange(5)[:, np.newaxis]
        found = compare_with_best(scores, np.random.RandomState(seed))
        assert_array_equal(found["difference_high"] < 0, found["p_value"] < 0.05)
        assert_allclose(found["difference_low"] + found["difference_high"], 2 * found["difference"])


def test_equal_pairs_seldom_get_a_star():
    # Twenty equally good pairs: a test that ignores how the best pair was selected would find a difference in a fifth
    # of such data sets.
    rng, stars = np.random.default_rng(0), 0
    for seed in range(200):
        scores = rng.normal(size=30) + rng.normal(size=(20, 30))
        stars += np.any(compare_with_best(scores, np.random.RandomState(seed))["p_value"] < 0.05)
    assert stars <= 0.05 * 200 + 2 * np.sqrt(0.05 * 0.95 * 200)


def test_a_pair_that_is_worse_gets_a_star():
    scores = np.random.default_rng(0).normal(size=(10, 30))
    scores[4] -= 3
    found = compare_with_best(scores, np.random.RandomState(0))
    assert np.flatnonzero(found["p_value"] < 0.05).tolist() == [4]


def test_pairs_with_the_same_scores_and_few_examples():
    same = compare_with_best(np.tile([0.1, 0.7, 0.3], (3, 1)), np.random.RandomState(0))
    assert_array_equal(same["p_value"], 1)
    assert_array_equal(same["difference_low"], 0)
    # Two examples are too few for any conclusion.
    few = compare_with_best(np.array([[0.1, 0.2], [0.8, 0.9]]), np.random.RandomState(0))
    assert few["p_value"][0] > 0.05
    assert few["difference_low"][0] == -np.inf
    assert few["difference_high"][0] == np.inf


def test_examples_of_a_group_are_one_observation():
    rng = np.random.default_rng(0)
    scores = np.repeat(rng.normal(size=(6, 10)), 5, axis=1)
    one_each = compare_with_best(scores[:, ::5], np.random.RandomState(0))
    grouped = compare_with_best(scores, np.random.RandomState(0), np.repeat(np.arange(10), 5))
    for name in ("p_value", "difference_low", "difference_high"):
        assert_allclose(grouped[name], one_each[name])
    assert np.any(compare_with_best(scores, np.random.RandomState(0))["p_value"] < grouped["p_value"])


def test_audit_of_folds_of_groups():
    X, y = noisy_blobs(6, 4)
    groups = np.array([0, 0, 1, 1, 2, 2])
    estimators, inference = {"pl": DRFClassifier(learning="pl")}, {"MAP": "map", "MPM": "mpm"}
    audit = coupling_audit(estimators, X, y, inference=inference, cv=GroupKFold(3), groups=groups, random_state=0)
    predicted = cross_val_predict(estimators["pl"], X, y, cv=GroupKFold(3), groups=groups)
    assert_array_equal(audit.scores[1], np.mean(predicted == y, axis=(1, 2)))
    assert_array_equal(
        audit.results["p_value"], compare_with_best(audit.scores, np.random.RandomState(0), groups)["p_value"]
    )


def test_audit_of_repeated_folds_averages_them():
    X, y = noisy_blobs(6, 4)
    estimators, inference = {"pl": DRFClassifier(learning="pl")}, {"MPM": "mpm", "MAP": "map"}
    folds = RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)
    audit = coupling_audit(estimators, X, y, inference=inference, cv=folds, random_state=0)
    total = np.zeros(6)
    for train, test in folds.split(X):
        total[test] += np.mean(DRFClassifier(learning="pl").fit(X[train], y[train]).predict(X[test]) == y[test], (1, 2))
    assert_allclose(audit.scores[0], total / 2)
    assert np.all(np.isfinite(audit.results["mean_log_loss"]))


def test_audit_of_pipelines():
    X, y = noisy_blobs(6, 4)
    inference = {"MAP": "map", "MPM": "mpm"}
    pipeline = make_pipeline(NodeTransformer(StandardScaler()), DRFClassifier(learning="pl"))
    audit = coupling_audit({"pl": pipeline}, X, y, inference=inference, cv=3, random_state=0)
    predicted = cross_val_predict(pipeline, X, y, cv=3)
    assert_array_equal(audit.scores[1], np.mean(predicted == y, axis=(1, 2)))
    assert audit.results["matched"].tolist() == [False, True]
    assert np.all(np.isfinite(audit.results["mean_log_loss"]))
    with pytest.raises(
        ValueError, match=r"estimators\['x'\] must be a field classifier, or a pipeline that ends in one"
    ):
        coupling_audit({"x": StandardScaler()}, X, y, inference=inference)


def test_audit_by_scorers():
    X, y = noisy_blobs(6, 4)
    estimators, inference = {"pl": DRFClassifier(learning="pl")}, {"MPM": "mpm"}
    options = {"inference": inference, "cv": KFold(3), "random_state": 0}
    plain = coupling_audit(estimators, X, y, **options)
    for scoring in ("accuracy", NODE_SCORERS["node_accuracy"]):
        assert_allclose(coupling_audit(estimators, X, y, scoring=scoring, **options).scores, plain.scores)
    predicted = cross_val_predict(estimators["pl"], X, y, cv=KFold(3))
    expected = [f1_score(a.ravel(), b.ravel(), average="macro") for a, b in zip(y, predicted, strict=True)]
    assert_allclose(coupling_audit(estimators, X, y, scoring="f1_macro", **options).scores[0], expected)
    with pytest.raises(ValueError, match=r"scoring=.*needs more than predicted labels"):
        coupling_audit(estimators, X, y, scoring="neg_log_loss", **options)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, None, "good", [1.0]])
@pytest.mark.parametrize("always", [True, False])
def test_audit_refuses_scores_that_are_no_finite_numbers(value, always):
    X, y = noisy_blobs(6, 4)
    n_calls = iter(range(100))

    def scoring(y_true, y_pred):
        return value if always or next(n_calls) == 3 else 0.5

    with pytest.raises(ValueError, match=r"the result of scoring=.* for each example must be"):
        coupling_audit(
            {"pl": DRFClassifier(learning="pl")}, X, y, inference={"MPM": "mpm"}, cv=KFold(3), scoring=scoring
        )


def test_audit_counts_labels_that_a_fold_lacks_as_errors():
    X, y = noisy_blobs(6, 4)
    y = y.astype("U3")
    y[5, 0, 0] = "new"
    audit = coupling_audit({"pl": DRFClassifier(learning="pl")}, X, y, inference={"MPM": "mpm"}, cv=KFold(3))
    assert np.all(np.isfinite(audit.scores))
    assert audit.scores[0, 5] <= 15 / 16


def test_audit_is_the_same_for_any_number_of_jobs():
    one, two = (audit_of_blobs(random_state=0, n_jobs=n_jobs)[2] for n_jobs in (1, 2))
    assert_array_equal(one.scores, two.scores)
    assert_array_equal(one.results["difference_low"], two.results["difference_low"])


def test_audit_without_marginals_has_no_log_loss():
    X, y = noisy_blobs(4, 4)
    audit = coupling_audit({"m3n": M3NClassifier(random_state=0)}, X, y, inference={"MAP": "map"}, cv=2)
    assert np.isnan(audit.results["mean_log_loss"]).all()


def test_audit_with_a_score_of_ones_own():
    _, _, audit = audit_of_blobs(random_state=0, scoring=lambda truth, found: -float(np.sum(truth != found)))
    plain = audit_of_blobs(random_state=0)[2]
    assert_allclose(audit.scores, -16 * (1 - plain.scores))


@pytest.mark.parametrize("empty", ["estimators", "inference"])
def test_an_audit_of_nothing_is_an_error(empty):
    X, y = noisy_blobs(4, 4)
    arguments = {"estimators": {"pl": DRFClassifier(learning="pl")}, "inference": {"MAP": "map"}} | {empty: {}}
    with pytest.raises(ValueError, match=empty):
        coupling_audit(arguments["estimators"], X, y, inference=arguments["inference"])


def test_folds_that_leave_examples_out_are_an_error():
    X, y = noisy_blobs(4, 4)
    with pytest.raises(ValueError, match="cv needs every example in a test set, but example"):
        coupling_audit({"pl": DRFClassifier()}, X, y, inference={"MAP": "map"}, cv=[([0, 1], [2])])


@pytest.mark.parametrize("with_axes", [False, True])
def test_the_audit_is_drawn_with_matched_pairs_framed(with_axes):
    plt = pytest.importorskip("matplotlib.pyplot")
    _, _, audit = audit_of_blobs(random_state=0)
    ax = plt.subplots()[1] if with_axes else None
    display = CouplingAuditDisplay.from_results(audit.results, ax=ax)
    assert [text.get_text().rstrip("*") for text in display.ax_.texts] == [
        f"{score:.3f}" for score in audit.results["mean_test_score"]
    ]
    assert len(display.ax_.lines) == 2
    assert display.im_.get_array().shape == (2, 2)
    plt.close(display.figure_)


def test_pairs_match_the_inference_that_training_chose():
    X, y = noisy_blobs(6, 4)
    ways = {"likelihood": TRWCRF(), "loopy": TRWCRF(learning="loopy"), "margin": M3NClassifier(max_iter=5)}
    inference = {"trw": "trw", "mpm": "mpm", "map": "map", "bp": "bp"}
    audit = coupling_audit(ways, X, y, inference=inference, cv=3)
    own = {name: field.fit(X, y).inference_ for name, field in ways.items()}
    expected = {"mpm": "mpm", "trw": "trw", "map": "map", "LoopyBP": "bp"}
    pairs = zip(audit.results["learning"], audit.results["inference"], strict=True)
    assert audit.results["matched"].tolist() == [expected[own[learning]] == decoding for learning, decoding in pairs]
    assert audit.results["matched"].sum() == len(ways)


def test_a_score_that_takes_an_estimator_is_refused():
    def score(field, X, y):
        return field.score(X, y)

    X, y = noisy_blobs(4, 4)
    with pytest.raises(ValueError, match=r"function \(y_true, y_pred\) -> float, got a function of \(field, X, y\)"):
        coupling_audit({"drf": DRFClassifier()}, X, y, inference={"map": "map"}, scoring=score)
