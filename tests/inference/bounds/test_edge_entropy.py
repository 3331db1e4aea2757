"""EdgeEntropyBP: equal to NormProductBP with the same entropies, also if states are forbidden."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import TOPOLOGIES, models, random_model
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.inference import BruteForce, EdgeEntropyBP, NormProductBP
from sklearn_crf.inference._relaxed_problem import convert_to_double
from sklearn_crf.inference.bounds._edge_entropy import _build_odds_messages, _ScoreMessages


def assert_same(found, expected, atol):
    assert_allclose(found.log_z, expected.log_z, atol=atol)
    assert_allclose(found.unary, expected.unary, atol=atol)
    assert_allclose(found.tables, expected.tables, atol=atol)


@pytest.mark.parametrize("topology", sorted(TOPOLOGIES))
@pytest.mark.parametrize("kind", ["tied", "weighted", "untied"])
@pytest.mark.parametrize("n_states", [2, 3])
@pytest.mark.parametrize("entropy", ["trivial", "factors"])
def test_the_result_is_that_of_norm_product(topology, kind, n_states, entropy):
    model = random_model(topology, n_states, kind, vary_states=kind == "untied" and n_states > 2, seed=1)
    found = EdgeEntropyBP(tol=1e-11, max_iter=5000, entropy=entropy).marginals(model)
    expected = NormProductBP(entropy, tol=1e-11, max_iter=5000).marginals(model)
    assert found.bound == "upper"
    assert found.converged
    assert_same(found, expected, 1e-7)
    assert_allclose(found.log_z_terms.sum(), found.log_z)


@given(models(max_states=3, dtypes=(np.float64, np.float32)), st.sampled_from(["trivial", "factors"]))
@settings(max_examples=100, deadline=None)
def test_whatever_is_forbidden(model, entropy):
    options = {"tol": 1e-9, "max_iter": 5000}
    try:
        expected = NormProductBP(entropy, **options).marginals(model)
    except ValueError:
        with pytest.raises(ValueError, match="infeasible"):
            EdgeEntropyBP(entropy=entropy, **options).marginals(model)
        return
    found = EdgeEntropyBP(entropy=entropy, **options).marginals(model)
    assert_same(found, expected, 1e-5)
    assert found.unary.dtype == model.dtype
    assert found.log_z >= BruteForce().marginals(model).log_z - 1e-5


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
@pytest.mark.parametrize("n_states", [2, 3])
@pytest.mark.parametrize("entropy", ["trivial", "factors"])
def test_it_is_a_bound_after_any_number_of_iterations(scale, n_states, entropy):
    model = random_model("grid", n_states, "untied", scale=scale, seed=0)
    log_z = BruteForce().marginals(model).log_z
    with pytest.warns(ConvergenceWarning, match="increase max_iter"):
        bounds = [EdgeEntropyBP(max_iter=n, tol=0, entropy=entropy).marginals(model).log_z for n in (1, 2, 5, 20)]
    assert np.all(np.diff(bounds) <= 1e-9 * abs(log_z))
    assert bounds[-1] >= log_z


@pytest.mark.parametrize("n_states", [2, 3])
def test_a_warm_start_goes_on(n_states):
    model = random_model("grid", n_states, seed=0)
    first = EdgeEntropyBP(tol=1e-9).marginals(model)
    before = first.state.values.copy()
    again = EdgeEntropyBP(tol=1e-9).marginals(model, init=first.state)
    assert again.n_iter <= 2 < first.n_iter
    assert_same(again, first, 1e-8)
    assert_array_equal(first.state.values, before)
    # A state that was forbidden may be allowed now.
    unary = model.unary.copy()
    unary[0, 0] = -np.inf
    forbidden = EdgeEntropyBP(tol=1e-9).marginals(replace(model, unary=unary))
    assert forbidden.unary[0, 0] == 0
    assert_same(EdgeEntropyBP(tol=1e-9).marginals(model, init=forbidden.state), first, 1e-7)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ["tied", "weighted", "untied"])
@pytest.mark.parametrize("node_number", [0.0, 1.0])
def test_log_odds_of_two_states_go_through_the_same_messages(kind, dtype, node_number):
    # The model has nodes without edges, and states that only unary scores forbid.
    model = random_model("disconnected", 2, kind, scale=3.0, dtype=dtype, seed=4)
    unary = model.unary.copy()
    unary[1, 0] = unary[2, 1] = -np.inf
    model = convert_to_double(replace(model, unary=unary))
    odds, rows = _build_odds_messages(model, None, node_number), _ScoreMessages(model, None, node_number)
    for direction in (1, -1, 1, -1):
        odds.renew(direction)
        rows.renew(direction)
        assert_allclose(*(np.diff(messages.scores(), axis=1) for messages in (odds, rows)), atol=1e-10)
    forbidden = [np.isneginf(messages.shares()) for messages in (odds, rows)]
    assert_array_equal(*forbidden)
    assert forbidden[0].any()


def test_log_odds_are_left_where_pairs_are_forbidden_or_scores_too_large():
    assert _build_odds_messages(random_model("grid", 2, "untied", seed=0), None, 0.0) is not None
    assert _build_odds_messages(random_model("grid", 3, "untied", seed=0), None, 0.0) is None
    assert _build_odds_messages(random_model("grid", 2, "untied", scale=500.0, seed=0), None, 0.0) is None
    model = random_model("grid", 2, "tied", seed=0)
    tables = model.tables.copy()
    tables[..., 0, 1] = -np.inf
    assert _build_odds_messages(replace(model, tables=tables), None, 0.0) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [({"max_iter": 0}, "max_iter"), ({"tol": -1}, "tol"), ({"entropy": "trw"}, "entropy must be one of 'trivial', 'f")],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        EdgeEntropyBP(**options).marginals(random_model("chain", 2, seed=0))
