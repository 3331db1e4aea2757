"""Contrastive sets of assignments, which are stored as differences from the true labeling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from sklearn_crf.kernels.learning.learning import (
    add_node_changes,
    add_pair_changes,
    add_pair_gains,
    list_pair_changes,
    node_gains,
    normalize_sets,
)
from sklearn_crf.models import FactorGraph, FactorStatistics, PairwiseModel, Statistics, check_labels


class Changes(NamedTuple):
    """Nodes where assignments differ from the true labeling, and the states of these nodes."""

    row: np.ndarray  # index of the assignment of each change, ascending from 0 without gaps
    node: np.ndarray  # index of the changed node, ascending within an assignment
    state: np.ndarray

    @property
    def ptr(self):
        """Bounds of the rows, (n_rows + 1,) int64. Row r has the entries from ptr[r] to ptr[r + 1]."""
        return np.searchsorted(self.row, np.arange(self.n_rows + 1))

    @property
    def n_rows(self):
        """Number of assignments."""
        return int(self.row[-1]) + 1 if len(self.row) else 0

    def chosen(self, rows):
        """Return the changes of the chosen assignments, which are renumbered from 0."""
        # rows: (n_rows,) bool, mask of the assignments to keep
        kept = rows[self.row]
        number = np.cumsum(rows) - 1
        return Changes(number[self.row[kept]], self.node[kept], self.state[kept])


def compute_pair_changes(model, truth, changes):
    """Compute how assignments change the statistics of tables, by a loop over the edges of changed nodes only."""
    # model: model whose graph, edge types and edge weights are read; scores are not read
    # truth: (N,) int32, the true labeling
    # returns three arrays with an element for each change: row, cell and difference
    # row: index of the assignment, ascending
    # cell: index in the flat tables, ``((type * R + feature) * K + tail state) * K + head state``
    # difference: by how much the assignment increases the number of uses of the table entry, weighted by edge weights
    n_types, n_features, n_columns = model.tables.shape[:3]
    n_cells, n_edges = n_types * n_features * n_columns**2, model.graph.n_edges
    node_ptr, neighbor, half_edge, _ = model.graph.incidence
    weight = np.ones((n_edges, n_features)) if model.edge_weight is None else model.edge_weight.astype(np.float64)
    n_most = 2 * n_features * int((node_ptr[changes.node + 1] - node_ptr[changes.node]).sum())
    counts, cells, change = np.zeros(changes.n_rows, dtype=np.int64), np.empty(n_most, dtype=np.int64), np.empty(n_most)
    n_entries = list_pair_changes(
        changes.node, changes.state, changes.ptr, truth, truth.copy(), node_ptr, neighbor, half_edge, model.edge_type,
        weight, n_columns, np.zeros(n_cells), np.full(n_cells, -1), counts, cells, change,
    )  # fmt: skip
    return np.repeat(np.arange(changes.n_rows), counts), cells[:n_entries], change[:n_entries]


def _compute_cell_changes(model, truth, changes):
    """Compute how assignments change the number of uses of each cell and each default score of a factor graph."""
    # returns the same three arrays as compute_pair_changes
    labels = np.repeat(truth[np.newaxis], changes.n_rows, axis=0)
    labels[changes.row, changes.node] = changes.state
    n_cells, parts = model.log_table.size, []
    for factors, scope in model.by_arity():
        row, place = np.nonzero((labels[:, scope] != truth[scope]).any(axis=2))
        touched, nodes = factors[place], scope[place]
        for states, sign in ((labels[row[:, np.newaxis], nodes], 1.0), (truth[nodes], -1.0)):
            cells = model.cells(touched, states)
            parts.append((row, np.where(cells >= 0, cells, n_cells + model.table_id[touched]), np.full(len(row), sign)))
    row, cell, change = map(np.concatenate, zip(*parts, strict=True))
    summed = sp.csr_array((change, (row, cell)), shape=(changes.n_rows, n_cells + model.n_tables))
    summed.eliminate_zeros()
    return np.repeat(np.arange(changes.n_rows), np.diff(summed.indptr)), summed.indices, summed.data


class _Rows:
    """Rows of different lengths, stored in flat columns; appended arrays are concatenated when columns are read."""

    def __init__(self, *dtypes):
        self._pieces = [[np.zeros(0, dtype=dtype)] for dtype in dtypes]
        self._ptr_pieces = [np.zeros(1, dtype=np.int64)]

    def append(self, row, n_rows, *columns):
        """Append the entries of ``n_rows`` new rows; ``row`` is the ascending index of each entry's row, from 0."""
        for pieces, column in zip(self._pieces, columns, strict=True):
            pieces.append(column.astype(pieces[0].dtype, copy=False))
        self._ptr_pieces.append(self._ptr_pieces[-1][-1] + np.cumsum(np.bincount(row, minlength=n_rows)))

    @property
    def columns(self):
        """Arrays with the entries of all rows, one array for each column."""
        return tuple(_join(pieces) for pieces in self._pieces)

    @property
    def nbytes(self):
        """Memory of all columns, in bytes."""
        return sum(column.nbytes for column in (*self.columns, self.ptr))

    @property
    def ptr(self):
        """Bounds of the rows, (n_rows + 1,) int64. Row r has the entries from ptr[r] to ptr[r + 1]."""
        return _join(self._ptr_pieces)


