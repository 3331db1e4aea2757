"""Models saved by this version and by earlier ones can be loaded, and their predictions are unchanged."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import sklearn_crf

FOLDER = Path(__file__).parent
SAVED = sorted(FOLDER.glob("*/*.pickle"))

# Loading from another version warns; this warning is not tested here.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.InconsistentVersionWarning")


def test_there_are_models_of_this_version():
    assert len(list(FOLDER.glob(f"{sklearn_crf.__version__}/*.pickle"))) == 9


@pytest.mark.parametrize("path", SAVED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_saved_models_predict_what_they_did(path):
    model = pickle.loads(path.read_bytes())
    arrays = np.load(path.with_suffix(".npz"))
    predicted = model.predict(arrays["X"])
    if predicted.dtype.kind == "f":
        # Results of different vector units differ by rounding.
        assert_allclose(predicted, arrays["labels"], rtol=1e-6, atol=1e-6)
    else:
        assert_array_equal(predicted, arrays["labels"])
    if "probabilities" in arrays:
        assert_allclose(model.predict_proba(arrays["X"]), arrays["probabilities"], rtol=1e-6, atol=1e-6)
    assert str(model).partition("\n# fitted")[0] == str(clone(model))
