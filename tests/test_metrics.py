"""Metrics and scorers on structured labels, compared with scikit-learn's on flat labels."""

import pickle
import warnings

import numpy as np
import pytest
from lattice_inputs import NodewiseClassifier, labelled_images
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, jaccard_score, log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_crf import TRWCRF, RegressionTreeFieldClassifier, pipeline
from sklearn_crf.calibration import TemperatureScaling
from sklearn_crf.encoding import make_object_array
from sklearn_crf.metrics import (
    NODE_SCORERS,
    flatten_nodes,
    make_node_scorer,
    node_accuracy_score,
    node_classification_report,
    node_f1_score,
    node_jaccard_score,
    node_log_likelihood_score,
)
from sklearn_crf.preprocessing import NodeTransformer

RNG = np.random.default_rng(0)
SIZES = [(3, 4), (1, 5), (2, 2)]
TRUE = [RNG.integers(3, size=size) for size in SIZES]
PRED = [np.where(RNG.random(labels.shape) < 0.7, labels, 0) for labels in TRUE]
FLAT_TRUE, FLAT_PRED = (np.concatenate([part.ravel() for part in parts]) for parts in (TRUE, PRED))

METRICS = [
    (node_accuracy_score, accuracy_score, {}),
    (node_f1_score, f1_score, {"average": "macro"}),
    (node_f1_score, f1_score, {"average": None}),
    (node_jaccard_score, jaccard_score, {"average": "macro"}),
    (node_jaccard_score, jaccard_score, {"average": None, "labels": [2, 1]}),
]


@pytest.mark.parametrize(("ours", "flat", "options"), METRICS)
@pytest.mark.parametrize("layout", [list, tuple, make_object_array])
def test_metrics_equal_those_on_flat_labels(ours, flat, options, layout):
    assert np.array_equal(ours(layout(TRUE), layout(PRED), **options), flat(FLAT_TRUE, FLAT_PRED, **options))
    assert np.array_equal(ours(FLAT_TRUE, FLAT_PRED, **options), flat(FLAT_TRUE, FLAT_PRED, **options))


@pytest.mark.parametrize(("ours", "flat", "options"), METRICS)
def test_arrays_of_lattices(ours, flat, options):
    true, pred = RNG.integers(3, size=(2, 4, 3, 2))
    expected = flat(true.ravel(), pred.ravel(), **options)
    assert np.array_equal(ours(true, pred, **options), expected)
    assert np.array_equal(ours(list(true), pred, **options), expected)


def test_binary_chains_are_no_multilabel_targets():
    true, pred = np.array([[0, 1, 1], [1, 0, 0]]), np.array([[0, 1, 1], [1, 0, 1]])
    assert node_accuracy_score(true, pred) == pytest.approx(5 / 6)


@pytest.mark.parametrize(("ours", "flat", "options"), METRICS)
def test_missing_labels_are_left_out(ours, flat, options):
    hidden = [np.where(RNG.random(labels.shape) < 0.3, -1, labels) for labels in TRUE]
    known = np.concatenate([part.ravel() for part in hidden]) >= 0
    expected = flat(FLAT_TRUE[known], FLAT_PRED[known], **options)
    assert np.array_equal(ours(hidden, PRED, missing_label=-1, **options), expected)
    as_objects = [np.where(part < 0, None, part) for part in hidden]
    assert np.array_equal(ours(as_objects, PRED, **options), expected)
    as_floats = [np.where(part < 0, np.nan, part) for part in hidden]
    assert np.array_equal(ours(as_floats, PRED, missing_label=np.nan, **options), expected)


def test_strings():
    names = np.array(["cat", "dog", "emu"])
    true, pred = [names[part] for part in TRUE], [names[part] for part in PRED]
    assert node_f1_score(true, pred) == node_f1_score(TRUE, PRED)
    true[0] = true[0].astype(object)
    true[0][0, 0] = None
    assert node_accuracy_score(true, pred) == accuracy_score(FLAT_TRUE[1:], FLAT_PRED[1:])


