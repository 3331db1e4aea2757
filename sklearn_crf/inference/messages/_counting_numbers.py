"""Counting numbers of entropy approximations, and tests of whether these are convex and bound the true entropy."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from sklearn_crf.graphs import Graph
from sklearn_crf.inference._factor_forests import choose_factor_forests, keep_by_arguments
from sklearn_crf.inference._relaxed_problem import ProgramRows
from sklearn_crf.inference.messages import _tuning
from sklearn_crf.inference.messages._edge_probabilities import choose_edge_probabilities


class CountingNumbers(NamedTuple):
    r"""Weights of local entropies in an approximation of the entropy.

    .. math::
        H(\tau) \approx \sum_s c_s H(\tau_s) + \sum_F c_F H(\tau_F)

    Attributes
    ----------
    node : array-like of shape (N,) or float
        :math:`c_s` of each node, or one number for all nodes.
    factor : array-like of shape (E,), (F,) or float
        :math:`c_F` of each edge of a :class:`~sklearn_crf.models.PairwiseModel`, or of each factor of a
        :class:`~sklearn_crf.models.FactorGraph`. If a factor has one node, its number is added to the number of the
        node.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import CountingNumbers, NormProductBP
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> # the trivial ones
    >>> numbers = CountingNumbers(node=[0.0, 0.0, 0.0], factor=[1.0, 1.0, 1.0])
    >>> round(NormProductBP(counting_numbers=numbers).marginals(model).log_z, 2)
    6.23
    """

    node: np.ndarray | float
    factor: np.ndarray | float


class Split(NamedTuple):
    """Counting numbers as sums of terms that are each concave (Eq. 124 of Jancsary 2012)."""

    node: np.ndarray  # (N,) c_ss
    own: np.ndarray  # (F,) c_FF
    conditional: np.ndarray  # (n_slots,) c_sF


def choose_counting_numbers(choice, layered, edge_probabilities):
    """Return counting numbers of nodes and of factors with several nodes, and the kind of bound that results."""
    # returns: node: (N,), in the order of positions of the layered model; factor: (F,); kind of the bound
    layers = layered.layers
    degree = np.diff(layers.node_ptr)
    factor = np.ones(layers.n_factors)
    if isinstance(choice, str) and choice == "trivial":
        return np.where(degree == 0, 1.0, 0.0), factor, "upper"
    if isinstance(choice, str) and choice == "factors":
        return np.ones(len(degree)), factor, "upper"
    if isinstance(choice, str) and choice in ("trw", "bethe"):
        if choice == "trw":
            factor = _compute_tree_probabilities(layered, edge_probabilities)
        node = 1.0 - _sum_at_nodes(layers, np.repeat(factor, layers.arity))
        return node, factor, "exact" if layered.is_forest else "upper" if choice == "trw" else None
    if not isinstance(choice, tuple) or len(choice) != 2:
        raise ValueError(
            'counting_numbers must be "trivial", "factors", "trw", "bethe" or CountingNumbers(node, factor), got '
            f"{choice!r}."
        )
    node, factor = _check_numbers(layered, *choice)
    covered = node + _sum_at_nodes(layers, np.repeat(factor, layers.arity))
    # Shearer's inequality: entropies of sets that cover every node at least once sum to at least the joint entropy.
    is_bound = np.all(node >= 0) and np.all(covered >= 1 - 1e-9)
    return node, factor, "upper" if is_bound else None


def _sum_at_nodes(layers, values):
    return np.bincount(layers.slot_node, weights=values, minlength=len(layers.n_states))


def _check_numbers(layered, node, factor):
    model = layered.model
    n_factors = model.n_factors if layered.graph is None else layered.graph.n_edges
    node, factor = (np.asarray(values, dtype=np.float64) for values in (node, factor))
    if not node.ndim:
        node = np.full(model.n_nodes, node)
    if not factor.ndim:
        factor = np.full(n_factors, factor)
    for name, values, length in (("node", node, model.n_nodes), ("factor", factor, n_factors)):
        if values.shape != (length,) or not np.all(np.isfinite(values)):
            raise ValueError(
                f"counting_numbers.{name} must be {length} finite numbers, got an array of shape {values.shape}."
            )
    # The factor graph of a pairwise model begins with a factor for each node.
    factor = np.concatenate((np.zeros(model.n_factors - n_factors), factor))
    single = np.flatnonzero(model.arity == 1)
    node = node + np.bincount(model.scope[model.scope_ptr[single]], weights=factor[single], minlength=model.n_nodes)
    factor = factor[layered.factors]
    if np.any(factor <= 0):
        f = int(np.argmin(factor))
        number = layered.factors[f] - model.n_factors + n_factors
        raise ValueError(f"counting_numbers.factor must be positive, but factor {number} has {factor[f]:g}.")
    return node[layered.order], factor


def _compute_tree_probabilities(layered, edge_probabilities):
    """Return each factor's probability to be in a spanning tree of the graph whose edges are the factors."""
    model, layers = layered.model, layered.layers
    if layers.arity.max(initial=0) <= 2:
        edges = model.scope[model.scope_ptr[layered.factors][:, None] + np.arange(2)]
        if len(np.unique(np.sort(edges, axis=1), axis=0)) == len(edges):
            graph = Graph(model.n_nodes, edges) if layered.graph is None else layered.graph
            return choose_edge_probabilities(graph, edge_probabilities)
    rules = {"auto": "uniform", "uniform": "uniform", "covering": "covering"}
    if not isinstance(edge_probabilities, str) or edge_probabilities not in rules:
        raise ValueError(
            'edge_probabilities (trees in learning methods) must be "auto", "uniform" or "covering" if a factor has '
            f"more than two nodes or several factors join one pair of nodes, got {edge_probabilities!r}: to add up "
            "factors of the same pair, use pairwise_model_of."
        )
    return choose_factor_forests(model, layered.factors, rules[edge_probabilities]).mean(axis=0)


