"""Tables of single edges, stored once and read along rows or columns."""

import warnings
from dataclasses import replace

import message_reference as reference
import numpy as np
import pytest
from model_strategies import random_model
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import LoopyBP, TreeInference, TRWMessagePassing, _field
from sklearn_crf.inference._field import make_field
from sklearn_crf.models import PairwiseModel

# Rows of all vector lengths, whole and with a remainder; the first rows are computed in registers.
STATES = (1, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 18, 21, 31, 32, 33)


def two_sweeps(model, maximum, algorithm=LoopyBP):
    """Return the messages after two sweeps, as scores whose maximum is 0."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = algorithm(max_iter=2, tol=0, schedule="sequential")
        state = (found.map if maximum else found.marginals)(model).state
    with np.errstate(divide="ignore"):
        scores = state.values if state.as_scores else np.log(state.values)
    return scores - scores.max(axis=1, keepdims=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("maximum", [False, True], ids=["sum", "max"])
@pytest.mark.parametrize("forbidden", [0, 0.1])
@pytest.mark.parametrize("budget", [0, 2**28], ids=["recomputed", "stored"])
def test_sweeps_are_those_of_the_reference(budget, forbidden, maximum, dtype, monkeypatch):
    monkeypatch.setattr("sklearn_crf.inference._tuning.FACTOR_BUDGET", budget)
    for n_columns in STATES:
        model = random_model(lattice((2, 3)), n_columns, "untied", dtype=dtype, forbidden=forbidden, seed=n_columns)
        messages = reference.uniform(model)
        order = range(model.graph.n_nodes)
        with np.errstate(invalid="ignore"):
            for _ in range(2):
                reference.sweep(model, messages, order, maximum=maximum, only=lambda s, t: t > s)
                reference.sweep(model, messages, reversed(order), maximum=maximum, only=lambda s, t: t < s)
        expected = reference.by_slot(model, messages)
        expected = expected - expected.max(axis=1, keepdims=True)
        found = two_sweeps(model, maximum)
        assert_array_equal(np.isneginf(found), np.isneginf(expected))
        assert_allclose(found, expected, atol=2e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("n_columns", [5, 12])
@pytest.mark.parametrize("algorithm", [LoopyBP, TRWMessagePassing])
def test_two_copies_give_the_same(n_columns, algorithm, monkeypatch):
    # Wheels have nodes of few and of many edges; nodes differ in their states.
    rim = np.arange(1, 10)
    wheel = Graph(10, np.concatenate([np.stack((np.zeros_like(rim), rim), 1), np.stack((rim[:-1], rim[1:]), 1)]))
    model = random_model(wheel, n_columns, "untied", vary_states=True, seed=3)
    for maximum in (False, True):
        once = make_field(model, maximum)[0]
        assert len(once.factors) == (1 if n_columns > 9 else 2) * wheel.n_edges
        found = two_sweeps(model, maximum, algorithm)
        with monkeypatch.context() as patch:
            patch.setattr(_field, "_SHORT_ROW", 2**40)
            assert len(make_field(model, maximum)[0].factors) == 2 * wheel.n_edges
            expected = two_sweeps(model, maximum, algorithm)
        if maximum:
            assert_array_equal(found, expected)
        assert_allclose(found, expected, atol=1e-10)


def test_places_of_tables_do_not_change_results(monkeypatch):
    model = random_model(lattice((4, 5)), 7, "untied", seed=1)
    expected = two_sweeps(model, False)
    monkeypatch.setattr("sklearn_crf.inference._tuning.LARGEST_CACHED", 0)
    field = make_field(model, False)[0]
    assert not np.array_equal(field.place[:, 0], np.arange(len(field.place)))
    assert_array_equal(two_sweeps(model, False), expected)


def test_marginals_of_edges_and_of_a_chain():
    chain = lattice((6,))
    model = random_model(chain, 9, "untied", seed=2)
    # The same tables in a tied model, whose factors are stored for each direction.
    number = np.zeros((2, 9, 9)) + model.tables[0, 0]
    tied = PairwiseModel(chain, model.unary, number[:1])
    own = PairwiseModel(chain, model.unary, np.repeat(number[:1], 5, axis=0), edge_type=np.arange(5))
    found, expected = TreeInference().marginals(own), TreeInference().marginals(tied)
    assert_allclose(found.unary, expected.unary, atol=1e-12)
    assert_allclose(found.tables.sum(axis=0), expected.tables[0], atol=1e-12)
    assert found.log_z == pytest.approx(expected.log_z)
    backwards = replace(own, graph=Graph(6, chain.edges[:, ::-1]), tables=own.tables.transpose(0, 1, 3, 2))
    assert TreeInference().marginals(backwards).log_z == pytest.approx(expected.log_z)
