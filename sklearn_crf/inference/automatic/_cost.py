"""Cost of exact elimination, computed in advance, and the budgets with which it is compared."""

from math import isfinite
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils._param_validation import InvalidParameterError

from sklearn_crf.graphs import Graph
from sklearn_crf.inference._base import Inference
from sklearn_crf.inference.automatic import _tuning
from sklearn_crf.inference.exact import _tuning as exact_tuning
from sklearn_crf.inference.exact._elimination import (
    BucketSizes,
    Structure,
    iterate_component_orders,
)
from sklearn_crf.inference.exact._junction_tree import JunctionTree
from sklearn_crf.inference.exact._reduction import Reduction
from sklearn_crf.inference.exact._segments import SegmentInference
from sklearn_crf.inference.exact._tree import TreeInference
from sklearn_crf.kernels.exact.junction_trees import Elimination, min_fill_order, separators_of
from sklearn_crf.models import FactorGraph, PairwiseModel, SegmentModel


class Budget(NamedTuple):
    """Budget of an exact computation, in table cells; one thread handles about 40 million cells per second."""

    most_cells: float
    n_sweeps: float = np.inf  # limit on the cells: the number of entries that this many message sweeps read

    @classmethod
    def of(cls, budget: str | float) -> "Budget":
        """Return the budget for a name or for a number of cells."""
        if isinstance(budget, str) and budget in BUDGETS:
            return BUDGETS[budget]
        if isinstance(budget, Real) and not isinstance(budget, bool) and budget >= 0 and isfinite(budget):
            return cls(max(float(budget), 1.0))
        names = ", ".join(map(repr, BUDGETS))
        raise InvalidParameterError(f"budget must be {names} or a number of table cells; got {budget!r}.")

    @property
    def most_bytes(self) -> float:
        """Maximum memory of an exact computation, in bytes."""
        return max(_tuning.LEAST_BYTES, min(_tuning.BYTES_OF_A_CELL * self.most_cells, _tuning.MOST_BYTES))

    def cells(self, n_entries: np.ndarray) -> np.ndarray:
        """Return the maximum number of cells for each component, given the number of entries that a sweep reads."""
        if not isfinite(self.n_sweeps):
            return np.full(len(n_entries), self.most_cells)
        least = _tuning.LEAST_CELLS / _tuning.SWEEPS_OF_A_CALL
        return np.minimum(self.n_sweeps * np.maximum(n_entries, least), self.most_cells)

    def junction_tree(self) -> JunctionTree:
        """Return JunctionTree with the memory limit of the budget."""
        if self.most_bytes <= JunctionTree().max_memory:
            return JunctionTree()
        return JunctionTree(max_width=64, max_memory=self.most_bytes)


#: Budgets by name. "step" suits training steps (ten message sweeps).
#: "fast" suits many predictions (a hundred sweeps).
#: "default" suits a single call of about two seconds, and "long" a single call of about a minute.
BUDGETS = {
    "step": Budget(2.0**24, 10),
    "fast": Budget(2.0**24, _tuning.SWEEPS_OF_A_CALL),
    "default": Budget(8e7),
    "long": Budget(1e9),
}


