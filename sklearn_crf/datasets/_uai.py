"""Factor graphs in the text format of the UAI inference competitions."""

import gzip
from pathlib import Path

import numpy as np

from sklearn_crf.models import FactorGraph, PairwiseModel, factor_graph_of

# exp() of scores beyond these is infinite or loses digits.
_LARGEST_SCORE, _SMALLEST_SCORE = 709.0, -708.0


def read_text(path):
    """The text of a file, which may be compressed (``.gz``)."""
    path = Path(path)
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return file.read()


def write_text(path, text):
    """Write a file, compressed if its name ends in ``.gz``."""
    path = Path(path)
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        file.write(text)


class Tokens:
    """The words of a text one after the other, as numbers."""

    def __init__(self, words, path):
        self.words = words
        self.path = path
        self.place = 0

    def integers(self, n, what):
        """The next n words as int64."""
        return self._take(n, what, np.int64)

    def integer(self, what):
        """The next word as int."""
        return int(self._take(1, what, np.int64)[0])

    def numbers(self, n, what):
        """The next n words as float64."""
        return self._take(n, what, np.float64)

    def _take(self, n, what, dtype):
        taken = self.words[self.place : self.place + n]
        if n < 0 or len(taken) < n:
            raise ValueError(f"{self.path} ends before {what}: {n} numbers are needed, {len(taken)} are left.")
        self.place += n
        try:
            return np.array(taken, dtype=dtype)
        except ValueError:
            raise ValueError(f"{self.path} should have numbers for {what}, found {' '.join(taken[:5])!r}.") from None

    def end(self):
        """Raise ValueError unless all words were used."""
        if self.place < len(self.words):
            raise ValueError(f"{self.path} goes on after its end, with {self.words[self.place]!r}.")


def read_uai(path):
    """Read a model in UAI format: ``MARKOV`` or ``BAYES``, the scopes of factors, then their tables.

    A table lists potentials (or conditional probabilities), the last node changing fastest; scores are their
    logarithms, -inf for 0.

    Parameters
    ----------
    path : str or path
        Compressed if it ends in ``.gz``.

    Returns
    -------
    FactorGraph
        One dense table for each factor, in the order of the file.

    Raises
    ------
    ValueError
        If the file is not in that format.
    """
    words = read_text(path).split()
    if not words or words[0].upper() not in ("MARKOV", "BAYES"):
        raise ValueError(f"{path} is not in UAI format: it must begin with MARKOV or BAYES.")
    tokens = Tokens(words[1:], path)
    n_states = tokens.integers(tokens.integer("the number of variables"), "the numbers of states")
    scopes = []
    for f in range(tokens.integer("the number of factors")):
        what = f"the scope of factor {f}"
        scopes.append(tokens.integers(tokens.integer(what), what))
    factors = []
    for f, scope in enumerate(scopes):
        if scope.size and (scope.min() < 0 or scope.max() >= len(n_states)):
            raise ValueError(f"{path}: factor {f} has scope {scope.tolist()}, there are {len(n_states)} variables.")
        shape = n_states[scope]
        size = tokens.integer(f"the table of factor {f}")
        if size != shape.prod():
            raise ValueError(
                f"{path}: the table of factor {f} has {size} entries, its variables {shape.prod()} states."
            )
        factors.append((scope, log_of(tokens.numbers(size, f"the table of factor {f}"), path).reshape(shape)))
    tokens.end()
    return FactorGraph.from_factors(n_states, factors)


def log_of(potentials, path):
    """Logarithms of potentials, -inf for 0."""
    if not np.all((potentials >= 0) & (potentials < np.inf)):
        raise ValueError(f"{path}: potentials must be finite and not negative.")
    with np.errstate(divide="ignore"):
        return np.log(potentials)


def potentials_of(model, factor):
    """exp of a factor's dense table, refusing what a double cannot hold."""
    table = model.dense_table(factor).astype(np.float64).ravel()
    allowed = table[table > -np.inf]
    if allowed.max(initial=0.0) > _LARGEST_SCORE or allowed.min(initial=0.0) < _SMALLEST_SCORE:
        raise ValueError(
            f"factor {factor} has scores from {allowed.min():.4g} to {allowed.max():.4g}: the file holds their "
            f"exponentials, so they must lie within {_SMALLEST_SCORE} and {_LARGEST_SCORE}."
        )
    return np.exp(table)


def as_factor_graph(model):
    """A FactorGraph of either type of model."""
    return factor_graph_of(model) if isinstance(model, PairwiseModel) else model


