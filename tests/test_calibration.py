"""TemperatureScaling: the temperature of scaled weights, structured and plain labels, classifiers without models."""

import numpy as np
import pytest
from field_data import chains, noisy_blobs
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from sklearn_crf import TRWCRF, DenseCRF, DRFClassifier, M3NClassifier, RegressionTreeFieldClassifier
from sklearn_crf.calibration import TemperatureScaling
from sklearn_crf.inference import LoopyBP
from sklearn_crf.learning import SaddlePointTraining
from sklearn_crf.mfa import MultiConditionalMFA
from sklearn_crf.pipeline import make_pipeline
from sklearn_crf.potentials import PairwiseTables
from sklearn_crf.preprocessing import NodeTransformer


class Overconfident(TRWCRF):
    """A field whose weights are three times too large."""

    def fit(self, X, y, sample_weight=None):
        super().fit(X, y, sample_weight)
        for name in ("coef_", "intercept_", "edge_coef_"):
            setattr(self, name, 3.0 * getattr(self, name))
        return self


def test_the_temperature_undoes_the_scale_of_the_weights():
    X, y = chains(60)
    plain = TemperatureScaling(TRWCRF(C=0.1), cv=3).fit(X, y)
    long = TemperatureScaling(Overconfident(C=0.1), cv=3).fit(X, y)
    assert_allclose(long.temperature_, 3 * plain.temperature_, rtol=0.01)
    assert_allclose(long.log_loss_[1], plain.log_loss_[1], rtol=1e-4)
    first, second = plain.predict_proba(X), long.predict_proba(X)
    assert_allclose(first[0], second[0], atol=5e-3)


def test_the_temperature_is_where_the_loss_left_out_is_least():
    X, y = noisy_blobs(4, 4)
    found = TemperatureScaling(M3NClassifier(random_state=0), cv=2).fit(X, y)
    assert found.log_loss_[1] <= found.log_loss_[0]
    again = clone(found).set_params(estimator=Rescaled(random_state=0, scale=found.temperature_)).fit(X, y)
    assert_allclose(again.temperature_, 1.0, rtol=0.02)


class Rescaled(M3NClassifier):
    """Max-margin weights divided by a scale."""

    def __init__(self, C=1.0, *, scale=1.0, random_state=None):
        super().__init__(C, random_state=random_state)
        self.scale = scale

    def fit(self, X, y, sample_weight=None, node_weight=None):
        super().fit(X, y, sample_weight, node_weight)
        for name in ("coef_", "intercept_", "edge_coef_"):
            setattr(self, name, getattr(self, name) / self.scale)
        return self


@pytest.mark.parametrize(
    "learning",
    [SaddlePointTraining(step_size=20.0), SaddlePointTraining(step_size=0.01, init="zeros")],
    ids=["long", "short"],
)
def test_weights_of_best_labelings_have_probabilities_afterwards(learning):
    X, y = noisy_blobs(8, 6)
    estimator = DRFClassifier(learning=learning, inference="map", max_iter=30)
    found = TemperatureScaling(estimator, cv=2).fit(X, y)
    assert found.log_loss_[1] < 0.6
    assert_array_equal(found.predict(X), found.estimator_.predict(X))
    probability = found.predict_proba(X)
    assert probability.shape == (*y.shape, 2)
    assert_allclose(probability.sum(axis=-1), 1, atol=1e-9)
    assert found.score(X, y) == found.estimator_.score(X, y)


def test_missing_labels_do_not_count():
    X, y = noisy_blobs(6, 5)
    partial = y.copy()
    partial[:, 2:] = -1
    found = TemperatureScaling(DRFClassifier(missing_label=-1, learning="pma"), cv=2).fit(X, partial)
    assert 0.1 < found.temperature_ < 100
    with pytest.raises(ValueError, match="label"):
        TemperatureScaling(DRFClassifier(missing_label=-1), cv=2).fit(X, np.full_like(y, -1))


