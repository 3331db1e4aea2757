"""Exact inference on chains that score the durations of runs."""

from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from sklearn_crf.inference._base import Inference
from sklearn_crf.inference._results import Labeling, Marginals, Refuted
from sklearn_crf.inference.exact import _tuning
from sklearn_crf.kernels.chains.segments import best_labels, sample_labels, segment_marginals
from sklearn_crf.models import SegmentModel, SegmentStatistics, score


class SegmentInference(Inference):
    r"""Exact inference on chains that score the durations and other properties of runs (semi-Markov chains).

    .. math::
        \beta_s(k) = \sum_{e \ge s} \exp\Bigl( \sum_{t = s}^{e} u_t(k) + \sum_{t = s + 1}^{e} \theta_t(k, k)
            + \delta_{s, e, k} \Bigr) \sum_{l \ne k} \exp(\theta_{e + 1}(k, l)) \, \beta_{e + 1}(l)

    :math:`\beta_s(k)` sums over all labelings of the nodes from s on in which a run of label k begins at s, with a
    maximum in place of the sum for the best labeling. :math:`\delta_{s, e, k}` is the score of the run itself. The runs
    that are still open are kept by their durations up to D, so a node takes O(K (K + D)) time. Memory is O(K) for each
    node, plus O(K D). All sums are log-sum-exp.

    Source: S. Sarawagi, W. Cohen. Semi-Markov conditional random fields for information extraction. NIPS 2004.
    """

    tasks = frozenset({"map", "marginals", "sample"})
    _starts_from: ClassVar[tuple[type, ...]] = ()
    takes = (SegmentModel,)
    exact_on = "any"

    def _map(self, model: SegmentModel, *, init: Any = None, n_threads: int = 1) -> Labeling:
        labels = np.empty(model.n_nodes, dtype=np.int32)
        self._call(best_labels, model, _gather_kernel_arrays(model), labels, n_threads)
        best = score(model, labels)
        return Labeling(labels, best, bound=best)

    def _marginals(self, model: SegmentModel, *, init: Any = None, n_threads: int = 1) -> Marginals:
        unary, terms = np.empty_like(model.unary), np.empty(model.n_nodes)
        n_sums = model.tables.size + model.durations.size
        fields = _gather_kernel_arrays(model, n_sums)
        sums = np.zeros((max(len(fields[-1]) - 1, 1), n_sums))
        ends, spans = np.empty_like(model.ends), np.zeros_like(model.spans)
        self._call(segment_marginals, model, fields, unary, ends, spans, terms, sums, n_threads)
        tables, durations = np.split(sums[0], [model.tables.size])
        statistics = SegmentStatistics(
            unary, tables.reshape(model.tables.shape), durations.reshape(model.durations.shape), ends, spans
        )
        return Marginals(unary, statistics, float(terms.sum()), terms, bound="exact", n_iter=1)

    def _sample(
        self, model: SegmentModel, n_samples: int, *, random_state: Any = None, n_threads: int = 1
    ) -> np.ndarray:
        rng = check_random_state(random_state)
        labels = np.empty((n_samples, model.n_nodes), dtype=np.int32)
        fields, step = _gather_kernel_arrays(model), max(1, _tuning.UNIFORM_BUDGET // max(model.n_nodes, 1))
        for first in range(0, n_samples, step):
            drawn = labels[first : first + step]
            self._call(sample_labels, model, fields, rng.random_sample(drawn.shape), drawn, n_threads)
        return labels

    def _call(self, kernel: Any, model: SegmentModel, fields: tuple, *arguments: Any) -> None:
        """Call a kernel; raise the error for a chain whose labelings are all forbidden."""
        if not model.n_nodes:
            return
        failed = kernel(model.unary, fields, *arguments)
        if failed >= 0:
            raise Refuted(list(range(*model.chain_ptr[failed : failed + 2])))


def _gather_kernel_arrays(model: SegmentModel, n_sums: int = 0) -> tuple:
    """Return the arrays of a model that kernels read, and the first chain of each block."""
    # n_sums: number of sums that each block adds up; they must not take longer than the nodes of the block
    pairwise, ptr = model.pairwise, model.chain_ptr
    weight = np.zeros((0, 1), model.dtype) if pairwise.edge_weight is None else pairwise.edge_weight
    size = max(_tuning.NODES_OF_A_BLOCK, n_sums // model.n_columns)
    wanted = np.linspace(0, model.n_nodes, max(model.n_nodes // size, 1) + 1)
    return (
        ptr.astype(np.int64, copy=False),
        pairwise.tables.astype(np.float64, copy=False),
        pairwise.edge_type,
        weight,
        model.durations.astype(np.float64, copy=False),
        model.duration_type,
        model.ends,
        model.spans,
        model.min_duration,
        np.unique(np.searchsorted(ptr, wanted)).astype(np.int64, copy=False),
    )
