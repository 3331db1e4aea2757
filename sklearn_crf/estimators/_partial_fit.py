"""``partial_fit``: one pass of stochastic steps over some examples, from where the last one ended."""

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from sklearn_crf._reports import warn_caller
from sklearn_crf._threads import single_threaded_blas
from sklearn_crf.encoding import partial_fit_classes
from sklearn_crf.estimators._training_examples import (
    TrainingExamples,
    require_allowed,
    require_node_losses,
    summary_of,
    training_potentials,
)
from sklearn_crf.learning import ONLINE_BATCH_SIZE, GraphSummary, online_pass
from sklearn_crf.potentials import FeatureScaling


def partial_fit(field, X, y, classes, sample_weight):
    """One pass over X; sets the fitted attributes of the field at its end."""
    classes = partial_fit_classes(field, classes)
    is_first = not hasattr(field, "classes_")
    former = getattr(field, "partial_fit_state_", None)
    _check_parameters(field)
    examples = TrainingExamples(field, X, y, sample_weight, None, classes, reset=is_first)
    # Later calls may bring what does not occur in this one.
    layout = field._weight_layout(classes, examples.encoded.lattice_ndim)._replace(seen_only=False)
    field._check_labels(examples.labels)
    is_rows = examples.encoded.layout == "nodes"
    examples.prepare(field, layout, packing={"max_nodes": ONLINE_BATCH_SIZE if is_rows else 1})
    _check_examples(field, examples.encoded)
    if is_first:
        potentials = training_potentials(layout, examples.encoded, classes, examples.batches)
    else:
        potentials = layout.fitted_potentials(field, examples.encoded)
        potentials.check(examples.encoded, type(field).__name__)
        require_allowed(layout, examples.batches, classes)
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
    attributes = {
        **layout.attributes(potentials, state["average"]),
        **field._chosen(examples.graphs),
        **field._decision_weight(examples),
    }
    for name, value in attributes.items():
        setattr(field, name, value)
    if hasattr(field, "voters_"):
        field.voters_ = None
    field.partial_fit_state_ = {**state, "graphs": tuple(examples.graphs)}


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
