"""Features of runs of nodes: their values for training and prediction, their scores, and the adjoint of the scores."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.lib.stride_tricks import sliding_window_view

from sklearn_crf._numbers import as_reals, gram, is_sparse_matrix
from sklearn_crf.encoding import Example, n_inputs, replace_fields

Values = Any  # array or CSR matrix

#: Names of built-in features, with the number of weights of a label for each feature of nodes.
BUILT_IN = {"mean": 1, "ends": 2}


class RunFeatures(NamedTuple):
    """Values from which the features of the runs in a chain are computed."""

    nodes: Values  # (N, F), features of nodes for built-in features; (N, 0) without built-in features
    spans: Values  # (N L, P), results of user-defined functions; row s L + d - 1 is the run of d nodes from s


class RunFeatureKinds(NamedTuple):
    """Features of runs that have weights: names of built-in features, and user-defined functions."""

    names: frozenset[str]
    functions: tuple[Callable, ...]
    n_spans: int  # L: runs of up to L nodes have features from user-defined functions

    @classmethod
    def of(cls, features: Any, max_duration: int) -> "RunFeatureKinds":
        """Sort the parameter ``features`` of segments into names and functions."""
        given = features if isinstance(features, list | tuple) else [] if features is None else [features]
        names = [each for each in given if isinstance(each, str)]
        if unknown := set(names) - set(BUILT_IN):
            raise ValueError(f"features of segments must be 'mean', 'ends' or callables, got {unknown.pop()!r}.")
        functions = tuple(each for each in given if not isinstance(each, str))
        if wrong := [each for each in functions if not callable(each)]:
            raise ValueError(f"features of segments must be 'mean', 'ends' or callables, got {wrong[0]!r}.")
        return cls(frozenset(names), functions, max_duration - 1)

    @property
    def n_built_in(self) -> int:
        """Number of weights of a label for each feature of nodes."""
        return sum(BUILT_IN[name] for name in self.names)

    def count(self, encoded: Any) -> int:
        """Return the number of weights per label; call the user-defined functions once to count their features."""
        n_features = n_inputs(encoded)
        zeros: Any = np.zeros((1, n_features))
        return self.n_built_in * n_features + self._measure(sp.csr_matrix(zeros) if encoded.is_sparse else zeros)[1]

    def added_to(self, prepare: Callable, n_added: int) -> Callable[[Example], Example]:
        """Return a function that prepares an example and adds the features of its runs."""
        if not self.names and not self.functions:
            return prepare
        return partial(self._prepare, prepare, n_added)

    def _prepare(self, prepare: Callable, n_added: int, example: Example) -> Example:
        measured = self.measure(example, example.shape[1] - n_added)
        return replace_fields(prepare(example), run_features=measured)

    def measure(self, example: Example, n_features: int) -> RunFeatures:
        """Compute the features of the runs of an example of chains."""
        rows, ptr = example.node_features, example.graph.chain_ptr
        if not isinstance(rows, np.ndarray) and not sp.issparse(rows):
            raise ValueError("features of segments need arrays or sparse matrices as node features.")
        if ptr is None:
            raise ValueError("segments need chains, in which every edge joins a node to the next, in order.")
        rows = rows[:, :n_features]
        none = np.zeros((rows.shape[0], 0), rows.dtype)
        spans = none[:0]
        if self.functions:
            parts = [self._measure(rows[a:b])[0] for a, b in pairwise(ptr.tolist())]
            spans = sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)
        return RunFeatures(rows if self.names else none, spans)

    def _measure(self, rows: Values) -> tuple[Values, int]:
        """Return the results of user-defined functions for all runs of one sequence, (n L, P), and P."""
        if not self.functions:
            return np.zeros((0, 0)), 0
        n_nodes = rows.shape[0]
        first = np.repeat(np.arange(n_nodes), self.n_spans)
        last = first + np.tile(np.arange(self.n_spans), n_nodes)
        fits = np.flatnonzero(last < n_nodes)
        found = [_check(function(rows, first[fits], last[fits]), len(fits)) for function in self.functions]
        if all(isinstance(each, np.ndarray) for each in found):
            values = np.zeros((len(first), sum(each.shape[1] for each in found)), dtype=rows.dtype)
            values[fits] = np.concatenate(found, axis=1)
            return values, values.shape[1]
        joined = sp.hstack(found, format="csr", dtype=rows.dtype)
        indptr = np.zeros(len(first) + 1, dtype=joined.indptr.dtype)
        indptr[fits + 1] = np.diff(joined.indptr)
        shape = len(first), joined.shape[1]
        return sp.csr_matrix((joined.data, joined.indices, np.cumsum(indptr)), shape=shape), shape[1]

    def scores(self, features: RunFeatures, coef: np.ndarray, dtype: np.dtype) -> tuple[Any, Any, Any]:
        """Return the scores that features of runs add to nodes, ends of runs and single runs, or None each."""
        # coef: (K, P); returns: (N, K), (2, N, K) and (N, L, K), or None
        n_features, n_classes = features.nodes.shape[1], len(coef)
        mean, first, last, own = self._split(coef, n_features)
        n_nodes = features.nodes.shape[0]
        of_nodes = ends = spans = None
        if "ends" in self.names:
            ends = np.stack([_multiply(features.nodes, each) for each in (first, last)]).astype(dtype, copy=False)
        if self.functions:
            spans = _multiply(features.spans, own).reshape(n_nodes, self.n_spans, n_classes)
        if "mean" in self.names:
            of_nodes = _multiply(features.nodes, mean).astype(np.float64, copy=False)
            if self.n_spans:
                means = self._sum_over_spans(of_nodes) * self._shares[:, np.newaxis]
                spans = means if spans is None else spans + means
            of_nodes = of_nodes / (self.n_spans + 1)
        return of_nodes, ends, None if spans is None else spans.astype(dtype, copy=False)

    def pullback(self, features: RunFeatures, statistics: Any, node_ptr: np.ndarray) -> np.ndarray:
        """Return the derivatives by the weights, (m, K, P), separately for each of m joined graphs."""
        n_features, n_classes = features.nodes.shape[1], statistics.unary.shape[1]
        n_own = features.spans.shape[1]
        gradient = np.zeros((len(node_ptr) - 1, n_classes, self.n_built_in * n_features + n_own))
        of_nodes = {}
        if "mean" in self.names:
            of_nodes[0] = statistics.unary / (self.n_spans + 1) + self._count_cover(statistics.spans)
        if "ends" in self.names:
            of_nodes[1], of_nodes[2] = statistics.ends
        for own, a, b in zip(gradient, node_ptr[:-1], node_ptr[1:], strict=True):
            parts = self._split(own, n_features)
            for k, columns in of_nodes.items():
                parts[k][...] = gram(features.nodes[a:b], columns[a:b])
            if n_own:
                rows = statistics.spans[a:b].reshape(-1, n_classes)
                parts[3][...] = gram(features.spans[a * self.n_spans : b * self.n_spans], rows)
        return gradient

    def _split(self, coef: np.ndarray, n_features: int) -> tuple[np.ndarray, ...]:
        """Split weights (K, P) into views for means, first nodes, last nodes and user-defined functions."""
        n_means, n_ends = (n_features * (name in self.names) for name in ("mean", "ends"))
        return tuple(np.split(coef, np.cumsum([n_means, n_ends, n_ends]), axis=1))

    @property
    def _shares(self) -> np.ndarray:
        """Weights that turn sums over runs of 1, 2, ..., L nodes into means, minus 1 / (L + 1), which all sums get."""
        return 1 / np.arange(1, self.n_spans + 1) - 1 / (self.n_spans + 1)

    def _sum_over_spans(self, values: np.ndarray) -> np.ndarray:
        """Sum values of nodes, (N, K), over the runs of 1, ..., L nodes that begin at each node, (N, L, K)."""
        total = np.cumsum(np.pad(values, ((1, self.n_spans), (0, 0))), axis=0)
        return (
            np.moveaxis(sliding_window_view(total[1:], self.n_spans, axis=0)[: len(values)], 2, 1)
            - (total[: len(values), np.newaxis])
        )

    def _count_cover(self, spans: np.ndarray) -> np.ndarray:
        """Return the expected weight of each node in the means over runs of 1, ..., L nodes, (N, K)."""
        # Adjoint of the sums over spans: each run adds its weight to the nodes from its first to its last node.
        shares = spans * self._shares[:, np.newaxis]
        change = shares.sum(axis=1, dtype=np.float64)
        for d in range(1, self.n_spans + 1):
            change[d:] -= shares[: max(len(shares) - d, 0), d - 1]
        return np.cumsum(change, axis=0)


def _multiply(rows: Values, coef: np.ndarray) -> np.ndarray:
    """Return the products of rows, (n, P), with the weights of each label, (K, P)."""
    return np.asarray(rows @ coef.T.astype(rows.dtype))


def _check(found: Any, n_runs: int) -> Values:
    """Check the result of a function of features of runs."""
    found = found if is_sparse_matrix(found) else as_reals(found, "features of segments", np.float64)
    if found.ndim != 2 or found.shape[0] != n_runs:
        raise ValueError(
            f"features of segments must return an array of shape (n_runs, n_features), with n_runs = {n_runs}, got "
            f"shape {found.shape}."
        )
    values = found.data if sp.issparse(found) else found
    if not np.isfinite(values).all():
        raise ValueError("features of segments must return finite numbers, found NaN or infinity.")
    return found