def exact_inference(
    structure: Graph | PairwiseModel | FactorGraph, n_states: int | None = None, budget: str | float = "default"
) -> Inference | None:
    r"""Return an affordable exact algorithm for a structure, or None; all options "auto" follow this rule.

    Forests are solved by :class:`TreeInference`. Elimination (:class:`JunctionTree`) is affordable if its work in each
    connected component is within the budget,

    .. math:: \sum_b \Big( C_b + \tfrac{1}{20} K_b L_b R_b \Big),

    where C is the number of cells in the tables and messages of bucket b. The second term counts multiplications: K is
    the number of states of the bucket's node, and L and R are the numbers of joint states of the nodes on both sides.
    The elimination order and its tables depend only on the structure, so the work is known in advance.

    Parameters
    ----------
    structure : Graph, PairwiseModel or FactorGraph
        A graph stands for all models on it. Nodes with a single allowed state cost nothing.
    n_states : int, optional
        Number of states of each node, required if ``structure`` is a graph.
    budget : {"step", "fast", "default", "long"} or float, default="default"
        Maximum number of table cells in each component. 40 million cells take about a second on one thread, and each
        cell takes 10 to 13 bytes. "default" is 80 million, about two seconds and 1 GB; "long" is a billion. "fast" and
        "step" correspond to n = 100 and n = 10 message sweeps, each of which reads 2 K^2 entries per edge:

        .. math:: \min\Big(2^{24}, \; n \max\big(2^{21} / 100, \; 2 \sum_{e \in c} K^2\big)\Big):

        elimination then takes at most as much time as the messages, or 0.1 seconds if that is more. Estimators predict
        with "fast" and train with "step", because they have many examples, and training steps use warm starts of
        messages.

    Returns
    -------
    TreeInference, JunctionTree or None
        An exact algorithm, or None if none is affordable.

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
            raise ValueError("n_states, the number of states of each node, must be given with a Graph.")
        # All copies of a graph together cost no more than one copy.
        structure = structure if structure.copied_part is None else structure.copied_part
        unary = np.zeros((structure.n_nodes, n_states), dtype=np.float32)
        structure = PairwiseModel(structure, unary, np.zeros((1, n_states, n_states)))
    limits = Budget.of(budget)
    found = choose_recursion(structure)
    if found is not None:
        return found
    return limits.junction_tree() if (group_components(structure, limits) >= 0).all() else None


def choose_recursion(model: Any) -> Inference | None:
    """Return the exact algorithm for a forest or for chains with segments, or None for other models."""
    if isinstance(model, SegmentModel):
        return SegmentInference()
    return TreeInference() if isinstance(model, PairwiseModel) and model.graph.is_forest else None


def group_components(model: PairwiseModel | FactorGraph, budget: Budget) -> np.ndarray:
    """Return the elimination group of each component, (n_components,) int, or -1 for components beyond the budget."""
    # Components of a group fit into memory together. If all components exceed the budget, the result is a single -1.
    if isinstance(model, FactorGraph):
        return _group_by_memory(_Sizes.of_factors(model), budget)
    graph = model.graph
    allowed = ~np.isneginf(model.unary)
    if not allowed.all():
        return _group_by_memory(_Sizes.of_edges(graph, model.n_columns, allowed.sum(axis=1)), budget)
    if all(_is_wide_lattice(part, model.n_columns, budget) for part in graph.parts):
        return np.full(1, -1)
    # Cached with the graph, because training has hundreds of models that differ only in their scores.
    key = "shares of elimination", model.n_columns, budget
    return graph.keep(key, lambda: _group_by_memory(_Sizes.of_edges(graph, model.n_columns), budget))


def _is_wide_lattice(graph: Graph, n_states: int, budget: Budget) -> bool:
    """Return whether a graph is so wide a lattice that elimination in any order exceeds the budget."""
    if graph.shape is None or graph.offsets is None or n_states < 2:
        return False
    steps = np.abs(graph.offsets)
    sides = sorted(graph.shape[axis] for axis in steps[steps.sum(axis=1) == 1].argmax(axis=1))
    most_products = exact_tuning.PRODUCTS_OF_A_CELL * budget.most_cells
    return len(sides) > 1 and (sides[-2] + 1) * np.log(n_states) > np.log(most_products)


class _Sizes(NamedTuple):
    """Numbers of states and scopes of factors, which determine the cost of elimination."""

    n_states: np.ndarray  # (N,) int64, numbers of allowed states
    scope_ptr: np.ndarray  # starts of factor scopes, which only contain nodes with several states
    scope: np.ndarray
    n_entries: np.ndarray  # (n_components,), number of table entries that a message sweep reads
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
        log_sizes, arity = _compute_log_sizes(ptr, scope, problem.n_states), np.diff(ptr)
        is_free = arity > 0
        sizes = np.exp(np.minimum(log_sizes[is_free], 600.0)) * arity[is_free]
        n_entries = 2.0 * np.bincount(model.component[scope[ptr[:-1][is_free]]], sizes, model.n_components)
        return cls(problem.n_states.astype(np.int64), ptr, scope, n_entries, model.component)


def _compute_log_sizes(ptr: np.ndarray, scope: np.ndarray, n_states: np.ndarray) -> np.ndarray:
    """Return the logarithms of the numbers of joint states of scopes."""
    rows = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    return np.bincount(rows, np.log(n_states)[scope], len(ptr) - 1)


def _group_by_memory(sizes: _Sizes, budget: Budget) -> np.ndarray:
    """Group components by the memory that they need, see :func:`group_components`."""
    cells, component = budget.cells(sizes.n_entries), sizes.component
    # Multiplications in products of tables count as fractions of cells, so cliques may be larger than the budget.
    most_cells = exact_tuning.PRODUCTS_OF_A_CELL * cells
    ptr, scope, is_small = _drop_large_factors(sizes, most_cells)
    graph = Structure.of(ptr, scope, sizes.n_states)
    n_edges = np.bincount(component, np.diff(graph.ptr), len(cells)) / 2
    steps = np.maximum(_tuning.LEAST_STEPS, _tuning.STEPS_OF_AN_EDGE * n_edges)
    nodes = np.flatnonzero((sizes.n_states > 1) & is_small[component])
    orders = [np.zeros(0, dtype=np.int32)]
    # Nodes with one state may split a component into several parts.
    for own, order in iterate_component_orders(graph, nodes, most_cells[component], steps[component]):
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
    return _fill_groups(is_small, memory, largest, budget.most_bytes)


def _drop_large_factors(sizes: _Sizes, most_cells: np.ndarray) -> tuple:
    """Drop the scopes of components with too large a factor; return the kept scopes and a mask of kept components."""
    ptr, scope = sizes.scope_ptr, sizes.scope
    owner = np.zeros(len(ptr) - 1, dtype=np.int64)
    has_nodes = np.diff(ptr) > 0
    owner[has_nodes] = sizes.component[scope[ptr[:-1][has_nodes]]]
    too_large = has_nodes & (_compute_log_sizes(ptr, scope, sizes.n_states) > np.log(most_cells)[owner])
    is_small = np.bincount(owner[too_large], minlength=len(most_cells)) == 0
    if is_small.all():
        return ptr, scope, is_small
    kept = np.repeat(is_small[owner], np.diff(ptr))
    return np.concatenate(([0], np.cumsum(kept)))[ptr], np.ascontiguousarray(scope[kept]), is_small


def _fill_groups(is_small: np.ndarray, memory: np.ndarray, largest: np.ndarray, most_bytes: float) -> np.ndarray:
    """Assign components to groups in order, so that all components of a group fit into memory together."""
    shares, share, used, widest = np.full(len(is_small), -1), 0, 0.0, 0.0
    for k in np.flatnonzero(is_small).tolist():
        widest = max(widest, largest[k])
        if used and used + memory[k] + widest > most_bytes:
            share, used, widest = share + 1, 0.0, largest[k]
        used += memory[k]
        shares[k] = share
    return shares


def most_states(graph: Graph, most_cells: float) -> int:
    """Return the maximum number of states per node for which elimination takes at most ``most_cells`` cells."""
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
