"""The contract of every inference algorithm, checked against enumeration on small models.

Algorithms are found by what ``sklearn_crf.inference`` exports; a new one is covered as soon as it is exported.
"""

import warnings
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from model_strategies import FORESTS, TABLE_KINDS, TOPOLOGIES, random_model, read_only, relabelled, renumbered
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import sklearn_crf.inference
from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import BruteForce, Inference, JunctionTree
from sklearn_crf.models import PairwiseModel, score

EXPORTED = [getattr(sklearn_crf.inference, name) for name in sklearn_crf.inference.__all__]
ALGORITHMS = [
    cls
    for cls in EXPORTED
    if isinstance(cls, type) and issubclass(cls, Inference) and cls not in (Inference, BruteForce)
    # Gaussian fields have no labels: tests/test_gaussian_inference.py has their contract.
    if PairwiseModel in cls.takes
]

# Cut-based algorithms may reject models, but must accept these. The others accept all models.
CUTS = {"GraphCut", "AlphaExpansion", "AlphaBetaSwap"}

# Algorithms over whole trees need seconds to converge up to rounding, so models with cycles have two states and one
# table here. Results depend on the numbering of nodes, because the choice of trees does.
OVER_TREES = {"TightenBound"}

# Algorithms whose marginals are only locally consistent, which is possible even if no labeling is allowed.
LOCAL = {"EdgeEntropyBP", "LoopyBP", "NormProductBP", "TRWMessagePassing", "TightenBound"}

PLAIN, FORBIDDEN, N_STATES = {}, {"forbidden": 0.25}, {"vary_states": True}
TOLERANCE = {np.float64: 1e-9, np.float32: 2e-4}


def configured(cls, max_iter=3000):
    """Return an algorithm that iterates until nothing changes, with a fixed seed."""
    algorithm = cls()
    wanted = {"max_iter": max_iter, "max_work": 1e6, "tol": 1e-13, "damping": 0.2, "random_state": 0}
    params = algorithm.get_params()
    if cls.__name__ in OVER_TREES:
        wanted["tol"] = 1e-11
    return algorithm.set_params(**{name: value for name, value in wanted.items() if name in params})


def able(task):
    """Return algorithms of a task, for parametrize."""
    return [pytest.param(cls, id=cls.__name__) for cls in ALGORITHMS if task in cls.tasks]


def is_exact(algorithm, graph):
    """Return whether an algorithm is exact on any model of a graph."""
    return algorithm.exact_on == "any" or (algorithm.exact_on == "forest" and graph.is_forest)


def must_take(algorithm, model, structure="full"):
    """Return whether rejecting a model would break the algorithm's contract."""
    name = type(algorithm).__name__
    if name in ("TreeInference", "TreeBestLabelings"):
        return model.graph.is_forest
    if name == "JunctionTree":
        return model.graph.is_forest or model.graph.n_nodes < 50
    if name == "CycleRelaxation":
        return model.n_columns <= 2
    if name in CUTS:
        return structure == "submodular" and (name != "GraphCut" or model.n_columns == 2)
    return True


def run(algorithm, task, model, structure="full", **kwargs):
    """Return the result of a task, or None for a model that the algorithm is allowed to reject and does."""
    over_trees = type(algorithm).__name__ in OVER_TREES and not model.graph.is_forest
    if over_trees and (model.n_columns > 2 or len(model.tables) > 1):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return getattr(algorithm, task)(model, **kwargs)
        except ValueError:
            if must_take(algorithm, model, structure):
                raise
            return None


def states_of(topology):
    """Return the numbers of states to try: up to five, fewer if enumeration takes long."""
    return {"grid": (2, 3), "tree": (1, 2, 3), "chain": (2, 4), "cycle": (2, 5)}.get(topology, (1, 3))


@cache
def case(topology, n_columns, kind, structure="full", dtype=np.float64, scale=1.0, extra=()):
    """Return a model with its exact marginals and best labeling."""
    model = random_model(
        topology, n_columns, kind, structure=structure, dtype=dtype, scale=scale, seed=n_columns, **dict(extra)
    )
    return model, BruteForce(2**19).marginals(model), BruteForce(2**19).map(model)


