"""Models for inference only: equal scores, and one feature per edge if tables have one weight."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import DRFClassifier, Example
from sklearn_crf.encoding import encode_X, make_batches
from sklearn_crf.estimators._fitted_field import FittedField
from sklearn_crf.models import score
from sklearn_crf.potentials import LinearPotentials, make_pairwise_form


def potentials_of(encoded, form, n_classes, **options):
    return LinearPotentials(
        encoded.n_features, n_classes, make_pairwise_form(form, n_classes), n_edge_features=encoded.n_edge_features,
        n_edge_types=encoded.n_edge_types, **options,
    )  # fmt: skip


@pytest.mark.parametrize(("form", "n_classes"), [("ising", 2), ("potts", 2), ("potts", 4)])
@pytest.mark.parametrize("edge_types", ["tied", "offset"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_same_scores(form, n_classes, edge_types, dtype):
    """Models for inference give equal scores, even if edge features are computed but not stored."""
    rng = np.random.default_rng(0)
    encoded = encode_X(rng.normal(size=(2, 4, 5, 3)).astype(dtype), edge_features="difference", edge_types=edge_types)
    potentials = potentials_of(encoded, form, n_classes)
    coef = rng.normal(size=potentials.n_coef)
    for keeps_edges in (True, False):
        for batch in make_batches(encoded, keeps_edges=keeps_edges):
            full, short = potentials.model(coef, batch.example), potentials.build_inference_model(coef, batch.example)
            assert full.tables.shape[1] == 4
            assert short.tables.shape[:2] == (1, 1)
            assert short.edge_weight.dtype == dtype
            assert_array_equal(short.unary, full.unary)
            for _ in range(5):
                labels = rng.integers(n_classes, size=20)
                assert_allclose(score(short, labels), score(full, labels), rtol=1e-5 if dtype == np.float32 else 1e-12)


def test_features_of_users_and_several_types():
    rng = np.random.default_rng(0)
    edges = [[0, 1], [1, 2], [0, 2]]
    X = [Example(rng.normal(size=(3, 2)), edges, rng.normal(size=(3, 2)), edge_type=[1, 0, 2])]
    encoded = encode_X(X)
    potentials = potentials_of(encoded, "potts", 3)
    coef, example = rng.normal(size=potentials.n_coef), make_batches(encoded)[0].example
    full, short = potentials.model(coef, example), potentials.build_inference_model(coef, example)
    assert_allclose(short.edge_tables(), full.edge_tables(), atol=1e-12)


@pytest.mark.parametrize("options", [{"form": "full"}, {"form": "potts", "forbidden": np.eye(2, dtype=bool)}])
def test_tables_of_more_weights_stay(options):
    rng = np.random.default_rng(0)
    encoded = encode_X(rng.uniform(1, 2, size=(1, 3, 3, 2)), edge_features="difference")
    if "forbidden" in options:
        encoded = encoded.replace_edge_features(lambda tail, head: np.ones((len(tail), 1)))
    potentials = potentials_of(encoded, n_classes=2, **options)
    coef, example = rng.normal(size=potentials.n_coef), make_batches(encoded)[0].example
    full, short = potentials.model(coef, example), potentials.build_inference_model(coef, example)
    assert_array_equal(short.tables, full.tables)
    assert_array_equal(short.edge_weight, full.edge_weight)


def test_functions_of_users_see_all_edges_at_once():
    """A user's function gets all edges of an example in one call, because it may compute a mean over edges."""

    def contrast(tail, head):
        squares = ((tail - head) ** 2).sum(axis=1)
        return np.column_stack((np.ones(len(squares)), np.exp(-squares / max(squares.mean(), 1e-9))))

    rng = np.random.default_rng(0)
    y = np.tile(np.arange(8) // 4, (3, 8, 1))
    X = y[..., np.newaxis] + 0.5 * rng.normal(size=(3, 8, 8, 1))
    field = DRFClassifier(learning="pl", edge_features=contrast).fit(X, y)
    encoded = FittedField.of(field).reader().encode(X, reset=False)
    potentials = FittedField.of(field).potentials(encoded)
    coef = FittedField.of(field).weights(potentials)
    for batch in make_batches(encoded, keeps_edges=False):
        full, short = potentials.model(coef, batch.example), potentials.build_inference_model(coef, batch.example)
        assert_allclose(short.edge_tables(), full.edge_tables(), atol=1e-12)
