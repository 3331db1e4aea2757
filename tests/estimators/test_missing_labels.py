"""Missing labels are left out together with the terms that depend on them, or summed out."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Example
from sklearn_crf.learning import ContrastiveTraining, PseudolikelihoodTraining, SharedPiecesTraining
from sklearn_crf.objectives import GibbsGenerator

TIGHT = {"tol": 1e-9, "max_iter": 2000, "missing_label": -1}
FIELDS = {
    "pl": DRFClassifier(learning=PseudolikelihoodTraining(), **TIGHT),
    "piecewise": TRWCRF(learning="piecewise", **TIGHT),
    "shared": TRWCRF(learning="shared_pieces", **TIGHT),
    "joint": TRWCRF(learning="joint_relaxation", fit_intercept=False, **TIGHT),
    "trees": TRWCRF(
        learning="edge_probabilities", fit_intercept=False, edge_features="constant", **TIGHT | {"tol": 1e-6}
    ),
    "dual": TRWCRF(learning="dual_relaxation", fit_intercept=False, **TIGHT | {"tol": 1e-6}),
    "best_shares": TRWCRF(learning=SharedPiecesTraining(shares="optimized"), **TIGHT),
    "map": ContrastiveCRF(random_state=0, **TIGHT),
    "icm_mv": ContrastiveCRF(learning=ContrastiveTraining(generator="icm_mv"), random_state=0, **TIGHT),
    "gibbs": ContrastiveCRF(learning=ContrastiveTraining(generator=GibbsGenerator(5)), random_state=0, **TIGHT),
    "blocks": ContrastiveCRF(learning=ContrastiveTraining(init="gpl", generator=None, blocks=2), **TIGHT),
    "seen": ContrastiveCRF(learning=ContrastiveTraining(init="observed", generator=None), **TIGHT),
}
SUMMED = ["piecewise", "shared", "best_shares", "joint", "trees"]


def images(n=6, side=5, seed=0):
    rng = np.random.default_rng(seed)
    y = np.zeros((n, side, side), dtype=int)
    y[:, 1:4, 2:] = 1
    y[::2] = 1 - y[::2]
    return y[..., None] + 0.6 * rng.normal(size=(*y.shape, 1)), y


def known_surroundings(y):
    """Return which labelled pixels have four labelled neighbours; places outside the image count as labelled."""
    known = np.pad(y >= 0, ((0, 0), (1, 1), (1, 1)), constant_values=True)
    around = known[:, :-2, 1:-1] & known[:, 2:, 1:-1] & known[:, 1:-1, :-2] & known[:, 1:-1, 2:]
    return around & (y >= 0)


@pytest.mark.parametrize("name", [*SUMMED, "dual", "pl", "map", "icm_mv", "gibbs"])
def test_isolated_nodes_without_labels_are_not_there(name):
    rng = np.random.default_rng(0)
    edges = np.array([[0, 1], [1, 2], [2, 3]])
    y = [rng.integers(2, size=4) for _ in range(10)]
    parts = [own[:, None] + 0.5 * rng.normal(size=(4, 1)) for own in y]
    whole = [Example(np.append(x, [[7.0]], axis=0), edges) for x in parts]
    field = clone(FIELDS[name])
    if isinstance(field, ContrastiveCRF):
        # The random numbers of generators depend on the number of nodes.
        field = ContrastiveCRF(learning=ContrastiveTraining(generator="map", max_rounds=30), random_state=0, **TIGHT)
    one = field.set_params(edge_features="constant").fit([Example(x, edges) for x in parts], y)
    coef, tables = one.coef_.copy(), one.edge_coef_.copy()
    other = field.fit(whole, [np.append(own, -1) for own in y])
    assert_allclose(other.coef_, coef, atol=1e-4)
    assert_allclose(other.edge_coef_, tables, atol=1e-4)


@pytest.mark.parametrize("learning", ["likelihood", "truncated", "max_margin", "smoothed_margin", "piecewise"])
@pytest.mark.parametrize("shape", [(9,), (4, 5), (3, 4, 4)], ids=["rows", "chains", "images"])
def test_labels_that_are_all_missing_are_an_error(learning, shape):
    X = np.random.default_rng(0).normal(size=(*shape, 2))
    field = TRWCRF(learning=learning, missing_label=-1, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="y has no known label of positive weight"):
        field.fit(X, np.full(shape, -1))
    y = np.full(shape, -1)
    y[0] = 1
    with pytest.raises(ValueError, match="y has no known label of positive weight"):
        field.fit(X, y, sample_weight=np.arange(len(y)))


def test_pseudolikelihood_is_that_of_nodes_with_known_surroundings():
    X, y = images()
    partial = np.where(np.random.default_rng(1).random(y.shape) < 0.1, -1, y)
    counted = known_surroundings(partial)
    assert 0 < counted.sum() < (partial >= 0).sum()
    field = clone(FIELDS["pl"]).set_params(learning=PseudolikelihoodTraining(edge_scale=1))
    coef, tables = (getattr(field.fit(X, partial), name) for name in ("coef_", "edge_coef_"))
    expected = field.fit(X, y, node_weight=counted.astype(float))
    assert_allclose(coef, expected.coef_, atol=1e-6)
    assert_allclose(tables, expected.edge_coef_, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "dual"])
def test_labels_that_are_missing_do_not_matter(name):
    # Trees that are learned with the weights take many iterations.
    X, y = images(n=3 if name == "trees" else 6)
    partial = np.where(np.random.default_rng(1).random(y.shape) < 0.1, -1, y)
    partial[:2] = y[:2]
    field = clone(FIELDS[name]).fit(X, partial)
    coef = np.concatenate([field.coef_.ravel(), field.edge_coef_.ravel()])
    assert np.isfinite(coef).all()
    # Without generated labelings, edges get too much weight.
    assert name not in ("map", "icm_mv", "gibbs") or field.score(X, y) > 0.7
    # The other class comes first: another state represents missing labels.
    swapped = clone(FIELDS[name]).fit(X, np.where(partial < 0, -1, 1 - partial))
    if name not in ("icm_mv", "gibbs", "map"):
        assert_allclose(np.abs(swapped.coef_.ravel()), np.abs(coef[:1]), atol=1e-4)
    again = clone(FIELDS[name]).fit(X, partial)
    assert_array_equal(np.concatenate([again.coef_.ravel(), again.edge_coef_.ravel()]), coef)


@pytest.mark.parametrize("name", ["pl", "map"])
def test_labels_that_are_too_few_are_an_error(name):
    X, y = images()
    partial = np.where(np.indices(y.shape).sum(axis=0) % 2, -1, y)
    with pytest.raises(ValueError, match="no labelled node whose neighbours are all labelled"):
        clone(FIELDS[name]).fit(X, partial)


def test_observed_labelings_need_an_example_with_all_labels():
    X, y = images()
    y[:, 0, 0] = -1
    with pytest.raises(ValueError, match="init='observed' needs an example whose nodes are all labelled"):
        clone(FIELDS["seen"]).fit(X, y)


@pytest.mark.parametrize("name", SUMMED)
def test_few_labels_are_enough_where_others_are_summed_out(name):
    X, y = images(n=12)
    few = np.where(np.random.default_rng(1).random(y.shape) < 0.7, -1, y)
    field = clone(FIELDS[name]).set_params(tol=1e-4).fit(X, few)
    assert field.converged_
    assert field.score(X, y) > 0.75
