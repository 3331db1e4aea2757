"""RegressionTreeFieldClassifier: scikit-learn's checks, codes and scores, input of all layouts."""

import pickle
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from sklearn_crf import RegressionTreeFieldClassifier
from sklearn_crf.encoding import make_object_array
from sklearn_crf.inference import GaussianDirect
from sklearn_crf.rtf import FieldSolver, Splits

pytestmark = pytest.mark.filterwarnings("ignore:the last round stopped:sklearn.exceptions.ConvergenceWarning")

QUICK = {"max_depth": 1, "max_iter": 10, "split": Splits(min_samples_leaf=20), "random_state": 0}


def blocks(n=6, n_classes=3, shape=(12, 16), seed=0):
    """Return blocks of one label, and the noisy label as one channel."""
    rng = np.random.default_rng(seed)
    y = np.kron(rng.integers(n_classes, size=(n, shape[0] // 4, shape[1] // 4)), np.ones((4, 4), dtype=int))
    return y[..., None] + 0.6 * rng.normal(size=(*y.shape, 1)), y


@pytest.mark.parametrize("loss", ["pseudolikelihood", "likelihood", "mse", "multinomial"])
def test_every_loss_sees_neighbours(loss):
    # Codes of a linear model separate two classes, but not a class between two others.
    X, y = blocks(n_classes=2)
    field = RegressionTreeFieldClassifier(loss, **{**QUICK, "max_depth": 0}).fit(X[:4], y[:4])
    alone = np.mean((X[4:, ..., 0] > 0.5) == y[4:])
    assert field.score(X[4:], y[4:]) > alone + 0.03


@pytest.mark.parametrize(("loss", "n_classes"), [("logistic", 2), ("multinomial", 2), ("multinomial", 3)])
def test_a_leaf_without_neighbours_is_a_logistic_regression(loss, n_classes):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 3))
    y = (X @ rng.normal(size=(3, n_classes)) + 2 * rng.normal(size=(300, n_classes))).argmax(axis=1)
    expected = LogisticRegression(C=1e6, tol=1e-8, max_iter=1000).fit(X, y).predict_proba(X)
    options = {"max_depth": 0, "max_iter": 300, "tol": 1e-6, "solver": FieldSolver(ridge=0.0)}
    field = RegressionTreeFieldClassifier(loss, **options).fit(X, y)
    assert_allclose(field.predict_proba(X), expected, atol=2e-3)
    assert_array_equal(field.predict(X), field.predict_proba(X).argmax(axis=1))


def test_codes():
    X, y = blocks()
    names = np.array(["cat", "dog", "eel"])
    field = RegressionTreeFieldClassifier("pseudolikelihood", **QUICK).fit(X, names[y])
    assert field.classes_.tolist() == names.tolist()
    assert field.precisions_[1].shape[1:] == (6, 6)
    assert set(np.unique(field.predict(X))) == set(names)
    ordinal = RegressionTreeFieldClassifier("pseudolikelihood", encoding="ordinal", **QUICK).fit(X, y)
    assert ordinal.precisions_[1].shape[1:] == (2, 2)
    assert ordinal.score(X, y) > 0.6
    # Values beyond the last class count as the last class.
    assert set(np.unique(ordinal.predict(10 * X))) <= {0, 1, 2}
    with pytest.raises(AttributeError, match="has no attribute 'predict_proba'"):
        field.predict_proba(X)


@pytest.mark.parametrize("layout", ["array", "ragged", "chains", "samples"])
def test_predictions_have_the_layout_of_the_labels(layout):
    X, y = blocks()
    X, y = {
        "array": (X, y),
        "ragged": (make_object_array([X[0], X[1][:9]]), make_object_array([y[0], y[1][:9]])),
        "chains": (X[:, 0], y[:, 0]),
        "samples": (X[:, 0, 0], y[:, 0, 0]),
    }[layout]
    field = RegressionTreeFieldClassifier("multinomial", **{**QUICK, "split": Splits(min_samples_leaf=2)}).fit(X, y)
    predicted, probabilities = field.predict(X), field.predict_proba(X)
    for a, p, b in zip(predicted, probabilities, y, strict=True):
        assert np.shape(a) == np.shape(b)
        assert np.shape(p) == (*np.shape(b), len(field.classes_))
        assert_allclose(np.sum(p, axis=-1), 1)
    again = pickle.loads(pickle.dumps(field)).set_params(n_jobs=2)
    for a, b in zip(predicted, again.predict(X), strict=True):
        assert_array_equal(a, b)


def test_grid_search_and_warm_start():
    X, y = blocks(8)
    search = GridSearchCV(RegressionTreeFieldClassifier(**QUICK), {"max_depth": [0, 1]}, cv=2, n_jobs=2).fit(X, y)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))
    field = RegressionTreeFieldClassifier(warm_start=True, **{**QUICK, "max_depth": 0}).fit(X, y)
    loss = field.loss_curve_[-1]
    field.set_params(max_depth=1).fit(X, y)
    assert field.loss_curve_[-1] < loss
    with pytest.raises(ValueError, match="warm_start needs the same classes as the previous fit"):
        field.fit(X, y + 1)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"loss": "logistic"}, "loss='logistic' needs two classes, got 3: use 'multinomial'."),
    ],
)
def test_bad_parameters_are_named(params, message):
    X, y = blocks(2)
    with pytest.raises(ValueError, match=re.escape(message)):
        RegressionTreeFieldClassifier(**params).fit(X, y)


