"""Reader and writer of factor graphs in the text formats of the UAI inference competitions and of toulbar2."""

from __future__ import annotations

from os import PathLike as OsPathLike
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from sklearn_crf._numbers import as_integer, as_integers, as_reals
from sklearn_crf.datasets import _cost_networks, _text, _tuning
from sklearn_crf.models import FactorGraph, PairwiseModel, factor_graph_of

PathLike = str | OsPathLike[str]

# Beyond these limits, the exponential of a score is infinite or loses digits.
_LARGEST_SCORE, _SMALLEST_SCORE = 709.0, -708.0


# _ROUNDING: amount by which rounded probabilities may exceed one.
# _TWO_DIGITS: maximum rounding error of a number that is rounded to two digits.
_ROUNDING, _TWO_DIGITS = 1e-6, 0.005


def read_uai(path: PathLike, *, logarithms: bool | None = None, max_bytes: int = _tuning.MAX_BYTES) -> FactorGraph:
    """Read a model in UAI format: ``MARKOV`` or ``BAYES``, the scopes of the factors, then their tables.

    A table lists potentials (or conditional probabilities); the state of the last node changes fastest. Scores are the
    logarithms of potentials, -inf for 0. Tables in ``.LG`` files list these logarithms, with -1e30 for -inf.

    Files of toulbar2, whose names end in ``.wcsp`` or ``.cfn``, are cost function networks. Scores are negative costs.
    A joint state is forbidden if its cost, plus the lowest costs of all other functions, reaches the upper bound of the
    file. If only the total cost of a labeling reaches the bound, the labeling is allowed. If a ``.cfn`` file defines a
    maximisation problem, scores are the numbers in the file. Functions defined by keywords instead of tables, such as
    ``salldiff``, raise an error.

    Parameters
    ----------
    path : str or path
        Text file; compressed if its name ends in ``.gz``, ``.bz2`` or ``.xz``. The suffix before the compression suffix
        determines the format.
    logarithms : bool, optional
        Whether tables list natural logarithms of potentials. None means True for names that end in ``.LG``, apart from
        a compression suffix. Ignored for cost function networks.
    max_bytes : int, default=2**30
        Largest size of the decompressed text. A longer text raises an error.

    Returns
    -------
    FactorGraph
        One table for each factor, in the order of the file. Only large tables of costs that list few entries are
        sparse.

    Raises
    ------
    ValueError
        If the file is not in this format or too long, or if a node has more than 2**20 states.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_crf.datasets import read_uai, write_uai
    >>> from sklearn_crf.models import FactorGraph, score
    >>> model = FactorGraph.from_factors(
    ...     [2, 2], [((0,), [0.0, 1.0]), ((0, 1), [[1.0, 0.0], [0.0, 1.0]])]
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_uai(Path(folder, "model.uai"), model)
    ...     found = read_uai(Path(folder, "model.uai"))
    >>> round(score(found, [1, 1]), 6)
    2.0
    """
    suffix = _text.get_format_suffix(path)
    if suffix in (".wcsp", ".cfn"):
        return (_cost_networks.read_wcsp if suffix == ".wcsp" else _cost_networks.read_cfn)(Path(path), max_bytes)
    are_scores = _lists_logarithms(path, logarithms)
    heading, reader = _text.read_numbers_of(path, max_bytes=max_bytes)
    if heading not in ("MARKOV", "BAYES"):
        raise ValueError(f"{path} is not in UAI format: it must begin with MARKOV or BAYES.")
    n_nodes = reader.integer("the number of variables")
    n_states = reader.integers(n_nodes, "the numbers of states", lowest=1, highest=_tuning.MAX_STATES)
    n_factors = reader.integer("the number of factors")
    scope, scope_ptr = reader.rows(n_factors, "the scope of factor", 0, n_nodes - 1)
    scope = reader.whole(scope, "scopes")
    lowest = -np.inf if are_scores else 0.0
    hint = " If the file lists logarithms, pass logarithms=True."
    entries, table_ptr = reader.rows(
        n_factors, "the table of factor", lowest, _text.LARGEST, hint, logarithms=not are_scores
    )
    reader.end()
    n_cells = np.ones(n_factors)
    np.multiply.at(n_cells, np.repeat(np.arange(n_factors), np.diff(scope_ptr)), n_states[scope])
    wrong = np.diff(table_ptr) != n_cells
    if wrong.any():
        f = int(np.argmax(wrong))
        n_entries = table_ptr[f + 1] - table_ptr[f]
        raise ValueError(
            f"{path}: the table of factor {f} has {n_entries} entries, but its variables have {n_cells[f]:.0f} joint "
            "states."
        )
    with _text.name_file_in_errors(path):
        scores = np.where(entries <= _tuning.FORBIDDEN, -np.inf, entries) if are_scores else entries
        return FactorGraph(n_states, scope, scope_ptr, np.arange(n_factors), scores, table_ptr)


