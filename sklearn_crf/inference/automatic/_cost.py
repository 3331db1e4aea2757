"""What exact elimination costs, known before any work, and the budgets that it is compared with."""

from math import isfinite
from numbers import Real
from typing import NamedTuple

import numpy as np
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf.graphs import Graph
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference.automatic import _tuning
from sklearn_crf.inference.exact import _tuning as exact_tuning
from sklearn_crf.inference.exact._elimination import (
    BucketSizes,
    Structure,
    orders_of_components,
)
from sklearn_crf.inference.exact._junction_tree import JunctionTree
from sklearn_crf.inference.exact._reduction import Reduction
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.kernels.exact.plans import Elimination, min_fill_order, separators_of
from sklearn_crf.models import FactorGraph, PairwiseModel


class Budget(NamedTuple):
    """Work of an exact computation, in cells of tables: a second of one processor is some 25 million."""

    most_cells: float
    n_sweeps: float = np.inf  # of messages, which all read both sides of all tables: no more cells than these

    @classmethod
    def of(cls, budget: str | float) -> "Budget":
        """Return the budget of a name or a number of cells."""
        if isinstance(budget, str) and budget in BUDGETS:
            return BUDGETS[budget]
        if isinstance(budget, Real) and not isinstance(budget, bool) and budget >= 0 and isfinite(budget):
            return cls(max(float(budget), 1.0))
        names = ", ".join(map(repr, BUDGETS))
        raise InvalidParameterError(f"budget must be {names} or a number of table cells; got {budget!r}.")

    @property
    def most_bytes(self) -> float:
        """Memory of an exact computation."""
        return max(_tuning.LEAST_BYTES, min(_tuning.BYTES_OF_A_CELL * self.most_cells, _tuning.MOST_BYTES))

    def cells(self, n_entries: np.ndarray) -> np.ndarray:
        """Return the cells that components may take, given the entries that a sweep of messages over each reads."""
        if not isfinite(self.n_sweeps):
            return np.full(len(n_entries), self.most_cells)
        least = _tuning.LEAST_CELLS / _tuning.SWEEPS_OF_A_CALL
        return np.minimum(self.n_sweeps * np.maximum(n_entries, least), self.most_cells)

    def junction_tree(self) -> JunctionTree:
        """Return the algorithm for models within the budget."""
        if self.most_bytes <= JunctionTree().max_memory:
            return JunctionTree()
        return JunctionTree(max_width=64, max_memory=self.most_bytes)


#: Budgets by name. "step" is for a step of training, beside ten sweeps of messages; "fast" for one of many predictions,
#: beside a hundred; "default" for a single call of some two seconds, "long" for one of a minute.
BUDGETS = {
    "step": Budget(2.0**24, 10),
    "fast": Budget(2.0**24, _tuning.SWEEPS_OF_A_CALL),
    "default": Budget(5e7),
    "long": Budget(1e9),
}


def exact_inference(
    structure: Graph | PairwiseModel | FactorGraph, n_states: int | None = None, budget: str | float = "default"
) -> Inference | None:
    r"""The exact algorithm for a structure, if one is affordable: the rule behind every "auto".

    Forests go to :class:`TreeInference`. Elimination (:class:`JunctionTree`) is affordable if in each connected
    component its work is within the budget,

    .. math:: \sum_b \Big( C_b + \tfrac{1}{20} K_b L_b R_b \Big),

    with the cells C of the tables and messages of each bucket b and the multiplications that they take: K states of its
    node, and L and R joint states of the nodes on both sides of it. An order of elimination and its tables follow from
    the structure alone, and are known before any work.

    Parameters
    ----------
    structure : Graph, PairwiseModel or FactorGraph
        A graph stands for all models on it; nodes of which a model allows one state only cost nothing.
    n_states : int, optional
        Number of states of each node, needed with a graph alone.
    budget : {"step", "fast", "default", "long"} or float, default="default"
        Table cells of each component: some 25 million take a second of one thread, and 15 to 20 bytes each. "default"
        is 50 million, two seconds and 1 GB, "long" a billion. With n sweeps of messages, that read 2 K^2 entries of
        each edge, "fast" (n = 100) and "step" (n = 10) are

        .. math:: \min\Big(2^{24}, \; n \max\big(2^{21} / 100, \; 2 \sum_{e \in c} K^2\big)\Big):

        elimination in no more time than messages take, or in .1 seconds. Estimators predict by "fast" and train by
        "step", since they have many examples, and messages of training go on from those of the step before.

    Returns
    -------
    TreeInference, JunctionTree or None
        None where no exact algorithm is affordable.

    Examples
    --------
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.inference import exact_inference
    >>> exact_inference(lattice((9, 9)), n_states=2)
    JunctionTree()
    >>> exact_inference(lattice((40, 40)), n_states=2) is None
    True
    """
    if isinstance(structure, Graph):
        if n_states is None:
            raise ValueError("n_states is needed with a Graph: the number of states of each node.")
        # A component takes what it would take alone.
        structure = structure if structure.copied_part is None else structure.copied_part
        unary = np.zeros((structure.n_nodes, n_states), dtype=np.float32)
        structure = PairwiseModel(structure, unary, np.zeros((1, n_states, n_states)))
    limits = Budget.of(budget)
    if isinstance(structure, PairwiseModel) and structure.graph.is_forest:
        return TreeInference()
    return limits.junction_tree() if (shares_of_components(structure, limits) >= 0).all() else None


