"""Fields whose scores are linear in features: their weights, flat and as fitted attributes, and their training."""

from functools import partial
from numbers import Integral, Real
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context, clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._numbers import C_INTERVAL
from sklearn_crf._parameters import is_asked_to_count_classes, require_objects
from sklearn_crf._reports import CallbackSupportMixin, fit_callbacks
from sklearn_crf._threads import kept_threads, single_threaded_blas
from sklearn_crf._versions import restore_versioned_state, versioned_state
from sklearn_crf.distributed import Shards
from sklearn_crf.encoding import encode_X, encode_y, make_batches, tie_constant_edges
from sklearn_crf.estimators._partial_fit import partial_fit
from sklearn_crf.estimators._sharded import gather
from sklearn_crf.estimators._training_examples import TrainingExamples, require_node_losses
from sklearn_crf.inference import NAMES, Inference, NamedInference, resolve_inference
from sklearn_crf.learning import TrainingRun, initial_weights, restore_units
from sklearn_crf.potentials import (
    PAIRWISE_FORMS,
    FactorPotentials,
    FactorType,
    FeaturePairs,
    LinearPotentials,
    PairwiseForm,
    PairwiseTables,
    SparseEdgePotentials,
    SparsePotentials,
    pairwise_form,
)


class WeightLayout(NamedTuple):
    """Which weights a field has: from fitted attributes to flat vectors and back."""

    form: PairwiseForm
    fit_intercept: bool
    forbidden: np.ndarray | None = None  # (K, K) bool: pairs of classes that no edge may join
    forbidden_ends: np.ndarray | None = None  # (2, K) bool: classes that no first, and no last, node may have
    forbidden_by: str = ""  # what rules them out, for errors
    seen_only: bool | None = False  # weights of nodes only for what occurs in training; None where there are many
    seen_tables: bool = False  # weights of tables only for pairs of labels that occur
    seen_only_on_edges: bool = True  # the same for sparse features of edges
    takes_factors: bool = False

    # Attributes ----------------------------------------------------------------------------------------------------

    def attributes(self, potentials, flat):
        """Fitted attributes of a flat vector of weights."""
        if not isinstance(potentials, FactorPotentials):
            none = {name: {} for name in _FACTOR_ATTRIBUTES} if self.takes_factors else {}
            return self._pairwise_attributes(potentials, flat) | none
        pairwise, factors = potentials.unpack(flat)
        return self._pairwise_attributes(potentials.pairwise, pairwise) | {
            "factor_coef_": {name: np.array(coef) for name, coef in factors.items()},
            "factor_states_": {kind.name: kind.states for kind in potentials.types},
            "factor_shapes_": {kind.name: kind.n_states for kind in potentials.types},
        }

    def _pairwise_attributes(self, potentials, flat):
        coef, intercept, edge_coef = potentials.unpack(flat)
        if not self.fit_intercept:
            intercept = np.zeros((potentials.n_node_types, potentials.n_columns))
        attributes = {"coef_": self._kept_coef(potentials, coef)}
        attributes["intercept_"] = (intercept[0] if potentials.n_node_types == 1 else intercept).copy()
        if isinstance(potentials, SparseEdgePotentials):
            edge_coef = potentials.edge_pairs.matrix(edge_coef)
            return {**attributes, "edge_coef_": edge_coef, "n_edge_types_": potentials.n_edge_types}
        return {**attributes, "edge_coef_": self.form.contract(potentials.form.expand(edge_coef))}

    def _kept_coef(self, potentials, coef):
        if isinstance(potentials, SparsePotentials):
            if self.seen_only or not potentials.pairs.are_all:
                return potentials.pairs.matrix(coef)
            shape = potentials.n_node_types, potentials.n_features, potentials.n_columns
            coef = np.moveaxis(coef.reshape(shape), 2, 1)
        return np.array(coef[0] if potentials.n_node_types == 1 else coef, order="C")

    # Prediction ----------------------------------------------------------------------------------------------------

    def fitted_potentials(self, field, encoded=None):
        """Potentials of the fitted weights of a field, for the features of some encoded X."""
        pairwise = self._fitted_pairwise(field, encoded)
        if not self.takes_factors or not (field.factor_coef_ or (encoded is not None and encoded.has_factors)):
            return pairwise
        return FactorPotentials(pairwise, list(_fitted_types(field).values()))

    def _fitted_pairwise(self, field, encoded):
        n_classes, n_features = len(field.classes_), field.n_features_in_
        n_node_types = field.intercept_.shape[0] if field.intercept_.ndim == 2 else 1
        sparse_edges = sp.issparse(field.edge_coef_)
        n_edge_types = field.n_edge_types_ if sparse_edges else field.edge_coef_.shape[0]
        options = {
            "n_edge_features": field.edge_coef_.shape[1] // (n_edge_types if sparse_edges else 1),
            "n_node_types": n_node_types,
            "n_edge_types": n_edge_types,
            "fit_intercept": self.fit_intercept,
            "forbidden": self.forbidden,
            "forbidden_ends": self.forbidden_ends,
        }
        n_table_weights = field.edge_coef_.shape[0 if sparse_edges else -1]
        if self.form.n_weights != n_table_weights:
            raise ValueError(
                f"pairwise={field.pairwise!r} has tables of {self.form.n_weights} weights, but those of the fit have "
                f"{n_table_weights}: call fit without warm_start."
            )
        if sp.issparse(field.coef_) and self.seen_only is not False:
            pairs = FeaturePairs.of_matrix(field.coef_)
        elif sp.issparse(field.coef_) or sparse_edges or (encoded is not None and encoded.is_sparse):
            pairs = FeaturePairs.all(n_features * n_node_types, field.coef_.shape[-2])
        else:
            return LinearPotentials(n_features, n_classes, self.form, **options)
        if sparse_edges:
            edge_pairs = FeaturePairs.of_matrix(field.edge_coef_)
            return SparseEdgePotentials(pairs, edge_pairs, n_features, n_classes, self.form, **options)
        return SparsePotentials(pairs, n_features, n_classes, self.form, **options)

    def flat(self, field, potentials):
        """The fitted weights as a flat vector of potentials, which may have been made for other training data."""
        if not isinstance(potentials, FactorPotentials):
            return self._flat_pairwise(field, potentials)
        parts, fitted = [self._flat_pairwise(field, potentials.pairwise)], _fitted_types(field)
        for kind in potentials.types:
            parts.append(kind.weights_of(fitted.get(kind.name), field.factor_coef_.get(kind.name)).ravel())
        return np.concatenate(parts)

    def _flat_pairwise(self, field, potentials):
        coef, n_features = field.coef_, field.n_features_in_
        if isinstance(potentials, SparsePotentials):
            if not sp.issparse(coef):
                types_apart = coef.reshape(potentials.n_node_types, -1, n_features)
                coef = np.moveaxis(types_apart, 1, 0).reshape(-1, potentials.n_node_types * n_features)
            coef = potentials.pairs.pick(coef)
        intercept = field.intercept_ if self.fit_intercept else np.zeros(0)
        if isinstance(potentials, SparseEdgePotentials):
            edge_coef = potentials.edge_pairs.pick(field.edge_coef_)
        else:
            edge_coef = potentials.form.contract(self.form.expand(field.edge_coef_))
        return potentials.pack(coef, intercept, edge_coef)


