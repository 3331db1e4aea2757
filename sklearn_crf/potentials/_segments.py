"""Potentials of sequences with weights for the durations and the features of runs of a label."""

from collections.abc import Callable
from copy import copy
from functools import partial
from itertools import pairwise
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval

from sklearn_crf._numbers import as_reals, gram, is_sparse_matrix
from sklearn_crf._options import options
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.encoding import Example, multiply_rows, n_inputs, replace_fields
from sklearn_crf.models import SegmentModel, Statistics
from sklearn_crf.potentials._extended import ExtendedPotentials

Values = Any  # array or CSR matrix

#: Names of built-in features of runs, with their number of weights per label and node feature.
BUILT_IN = {"mean": 1, "ends": 2}


class RunFeatures(NamedTuple):
    """Values from which the features of the runs in a chain are computed."""

    nodes: Values  # (N, F), features of nodes for built-in features; (N, 0) without built-in features
    spans: Values  # (N L, P), results of user-defined functions; row s L + d - 1: run of d nodes that starts at s

    def select(self, kept: np.ndarray) -> "RunFeatures":
        """Return the values of the chains that remain if only some nodes are kept."""
        # kept: (N,) bool
        n_spans = self.spans.shape[0] // max(len(kept), 1)
        return RunFeatures(self.nodes[kept], self.spans[np.repeat(kept, n_spans)])


class RunFeatureKinds(NamedTuple):
    """The features of runs for which weights are learned: names of built-in features, and user-defined functions."""

    names: frozenset[str]
    functions: tuple[Callable, ...]
    n_spans: int  # L: runs of up to L nodes have features from user-defined functions

    @classmethod
    def of(cls, features: Any, max_duration: int) -> "RunFeatureKinds":
        """Split the parameter ``features`` into names of built-in features and user-defined functions."""
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
        """Number of weights per label and node feature."""
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
        """Return the results of user-defined functions for all runs of a sequence, (n L, P), and the number P."""
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

    def scores(self, features: RunFeatures, coef: np.ndarray, dtype: np.dtype) -> dict[str, np.ndarray]:
        """Return the scores of runs, in a dict with the field names of :class:`SegmentModel`."""
        # coef: (K, P)
        n_features, n_classes = features.nodes.shape[1], len(coef)
        mean, first, last, own = self._split(coef, n_features)
        n_nodes, found = features.nodes.shape[0], {}
        if "ends" in self.names:
            found["ends"] = np.empty((2, n_nodes, n_classes), dtype)
            for scores, weights in zip(found["ends"], (first, last), strict=True):
                scores[...] = multiply_rows(features.nodes, weights)
        if self.functions:
            found["spans"] = multiply_rows(features.spans, own).reshape(n_nodes, self.n_spans, n_classes)
        if "mean" in self.names:
            found["means"] = multiply_rows(features.nodes, mean)
        return found

    def pullback(self, features: RunFeatures, statistics: Any, node_ptr: np.ndarray) -> np.ndarray:
        """Return the gradient with respect to the weights, (m, K, P), separately for each of m joined graphs."""
        n_features, n_classes = features.nodes.shape[1], statistics.unary.shape[1]
        n_own = features.spans.shape[1]
        gradient = np.zeros((len(node_ptr) - 1, n_classes, self.n_built_in * n_features + n_own))
        of_nodes = {}
        if "mean" in self.names:
            of_nodes[0] = statistics.means
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


def _check(found: Any, n_runs: int) -> Values:
    """Check the result of a user-defined function that computes features of runs."""
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