def test_unfinished_training_is_told():
    X, y = blocks(2)
    with pytest.warns(ConvergenceWarning, match="the last round stopped after max_iter=1 iterations"):
        RegressionTreeFieldClassifier(max_depth=0, max_iter=1).fit(X, y)


@pytest.mark.parametrize("loss", ["pseudolikelihood", "mse", "multinomial"])
def test_missing_labels_and_classes_that_a_fold_misses(loss):
    X, y = blocks()
    partly = y.copy()
    partly[:, :4] = -1
    field = RegressionTreeFieldClassifier(loss, missing_label=-1, classes=[0, 1, 2, 5], **QUICK).fit(X, partly)
    assert field.classes_.tolist() == [0, 1, 2, 5]
    assert field.score(X, y) > 0.6
    assert not np.any(field.predict(X) == 5)
    with pytest.raises(ValueError, match="y has no labels: all its labels are missing"):
        RegressionTreeFieldClassifier(loss, missing_label=-1, classes=[0, 1], **QUICK).fit(X, np.full_like(y, -1))


@pytest.mark.parametrize("loss", ["pseudolikelihood", "mse", "multinomial"])
def test_a_heavy_class_is_predicted_more_often(loss):
    X, y = blocks(4)
    plain, heavy = (
        np.mean(RegressionTreeFieldClassifier(loss, class_weight=weight, **QUICK).fit(X, y).predict(X) == 0)
        for weight in (None, {0: 10.0})
    )
    assert heavy > plain + 0.03


@pytest.mark.parametrize("weighted", [False, True])
def test_balanced_classes_weigh_the_same(weighted):
    X, y = blocks(4, n_classes=2, seed=3)
    sample_weight = np.array([1.0, 2.0, 0.5, 1.0]) if weighted else None
    total = np.array([np.sum((y == k) * np.reshape(sample_weight if weighted else 1.0, (-1, 1, 1))) for k in (0, 1)])
    given = dict(enumerate(total.sum() / (2 * total)))
    fields = [
        RegressionTreeFieldClassifier("mse", class_weight=weight, **QUICK).fit(X, y, sample_weight)
        for weight in ("balanced", given)
    ]
    assert_allclose(fields[0].loss_curve_, fields[1].loss_curve_, rtol=1e-6)


@pytest.mark.parametrize(
    ("class_weight", "loss", "message"),
    [
        ({3: 1.0}, "mse", "class_weight contains the class 3, but the classes are"),
        ({0: -1.0}, "mse", "class_weight must be finite and not negative, got -1.0 for the class 0"),
        ({0: np.nan}, "mse", "class_weight must be finite and not negative, got nan for the class 0"),
        ({0: 0.0, 1: 0.0}, "mse", "class_weight is 0 for every class: at least one needs a positive weight"),
    ],
)
def test_bad_class_weights_are_named(class_weight, loss, message):
    X, y = blocks(2, n_classes=2)
    with pytest.raises(ValueError, match=message):
        RegressionTreeFieldClassifier(loss, class_weight=class_weight, **QUICK).fit(X, y)


