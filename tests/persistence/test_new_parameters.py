"""Models saved before their class had some parameter: after loading, the parameter has its default."""

import importlib
import pickle
import pkgutil
import warnings
from functools import wraps
from inspect import Parameter, signature

import numpy as np
import pytest
from make_models import MODELS
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, clone
from sklearn.preprocessing import StandardScaler

import sklearn_crf
from sklearn_crf import TRWCRF, DRFClassifier, Example, M3NClassifier, RegressionTreeField
from sklearn_crf.calibration import TemperatureScaling
from sklearn_crf.inference import AlphaExpansion, LoopyBP
from sklearn_crf.learning import MaxMargin, OneSlack, PseudoMarginalTraining, Relaxation
from sklearn_crf.model_selection import StratifiedLatticeKFold
from sklearn_crf.pipeline import make_pipeline
from sklearn_crf.potentials import PairwiseTables
from sklearn_crf.preprocessing import FilterBank, NodeTransformer
from sklearn_crf.rtf import FieldSolver, Splits, Window


def all_classes():
    """Return every class of the package whose objects are saved, by name."""
    for module in pkgutil.walk_packages(sklearn_crf.__path__, "sklearn_crf."):
        importlib.import_module(module.name)
    found, classes = {}, [BaseEstimator]
    while classes:
        subclasses = classes.pop().__subclasses__()
        classes += subclasses
        found |= {f"{cls.__module__}.{cls.__qualname__}": cls for cls in subclasses}
    found = {name: cls for name, cls in sorted(found.items()) if name.startswith("sklearn_crf.")}
    # This estimator wraps predictions during a call of a scorer, and is never saved.
    del found["sklearn_crf.model_selection._Labelled"]
    return found


CLASSES = all_classes()


def with_new_parameter(init):
    """Return a constructor with one more parameter."""

    @wraps(init)
    def longer(self, *arguments, new_option="its default", **options):
        init(self, *arguments, **options)
        self.new_option = new_option

    known = list(signature(init).parameters.values())
    if init is object.__init__:
        known = known[:1]
    known.append(Parameter("new_option", Parameter.KEYWORD_ONLY, default="its default"))
    longer.__signature__ = signature(init).replace(parameters=known)
    return longer


def add_parameters(monkeypatch, *classes):
    # Subclasses may inherit the constructor of another class: look up all constructors before replacing any.
    for cls, init in [(cls, cls.__init__) for cls in classes]:
        monkeypatch.setattr(cls, "__init__", with_new_parameter(init))


@pytest.mark.parametrize("name", CLASSES)
def test_a_parameter_that_was_not_saved_has_its_default(name, monkeypatch):
    cls = CLASSES[name]
    saved = pickle.dumps(cls.__new__(cls))
    add_parameters(monkeypatch, cls)
    loaded = pickle.loads(saved)
    assert loaded.new_option == "its default"
    assert cls.__setstate__.__module__.startswith("sklearn_crf.")


def images(rng):
    y = np.kron(rng.integers(2, size=(4, 3, 3)), np.ones((1, 2, 2), dtype=int))
    return y[..., np.newaxis] + 0.5 * rng.normal(size=(*y.shape, 1)), y


def real_images(rng):
    X, y = images(rng)
    return X, y.astype(float)


NESTED = {
    "options of DRFClassifier": (
        DRFClassifier(
            learning=PseudoMarginalTraining(), inference=LoopyBP(), pairwise=PairwiseTables("potts"), max_iter=3
        ),
        images,
    ),
    "options of TRWCRF": (TRWCRF(learning=Relaxation(), max_iter=3), images),
    "options of M3NClassifier": (
        M3NClassifier(learning=MaxMargin(), solver=OneSlack(), inference=AlphaExpansion(), max_iter=3),
        images,
    ),
    "options of RegressionTreeField": (
        RegressionTreeField(
            max_depth=1,
            max_iter=2,
            window=Window(),
            split=Splits(min_samples_leaf=10),
            solver=FieldSolver(),
            filter_bank=FilterBank(),
            random_state=0,
        ),
        real_images,
    ),
    "TemperatureScaling": (TemperatureScaling(DRFClassifier(max_iter=3), cv=2), images),
    "FieldPipeline": (make_pipeline(NodeTransformer(StandardScaler()), TRWCRF(max_iter=3)), images),
}


@pytest.mark.parametrize("library", ["pickle", "skops"])
@pytest.mark.parametrize("name", [*MODELS, *NESTED])
def test_fitted_models_without_new_parameters_predict_the_same(name, library, monkeypatch):
    io = pickle if library == "pickle" else pytest.importorskip("skops.io")
    model, data = {**MODELS, **NESTED}[name]
    X, y = data(np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(model).fit(X, y)
    saved, right = io.dumps(model), model.predict(X)
    options = {} if library == "pickle" else {"trusted": io.get_untrusted_types(data=saved)}
    own = [cls for cls in CLASSES.values() if "__init__" in vars(cls) or cls.__init__ is object.__init__]
    add_parameters(monkeypatch, *own)
    loaded = io.loads(saved, **options)
    assert_array_equal(loaded.predict(X), right)
    assert str(loaded).partition("\n# fitted")[0] == str(clone(loaded))
    for key, value in loaded.get_params().items():
        if type(value).__module__.startswith("sklearn_crf.") and isinstance(value, BaseEstimator):
            assert value.get_params(deep=False)["new_option"] == "its default", key


def test_splitters_and_examples_of_older_versions_are_loaded():
    splitter = StratifiedLatticeKFold(3)
    state = {name: value for name, value in vars(splitter).items() if name != "missing_label"}
    loaded = StratifiedLatticeKFold.__new__(StratifiedLatticeKFold)
    loaded.__setstate__(state)
    assert loaded.missing_label is None
    assert str(loaded) == str(splitter)
    example = Example([[1.0], [2.0]], [[0, 1]])
    state = {name: value for name, value in vars(example).items() if name not in ("factors", "fixed_factors")}
    loaded = Example.__new__(Example)
    loaded.__setstate__(state)
    assert not loaded.has_factors
    assert_array_equal(loaded.graph.edges, [[0, 1]])