@options(kw_only=False)
class Segments(HoldsOptions):
    r"""Options for segments (semi-Markov models): scores of durations and features of runs, and a minimum duration.

    .. math::
        \mathrm{score}(y) = \mathrm{score}_{\mathrm{pairwise}}(y)
            + \sum_r \bigl( \delta_{k_r, \min(d_r, D)} + v_{k_r}^\top f(x, b_r, e_r) \bigr)

    A run r is a maximal sequence of consecutive nodes with one label :math:`k_r`; it has :math:`d_r` nodes, from
    :math:`b_r` to :math:`e_r`, and D is ``max_duration``. The weights :math:`\delta` and v are learned with all other
    weights, and stored as ``duration_coef_`` and ``segment_coef_`` of the classifier. The weights :math:`\delta`
    replace the geometric durations of a plain chain. Sums of node features over a run need no features of runs, since
    node weights already score them.

    Parameters
    ----------
    max_duration : int, default=20
        Number of durations D with a separate weight for each label. Runs may be longer: all runs of at least D nodes
        share the last weight. Time per node grows with the number of labels times D, and D is at most 100,000.
    min_duration : int, default=1
        Runs of fewer nodes are forbidden. Runs at the first or the last node of a sequence may be shorter, since the
        sequence may have cut them off. At most ``max_duration``.
    features : {"mean", "ends"}, callable, list of these, or None, default=None
        Features f of runs. ``"mean"``: the sum of the node features over the run, divided by :math:`\min(d_r, D)`.
        ``"ends"``: the features of the first node, then the features of the last node. A callable
        ``function(x, first, last)`` computes features of runs of fewer than D nodes, and longer runs have none. It
        receives the node features (T, F) of a sequence and the first and last nodes (n,) of n runs, and returns an
        array or sparse matrix (n, P). The columns of ``segment_coef_`` are means, first nodes, last nodes, and results
        of callables, in this order. Features are not scaled, so their values should be of the order of one. With
        callables, training needs memory for their results on all runs, and for D scores per node and label.

    References
    ----------
    S. Sarawagi, W. Cohen. Semi-Markov Conditional Random Fields for Information Extraction. NIPS 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.potentials import PairwiseTables, Segments
    >>> y = np.array([[0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]])
    >>> X = y[..., np.newaxis] + np.sin(5.0 * np.arange(12)).reshape(1, 12, 1)
    >>> crf = TRWCRF(pairwise=PairwiseTables("full", segments=Segments(4, min_duration=3)))
    >>> crf.fit(X, y).predict(X)[0].tolist()
    [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]
    >>> crf.duration_coef_.shape
    (2, 4)
    """

    _parameter_constraints: ClassVar[dict] = {
        "max_duration": [Interval(Integral, 1, 100_000, closed="both")],
        "min_duration": [Interval(Integral, 1, None, closed="left")],
        "features": [None, str, callable, list, tuple],
    }

    max_duration: int = 20
    min_duration: int = 1
    features: Any = None

    def check(self, lattice_ndim: int | None) -> None:
        """Raise ValueError if an option is wrong, or examples are not sequences.

        Parameters
        ----------
        lattice_ndim : int or None
            Number of axes: 0 for rows, 1 for sequences, 2 for images, 3 for volumes, None for a list of examples.
        """
        self._validate_params()
        if self.min_duration > self.max_duration:
            raise ValueError(
                f"min_duration must be at most max_duration, got {self.min_duration} and {self.max_duration}."
            )
        if self.feature_kinds.functions and self.max_duration == 1:
            raise ValueError("features of segments that are callables need a max_duration of at least 2, got 1.")
        if lattice_ndim is not None and lattice_ndim > 1:
            raise ValueError(
                f"segments need sequences, but X holds lattices of {lattice_ndim} axes: use segments=None."
            )

    @property
    def feature_kinds(self) -> RunFeatureKinds:
        """The features of runs for which weights are learned."""
        return RunFeatureKinds.of(self.features, self.max_duration)


class WeightsOfSegments(NamedTuple):
    """Parts of the flat weight vector of segment potentials."""

    pairwise: np.ndarray  # flat weight vector of nodes and edges
    durations: np.ndarray  # (K, D)
    features: np.ndarray  # (K, P)


class SegmentPotentials(ExtendedPotentials):
    """Potentials that combine potentials of nodes and edges with weights of the durations and features of runs."""

    def __init__(self, pairwise: Any, segments: Segments, n_run_features: int = 0) -> None:
        super().__init__(pairwise, pairwise.n_classes * (segments.max_duration + n_run_features))
        self.segments: Segments | None = segments
        self._n_durations, self._kinds = segments.max_duration, segments.feature_kinds

    @property
    def forbids(self) -> bool:
        return self.pairwise.forbids or (self.segments is not None and self.segments.min_duration > 1)

    def unpack(self, coef: np.ndarray) -> WeightsOfSegments:
        # coef: (n_coef,)
        n_pairwise, n_durations = self.pairwise.n_coef, self.n_classes * self._n_durations
        parts = np.split(coef, [n_pairwise, n_pairwise + n_durations])
        return WeightsOfSegments(parts[0], *(part.reshape(self.n_classes, -1) for part in parts[1:]))

    def model(self, coef: np.ndarray, example: Any, edges: Any = None) -> Any:
        weights = self.unpack(np.asarray(coef))
        model = self.pairwise.model(weights.pairwise, example, edges)
        if self.segments is None:
            return model
        of_runs = {}
        if weights.features.size:
            of_runs = self._kinds.scores(example.run_features, weights.features, model.dtype)
        return SegmentModel(model, weights.durations, min_duration=self.segments.min_duration, **of_runs)

    def without_durations(self) -> Self:
        """Return potentials that have the same weights but ignore durations, for examples without edges."""
        found = copy(self)
        found.segments = None
        return found

    def _split(self, parts: Any, example: Any, statistics: Any) -> Statistics:
        if isinstance(statistics, Statistics):
            return statistics
        parts.durations[...] += statistics.durations.sum(axis=0)
        if parts.features.size:
            parts.features[...] += self._kinds.pullback(
                example.run_features, statistics, np.array([0, example.n_nodes])
            )[0]
        return Statistics(statistics.unary, statistics.tables)

    def pullback_each(self, example: Any, statistics: Any, node_ptr: np.ndarray) -> np.ndarray:
        """Return the gradient with respect to the weights, separately for each of m joined graphs.

        The sum of the results is the result of :meth:`pullback`.
        """
        # statistics.tables: (m, T, R, K, K); statistics.durations: (m, K, D); returns: (m, n_coef), float64
        of_pairs = self.pairwise.pullback_each(example, Statistics(statistics.unary, statistics.tables), node_ptr)
        durations = statistics.durations.reshape(len(of_pairs), -1)
        if self.n_coef == of_pairs.shape[1] + durations.shape[1]:
            return np.concatenate((of_pairs, durations), axis=1)
        of_runs = self._kinds.pullback(example.run_features, statistics, node_ptr).reshape(len(of_pairs), -1)
        return np.concatenate((of_pairs, durations, of_runs), axis=1)
