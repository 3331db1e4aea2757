"""Losses of the marginals after a fixed number of sweeps, with costs of nodes, edges and factors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._options import options
from sklearn_crf.inference.messages._fixed_sweeps import FixedSweeps, SweepCosts
from sklearn_crf.models import (
    ExpandedFactors,
    FactorGraph,
    PairwiseModel,
    Statistics,
    check_labels,
    convert_to_pairwise_statistics,
    expand_factors,
    factor_graph_of,
    rescore,
)
from sklearn_crf.objectives._base import Loss, Objective


class JointCost(NamedTuple):
    """Costs of the joint states of the edges and factors of a batch, given their true labels."""

    pairs: np.ndarray  # (n_kinds, n_classes, n_classes) float64, cost of the states of both ends of an edge
    kind: np.ndarray  # (E,) int32, index into `pairs`, negative for edges without costs
    # (F,) cost of any wrong state of a factor, by the factor's index in the factor graph of the batch; 0 for nodes and
    # edges, and for factors with an unlabelled node
    factors: np.ndarray

    def charge_marginals(self, graph: FactorGraph, labels: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the expected costs of independent nodes, by first nodes, and their derivatives by the marginals."""
        # q: (N, K); returns: (N,) and (N, K)
        terms, slope, n_states = np.zeros(len(q)), np.zeros_like(q), q.shape[1]
        for factors, scope in graph.by_arity():
            cost, truth = self.factors[factors], labels[scope]
            others = np.repeat(cost[:, np.newaxis], scope.shape[1], axis=1)
            for axis, node in enumerate(scope.T):
                # The last label of an unlabelled factor is a valid index; its cost is zero.
                others[:, np.arange(scope.shape[1]) != axis] *= q[node, truth[:, axis]][:, np.newaxis]
            if scope.size:
                np.add.at(terms, scope[:, 0], cost - others[:, 0] * q[scope[:, 0], truth[:, 0]])
                np.subtract.at(slope, (scope, truth), others)
        charged = np.flatnonzero(self.kind >= 0)
        first, second = graph.scope[graph.scope_ptr[graph.n_nodes + charged][:, np.newaxis] + np.arange(2)].T
        tables = self.pairs[self.kind[charged], :n_states, :n_states]
        by_first, by_second = np.einsum("eab,eb->ea", tables, q[second]), np.einsum("eab,ea->eb", tables, q[first])
        np.add.at(terms, first, (q[first] * by_first).sum(axis=1))
        np.add.at(slope, first, by_first)
        np.add.at(slope, second, by_second)
        return terms, slope

    def charge_expanded(
        self, graph: FactorGraph, expanded: ExpandedFactors, labels: np.ndarray, nodes: np.ndarray
    ) -> tuple[np.ndarray, SweepCosts]:
        """Return labels and costs of the expanded model of a factor graph; ``nodes`` are the costs of its nodes."""
        # nodes: (N, n); returns: (N',) int32, -1 for nodes without costs; SweepCosts
        model, place = expanded.model, expanded.place
        known, costs = np.full(model.n_nodes, -1, dtype=np.int32), np.zeros((model.n_nodes, model.n_columns))
        known[place] = labels
        costs[place, : nodes.shape[1]] = nodes[:, : model.n_columns]
        of_factors, large = expanded.expand_labels(labels), iter(expanded.factors)
        n, ends, tables = nodes.shape[1], [], []
        for factors, scope in graph.by_arity():
            is_charged = self.factors[factors] > 0
            cost, scope = self.factors[factors[is_charged]], scope[is_charged]
            if scope.shape[1] == 2:
                wrong = np.broadcast_to(cost[:, np.newaxis, np.newaxis], (len(cost), n, n)).copy()
                wrong[np.arange(len(cost)), labels[scope[:, 0]], labels[scope[:, 1]]] = 0.0
                ends.append(scope)
                tables.append(wrong)
            elif scope.shape[1]:
                own = place[scope[:, 0]] if scope.shape[1] == 1 else next(large)[0][is_charged]
                truth = known[own] = of_factors[own]
                np.add.at(costs, own, cost[:, np.newaxis] * (np.arange(model.n_columns) != truth[:, np.newaxis]))
        charged = np.flatnonzero(self.kind >= 0)
        ends.append(graph.scope[graph.scope_ptr[graph.n_nodes + charged][:, np.newaxis] + np.arange(2)])
        tables.append(self.pairs[self.kind[charged]])
        return known, SweepCosts(costs, *_sum_by_edge(model, place[np.concatenate(ends)], np.concatenate(tables)))


