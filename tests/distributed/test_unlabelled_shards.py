"""Shards without nodes, weights or labels: they add nothing to a fit, as such examples in memory."""

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DRFClassifier,
    M3NClassifier,
    MultiConditionalMFA,
    RegressionTreeField,
    RegressionTreeFieldClassifier,
    Shards,
)


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


def images(n, dtype):
    rng = np.random.default_rng(n)
    y = rng.integers(2, size=(n, 6, 6))
    return np.eye(2)[y] + 0.5 * rng.normal(size=(*y.shape, 2)), y.astype(dtype), np.ones(n)


def rows(n):
    rng = np.random.default_rng(n)
    y = rng.integers(2, size=n)
    return np.eye(2)[y] + 0.5 * rng.normal(size=(n, 2)), y, np.ones(n)


QUICK = {"max_depth": 1, "max_iter": 4, "random_state": 0}
FIELDS = {
    "TRW": (TRWCRF(max_iter=5), images, int),
    "DRF": (DRFClassifier(max_iter=5), images, int),
    "M3N": (M3NClassifier(max_iter=5), images, int),
    "contrastive": (ContrastiveCRF(max_iter=5, random_state=0), images, int),
    "tree field": (RegressionTreeField(**QUICK), images, float),
    "tree field of pairs": (RegressionTreeField("pseudolikelihood", **QUICK), images, float),
    "tree field of labels": (RegressionTreeFieldClassifier(**QUICK), images, int),
    "mixture": (MultiConditionalMFA(n_components=1, random_state=0, class_weight="balanced"), rows, None),
}
CASES = [(name, blank, first) for name in FIELDS for blank in ("empty", "weightless") for first in (False, True)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "blank", "first"), CASES)
def test_a_shard_without_nodes_or_weights_adds_nothing(name, blank, first):
    field, make, dtype = FIELDS[name]
    one, other, third = (make(n) if dtype is None else make(n, dtype) for n in (12, 14, 6))
    nothing = tuple(part[:0] for part in third) if blank == "empty" else (*third[:2], np.zeros(6))
    parts = [nothing, one, other] if first else [one, nothing, other]
    found = clone(field).fit(Shards.from_arrays(parts))
    expected = clone(field).fit(Shards.from_arrays([one, other]))
    np.testing.assert_allclose(found.predict(third[0]), expected.predict(third[0]), rtol=1e-10)
    assert found.score(Shards.from_arrays([nothing, third])) == pytest.approx(expected.score(*third))
    with pytest.raises(ValueError, match="no sample of positive weight to score"):
        found.score(Shards.from_arrays([nothing]))
    with pytest.raises(ValueError, match=r"no nodes|non-zero number"):
        clone(field).fit(Shards.from_arrays([nothing, nothing]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("loss", ["mse", "mae", "psnr", "pseudolikelihood", "multinomial"])
def test_a_shard_of_images_without_targets(loss):
    are_labels = loss == "multinomial"
    kind, missing = (RegressionTreeFieldClassifier, -1) if are_labels else (RegressionTreeField, np.nan)
    one, other, third = (images(n, int if are_labels else float) for n in (5, 6, 3))
    parts = [(third[0], np.full_like(third[1], missing)), one, other]
    field = kind(loss, **QUICK, **({"missing_label": -1} if are_labels else {}))
    sharded = clone(field).fit(Shards.from_arrays(parts)).score(*third)
    in_memory = clone(field).fit(*(np.concatenate([part[k] for part in parts]) for k in range(2))).score(*third)
    assert sharded == pytest.approx(in_memory, abs=0.1)
    message = "no label at all" if are_labels else "all its values are missing"
    with pytest.raises(ValueError, match=message):
        clone(field).fit(Shards.from_arrays(parts[:1]))
