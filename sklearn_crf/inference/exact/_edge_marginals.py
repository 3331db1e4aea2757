"""Joint marginals of the two ends of edges, computed from messages."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sklearn_crf._numbers import as_array
from sklearn_crf.inference._field import compute_beliefs
from sklearn_crf.kernels.messages.edges import edge_beliefs
from sklearn_crf.models import PairwiseModel


class EdgeMarginals:
    """Mixin that adds ``edge_marginals`` to inference with ``_edge_marginals(model, edges, init, n_threads)``."""

    _require: Callable[..., None]  # provided by the inference class
    _edge_marginals: Callable[..., np.ndarray]

    def edge_marginals(self, model: Any, edges: Any = None, *, init: Any = None, n_threads: int = 1) -> np.ndarray:
        """Compute the joint marginals of the two ends of edges, consistent with the node marginals of ``marginals``.

        Parameters
        ----------
        model : PairwiseModel
        edges : array-like of int, optional
            Indices of the requested edges. None requests all edges, which takes E x K x K numbers.
        init : object, optional
            ``state`` of an earlier result.
        n_threads : int, default=1

        Returns
        -------
        ndarray of shape (n_edges, K, K)
            Entry (a, b) is the probability of state a at ``graph.edges[e, 0]`` and b at ``graph.edges[e, 1]``.

        Raises
        ------
        ValueError
            If an edge does not exist, or if :class:`TRWMessagePassing` with ``schedule="convergent"`` has edge
            probabilities that do not come from chains.
        """
        self._require("marginals", model)
        if not isinstance(model, PairwiseModel):
            raise TypeError(
                f"edge_marginals needs a PairwiseModel, got {type(model).__name__}: use statistics.log_table of its "
                "marginals, which holds the joint marginals of factors."
            )
        return self._edge_marginals(model, edges, init, n_threads)


def choose_edge_numbers(graph, edges):
    """Return the requested edge indices, or all indices for None; raise ValueError if an edge does not exist."""
    # returns: (n,)
    if edges is None:
        return np.arange(graph.n_edges)
    edges = as_array(edges, "edges")
    if edges.size == 0:
        return np.zeros(0, dtype=np.intp)
    if not np.issubdtype(edges.dtype, np.integer) or edges.min() < 0 or edges.max() >= graph.n_edges:
        raise ValueError(f"edges must be edge indices from 0 to {graph.n_edges - 1}, got {edges!r}.")
    return edges.ravel()


def compute_edge_beliefs(field, model, messages, edges, run):
    """Return the pairwise beliefs of edges."""
    # messages: (2E, width); edges: edge indices, None for all; returns: (n_edges, K, K)
    graph = model.graph
    edges = choose_edge_numbers(graph, edges)
    n_columns = field.tables.shape[3]
    marginals = np.empty((edges.size, n_columns, n_columns), dtype=field.unary.dtype)
    if edges.size == 0:
        return marginals.astype(model.dtype, copy=False)
    slot_of_half_edge = np.empty(2 * graph.n_edges, dtype=np.int32)
    slot_of_half_edge[field.half_edge] = np.arange(2 * graph.n_edges, dtype=np.int32)
    slots = np.stack((graph.edges[edges, 0], slot_of_half_edge[2 * edges]), axis=1).astype(np.int32)
    beliefs, _ = compute_beliefs(field, messages, run)
    failed = edge_beliefs(field, messages, beliefs, slots, marginals, field.workspace())
    if failed >= 0:
        raise ValueError(f"model is infeasible: the scores around edge {edges[failed]} forbid all pairs of its states.")
    return marginals.astype(model.dtype, copy=False)
