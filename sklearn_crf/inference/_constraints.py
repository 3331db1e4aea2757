"""What a model forbids, as constraints on pairs of nodes, on joint states and on counts."""

from typing import NamedTuple

import numpy as np

from sklearn_crf._numbers import n_joint_states
from sklearn_crf.models import COUNT, DENSE, SPARSE, FactorGraph, states_of_cells

# Nodes that an error lists.
_NAMED = 10

# Entries of all arrays together: a search in more takes gigabytes.
_MOST_ENTRIES = 2**26


class Infeasible(ValueError):
    """Raised by an algorithm that finds no labeling with a score above -inf.

    ``proven`` says that there is none. Otherwise the search for allowed labels has the last word.
    """

    def __init__(self, text, proven=False, nodes=()):
        # text: with {nodes} where the message lists nodes
        self.text, self.proven, self.nodes = text, proven, nodes
        super().__init__(self.text_from(0))

    def text_from(self, first):
        """Return the message with nodes numbered from one of them on, for a model that is a part of another one."""
        listed = ", ".join(str(node - first) for node in self.nodes[:_NAMED])
        more = f" and {len(self.nodes) - _NAMED} more" if len(self.nodes) > _NAMED else ""
        return self.text.format(nodes=listed + more)

    def __reduce__(self):
        return type(self), (self.text, self.proven, self.nodes)


class Refuted(Infeasible):
    """Raised by the search for allowed labels, with nodes that have none together."""

    def __init__(self, nodes):
        which = "labeling of nodes" if len(nodes) > 1 else "state of node"
        super().__init__(f"model is infeasible: every {which} {{nodes}} is forbidden.", True, nodes)

    def __reduce__(self):
        return type(self), (self.nodes,)


class TooManyConstraints(Exception):
    """Raised where constraints take too much memory."""


class Constraints(NamedTuple):
    """The arrays of ``ConstraintSearch``.

    A variable is a state of a node, numbered node by node. Nodes of the model come first; then follows one for each
    factor that lists its allowed joint states, whose states these are.
    """

    n_nodes: int  # of the model
    first: np.ndarray  # (M + 1,) int64, first variable of each node
    possible: np.ndarray  # (n_variables,) uint8
    preference: np.ndarray  # (n_variables,) float64
    ends: np.ndarray  # (2E,) int32, two nodes for each edge
    relation: np.ndarray  # (E,) int32
    weight: np.ndarray  # (E,) float64, of the scores of the relation
    shape: np.ndarray  # (2R,) int64, numbers of states of the two ends of each relation
    cell_ptr: np.ndarray  # (R,) int64
    cells: np.ndarray  # uint8, whether a pair of states is allowed
    scores: np.ndarray  # float64, of pairs of states
    clause_ptr: np.ndarray  # (C + 1,) int64
    clause: np.ndarray  # int32, variables that not all may be taken together
    count_ptr: np.ndarray  # (D + 1,) int64
    counted: np.ndarray  # int32, variables
    allowed_ptr: np.ndarray  # (D,) int64
    allowed: np.ndarray  # uint8, for each count whether 0, 1, ... of its variables may be taken
    listed_factors: list[np.ndarray]  # the nodes of each factor that is a node itself

    @property
    def n_entries(self):
        """Size of the arrays."""
        return sum(len(part) for part in self[1:-1])

    def active_nodes(self, nodes):
        """Nodes of the model, and the factors that have no other nodes, (M,) uint8."""
        # nodes: (n_nodes,) bool
        return np.array([*nodes, *(nodes[scope].all() for scope in self.listed_factors)], dtype=np.uint8)

    def nodes_of(self, involved):
        """Nodes of the model that are involved, by themselves or by a factor, (n_nodes,) bool."""
        nodes = involved[: self.n_nodes] > 0
        for scope, is_involved in zip(self.listed_factors, involved[self.n_nodes :], strict=True):
            if is_involved:
                nodes[scope] = True
        return nodes


def constraints_of(model):
    """The constraints of a PairwiseModel or a FactorGraph."""
    builder = _Builder(model)
    (builder.add_factors if isinstance(model, FactorGraph) else builder.add_edges)()
    return builder.constraints()