def _lists_logarithms(path, logarithms):
    if logarithms is None:
        return _text.get_format_suffix(path) == ".lg"
    if not isinstance(logarithms, bool | np.bool_):
        raise ValueError(f"logarithms must be True, False or None, got {logarithms!r}.")
    return bool(logarithms)


def get_factor_scores(model, factor):
    """Return a factor's dense table as a flat float64 array."""
    return model.dense_table(factor).astype(np.float64).ravel()


def compute_factor_potentials(model, factor):
    """Return the exponentials of a factor's dense table, or raise ValueError if they would overflow or underflow."""
    table = get_factor_scores(model, factor)
    allowed = table[table > -np.inf]
    if allowed.max(initial=0.0) > _LARGEST_SCORE or allowed.min(initial=0.0) < _SMALLEST_SCORE:
        raise ValueError(
            f"factor {factor} has scores from {allowed.min():.4g} to {allowed.max():.4g}. The file holds "
            f"exponentials of scores, so scores must be between {_SMALLEST_SCORE} and {_LARGEST_SCORE}. Use write_uai "
            "with a file name that ends in .LG to write the scores themselves."
        )
    return np.exp(table)


def write_uai(path: PathLike, model: FactorGraph | PairwiseModel, *, logarithms: bool | None = None) -> None:
    """Write a model in UAI format, or in a format of toulbar2, with tables of all kinds written in full.

    Costs in ``.wcsp`` and ``.cfn`` files are negative scores. The cost of a forbidden joint state reaches the upper
    bound of the file, which is above the cost of every allowed labeling. The costs in a ``.wcsp`` file are integers of
    at least 0. The costs in a ``.cfn`` file are decimal numbers, which are rounded to 15 digits of the bound.

    Parameters
    ----------
    path : str or path
        Text file; compressed if its name ends in ``.gz``, ``.bz2`` or ``.xz``. The suffix before the compression suffix
        determines the format: ``.uai``, ``.LG``, ``.wcsp`` or ``.cfn``.
    model : FactorGraph or PairwiseModel
    logarithms : bool, optional
        Whether tables list scores instead of their exponentials, as in :func:`read_uai`. None means True for names that
        end in ``.LG``, apart from a compression suffix. Ignored for cost function networks.

    Raises
    ------
    ValueError
        If the file lists exponentials and the exponential of a score would overflow or underflow, if the format of
        costs cannot represent the scores, or if a table is too large to be written in full.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_crf.datasets import read_uai, write_uai
    >>> from sklearn_crf.models import FactorGraph, score
    >>> model = FactorGraph.from_factors(
    ...     [2, 2], [((0,), [0.0, 1.0]), ((0, 1), [[1.0, 0.0], [0.0, 1.0]])]
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_uai(Path(folder, "model.uai"), model)
    ...     found = read_uai(Path(folder, "model.uai"))
    >>> round(score(found, [1, 1]), 6)
    2.0
    """
    suffix = _text.get_format_suffix(path)
    model = factor_graph_of(model)
    if suffix in (".wcsp", ".cfn"):
        (_cost_networks.write_wcsp if suffix == ".wcsp" else _cost_networks.write_cfn)(Path(path), model)
        return
    are_scores = _lists_logarithms(path, logarithms)
    lines = ["MARKOV", str(model.n_nodes), _text.join_integers(model.n_states), str(model.n_factors)]
    for a, b in zip(model.scope_ptr[:-1], model.scope_ptr[1:], strict=True):
        lines.append(_text.join_integers([b - a, *model.scope[a:b]]))
    for factor in range(model.n_factors):
        table = get_factor_scores(model, factor) if are_scores else compute_factor_potentials(model, factor)
        if are_scores:
            table = np.maximum(table, _tuning.FORBIDDEN)
        lines += ["", str(len(table)), " ".join(map(repr, table.tolist()))]
    _text.write_text(path, "\n".join(lines) + "\n")


