"""The contract of fast paths: each equals the general path on random data, for any number of threads."""

import threading
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import DRFClassifier, Example, M3NClassifier, Shards
from sklearn_crf.encoding import encode_X, encode_y, make_batches, tie_constant_edges
from sklearn_crf.inference import (
    AutoMap,
    GraphCut,
    LoopyBP,
    NamedInference,
    TightenBound,
    TreeInference,
    TRWMessagePassing,
)
from sklearn_crf.inference.messages._with_fallback import MarginalsWithFallback
from sklearn_crf.learning import Labeler
from sklearn_crf.learning._prediction_paths import PREDICTION_PATHS
from sklearn_crf.objectives import (
    AssignmentSets,
    ContrastiveSets,
    EmpiricalRisk,
    FastRisk,
    Likelihood,
    Piecewise,
    Pseudolikelihood,
    RelaxedLikelihood,
    SaddlePoint,
    SetsOfBatches,
    StructuredHinge,
    fast_paths,
)
from sklearn_crf.objectives.fast_paths import (
    FAST_PATHS,
    FOREST_DUALS,
    FORESTS,
    PLANES,
    applying,
    general_path_only,
    plane_oracle,
)
from sklearn_crf.objectives.likelihood import _pass_over_chains, _pass_over_nodes
from sklearn_crf.potentials import (
    FeaturePairs,
    LinearPotentials,
    SparsePotentials,
    convert_to_feature_columns,
    make_pairwise_form,
)

LAYOUTS = ("sparse chains", "chains", "lattices", "nodes")
OBJECTIVES = ("likelihood", "relaxation", "pseudolikelihood", "piecewise", "saddle point", "hinge", "sets")

# The data of each path.
DATA_OF = {
    "chains": {"layout": "sparse chains", "objective": "likelihood"},
    "graphs": {"layout": "lattices", "objective": "relaxation"},
    "nodes given neighbours": {"layout": "lattices", "objective": "pseudolikelihood"},
    "nodes without edges": {"layout": "nodes", "objective": "likelihood"},
    "minimum cuts of lattices": {"layout": "lattices", "objective": "hinge", "n_classes": 2, "form": "potts"},
    "nodes and sets": {"layout": "lattices", "objective": "sets"},
    "pooled pullback": {"layout": "sparse chains", "objective": "pseudolikelihood"},
}

# The data of each fast path for cutting planes.
PLANES_OF = {
    "planes of forests": {"layout": "chains", "objective": "hinge", "forbids": False},
    "duals of sparse forests": {"layout": "sparse chains", "objective": "hinge", "forbids": False, "seen": False},
    "minimum cuts of lattices": DATA_OF["minimum cuts of lattices"],
}

# The data of each fast path of prediction, and the inference with its decoding rules.
PREDICTIONS_OF = {
    "chains": ({"layout": "chains"}, TreeInference(), ("map", "mpm")),
    "graphs": ({"layout": "lattices"}, LoopyBP(max_iter=500), ("mpm",)),
    "minimum cuts": ({"layout": "lattices", "n_classes": 2, "form": "potts"}, GraphCut(), ("map",)),
}


class Problem(NamedTuple):
    """An objective and random examples for it."""

    objective: Any
    potentials: Any
    batches: list
    dtype: Any
    rng: np.random.Generator

    def risk(self, kind=EmpiricalRisk, n_jobs=1):
        return kind(self.objective, self.potentials, self.batches, n_jobs=n_jobs)

    def weights(self, size=1.0):
        """Return random weights; edges favour equal labels, so cuts are exact."""
        coef = size * self.rng.normal(size=self.potentials.n_coef)
        edge_coef = self.potentials.unpack(coef).edge_coef
        edge_coef[...] = np.abs(edge_coef)
        return coef

    def paths(self):
        return applying(FAST_PATHS, self.objective, self.potentials, self.batches)


def problem_of(seed, **options):
    """Return examples of some options; some of the options that are not given are drawn."""
    rng = np.random.default_rng(seed)
    drawn = {
        "layout": str(rng.choice(LAYOUTS)),
        "objective": str(rng.choice(OBJECTIVES)),
        "n_classes": int(rng.integers(2, 6)),
        "dtype": rng.choice([np.float32, np.float64]),
        "form": str(rng.choice(["potts", "symmetric", "full"])),
        "fit_intercept": rng.random() < 0.7,
        "weighted": rng.random() < 0.5,
        "node_weight": rng.random() < 0.3,
        "missing": rng.random() < 0.2,
        "forbids": rng.random() < 0.2,
        "seen": rng.random() < 0.3,
        "keeps_edges": True,
    }
    options = drawn | options
    by_cuts = options["layout"] == "lattices" and options["objective"] in ("saddle point", "hinge")
    if options["n_classes"] == 2 and (options["form"] == "symmetric" or by_cuts):
        options["form"] = "ising"  # with full tables, cuts apply to some data, whatever the signs of weights
    return _problem(rng, **options)


