"""Readers and writers of cost function networks, the ``.wcsp`` and ``.cfn`` files of toulbar2."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sklearn_crf._numbers import n_joint_states
from sklearn_crf.datasets import _text, _tuning
from sklearn_crf.models import FactorGraph, SparseTable

# toulbar2 stores costs as 64-bit integers, and float64 represents integers exactly up to 2**53.
_LARGEST_COST, _DIGITS = 2.0**53, 15
Costs = np.ndarray | SparseTable
_TOKENS = re.compile(r'(?:"([^"]*)"|([^\s,:\[\]{}"]+))(\s*:)?|([\[\]{}])')


def read_wcsp(path: Path, max_bytes: int) -> FactorGraph:
    """Return the factor graph of a ``.wcsp`` file."""
    hint = " Only functions given by tables are supported, not functions given by keywords."
    _, reader = _text.read_numbers_of(path, max_bytes=max_bytes, any_heading=True, hint=hint)
    n_nodes = reader.integer("the number of variables")
    reader.integer("the largest domain size")
    n_factors = reader.integer("the number of functions")
    top = float(reader.take(1, "the upper bound", 0.0, _text.LARGEST)[0])
    n_states = reader.integers(n_nodes, "the domain sizes", lowest=1, highest=_tuning.MAX_STATES)
    scopes, tables = [], []
    shared: list = []
    for f in range(n_factors):
        what = f"function {f}"
        arity = reader.integer(f"the arity of {what}", lowest=-n_nodes, highest=n_nodes)
        scope = reader.integers(abs(arity), f"the variables of {what}", 0, n_nodes - 1)
        default = float(reader.take(1, f"the default cost of {what}", 0.0, _text.LARGEST)[0])
        n_listed = reader.integer(f"the number of tuples of {what}", lowest=-len(shared))
        if n_listed < 0:
            table = shared[-n_listed - 1]
        else:
            rows = reader.take(n_listed * (len(scope) + 1), f"the tuples of {what}", 0.0, _text.LARGEST)
            rows = rows.reshape(n_listed, len(scope) + 1)
            states = reader.whole(rows[:, :-1], f"the values of {what}")
            table = _build_table(path, f, n_states[scope], default, states, rows[:, -1])
        if arity < 0:
            shared.append(table)
        _check_shape(path, f, table, n_states[scope])
        scopes.append(scope)
        tables.append(table)
    reader.end()
    return _convert_to_model(path, n_states, scopes, tables, top)


def read_cfn(path: Path, max_bytes: int) -> FactorGraph:
    """Return the factor graph of a ``.cfn`` file."""
    lines = _text.read_lines(path, max_bytes)
    text = b"\n".join(line for line in lines if not line.startswith(b"#")).decode("utf-8", "replace")
    parts = [item for item in _parse_nested(path, text) if isinstance(item, list)]
    if len(parts) != 3:
        raise ValueError(f"{path} is not in CFN format: it must hold problem, variables and functions.")
    problem, variables, functions = parts
    bounds = [word for word in problem if isinstance(word, str) and word[:1] in ("<", ">")]
    if len(bounds) != 1:
        raise ValueError(f'{path}: the problem must have one bound, such as "mustbe": "<10.0".')
    sign = 1.0 if bounds[0][0] == "<" else -1.0
    top = sign * _as_number(path, bounds[0][1:], "the bound")
    n_states, node_of, state_of = _read_variables(path, variables)
    scopes, references = [], []
    tables: list = []
    known: dict = {}
    for f, (name, fields) in enumerate(_iterate_named(functions)):
        scope, table = _read_function(path, f, fields, n_states, node_of, state_of, sign)
        scopes.append(scope)
        tables.append(table)
        references += [f] if isinstance(table, str) else []
        known[name] = table
    for f in references:
        tables[f] = known.get(tables[f])
        if tables[f] is None or isinstance(tables[f], str):
            raise ValueError(f"{path}: function {f} refers to the costs of a function that has no costs.")
        _check_shape(path, f, tables[f], n_states[scopes[f]])
    return _convert_to_model(path, n_states, scopes, tables, top)


class _Key(str):
    """Word before a colon, which is a name even if it looks like a number."""

    __slots__ = ()


def _parse_nested(path: Path, text: str) -> list:
    """Return the items between the outermost brackets: words, and lists of items for brackets of any kind."""
    stack: list[list] = [[]]
    for quoted, word, colon, bracket in _TOKENS.findall(text):
        if bracket and bracket in "[{":
            stack.append([])
        elif bracket:
            if len(stack) == 1:
                raise ValueError(f"{path} is not in CFN format: a closing bracket has no opening bracket.")
            closed = stack.pop()
            stack[-1].append(closed)
        else:
            found = quoted.rstrip(":") or word
            stack[-1].append(_Key(found) if colon else found)
    while len(stack) > 1:  # Published files may lack the last closing brackets.
        closed = stack.pop()
        stack[-1].append(closed)
    return stack[0][0] if stack[0] and isinstance(stack[0][0], list) else []


def _is_number(word: Any) -> bool:
    return isinstance(word, str) and word[:1] in tuple("0123456789-.+")


def _as_number(path: Path, word: Any, what: str) -> float:
    try:
        number = float(word)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise ValueError(f"{path}: {what} must be a number, found {word!r}.")
    return number


def _as_costs(path: Path, words: list, f: int, sign: float) -> np.ndarray:
    """Convert numbers in a file to costs to be minimised; the word inf forbids a joint state."""
    return np.array(
        [
            np.inf if word in ("inf", "-inf") else sign * _as_number(path, word, f"a cost of function {f}")
            for word in words
        ]
    )


def _iterate_named(items: list) -> Iterator[tuple]:
    """Yield (name, content) for each field of an object; the name is None if it is missing."""
    name = None
    for item in items:
        if isinstance(item, list) or (_is_number(item) and not isinstance(item, _Key)):
            yield name, item
            name = None
        else:
            name = item


def _read_variables(path: Path, variables: list) -> tuple[np.ndarray, dict, list]:
    """Return the state count of each variable, variable indices by name, and value indices by name."""
    sizes, node_of, state_of = [], {}, []
    for node, (name, domain) in enumerate(_iterate_named(variables)):
        named = isinstance(domain, list)
        size = len(domain) if named else _as_number(path, domain, f"the domain size of variable {node}")
        if not 1 <= size <= _tuning.MAX_STATES or size % 1:
            raise ValueError(
                f"{path}: variable {node} must have 1 to {_tuning.MAX_STATES} values, found {size:g}. Interval "
                "variables are not supported."
            )
        sizes.append(int(size))
        node_of[name] = node
        state_of.append({value: k for k, value in enumerate(domain)} if named else {})
    return np.array(sizes, dtype=np.int64), node_of, state_of


def _find_index(path: Path, word: Any, names: dict, size: int, what: str) -> int:
    """Return the index of a variable or value; ``word`` is its name or its index."""
    index = names.get(word) if isinstance(word, str) else None
    if index is None and _is_number(word):
        index = _as_number(path, word, what)
    if index is None or not 0 <= index < size or index % 1:
        raise ValueError(f"{path}: {what} must be a name or an index below {size}, found {word!r}.")
    return int(index)


def _read_function(
    path: Path, f: int, fields: Any, n_states: np.ndarray, node_of: dict, state_of: list, sign: float
) -> tuple[np.ndarray, Costs | str]:
    """Return the scope of a function and its costs; shared costs are given by the name of another function."""
    if not isinstance(fields, list):
        raise ValueError(f"{path}: function {f} must be a JSON object, found {fields!r}.")
    content = dict(zip(fields[::2], fields[1::2], strict=False)) if all(isinstance(k, str) for k in fields[::2]) else {}
    if "type" in content:
        raise ValueError(
            f"{path}: function {f} has the type {content['type']!r}, but only functions given by tables are supported."
        )
    names, costs, default = (content.get(key) for key in ("scope", "costs", "defaultcost"))
    if not isinstance(names, list) or costs is None:
        raise ValueError(f"{path}: function {f} must have a scope and costs.")
    scope = np.array(
        [_find_index(path, word, node_of, len(n_states), f"a variable of function {f}") for word in names],
        dtype=np.int64,
    )
    if isinstance(costs, str):
        return scope, costs
    shape = n_states[scope]
    if default is None:
        if len(costs) != n_joint_states(shape):
            raise ValueError(
                f"{path}: function {f} has {len(costs)} costs, but its variables have {n_joint_states(shape):.0f} "
                "joint states."
            )
        return scope, _as_costs(path, costs, f, sign).reshape(shape)
    width = len(scope) + 1
    if len(costs) % width:
        raise ValueError(f"{path}: the costs of function {f} must be rows of {len(scope)} values and a cost.")
    states = [
        _find_index(path, word, state_of[scope[k]], shape[k], f"a value of function {f}")
        for start in range(0, len(costs), width)
        for k, word in enumerate(costs[start : start + width - 1])
    ]
    default, *values = _as_costs(path, [default, *costs[width - 1 :: width]], f, sign)
    states = np.array(states, dtype=np.int64).reshape(len(values), len(scope))
    return scope, _build_table(path, f, shape, default, states, np.array(values))


def _build_table(path: Path, f: int, shape: np.ndarray, default: float, states: np.ndarray, costs: np.ndarray) -> Costs:
    """Return the costs of all joint states as an array, or as a sparse table if few of many states are listed."""
    # states: (n_listed, arity); costs: (n_listed,)
    if not len(shape):
        return np.array(costs[0] if len(costs) else default)
    if np.any(states >= shape):
        raise ValueError(f"{path}: function {f} lists a value that its variable does not have.")
    if len(np.unique(states, axis=0)) < len(states):
        raise ValueError(f"{path}: function {f} lists a tuple twice.")
    size = n_joint_states(shape)
    if len(states) < _tuning.SPARSE_SHARE * size and size > _tuning.SMALL_TABLE:
        return SparseTable(states, costs, default)
    table = np.full(shape, float(default))
    table[tuple(states.T)] = costs
    return table


def _check_shape(path: Path, f: int, table: Costs, shape: np.ndarray) -> None:
    if isinstance(table, SparseTable):
        fits = table.states.shape[1] == len(shape) and bool(np.all(table.states < shape))
    else:
        fits = table.shape == tuple(shape)
    if not fits:
        raise ValueError(
            f"{path}: function {f} shares costs with a function whose variables have other numbers of values."
        )


def _find_lowest(table: Costs) -> float:
    costs = np.append(table.values, table.default) if isinstance(table, SparseTable) else table
    return float(np.min(costs, initial=np.inf))


def _convert_to_model(path: Path, n_states: np.ndarray, scopes: list, tables: list, top: float) -> FactorGraph:
    """Return the model with negative costs as scores.

    A joint state is forbidden if its cost plus the lowest costs of all other functions reaches the bound.
    """
    lowest = np.array([_find_lowest(table) for table in tables])
    lowest[np.isinf(lowest)] = 0.0
    limits = top - (lowest.sum() - lowest)
    # Functions with shared costs refer to the same table object, so that the model stores this table only once.
    converted = {(id(table), limit): _to_scores(table, limit) for table, limit in zip(tables, limits, strict=True)}
    factors = [(scope, converted[id(table), limit]) for scope, table, limit in zip(scopes, tables, limits, strict=True)]
    with _text.name_file_in_errors(path):
        return FactorGraph.from_factors(n_states, factors)


def _to_scores(table: Any, limit: float) -> Any:
    """Convert costs to scores, with -inf for costs of at least ``limit``."""
    if isinstance(table, SparseTable):
        return SparseTable(table.states, _to_scores(table.values, limit), float(_to_scores(table.default, limit)))
    return np.where(np.asarray(table) >= limit, -np.inf, 0.0 - np.asarray(table))


def write_wcsp(path: Path, model: FactorGraph) -> None:
    """Write a factor graph whose scores are negative integers, 0 or -inf."""
    scopes, costs, top = _compute_costs(model)
    for f, table in enumerate(costs):
        allowed = table[table < np.inf]
        if np.any(allowed < 0) or np.any(allowed != np.floor(allowed)):
            raise ValueError(
                f"{path} can hold only integer costs of at least 0, but factor {f} has scores from "
                f"{-allowed.max():.4g} to {-allowed.min():.4g}. Choose a file name that ends in .cfn."
            )
    top = int(top)
    lines = [f"model {model.n_nodes} {model.n_columns} {model.n_factors} {top}", _text.join_integers(model.n_states)]
    for scope, table in zip(scopes, costs, strict=True):
        values, counts = np.unique(table, return_counts=True)
        default = values[np.argmax(counts)]
        listed = np.argwhere(table != default)
        lines.append(_text.join_integers([len(scope), *scope, min(default, top), len(listed)]))
        lines += [_text.join_integers([*states, min(table[tuple(states)], top)]) for states in listed]
    _text.write_text(path, "\n".join(lines) + "\n")


def write_cfn(path: Path, model: FactorGraph) -> None:
    """Write a factor graph as JSON, with costs rounded to 15 digits of the bound."""
    scopes, costs, top = _compute_costs(model)
    forbidden = 2.0 * top  # reaches the bound even if all other functions have their lowest costs
    n_decimals = max(0, _DIGITS - len(f"{forbidden:.0f}"))
    texts = [[f"{min(cost, forbidden) + 0.0:.{n_decimals}f}" for cost in table.ravel().tolist()] for table in costs]
    texts = [[text.rstrip("0").rstrip(".") if n_decimals else text for text in row] for row in texts]
    n_used = max((len(text.partition(".")[2]) for row in texts for text in row), default=0)
    problem = {"name": "model", "mustbe": f"<{top:.{n_used}f}"}
    variables = {f"v{node}": int(n) for node, n in enumerate(model.n_states)}
    lines = [
        f'"f{f}": {{"scope": {json.dumps([f"v{node}" for node in scope])}, "costs": [{", ".join(row)}]}}'
        for f, (scope, row) in enumerate(zip(scopes, texts, strict=True))
    ]
    _text.write_text(
        path,
        f'{{"problem": {json.dumps(problem)},\n"variables": {json.dumps(variables)},\n"functions": {{\n'
        + ",\n".join(lines)
        + "\n}}\n",
    )


def _compute_costs(model: FactorGraph) -> tuple[list, list, float]:
    """Return the scopes and negative scores of all factors, and a bound above the cost of every allowed labeling."""
    scopes = [model.scope[a:b].tolist() for a, b in zip(model.scope_ptr[:-1], model.scope_ptr[1:], strict=True)]
    costs = [0.0 - model.dense_table(f).astype(np.float64) for f in range(model.n_factors)]
    top = 1.0 + sum(float(np.max(np.abs(table[table < np.inf]), initial=0.0)) for table in costs)
    if top > _LARGEST_COST:
        raise ValueError(
            f"the largest absolute scores of the factors of model sum to {top - 1:.4g}, but must sum to less than "
            "2**53 in this format: scale the scores down."
        )
    return scopes, costs, top
