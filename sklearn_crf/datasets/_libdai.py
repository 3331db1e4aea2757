"""Factor graphs in the text format of libDAI."""

import numpy as np

from sklearn_crf.datasets._uai import Tokens, as_factor_graph, log_of, potentials_of, read_text, write_text
from sklearn_crf.models import FactorGraph, SparseTable

# A table with fewer entries than this share of its joint states is kept as a list of them.
_SPARSE_SHARE = 0.25


def read_fg(path):
    """Read a model in libDAI's ``.fg`` format: blocks of nodes, their numbers of states, and non-zero entries.

    The first node's state changes fastest there. A node is a number from 0 on; numbers that no factor uses are nodes of
    one state.

    Parameters
    ----------
    path : str or path
        Compressed if it ends in ``.gz``.

    Returns
    -------
    FactorGraph
        One table for each factor, sparse if at most a quarter of its entries is listed.

    Raises
    ------
    ValueError
        If the file is not in that format.
    """
    lines = [line.split("#", 1)[0] for line in read_text(path).splitlines()]
    tokens = Tokens(" ".join(lines).split(), path)
    blocks, known = [], {}
    for f in range(tokens.integer("the number of factors")):
        what = f"factor {f}"
        n = tokens.integer(what)
        scope, shape = tokens.integers(n, what), tokens.integers(n, what)
        for node, states in zip(scope.tolist(), shape.tolist(), strict=True):
            if node < 0 or states < 1 or known.setdefault(node, states) != states:
                raise ValueError(f"{path}: factor {f} gives variable {node} {states} states.")
        entries = tokens.numbers(2 * tokens.integer(what), what).reshape(-1, 2)
        blocks.append((scope, _table(entries, shape, f, path)))
    tokens.end()
    n_states = np.ones(max(known, default=-1) + 1, dtype=np.int64)
    n_states[list(known)] = list(known.values())
    return FactorGraph.from_factors(n_states, blocks)


def _table(entries, shape, f, path):
    size = np.prod(shape, dtype=float)
    if size > 2.0**62:
        raise ValueError(f"{path}: factor {f} has more than 2**62 joint states.")
    number = entries[:, 0].astype(np.int64)
    if np.any(number != entries[:, 0]) or np.any((number < 0) | (number >= size)):
        raise ValueError(f"{path}: the entries of factor {f} must be numbered 0 to {int(size) - 1}.")
    scores = log_of(entries[:, 1], path)
    if len(entries) < _SPARSE_SHARE * size:
        states = np.empty((len(number), len(shape)), dtype=np.int64)
        for k, length in enumerate(shape.tolist()):
            number, states[:, k] = np.divmod(number, length)
        return SparseTable(states, scores)
    table = np.full(int(size), -np.inf)
    table[number] = scores
    return table.reshape(shape, order="F")


def write_fg(path, model):
    """Write a model in libDAI's ``.fg`` format.

    Parameters
    ----------
    path : str or path
        Compressed if it ends in ``.gz``.
    model : FactorGraph or PairwiseModel
        Nodes without any factor get one, of ones: the format has no other place for their numbers of states.

    Raises
    ------
    ValueError
        If a score is too large or too small for its exponential, or a table too large to be written out.
    """
    model = as_factor_graph(model)
    blocks = []
    for f in range(model.n_factors):
        scope = model.scope[model.scope_ptr[f] : model.scope_ptr[f + 1]]
        table = potentials_of(model, f).reshape(model.n_states[scope])
        blocks.append(_block(scope, table))
    for node in np.setdiff1d(np.arange(model.n_nodes), model.scope):
        blocks.append(_block([node], np.ones(model.n_states[node])))
    write_text(path, "\n\n".join([str(len(blocks)), *blocks]) + "\n")


def _block(scope, table):
    values = table.ravel(order="F")
    used = np.flatnonzero(values)
    lines = [len(scope), " ".join(map(str, scope)), " ".join(map(str, table.shape)), len(used)]
    return "\n".join([*map(str, lines), *(f"{k} {float(values[k])!r}" for k in used.tolist())])
