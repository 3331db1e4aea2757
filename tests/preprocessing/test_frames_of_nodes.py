"""Data frames reach transformers and classifiers of nodes as data frames; fields share their missing label."""

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline as plain_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sklearn_crf import TRWCRF, DRFClassifier
from sklearn_crf.model_selection import StratifiedLatticeKFold
from sklearn_crf.pipeline import make_pipeline
from sklearn_crf.preprocessing import ClassifierScores, NodeTransformer

pd = pytest.importorskip("pandas", reason="data frames are pandas'")

RNG = np.random.default_rng(0)
LABELS = [RNG.integers(2, size=n) for n in (4, 6, 3, 5, 2, 7, 5, 4)]
FRAMES = [
    pd.DataFrame({"pulse": y + RNG.normal(size=len(y)), "kind": np.where(RNG.random(len(y)) < 0.8, y, 1 - y)}).assign(
        kind=lambda frame: frame["kind"].map({0: "rest", 1: "run"})
    )
    for y in LABELS
]
STACKED = pd.concat(FRAMES, ignore_index=True)


def by_name():
    return ColumnTransformer([("scaled", StandardScaler(), ["pulse"]), ("coded", OneHotEncoder(), ["kind"])])


def stacked(parts):
    return np.concatenate([part.toarray() if hasattr(part, "toarray") else np.asarray(part) for part in parts])


@pytest.mark.parametrize("make", [by_name, lambda: OneHotEncoder(handle_unknown="ignore")], ids=["by name", "one hot"])
def test_transformers_by_name(make):
    transformer = NodeTransformer(make()).fit(FRAMES)
    expected = make().fit(STACKED).transform(STACKED)
    found = transformer.transform(FRAMES)
    assert [part.shape[0] for part in found] == [len(frame) for frame in FRAMES]
    np.testing.assert_allclose(stacked(found), stacked([expected]))
    turned = [frame[["kind", "pulse"]] for frame in FRAMES]
    np.testing.assert_array_equal(stacked(transformer.transform(turned)), stacked(found))
    assert transformer.feature_names_in_.tolist() == ["pulse", "kind"]
    tagger = make_pipeline(NodeTransformer(make()), TRWCRF()).fit(FRAMES, LABELS)
    assert tagger.score(FRAMES, LABELS) > 0.7
    np.testing.assert_allclose(
        stacked(NodeTransformer(by_name()).set_output(transform="pandas").fit(FRAMES).transform(FRAMES[:2])),
        stacked(NodeTransformer(by_name()).fit(FRAMES).transform(FRAMES[:2])),
    ) if make is not by_name else None


@pytest.mark.parametrize("several", [False, True], ids=["one type", "other categories in each"])
def test_categories_reach_gradient_boosting(several):
    def typed(frame):
        kind = frame["kind"].astype("category")
        return frame.assign(kind=kind if several else kind.cat.set_categories(["rest", "run"]))

    frames, whole = (
        [typed(frame) for frame in FRAMES],
        STACKED.assign(kind=STACKED["kind"].astype(pd.CategoricalDtype(["rest", "run"]))),
    )
    boosting = HistGradientBoostingClassifier(
        categorical_features="from_dtype", min_samples_leaf=2, max_iter=5, early_stopping=False, random_state=0
    )
    scores = ClassifierScores(boosting, cv=3, passthrough=False).fit(frames, LABELS)
    expected = np.log(boosting.fit(whole, np.concatenate(LABELS)).predict_proba(whole))
    np.testing.assert_allclose(stacked(scores.transform(frames)), expected, rtol=1e-6)
    assert scores.estimator_.is_categorical_.tolist() == [False, True]
    field = make_pipeline(ClassifierScores(boosting, cv=3), TRWCRF()).fit(frames, LABELS)
    assert len(field.predict(frames[:2])) == 2


def test_pipelines_of_plain_estimators_by_name():
    forest = plain_pipeline(by_name(), RandomForestClassifier(5, random_state=0))
    scores = ClassifierScores(forest, cv=3).fit_transform(FRAMES, LABELS)
    assert [part.shape for part in scores] == [(len(frame), 2) for frame in FRAMES]
    with pytest.raises(ValueError, match=r"X\[1\] must have the columns"):
        NodeTransformer(by_name()).fit([FRAMES[0], FRAMES[1].rename(columns={"kind": "sort"})])


