"""Every constructor parameter of every estimator with invalid values: the error names the parameter."""

import inspect

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils._param_validation import InvalidParameterError

import sklearn_crf
import sklearn_crf.calibration
import sklearn_crf.dense
import sklearn_crf.mfa
import sklearn_crf.preprocessing
from sklearn_crf.preprocessing import FilterBank

RNG = np.random.default_rng(0)
ROWS, LABELS = RNG.normal(size=(30, 3)), np.arange(30) % 2
IMAGES = RNG.normal(size=(3, 6, 6, 1))
MASKS = (IMAGES[..., 0] > 0).astype(int)

WRONG = {
    "another type": object(),
    "NaN": np.nan,
    "infinity": np.inf,
    "array": np.array([0.5, np.nan]),
    "string": "nonsense",
    "complex": 1j,
}

# Values that are valid for a parameter of some estimator, or invalid only together with the data.
TAKEN = {
    "missing_label": ["another type", "NaN", "infinity", "string", "complex"],  # any value may stand for a missing one
    "cv": ["array"],  # splits may come from any iterable
    "separator": ["string"],
}
# Arrays that do not fit the classes or the lattices: the error describes the data and also names the parameter.
BY_DATA = {("classes", "array"), ("connectivity", "array"), ("cost", "array")}

ARGUMENTS = {
    "ChannelUnion": {"transformers": [FilterBank("haar")]},
    "ClassifierScores": {"estimator": LogisticRegression()},
    "NodeTransformer": {"transformer": StandardScaler()},
    "TemperatureScaling": {"estimator": sklearn_crf.DRFClassifier()},
}
DATA = {
    "DenseCRF": (RNG.normal(size=(2, 8, 8, 5)), RNG.integers(2, size=(2, 8, 8))),
    "GridField": ([sklearn_crf.DenseExample(np.eye(2)[MASKS[0]], 50.0 * MASKS[0])], MASKS[:1]),
    "MultiConditionalMFA": (ROWS, LABELS),
    "MultiLabelField": (ROWS, np.eye(3, dtype=int)[np.arange(30) % 3]),
    "PixelFeatures": (RNG.random((2, 6, 6, 3)), None),
    "RegressionTreeField": (IMAGES, IMAGES),
    "SequenceVectorizer": ([[{"a": 1}, {"b": 2}]], None),
}


def estimators():
    """Return the public classes with a method fit, by name."""
    found = {}
    for module in (sklearn_crf, sklearn_crf.preprocessing, sklearn_crf.mfa, sklearn_crf.dense, sklearn_crf.calibration):
        for name in module.__all__:
            kind = getattr(module, name)
            if inspect.isclass(kind) and hasattr(kind, "fit"):
                found[name] = kind
    return found


ESTIMATORS = estimators()


def parameters_of(name):
    return list(inspect.signature(ESTIMATORS[name].__init__).parameters)[1:]


def cases_of(name):
    """Return pairs of a parameter and the name of an invalid value."""
    return [(key, wrong) for key in parameters_of(name) for wrong in WRONG if wrong not in TAKEN.get(key, [])]


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if "C" in parameters_of(name)])
@pytest.mark.parametrize("strength", [0, 5e-324, 1e308, np.float64(1e300)])
def test_penalties_that_overflow_are_refused(name, strength):
    with pytest.raises(InvalidParameterError, match="'C' parameter"):
        ESTIMATORS[name](C=strength).fit(*DATA.get(name, (IMAGES, MASKS)))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_wrong_parameter_is_named(name):
    X, y = DATA.get(name, (IMAGES, MASKS))
    for parameter, wrong in cases_of(name):
        estimator = ESTIMATORS[name](**ARGUMENTS.get(name, {}) | {parameter: WRONG[wrong]})
        error = ValueError if (parameter, wrong) in BY_DATA else InvalidParameterError
        with pytest.raises(error, match=parameter):
            estimator.fit(X, y)
        assert not [key for key in vars(estimator) if key.endswith("_") and not key.startswith("_")]


@pytest.mark.parametrize("name", ["ContrastiveCRF", "DRFClassifier", "M3NClassifier", "TRWCRF"])
def test_unknown_inference_lists_the_nearest_name_first(name):
    with pytest.raises(
        InvalidParameterError, match=r"inference must be an Inference or one of 'junction_tree', .*'lp'"
    ):
        ESTIMATORS[name](inference="junction").fit(IMAGES, MASKS)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_parameter_has_a_constraint(name):
    assert set(parameters_of(name)) == set(ESTIMATORS[name]._parameter_constraints)


def test_no_estimator_is_left_out():
    assert len(ESTIMATORS) >= 19
    n_parameters = sum(len(parameters_of(name)) for name in ESTIMATORS)
    n_cases = sum(len(cases_of(name)) for name in ESTIMATORS)
    n_taken = sum(len(TAKEN.get(key, [])) for name in ESTIMATORS for key in parameters_of(name))
    assert n_parameters >= 180
    assert n_cases == len(WRONG) * n_parameters - n_taken >= 1000
