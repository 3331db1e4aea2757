"""Components, noise and alpha that are chosen by held-out samples."""

import pickle

import numpy as np
import pytest
from mfa_problems import labelled_clusters
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine, make_moons
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from sklearn_crf import MultiConditionalMFA, Shards
from sklearn_crf.mfa import Priors, alpha_path
from sklearn_crf.mfa._training import _fit_temperature, _ranks
from sklearn_crf.mfa._tuning import LARGEST_LOSS

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
X, Y = load_iris(return_X_y=True)
GIVEN = {"n_components": 2, "noise": "tied", "alpha": 0.01}


def weights(model):
    return [model.means_, model.loadings_, model.noise_variance_, model.predict_proba(X)]


def test_a_choice_equals_a_fit_with_the_chosen_parameters():
    model = MultiConditionalMFA(random_state=0).fit(X, Y)
    chosen = {name: getattr(model, f"{name}_") for name in GIVEN}
    priors = Priors(mean_scale=1.0, loading_scale=1.0, noise_floor=0.1)
    given = MultiConditionalMFA(**chosen, priors=priors, random_state=0).fit(X, Y)
    assert_array_equal(model.means_, given.means_)
    assert given.temperature_ == 1
    scores = given.predict_log_proba(X) / model.temperature_
    assert_allclose(model.predict_log_proba(X), log_softmax(scores, axis=1), atol=1e-12)
    assert_array_equal(model.predict(X), given.predict(X))
    assert_array_equal(model.score_samples(X), given.score_samples(X))


@pytest.mark.parametrize("name", list(GIVEN))
def test_given_parameters_are_kept(name):
    model = MultiConditionalMFA(random_state=0, **{name: GIVEN[name]}).fit(X, Y)
    assert getattr(model, f"{name}_") == GIVEN[name]
    assert model.get_params()[name] == GIVEN[name]


def test_curved_classes_get_several_components():
    rows, labels = make_moons(600, noise=0.15, random_state=0)
    train, test, own, truth = train_test_split(rows, labels, random_state=0)
    model = MultiConditionalMFA(random_state=0).fit(train, own)
    assert model.n_components_ > 1
    assert log_loss(truth, model.predict_proba(test)) < 0.15


def test_probabilities_of_few_samples_are_not_overconfident():
    rows, labels = load_wine(return_X_y=True)
    train, test, own, truth = train_test_split(rows, labels, train_size=0.5, stratify=labels, random_state=5)
    chosen = MultiConditionalMFA(random_state=0).fit(train, own)
    given = MultiConditionalMFA(**GIVEN, random_state=0).fit(train, own)
    assert log_loss(truth, chosen.predict_proba(test)) < log_loss(truth, given.predict_proba(test))


def test_the_order_copies_and_threads_do_not_change_the_choice():
    order = np.random.default_rng(0).permutation(len(X))
    models = [
        MultiConditionalMFA(1, random_state=0, n_jobs=n_jobs).fit(*data)
        for data, n_jobs in (((X, Y), 1), ((X, Y), 2), ((X[order], Y[order]), 1))
    ]
    assert_array_equal(models[0].means_, models[1].means_)
    twice = MultiConditionalMFA(1, random_state=0).fit(np.r_[X, X], np.r_[Y, Y])
    weighted = MultiConditionalMFA(1, random_state=0).fit(X, Y, np.full(len(X), 2.0))
    for a, b in ((models[0], models[2]), (twice, weighted)):
        assert (a.noise_, a.alpha_) == (b.noise_, b.alpha_)
        assert_allclose(a.temperature_, b.temperature_, rtol=1e-3)


def test_copies_of_a_sample_are_in_one_fold():
    model = MultiConditionalMFA()
    samples = model._read(np.r_[X, X[:9]], np.r_[Y, Y[:9]], None).samples
    ranks, counts = _ranks(samples)
    assert_array_equal(ranks[-9:], ranks[:9])
    assert_array_equal(counts, [len(np.unique(X[c == Y], axis=0)) for c in range(3)])


