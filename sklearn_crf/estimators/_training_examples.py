"""Training examples of a field in memory, and ``partial_fit``, one stochastic pass over some examples."""

from copy import copy
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, check_random_state

from sklearn_crf._reports import warn_caller
from sklearn_crf._threads import single_threaded_blas
from sklearn_crf.encoding import encode_y, make_batches, sorted_classes, validate_sample_weight
from sklearn_crf.inference import convergence_left_to_caller
from sklearn_crf.learning import (
    ONLINE_BATCH_SIZE,
    GraphSummary,
    HeldOutScores,
    have_cycles,
    have_factors,
    online_pass,
    with_class_weights,
    with_node_weights,
)
from sklearn_crf.model_selection import take_examples
from sklearn_crf.objectives import EmpiricalRisk, SparseRisk
from sklearn_crf.potentials import FeatureScaling, warn_of_minute_features


class TrainingExamples:
    """Encoded examples in memory, their labels and, once they are prepared, their batches."""

    # X, y, sample_weight, node_weight: as in ``fit``
    # classes: all classes, or None
    # reset: whether the field has not seen any before
    # weighted_by: name of the argument or parameter that gives weights of nodes, or None
    # scaling: units of the features in the batches, once there are potentials

    def __init__(self, field, X, y, sample_weight, node_weight, classes, reset=True):
        encoded = field._encode(X, reset=reset)
        self.labels = encode_y(y, encoded, missing_label=field.missing_label, classes=classes)
        self.encoded = field._with_edge_features(encoded, self.labels.classes_)
        self._weight = sample_weight
        self._node_weight = node_weight
        self.weighted_by = None

    def prepare(self, field, layout, whole=None, packing=None):
        """Put examples into batches, in the form that suits the examples of all shards."""
        # whole: outline of all shards, if these are the examples of one
        # packing: maximum sizes of batches by their names in ``make_batches``; None leaves them to the field
        weight = validate_sample_weight(self._weight, self.encoded.n_examples)
        class_weight = field._class_weight(self.labels)
        if class_weight is not None and self.encoded.layout == "nodes":
            # A row is an example of one node.
            weight = (1.0 if weight is None else weight) * np.append(class_weight, 1.0)[self.labels.labels]
            class_weight = None
        prepare = layout.prepare(self.encoded if whole is None else whole)
        packing = field._packing(self.encoded) if packing is None else packing
        batches = make_batches(self.encoded, self.labels.labels, weight, prepare=prepare, **packing)
        batches = with_node_weights(self._node_weight, self.encoded, batches)
        if self._node_weight is not None or class_weight is not None:
            self.weighted_by = "class_weight" if self._node_weight is None else "node_weight"
        self.batches = batches if class_weight is None else with_class_weights(class_weight, batches)

    def potentials(self, field, layout):
        """Potentials for training; batches are made."""
        self.prepare(field, layout)
        potentials = layout.potentials(self.encoded, self.labels.classes_, self.batches)
        self.graphs = summary_of(field, self.batches, potentials)
        field._check_batches(self.batches, self.graphs)
        self.scaling = scaling_for_training(field, FeatureScaling.moments(self.batches, potentials), potentials)
        self.batches = self.scaling.scaled(self.batches)
        return potentials

    def risk(self, field, objective, potentials, seed):
        """The empirical risk of the batches."""
        return risk_of(objective, potentials, self.batches, field.n_jobs, seed)

    def finish(self):
        """Release memory that only training needs."""


def scaling_for_training(field, moments, potentials):
    """Units that suit the training examples; the penalty of the potentials is for these from now on."""
    if moments is not None:
        warn_of_minute_features(moments[0], field.C)
    scaling = FeatureScaling.for_training(moments, field.C, field.fit_intercept)
    scaling.rescale_penalty(potentials)
    return scaling


def risk_of(objective, potentials, batches, n_jobs, seed):
    make_risk = SparseRisk if potentials.by_columns else EmpiricalRisk
    return make_risk(objective, potentials, batches, n_jobs=n_jobs, seed=seed)


