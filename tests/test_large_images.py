"""Labels of large images tile by tile: those of the whole where that is said, elsewhere bounds on the difference."""

import numpy as np
import pytest

from sklearn_crf import TRWCRF, DRFClassifier, M3NClassifier, RegressionTreeFieldClassifier
from sklearn_crf.inference import TRWS
from sklearn_crf.large_images import predict_in_tiles
from sklearn_crf.models import score

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def images(n_classes, shape, seed=0):
    rng = np.random.default_rng(seed)
    rows, columns = np.indices(shape[1:])
    y = np.broadcast_to((rows // 5 + columns // 7) % n_classes, shape)
    return np.eye(n_classes)[y] + rng.normal(scale=0.8, size=(*shape, n_classes)), y


def fitted(field, n_classes=2):
    return field.fit(*images(n_classes, (3, 14, 15)))


def with_coupling(field, strength):
    """The field with stronger edges than it has learned."""
    field.edge_coef_ = field.edge_coef_ * strength
    return field


class Counting:
    """An array that can be sliced and no more, and that knows the largest slice."""

    def __init__(self, values):
        self._values, self.shape, self.largest = values, values.shape, 0

    def __getitem__(self, index):
        found = self._values[index]
        self.largest = max(self.largest, found.shape[0] * found.shape[1])
        return found


@pytest.fixture(scope="module")
def cut():
    return fitted(DRFClassifier(inference="graph_cut", edge_features="constant"))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("connectivity", [1, 2, [[0, 1], [2, 0]]])
def test_certified_labels_are_those_of_the_whole(seed, connectivity):
    field = fitted(DRFClassifier(inference="graph_cut", edge_features="constant", connectivity=connectivity))
    image = images(2, (1, 41, 37), seed + 1)[0][0]
    found = predict_in_tiles(field, image, tile=12, margin=3)
    assert found.certified
    assert found.n_open == 0
    assert found.gap == 0
    np.testing.assert_array_equal(found.labels, field.predict(image[np.newaxis])[0])


@pytest.mark.parametrize("strength", [0.3, 0.5, 0.8])
def test_no_more_pixels_are_wrong_than_are_open(strength):
    field = with_coupling(fitted(DRFClassifier(inference="graph_cut", edge_features="constant")), strength)
    image = 0.6 * images(2, (1, 48, 40), 1)[0][0]
    found = predict_in_tiles(field, image, tile=8, margin=2, max_margin=2, bound=True)
    whole = field.predict(image[np.newaxis])[0]
    assert not found.certified
    assert 0 < np.count_nonzero(found.labels != whole) <= found.n_open
    (model,) = field.models(image[np.newaxis])
    lost = score(model, whole.ravel()) - score(model, found.labels.ravel())
    assert 0 < lost <= found.gap
    # Wider windows prove what narrow ones leave open.
    wide = predict_in_tiles(field, image, tile=8, margin=2, max_margin=64)
    assert wide.certified
    assert wide.margins.max() > 2
    np.testing.assert_array_equal(wide.labels, whole)


def test_edges_that_prefer_different_labels_have_no_proof():
    field = with_coupling(fitted(DRFClassifier(inference="trws", edge_features="constant")), -1)
    image = images(2, (1, 30, 30), 1)[0][0]
    assert not predict_in_tiles(field, image, tile=10, margin=5).certified


@pytest.mark.parametrize("name", ["alpha_expansion", "trws", "icm", "bp"])
def test_tiles_of_several_classes_agree(name):
    field = fitted(DRFClassifier(inference="map", edge_features="constant", max_iter=5), 3)
    image = images(3, (1, 40, 40), 1)[0][0]
    found = predict_in_tiles(field, image, tile=14, margin=8, inference=name)
    assert not found.certified
    assert np.isnan(found.gap)
    assert found.n_open == 0
    assert np.mean(found.labels == field.predict(image[np.newaxis], inference=name)[0]) > 0.99


def test_the_gap_bounds_what_is_lost():
    field = fitted(M3NClassifier(inference=TRWS(), max_iter=20), 3)
    image = 0.5 * images(3, (1, 36, 36), 1)[0][0]
    found = predict_in_tiles(field, image, tile=9, margin=1, max_margin=1, bound=True)
    (model,) = field.models(image[np.newaxis])
    best = TRWS(max_iter=500).map(model)
    assert 0 < best.score - score(model, found.labels.ravel()) <= found.gap
    assert found.gap < 0.05 * best.score


@pytest.mark.parametrize(
    "field", [TRWCRF(), RegressionTreeFieldClassifier(max_depth=1, max_iter=3)], ids=["trw", "trees"]
)
def test_marginals_and_tree_fields(field):
    field = fitted(field, 3)
    image = images(3, (1, 44, 40), 1)[0][0]
    found = predict_in_tiles(field, image, tile=20, margin=12)
    assert np.mean(found.labels == field.predict(image[np.newaxis])[0]) > 0.99
    whole = predict_in_tiles(field, image, tile=64)
    assert whole.certified
    np.testing.assert_array_equal(whole.labels, field.predict(image[np.newaxis])[0])


def test_images_on_disk_are_read_in_windows(cut, tmp_path):
    image = images(2, (1, 60, 50), 1)[0][0]
    np.save(tmp_path / "image.npy", image)
    mapped = Counting(np.load(tmp_path / "image.npy", mmap_mode="r"))
    out = np.lib.format.open_memmap(tmp_path / "labels.npy", mode="w+", dtype=np.uint8, shape=(60, 50))
    found = predict_in_tiles(cut, mapped, out, tile=10, margin=4, max_margin=8)
    assert found.labels is out
    assert mapped.largest <= (10 + 16) ** 2
    np.testing.assert_array_equal(out, cut.predict(image[np.newaxis])[0])


def test_names_of_classes_are_written():
    X, y = images(2, (3, 14, 15))
    field = DRFClassifier(inference="graph_cut", edge_features="constant").fit(X, np.array(["sky", "tree"])[y])
    found = predict_in_tiles(field, X[0], tile=8, margin=4, bound=True)
    np.testing.assert_array_equal(found.labels, field.predict(X[:1])[0])


def test_what_cannot_be_done_is_said(cut):
    image = images(2, (1, 20, 20))[0][0]
    with pytest.raises(ValueError, match=r"image must have shape \(H, W, F\), got \(20, 20\)"):
        predict_in_tiles(cut, image[..., 0])
    with pytest.raises(ValueError, match=r"image must have shape .*, got list"):
        predict_in_tiles(cut, [[1.0]])
    with pytest.raises(ValueError, match=r"out must have the shape \(20, 20\) of the image, got \(3,\)"):
        predict_in_tiles(cut, image, np.zeros(3))
    with pytest.raises(ValueError, match="tile must be a positive whole number, got 0"):
        predict_in_tiles(cut, image, tile=0)
    with pytest.raises(ValueError, match="bound=True is for best labelings of fields"):
        predict_in_tiles(cut, image, tile=10, inference="bp", bound=True)
    with pytest.raises(ValueError, match="ICM has no bound on the best score"):
        predict_in_tiles(fitted(DRFClassifier(inference="icm"), 3), images(3, (1, 20, 20))[0][0], tile=8, bound=True)