def cases(topology, dtypes=(np.float64,), structures=("full", "potts"), extras=(PLAIN, FORBIDDEN, N_STATES), **kwargs):
    """Yield models of a topology with every option."""
    for n_columns, kind, structure, dtype, extra in product(
        states_of(topology), TABLE_KINDS, structures, dtypes, extras
    ):
        yield case(topology, n_columns, kind, structure, dtype, extra=tuple(extra.items()), **kwargs)


EXACT = [
    pytest.param(cls, topology, id=f"{cls.__name__}-{topology}")
    for cls in ALGORITHMS
    for topology in TOPOLOGIES
    if cls.exact_on == "any" or (cls.exact_on == "forest" and topology in FORESTS)
]


@pytest.mark.parametrize(("cls", "topology"), [case for case in EXACT if "marginals" in case.values[0].tasks])
def test_exact_marginals(cls, topology):
    algorithm = configured(cls)
    for model, exact, _ in cases(topology, dtypes=(np.float64, np.float32)):
        tol = TOLERANCE[model.dtype.type]
        found = run(algorithm, "marginals", model)
        assert found.bound == "exact"
        assert found.unary.dtype == model.dtype
        assert found.tables.dtype == np.float64
        assert_allclose(found.unary, exact.unary, atol=tol)
        assert_allclose(found.tables, exact.tables, atol=tol * 10)
        assert_allclose(found.log_z, exact.log_z, atol=tol, rtol=tol)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("cls", able("map"))
def test_labels_and_bounds(cls, topology):
    algorithm = configured(cls, max_iter=200)
    for structure in ("full", "potts", "submodular"):
        for model, _, best in cases(topology, (np.float64, np.float32), (structure,)):
            tol = TOLERANCE[model.dtype.type] * (1 + abs(best.score))
            found = run(algorithm, "map", model, structure)
            if found is None:
                continue
            assert found.labels.dtype == np.int32
            assert found.labels.shape == (model.graph.n_nodes,)
            assert [type(value) for value in (found.score, found.bound, found.converged)] == [float, float, bool]
            assert found.score == pytest.approx(score(model, found.labels), abs=tol)
            assert found.score <= best.score + tol
            assert found.bound >= best.score - tol
            if is_exact(algorithm, model.graph):
                assert found.score >= best.score - tol
            if algorithm.exact_on == "submodular" and structure == "submodular" and model.n_columns == 2:
                assert found.score >= best.score - tol


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("cls", able("marginals"))
def test_marginals_are_distributions_and_bounds_hold(cls, topology):
    algorithm = configured(cls)
    for model, exact, _ in cases(topology, (np.float64, np.float32)):
        tol = TOLERANCE[model.dtype.type]
        found = run(algorithm, "marginals", model)
        if found is None:
            continue
        assert np.all(found.unary >= 0)
        assert_allclose(found.unary.sum(axis=1), 1, atol=tol)
        assert np.all(found.unary[np.isneginf(model.unary)] == 0)
        weight = np.ones((model.graph.n_edges, 1)) if model.edge_weight is None else model.edge_weight
        by_type = np.zeros(model.tables.shape[:2])
        np.add.at(by_type, model.edge_type, weight)
        assert_allclose(found.tables.sum(axis=(2, 3)), by_type, atol=tol * 10)
        if found.log_z is None:
            continue
        assert found.log_z_terms.dtype == np.float64
        assert found.log_z == pytest.approx(found.log_z_terms.sum(), abs=1e-9)
        if found.bound == "upper":
            assert found.log_z >= exact.log_z - tol * (1 + abs(exact.log_z))
        if found.bound == "lower":
            assert found.log_z <= exact.log_z + tol * (1 + abs(exact.log_z))