def require_node_losses(field, examples, objective):
    """Raise ValueError where nodes have weights, but the loss is not a sum over nodes."""
    if examples.weighted_by is not None and not objective.weighs_nodes:
        raise ValueError(
            f"{examples.weighted_by} weighs nodes, but the loss of {type(field).__name__} is not a sum over nodes and "
            "has no cost here: use sample_weight, or DRFClassifier(learning='pl'), M3NClassifier() or "
            "TRWCRF(formulation=Relaxation(cost='hamming'))."
        )


def summary_of(field, batches, potentials):
    """Properties of the graphs of batches, which automatic choices depend on."""
    return GraphSummary(have_cycles(batches), have_factors(batches), field._are_narrow(batches, potentials))


class HeldOutExamples(NamedTuple):
    """Examples that training does not see, which choose one of its iterates."""

    X: object
    y: object
    weight: np.ndarray | None
    n_iter_no_change: int

    def scores(self, field, encoded, fitted_now, n_coef):
        """Their scores at every iterate; ``fitted_now`` gives the fitted attributes of flat weights."""
        fitted = copy(field)
        encoded.record(fitted)
        vars(fitted).update(fitted_now(np.zeros(n_coef)))
        try:
            own, batches, potentials, _ = fitted._prepare(self.X)
            missing, classes = fitted.missing_label, fitted.classes_
            known = encode_y(self.y, own, missing_label=missing, classes=classes, name="y_val").labels
        except ValueError as error:
            raise ValueError(f"X_val and y_val, the examples held out: {error}") from error
        truth = make_batches(own, known)
        if not any(np.any(batch.labels >= 0) for batch in truth):
            raise ValueError("y_val has no labelled node: there is nothing to choose the weights by.")

        def score(coef):
            vars(fitted).update(fitted_now(coef))
            with convergence_left_to_caller():
                columns = fitted._columns(batches, potentials, [fitted._flat_weights(potentials)])
            right, total = right_nodes(columns, truth, self.weight)
            return right / total

        return HeldOutScores(score, self.n_iter_no_change)


def split_examples(X, y, weights, rule, random_state):
    """Training examples, weights of these, and :class:`HeldOutExamples`, a random part of them."""
    # weights: tuple of sequences with an entry for each example, or None; the first is that of examples
    if y is None:
        raise ValueError(
            "early_stopping=True holds out a part of X and y, got y=None: with Shards pass X_val and y_val."
        )
    check_consistent_length(X, y, *weights)
    n_examples = X.shape[0] if hasattr(X, "shape") else len(X)
    if n_examples < 2:
        raise ValueError(
            "early_stopping=True holds out a part of the examples, but X has one alone: pass X_val and y_val."
        )
    n_held_out = min(max(1, round(rule.validation_fraction * n_examples)), n_examples - 1)
    order = check_random_state(random_state).permutation(n_examples)
    held_out, kept = np.sort(order[:n_held_out]), np.sort(order[n_held_out:])
    weight = validate_sample_weight(weights[0], n_examples)
    part = HeldOutExamples(
        take_examples(X, held_out),
        take_examples(y, held_out),
        None if weight is None else weight[held_out],
        rule.n_iter_no_change,
    )
    weights = tuple(None if values is None else take_examples(values, kept) for values in weights)
    return take_examples(X, kept), take_examples(y, kept), weights, part


def right_nodes(columns, batches, weight=None):
    """Weights of the nodes of batches that are labelled as predicted, and of all that are labelled."""
    right = total = 0.0
    for batch, predicted in zip(batches, columns, strict=True):
        labelled = batch.labels >= 0
        of_examples = np.ones(len(batch.members)) if weight is None else weight[batch.members]
        share = np.repeat(of_examples, np.diff(batch.node_ptr))[labelled]
        right += float(share[predicted[labelled] == batch.labels[labelled]].sum())
        total += float(share.sum())
    return right, total


def require_no_factors(batch, method):
    """Raise ValueError where an example has factors besides nodes and edges."""
    if batch.example.has_factors:
        raise ValueError(f"X[{batch.members[0]}] has factors besides nodes and edges, which {method} does not take.")


