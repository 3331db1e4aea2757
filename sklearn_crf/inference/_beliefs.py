"""Marginals and log-partition of messages, the same for exact and loopy belief propagation."""

import numpy as np

from sklearn_crf._threads import run_fixed_ranges
from sklearn_crf.inference._base import Marginals
from sklearn_crf.inference._field import SUM_PROBABILITY
from sklearn_crf.kernels.beliefs import edge_beliefs, node_beliefs, pair_statistics
from sklearn_crf.models import PairwiseModel


class EdgeMarginals:
    """Adds ``edge_marginals`` to an inference that writes ``_edge_marginals(model, edges, init, n_threads)``."""

    def edge_marginals(self, model, edges=None, *, init=None, n_threads=1):
        """Joint marginals of the two ends of edges, of what ``marginals`` gives for single nodes.

        Parameters
        ----------
        model : PairwiseModel
        edges : array-like of int, optional
            Numbers of the edges wanted; all by default, which takes E x K x K numbers.
        init : object, optional
            ``state`` of a former result.
        n_threads : int, default=1

        Returns
        -------
        ndarray of shape (n_edges, K, K)
            Entry (a, b) belongs to state a at ``graph.edges[e, 0]`` and b at ``graph.edges[e, 1]``.

        Raises
        ------
        ValueError
            If there is no edge of such a number, or if :class:`TRWMessagePassing` takes edge probabilities for
            ``schedule="convergent"`` that are not those of chains.
        """
        self._require("marginals", model)
        if not isinstance(model, PairwiseModel):
            raise TypeError(
                f"edge_marginals needs a PairwiseModel, got {type(model).__name__}: joint marginals of its factors are "
                "in log_table of its marginals."
            )
        return self._edge_marginals(model, edges, init, n_threads)


# Most numbers held in all partial sums of pairwise beliefs together (16 MB).
_STATISTICS_BUDGET = 2**21

# Fewest nodes with a partial sum of their own.
_SMALLEST_PART = 1024


def infeasible_at_node(node):
    """The error for a node that messages left without a state."""
    return ValueError(f"model is infeasible: the scores around node {node} leave it no state.")


def beliefs_of(field, messages, run):
    """Beliefs of nodes (their logarithms if the field keeps scores) and the log of each node's normaliser.

    Parameters
    ----------
    field : Field
    messages : ndarray of shape (2E, width)
    run : callable
        As :func:`~sklearn_crf._threads.range_runner` gives it.

    Returns
    -------
    beliefs : ndarray of shape (N, width)
    log_z_terms : ndarray of shape (N,), float64
    """
    beliefs = np.empty_like(field.unary)
    log_z_terms = np.empty(len(beliefs))
    failed = []

    def part(start, stop):
        failed.append(node_beliefs(field, messages, beliefs, log_z_terms, start, stop, field.work_space()))

    run(part, len(beliefs))
    if max(failed) >= 0:
        raise infeasible_at_node(max(failed))
    return beliefs, log_z_terms


def marginals_of(field, dtype, unary_shift, messages, run, exact=False, **fields):
    """The :class:`Marginals` of messages, with the Bethe (or reweighted Bethe) log-partition.

    Parameters
    ----------
    field : Field
    dtype : dtype
        Precision of the result.
    unary_shift : ndarray of shape (N,)
        As :func:`~sklearn_crf.inference._field.make_field` returns it.
    messages : ndarray of shape (2E, width)
    run : callable
    exact : bool, default=False
        The messages are a fixed point up to rounding, which saves work.
    **fields
        The other fields of the result.
    """
    n_columns = field.tables.shape[3]
    beliefs, log_z_terms = beliefs_of(field, messages, run)
    log_z_terms += unary_shift
    tables = _sum_pairs(field, messages, beliefs, log_z_terms, run, exact)
    if field.semiring != SUM_PROBABILITY:
        np.exp(beliefs, out=beliefs)
    unary = np.ascontiguousarray(beliefs[:, :n_columns], dtype=dtype)
    return Marginals(unary, tables, float(log_z_terms.sum()), log_z_terms, **fields)


