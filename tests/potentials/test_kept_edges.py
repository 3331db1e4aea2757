"""Models of an example share cached data of its edges."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_crf import Example
from sklearn_crf.encoding import encode_X, make_batches
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import LoopyBP, TRWMessagePassing
from sklearn_crf.potentials import LinearPotentials, make_pairwise_form

GRAPH = lattice((4, 5))


def example(rng, n_features=1, n_types=1, dtype=np.float64, **fields):
    features = rng.normal(size=(GRAPH.n_nodes, 3)).astype(dtype)
    edge_features = None if n_features == 0 else rng.normal(size=(GRAPH.n_edges, n_features))
    edge_type = None if n_types == 1 else rng.integers(0, n_types, GRAPH.n_edges)
    return Example(features, GRAPH, edge_features, edge_type=edge_type, **fields)


def potentials_of(n_features=1, n_types=1, n_classes=3, form="full"):
    form = make_pairwise_form(form, n_classes)
    return LinearPotentials(3, n_classes, form, n_edge_features=max(n_features, 1), n_edge_types=n_types)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_types", [1, 3])
@pytest.mark.parametrize("n_features", [0, 1, 2])
@pytest.mark.parametrize("form", ["full", "potts"])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_results_are_those_of_models_by_themselves(n_classes, form, n_features, n_types, dtype):
    rng = np.random.default_rng(0)
    x, potentials = example(rng, n_features, n_types, dtype), potentials_of(n_features, n_types, n_classes, form)
    edges = potentials.prepare_edges(x)
    for inference in (LoopyBP(), TRWMessagePassing("covering"), TRWMessagePassing("chains")):
        for scale in (0.1, 0.5, 20.0):
            coef = scale * rng.normal(size=potentials.n_coef)
            alone, shared = (inference.marginals(potentials.model(coef, x, *kept)) for kept in ((), (edges,)))
            assert_array_equal(shared.unary, alone.unary)
            assert_array_equal(shared.tables, alone.tables)
            assert_array_equal(shared.log_z_terms, alone.log_z_terms)
            assert shared.n_iter == alone.n_iter


@pytest.mark.parametrize(("value", "message"), [(1e60, "edge_weight times tables"), (np.nan, "unary")])
def test_scores_are_checked(value, message):
    x, potentials = example(np.random.default_rng(0)), potentials_of()
    x = x._with(edge_features=1e60 * x.edge_features)
    with pytest.raises(ValueError, match=message):
        potentials.model(np.full(potentials.n_coef, value), x, potentials.prepare_edges(x))


def test_edges_that_cannot_be_read_are_refused():
    x, potentials = example(np.random.default_rng(0), n_types=3), potentials_of(n_types=2)
    with pytest.raises(ValueError, match="edge_type"):
        potentials.prepare_edges(x)


def test_nothing_is_kept_of_what_is_made_anew(monkeypatch):
    potentials, rng = potentials_of(), np.random.default_rng(0)
    monkeypatch.setattr("sklearn_crf.encoding._tuning.MOST_CONSTANT_EDGES", 0)
    computed = make_batches(encode_X(rng.normal(size=(1, 4, 5, 3)), edge_features="constant"), keeps_edges=False)
    assert potentials.prepare_edges(computed[0].example) is None
    assert potentials.prepare_edges(example(rng, n_states=np.full(GRAPH.n_nodes, 2))) is None
    assert potentials.prepare_edges(Example(np.zeros((2, 3)), [])) is None
    monkeypatch.setattr("sklearn_crf.potentials._linear._MOST_KEPT_EDGES", 10)
    assert potentials.prepare_edges(example(rng)) is None
