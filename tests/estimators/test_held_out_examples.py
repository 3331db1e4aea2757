"""Held-out examples choose the iterate that DRFClassifier keeps, and end its training."""

import warnings

import numpy as np
import pytest
from field_data import chains, noisy_blobs
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import DRFClassifier, Example
from sklearn_crf.encoding import take_examples
from sklearn_crf.estimators._fitted_field import FittedField
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import LoopyBP
from sklearn_crf.learning import (
    SGD,
    ContrastiveDivergenceTraining,
    GradientSteps,
    Learning,
    MaximumLikelihood,
    MaximumMarginalTraining,
    PseudolikelihoodTraining,
    PseudoMarginalTraining,
    SaddlePointTraining,
)

X, Y = noisy_blobs(10, side=7, noise=0.8)
X_VAL, Y_VAL = noisy_blobs(5, side=7, noise=0.8, seed=1)
BP = LoopyBP(max_iter=20)
FIELDS = {
    "pma": DRFClassifier(learning=PseudoMarginalTraining(), inference=BP, max_iter=30),
    "pma, trw": DRFClassifier(max_iter=30),
    "pma, steps": DRFClassifier(learning="pma", solver=GradientSteps(step_size=1.0), max_iter=30),
    "pma, sgd": DRFClassifier(learning="pma", solver=SGD(step_size=0.5), max_iter=15, random_state=0),
    "pl": DRFClassifier(learning=PseudolikelihoodTraining(), inference="map", max_iter=30),
    "spa": DRFClassifier(learning=SaddlePointTraining(step_size=0.5), inference="map", max_iter=30),
    "spa, batches": DRFClassifier(
        learning=SaddlePointTraining(batch_size=2), inference="map", max_iter=15, random_state=0
    ),
    "spa, bundle": DRFClassifier(learning="spa", solver="bundle", inference="map", max_iter=30),
    "spa, votes": DRFClassifier(learning=SaddlePointTraining(select="voted"), inference="map", max_iter=30),
    "mma": DRFClassifier(learning=MaximumMarginalTraining(step_size=0.5), inference=BP, max_iter=30),
    "cd": DRFClassifier(
        learning=ContrastiveDivergenceTraining(step_size=0.5), inference="map", max_iter=30, random_state=0
    ),
}