def shares_of_components(model: PairwiseModel | FactorGraph, budget: Budget) -> np.ndarray:
    """Which connected components are eliminated together, (n_components,) int: -1 where that is beyond the budget."""
    # one -1 if none is within; those of one share fit into memory together
    if isinstance(model, FactorGraph):
        return _shares(_Sizes.of_factors(model), budget)
    graph = model.graph
    allowed = ~np.isneginf(model.unary)
    if not allowed.all():
        return _shares(_Sizes.of_edges(graph, model.n_columns, allowed.sum(axis=1)), budget)
    if all(_is_wide_lattice(part, model.n_columns, budget) for part in graph.parts):
        return np.full(1, -1)
    # Models of one graph differ in their scores, and training has hundreds of them.
    key = "shares of elimination", model.n_columns, budget
    return graph.keep(key, lambda: _shares(_Sizes.of_edges(graph, model.n_columns), budget))


def _is_wide_lattice(graph: Graph, n_states: int, budget: Budget) -> bool:
    """Whether a graph is a lattice beyond the budget: any order is as wide as its second longest side."""
    if graph.shape is None or graph.offsets is None or n_states < 2:
        return False
    steps = np.abs(graph.offsets)
    sides = sorted(graph.shape[axis] for axis in steps[steps.sum(axis=1) == 1].argmax(axis=1))
    most_products = exact_tuning.PRODUCTS_OF_A_CELL * budget.most_cells
    return len(sides) > 1 and (sides[-2] + 1) * np.log(n_states) > np.log(most_products)


class _Sizes(NamedTuple):
    """What the cost of elimination follows from."""

    n_states: np.ndarray  # (N,) int64, those that are allowed
    scope_ptr: np.ndarray  # scopes of factors over nodes of more than one state
    scope: np.ndarray
    n_entries: np.ndarray  # (n_components,) entries of tables that a sweep of messages reads
    component: np.ndarray  # (N,)

    @classmethod
    def of_edges(cls, graph: Graph, n_columns: int, n_states: np.ndarray | None = None) -> "_Sizes":
        """Return the sizes of a pairwise model."""
        n_states = np.full(graph.n_nodes, n_columns) if n_states is None else n_states
        edges = graph.edges
        n_entries = 2.0 * n_columns**2 * np.bincount(graph.component[edges[:, 0]], minlength=graph.n_components)
        free = np.ascontiguousarray(edges[(n_states[edges] > 1).all(axis=1)])
        return cls(n_states, np.arange(0, 2 * len(free) + 1, 2), free.ravel(), n_entries, graph.component)

    @classmethod
    def of_factors(cls, model: FactorGraph) -> "_Sizes":
        """Return the sizes of a factor graph."""
        problem = Reduction(model)
        ptr, scope = problem.free_scopes
        log_sizes, arity = _log_sizes(ptr, scope, problem.n_states), np.diff(ptr)
        is_free = arity > 0
        sizes = np.exp(np.minimum(log_sizes[is_free], 600.0)) * arity[is_free]
        n_entries = 2.0 * np.bincount(model.component[scope[ptr[:-1][is_free]]], sizes, model.n_components)
        return cls(problem.n_states.astype(np.int64), ptr, scope, n_entries, model.component)


