"""A weight of k equals k copies, in every classifier and layout, with and without class weights."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DenseCRF,
    DenseExample,
    DRFClassifier,
    Example,
    M3NClassifier,
    MultiConditionalMFA,
)
from sklearn_crf.learning import (
    ContrastiveTraining,
    Exact,
    JointRelaxation,
    MaxMargin,
    PiecewiseTraining,
    PseudolikelihoodTraining,
    Relaxation,
)
from sklearn_crf.objectives import MapGenerator, MostViolated

TIGHT = {"tol": 1e-10, "max_iter": 3000}
COPIES = np.array([1, 3, 2, 1, 4, 2, 1, 3])
FIELDS = {
    "drf": DRFClassifier(**TIGHT),
    "drf pl": DRFClassifier(learning=PseudolikelihoodTraining(), **TIGHT),
    "trw": TRWCRF(learning=Relaxation(tol=1e-12), **TIGHT),
    "trw exact": TRWCRF(learning=Exact(), **TIGHT),
    "trw pl": TRWCRF(learning=PseudolikelihoodTraining(), **TIGHT),
    "trw pieces": TRWCRF(learning=PiecewiseTraining(), **TIGHT),
    "trw costs": TRWCRF(learning=Exact(cost="hamming"), **TIGHT),
    "trw joint": TRWCRF(learning=JointRelaxation(tol=1e-12), **TIGHT),
    "trw joint edges": TRWCRF(learning=JointRelaxation(entropy="trivial", tol=1e-12), **TIGHT),
    "contrastive": ContrastiveCRF(learning=ContrastiveTraining(generator=None), random_state=0, **TIGHT),
    "contrastive seen": ContrastiveCRF(
        learning=ContrastiveTraining(init="observed", generator=None), random_state=0, **TIGHT
    ),
    "m3n": M3NClassifier(learning=MaxMargin(), solver="bmrm", tol=1e-7, max_iter=3000),
    "m3n weighted": M3NClassifier(learning=MaxMargin(cost="weighted"), solver="bmrm", tol=1e-7, max_iter=3000),
}
CLASS_WEIGHTS = {"none": None, "balanced": "balanced", "dict": {0: 0.4, 2: 3.0}}


def rows(rng):
    y = rng.choice(3, size=8, p=[0.6, 0.3, 0.1])
    y[:3] = 0, 1, 2
    return np.eye(3)[y] + rng.normal(size=(8, 3)), y


def lattices(shape):
    def make(rng):
        y = rng.choice(3, size=(8, *shape), p=[0.6, 0.3, 0.1])
        return np.eye(3)[y] + rng.normal(size=(*y.shape, 3)), y

    return make


def graphs(rng):
    edges = np.array([[0, 1], [1, 2], [2, 0], [2, 3]])
    y = rng.choice(3, size=(8, 4), p=[0.6, 0.3, 0.1])
    return [Example(np.eye(3)[own] + rng.normal(size=(4, 3)), edges) for own in y], list(y)


LAYOUTS = {"rows": rows, "chains": lattices((5,)), "images": lattices((3, 2)), "graphs": graphs}


def repeated(values, times):
    found = [value for value, n in zip(values, times, strict=True) for _ in range(n)]
    return np.array(found) if isinstance(values, np.ndarray) else found


def scores_of(field, X):
    """Return marginals, or the weights of a field without marginals, for comparing two fits."""
    if hasattr(field, "predict_proba"):
        return field.predict_proba(X)
    return np.concatenate([field.coef_.ravel(), field.intercept_.ravel(), field.edge_coef_.ravel()])


def assert_equal_fits(one, other, X, atol=1e-5):
    for a, b in zip(scores_of(one, X), scores_of(other, X), strict=True):
        assert_allclose(a, b, atol=atol)


def quiet_fit(field, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(field).fit(*arguments)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("class_weight", CLASS_WEIGHTS)
@pytest.mark.parametrize("name", FIELDS)
def test_weights_of_examples_are_copies(name, class_weight, layout):
    X, y = LAYOUTS[layout](np.random.default_rng(0))
    field = clone(FIELDS[name]).set_params(class_weight=CLASS_WEIGHTS[class_weight])
    weighted = quiet_fit(field, X, y, COPIES)
    copied = quiet_fit(field, repeated(X, COPIES), repeated(y, COPIES))
    assert_equal_fits(weighted, copied, X, atol=2e-4 if name.startswith("m3n") else 1e-5)
    if class_weight == "balanced":
        # The weights of classes depend on the weights of examples.
        assert not np.allclose(
            np.ravel(list(scores_of(weighted, X))), np.ravel(list(scores_of(quiet_fit(field, X, y), X)))
        )


@pytest.mark.parametrize("layout", ["chains", "images", "graphs"])
@pytest.mark.parametrize("generator", ["map", "icm", "gibbs", "map_mv"])
def test_generated_labelings_of_copies_are_equal(generator, layout):
    X, y = LAYOUTS[layout](np.random.default_rng(0))
    learning = ContrastiveTraining(generator=generator)
    field = ContrastiveCRF(0.1, learning=learning, random_state=0, tol=1e-9, max_iter=3000)
    weighted = quiet_fit(field, X, y, COPIES)
    # On graphs with cycles, rounding errors can change a label of a later round.
    atol = 1e-5 if layout == "chains" else 0.1
    assert_equal_fits(weighted, quiet_fit(field, repeated(X, COPIES), repeated(y, COPIES)), X, atol=atol)
    # The order of the examples has no effect.
    backwards = quiet_fit(field, X[::-1], y[::-1], COPIES[::-1])
    assert_equal_fits(weighted, backwards, X, atol=atol)
    assert 0 < weighted.n_assignments_ <= 1.1 * backwards.n_assignments_


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["drf pl", "trw pl"])
def test_weights_of_all_nodes_of_an_example_are_copies(name, layout):
    X, y = LAYOUTS[layout](np.random.default_rng(0))
    of_nodes = [np.full(np.shape(own), float(k)) for own, k in zip(y, COPIES, strict=True)]
    weight = np.array(of_nodes) if isinstance(y, np.ndarray) else of_nodes
    weighted = quiet_fit(FIELDS[name], X, y, None, weight)
    assert_equal_fits(weighted, quiet_fit(FIELDS[name], repeated(X, COPIES), repeated(y, COPIES)), X)
    assert not np.allclose(weighted.coef_, quiet_fit(FIELDS[name], X, y).coef_)


@pytest.mark.parametrize("class_weight", CLASS_WEIGHTS)
@pytest.mark.parametrize("name", FIELDS)
def test_an_example_of_weight_0_is_not_there(name, class_weight):
    X, y = lattices((5,))(np.random.default_rng(1))
    y[0] = 1
    weight = np.ones(8)
    weight[0] = 0.0
    field = clone(FIELDS[name]).set_params(class_weight=CLASS_WEIGHTS[class_weight])
    tolerance = 2e-4 if name.startswith("m3n") else 1e-5
    assert_equal_fits(quiet_fit(field, X, y, weight), quiet_fit(field, X[1:], y[1:]), X, atol=tolerance)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_weights_are_copies_in_the_centre_of_penalised_intercepts(layout):
    X, y = LAYOUTS[layout](np.random.default_rng(0))
    # The means of the examples differ, so the centre depends on their weights.
    shifts = np.repeat([0.0, 8.0], 4)
    if layout == "graphs":
        X = [Example(x.node_features + shift, x.edges) for x, shift in zip(X, shifts, strict=True)]
    else:
        X = X + shifts.reshape(-1, *[1] * (X.ndim - 1))
    weighted = quiet_fit(FIELDS["m3n"], X, y, COPIES)
    copied = quiet_fit(FIELDS["m3n"], repeated(X, COPIES), repeated(y, COPIES))
    assert_equal_fits(weighted, copied, X, atol=2e-4)


@pytest.mark.parametrize("name", ["drf", "trw exact"])
@pytest.mark.parametrize("class_weight", CLASS_WEIGHTS)
def test_weights_are_copies_where_labels_are_missing(name, class_weight):
    X, y = lattices((5,))(np.random.default_rng(2))
    y[:, 1] = -1
    y[5] = -1
    field = clone(FIELDS[name]).set_params(
        class_weight=CLASS_WEIGHTS[class_weight], missing_label=-1, classes=[0, 1, 2]
    )
    weighted = quiet_fit(field, X, y, COPIES)
    assert_equal_fits(weighted, quiet_fit(field, repeated(X, COPIES), repeated(y, COPIES)), X)


@pytest.mark.parametrize("class_weight", CLASS_WEIGHTS)
def test_violated_sets_weigh_copies(class_weight):
    X, y = lattices((5,))(np.random.default_rng(0))
    generator = MostViolated(MapGenerator(), "weighted")
    field = ContrastiveCRF(
        learning=ContrastiveTraining(generator=generator, max_round_iter=None),
        class_weight=CLASS_WEIGHTS[class_weight],
        random_state=0,
        **TIGHT,
    )
    weighted = quiet_fit(field, X, y, COPIES)
    assert_equal_fits(weighted, quiet_fit(field, repeated(X, COPIES), repeated(y, COPIES)), X)


@pytest.mark.parametrize("class_weight", CLASS_WEIGHTS)
def test_dense_fields_weigh_copies(class_weight):
    rng = np.random.default_rng(0)
    y = rng.choice(3, size=(8, 4, 4), p=[0.6, 0.3, 0.1])
    X = [DenseExample(np.eye(3)[own] + rng.normal(size=(4, 4, 3)), 50.0 * own) for own in y]
    field = DenseCRF(class_weight=CLASS_WEIGHTS[class_weight], tol=1e-10, max_iter=500)
    weighted = quiet_fit(field, X, list(y), COPIES)
    assert_equal_fits(weighted, quiet_fit(field, repeated(X, COPIES), repeated(list(y), COPIES)), X)


@pytest.mark.parametrize("class_weight", CLASS_WEIGHTS)
@pytest.mark.parametrize("objective", ["joint", "multi_conditional"])
def test_mixtures_weigh_copies(class_weight, objective):
    rng = np.random.default_rng(0)
    y = rng.choice(3, size=60, p=[0.5, 0.3, 0.2])
    X = np.eye(3)[y] + rng.normal(size=(60, 3))
    copies = rng.integers(1, 4, size=60)
    field = MultiConditionalMFA(
        n_components=1,
        n_factors=1,
        objective=objective,
        class_weight=CLASS_WEIGHTS[class_weight],
        random_state=0,
        tol=1e-13,
        max_iter=3000,
    )
    weighted = quiet_fit(field, X, y, copies)
    assert_equal_fits(weighted, quiet_fit(field, repeated(X, copies), repeated(y, copies)), X)
