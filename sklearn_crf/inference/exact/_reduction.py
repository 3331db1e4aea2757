"""Reduction of a factor graph by forbidden states and by nodes with only one allowed state."""

from itertools import pairwise

import numpy as np

from sklearn_crf._threads import cached_property
from sklearn_crf.inference._results import Infeasible
from sklearn_crf.models import DENSE, decode_cells


class Reduction:
    """Factors of a model over its free nodes, which have more than one allowed state."""

    def __init__(self, model):
        self.model = model
        self._mask = mask = _find_allowed_states(model)
        if not mask.any(axis=1).all():
            node = int(np.argmin(mask.any(axis=1)))
            raise Infeasible(f"model is infeasible: every state of node {node} is forbidden.")
        self.n_states = mask.sum(axis=1)
        self.is_free = self.n_states > 1

    @property
    def free_nodes(self) -> list:
        """Nodes with more than one allowed state, ascending."""
        return np.flatnonzero(self.is_free).tolist()

    @cached_property
    def states(self):
        """States that are allowed at each node, a list of arrays."""
        if self._has_all_states:
            known = {n: np.arange(n) for n in np.unique(self.n_states).tolist()}
            return [known[n] for n in self.n_states.tolist()]
        return [np.flatnonzero(row) for row in self._mask]

    @property
    def state_table(self) -> np.ndarray:
        """Allowed states, ascending, (N, K) int32; entries beyond a node's number of allowed states have no meaning."""
        return np.argsort(~self._mask, axis=1, kind="stable").astype(np.int32)

    @cached_property
    def scopes(self) -> list:
        """Free nodes of each factor, a list of lists."""
        ptr, scope = self.model.scope_ptr.tolist(), self.model.scope.tolist()
        free = self.is_free.tolist()
        return [[s for s in scope[a:b] if free[s]] for a, b in pairwise(ptr)]

    @cached_property
    def free_scopes(self) -> tuple:
        """Free nodes of each factor, as ptr (n_factors + 1,) int64 and nodes int32."""
        model = self.model
        if self.is_free.all():
            return model.scope_ptr, model.scope
        kept = self.is_free[model.scope]
        return np.concatenate(([0], np.cumsum(kept)))[model.scope_ptr], model.scope[kept]

    @cached_property
    def structure(self) -> tuple:
        """Key that is equal for models that differ only in their scores."""
        model = self.model
        fields = (model.n_states, model.scope, model.scope_ptr, model.table_id, model.table_ptr, model.table_kind)
        sparse = b"" if model.table_cell is None else model.table_cell.tobytes()
        states = b"" if self._has_all_states else self._mask.tobytes()
        return (*(field.tobytes() for field in fields), model.table_state.tobytes(), sparse, states)

    @property
    def _has_all_states(self) -> bool:
        return bool(np.all(self.n_states == self.model.n_states))

    def storage(self) -> tuple:
        """Return where the model stores the scores of :meth:`table`, as index arrays."""
        # returns start: for each factor, the index of its first score among the needed scores
        # Factors share scores if they share a table and their nodes have equal allowed states.
        # returns cells: index of each needed score in the concatenation of ``log_table`` and ``table_default``
        # ``cells`` is None if all scores of ``log_table`` are needed in order.
        model = self.model
        if self._has_all_states and np.all(model.table_kind == DENSE):
            return model.table_ptr[model.table_id], None
        _, set_of_states = np.unique(self._mask, axis=0, return_inverse=True)
        set_of_states = set_of_states.ravel()
        start, cells, known, n_cells = [], [], {}, 0
        for f, table in enumerate(model.table_id.tolist()):
            key = (table, *set_of_states[self.nodes(f)].tolist())
            if key not in known:
                own = self.cells(f)
                known[key] = n_cells
                cells.append(np.where(own < 0, model.log_table.size + table, own))
                n_cells += len(own)
            start.append(known[key])
        return np.array(start, dtype=np.int64), np.concatenate([*cells, np.zeros(0, dtype=np.int64)])

    def table(self, factor):
        """Return the scores of a factor's allowed joint states, float64, without axes for nodes with one state."""
        nodes = self.nodes(factor)
        model = self.model
        shape = [int(self.n_states[s]) for s in self.scopes[factor]]
        if model.table_kind[model.table_id[factor]] == DENSE:
            allowed = np.ix_(*(self.states[s] for s in nodes))
            return model.dense_table(factor)[allowed].astype(np.float64).reshape(shape)
        states = self._compute_joint_states(nodes)
        return model.factor_scores(np.full(len(states), factor), states).reshape(shape)

    def cells(self, factor):
        """Return the positions of the scores of :meth:`table`, (n_joint_states,) int64; -1 for the table's default."""
        nodes = self.nodes(factor)
        model = self.model
        table = model.table_id[factor]
        if model.table_kind[table] == DENSE:
            numbers = np.zeros(1, dtype=np.int64)
            for s in nodes:
                numbers = (numbers[:, None] * int(model.n_states[s]) + self.states[s]).ravel()
            return numbers + model.table_ptr[table]
        states = self._compute_joint_states(nodes)
        return model.cells(np.full(len(states), factor), states)

    def nodes(self, factor):
        """Return the nodes of a factor, free or not."""
        return self.model.scope[self.model.scope_ptr[factor] : self.model.scope_ptr[factor + 1]].tolist()

    def _compute_joint_states(self, nodes):
        n_states = self.n_states[nodes]
        places = decode_cells(np.arange(n_states.prod(dtype=np.int64)), n_states)
        states = np.empty_like(places)
        for k, node in enumerate(nodes):
            states[:, k] = self.states[node][places[:, k]]
        return states


def _find_allowed_states(model):
    """Return a mask (N, K) of the states that no single-node factor forbids."""
    mask = np.arange(model.n_columns) < model.n_states[:, None]
    scores = (model.log_table, model.table_default[model.table_kind != DENSE])
    if all(part.min(initial=0.0) > -np.inf for part in scores):
        return mask
    for factors, scope in model.by_arity():
        if scope.shape[1] == 1:
            row, state = np.nonzero(mask[scope[:, 0]])
            forbidden = np.isneginf(model.factor_scores(factors[row], state[:, None]))
            mask[scope[row[forbidden], 0], state[forbidden]] = False
    return mask