def _problem(
    rng, layout, objective, n_classes, dtype, form, fit_intercept, weighted, node_weight, missing, forbids, seen,
    keeps_edges,
):  # fmt: skip
    is_sparse, forbids = layout == "sparse chains", forbids and layout.endswith("chains")
    ones = rng.random() < 0.3
    X, y = zip(*(_example(rng, layout, n_classes, dtype, forbids, ones) for _ in range(9)), strict=True)
    encoded = encode_X(
        list(X),
        edge_features="difference" if layout == "lattices" and rng.random() < 0.7 else "constant",
        edge_types="offset" if layout == "lattices" and rng.random() < 0.7 else "tied",
        connectivity=int(rng.integers(1, 3)),
    )
    labels = encode_y(list(y), encoded, classes=np.arange(n_classes)).labels
    prepare = (lambda example: convert_to_feature_columns(example, 1)) if is_sparse else None
    prepare = prepare if keeps_edges else tie_constant_edges
    weight = rng.choice([0.5, 2.0], len(X)) if weighted else None
    joined = 80 if objective == "relaxation" and rng.random() < 0.5 else 1
    sizes = {"max_nodes": 12, "max_cyclic_nodes": joined}
    batches = make_batches(encoded, labels, weight, **sizes, prepare=prepare, keeps_edges=keeps_edges)
    if node_weight:
        batches = [replace(b, node_weight=rng.choice([0.0, 1.5], len(b.labels))) for b in batches]
    options = {"fit_intercept": bool(fit_intercept), "forbidden": np.eye(n_classes, dtype=bool) if forbids else None}
    form = make_pairwise_form(form, n_classes)
    if is_sparse:
        seen_pairs = FeaturePairs.seen(8, n_classes, ((b.example.node_features, b.labels) for b in batches))
        potentials = SparsePotentials(
            seen_pairs if seen else FeaturePairs.all(8, n_classes), 8, n_classes, form, **options
        )
    else:
        potentials = LinearPotentials(
            3, n_classes, form, n_edge_features=max(encoded.n_edge_features, 1),
            n_edge_types=max(encoded.n_edge_types, 1), **options,
        )  # fmt: skip
    made = _objective(rng, objective, potentials, batches)
    if missing and made.missing != "rejected":
        batches = [replace(b, labels=np.where(rng.random(len(b.labels)) < 0.3, -1, b.labels)) for b in batches]
    return Problem(made, potentials, batches, dtype, rng)


def _example(rng, layout, n_classes, dtype, forbids, ones):
    shape = (int(rng.integers(3, 5)), int(rng.integers(4, 7))) if layout == "lattices" else (int(rng.integers(1, 7)),)
    y = rng.integers(n_classes, size=shape).astype(np.int32)
    if forbids:
        y = (np.cumsum(rng.integers(1, n_classes, shape)) % n_classes).astype(np.int32)
    if layout == "sparse chains":
        features = sp.random(*shape, 8, 0.4, format="csr", random_state=rng, dtype=dtype)
        if ones:
            features.data[:] = 1
        features.data.flags.writeable = features.indices.flags.writeable = False
        return features, y
    features = rng.normal(size=(*shape, 3)).astype(dtype)
    features.flags.writeable = False
    return (Example(features, np.empty((0, 2))) if layout == "nodes" else features), y


def _objective(rng, name, potentials, batches):
    if name == "sets":
        return SetsOfBatches([_with_sets(rng, potentials, batch) for batch in batches])
    cost = rng.uniform(0.5, 2, 2 * (potentials.n_classes,)) * (1 - np.eye(potentials.n_classes))
    has_cycles = not all(batch.example.is_forest for batch in batches)
    best = GraphCut() if potentials.n_classes == 2 and has_cycles else AutoMap()
    return {
        "likelihood": Likelihood(LoopyBP()),
        "relaxation": RelaxedLikelihood(
            MarginalsWithFallback(TRWMessagePassing(rng.choice(["covering", "auto"])), TightenBound(max_iter=3))
        ),
        "pseudolikelihood": Pseudolikelihood(),
        "piecewise": Piecewise(),
        "saddle point": SaddlePoint(best),
        "hinge": StructuredHinge(best, cost),
    }[name]


