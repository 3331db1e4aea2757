"""Search for labels that a model allows, with a proof of infeasibility if there are none."""

from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._numbers import n_joint_states, offsets_from_lengths
from sklearn_crf._threads import checkpoint
from sklearn_crf.inference import _tuning
from sklearn_crf.inference._local_search import Climber, Descent, improve_by_climbing, search_problem
from sklearn_crf.inference._results import Refuted
from sklearn_crf.kernels.local.local import ConstraintSearch
from sklearn_crf.models import COUNT, DENSE, SPARSE, FactorGraph, SmallFactors, compute_score_terms, decode_cells, score


class TooManyConstraints(Exception):
    """Error raised if the constraints would need too much memory."""


class Constraints(NamedTuple):
    """Constraints of a model, as arrays in the layout of ``ConstraintSearch``.

    A variable is a state of a node. Variables are numbered node by node. The nodes of the model come first. They are
    followed by an auxiliary node for each factor that lists its allowed joint states; these are the states of the
    auxiliary node.
    """

    n_nodes: int  # number of nodes of the model
    first: np.ndarray  # (M + 1,) int64, first variable of each node
    possible: np.ndarray  # (n_variables,) uint8
    preference: np.ndarray  # (n_variables,) float64
    ends: np.ndarray  # (2E,) int32, two nodes for each edge
    relation: np.ndarray  # (E,) int32
    weight: np.ndarray  # (E,) float64, factor by which the scores of the relation are multiplied
    shape: np.ndarray  # (2R,) int64, numbers of states of the two ends of each relation
    cell_ptr: np.ndarray  # (R,) int64
    cells: np.ndarray  # uint8, whether each pair of states is allowed
    scores: np.ndarray  # float64, scores of pairs of states
    clause_ptr: np.ndarray  # (C + 1,) int64
    clause: np.ndarray  # int32, variables of each clause, which must not all be true
    count_ptr: np.ndarray  # (D + 1,) int64
    counted: np.ndarray  # int32, variables of each count constraint
    allowed_ptr: np.ndarray  # (D,) int64
    allowed: np.ndarray  # uint8, for each count constraint, whether 0, 1, ... of its variables may be true
    listed_factors: list[np.ndarray]  # nodes of the model in each factor that has an auxiliary node

    @property
    def n_entries(self):
        """Total size of the arrays of all constraints."""
        return sum(len(part) for part in self[1:-1])

    def find_active_nodes(self, nodes):
        """Return a mask (M,) uint8 of the given nodes, and of auxiliary nodes whose factors only join given nodes."""
        # nodes: (n_nodes,) bool
        return np.array([*nodes, *(nodes[scope].all() for scope in self.listed_factors)], dtype=np.uint8)

    def nodes_of(self, involved):
        """Return a mask (n_nodes,) bool of the nodes that are marked or belong to a marked factor."""
        nodes = involved[: self.n_nodes] > 0
        for scope, is_involved in zip(self.listed_factors, involved[self.n_nodes :], strict=True):
            if is_involved:
                nodes[scope] = True
        return nodes


def build_constraints(model):
    """Return the constraints of a PairwiseModel or a FactorGraph."""
    builder = _Builder(model)
    (builder.add_factors if isinstance(model, FactorGraph) else builder.add_edges)()
    return builder.constraints()