def test_weights_per_example_and_per_node():
    pd = pytest.importorskip("pandas")
    weight = np.array([1.0, 0.0, 3.0])
    per_node = [np.full(size, w) for size, w in zip(SIZES, weight, strict=True)]
    expected = accuracy_score(FLAT_TRUE, FLAT_PRED, sample_weight=np.concatenate([w.ravel() for w in per_node]))
    assert node_accuracy_score(TRUE, PRED, sample_weight=weight) == expected
    assert node_accuracy_score(TRUE, PRED, sample_weight=per_node) == expected
    assert (
        node_accuracy_score(TRUE, PRED, sample_weight=pd.Series(weight, index=[2, 0, 1], dtype="Float64")) == expected
    )
    # Weights of nodes without a label may be masked.
    lacking = [labels.astype(object) for labels in TRUE]
    lacking[0].flat[0] = None
    masked = [np.ma.masked_array(own, mask=labels == None) for own, labels in zip(per_node, lacking, strict=True)]  # noqa: E711
    assert node_accuracy_score(lacking, PRED, sample_weight=masked) == node_accuracy_score(
        lacking, PRED, sample_weight=per_node
    )
    assert node_accuracy_score(FLAT_TRUE[:2], FLAT_PRED[:2], sample_weight=[1, 3]) == accuracy_score(
        FLAT_TRUE[:2], FLAT_PRED[:2], sample_weight=[1, 3]
    )
    assert node_accuracy_score(TRUE[:1], PRED[:1], sample_weight=[2.0]) == accuracy_score(
        TRUE[0].ravel(), PRED[0].ravel()
    )


@pytest.mark.parametrize(
    ("true", "pred", "options", "message"),
    [
        (TRUE, PRED[:2], {}, "y_true has 3 examples, but y_pred has 2"),
        (TRUE, [*PRED[:2], PRED[2].ravel()], {}, r"y_pred\[2\] has shape \(4,\), but y_true\[2\] has shape \(2, 2\)"),
        (TRUE, PRED, {"sample_weight": [1, 2]}, "sample_weight has 2 examples"),
        (TRUE, PRED, {"sample_weight": [np.ones(7)] * 3}, "one number per example or per node"),
        (
            TRUE,
            PRED,
            {"sample_weight": np.ma.masked_array([1.0, 2.0, 1.0], mask=[1, 0, 0])},
            "sample_weight .* found NaN",
        ),
        (TRUE, PRED, {"sample_weight": [np.ma.masked_all(SIZES[0]), 1.0, 1.0]}, "sample_weight .* found NaN"),
        (TRUE, PRED, {"sample_weight": [None, 1.0, 1.0]}, "sample_weight .* found NaN"),
        (TRUE, PRED, {"sample_weight": ["1", "2", "1"]}, "sample_weight must hold numbers, got strings"),
        ([np.full(3, -1)], [np.zeros(3)], {"missing_label": -1}, "no label at all"),
        ([0, 1], [0, 1, 1], {}, "shape"),
        ([], [], {}, "no label at all"),
    ],
)
def test_bad_input(true, pred, options, message):
    with pytest.raises(ValueError, match=message):
        node_accuracy_score(true, pred, **options)


def probabilities(shape):
    values = RNG.random((*shape, 3)) + 0.1
    return values / values.sum(axis=-1, keepdims=True)