def read_evidence(
    path: PathLike, n_nodes: int, *, sample: int | None = None, max_bytes: int = _tuning.MAX_BYTES
) -> np.ndarray:
    """Read an evidence file: the number of observed nodes, then pairs of a node and its state.

    Files of the later competitions begin with the number of samples of evidence. Each sample is then on a separate
    line, in the form described above.

    Parameters
    ----------
    path : str or path
        Text file; compressed if its name ends in ``.gz``, ``.bz2`` or ``.xz``.
    n_nodes : int
        Number of nodes of the model.
    sample : int, optional
        Index of the sample of evidence, from 0. None requires that the file has a single sample.
    max_bytes : int, default=2**30
        Largest size of the decompressed text. A longer text raises an error.

    Returns
    -------
    ndarray of shape (n_nodes,), int32
        State of each observed node, -1 for other nodes, as expected by :func:`sklearn_crf.models.clamped`.

    Raises
    ------
    ValueError
        If the file is in neither format or too long, contains a node that does not exist, or contains two states of a
        node. Also if the file has several samples and ``sample`` is None.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_crf.datasets import read_evidence, write_evidence
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_evidence(Path(folder, "found.txt"), [1, -1, 0])
    ...     found = read_evidence(Path(folder, "found.txt"), n_nodes=3)
    >>> found.tolist()
    [1, -1, 0]
    """
    n_nodes = as_integer(n_nodes, "n_nodes")
    heading, reader = _text.read_numbers_of(path, max_bytes=max_bytes)
    if heading:
        raise ValueError(f"{path} is not an evidence file: it must begin with a number, found {heading!r}.")
    start = _find_sample_start(path, reader.values, sample)
    labels = np.full(n_nodes, -1, dtype=np.int32)
    if start < len(reader.values):
        reader.position = start
        n_observed = reader.integer("the number of observed variables")
        pairs = reader.integers(2 * n_observed, "pairs of variable and state").reshape(-1, 2)
        if not start:
            reader.end()
        if pairs.size and pairs[:, 0].max() >= n_nodes:
            raise ValueError(f"{path} observes variable {pairs[:, 0].max()}, but n_nodes is {n_nodes}.")
        labels[pairs[:, 0]] = pairs[:, 1]
        unlike = labels[pairs[:, 0]] != pairs[:, 1]
        if unlike.any():
            raise ValueError(f"{path} observes variable {pairs[np.argmax(unlike), 0]} in two states.")
    return labels


def _find_sample_start(path, values, sample):
    """Return the index of the first number of a sample of evidence, which is 0 in the single-sample format."""
    starts = _find_sample_starts(path, values)
    if sample is None:
        if len(starts) > 1:
            raise ValueError(
                f"{path} holds {len(starts)} samples of evidence: pass sample as an integer between 0 and "
                f"{len(starts) - 1}."
            )
        return starts[0]
    sample = as_integer(sample, "sample")
    if sample >= len(starts):
        raise ValueError(f"sample={sample}, but {path} holds {len(starts)} samples of evidence, numbered from 0.")
    return starts[sample]