def _log_sizes(ptr: np.ndarray, scope: np.ndarray, n_states: np.ndarray) -> np.ndarray:
    """Logarithms of the numbers of joint states of scopes."""
    rows = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    return np.bincount(rows, np.log(n_states)[scope], len(ptr) - 1)


def _shares(sizes: _Sizes, budget: Budget) -> np.ndarray:
    """Number the shares of components by the memory that they take; -1 beyond the budget."""
    cells, component = budget.cells(sizes.n_entries), sizes.component
    # A product of tables has so many cells of the clique for each cell of its own.
    most_cells = exact_tuning.PRODUCTS_OF_A_CELL * cells
    ptr, scope, is_small = _without_large_factors(sizes, most_cells)
    graph = Structure.of(ptr, scope, sizes.n_states)
    n_edges = np.bincount(component, np.diff(graph.ptr), len(cells)) / 2
    steps = np.maximum(_tuning.LEAST_STEPS, _tuning.STEPS_OF_AN_EDGE * n_edges)
    nodes = np.flatnonzero((sizes.n_states > 1) & is_small[component])
    orders = [np.zeros(0, dtype=np.int32)]
    # Observed nodes may cut a component into several.
    for own, order in orders_of_components(graph, nodes, most_cells[component], steps[component]):
        if order is None:
            is_small[component[own[0]]] = False
        else:
            orders.append(order)
    order = np.concatenate(orders)
    order = order[is_small[component[order]]]
    separators = separators_of(graph.ptr, graph.neighbors, order)
    sides = Elimination(ptr, scope, sizes.n_states, order, *separators).sides()
    buckets = BucketSizes.of(sizes.n_states, order, *sides)
    work = np.bincount(component[order], buckets.work, len(cells))
    largest = np.zeros(len(cells))
    np.maximum.at(largest, component[order], 8 * buckets.workspace)
    memory = np.bincount(component[order], 8 * buckets.tables + 16 * buckets.messages, len(cells))
    is_small &= (work <= cells) & (memory + largest <= budget.most_bytes)
    return _shared_out(is_small, memory, largest, budget.most_bytes)


def _without_large_factors(sizes: _Sizes, most_cells: np.ndarray) -> tuple:
    """Scopes without those that are too large alone, and which components have none: they are not even joined."""
    ptr, scope = sizes.scope_ptr, sizes.scope
    owner = np.zeros(len(ptr) - 1, dtype=np.int64)
    has_nodes = np.diff(ptr) > 0
    owner[has_nodes] = sizes.component[scope[ptr[:-1][has_nodes]]]
    too_large = has_nodes & (_log_sizes(ptr, scope, sizes.n_states) > np.log(most_cells)[owner])
    is_small = np.bincount(owner[too_large], minlength=len(most_cells)) == 0
    if is_small.all():
        return ptr, scope, is_small
    kept = np.repeat(is_small[owner], np.diff(ptr))
    return np.concatenate(([0], np.cumsum(kept)))[ptr], np.ascontiguousarray(scope[kept]), is_small


def _shared_out(is_small: np.ndarray, memory: np.ndarray, largest: np.ndarray, most_bytes: float) -> np.ndarray:
    """Shares of components in turn, each as many as fit into memory together."""
    shares, share, used, widest = np.full(len(is_small), -1), 0, 0.0, 0.0
    for k in np.flatnonzero(is_small).tolist():
        widest = max(widest, largest[k])
        if used and used + memory[k] + widest > most_bytes:
            share, used, widest = share + 1, 0.0, largest[k]
        used += memory[k]
        shares[k] = share
    return shares


def most_states(graph: Graph, most_cells: float) -> int:
    """States that all nodes may have for the cliques of elimination to take no more than so many cells."""
    scope_ptr, scope = np.arange(0, 2 * graph.n_edges + 1, 2), np.ascontiguousarray(graph.edges).ravel()
    structure = Structure.of(scope_ptr, scope, np.full(graph.n_nodes, 2))
    most_steps = _tuning.STEPS_OF_AN_EDGE * graph.n_edges + _tuning.LEAST_STEPS
    order = min_fill_order(*structure, np.log(max(most_cells, 1.0)), most_steps)
    if order is None:
        return 1
    ptr, _ = separators_of(structure.ptr, structure.neighbors, order)
    sizes = np.bincount(np.diff(ptr) + 1)
    n_states = 1
    while sizes @ (n_states + 1.0) ** np.arange(len(sizes)) <= most_cells:
        n_states += 1
    return n_states
