"""Potentials of sequences with weights for the durations of runs of a label."""

from copy import copy
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.utils._param_validation import Interval

from sklearn_crf._options import options
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.models import SegmentModel, Statistics, replace_unary
from sklearn_crf.potentials._extended import ExtendedPotentials
from sklearn_crf.potentials._run_features import RunFeatureKinds


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
        Number of durations D that have their own weight for each label. Runs may be longer: all runs of at least D
        nodes share the last weight. Time per node grows with the number of labels times D, and D is at most 100,000.
    min_duration : int, default=1
        Runs of fewer nodes are forbidden. Runs at the first or the last node of a sequence may be shorter, since the
        sequence may have cut them off. At most ``max_duration``.
    features : {"mean", "ends"}, callable, list of these, or None, default=None
        Features f of runs. ``"mean"``: the sum of the node features over the run, divided by :math:`\min(d_r, D)`.
        ``"ends"``: the features of the first node, then the features of the last node. A callable
        ``function(x, first, last)`` computes features of runs of fewer than D nodes, and longer runs have none. It
        receives the node features (T, F) of a sequence and the first and last nodes (n,) of n runs, and returns an
        array or sparse matrix (n, P). The columns of ``segment_coef_`` are means, first nodes, last nodes, and results
        of callables, in this order. Features are not scaled, so their values should be of the order of one. All but
        ``"ends"`` need memory for D scores per node and label, and callables for their results on all runs.

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
        """Features of runs that have weights."""
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
        of_nodes = ends = spans = None
        if weights.features.size:
            of_nodes, ends, spans = self._kinds.scores(example.run_features, weights.features, model.dtype)
        if of_nodes is not None:
            model = replace_unary(model, (model.unary + of_nodes).astype(model.dtype, copy=False))
        return SegmentModel(model, weights.durations, min_duration=self.segments.min_duration, ends=ends, spans=spans)

    def without_durations(self) -> Self:
        """Return potentials with the same weights that ignore durations, for examples without edges."""
        found = copy(self)
        found.segments = None
        return found

    def _split(self, parts: Any, example: Any, statistics: Any) -> Statistics:
        if isinstance(statistics, Statistics):
            return statistics
        parts.durations[...] += statistics.durations.sum(axis=0)
        if parts.features.size:
            parts.features[...] += self._pull_runs(example, statistics, np.array([0, example.n_nodes]))[0]
        return Statistics(statistics.unary, statistics.tables)

    def pullback_each(self, example: Any, statistics: Any, node_ptr: np.ndarray) -> np.ndarray:
        """Return the derivatives by the weights, separately for each of m joined graphs.

        The sum of the results is the result of :meth:`pullback`.
        """
        # statistics.tables: (m, T, R, K, K); statistics.durations: (m, K, D); returns: (m, n_coef), float64
        of_pairs = self.pairwise.pullback_each(example, Statistics(statistics.unary, statistics.tables), node_ptr)
        durations = statistics.durations.reshape(len(of_pairs), -1)
        if self.n_coef == of_pairs.shape[1] + durations.shape[1]:
            return np.concatenate((of_pairs, durations), axis=1)
        of_runs = self._pull_runs(example, statistics, node_ptr).reshape(len(of_pairs), -1)
        return np.concatenate((of_pairs, durations, of_runs), axis=1)

    def _pull_runs(self, example: Any, statistics: Any, node_ptr: np.ndarray) -> np.ndarray:
        """Return the derivatives by the weights of features of runs, (m, K, P), for each of m joined graphs."""
        return self._kinds.pullback(example.run_features, statistics, node_ptr)
