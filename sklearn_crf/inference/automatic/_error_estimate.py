"""Error estimate for belief propagation, by exact marginals in the neighbourhoods of some nodes."""

from itertools import count
from typing import Any

import numpy as np

from sklearn_crf.inference._base import convergence_left_to_caller, run_marginals_unchecked
from sklearn_crf.inference._results import Infeasible, Marginals
from sklearn_crf.inference.automatic import _tuning
from sklearn_crf.inference.automatic._cost import exact_inference
from sklearn_crf.inference.exact._junction_tree import JunctionTree
from sklearn_crf.inference.messages._belief_propagation import LoopyBP
from sklearn_crf.models import FactorGraph, PairwiseModel, extract_nodes, factor_graph_of


def estimate_error(model: PairwiseModel | FactorGraph, found: Marginals, inference: LoopyBP) -> float | None:
    r"""Return an upper estimate of the mean error of nodes, or of factors if larger; None if it would take too long.

    At a fixed point of belief propagation, the model equals a product of beliefs,

    .. math:: p(y) \propto \prod_s b_s(y_s) \prod_f \frac{b_f(y_f)}{\prod_{s \in f} b_s(y_s)},

    and beliefs equal marginals if cycles have no influence. Restricted to a set A of nodes, the product only contains
    the cycles in A, and can be summed exactly. The resulting marginal of the central node of A is compared with the
    result, by half the sum of absolute differences. For a large model, messages are recomputed on parts around these
    nodes, and their beliefs are compared instead of the result.

    The estimate is the mean difference, plus a margin for the choice of nodes (a one-sided confidence interval), plus
    a multiple of the mean change from sets of half the size, which stands for the cycles outside A.
    """
    n_nodes = model.n_nodes
    probes = np.random.default_rng(0).permutation(n_nodes)[: _tuning.N_PROBED_NODES]
    near = _find_neighbourhood(model, probes) if n_nodes else None
    if near is None:
        return None
    if not near.all():
        model, probes = extract_nodes(model, near), (np.cumsum(near) - 1)[probes]
    differences, changes = [], []
    try:
        beliefs = _Beliefs(factor_graph_of(model), inference)
        marginals = beliefs.nodes if not near.all() else [found.unary[s, : len(b)] for s, b in enumerate(beliefs.nodes)]
        for node in probes.tolist():
            factors, exact, rougher = beliefs.sum_around(node)
            weight, given = beliefs.weight[node], [marginals[node], *(beliefs.joint[f] for f in factors)]
            differences.append(_compare(given, exact, weight))
            changes.append(_compare(exact, rougher, weight))
    except Infeasible:
        # If messages have not converged, they may be inconsistent.
        return 1.0
    spread = np.std(differences, axis=0) * np.sqrt((n_nodes - len(probes)) / max(1, (n_nodes - 1) * (len(probes) - 1)))
    margin = _tuning.DEVIATIONS * spread + _tuning.CHANGES * np.mean(changes, axis=0)
    return min(1.0, float(np.max((np.mean(differences, axis=0) + margin) / (1.0, beliefs.weight.mean() or 1.0))))


def _compare(first: list[np.ndarray], second: list[np.ndarray], weight: float) -> tuple[float, float]:
    """Return half the sum of absolute differences of a node's marginals, and the weighted mean over its factors."""
    node, *factors = (0.5 * float(np.abs(a - b).sum()) for a, b in zip(first, second, strict=True))
    return node, weight * float(np.mean(factors)) if factors else 0.0


def _find_neighbourhood(model: PairwiseModel | FactorGraph, nodes: np.ndarray) -> np.ndarray | None:
    """Return a mask (N,) bool of nodes near the given nodes, or None if even two steps exceed the limits."""
    # nodes: indices of the given nodes
    if isinstance(model, FactorGraph):
        scope, owner = model.scope, np.repeat(np.arange(model.n_factors), model.arity)
        n_factors, sizes, of_node = model.n_factors, np.diff(model.table_ptr)[model.table_id], 0
    else:
        scope, owner = model.graph.edges.ravel(), np.repeat(np.arange(model.graph.n_edges), 2)
        n_factors, sizes, of_node = model.graph.n_edges, np.full(model.graph.n_edges, model.n_columns**2), 1
    near, found = np.zeros(model.n_nodes, dtype=bool), None
    near[nodes] = True
    for n_steps in count():
        is_inside = np.bincount(owner, ~near[scope], n_factors) == 0
        n_inside = is_inside.sum() + of_node * near.sum()
        if n_inside > _tuning.MOST_FACTORS or sizes[is_inside].sum() > _tuning.MOST_JOINT_STATES:
            break
        before, near = near, near.copy()
        near[scope[(np.bincount(owner, near[scope], n_factors) > 0)[owner]]] = True
        if np.array_equal(before, near):
            return before
        # At least two steps are needed, because a node and its neighbours contain hardly any cycle.
        found = before if n_steps > 1 else None
    return found


