"""Exact solution of the linear relaxation of the MAP problem."""

from typing import ClassVar

import numpy as np
from scipy.optimize import linprog

from sklearn_crf._options import options
from sklearn_crf.inference._base import Inference, at_least
from sklearn_crf.inference._local_search import Descent
from sklearn_crf.inference._relaxed_problem import ProgramRows, iterate_table_blocks
from sklearn_crf.inference._results import Infeasible, Labeling
from sklearn_crf.inference.exact import _tuning
from sklearn_crf.inference.exact._local_polytope import CountPiece, LocalPolytope
from sklearn_crf.models import FactorGraph, PairwiseModel, factor_graph_of, score


@options(kw_only=False)
class LinearProgram(Inference):
    r"""Exact solution of the first-order linear relaxation of the MAP problem, by simplex or interior point (HiGHS).

    .. math::
        \max_\tau \; \sum_s \langle \theta_s, \tau_s \rangle + \sum_f \langle \theta_f, \tau_f \rangle
        \quad \text{over the local polytope} \quad
        \sum_{y_s} \tau_s(y_s) = 1, \;
        \sum_{y_f \sim y_s} \tau_f(y_f) = \tau_s(y_s), \; \tau \ge 0

    (Jancsary 2012, Eq. 145 and its dual; for factors of any arity). IncMP, dual decomposition, TRW-S, MPLP and AD3
    approximate this solution. The linear program is suitable as a reference and for small problems. Count tables are
    not written out in full. Their constraints on the number of nodes in a state are the convex hull of the allowed
    counts, so that "at most one" takes one inequality.

    The bound is recomputed from the dual variables, so it is valid whatever the tolerances of the solver. If the
    relaxation is tight, the labels are optimal and the gap is zero up to rounding errors (``certified``). Otherwise,
    nodes are rounded one by one, the most certain node first, and labels are then improved by changing one node at a
    time.

    ``fractional`` of the result is the solution :math:`\tau_s` for the nodes.

    Parameters
    ----------
    method : {"highs", "highs-ds", "highs-ipm"}, default="highs"
        Method of :func:`scipy.optimize.linprog`.
    max_variables : int, default=2_000_000
        Maximum number of variables. If a model needs more, an error is raised.

    Raises
    ------
    ValueError
        If ``map`` gets a model that needs more variables, or whose relaxation has no solution.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import LinearProgram
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> found = LinearProgram().map(model)
    >>> found.labels.tolist(), round(found.score, 3), found.certified
    ([1, 1, 1], 3.5, True)
    """

    tasks = frozenset({"map"})
    _starts_from: ClassVar[tuple[type, ...]] = ()
    _choices: ClassVar[dict] = {"method": ("highs", "highs-ds", "highs-ipm")}
    exact_on = "forest"
    has_fractional = True
    takes = (PairwiseModel, FactorGraph)
    method: str = "highs"
    _ranges: ClassVar[dict] = {"max_variables": at_least(0.0)}
    max_variables: int = 2_000_000

    def _check_model(self, model):
        super()._check_model(model)
        if isinstance(model, PairwiseModel):
            # Check the size in advance: building the program for 200,000 nodes with two states takes 10 s and 0.7 GB.
            self._check_size(_count_variables(model))

    def _check_size(self, n_variables: int) -> None:
        if n_variables > self.max_variables:
            raise ValueError(
                f"model needs {n_variables} variables for LinearProgram, more than "
                f"max_variables={self.max_variables}: increase max_variables, or use TRWS, MPLP or AD3."
            )

    def _map(self, model, *, init=None, n_threads=1):
        graph = factor_graph_of(model)
        polytope, messages, fractional, n_iter = self._relax(graph)
        labels = self._round(graph, polytope, messages, fractional)
        padded = np.zeros((graph.n_nodes, model.n_columns))
        padded[:, : fractional.shape[1]] = fractional
        return Labeling(labels, score(model, labels), bound=polytope.bound(messages), n_iter=n_iter, fractional=padded)

    def _relax(self, graph):
        """Solve the relaxation; return the solution, dual variables, node marginals and number of iterations."""
        polytope = LocalPolytope(graph)
        program = _Program(polytope)
        self._check_size(program.n_variables)
        solution, messages, n_iter = program.solve(self.method)
        fractional = np.zeros((graph.n_nodes, graph.n_columns))
        for node, known in enumerate(polytope.problem.states):
            fractional[node, known] = solution.get(node, 1.0)
        return polytope, messages, fractional, n_iter

    def _round(self, graph, polytope, messages, fractional):
        labels = fractional.argmax(axis=1).astype(np.int32)
        largest = fractional.max(axis=1)
        if np.all(largest >= 1 - 1e-9):
            return labels
        candidates = [labels, polytope.rounded(messages, largest)]
        descent = Descent(graph)
        return max((descent.climb(labels) for labels in candidates), key=lambda labels: score(graph, labels))


def _count_variables(model):
    """Return the number of allowed states, plus the number of pairs of states, of nodes with several allowed states."""
    allowed = ~np.isneginf(model.unary)
    n_states = allowed.sum(axis=1)
    total = int(n_states[n_states > 1].sum())
    for edges, tables in iterate_table_blocks(model):
        tails, heads = model.graph.edges[edges].T
        pairs = allowed[tails][:, :, None] & allowed[heads][:, None, :] & ~np.isneginf(tables)
        total += int(pairs[(n_states[tails] > 1) & (n_states[heads] > 1)].sum())
    return total


