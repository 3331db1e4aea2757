"""Training examples of a field, in memory or in shards that are elsewhere, and what others must have in common."""

import numpy as np

from sklearn_crf.encoding import (
    encode_y,
    make_batches,
    validate_sample_weight,
)
from sklearn_crf.learning import GraphSummary, have_cycles, have_factors, with_class_weights, with_node_weights
from sklearn_crf.objectives import EmpiricalRisk, SparseRisk
from sklearn_crf.potentials import FactorPotentials, SparseEdgePotentials, check_factors


class TrainingExamples:
    """Encoded examples in memory, their labels and, once they are prepared, their batches.

    Parameters
    ----------
    field : TrainableField
    X, y, sample_weight, node_weight : object
        As in its ``fit``.
    classes : array-like or None
        All classes.

    Attributes
    ----------
    weighted_by : str or None
        The argument or parameter that gives nodes weights of their own.
    """

    def __init__(self, field, X, y, sample_weight, node_weight, classes):
        self.encoded = field._encode(X, reset=True)
        self.labels = encode_y(y, self.encoded, missing_label=field.missing_label, classes=classes)
        self._weight = sample_weight
        self._node_weight = node_weight
        self.weighted_by = None

    def prepare(self, field, layout, whole=None):
        """Put examples into batches, in the form that suits those of all shards.

        Parameters
        ----------
        field : TrainableField
        layout : WeightLayout
        whole : Outline, optional
            Of all shards, where these are the examples of one.
        """
        weight = validate_sample_weight(self._weight, self.encoded.n_examples)
        class_weight = field._class_weight(self.labels)
        if class_weight is not None and self.encoded.layout == "nodes":
            # A row is an example of one node.
            weight = (1.0 if weight is None else weight) * np.append(class_weight, 1.0)[self.labels.labels]
            class_weight = None
        prepare = layout.prepare(self.encoded if whole is None else whole)
        packing = field._packing(self.encoded)
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
        return potentials

    def risk(self, field, objective, potentials, seed):
        """The empirical risk of the batches."""
        return risk_of(objective, potentials, self.batches, field.n_jobs, seed)

    def finish(self):
        """Drop what is kept for training alone."""


def risk_of(objective, potentials, batches, n_jobs, seed):
    make_risk = SparseRisk if potentials.by_columns else EmpiricalRisk
    return make_risk(objective, potentials, batches, n_jobs=n_jobs, seed=seed)


def summary_of(field, batches, potentials):
    """What the graphs of batches have in common."""
    return GraphSummary(have_cycles(batches), have_factors(batches), field._are_narrow(batches, potentials))


def check_examples(encoded, potentials, name):
    """Raise ValueError where X has what the training examples of the estimator of that name had not."""
    if isinstance(potentials, FactorPotentials):
        check_factors(encoded.items, potentials.types, potentials.n_classes)
        potentials = potentials.pairwise
    n_types, n_classes = potentials.n_node_types, potentials.n_classes
    for i, example in enumerate(encoded.items or ()):
        # Their weights would be looked up beyond the last.
        if example.node_type is not None and example.node_type.max() >= n_types:
            raise ValueError(
                f"X[{i}] has nodes of type {example.node_type.max()}, but {name} was fitted with "
                f"{n_types} types of nodes, numbered from 0."
            )
        if example.n_states is not None and example.n_states.max() > n_classes:
            raise ValueError(f"X[{i}].n_states goes up to {example.n_states.max()}, but there are {n_classes} classes.")
    if encoded.n_edge_types:
        _check_edges(encoded, potentials, name)


def _check_edges(encoded, potentials, name):
    if encoded.n_edge_types > potentials.n_edge_types:
        raise ValueError(
            f"X has {encoded.n_edge_types} types of edges, but {name} was fitted with {potentials.n_edge_types}."
        )
    if encoded.has_sparse_edges and not isinstance(potentials, SparseEdgePotentials):
        raise ValueError(f"X has sparse edge features, but {name} was fitted with dense ones.")
    if encoded.n_edge_features != potentials.n_edge_features:
        raise ValueError(
            f"X has {encoded.n_edge_features} edge features, but {name} was fitted with {potentials.n_edge_features}."
        )


def require_no_factors(batch, method):
    """Raise ValueError where an example has factors besides nodes and edges."""
    if batch.example.has_factors:
        raise ValueError(f"X[{batch.members[0]}] has factors besides nodes and edges, which {method} does not take.")
