"""Messages for the sum of the entropies of edges: the result of norm-product, whatever is forbidden."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from model_strategies import TOPOLOGIES, models, random_model
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.inference import BruteForce, EdgeEntropyBP, NormProductBP


def assert_same(found, expected, atol):
    assert_allclose(found.log_z, expected.log_z, atol=atol)
    assert_allclose(found.unary, expected.unary, atol=atol)
    assert_allclose(found.tables, expected.tables, atol=atol)


@pytest.mark.parametrize("topology", sorted(TOPOLOGIES))
@pytest.mark.parametrize("kind", ["tied", "weighted", "untied"])
def test_the_result_is_that_of_norm_product(topology, kind):
    model = random_model(topology, 3, kind, vary_states=kind == "untied", seed=1)
    found = EdgeEntropyBP(tol=1e-11, max_iter=5000).marginals(model)
    expected = NormProductBP("trivial", tol=1e-11, max_iter=5000).marginals(model)
    assert found.bound == "upper"
    assert found.converged
    assert_same(found, expected, 1e-7)
    assert_allclose(found.log_z_terms.sum(), found.log_z)


@given(models(max_states=3, dtypes=(np.float64, np.float32)))
@settings(max_examples=60, deadline=None)
def test_whatever_is_forbidden(model):
    options = {"tol": 1e-9, "max_iter": 5000}
    try:
        expected = NormProductBP("trivial", **options).marginals(model)
    except ValueError:
        with pytest.raises(ValueError, match="infeasible"):
            EdgeEntropyBP(**options).marginals(model)
        return
    found = EdgeEntropyBP(**options).marginals(model)
    assert_same(found, expected, 1e-5)
    assert found.unary.dtype == model.dtype
    assert found.log_z >= BruteForce().marginals(model).log_z - 1e-5


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
def test_it_is_a_bound_after_any_number_of_iterations(scale):
    model = random_model("grid", 3, "untied", scale=scale, seed=0)
    log_z = BruteForce().marginals(model).log_z
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        bounds = [EdgeEntropyBP(max_iter=n, tol=0).marginals(model).log_z for n in (1, 2, 5, 20)]
    assert np.all(np.diff(bounds) <= 1e-9 * abs(log_z))
    assert bounds[-1] >= log_z


def test_a_warm_start_goes_on():
    model = random_model("grid", 3, seed=0)
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


@pytest.mark.parametrize(("options", "message"), [({"max_iter": 0}, "max_iter"), ({"tol": -1}, "tol")])
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        EdgeEntropyBP(**options).marginals(random_model("chain", 2, seed=0))
