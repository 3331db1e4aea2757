"""Single changes: no labeling is returned that one node could improve alone."""

from itertools import islice

import numpy as np

from sklearn_crf._threads import checkpoint
from sklearn_crf.inference._local_updates import best_alone, local_arguments, visits
from sklearn_crf.inference._row_models import StoredRows, row_ranges
from sklearn_crf.inference._search_problem import search_problem
from sklearn_crf.kernels.local.icm import icm_update
from sklearn_crf.kernels.local.neighborhood_search import SearchWorkspace, annealing_sweep
from sklearn_crf.models import FactorGraph, score

# Climbing mostly ends after some ten sweeps.
_MAX_SWEEPS = 100


class Climber:
    """Changes labelings of a pairwise model one node at a time as long as that gains."""

    def __init__(self, model):
        self.arguments = local_arguments(model)
        self.nodes = visits(model.graph, "sequential")[0]
        self.work = np.empty(model.n_columns)

    def climb(self, labels):
        """Change labels in place."""
        pending = np.ones(len(labels), dtype=np.uint8)
        for _ in range(_MAX_SWEEPS):
            checkpoint()
            if not icm_update(self.nodes, 0, len(self.nodes), *self.arguments, labels, pending, self.work):
                break
        return labels


class RowsClimber:
    """The same on a large lattice, whose neighbours are listed for some rows at a time: the labels are the same."""

    # rows: RowModels

    def __init__(self, rows):
        self.rows = rows

    def start(self):
        """The best state of each node by itself, (N,) int32."""
        labels = np.empty(self.rows.graph.n_nodes, dtype=np.int32)
        for start, stop in row_ranges(self.rows.graph, _NODES_AT_ONCE):
            checkpoint()
            labels[self.rows.nodes(start, stop)] = best_alone(self.rows.between(start, stop))
        return labels

    def climb(self, labels):
        """Change labels in place."""
        for n_changed in islice(self.sweeps(labels), _MAX_SWEEPS):
            if not n_changed:
                break
        return labels

    def sweeps(self, labels):
        """Visit all nodes again and again, changing labels in place; how many changed in each sweep."""
        pending = np.ones(len(labels), dtype=np.uint8)
        while True:
            n_changed = 0
            for start, stop in row_ranges(self.rows.graph, _NODES_AT_ONCE):
                if pending[self.rows.nodes(start, stop)].any():
                    n_changed += self._sweep(labels, pending, start, stop)
            yield n_changed

    def _sweep(self, labels, pending, start, stop):
        """Visit the nodes of some rows that may change; number of labels that did."""
        checkpoint()
        model, low, high = self.rows.around(start, stop)
        width, around = self.rows.width, self.rows.nodes(low, high)
        nodes = np.arange((start - low) * width, (stop - low) * width, dtype=np.int32)
        state = labels[around], pending[around]
        return icm_update(nodes, 0, len(nodes), *local_arguments(model), *state, np.empty(model.n_columns))


# Nodes whose neighbours are listed together where a lattice has several times as many.
_NODES_AT_ONCE = 1 << 16


class FactorClimber:
    """Changes labelings of a factor graph one node at a time as long as that gains."""

    def __init__(self, model):
        self.model = model
        self.arrays, self.unary = search_problem(model)
        self.workspace = SearchWorkspace(len(self.unary), len(self.arrays.table), self.unary.shape[1])

    def climb(self, labels):
        """Change labels in place."""
        before = labels.copy()
        cells = self.arrays.cells(self.unary, labels)
        for _ in range(_MAX_SWEEPS):
            checkpoint()
            _, _, n_changes = annealing_sweep(self.arrays, self.unary, 0.0, 0, labels, cells, self.workspace)
            if not n_changes:
                break
        # Sums in another order: a tie may look like a gain.
        if not score(self.model, labels) > score(self.model, before):
            labels[:] = before
        return labels


def climber_of(model):
    """The climber of a type of model."""
    if isinstance(model, FactorGraph):
        return FactorClimber(model)
    return RowsClimber(StoredRows(model)) if climbs_by_rows(model) else Climber(model)


def climbs_by_rows(model):
    """Whether this is a model on a lattice so large that its neighbours are better listed for some rows at a time."""
    return model.graph.n_nodes > 2 * _NODES_AT_ONCE and StoredRows.fit(model)


def climbed(model, labels):
    """Labels of no lower score that no change of one node improves."""
    # labels: (N,) int32, with a finite score; returns (N,) int32
    return climber_of(model).climb(labels.copy())
