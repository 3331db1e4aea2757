"""Labels and marginals of chains that share a table, and of rows: one kernel call for all batches, without models."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from sklearn_crf._threads import single_threaded_blas, thread_count
from sklearn_crf.encoding import chain_features
from sklearn_crf.graphs import trusted_graph
from sklearn_crf.inference.exact._chains import BestTransitions, Transitions
from sklearn_crf.kernels.chains.inference import predict_chains
from sklearn_crf.learning._batch_labels import of_largest
from sklearn_crf.models import PairwiseModel
from sklearn_crf.objectives.likelihood._pass_over_chains import cuts_of_blocks
from sklearn_crf.potentials import LinearPotentials, SparsePotentials

# Marginals that are kept at once where labels alone are asked for.
_MOST_KEPT = 2**22


class ChainLabels:
    """Labels or marginals of batches of chains with dense or sparse features, by one call of a kernel.

    A batch whose scores range too widely is left to the general way.
    """

    name = "chains"
    objectives = None

    def __init__(
        self, labeler: Any, batches: list, potentials: Any, weights: np.ndarray, inference: Any, rule: str
    ) -> None:
        # rule: "mpm" gives labels of the most gain, "map" best labelings, "marginals" the marginals themselves
        self._batches, self._potentials, self._rule = batches, potentials, rule
        self._weights = potentials.unpack(np.ascontiguousarray(weights, dtype=np.float64))
        self._gain = labeler.gain if labeler.weighs_marginals and rule == "mpm" else None
        self._features = [chain_features(batch) for batch in batches]
        self._transitions = None
        if _are_alike(self._features):
            self._transitions = inference.transitions_of_chains(
                self._model_of_table(), "map" if rule == "map" else "mpm"
            )

    @staticmethod
    def applies(labeler: Any, batches: list, potentials: Any, voters: list, rule: str) -> bool:
        """Return whether chains of unlabelled nodes share a table, under one vector of weights."""
        if type(potentials) not in (LinearPotentials, SparsePotentials) or not potentials.n_features:
            return False
        if potentials.n_node_types > 1 or (labeler.weighs_marginals and rule == "mpm" and potentials.forbids):
            return False
        has_one_table = _are_rows(batches) or (potentials.n_edge_types, potentials.n_edge_features) == (1, 1)
        is_plain = len(voters) == 1 and labeler.temperature == 1
        return is_plain and has_one_table and bool(batches) and batches[0].labels is None

    def _model_of_table(self):
        """Return a model without nodes of the table that edges share."""
        potentials, dtype = self._potentials, self._features[0].dtype
        table = np.zeros((1, 1, potentials.n_classes, potentials.n_classes))
        if not _are_rows(self._batches):
            table = potentials.forbid_pairs(potentials.form.expand(self._weights.edge_coef))
        return PairwiseModel(_NO_NODES, np.empty((0, potentials.n_classes), dtype), table.astype(dtype))

    def found(self, n_jobs: int | None) -> list[np.ndarray | None]:
        """Return what was asked for of every batch, None of those that the kernel declines."""
        if self._transitions is None:
            return [None] * len(self._batches)
        found: list[np.ndarray | None] = []
        for lot in self._lots():
            labels, marginals = self._predict(lot, thread_count(n_jobs))
            for batch, own, part in zip(self._batches[lot], labels, marginals, strict=True):
                if own is None or self._rule == "marginals":
                    found.append(part)
                else:
                    found.append(own if self._gain is None else of_largest(self._gain(part, batch.node_ptr)))
        return found

    def _lots(self) -> Iterator[slice]:
        """Yield batches that are predicted together: all, or those whose marginals are kept at once."""
        if self._gain is None:
            yield slice(0, len(self._batches))
            return
        sizes = [batch.node_ptr[-1] * self._potentials.n_classes for batch in self._batches]
        lot = np.cumsum(sizes) // _MOST_KEPT
        ends = [0, *(np.flatnonzero(np.diff(lot)) + 1), len(self._batches)]
        yield from (slice(*ends) for ends in pairwise(ends))

    def _predict(self, lot, n_threads):
        """Return the labels and the marginals of some batches, None where these are not asked for or not found."""
        batches, features, potentials = self._batches[lot], self._features[lot], self._potentials
        chosen, n_classes = self._transitions, potentials.n_classes
        pointers = [batch.node_ptr for batch in batches]
        starts = np.cumsum([0, *(ptr[-1] for ptr in pointers)])
        fields = np.array([each.fields(first) for each, first in zip(features, starts, strict=False)], dtype=np.int64)
        dtype, has_marginals = features[0].dtype, self._rule == "marginals" or self._gain is not None
        labels = np.empty(starts[-1], dtype=np.int32)
        marginals = np.empty((starts[-1] if has_marginals else 0, n_classes), dtype)
        failed = np.empty(len(batches), dtype=np.uint8)
        ends = potentials.forbidden_ends
        best = chosen if isinstance(chosen, BestTransitions) else BestTransitions(*np.empty((2, 0, 0), dtype))
        transitions = chosen if isinstance(chosen, Transitions) else Transitions.of(np.zeros((n_classes, n_classes)))
        with single_threaded_blas():
            predict_chains(
                fields,
                _blocks(pointers, starts, n_classes),
                *self._weights_of_features(dtype),
                self._weights.intercept[0] if potentials.fit_intercept else np.zeros(potentials.n_columns),
                np.zeros((0, n_classes)) if ends is None else np.where(ends, -np.inf, 0.0),
                *transitions,
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

    def _weights_of_features(self, dtype):
        """Return the weights of dense features, and the pairs of sparse ones and their weights."""
        coef, potentials = self._weights.coef, self._potentials
        if potentials.by_columns:
            return np.empty((0, 0), dtype), potentials.pairs.ptr, potentials.pairs.column, coef
        none = np.zeros(0, dtype=np.int32)
        return np.ascontiguousarray(coef[0], dtype=dtype), none.astype(np.int64), none, np.zeros(0)


_NO_NODES = trusted_graph(0, np.zeros((0, 2), dtype=np.int32))


def _are_rows(batches):
    """Return whether each member of the batches has one node."""
    return all(len(batch.node_ptr) == batch.node_ptr[-1] + 1 for batch in batches)


def _are_alike(features):
    """Return whether features are those of chains, of one precision and all dense or all sparse."""
    return None not in features and len({(each.dtype, each.is_dense) for each in features}) == 1


def _blocks(pointers, starts, n_classes):
    """Return the batch, the first and the last chain, and the first node of each block that threads share."""
    blocks = []
    for batch, (ptr, cuts) in enumerate(zip(pointers, cuts_of_blocks(pointers, n_classes), strict=True)):
        own = np.empty((len(cuts) - 1, 4), dtype=np.int64)
        own[:, 0], own[:, 1], own[:, 2], own[:, 3] = batch, cuts[:-1], cuts[1:], starts[batch] + ptr[cuts[:-1]]
        blocks.append(own)
    return np.concatenate(blocks)


PREDICTION_PATHS = (ChainLabels,)
