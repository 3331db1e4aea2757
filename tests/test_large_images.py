"""Prediction in tiles: labels equal the labels of the whole image where this is promised, or differ within bounds."""

from copy import deepcopy
from functools import cache

import numpy as np
import pytest

from sklearn_crf import TRWCRF, DRFClassifier, M3NClassifier, RegressionTreeField, RegressionTreeFieldClassifier
from sklearn_crf.graphs import compute_chain_probabilities, lattice
from sklearn_crf.inference import TRWS, ConjugateGradient, LoopyBP, TRWMessagePassing
from sklearn_crf.inference.messages._message_errors import bound_belief_errors
from sklearn_crf.large_images import predict_in_tiles
from sklearn_crf.learning import SaddlePointTraining
from sklearn_crf.models import PairwiseModel, score
from sklearn_crf.preprocessing import PatchGroups
from sklearn_crf.rtf import Blur, GaussianNoise, _tuning
from sklearn_crf.rtf._classifier import get_class_codes
from sklearn_crf.rtf._prediction import FittedField

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def images(n_classes, shape, seed=0):
    rng = np.random.default_rng(seed)
    rows, columns = np.indices(shape[1:])
    y = np.broadcast_to((rows // 5 + columns // 7) % n_classes, shape)
    return np.eye(n_classes)[y] + rng.normal(scale=0.8, size=(*shape, n_classes)), y


def fitted(field, n_classes=2):
    return field.fit(*images(n_classes, (3, 14, 15)))


def with_coupling(field, strength):
    """Multiply the field's edge weights by a strength, and return the field."""
    field.edge_coef_ = field.edge_coef_ * strength
    return field


class Counting:
    """An array that only supports slicing, and records the largest slice."""

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
    # Wider windows prove labels that narrow windows leave open.
    wide = predict_in_tiles(field, image, tile=8, margin=2, max_margin=64)
    assert wide.certified
    assert wide.margins.max() > 2
    np.testing.assert_array_equal(wide.labels, whole)


def test_edges_that_prefer_different_labels_have_no_proof():
    field = with_coupling(fitted(DRFClassifier(inference="trws", edge_features="constant")), -1)
    image = images(2, (1, 30, 30), 1)[0][0]
    assert not predict_in_tiles(field, image, tile=10, margin=5).certified


@pytest.mark.parametrize("name", ["alpha_expansion", "trws", "icm", "mean_field", "trw"])
def test_tiles_of_several_classes_agree(name):
    field = fitted(DRFClassifier(inference="map", edge_features="constant", max_iter=5), 3)
    image = images(3, (1, 40, 40), 1)[0][0]
    found = predict_in_tiles(field, image, tile=14, margin=8, inference=name)
    assert not found.certified
    assert np.isnan(found.gap)
    assert found.n_open == 0
    assert np.mean(found.labels == field.predict(image[np.newaxis], inference=name)[0]) > 0.99


@pytest.mark.parametrize("name", ["bp", "max_product"])
@pytest.mark.parametrize("connectivity", [1, 2])
def test_labels_between_extremes_are_those_of_the_whole(name, connectivity):
    # With such weak edges, windows of this size prove every label.
    learning = SaddlePointTraining(step_schedule="constant")
    options = {"edge_features": "constant", "connectivity": connectivity}
    field = fitted(DRFClassifier(learning=learning, inference="graph_cut", **options))
    image = images(2, (1, 60, 50), 1)[0][0]
    found = predict_in_tiles(field, image, tile=12, margin=3, max_margin=12, inference=name)
    assert found.certified == (found.n_open == 0)
    assert found.n_open < 0.2 * found.labels.size
    whole = field.predict(image[np.newaxis], inference=name)[0]
    assert np.count_nonzero(found.labels != whole) <= found.n_open
    # Narrow windows leave some labels open, some of which are wrong: the reported count is needed.
    blurred = 0.3 * image
    narrow = predict_in_tiles(field, blurred, tile=8, margin=2, max_margin=2, inference=name)
    whole = field.predict(blurred[np.newaxis], inference=name)[0]
    assert 0 < np.count_nonzero(narrow.labels != whole) <= narrow.n_open
    if name == "bp":
        assert found.certified


CHAINS = TRWMessagePassing(edge_probabilities="chains")


@cache
def of_four_classes(edges):
    return fitted(DRFClassifier(inference="map", edge_features=edges, connectivity=2), 4)


@pytest.mark.parametrize("inference", ["bp", "max_product", CHAINS], ids=["bp", "max_product", "trw"])
@pytest.mark.parametrize("edges", ["constant", "difference"])
def test_labels_whose_beliefs_lead_are_those_of_the_whole(inference, edges):
    field = with_coupling(deepcopy(of_four_classes(edges)), 0.15)
    image = images(4, (1, 40, 36), 1)[0][0]
    found = predict_in_tiles(field, image, tile=16, margin=4, max_margin=16, inference=inference)
    whole = field.predict(image[np.newaxis], inference=inference)[0]
    assert np.count_nonzero(found.labels != whole) <= found.n_open < 0.2 * whole.size
    # Edges that prefer different labels do not prevent such a proof.
    repelling = with_coupling(field, -1)
    found = predict_in_tiles(repelling, image, tile=16, margin=4, max_margin=16, inference=inference)
    whole = repelling.predict(image[np.newaxis], inference=inference)[0]
    assert np.count_nonzero(found.labels != whole) <= found.n_open < 0.2 * whole.size
    # Beliefs depend on each other over any distance here, so there is no proof, and tiles only have to agree.
    if inference == "bp":
        strong = with_coupling(field, -20)
        assert not predict_in_tiles(strong, image, tile=16, margin=4, max_margin=8, inference=inference).certified


@pytest.mark.parametrize("maximum", [False, True], ids=["sums", "maxima"])
@pytest.mark.parametrize("edge_probabilities", [None, "chains"])
@pytest.mark.parametrize("n_states", [2, 3])
def test_errors_of_beliefs_hold_whatever_is_sent_into_a_window(maximum, edge_probabilities, n_states):
    """Bounds on the errors of beliefs in a window hold for any unary scores of the border around the window."""
    rng = np.random.default_rng(n_states)
    shape = 9, 10
    graph = lattice(shape)
    border = np.ones(shape, dtype=bool)
    border[1:-1, 1:-1] = False
    border = border.ravel()
    unary = rng.normal(scale=2, size=(90, n_states))
    tables = rng.normal(scale=0.4 if n_states == 2 else 0.25, size=(2, n_states, n_states))
    inference = LoopyBP(max_iter=1000, tol=1e-9)
    nu = np.ones(graph.n_edges)
    if edge_probabilities:
        inference = TRWMessagePassing(edge_probabilities, max_iter=1000, tol=1e-9)
        nu = compute_chain_probabilities(graph)

    def solved(unary):
        model = PairwiseModel(graph, unary, tables, (np.arange(graph.n_edges) % 2).astype(np.int32))
        state = (inference.map if maximum else inference.marginals)(model).state
        return model, state.values if state.as_scores else np.log(state.values)

    model, messages = solved(unary)
    found = bound_belief_errors(model, messages, border, nu, maximum=maximum)
    assert found.errors.min() < 0.5
    assert found.certain[~border].mean() > 0.5
    for scale in (1.0, 10.0, 1000.0):
        other = unary.copy()
        other[border] = scale * rng.normal(size=(border.sum(), n_states))
        model, messages = solved(other)
        beliefs = bound_belief_errors(model, messages, border, nu, maximum=maximum).beliefs
        difference = np.ptp(beliefs - found.beliefs, axis=1)[~border]
        assert np.all(difference <= found.errors[~border] + 1e-6)
        assert difference.max() > 0.1
        certain = found.certain & ~border
        np.testing.assert_array_equal(beliefs.argmax(1)[certain], found.beliefs.argmax(1)[certain])


@pytest.mark.parametrize("inference", ["max_product", "icm", "alpha_expansion"])
def test_labels_of_searches_and_messages_have_a_gap(inference):
    field = fitted(DRFClassifier(inference="map", edge_features="constant"), 3)
    image = images(3, (1, 36, 36), 1)[0][0]
    found = predict_in_tiles(field, image, tile=12, margin=2, max_margin=2, inference=inference, bound=True)
    (model,) = field.models(image[np.newaxis])
    best = TRWS(max_iter=500).map(model)
    lost = best.score - score(model, found.labels.ravel())
    assert 0 <= lost <= found.gap < 0.05 * best.score


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
    assert whole.n_open == 0
    np.testing.assert_array_equal(whole.labels, field.predict(image[np.newaxis])[0])


def restored(n_values=1, seed=0):
    """Return a tree field for noisy squares, and a larger image of squares."""
    rng = np.random.default_rng(seed)
    clean = np.kron(rng.random((7, 12, 14, n_values)), np.ones((4, 4, 1)))
    noisy = clean + 0.3 * rng.normal(size=clean.shape)
    clean = clean[..., 0] if n_values == 1 else clean
    field = RegressionTreeField(filter_bank="gaussian_derivatives", max_depth=2, max_iter=6, random_state=0)
    return field.fit(noisy[:4, :24, :24], clean[:4, :24, :24]), np.concatenate(noisy[4:])


@pytest.mark.parametrize("n_values", [1, 2])
def test_values_are_as_near_to_those_of_the_whole_as_is_said(n_values):
    field, image = restored(n_values)
    by_default = predict_in_tiles(field, image, tile=30, margin=4)
    assert by_default.residual <= 1e-5
    assert by_default.difference < 1e-4
    np.testing.assert_allclose(by_default.values, field.predict(image[None])[0], atol=1e-4)
    field.set_params(inference=ConjugateGradient(tol=1e-9, max_iter=10_000), clip=None)
    exact = field.predict(image[None])[0]
    # Tolerances well above the rounding of single precision.
    for tol in (1e-3, 1e-2):
        found = predict_in_tiles(field.set_params(inference=ConjugateGradient(tol=tol)), image, tile=30, margin=4)
        assert found.values.shape == exact.shape
        assert found.residual <= tol
        assert 0 < np.sqrt(np.mean((found.values - exact) ** 2)) <= found.difference


def test_values_go_from_disk_to_disk(tmp_path, monkeypatch):
    field, image = restored()
    np.save(tmp_path / "image.npy", image)
    mapped = Counting(np.load(tmp_path / "image.npy", mmap_mode="r"))
    out = np.lib.format.open_memmap(tmp_path / "values.npy", mode="w+", dtype=np.float32, shape=image.shape[:2])
    in_memory = predict_in_tiles(field, image, tile=25, margin=24).values
    monkeypatch.setattr(_tuning, "VALUES_IN_MEMORY", 1)
    found = predict_in_tiles(field.set_params(n_jobs=2), mapped, out, tile=25, margin=24)
    assert found.values is out
    assert mapped.largest <= (25 + 2 * found.margins.max()) ** 2 < image[..., 0].size
    np.testing.assert_array_equal(out, in_memory.astype(np.float32))


def test_eigenvalues_of_factors_bound_those_of_the_field():
    field, image = restored(2)
    model, certain = FittedField(vars(field)).build_model_and_eigenvalues(image[:9, :11].astype(np.float32), 1)
    whole = np.column_stack([model.product(row.reshape(model.h.shape)).ravel() for row in np.eye(model.h.size)])
    lower = whole - np.diag(np.repeat(certain.ravel(), 2))
    assert np.linalg.eigvalsh(whole)[0] >= certain.min() > 0
    assert np.linalg.eigvalsh((lower + lower.T) / 2)[0] > -1e-4 * np.abs(whole).max()


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "multinomial"},
        {"loss": "multinomial", "cost": [[0, 1, 2], [3, 0, 1], [1, 1, 0]]},
        {"loss": "mse"},
        {"loss": "mse", "encoding": "ordinal"},
        {"loss": "logistic"},
    ],
    ids=["scores", "costs", "codes", "numbers", "two"],
)
def test_labels_of_tree_fields_that_can_differ_are_counted(options):
    n_classes = 2 if options["loss"] == "logistic" else 3
    field = fitted(RegressionTreeFieldClassifier(**options, max_depth=1, max_iter=4, random_state=0), n_classes)
    image = images(n_classes, (1, 60, 50), 1)[0][0]
    found = predict_in_tiles(field, image, tile=16, margin=4)
    whole = field.set_params(inference=ConjugateGradient(tol=1e-9, max_iter=10_000)).predict(image[None])[0]
    n_other = np.count_nonzero(found.labels != whole)
    assert n_other <= found.n_open < 0.01 * whole.size
    assert found.certified == (found.n_open == 0)
    # With a loose tolerance some labels differ.
    loose = field.set_params(inference=ConjugateGradient(tol=0.3))
    rough = predict_in_tiles(loose, image, tile=16, margin=1, max_margin=1)
    assert 0 < np.count_nonzero(rough.labels != whole) <= rough.n_open
    # A change of the values that is smaller than the distance does not change a label.
    rng = np.random.default_rng(0)
    values = loose._values(image[None])[1][0]
    codes = get_class_codes(loose)
    distance, columns = codes.distances(values), codes.labels(values)
    for _ in range(20):
        step = rng.normal(size=values.shape)
        step *= 0.999 * distance[:, None] / np.linalg.norm(step, axis=1, keepdims=True)
        np.testing.assert_array_equal(codes.labels(values + step), columns)


