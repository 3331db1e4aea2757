"""Parameters and fitted attributes of a field during one fit or prediction, with names resolved to objects."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sklearn_crf import encoding
from sklearn_crf._threads import cached_property
from sklearn_crf.distributed import Shards, refuse_labels
from sklearn_crf.estimators._sharded import ShardedExamples
from sklearn_crf.estimators._training_examples import Reader, TrainingExamples
from sklearn_crf.inference import Inference, NamedInference
from sklearn_crf.learning import (
    Facts,
    FitPlan,
    Labeler,
    Learning,
    decision_costs,
    edge_cost,
    factor_costs,
    resolve_learning,
    sort_costs,
    weigh_correct_nodes,
)
from sklearn_crf.potentials import PairwiseTables, WeightLayout, make_pairwise_form


@dataclass(frozen=True, eq=False)
class FieldParameters:
    """Parameters of an estimator, with names resolved to objects."""

    given: Any  # copy of the estimator, with its parameters and any fitted attributes; never modified
    learning: Learning  # new Learning object, whose costs are in the order of the classes
    tables: PairwiseTables

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """Resolve the names in the parameters of an estimator to objects."""
        given = _copy_shallow(estimator)
        learning = resolve_learning(given.learning, given.inference)
        if given.cost is not None and learning.takes_decision_cost:
            if not isinstance(learning.cost, str) or learning.cost != "hamming":
                raise ValueError(
                    f"cost is set twice, by {type(given).__name__} and by its learning: set only one of them."
                )
            learning.cost = given.cost
        tables = PairwiseTables(given.pairwise) if isinstance(given.pairwise, str) else clone(given.pairwise)
        tables._validate_params()
        return cls(given, learning.for_fit(given.inference, given.classes, given.tol), tables)

    def read(self, X: Any, y: Any, sample_weight: Any, node_weight: Any) -> Any:
        """Encode the training examples, in memory or in shards."""
        if isinstance(X, Shards):
            self.learning.check_shards(self.given.solver)
            refuse_labels(y, sample_weight, node_weight)
            return ShardedExamples(self.reader(), X)
        return TrainingExamples(self.reader(), X, y, sample_weight, node_weight, self.given.classes)

    def reader(self) -> Reader:
        """Return a :class:`Reader`, which encodes X and y according to the parameters."""
        return Reader(self.given, self.tables, self.learning, self.given.class_weight, self.has_boundaries)

    @property
    def has_boundaries(self) -> bool:
        """Whether the first node and the last node of a sequence have additional weights."""
        return self.tables.boundary_weights

    def plan(self, data: Any) -> FitPlan:
        """Plan a fit as far as possible before the examples are in batches."""
        given, learning = self.given, self.learning
        learning.check_labels(data.labels)
        classes, lattice_ndim = data.labels.classes_, data.encoded.lattice_ndim
        if self.decides_by_cost:
            require_marginals_for_cost(learning.decoding(given.inference, Facts.of_fitted(given)))
            self.decision_cost(classes)
        rng = check_random_state(given.random_state)
        return FitPlan.of(
            learning,
            given.solver,
            data.encoded,
            inference=given.inference,
            layout=self.build_weight_layout(self._choose_form(classes, lattice_ndim), classes, lattice_ndim),
            n_classes=len(classes),
            C=float(given.C),
            edge_C=self.tables.C,
            is_associative=self.tables.form == "associative",
            asked_tol=given.tol,
            max_iter=given.max_iter,
            rng=rng,
            # Without random_state, the seed is 0, so that every fit draws the same random labelings.
            seed=0 if given.random_state is None else int(rng.randint(np.iinfo(np.int32).max)),
            n_jobs=given.n_jobs,
            verbose=given.verbose,
            keeps_interrupted=given.warm_start,
        )

    def _choose_form(self, classes: np.ndarray, lattice_ndim: int | None) -> str:
        """Return the form that ``form="auto"`` stands for, or "auto" if it only depends on the number of classes."""
        if lattice_ndim == 1:
            # In a sequence, the order of two labels may matter.
            return "full"
        # Symmetric tables also score the state of each end of an edge. Accuracies: benchmarks/quality/defaults.py.
        # With two classes, images gain up to 1.3 % from symmetric tables.
        # With more classes, Potts tables are at least as accurate and much faster.
        # Tables without a direction give mirrored images mirrored labels.
        return "symmetric" if (lattice_ndim or 0) > 1 and len(classes) == 2 else "auto"

    def build_weight_layout(self, automatic_form: str, classes: np.ndarray, lattice_ndim: int | None) -> WeightLayout:
        """Build the layout of the weights for examples with ``lattice_ndim`` axes, or for lists of Example (None)."""
        tables, weights = self.tables, self.given.weights
        directed = "full" if lattice_ndim is None else automatic_form
        forms = {"auto": automatic_form, "directed": directed, "associative": "auto"}
        form = forms.get(tables.form, tables.form)
        if tables.segments is not None:
            tables.segments.check(lattice_ndim)
        return WeightLayout(
            form=make_pairwise_form(form, len(classes)),
            fit_intercept=self.given.fit_intercept,
            forbidden=tables.forbidden_pairs(classes),
            forbidden_ends=tables.forbidden_ends(classes, lattice_ndim),
            forbidden_by=f"forbidden={tables.forbidden!r}" if isinstance(tables.forbidden, str) else "forbidden",
            seen_only={"all": False, "seen": True, "auto": None}[weights],
            seen_tables=weights == "seen",
            seen_only_on_edges=weights != "all",
            takes_factors=self.learning.takes_factors,
            segments=tables.segments,
            has_boundaries=self.has_boundaries,
        )

    @property
    def decides_by_cost(self) -> bool:
        """Whether predictions minimise the costs of errors, which are the parameter ``cost``."""
        return self.learning.has_distribution and self.given.cost is not None

    def decision_cost(self, classes: np.ndarray) -> np.ndarray:
        """Check the costs of errors that prediction minimises, and return the costs of nodes as an array (K, K)."""
        return decision_costs(sort_costs(self.given.cost, self.given.classes), len(classes))

    def decision_cost_of_factors(self, names: Iterable[str]) -> dict[str, float]:
        """Return the costs of factors that prediction minimises, by the name of their type.

        ``names`` are the names of all types in training; raise ValueError for a cost of any other type.
        """
        return factor_costs(self.given.cost, list(names)) if self.decides_by_cost else {}

    def fitted(self, encoded: Any = None, attributes: dict[str, Any] | None = None) -> "FittedField":
        """Return a fitted field with these parameters and the given fitted attributes.

        By default, the estimator's own fitted attributes are used.
        """
        # encoded: training examples from which the given attributes were learned
        given = self.given
        if attributes is not None:
            given = _copy_shallow(given)
            encoding.record_input(encoded, given)
            vars(given).update(attributes)
        return FittedField(given, self.learning, self.tables)


@dataclass(frozen=True, eq=False)
class FittedField(FieldParameters):
    """Fitted field, with methods that return weights, potentials, node labels and node marginals."""

    temperature: float = 1.0  # number that divides the scores, besides the learned temperature

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """Make the fitted field of an estimator, after checking that it is fitted."""
        check_is_fitted(estimator)
        return super().of(estimator)

    def apply_temperature(self, temperature: float) -> "FittedField":
        """Return a copy of the field whose scores are divided by a temperature."""
        return replace(self, temperature=temperature)

    @property
    def classes(self) -> np.ndarray:
        """Classes, in the order of the states."""
        return self.given.classes_

    @cached_property
    def facts(self) -> Facts:
        """Facts of the training examples, on which the choices of learning and inference depend."""
        return Facts.of_fitted(self.given)

    @cached_property
    def layout(self) -> WeightLayout:
        """Layout of the fitted weights in a flat vector."""
        # The fit may be by an older version of the package, so the form is found by the number of weights of a table.
        edge_coef, n_classes = self.given.edge_coef_, len(self.classes)
        names = {make_pairwise_form(name, n_classes).n_weights: name for name in ("full", "symmetric", "auto")}
        form = names.get(edge_coef.shape[0 if sp.issparse(edge_coef) else -1], "auto")
        return self.build_weight_layout(form, self.classes, self.given.lattice_ndim_)

    @property
    def decoding(self) -> NamedInference:
        """Inference used for prediction, with its decoding rule, as a new object."""
        return self.learning.decoding(self.given.inference, self.facts)

    @property
    def has_boundaries(self) -> bool:
        """Whether ``fit`` learned additional weights for the first and the last nodes of sequences."""
        return getattr(self.given, "boundary_coef_", None) is not None

    def reader(self) -> Reader:
        """Return a reader of X; instead of "auto", the reader uses the edge features that ``fit`` chose."""
        n_constant = 1 if self.tables.spacing is None else 2
        of_fit = "constant" if self.given.edge_coef_.shape[1] == n_constant else "difference"
        return replace(super().reader(), of_fit=of_fit, filling=self.filling)

    @property
    def filling(self) -> encoding.Filling | None:
        """Values that replace missing features, or None if ``fit`` stored no means."""
        return encoding.Filling.of_field(self.given, self.learning.missing_features)

    def potentials(self, encoded: Any = None) -> Any:
        """Build the potentials for the fitted weights and the features of an encoded X."""
        return self.layout.build_fitted_potentials(self.given, encoded)

    def weights(self, potentials: Any) -> np.ndarray:
        """Return the fitted weights as a flat vector in the layout of the given potentials."""
        return self.layout.flat(self.given, potentials)

    def labeler(self, inference: str | Inference | None = None) -> Labeler:
        """Return a labeler with the given inference, or with the inference of the field if it is None."""
        learning, decides = self.learning, self.decides_by_cost
        return Labeler(
            self.decoding if inference is None else learning.decoding(inference, self.facts),
            len(self.classes),
            has_distribution=learning.has_distribution,
            temperature=learning.learned_temperature * self.temperature,
            cost=self.decision_cost(self.classes) if decides else None,
            edge_cost=edge_cost(sort_costs(self.given.cost, self.given.classes), len(self.classes))
            if decides
            else None,
            factor_cost=self.decision_cost_of_factors(getattr(self.given, "factor_coef_", ())),
            class_weight=self.given.decision_weight_,
            n_jobs=self.given.n_jobs,
            fallback=learning.fallback(self.facts) if inference is None else None,
        )

    def encode_y(self, y: Any, encoded: Any, name: str = "y", *, allow_unknown: bool = True) -> Any:
        """Return the class index of each label; labels that are not classes get the number of classes."""
        options = {"missing_label": self.given.missing_label, "classes": self.classes, "name": name}
        return encoding.encode_y(y, encoded, allow_unknown=allow_unknown, **options).labels

    def prepare(
        self,
        X: Any,
        labels: Any = None,
        *,
        name: str = "evidence",
        allow_unknown: bool = False,
        joined_by: Inference | None = None,
        **options: Any,
    ) -> tuple[Any, Any, Any, np.ndarray]:
        """Encode X; return the encoded X, its batches, the potentials and the flat weights."""
        # labels: labels of the nodes, or None
        # name: name of the argument with the labels, for errors
        # allow_unknown: whether labels that are not classes are encoded as n_classes
        # joined_by: inference that supports joined graphs with cycles up to some size, or None to join no such graphs
        reader = self.reader()
        encoded = reader.replace_edge_features(reader.encode(X, reset=False), self.classes)
        potentials = self.potentials(encoded)
        potentials.check(encoded, type(self.given).__name__)
        known = None
        if labels is not None or name != "evidence":
            known = self.encode_y(labels, encoded, name, allow_unknown=allow_unknown)
        prepare = potentials.prepare_once if potentials.by_columns else encoding.tie_constant_edges
        prepare = self.layout.prepare_runs(prepare, encoded)
        options |= self._choose_joined_packing(encoded, joined_by)
        batches = encoding.make_batches(encoded, known, prepare=prepare, keeps_edges=False, **options)
        return encoded, batches, potentials, self.weights(potentials)

    def _choose_joined_packing(self, encoded: Any, inference: Inference | None) -> dict[str, Any]:
        """Return the options of batches that join graphs with cycles up to the size that the inference supports."""
        has_factors = encoded.has_factors or bool(getattr(self.given, "factor_coef_", {}))
        if inference is None or has_factors or encoded.has_sparse_edges or encoded.has_operators:
            return {}
        graph = encoded.copied_graph
        joined = inference.joined_nodes if graph is None else inference.joined_copies(graph, len(self.classes))
        return {} if joined == 1 else {"max_cyclic_nodes": joined, "mixes_forests": False}

    def columns(self, X: Any, evidence: Any = None, inference: Any = None) -> tuple[Any, Any, list]:
        """Predict the class index of each node; return the encoded X, its batches, and the class indices by batch."""
        labeler = self.labeler(inference)
        if labeler.cost is not None:
            require_marginals_for_cost(labeler.decoding)
        return self._predict(labeler.columns, X, evidence, labeler.joined_by())

    def marginals(self, X: Any, evidence: Any = None, inference: Any = None) -> tuple[Any, Any, list]:
        """Compute node marginals, averaged over voters; return the encoded X, its batches, and marginals by batch."""
        labeler = self.labeler(inference)
        return self._predict(labeler.marginals, X, evidence, labeler.joined_by(labels=False))

    def _predict(self, predict, X, evidence, joined_by):
        """Call ``predict`` on the batches of X; return the encoded X, its batches, and the results."""
        encoded, batches, potentials, weights = self.prepare(X, evidence, joined_by=joined_by, is_pending=True)
        # Prediction uses one weight vector, or the weight vectors that vote if training stored several.
        voters = getattr(self.given, "voters_", None)
        return encoded, batches, predict(batches, potentials, [weights] if voters is None else list(voters))

    def labels(self, X: Any, evidence: Any = None, inference: Any = None) -> np.ndarray:
        """Predict the label of every node, in the layout of X."""
        encoded, batches, columns = self.columns(X, evidence, inference)
        return encoding.decode(encoded, columns, batches, classes=self.classes, n_jobs=self.given.n_jobs)

    def weigh_correct_nodes(self, X: Any, y: Any, sample_weight: Any) -> tuple[float, float]:
        """Return the total weight of the correctly predicted nodes, and the total weight of all labelled nodes."""
        encoded, _, columns = self.columns(X)
        truth = self.encode_y(y, encoded)
        weight = encoding.validate_sample_weight(1.0 if sample_weight is None else sample_weight, encoded.n_examples)
        batches = encoding.make_batches(
            encoded, truth, **self._choose_joined_packing(encoded, self.labeler().joined_by())
        )
        return weigh_correct_nodes(columns, batches, encoding.scale_sample_weight(weight))


def require_marginals_for_cost(decoding: NamedInference) -> None:
    """Raise ValueError if prediction with costs of errors would use MAP inference instead of marginals."""
    if decoding.rule == "map":
        raise ValueError(
            "cost needs marginals to take expectations, but inference predicts by MAP: use inference='mpm'."
        )


def _copy_shallow(estimator):
    """Return a shallow copy of an estimator, made without calling its constructor."""
    found = object.__new__(type(estimator))
    vars(found).update(vars(estimator))
    return found