class _Builder:
    """Builder of constraints, which collects lists of arrays."""

    def __init__(self, model):
        self.model = model
        self.n_states, self.possible, self.preference = [], [], []
        self.ends, self.relation, self.weight, self.shape, self.scores = [], [], [], [], []
        self.clauses, self.clause_lengths, self.counted, self.count_lengths, self.allowed = [], [], [], [], []
        self.scopes = []
        self.n_entries, self.n_variables = 0.0, 0

    def constraints(self) -> Constraints:
        def joined(parts, dtype):
            return np.concatenate([np.zeros(0, dtype=dtype), *(np.ravel(part) for part in parts)]).astype(dtype)

        def offsets(lengths):
            return offsets_from_lengths(joined(lengths, np.int64))

        return Constraints(
            n_nodes=self.n_nodes,
            first=offsets(self.n_states),
            possible=joined(self.possible, np.uint8),
            preference=joined(self.preference, np.float64),
            ends=joined(self.ends, np.int32),
            relation=joined(self.relation, np.int32),
            weight=joined(self.weight, np.float64),
            shape=joined(self.shape, np.int64),
            cell_ptr=offsets([np.prod(self.shape, axis=1)] if self.shape else [])[:-1],
            cells=~np.isneginf(joined(self.scores, np.float64)),
            scores=joined(self.scores, np.float64),
            clause_ptr=offsets(self.clause_lengths),
            clause=joined(self.clauses, np.int32),
            count_ptr=offsets(self.count_lengths),
            counted=joined(self.counted, np.int32),
            allowed_ptr=offsets([[len(part) for part in self.allowed]])[:-1],
            allowed=joined(self.allowed, np.uint8),
            listed_factors=self.scopes,
        )

    def _reserve(self, n_entries: int) -> None:
        self.n_entries += float(n_entries)
        if self.n_entries > _tuning.MOST_CONSTRAINT_ENTRIES:
            raise TooManyConstraints

    def _add_nodes(self, n_states: np.ndarray, possible: np.ndarray, preference: np.ndarray) -> None:
        self._reserve(possible.size)
        self.n_nodes = len(n_states)
        self.n_states.append(n_states)
        self.possible.append(possible)
        self.preference.append(preference)
        self.n_variables = possible.size

    def _add_relation(self, scores):
        self._reserve(2 * scores.size)
        self.shape.append(scores.shape)
        self.scores.append(scores)
        return len(self.shape) - 1

    def add_edges(self) -> None:
        model = self.model
        n_columns, unary = model.n_columns, model.unary
        self._add_nodes(np.full(len(unary), n_columns), ~np.isneginf(unary), unary)
        # Models with several edge features do not support forbidden pairs.
        if model.tables.shape[1] > 1:
            return
        for table in model.tables[:, 0]:
            self._add_relation(table)
        self.ends.append(model.graph.edges)
        self.relation.append(model.edge_type)
        self.weight.append(np.ones(len(model.edge_type)) if model.edge_weight is None else model.edge_weight)

    def add_factors(self) -> None:
        model = self.model
        self.first = offsets_from_lengths(model.n_states)
        self._reserve(self.first[-1])
        scores = SmallFactors(model).node_scores(model, model.n_columns)
        unary = scores[np.arange(model.n_columns) < model.n_states[:, None]]
        self._add_nodes(model.n_states, ~np.isneginf(unary), unary)
        for factors, scope in model.by_arity():
            if scope.shape[1] > 1:
                for table in np.unique(model.table_id[factors]):
                    self._add_table(table, scope[model.table_id[factors] == table])

    def _add_table(self, table, scopes):
        """Add the constraints of all factors on two or more nodes that have the given table."""
        model = self.model
        scores = model.log_table[slice(*model.table_ptr[table : table + 2])]
        kind, default = model.table_kind[table], float(model.table_default[table])
        is_hard = np.isneginf(scores).any() or (kind != DENSE and np.isneginf(default))
        if not is_hard and scopes.shape[1] > 2:
            return
        if kind == COUNT:
            for scope in scopes:
                self._add_count(scope, int(model.table_state[table]), scores, default)
            return
        n_states = model.n_states[scopes[0]]
        if kind == DENSE:
            cells, is_allowed = np.arange(scores.size), ~np.isneginf(scores)
        else:
            cells, is_allowed = model.table_cell[slice(*model.table_ptr[table : table + 2])], ~np.isneginf(scores)
        lists_all = kind == DENSE or np.isneginf(default)
        if len(n_states) == 2:
            self._reserve(n_joint_states(n_states))
            pairs = np.full(n_states, default)
            pairs[tuple(decode_cells(cells, n_states).T)] = scores
            self._add_pairs(scopes, pairs)
        elif not lists_all or (kind != SPARSE and 2 * is_allowed.sum() > len(is_allowed)):
            joint_states = decode_cells(cells[~is_allowed], n_states)  # (n, arity)
            self._reserve(len(scopes) * joint_states.size)
            self.clauses.append(self.first[scopes][:, None, :] + joint_states)
            self.clause_lengths.append(np.full(len(scopes) * len(joint_states), scopes.shape[1]))
        else:
            self._add_listed(scopes, decode_cells(cells[is_allowed], n_states), scores[is_allowed], n_states)

    def _add_pairs(self, scopes, scores):
        self.relation.append(np.full(len(scopes), self._add_relation(scores)))
        self.weight.append(np.ones(len(scopes)))
        self.ends.append(scopes)

    def _add_listed(self, scopes, joint_states, scores, n_states):
        """For each factor, add an auxiliary node whose states are the joint states that the factor allows."""
        n_listed = len(joint_states)
        self._reserve(2 * len(scopes) * max(n_listed, 1))
        nodes = self.n_nodes + len(self.scopes) + np.arange(len(scopes))
        self.scopes += list(scopes)
        self.n_states.append(np.full(len(scopes), max(n_listed, 1)))
        # Every node needs at least one state, even an impossible one.
        self.possible.append(np.full(len(scopes) * max(n_listed, 1), n_listed > 0))
        self.preference.append(np.tile(scores if n_listed else [0.0], len(scopes)))
        self.n_variables += len(scopes) * max(n_listed, 1)
        for k, n in enumerate(n_states if n_listed else ()):
            agree = np.where(joint_states[:, k, None] == np.arange(n), 0.0, -np.inf)
            self._add_pairs(np.stack((nodes, scopes[:, k]), axis=1), agree)

    def _add_count(self, scope, state, scores, default):
        model = self.model
        nodes = scope[model.n_states[scope] > state]
        by_count = np.full(len(nodes) + 1, default)
        n_listed = min(len(scores), len(by_count))
        by_count[:n_listed] = scores[:n_listed]
        self._reserve(2 * len(nodes))
        self.counted.append(self.first[nodes] + state)
        allowed = ~np.isneginf(by_count)
        if len(nodes) < len(scope):
            # An auxiliary node represents the nodes without the counted state. Its single state always counts.
            # The constraint is thus only active if all nodes of the factor are active.
            self.scopes.append(scope)
            self.n_states.append([1])
            self.possible.append([True])
            self.preference.append([0.0])
            self.n_variables += 1
            self.counted.append([self.n_variables - 1])
            allowed = np.append(False, allowed)
        self.count_lengths.append([len(allowed) - 1])
        self.allowed.append(allowed)


