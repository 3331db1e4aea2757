"""Types of factors, which list the joint states that occur in training and have separate weights."""

import numpy as np

from sklearn_crf._threads import cached_property
from sklearn_crf.models import FactorGraph, numbers_of_states


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
        """Cells of the listed joint states in the table of all joint states, ascending."""
        return numbers_of_states(self.states, self.n_states)

    def weights_of(self, former, coef):
        """Return the weights of the listed joint states, given the weights of this factor type in another fit."""
        # coef: (n_features, n_listed + 1) or None; returns: (n_features, n_listed + 1)
        if former is None:
            return np.zeros((self.n_features, self.n_listed + 1))
        if former.n_features != self.n_features or not np.array_equal(former.n_states, self.n_states):
            raise ValueError(
                f"factors of type {self.name!r} have nodes of {self.n_states.tolist()} states and {self.n_features} "
                f"features, but in the former fit {former.n_states.tolist()} states and {former.n_features} features."
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
    """Return how many states the nodes of a factor have, and how many features the factor has."""
    of_nodes = states_of(example, n_classes)[factors.scope]
    differs = (of_nodes != of_nodes[0]).any(axis=1)
    if differs.any():
        f = int(np.argmax(differs))
        raise ValueError(
            f"X[{i}] has two factors of type {name!r} whose nodes have {of_nodes[0].tolist()} and "
            f"{of_nodes[f].tolist()} states: these must be equal for all factors of a type."
        )
    return tuple(of_nodes[0].tolist()), 1 if factors.features is None else factors.features.shape[1]


def states_of(example, n_classes):
    """Return the number of states of each node."""
    # returns (N,)
    return np.full(example.n_nodes, n_classes) if example.n_states is None else example.n_states


def _make_mismatch_error(i, name, shape, expected):
    return ValueError(
        f"X[{i}] has factors of type {name!r} with nodes of {list(shape[0])} states and {shape[1]} features, but "
        f"other factors of this type have nodes of {list(expected[0])} states, and their number "
        f"of features is {expected[1]}."
    )