def quiet_fit(field, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(field).fit(*arguments, **options)


@pytest.mark.parametrize("name", FIELDS)
def test_the_iterate_that_is_best_on_held_out_examples_is_kept(name):
    field = quiet_fit(FIELDS[name], X, Y, X_val=X_VAL, y_val=Y_VAL)
    scores = field.validation_scores_
    assert scores.shape == (field.n_iter_,) == field.loss_curve_.shape
    # Of equally good iterates, the latest is chosen.
    assert field.best_iter_ == field.n_iter_ - 1 - np.argmax(scores[::-1])
    assert field.voters_ is None
    kept = field.coef_path_[field.best_iter_]
    fitted = FittedField.of(field)
    assert_array_equal(kept, fitted.weights(fitted.potentials()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert field.score(X_VAL, Y_VAL) == pytest.approx(scores.max(), abs=1e-12)


def test_forests_and_maximum_likelihood():
    sequences, labels = chains()
    field = DRFClassifier(learning=MaximumLikelihood(early_stopping=True, validation_fraction=0.3), random_state=0)
    field.fit(sequences, labels)
    assert len(field.validation_scores_) == field.n_iter_


def test_patience_ends_training():
    rule = SaddlePointTraining(step_size=0.5, n_iter_no_change=2)
    field = DRFClassifier(learning=rule, inference="map").fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    scores = field.validation_scores_
    first_best = int(np.argmax(scores))
    assert field.n_iter_ == first_best + 3
    assert field.stop_reason_ == "STOP: no better validation score in 2 iterations"
    assert field.converged_ is False
    longer = clone(field).set_params(learning__n_iter_no_change=6).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    assert longer.n_iter_ > field.n_iter_
    assert_array_equal(longer.validation_scores_[: field.n_iter_], scores)


def test_lbfgs_stops_where_it_is_told_to():
    # After L-BFGS, the accuracy of the marginals of a convex bound increases, unless held-out examples ended training.
    rule = PseudoMarginalTraining(n_iter_no_change=1)
    field = DRFClassifier(learning=rule).fit(X, Y, X_val=X_VAL, y_val=Y_VAL)
    assert field.n_iter_ == np.argmax(field.validation_scores_) + 2
    assert field.stop_reason_.startswith("STOP: no better validation score")


def test_a_share_of_the_examples_is_held_out():
    rule = SaddlePointTraining(early_stopping=True, validation_fraction=0.3)
    field = DRFClassifier(learning=rule, inference="map", max_iter=20, random_state=3).fit(X, Y)
    order = np.random.RandomState(3).permutation(10)
    held_out, kept = np.sort(order[:3]), np.sort(order[3:])
    same = DRFClassifier(learning="spa", inference="map", max_iter=20, random_state=3)
    same.fit(X[kept], Y[kept], X_val=X[held_out], y_val=Y[held_out])
    assert_array_equal(field.validation_scores_, same.validation_scores_)
    assert_array_equal(field.coef_, same.coef_)
    # A list of images, and a list with weights.
    weight = np.linspace(0.5, 2, 10)
    weighted = clone(field).fit(list(X), list(Y), weight)
    by_hand = [weight[held_out][i] * np.ones(Y[0].size) for i in range(3)]
    wrong = np.array([weighted.predict(X[[i]])[0] != Y[i] for i in held_out]).reshape(3, -1)
    assert 1 - np.average(wrong, weights=by_hand) == pytest.approx(weighted.validation_scores_.max())


def test_node_weights_are_cut_with_their_examples():
    weight = np.random.default_rng(0).random(Y.shape)
    rule = PseudolikelihoodTraining(early_stopping=True, validation_fraction=0.3)
    field = DRFClassifier(learning=rule, inference="map", random_state=3).fit(X, Y, node_weight=weight)
    order = np.random.RandomState(3).permutation(10)
    held_out, kept = np.sort(order[:3]), np.sort(order[3:])
    same = DRFClassifier(learning="pl", inference="map", random_state=3)
    same.fit(X[kept], Y[kept], node_weight=weight[kept], X_val=X[held_out], y_val=Y[held_out])
    assert_array_equal(field.coef_, same.coef_)


@pytest.mark.parametrize("name", ["pma, trw", "spa", "cd"])
def test_threads_change_nothing(name):
    fits = [
        quiet_fit(clone(FIELDS[name]).set_params(n_jobs=n_jobs), X, Y, X_val=X_VAL, y_val=Y_VAL) for n_jobs in (1, 3)
    ]
    assert_array_equal(fits[0].validation_scores_, fits[1].validation_scores_)
    assert_array_equal(fits[0].coef_, fits[1].coef_)


def test_nothing_is_held_out_by_default():
    field = DRFClassifier(learning="pl").fit(X, Y)
    assert field.validation_scores_.shape == (0,)
    assert_array_equal(
        field.coef_, DRFClassifier(learning=PseudolikelihoodTraining(early_stopping=False)).fit(X, Y).coef_
    )


def test_unlabelled_held_out_nodes_and_rows_of_sparse_features():
    partly = Y_VAL.copy()
    partly[:, :4] = -1
    field = DRFClassifier(inference="map", missing_label=-1, max_iter=10).fit(X, Y, X_val=X_VAL, y_val=partly)
    assert field.validation_scores_.max() == pytest.approx(field.score(X_VAL, partly))
    rows, labels = csr_matrix(np.hstack((X.reshape(-1, 1), 1 - X.reshape(-1, 1)))), Y.ravel()
    rule = PseudoMarginalTraining(early_stopping=True, validation_fraction=0.2)
    plain = DRFClassifier(learning=rule, random_state=0).fit(rows, labels)
    assert len(plain.validation_scores_) == plain.n_iter_


def test_warnings_of_inference_on_held_out_examples_are_left_out():
    rule = PseudolikelihoodTraining(n_iter_no_change=50)
    field = DRFClassifier(learning=rule, inference=LoopyBP(max_iter=1), n_jobs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field.fit(X, Y, X_val=X_VAL, y_val=Y_VAL)


class UsersLearning(Learning):
    def objective(self, plan, data):
        return PseudolikelihoodTraining().objective(plan, data)

    def solver(self, solver, plan, encoded, potentials=None):
        return GradientSteps(step_size=1.0)


def test_rules_of_users_take_held_out_examples():
    field = quiet_fit(DRFClassifier(learning=UsersLearning(), max_iter=5), X, Y, X_val=X_VAL, y_val=Y_VAL)
    assert len(field.validation_scores_) == 5


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        (SaddlePointTraining(early_stopping="yes"), {}, "early_stopping"),
        (SaddlePointTraining(validation_fraction=0), {}, "validation_fraction"),
        (PseudoMarginalTraining(validation_fraction=1.0), {}, "validation_fraction"),
        (ContrastiveDivergenceTraining(n_iter_no_change=0), {}, "n_iter_no_change"),
        (PseudolikelihoodTraining(), {"X_val": X_VAL}, "X_val and y_val must be passed together"),
        (PseudolikelihoodTraining(early_stopping=False), {"X_val": X_VAL, "y_val": Y_VAL}, "early_stopping=False"),
        (PseudolikelihoodTraining(), {"X_val": X_VAL, "y_val": Y_VAL[:3]}, "X_val and y_val"),
        (PseudolikelihoodTraining(), {"X_val": X_VAL[..., [0, 0]], "y_val": Y_VAL}, "X_val and y_val.*2 features"),
        (PseudolikelihoodTraining(), {"X_val": X_VAL, "y_val": Y_VAL + 5}, "y_val"),
        (
            PseudolikelihoodTraining(),
            {"X_val": X_VAL, "y_val": np.full_like(Y_VAL, -1)},
            "y_val has no node with a label",
        ),
    ],
)
def test_what_cannot_be_meant_is_an_error(rule, options, message):
    field = DRFClassifier(learning=PseudolikelihoodTraining(), missing_label=-1).fit(X, Y)
    before = dict(vars(field))
    with pytest.raises(ValueError, match=message):
        field.set_params(learning=rule).fit(X, Y, **options)
    assert {name: value for name, value in vars(field).items() if name != "learning"} == {
        name: value for name, value in before.items() if name != "learning"
    }


def test_errors_of_the_split():
    field = DRFClassifier(learning=PseudolikelihoodTraining(early_stopping=True))
    with pytest.raises(ValueError, match="X has only one example"):
        field.fit(X[:1], Y[:1])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        field.fit(X, Y[:3])
    with pytest.raises(ValueError, match="y=None"):
        field.fit(X)
    with pytest.raises(ValueError, match="early_stopping=True is not supported by partial_fit"):
        field.partial_fit(X, Y, classes=[0, 1])


@pytest.mark.parametrize("kind", ["rows", "sparse rows", "images", "list of images", "graphs"])
def test_weights_of_examples_are_copies_if_some_are_held_out(kind):
    rng = np.random.default_rng(0)
    images, labels = noisy_blobs(16, side=5, noise=0.8)
    examples = {
        "rows": rng.normal(size=(16, 2)),
        "sparse rows": csr_matrix(rng.normal(size=(16, 2))),
        "images": images,
        "list of images": list(images),
        "graphs": [Example(image.reshape(25, -1), lattice((5, 5))) for image in images],
    }[kind]
    labels = {"rows": np.arange(16) % 2, "sparse rows": np.arange(16) % 2}.get(kind, labels)
    labels = [own.ravel() for own in labels] if kind == "graphs" else labels
    weight = rng.integers(0, 3, size=16)
    copied = np.repeat(np.arange(16), weight)
    rule = PseudolikelihoodTraining(early_stopping=True, validation_fraction=0.4)
    for seed in range(5):
        field = DRFClassifier(learning=rule, random_state=seed)
        weighted = quiet_fit(field, examples, labels, weight)
        copies = quiet_fit(field, take_examples(examples, copied), take_examples(labels, copied))
        assert_allclose(weighted.coef_, copies.coef_, rtol=1e-6, atol=1e-8)
        assert_allclose(weighted.validation_scores_, copies.validation_scores_, rtol=1e-9)