def is_feasible(model, labels):
    """Return whether all nodes, edges and factors have scores above -inf for a labeling."""
    return not np.isneginf(compute_score_terms(model, labels)).any()


def search_allowed_labels(model, labels):
    """Return labels with a score above -inf near the given labels, or None if the search gave up."""
    # labels: (N,) int32
    # returns (N,) int32 or None; raises Refuted if there are no allowed labels
    found = find_nearest_allowed(model, labels)
    return found if is_feasible(model, found) else None


def find_nearest_allowed(model, labels):
    """Return allowed labels or, if the search finds none, labels that violate as few constraints as possible.

    Labels of a pairwise model are first repaired node by node. Then a search with constraint propagation and clause
    learning decides one node after another. There are two runs of the search. The first run prefers the given labels.
    The second run prefers the states with the highest scores, including possible contributions of neighbours, and first
    decides the nodes that clearly prefer a state. The better result is returned. A search ends with labels, with a
    proof that there are none, or after a fixed number of steps.
    """
    # labels: (N,) int32, or None
    # returns (N,) int32; raises Refuted if there are no allowed labels
    if labels is None:
        labels = search_problem(model)[1].argmax(axis=1).astype(np.int32)
    if is_feasible(model, labels):
        return labels
    if not isinstance(model, FactorGraph):
        labels = _repair(model, labels)
        if is_feasible(model, labels):
            return labels
    try:
        constraints = build_constraints(model)
    except TooManyConstraints:
        return _minimise_violations(model, [labels])
    first, found, n_steps = _search(constraints, labels, _tuning.MOST_STEPS)
    if not found:
        return _minimise_violations(model, [labels, first])
    second, found, _ = _search(constraints, labels, 2 * n_steps + _tuning.STEPS_OF_SCORES, by_scores=True)
    candidates = [improve_by_climbing(model, part) for part in ([first, second] if found else [first])]
    return max(candidates, key=lambda labels: score(model, labels))


