"""Base class of the estimators based on regression tree fields, with the steps of a fit."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._parameters import require_objects
from sklearn_crf._reports import CallbackSupportMixin, FitReprMixin, fit_callbacks, warn_caller
from sklearn_crf._versions import get_versioned_state, restore_versioned_state
from sklearn_crf.distributed import Shards
from sklearn_crf.inference import ConjugateGradient, GaussianBP, GaussianDirect
from sklearn_crf.preprocessing._default_bank import DEFAULT_BANKS, TRANSFORMERS_OF_BANKS
from sklearn_crf.preprocessing._filter_bank import BANKS
from sklearn_crf.rtf._objectives import SOLVERS
from sklearn_crf.rtf._options import OPTION_CLASSES, FieldSolver, Splits, Window, as_options
from sklearn_crf.rtf._plan import FieldOptions, FieldPlan, Targets, TreeData
from sklearn_crf.rtf._prediction import check_saved_trees
from sklearn_crf.rtf._sharded import read_shards
from sklearn_crf.rtf._training import Trained, train
from sklearn_crf.rtf.images._input import OF_INPUT, Reading

# Objects that error messages suggest if a nested parameter is set, but the parameter holds a name or a number.
_NESTED = {name: f"{kind.__name__}()" for name, kind in OPTION_CLASSES.items()}
_NESTED |= {"inference": "ConjugateGradient()", "filter_bank": "FilterBank()"}


@dataclass(eq=False, repr=False, kw_only=True)
class FieldEstimator(FitReprMixin, CallbackSupportMixin, BaseEstimator):
    """Base class of estimators whose prediction is the mean of a regression tree field.

    ``fit`` reads the data, resolves the parameters into a plan, trains, and stores the fitted attributes.
    """

    __getstate__ = get_versioned_state
    __setstate__ = restore_versioned_state

    def _check_fitted(self) -> None:
        # An estimator that was sent to a worker during its fit has no trees.
        if hasattr(self, "trees_"):
            self._check_trees()

    _check_trees = check_saved_trees

    _parameter_constraints: ClassVar[dict] = {
        "window": [Integral, "array-like", Window],
        "max_depth": [Interval(Integral, 0, None, closed="left"), StrOptions({"auto"})],
        "filter_bank": [StrOptions({*DEFAULT_BANKS, "pca", *BANKS}), *TRANSFORMERS_OF_BANKS, None],
        "split": [StrOptions({"gradient", "residual"}), Splits],
        "solver": [StrOptions({"pqn", "spg"}), FieldSolver],
        "max_iter": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "tol": [Interval(Real, 0, None, closed="left")],
        "inference": [StrOptions({*SOLVERS}), ConjugateGradient, GaussianDirect, GaussianBP],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    window: Any = 3
    max_depth: int | str = "auto"
    filter_bank: Any = "auto"
    split: str | Splits = "gradient"
    solver: str | FieldSolver = "pqn"
    max_iter: int | str = "auto"
    tol: float = 1e-4
    inference: Any = "auto"
    warm_start: bool = False
    random_state: Any = None
    n_jobs: int | None = None
    verbose: int = 0

    def set_params(self, **params: Any) -> "FieldEstimator":
        """Set parameters, or parameters of option objects by nested names such as ``split__n_thresholds``.

        Parameters
        ----------
        **params : dict

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a nested name is given, but the parameter does not hold an object.
        """
        require_objects(self, params, _NESTED)
        return super().set_params(**params)

    def _options(self, targets: Targets) -> FieldOptions:
        """Read and check the parameters of a fit."""
        targets.check()
        window, solver, split = (clone(as_options(getattr(self, name), name)) for name in ("window", "solver", "split"))
        # Stands in for the estimator in scikit-learn's validation, because validation sets attributes on the object.
        door = type(self).__new__(type(self))
        door.n_jobs = self.n_jobs
        reading = Reading(door, window, targets.takes_examples)
        seed = self.random_state
        if not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        as_given = "filter_bank", "max_depth", "max_iter", "tol", "n_jobs", "verbose"
        return FieldOptions(
            reading=reading if targets.former is None else reading.match_fitted_attributes(targets.former),
            targets=targets,
            solver=solver,
            split=split,
            seed=int(seed),
            **{name: getattr(self, name) for name in as_given},
        )

    @property
    def _former(self) -> Mapping | None:
        """Fitted attributes from which a warm start continues, or None for a cold start."""
        if not (self.warm_start and hasattr(self, "trees_")):
            return None
        return {name: value for name, value in vars(self).items() if name.endswith("_") or name == "_has_channels"}

    def _fit(self, options: FieldOptions, X, y, sample_weight):
        """Read the data, make the plan, train, and store the fitted attributes."""
        if isinstance(X, Shards):
            data = read_shards(options, X, y, sample_weight)
        else:
            data = TreeData.of(options.targets, options.targets.read_given(options.reading, X, y, sample_weight))
        plan = FieldPlan.of(options, data)
        found = train(data, plan, partial(fit_callbacks, self, X, y))
        return self._store(found)

    def _store(self, found: Trained):
        """Store a trained field in the fitted attributes.

        Only this last step changes the estimator, so that a failed fit leaves it unchanged.
        """
        for name in {*OF_INPUT, "stages_", "joint_curve_"} - found.attributes.keys():
            self.__dict__.pop(name, None)
        self.__dict__.update(found.attributes)
        for message, category in found.warnings:
            warn_caller(message, category)
        return self

    @property
    def _reading(self) -> Reading:
        """Reader of X for predictions."""
        return Reading(self, as_options(self.window, "window"), hasattr(self, "classes_"), vars(self))
