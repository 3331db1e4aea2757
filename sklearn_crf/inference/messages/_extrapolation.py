"""Extrapolation of message sweeps towards their fixed point."""

import numpy as np

from sklearn_crf.graphs import Graph
from sklearn_crf.inference._field import MAX_SCORE, SUM_PROBABILITY, Field
from sklearn_crf.inference.messages import _tuning
from sklearn_crf.kernels.messages.sweeps import SweepExtrapolation, extrapolate

# Representations of messages in which sweeps are nearly linear, with their numbers in the kernel.
_LOG_ODDS, _PROBABILITIES, _SCORES = range(3)


def choose_extrapolation(graph: Graph, field: Field, values: np.ndarray, as_odds: bool) -> SweepExtrapolation | None:
    """Return an extrapolation of sweeps, or None if it gains little or the fixed point may not be unique."""
    # values: messages as written by sweeps: log-odds if as_odds, otherwise probabilities or scores
    n_messages, n_columns = len(field.neighbor), field.tables.shape[3]
    size = n_messages if as_odds else n_messages * n_columns
    if not is_large(graph) or field.semiring == MAX_SCORE:
        return None
    if not _fits(size, values):
        return None
    if as_odds:
        return extrapolate(values[:n_messages, np.newaxis], 1, _LOG_ODDS, plan_sweeps())
    form = _PROBABILITIES if field.semiring == SUM_PROBABILITY else _SCORES
    return extrapolate(values, n_columns, form, plan_sweeps())


def choose_factor_extrapolation(messages: np.ndarray) -> SweepExtrapolation | None:
    """Return an extrapolation of sweeps over the messages of factors, or None if it needs too much memory."""
    # messages: (n_slots, K) float64, scores
    if not _fits(messages.size, messages):
        return None
    return extrapolate(messages, messages.shape[1], _SCORES, plan_sweeps())


def _fits(size: int, values: np.ndarray) -> bool:
    """Return whether the sweeps that an extrapolation stores fit in memory."""
    return (2 * _tuning.SWEEPS_COMBINED + 2) * size * values.dtype.itemsize <= _tuning.MOST_BYTES


def is_large(graph: Graph) -> bool:
    """Return whether sweeps over a graph are extrapolated: the graph must be large and connected, and have cycles."""
    return graph.n_nodes >= _tuning.FEWEST_NODES and graph.n_components == 1 and not graph.is_forest


def plan_sweeps() -> tuple[int, int, int, float, float]:
    """Return the number of sweeps to combine and the sweeps after which to extrapolate, as the kernel expects."""
    every = _tuning.SWEEPS_COMBINED, _tuning.FIRST_SWEEPS, _tuning.SWEEPS_BETWEEN
    return *every, _tuning.RIDGE, _tuning.LARGEST_GROWTH
