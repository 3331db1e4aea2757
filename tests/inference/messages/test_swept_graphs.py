"""Labelled graphs in the form that a single kernel call reads."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklearn_crf.inference.messages._swept_graphs import _kinds


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kinds_are_the_pairs_of_types_and_weights(dtype):
    rng = np.random.default_rng(0)
    edge_type = rng.integers(3, size=400).astype(np.int32)
    weight = rng.choice([-0.3, 0.1, 1.7], size=(400, 1)).astype(dtype)
    kind, types, weights = _kinds(edge_type, weight, 1)
    assert_array_equal(types[kind], edge_type)
    assert_array_equal(weights[kind], weight)
    assert len(types) == len(set(zip(edge_type.tolist(), weight[:, 0].tolist(), strict=True)))
    assert (kind.dtype, types.dtype, weights.dtype) == (np.int32, np.int32, dtype)


def test_many_kinds_are_not_told_apart():
    assert _kinds(np.arange(400, dtype=np.int32), np.ones((400, 1)), 1) == (None, None, None)
    assert _kinds(np.zeros(400, dtype=np.int32), np.ones((400, 2)), 1) == (None, None, None)