def _with_sets(rng, potentials, batch):
    model = EmpiricalRisk(Pseudolikelihood(), potentials, [batch]).build_model_by_weight(
        0, np.zeros(potentials.n_coef)
    )[0]
    sets = AssignmentSets(model, batch.labels, batch.node_ptr)
    for member, (start, stop) in enumerate(zip(batch.node_ptr[:-1], batch.node_ptr[1:], strict=True)):
        others = rng.integers(potentials.n_classes, size=(3, stop - start))
        sets.add_set(model, [batch.labels[start:stop], *others], member=member, weight=rng.uniform(0.5, 2))
    return ContrastiveSets(sets, [Pseudolikelihood()])


@pytest.fixture(params=[False, True], ids=["usual pieces", "small pieces"])
def pieces(request, monkeypatch):
    """Cut and join data at smaller sizes, so that small examples have several parts."""
    if request.param:
        monkeypatch.setattr(_pass_over_chains, "_LEAST_OF_A_BLOCK", 1)
        monkeypatch.setattr(_pass_over_chains, "_NODES_FOR_A_CLASS", 0)
        monkeypatch.setattr(_pass_over_chains, "_MOST_KEPT", 60)
        monkeypatch.setattr(_pass_over_nodes, "_MOST_NODES", 7)
        monkeypatch.setattr(_pass_over_nodes, "_FEWEST_PRODUCTS", 1)
        monkeypatch.setattr(fast_paths, "_FEW_ASSIGNMENTS", 0)


def assert_alike(found, expected, dtype):
    """Compare two risks up to the rounding of a precision."""
    tol = 1e-10 if dtype == np.float64 else 2e-5
    assert found.value == pytest.approx(expected.value, rel=tol, abs=tol)
    assert_allclose(found.gradient, expected.gradient, rtol=tol, atol=tol * max(1.0, np.abs(expected.gradient).max()))
    assert found.n_errors == (None if expected.n_errors is None else pytest.approx(expected.n_errors))
    assert (found.converged, found.n_nonsubmodular) == (expected.converged, expected.n_nonsubmodular)
    assert found.gap == pytest.approx(expected.gap)


def values_of(path, problem, coef, members):
    """Return what a path finds with one thread, once three threads have found the same bits."""
    one, three = (path(risk).value_grad(risk, coef, members) for risk in (problem.risk(), problem.risk(n_jobs=3)))
    assert (one is None) == (three is None)
    if one is not None:
        assert one.value == three.value
        assert_array_equal(one.gradient, three.gradient)
    return one


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(40))
def test_paths_equal_the_general_way(seed, pieces):
    assert_contract(problem_of(seed))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("path", FAST_PATHS, ids=lambda path: path.name)
@pytest.mark.parametrize("seed", range(12))
def test_every_path_is_for_some_data(path, seed, pieces):
    problem = problem_of(seed, missing=False, **DATA_OF[path.name])
    assert path in problem.paths()
    assert values_of(path, problem, problem.weights(), None) is not None
    assert_contract(problem)


def assert_contract(problem):
    """Compare all applicable paths with the general path, on all batches and on some, unless they decline."""
    paths = problem.paths()
    for size in (1.0, 40.0) if paths else ():
        coef = problem.weights(size)
        for members in (None, [len(problem.batches) - 1, 0]):
            expected = problem.risk().value_grad(coef, members)
            for path in paths:
                found = values_of(path, problem, coef, members)
                if found is not None:
                    assert_alike(found, expected, problem.dtype)


@pytest.mark.parametrize("seed", range(24))
def test_chains_with_dense_features(seed, pieces):
    problem = problem_of(seed, layout="chains", objective="likelihood", missing=False)
    assert problem.paths() == [_pass_over_chains.PassOverChains]
    assert values_of(problem.paths()[0], problem, problem.weights(), None) is not None
    assert_contract(problem)


@pytest.mark.parametrize("by_dual", [False, True])
@pytest.mark.parametrize("name", PLANES_OF)
@pytest.mark.parametrize("seed", range(8))
def test_planes_equal_the_general_ones(seed, name, by_dual):
    problem = problem_of(seed, missing=False, **PLANES_OF[name])
    coef, scale = problem.weights(), np.full(problem.potentials.n_coef, 0.5)
    with general_path_only():
        general = plane_oracle(problem.risk(FastRisk), 0.3, scale)
    assert general.path == "general"
    quick = plane_oracle(problem.risk(FastRisk), 0.3, scale, by_dual=by_dual)
    assert quick.path == (name if by_dual or name != "duals of sparse forests" else "pooled pullback")
    x, tol = coef / scale, 1e-9 if problem.dtype == np.float64 else 1e-4
    found, expected = (all_planes(each, x[each.places]) for each in (quick, general))
    assert_allclose(found[0], expected[0][:, quick.places], rtol=tol, atol=tol)
    assert_allclose(found[1], expected[1], rtol=tol, atol=tol)
    value, slope = quick.value_grad(x[quick.places])
    assert np.max(value) == pytest.approx(general.value(x)[0], rel=tol)
    assert_allclose(slope, general.value_grad(x)[1][quick.places], rtol=tol, atol=10 * tol)


