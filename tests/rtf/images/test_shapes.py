"""Shapes of X and y: ambiguous shapes raise errors that name the ambiguity; unambiguous ones are accepted."""

import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import sklearn_crf
from sklearn_crf import RegressionTreeField
from sklearn_crf.rtf import GaussianNoise, Window

QUICK = {"max_depth": 0, "max_iter": 2, "filter_bank": None}
GREY = np.random.default_rng(0).random((4, 8, 9))
COLOUR = np.random.default_rng(1).random((4, 8, 9, 3))
LABELS = (GREY > 0.5).astype(int)

READINGS = {
    "a stack": (GREY, GREY, ("4 grey images of 8 x 9 pixels (pass X[..., np.newaxis])", "4 chains of 8 nodes")),
    "lists of lists": (GREY.tolist(), GREY.tolist(), ("4 grey images of 8 x 9 pixels", "4 chains of 8 nodes")),
    "one image": (GREY[0][..., None], GREY[0], ("one image of 8 x 9 pixels (pass X[np.newaxis]", "8 chains of 9")),
    "one image twice": (GREY[0][..., None],) * 2 + (("one image of 8 x 9 pixels", "8 chains of 9 nodes"),),
    "one photograph": (COLOUR[0], COLOUR[0], ("one image of 8 x 9 pixels and 3 colours (pass X[", "8 chains")),
}

VOLUMES = {
    "a stack": np.zeros((2, 4, 8, 9)),
    "a list": [np.zeros((4, 8, 9)), np.zeros((5, 6, 7))],
}


@pytest.mark.parametrize("name", VOLUMES)
def test_volumes_without_an_axis_of_channels_show_both_readings(name):
    volumes = VOLUMES[name]
    with pytest.raises(ValueError, match="is ambiguous") as error:
        RegressionTreeField(**QUICK).fit(volumes, volumes)
    for reading in ("a volume of 4 slices of 8 x 9 voxels (pass [x[...", "9 features", "Window(lattice_ndim=2)"):
        assert reading in str(error.value)
    images = RegressionTreeField(**QUICK, window=Window(1, lattice_ndim=2))
    assert images.fit(np.zeros((2, 4, 8, 9)), np.zeros((2, 4, 8, 9))).lattice_ndim_ == 2


@pytest.mark.parametrize("name", READINGS)
def test_what_has_two_readings_shows_both(name):
    X, y, readings = READINGS[name]
    with pytest.raises(ValueError, match="is ambiguous") as error:
        RegressionTreeField(**QUICK).fit(X, y)
    for reading in (*readings, "window=Window(lattice_ndim=1)"):
        assert reading in str(error.value)


def test_one_grey_image_is_no_table():
    with pytest.raises(ValueError, match=r"one grey image \(pass X\[np.newaxis, \.\.\., np.newaxis\]") as error:
        RegressionTreeField(**QUICK).fit(GREY[0], GREY[0])
    assert "8 rows with 9 features and 9 targets each (pass window=Window(lattice_ndim=0))" in str(error.value)
    image = GREY[0][np.newaxis, ..., np.newaxis]
    assert RegressionTreeField(**QUICK).fit(image, image).lattice_ndim_ == 2
    table = RegressionTreeField(**QUICK, window=Window(lattice_ndim=0)).fit(GREY[0], GREY[0])
    assert table.predict(GREY[0]).shape == (8, 9)
    column = GREY[0][:, :1]
    assert RegressionTreeField(**QUICK).fit(column, column).lattice_ndim_ == 0


def test_what_the_errors_say_is_taken():
    RegressionTreeField(**QUICK).fit(GREY[..., np.newaxis], GREY)
    RegressionTreeField(**QUICK).fit([x[..., np.newaxis] for x in GREY], list(GREY))
    RegressionTreeField(**QUICK).fit(GREY[:1][..., np.newaxis], GREY[:1])
    RegressionTreeField(**QUICK).fit(COLOUR[:1], COLOUR[:1])
    chains = RegressionTreeField(**QUICK, window=Window(lattice_ndim=1))
    assert chains.fit(GREY, GREY).predict(GREY).shape == GREY.shape
    assert chains.fit(GREY[0][..., None], GREY[0]).predict(GREY[0][..., None]).shape == (8, 9)


GREYS = {
    "lists": (list(GREY), list(GREY)),
    "a list and a stack": (list(GREY), GREY),
    "a stack and a list": (GREY, list(GREY)),
    "sizes that differ": ([GREY[0], GREY[1, :5]], [GREY[0], GREY[1, :5]]),
}