class AssignmentSets:
    r"""Sets of assignments for the examples of one batch; each set contains the true labels of its example.

    An assignment is stored by its differences from the truth: the states that it changes, and the changes in the
    numbers of uses of table entries. The smallest possible integer types are used. Scores and their adjoint only read
    these changes and do not pass over edges.

    Parameters
    ----------
    model : PairwiseModel or FactorGraph
        Model of the batch. Only the shapes of scores and tables are read.
    labels : array-like of shape (N,) of int
        True labels.
    node_ptr : array-like of shape (n_members + 1,), optional
        Nodes of example i are ``node_ptr[i]:node_ptr[i + 1]``; None means one example.
    generated_weight : float or array-like of shape (n_members,), default=1.0
        Positive weight of the set of generated assignments, for each example.

    Attributes
    ----------
    labels : ndarray of shape (N,), int32
    set_weight : ndarray of shape (n_sets,), float64
        Weight :math:`w_j` of each set.
    set_member : ndarray of shape (n_sets,), int32
        Index of the example of each set.

    Raises
    ------
    ValueError
        If ``generated_weight`` has a wrong shape or is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import AssignmentSets
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> sets = AssignmentSets(model, [1, 1, 1])
    >>> sets.add_set(model, [[1, 1, 1], [1, 0, 1], [0, 0, 0]])
    True
    >>> sets.set_weight.tolist(), sets.n_assignments
    ([1.0], 2)
    """

    def __init__(
        self,
        model: PairwiseModel,
        labels: np.ndarray,
        node_ptr: ArrayLike | None = None,
        generated_weight: float = 1.0,
    ):
        self.labels = check_labels(model, labels)
        n_nodes, self._n_columns = model.n_nodes, model.n_columns
        self._node_ptr = np.array([0, n_nodes]) if node_ptr is None else np.asarray(node_ptr, dtype=np.int64)
        self.set_weight = np.zeros(0)
        self.set_member = np.zeros(0, dtype=np.int32)
        self._own_set = np.full(len(self._node_ptr) - 1, -1, dtype=np.int32)
        self._own_weight = _check_weights(generated_weight, len(self._own_set))
        # _states has the codes ``node * n_columns + state`` of changed states.
        # _pairs has the codes of table entries, and the change in the number of uses of each entry.
        self._states = _Rows(_choose_code_type(n_nodes * self._n_columns))
        self._set_of = _Rows(np.int32, np.uint64)
        # Number that is added to the score difference of each assignment; None if no set has a proposal
        self._tilt: np.ndarray | None = None
        if isinstance(model, FactorGraph):
            n_codes, counted = model.log_table.size + model.n_tables, model.n_factors <= np.iinfo(np.int16).max
        else:
            # If all edges have weight one, an assignment uses a table entry at most once per edge.
            n_codes = model.tables.size
            counted = model.edge_weight is None and model.graph.n_edges <= np.iinfo(np.int16).max
        self._pairs = _Rows(_choose_code_type(n_codes), np.int16 if counted else model.dtype)

    @property
    def n_assignments(self) -> int:
        """Number of assignments in all sets, not counting the true labelings."""
        return len(self.set_of)

    @property
    def set_of(self) -> np.ndarray:
        """For each assignment that is not a true labeling, the index of its set."""
        return self._set_of.columns[0]

    @property
    def nbytes(self) -> int:
        """Memory of the assignments, in bytes."""
        tilt = () if self._tilt is None else (self._tilt,)
        kept = self._states, self._pairs, self._set_of, self.set_weight, self.set_member
        return sum(each.nbytes for each in (*kept, *tilt))

    # Adding assignments --------------------------------------------------------------------------------------------

    def add_set(
        self,
        model: PairwiseModel,
        labelings: ArrayLike,
        *,
        member: int = 0,
        weight: float = 1.0,
        log_proposal: ArrayLike | None = None,
    ) -> bool:
        r"""Add a new set of assignments of one example.

        A set without the truth is inactive: it is not part of the objective (Definition 2), and nothing is stored.
        Labelings that were drawn from a proposal q are weighted by its inverse:

        .. math::
            \ell = w \log \sum_{y \in S} \frac{q(y^*)}{q(y)} \exp\bigl(\mathrm{score}(y) - \mathrm{score}(y^*)\bigr)

        Parameters
        ----------
        model : PairwiseModel
            Model of the batch.
        labelings : array-like of shape (m, n) of int
            States of the nodes of the example in each assignment. An active set includes the truth.
        member : int, default=0
            Index of the example in the batch.
        weight : float, default=1.0
            Weight of the set, not negative.
        log_proposal : array-like of shape (m,), optional
            Logarithm of q of each labeling, including the truth, up to a common constant. Repeated labelings are then
            counted as several draws. Without ``log_proposal``, a set contains each labeling only once.

        Returns
        -------
        bool
            Whether the set is active.

        Raises
        ------
        ValueError
            If a labeling does not match the nodes of the example, the weight is negative or a proposal is not finite.
        """
        start, stop = self._node_ptr[member : member + 2]
        try:
            labelings = np.asarray(labelings)
        except ValueError:
            raise ValueError("labelings must be a rectangular array, got rows of different lengths.") from None
        if labelings.ndim != 2 or labelings.shape[1] != stop - start or labelings.dtype.kind not in "iub":
            raise ValueError(
                f"labelings must be integers of shape (m, {stop - start}), got {labelings.dtype} of shape "
                f"{labelings.shape}."
            )
        if labelings.size and not 0 <= labelings.min() <= labelings.max() < self._n_columns:
            raise ValueError(
                f"labelings must be between 0 and {self._n_columns - 1}, found {labelings.min()} to {labelings.max()}."
            )
        if isinstance(model, FactorGraph) and np.any(labelings >= model.n_states[start:stop]):
            raise ValueError("each label in labelings must be a state of its node.")
        if not 0 <= weight < np.inf:
            raise ValueError(f"weight must be finite and not negative, got {weight!r}.")
        if log_proposal is not None:
            labelings, log_weight = _weigh_draws(labelings, _check_proposal(log_proposal, len(labelings)))
        differs = labelings != self.labels[start:stop]
        changed = differs.any(axis=1)
        if changed.all() or not weight:
            return False
        tilt = None if log_proposal is None else log_weight[changed] - log_weight[~changed]
        number = self._open(member, weight)
        line, node = np.nonzero(differs[changed])
        changes = Changes(line, node + start, labelings[changed][line, node].astype(np.int32))
        set_of = np.full(int(changed.sum()), number, dtype=np.int32)
        self._append_new(model, changes, set_of, tilt, is_new_set=True)
        return True

    def extend(self, model: PairwiseModel, labels: np.ndarray, *, are_drawn: bool = False) -> int:
        r"""Add one assignment of each example to its set of generated assignments.

        Parameters
        ----------
        model : PairwiseModel
            Model of the batch.
        labels : array-like of shape (N,) of int
        are_drawn : bool, default=False
            Whether the labels were drawn from the model, with probability proportional to :math:`\exp(\mathrm{score})`.

        Returns
        -------
        int
            Number of examples for which the assignment is new and not the truth.
        """
        labels = check_labels(model, labels)
        node = np.flatnonzero(labels != self.labels)
        member = np.searchsorted(self._node_ptr, node, side="right") - 1
        members, row = np.unique(member, return_inverse=True)
        for k in members[self._own_set[members] < 0]:
            self._own_set[k] = self._open(k, self._own_weight[k])
        changes = Changes(row.astype(np.int64), node, labels[node])
        n_new = self._append_new(model, changes, self._own_set[members])
        if n_new and are_drawn:
            gains = self.gains(model)[-n_new:]
            # Forbidden assignments get a tilt of zero, because the model cannot have drawn them.
            self._tilt_last(np.where(np.isfinite(gains), -gains, 0.0))
        return n_new

    def _compute_tilts(self):
        """Return, for each assignment, log q of the truth minus log q of the assignment, or 0 without a proposal q."""
        known = np.zeros(0) if self._tilt is None else self._tilt
        return np.concatenate((known, np.zeros(self.n_assignments - len(known))))

    def _tilt_last(self, tilt):
        """Set the tilts of the last appended assignments, see :meth:`_compute_tilts`."""
        known = self._compute_tilts()
        known[len(known) - len(tilt) :] = tilt
        self._tilt = known

    def _open(self, member, weight):
        self.set_weight = np.append(self.set_weight, float(weight))
        self.set_member = np.append(self.set_member, np.int32(member))
        return len(self.set_weight) - 1

    def _append_new(self, model, changes, set_of, tilt=None, is_new_set=False):
        """Append assignments that are not yet in their sets, and return the number of appended assignments."""
        # tilt: (n_rows,), tilt of each assignment, or None
        if not changes.n_rows:
            return 0
        codes = changes.node * self._n_columns + changes.state
        fingerprints = _hash_assignments(codes, changes.row, set_of)
        new = np.zeros(len(set_of), dtype=bool)
        new[np.unique(fingerprints, return_index=True)[1]] = True
        if not is_new_set:
            new &= ~np.isin(fingerprints, self._set_of.columns[1])
        codes, changes = codes[new[changes.row]], changes.chosen(new)
        n_new = changes.n_rows
        if n_new:
            compute = _compute_cell_changes if isinstance(model, FactorGraph) else compute_pair_changes
            row, *pairs = compute(model, self.labels, changes)
            self._states.append(changes.row, n_new, codes)
            self._pairs.append(row, n_new, *pairs)
            self._set_of.append(np.arange(n_new), n_new, set_of[new], fingerprints[new])
            if tilt is not None:
                self._tilt_last(tilt[new])
        return n_new

    # Loss ----------------------------------------------------------------------------------------------------------

    def gains(self, model: PairwiseModel | FactorGraph) -> np.ndarray:
        """Return the scores of assignments minus the score of the true labeling.

        Parameters
        ----------
        model : PairwiseModel or FactorGraph

        Returns
        -------
        ndarray of shape (n_assignments,), float64

        Raises
        ------
        ValueError
            If the model forbids the truth.
        """
        if isinstance(model, FactorGraph):
            scores, gains = np.concatenate((model.log_table, model.table_default)), np.zeros(self.n_assignments)
            add_pair_gains(*self._pairs.columns, self._pairs.ptr, scores.astype(np.float64), gains)
            if np.all(gains < np.inf):
                return gains
            raise ValueError("the labels are forbidden by the scores of a factor.")
        unary = model.unary.astype(np.float64)
        true_scores = unary[np.arange(len(unary)), self.labels]
        if true_scores.min(initial=0.0) > -np.inf:
            unary_gain, tables = (unary - true_scores[:, None]).ravel(), model.tables.astype(np.float64).ravel()
            gains = np.empty(self.n_assignments)
            node_gains(*self._states.columns, self._states.ptr, unary_gain, gains)
            add_pair_gains(*self._pairs.columns, self._pairs.ptr, tables, gains)
            # Gains are infinite if the true labeling uses a forbidden pair of states.
            if np.all(gains < np.inf):
                return gains
        raise ValueError("the labels are forbidden by the scores of their states or of a pair of states.")

    def terms_and_statistics(self, model: PairwiseModel | FactorGraph) -> tuple[np.ndarray, Any]:
        r"""Compute the losses of all sets and their derivative; each loss belongs to the first node of its example.

        .. math::
            \ell = \sum_j w_j \log \sum_{y \in S_j} \frac{q_j(y^*)}{q_j(y)}
            \exp\bigl(\mathrm{score}(y) - \mathrm{score}(y^*)\bigr)

        Here :math:`q_j` is constant for sets without a proposal.

        Parameters
        ----------
        model : PairwiseModel or FactorGraph

        Returns
        -------
        terms : ndarray of shape (N,), float64
        statistics : Statistics or FactorStatistics
        """
        share, losses = self.gains(model), np.empty(len(self.set_weight))
        self.normalize(share, losses)
        terms = np.bincount(self._node_ptr[self.set_member], losses, minlength=len(self.labels))
        if isinstance(model, FactorGraph):
            sums = np.zeros(model.log_table.size + model.n_tables)
            add_pair_changes(*self._pairs.columns, self._pairs.ptr, share, sums)
            return terms, FactorStatistics(*np.split(sums, [model.log_table.size]))
        statistics = self._sum_statistics(share, model.tables.shape, model.dtype)
        return terms, statistics

    def _sum_statistics(self, share, shape_of_tables, dtype):
        """Sum ``share`` times the statistics relative to the truth over all assignments."""
        unary, tables = np.zeros((len(self.labels), self._n_columns)), np.zeros(shape_of_tables)
        add_node_changes(*self._states.columns, self._states.ptr, share, unary.reshape(-1))
        # A matrix product is faster than NumPy's sum over a short axis.
        unary[np.arange(len(unary)), self.labels] = -(unary @ np.ones(self._n_columns))
        add_pair_changes(*self._pairs.columns, self._pairs.ptr, share, tables.reshape(-1))
        return Statistics(unary.astype(dtype, copy=False), tables)

    def statistics_of_each(self, shape_of_tables: tuple[int, ...], dtype: Any, first: int = 0) -> Iterator[Statistics]:
        """Yield the statistics of each assignment minus the statistics of the true labeling.

        Parameters
        ----------
        shape_of_tables : tuple of int
        dtype : dtype
            Type of the statistics of nodes.
        first : int, default=0
            Index of the first assignment.

        Yields
        ------
        Statistics
        """
        for number in range(first, self.n_assignments):
            share = np.zeros(self.n_assignments)
            share[number] = 1.0
            yield self._sum_statistics(share, shape_of_tables, dtype)

    def normalize(self, gains: np.ndarray, losses: np.ndarray) -> None:
        """Compute the losses of sets, and replace gains of assignments by their weights in the derivative.

        Parameters
        ----------
        gains : ndarray of shape (n_assignments,), float64
            Scores minus the score of the truth. Overwritten by the weights of the assignments in the derivative.
        losses : ndarray of shape (n_sets,), float64
                Overwritten by the losses.
        """
        if self._tilt is not None:
            gains += self._compute_tilts()
        normalize_sets(self.set_of, self.set_weight, gains, np.empty(len(losses)), losses)