class _Beliefs:
    """Beliefs of the nodes and factors of a factor graph, with a separate table for each factor."""

    def __init__(self, graph, inference):
        ends = zip(graph.scope_ptr[:-1].tolist(), graph.scope_ptr[1:].tolist(), strict=True)
        scopes = [tuple(graph.scope[first:last].tolist()) for first, last in ends]
        factors = [(scope, graph.dense_table(f)) for f, scope in enumerate(scopes) if scope]
        own = FactorGraph.from_factors(graph.n_states, factors)
        with convergence_left_to_caller():
            found = run_marginals_unchecked(inference, own)
        self.n_states, self.scopes = graph.n_states, [scope for scope, _ in factors]
        self.nodes = [found.unary[s, :n].astype(np.float64) for s, n in enumerate(graph.n_states.tolist())]
        parts = np.split(found.statistics.log_table, own.table_ptr[1:-1])
        self.joint = [parts[t].reshape(graph.n_states[list(s)]) for t, s in zip(own.table_id, self.scopes, strict=True)]
        self.factors_of: list[list[int]] = [[] for _ in self.nodes]
        # Shares of nodes in a mean over factors.
        self.weight = np.zeros(len(self.nodes))
        for f, scope in enumerate(self.scopes):
            for s in scope:
                self.factors_of[s].append(f)
                self.weight[s] += (len(scope) > 1) / len(scope)

    def sum_around(self, node: int) -> tuple[Any, Any, Any]:
        """Compute marginals twice: by sums over a neighbourhood, and over a neighbourhood of half the size.

        Return the factors of the node inside both, and the marginals of the node and of these factors.
        """
        fewest = max(1, int(np.log(_tuning.MOST_PROBED_CELLS) / np.log(max(2, self.n_states.max()))))
        for size in (*_tuning.NEIGHBORHOOD_SIZES, fewest):
            ball = self._grow_ball(node, size)
            model = self._build_ball_model(ball)
            if size == fewest or exact_inference(model, budget=_tuning.MOST_PROBED_CELLS) is not None:
                break
        is_whole = set(ball).issuperset(t for s in ball for f in self.factors_of[s] for t in self.scopes[f])
        half = ball if is_whole else self._grow_ball(node, max(1, len(ball) // 2))
        factors = [f for f in self.factors_of[node] if len(self.scopes[f]) > 1 and set(half).issuperset(self.scopes[f])]
        exact = self._sum(ball, model, factors)
        return factors, exact, exact if is_whole else self._sum(half, self._build_ball_model(half), factors)

    def _sum(self, ball, model, factors):
        """Return the exact marginals of the first node of a ball and of some factors in the model of the ball."""
        found = run_marginals_unchecked(JunctionTree(), model)
        parts = np.split(found.statistics.log_table, model.table_ptr[1:-1])
        # Factors of the ball follow the scores of its nodes.
        inside = sorted({f for s in ball for f in self.factors_of[s] if len({*self.scopes[f]}.intersection(ball)) > 1})
        tables = [parts[model.table_id[len(ball) + inside.index(f)]].reshape(self.joint[f].shape) for f in factors]
        return [found.unary[0, : self.n_states[ball[0]]], *tables]

    def _grow_ball(self, node, size):
        ball, seen = [node], {node}
        for s in ball:
            for f in self.factors_of[s]:
                fresh = [t for t in self.scopes[f] if t not in seen]
                if len(ball) + len(fresh) > size:
                    return ball
                seen.update(fresh)
                ball += fresh
        return ball

    def _build_ball_model(self, ball):
        number = {s: k for k, s in enumerate(ball)}
        with np.errstate(divide="ignore"):
            factors: list = [((k,), np.log(self.nodes[s])) for k, s in enumerate(ball)]
            for f in sorted({f for s in ball for f in self.factors_of[s]}):
                inside = [axis for axis, s in enumerate(self.scopes[f]) if s in number]
                if len(inside) > 1:
                    scope = [self.scopes[f][axis] for axis in inside]
                    outside = tuple(set(range(len(self.scopes[f]))) - set(inside))
                    factors.append((tuple(number[s] for s in scope), self._compute_belief_ratio(f, scope, outside)))
        return FactorGraph.from_factors(self.n_states[ball], factors)

    def _compute_belief_ratio(self, f, scope, outside):
        """Return the logarithm of a factor's belief divided by its nodes' beliefs, or -inf if the belief is zero."""
        log_ratio = np.log(self.joint[f].sum(axis=outside))
        for axis, s in enumerate(scope):
            shape = [1] * len(scope)
            shape[axis] = -1
            own = np.where(self.nodes[s] > 0, self.nodes[s], 1.0)
            log_ratio = log_ratio - np.log(own).reshape(shape)
        return log_ratio
