"""Sets of factors without cycles, which replace spanning trees for factor graphs."""

import pickle
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from sklearn_crf.inference import _tuning


def keep_by_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that its latest results are cached; arguments may be arrays, lists, numbers and strings.

    Training needs results for the same structures of factor graphs hundreds of times.
    """
    kept: OrderedDict[bytes, Any] = OrderedDict()

    @wraps(function)
    def look_up(*arguments: Any) -> Any:
        key = pickle.dumps(arguments)
        if len(key) > _tuning.LARGEST_KEY:
            return function(*arguments)
        found = kept.get(key)
        if found is None:
            # If several threads compute the result, all of them return the object that was stored first.
            found = kept.setdefault(key, function(*arguments))
            for oldest in list(kept)[: -_tuning.MOST_KEPT]:
                kept.pop(oldest, None)
        return found

    return look_up


def choose_factor_forests(model, factors, rule):
    """Return maximal sets of factors without cycles, which together cover all factors.

    Factors that few other sets contain are preferred. A set of factors has no cycles if the bipartite graph of these
    factors and their nodes has no cycles.
    """
    # factors: (F,), indices of factors with at least two nodes
    # rule: "covering", "uniform", a number of sets, or a list with the factor indices of each set
    # returns: (n_sets, F) of bool
    if isinstance(rule, list | tuple):
        return _check_forests(model, factors, rule)
    if isinstance(rule, bool) or not (rule in ("covering", "uniform") or isinstance(rule, int | np.integer)):
        raise ValueError(
            "trees of a factor graph must be sets of factors without cycles, as all other subgraphs consist of edges: "
            'pass "covering", "uniform", "optimal", a number of sets, or a list with the factor indices of each set, '
            f"got {rule!r}."
        )
    forests = grow_forests(model.n_nodes, _list_scopes(model, factors), rule)
    missing = np.count_nonzero(~forests.any(axis=0))
    if missing:
        raise ValueError(
            f"{rule} sets of factors without cycles leave {missing} of {len(factors)} factors uncovered: use "
            'trees="covering", which covers all factors with few sets.'
        )
    return forests


@keep_by_arguments
def grow_forests(n_nodes: int, scopes: list, rule: Any) -> np.ndarray:
    """Return maximal sets of factors without cycles, (n_sets, F) bool, with each factor in about equally many sets."""
    counts = np.zeros(len(scopes), dtype=np.int64)
    forests: list[np.ndarray] = []
    fewest = {"covering": 1, "uniform": _tuning.FEWEST_FORESTS}.get(rule, rule)
    while len(forests) < fewest or not (counts.all() or len(forests) == rule):
        forests.append(_grow_forest(n_nodes, scopes, np.argsort(counts, kind="stable")))
        counts += forests[-1]
    return np.array(forests)


def find_steepest_forest(model, factors, gain):
    """Return a set of factors that has no cycles and a large total gain (maximal if every factor joins two nodes)."""
    # gain: (F,); returns: (F,) of bool
    # A factor of n nodes joins as many nodes as n - 1 edges of a tree. Its gain is therefore divided by n - 1.
    order = np.argsort(-gain / (model.arity[factors] - 1), kind="stable")
    return _grow_forest(model.n_nodes, _list_scopes(model, factors), order)


def _list_scopes(model, factors):
    return [model.scope[model.scope_ptr[f] : model.scope_ptr[f + 1]].tolist() for f in factors]


def _grow_forest(n_nodes, scopes, order):
    """Add factors in the given order, except factors that close a cycle; return the added factors."""
    parent, chosen = list(range(n_nodes)), np.zeros(len(scopes), dtype=bool)
    for f in order.tolist():
        chosen[f] = _join(parent, scopes[f])
    return chosen


def _join(parent, scope):
    """Join the trees of the nodes in a scope; if two nodes are in the same tree, join nothing and return False."""
    roots = {_find_root(parent, node) for node in scope}
    if len(roots) < len(scope):
        return False
    first = roots.pop()
    for root in roots:
        parent[root] = first
    return True


def _find_root(parent, node):
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


def _check_forests(model, factors, rule):
    """Return given sets of factors, after checking that they have no cycles and cover all factors."""
    scopes, place = _list_scopes(model, factors), {f: k for k, f in enumerate(factors.tolist())}
    forests = np.zeros((len(rule), len(scopes)), dtype=bool)
    for k, given in enumerate(rule):
        parent = list(range(model.n_nodes))
        for f in np.asarray(given, dtype=np.int64).tolist():
            if f not in place:
                raise ValueError(f"trees[{k}] has factor {f}, which is not a factor of at least two nodes.")
            if not _join(parent, scopes[place[f]]):
                raise ValueError(f"trees[{k}] has a cycle through factor {f}.")
            forests[k, place[f]] = True
    missing = np.flatnonzero(~forests.any(axis=0))
    if len(missing):
        first = factors[missing[0]]
        raise ValueError(f"trees leave {len(missing)} factors uncovered, of which the first is factor {first}.")
    return forests