WHOLE = {"max_depth": 0, "max_iter": 200, "tol": 1e-7}


def test_the_likelihood_weighs_images_and_decisions():
    X, y = blocks(5, n_classes=2, shape=(8, 8))
    weight = np.array([1.0, 4.0])
    field = RegressionTreeFieldClassifier("likelihood", class_weight={1: 4.0}, **WHOLE).fit(X, y)
    plain = RegressionTreeFieldClassifier("likelihood", **WHOLE).fit(X, y, weight[y].mean(axis=(1, 2)))
    assert_array_equal(field.decision_weight_, weight)
    assert plain.decision_weight_ is None
    for own, other in zip(field.precisions_ + field.weights_, plain.precisions_ + plain.weights_, strict=True):
        assert_array_equal(own, other)
    mean = [GaussianDirect().marginals(model).mean for model in plain.models(X)]
    assert_array_equal(field.predict(X), (weight * np.array(mean)).argmax(axis=2).reshape(y.shape))
    assert np.mean(field.predict(X) == 1) > np.mean(plain.predict(X) == 1) + 0.02


@pytest.mark.filterwarnings("ignore:predictions for training images are farther")
@pytest.mark.parametrize("class_weight", ["balanced", {0: 3.0}])
def test_weights_of_images_are_copies_where_classes_weigh(class_weight):
    X, y = blocks(4, shape=(8, 8))
    y[0] = 0
    times = np.array([3, 1, 2, 1])
    for loss in ("likelihood", "pseudolikelihood", "multinomial"):
        # In later iterations the rounding errors of float32 accumulate.
        options = WHOLE | {"max_iter": 4, "inference": "direct"}
        field = RegressionTreeFieldClassifier(loss, class_weight=class_weight, **options)
        once = clone(field).fit(X, y, times)
        repeated = clone(field).fit(np.repeat(X, times, axis=0), np.repeat(y, times, axis=0))
        for own, other in zip(once.models(X), repeated.models(X), strict=True):
            for name in ("h", "diagonal"):
                values, expected = getattr(own, name), getattr(other, name)
                assert_allclose(values, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
        assert (once.decision_weight_ is not None) == (loss == "likelihood")
        if loss == "likelihood":
            assert_allclose(once.decision_weight_, repeated.decision_weight_, rtol=1e-12)


def test_the_likelihood_of_images_without_pairs_weighs_pixels():
    X, y = blocks(3, shape=(8, 8))
    options = WHOLE | {"window": 1, "encoding": "ordinal", "class_weight": "balanced"}
    fields = [RegressionTreeFieldClassifier(loss, **options).fit(X, y) for loss in ("likelihood", "pseudolikelihood")]
    assert fields[0].decision_weight_ is None
    assert_array_equal(fields[0].weights_[0], fields[1].weights_[0])


@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
def test_log_probabilities_are_logarithms(loss):
    X, y = blocks(3, n_classes=2)
    field = RegressionTreeFieldClassifier(loss, **QUICK | {"max_depth": 0}).fit(X, y)
    probability = field.predict_proba(X)
    assert_allclose(probability.sum(axis=-1), 1.0)
    assert_allclose(field.predict_log_proba(X), np.log(probability), rtol=1e-6, atol=1e-9)


def test_costs_and_evidence():
    X, y = blocks()
    cost = [[0, 1, 1], [1, 0, 1], [9, 9, 0]]
    careful = RegressionTreeFieldClassifier("multinomial", cost=cost, **QUICK).fit(X, y)
    assert np.mean(careful.predict(X) == 2) < np.mean(y == 2)
    field = RegressionTreeFieldClassifier("mse", missing_label=-1, **QUICK).fit(X, y)
    known = np.full(y.shape, -1)
    known[:, :5] = y[:, :5]
    predicted = field.predict(X, evidence=known)
    assert_array_equal(predicted[:, :5], y[:, :5])
    assert np.mean(predicted[:, 5:8] == y[:, 5:8]) >= np.mean(field.predict(X)[:, 5:8] == y[:, 5:8])


@pytest.mark.parametrize("layout", ["array", "list", "samples"])
@pytest.mark.parametrize(("loss", "n_classes"), [("logistic", 2), ("multinomial", 2), ("multinomial", 3)])
def test_evidence_of_fields_of_scores(loss, n_classes, layout):
    X, y = blocks()
    X = X + np.random.default_rng(1).normal(size=X.shape)
    y = np.array(["a", "b", "c"], dtype=object)[np.minimum(y, n_classes - 1)]
    known = np.where(np.arange(y.shape[2]) % 3 == 0, y, None)
    if layout == "list":
        X, y, known = list(X), list(y), list(known)
    elif layout == "samples":
        X, y, known = (part.reshape(-1, *part.shape[3:]) for part in (X, y, known))
    field = RegressionTreeFieldClassifier(loss, missing_label=None, **QUICK).fit(X, y)
    alone, given = field.predict(X), field.predict(X, known)
    probability, logarithm = field.predict_proba(X, known), field.predict_log_proba(X, evidence=known)
    flat = [np.concatenate([np.ravel(own) for own in part]) for part in (y, known, alone, given)]
    truth, is_known = flat[0], np.array([own is not None for own in flat[1]])
    others = ~is_known
    assert_array_equal(flat[3][is_known], truth[is_known])
    right = [np.mean(part[others] == truth[others]) for part in flat[2:]]
    # Plain samples have no neighbours.
    assert right[1] == right[0] if layout == "samples" else right[1] > right[0]
    rows = np.concatenate([np.reshape(own, (-1, n_classes)) for own in probability])
    assert_allclose(rows.sum(axis=1), 1.0)
    assert_array_equal(rows[is_known], np.eye(n_classes)[np.searchsorted(field.classes_, truth[is_known])])
    with np.errstate(divide="ignore"):
        logarithms = np.concatenate([np.reshape(own, (-1, n_classes)) for own in logarithm])
        assert_allclose(logarithms, np.log(rows), rtol=1e-4, atol=1e-6)
    nothing = field.predict(X, evidence=[np.full(np.shape(own), None) for own in y])
    for found, expected in zip(nothing, alone, strict=True):
        assert_array_equal(found, expected)


def test_the_mean_given_known_scores_is_that_of_a_dense_solve():
    X, y = blocks()
    field = RegressionTreeFieldClassifier("multinomial", missing_label=-1, **QUICK).fit(X, y)
    known = np.full(y.shape, -1)
    known[:, ::2, 1] = y[:, ::2, 1]
    plain, model = field.models(X[:1])[0], field.models(X[:1], known[:1])[0]
    precision, h = plain.precision_matrix().toarray(), plain.h.ravel()
    is_known = np.repeat(known[0].ravel() >= 0, 3)
    value = field.evidence_scores_[np.maximum(known[0].ravel(), 0)].ravel()
    mean = value.copy()
    free = ~is_known
    rest = h[free] - precision[np.ix_(free, is_known)] @ value[is_known]
    mean[free] = np.linalg.solve(precision[np.ix_(free, free)], rest)
    assert_allclose(np.linalg.solve(model.precision_matrix().toarray(), model.h.ravel()), mean, atol=1e-6)
    assert_array_equal(
        field.predict(X[:1], known[:1]).ravel()[known[0].ravel() < 0],
        mean.reshape(-1, 3).argmax(axis=1)[known[0].ravel() < 0],
    )
    # The evidence contains a class that no training pixel has.
    more = RegressionTreeFieldClassifier(missing_label=-1, classes=[0, 1, 2, 3], **QUICK).fit(X, y)
    assert_array_equal(more.evidence_scores_.argmax(axis=1), range(4))
    known[0, 3, 3] = 3
    assert more.predict(X, known)[0, 3, 3] == 3
    with pytest.raises(ValueError, match="evidence"):
        more.predict(X, np.full(y.shape, 7))
