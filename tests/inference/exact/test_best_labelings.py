"""The m best labelings of forests against enumeration."""

import numpy as np
import pytest
from model_strategies import FORESTS, TABLE_KINDS, random_model
from numpy.testing import assert_allclose

from sklearn_crf.graphs import Graph
from sklearn_crf.inference import BruteForce, TreeBestLabelings
from sklearn_crf.models import PairwiseModel, score


def enumerated(model):
    """Return the scores of all allowed labelings, in descending order."""
    shape = (model.n_columns,) * model.graph.n_nodes
    scores = np.array([score(model, labels) for labels in np.ndindex(shape)])
    return np.sort(scores[scores > -np.inf])[::-1]


@pytest.mark.parametrize("topology", FORESTS)
@pytest.mark.parametrize("kind", TABLE_KINDS)
@pytest.mark.parametrize("forbidden", [0.0, 0.25])
def test_best_labelings_are_those_of_enumeration(topology, kind, forbidden):
    model = random_model(topology, 2, kind, seed=2, forbidden=forbidden)
    if model.graph.n_nodes > 8:
        pytest.skip("too many labelings to list")
    expected = enumerated(model)
    for m in (1, 3, 7):
        found = TreeBestLabelings(m).best(model)
        assert_allclose(found.scores, expected[:m], rtol=1e-9, atol=1e-9)
        assert len({tuple(labels) for labels in found.labels}) == len(found.labels)
        assert_allclose([score(model, labels) for labels in found.labels], found.scores, rtol=1e-9, atol=1e-9)


def test_three_states_and_every_labeling():
    rng = np.random.default_rng(0)
    model = PairwiseModel(Graph(4, [[1, 0], [1, 2]]), rng.normal(size=(4, 3)), rng.normal(size=(1, 3, 3)))
    for m in (100, 10**9):
        found = TreeBestLabelings(m).best(model)
        assert len(found.scores) == 81
        assert_allclose(found.scores, enumerated(model))


def test_the_first_is_the_map():
    model = random_model("chain", 4, "typed", seed=0)
    found = TreeBestLabelings(2).map(model)
    assert_allclose(found.score, BruteForce().map(model).score)
    assert found.certified


def test_what_is_refused():
    model = random_model("cycle", 2, "tied", seed=0)
    with pytest.raises(ValueError, match="without cycles"):
        TreeBestLabelings().best(model)
    with pytest.raises(ValueError, match="m must be at least 1"):
        TreeBestLabelings(0).best(random_model("chain", 2, "tied", seed=0))