def split_counting_numbers(layered, node, factor):
    r"""Split counting numbers into terms that are concave in the marginals.

    .. math::
        c_F = c_{FF} + \sum_{s \in F} c_{sF}, \qquad c_s = c_{ss} - \sum_{F \ni s} c_{sF}

    with non-negative terms. The smallest :math:`c_{FF}` is made as large as possible, because it limits the step size
    of messages.
    """
    # node: (N,); factor: (F,)
    layers = layered.layers
    n_slots = len(layers.slot_node)
    if np.all(node >= 0):
        return Split(node, factor, np.zeros(n_slots))
    alone = np.flatnonzero((np.diff(layers.node_ptr) == 0) & (node < 0))
    if len(alone):
        raise _make_not_convex_error(layered, node, factor, alone[0])
    status, message, conditional, least, price = _solve_split(layers.slot_node, layers.slot_factor, node, factor)
    if status != 0:
        raise ValueError(f"counting_numbers could not be split into convex terms: {message}")
    if least <= _tuning.LEAST_SHARE * factor.min():
        raise _make_not_convex_error(layered, node, factor, int(np.argmin(np.where(price > 0, node, np.inf))))
    own = factor - np.bincount(layers.slot_factor, weights=conditional, minlength=len(factor))
    rest = np.maximum(node + _sum_at_nodes(layers, conditional), 0)
    return Split(rest, own, conditional)


@keep_by_arguments
def _solve_split(slot_node: np.ndarray, slot_factor: np.ndarray, node: np.ndarray, factor: np.ndarray) -> tuple:
    """Solve the linear program that splits counting numbers.

    Return its status, its message, the terms of slots, the smallest term of a factor, and the prices of nodes.
    """
    n_slots = len(slot_node)
    slots = np.arange(n_slots)
    rows = ProgramRows()
    factors, last = np.arange(len(factor)), np.full(len(factor), n_slots)
    rows.add([(slot_factor, slots, 1.0), (factors, last, 1.0)], len(factor), factor)
    rows.add([(slot_node, slots, -1.0)], len(node), node)
    found = linprog(
        np.append(np.zeros(n_slots), -1.0),
        **rows.arrays("ub", n_slots + 1),
        bounds=[(0, None)] * n_slots + [(None, None)],
        method="highs",
    )
    if found.status != 0:
        return found.status, found.message, None, None, None
    price = np.abs(found.ineqlin.marginals[len(factor) :])
    return 0, "", np.maximum(found.x[:-1], 0), float(found.x[-1]), price


def _make_not_convex_error(layered, node, factor, place):
    layers = layered.layers
    slots = layers.node_slots[layers.node_ptr[place] : layers.node_ptr[place + 1]]
    around = factor[layers.slot_factor[slots]].sum()
    return ValueError(
        f"counting_numbers are not convex: node {layered.order[place]} has {node[place]:.4g}, and its factors, which "
        f"have {around:.4g} in total, cannot compensate for this number and the numbers of their other nodes "
        "(Jancsary 2012, Eq. 124)."
    )