@cache
def larger_cases():
    """Return models of two or three states that are too large for enumeration, with the junction tree's results."""
    found = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        pairs = np.stack(np.triu_indices(14, 1), axis=1)
        graph = lattice((6, 7)) if seed % 2 else Graph(14, np.sort(rng.permutation(pairs)[:24], axis=1))
        kind, scale = TABLE_KINDS[seed % 4], (0.5, 1.0, 3.0)[seed % 3]
        forbidden = 0.2 * (seed % 4 == 1)
        model = random_model(graph, 2 + seed // 6, kind, scale=scale, forbidden=forbidden, seed=seed)
        found.append((model, JunctionTree().marginals(model).log_z, JunctionTree().map(model).score))
    return found


@pytest.mark.parametrize("max_iter", [1, 300])
@pytest.mark.parametrize("cls", [pytest.param(cls, id=cls.__name__) for cls in ALGORITHMS])
def test_bounds_beyond_enumeration(cls, max_iter):
    algorithm = configured(cls, max_iter)
    for model, log_z, best in larger_cases():
        if "marginals" in cls.tasks and (found := run(algorithm, "marginals", model)) is not None:
            tol = 1e-9 * (1 + abs(log_z))
            assert found.bound not in ("upper", "exact") or found.log_z >= log_z - tol
            assert found.bound not in ("lower", "exact") or found.log_z <= log_z + tol
        if "map" in cls.tasks and (found := run(algorithm, "map", model)) is not None:
            tol = 1e-9 * (1 + abs(best))
            assert -np.inf < found.score <= best + tol
            assert found.bound >= best - tol
            assert not found.certified or found.score >= best - tol


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("cls", able("marginals"))
def test_marginals_are_derivatives_of_log_z(cls, topology):
    algorithm = configured(cls)
    rng = np.random.default_rng(0)
    for model, _, _ in cases(topology, scale=0.3):
        found = run(algorithm, "marginals", model)
        # With mean field, forbidden pairs can lead to a bound of -inf, which has no derivative.
        if found is None or found.log_z is None or np.isneginf(found.log_z):
            continue
        direction = [np.where(np.isfinite(x), rng.normal(size=x.shape), 0) for x in (model.unary, model.tables)]

        def log_z(step, model=model, direction=direction):
            moved = replace(model, unary=model.unary + step * direction[0], tables=model.tables + step * direction[1])
            return run(algorithm, "marginals", moved).log_z

        h = 5e-4
        numerical = (8 * (log_z(h) - log_z(-h)) - (log_z(2 * h) - log_z(-2 * h))) / (12 * h)
        analytic = np.sum(found.unary * direction[0]) + np.sum(found.tables * direction[1])
        assert numerical == pytest.approx(analytic, abs=1e-8)


@pytest.mark.parametrize("cls", able("marginals"))
def test_log_z_terms_sum_to_each_component(cls):
    algorithm = configured(cls)
    for topology in ("disconnected", "disconnected_forest", "no_edges"):
        for model, exact, _ in cases(topology, extras=(PLAIN,), scale=0.5):
            found = run(algorithm, "marginals", model)
            if found is None or found.log_z is None:
                continue
            component = model.graph.component
            per_component = np.bincount(component, weights=found.log_z_terms)
            for c in range(model.graph.n_components):
                # Nodes outside the component have a fixed state; no edges leave the component.
                alone = _component_alone(model, component == c)
                assert run(algorithm, "marginals", alone).log_z == pytest.approx(per_component[c], abs=1e-9)
            if is_exact(algorithm, model.graph):
                assert_allclose(per_component, np.bincount(component, weights=exact.log_z_terms), atol=1e-9)


def _component_alone(model, inside):
    """Return the model with one free state and no edge scores outside a component."""
    unary = np.where(inside[:, None], model.unary, np.where(np.arange(model.n_columns) == 0, 0, -np.inf))
    weight = np.ones((model.graph.n_edges, 1)) if model.edge_weight is None else model.edge_weight
    weight = np.where(inside[model.graph.edges[:, :1]], weight, 0)
    return replace(model, unary=unary, edge_weight=weight)


@pytest.mark.parametrize("task", ["map", "marginals"])
@pytest.mark.parametrize("cls", [pytest.param(cls, id=cls.__name__) for cls in ALGORITHMS])
def test_any_number_of_threads_gives_the_same_bits(cls, task):
    algorithm = configured(cls, max_iter=20)
    if task not in algorithm.tasks:
        pytest.skip(f"{cls.__name__} has no {task}")
    # These algorithms are slow, and use threads only in parts, if at all: small models suffice.
    sides = (8, 200) if cls.__name__ in ("LinearProgram", "ClusterTightening", "CycleRelaxation") else (40, 2000)
    for graph, structure in product((lattice((sides[0], sides[0])), lattice((sides[1],))), ("full", "submodular")):
        model = random_model(graph, 2, "weighted", structure=structure, seed=1)
        if not must_take(algorithm, model, structure):
            continue
        one, two = (run(clone(algorithm), task, model, structure, n_threads=n) for n in (1, 2))
        if one is None:
            continue
        for name in ("unary", "tables", "log_z_terms", "labels"):
            if getattr(one, name, None) is not None:
                assert_array_equal(getattr(one, name), getattr(two, name))


@pytest.mark.parametrize("task", ["map", "marginals"])
@pytest.mark.parametrize("cls", [pytest.param(cls, id=cls.__name__) for cls in ALGORITHMS])
def test_warm_start_read_only_and_untouched_input(cls, task, tmp_path):
    algorithm = configured(cls)
    if task not in algorithm.tasks:
        pytest.skip(f"{cls.__name__} has no {task}")
    for topology, kind, structure in product(("chain", "grid"), TABLE_KINDS, ("full", "submodular")):
        model, _, _ = case(topology, 2, kind, structure, scale=0.5)
        before = model.unary.copy(), model.tables.copy()
        first = run(algorithm, task, model, structure)
        if first is None:
            continue
        field = "labels" if task == "map" else "unary"
        frozen = read_only(model, tmp_path)
        assert_array_equal(getattr(run(clone(algorithm), task, frozen, structure), field), getattr(first, field))
        assert_array_equal(model.unary, before[0])
        assert_array_equal(model.tables, before[1])
        if first.state is None or not first.converged:
            continue
        again = run(algorithm, task, model, structure, init=first.state)
        if task == "map":
            assert again.score >= first.score - 1e-9
        elif first.log_z is not None:
            assert_allclose(again.unary, first.unary, atol=1e-9)
            assert again.log_z == pytest.approx(first.log_z, abs=1e-9)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("cls", able("marginals"))
def test_numbering_of_nodes_and_states_does_not_matter(cls, topology):
    algorithm = configured(cls)
    rng = np.random.default_rng(1)
    for model, _, _ in cases(topology, extras=(PLAIN,), scale=0.3):
        found = run(algorithm, "marginals", model)
        if found is None or found.log_z is None or not found.converged:
            continue
        if cls.__name__ in OVER_TREES and not model.graph.is_forest:
            continue
        order, states = rng.permutation(model.graph.n_nodes), rng.permutation(model.n_columns)
        turned = run(algorithm, "marginals", renumbered(model, order))
        assert_allclose(turned.unary, found.unary[order], atol=1e-9)
        assert turned.log_z == pytest.approx(found.log_z, abs=1e-9)
        renamed = run(algorithm, "marginals", relabelled(model, states))
        assert_allclose(renamed.unary, found.unary[:, states], atol=1e-9)
        assert_allclose(renamed.tables, found.tables[:, :, states][..., states], atol=1e-8)


@pytest.mark.parametrize("task", ["map", "marginals", "sample"])
@pytest.mark.parametrize("cls", [pytest.param(cls, id=cls.__name__) for cls in ALGORITHMS])
def test_models_without_an_allowed_labeling(cls, task):
    algorithm = configured(cls)
    if task not in algorithm.tasks:
        pytest.skip(f"{cls.__name__} has no {task}")
    model, _, _ = case("chain", 2, "tied", "submodular")
    no_state = np.array(model.unary)
    no_state[2] = -np.inf
    with pytest.raises(ValueError, match="node 2"):
        getattr(algorithm, task)(replace(model, unary=no_state))
    # Neighbours must be equal, but the ends must differ.
    alike = np.where(np.eye(2), 0.0, -np.inf)[None]
    unary = np.zeros((6, 2))
    unary[0, 0] = unary[5, 1] = -np.inf
    conflict = replace(model, unary=unary, tables=alike)
    around = PairwiseModel(lattice((2, 3)), unary, alike)
    for infeasible in (conflict, around) if must_take(algorithm, around, "submodular") else (conflict,):
        with pytest.raises(ValueError, match="infeasible"):
            getattr(algorithm, task)(infeasible)
    # An odd cycle whose neighbours must differ, with two states: no single node and no tree shows that it is
    # infeasible.
    odd = PairwiseModel(Graph(3, [[0, 1], [1, 2], [0, 2]]), np.zeros((3, 2)), np.where(np.eye(2), -np.inf, 0.0)[None])
    if task == "marginals" and cls.__name__ in LOCAL:
        found = getattr(algorithm, task)(odd)
        assert not np.isnan(found.unary).any()
        assert found.bound != "exact"
    else:
        refusal = pytest.raises(ValueError, match=r"infeasible|needs a graph without cycles|not submodular")
        with refusal, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(algorithm, task)(odd)


@pytest.mark.parametrize("task", ["map", "marginals"])
@pytest.mark.parametrize("cls", [pytest.param(cls, id=cls.__name__) for cls in ALGORITHMS])
def test_stopping_early_is_a_warning_with_a_residual(cls, task):
    if task not in cls.tasks or "max_iter" not in cls().get_params():
        pytest.skip(f"{cls.__name__} has no {task} or no iterations")
    if cls.__name__.startswith("Auto") or cls.__name__ == "CycleRelaxation":
        pytest.skip("an automatic choice is exact here, and the relaxation over cycles takes two states")
    structure = "submodular" if cls.__name__ in CUTS else "full"
    model = random_model("grid", 3, "untied", structure=structure, scale=3.0, seed=1)
    residual = r" .* (by|of|changed) \d"
    # The decrease of a bound is known from the second iteration on. Cuts and ICM converge in two iterations.
    endings = {1: rf"({residual}|.* which is too few to tell whether the bound is still decreasing)"}
    if cls.__name__ not in CUTS | {"ICM"}:
        endings[2] = residual
    for max_iter, ending in endings.items():
        words = rf"{cls.__name__} stopped after .*max_iter={max_iter}{ending}"
        with pytest.warns(ConvergenceWarning, match=words) as caught:
            found = getattr(configured(cls, max_iter=max_iter), task)(model)
        assert not found.converged
        assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("cls", able("sample"))
def test_samples_have_the_frequencies_of_the_marginals(cls):
    for topology, kind in product(FORESTS, TABLE_KINDS):
        model, exact, _ = case(topology, 3, kind, extra=tuple(FORBIDDEN.items()))
        algorithm = configured(cls)
        if not is_exact(algorithm, model.graph):
            continue
        drawn = algorithm.sample(model, 4000, random_state=0)
        assert drawn.shape == (4000, model.graph.n_nodes)
        assert drawn.dtype == np.int32
        frequency = (drawn[:, :, None] == np.arange(3)).mean(axis=0)
        assert np.all(frequency[np.isneginf(model.unary)] == 0)
        # Five standard deviations of a frequency.
        assert_allclose(frequency, exact.unary, atol=5 * 0.5 / np.sqrt(4000))
        assert_array_equal(drawn, algorithm.sample(model, 4000, random_state=0))


@pytest.mark.parametrize("shape", [(5,), (3, 3)], ids=["chain", "grid"])
@pytest.mark.parametrize(("task", "cls"), [(task, cls) for task in ("map", "marginals") for cls in ALGORITHMS])
def test_no_start_of_another_kind_is_ignored(task, cls, shape):
    graph = lattice(shape)
    # Tables that every algorithm takes.
    model = PairwiseModel(graph, np.random.default_rng(0).normal(size=(graph.n_nodes, 2)), [np.eye(2)])
    algorithm = cls()
    try:
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            state = getattr(algorithm, task)(model).state
    except ValueError:
        pytest.skip("the model does not suit the algorithm, or the task")
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        getattr(algorithm, task)(model, init=state)
    for init in ("rubbish", 3.5, object()):
        with pytest.raises((ValueError, TypeError), match=r"^init "):
            getattr(algorithm, task)(model, init=init)


@pytest.mark.parametrize("n_threads", [0, -1, 1.5, "a", 2**40])
@pytest.mark.parametrize("task", ["map", "marginals", "node_marginals"])
def test_a_number_of_threads_is_named_where_none_is_needed(task, n_threads):
    model = PairwiseModel(lattice((3,)), np.zeros((3, 2)), [np.eye(2)])
    with pytest.raises(ValueError, match=r"^n_threads must"):
        getattr(JunctionTree(), task)(model, n_threads=n_threads)


@pytest.mark.parametrize(
    "cls", [cls for cls in ALGORITHMS if {"map", "marginals"} & cls.tasks and cls.__name__ not in CUTS]
)
def test_nodes_of_a_conflict_are_named(cls):
    """Nodes 1 and 2 have one state each, and this pair of states is forbidden."""
    unary = np.zeros((4, 2))
    unary[1:3, 1] = -np.inf
    model = PairwiseModel(lattice((4,)), unary, [np.where(np.eye(2) > 0, -np.inf, 0.0)])
    for task in ("map", "marginals", "node_marginals"):
        if task.split("_")[-1] in cls.tasks:
            with pytest.raises(ValueError, match="every labeling of nodes 1, 2 is forbidden"):
                getattr(cls(), task)(model)
