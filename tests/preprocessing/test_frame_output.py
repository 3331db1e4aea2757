"""Node transformers return data frames on request."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PolynomialFeatures, StandardScaler

from sklearn_crf import TRWCRF, Example
from sklearn_crf.inspection import top_features
from sklearn_crf.preprocessing import ClassifierScores, NodeTransformer

pd = pytest.importorskip("pandas", reason="makes data frames")

RNG = np.random.default_rng(0)
CHAINS = [pd.DataFrame(RNG.normal(size=(n, 2)), columns=["a", "b"], index=range(10, 10 + n)) for n in (4, 3, 5, 2)]
LABELS = [(chain["a"] > 0).astype(int).to_numpy() for chain in CHAINS]


def test_chains_become_frames_with_names_and_index():
    plain = NodeTransformer(PolynomialFeatures(2, include_bias=False)).fit_transform(CHAINS)
    frames = NodeTransformer(PolynomialFeatures(2, include_bias=False)).set_output(transform="pandas")
    for frame, values, chain in zip(frames.fit_transform(CHAINS), plain, CHAINS, strict=True):
        assert frame.columns.tolist() == ["a", "b", "a^2", "a b", "b^2"]
        assert frame.index.equals(chain.index)
        assert np.array_equal(frame.to_numpy(), values)


def test_scores_of_a_classifier_have_names():
    scores = ClassifierScores(LogisticRegression(), cv=2, passthrough=True).set_output(transform="pandas")
    assert [part.columns.tolist() for part in scores.fit_transform(CHAINS, LABELS)] == [
        ["score_0", "score_1", "a", "b"]
    ] * len(CHAINS)
    assert scores.transform(CHAINS)[1].shape == (3, 4)


def test_a_pipeline_passes_it_on_and_the_field_keeps_the_names():
    pipeline = make_pipeline(NodeTransformer(StandardScaler()), TRWCRF(edge_features="constant"))
    pipeline.set_output(transform="pandas").fit(CHAINS, LABELS)
    assert pipeline[-1].feature_names_in_.tolist() == ["a", "b"]
    assert {"a", "b"} <= {found.feature for found in top_features(pipeline[-1])}
    by_arrays = make_pipeline(NodeTransformer(StandardScaler()), TRWCRF(edge_features="constant")).fit(CHAINS, LABELS)
    for found, expected in zip(pipeline.predict_proba(CHAINS), by_arrays.predict_proba(CHAINS), strict=True):
        assert np.array_equal(found, expected)


def test_rows_become_one_frame():
    frame = NodeTransformer(StandardScaler()).set_output(transform="pandas").fit_transform(CHAINS[0])
    assert frame.columns.tolist() == ["a", "b"]
    assert frame.index.equals(CHAINS[0].index)


def test_lattices_and_graphs_stay_as_they_are():
    scaler = NodeTransformer(StandardScaler()).set_output(transform="pandas")
    images = scaler.fit_transform(RNG.normal(size=(2, 3, 4, 2)))
    assert isinstance(images, np.ndarray)
    assert images.shape == (2, 3, 4, 2)
    assert isinstance(scaler.fit_transform([Example(RNG.normal(size=(3, 2)), [[0, 1]])])[0], Example)


def test_transformers_without_names_number_the_columns():
    frames = NodeTransformer(FunctionTransformer()).set_output(transform="pandas").fit_transform([np.eye(2)])
    assert frames[0].columns.tolist() == [0, 1]


def test_clones_and_defaults():
    scaler = NodeTransformer(StandardScaler()).set_output(transform="pandas")
    assert isinstance(clone(scaler).fit_transform(CHAINS)[0], pd.DataFrame)
    assert scaler.set_output(transform=None) is scaler
    assert isinstance(scaler.fit_transform(CHAINS)[0], pd.DataFrame)
    assert isinstance(scaler.set_output(transform="default").fit_transform(CHAINS)[0], np.ndarray)


def test_bad_requests():
    with pytest.raises(ValueError, match='must be "default", "pandas" or None, got \'polars\''):
        NodeTransformer(StandardScaler()).set_output(transform="polars")
    encoder = NodeTransformer(OneHotEncoder()).set_output(transform="pandas")
    with pytest.raises(ValueError, match="ask the transformer for dense output"):
        encoder.fit_transform([np.array([[0], [1]]), np.array([[1]])])