def test_what_tree_fields_cannot_do_in_tiles_is_said():
    field, image = restored()
    with pytest.raises(ValueError, match="inference and bound are not supported by"):
        predict_in_tiles(field, image, inference="bp")
    with pytest.raises(ValueError, match=r"out must have the shape \(144, 56\) of the image, got \(3,\)"):
        predict_in_tiles(field, image, np.zeros(3))
    with pytest.raises(ValueError, match="image has 2 channels, but the field was fitted to 1"):
        predict_in_tiles(field, np.concatenate([image, image], axis=2))
    whole = image.copy()
    image[100, 3] = np.nan
    with pytest.raises(ValueError, match="image contains NaN or infinity in rows 4 to 103 and columns 0 to 55"):
        predict_in_tiles(field, image, tile=44)
    two = RegressionTreeField(cascade=2, max_depth=0, max_iter=1, filter_bank=None)
    two.fit(whole[None], whole[None, ..., 0])
    with pytest.raises(ValueError, match="RegressionTreeField with cascade needs the whole image at once"):
        predict_in_tiles(two, whole)
    with pytest.raises(ValueError, match="RegressionTreeField with degradation needs the whole image at once"):
        predict_in_tiles(field.set_params(degradation=Blur(np.ones((3, 3)), 0.1)), image)


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
    with pytest.raises(ValueError, match="bound=True needs the MAP inference of a field"):
        predict_in_tiles(cut, 0.1 * image, tile=10, inference="trw", bound=True)


def test_filters_that_repeat_themselves_are_alike_in_all_tiles():
    # Groups of patches begin at every seventh row and column of the image, not of the window of a tile.
    clean = 40 * (images(2, (4, 30, 40))[1] > 0)
    bank = PatchGroups(10.0, search_radius=2, step=7)
    field = RegressionTreeField(filter_bank=bank, max_depth=2, max_iter=3, corruption=GaussianNoise(10), random_state=0)
    field.fit(clean.astype(np.float32))
    image = 40 * images(2, (1, 150, 160))[1][0] + np.random.default_rng(0).normal(size=(150, 160), scale=10)
    found = predict_in_tiles(field, image[..., np.newaxis], tile=40)
    assert found.margins.max() < 64
    np.testing.assert_allclose(found.values, field.predict(image[np.newaxis])[0], atol=1e-2)
