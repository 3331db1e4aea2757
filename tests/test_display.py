"""Displays draw their input: tests read colours back from the figures."""

import subprocess
import sys

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgba_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.pipeline import make_pipeline

from sklearn_crf import DRFClassifier, Example, Graph
from sklearn_crf.display import FieldDisplay, TrainingTraceDisplay
from sklearn_crf.display._field import _RIGHT, _UNLABELLED, _WRONG, _interpolate_colours
from sklearn_crf.graphs import lattice

matplotlib.use("Agg")

Y_TRUE = np.array([["a", "b", "?"], ["b", "b", "a"]])
Y_PRED = np.array([["a", "a", "a"], ["b", "b", "a"]])


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


class Threshold(ClassifierMixin, BaseEstimator):
    """A classifier by a threshold on one feature, with the interface that displays use."""

    missing_label = -1

    def fit(self, X=None, y=None):
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X):
        out = np.empty(len(X), dtype=object)
        for i, x in enumerate(X):
            features = x.node_features if isinstance(x, Example) else x
            out[i] = (features[..., 0] > 0.5).astype(int)
        return out

    def predict_proba(self, X):
        out = np.empty(len(X), dtype=object)
        for i, labels in enumerate(self.predict(X)):
            out[i] = np.stack([1.0 - labels, labels], axis=-1)
        return out


def picture(display, panel):
    """Return the RGBA values of the image on one panel."""
    return np.asarray(display.axes_[display.panels_.index(panel)].images[0].get_array())


def test_errors_and_unlabelled_nodes_have_their_colours():
    display = FieldDisplay.from_predictions(Y_TRUE, Y_PRED, missing_label="?")
    right, wrong, unlabelled = to_rgba_array([_RIGHT, _WRONG, _UNLABELLED])
    expected = np.array([[right, wrong, unlabelled], [right, right, right]])
    np.testing.assert_array_equal(picture(display, "errors"), expected)
    assert display.error_rate_ == pytest.approx(1 / 5)
    assert "20.0 %" in display.axes_[-1].get_title()


def test_same_label_has_the_same_colour_in_truth_and_prediction():
    display = FieldDisplay.from_predictions(Y_TRUE, Y_PRED, missing_label="?")
    truth, prediction = picture(display, "truth"), picture(display, "prediction")
    agree = Y_TRUE == Y_PRED
    np.testing.assert_array_equal(truth[agree], prediction[agree])
    assert np.all(np.any(truth[~agree] != prediction[~agree], axis=-1))


def test_panels_are_what_is_known_in_order():
    assert FieldDisplay.from_predictions(None, Y_PRED).panels_ == ["prediction"]
    proba = np.stack([Y_PRED == "a", Y_PRED == "b"], axis=-1).astype(float)
    image = np.arange(6.0).reshape(2, 3)
    display = FieldDisplay.from_predictions(Y_TRUE, Y_PRED, proba=proba, image=image, missing_label="?")
    assert display.panels_ == ["image", "truth", "marginals", "prediction", "errors"]
    chosen = FieldDisplay.from_predictions(Y_TRUE, Y_PRED, missing_label="?", panels=["errors", "truth"])
    assert chosen.panels_ == ["errors", "truth"]
    assert len(chosen.axes_) == 2


def test_marginals_are_those_of_pos_label():
    proba = np.zeros((2, 3, 2))
    proba[..., 1] = np.linspace(0, 1, 6).reshape(2, 3)
    proba[..., 0] = 1 - proba[..., 1]
    second = FieldDisplay.from_predictions(None, Y_PRED, proba=proba)
    first = FieldDisplay.from_predictions(None, Y_PRED, proba=proba, pos_label="a")
    np.testing.assert_array_equal(picture(second, "marginals"), _interpolate_colours(proba[..., 1]))
    np.testing.assert_array_equal(picture(first, "marginals"), _interpolate_colours(proba[..., 0]))