def test_log_likelihood():
    proba = [probabilities(size) for size in SIZES]
    flat = np.concatenate([part.reshape(-1, 3) for part in proba])
    assert node_log_likelihood_score(TRUE, proba, labels=[0, 1, 2]) == pytest.approx(-log_loss(FLAT_TRUE, flat))
    turned = [part[..., ::-1] for part in proba]
    assert node_log_likelihood_score(TRUE, turned, labels=[2, 1, 0]) == pytest.approx(-log_loss(FLAT_TRUE, flat))
    assert node_log_likelihood_score(FLAT_TRUE, flat, labels=[0, 1, 2]) == pytest.approx(-log_loss(FLAT_TRUE, flat))
    hidden = [np.where(np.arange(part.size).reshape(part.shape) == 0, -1, part) for part in TRUE]
    known = np.concatenate([part.ravel() for part in hidden]) >= 0
    found = node_log_likelihood_score(hidden, proba, labels=[0, 1, 2], missing_label=-1)
    assert found == pytest.approx(-log_loss(FLAT_TRUE[known], flat[known], labels=[0, 1, 2]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_likelihood_of_the_impossible_is_finite(dtype):
    proba = [np.array([[1, 0], [1, 0]], dtype=dtype)]
    value = node_log_likelihood_score([np.array([0, 1])], proba, labels=[0, 1])
    assert np.isfinite(value)
    assert value < -40


def test_log_likelihood_refuses_what_it_does_not_know():
    proba = [np.full((2, 2), 0.5)]
    with pytest.raises(ValueError, match="y_true holds strings, such as 'a', but labels are numbers, such as 0"):
        node_log_likelihood_score([np.array(["a", "b"])], proba, labels=[0, 1])
    with pytest.raises(ValueError, match="last axis of 3"):
        node_log_likelihood_score([np.array([0, 1])], proba, labels=[0, 1, 2])
    with pytest.raises(ValueError, match="last axis"):
        node_log_likelihood_score([np.array([0, 1])], [np.array([0, 1])], labels=[0, 1])


def test_flatten_keeps_the_order_of_nodes():
    proba = [probabilities(size) for size in SIZES]
    true, flat, weight = flatten_nodes(TRUE, proba)
    assert np.array_equal(true, FLAT_TRUE)
    assert np.array_equal(flat[12:17], proba[1][0])
    assert weight is None


@pytest.mark.parametrize("value", [1.5, -0.1, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_likelihood_refuses_numbers_that_are_no_probabilities(value, dtype):
    proba = np.full((2, 3), 1 / 3, dtype=dtype)
    proba[1, 2] = value
    with pytest.raises(ValueError, match="y_proba must hold probabilities from 0 to 1"):
        node_log_likelihood_score([0, 1], proba, labels=[0, 1, 2])
    # Probabilities of unlabelled nodes do not count.
    assert np.isfinite(node_log_likelihood_score([0, -1], proba, labels=[0, 1, 2], missing_label=-1))


def test_log_likelihood_of_integers_and_rounded_probabilities():
    for dtype in (int, bool, np.uint8, np.float32):
        assert node_log_likelihood_score([0, 1], np.eye(2, dtype=dtype), labels=[0, 1]) == 0.0
    above = np.full((1, 1), 1 + np.finfo(np.float32).eps, dtype=np.float32)
    assert node_log_likelihood_score([0], above, labels=[0]) == 0.0


def test_log_likelihood_refuses_repeated_labels_and_text():
    with pytest.raises(ValueError, match="labels must be distinct"):
        node_log_likelihood_score([0, 1], np.full((2, 2), 0.5), labels=[1, 1])
    with pytest.raises(ValueError, match="y_proba must hold numbers"):
        node_log_likelihood_score([0, 1], np.full((2, 2), "x"), labels=[0, 1])


# -- Scorers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [list, make_object_array])
def test_scorers_in_a_grid_search(layout):
    X, y = labelled_images()
    search = GridSearchCV(NodewiseClassifier(), {"C": [1e-4, 1.0]}, scoring=NODE_SCORERS, refit=False, cv=2)
    search.fit(layout(X), layout(y))
    for name in NODE_SCORERS:
        poor, good = search.cv_results_[f"mean_test_{name}"]
        assert np.isfinite(poor)
        assert poor < good
    alone = GridSearchCV(NodewiseClassifier(), {"C": [1e-4, 1.0]}, scoring=NODE_SCORERS["node_f1_macro"], cv=2)
    assert alone.fit(layout(X), layout(y)).best_params_ == {"C": 1.0}


def test_scorers_on_arrays_of_equal_binary_chains():
    y = RNG.integers(2, size=(6, 5))
    X = y[..., None] + 0.1 * RNG.normal(size=(6, 5, 1))
    found = cross_validate(NodewiseClassifier(C=100), X, y, scoring=NODE_SCORERS, cv=3)
    assert np.array_equal(found["test_node_accuracy"], np.ones(3))
    assert np.all(np.isfinite(found["test_node_log_likelihood"]))


FIELD = TRWCRF(max_iter=20, missing_label=-1)


@pytest.mark.parametrize(
    "estimator",
    [
        FIELD,
        make_pipeline(NodeTransformer(StandardScaler()), FIELD),
        pipeline.make_pipeline(NodeTransformer(StandardScaler()), FIELD),
        TemperatureScaling(FIELD, cv=2),
        GridSearchCV(FIELD, {"C": [0.1, 1.0]}, cv=2),
        make_pipeline(NodeTransformer(StandardScaler()), TemperatureScaling(FIELD, cv=2)),
        RegressionTreeFieldClassifier(max_depth=1, missing_label=-1),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_scorers_ignore_nodes_with_the_missing_label_of_the_estimator(estimator):
    X, y = labelled_images()
    rng = np.random.default_rng(0)
    known = [rng.random(own.shape) > 0.3 for own in y]
    partly = make_object_array([np.where(mask, own, -1) for own, mask in zip(y, known, strict=True)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = estimator.fit(X, partly)
    flat_y = np.concatenate([own[mask] for own, mask in zip(y, known, strict=True)])
    for name, scorer in NODE_SCORERS.items():
        found = getattr(fitted, scorer.response_method)(X)
        flat_found = np.concatenate([own[mask] for own, mask in zip(found, known, strict=True)])
        options = {"labels": fitted.classes_} if scorer.response_method == "predict_proba" else {}
        assert scorer(fitted, X, partly) == pytest.approx(scorer.metric(flat_y, flat_found, **options))
        if name == "node_accuracy":
            assert scorer(fitted, X, partly) == pytest.approx(fitted.score(X, partly))


def test_missing_labels_given_to_a_scorer_take_precedence():
    X, y = labelled_images()
    fitted = TRWCRF(max_iter=5).fit(X, y)
    hidden = make_object_array([np.where(own == 0, 7, own) for own in y])
    scorer = make_node_scorer(node_accuracy_score, missing_label=7)
    others = [own != 0 for own in y]
    found, right = (
        np.concatenate([own[mask] for own, mask in zip(part, others, strict=True)]) for part in (fitted.predict(X), y)
    )
    assert scorer(fitted, X, hidden) == pytest.approx(np.mean(found == right))


def test_scorers_of_other_metrics():
    X, y = labelled_images()
    model = NodewiseClassifier().fit(X, y)
    flat = np.concatenate([part.ravel() for part in y])
    pred = np.concatenate([part.ravel() for part in model.predict(X)])
    scorer = make_node_scorer(balanced_accuracy_score)
    assert scorer(model, X, y) == balanced_accuracy_score(flat, pred)
    assert cross_val_score(model, X, y, scoring=scorer, cv=2).shape == (2,)
    loss = make_node_scorer(log_loss, response_method="predict_proba", greater_is_better=False)
    assert loss(model, X, y) == pytest.approx(NODE_SCORERS["node_log_likelihood"](model, X, y))
    ones = np.ones(len(y))
    assert loss(model, X, y, sample_weight=ones) == pytest.approx(loss(model, X, y))


def test_scorers_leave_out_missing_labels():
    X, y = labelled_images()
    y[0][0, 0] = -1
    model = NodewiseClassifier(missing_label=-1).fit(X, y)
    scorer = make_node_scorer(accuracy_score, missing_label=-1)
    assert scorer(model, X, y) == node_accuracy_score(y, model.predict(X), missing_label=-1) == model.score(X, y)
    assert scorer(model, X, y) == make_node_scorer(accuracy_score)(model, X, y)


def test_scorers_pickle_and_say_what_they_are():
    for scorer in NODE_SCORERS.values():
        again = pickle.loads(pickle.dumps(scorer))
        assert repr(again) == repr(scorer)
        assert scorer.metric.__name__ in repr(scorer)
    with pytest.raises(ValueError, match="response_method"):
        make_node_scorer(accuracy_score, response_method="transform")


@pytest.mark.parametrize("metric", [node_accuracy_score, node_f1_score, node_jaccard_score])
def test_labels_that_are_nan_are_named_without_a_warning(metric):
    unknown = [np.where(labels == 1, np.nan, labels) for labels in PRED]
    for pair, name in (((TRUE, unknown), "y_pred"), ((unknown, PRED), "y_true")):
        with (
            warnings.catch_warnings(action="error"),
            pytest.raises(ValueError, match=f"Input {name} contains NaN: mark"),
        ):
            metric(*pair)


@pytest.mark.parametrize("weight", [[1, 0], [1, 3], [[1, 0, 2], [1, 1]]])
def test_reports_take_one_weight_per_example_or_node(weight):
    true, found = [np.array(["a", "b", "a"]), np.array(["b", "a"])], [np.array(["a", "b", "b"]), np.array(["a", "a"])]
    options = {"sample_weight": weight, "output_dict": True}
    report = node_classification_report(true, found, **options)
    assert report["accuracy"] == pytest.approx(node_accuracy_score(true, found, sample_weight=weight))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_may_come_from_lower_precision(dtype):
    proba = np.array([[1 + 1.2e-7, 0.0], [0.25, 0.75]], dtype=dtype)
    assert node_log_likelihood_score([0, 1], proba, labels=[0, 1]) == pytest.approx(np.log(0.75) / 2)
