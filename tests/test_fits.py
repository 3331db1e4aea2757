"""Fits are complete or have no effect, wherever they are interrupted."""

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from field_data import noisy_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from small_fits import MAKERS, grey, rows
from stopping import Stopped, stopped_at

from sklearn_crf import TRWCRF
from sklearn_crf.calibration import TemperatureScaling
from sklearn_crf.preprocessing import (
    AdaptiveFilters,
    ClassifierScores,
    FilterBank,
    NodeTransformer,
    PatchAverages,
    PatchGroups,
    PatchOverlays,
    SequenceVectorizer,
)

LARGER = 5, 14  # number of images, and their height and width

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def objects_of_other_tests():
    """Exclude the objects of other tests from garbage collections, which would take half a second each."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def planes(n=4, side=12):
    return grey(n, side)


def one_hot_planes(n=4, side=12):
    X, y = noisy_blobs(n, side=side)
    return X[..., 0], y


def sentences(n=4, side=6):
    return [[{"word": str(i * j)} for i in range(side)] for j in range(n)], None


FITS = {name: (make, data, ["fit"]) for name, (make, data) in MAKERS.items()} | {
    "TRWCRF.partial_fit": (*MAKERS["TRWCRF"], ["partial_fit"]),
    "MultiConditionalMFA.partial_fit": (*MAKERS["MultiConditionalMFA"], ["partial_fit"]),
    "TemperatureScaling": (lambda: TemperatureScaling(TRWCRF(max_iter=2), cv=2), MAKERS["TRWCRF"][1], ["fit"]),
    "ClassifierScores": (lambda: ClassifierScores(LogisticRegression(), cv=2), rows, ["fit", "fit_transform"]),
    "NodeTransformer": (lambda: NodeTransformer(StandardScaler()), rows, ["fit"]),
    "AdaptiveFilters": (AdaptiveFilters, planes, ["fit", "fit_transform"]),
    "PatchOverlays": (
        lambda: PatchOverlays(n_patches=5, patch_size=5, random_state=0),
        one_hot_planes,
        ["fit", "fit_transform"],
    ),
    "FilterBank": (FilterBank, planes, ["fit"]),
    "PatchAverages": (PatchAverages, planes, ["fit"]),
    "PatchGroups": (PatchGroups, planes, ["fit"]),
    "SequenceVectorizer": (SequenceVectorizer, sentences, ["fit", "fit_transform"]),
}


def state_of(model):
    # A pickle stores one string object used twice in fewer bytes than two equal strings. A copy makes the bytes of
    # equal states equal.
    return {name: pickle.dumps(pickle.loads(pickle.dumps(value))) for name, value in vars(model).items()}


def run(before, make, method, data, line):
    """Fit an estimator in a given state, and stop at a line; return the estimator and the number of lines that ran."""
    model = make()
    model.__dict__ = {key: pickle.loads(value) for key, value in before.items()}
    # A stopped call may leave settings of its thread changed, so each call has a new thread.
    with ThreadPoolExecutor(1) as pool:
        return model, pool.submit(n_lines_run, getattr(model, method), data, line).result()


def n_lines_run(fit, data, line):
    # Garbage collection may run finalizers of objects from other tests, whose lines would be counted.
    gc.collect()
    gc.disable()
    try:
        with stopped_at(line) as lines, suppress(Stopped):
            fit(*data)
    finally:
        gc.enable()
    return len(lines)


@pytest.mark.parametrize(("name", "method"), [(name, each) for name, (*_, methods) in FITS.items() for each in methods])
def test_fits_that_are_stopped_anywhere_are_whole_or_have_not_happened(name, method):
    make, data, _ = FITS[name]
    before = state_of(make().fit(*data()))
    # Only the second fit counts, because the first fit also fills caches.
    _, (model, n_lines) = (run(before, make, method, data(*LARGER), None) for _ in range(2))
    after = state_of(model)
    # Fits set attributes at their end, so they are stopped at each of the last lines and at a few earlier lines.
    moments = n_lines - np.concatenate([np.arange(12), np.random.default_rng(0).integers(12, n_lines, 4)])
    for moment in moments:
        model, n_run = run(before, make, method, data(*LARGER), moment)
        assert n_run == moment
        assert state_of(model) in (before, after)
