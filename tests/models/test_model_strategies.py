"""The random models of the tests have the properties that they claim."""

import numpy as np
import pytest
from hypothesis import given, settings
from model_strategies import FORESTS, LOOPY, STRUCTURES, TABLE_KINDS, models, random_model, read_only, renumbered

from sklearn_crf.inference import BruteForce


@pytest.mark.parametrize("name", [*FORESTS, *LOOPY])
def test_forests_have_no_cycle(name):
    assert random_model(name).graph.is_forest == (name in FORESTS)


@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_structure(kind, structure):
    model = random_model("cycle", 3, kind, structure=structure, seed=1)
    assert model.is_potts == (structure != "full")
    assert (model.edge_weight is not None) == (kind == "weighted")
    if structure == "submodular":
        assert np.all(np.diagonal(model.edge_tables(), axis1=1, axis2=2) >= 0)


@settings(max_examples=20, deadline=None)
@given(models(max_states=3))
def test_always_feasible(model):
    assert np.isfinite(BruteForce().marginals(model).log_z)


def test_read_only_and_renumbered_models_are_the_same(tmp_path):
    model = random_model("grid", 2, "weighted", seed=3)
    log_z = BruteForce().marginals(model).log_z
    frozen = read_only(model, tmp_path)
    assert not frozen.unary.flags.writeable
    assert BruteForce().marginals(frozen).log_z == log_z
    turned = renumbered(model, np.random.default_rng(0).permutation(9))
    assert BruteForce().marginals(turned).log_z == pytest.approx(log_z, rel=1e-12)
