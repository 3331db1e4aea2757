"""Class scores as features: out of fold in training, from a single classifier afterwards, in the layout of X."""

import numpy as np
import pytest
import scipy.sparse as sp
from joblib import parallel_config
from lattice_inputs import triangle_and_more
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator
from threadpoolctl import threadpool_limits

from sklearn_crf import TRWCRF, Example
from sklearn_crf.preprocessing import ClassifierScores, NodeTransformer

RNG = np.random.default_rng(0)
LABELS = [np.repeat([*RNG.permutation(3), *RNG.integers(3, size=n)], 4) for n in (0, 1, 0, 2, 1, 0)]
CHAINS = [np.eye(3)[y] + RNG.normal(size=(len(y), 3)) for y in LABELS]


def test_passes_the_checks_of_scikit_learn():
    out_of_fold = {
        "check_transformer_general": "fit_transform scores out of fold, transform does not",
        "check_transformer_data_not_an_array": "the same",
    }
    scores = ClassifierScores(LogisticRegression(), cv=2)
    results = check_estimator(scores, expected_failed_checks=out_of_fold, on_fail=None, on_skip=None)
    done = [r for r in results if r["status"] not in ("skipped", "xfail")]
    assert not [r["check_name"] + ": " + str(r["exception"]) for r in done if r["status"] != "passed"]
    assert len(done) > 30


def test_examples_are_scored_by_classifiers_that_have_not_seen_them():
    scores = ClassifierScores(LogisticRegression(), cv=KFold(3), method="predict_proba")
    found = scores.fit_transform(CHAINS, LABELS)
    for train, test in KFold(3).split(CHAINS):
        alone = LogisticRegression().fit(
            np.concatenate([CHAINS[i] for i in train]), np.concatenate([LABELS[i] for i in train])
        )
        for i in test:
            assert found[i] == pytest.approx(alone.predict_proba(CHAINS[i]))
    whole = LogisticRegression().fit(np.concatenate(CHAINS), np.concatenate(LABELS))
    assert scores.transform(CHAINS)[0] == pytest.approx(whole.predict_proba(CHAINS[0]))


def test_a_classifier_that_remembers_cannot_tell_what_it_has_seen():
    noise = [RNG.normal(size=x.shape) for x in CHAINS]
    scores = ClassifierScores(KNeighborsClassifier(1), cv=3, method="predict_proba")
    found = np.concatenate(scores.fit_transform(noise, LABELS))
    truth = np.concatenate(LABELS)
    assert np.mean(found.argmax(axis=1) == truth) < 0.7
    assert np.mean(np.concatenate(scores.transform(noise)).argmax(axis=1) == truth) == 1


def test_layouts():
    forest = RandomForestClassifier(n_estimators=5, random_state=0)
    scores = ClassifierScores(forest, cv=2, passthrough=False)
    images = RNG.normal(size=(4, 3, 5, 2))
    y = RNG.integers(2, size=(4, 3, 5))
    assert scores.fit_transform(images, y).shape == (4, 3, 5, 2)
    ragged = [images[0], images[1, :2], images[2], images[3]]
    found = scores.fit_transform(ragged, [y[0], y[1, :2], y[2], y[3]])
    assert [x.shape for x in found] == [(3, 5, 2), (2, 5, 2), (3, 5, 2), (3, 5, 2)]
    assert np.isfinite(np.concatenate([x.ravel() for x in found])).all()  # forests predict probabilities of zero
    rows, labels = RNG.normal(size=(20, 2)), np.arange(20) % 2
    assert scores.fit_transform(rows, labels).shape == (20, 2)
    assert scores.fit_transform(sp.csr_array(rows), labels).shape == (20, 2)
    examples = triangle_and_more()
    marks = [np.arange(x.n_nodes) % 2 for x in examples]
    kept = scores.fit_transform(examples, marks)
    assert all(isinstance(x, Example) and x.graph is old.graph for x, old in zip(kept, examples, strict=True))


@pytest.mark.parametrize("n_examples", [2, 4, 8])
def test_empty_examples_do_not_change_scores(n_examples):
    rng = np.random.default_rng(0)
    y = [rng.integers(3, size=9) for _ in range(n_examples)]
    X = [np.eye(3)[labels] + rng.normal(size=(9, 3)) for labels in y]
    expected = ClassifierScores(LogisticRegression()).fit_transform(X, y)
    more = [X[0], np.empty((0, 3)), *X[1:], np.empty((0, 3))], [y[0], y[0][:0], *y[1:], y[0][:0]]
    found = ClassifierScores(LogisticRegression()).fit_transform(*more)
    assert found[1].shape == found[-1].shape == (0, expected[0].shape[1])
    for here, there in zip([found[0], *found[2:-1]], expected, strict=True):
        np.testing.assert_array_equal(here, there)


def test_passthrough_and_names():
    scores = ClassifierScores(LogisticRegression(), cv=2, passthrough=True)
    found = scores.fit_transform(CHAINS, LABELS)
    assert np.array_equal(found[0][:, 3:], CHAINS[0])
    assert scores.get_feature_names_out().tolist() == ["score_0", "score_1", "score_2", "x0", "x1", "x2"]


