"""Types of factors of any arity, and potentials with weights for the joint states that occur in training."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sklearn_crf import models
from sklearn_crf._numbers import n_joint_states
from sklearn_crf._threads import cached_property
from sklearn_crf.encoding import Encoded, multiply_rows
from sklearn_crf.models import FactorGraph, numbers_of_states
from sklearn_crf.potentials._extended import ExtendedPotentials


class FactorType:
    """Type of factors: its name, its numbers of states and features, and its listed joint states."""

    # n_states: (arity,); states: (n_listed, arity)

    def __init__(self, name, n_states, n_features, states):
        self.name = name
        self.n_states = np.asarray(n_states, dtype=np.int64)
        self.n_features = n_features
        self.states = np.unique(np.asarray(states, dtype=np.int32).reshape(-1, len(self.n_states)), axis=0)

    @property
    def n_listed(self):
        """Number of listed joint states."""
        return len(self.states)

    @cached_property
    def cells(self):
        """Ascending indices of the listed joint states in the table of all joint states."""
        return numbers_of_states(self.states, self.n_states)

    def weights_of(self, former, coef):
        """Return the weights of the listed joint states, given the weights of this factor type in another fit."""
        # coef: (n_features, n_listed + 1) or None; returns: (n_features, n_listed + 1)
        if former is None:
            return np.zeros((self.n_features, self.n_listed + 1))
        if former.n_features != self.n_features or not np.array_equal(former.n_states, self.n_states):
            raise ValueError(
                f"factors of type {self.name!r} have nodes of {self.n_states.tolist()} states and {self.n_features} "
                f"features, but {former.n_states.tolist()} states and {former.n_features} features in the previous fit."
            )
        place = np.searchsorted(former.cells, self.cells)
        known = np.append(former.cells, -1)[place] == self.cells
        return coef[:, np.append(np.where(known, place, former.n_listed), former.n_listed)]


def collect_factor_types(examples, batches, n_classes):
    """Collect the types of factors in training examples, with the joint states that occur."""
    shapes: dict[str, tuple] = {}
    found: dict[str, list] = {}
    for i, example in enumerate(examples):
        for name, factors in example.factors.items():
            shape = _get_factor_shape(example, factors, name, n_classes, i)
            if shapes.setdefault(name, shape) != shape:
                raise _make_mismatch_error(i, name, shape, shapes[name])
    for batch in batches:
        for name, factors in batch.example.factors.items():
            states = batch.counted_labels[factors.scope]
            found.setdefault(name, []).append(np.unique(states[(states >= 0).all(axis=1)], axis=0))
    return [FactorType(name, shapes[name][0], shapes[name][1], np.concatenate(found[name])) for name in sorted(found)]


def join_factor_types(parts):
    """Merge the factor types collected from several parts of the training examples; sort the types by name."""
    # parts: list of lists of FactorType
    found: dict[str, list] = {}
    for kind in (kind for part in parts for kind in part):
        same = found.setdefault(kind.name, [])
        if same and (not np.array_equal(kind.n_states, same[0].n_states) or kind.n_features != same[0].n_features):
            raise ValueError(
                f"Parts of the examples have factors of type {kind.name!r} with nodes of {kind.n_states.tolist()} and "
                f"{same[0].n_states.tolist()} states, and {kind.n_features} and {same[0].n_features} features: these "
                "must be equal for all factors of a type."
            )
        same.append(kind)
    return [
        FactorType(name, same[0].n_states, same[0].n_features, np.concatenate([kind.states for kind in same]))
        for name, same in sorted(found.items())
    ]


def check_factors(examples, types, n_classes):
    """Raise ValueError unless all factors have known types and all tables of fixed factors are valid."""
    known = {kind.name: (tuple(kind.n_states.tolist()), kind.n_features) for kind in types}
    for i, example in enumerate(examples):
        for name, factors in example.factors.items():
            if name not in known:
                raise ValueError(
                    f"X[{i}] has factors of type {name!r}, which no training example had: the types in training were "
                    f"{sorted(known)}."
                )
            shape = _get_factor_shape(example, factors, name, n_classes, i)
            if shape != known[name]:
                raise _make_mismatch_error(i, name, shape, known[name])
        try:
            FactorGraph.from_factors(states_of(example, n_classes), example.fixed_factors)
        except ValueError as error:
            raise ValueError(f"X[{i}].fixed_factors: {error}") from error


def _get_factor_shape(example, factors, name, n_classes, i):
    """Return the number of states of each node of a factor, and the number of features of the factor."""
    of_nodes = states_of(example, n_classes)[factors.scope]
    differs = (of_nodes != of_nodes[0]).any(axis=1)
    if differs.any():
        f = int(np.argmax(differs))
        raise ValueError(
            f"X[{i}] has two factors of type {name!r} whose nodes have {of_nodes[0].tolist()} and "
            f"{of_nodes[f].tolist()} states: all factors of a type need equal numbers of states."
        )
    return tuple(of_nodes[0].tolist()), 1 if factors.features is None else factors.features.shape[1]


def states_of(example, n_classes):
    """Return the number of states of each node."""
    # returns (N,)
    return np.full(example.n_nodes, n_classes) if example.n_states is None else example.n_states


def _make_mismatch_error(i, name, shape, expected):
    return ValueError(
        f"X[{i}] has factors of type {name!r} with nodes of {list(shape[0])} states and {shape[1]} features, but "
        f"other factors of this type have nodes of {list(expected[0])} states and "
        f"{expected[1]} features."
    )


class FactorPotentials(ExtendedPotentials):
    r"""Potentials that combine pairwise potentials of nodes and edges with weights of larger factors.

    .. math::
        \theta_f(y_f) = \sum_r x_{f r} \, w_{t_f, r, l(y_f)}, \qquad
        l(y_f) = \text{number of } y_f \text{ among the listed joint states of type } t_f, \text{ else the last}

    All joint states that a type does not list share one weight. Factors of a type without features share one table.

    Source: Jancsary 2012, section 6.3.3 (sparse factors with tied potentials).
    """

    def __init__(self, pairwise, types):
        self.types = tuple(types)
        self._ends = np.cumsum([pairwise.n_coef, *(kind.n_features * (kind.n_listed + 1) for kind in self.types)])
        super().__init__(pairwise, self._ends[-1] - pairwise.n_coef)

    def check(self, encoded: Encoded, name: str) -> None:
        """Raise ValueError if examples have factors, types, states or features that training examples did not have."""
        check_factors(encoded.items, self.types, self.n_classes)
        self.pairwise.check(encoded, name)

    def extended(self, types: Sequence[FactorType]) -> "FactorPotentials":
        """Return potentials with additional weights for new types, and for new joint states of known types."""
        return FactorPotentials(self.pairwise, join_factor_types([self.types, types]))

    def convert_weights(self, former: "FactorPotentials", coef: np.ndarray) -> np.ndarray:
        """Convert a flat vector of the potentials before ``extended``; new states get the weight of unlisted states."""
        # coef: (former.n_coef,); returns: (n_coef,)
        parts, known = former.unpack(coef), {kind.name: kind for kind in former.types}
        own = [kind.weights_of(known.get(kind.name), parts.factors.get(kind.name)).ravel() for kind in self.types]
        return np.concatenate([parts.pairwise, *own])

    def unpack(self, coef):
        # coef: (n_coef,)
        ends = self._ends
        parts = {
            kind.name: coef[start:stop].reshape(kind.n_features, kind.n_listed + 1)
            for kind, start, stop in zip(self.types, ends[:-1], ends[1:], strict=True)
        }
        return WeightsByType(coef[: ends[0]], parts)

    def model(self, coef, example, edges=None):
        # coef: (n_coef,)
        weights = self.unpack(np.asarray(coef))
        model = self.pairwise.model(weights.pairwise, example, edges)
        if not example.has_factors:
            return model
        graphs = [models.factor_graph_of(model)]
        n_states = graphs[0].n_states
        for kind in self._types_of(example):
            graphs.append(_build_type_graph(kind, weights.factors[kind.name], example.factors[kind.name], n_states))
        if example.fixed_factors:
            graphs.append(models.FactorGraph.from_factors(n_states, example.fixed_factors))
        return models.unite_factors(*graphs)

    def number_factors(self, example) -> dict[str, range]:
        """Return the indices of the factors of each type in the model of an example; edges have the type ""."""
        first = example.n_nodes + example.graph.n_edges
        found = {"": range(example.n_nodes, first)}
        for kind in self._types_of(example):
            found[kind.name] = range(first, first + len(example.factors[kind.name].scope))
            first = found[kind.name].stop
        return found

    def _types_of(self, example):
        return [kind for kind in self.types if kind.name in example.factors]

    def _split(self, parts, example, statistics):
        if isinstance(statistics, models.Statistics):
            return statistics
        shell = self._build_zero_model(example)
        base = models.factor_graph_of(shell)
        cell, table = base.log_table.size, base.n_tables
        for kind in self._types_of(example):
            found = example.factors[kind.name]
            n_tables = 1 if found.features is None else len(found.scope)
            listed = statistics.log_table[cell : cell + n_tables * kind.n_listed].reshape(n_tables, kind.n_listed)
            others = statistics.table_default[table : table + n_tables]
            counts = np.column_stack((listed, others))
            parts.factors[kind.name][...] += counts if found.features is None else found.features.T @ counts
            cell, table = cell + listed.size, table + n_tables
        n_states = base.n_states
        unary = np.zeros(shell.unary.shape)
        unary[np.arange(unary.shape[1]) < n_states[:, None]] = statistics.log_table[: n_states.sum()]
        return models.Statistics(unary, models.convert_to_pairwise_statistics(shell, statistics.log_table))

    def _build_zero_model(self, example):
        """Return a model of the nodes and edges in which all scores are zero."""
        n_classes = self.n_classes
        shape, edge_type, edge_weight = self.pairwise.compute_edge_layout(example)
        return models.PairwiseModel(
            example.graph,
            np.zeros((example.n_nodes, n_classes)),
            np.zeros((*shape, n_classes, n_classes)),
            edge_type=edge_type,
            edge_weight=edge_weight,
            n_states=example.n_states,
        )


class WeightsByType(NamedTuple):
    """Parts of the flat weight vector of factor potentials."""

    pairwise: np.ndarray  # flat weight vector of nodes and edges
    # weights of each type, (n_features, n_listed + 1): a column per listed joint state, then a column for all others
    factors: dict


def _build_type_graph(kind, weights, found, n_states):
    """Build a factor graph of the factors of one type.

    The factors share one table, or have a table each if they have features.
    """
    scores = weights if found.features is None else multiply_rows(found.features, weights.T)
    n_tables, n_factors = len(scores), len(found.scope)
    is_dense = kind.n_listed == n_joint_states(kind.n_states)
    return models.build_trusted_factor_graph(
        n_states=n_states,
        scope=found.scope.ravel().astype(np.int32, copy=False),
        scope_ptr=np.arange(n_factors + 1) * len(kind.n_states),
        table_id=np.arange(n_factors, dtype=np.int32) if n_tables > 1 else np.zeros(n_factors, dtype=np.int32),
        log_table=scores[:, :-1].ravel(),
        table_ptr=np.arange(n_tables + 1) * kind.n_listed,
        table_kind=np.full(n_tables, models.DENSE if is_dense else models.SPARSE, dtype=np.int8),
        table_cell=None if is_dense else np.tile(kind.cells, n_tables),
        table_default=np.ascontiguousarray(scores[:, -1]),
    )