def _sum_pairs(field, messages, beliefs, log_z_terms, run, exact):
    """Sums of edge weight times pairwise beliefs by type; adds what edges contribute to ``log_z_terms``."""
    n_types, n_features, n_columns, _ = field.tables.shape
    shape = (n_types, n_features, n_columns, field.width)
    size = max(int(np.prod(shape)), 1)
    n_ranges = max(1, min(_STATISTICS_BUDGET // size, len(beliefs) // _SMALLEST_PART, 16))
    partial = np.zeros((n_ranges, *shape))
    # The factor of a type can wait until its edges are summed, if it is stored and no power of it is meant.
    stored = len(field.factors) + len(field.on) > 0
    without_factor = field.semiring == SUM_PROBABILITY and field.is_tied and stored and len(field.appearance) == 0
    row_totals = row_totals_of(field) if exact and without_factor else np.zeros((0, field.width), field.unary.dtype)
    failed = []

    def part(k, start, stop):
        work = field.work_space()
        failed.append(
            pair_statistics(
                field, messages, beliefs, partial[k], without_factor, row_totals, log_z_terms, start, stop, work
            )
        )

    if len(field.neighbor):
        run_fixed_ranges(run, part, len(beliefs), n_ranges)
        if max(failed) >= 0:
            raise ValueError(f"model is infeasible: the scores around edge {max(failed)} leave it no pair of states.")
    total = partial[0]
    for other in partial[1:]:
        total += other
    total = np.ascontiguousarray(total[..., :n_columns])
    if without_factor:
        total[:, 0] *= _tied_factors(field)
    return total


def row_totals_of(field):
    """Sums of the rows of each stored factor, (n, width)."""
    if len(field.factors):
        totals = np.zeros((len(field.factors), field.width), dtype=field.unary.dtype)
        totals[:, : field.factors.shape[2]] = field.factors[:, 0].sum(axis=2)
        return totals
    total = field.on + (field.tables.shape[3] - 1) * field.off
    return np.ascontiguousarray(np.broadcast_to(total[:, None], (len(total), field.width)))


def _tied_factors(field):
    """Factor of each type, (T, K, K)."""
    n_columns = field.tables.shape[3]
    if len(field.factors):
        return field.factors[:, 0, :, :n_columns]
    return np.where(np.eye(n_columns, dtype=bool), field.on[:, None, None], field.off[:, None, None])


def edge_numbers(graph, edges):
    """Numbers of edges that are asked for, all if None; ValueError where there is no such edge.

    Parameters
    ----------
    graph : Graph
    edges : array-like of int or None

    Returns
    -------
    ndarray of shape (n,)
    """
    if edges is None:
        return np.arange(graph.n_edges)
    edges = np.asarray(edges)
    if edges.size == 0:
        return np.zeros(0, dtype=np.intp)
    if not np.issubdtype(edges.dtype, np.integer) or edges.min() < 0 or edges.max() >= graph.n_edges:
        raise ValueError(f"edges must be numbers of edges, 0 to {graph.n_edges - 1}, got {edges!r}.")
    return edges.ravel()


def edge_marginals_of(field, model, messages, edges, run):
    """Pairwise beliefs of single edges.

    Parameters
    ----------
    field : Field
    model : PairwiseModel
    messages : ndarray of shape (2E, width)
    edges : array-like of int or None
        Numbers of edges; None is all.
    run : callable

    Returns
    -------
    ndarray of shape (n_edges, K, K)
    """
    graph = model.graph
    edges = edge_numbers(graph, edges)
    n_columns = field.tables.shape[3]
    marginals = np.empty((edges.size, n_columns, n_columns), dtype=field.unary.dtype)
    if edges.size == 0:
        return marginals.astype(model.dtype, copy=False)
    slot_of_half_edge = np.empty(2 * graph.n_edges, dtype=np.int32)
    slot_of_half_edge[field.half_edge] = np.arange(2 * graph.n_edges, dtype=np.int32)
    slots = np.stack((graph.edges[edges, 0], slot_of_half_edge[2 * edges]), axis=1).astype(np.int32)
    beliefs, _ = beliefs_of(field, messages, run)
    failed = edge_beliefs(field, messages, beliefs, slots, marginals, field.work_space())
    if failed >= 0:
        raise ValueError(f"model is infeasible: the scores around edge {edges[failed]} leave it no pair of states.")
    return marginals.astype(model.dtype, copy=False)