@pytest.mark.parametrize("n_far", [0, 1])
@pytest.mark.parametrize("scale", [0.2, 5.0, 1000.0])
def test_the_temperature_minimises_the_limited_log_loss_and_is_at_least_1(scale, n_far):
    rng = np.random.default_rng(0)
    scores, weight = rng.normal(size=(200, 4)), rng.random(200)
    truth = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    scores[:n_far, (truth[0] + 1) % 4] += 1e5  # a wrong sample whose loss is at the limit

    def loss(factor):
        of_samples = -log_softmax(factor * scores, axis=1)[np.arange(200), truth]
        return weight @ np.minimum(of_samples, LARGEST_LOSS) / weight.sum()

    found, temperature = _fit_temperature(scale * scores, truth, weight)
    assert_allclose(found, loss(scale / temperature), rtol=1e-9)
    assert temperature >= 1
    assert found <= min(loss(scale / t) for t in np.geomspace(1, np.exp(5), 3000)) + 1e-4


def test_scores_that_are_not_finite_are_never_chosen():
    assert _fit_temperature(np.full((3, 2), np.nan), np.zeros(3, dtype=int), np.ones(3))[0] == np.inf


def test_the_choice_starts_held_out_models_as_the_fit_does():
    # With alpha = 0.001 the solver stops near its start. This is better than continuing from the result of alpha = 1.
    rows, labels = load_digits(return_X_y=True)
    train, test, own, truth = train_test_split(rows, labels, train_size=0.5, stratify=labels, random_state=0)
    chosen = MultiConditionalMFA(random_state=0).fit(train, own)
    given = MultiConditionalMFA(**GIVEN, random_state=0).fit(train, own)
    assert log_loss(truth, chosen.predict_proba(test)) < 0.5 * log_loss(truth, given.predict_proba(test))
    assert chosen.score(test, truth) > given.score(test, truth)


def test_few_samples_missing_values_shards_and_given_means():
    few = MultiConditionalMFA(n_factors=1).fit(X[::12], Y[::12])
    assert (few.n_components_, few.noise_, few.alpha_, few.temperature_) == (1, "class", 0.1, 1)
    holes = np.where(np.arange(X.size).reshape(X.shape) % 37, X, np.nan)
    assert MultiConditionalMFA(1, n_factors=1, allow_nan=True, max_iter=30).fit(holes, Y).score(holes, Y) > 0.9
    parts = Shards.from_arrays([(X[::2], Y[::2]), (X[1::2], Y[1::2])])
    assert MultiConditionalMFA(random_state=0).fit(parts).score(X, Y) > 0.9
    with pytest.warns(UserWarning, match="constant") as caught:
        MultiConditionalMFA(n_factors=1, objective="joint").fit(np.column_stack([X, np.ones(150)]), Y)
    assert sum("constant" in str(each.message) for each in caught) == 1
    means = MultiConditionalMFA(init=np.array([X[c == Y][:2] for c in range(3)])).fit(X, Y)
    assert means.n_components_ == 2


def test_a_joint_likelihood_has_no_alpha_to_choose():
    model = MultiConditionalMFA(objective="joint", random_state=0).fit(X, Y)
    assert np.isfinite(model.bic(X, Y))
    assert model.alpha_ == 0.1


def test_a_warm_start_and_a_pass_keep_the_choice():
    model = MultiConditionalMFA(random_state=0, warm_start=True).fit(X, Y)
    before = {name: getattr(model, f"{name}_") for name in (*GIVEN, "temperature")}
    model.fit(X[::2], Y[::2])
    assert before == {name: getattr(model, f"{name}_") for name in before}
    model.partial_fit(X[1::2], Y[1::2])
    assert before == {name: getattr(model, f"{name}_") for name in before}
    assert pickle.loads(pickle.dumps(model)).n_parameters() == model.n_parameters()


def test_models_without_a_stored_choice_still_predict():
    model = MultiConditionalMFA(2, noise="class", alpha=0.1, random_state=0).fit(X, Y)
    before = weights(model), model.n_parameters()
    for name in (*GIVEN, "temperature"):
        delattr(model, f"{name}_")
    for a, b in zip(weights(model), before[0], strict=True):
        assert_array_equal(a, b)
    assert model.n_parameters() == before[1]


def test_a_path_has_one_choice_of_components_and_noise():
    rows, labels = labelled_clusters(150, 4, 3, seed=1)
    estimator = MultiConditionalMFA(n_factors=1, random_state=0, max_iter=50)
    path = alpha_path(clone(estimator), rows, labels, [0.01, 1.0])
    assert len({(model.n_components_, model.noise_) for model in path}) == 1
    assert [model.alpha_ for model in path] == [0.01, 1.0]