def test_marginals_of_many_classes_are_the_largest():
    y = np.array([[0, 1, 2]])
    proba = np.array([[[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]]])
    display = FieldDisplay.from_predictions(None, y, proba=proba)
    np.testing.assert_array_equal(picture(display, "marginals"), _interpolate_colours([[0.5, 0.8, 1.0]]))
    assert len(np.unique(picture(display, "prediction").reshape(-1, 4), axis=0)) == 3


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_colour_image_is_shown_as_it_is(dtype):
    rgb = np.random.default_rng(0).integers(0, 256, size=(2, 3, 3)).astype(np.uint8)
    image = rgb if dtype == np.uint8 else (rgb / 255).astype(dtype)
    display = FieldDisplay.from_predictions(None, Y_PRED, image=image)
    np.testing.assert_allclose(picture(display, "image")[..., :3], rgb / 255, atol=1e-6)


def test_from_estimator_on_an_image_uses_its_missing_label():
    X = np.array([[[0.1], [0.9]], [[0.8], [0.2]]])
    display = FieldDisplay.from_estimator(Threshold().fit(), X, np.array([[0, -1], [0, 0]]))
    assert display.panels_ == ["image", "truth", "marginals", "prediction", "errors"]
    assert display.error_rate_ == pytest.approx(1 / 3)
    inside = make_pipeline("passthrough", Threshold()).fit(None)
    assert FieldDisplay.from_estimator(inside, X, np.array([[0, -1], [0, 0]])).error_rate_ == pytest.approx(1 / 3)


def test_chain_is_stacked():
    display = FieldDisplay.from_estimator(Threshold().fit(), np.linspace(0, 1, 7)[:, None], np.zeros(7, dtype=int))
    assert picture(display, "errors").shape == (1, 7, 4)
    tops = [ax.get_position().y1 for ax in display.axes_]
    assert tops == sorted(tops, reverse=True)


def test_graph_is_drawn_at_its_positions():
    graph = Graph(4, [[0, 1], [1, 2], [2, 3]])
    example = Example(np.array([[0.1], [0.9], [0.8], [0.2]]), graph)
    positions = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [2.0, 1.0]])
    display = FieldDisplay.from_estimator(Threshold().fit(), example, positions=positions)
    lines, points = display.axes_[-1].collections
    np.testing.assert_array_equal(points.get_offsets(), positions)
    np.testing.assert_array_equal(np.array(lines.get_segments())[:, 0], positions[graph.edges[:, 0]])
    with pytest.raises(ValueError, match=r"positions must be given to draw an Example"):
        FieldDisplay.from_estimator(Threshold().fit(), example)


def test_example_on_a_lattice_needs_no_positions():
    example = Example(np.linspace(0, 1, 6)[:, None], lattice((2, 3)))
    display = FieldDisplay.from_estimator(Threshold().fit(), example, np.zeros(6, dtype=int))
    assert picture(display, "errors").shape == (2, 3, 4)


def test_draws_on_given_axes():
    figure, axes = plt.subplots(1, 3)
    display = FieldDisplay.from_predictions(Y_TRUE, Y_PRED, missing_label="?", axes=axes)
    assert display.figure_ is figure
    assert display.axes_[0] is axes[0]
    with pytest.raises(ValueError, match="axes must hold one Axes for each of the 3 panels, got 2"):
        FieldDisplay.from_predictions(Y_TRUE, Y_PRED, missing_label="?", axes=axes[:2])


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"y_true": Y_TRUE[:1]}, r"y_true has shape \(1, 3\), but y_pred has \(2, 3\)"),
        ({"proba": np.zeros((2, 3))}, r"proba must have shape \(2, 3, 2\)"),
        ({"image": np.zeros((2, 2))}, "image must hold 1, 3 or 4 values for each of the 6 nodes"),
        ({"panels": ["errors"]}, "panels must be among prediction for this example, got 'errors'"),
        ({"positions": np.zeros((5, 2))}, r"positions must have shape \(6, 2\)"),
        ({"positions": np.zeros((6, 2)), "edges": [[0, 6]]}, "edges must have shape"),
        ({"classes": ["a"]}, "y_pred holds the unknown label b"),
        ({"y_pred": np.zeros((2, 2, 2), dtype=int)}, "pass one slice"),
    ],
)
def test_bad_input_is_named(kwargs, message):
    arguments = {"y_true": None, "y_pred": Y_PRED} | kwargs
    with pytest.raises(ValueError, match=message):
        FieldDisplay.from_predictions(arguments.pop("y_true"), arguments.pop("y_pred"), **arguments)