def _find_sample_starts(path, values):
    # values: (n,) float64, all numbers of the file
    starts: list[int] = []
    place = 1
    n_samples = values[0] if len(values) else 0.0
    while len(starts) < n_samples and place < len(values) and values[place] >= 0 and values[place] % 1 == 0:
        starts.append(place)
        place += 1 + 2 * int(values[place])
    if len(starts) != n_samples or place != len(values) or not starts:
        return [0]
    if len(values) == 1 + 2 * n_samples:
        # The numbers are valid in both formats, so the line breaks determine the format.
        lengths = [1, *(1 + 2 * int(values[start]) for start in starts)]
        return starts if _text.count_words_by_line(path) == lengths else [0]
    return starts


def write_evidence(path: PathLike, labels: ArrayLike) -> None:
    """Write an evidence file.

    Parameters
    ----------
    path : str or path
        Text file; compressed if its name ends in ``.gz``, ``.bz2`` or ``.xz``.
    labels : array-like of shape (N,) of int
        State of each observed node, negative for other nodes.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_crf.datasets import read_evidence, write_evidence
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_evidence(Path(folder, "found.txt"), [1, -1, 0])
    ...     found = read_evidence(Path(folder, "found.txt"), n_nodes=3)
    >>> found.tolist()
    [1, -1, 0]
    """
    labels = _as_labels(labels)
    nodes = np.flatnonzero(labels >= 0)
    pairs = np.stack((nodes, labels[nodes]), axis=1).ravel()
    _text.write_text(path, _text.join_integers([len(nodes), *pairs]) + "\n")


def read_marginals(path: PathLike, *, max_bytes: int = _tuning.MAX_BYTES) -> np.ndarray:
    """Read a solution of task MAR: the number of states of each node, and the probability of each state.

    Parameters
    ----------
    path : str or path
        Text file; compressed if its name ends in ``.gz``, ``.bz2`` or ``.xz``.
    max_bytes : int, default=2**30
        Largest size of the decompressed text. A longer text raises an error.

    Returns
    -------
    ndarray of shape (N, K), float64
        Probabilities, zero beyond a node's number of states.

    Raises
    ------
    ValueError
        If the file is not in this format, too long, or contains a number that is not a probability, or if the array
        would have more than 2**27 entries.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_crf.datasets import read_marginals, write_marginals
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_marginals(Path(folder, "found.MAR"), [[0.25, 0.75], [0.5, 0.5]])
    ...     found = read_marginals(Path(folder, "found.MAR"))
    >>> found.tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """
    heading, reader = _text.read_numbers_of(path, max_bytes=max_bytes)
    if heading != "MAR":
        raise ValueError(f"{path} is not a solution of task MAR: it must begin with the word MAR.")
    n_nodes = reader.integer("the number of variables")
    probabilities, ptr = reader.rows(n_nodes, "the marginals of variable", 0.0, 1 + _ROUNDING)
    reader.end()
    counts = np.diff(ptr)
    sums = np.diff(np.concatenate(([0.0], np.cumsum(probabilities)))[ptr])
    wrong = np.abs(sums - 1.0) > np.minimum(_TWO_DIGITS * np.diff(ptr), 0.5) + _ROUNDING
    if wrong.any():
        node = int(np.argmax(wrong))
        raise ValueError(f"{path}: the marginals of variable {node} must sum to 1, found {sums[node]:.6g}.")
    n_columns = int(counts.max(initial=1))
    if n_nodes * n_columns > _tuning.MAX_MARGINALS:
        raise ValueError(f"{path} gives {n_nodes} variables of up to {n_columns} states, too many for one array.")
    unary = np.zeros((n_nodes, n_columns))
    unary[np.arange(n_columns) < counts[:, np.newaxis]] = probabilities
    return unary


