"""Training of a field: until a stopping rule holds (``fit``), or by one pass of stochastic steps (``partial_fit``)."""

import pickle
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, check_random_state

from sklearn_crf._numbers import convert_to_csr, first_of_equal
from sklearn_crf._reports import warn_caller
from sklearn_crf._threads import keep_tasks_in_process, limit_blas_threads
from sklearn_crf.encoding import (
    attributes_of_filling,
    choose_partial_fit_classes,
    make_batches,
    n_inputs,
    scale_sample_weight,
    take_examples,
    validate_sample_weight,
)
from sklearn_crf.estimators._training_examples import (
    TrainingExamples,
    build_training_potentials,
    collect_allowed_types,
    compute_least_difference_scale,
    require_allowed,
    require_node_losses,
)
from sklearn_crf.inference import convergence_left_to_caller
from sklearn_crf.learning import (
    ONLINE_BATCH_SIZE,
    Facts,
    HeldOutScores,
    compute_initial_weights,
    make_online_pass,
    restore_units,
    weigh_correct_nodes,
)
from sklearn_crf.potentials import FeatureScaling


def train(parameters, data, plan, held_out, callbacks):
    """Train according to a plan; return the record of training."""
    potentials, scaling = data.potentials, data.scaling
    parameters.decision_cost_of_factors(kind.name for kind in getattr(potentials, "types", ()))
    objective = plan.learning.objective(plan, data)
    require_node_losses(plan, data, objective)
    risk = data.risk(plan, objective)
    if not risk.n_labelled:
        raise ValueError("y has no known label of positive weight: pass labels of some nodes.")
    former = _get_former_weights(parameters, data.encoded, data.labels, potentials)
    iterations = callbacks(plan.learning.n_iterations(plan))
    with limit_blas_threads(), keep_tasks_in_process(), iterations as iteration:

        def fitted_now(coef):
            of_input = {"n_features_in_": n_inputs(data.encoded), "lattice_ndim_": data.encoded.lattice_ndim}
            return of_input | build_fitted_attributes(data, plan, scaling.outer(potentials, coef))

        def make_start(init):
            start = compute_initial_weights(init if former is None else former, risk, run)
            is_given = former is not None or isinstance(init, np.ndarray)
            return scaling.inner(potentials, start) if is_given else start

        run = replace(
            plan,
            on_iteration=lambda coef: iteration(lambda: fitted_now(coef)),
            outer_gradient=partial(scaling.outer_gradient, potentials),
            held_out=held_out and held_out.scores(parameters, data.encoded, fitted_now, potentials.n_coef),
        )
        record = plan.learning.train(risk, plan, data, make_start, run)
    restore_units(record, scaling, potentials)
    return record


def build_fitted_attributes(data, plan, coef):
    """Build the fitted attributes that prediction needs."""
    in_the_loss = plan.learning.class_costs or data.encoded.lattice_ndim == 0 or plan.learning.weighs_nodes
    return {
        "classes_": data.labels.classes_,
        **plan.layout.attributes(data.potentials, coef),
        **plan.facts.attributes,
        "learning_": plan.learning.name,
        "inference_": plan.inference_name,
        "decision_weight_": None if in_the_loss else data.class_weight,
        **attributes_of_filling(data.encoded.filling),
    }


# Attributes of potentials that must be equal in both fits of a warm start, and what errors call these attributes.
_COUNTS = {
    "n_features": "features",
    "n_node_types": "types of nodes",
    "n_edge_types": "types of edges",
    "n_edge_features": "edge features",
}


def _get_former_weights(parameters, encoded, labels, potentials):
    """Return the flat weights of the last fit for a warm start, or None for a cold start."""
    if not (parameters.given.warm_start and hasattr(parameters.given, "coef_")):
        return None
    former = parameters.fitted()
    if not np.array_equal(former.classes, labels.classes_):
        raise ValueError(
            f"warm_start=True needs the classes of the previous fit, {former.classes.tolist()}, got "
            f"{labels.classes_.tolist()}: pass all class labels with the classes parameter."
        )
    found = former.potentials(encoded)
    for name, what in _COUNTS.items():
        before, now = getattr(found, name), getattr(potentials, name)
        if before != now:
            raise ValueError(f"warm_start=True needs as many {what} as the previous fit had, {before}, got {now}.")
    if type(found) is not type(potentials):
        raise ValueError(
            "warm_start=True needs X as in the previous fit: node and edge features sparse or dense as before, "
            "and factors only if the previous X had factors."
        )
    return former.weights(potentials)


