"""Fast paths of prediction, which compute labels or marginals of many batches from features by one kernel call.

``PREDICTION_PATHS`` lists the fast paths, in the form of ``FAST_PATHS`` of :mod:`~sklearn_crf.objectives.fast_paths`.
There are fast paths for chains that share a transition table, for single nodes, for graphs with cycles (by message
passing), and for small lattices (by minimum cuts). If a fast path declines a batch, it returns None for this batch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from sklearn_crf._threads import count_external_workers, count_threads, limit_blas_threads, map_coarse, map_tasks
from sklearn_crf.encoding import chain_features
from sklearn_crf.graphs import build_trusted_graph
from sklearn_crf.inference.cuts._lattice_cuts import LatticeCuts
from sklearn_crf.inference.exact._chains import BestTransitions, Transitions
from sklearn_crf.inference.messages import _tuning
from sklearn_crf.inference.messages._swept_graphs import LinearScores, SweptGraphs, are_swept
from sklearn_crf.kernels.chains.chains import predict_chains
from sklearn_crf.models import EdgeLayout, PairwiseModel
from sklearn_crf.objectives.likelihood._pass_over_chains import compute_block_starts
from sklearn_crf.objectives.likelihood._pass_over_graphs import count_trial_sweeps, get_message_passing, supports_sweeps
from sklearn_crf.objectives.margin._pass_of_cuts import cut_scores, is_cut, supports_cuts
from sklearn_crf.potentials import LinearPotentials, SparsePotentials

# Maximum number of marginals in memory at a time if only labels are requested.
_MOST_KEPT = 2**22


class ChainLabels:
    """Fast path that computes labels or marginals of batches of chains by one kernel call.

    The kernel declines a batch whose scores range too widely. The caller then predicts this batch from its model.
    """

    name = "chains"
    objectives = None

    def __init__(
        self, labeler: Any, batches: list, potentials: Any, weights: np.ndarray, inference: Any, rule: str
    ) -> None:
        # rule: "mpm" for the labels with the largest gain, "map" for the best labelings, "marginals" for the marginals
        self._batches, self._potentials, self._rule = batches, potentials, rule
        self._weights = potentials.unpack(np.ascontiguousarray(weights, dtype=np.float64))
        self._choose = labeler.largest_gain if labeler.weighs_marginals and rule == "mpm" else None
        self._features = [chain_features(batch) for batch in batches]
        self._transitions = None
        if _are_alike(self._features):
            self._transitions = inference.transitions_of_chains(
                self._build_table_model(), "map" if rule == "map" else "mpm"
            )

    @staticmethod
    def applies(labeler: Any, batches: list, potentials: Any, rule: str) -> bool:
        """Return whether all chains share one transition table."""
        if type(potentials) not in (LinearPotentials, SparsePotentials) or not potentials.n_features:
            return False
        if potentials.n_node_types > 1 or (labeler.weighs_marginals and rule == "mpm" and potentials.forbids):
            return False
        return _are_rows(batches) or (potentials.n_edge_types, potentials.n_edge_features) == (1, 1)

    def _build_table_model(self):
        """Return a model that has no nodes and only holds the table of all edges."""
        potentials, dtype = self._potentials, self._features[0].dtype
        table = np.zeros((1, 1, potentials.n_classes, potentials.n_classes))
        if not _are_rows(self._batches):
            table = potentials.forbid_pairs(potentials.form.expand(self._weights.edge_coef))
        return PairwiseModel(_NO_NODES, np.empty((0, potentials.n_classes), dtype), table.astype(dtype))

    def found(self, n_jobs: int | None) -> list[np.ndarray | None]:
        """Return the labels or marginals of every batch, with None for each batch that the kernel declines."""
        if self._transitions is None:
            return [None] * len(self._batches)
        found: list[np.ndarray | None] = []
        for lot in self._split_into_lots():
            labels, marginals = self._predict(lot, count_threads(n_jobs))
            for batch, own, part in zip(self._batches[lot], labels, marginals, strict=True):
                if own is None or self._rule == "marginals":
                    found.append(part)
                else:
                    found.append(own if self._choose is None else self._choose(part, batch.node_ptr))
        return found

    def _split_into_lots(self) -> Iterator[slice]:
        """Yield ranges of batches that are predicted together; the marginals of each range fit in memory."""
        if self._choose is None:
            yield slice(0, len(self._batches))
            return
        sizes = [batch.node_ptr[-1] * self._potentials.n_classes for batch in self._batches]
        lot = np.cumsum(sizes) // _MOST_KEPT
        ends = [0, *(np.flatnonzero(np.diff(lot)) + 1), len(self._batches)]
        yield from (slice(*ends) for ends in pairwise(ends))

    def _predict(self, lot, n_threads):
        """Return a list of labels and a list of marginals for a range of batches; unavailable entries are None."""
        batches, features, potentials = self._batches[lot], self._features[lot], self._potentials
        chosen, n_classes = self._transitions, potentials.n_classes
        pointers = [batch.node_ptr for batch in batches]
        starts = np.cumsum([0, *(ptr[-1] for ptr in pointers)])
        fields = np.array([each.fields(first) for each, first in zip(features, starts, strict=False)], dtype=np.int64)
        dtype, has_marginals = features[0].dtype, self._rule == "marginals" or self._choose is not None
        labels = np.empty(starts[-1], dtype=np.int32)
        marginals = np.empty((starts[-1] if has_marginals else 0, n_classes), dtype)
        failed = np.empty(len(batches), dtype=np.uint8)
        ends = potentials.forbidden_ends
        best = chosen if isinstance(chosen, BestTransitions) else BestTransitions(*np.empty((2, 0, 0), dtype))
        transitions = chosen if isinstance(chosen, Transitions) else Transitions.of(np.zeros((n_classes, n_classes)))
        with limit_blas_threads():
            predict_chains(
                fields,
                _list_blocks(pointers, starts, n_classes),
                *self._gather_feature_weights(dtype),
                self._weights.intercept[0] if potentials.fit_intercept else np.zeros(potentials.n_columns),
                np.zeros((0, n_classes)) if ends is None else np.where(ends, -np.inf, 0.0),
                transitions,
                *best,
                labels,
                marginals,
                failed,
                n_threads,
            )
        parts = [None if bad else slice(*own) for bad, own in zip(failed, pairwise(starts.tolist()), strict=True)]
        of_nodes = [None if part is None else labels[part] for part in parts]
        if not has_marginals:
            return of_nodes, [None] * len(batches)
        wide = marginals.astype(np.float64, copy=False)
        return of_nodes, [None if part is None else wide[part] for part in parts]

    def _gather_feature_weights(self, dtype):
        """Return the weights of dense features, or the (feature, class) pairs of sparse features and their weights."""
        coef, potentials = self._weights.coef, self._potentials
        if potentials.by_columns:
            return np.empty((0, 0), dtype), potentials.pairs.ptr, potentials.pairs.column, coef
        none = np.zeros(0, dtype=np.int32)
        return np.ascontiguousarray(coef[0], dtype=dtype), none.astype(np.int64), none, np.zeros(0)


_NO_NODES = build_trusted_graph(0, np.zeros((0, 2), dtype=np.int32))


def _are_rows(batches):
    """Return whether each example of the batches has one node."""
    return all(len(batch.node_ptr) == batch.node_ptr[-1] + 1 for batch in batches)


def _are_alike(features):
    """Return whether the chain features of all batches have the same precision, and are all dense or all sparse."""
    return None not in features and len({(each.dtype, each.is_dense) for each in features}) == 1


def _list_blocks(pointers, starts, n_classes):
    """Return, for each block, its batch, its range of chains and its first node; a block is the task of one thread."""
    blocks = []
    for batch, (ptr, cuts) in enumerate(zip(pointers, compute_block_starts(pointers, n_classes), strict=True)):
        own = np.empty((len(cuts) - 1, 4), dtype=np.int64)
        own[:, 0], own[:, 1], own[:, 2], own[:, 3] = batch, cuts[:-1], cuts[1:], starts[batch] + ptr[cuts[:-1]]
        blocks.append(own)
    return np.concatenate(blocks)


@dataclass(frozen=True, eq=False)
class _PredictionPath:
    """Base of fast paths that hold the data of a prediction."""

    objectives: ClassVar[None] = None

    _labeler: Any
    _batches: list
    _potentials: Any
    _weights: np.ndarray
    _inference: Any
    _rule: str  # "mpm" for the labels with the largest gain, "map" for the best labelings, "marginals"


class GraphLabels(_PredictionPath):
    """Fast path that computes labels or marginals of batches of graphs by sequential sweeps in one kernel call.

    Examples whose messages do not converge without damping, or whose scores range too widely, are predicted from their
    models. The prediction of an example does not depend on the other examples.
    """

    name = "graphs"

    @staticmethod
    def applies(labeler: Any, batches: list, potentials: Any, rule: str) -> bool:
        """Return whether the kernel's undamped messages can compute the marginals of some batch."""
        algorithm = get_message_passing(labeler.able("marginals"))
        may_sweep = rule != "map" and supports_sweeps(potentials, algorithm)
        return may_sweep and any(_is_swept(batch, algorithm) for batch in batches)

    def found(self, n_jobs: int | None) -> list[np.ndarray | None]:
        """Return the labels or marginals of every batch, with None for each batch that the kernel does not support."""
        algorithm = get_message_passing(self._inference)
        chosen = [i for i, batch in enumerate(self._batches) if _is_swept(batch, algorithm)]
        if len(chosen) > 1 and count_external_workers(n_jobs) > 1:
            shared = replace(self, _batches=[])

            def alone(batch, n_threads):
                return replace(shared, _batches=[batch]).found(n_threads)[0]

            found: list[np.ndarray | None] = [None] * len(self._batches)
            for i, part in zip(chosen, map_coarse(alone, [self._batches[i] for i in chosen], n_jobs), strict=True):
                found[i] = part
            return found
        return _predict_in_lots(self._batches, chosen, partial(self._predict, algorithm=algorithm, n_jobs=n_jobs))

    def _predict(self, batches: list, algorithm: Any, n_jobs: int | None) -> list[np.ndarray]:
        """Return the labels or marginals of the given batches."""
        with limit_blas_threads():
            edges = map_tasks(partial(_lay_out_edges, self._potentials), batches, n_jobs)
            graphs = SweptGraphs(batches, edges, algorithm, n_jobs)
            scores = LinearScores.of(self._potentials, self._weights, graphs.dtype)
            found = graphs.marginals(scores, algorithm.tol, count_trial_sweeps(algorithm), count_threads(n_jobs))
            parts = [(batch, *found[k]) for k, batch in enumerate(batches)]
            return map_tasks(self._completed, parts, n_jobs)

    def _completed(self, part: tuple, n_threads: int) -> np.ndarray:
        """Return the labels or marginals of a batch; examples that failed are predicted from their models."""
        batch, marginals, failed = part
        marginals = marginals.astype(np.float64, copy=False)
        if failed.any():
            nodes = np.repeat(failed != 0, np.diff(batch.node_ptr))
            given = self._potentials, self._weights, batch, self._inference
            marginals[nodes] = self._labeler.marginals_of(*given, n_threads)[1][nodes]
        return marginals if self._rule == "marginals" else self._labeler.largest_gain(marginals, batch.node_ptr)


