"""Potentials of sequences with weights for the durations of runs of a label."""

from copy import copy
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.utils._param_validation import Interval

from sklearn_crf._options import options
from sklearn_crf._versions import HoldsOptions
from sklearn_crf.models import SegmentModel, Statistics
from sklearn_crf.potentials._extended import ExtendedPotentials


@options(kw_only=False)
class Segments(HoldsOptions):
    r"""Options for segments (semi-Markov models): scores of the durations of runs, and a minimum duration.

    .. math:: \mathrm{score}(y) = \mathrm{score}_{\mathrm{pairwise}}(y) + \sum_r \delta_{k_r, \min(d_r, D)}

    A run r is a maximal sequence of consecutive nodes with one label :math:`k_r`; :math:`d_r` is its number of nodes,
    and D is ``max_duration``. The weights :math:`\delta` are learned with all other weights, and stored as
    ``duration_coef_`` of the classifier. They replace the geometric durations of a plain chain.

    Parameters
    ----------
    max_duration : int, default=20
        Number of durations D that have their own weight for each label. Runs may be longer: all runs of at least D
        nodes share the last weight. Time per node grows with the number of labels times D, and D is at most 100,000.
    min_duration : int, default=1
        Runs of fewer nodes are forbidden. Runs at the first or the last node of a sequence may be shorter, since the
        sequence may have cut them off. At most ``max_duration``.

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
    }

    max_duration: int = 20
    min_duration: int = 1

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
        if lattice_ndim is not None and lattice_ndim > 1:
            raise ValueError(
                f"segments need sequences, but X holds lattices of {lattice_ndim} axes: use segments=None."
            )


class WeightsOfSegments(NamedTuple):
    """Parts of the flat weight vector of segment potentials."""

    pairwise: np.ndarray  # flat weight vector of nodes and edges
    durations: np.ndarray  # (K, D)


class SegmentPotentials(ExtendedPotentials):
    """Potentials that combine pairwise potentials of nodes and edges with a weight for each label and duration."""

    def __init__(self, pairwise: Any, segments: Segments) -> None:
        super().__init__(pairwise, pairwise.n_classes * segments.max_duration)
        self.segments: Segments | None = segments

    @property
    def forbids(self) -> bool:
        return self.pairwise.forbids or (self.segments is not None and self.segments.min_duration > 1)

    def unpack(self, coef: np.ndarray) -> WeightsOfSegments:
        # coef: (n_coef,)
        n_pairwise = self.pairwise.n_coef
        return WeightsOfSegments(coef[:n_pairwise], coef[n_pairwise:].reshape(self.n_classes, -1))

    def model(self, coef: np.ndarray, example: Any, edges: Any = None) -> Any:
        weights = self.unpack(np.asarray(coef))
        model = self.pairwise.model(weights.pairwise, example, edges)
        if self.segments is None:
            return model
        return SegmentModel(model, weights.durations, min_duration=self.segments.min_duration)

    def without_durations(self) -> Self:
        """Return potentials with the same weights that ignore durations, for examples without edges."""
        found = copy(self)
        found.segments = None
        return found

    def _split(self, parts: Any, example: Any, statistics: Any) -> Statistics:
        if isinstance(statistics, Statistics):
            return statistics
        parts.durations[...] += statistics.durations.sum(axis=0)
        return Statistics(statistics.unary, statistics.tables)

    def pullback_each(self, example: Any, statistics: Any, node_ptr: np.ndarray) -> np.ndarray:
        """Return the derivatives by the weights, separately for each of m joined graphs.

        The sum of the results is the result of :meth:`pullback`.
        """
        # statistics.tables: (m, T, R, K, K); statistics.durations: (m, K, D); returns: (m, n_coef), float64
        of_pairs = self.pairwise.pullback_each(example, Statistics(statistics.unary, statistics.tables), node_ptr)
        return np.concatenate((of_pairs, statistics.durations.reshape(len(of_pairs), -1)), axis=1)
