"""Bucket elimination: tables over a node and its later neighbours, passed upwards and back."""

from collections import OrderedDict
from threading import Lock

import numpy as np

from sklearn_crf.inference._elimination_plan import EliminationPlan, index_type
from sklearn_crf.kernels.elimination import return_marginals, send_maxima, send_sums

# Plans of the latest structures, which many examples may share: sentences of one length, images of one shape.
_MOST_PLANS = 64
_plans = OrderedDict()
_lock = Lock()


def plan_of(problem, init, limits, keep):
    """The plan for a problem: that of a former result, or of another problem of its structure, or a new one.

    Parameters
    ----------
    problem : Reduction
    init : EliminationPlan, array-like of int, or None
        State of a former result, or an order of elimination.
    limits : Limits
    keep : {"best", "conditional"}

    Returns
    -------
    EliminationPlan
    """
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
        if len(_plans) > _MOST_PLANS:
            _plans.popitem(last=False)
    return plan


class Buckets:
    """The buckets of one model.

    Parameters
    ----------
    problem : Reduction
    plan : EliminationPlan
    """

    def __init__(self, problem, plan):
        self.problem = problem
        self.plan = plan
        self._values = plan.values(problem.model)
        self._messages = np.empty(plan.n_messages)

    def best(self):
        """Labels of the highest score.

        Returns
        -------
        ndarray of shape (N,), int32
        """
        plan = self.plan
        room = np.empty(int(plan.room["best"]))
        best = np.empty(plan.n_messages, dtype=index_type(plan.buckets[:, 0].max(initial=1)))
        send_maxima(plan.buckets, plan.parts, plan.axes, self._values, room, self._messages, best)
        self.terms()
        return self._backward(1, lambda k, left, right: best[plan.message_cells(k, left, right)])[0]

    def sum_out(self):
        """Send the messages of sums.

        Returns
        -------
        terms : ndarray of shape (N,), float64
            As of :meth:`terms`.
        """
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

    def terms(self):
        """Message of the root of each component and scores of what is decided, at the component's first node.

        Returns
        -------
        ndarray of shape (N,), float64
        """
        plan, problem = self.plan, self.problem
        terms = np.zeros(problem.model.n_nodes)
        np.add.at(terms, plan.fixed_node, self._values[plan.fixed_start])
        np.add.at(terms, plan.root_node, self._messages[plan.root_message])
        if np.isneginf(terms).any():
            node = int(np.argmin(terms))
            raise ValueError(f"model is infeasible: no labeling of the component of node {node} is allowed.")
        return terms

    def marginals(self):
        """Marginals of nodes and of stored scores, after :meth:`sum_out`, whose tables are used up.

        Returns
        -------
        unary : ndarray of shape (N, K), float64
        log_table : ndarray of shape (n_cells,), float64
        table_default : ndarray of shape (T,), float64
        """
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
            np.empty(int(plan.room["conditional"])),
            nodes,
            values,
        )
        unary = np.zeros((problem.model.n_nodes, problem.model.n_columns))
        unary[plan.fixed_states] = 1.0
        unary[plan.free_states] = nodes
        return unary, *plan.stored(problem.model, values)

    def draw(self, n_samples, rng):
        """Labelings from the distribution, after :meth:`sum_out`.

        Parameters
        ----------
        n_samples : int
        rng : RandomState

        Returns
        -------
        ndarray of shape (n_samples, N), int32
        """

        def choose(k, left, right):
            of_left, of_right = self.plan.tables(k, self._tables)
            rows, columns = of_left[left].T, of_right[:, right]
            if self.is_log[k]:
                scores = rows + columns
                weights = np.exp(scores - scores.max(axis=0))
            else:
                weights = rows * columns
            cumulated = np.cumsum(weights, axis=0)
            # The last sum may fall short of one by rounding: the draw must still be a state of positive probability.
            return (rng.uniform(size=n_samples) * cumulated[-1] >= cumulated).sum(axis=0)

        return self._backward(n_samples, choose)

    def _backward(self, n_samples, choose):
        """States of all nodes, roots first: ``choose(k, left, right)`` gives those of bucket k for rows of its left
        table and columns of its right one.
        """
        plan, problem = self.plan, self.problem
        place = np.zeros((n_samples, len(problem.states)), dtype=np.int64)
        for k in range(len(plan.nodes) - 1, -1, -1):
            at = []
            for nodes in plan.sides[k]:
                joint = np.zeros(n_samples, dtype=np.int64)
                for node in nodes:
                    joint = joint * plan.n_states[node] + place[:, node]
                at.append(joint)
            place[:, plan.nodes[k]] = choose(k, *at)
        labels = np.empty(place.shape, dtype=np.int32)
        for node, states in enumerate(problem.states):
            labels[:, node] = states[place[:, node]]
        return labels