def partial_fit(parameters, X, y, classes, sample_weight):
    """Make one pass of stochastic steps over X.

    Return two results: the encoded X in the first call, None in later calls; and the fitted attributes.
    """
    field = parameters.given
    classes = choose_partial_fit_classes(field, classes)
    is_first, former = not hasattr(field, "classes_"), getattr(field, "partial_fit_state_", None)
    known = parameters.fitted()
    _check_parameters(field, parameters.learning)
    reader = (parameters if is_first else known).reader()
    examples = TrainingExamples(reader, X, y, sample_weight, None, classes, reset=is_first)
    plan = parameters.plan(examples)
    # All pairs of a feature and a label get weights, because later calls may contain pairs that this call lacks.
    form = plan.layout.form if is_first else known.layout.form
    plan = replace(plan, layout=plan.layout._replace(seen_only=False, seen_only_on_edges=False, form=form))
    layout = plan.layout
    is_rows = examples.encoded.layout == "nodes"
    examples.batch(plan, packing={"max_nodes": ONLINE_BATCH_SIZE if is_rows else 1})
    if not is_first and not examples.batches:
        return None, {"partial_fit_state_": former}
    encoded = examples.encoded
    if is_first:
        potentials = build_training_potentials(layout, encoded, classes, examples.batches)
    else:
        potentials = layout.build_fitted_potentials(field, encoded)
        if encoded.has_factors:
            potentials, former = _extend_types(potentials, former, examples, classes)
        potentials.check(encoded, type(field).__name__)
        require_allowed(layout, examples.batches, classes)
    examples.potentials = potentials
    _count_differences(field, examples, potentials, layout.form)
    facts = plan.collect_facts(examples.batches, potentials)
    plan = plan.on(facts if former is None else Facts.joined([Facts(*former["facts"]), facts]), encoded, None)
    plan.learning.check_batches(examples.batches, plan)
    objective = plan.learning.objective(plan, examples)
    require_node_losses(plan, examples, objective)
    # A single pass has no gradient over all examples, from which the tolerance of inner problems could be derived.
    objective.settle(0.0)
    risk = examples.risk(plan, objective)
    start = np.zeros(potentials.n_coef) if is_first else known.weights(potentials)
    with limit_blas_threads():
        state = make_online_pass(risk, plan, former, start, n_together=1 if is_rows else ONLINE_BATCH_SIZE)
    attributes = build_fitted_attributes(examples, plan, state["average"])
    attributes["partial_fit_state_"] = {**state, "facts": tuple(plan.facts)}
    if hasattr(field, "voters_"):
        attributes["voters_"] = None
    return encoded if is_first else None, attributes


def _extend_types(known: Any, former: dict | None, examples: Any, classes: np.ndarray) -> tuple[Any, dict | None]:
    """Add new types of factors and new joint states to the potentials and to the state of training."""
    # known: FactorPotentials of all former examples; former: state of training, or None after a call of fit
    potentials = known.extended(collect_allowed_types(examples.encoded, classes, examples.batches))
    if former is not None:
        vectors = {name: potentials.convert_weights(known, former[name]) for name in ("x", "average", "squares")}
        former = {**former, **vectors}
    return potentials, former


def _check_parameters(field, learning):
    if field.weights == "seen":
        raise ValueError("partial_fit cannot know which features later calls will contain: use weights='all'.")
    if learning.early_stopping is True:
        raise ValueError("early_stopping=True is not supported by partial_fit, which makes one pass over X: use fit.")
    if field.class_weight == "balanced":
        raise ValueError(
            "class_weight='balanced' is not supported by partial_fit, which sees only a part of the examples: pass a "
            "dict of weights."
        )


def _count_differences(field, examples, potentials, form):
    """Scale the penalty of edge differences by their sizes, and warn of features that are far from 0."""
    moments = FeatureScaling.moments(examples.batches, potentials)
    least_size = compute_least_difference_scale(examples.encoded, form)
    scaling = FeatureScaling.for_training(moments, field.C, field.fit_intercept, least_size=least_size)
    # Features are not rescaled, only the penalty, because adaptive steps do not depend on the scale of features.
    FeatureScaling(edge_size=scaling.edge_size).rescale_penalty(potentials)
    if not scaling.is_identity and scaling.center.any():
        warn_caller(
            "Some features are far from 0, so partial_fit makes little progress: centre X, for example with "
            "NodeTransformer(StandardScaler()), or use fit, which centres features.",
            ConvergenceWarning,
        )


