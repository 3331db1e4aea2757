"""Exact inference on graphs of small tree width."""

import os
from collections import OrderedDict
from dataclasses import replace
from threading import Lock
from typing import ClassVar

import numpy as np
from sklearn.utils import check_random_state

from sklearn_crf._options import options
from sklearn_crf.graphs import Graph
from sklearn_crf.inference._base import Inference, at_least
from sklearn_crf.inference._results import Infeasible, Labeling, convert_factor_marginals
from sklearn_crf.inference.exact import _tuning
from sklearn_crf.inference.exact._copies import enumerate_copy_marginals, is_enumerated
from sklearn_crf.inference.exact._edge_marginals import EdgeMarginals, choose_edge_numbers
from sklearn_crf.inference.exact._elimination import EliminationPlan, Limits, index_type
from sklearn_crf.inference.exact._reduction import Reduction
from sklearn_crf.kernels.exact.junction_trees import return_marginals, send_maxima, send_sums, trace_maxima
from sklearn_crf.models import FactorGraph, PairwiseModel, factor_graph_of, score

_plans: "OrderedDict[bytes, EliminationPlan]" = OrderedDict()
_lock = Lock()


def _renew_lock() -> None:
    global _lock
    _lock = Lock()


# Renew the lock after a fork. If another thread held it at that moment, the child process would wait for it forever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def plan_of(problem, init, limits, keep):
    """Return the elimination plan of an earlier result, a cached plan of equal structure, or a new plan."""
    # init: state of an earlier result, or an elimination order
    if isinstance(init, EliminationPlan):
        if init.structure == problem.structure:
            init.require(limits, keep)
            return init
        init = init.order
    if init is not None:
        return EliminationPlan(problem, init, limits, keep)
    with _lock:
        plan = _plans.get(problem.structure)
        if plan is not None:
            _plans.move_to_end(problem.structure)
    if plan is not None:
        plan.require(limits, keep)
        return plan
    plan = EliminationPlan(problem, None, limits, keep)
    with _lock:
        _plans[plan.structure] = plan
        if len(_plans) > _tuning.MOST_PLANS:
            _plans.popitem(last=False)
    return plan


class Buckets:
    """Elimination with the scores of one model."""

    def __init__(self, problem: Reduction, plan: EliminationPlan) -> None:
        self.problem = problem
        self.plan = plan
        self._values = plan.values(problem.model)
        self._messages = np.empty(plan.n_messages)

    def best(self) -> np.ndarray:
        """Return the labels with the highest score."""
        # returns: (N,) int32
        plan = self.plan
        workspace = np.empty(int(plan.workspace["best"]))
        best = np.empty(plan.n_messages, dtype=index_type(plan.buckets[:, 0].max(initial=1)))
        send_maxima(plan.buckets, plan.parts, plan.axes, self._values, workspace, self._messages, best)
        self.terms()
        # best: for each cell of a bucket's message, the best state of the bucket's node
        plan, problem = self.plan, self.problem
        place = np.zeros(len(plan.n_states), dtype=np.int32)
        trace_maxima(plan.buckets, plan.nodes, plan.side_ptr, plan.side_nodes, plan.n_states, best, place)
        return problem.state_table[np.arange(len(place)), place]

    def _compute_joint_states(self, place, nodes, first):
        """Return the indices of the joint states of nodes, continuing from ``first``."""
        for node in nodes:
            first = first * int(self.plan.n_states[node]) + place[node]
        return first

    def sum_out(self) -> np.ndarray:
        """Send the sum-product messages, and return the terms of the log-partition."""
        # returns: (N,) float64
        plan = self.plan
        self._tables, self._products = np.empty(plan.n_tables), np.empty(plan.n_messages)
        self.is_log = np.zeros(len(plan.buckets), dtype=np.uint8)
        send_sums(
            plan.buckets,
            plan.parts,
            plan.axes,
            self._values,
            self._tables,
            self._products,
            np.empty(plan.n_shifts),
            self._messages,
            self.is_log,
        )
        return self.terms()

    def terms(self) -> np.ndarray:
        """Return, at each component's first node, its root message plus its fixed nodes' scores, (N,)."""
        # returns: (N,) float64
        plan, problem = self.plan, self.problem
        terms = np.zeros(problem.model.n_nodes)
        np.add.at(terms, plan.fixed_node, self._values[plan.fixed_start])
        np.add.at(terms, plan.root_node, self._messages[plan.root_message])
        if np.isneginf(terms).any():
            node = int(np.argmin(terms))
            message = f"model is infeasible: no labeling of the component of node {node} is allowed."
            raise Infeasible(message, proven=True)
        return terms

    def marginals(self) -> tuple:
        """Return marginals of nodes and of stored scores. Call :meth:`sum_out` first; its tables are overwritten."""
        # returns: unary: (N, K) float64, log_table: (n_cells,) float64, table_default: (T,) float64
        plan, problem = self.plan, self.problem
        nodes = np.empty(plan.n_own)
        values = np.bincount(plan.fixed_start, minlength=len(self._values)).astype(np.float64)
        return_marginals(
            plan.buckets,
            plan.parts,
            plan.axes,
            self._tables,
            self._products,
            self._messages,
            self.is_log,
            np.empty(int(plan.workspace["conditional"])),
            nodes,
            values,
        )
        unary = np.zeros((problem.model.n_nodes, problem.model.n_columns))
        unary[plan.fixed_states] = 1.0
        unary[plan.free_states] = nodes
        return unary, *plan.stored(problem.model, values)

    def draw(self, n_samples, rng):
        """Draw labelings from the distribution. Call :meth:`sum_out` first."""
        # returns: (n_samples, N) int32
        plan = self.plan
        place = np.zeros((len(plan.n_states), n_samples), dtype=np.int64)
        for k in range(len(plan.nodes) - 1, -1, -1):
            zero = np.zeros(n_samples, dtype=np.int64)
            left, right = (self._compute_joint_states(place, nodes, zero) for nodes in plan.sides(k))
            of_left, of_right = plan.tables(k, self._tables)
            rows, columns = of_left[left].T, of_right[:, right]
            if self.is_log[k]:
                scores = rows + columns
                weights = np.exp(scores - scores.max(axis=0))
            else:
                weights = rows * columns
            cumulated = np.cumsum(weights, axis=0)
            # Because of rounding errors, the last sum may be below one.
            # The draw must still be a state with positive probability.
            place[plan.nodes[k]] = (rng.uniform(size=n_samples) * cumulated[-1] >= cumulated).sum(axis=0)
        labels = np.empty((n_samples, len(place)), dtype=np.int32)
        for node, states in enumerate(self.problem.states):
            labels[:, node] = states[place[node]]
        return labels