def _sum_by_edge(model: PairwiseModel, ends: np.ndarray, tables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of tables on the same edge, and the index of the sum of each edge of a model, or -1."""
    # ends: (m, 2), the first and the second node of each table; tables: (m, n, n)
    low, high = ends.min(axis=1), ends.max(axis=1)
    tables = np.where((ends[:, 0] > ends[:, 1])[:, np.newaxis, np.newaxis], tables.transpose(0, 2, 1), tables)
    keys, place = np.unique(low.astype(np.int64) * model.n_nodes + high, return_inverse=True)
    sums = np.zeros((len(keys), *tables.shape[1:]))
    np.add.at(sums, place, tables)
    # Edges between two nodes of the factor graph lead from the lower to the higher node.
    of_edges = model.graph.edges.astype(np.int64) @ [model.n_nodes, 1]
    found = np.searchsorted(keys, of_edges)
    return sums, np.where(np.append(keys, -1)[found] == of_edges, found, -1).astype(np.int32)


def _build_sweep_costs(nodes: np.ndarray, joint: JointCost | None) -> SweepCosts:
    """Return the costs of the nodes and edges of a pairwise model."""
    # nodes: (N, n)
    if joint is None or not (joint.kind >= 0).any():
        return SweepCosts(nodes)
    return SweepCosts(nodes, joint.pairs, joint.kind)


def _make_zero_costs(graph: FactorGraph, n_classes: int) -> JointCost:
    return JointCost(np.zeros((0, n_classes, n_classes)), np.zeros(0, dtype=np.int32), np.zeros(graph.n_factors))


@options(kw_only=False)
class TruncatedLoss(Objective):
    r"""Loss of the marginals after a fixed number of sweeps.

    .. math:: \ell(\theta) = L\bigl(b^{(n)}(\theta), y\bigr), \qquad
        \nabla \ell = \Bigl(\frac{\partial b^{(n)}}{\partial \theta}\Bigr)^{\!\top} \frac{\partial L}{\partial b}

    The gradient is exact for the computed marginals, even if the sweeps have not converged. Unlabelled nodes do not
    contribute to the loss. Source: Domke 2013; Stoyanov, Ropson, Eisner 2011.
    """

    # inference: FixedSweeps; loss: "clique", "univariate", "quadratic" or "expected_cost"
    # cost: (K, K) for "expected_cost", cost[a, b] of state a if b is the label; None means 1 for each wrong state
    # Expected costs may include a JointCost of edges and factors, which every batch stores.
    # In a factor graph, "clique" is the negative log-probability of the labels of each factor of two or more nodes.
    # If a node of a factor is unlabelled, each labelled node of the factor counts separately.
    # The ``state`` of a result contains the structure of the graph.

    needs = frozenset({"marginals"})
    missing = "left out"
    takes_joint_cost = True
    # Without scaling, training on correlated edge features needs three times as many passes of all sweeps.
    gains_from_scaling = True

    inference: FixedSweeps
    loss: str = "clique"
    cost: np.ndarray | None = None

    @property
    def weighs_nodes(self) -> bool:  # type: ignore[override]  # a class attribute of most objectives
        """Whether the loss is a sum over nodes."""
        return self.loss != "clique"

    def loss_statistics(
        self,
        model: Any,
        labels: np.ndarray,
        *,
        state: Any = None,
        node_weight: Any = None,
        joint_cost: JointCost | None = None,
        n_threads: int = 1,
        **unused: Any,
    ) -> Loss:
        labels = check_labels(model, labels, may_miss=True)
        cost = None
        if self.loss == "expected_cost":
            cost = (1.0 - np.eye(model.n_columns) if self.cost is None else self.cost).T[labels]
        if self.inference.method == "mean_field" and (isinstance(model, FactorGraph) or joint_cost is not None):
            return self._compute_mean_field_loss(model, labels, node_weight, cost, joint_cost)
        if isinstance(model, FactorGraph):
            return self._compute_factor_loss(model, labels, state, node_weight, cost, joint_cost, n_threads)
        costs = None if cost is None else _build_sweep_costs(cost, joint_cost)
        return self._run(model, labels, node_weight, costs, n_threads)

    def _run(
        self, model: PairwiseModel, labels: np.ndarray, node_weight: Any, costs: SweepCosts | None, n_threads: int
    ) -> Loss:
        """Return the loss of a pairwise model."""
        found = self.inference.loss_through_sweeps(
            model, labels, self.loss, node_weight=node_weight, cost=costs, n_threads=n_threads
        )
        impossible = np.flatnonzero(np.isposinf(found.terms))
        if len(impossible):
            s = impossible[0]
            raise ValueError(f"labels[{s}] is {labels[s]}, which the scores of the node or of its edges forbid.")
        return Loss(
            statistics=Statistics(found.unary.astype(model.dtype), found.tables.sum(axis=0)),
            terms=found.terms,
            predicted=np.argmax(found.beliefs, axis=1).astype(np.int32),
        )

    def _compute_mean_field_loss(
        self, model: Any, labels: np.ndarray, node_weight: Any, cost: np.ndarray | None, joint_cost: JointCost | None
    ) -> Loss:
        """Return the loss of mean field, computed on the factor graph of a model."""
        graph = factor_graph_of(model)
        joint = None if joint_cost is None else lambda q: joint_cost.charge_marginals(graph, labels, q)
        terms, gradient, q = self.inference.mean_field_loss_of_factors(
            graph, labels, self.loss, node_weight, cost, joint
        )
        statistics: Any = gradient
        if isinstance(model, PairwiseModel):
            unary, n_states = np.zeros(model.unary.shape), graph.n_states
            unary[np.arange(model.n_columns) < n_states[:, np.newaxis]] = gradient.log_table[: n_states.sum()]
            statistics = Statistics(unary, convert_to_pairwise_statistics(model, gradient.log_table))
        return Loss(statistics, terms, np.argmax(q, axis=1).astype(np.int32))

    def _compute_factor_loss(
        self,
        model: FactorGraph,
        labels: np.ndarray,
        state: ExpandedFactors | None,
        node_weight: Any,
        cost: np.ndarray | None,
        joint_cost: JointCost | None,
        n_threads: int,
    ) -> Loss:
        """Return the loss of messages in the expanded model of a factor graph."""
        state, costs = expand_factors(model) if state is None else rescore(state, model), None
        known, weight = state.expand_labels(labels), np.ones(state.model.n_nodes)
        if not self.weighs_nodes:
            # A labelled factor counts once: through its auxiliary node, not through the edges to its nodes.
            weight[np.diff(state.model.graph.incidence.ptr) > 0] = 0.0
            for nodes, *_ in state.factors:
                weight[nodes] = known[nodes] >= 0
        else:
            # Only the nodes of the factor graph count, and auxiliary nodes of factors with costs.
            known = np.full(len(known), -1, dtype=np.int32)
            known[state.place] = labels
            if cost is None:
                weight[state.place] = 1.0 if node_weight is None else node_weight
            else:
                nodes = cost if node_weight is None else cost * np.asarray(node_weight)[:, np.newaxis]
                joint = _make_zero_costs(model, nodes.shape[1]) if joint_cost is None else joint_cost
                known, costs = joint.charge_expanded(model, state, labels, nodes)
        found = self._run(state.model, known, weight, costs, n_threads)
        assert found.terms is not None, "the loss is a sum over nodes"
        assert found.predicted is not None, "sweeps predict labels"
        terms = found.terms[state.place]
        for nodes, scope, *_ in state.factors:
            np.add.at(terms, scope[:, 0], found.terms[nodes])
        statistics: Any = state.pullback(model, found.statistics)
        return Loss(statistics, terms, found.predicted[state.place], state)