class _Program:
    """Linear program with columns and rows of the nodes, followed by columns and rows of each factor."""

    def __init__(self, polytope: LocalPolytope) -> None:
        self.polytope = polytope
        self.start = {}
        self.n_variables = 0
        for node in polytope.free_nodes:
            self.start[node] = self._columns(len(polytope.unary[node]))
        self.first = []
        for piece in polytope.pieces:
            if isinstance(piece, CountPiece):
                self.first.append(self._columns(len(piece.runs) * (1 + len(piece.nodes))))
            else:
                self.first.append(self._columns(len(piece.scores)))

    def _columns(self, n):
        self.n_variables += n
        return self.n_variables - n

    def solve(self, method):
        """Return the marginals of the free nodes, the messages of the factors, and the number of iterations."""
        polytope = self.polytope
        if not self.start:
            return {}, [[] for _ in polytope.pieces], 0
        self.cost = np.zeros(self.n_variables)
        self.equal, self.below = ProgramRows(), ProgramRows()
        for node, first in self.start.items():
            columns = first + np.arange(len(polytope.unary[node]))
            self.cost[columns] = -polytope.unary[node]
            self.equal.add([(np.zeros(len(columns), dtype=np.int64), columns, 1.0)], 1, right=1.0)
        links = [self._add_piece(piece, first) for piece, first in zip(polytope.pieces, self.first, strict=True)]
        forbidden = np.isposinf(self.cost)
        self.cost[forbidden] = 0.0
        upper = np.where(forbidden, 0.0, np.inf)
        matrices = self.equal.arrays("eq", self.n_variables) | self.below.arrays("ub", self.n_variables)
        bounds = np.stack((np.zeros(self.n_variables), upper), axis=1)
        for bits in _tuning.COST_BITS:
            # Scaling by a power of two does not change digits.
            scale = 2.0 ** max(np.ceil(np.log2(np.abs(self.cost).max(initial=1.0))) - bits, 0.0)
            result = linprog(self.cost / scale, **matrices, bounds=bounds, method=method)
            if result.status in (0, 2):
                break
        if result.status == 2:
            raise Infeasible("model is infeasible: its linear relaxation has no solution.")
        if result.status != 0:
            raise RuntimeError(f"linprog found no solution with method={method!r}: {result.message}")
        marginals = {}
        for node, first in self.start.items():
            share = np.clip(result.x[first : first + len(polytope.unary[node])], 0.0, 1.0)
            marginals[node] = share / share.sum()
        dual = result.eqlin.marginals * scale
        return marginals, [self._messages(piece, rows, dual) for piece, rows in links], int(result.nit)

    def _add_piece(self, piece, first):
        if isinstance(piece, CountPiece):
            return piece, self._add_count(piece, first)
        cells = first + np.arange(len(piece.scores))
        self.cost[cells] = -piece.scores
        rows = []
        for j, node in enumerate(piece.nodes):
            n = len(self.polytope.unary[node])
            own = self.start[node] + np.arange(n)
            rows.append(self.equal.add([(piece.places[:, j], cells, 1.0), (np.arange(n), own, -1.0)], n))
        return piece, rows

    def _add_count(self, piece, first):
        """Add the convex hull of runs of counts: z_r is the probability of run r, mu_ir that run r counts node i."""
        n_nodes, n_runs = len(piece.nodes), len(piece.runs)
        z = first + np.arange(n_runs)
        mu = first + n_runs + np.arange(n_nodes * n_runs).reshape(n_nodes, n_runs)
        lowest, highest, scores = np.array(piece.runs, dtype=float).T
        self.cost[z] = -scores
        runs, cells = np.arange(n_runs), np.arange(mu.size)
        run_of_cell = np.tile(runs, n_nodes)
        self.equal.add([(np.zeros(n_runs, dtype=np.int64), z, 1.0)], 1, right=1.0)
        self.below.add([(cells, mu.ravel(), 1.0), (cells, z[run_of_cell], -1.0)], mu.size)
        self.below.add([(run_of_cell, mu.ravel(), 1.0), (runs, z, -highest)], n_runs)
        self.below.add([(run_of_cell, mu.ravel(), -1.0), (runs, z, lowest)], n_runs)
        own = np.array([self.start[node] + k for node, k in zip(piece.nodes, piece.place, strict=True)])
        nodes = np.arange(n_nodes)
        return self.equal.add([(np.repeat(nodes, n_runs), mu.ravel(), 1.0), (nodes, own, -1.0)], n_nodes)

    def _messages(self, piece, rows, dual):
        sizes = [len(self.polytope.unary[node]) for node in piece.nodes]
        if not isinstance(piece, CountPiece):
            return [dual[row : row + n] for row, n in zip(rows, sizes, strict=True)]
        messages = [np.zeros(n) for n in sizes]
        for i, (message, place) in enumerate(zip(messages, piece.place, strict=True)):
            message[place] = dual[rows + i]
        return messages
