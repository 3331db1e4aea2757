"""What every field that is trained by minimising over its weights shares: from X and y to a risk, a start, a result."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from sklearn_crf._threads import single_threaded_blas
from sklearn_crf.encoding import make_batches, validate_sample_weight
from sklearn_crf.estimators._callbacks import fit_callbacks
from sklearn_crf.estimators._coupling import INFERENCES
from sklearn_crf.estimators._field import FieldClassifier
from sklearn_crf.estimators._training import train
from sklearn_crf.inference import Inference
from sklearn_crf.objectives import EmpiricalRisk, SparseRisk
from sklearn_crf.potentials import PAIRWISE_FORMS

# What weights of two fits have in common: attributes of their potentials.
_COUNTS = {
    "n_features": "features",
    "n_node_types": "types of nodes",
    "n_edge_types": "types of edges",
    "n_edge_features": "edge features",
}


class TrainedField(FieldClassifier):
    """Base of the fields whose weights minimise an objective over training examples.

    A subclass has the constructor parameters of ``_parameter_constraints``, ``solver`` and perhaps more, calls
    :meth:`_fit`, and says which objective it minimises, by what, from where.
    """

    _parameter_constraints: ClassVar[dict] = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "inference": [StrOptions(set(INFERENCES)), Inference],
        "pairwise": [StrOptions({"auto", *PAIRWISE_FORMS})],
        "edge_features": [str, callable],
        "connectivity": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "edge_types": [StrOptions({"tied", "offset"})],
        "fit_intercept": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "missing_label": "no_validation",
        "classes": ["array-like", None],
        "lattice_ndim": [Interval(Integral, 0, None, closed="left"), None],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    def _check_labels(self, labels):
        """Raise ValueError where a parameter does not fit the classes."""

    def _with_node_weights(self, encoded, batches):
        """The batches, with weights of nodes where the loss has them."""
        return batches

    def _objective(self, batches, labels):
        """Objective for the graphs of the batches and the classes of the labels."""
        raise NotImplementedError(type(self).__name__)

    def _objective_of_batches(self, encoded, batches, labels, potentials):
        """The same, for a subclass whose objective keeps something for each batch."""
        return self._objective(batches, labels)

    def _n_iterations(self):
        """Most iterations that callbacks will hear of."""
        return self.max_iter

    def _training_options(self, objective, encoded, potentials):
        """What :meth:`_train` needs of the constructor parameters."""
        raise NotImplementedError(type(self).__name__)

    def _cold_start(self, risk, options, rng):
        """Flat weights where training starts."""
        return np.zeros(risk.potentials.n_coef)

    def _batch_nodes(self, encoded):
        """Nodes up to which examples are packed."""
        # Mini-batches are of examples, so none may be packed with others.
        return 1 if self.solver == "sgd" else 4096

    def _cyclic_batch_nodes(self, encoded):
        """Nodes up to which examples are packed if one has a cycle."""
        return 1

    def _factor_batch_nodes(self):
        """Nodes up to which examples with factors are packed."""
        return 1

    def _train(self, risk, start, options, rng, on_iteration):
        return train(risk, start, options, rng, on_iteration)

    def _fit(self, X, y, sample_weight):
        encoded = self._encode(X, reset=True)
        labels = self._encode_y(y, encoded, classes=self.classes)
        self._check_labels(labels)
        weight = validate_sample_weight(sample_weight, encoded.n_examples)
        rng = check_random_state(self.random_state)
        packing = {
            "max_nodes": self._batch_nodes(encoded),
            "max_cyclic_nodes": self._cyclic_batch_nodes(encoded),
            "max_factor_nodes": self._factor_batch_nodes(),
        }
        batches = make_batches(encoded, labels.labels, weight, prepare=self._prepare_example(encoded), **packing)
        batches = self._with_node_weights(encoded, batches)
        potentials = self._make_potentials(encoded, labels.classes_, batches)
        objective = self._objective_of_batches(encoded, batches, labels, potentials)
        make_risk = SparseRisk if potentials.by_columns else EmpiricalRisk
        seed = int(rng.randint(np.iinfo(np.int32).max))
        risk = make_risk(objective, potentials, batches, n_jobs=self.n_jobs, seed=seed)
        options = self._training_options(objective, encoded, potentials)
        with single_threaded_blas(), fit_callbacks(self, X, y, self._n_iterations()) as iteration:
            start = self._start(encoded, labels, risk, options, rng)

            def on_iteration(coef):
                return iteration(lambda: self._fitted_now(encoded, labels, risk, coef))

            outcome = self._train(risk, start, options, rng, on_iteration)
        # Everything that can fail has happened: only now does the estimator change.
        encoded.record(self)
        self.classes_ = labels.classes_
        self._store(potentials, outcome)
        for name, value in self._chosen(risk).items():
            setattr(self, name, value)
        if outcome.interrupted is not None:
            raise outcome.interrupted
        return self

    def _fitted_now(self, encoded, labels, risk, coef):
        """What a callback needs to predict with the weights of now."""
        return {
            "n_features_in_": encoded.n_features,
            "lattice_ndim_": encoded.lattice_ndim,
            "classes_": labels.classes_,
            **self._weight_attributes(risk.potentials, coef),
            **self._chosen(risk),
        }

    def _start(self, encoded, labels, risk, options, rng):
        if not (self.warm_start and hasattr(self, "coef_")):
            return self._cold_start(risk, options, rng)
        if not np.array_equal(self.classes_, labels.classes_):
            raise ValueError(
                f"warm_start=True needs the classes of the former fit, {self.classes_.tolist()}, got "
                f"{labels.classes_.tolist()}: name those that y misses by classes."
            )
        found, needed = self._fitted_potentials(encoded), risk.potentials
        for name, what in _COUNTS.items():
            before, now = getattr(found, name), getattr(needed, name)
            if before != now:
                raise ValueError(f"warm_start=True needs as many {what} as the former fit had, {before}, got {now}.")
        if type(found) is not type(needed):
            raise ValueError(
                "warm_start=True needs features of nodes and edges as in the former fit, sparse or dense, and factors "
                "if that had some."
            )
        return self._flat_weights(needed)

    def _chosen(self, risk):
        """Attributes that say what was chosen by the training examples, and that prediction needs."""
        return {}

    def _store(self, potentials, outcome):
        for name, value in self._weight_attributes(potentials, outcome.coef).items():
            setattr(self, name, value)
        record = outcome.trace.arrays()
        self.loss_curve_ = record["loss"]
        self.gradient_norm_curve_ = record["gradient_norm"]
        self.error_curve_ = record["errors"]
        self.n_iter_ = outcome.n_iter
        self._store_trace(outcome, record)

    def _store_trace(self, outcome, record):
        """Set what else an estimator keeps of its training."""