def test_batch_instead_of_one_example_is_an_error():
    with pytest.raises(ValueError, match=r"X_i must be one example"):
        FieldDisplay.from_estimator(Threshold().fit(), np.zeros((1, 2, 3, 1)))


def trained(n_iter, errors=None):
    """Return a fitted field of 2 node weights, an intercept and 2 edge weights, with a trace of some iterations."""
    field = DRFClassifier(learning="spa", pairwise="ising")
    field.classes_, field.n_features_in_, field.lattice_ndim_ = np.arange(2), 2, 2
    field.coef_, field.intercept_, field.edge_coef_ = np.zeros((1, 2)), np.zeros(1), np.zeros((1, 2, 1))
    field.coef_path_ = np.arange(n_iter * 5, dtype=float).reshape(n_iter, 5)
    field.gradient_path_ = -10 * field.coef_path_
    field.error_curve_ = np.full(n_iter, np.nan) if errors is None else errors
    field.n_iter_ = n_iter
    return field


def test_trace_draws_the_named_weights():
    errors = np.arange(4.0)
    weights = ["coef_[0, 1]", "edge_coef_[0, 1, 0]"]
    display = TrainingTraceDisplay.from_estimator(trained(4, errors), weights=weights)
    assert display.axes_.shape == (5, 1)
    path = trained(4).coef_path_
    np.testing.assert_array_equal(display.axes_[0, 0].lines[0].get_ydata(), path[:, 1])
    np.testing.assert_array_equal(display.axes_[2, 0].lines[0].get_ydata(), path[:, 4])
    np.testing.assert_array_equal(display.axes_[3, 0].lines[-1].get_ydata(), 10 * path[:, 4])
    np.testing.assert_array_equal(display.axes_[4, 0].lines[0].get_ydata(), errors)


def test_trace_defaults_to_intercept_and_first_feature():
    display = TrainingTraceDisplay.from_estimators([trained(3), trained(6)], names=["one", "two"])
    assert display.axes_.shape == (5, 2)
    assert [display.axes_[row, 0].get_ylabel() for row in (0, 2)] == ["intercept_[0]", "coef_[0, 0]"]
    assert [ax.get_title() for ax in display.axes_[0]] == ["one", "two"]
    np.testing.assert_array_equal(display.axes_[0, 1].lines[0].get_ydata(), trained(6).coef_path_[:, 2])
    assert display.axes_[-1, 0].texts[0].get_text() == "counts no errors"


def test_trace_names_what_is_missing():
    with pytest.raises(ValueError, match=r"weights contains 'w', but the estimator only has coef_\[0, 0\]"):
        TrainingTraceDisplay.from_estimator(trained(3), weights=["w"])
    estimator = trained(3)
    estimator.coef_path_ = np.zeros((0,))
    with pytest.raises(ValueError, match="DRFClassifier did not store coef_path_"):
        TrainingTraceDisplay.from_estimator(estimator)
    with pytest.raises(ValueError, match="names must hold 1 titles"):
        TrainingTraceDisplay.from_estimators([trained(3)], names=["a", "b"])
    with pytest.raises(ValueError, match="axes must have shape"):
        TrainingTraceDisplay.from_estimator(trained(3), axes=plt.subplots(2, 1)[1])


def test_matplotlib_is_imported_only_to_draw():
    code = "import sys; import sklearn_crf.display; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"FieldDisplay draws with matplotlib: pip install 'sklearn_crf\[plot\]'"):
        FieldDisplay.from_predictions(Y_TRUE, Y_PRED, missing_label="?")
