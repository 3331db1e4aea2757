"""Solving again after a small change of the scores takes few iterations, for every convex algorithm."""

from dataclasses import replace

import numpy as np
import pytest
from model_strategies import random_model

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import (
    AD3,
    MPLP,
    TRWS,
    DualDecomposition,
    EdgeEntropyBP,
    IncMP,
    NormProductBP,
    TightenBound,
    TRWMessagePassing,
    convergence_left_to_caller,
)
from sklearn_crf.models import score

CASES = [
    ("marginals", TightenBound(max_iter=1000)),
    ("marginals", TightenBound("snakes", "pqn")),
    ("marginals", TightenBound(start_sweeps=20)),
    # The error of the bound is proportional to the error of the messages, so the tolerance is small.
    ("marginals", TRWMessagePassing(tol=1e-6)),
    ("marginals", TRWMessagePassing(damping=0.5, tol=1e-6)),
    ("marginals", TRWMessagePassing("chains", schedule="convergent")),
    ("marginals", NormProductBP("trivial")),
    ("marginals", EdgeEntropyBP()),
    *[("map", algorithm) for algorithm in (TRWMessagePassing(), NormProductBP("trivial"), TRWS(), MPLP())],
    *[("map", algorithm) for algorithm in (AD3(), DualDecomposition(), IncMP())],
]


@pytest.mark.parametrize(("task", "algorithm"), CASES, ids=lambda value: str(value))
def test_a_small_change_costs_a_fraction_after_a_warm_start(task, algorithm):
    n_cold = n_warm = 0
    for seed in range(3):
        model = random_model(lattice((8, 8)), 3, "untied", seed=seed)
        rng = np.random.default_rng(seed)
        moved = replace(
            model,
            unary=model.unary + 1e-3 * rng.normal(size=model.unary.shape),
            tables=model.tables + 1e-3 * rng.normal(size=model.tables.shape),
        )
        with convergence_left_to_caller():
            first = getattr(algorithm, task)(model)
            cold, warm = (getattr(algorithm, task)(moved, init=init) for init in (None, first.state))
        assert first.converged
        assert warm.converged
        n_cold, n_warm = n_cold + cold.n_iter, n_warm + warm.n_iter
        if task == "marginals":
            assert warm.log_z == pytest.approx(cold.log_z, rel=1e-6)
        else:
            assert warm.bound == pytest.approx(cold.bound, rel=2e-3)
            assert warm.score >= cold.score - 0.01 * abs(cold.score)
            assert warm.score >= score(moved, first.labels)
    assert n_warm <= 0.6 * n_cold
