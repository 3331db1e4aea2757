"""Derivatives through the updates of mean field, against finite differences."""

import numpy as np
import pytest
from scipy.special import softmax

from sklearn_crf import Bilateral, DenseExample, Spatial
from sklearn_crf.dense import ExpectedIoU, LogLoss
from sklearn_crf.dense._examples import Task
from sklearn_crf.dense._training import Lattices, Layout, UnrolledRisk, UnrolledUpdates
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
@pytest.mark.parametrize("compatibility", ["diagonal", "full"])
def test_gradient_of_numbers_of_classes_that_need_padding_and_not(compatibility, n_classes):
    assert_gradient(*risk_and_point(compatibility, LogLoss(), n_classes=n_classes), rtol=1e-5)


def updates_by_numpy(model, n_updates, tol):
    """Return marginals at the start and after each update, with the filters of the model alone."""
    trajectory = [softmax(model.unary, axis=1)]
    for _ in range(n_updates):
        q = trajectory[-1]
        messages = sum(each.apply(q) @ table for each, table in zip(model.filters, model.tables, strict=True))
        trajectory.append(softmax(model.unary + messages, axis=1))
        if np.abs(trajectory[-1] - q).max() <= tol:
            break
    return trajectory


@pytest.mark.parametrize("compatibility", ["potts", "diagonal", "full"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tol", [0.0, 0.05])
@pytest.mark.parametrize("blur", ["single", "symmetric"])
@pytest.mark.parametrize("n_classes", [2, 3, 9])
def test_updates_are_those_of_numpy(compatibility, dtype, tol, blur, n_classes):
    risk, point = risk_and_point(compatibility, LogLoss(), dtype=dtype, blur=blur, n_classes=n_classes)
    for task in risk.tasks:
        model = risk._model(risk.layout.unpack(0.3 * point), task, 1)
        last = UnrolledUpdates(model, DenseMeanField(max_iter=20, tol=tol)).last
        expected = updates_by_numpy(model, 20, tol)[-1]
        np.testing.assert_allclose(last, expected, atol=1e-12 if dtype == np.float64 else 1e-5)


@pytest.mark.parametrize("compatibility", ["potts", "full"])
@pytest.mark.parametrize("n_tasks", [1, 2])
def test_threads_do_not_matter(compatibility, n_tasks):
    risk, point = risk_and_point(compatibility, LogLoss(), n_classes=2)
    risk.tasks = risk.tasks[:n_tasks]
    expected = risk.value_grad(point)
    for n_jobs in (1, 2, 3):
        risk.n_jobs = n_jobs
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