@pytest.mark.parametrize(
    ("shape", "n_classes", "passed"),
    [
        ((5, 2), 2, False),
        ((3, 5, 2), 2, True),
        ((3, 5, 2), 3, False),
        ((2, 3, 5, 2), 2, True),
        ((3, 5, 33), 2, False),
    ],
)
@pytest.mark.parametrize("ragged", [False, True])
def test_features_of_images_and_volumes_are_passed_through_by_default(shape, n_classes, passed, ragged):
    X, y = RNG.normal(size=(4, *shape)), RNG.integers(n_classes, size=(4, *shape[:-1]))
    if ragged:
        X, y = [*X[:3], X[3][1:]], [*y[:3], y[3][1:]]
    scores = ClassifierScores(LogisticRegression(), cv=2)
    found = scores.fit_transform(X, y)
    assert scores.passthrough_ is passed
    assert len(scores.get_feature_names_out()) == found[0].shape[-1]
    assert all(
        np.array_equal(
            scores.transform(X)[i],
            ClassifierScores(LogisticRegression(), passthrough=passed, cv=2).fit(X, y).transform(X)[i],
        )
        for i in range(4)
    )
    if passed:
        assert all(np.array_equal(a[..., 2:], x) for a, x in zip(found, X, strict=True))


def test_graphs_and_sparse_features_are_not_passed_through_by_default():
    examples = triangle_and_more()
    scores = ClassifierScores(LogisticRegression(), cv=2).fit(examples, [np.arange(x.n_nodes) % 2 for x in examples])
    assert not scores.passthrough_
    sparse = ClassifierScores(LogisticRegression(), cv=2).fit([sp.csr_array(x) for x in CHAINS], LABELS)
    assert not sparse.passthrough_


def test_binary_decision_function_is_one_column():
    y = [(labels == 0).astype(int) for labels in LABELS]
    scores = ClassifierScores(RidgeClassifier(), cv=2, method="decision_function")
    assert scores.fit_transform(CHAINS, y)[0].shape == (len(y[0]), 1)
    assert scores.get_feature_names_out().tolist() == ["score_1"]


@pytest.mark.parametrize("method", ["predict_log_proba", "decision_function"])
def test_a_fold_may_lack_a_class(method):
    y = [np.where(labels == 2, 1, labels) for labels in LABELS]
    y[0] = np.full(len(y[0]), 2)
    found = ClassifierScores(LogisticRegression(), cv=KFold(3), method=method).fit_transform(CHAINS, y)
    assert all(x.shape == (len(labels), 3) and np.isfinite(x).all() for x, labels in zip(found, y, strict=True))


def test_unlabelled_nodes_are_scored_and_do_not_train():
    y = [labels.copy() for labels in LABELS]
    y[0][:] = -1
    found = ClassifierScores(DummyClassifier(), cv=2, missing_label=-1).fit_transform(CHAINS, y)
    assert found[0].shape == (len(y[0]), 3)


@pytest.mark.parametrize("cv", [2, 5])
@pytest.mark.parametrize("is_whole", [True, False])
def test_masked_labels_of_one_image_do_not_train(is_whole, cv):
    y = np.kron(RNG.integers(2, size=(5, 5)), np.ones((4, 4), dtype=int))[np.newaxis]
    X = y[..., np.newaxis] + RNG.normal(size=(*y.shape, 2))
    hidden = np.zeros(y.shape, dtype=bool)
    hidden[0, :3] = True
    labels = np.ma.masked_array(np.where(hidden, 9, y), mask=hidden)
    scores = ClassifierScores(LogisticRegression(), cv=cv)
    found = scores.fit_transform(X, labels if is_whole else list(labels))
    assert scores.classes_.tolist() == [0, 1]
    assert np.isfinite(found).all()
    known = LogisticRegression().fit(X[~hidden], y[~hidden])
    np.testing.assert_allclose(
        scores.transform(X)[..., :2], known.predict_log_proba(X.reshape(-1, 2)).reshape(*y.shape, 2)
    )


def test_prefit():
    fitted = LogisticRegression().fit(np.concatenate(CHAINS), np.concatenate(LABELS))
    scores = ClassifierScores(fitted, cv="prefit")
    assert scores.fit_transform(CHAINS, LABELS)[0] == pytest.approx(fitted.predict_log_proba(CHAINS[0]))
    assert scores.estimator_ is fitted


def test_folds_in_parallel_give_the_same():
    with parallel_config("threading"):
        make = [ClassifierScores(LogisticRegression(), cv=3, n_jobs=n).fit_transform(CHAINS, LABELS) for n in (1, 2)]
    assert all(np.array_equal(a, b) for a, b in zip(*make, strict=True))


def test_pipeline_of_boosting_and_a_field():
    boosting = HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=2)
    field = make_pipeline(ClassifierScores(boosting, cv=2), TRWCRF(max_iter=30))
    search = GridSearchCV(field, {"classifierscores__estimator__max_iter": [2, 5]}, cv=KFold(2))
    # OpenMP threads wait for each other on busy cores.
    with threadpool_limits(1):
        assert field.fit(CHAINS, LABELS).score(CHAINS, LABELS) > 0.5
        search.fit(CHAINS, LABELS)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize(
    ("options", "X", "message"),
    [
        ({"method": "predict"}, CHAINS, "'method' parameter of ClassifierScores must be a str among"),
        (
            {"estimator": RidgeClassifier()},
            CHAINS,
            r"not a method of RidgeClassifier, which has \['decision_function'\]",
        ),
        ({"cv": "pre"}, CHAINS, "'cv' parameter of ClassifierScores must be an int in the range"),
        ({"cv": 999}, CHAINS, "cv=999 needs at least as many nodes as folds, but X has"),
    ],
)
def test_bad_parameters(options, X, message):
    with pytest.raises(ValueError, match=message):
        ClassifierScores(**({"estimator": LogisticRegression()} | options)).fit_transform(X, LABELS)


def test_node_transformer_names_the_way_for_classifiers():
    with pytest.raises(TypeError, match=r"ClassifierScores\(RandomForestClassifier\(\)\)"):
        NodeTransformer(RandomForestClassifier()).fit(CHAINS, LABELS)
