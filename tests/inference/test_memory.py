"""Inference keeps no reference to a model after the model and the results are deleted."""

import gc
import warnings
import weakref

import pytest
from model_strategies import random_model
from sklearn.exceptions import ConvergenceWarning
from test_inference_contract import ALGORITHMS

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import TightenBound, TRWMessagePassing

TASKS = [
    pytest.param(cls, task, id=f"{cls.__name__}-{task}")
    for cls in ALGORITHMS
    for task in ("map", "marginals")
    if task in cls.tasks
]


@pytest.mark.parametrize(("cls", "task"), TASKS)
def test_graphs_die_with_their_models(cls, task):
    model = random_model(lattice((5,)), 2, structure="submodular", seed=0)
    graph = weakref.ref(model.graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        getattr(cls(), task)(model)
    del model
    gc.collect()
    assert graph() is None


@pytest.mark.parametrize("algorithm", [TightenBound(max_iter=3), TRWMessagePassing(max_iter=3)])
def test_trees_that_are_kept_make_no_cycles(algorithm):
    """Objects in reference cycles stay in memory until a garbage collection, which large arrays do not trigger."""
    model = random_model(Graph(4, [[0, 1], [1, 2], [2, 3], [3, 0]]), 2, seed=0)
    graph = weakref.ref(model.graph)
    gc.collect()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            algorithm.marginals(model)
        del model
        assert graph() is None
    finally:
        gc.enable()