def _choose_code_type(n_codes):
    """Return the smallest integer type that kernels support and that can represent ``n_codes`` codes."""
    if n_codes > 2**32:
        raise ValueError(f"assignments need at most 2**32 states of nodes or entries of tables, got {n_codes}.")
    return np.uint16 if n_codes <= 2**16 else np.uint32


def _join(pieces):
    """Replace the arrays of a list by their concatenation, in place, and return the concatenation."""
    if len(pieces) > 1:
        pieces[:] = [np.concatenate(pieces)]
    return pieces[0]


def _check_weights(weight, n_members):
    weight = np.asarray(weight, dtype=np.float64)
    if weight.shape not in ((), (n_members,)):
        raise ValueError(f"generated_weight must be a number or have shape ({n_members},), got shape {weight.shape}.")
    if not np.all((weight > 0) & (weight < np.inf)):
        raise ValueError(f"generated_weight must be finite and positive, got {float(weight.min())!r}.")
    return np.broadcast_to(weight, n_members)


def _check_proposal(log_proposal, n_labelings):
    log_proposal = np.asarray(log_proposal, dtype=np.float64)
    if log_proposal.shape != (n_labelings,):
        raise ValueError(
            f"log_proposal must have shape ({n_labelings},), one number per labeling, got {log_proposal.shape}."
        )
    if not np.all(np.isfinite(log_proposal)):
        raise ValueError(
            "log_proposal must be finite: a labeling that the proposal cannot draw must not be in the set."
        )
    return log_proposal


def _weigh_draws(labelings, log_proposal):
    """Return the distinct labelings and, for each of them, the logarithm of the sum of 1 / q over its draws."""
    different, draw = np.unique(labelings, axis=0, return_inverse=True)
    log_weight = np.full(len(different), -np.inf)
    np.logaddexp.at(log_weight, draw.reshape(-1), -log_proposal)
    return different, log_weight


def _hash_numbers(numbers):
    """Return a 64-bit hash of each number, computed by the final mixing function of SplitMix64."""
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _hash_assignments(codes, row, set_of):
    """Return, for each assignment, a 64-bit hash: the sum of the hashes of its changes and of its set's index.

    The probability that any two of a million assignments have the same hash is 3e-8. One of the two is then omitted.
    """
    start = np.flatnonzero(np.diff(row, prepend=-1))
    # Invert the indices of sets bitwise, so that no index equals a code.
    return np.add.reduceat(_hash_numbers(codes), start) + _hash_numbers(~set_of.astype(np.int64))