def write_uai(path, model):
    """Write a model in UAI format, tables of all kinds written out in full.

    Parameters
    ----------
    path : str or path
        Compressed if it ends in ``.gz``.
    model : FactorGraph or PairwiseModel

    Raises
    ------
    ValueError
        If a score is too large or too small for its exponential, or a table too large to be written out.
    """
    model = as_factor_graph(model)
    lines = ["MARKOV", str(model.n_nodes), _row(model.n_states), str(model.n_factors)]
    for a, b in zip(model.scope_ptr[:-1], model.scope_ptr[1:], strict=True):
        lines.append(_row([b - a, *model.scope[a:b]]))
    for factor in range(model.n_factors):
        table = potentials_of(model, factor)
        lines += ["", str(len(table)), " ".join(map(repr, table.tolist()))]
    write_text(path, "\n".join(lines) + "\n")


def _row(values):
    return " ".join(str(int(value)) for value in values)


def read_evidence(path, n_nodes):
    """Read an evidence file: the number of observed nodes, then pairs of node and state.

    Parameters
    ----------
    path : str or path
    n_nodes : int
        Number of nodes of the model.

    Returns
    -------
    ndarray of shape (n_nodes,), int32
        State of each observed node, -1 elsewhere: what :func:`sklearn_crf.models.clamped` takes.
    """
    tokens = Tokens(read_text(path).split(), path)
    labels = np.full(n_nodes, -1, dtype=np.int32)
    if tokens.words:
        n_observed = tokens.integer("the number of observed variables")
        pairs = tokens.integers(2 * n_observed, "pairs of variable and state").reshape(-1, 2)
        if pairs.size and (pairs.min() < 0 or pairs[:, 0].max() >= n_nodes):
            raise ValueError(f"{path} observes variable {pairs[:, 0].max()}, but n_nodes is {n_nodes}.")
        labels[pairs[:, 0]] = pairs[:, 1]
        tokens.end()
    return labels


def write_evidence(path, labels):
    """Write an evidence file.

    Parameters
    ----------
    path : str or path
    labels : array-like of shape (N,) of int
        State of each observed node, negative elsewhere.
    """
    labels = np.asarray(labels)
    nodes = np.flatnonzero(labels >= 0)
    pairs = np.stack((nodes, labels[nodes]), axis=1).ravel()
    write_text(path, _row([len(nodes), *pairs]) + "\n")


def read_marginals(path):
    """Read a solution of task MAR: for each node its number of states and their probabilities.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    ndarray of shape (N, K), float64
        Zero past a node's number of states.
    """
    words = read_text(path).split()
    if not words or words[0].upper() != "MAR":
        raise ValueError(f"{path} is no solution of task MAR: it must begin with that word.")
    tokens = Tokens(words[1:], path)
    rows = []
    for s in range(tokens.integer("the number of variables")):
        what = f"the marginals of variable {s}"
        rows.append(tokens.numbers(tokens.integer(what), what))
    tokens.end()
    unary = np.zeros((len(rows), max(map(len, rows), default=1)))
    for s, row in enumerate(rows):
        unary[s, : len(row)] = row
    return unary


def write_marginals(path, unary, n_states=None):
    """Write a solution of task MAR.

    Parameters
    ----------
    path : str or path
    unary : array-like of shape (N, K)
        Marginals of nodes, as in the results of inference.
    n_states : array-like of shape (N,), optional
        Number of states of each node; None is K for all.
    """
    unary = np.asarray(unary, dtype=np.float64)
    n_states = np.full(len(unary), unary.shape[1]) if n_states is None else np.asarray(n_states)
    words = [str(len(unary))]
    for row, n in zip(unary, n_states, strict=True):
        words += [str(int(n)), *map(repr, row[:n].tolist())]
    write_text(path, "MAR\n" + " ".join(words) + "\n")


def read_labeling(path):
    """Read a solution of task MAP (or MPE): the number of nodes, then the state of each.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    ndarray of shape (N,), int32
    """
    words = read_text(path).split()
    if not words or words[0].upper() not in ("MAP", "MPE"):
        raise ValueError(f"{path} is no solution of task MAP: it must begin with MAP or MPE.")
    tokens = Tokens(words[1:], path)
    labels = tokens.integers(tokens.integer("the number of variables"), "the states")
    tokens.end()
    return labels.astype(np.int32)


def write_labeling(path, labels):
    """Write a solution of task MAP.

    Parameters
    ----------
    path : str or path
    labels : array-like of shape (N,) of int
    """
    labels = np.asarray(labels)
    write_text(path, "MAP\n" + _row([len(labels), *labels]) + "\n")
