"""Examples with factors in shards: the same weights as in memory, for every learning method that sums over examples."""

import numpy as np
import pytest
from factor_examples import factor_examples
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, Example, M3NClassifier, Shards

OPTIONS = {"edge_features": "constant", "C": 0.5, "tol": 1e-7, "max_iter": 1000}


def shards_and_memory(fixed):
    """Return examples, of which the second has no factors, and shards with different joint states."""
    X, y = factor_examples(6, fixed=fixed, n_classes=2)
    X[1] = Example(X[1].node_features, X[1].edges)
    return X, y, Shards.from_arrays([(X[:1], y[:1]), (X[1:2], y[1:2]), (X[2:], y[2:])])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "field",
    [
        TRWCRF(learning="exact"),
        TRWCRF(learning="loopy"),
        TRWCRF(learning="mean_field"),
        TRWCRF(learning="pseudolikelihood"),
        TRWCRF(learning="piecewise"),
        TRWCRF(learning="shared_pieces"),
        TRWCRF(learning="truncated"),
        M3NClassifier(solver="bmrm"),
        M3NClassifier(solver="bmrm", learning="relaxed_margin"),
        M3NClassifier(learning="smoothed_margin"),
        DRFClassifier(learning="pma"),
        DRFClassifier(learning="spa"),
        ContrastiveCRF(random_state=0),
    ],
    ids=lambda field: f"{type(field).__name__}-{field.learning}",
)
def test_shards_equal_memory(field):
    X, y, shards = shards_and_memory(fixed=True)
    field = field.set_params(**OPTIONS)
    whole, parts = clone(field).fit(X, y), clone(field).fit(shards)
    for name, states in whole.factor_states_.items():
        assert_array_equal(parts.factor_states_[name], states)
        assert_allclose(parts.factor_coef_[name], whole.factor_coef_[name], atol=1e-4)
    assert_allclose(parts.coef_, whole.coef_, atol=1e-4)
    assert_allclose(parts.loss_curve_[-1], whole.loss_curve_[-1], rtol=1e-6)


def test_types_differ_between_shards():
    X, y = factor_examples(2, n_classes=2)
    X[1] = Example(X[1].node_features, X[1].edges, factors={"triple": [[0, 1]]})
    with pytest.raises(ValueError, match="factors of type 'triple'"):
        TRWCRF(learning="exact").fit(Shards.from_arrays([(X[:1], y[:1]), (X[1:], y[1:])]))


def test_fixed_factors_forbid_labels_of_a_shard():
    X, y = factor_examples(2, n_classes=2)
    table = np.zeros((2, 2))
    table[y[1][0], y[1][1]] = -np.inf
    X[1] = X[1].with_fixed_factors([([0, 1], table)])
    with pytest.raises(ValueError, match="fixed_factors forbid the labels"):
        TRWCRF(learning="exact").fit(Shards.from_arrays([(X[:1], y[:1]), (X[1:], y[1:])]))