_FACTOR_ATTRIBUTES = ("factor_coef_", "factor_states_", "factor_shapes_")


def _fitted_types(field):
    """The types of factors of a fitted field, by name."""
    return {
        name: FactorType(name, field.factor_shapes_[name], len(coef), field.factor_states_[name])
        for name, coef in field.factor_coef_.items()
    }


class TrainableField(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Training of a field whose scores are linear in features on a graph.

    An estimator has the constructor parameters of ``_parameter_constraints``; it defines the inference of prediction
    (``_decoding``), the objective (``_objective``), the training (``_train``) and the fitted attributes (``_store``).
    """

    __getstate__, __setstate__ = versioned_state, restore_versioned_state

    _parameter_constraints: ClassVar[dict] = {
        "C": [C_INTERVAL],
        "inference": [str, Inference],
        "pairwise": [StrOptions({"auto", *PAIRWISE_FORMS}), PairwiseTables],
        "edge_features": [str, callable],
        "connectivity": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "fit_intercept": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "missing_label": "no_validation",
        "classes": ["array-like", None],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "lattice_ndim": [Interval(Integral, 0, None, closed="left"), None],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }
    # Objects that parameters take in place of a name, for errors.
    _objects: ClassVar[dict[str, str]] = {"inference": "LoopyBP()", "pairwise": "PairwiseTables()"}
    _takes_factors = False
    _takes_sparse_edges = False
    # Whether objectives of shards need their encoded examples besides the batches made of them.
    _keeps_encoded = False
    _takes_parts = False
    # Whether class_weight is in a matrix of costs, and nowhere else.
    _has_costs_of_classes = False
    _penalises_intercept = False

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        if is_asked_to_count_classes():
            tags.estimator_type = None
        return tags

    def set_params(self, **params):
        """Set parameters, also those of an object that is one: ``learning__step_size=0.2``.

        Parameters
        ----------
        **params : dict

        Returns
        -------
        estimator
            self
        """
        require_objects(self, params, self._objects)
        return super().set_params(**params)

    def _validate_params(self):
        super()._validate_params()
        if isinstance(self.inference, str) and self.inference not in NAMES:
            # The error says which ones look like it.
            resolve_inference(self.inference)

    # Hooks of an estimator ------------------------------------------------------------------------------------------

    def _decoding(self) -> NamedInference:
        """The inference that predicts, and its decoding rule."""
        return resolve_inference(self.inference)

    def _check_parameters(self):
        """Raise ValueError where parameters do not go together, before any work is done."""

    def _weighs_nodes(self):
        """Whether the loss is a sum over nodes or has costs of nodes, so that class_weight is a factor of each node.

        A joint likelihood has neither: class_weight is then a factor of each example, by the mean over its nodes, and
        of the marginals by which nodes are labelled.
        """
        return False

    def _check_shards(self):
        """Raise ValueError where training goes through single examples in memory, before any shard is loaded."""

    def _check_labels(self, labels):
        """Raise ValueError where a parameter does not fit the classes."""

    def _packing(self, encoded):
        """Maximum number of nodes of a batch: of forests, of graphs with cycles, of examples with factors."""
        return {"max_nodes": 4096, "max_cyclic_nodes": 1, "max_factor_nodes": 1}

    def _are_narrow(self, batches, potentials):
        """Whether exact inference is affordable on all batches, where the automatic choice depends on that."""
        return False

    def _has_penalty(self, objective):
        """Whether the loss of stochastic steps has a penalty."""
        return objective.smooth

    def _projection(self, potentials):
        """Projection of weights onto the allowed set; None without constraints."""
        return None

    def _check_batches(self, batches, graphs):
        """Raise ValueError where examples do not suit the choice made from the graphs of all examples."""

    def _objective(self, examples, potentials):
        """The objective that is minimised."""
        raise NotImplementedError(type(self).__name__)

    def _train(self, risk, examples, make_start, run):
        """The record of a training; ``make_start(init)`` gives the weights it starts from."""
        raise NotImplementedError(type(self).__name__)

    def _n_iterations(self):
        """Maximum number of iterations, for callbacks."""
        return self.max_iter

    def _chosen(self, graphs):
        """Fitted attributes that depend on the graphs of the training examples, and that prediction needs."""
        return {}

    def _store(self, record):
        """Set the fitted attributes other than weights."""
        self.loss_curve_ = record.curve("loss")
        self.gradient_norm_curve_ = record.curve("gradient_norm")
        self.error_curve_ = record.curve("errors")
        self.n_iter_ = record.n_iter
        self.converged_ = record.converged
        self.stop_reason_ = record.stop_reason
        self.best_iter_ = record.best_iter

    # Training ------------------------------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None, node_weight=None):
        """Learn the weights.

        Parameters
        ----------
        X : array-like, sparse matrix, list of examples, or Shards
            Plain rows ``(n, F)``, as which one sequence ``(T, F)`` is read too; chains ``(n, T, F)``, images
            ``(n, H, W, F)``, volumes ``(n, D, H, W, F)``, lists of such examples of any sizes, or a list of
            :class:`~sklearn_crf.Example`. Or all of the training data as :class:`~sklearn_crf.Shards`.
        y : array-like
            Labels of the nodes: the shape of X without its last axis, or a list of arrays. None for Shards.
        sample_weight : array-like of shape (n_examples,), optional
            One weight per example.
        node_weight : sequence of array-like, optional
            For each example an array of the shape of its labels: factors of the loss of each node, or of its cost. Only
            where the loss is a sum over nodes (pseudolikelihood, pieces of nodes) or has a cost of nodes.

        Returns
        -------
        estimator
            self
        """
        return self._fit(X, y, sample_weight, node_weight)

    def _fit(self, X, y, sample_weight, node_weight, held_out=None):
        self._check_parameters()
        if isinstance(X, Shards):
            examples = gather(self, X, y, sample_weight, node_weight)
        else:
            examples = TrainingExamples(self, X, y, sample_weight, node_weight, self.classes)
        try:
            encoded, labels = examples.encoded, examples.labels
            self._check_labels(labels)
            rng = check_random_state(self.random_state)
            potentials = examples.potentials(self, self._weight_layout(labels.classes_, encoded.lattice_ndim))
            scaling = examples.scaling
            objective = self._objective(examples, potentials)
            require_node_losses(self, examples, objective)
            risk = examples.risk(self, objective, potentials, int(rng.randint(np.iinfo(np.int32).max)))
            former = self._former_weights(encoded, labels, potentials)
            callbacks = fit_callbacks(self, X, y, self._n_iterations())
            with single_threaded_blas(), kept_threads(self.n_jobs), callbacks as iteration:

                def fitted_now(coef):
                    of_input = {"n_features_in_": encoded.n_features, "lattice_ndim_": encoded.lattice_ndim}
                    return of_input | self._attributes(examples, potentials, scaling.outer(potentials, coef))

                def make_start(init):
                    given = init if former is None else former
                    start = initial_weights(given, risk, run)
                    return scaling.inner(potentials, start) if isinstance(given, np.ndarray) else start

                run = self._training_run(rng, lambda coef: iteration(lambda: fitted_now(coef)))
                run = run._replace(outer_gradient=partial(scaling.outer_gradient, potentials))
                if held_out is not None:
                    run = run._replace(held_out=held_out.scores(self, encoded, fitted_now, potentials.n_coef))
                record = self._train(risk, examples, make_start, run)
            restore_units(record, scaling, potentials)
            # Everything that can fail has happened: only now does the estimator change.
            encoded.record(self)
            vars(self).update(self._attributes(examples, potentials, record.coef))
            self._store(record)
            vars(self).pop("partial_fit_state_", None)
        finally:
            examples.finish()
        if record.interrupted is not None:
            raise record.interrupted
        return self

    @available_if(lambda self: self._takes_parts)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Continue training with more examples, by one pass of stochastic steps over them.

        The weights are averages over all steps so far of adaptive gradient steps for mini-batches of 8 examples, down
        the objective of all examples so far: an example passed twice counts twice. They approximate those of ``fit``.

        Parameters
        ----------
        X : array-like, sparse matrix, or list of examples
            As in ``fit``.
        y : array-like
            Labels of the nodes.
        classes : array-like of shape (n_classes,), optional
            All classes, at the first call, unless the parameter of that name has them.
        sample_weight : array-like of shape (n_examples,), optional
            One weight per example.

        Returns
        -------
        estimator
            self
        """
        partial_fit(self, X, y, classes, sample_weight)
        return self

    def _warn_of_scale(self):
        """Warn of probabilities from weights whose scale says nothing."""

    def _training_run(self, rng, on_iteration):
        """Options of a training; ``on_iteration`` is called with every accepted iterate."""
        return TrainingRun(
            C=float(self.C),
            edge_C=self._tables().C,
            max_iter=self.max_iter,
            tol=self.tol,
            rng=rng,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
            keeps_interrupted=self.warm_start,
            on_iteration=on_iteration,
        )

    def _attributes(self, examples, potentials, coef):
        """Fitted attributes that prediction needs."""
        classes = examples.labels.classes_
        weights = self._weight_layout(classes, examples.encoded.lattice_ndim).attributes(potentials, coef)
        return {"classes_": classes, **weights, **self._chosen(examples.graphs), **self._decision_weight(examples)}

    def _decision_weight(self, examples):
        """Factors of the marginals by which ``predict`` decides."""
        in_the_loss = self._has_costs_of_classes or examples.encoded.lattice_ndim == 0 or self._weighs_nodes()
        return {"decision_weight_": None if in_the_loss else examples.class_weight}

    def _former_weights(self, encoded, labels, potentials):
        """Flat weights of the last fit for a warm start; None for a cold one."""
        if not (self.warm_start and hasattr(self, "coef_")):
            return None
        if not np.array_equal(self.classes_, labels.classes_):
            raise ValueError(
                f"warm_start=True needs the classes of the former fit, {self.classes_.tolist()}, got "
                f"{labels.classes_.tolist()}: name those that y misses by classes."
            )
        found = self._fitted_potentials(encoded)
        for name, what in _COUNTS.items():
            before, now = getattr(found, name), getattr(potentials, name)
            if before != now:
                raise ValueError(f"warm_start=True needs as many {what} as the former fit had, {before}, got {now}.")
        if type(found) is not type(potentials):
            raise ValueError(
                "warm_start=True needs X of the kind of the former fit: features of nodes and edges sparse or dense as "
                "they were, and factors only if there were some."
            )
        return self._flat_weights(potentials)

    # Encoding ------------------------------------------------------------------------------------------------------

    def _tables(self):
        """The parameter ``pairwise`` as an object."""
        if isinstance(self.pairwise, str):
            return PairwiseTables(self.pairwise)
        tables = clone(self.pairwise)
        tables._validate_params()
        return tables

    def _weight_layout(self, classes, lattice_ndim, tables=None):
        """Of examples with some number of lattice axes, None for lists of Example."""
        tables = self._tables() if tables is None else tables
        return WeightLayout(
            form=pairwise_form(tables.form, len(classes)),
            fit_intercept=self.fit_intercept,
            forbidden=tables.forbidden_pairs(classes),
            forbidden_ends=tables.forbidden_ends(classes, lattice_ndim),
            forbidden_by=f"forbidden={tables.forbidden!r}" if isinstance(tables.forbidden, str) else "forbidden",
            takes_factors=self._takes_factors,
        )

    @property
    def _fitted_layout(self):
        return self._weight_layout(self.classes_, self.lattice_ndim_)

    def _fitted_potentials(self, encoded=None):
        """Potentials of the fitted weights, for the features of some encoded X."""
        return self._fitted_layout.fitted_potentials(self, encoded)

    def _flat_weights(self, potentials):
        """The fitted weights as a flat vector of potentials."""
        return self._fitted_layout.flat(self, potentials)

    def _edge_features(self, encoded=None, n_classes=None):
        """The features of edges that suit encoded examples, or their outline; None as long as they are not known."""
        if not isinstance(self.edge_features, str) or self.edge_features != "auto":
            return self.edge_features
        return "constant" if encoded is None else self._automatic_edge_features(encoded, n_classes)

    def _automatic_edge_features(self, encoded, n_classes):
        """The features of edges that "auto" stands for on encoded examples, or their outline."""
        return "constant" if encoded.is_sparse or encoded.has_operators else "difference"

    def _with_edge_features(self, encoded, classes):
        """Encoded examples, or their outline, with the features of edges that suit their classes."""
        chosen = self._edge_features(encoded, len(classes))
        return encoded if chosen is self._edge_features() else encoded.with_edge_features(chosen)

    def _encode(self, X, *, reset):
        encoded = encode_X(
            X,
            lattice_ndim=self.lattice_ndim,
            connectivity=self.connectivity,
            edge_features=self._edge_features(),
            edge_types=self._tables().edge_types,
            estimator=self,
            reset=reset,
            allow_factors=self._takes_factors,
            allow_empty=not reset,
        )
        if not self._takes_sparse_edges and encoded.has_sparse_edges:
            raise ValueError(f"{type(self).__name__} takes dense edge features only, got sparse ones: TRWCRF has both.")
        return encoded

    def _prepare(self, X, labels=None, *, name="evidence", allow_unknown=False, joined_nodes=1, **options):
        """Encoded X, its batches, with labels if some are given by an argument of that name, potentials, weights."""
        # allow_unknown: whether labels that are not classes get the column n_classes
        # joined_nodes: up to which an inference takes graphs with cycles together
        check_is_fitted(self)
        encoded = self._with_edge_features(self._encode(X, reset=False), self.classes_)
        layout = self._fitted_layout
        potentials = layout.fitted_potentials(self, encoded)
        potentials.check(encoded, type(self).__name__)
        known = None
        if labels is not None or name != "evidence":
            options_of_labels = {"missing_label": self.missing_label, "classes": self.classes_, "name": name}
            known = encode_y(labels, encoded, allow_unknown=allow_unknown, **options_of_labels).labels
        prepare = potentials.prepared_once if potentials.by_columns else tie_constant_edges
        options |= joined_packing(self, encoded, joined_nodes)
        batches = make_batches(encoded, known, prepare=prepare, keeps_edges=False, **options)
        return encoded, batches, potentials, layout.flat(self, potentials)


# Attributes of potentials that must be equal in both fits of a warm start, with their names in errors.
_COUNTS = {
    "n_features": "features",
    "n_node_types": "types of nodes",
    "n_edge_types": "types of edges",
    "n_edge_features": "edge features",
}


def joined_packing(field, encoded, joined_nodes):
    """How batches are made where an inference takes graphs with cycles together, up to a number of nodes."""
    has_factors = encoded.has_factors or bool(getattr(field, "factor_coef_", {}))
    if joined_nodes == 1 or has_factors or encoded.has_sparse_edges or encoded.has_operators:
        return {}
    return {"max_cyclic_nodes": joined_nodes, "mixes_forests": False}