class CutLabels(_PredictionPath):
    """Fast path that labels batches of small lattices with two states by minimum cuts in one kernel call.

    The kernel declines a batch if an edge is not submodular, or if a score is not finite.
    """

    name = "minimum cuts"

    @staticmethod
    def applies(labeler: Any, batches: list, potentials: Any, rule: str) -> bool:
        """Return whether minimum cuts give the best labelings of some batch."""
        may_cut = rule == "map" and supports_cuts(potentials)
        return may_cut and any(_has_cut(batch, labeler.decoding.inference) for batch in batches)

    def found(self, n_jobs: int | None) -> list[np.ndarray | None]:
        """Return the labels of every batch, with None for each batch that the kernel does not support."""
        if count_external_workers(n_jobs) > 1:
            return [None] * len(self._batches)
        chosen = [i for i, batch in enumerate(self._batches) if _has_cut(batch, self._inference)]
        return _predict_in_lots(self._batches, chosen, partial(self._predict, n_jobs=n_jobs))

    def _predict(self, batches: list, n_jobs: int | None) -> list[np.ndarray | None]:
        """Return the labels of the given batches."""
        lattices, dtype = LatticeCuts(), batches[0].example.node_features.dtype
        labels = [np.empty(batch.example.n_nodes, dtype=np.int32) for batch in batches]
        with limit_blas_threads():
            edges = map_tasks(partial(_lay_out_edges, self._potentials), batches, n_jobs)
            for batch, own, part in zip(batches, edges, labels, strict=True):
                lattices.append(batch.example.graph, batch.example.node_features, own, found=part)
            scores = cut_scores(self._potentials, self._weights, dtype)
            value = lattices.solve(list(range(len(batches))), scores, count_threads(n_jobs)).value
        return [None if failed else part for failed, part in zip(np.isnan(value), labels, strict=True)]


