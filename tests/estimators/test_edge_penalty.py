"""PairwiseTables(C=...): the penalty on the weights of edges, separate from the penalty on nodes."""

import warnings

import numpy as np
import pytest
from field_data import noisy_blobs
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, M3NClassifier
from sklearn_crf.learning import ContrastiveTraining, PseudolikelihoodTraining
from sklearn_crf.potentials import PairwiseTables

C, EDGE_C = 0.5, 0.02
ROOT = np.sqrt(EDGE_C / C)


def constant(x_tail, x_head):
    """Return the constant 1 and the distance between the features of an edge's ends."""
    return np.column_stack((np.ones(len(x_tail)), np.abs(x_tail[:, 0] - x_head[:, 0])))


def scaled(x_tail, x_head):
    """Return the features of `constant`, scaled so that the common penalty acts on edge weights as EDGE_C does."""
    return ROOT * constant(x_tail, x_head)


FIELDS = [
    DRFClassifier(learning="pl"),
    DRFClassifier(learning="pma", inference="junction_tree"),
    TRWCRF(),
    TRWCRF(learning="joint_relaxation", max_iter=500),
    TRWCRF(learning="dual_relaxation", fit_intercept=False, tol=1e-6, random_state=0),
    TRWCRF(learning="piecewise"),
    ContrastiveCRF(learning=ContrastiveTraining(generator=None)),
    M3NClassifier(tol=1e-6),
    M3NClassifier(solver="bmrm", tol=1e-6),
]


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_the_penalty_of_edges_is_that_of_scaled_edge_features(field):
    X, y = noisy_blobs(4, 4)
    field.set_params(C=C)
    form = field.pairwise
    apart = field.set_params(pairwise=PairwiseTables(form, C=EDGE_C), edge_features=constant).fit(X, y)
    coef, edge_coef = apart.coef_.copy(), apart.edge_coef_.copy()
    together = field.set_params(pairwise=form, edge_features=scaled).fit(X, y)
    assert_allclose(coef, together.coef_, atol=1e-2)
    assert_allclose(edge_coef, ROOT * together.edge_coef_, atol=1e-2)


def test_a_strong_penalty_leaves_the_nodes_alone():
    X, y = noisy_blobs(6, 8)
    plain = DRFClassifier(learning="pl", edge_features="constant").fit(X, y)
    strong = DRFClassifier(learning="pl", edge_features="constant", pairwise=PairwiseTables(C=1e-6)).fit(X, y)
    assert np.abs(strong.edge_coef_).max() < 0.05 * np.abs(plain.edge_coef_).max()
    alone = DRFClassifier().fit(X.reshape(-1, X.shape[-1]), y.ravel())
    assert_allclose(strong.coef_, alone.coef_, rtol=0.1)


def test_one_number_for_both_is_the_plain_penalty():
    X, y = noisy_blobs(4, 6)
    plain = DRFClassifier(C=0.3, learning="pl").fit(X, y)
    same = DRFClassifier(C=0.3, pairwise=PairwiseTables(C=0.3), learning="pl").fit(X, y)
    np.testing.assert_array_equal(plain.edge_coef_, same.edge_coef_)


def test_the_loss_curve_holds_both_penalties():
    X, y = noisy_blobs(4, 6)
    start = DRFClassifier(learning="pl", edge_features="constant").fit(X, y)
    fields = [clone(start).set_params(C=2.0, pairwise=PairwiseTables(C=edge_C)) for edge_C in (2.0, 0.5)]
    losses = []
    for field in fields:
        for name in ("coef_", "intercept_", "edge_coef_", "classes_", "n_features_in_", "lattice_ndim_"):
            setattr(field, name, getattr(start, name))
        losses.append(field.set_params(warm_start=True).fit(X, y).loss_curve_[0])
    # The squared weights of edges are multiplied by four.
    assert_allclose(losses[1] - losses[0], (4 - 1) * 0.5 * np.sum(start.edge_coef_**2), rtol=1e-9)


def test_grid_search_over_the_penalty_of_edges():
    X, y = noisy_blobs(6, 8)
    search = GridSearchCV(
        DRFClassifier(learning="pl", pairwise=PairwiseTables()), {"pairwise__C": [1e-3, 1.0]}, cv=2, error_score="raise"
    ).fit(X, y)
    assert search.best_params_["pairwise__C"] in (1e-3, 1.0)


@pytest.mark.parametrize("edge_C", [0.0, -1.0, np.nan])
def test_a_penalty_that_is_none_is_an_error(edge_C):
    X, y = noisy_blobs(2, 4)
    with pytest.raises(ValueError, match="'C' parameter of PairwiseTables"):
        DRFClassifier(pairwise=PairwiseTables(C=edge_C)).fit(X, y)


def squares(n=10, noise=0.5):
    y = np.zeros((n, 16, 16), dtype=int)
    y[:, 4:12, 4:12] = 1
    return y[..., np.newaxis] + np.random.default_rng(0).normal(scale=noise, size=(*y.shape, 1)), y


@pytest.mark.parametrize("inference", ["auto", "map"])
def test_edges_do_not_drown_the_nodes(inference):
    X, y = squares()
    plain = DRFClassifier(learning=PseudolikelihoodTraining(edge_scale=1), inference=inference).fit(X, y)
    assert plain.score(X, y) < np.mean(y == 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for pairwise in ("potts", PairwiseTables(C=0.001)):
            field = DRFClassifier(learning="pl", inference=inference, pairwise=pairwise).fit(X, y)
            assert field.score(X, y) > 0.9
        # Rows have no edges, and rare classes may have larger weights.
        DRFClassifier(learning="pl").fit(X.reshape(-1, 1), y.ravel())
        few = (np.random.default_rng(1).random(y.shape) < 0.05).astype(int)
        noisy = few[..., np.newaxis] + np.random.default_rng(0).normal(size=X.shape)
        DRFClassifier(learning="pl", inference=inference, class_weight="balanced").fit(noisy, few)
