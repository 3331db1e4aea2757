"""Mixtures of factor analysers trained on samples in parts."""

import pickle

import numpy as np
import pytest
from mfa_problems import mixture
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError

from sklearn_crf.mfa import Priors

X, Y = make_classification(
    1200, 12, n_informative=6, n_redundant=0, n_classes=3, n_clusters_per_class=2, class_sep=1.5, random_state=3
)
X = X * np.logspace(-2, 2, 12) + 5.0
PARTS = np.array_split(np.arange(800), 4)
MODELS = {
    "multi-conditional": mixture(n_init=1, random_state=0),
    "conditional": mixture(alpha=0.0, noise="class", n_init=1, random_state=0),
    "joint": mixture(objective="joint", noise="component", n_init=1, random_state=0),
    "priors": mixture(priors=Priors(mean_scale=2.0, loading_scale=2.0, noise_floor=0.05), n_init=1, random_state=0),
}


def in_parts(model, n_passes=1):
    model = clone(model)
    for _ in range(n_passes):
        for part in PARTS:
            model.partial_fit(X[part], Y[part], classes=[0, 1, 2])
    return model


def fitted_values(model):
    names = ("class_prior_", "weights_", "means_", "loadings_", "noise_variance_")
    return np.concatenate([np.ravel(getattr(model, name)) for name in names])


@pytest.mark.parametrize("name", MODELS)
def test_two_passes_come_near_the_full_fit(name):
    model, full = in_parts(MODELS[name], n_passes=2), clone(MODELS[name]).fit(X[:800], Y[:800])
    assert model.score(X[800:], Y[800:]) > full.score(X[800:], Y[800:]) - 0.05
    assert_allclose(model.class_count_, 2 * np.bincount(Y[:800]))
    assert_allclose(model.class_prior_, np.bincount(Y[:800]) / 800)
    assert_allclose(model.weights_.sum(axis=1), 1.0)
    assert model.partial_fit_state_["n_steps"] == 2 * sum(-(-len(part) // 64) for part in PARTS)
    assert model.partial_fit_state_["weight"] == 1600


def test_more_passes_raise_the_criterion():
    def criterion(model):
        rows, labels = X[:800], Y[:800]
        own = model.joint_log_likelihood(rows)[np.arange(800), labels]
        conditional = model.predict_log_proba(rows)[np.arange(800), labels]
        return np.mean(conditional + model.alpha * (own - np.log(model.class_prior_)[labels]))

    start = clone(MODELS["multi-conditional"]).set_params(max_iter=1)
    with pytest.warns(match="did not converge"):
        start.fit(X[PARTS[0]], Y[PARTS[0]])
    found = [criterion(in_parts(MODELS["multi-conditional"], n_passes)) for n_passes in (1, 5, 20)]
    assert criterion(start) < found[0] < found[1] < found[2]


@pytest.mark.parametrize("name", MODELS)
def test_pickles_go_on_where_they_were(name):
    model = clone(MODELS[name]).partial_fit(X[:200], Y[:200], classes=[0, 1, 2])
    loaded = pickle.loads(pickle.dumps(model)).set_params(n_jobs=2)
    for each in (model, loaded):
        each.partial_fit(X[200:400], Y[200:400])
    assert_array_equal(fitted_values(model), fitted_values(loaded))
    assert all(isinstance(part, np.ndarray | float | int) for part in loaded.partial_fit_state_.values())


def test_units_of_features_do_not_matter():
    plain = clone(MODELS["multi-conditional"])
    other = clone(plain)
    for part in PARTS:
        plain.partial_fit(X[part], Y[part], classes=[0, 1, 2])
        other.partial_fit(1e3 * X[part] - 7.0, Y[part], classes=[0, 1, 2])
    assert_allclose(other.predict_proba(1e3 * X[800:] - 7.0), plain.predict_proba(X[800:]), atol=1e-6)


def test_float32_read_only_strings_and_missing_values():
    rows = X[:400].astype(np.float32)
    rows[::7, 3] = np.nan
    rows.flags.writeable = False
    names = np.array(["a", "b", "c"])[Y[:400]]
    model = clone(MODELS["multi-conditional"]).set_params(allow_nan=True, classes=["c", "b", "a"])
    model.partial_fit(rows[:200], names[:200]).partial_fit(rows[200:], names[200:])
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.score(rows, names) > 0.7


def test_weights_of_samples_are_counts():
    weight = np.array([0.0, 1.0, 2.0])[np.arange(200) % 3]
    weighted = clone(MODELS["joint"]).partial_fit(X[:200], Y[:200], [0, 1, 2], sample_weight=weight)
    assert weighted.partial_fit_state_["weight"] == weight.sum()
    doubled = clone(MODELS["joint"]).partial_fit(X[:200], Y[:200], [0, 1, 2], sample_weight=2 * weight)
    assert_allclose(fitted_values(doubled), fitted_values(weighted), rtol=1e-6, atol=1e-8)
    one = clone(MODELS["joint"]).set_params(class_weight={0: 2.0, 1: 1.0, 2: 1.0})
    one.partial_fit(X[:200], Y[:200], classes=[0, 1, 2])
    by_hand = clone(MODELS["joint"]).partial_fit(X[:200], Y[:200], [0, 1, 2], sample_weight=1.0 + (Y[:200] == 0))
    assert_array_equal(fitted_values(one), fitted_values(by_hand))


def test_goes_on_from_a_fit_and_a_fit_forgets_it():
    model = clone(MODELS["multi-conditional"]).fit(X[:400], Y[:400])
    before = model.score(X[800:], Y[800:])
    model.partial_fit(X[400:800], Y[400:800])
    assert model.score(X[800:], Y[800:]) > before - 0.03
    assert not hasattr(model.fit(X[:400], Y[:400]), "partial_fit_state_")


def test_errors_leave_the_model_as_it_was():
    model = clone(MODELS["multi-conditional"])
    with pytest.raises(ValueError, match="classes must be passed on the first call to partial_fit"):
        model.partial_fit(X[:200], Y[:200])
    with pytest.raises(ValueError, match=r"class 1 has 0 sample\(s\) of positive weight"):
        model.partial_fit(X[:200][Y[:200] != 1], Y[:200][Y[:200] != 1], classes=[0, 1, 2])
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X[:200], Y[:200], classes=[0, 1, 2])
    before = fitted_values(model)
    with pytest.raises(ValueError, match="is not the same as on last call to partial_fit"):
        model.partial_fit(X[:200], Y[:200], classes=[0, 1])
    with pytest.raises(ValueError, match="y contains the label 3, which is not one of"):
        model.partial_fit(X[:200], Y[:200] + 1)
    with pytest.raises(ValueError, match="X has 11 features, but MultiConditionalMFA is expecting 12"):
        model.partial_fit(X[:200, :11], Y[:200])
    with pytest.raises(ValueError, match="class_weight='balanced' is not supported by partial_fit"):
        model.set_params(class_weight="balanced").partial_fit(X[:200], Y[:200])
    assert_array_equal(fitted_values(model), before)
    # A later part may lack classes.
    model.set_params(class_weight=None).partial_fit(X[Y == 0][:50], Y[Y == 0][:50])
    assert np.isfinite(fitted_values(model)).all()
    with pytest.warns(match="has no samples of the classes"):
        other = mixture(classes=[0, 1, 2], n_init=1).fit(X[Y < 2][:200], Y[Y < 2][:200])
    with pytest.raises(ValueError, match="cannot continue from a fit that had no samples of the class 2"):
        other.partial_fit(X[:200], Y[:200])