class HeldOutExamples(NamedTuple):
    """Validation examples, by which training chooses the iteration whose weights it keeps."""

    X: object
    y: object
    weight: np.ndarray | None
    n_iter_no_change: int

    def scores(self, parameters, encoded, fitted_now, n_coef):
        """Return the :class:`HeldOutScores` of a training run; they rate flat weights on the validation examples."""
        # fitted_now: function that converts flat weights to fitted attributes
        fitted = parameters.fitted(encoded, fitted_now(np.zeros(n_coef)))
        try:
            own, batches, potentials, _ = fitted.prepare(self.X)
            # A node whose label did not occur in training always counts as an error.
            truth = make_batches(own, fitted.encode_y(self.y, own, "y_val"))
        except ValueError as error:
            raise ValueError(f"Invalid examples X_val and y_val: {error}") from error
        n_classes = len(fitted.classes)
        if not any(np.any((batch.labels >= 0) & (batch.labels < n_classes)) for batch in truth):
            raise ValueError(
                "y_val has no node with a label of the training classes: pass validation examples "
                "with labels of these classes."
            )
        weight, labeler = scale_sample_weight(self.weight), fitted.labeler()

        def score(coef):
            weights = parameters.fitted(encoded, fitted_now(coef)).weights(potentials)
            with convergence_left_to_caller():
                right, total = weigh_correct_nodes(labeler.columns(batches, potentials, [weights]), truth, weight)
            return right / total

        return HeldOutScores(score, self.n_iter_no_change)


def split_held_out_examples(parameters, X, y, sample_weight, node_weight, X_val, y_val):
    """Split off validation examples, if any; return the training data, and :class:`HeldOutExamples` or None if none."""
    learning = parameters.learning
    given = X, y, sample_weight, node_weight
    if (X_val is None) != (y_val is None):
        raise ValueError("X_val and y_val must be passed together.")
    if X_val is not None:
        if learning.early_stopping is False:
            raise ValueError(
                "X_val and y_val are used for early stopping, but early_stopping=False is set in "
                f"learning={learning.name!r}: set early_stopping='auto'."
            )
        return given, HeldOutExamples(X_val, y_val, None, learning.n_iter_no_change)
    if learning.early_stopping is not True:
        return given, None
    weights, seed = (sample_weight, node_weight), parameters.given.random_state
    X, y, weights, held_out = split_examples(X, y, weights, learning, seed)
    return (X, y, *weights), held_out


def split_examples(X, y, weights, learning, random_state):
    """Split examples at random; return the training data, and the others as :class:`HeldOutExamples`.

    Equal examples are held out together, and examples of weight zero or without nodes are not counted. A weight of 2
    then has the same effect as two copies.
    """
    # weights: tuple; each item is None or has one entry per example, and the first item is sample_weight
    if y is None:
        raise ValueError(
            "early_stopping=True needs y to hold out examples, got y=None: with Shards, pass X_val and y_val."
        )
    check_consistent_length(X, y, *weights)
    n_examples = X.shape[0] if hasattr(X, "shape") else len(X)
    weight = validate_sample_weight(weights[0], n_examples)
    # Hashes of 16 bytes. Copies of an example have the same hash.
    keys = [_hash(number, *parts) for number, parts in enumerate(zip(_iterate(X), _iterate(y), strict=True))]
    first = first_of_equal(np.array(keys, dtype="V16"))
    n_nodes = [getattr(own, "size", not isinstance(own, list | tuple) or len(own)) for own in _iterate(y)]
    counted = np.unique(first[np.array(n_nodes) * (1.0 if weight is None else weight) > 0])
    n_counted = len(counted)
    if n_counted < 2:
        raise ValueError(
            "early_stopping=True holds out a part of the examples, but X has only one example, apart from copies and "
            "examples without nodes or of weight 0: pass X_val and y_val."
        )
    n_held_out = min(max(1, round(learning.validation_fraction * n_counted)), n_counted - 1)
    is_out = np.isin(first, counted[check_random_state(random_state).permutation(n_counted)[:n_held_out]])
    held_out, kept = np.flatnonzero(is_out), np.flatnonzero(~is_out)
    part = HeldOutExamples(
        take_examples(X, held_out),
        take_examples(y, held_out),
        None if weight is None else weight[held_out],
        learning.n_iter_no_change,
    )
    weights = tuple(None if values is None else take_examples(values, kept) for values in weights)
    return take_examples(X, kept), take_examples(y, kept), weights, part


def _iterate(values: Any) -> Any:
    """Return the examples as an iterable of objects that can be pickled quickly."""
    if sp.issparse(values):
        rows = convert_to_csr(values, "X")
        return [(rows.indices[start:stop], rows.data[start:stop]) for start, stop in pairwise(rows.indptr)]
    return values.to_numpy() if hasattr(values, "iloc") else values


def _hash(number: int, features: Any, labels: Any) -> bytes:
    try:
        content = pickle.dumps((features, labels))
    except (pickle.PicklingError, TypeError, AttributeError):
        # Examples whose features cannot be pickled, such as operators of local functions, count as distinct.
        content = number.to_bytes(8, "little")
    return blake2b(content, digest_size=16).digest()