@options(kw_only=False)
class JunctionTree(EdgeMarginals, Inference):
    r"""Exact inference by eliminating one node after the other, in the order of least fill.

    Let S be the neighbours of a node v when it is eliminated. The elimination sums a table over v and S,

    .. math::
        \psi_v(y_v, y_S) = \sum_{f} \theta_f(y) + \sum_{c} m_c(y), \qquad
        m_v(y_S) = \log \sum_{y_v} \exp \psi_v(y_v, y_S),

    of the factors f and messages c that contain v and were not used before. The message of the last node of a component
    is its log-partition. Marginals follow in a backward pass, :math:`P(y_v, y_S) = \exp(\psi_v - m_v) P(y_S)`. So do
    samples and, with maxima in place of sums, the best labeling. The tables are the cliques of a junction tree
    (Lauritzen and Spiegelhalter 1988). A table is not formed if f and c fall into two groups that only share the node
    v: sums over :math:`y_v` are then matrix products.

    Time and memory grow with the number of joint states of the largest clique. Nodes with only one allowed state
    (observed nodes) cost nothing: they are removed before the order is chosen. ``state`` of a result is the elimination
    order with all data that depend only on the structure. Either this state or an order can be passed as ``init`` (an
    array).

    Parameters
    ----------
    max_width : int, default=30
        Maximum width (number of nodes of the largest clique, minus one).
    max_memory : float, default=2**31
        Maximum size of the tables in bytes.

    Raises
    ------
    ValueError
        If ``map``, ``marginals`` or ``sample`` gets a model that exceeds the maximum width or memory; the error states
        the required values. Also if a model has no allowed labeling.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import JunctionTree
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> found = JunctionTree().marginals(model)
    >>> round(found.log_z, 3), found.bound
    (4.318, 'exact')
    >>> found.unary.round(3)
    array([[0.228, 0.772],
           [0.417, 0.583],
           [0.228, 0.772]])
    """

    tasks = frozenset({"map", "marginals", "sample"})
    exact_on = "any"
    takes = (PairwiseModel, FactorGraph)
    _ranges: ClassVar[dict] = {"max_width": at_least(0.0), "max_memory": at_least(0.0)}
    max_width: int = 30
    max_memory: float = 2**31

    def _edge_marginals(self, model, edges, init, n_threads):
        edges = choose_edge_numbers(model.graph, edges)
        if edges.size == 0:
            return np.zeros((0, model.n_columns, model.n_columns), dtype=model.dtype)
        # If each edge has its own table, derivatives with respect to a table are the marginals of its edge.
        own = np.arange(model.graph.n_edges)
        alone = replace(model, tables=model.edge_tables(), edge_type=own, edge_weight=None)
        return self._marginals(alone, init=init).tables[edges, 0].astype(model.dtype)

    def _build_buckets(self, model, init, keep):
        problem = Reduction(factor_graph_of(model))
        return Buckets(problem, plan_of(problem, init, Limits(self.max_width, self.max_memory), keep))

    def _count_cells(self, graph, n_states):
        """Return the number of table cells that elimination needs for a graph."""

        def counted():
            model = PairwiseModel(graph, np.zeros((graph.n_nodes, n_states)), np.zeros((1, n_states, n_states)))
            return self._build_buckets(model, None, "conditional").plan.n_cells.sum()

        return graph.keep(("cells of elimination", n_states, self.max_width, self.max_memory), counted)

    def joined_copies(self, graph: Graph, n_states: int) -> int:
        return _tuning.MOST_JOINED if is_enumerated(graph, n_states, self._count_cells) else 1

    def _map(self, model, *, init=None, n_threads=1):
        buckets = self._build_buckets(model, init, "best")
        labels = buckets.best()
        total = score(model, labels)
        return Labeling(labels, total, bound=total, state=buckets.plan)

    def _marginals(self, model, *, init=None, n_threads=1):
        if isinstance(model, PairwiseModel):
            found = enumerate_copy_marginals(model, self._count_cells)
            if found is not None:
                return found
        buckets = self._build_buckets(model, init, "conditional")
        terms = buckets.sum_out()
        return convert_factor_marginals(model, terms, *buckets.marginals(), bound="exact", state=buckets.plan)

    def _sample(self, model, n_samples, *, random_state=None, n_threads=1):
        rng = check_random_state(random_state)
        buckets = self._build_buckets(model, None, "conditional")
        buckets.sum_out()
        return buckets.draw(n_samples, rng)
