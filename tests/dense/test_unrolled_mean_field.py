"""Derivatives through the updates of mean field, against finite differences."""

import numpy as np
import pytest

from sklearn_crf import Bilateral, DenseExample, Spatial
from sklearn_crf.dense import ExpectedIoU, LogLoss, _tuning
from sklearn_crf.dense._examples import Task
from sklearn_crf.dense._training import Lattices, UnrolledRisk
from sklearn_crf.dense._unrolled import SmallField, marginals_of_updates, pull_back
from sklearn_crf.dense._weights import Layout
from sklearn_crf.inference import DenseMeanField

SHAPE = (5, 6)


def risk_and_point(compatibility, loss, *, linear=False, inference=None, blur="single", dtype=np.float64, n_classes=3):
    rng = np.random.default_rng(0)
    tasks = []
    for i in range(2):
        example = DenseExample(rng.normal(size=(*SHAPE, n_classes)).astype(dtype), rng.normal(size=(*SHAPE, 2)))
        weight = rng.uniform(0.5, 2, size=30)
        weight[::7] = 0
        tasks.append(Task(i, example, rng.integers(n_classes, size=30), weight))
    kernels = [Spatial(1.5), Bilateral(3.0, 1.5)]
    lattices = Lattices(kernels, tasks, blur=blur, max_memory=2**30, n_jobs=None)
    layout = Layout(2, n_classes, compatibility, n_classes if linear else None)
    inference = DenseMeanField(max_iter=4) if inference is None else inference
    point = rng.normal(size=layout.n_coef)
    return UnrolledRisk(tasks, lattices, layout, loss, inference, 0.3, None), point


def assert_gradient(risk, point, step=1e-6, rtol=1e-6):
    _, gradient = risk.value_grad(point)
    for k in range(len(point)):
        moved = step * np.eye(len(point))[k]
        slope = (risk.value_grad(point + moved)[0] - risk.value_grad(point - moved)[0]) / (2 * step)
        assert gradient[k] == pytest.approx(slope, rel=rtol, abs=1e-8)


@pytest.mark.parametrize("compatibility", ["potts", "diagonal", "full"])
@pytest.mark.parametrize("loss", [LogLoss(), ExpectedIoU()], ids=["log_loss", "expected_iou"])
@pytest.mark.parametrize("linear", [False, True], ids=["scores", "linear"])
def test_gradient_is_that_of_finite_differences(compatibility, loss, linear):
    assert_gradient(*risk_and_point(compatibility, loss, linear=linear), rtol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3, 4, 9])
@pytest.mark.parametrize("most_nodes", [0, 1000], ids=["by updates", "in one call"])
def test_gradient_of_numbers_of_classes_that_need_padding_and_not(n_classes, most_nodes, monkeypatch):
    monkeypatch.setattr(_tuning, "MOST_SMALL_NODES", most_nodes)
    assert_gradient(*risk_and_point("diagonal", LogLoss(), n_classes=n_classes), rtol=1e-5)


@pytest.mark.parametrize("compatibility", ["potts", "diagonal"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tol", [0.0, 0.05])
@pytest.mark.parametrize("blur", ["single", "symmetric"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_updates_of_small_fields_have_the_bits_of_single_updates(compatibility, dtype, tol, blur, n_classes):
    risk, point = risk_and_point(compatibility, LogLoss(), dtype=dtype, blur=blur, n_classes=n_classes)
    model = risk._model(risk.layout.unpack(0.3 * point), risk.tasks[0], 1)
    expected = marginals_of_updates(model, DenseMeanField(max_iter=20, tol=tol))
    small = SmallField.of(model)
    found = small.trajectory(20, tol)
    np.testing.assert_array_equal(found[:, :, :n_classes], expected)
    slope = np.random.default_rng(1).normal(size=expected[-1].shape).astype(dtype)
    by_call, by_updates = small.pull_back(found, slope), pull_back(model, expected, slope)
    tolerance = 1e-12 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(by_call.unary, by_updates.unary, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(by_call.tables, by_updates.tables, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("compatibility", ["potts", "full"])
def test_threads_inside_one_field_do_not_matter(compatibility):
    risk, point = risk_and_point(compatibility, LogLoss(), n_classes=2)
    risk.tasks = risk.tasks[:1]
    expected = risk.value_grad(point)
    risk.n_jobs = 2
    found = risk.value_grad(point)
    assert found[0] == expected[0]
    np.testing.assert_array_equal(found[1], expected[1])


def test_gradient_of_convergent_updates_where_weights_are_positive():
    inference = DenseMeanField(max_iter=4, updates="convergent")
    risk, point = risk_and_point("diagonal", LogLoss(), inference=inference, blur="symmetric")
    assert_gradient(risk, np.abs(point), rtol=1e-5)


def test_gradient_in_single_precision():
    double, point = risk_and_point("full", LogLoss())
    single, _ = risk_and_point("full", LogLoss(), dtype=np.float32)
    np.testing.assert_allclose(single.value_grad(point)[1], double.value_grad(point)[1], atol=2e-5)


def test_flat_weights_and_back():
    for compatibility in ("potts", "diagonal", "full"):
        for n_features in (None, 4):
            layout = Layout(2, 3, compatibility, n_features)
            flat = np.random.default_rng(0).normal(size=layout.n_coef)
            weights = layout.unpack(flat)
            np.testing.assert_array_equal(layout.pack(weights), flat)
            if compatibility == "full":
                np.testing.assert_array_equal(weights.compatibility, weights.compatibility.transpose(0, 2, 1))
            assert layout.penalised.sum() == layout.n_coef - (1 if n_features is None else 3)


def test_lattices_beyond_memory_are_built_again():
    risk, point = risk_and_point("potts", LogLoss())
    expected = risk.value_grad(point)
    memory = sum(smooth.memory for smooth in risk.lattices.of(risk.tasks[0], 1))
    few = Lattices(risk.lattices.kernels, risk.tasks, blur="single", max_memory=1.5 * memory, n_jobs=None)
    assert len(few._kept) == 1
    risk.lattices = few
    found = risk.value_grad(point)
    assert found[0] == expected[0]
    np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize("loss", [LogLoss(), ExpectedIoU()])
def test_losses_of_certain_marginals(loss):
    labels, weight = np.array([0, 1, 1, 0]), np.array([1.0, 2.0, 1.0, 0.5])
    right = np.eye(3)[labels]
    assert loss.value(loss.totals(right, labels, weight)) == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(loss.gradient(loss.totals(right, labels, weight), right, labels, weight), 0, atol=1e-12)
    if isinstance(loss, ExpectedIoU):
        wrong = np.eye(3)[[0, 0, 1, 0]]
        # class 0: 1.5 of 3.5; class 1: 1 of 3; the third class is left out
        expected = 4.5 * (1 - (1.5 / 3.5 + 1 / 3) / 2)
        assert loss.value(loss.totals(wrong, labels, weight)) == pytest.approx(expected)
