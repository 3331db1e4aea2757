"""Reader and writer of factor graphs in the text format of libDAI."""

import numpy as np

from sklearn_crf._numbers import n_joint_states
from sklearn_crf.datasets import _tuning
from sklearn_crf.datasets._text import LARGEST, name_file_in_errors, read_numbers_of, write_text
from sklearn_crf.datasets._uai import PathLike, compute_factor_potentials
from sklearn_crf.models import FactorGraph, PairwiseModel, SparseTable, factor_graph_of

# Indices of table entries are read as float64, which represents integers exactly up to this limit.
_MAX_CELLS = 2.0**53


def read_fg(path: PathLike, *, max_bytes: int = _tuning.MAX_BYTES) -> FactorGraph:
    """Read a model in libDAI's ``.fg`` format, which lists the nodes, state counts and non-zero entries of factors.

    In the tables of this format, the state of the first node changes fastest. Nodes are numbered from 0. A number that
    no factor uses becomes a node with one state.

    Parameters
    ----------
    path : str or path
        Text file; compressed if its name ends in ``.gz``, ``.bz2`` or ``.xz``.
    max_bytes : int, default=2**30
        Largest size of the decompressed text. A longer text raises an error.

    Returns
    -------
    FactorGraph
        One table for each factor, sparse if less than a quarter of its entries are listed.

    Raises
    ------
    ValueError
        If the file is not in this format or too long. Also if the number of a node exceeds both a million and ten times
        the number of nodes in factors.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_crf.datasets import read_fg, write_fg
    >>> from sklearn_crf.models import FactorGraph, score
    >>> model = FactorGraph.from_factors(
    ...     [2, 2], [((0,), [0.0, 1.0]), ((0, 1), [[1.0, 0.0], [0.0, 1.0]])]
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_fg(Path(folder, "model.fg"), model)
    ...     found = read_fg(Path(folder, "model.fg"))
    >>> round(score(found, [1, 1]), 6)
    2.0
    """
    heading, reader = read_numbers_of(path, comment=b"#", max_bytes=max_bytes)
    if heading:
        raise ValueError(f"{path} is not in libDAI's format: it must begin with the number of factors.")
    blocks: list[tuple] = []
    known: dict[int, int] = {}
    for f in range(reader.integer("the number of factors")):
        n = reader.integer(f"the number of variables of factor {f}")
        scope = reader.integers(n, f"the variables of factor {f}")
        shape = reader.integers(n, f"the numbers of states of factor {f}", lowest=1)
        for node, states in zip(scope.tolist(), shape.tolist(), strict=True):
            if known.setdefault(node, states) != states:
                raise ValueError(
                    f"{path}: variable {node} has {states} states in factor {f}, but {known[node]} in an earlier "
                    "factor."
                )
        n_entries = reader.integer(f"the number of entries of factor {f}")
        entries = reader.take(2 * n_entries, f"the entries of factor {f}", 0.0, LARGEST)
        scores = reader.logarithms(np.arange(reader.position - len(entries) + 1, reader.position, 2))
        blocks.append((scope, _table(entries[::2], scores, shape, f, path)))
    reader.end()
    n_nodes = max(known, default=-1) + 1
    if n_nodes > max(_tuning.MAX_NODES, _tuning.MAX_UNUSED * len(known)):
        raise ValueError(
            f"{path} has a variable {n_nodes - 1}, but its factors have {len(known)} variables: renumber them."
        )
    n_states = np.ones(n_nodes, dtype=np.int64)
    n_states[list(known)] = list(known.values())
    with name_file_in_errors(path):
        return FactorGraph.from_factors(n_states, blocks)


def _table(number, scores, shape, f, path):
    size = n_joint_states(shape)
    if size > _MAX_CELLS:
        raise ValueError(f"{path}: factor {f} has more than 2**53 joint states.")
    if np.any(number != np.floor(number)) or not np.all((number >= 0) & (number < size)):
        raise ValueError(f"{path}: the entries of factor {f} must be numbered 0 to {int(size) - 1}.")
    number = number.astype(np.int64)
    if len(np.unique(number)) < len(number):
        raise ValueError(f"{path}: factor {f} lists an entry twice.")
    if len(shape) and len(number) < _tuning.SPARSE_SHARE * size:
        states = np.empty((len(number), len(shape)), dtype=np.int64)
        for k, length in enumerate(shape.tolist()):
            number, states[:, k] = np.divmod(number, length)
        return SparseTable(states, scores)
    table = np.full(int(size), -np.inf)
    table[number] = scores
    return table.reshape(shape, order="F")


def write_fg(path: PathLike, model: FactorGraph | PairwiseModel) -> None:
    """Write a model in libDAI's ``.fg`` format.

    Parameters
    ----------
    path : str or path
        Text file; compressed if its name ends in ``.gz``, ``.bz2`` or ``.xz``.
    model : FactorGraph or PairwiseModel
        Nodes without a factor are written with a factor of ones, because the format stores numbers of states in
        factors.

    Raises
    ------
    ValueError
        If the exponential of a score would overflow or underflow, or a table is too large to be written in full.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_crf.datasets import read_fg, write_fg
    >>> from sklearn_crf.models import FactorGraph, score
    >>> model = FactorGraph.from_factors(
    ...     [2, 2], [((0,), [0.0, 1.0]), ((0, 1), [[1.0, 0.0], [0.0, 1.0]])]
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_fg(Path(folder, "model.fg"), model)
    ...     found = read_fg(Path(folder, "model.fg"))
    >>> round(score(found, [1, 1]), 6)
    2.0
    """
    model = factor_graph_of(model)
    blocks = []
    for f in range(model.n_factors):
        scope = model.scope[model.scope_ptr[f] : model.scope_ptr[f + 1]]
        table = compute_factor_potentials(model, f).reshape(model.n_states[scope])
        blocks.append(_format_block(scope, table))
    for node in np.setdiff1d(np.arange(model.n_nodes), model.scope):
        blocks.append(_format_block([node], np.ones(model.n_states[node])))
    write_text(path, "\n\n".join([str(len(blocks)), *blocks]) + "\n")


def _format_block(scope, table):
    values = table.ravel(order="F")
    used = np.flatnonzero(values)
    lines = [len(scope), " ".join(map(str, scope)), " ".join(map(str, table.shape)), len(used)]
    return "\n".join([*map(str, lines), *(f"{k} {float(values[k])!r}" for k in used.tolist())])