def test_numbers_in_frames_are_as_in_arrays():
    frames = [frame[["pulse"]] for frame in FRAMES]
    arrays = [frame.to_numpy() for frame in frames]
    for make in (lambda: NodeTransformer(StandardScaler()), lambda: ClassifierScores(LogisticRegression(), cv=3)):
        of_frames, of_arrays = make().fit(frames, LABELS), make().fit(arrays, LABELS)
        np.testing.assert_array_equal(stacked(of_frames.transform(frames)), stacked(of_arrays.transform(arrays)))


# -- Missing labels ------------------------------------------------------------------------------------------------


def partly_labelled():
    rng = np.random.default_rng(1)
    y = np.repeat(rng.integers(2, size=(12, 3)), 4, axis=1)
    X = y[..., np.newaxis] + rng.normal(size=(*y.shape, 2))
    return X, np.where(rng.random(y.shape) < 0.3, -1, y), y


def test_scores_and_transformers_take_the_missing_label_of_their_field():
    X, y, _ = partly_labelled()
    forest = RandomForestClassifier(5, random_state=0)
    steps = make_pipeline(ClassifierScores(forest, cv=3), DRFClassifier(missing_label=-1))
    said = make_pipeline(ClassifierScores(forest, cv=3, missing_label=-1), DRFClassifier(missing_label=-1))
    np.testing.assert_array_equal(steps.fit(X, y).predict_proba(X), said.fit(X, y).predict_proba(X))
    assert steps[0].classes_.tolist() == [0, 1]
    assert steps[0].missing_label is None
    # Without a field, the transformer treats -1 as a class.
    assert ClassifierScores(forest, cv=3).fit(X, y).classes_.tolist() == [-1, 0, 1]

    class Watch(StandardScaler):
        def fit(self, X, y=None):
            self.labels_ = np.unique(y)
            return super().fit(X)

    watched = make_pipeline(NodeTransformer(Watch()), DRFClassifier(missing_label=-1)).fit(X, y)
    assert watched[0].transformer_.labels_.tolist() == [0, 1]


def test_scores_of_a_field_take_its_own_missing_label():
    X, y, _ = partly_labelled()
    inner = DRFClassifier(missing_label=-1)
    assert ClassifierScores(inner, cv=3).fit(X[:, 0], y[:, 0]).classes_.tolist() == [0, 1]


# -- One image -----------------------------------------------------------------------------------------------------


def image(seed=0, shape=(20, 16)):
    rng = np.random.default_rng(seed)
    y = (np.indices(shape)[1] > shape[1] // 2).astype(int)
    return y[..., np.newaxis] + rng.normal(size=(*shape, 3)), y


@pytest.mark.parametrize("form", ["array", "list"])
def test_one_image_is_cut_into_bands(form):
    X, y = image()
    both = (X[np.newaxis], y[np.newaxis]) if form == "array" else ([X], [y])
    model = LogisticRegression()
    found = ClassifierScores(model, cv=5, passthrough=False).fit_transform(*both)[0]
    # Ten bands of two rows in five folds; each band is scored by a classifier of the other folds.
    bands = y.reshape(10, -1)
    for rest, band in StratifiedLatticeKFold(5).split(bands, bands):
        fitted = model.fit(X.reshape(10, -1, 3)[rest].reshape(-1, 3), bands[rest].ravel())
        expected = fitted.predict_log_proba(X.reshape(10, -1, 3)[band].reshape(-1, 3))
        np.testing.assert_allclose(found.reshape(10, -1, 2)[band].reshape(-1, 2), expected, rtol=1e-6)
    field = make_pipeline(ClassifierScores(model, cv=5), DRFClassifier()).fit(*both)
    assert field.score(*both) > 0.9


def test_fewer_images_than_folds():
    images, labels = zip(*(image(seed, (6, 8 + seed)) for seed in range(3)), strict=True)
    found = ClassifierScores(LogisticRegression(), cv=5, passthrough=True).fit_transform(list(images), list(labels))
    assert [part.shape for part in found] == [(6, 8 + seed, 5) for seed in range(3)]
    for part, x in zip(found, images, strict=True):
        np.testing.assert_array_equal(part[..., 2:], x)
    with pytest.raises(ValueError, match="cv=50 needs at least as many nodes as folds, but X has 12"):
        ClassifierScores(LogisticRegression(), cv=50).fit_transform([images[0][:3, 3:7]], [labels[0][:3, 3:7]])
