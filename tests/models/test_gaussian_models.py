"""Gaussian fields: products and scores against a dense matrix, bad input."""

import gc
import pickle
import re
import weakref

import numpy as np
import pytest
from gaussian_strategies import GRAPHS, dense_precision, gaussian_models, random_gaussian
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.graphs import lattice
from sklearn_crf.models import GaussianModel, score


@settings(max_examples=80, deadline=None)
@given(gaussian_models(dtypes=(np.float32, np.float64)), st.integers(0, 99))
def test_product_and_score_are_those_of_the_matrix(model, seed):
    y = np.random.default_rng(seed).normal(size=model.h.shape).astype(model.dtype)
    matrix = dense_precision(model)
    tolerance = 1e-4 if model.dtype == np.float32 else 1e-11
    scale = np.abs(matrix).max(initial=1.0)
    product = model.product(y)
    assert product.dtype == model.dtype
    assert_allclose(product.ravel(), matrix @ y.ravel(), atol=tolerance * scale)
    assert_allclose(model.precision_matrix().toarray(), matrix, atol=1e-12)
    expected = -0.5 * y.ravel() @ matrix @ y.ravel() + model.h.ravel() @ y.ravel()
    assert score(model, y) == pytest.approx(expected, rel=tolerance, abs=tolerance * scale * len(y))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("n_values", [1, 3])
def test_every_cut_into_ranges_gives_the_same_bits(name, n_values):
    model = random_gaussian(name, n_values, dtype=np.float32, seed=1)
    whole = model.product(model.h)
    out = np.full_like(whole, np.nan)
    for item in range(model.operator.n_items):
        model.operator(model.h, item, item + 1, out)
    assert_array_equal(out, whole)


def test_lattice_and_graph_agree():
    plane = random_gaussian("wide_window", 2, n_types=3, seed=2)
    graph = GaussianModel(
        type(plane.graph)(plane.graph.n_nodes, plane.graph.edges),
        plane.h,
        plane.diagonal,
        plane.blocks,
        plane.edge_type,
    )
    assert_allclose(graph.product(plane.h), plane.product(plane.h), rtol=1e-12)


def test_read_only_and_pickle(tmp_path):
    model = random_gaussian("plane", 2, seed=3)
    arrays = []
    for name in ("h", "diagonal", "blocks", "edge_type"):
        np.save(tmp_path / f"{name}.npy", getattr(model, name))
        arrays.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    frozen = GaussianModel(model.graph, *arrays)
    assert_array_equal(frozen.product(frozen.h), model.product(model.h))
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.product(again.h), model.product(model.h))


GOOD = {"h": np.ones((4, 2)), "diagonal": np.eye(2), "blocks": np.zeros((1, 2, 2)), "edge_type": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"h": np.ones((3, 2))}, "h must have shape (4, n_values), got (3, 2)."),
        ({"h": np.full((4, 2), np.nan)}, "h must be finite"),
        ({"diagonal": np.ones((4, 2))}, "diagonal must have shape (4, 2, 2), got (4, 2)."),
        ({"diagonal": np.array([[1.0, 0.5], [0.0, 1.0]])}, "diagonal[0] is not symmetric."),
        ({"diagonal": np.full((2, 2), np.inf)}, "diagonal must be finite"),
        ({"blocks": np.zeros((2, 2))}, "blocks must have shape (n_types, 2, 2), got (2, 2)."),
        ({"blocks": np.zeros((0, 2, 2))}, "blocks is empty, so it defines no edge type, but the graph has edges."),
        ({"edge_type": [0, 1, 0]}, "edge_type must be between 0 and 0, found values from 0 to 1."),
        ({"edge_type": [0, 0]}, "edge_type must have shape (3,), got (2,)."),
    ],
)
def test_bad_input_is_named(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        GaussianModel(lattice((4,)), **{**GOOD, **change})


def test_bad_vectors_are_named():
    model = GaussianModel(lattice((4,)), **GOOD)
    with pytest.raises(ValueError, match=re.escape("vector must have shape (4, 2), got (4,).")):
        model.product(np.ones(4))
    with pytest.raises(ValueError, match=re.escape("values must have shape (4, 2), got (3, 2).")):
        score(model, np.ones((3, 2)))


def test_memory_is_given_back_at_once():
    """Free the models of tiles of large images, tens of megabytes each, without Python's garbage collector."""
    gc.disable()
    try:
        for name in ("plane", "volume"):
            model = random_gaussian(name)
            model.product(model.h)
            seen = weakref.ref(model)
            del model
            assert seen() is None
    finally:
        gc.enable()