@pytest.mark.parametrize("cascade", [1, 2])
@pytest.mark.parametrize("name", GREYS)
def test_lists_of_matrices_are_grey_images(name, cascade):
    X, y = GREYS[name]
    field = RegressionTreeField(**QUICK, cascade=cascade).fit(X, y)
    with_axis = RegressionTreeField(**QUICK, cascade=cascade).fit([x[..., None] for x in X], list(y))
    assert (field.lattice_ndim_, field.n_features_in_) == (2, 1)
    for found, wanted in zip(field.predict(X), with_axis.predict([x[..., None] for x in X]), strict=True):
        assert_array_equal(found, wanted)
    assert_array_equal(field.predict(X[1]), field.predict(X)[1])
    chains = RegressionTreeField(**QUICK, window=Window(lattice_ndim=1)).fit(list(GREY), list(GREY))
    assert (chains.lattice_ndim_, chains.n_features_in_) == (1, 9)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int64, np.float32, np.float64, bool])
@pytest.mark.parametrize("images", [GREY, COLOUR], ids=["grey", "colour"])
def test_single_images_of_any_type_are_predicted(images, kind):
    X = images > 0.5 if kind is bool else (200 * images).astype(kind)
    field = RegressionTreeField(**QUICK, loss="likelihood").fit(list(X), list(X))
    single, many = field.predict(X[2], return_std=True), field.predict(list(X), return_std=True)
    for found, wanted in zip(single, many, strict=True):
        assert found.shape == X[2].shape
        assert_array_equal(found, wanted[2])
    known = np.where(GREY[2] > 0.5, X[2], np.nan) if images is GREY else None
    if known is not None:
        assert_array_equal(field.predict(X[2], evidence=known), field.predict([X[2]], evidence=[known])[0])


@pytest.mark.parametrize("given", [COLOUR, list(COLOUR)], ids=["array", "list"])
def test_colour_to_colour_goes_on(given):
    predicted = RegressionTreeField(**QUICK).fit(given, given).predict(given)
    assert [np.shape(own) for own in predicted] == [(8, 9, 3)] * 4


@pytest.mark.parametrize("of_fit", ["grey", "colour"])
def test_clean_images_with_two_readings(of_fit):
    images = GREY if of_fit == "grey" else COLOUR
    field = RegressionTreeField(**QUICK, corruption=GaussianNoise(0.1)).fit(images)
    assert field.predict(images[0]).shape == images[0].shape
    for own in (GREY[0][..., None], *([COLOUR[0]] if of_fit == "grey" else [])):
        with pytest.raises(ValueError, match=re.escape("np.newaxis]), or one")):
            field.predict(own)
    with pytest.raises(ValueError, match=re.escape("X of shape (8, 9) is one image: pass X[np.newaxis].")):
        RegressionTreeField(**QUICK, corruption=GaussianNoise(0.1)).fit(GREY[0])


LATTICES = ["ContrastiveCRF", "DRFClassifier", "M3NClassifier", "RegressionTreeFieldClassifier", "TRWCRF"]
EQUAL = {
    "a stack": (GREY, LABELS),
    "a list": (list(GREY), list(LABELS)),
    "a list and a stack": (list(GREY), LABELS),
    "lists of lists": (GREY.tolist(), LABELS.tolist()),
    "sizes that differ": ([GREY[0], GREY[1, :5]], [LABELS[0], LABELS[1, :5]]),
    "colours": (COLOUR, (COLOUR > 0.5).astype(int)),
    "a list of colours": (list(COLOUR), list((COLOUR > 0.5).astype(int))),
}


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("classifier", LATTICES)
def test_classifiers_take_no_labels_of_the_shape_of_features(classifier, name):
    with pytest.raises(ValueError, match="Equal shapes of X and y are ambiguous: lattices of shape") as error:
        getattr(sklearn_crf, classifier)().fit(*EQUAL[name])
    assert "(add it: x[..., np.newaxis]), or lattices of shape" in str(error.value)


@pytest.mark.parametrize("classifier", LATTICES)
def test_labels_with_an_axis_too_many(classifier):
    with pytest.raises(ValueError, match=re.escape("Labels have no axis of features: pass y[..., 0].")):
        getattr(sklearn_crf, classifier)().fit(GREY[..., None], LABELS[..., None])


@pytest.mark.parametrize("classifier", LATTICES)
def test_sequences_of_one_feature_go_on(classifier):
    X, y = GREY[:, :, :1], LABELS[:, :, 0]
    field = getattr(sklearn_crf, classifier)()
    assert field.fit(X, y).predict(X).shape == y.shape
    assert [own.shape for own in field.fit(list(X), list(y)).predict(list(X))] == [(8,)] * 4


@pytest.mark.parametrize("classifier", ["DenseCRF", "MultiConditionalMFA", "MultiLabelField"])
def test_others_take_no_stacks_without_an_axis(classifier):
    for X, y in EQUAL.values():
        with pytest.raises(ValueError, match=r"shape|dim"):
            getattr(sklearn_crf, classifier)().fit(X, y)