def partial_fit(field, X, y, classes, sample_weight):
    """One pass over X; sets the fitted attributes of the field at its end."""
    classes = _checked_classes(field, classes)
    is_first = not hasattr(field, "classes_")
    former = getattr(field, "partial_fit_state_", None)
    _check_parameters(field)
    examples = TrainingExamples(field, X, y, sample_weight, None, classes, reset=is_first)
    layout = field._weight_layout(classes, examples.encoded.lattice_ndim)
    field._check_labels(examples.labels)
    is_rows = examples.encoded.layout == "nodes"
    examples.prepare(field, layout, packing={"max_nodes": ONLINE_BATCH_SIZE if is_rows else 1})
    _check_examples(field, examples.encoded)
    if is_first:
        potentials = layout.potentials(examples.encoded, classes, examples.batches)
    else:
        potentials = field._fitted_potentials(examples.encoded)
        potentials.check(examples.encoded, type(field).__name__)
        layout.check(examples.batches, classes)
    _warn_of_units(field, examples.batches, potentials)
    examples.graphs = _graphs(field, examples.batches, potentials, former)
    field._check_batches(examples.batches, examples.graphs)
    objective = field._objective(examples, potentials)
    require_node_losses(field, examples, objective)
    # One pass has no gradient of all examples, by which an inner problem could become more accurate.
    objective.settle(0.0)
    rng = check_random_state(field.random_state)
    risk = examples.risk(field, objective, potentials, int(rng.randint(np.iinfo(np.int32).max)))
    start = np.zeros(potentials.n_coef) if is_first else field._flat_weights(potentials)
    with single_threaded_blas():
        state = online_pass(
            risk,
            former,
            start,
            C=field.C if field._has_penalty(objective) else None,
            edge_C=field._tables().C,
            n_together=1 if is_rows else ONLINE_BATCH_SIZE,
            rng=rng,
            project=field._projection(potentials),
        )
    # Everything that can fail has happened: only now does the estimator change.
    if is_first:
        examples.encoded.record(field)
    field.classes_ = classes
    attributes = {**layout.attributes(potentials, state["average"]), **field._chosen(examples.graphs)}
    for name, value in attributes.items():
        setattr(field, name, value)
    if hasattr(field, "voters_"):
        field.voters_ = None
    field.partial_fit_state_ = {**state, "graphs": tuple(examples.graphs)}


def _checked_classes(field, classes):
    fitted = getattr(field, "classes_", None)
    given = field.classes if classes is None else classes
    if fitted is None:
        if given is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        return sorted_classes([], given)
    if given is not None and not np.array_equal(sorted_classes([], given), fitted):
        raise ValueError(
            f"`classes={np.asarray(given).tolist()}` is not the same as on last call to partial_fit, was: "
            f"{fitted.tolist()}"
        )
    return fitted


def _check_parameters(field):
    field._check_parameters()
    if getattr(field, "weights", None) == "seen":
        raise ValueError("partial_fit cannot know which features later calls bring: use weights='all'.")
    if getattr(getattr(field, "learning", None), "early_stopping", False) is True:
        raise ValueError("early_stopping=True is for fit: partial_fit makes one pass over what it is given.")
    if field.class_weight == "balanced":
        raise ValueError(
            "class_weight='balanced' is not for partial_fit, which sees a part of the examples at a time: pass a dict "
            "of weights."
        )


def _check_examples(field, encoded):
    if encoded.has_factors or encoded.has_sparse_edges:
        what = "factors besides nodes and edges" if encoded.has_factors else "sparse edge features"
        raise ValueError(f"partial_fit of {type(field).__name__} takes no {what}: use fit.")


def _warn_of_units(field, batches, potentials):
    # The scale of features does not matter to steps of adaptive length.
    scaling = FeatureScaling.for_training(FeatureScaling.moments(batches, potentials), field.C, field.fit_intercept)
    if not scaling.is_identity and scaling.center.any():
        warn_caller(
            "Some features are far from 0, so that the steps of partial_fit do not get far: centre X, as with "
            "NodeTransformer(StandardScaler()), or use fit, which does so itself.",
            ConvergenceWarning,
        )


def _graphs(field, batches, potentials, former):
    now = summary_of(field, batches, potentials)
    return now if former is None else GraphSummary.joined([GraphSummary(*former["graphs"]), now])
