"""Node marginals of several graphs: the bits of single graphs, each with its own convergence and errors."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import Graph, build_disjoint_union, lattice
from sklearn_crf.inference import LoopyBP, TightenBound, TRWMessagePassing
from sklearn_crf.inference.messages._with_fallback import MarginalsWithFallback
from sklearn_crf.models import PairwiseModel, models_of_parts

ALGORITHMS = {
    "bp": LoopyBP(),
    "damped": LoopyBP(damping=0.3),
    "covering": TRWMessagePassing("covering"),
    "chains": TRWMessagePassing("chains", schedule="sequential"),
    "short": TRWMessagePassing("covering", max_iter=3),
    "fallback": MarginalsWithFallback(TRWMessagePassing("covering", max_iter=40), TightenBound(max_iter=20)),
}


def graph_with_cycles(rng):
    n_nodes = int(rng.integers(3, 25))
    pairs = np.stack(np.triu_indices(n_nodes, 1), axis=1)
    n_edges = int(rng.integers(n_nodes, min(len(pairs), 3 * n_nodes) + 1))
    edges = pairs[np.sort(rng.permutation(len(pairs))[:n_edges])]
    return Graph(n_nodes, edges if rng.random() < 0.5 else edges[:, ::-1])


def joined_model(rng, n_columns=3, tables="tied", dtype=np.float64, scale=1.0, n_parts=6):
    graph = build_disjoint_union([graph_with_cycles(rng) for _ in range(n_parts)])
    n_types, n_features = {"tied": (1, 1), "types": (5, 1), "weights": (1, 1), "features": (2, 3)}[tables]
    return PairwiseModel(
        graph,
        rng.normal(size=(graph.n_nodes, n_columns)).astype(dtype),
        scale * rng.normal(size=(n_types, n_features, n_columns, n_columns)).astype(dtype),
        edge_type=rng.integers(0, n_types, graph.n_edges).astype(np.int32),
        edge_weight=rng.normal(size=(graph.n_edges, n_features)) if tables in ("weights", "features") else None,
    )


def one_by_one(inference, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.concatenate([inference.marginals(part).unary for part in models_of_parts(model)])


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    name=st.sampled_from(sorted(ALGORITHMS)),
    n_columns=st.sampled_from([2, 3, 5, 9]),
    tables=st.sampled_from(["tied", "types", "weights", "features"]),
    dtype=st.sampled_from([np.float32, np.float64]),
    # For the last model, scores are kept instead of probabilities.
    scale=st.sampled_from([0.5, 2.0, 12.0]),
)
def test_each_part_has_the_bits_that_it_has_alone(seed, name, n_columns, tables, dtype, scale):
    rng, inference = np.random.default_rng(seed), ALGORITHMS[name]
    model = joined_model(rng, n_columns, tables, dtype, scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = inference.node_marginals(model)
    assert_array_equal(found, one_by_one(inference, model))
    assert found.dtype == model.dtype


@pytest.mark.parametrize("name", ["bp", "covering", "fallback"])
def test_potts_and_lattices(name):
    rng, inference = np.random.default_rng(0), ALGORITHMS[name]
    graph = build_disjoint_union([lattice((4, 5)), lattice((3, 3)), lattice((6, 2))])
    model = PairwiseModel(
        graph, rng.normal(size=(graph.n_nodes, 4)), [np.eye(4)], edge_weight=rng.random(graph.n_edges)
    )
    assert_array_equal(inference.node_marginals(model), one_by_one(inference, model))


def test_parts_are_taken_together(monkeypatch):
    """Parts are processed in one call, except parts that do not converge."""
    model, calls = joined_model(np.random.default_rng(0), n_parts=20), []
    original = LoopyBP._node_marginals
    monkeypatch.setattr(LoopyBP, "_node_marginals", lambda *args: calls.append(1) or original(*args))
    LoopyBP().node_marginals(model)
    assert not calls


def test_only_what_does_not_settle_is_looked_at_again(monkeypatch):
    rng, inference = np.random.default_rng(3), LoopyBP(max_iter=8, tol=1e-6)
    model = joined_model(rng, 2, "weights", scale=2.0, n_parts=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        settled = [inference.marginals(part).converged for part in models_of_parts(model)]
        assert 0 < sum(settled) < len(settled)
        looked_at, original = [], LoopyBP._node_marginals
        monkeypatch.setattr(
            LoopyBP, "_node_marginals", lambda own, part, *args: looked_at.append(part) or original(own, part, *args)
        )
        found = inference.node_marginals(model)
    assert len(looked_at) == len(settled) - sum(settled)
    monkeypatch.undo()
    assert_array_equal(found, one_by_one(inference, model))


def test_warns_as_alone():
    model = joined_model(np.random.default_rng(1), scale=2.0)
    with pytest.warns(ConvergenceWarning, match="stopped after max_iter=1 sweeps"):
        LoopyBP(max_iter=1).node_marginals(model)


def test_errors_tell_the_part():
    model = joined_model(np.random.default_rng(0), n_parts=4)
    unary = model.unary.copy()
    first = sum(part.n_nodes for part in model.graph.parts[:2])
    unary[first + 1] = -np.inf
    model = PairwiseModel(model.graph, unary, model.tables)
    with pytest.raises(ValueError, match="node 1") as error:
        LoopyBP().node_marginals(model)
    assert error.value.part == 2


def test_other_choices_take_a_union_as_one_graph():
    model = joined_model(np.random.default_rng(0))
    for inference in (TRWMessagePassing("auto"), LoopyBP(schedule="residual")):
        assert inference.joined_nodes == 1
        assert_array_equal(inference.node_marginals(model), inference.marginals(model).unary)


def test_large_unions_are_looked_at_part_by_part(monkeypatch):
    monkeypatch.setattr("sklearn_crf.inference.messages._tuning.MOST_JOINED", 10)
    model = joined_model(np.random.default_rng(0))
    assert_array_equal(LoopyBP().node_marginals(model), one_by_one(LoopyBP(), model))