def _is_swept(batch: Any, algorithm: Any) -> bool:
    # Chains passed as a list have no graph until they are joined.
    return hasattr(batch.example, "graph") and are_swept(batch.example, algorithm)


def _has_cut(batch: Any, inference: Any) -> bool:
    # Chains passed as a list have no graph until they are joined.
    return hasattr(batch.example, "graph") and is_cut(inference, batch.example)


def _predict_in_lots(batches: list, chosen: list[int], predict: Callable) -> list[np.ndarray | None]:
    """Return the predictions of the chosen batches, and None for the others.

    Batches are predicted in lots with few nodes each, to limit the memory that computed edge features need.
    """
    found: list[np.ndarray | None] = [None] * len(batches)
    sizes = np.cumsum([0, *(batches[i].example.n_nodes for i in chosen)])
    starts = np.unique(np.searchsorted(sizes, np.arange(0, sizes[-1], _tuning.MOST_SWEPT), side="right") - 1)
    for start, stop in pairwise([*starts.tolist(), len(chosen)]):
        lot = chosen[start:stop]
        for i, part in zip(lot, predict([batches[i] for i in lot]), strict=True):
            found[i] = part
    return found


def _lay_out_edges(potentials: Any, batch: Any, n_threads: int) -> EdgeLayout:
    """Return the layout of the edges of a batch."""
    example = batch.example
    (n_types, n_features), edge_type, edge_weight = potentials.compute_edge_layout(example)
    n_edges, dtype = example.graph.n_edges, example.node_features.dtype
    return EdgeLayout.of(edge_type, edge_weight, n_edges, n_types, n_features, dtype)


PREDICTION_PATHS: tuple[Any, ...] = (ChainLabels, GraphLabels, CutLabels)