def _repair(model, labels):
    """Remove violations of constraints by sweeps over the nodes, and return the labels."""
    labels = labels.copy()
    for n_changed in islice(Climber(model).sweeps(labels), _tuning.REPAIR_SWEEPS):
        if not n_changed or is_feasible(model, labels):
            break
    return labels


def _search(constraints: Constraints, guide: np.ndarray, most_steps: float, by_scores: bool = False) -> tuple:
    """Run the search; return labels, whether they are allowed, and the number of steps."""
    search, labels, involved = _run(constraints, guide, None, most_steps, by_scores)
    status = search.finish(labels, involved)
    if status == _REFUTED:
        raise Refuted(np.flatnonzero(_find_conflict_core(constraints, involved, search.work)).tolist())
    return labels[: constraints.n_nodes], status == _FOUND, search.work


_FOUND, _REFUTED = 1, 2


def _run(constraints, guide, nodes, most_steps, by_scores=False):
    """Run a search among the given nodes (None for all); return the search and the arrays that hold its results."""
    n_all = len(constraints.first) - 1
    start = np.zeros(n_all, dtype=np.int32)
    start[: constraints.n_nodes] = guide
    active = np.ones(n_all, dtype=np.uint8) if nodes is None else constraints.find_active_nodes(nodes)
    search = ConstraintSearch(constraints, start, active, by_scores)
    while not search.advance(min(_tuning.STEPS_OF_A_CALL, int(most_steps - search.work) + 1)):
        if search.work >= most_steps:
            break
        checkpoint()
    return search, start, np.zeros(n_all, dtype=np.uint8)


def _find_conflict_core(constraints, involved, n_steps):
    """Return a mask (N,) bool of a small set of nodes for which no joint labeling is allowed."""
    nodes = constraints.nodes_of(involved)
    left = _tuning.STEPS_OF_A_PROOF - constraints.n_entries
    guide, most_steps = np.zeros(constraints.n_nodes, dtype=np.int32), 2 * n_steps + 1000

    def try_with(fewer):
        nonlocal left
        search, labels, involved = _run(constraints, guide, fewer, min(most_steps, left))
        left -= search.work + constraints.n_entries
        return constraints.nodes_of(involved) if search.finish(labels, involved) == _REFUTED else None

    while left > 0:
        fewer = try_with(nodes)
        if fewer is None or fewer.sum() == nodes.sum():
            break
        nodes = fewer
    if nodes.sum() <= _tuning.NODES_LEFT_OUT:
        for node in np.flatnonzero(nodes):
            if nodes[node] and left > 0:
                without = nodes.copy()
                without[node] = False
                fewer = try_with(without)
                nodes = nodes if fewer is None else fewer
    return nodes


def _minimise_violations(model, candidates):
    """Improve labelings by hill climbing; return the labeling with the fewest violations."""
    descent = Descent(model)
    found: list[Any] = []
    for labels in candidates:
        labels = np.array(labels, dtype=np.int32)
        descent.climb(labels)
        found.append((_count_violations(model, labels), len(found), labels))
    return min(found)[2]


def _count_violations(model, labels):
    """Return the number of nodes and edges (in a factor graph, of factors) whose score is -inf."""
    if isinstance(model, FactorGraph):
        groups = model.by_arity()
        return sum(int(np.isneginf(model.factor_scores(factors, labels[scope])).sum()) for factors, scope in groups)
    tails, heads = model.graph.edges.T
    pairs = model.tables[model.edge_type, 0, labels[tails], labels[heads]]
    return int(np.isneginf(pairs).sum() + np.isneginf(model.unary[np.arange(len(labels)), labels]).sum())