def write_marginals(path: PathLike, unary: ArrayLike, n_states: ArrayLike | None = None) -> None:
    """Write a solution of task MAR: the number of states of each node, and the probability of each state.

    Parameters
    ----------
    path : str or path
        Text file; compressed if its name ends in ``.gz``, ``.bz2`` or ``.xz``.
    unary : array-like of shape (N, K)
        Marginals of nodes, as returned by inference.
    n_states : array-like of shape (N,), optional
        Number of states of each node; None means K for all nodes.

    Raises
    ------
    ValueError
        If the shape is wrong, or a number is not a probability.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_crf.datasets import read_marginals, write_marginals
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_marginals(Path(folder, "found.MAR"), [[0.25, 0.75], [0.5, 0.5]])
    ...     found = read_marginals(Path(folder, "found.MAR"))
    >>> found.tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """
    unary = as_reals(unary, "unary", np.float64)
    if sp.issparse(unary):
        unary = unary.toarray()
    if unary.ndim != 2:
        raise ValueError(f"unary must have shape (n_nodes, n_states), got {unary.shape}.")
    if not np.all((unary >= 0) & (unary <= 1 + _ROUNDING)):
        raise ValueError("unary must hold probabilities: a number in it is NaN, negative or above one.")
    n_nodes, n_columns = unary.shape
    if n_states is None:
        n_states = np.full(n_nodes, n_columns)
    n_states = as_integers(n_states, "n_states", shape=(n_nodes,), lowest=1, highest=n_columns)
    words = [str(len(unary))]
    for row, n in zip(unary, n_states, strict=True):
        words += [str(int(n)), *map(repr, row[:n].tolist())]
    _text.write_text(path, "MAR\n" + " ".join(words) + "\n")


def read_labeling(path: PathLike, *, max_bytes: int = _tuning.MAX_BYTES) -> np.ndarray:
    """Read a solution of task MAP (or MPE): the number of nodes, then the state of each node.

    Parameters
    ----------
    path : str or path
        Text file; compressed if its name ends in ``.gz``, ``.bz2`` or ``.xz``.
    max_bytes : int, default=2**30
        Largest size of the decompressed text. A longer text raises an error.

    Returns
    -------
    ndarray of shape (N,), int32

    Raises
    ------
    ValueError
        If the file is not in this format or too long.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_crf.datasets import read_labeling, write_labeling
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_labeling(Path(folder, "found.txt"), [1, 0, 1])
    ...     found = read_labeling(Path(folder, "found.txt"))
    >>> found.tolist()
    [1, 0, 1]
    """
    heading, reader = _text.read_numbers_of(path, max_bytes=max_bytes)
    if heading not in ("MAP", "MPE"):
        raise ValueError(f"{path} is not a solution of task MAP: it must begin with MAP or MPE.")
    labels = reader.integers(reader.integer("the number of variables"), "the states")
    reader.end()
    return labels.astype(np.int32)


def write_labeling(path: PathLike, labels: ArrayLike) -> None:
    """Write a solution of task MAP: the number of nodes, then the state of each node.

    Parameters
    ----------
    path : str or path
        Text file; compressed if its name ends in ``.gz``, ``.bz2`` or ``.xz``.
    labels : array-like of shape (N,) of int

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_crf.datasets import read_labeling, write_labeling
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_labeling(Path(folder, "found.txt"), [1, 0, 1])
    ...     found = read_labeling(Path(folder, "found.txt"))
    >>> found.tolist()
    [1, 0, 1]
    """
    labels = _as_labels(labels, lowest=0)
    _text.write_text(path, "MAP\n" + _text.join_integers([len(labels), *labels]) + "\n")


def _as_labels(labels, lowest=None):
    labels = as_integers(labels, "labels", lowest=lowest)
    if labels.ndim != 1:
        raise ValueError(f"labels must have shape (n_nodes,), got {labels.shape}.")
    return labels
