"""The contract of every algorithm for factor graphs, checked against enumeration.

Algorithms are found by what ``sklearn_crf.inference`` exports, as in ``test_inference_contract.py``.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from factor_strategies import CONSTRAINTS, random_factor_graph
from numpy.testing import assert_allclose, assert_array_equal
from test_inference_contract import ALGORITHMS, configured

from sklearn_crf.inference import TRWS, BruteForce, CycleRelaxation
from sklearn_crf.models import FactorGraph, at_most_one, score


def able(task):
    found = [cls for cls in ALGORITHMS if FactorGraph in cls.takes and task in cls.tasks]
    return [pytest.param(cls, id=cls.__name__) for cls in found]


def cases():
    """Yield models with tables of every kind, constraints, forbidden states or components, and exact answers."""
    for seed in range(16):
        model = random_factor_graph(
            n_nodes=1 + seed % 6,
            n_factors=seed % 9,
            max_arity=4,
            max_states=1 + seed % 3,
            forbidden=0.2 * (seed % 2),
            constraint=(None, None, *CONSTRAINTS)[seed % 5],
            seed=seed,
        )
        yield model, BruteForce().marginals(model), BruteForce().map(model)


def run(algorithm, task, model, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(algorithm, task)(model, **kwargs)


@pytest.mark.parametrize("cls", able("marginals"))
def test_marginals_and_bounds(cls):
    algorithm = configured(cls, max_iter=300)
    for model, exact, _ in cases():
        found = run(algorithm, "marginals", model)
        assert found.unary.shape == exact.unary.shape
        assert_allclose(found.unary.sum(axis=1), 1, atol=1e-9)
        assert np.all(found.unary >= 0)
        assert np.all(found.statistics.log_table[np.isneginf(model.log_table)] == 0)
        assert found.statistics.log_table.sum() + found.statistics.table_default.sum() == pytest.approx(model.n_factors)
        assert found.log_z == pytest.approx(found.log_z_terms.sum(), abs=1e-9)
        tol = 1e-9 * (1 + abs(exact.log_z))
        if found.bound == "exact":
            assert found.log_z == pytest.approx(exact.log_z, abs=tol)
            assert_allclose(found.unary, exact.unary, atol=1e-9)
            assert_allclose(found.statistics.log_table, exact.statistics.log_table, atol=1e-9)
        if found.bound == "upper":
            assert found.log_z >= exact.log_z - tol


def accepts(cls, model):
    """Return whether an algorithm supports a factor graph of this number of states."""
    return cls is not CycleRelaxation or model.n_columns <= 2


@pytest.mark.parametrize("cls", able("map"))
def test_labels_and_bounds(cls):
    algorithm = configured(cls, max_iter=300)
    for model, _, best in cases():
        if not accepts(cls, model):
            continue
        found = run(algorithm, "map", model)
        tol = 1e-7 * (1 + abs(best.score))
        assert found.labels.dtype == np.int32
        assert np.all((found.labels >= 0) & (found.labels < model.n_states))
        assert found.score == pytest.approx(score(model, found.labels), abs=tol)
        assert found.score <= best.score + tol
        assert found.bound >= best.score - tol


@pytest.mark.parametrize("task", ["map", "marginals"])
def test_threads_precision_read_only_and_warm_start(task, tmp_path):
    for number, (model, _, _) in enumerate(cases()):
        np.save(tmp_path / f"{number}.npy", model.log_table)
        frozen = replace(model, log_table=np.load(tmp_path / f"{number}.npy", mmap_mode="r"))
        single = replace(
            model, log_table=model.log_table.astype(np.float32), table_default=model.table_default.astype(np.float32)
        )
        for cls in [param.values[0] for param in able(task)]:
            algorithm = configured(cls, max_iter=300)
            if not accepts(cls, model):
                continue
            first = run(algorithm, task, model)
            same = run(algorithm, task, frozen, n_threads=2)
            field = "labels" if task == "map" else "unary"
            assert_array_equal(getattr(first, field), getattr(same, field))
            in_single = run(algorithm, task, single)
            if task == "marginals":
                assert in_single.unary.dtype == np.float32
                if first.converged:
                    assert_allclose(in_single.log_z, first.log_z, atol=1e-4, rtol=1e-4)
            if first.state is not None and first.converged:
                again = run(algorithm, task, model, init=first.state)
                if task == "marginals":
                    assert_allclose(again.log_z, first.log_z, atol=1e-7)
                else:
                    assert again.bound >= again.score - 1e-9


@pytest.mark.parametrize("task", ["map", "marginals"])
def test_models_without_an_allowed_labeling(task):
    # Two nodes must be 1, but at most one may be.
    must = np.array([-np.inf, 0.0])
    model = FactorGraph.from_factors([2] * 5, [((0,), must), ((3,), must), (range(5), at_most_one())])
    for cls in [param.values[0] for param in able(task)]:
        with pytest.raises(ValueError, match="infeasible"):
            getattr(configured(cls, max_iter=300), task)(model)
    if task == "map":
        # Half of each state of three nodes that must differ from each other is a solution of the relaxation.
        differ = np.where(np.eye(2), -np.inf, 0.0)
        model = FactorGraph.from_factors([2] * 3, [((0, 1), differ), ((1, 2), differ), ((0, 2), differ)])
        for cls in [param.values[0] for param in able(task)]:
            with pytest.raises(ValueError, match="infeasible"):
                run(configured(cls, max_iter=300), task, model)


def test_others_say_which_do():
    model = random_factor_graph(seed=0)
    for cls in ALGORITHMS:
        for task in sorted(cls.tasks - {"sample"}):
            if FactorGraph not in cls.takes:
                with pytest.raises(
                    TypeError, match=f"PairwiseModel for {cls.__name__}, got FactorGraph. .*JunctionTree"
                ):
                    getattr(cls(), task)(model)
    with pytest.raises(TypeError, match="for task 'map': AD3, AutoMap, BruteForce, ClusterTightening, C"):
        TRWS().map(model)
