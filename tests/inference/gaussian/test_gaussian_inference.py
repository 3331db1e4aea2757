"""Inference in Gaussian fields: conjugate gradients, belief propagation, sampling and factorisation agree."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from gaussian_strategies import GRAPHS, dense_precision, gaussian_models, random_gaussian, renumbered
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import FORESTS
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import ConjugateGradient, GaussianBP, GaussianDirect, GaussianGibbs
from sklearn_crf.models import GaussianModel

ITERATIVE = [ConjugateGradient(tol=1e-11), GaussianBP(tol=1e-12), GaussianBP(tol=1e-12, damping=0.3)]
ALGORITHMS = [ConjugateGradient(), GaussianBP(), GaussianDirect(), GaussianGibbs(n_sweeps=20, random_state=0)]


def dense_answer(model):
    """Return the mean, the diagonal blocks of the covariance, and the log-partition."""
    matrix = dense_precision(model)
    covariance = np.linalg.inv(matrix)
    mean = covariance @ model.h.ravel()
    n_nodes, n_values = model.h.shape
    nodes = np.arange(n_nodes)
    blocks = covariance.reshape(n_nodes, n_values, n_nodes, n_values)[nodes, :, nodes]
    log_det = np.linalg.slogdet(matrix)[1]
    log_z = 0.5 * (model.h.ravel() @ mean + mean.size * np.log(2 * np.pi) - log_det)
    return mean.reshape(model.h.shape), blocks, log_z


@settings(max_examples=40, deadline=None)
@given(gaussian_models())
def test_all_find_the_mean(model):
    mean, covariance, log_z = dense_answer(model)
    direct = GaussianDirect().marginals(model)
    assert_allclose(direct.mean, mean, atol=1e-10)
    assert_allclose(direct.covariance, covariance, atol=1e-10)
    assert direct.log_z == pytest.approx(log_z, rel=1e-10, abs=1e-9)
    for algorithm in ITERATIVE:
        found = algorithm.marginals(model)
        assert found.converged
        assert_allclose(found.mean, mean, atol=1e-6)


@pytest.mark.parametrize("topology", FORESTS)
@pytest.mark.parametrize("n_values", [1, 3])
def test_belief_propagation_is_exact_on_forests(topology, n_values):
    model = random_gaussian(topology, n_values, seed=4)
    found = GaussianBP().marginals(model)
    mean, covariance, _ = dense_answer(model)
    assert_allclose(found.mean, mean, atol=1e-10)
    assert_allclose(found.covariance, covariance, atol=1e-10)


def test_belief_propagation_says_when_it_fails():
    # Positive definite, but not walk-summable: a triangle of strong repulsion.
    triangle = lattice((3,), connectivity=[[1], [2]])
    model = GaussianModel(triangle, np.ones(3), np.ones(3), [0.9])
    assert np.linalg.eigvalsh(dense_precision(model))[0] > 0
    with pytest.raises(ValueError, match="not walk-summable"):
        GaussianBP().marginals(model)
    with pytest.warns(ConvergenceWarning, match="increase max_iter or damping"):
        assert not GaussianBP(max_iter=1).marginals(random_gaussian("plane")).converged


@pytest.mark.parametrize("algorithm", [ConjugateGradient(tol=1e-5), GaussianDirect(), GaussianBP()])
@pytest.mark.parametrize("name", ["plane", "tree", "volume"])
def test_float32(algorithm, name):
    model = random_gaussian(name, 2, dtype=np.float32, seed=5)
    found = algorithm.marginals(model)
    assert found.mean.dtype == np.float32
    assert_allclose(found.mean, dense_answer(model)[0], atol=2e-5)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
def test_any_number_of_threads_gives_the_same_bits(algorithm):
    model = random_gaussian(lattice((96, 400), 2), 1, n_types=4, dtype=np.float32, seed=6)
    if isinstance(algorithm, GaussianDirect | GaussianBP):
        model = random_gaussian("plane", 2, seed=6)
    options = {"covariance": True} if isinstance(algorithm, GaussianDirect) else {}
    algorithm = clone(algorithm).set_params(**options)
    one, three = (algorithm.marginals(model, n_threads=n) for n in (1, 3))
    assert_array_equal(one.mean, three.mean)
    assert one.n_iter == three.n_iter


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shape", "n_values"), [((9,), 1), ((40, 30), 1), ((12, 11), 2), ((4, 5, 6), 1)])
def test_iterations_in_one_call_are_those_one_by_one(shape, n_values, dtype, monkeypatch):
    graph = lattice(shape)
    rng = np.random.default_rng(0)
    h = rng.normal(size=(graph.n_nodes, n_values)).astype(dtype)
    blocks = rng.normal(size=(graph.n_edges, n_values, n_values))
    model = GaussianModel(graph, h, 9.0 * np.eye(n_values), 0.5 * blocks, np.arange(graph.n_edges))
    algorithm = ConjugateGradient(tol=1e-5)
    found = algorithm.solve(model, h)
    assert found.n_iter > 2
    # Sums are computed in ranges, each call makes one iteration, and threads call other kernels.
    monkeypatch.setattr("sklearn_crf.inference.gaussian._tuning.SMALLEST_RANGE", 7)
    in_ranges = algorithm.solve(model, h)
    monkeypatch.setattr("sklearn_crf.inference.gaussian._tuning.NUMBERS_AT_ONCE", 0)
    for n_threads in (1, 2):
        assert_array_equal(algorithm.solve(model, h, n_threads=n_threads).x, in_ranges.x)
    assert_allclose(found.x, in_ranges.x, rtol=1e-4, atol=1e-5)
    limited = ConjugateGradient(max_iter=2, tol=0.0).solve(model, h)
    assert (limited.n_iter, limited.converged) == (2, False)


@settings(max_examples=20, deadline=None)
@given(gaussian_models(), st.integers(0, 99))
def test_order_of_nodes_does_not_matter(model, seed):
    order = np.random.default_rng(seed).permutation(len(model.h))
    other = renumbered(model, order)
    for algorithm in (*ITERATIVE, GaussianDirect()):
        assert_allclose(algorithm.marginals(other).mean, algorithm.marginals(model).mean[order], atol=1e-7)


@pytest.mark.parametrize("algorithm", [ConjugateGradient(), GaussianBP()])
def test_warm_start_from_the_answer_takes_no_time(algorithm):
    model = random_gaussian("plane", 2, seed=7)
    cold = algorithm.marginals(model)
    warm = algorithm.marginals(model, init=cold.state)
    assert warm.n_iter <= 1 < cold.n_iter
    assert_allclose(warm.mean, cold.mean, atol=1e-8)


@pytest.mark.parametrize("algorithm", [*ITERATIVE, GaussianDirect()])
def test_several_right_hand_sides(algorithm):
    model = random_gaussian("wide_window", 2, strength=0.3, seed=8)
    b = np.random.default_rng(0).normal(size=(3, *model.h.shape))
    b[1] = 0
    found = algorithm.solve(model, b)
    expected = np.linalg.solve(dense_precision(model), b.reshape(3, -1).T).T
    assert_allclose(found.x.reshape(3, -1), expected, atol=1e-9)
    assert found.converged
    assert found.residual < 1e-9
    single = algorithm.solve(model, b[2])
    assert_array_equal(single.x, found.x[2])
    assert algorithm.solve(model, b[:0]).x.shape == (0, *model.h.shape)


def test_what_samples_does_not_solve():
    model = random_gaussian("plane", seed=8)
    with pytest.raises(ValueError, match="GaussianGibbs does not solve linear systems"):
        GaussianGibbs().solve(model, model.h)


def test_conjugate_gradients_say_when_they_stop_early():
    model = random_gaussian("plane", strength=0.99, seed=9)
    with pytest.warns(ConvergenceWarning, match=re.escape("max_iter=2 iterations")):
        found = ConjugateGradient(max_iter=2).marginals(model)
    assert found.residual == pytest.approx(measured_residual(model, model.h, found.mean))


@pytest.mark.parametrize("algorithm", [ConjugateGradient(), GaussianDirect(), GaussianBP()])
def test_what_is_not_positive_definite_is_refused(algorithm):
    indefinite = GaussianModel(lattice((3, 3)), np.ones(9), np.ones(9), [2.0])
    with pytest.raises(ValueError, match="not positive definite"):
        algorithm.marginals(indefinite)
    with pytest.raises(ValueError, match="not positive definite"):
        algorithm.marginals(replace(indefinite, diagonal=-np.ones(9), blocks=[0.0]))


def clamped_gaussian(name, n_values, dtype, seed):
    """Return a field whose nodes have precisions of very different sizes, and its mean and covariance blocks."""
    model = random_gaussian(name, n_values, dtype=dtype, seed=seed)
    rng = np.random.default_rng(seed)
    # Means of observed nodes are about one, like the means of other nodes.
    is_observed = rng.random(len(model.h)) < 0.3
    is_observed[0] = True
    precision = np.where(is_observed, 10.0 ** rng.uniform(2, 14, len(model.h)), 0.0)
    h = model.h + (precision[:, None] * rng.normal(size=model.h.shape)).astype(dtype)
    model = replace(model, h=h, diagonal=model.diagonal + precision[:, None, None] * np.eye(n_values))
    return model, *dense_answer(model)[:2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_values", [1, 3])
@pytest.mark.parametrize("name", ["chain", "tree", "cycle", "plane", "wide_volume"])
@pytest.mark.parametrize("seed", range(3))
def test_nodes_of_large_precision_do_not_hide_errors_of_others(name, n_values, dtype, seed):
    model, mean, covariance = clamped_gaussian(name, n_values, dtype, seed)
    rounding = 1e-5 if dtype == np.float32 else 0.0
    for algorithm, atol in ((ConjugateGradient(tol=1e-5), 1e-3), (GaussianBP(), 1e-7), (GaussianDirect(), 1e-12)):
        found = algorithm.marginals(model)
        assert found.converged
        assert_allclose(found.mean, mean, atol=atol + rounding)
        if isinstance(algorithm, GaussianDirect) or (isinstance(algorithm, GaussianBP) and name in FORESTS):
            assert_allclose(found.covariance, covariance, rtol=1e-7, atol=1e-9)


def measured_residual(model, b, x):
    """Return the norm of the residual relative to b, both divided by the diagonal blocks, by dense algebra."""
    rest = b.ravel() - dense_precision(model) @ x.ravel().astype(np.float64)
    scaled = [np.linalg.solve(model.diagonal.astype(float), v.reshape(*b.shape, 1)) for v in (rest, b.astype(float))]
    return np.linalg.norm(scaled[0]) / np.linalg.norm(scaled[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tol", [1e-3, 1e-6, 0.0])
@pytest.mark.parametrize("name", ["chain", "tree", "plane", "volume"])
@pytest.mark.parametrize("start", [None, 1e6])
def test_the_residual_that_is_returned_is_true(name, start, tol, dtype):
    model = random_gaussian(name, 2, dtype=dtype, strength=0.95, seed=3)
    init = None if start is None else np.full(model.h.shape, start, dtype)
    rounding = 20 * float(np.finfo(dtype).eps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for algorithm in (ConjugateGradient(tol=tol, max_iter=300), GaussianBP(tol=tol), GaussianDirect()):
            found = algorithm.solve(model, model.h, init=init)
            assert found.residual == pytest.approx(measured_residual(model, model.h, found.x), abs=rounding)
            assert found.residual <= max(tol, rounding)
            assert found.converged or isinstance(algorithm, GaussianBP)
            if isinstance(algorithm, GaussianBP):
                assert found.converged == (found.residual <= tol)


def test_a_system_without_solution_is_not_solved():
    # Each row of J sums to zero, unlike h. Without noise, the first direction would have no curvature.
    chain = lattice((50,))
    h = 1 + np.random.default_rng(0).random(50)
    for dtype in (np.float32, np.float64):
        model = GaussianModel(chain, h.astype(dtype), chain.degree.astype(float), [-1.0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                found = ConjugateGradient(tol=1e-9).marginals(model)
            except ValueError:
                continue
        assert not found.converged
        assert found.residual > 0.01


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["chain", "plane", "tree"])
def test_units_change_nothing(name, dtype):
    model = random_gaussian(name, 2, dtype=dtype, seed=4)
    exponents = (-500, -300, 0, 250) if dtype == np.float64 else (-60, -40, 0, 40)
    for algorithm in (ConjugateGradient(tol=1e-5), GaussianBP(), GaussianDirect()):
        plain = algorithm.marginals(model)
        # Powers of two do not change digits.
        for unit in exponents:
            other = algorithm.marginals(replace(model, h=np.ldexp(model.h, unit)))
            assert_array_equal(other.mean, np.ldexp(plain.mean, unit))
            assert (other.n_iter, other.residual, other.converged) == (plain.n_iter, plain.residual, True)
        scaled = {field: np.ldexp(getattr(model, field), exponents[0]) for field in ("h", "diagonal", "blocks")}
        assert_array_equal(algorithm.marginals(replace(model, **scaled)).mean, plain.mean)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(FORESTS)), st.integers(1, 3), st.integers(0, 99), st.sampled_from([1e-3, -1e-6, -0.5]))
def test_belief_propagation_on_forests_accepts_only_positive_definite_fields(name, n_values, seed, least):
    model = random_gaussian(name, n_values, seed=seed)
    step = least - np.linalg.eigvalsh(dense_precision(model))[0]
    model = replace(model, diagonal=model.diagonal + step * np.eye(n_values))
    if least < 0:
        with pytest.raises(ValueError, match="not positive definite"):
            GaussianBP().marginals(model)
        return
    found = GaussianBP().marginals(model)
    assert_allclose(found.covariance, dense_answer(model)[1], rtol=1e-7, atol=1e-7 / least)


@pytest.mark.parametrize("unit", [1.0, 0.1, 1e-20, 7e50])
def test_singular_fields_are_refused(unit):
    singular = [
        GaussianModel(lattice((2,)), [unit, 0.0], [unit, unit], [unit]),
        GaussianModel(lattice((2,)), unit * np.eye(2), unit * np.eye(2), unit * np.array([[[0.0, 1.0], [1.0, 0.0]]])),
        GaussianModel(lattice((3,)), unit * np.ones(3), unit * np.array([1.0, 2.0, 1.0]), [-unit]),
    ]
    for model in singular:
        for algorithm in (GaussianDirect(), GaussianBP()):
            with pytest.raises(ValueError, match="not positive definite"):
                algorithm.marginals(model)
        # Conjugate gradients solve a singular system if it has a solution.
        whole = np.column_stack([dense_precision(model), model.h.ravel()])
        is_solvable = np.linalg.matrix_rank(whole) < model.h.size
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                found = ConjugateGradient().marginals(model)
        except ValueError:
            assert not is_solvable
        else:
            assert found.converged == is_solvable


def test_log_partition_is_the_integral_whose_derivatives_the_moments_are():
    model = random_gaussian("cycle", 2, seed=10)
    exact = GaussianDirect().marginals(model)
    step = 1e-4

    def log_z(name, index, change):
        values = getattr(model, name).copy()
        values[index] += change
        return GaussianDirect().marginals(replace(model, **{name: values})).log_z

    def derivative(name, index):
        f = {k: log_z(name, index, k * step) for k in (-2, -1, 1, 2)}
        return (f[-2] - 8 * f[-1] + 8 * f[1] - f[2]) / (12 * step)

    assert derivative("h", (1, 0)) == pytest.approx(exact.mean[1, 0], rel=1e-6)
    second_moment = exact.covariance[2, 1, 1] + exact.mean[2, 1] ** 2
    assert derivative("diagonal", (2, 1, 1)) == pytest.approx(-second_moment / 2, rel=1e-6)


def reference_sweep(model, values, normals):
    """Redraw every node in order of its colour; return the new values and the conditional means."""
    values, means = values.copy(), np.zeros(model.h.shape)
    matrix = dense_precision(model).reshape(*model.h.shape, *model.h.shape)
    for s in model.graph.colouring.nodes:
        covariance = np.linalg.inv(matrix[s, :, s])
        others = np.einsum("atb,tb->a", matrix[s], values) - matrix[s, :, s] @ values[s]
        means[s] = covariance @ (model.h[s] - others)
        values[s] = means[s] + np.linalg.cholesky(covariance) @ normals[s]
    return values, means


@pytest.mark.parametrize("name", GRAPHS)
def test_one_sweep_is_the_reference(name):
    model = random_gaussian(name, 2, seed=11)
    # Without edges and with h = 0, a draw is the matrix root times normal numbers, which can therefore be recovered.
    n_nodes = model.graph.n_nodes
    alone = GaussianModel(lattice((n_nodes,), [[n_nodes + 1]]), np.zeros(model.h.shape), np.eye(2), [])
    options = {"n_sweeps": 1, "burn_in": 0, "random_state": 3}
    normals = GaussianGibbs(**options).marginals(alone).state[0]
    start = np.random.default_rng(0).normal(size=model.h.shape)
    values, means = reference_sweep(model, start, normals)
    found = GaussianGibbs(**options).marginals(model, init=start)
    assert_allclose(found.state[0], values, atol=1e-10)
    assert_allclose(found.mean, means, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_sweeps", [20, 20_000])
def test_sampling_notices_that_values_grow_without_bound(dtype, n_sweeps):
    model = GaussianModel(lattice((3,)), np.ones((3, 1), dtype=dtype), np.ones((3, 1, 1)), -np.ones((1, 1, 1)))
    sampler = GaussianGibbs(n_sweeps=n_sweeps, random_state=0)
    with pytest.raises(ValueError, match="not positive definite: the values of a chain have negative curvature"):
        sampler.marginals(model)
    with pytest.raises(ValueError, match="not positive definite"):
        sampler.sample(model, 2, random_state=0)


@pytest.mark.parametrize("name", ["cycle", "plane"])
def test_sampling_converges_at_the_monte_carlo_rate(name):
    model = random_gaussian(name, 2, seed=12)
    mean, covariance, _ = dense_answer(model)

    def errors(n_sweeps):
        found = [GaussianGibbs(n_sweeps, 10, random_state=k).marginals(model) for k in range(30)]
        return [
            np.sqrt(np.mean((np.stack([getattr(f, field) for f in found]) - exact) ** 2))
            for field, exact in (("mean", mean), ("covariance", covariance))
        ]

    few, many = errors(50), errors(800)
    assert few[0] / many[0] == pytest.approx(4, rel=0.2)
    assert few[1] / many[1] == pytest.approx(4, rel=0.35)


@pytest.mark.parametrize("algorithm", [GaussianGibbs(random_state=0, thin=5), GaussianDirect(random_state=0)])
def test_samples_have_the_covariance(algorithm):
    model = random_gaussian("grid", 2, seed=13)
    mean = dense_answer(model)[0]
    samples = algorithm.sample(model, 4000)
    centred = (samples - mean).reshape(len(samples), -1)
    exact = np.linalg.inv(dense_precision(model))
    deviation = np.sqrt(np.diag(exact))
    whitened = centred.T @ centred / len(samples) / np.outer(deviation, deviation)
    assert_allclose(whitened, exact / np.outer(deviation, deviation), atol=0.12)
    assert_allclose(
        samples.mean(axis=0) / deviation.reshape(mean.shape), mean / deviation.reshape(mean.shape), atol=0.1
    )


def test_probing_estimates_the_covariance_without_bias():
    model = random_gaussian("plane", 2, seed=14)
    exact = dense_answer(model)[1]

    def error(n_probes):
        found = [ConjugateGradient(n_probes=n_probes, random_state=k).marginals(model) for k in range(10)]
        return np.sqrt(np.mean((np.stack([f.covariance for f in found]) - exact) ** 2))

    assert error(4) / error(64) == pytest.approx(4, rel=0.3)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (ConjugateGradient(max_iter=0), "max_iter must be at least 1"),
        (ConjugateGradient(n_probes=-1), "n_probes must be at least 0"),
        (GaussianBP(damping=1.0), r"damping must lie in \[0, 1\)"),
        (GaussianBP(tol=-1.0), "tol must not be negative"),
        (GaussianGibbs(thin=0), "thin must be at least 1"),
    ],
)
def test_bad_options_are_named(algorithm, message):
    with pytest.raises(ValueError, match=message):
        algorithm.marginals(random_gaussian("plane"))


def test_bad_starts_are_named():
    model = random_gaussian("chain", 2)
    with pytest.raises(ValueError, match=re.escape("right_hand_side must have shape (6, 2) or (R, 6, 2), got (6,).")):
        ConjugateGradient().solve(model, np.ones(6))
    with pytest.raises(ValueError, match="init must hold messages of shapes"):
        GaussianBP().marginals(model, init=(np.zeros((1, 2)), np.zeros((1, 2, 2))))
    with pytest.raises(TypeError, match="model must be a GaussianModel"):
        ConjugateGradient().marginals(None)


def test_no_nodes():
    empty = GaussianModel(lattice((0,)), np.zeros((0, 1)), np.eye(1), [])
    for algorithm in ALGORITHMS:
        assert algorithm.marginals(empty).mean.shape == (0, 1)