class _Builder:
    """Lists of arrays, put together in the end."""

    def __init__(self, model):
        self.model = model
        self.n_states, self.possible, self.preference = [], [], []
        self.ends, self.relation, self.weight, self.shape, self.scores = [], [], [], [], []
        self.clauses, self.clause_lengths, self.counted, self.count_lengths, self.allowed = [], [], [], [], []
        self.scopes = []
        self.n_entries, self.n_variables = 0.0, 0

    def constraints(self):
        def joined(parts, dtype):
            return np.concatenate([np.zeros(0, dtype=dtype), *(np.ravel(part) for part in parts)]).astype(dtype)

        def offsets(lengths):
            return np.concatenate(([0], np.cumsum(joined(lengths, np.int64)))).astype(np.int64)

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

    def _reserve(self, n_entries):
        self.n_entries += float(n_entries)
        if self.n_entries > _MOST_ENTRIES:
            raise TooManyConstraints

    def _add_nodes(self, n_states, possible, preference):
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

    def add_edges(self):
        model = self.model
        n_columns, unary = model.n_columns, model.unary
        self._add_nodes(np.full(len(unary), n_columns), ~np.isneginf(unary), unary)
        # Models with more than one feature of edges forbid no pairs.
        if model.tables.shape[1] > 1:
            return
        for table in model.tables[:, 0]:
            self._add_relation(table)
        self.ends.append(model.graph.edges)
        self.relation.append(model.edge_type)
        self.weight.append(np.ones(len(model.edge_type)) if model.edge_weight is None else model.edge_weight)

    def add_factors(self):
        model = self.model
        self.first = np.concatenate(([0], np.cumsum(model.n_states, dtype=np.int64)))
        self._reserve(self.first[-1])
        unary = np.zeros(self.first[-1])
        by_arity = {scope.shape[1]: (factors, scope) for factors, scope in model.by_arity()}
        if 1 in by_arity:
            factors, nodes = by_arity[1][0], by_arity[1][1][:, 0]
            row = np.repeat(np.arange(len(factors)), model.n_states[nodes])
            state = np.arange(len(row)) - np.searchsorted(row, row)
            scores = model.factor_scores(factors[row], state[:, None])
            np.add.at(unary, self.first[nodes[row]] + state, scores)
        self._add_nodes(model.n_states, ~np.isneginf(unary), unary)
        for arity, (factors, scope) in by_arity.items():
            if arity > 1:
                for table in np.unique(model.table_id[factors]):
                    self._add_table(table, scope[model.table_id[factors] == table])

    def _add_table(self, table, scopes):
        """Constraints of the factors of two and more nodes that have one table and arity."""
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
            pairs[tuple(states_of_cells(cells, n_states).T)] = scores
            self._add_pairs(scopes, pairs)
        elif not lists_all or (kind != SPARSE and 2 * is_allowed.sum() > len(is_allowed)):
            self._add_clauses(scopes, states_of_cells(cells[~is_allowed], n_states))
        else:
            self._add_listed(scopes, states_of_cells(cells[is_allowed], n_states), scores[is_allowed], n_states)

    def _add_pairs(self, scopes, scores):
        self.relation.append(np.full(len(scopes), self._add_relation(scores)))
        self.weight.append(np.ones(len(scopes)))
        self.ends.append(scopes)

    def _add_clauses(self, scopes, joint_states):
        """No factor may have one of some joint states."""
        # joint_states: (n, arity)
        self._reserve(len(scopes) * joint_states.size)
        self.clauses.append(self.first[scopes][:, None, :] + joint_states)
        self.clause_lengths.append(np.full(len(scopes) * len(joint_states), scopes.shape[1]))

    def _add_listed(self, scopes, joint_states, scores, n_states):
        """Every factor must have one of some joint states: each is a node that has these as its states."""
        n_listed = len(joint_states)
        self._reserve(2 * len(scopes) * max(n_listed, 1))
        nodes = self.n_nodes + len(self.scopes) + np.arange(len(scopes))
        self.scopes += list(scopes)
        self.n_states.append(np.full(len(scopes), max(n_listed, 1)))
        # A node has a state at least, though none may be possible.
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
            # The factor is a node of one state, which is always counted: it stands for those that never are.
            self.counted.append([self._add_factor(scope)])
            allowed = np.append(False, allowed)
        self.count_lengths.append([len(allowed) - 1])
        self.allowed.append(allowed)

    def _add_factor(self, scope):
        """A node of one state for a factor; its variable."""
        self.scopes.append(scope)
        self.n_states.append([1])
        self.possible.append([True])
        self.preference.append([0.0])
        self.n_variables += 1
        return self.n_variables - 1