def all_planes(oracle, x):
    """Return slopes and offsets of the planes of all blocks."""
    parts = [oracle(block, x) for block in range(len(oracle.sizes))]
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("path", PREDICTION_PATHS, ids=lambda path: path.name)
@pytest.mark.parametrize("seed", range(8))
def test_predictions_equal_the_general_ones(seed, path):
    data, inference, rules = PREDICTIONS_OF[path.name]
    problem = problem_of(seed, objective="pseudolikelihood", forbids=False, keeps_edges=False, **data)
    batches = [replace(batch, labels=None) for batch in problem.batches]
    given = batches, problem.potentials, [problem.weights(0.5)]
    for rule in rules:
        one, three = (
            Labeler(NamedInference(inference, rule), problem.potentials.n_classes, n_jobs=n_jobs) for n_jobs in (1, 3)
        )
        assert path in applying(PREDICTION_PATHS, one, *given[:2], rule)
        assert any(part is not None for part in one._find_by_fast_path(*given, inference, rule))
        with general_path_only():
            expected = one.columns(*given)
        for own, same, general in zip(one.columns(*given), three.columns(*given), expected, strict=True):
            assert_array_equal(own, same)
            assert_array_equal(own, general)
        if rule == "mpm":
            with general_path_only():
                expected = one.marginals(*given)
            for own, same, general in zip(one.marginals(*given), three.marginals(*given), expected, strict=True):
                assert_array_equal(own, same)
                assert_allclose(own, general, atol=1e-3 if problem.dtype == np.float32 else 1e-5)


def test_all_paths_are_tested():
    assert [path.name for path in FAST_PATHS] == list(DATA_OF)
    assert [path.name for path in PREDICTION_PATHS] == list(PREDICTIONS_OF)
    assert [path.name for path in FORESTS + FOREST_DUALS + PLANES] == list(PLANES_OF)


@pytest.mark.parametrize("name", DATA_OF)
def test_the_best_path_that_does_not_decline_evaluates(name):
    problem = problem_of(0, missing=False, **DATA_OF[name])
    risk = problem.risk(FastRisk)
    assert risk.path == name
    coef = problem.weights()
    assert_array_equal(risk.value_grad(coef).gradient, values_of(problem.paths()[0], problem, coef, None).gradient)
    with general_path_only():
        general = problem.risk(FastRisk)
        seen_by_others = []
        other = threading.Thread(target=lambda: seen_by_others.append(problem.risk(FastRisk).path))
        other.start()
        other.join()
    assert general.path == "general"
    assert seen_by_others == [name]
    assert_array_equal(general.value_grad(coef).gradient, problem.risk().value_grad(coef).gradient)
    assert problem.risk(FastRisk).path == name


def test_the_general_way_evaluates_where_all_decline():
    problem = problem_of(0, dtype=np.float64, missing=False, forbids=False, **DATA_OF["chains"])
    coef = problem.weights(1e4)
    chains, pooled = (path(problem.risk()).value_grad(problem.risk(), coef, None) for path in problem.paths())
    assert chains is None
    assert problem.risk(FastRisk).value_grad(coef).value == pooled.value


def test_subclasses_keep_their_own_loss():
    class Silent(Pseudolikelihood):
        def loss_statistics(self, *arguments, **options):
            return super().loss_statistics(*arguments, **options)._replace(terms=None)

    problem = problem_of(0, **DATA_OF["nodes given neighbours"])
    assert problem._replace(objective=Silent()).risk(FastRisk).path == "general"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fitted_classifiers_name_their_path():
    y = np.zeros((3, 7, 6), dtype=int)
    y[:, 2:5, 2:4] = 1
    X = y[..., np.newaxis] + np.random.default_rng(0).normal(size=(*y.shape, 2))
    fast = DRFClassifier(learning="pl").fit(X, y)
    assert fast.training_path_ == "nodes given neighbours"
    assert M3NClassifier(max_iter=2, tol=10.0).fit(X, y).training_path_ == "minimum cuts of lattices"
    with general_path_only():
        general = DRFClassifier(learning="pl").fit(X, y)
    assert general.training_path_ == "general"
    assert_allclose(fast.coef_, general.coef_, rtol=1e-3)
    half = [(X[:1], y[:1]), (X[1:], y[1:])]
    assert DRFClassifier(learning="pl").fit(Shards.from_arrays(half)).training_path_ == "nodes given neighbours"
