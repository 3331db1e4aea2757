"""Random models of all kinds against enumeration: exact results are exact, bounds are bounds, all is finite."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from factor_strategies import CONSTRAINTS, random_factor_graph
from fuzzing import seeds, time_limit
from model_strategies import STRUCTURES, TABLE_KINDS, TOPOLOGIES, random_model

import sklearn_crf.inference
from sklearn_crf.inference import BruteForce, Inference, JunctionTree
from sklearn_crf.models import FactorGraph, PairwiseModel, factor_graph_of, score

ALGORITHMS = [
    cls
    for cls in (getattr(sklearn_crf.inference, name) for name in sklearn_crf.inference.__all__)
    if isinstance(cls, type) and issubclass(cls, Inference) and cls not in (Inference, BruteForce)
]
# Tolerance for sums of scores, relative to the sum of the largest score of every factor.
ROUNDING = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}

# Words in errors which say that an algorithm does not support a model, or found that it cannot solve it.
REFUSALS = (
    "cycle",
    "suit",
    "submodular",
    "two states",
    "forbid",
    "infeasible",
    "finite",
    "needs",
    "takes",
    "-inf",
    "labelings",
)


def some_pairwise_model(rng):
    kind = rng.choice(TABLE_KINDS)
    forbidden = rng.choice([0.0, 0.0, 0.3])
    return random_model(
        str(rng.choice([name for name in TOPOLOGIES])),
        int(rng.integers(1, 4)),
        str(kind),
        structure=str(rng.choice(STRUCTURES)),
        dtype=rng.choice([np.float64, np.float32]),
        scale=10.0 ** rng.uniform(-3, 3),
        forbidden=forbidden,
        vary_states=bool(rng.integers(2)) and not forbidden,
        seed=rng,
    )


def some_factor_graph(rng):
    if rng.random() < 0.3:
        return factor_graph_of(some_pairwise_model(rng))
    constraint = CONSTRAINTS[rng.integers(3)] if rng.random() < 0.3 else None
    model = random_factor_graph(int(rng.integers(2, 6)), int(rng.integers(0, 8)), constraint=constraint, seed=rng)
    scale = 10.0 ** rng.uniform(-3, 3)
    return replace(model, log_table=scale * model.log_table, table_default=scale * model.table_default)


def rounding_of(model):
    graph = model if isinstance(model, FactorGraph) else factor_graph_of(model)
    tables = [graph.dense_table(factor) for factor in range(graph.n_factors)]
    total = sum(float(np.abs(table).max(where=np.isfinite(table), initial=0.0)) for table in tables)
    return ROUNDING[np.dtype(model.dtype)] * max(1.0, total)


def with_fewer_iterations(algorithm, rng):
    """Lower the number of iterations at random; bounds must hold after any number."""
    if "max_iter" in algorithm.get_params() and rng.random() < 0.5:
        algorithm.set_params(max_iter=int(rng.integers(1, 5)))
    return algorithm


def check_map(model, found, best):
    tol = rounding_of(model)
    assert found.labels.min(initial=0) >= 0
    assert found.labels.max(initial=0) < model.n_columns
    own = score(model, found.labels)
    assert own == found.score or abs(own - found.score) <= tol
    assert own <= best + tol
    assert found.bound >= best - tol
    assert not found.certified or own >= best - tol


def check_marginals(model, found, exact):
    tol = rounding_of(model)
    assert np.isfinite(found.unary).all()
    assert np.allclose(found.unary.sum(axis=1), 1, atol=1e-3)
    if found.log_z is None:
        return
    assert np.isfinite(found.log_z)
    if found.bound == "exact":
        assert abs(found.log_z - exact.log_z) <= tol
        assert np.allclose(found.unary, exact.unary, atol=1e-6 + 10 * tol)
    elif found.bound == "upper":
        assert found.log_z >= exact.log_z - tol
    elif found.bound == "lower":
        assert found.log_z <= exact.log_z + tol


@pytest.mark.parametrize(
    ("kind", "make", "of"),
    [("pairwise", some_pairwise_model, PairwiseModel), ("factors", some_factor_graph, FactorGraph)],
)
def test_against_enumeration(kind, make, of):
    able = [cls for cls in ALGORITHMS if of in cls.takes]
    for seed in seeds(f"models: {kind}"):
        rng = np.random.default_rng(seed)
        model = make(rng)
        cls = able[rng.integers(len(able))]
        task = str(rng.choice(sorted(cls.tasks & {"map", "marginals"}) or ["map"]))
        if task not in cls.tasks:
            continue
        try:
            with time_limit(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exact = BruteForce().marginals(model)
                found = getattr(with_fewer_iterations(cls(), rng), task)(model)
                if task == "map":
                    check_map(model, found, BruteForce().map(model).score)
                else:
                    check_marginals(model, found, exact)
        except ValueError as error:
            if not any(word in str(error) for word in REFUSALS) or isinstance(cls, JunctionTree):
                raise AssertionError(f"{kind} model of seed {seed}, {cls.__name__}.{task}") from error
        except Exception as error:
            raise AssertionError(f"{kind} model of seed {seed}, {cls.__name__}.{task}") from error
