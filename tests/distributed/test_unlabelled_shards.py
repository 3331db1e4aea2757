"""Shards in which no node has a label: they add nothing to a fit, as unlabelled images in memory."""

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_crf import TRWCRF, DRFClassifier, M3NClassifier, Shards


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("empty", [0, 1])
@pytest.mark.parametrize(
    "field",
    [
        DRFClassifier(missing_label=-1),
        TRWCRF(missing_label=-1),
        M3NClassifier(missing_label=-1, solver="one_slack", inference="graph_cut"),
        M3NClassifier(missing_label=-1, solver="bmrm"),
    ],
    ids=repr,
)
def test_a_shard_without_labels_is_like_images_without_labels(field, empty):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=(8, 4, 5))
    X = np.eye(2)[y] + rng.normal(size=(*y.shape, 2))
    parts = [[X[:3], np.full((3, 4, 5), -1)], [X[3:], y[3:]]]
    parts = parts if empty == 0 else parts[::-1]
    in_memory = clone(field).fit(*(np.concatenate(own) for own in zip(*parts, strict=True)))
    sharded = clone(field).fit(Shards.from_arrays([tuple(part) for part in parts]))
    assert sharded.loss_curve_[-1] == pytest.approx(in_memory.loss_curve_[-1], rel=0.02)
    assert abs(sharded.score(X[3:], y[3:]) - in_memory.score(X[3:], y[3:])) < 0.05
