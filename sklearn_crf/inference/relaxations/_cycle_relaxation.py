"""Relaxation over the inequalities of all cycles, for models with two states."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog
from scipy.sparse.csgraph import breadth_first_order, dijkstra, minimum_spanning_tree

from sklearn_crf._numbers import n_joint_states
from sklearn_crf._options import options
from sklearn_crf._reports import warn_unconverged
from sklearn_crf._threads import checkpoint
from sklearn_crf.graphs import Graph
from sklearn_crf.inference._base import Inference, at_least
from sklearn_crf.inference._local_search import improve_by_climbing
from sklearn_crf.inference._proofs import Proof
from sklearn_crf.inference._relaxed_problem import ProgramRows
from sklearn_crf.inference._results import Infeasible, Labeling
from sklearn_crf.inference.relaxations import _tuning
from sklearn_crf.models import FactorGraph, PairwiseModel, pairwise_model_of, score

# Tolerance: a path that is shorter than 1 by more than this violates an inequality.
# Values that are this close to 0 or 1 count as integers.
_TOLERANCE = 1e-7

# The largest cost is scaled to this value, because the solver's tolerances are absolute.
_LARGEST_COST, _LEAST_WEIGHT = 2.0**10, 1e-300


@options(kw_only=False)
class CycleRelaxation(Inference):
    r"""Best labelings with a proof for models with two states, by linear programs over the inequalities of cycles.

    Let :math:`x_{st} = [y_s \ne y_t]`. If scores distinguish the two states, add a node of state 0. The score of a
    labeling is then linear in :math:`x`, and has the relaxation

    .. math::
        \max_{0 \le x \le 1} \; c - 2 \sum_{st} w_{st} x_{st} \quad \text{subject to} \quad
        \sum_{st \in F} x_{st} - \sum_{st \in C \setminus F} x_{st} \le |F| - 1

    for all cycles :math:`C` and all sets :math:`F` of an odd number of their edges, because labels change an even
    number of times along a cycle. Inequalities that a solution violates are found by shortest paths, and added until
    the solution violates none. The relaxation is tight on planar graphs without unary scores (Barahona and Mahjoub
    1986), and mostly on grids with couplings of both signs and weak unary scores. If it is not tight, labels are taken
    from the edges that are closest to integers, and improved by changing one node at a time.

    In a factor graph, the program also has a variable for each joint state of each factor of more than two nodes: the
    probability of the joint state. The probabilities agree with the variables :math:`x` of all pairs of the factor's
    nodes.

    The bound is recomputed from the dual variables, so it is valid whatever the tolerances of the solver.

    Parameters
    ----------
    max_iter : int, default=200
        Maximum number of linear programs.
    max_work : float, default=inf
        Work after which no further linear program is solved: the squared number of simplex iterations, summed over
        programs. 50 million take one to two seconds.

    Raises
    ------
    ValueError
        If ``map`` gets a model with more than two states, or more than 100,000 nodes, edges and joint states of factors
        together.

    See Also
    --------
    ClusterTightening : Allows any number of states and factors of any arity.
    GraphCut : Finds best labels by a minimum cut, which is exact if every edge is submodular.

    Notes
    -----
    A grid of 40 x 40 nodes takes seconds, and a grid of 80 x 80 nodes takes minutes: the time grows faster than the
    model.

    References
    ----------
    F. Barahona and A. R. Mahjoub. On the cut polytope. Mathematical Programming 36, 1986. D. Sontag and T. Jaakkola.
    New outer bounds on the marginal polytope. NIPS 2007.

    Examples
    --------
    Three nodes that each should differ from the other two, but have two states only:

    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import TRWS, CycleRelaxation
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(triangle, np.zeros((3, 2)), 1 - np.eye(2)[None])
    >>> found = CycleRelaxation().map(model)
    >>> round(found.score, 6), found.certified, round(TRWS().map(model).bound, 6)
    (2.0, True, 3.0)
    """

    tasks = frozenset({"map"})
    takes = (PairwiseModel, FactorGraph)
    _starts_from: ClassVar[tuple[type, ...]] = ()
    exact_on = "forest"
    _ranges: ClassVar[dict] = {"max_work": at_least(0.0)}
    max_iter: int = 200
    max_work: float = np.inf

    def _check_model(self, model: PairwiseModel | FactorGraph) -> None:
        super()._check_model(model)
        if model.n_columns > 2:
            raise ValueError(
                f"CycleRelaxation needs nodes with two states, got {model.n_columns}: use ClusterTightening, which "
                "supports any number of states."
            )
        if not self.fits(model):
            raise ValueError(
                f"model has {_count_variables(model)} nodes, edges and joint states of larger factors, but "
                f"CycleRelaxation supports at most {_tuning.MOST_EDGES} of them together: use TRWS, or MPLP for "
                "factors."
            )

    @staticmethod
    def fits(model: PairwiseModel | FactorGraph) -> bool:
        """Return whether a model is small enough and has at most two states.

        Parameters
        ----------
        model : PairwiseModel or FactorGraph

        Returns
        -------
        bool
        """
        return bool(model.n_columns <= 2 and _count_variables(model) <= _tuning.MOST_EDGES)

    def _map(self, model, *, init=None, n_threads=1):
        cuts = None if model.n_columns < 2 else _open_cuts(model)
        if cuts is None or not len(cuts.weight):
            any_labels = np.zeros(model.n_nodes, dtype=np.int32)
            best = score(model, any_labels)
            return Labeling(any_labels, best, bound=best)
        program = _CycleProgram(cuts)
        most = 1 if model.n_states is None else model.n_states - 1
        labels: Any = None
        best, bound = -np.inf, np.inf
        n_iter, converged, proof = 0, False, Proof(model)
        while n_iter < self.max_iter and not (converged or (n_iter and program.work >= self.max_work)):
            checkpoint()
            n_iter += 1
            cut, reached = program.solve()
            bound = min(bound, reached)
            offered = improve_by_climbing(model, np.minimum(cuts.labels(cut), most))
            value = score(model, offered)
            if labels is None or value > best:
                best, labels = value, offered
            converged = proof.closes(best, bound) or not program.add_violated(cut)
        if not converged:
            warn_unconverged(
                f"CycleRelaxation stopped after {n_iter} linear programs, but the last solution violates cycle "
                f"constraints, with a gap of {bound - best:.3g} between bound and score: increase max_iter (now "
                f"{self.max_iter}) or max_work (now {self.max_work:g})."
            )
        return Labeling(labels, best, bound=max(bound, best), n_iter=n_iter, converged=converged)


def _count_variables(model: Any) -> int:
    """Return the number of nodes, edges and joint states of factors of more than two nodes."""
    if isinstance(model, PairwiseModel):
        return model.graph.n_nodes + model.graph.n_edges
    large = [scope for _, scope in model.by_arity() if scope.shape[1] > 2]
    n_cells = sum(n_joint_states(model.n_states[scope], axis=1).sum() for scope in large)
    return model.n_nodes + np.count_nonzero(model.arity == 2) + int(min(n_cells, _tuning.MOST_EDGES + 1))


def choose_cycle_relaxation(model: PairwiseModel, most: float) -> CycleRelaxation | None:
    """Return the relaxation with a limited work, or None if the model is too large or a proof unlikely."""
    # most: maximum number of nodes and edges together
    n_nodes, n_edges = model.graph.n_nodes, model.graph.n_edges
    is_small = n_nodes + n_edges <= min(most, _tuning.MOST_EDGES) and n_edges <= _tuning.MOST_EDGES_OF_NODE * n_nodes
    return CycleRelaxation(max_work=_tuning.WORK_OF_CYCLES) if is_small and model.n_columns == 2 else None


class _Cuts:
    """Scores of a two-state model as a function of cut edges: constant + sum of weight * (1 - 2 cut)."""

    def __init__(self, model: PairwiseModel, factors: Sequence[tuple[np.ndarray, np.ndarray]] = ()) -> None:
        # factors: nodes and table of each factor of more than two nodes, whose pairs are edges of the model
        self.factors = factors
        graph, tables = model.graph, model.edge_tables().astype(np.float64)
        unary = model.unary.astype(np.float64)
        self.n_nodes, self.forbidden_states = graph.n_nodes, np.isneginf(unary)
        self.forbidden_pairs = np.argwhere(np.isneginf(tables))
        unary[self.forbidden_states] = tables[np.isneginf(tables)] = 0.0
        # With spins +1 and -1: score = constant + sum of field * spin + sum of coupling * spin * spin.
        coupling = (tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]) / 4
        field = (unary[:, 0] - unary[:, 1]) / 2
        np.add.at(field, graph.edges[:, 0], (tables[:, 0, 0] + tables[:, 0, 1] - tables[:, 1, 0] - tables[:, 1, 1]) / 4)
        np.add.at(field, graph.edges[:, 1], (tables[:, 0, 0] + tables[:, 1, 0] - tables[:, 0, 1] - tables[:, 1, 1]) / 4)
        self.constant = unary.sum() / 2 + tables.sum() / 4
        self.graph, self.weight = graph, coupling
        # The additional node has spin +1, so that a field is a coupling to it.
        self.has_root = bool(field.any() or self.forbidden_states.any() or len(self.forbidden_pairs) or factors)
        if self.has_root:
            to_root = np.stack((np.arange(self.n_nodes), np.full(self.n_nodes, self.n_nodes)), axis=1)
            self.graph = Graph(self.n_nodes + 1, np.concatenate((graph.edges, to_root)))
            self.weight = np.concatenate((coupling, field))

    def labels(self, cut: np.ndarray) -> np.ndarray:
        """Return the labels along a spanning forest of the edges whose cut variables are closest to 0 or 1."""
        n = self.graph.n_nodes
        edges, differ = self.graph.edges, np.rint(cut).astype(np.int32)
        # Add 1, because entries of zero would not count as edges.
        doubt = sp.csr_matrix((1.0 + np.abs(cut - differ), edges.T), shape=(n, n))
        surest = minimum_spanning_tree(doubt)
        changes = sp.csr_matrix((differ + 1, edges.T), shape=(n, n))
        changes = (changes + changes.T).multiply((surest + surest.T) > 0).tocsr()
        labels = np.full(n, -1, dtype=np.int32)
        for root in range(n - 1, -1, -1):
            if labels[root] >= 0:
                continue
            order, before = breadth_first_order(changes, root, directed=False)
            labels[root] = 0
            if len(order) == 1:
                continue
            steps = np.asarray(changes[before[order[1:]], order[1:]]).ravel() - 1
            for node, parent, step in zip(order[1:].tolist(), before[order[1:]].tolist(), steps.tolist(), strict=True):
                labels[node] = labels[parent] ^ int(step)
        return labels[: self.n_nodes]


def _open_cuts(model: Any) -> _Cuts:
    """Return the cuts of a model; the pairs of nodes of each larger factor become edges."""
    if isinstance(model, PairwiseModel):
        return _Cuts(model)
    scopes = np.split(model.scope, model.scope_ptr[1:-1]) if model.n_factors else []
    tables = [(scope, model.dense_table(f).astype(np.float64)) for f, scope in enumerate(scopes)]
    large = [(scope, table) for scope, table in tables if len(scope) > 2]
    pairs = sorted({pair for scope, _ in large for pair in combinations(sorted(scope.tolist()), 2)})
    small = [(scope, table) for scope, table in tables if len(scope) <= 2]
    small += [(np.array(pair), np.zeros(model.n_states[list(pair)])) for pair in pairs]
    return _Cuts(pairwise_model_of(FactorGraph.from_factors(model.n_states, small)), large)


class _CycleProgram:
    """Linear program with the cycle inequalities found so far, as sets of (edge, sign), with sign 1 for edges of F."""

    def __init__(self, cuts: _Cuts) -> None:
        self.cuts = cuts
        self.rows = set(_iterate_short_cycles(cuts))
        n_edges, table = len(cuts.weight), np.concatenate([*(own.ravel() for _, own in cuts.factors), np.zeros(0)])
        # Variables of edges, then probabilities of joint states of factors.
        self.cost = np.concatenate((cuts.weight, -np.where(np.isneginf(table), 0.0, table) / 2))
        largest = float(np.abs(self.cost).max(initial=0.0))
        # For costs below the smallest normal number, the quotient could be infinite.
        self.scale = _LARGEST_COST / max(largest, _LEAST_WEIGHT) if largest > 0 else 1.0
        self.lower = np.zeros(len(self.cost))
        self.upper = np.concatenate((np.ones(n_edges), np.where(np.isneginf(table), 0.0, 1.0)))
        if cuts.has_root:
            of_root = slice(n_edges - cuts.n_nodes, n_edges)
            self.upper[of_root][cuts.forbidden_states[:, 1]] = 0.0
            self.lower[of_root][cuts.forbidden_states[:, 0]] = 1.0
        self.equal = ProgramRows()
        self._forbid_pairs()
        self._join_factors()
        self.copies = _TwoCopies(cuts.graph)
        self.work = 0.0

    def _forbid_pairs(self) -> None:
        """Add equations that set the probability of each forbidden pair of states to zero."""
        e, a, b = self.cuts.forbidden_pairs.reshape(-1, 3).T
        first = len(self.cuts.weight) - self.cuts.n_nodes
        tail, head = self.cuts.graph.edges[e].T
        # Twice the probability of (0, 0) is 2 - x_s - x_t - x_st.
        # Twice the probability of (1, 1) is x_s + x_t - x_st, and twice the probability of (1, 0) is x_s - x_t + x_st.
        signs = np.where(a, 1.0, -1.0), np.where(b, 1.0, -1.0), np.where(a == b, -1.0, 1.0)
        blocks = list(zip([np.arange(len(e))] * 3, (first + tail, first + head, e), signs, strict=True))
        self.equal.add(blocks, len(e), -2.0 * ((a == 0) & (b == 0)))

    def _join_factors(self) -> None:
        """Add equations by which the probabilities of a factor sum to one and agree with the edges of its nodes."""
        n_nodes, first = self.cuts.n_nodes, len(self.cuts.weight)
        edge_of = {tuple(sorted(pair)): e for e, pair in enumerate(self.cuts.graph.edges.tolist())}
        for scope, table in self.cuts.factors:
            states = np.indices(table.shape).reshape(table.ndim, -1)
            # The additional node of state 0 has the last number.
            ends, states = [*scope.tolist(), n_nodes], np.vstack((states, np.zeros_like(states[:1])))
            cells = np.arange(states.shape[1]) + first
            first += len(cells)
            self.equal.add([(np.zeros_like(cells), cells, 1.0)], 1, 1.0)
            for i, j in combinations(range(len(ends)), 2):
                summed = cells[states[i] != states[j]]
                edge = np.array([edge_of[tuple(sorted((ends[i], ends[j])))]])
                self.equal.add([(np.zeros_like(summed), summed, 1.0), ([0], edge, -1.0)], 1)

    def solve(self) -> tuple:
        """Solve the program; return a solution (E,) and the upper bound on scores that the dual variables give."""
        program = self.equal.arrays("eq", len(self.cost)) | _build_inequalities(self.rows, len(self.cost))
        cost = self.cost * self.scale
        found = linprog(cost, **program, bounds=np.stack((self.lower, self.upper), axis=1), method="highs-ds")
        if found.status == 2:
            raise Infeasible("model is infeasible: its relaxation over cycles has no solution.")
        if found.status != 0:
            raise RuntimeError(f"linprog found no solution: {found.message}")
        # The time of an iteration is about proportional to the number of iterations before it.
        self.work += float(found.nit) ** 2
        # Multipliers with the right sign always give a valid bound.
        least, price = 0.0, cost.copy()
        if "A_ub" in program:
            multiplier = np.maximum(-found.ineqlin.marginals, 0.0)
            price += program["A_ub"].T @ multiplier
            least -= program["b_ub"] @ multiplier
        if "A_eq" in program:
            price -= program["A_eq"].T @ found.eqlin.marginals
            least += program["b_eq"] @ found.eqlin.marginals
        least += float(np.minimum(price * self.lower, price * self.upper).sum())
        bound = self.cuts.constant + self.cuts.weight.sum() - 2.0 * least / self.scale
        solution = np.clip(found.x, 0.0, 1.0)
        # Drop inequalities of long cycles that are far from tight. The search finds them again if they are needed.
        if "A_ub" in program:
            tight = program["b_ub"] - program["A_ub"] @ solution < 0.5
            self.rows = {row for row, keep in zip(self.rows, tight, strict=True) if keep or len(row) <= 4}
        return solution[: len(self.cuts.weight)], float(bound)

    def add_violated(self, cut: np.ndarray) -> bool:
        """Add inequalities that a solution violates, and return whether there are any."""
        fractional = np.abs(cut - np.rint(cut)) > _TOLERANCE
        added = self.copies.violated(cut, np.unique(self.cuts.graph.edges[fractional])) - self.rows
        added = added or self.copies.violated(cut, np.arange(self.cuts.graph.n_nodes)) - self.rows
        self.rows |= added
        return bool(added)


def _build_inequalities(rows: set, n_edges: int) -> dict:
    """Return the inequalities as arguments of linprog."""
    if not rows:
        return {}
    number, edge, sign = np.array([(k, e, s) for k, row in enumerate(rows) for e, s in row]).T
    found = ProgramRows()
    found.add([(number, edge, sign)], len(rows), np.bincount(number, sign > 0) - 1.0)
    return found.arrays("ub", n_edges)


def _iterate_short_cycles(cuts):
    """Yield the inequalities of triangles with the additional node and, if not too many, of cycles of four edges."""
    edges = cuts.graph.edges.tolist()
    first = len(edges) - cuts.n_nodes if cuts.has_root else len(edges)
    if cuts.has_root:
        for e, (s, t) in enumerate(edges[:first]):
            yield from _iterate_odd_parts((e, first + s, first + t))
    neighbours: list[dict] = [{} for _ in range(cuts.n_nodes)]
    for e, (s, t) in enumerate(edges[:first]):
        neighbours[s][t] = neighbours[t][s] = e
    if sum(len(own) ** 2 for own in neighbours) > _tuning.MOST_PAIRS_OF_NODE * cuts.n_nodes:
        return
    for s, own in enumerate(neighbours):
        across: dict[Any, Any] = {}
        for t in own:
            for u in neighbours[t]:
                if u > s:
                    across.setdefault(u, []).append(t)
        for u, between in across.items():
            for i, t in enumerate(between):
                for v in between[:i]:
                    yield from _iterate_odd_parts((own[t], own[v], neighbours[u][t], neighbours[u][v]))


def _iterate_odd_parts(cycle):
    """Yield the inequality of a cycle for every set of an odd number of its edges."""
    for signs in product((1, -1), repeat=len(cycle)):
        if sum(sign > 0 for sign in signs) % 2:
            yield frozenset(zip(cycle, signs, strict=True))


class _TwoCopies:
    """Two copies of a graph: an edge stays in its copy at price x, or crosses to the other copy at price 1 - x.

    A path from a node to its copy crosses an odd number of times. Such a path corresponds to a cycle, with the crossing
    edges as the set F. If the path costs less than 1, the inequality of the cycle is violated.
    """

    def __init__(self, graph: Graph) -> None:
        n, (tail, head) = graph.n_nodes, graph.edges.T.astype(np.int64)
        start, end = np.concatenate((tail, tail + n, tail, tail + n)), np.concatenate((head, head + n, head + n, head))
        slot = sp.csr_matrix((np.arange(1, len(start) + 1), (start, end)), shape=(2 * n, 2 * n))
        self.graph, self.slot = graph, slot + slot.T
        rows = np.repeat(np.arange(2 * n), np.diff(self.slot.indptr))
        self.slot_of = dict(
            zip(zip(rows.tolist(), self.slot.indices.tolist(), strict=True), self.slot.data.tolist(), strict=True)
        )

    def violated(self, cut: np.ndarray, sources: np.ndarray) -> set:
        """Return, for each source, the inequality of the cheapest cycle through it, if the inequality is violated."""
        # Add a small number, because zero prices would not be edges.
        price = np.concatenate((cut, cut, 1.0 - cut, 1.0 - cut)) + 1e-9
        copies = sp.csr_matrix((price[self.slot.data - 1], self.slot.indices, self.slot.indptr), shape=self.slot.shape)
        n, found = self.graph.n_nodes, set()
        for first in range(0, len(sources), _tuning.SOURCES):
            chosen = sources[first : first + _tuning.SOURCES]
            distance, before = dijkstra(copies, indices=chosen, return_predecessors=True, limit=1.0)
            for k in np.flatnonzero(distance[np.arange(len(chosen)), chosen + n] < 1.0 - _TOLERANCE):
                cycle = self._trace_cycle(before[k], int(chosen[k]))
                # A path that uses an edge in both copies is not a cycle.
                if len({edge for edge, _ in cycle}) == len(cycle):
                    found.add(frozenset(cycle))
        return found

    def _trace_cycle(self, before, source):
        """Return the edges on the path from a node to its copy, each with its sign."""
        cycle, node, n_edges = [], source + self.graph.n_nodes, self.graph.n_edges
        while node != source:
            slot = self.slot_of[int(before[node]), node] - 1
            cycle.append((slot % n_edges, 1 if slot >= 2 * n_edges else -1))
            node = int(before[node])
        return cycle
