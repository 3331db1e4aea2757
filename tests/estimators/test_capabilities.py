"""Tables of capabilities: stated capabilities exist, and missing ones have a reason."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from factor_examples import factor_examples

from sklearn_crf import TRWCRF
from sklearn_crf.learning import LEARNINGS, ErrorCost
from sklearn_crf.potentials import PairwiseTables, Segments

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def field_of(learning):
    # The graphs are narrow, so with factors of three nodes the tree-reweighted entropy of "likelihood" is exact.
    options = {"missing_label": -1, "edge_features": "constant", "fit_intercept": False, "random_state": 0}
    return TRWCRF(learning=learning, max_iter=5, **options)


@pytest.mark.parametrize("learning", LEARNINGS)
def test_factors(learning):
    X, y = factor_examples(4)
    assert LEARNINGS[learning].takes_factors
    assert np.isfinite(field_of(learning).fit(X, y).coef_).all()


@pytest.mark.parametrize("learning", LEARNINGS)
def test_missing_labels(learning):
    rng = np.random.default_rng(0)
    y = np.repeat(rng.integers(2, size=(6, 3)), 2, axis=1)
    X = y[..., None] + 0.5 * rng.normal(size=(*y.shape, 1))
    y[::2, 0] = -1
    kind, field = LEARNINGS[learning], field_of(learning)
    if not kind.needs_labels:
        assert np.isfinite(field.fit(X, y).coef_).all()
        assert "missing labels" not in kind.why_not
    else:
        with pytest.raises(ValueError, match=re.escape(kind.why_not["missing labels"])):
            field.fit(X, y)


@pytest.mark.parametrize("learning", LEARNINGS)
def test_segments(learning):
    rng = np.random.default_rng(0)
    y = np.repeat(rng.integers(2, size=(6, 3)), 2, axis=1)
    X = y[..., None] + 0.5 * rng.normal(size=(*y.shape, 1))
    kind, field = LEARNINGS[learning], field_of(learning)
    field.set_params(pairwise=PairwiseTables("full", segments=Segments(4)))
    if kind().takes_segments:
        assert field.fit(X, y).duration_coef_.shape == (2, 4)
    else:
        with pytest.raises(ValueError, match=f"does not support segments, because {kind.why_not['segments']}"):
            field.fit(X, y)


@pytest.fixture(scope="module")
def table():
    folder = str(Path(__file__).resolve().parents[2] / "docs")
    sys.path.insert(0, folder)
    try:
        import capability_table
    finally:
        sys.path.remove(folder)
    return capability_table


def test_what_an_estimator_lacks_has_a_reason(table):
    kinds = table.estimators()
    assert len(kinds) >= 9
    assert {kind.__name__ for kind in kinds} == table.WHY_NOT.keys()
    for kind in kinds:
        lacking = {name for name in table.ROWS if not table.offers(kind, name)}
        assert [name for name in table.ROWS if name in lacking and not table.reason(kind, name)] == [], kind.__name__
        assert table.WHY_NOT[kind.__name__].keys() <= lacking, kind.__name__


def test_every_reason_is_in_the_table(table):
    text = "\n".join(" ".join(row) for row in table.reason_rows())
    for reasons in table.WHY_NOT.values():
        assert all(f"``{name}``" in text and why in text for name, why in reasons.items())


@pytest.mark.parametrize("learning", LEARNINGS)
def test_costs(learning, table):
    kind = LEARNINGS[learning]
    X, y = factor_examples(4)
    options = {"loss": "expected_cost"} if learning == "truncated" else {}
    assert (table.costs_of(kind) == ["nodes", "edges", "factors"]) == (learning not in table.WHY_NO_COSTS)
    if learning not in table.WHY_NO_COSTS:
        losses = [
            field_of(kind(cost=cost, **options)).fit(X, y).loss_curve_[0]
            for cost in (ErrorCost(), ErrorCost(edges="pairs"), ErrorCost(edges="pairs", factors=1.0))
        ]
        assert losses[0] < losses[1] < losses[2]
    else:
        with pytest.raises((ValueError, TypeError)):
            field_of(kind(cost=ErrorCost(edges="pairs"))).fit(X, y)
