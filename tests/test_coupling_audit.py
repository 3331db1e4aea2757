"""coupling_audit: scores of every learning under every inference, and their comparison."""

import numpy as np
import pytest
from field_data import noisy_blobs
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import DRFClassifier, M3NClassifier
from sklearn_crf.display import CouplingAuditDisplay
from sklearn_crf.model_selection import _holm, coupling_audit, cross_val_predict


def audit_of_blobs(**options):
    """Two ways of learning and two inferences on small images."""
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
    assert results["p_holm"][best] == 1
    assert np.all(results["difference"] <= 0)
    assert np.all(results["difference_low"] <= results["difference"] + 1e-12)
    assert np.all(results["difference"] <= results["difference_high"] + 1e-12)
    assert np.all(results["p_holm"] >= results["p_value"])


def test_holm_corrects_as_the_book_does():
    corrected = _holm(np.array([0.01, 1.0, 0.04, 0.03, 0.005]), 1)
    assert_allclose(corrected, [0.03, 1.0, 0.06, 0.06, 0.02])


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
    with pytest.raises(ValueError, match="exactly one test set"):
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
