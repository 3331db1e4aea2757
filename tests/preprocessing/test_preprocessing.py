"""Transformers of the features of nodes and pixels."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from lattice_inputs import ROWS_OF_THE_TABLE, NodewiseClassifier, as_dense, labelled_images, triangle_and_more
from scipy.ndimage import gaussian_filter
from sklearn import config_context
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import SelectKBest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from sklearn_crf import Example
from sklearn_crf.encoding import make_object_array
from sklearn_crf.preprocessing import LocalImageFeatures, NodeTransformer, _tuning


def test_passes_the_checks_of_scikit_learn():
    results = check_estimator(NodeTransformer(StandardScaler()), on_fail=None, on_skip=None)
    assert not [str(r["exception"]) for r in results if r["status"] not in ("passed", "skipped")]
    assert len(results) > 40


def features_of(x):
    return as_dense(x.node_features if isinstance(x, Example) else x)


def all_nodes(X):
    if (isinstance(X, np.ndarray) and X.dtype != object) or sp.issparse(X):
        return as_dense(X).reshape(-1, X.shape[-1])
    parts = [np.asarray(features_of(x)) for x in X]
    return np.concatenate([part.reshape(-1, part.shape[-1]) for part in parts]).astype(float)


@pytest.mark.parametrize("name", [name for name in ROWS_OF_THE_TABLE if "nested" not in name])
@pytest.mark.parametrize("transformer", [MaxAbsScaler(), PolynomialFeatures(2)], ids=repr)
def test_nodes_are_transformed_as_if_stacked(name, transformer):
    X, layout, _, _ = ROWS_OF_THE_TABLE[name]
    ours = NodeTransformer(transformer).fit(X)
    expected = clone(transformer).fit_transform(all_nodes(X))
    found = ours.transform(X)
    assert np.allclose(all_nodes(found), expected)
    assert ours.n_features_in_ == all_nodes(X).shape[1]
    if layout == "list":
        assert (found.shape, found.dtype) == ((len(X),), object)
        for x, z in zip(X, found, strict=True):
            assert type(z) is type(x)
            assert z.shape == (*x.shape[:-1], expected.shape[1])
    else:
        assert found.shape == (*X.shape[:-1], expected.shape[1])
        assert sp.issparse(found) == sp.issparse(X)


def test_examples_keep_all_but_their_features():
    x = Example(np.ones((3, 2)), [[0, 1]], [[7.0]], node_type=[0, 1, 0], edge_type=[2], n_states=[1, 2, 2])
    [found] = NodeTransformer(PolynomialFeatures()).fit_transform([x])
    assert found.graph is x.graph
    assert found.shape == (3, 6)
    for name in ("edge_features", "node_type", "edge_type", "n_states"):
        assert np.array_equal(getattr(found, name), getattr(x, name))
    assert x.shape == (3, 2)


def test_groups_of_nodes_do_not_matter(monkeypatch):
    X, _ = labelled_images()
    expected = NodeTransformer(StandardScaler()).fit_transform(X)
    monkeypatch.setattr(_tuning, "NODES_AT_ONCE", 7)
    found = NodeTransformer(StandardScaler()).fit_transform(X)
    assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_and_read_only(dtype, tmp_path):
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(2, 3, 4, 2)).astype(dtype))
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert NodeTransformer(StandardScaler()).fit_transform(X).dtype == dtype
    assert NodeTransformer(StandardScaler()).fit_transform(list(X))[0].dtype == dtype


def test_strings_can_be_encoded():
    X = [np.array([["a"], ["b"]]), np.array([["b"], ["c"], ["a"]])]
    dense = NodeTransformer(OneHotEncoder(sparse_output=False)).fit_transform(X)
    sparse = NodeTransformer(OneHotEncoder()).fit_transform(X)
    assert dense[1].tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert [part.toarray().tolist() for part in sparse] == [part.tolist() for part in dense]
    stack = np.array([[["a"], ["b"]], [["b"], ["b"]]])
    assert NodeTransformer(OneHotEncoder(sparse_output=False)).fit_transform(stack).shape == (2, 2, 2)


def test_sparse_output_has_no_place_in_an_image():
    X = [np.zeros((2, 3, 1))]
    with pytest.raises(ValueError, match="dense output"):
        NodeTransformer(OneHotEncoder()).fit_transform(X)


def test_transformers_that_need_labels_get_those_of_the_nodes():
    X, y = labelled_images()
    rows, labels = all_nodes(X), np.concatenate([part.ravel() for part in y])
    expected = LinearDiscriminantAnalysis().fit(rows, labels).transform(rows)
    assert np.allclose(all_nodes(NodeTransformer(LinearDiscriminantAnalysis()).fit(X, y).transform(X)), expected)
    hidden = [part.copy() for part in y]
    hidden[0][0] = -1
    known = np.concatenate([part.ravel() for part in hidden]) >= 0
    expected = SelectKBest(k=1).fit(rows[known], labels[known]).scores_
    assert np.allclose(
        NodeTransformer(SelectKBest(k=1), missing_label=-1).fit(X, hidden).transformer_.scores_, expected
    )
    as_objects = [np.where(part < 0, None, part) for part in hidden]
    assert np.allclose(NodeTransformer(SelectKBest(k=1)).fit(X, as_objects).transformer_.scores_, expected)
    flat = np.where(known, labels, -1)
    assert np.allclose(
        NodeTransformer(SelectKBest(k=1), missing_label=-1).fit(rows, flat).transformer_.scores_, expected
    )
    with pytest.raises(ValueError, match=r"y\[1\] has shape"):
        NodeTransformer(SelectKBest(k=1)).fit(X, [y[0], y[0].ravel(), *y[2:]])
    with pytest.raises(ValueError, match="y has 7 examples, but X has 8"):
        NodeTransformer(SelectKBest(k=1)).fit(X, y[:7])


def test_unlabelled_nodes_take_no_part():
    X, y = labelled_images()
    rows, labels = all_nodes(X), np.concatenate([part.ravel() for part in y])
    y[0][0] = -1
    flat = np.concatenate([part.ravel() for part in y])
    expected = SelectKBest(k=1).fit(rows[flat >= 0], labels[flat >= 0]).scores_
    as_objects = [np.where(part < 0, None, part) for part in y]
    selector = NodeTransformer(SelectKBest(k=1), missing_label=-1)
    assert np.allclose(selector.fit(X, y).transformer_.scores_, expected)
    assert np.allclose(selector.fit(X, as_objects).transformer_.scores_, expected)
    assert np.allclose(selector.fit(rows, flat).transformer_.scores_, expected)
    assert np.allclose(selector.fit(sp.coo_matrix(rows), flat).transformer_.scores_, expected)


def test_in_a_pipeline_and_a_search():
    X, y = labelled_images()
    pipeline = make_pipeline(NodeTransformer(StandardScaler()), NodeTransformer(PCA()), NodewiseClassifier())
    grid = {
        "nodetransformer-2__transformer__n_components": [1, 2],
        "nodetransformer-1__transformer": [StandardScaler()],
    }
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))
    assert clone(pipeline).get_params()["nodetransformer-1__transformer__with_mean"] is True


def test_inverse():
    X, _ = labelled_images()
    scaler = NodeTransformer(StandardScaler()).fit(X)
    assert np.allclose(all_nodes(scaler.inverse_transform(scaler.transform(X))), all_nodes(X))
    assert not hasattr(NodeTransformer(SelectKBest()), "nothing")
    assert not hasattr(NodeTransformer(PolynomialFeatures()), "inverse_transform")


def test_names_of_features():
    X, _ = labelled_images()
    fitted = NodeTransformer(PolynomialFeatures(2, include_bias=False)).fit(X)
    assert fitted.get_feature_names_out(["a", "b"]).tolist() == ["a", "b", "a^2", "a b", "b^2"]
    assert not hasattr(NodeTransformer(FunctionTransformer()).fit(X), "get_feature_names_out")


def test_frames_that_a_configuration_asks_for_are_taken_apart():
    pd = pytest.importorskip("pandas", reason="needs data frames")
    X, _ = labelled_images()
    expected = NodeTransformer(StandardScaler()).fit_transform(X)
    with config_context(transform_output="pandas"):
        found = NodeTransformer(StandardScaler()).fit_transform(X)
    assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))
    frame = pd.DataFrame({"a": [1.0, 2], "b": [3, 4]})
    fitted = NodeTransformer(StandardScaler()).fit(frame)
    assert fitted.feature_names_in_.tolist() == ["a", "b"]


def test_pickle():
    X, _ = labelled_images()
    fitted = NodeTransformer(StandardScaler()).fit(X)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).transform(X)[0], fitted.transform(X)[0])


def test_bad_examples():
    fitted = NodeTransformer(StandardScaler()).fit(triangle_and_more())
    with pytest.raises(ValueError, match="2 features"):
        fitted.transform([np.zeros((2, 3))])
    with pytest.raises(ValueError, match=r"X\[1\] has 4 features, but X\[0\] has 3"):
        NodeTransformer(StandardScaler()).fit([np.zeros((2, 3)), np.zeros((2, 4))])
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        fitted.transform([])
    with pytest.raises(AttributeError, match="n_features_in_"):
        _ = NodeTransformer(StandardScaler()).n_features_in_


# -- Features of pixels ---------------------------------------------------------------------------

IMAGE = np.random.default_rng(0).random((9, 7))


def column(kind, image=IMAGE, **options):
    return LocalImageFeatures((kind,), **options).fit_transform(image[None])[0]


def test_intensity_and_position():
    assert np.array_equal(column("intensity")[..., 0], IMAGE)
    rows, columns = np.moveaxis(column("position"), -1, 0)
    assert np.allclose(rows, (np.arange(9)[:, None] + 0.5) / 9)
    assert np.allclose(columns, (np.arange(7) + 0.5) / 7)


def test_means_and_deviations():
    scales = (0.7, 2.0)
    for k, scale in enumerate(scales):
        mean = gaussian_filter(IMAGE, scale)
        assert np.allclose(column("mean", scales=scales)[..., k], mean)
        deviation = np.sqrt(gaussian_filter(IMAGE**2, scale) - mean**2)
        assert np.allclose(column("deviation", scales=scales)[..., k], deviation)


def test_gradient_of_a_ramp():
    ramp = 3.0 * np.arange(40)[:, None] + np.zeros((1, 20))
    assert np.allclose(column("gradient", ramp, scales=(1.0,))[12:28, :, 0], 3.0, rtol=1e-3)
    assert np.allclose(column("gradient", np.ones((5, 5)), scales=(1.0,)), 0)


def test_patches():
    names = LocalImageFeatures(("patch",), patch_radius=2).fit(IMAGE[None]).get_feature_names_out()
    patch = column("patch", patch_radius=2)
    assert patch.shape == (9, 7, 24)
    for k, name in enumerate(names):
        i, j = eval(name.removeprefix("patch"))
        assert np.array_equal(patch[3:6, 3:4, k], IMAGE[3 + i : 6 + i, 3 + j : 4 + j])
    assert patch[0, 0, names.tolist().index("patch(-1,0)")] == IMAGE[0, 0]


@pytest.mark.parametrize("value", [0.0, 1e4])
def test_flat_images_have_no_contrast(value):
    flat = np.full((6, 6), value, dtype=np.float32)
    assert not column("deviation", flat).any()


def test_channels_one_after_the_other():
    image = np.stack((IMAGE, IMAGE**2), axis=-1)
    features = LocalImageFeatures(scales=(1.0,)).fit(image[None])
    assert features.get_feature_names_out().tolist() == [
        *("channel0_intensity", "channel1_intensity", "channel0_mean_1", "channel1_mean_1"),
        *("channel0_deviation_1", "channel1_deviation_1", "channel0_gradient_1", "channel1_gradient_1"),
        *("row", "column"),
    ]
    assert features.get_feature_names_out(["r", "g"])[1] == "g_intensity"
    found = features.transform(image[None])[0]
    assert found.shape == (9, 7, 10)
    for c in (0, 1):
        alone = LocalImageFeatures(scales=(1.0,)).fit_transform(image[None, ..., c])[0]
        assert np.allclose(found[..., c:8:2], alone[..., :4])


@pytest.mark.parametrize(
    ("dtype", "expected"), [(np.uint8, np.float32), (np.float32, np.float32), (np.float64, np.float64)]
)
@pytest.mark.parametrize("layout", [np.asarray, list, make_object_array])
def test_layouts_and_precision(dtype, expected, layout):
    images = (255 * np.stack((IMAGE, IMAGE[::-1]))).astype(dtype)
    images.flags.writeable = False
    found = LocalImageFeatures().fit_transform(layout(images))
    assert found.shape == ((2, 9, 7, 12) if layout is np.asarray else (2,))
    assert found[0].dtype == expected
    assert np.array_equal(found[0][..., 0], images[0].astype(expected))


def test_in_a_pipeline():
    y = [np.pad(np.ones((3, 4), dtype=int), size) for size in (2, 3, 4, 5)]
    X = [labels + np.random.default_rng(i).normal(size=labels.shape) for i, labels in enumerate(y)]
    pipeline = make_pipeline(LocalImageFeatures(), NodeTransformer(StandardScaler()), NodewiseClassifier())
    assert pipeline.fit(X, y).score(X, y) > 0.8
    assert pipeline.predict(X)[0].shape == (7, 8)


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (IMAGE, {}, r"pass one image as X\[np.newaxis\]"),
        ([], {}, "no image"),
        ([IMAGE, IMAGE[0]], {}, r"X\[1\] must be an image"),
        ([IMAGE, IMAGE[..., None, None]], {}, r"X\[1\] must be an image"),
        ([IMAGE[..., None], np.zeros((2, 2, 3))], {}, r"X\[1\] has 3 channels, but X\[0\] has 1"),
        ([IMAGE, np.full((2, 2), np.nan)], {}, r"X\[1\] contains NaN"),
        ([IMAGE.astype(complex)], {}, r"Complex data not supported: X\[0\] must hold numbers"),
        ([IMAGE[:0]], {}, r"X\[0\] must be an image"),
        ([IMAGE], {"kinds": "mean"}, "kinds"),
        ([IMAGE], {"kinds": ("median",)}, "kinds"),
        ([IMAGE], {"scales": (0,)}, "scales"),
        ([IMAGE], {"patch_radius": -1}, "patch_radius"),
    ],
)
def test_bad_images(X, options, message):
    with pytest.raises(ValueError, match=message):
        LocalImageFeatures(**options).fit(X)


def test_number_of_channels_must_be_that_of_fit():
    with pytest.raises(ValueError, match="3 channels, but images in fit had 1"):
        LocalImageFeatures().fit([IMAGE]).transform([np.zeros((4, 4, 3))])