def test_plain_rows_and_a_classifier_without_models():
    X, y = make_classification(200, 5, random_state=0)
    field = TemperatureScaling(DRFClassifier(C=100.0), cv=3).fit(X, y)
    other = TemperatureScaling(LogisticRegression(C=100.0), cv=3).fit(X, y)
    assert_allclose(field.temperature_, other.temperature_, rtol=0.01)
    assert_allclose(field.predict_proba(X), other.predict_proba(X), atol=5e-3)


def test_probabilities_of_mixtures_are_calibrated():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=1200)
    table = rng.normal(size=(1200, 6)) + 0.8 * labels[:, np.newaxis]
    # Each feature occurs three times, but the model treats the copies as independent, so it is overconfident.
    table = np.hstack([table + 0.05 * rng.normal(size=table.shape) for _ in range(3)])
    mixture = MultiConditionalMFA(1, 0, objective="joint", noise="tied", n_init=1, random_state=0)
    calibrated = TemperatureScaling(mixture, cv=3).fit(table[:200], labels[:200])
    plain = calibrated.estimator_
    assert 2 < calibrated.temperature_ < 4
    assert_array_equal(calibrated.predict(table), plain.predict(table))
    before, after = (log_loss(labels[200:], model.predict_proba(table[200:])) for model in (plain, calibrated))
    assert after < 0.85 * before
    assert after < np.log(2)


def test_it_is_searched_like_any_estimator():
    X, y = noisy_blobs(6, 5)
    search = GridSearchCV(
        TemperatureScaling(DRFClassifier(learning="pl"), cv=2), {"estimator__C": [0.1, 1.0]}, cv=2, error_score="raise"
    ).fit(X, y)
    assert search.best_estimator_.temperature_ > 0


@pytest.mark.parametrize("cv", [1, 0])
def test_fewer_than_two_folds_are_an_error(cv):
    X, y = noisy_blobs(4, 4)
    with pytest.raises(ValueError, match="cv"):
        TemperatureScaling(DRFClassifier(), cv=cv).fit(X, y)


def test_of_a_dense_field_by_its_probabilities():
    rng = np.random.default_rng(0)
    y = np.arange(8)[:, np.newaxis] // 4 + np.zeros((6, 8, 6), dtype=int)
    X = np.concatenate([np.eye(2)[y] + rng.normal(size=(6, 8, 6, 2)), 50.0 * y[..., np.newaxis]], axis=-1)
    field = TemperatureScaling(DenseCRF(image_channels=1, max_iter=30, tol=0.1), cv=2).fit(X, y)
    assert field.log_loss_[1] <= field.log_loss_[0]
    np.testing.assert_allclose(field.predict_proba(X).sum(axis=-1), 1)


COST = np.array([[0.0, 3.0], [1.0, 0.0]])
# Decisions that a temperature may change: best marginals with strong edges, costs, weights of classes.
DECIDING = {
    "pma": DRFClassifier(inference="mpm"),
    "pl": DRFClassifier(learning="pl", inference="mpm", pairwise=PairwiseTables(C=0.1)),
    "spa": DRFClassifier(learning="spa", inference="mpm"),
    "trw": TRWCRF(),
    "cost": DRFClassifier(cost=COST),
    "class weight": TRWCRF(class_weight={0: 1.0, 1: 4.0}),
    "pipeline": make_pipeline(NodeTransformer(StandardScaler()), DRFClassifier(cost=COST)),
}


@pytest.mark.parametrize("temperature", [0.1, 50.0])
@pytest.mark.parametrize("make_list", [False, True])
@pytest.mark.parametrize("name", DECIDING)
def test_labels_are_those_of_the_probabilities_at_the_temperature(name, make_list, temperature):
    X, y = noisy_blobs(8, 5)
    X = X + np.random.default_rng(0).normal(scale=2.0, size=X.shape)
    X, y = (list(X), list(y)) if make_list else (X, y)
    found = TemperatureScaling(DECIDING[name], cv=2).fit(X, y)
    found.temperature_ = temperature
    right = total = changed = 0
    for labels, probability, before, truth in zip(
        found.predict(X), found.predict_proba(X), found.estimator_.predict(X), y, strict=True
    ):
        if name in ("cost", "pipeline"):
            expected = np.argmin(probability @ COST.T, axis=-1)
        elif name == "class weight":
            expected = np.argmax(probability * [1.0, 4.0], axis=-1)
        else:
            expected = np.argmax(probability, axis=-1)
        assert_array_equal(labels, expected)
        right, total = right + np.sum(labels == truth), total + labels.size
        changed += np.sum(labels != before)
    assert found.score(X, y) == pytest.approx(right / total)
    if name in ("cost", "class weight", "pipeline"):
        assert changed


def test_labels_by_another_inference_are_those_of_its_probabilities():
    X, y = noisy_blobs(6, 4)
    found = TemperatureScaling(TRWCRF(), cv=2, inference=LoopyBP()).fit(X, y)
    assert_array_equal(found.predict(X), np.argmax(found.predict_proba(X), axis=-1))


def test_best_labelings_do_not_depend_on_the_temperature():
    X, y = noisy_blobs(6, 4)
    for field in (M3NClassifier(random_state=0), DRFClassifier(inference="map")):
        found = TemperatureScaling(field, cv=2).fit(X, y)
        assert_array_equal(found.predict(X), found.estimator_.predict(X))


def test_forbidden_pairs_are_not_predicted_at_any_temperature():
    rng = np.random.default_rng(0)
    y = np.tile([0, 1, 2, 0, 1, 2], (12, 1))
    X = np.eye(3)[y] + rng.normal(size=(12, 6, 3))
    forbidden = [(0, 0), (1, 1), (2, 2), (0, 2)]
    found = TemperatureScaling(TRWCRF(pairwise=PairwiseTables(forbidden=forbidden)), cv=2).fit(X, y)
    for temperature in (0.1, 30.0):
        found.temperature_ = temperature
        labels = found.predict(X)
        assert not {*zip(labels[:, :-1].ravel().tolist(), labels[:, 1:].ravel().tolist(), strict=True)} & {*forbidden}


def test_costs_of_a_tree_field_are_of_probabilities_at_the_temperature():
    X, y = noisy_blobs(6, 4)
    field = RegressionTreeFieldClassifier("multinomial", max_depth=1, cost=COST, random_state=0)
    found = TemperatureScaling(field, cv=2).fit(X, y)
    found.temperature_ = 5.0
    assert_array_equal(found.predict(X), np.argmin(found.predict_proba(X) @ COST.T, axis=-1))
    assert found.score(X, y) == pytest.approx(np.mean(found.predict(X) == y))


@pytest.mark.parametrize(
    "make", [TRWCRF, lambda: DRFClassifier(learning="pl"), lambda: TRWCRF(class_weight="balanced")]
)
def test_weights_of_examples_are_copies(make):
    X, y = chains(12)
    times = np.array([1, 3, 2, 0, 1, 2, 1, 1, 4, 1, 2, 1])
    halves = np.arange(12) % 2
    copies = np.repeat(np.arange(12), times)

    def split(halves):
        return [(np.flatnonzero(halves == k), np.flatnonzero(halves != k)) for k in range(2)]

    once = TemperatureScaling(make(), cv=split(halves)).fit(X, y, times)
    repeated = TemperatureScaling(make(), cv=split(halves[copies])).fit([X[i] for i in copies], [y[i] for i in copies])
    plain = TemperatureScaling(make(), cv=split(halves)).fit(X, y)
    assert_allclose(once.log_loss_, repeated.log_loss_, rtol=1e-5)
    assert_allclose(once.temperature_, repeated.temperature_, rtol=5e-3)
    assert abs(once.log_loss_[0] - plain.log_loss_[0]) > 1e-3
    with pytest.raises(ValueError, match=r"sample_weight\[0\] is -1"):
        TemperatureScaling(make()).fit(X, y, sample_weight=-np.ones(12))


def test_labels_that_are_no_list_are_named():
    X, _ = chains(6)
    for y, message in ((None, "TemperatureScaling requires y"), (3, "y must be an array, or a list of one array per")):
        with pytest.raises(ValueError, match=f"^{message}"):
            TemperatureScaling(TRWCRF()).fit(X, y)
