"""Proofs of optimality by bounds, given rounding errors and the step between possible scores."""

from dataclasses import replace
from typing import Any

import numpy as np

from sklearn_crf._numbers import compute_row_maxima
from sklearn_crf._threads import cached_property
from sklearn_crf.inference import _tuning
from sklearn_crf.models import FactorGraph, PairwiseModel

# Tolerance for rounding errors of repeated sums, relative to the sum of the largest scores of all factors.
# For tight bounds, rounding errors are less than 1 % of this tolerance.
ROUNDING = 256 * np.finfo(np.float64).eps


# Minimum ratio of a step to the rounding errors.
_LEAST_STEP = 8


class Proof:
    r"""Test of whether an upper bound proves that a labeling is optimal, and tightening of bounds.

    Sums of scores have rounding errors, which grow with a constant added to all scores of a factor. If the scores of
    every factor differ by multiples of a step h, up to rounding errors, then the scores of labelings do so, too. The
    best score then exceeds any other score by a multiple of h, and bounds can be rounded down accordingly:

    .. math:: \max_y \mathrm{score}(y) \le \mathrm{score}(y_0)
        + h \left\lfloor \frac{\mathrm{bound} - \mathrm{score}(y_0)}{h} \right\rfloor
    """

    def __init__(self, model):
        self.model = model

    def bound(self, score: float, bound: float) -> float:
        """Return the tightest bound that can be proven from a given bound and the score of a labeling.

        This bound equals the score if the labeling is proven to be optimal.
        """
        if not (np.isfinite(score) and np.isfinite(bound)):
            return bound
        # For equal values, as exact algorithms return them, the rounding error is not computed.
        # Computing the rounding error takes a pass over the model.
        if bound <= score or bound - score <= self.rounding:
            return score
        if self.step == 0:
            return bound
        n_steps = np.floor((bound - score + self.rounding) / self.step)
        return min(bound, float(score + n_steps * self.step))

    def meets(self, score: float, bound: float) -> bool:
        """Return whether a bound equals the score up to rounding errors, so that the labels solve the relaxation."""
        return bool(bound - score <= self.rounding)

    def closes(self, score: float, bound: float) -> bool:
        """Return whether a bound proves that no labeling has a higher score."""
        return bool(self.bound(score, bound) <= score)

    def needed(self, score: float) -> float:
        """Return the value to which a bound must be lowered to prove that no labeling has a higher score."""
        return score + max(0.5 * self.rounding, self.step - 2 * self.rounding)

    @cached_property
    def rounding(self) -> float:
        """Maximum rounding error in the score of a labeling."""
        total, model = 0.0, self.model
        if isinstance(model, PairwiseModel):
            # Only the largest score of each table is multiplied by the edge weights, not the whole table.
            nodes = compute_row_maxima(np.where(np.isfinite(model.unary), np.abs(model.unary), 0.0))
            tables = np.abs(model.tables).max(axis=(2, 3), where=np.isfinite(model.tables), initial=0.0)
            edges = tables[model.edge_type]  # (E, R)
            weighted = edges if model.edge_weight is None else edges * np.abs(model.edge_weight)
            return ROUNDING * float(nodes.sum(dtype=np.float64) + weighted.sum(dtype=np.float64))
        for scores, starts, counts in self.groups():
            total += float(counts @ np.maximum.reduceat(np.where(np.isfinite(scores), np.abs(scores), 0.0), starts))
        return ROUNDING * total

    @cached_property
    @np.errstate(over="ignore")  # ratios to the smallest floating-point numbers may overflow
    def step(self) -> float:
        """Step such that score differences of labelings are multiples of it (up to rounding errors); 0 if unknown."""
        step, largest = 0.0, 0.0
        for values, _, _ in self._iterate_differences():
            for some in (values[: _tuning.TRIED_SCORES], values):
                step = _compute_common_step(some, step, self.rounding)
                if np.isnan(step):
                    return 0.0
            largest = max(largest, float(values.max(initial=0.0)))
        if step == 0:
            # All labelings have equal scores.
            return 0.0
        # The step is determined most precisely by the largest difference.
        step = largest / np.rint(largest / step)
        error = sum(
            float(counts @ np.maximum.reduceat(np.abs(values - step * np.rint(values / step)), starts))
            for values, starts, counts in self._iterate_differences()
        )
        return float(step) if 2 * error <= self.rounding else 0.0

    def _iterate_differences(self):
        """Yield each factor's largest score minus its scores (0 for -inf), grouped as in :meth:`groups`."""
        for scores, starts, counts in self.groups():
            lengths = np.diff(np.append(starts, len(scores)))
            highest = np.repeat(np.maximum.reduceat(scores, starts), lengths)
            allowed = np.isfinite(scores)
            yield np.subtract(highest, scores, where=allowed, out=np.zeros_like(scores)), starts, counts

    def groups(self) -> Any:
        """Yield the scores of factors, the start of each factor's scores, and how many factors share these scores."""
        model = self.model
        if isinstance(model, FactorGraph):
            yield from _group_factor_scores(model)
        elif isinstance(model, PairwiseModel):
            if len(model.unary):
                yield _rows(model.unary)
            if model.edge_weight is None and model.graph.n_edges:
                counts = np.bincount(model.edge_type, minlength=len(model.tables))
                used = np.flatnonzero(counts)
                yield _rows(model.tables[used, 0], counts[used])
            elif model.graph.n_edges:
                most = max(1, _tuning.PROVEN_AT_ONCE // model.n_columns**2)
                for first in range(0, model.graph.n_edges, most):
                    yield _rows(model.edge_tables(slice(first, first + most)))


def shift_near_zero(model: Any) -> tuple[Any, float]:
    """Subtract the largest score of each factor if necessary; return the model and the sum of the subtracted scores.

    The model is returned unchanged, with the sum 0, unless its scores are so large that sums would lose their
    differences.
    """
    if isinstance(model, PairwiseModel) and _differ_at_nodes(model):
        return model, 0.0
    size = spread = 0.0
    for scores, starts, counts in Proof(model).groups():
        finite = np.isfinite(scores)
        highest = np.maximum.reduceat(np.where(finite, scores, -np.inf), starts)
        lowest = np.minimum.reduceat(np.where(finite, scores, np.inf), starts)
        known = np.isfinite(highest)
        size += float(counts[known] @ np.maximum(abs(highest[known]), abs(lowest[known])))
        spread += float(counts[known] @ (highest[known] - lowest[known]))
    if size <= _tuning.FAR_FROM_ZERO * spread:
        return model, 0.0
    return _shift_factors_near_zero(model) if isinstance(model, FactorGraph) else _shift_pairs_near_zero(model)


def _differ_at_nodes(model: PairwiseModel) -> bool:
    """Return whether node scores vary enough for accurate sums, by a quick test that ignores edges."""
    highest = compute_row_maxima(model.unary)
    lowest = -compute_row_maxima(np.where(np.isneginf(model.unary), -np.inf, -model.unary))
    spread = float(np.subtract(highest, lowest, dtype=np.float64).sum())
    weight = 1.0 if model.edge_weight is None else float(np.abs(model.edge_weight).sum(axis=1).max(initial=0.0))
    tables = float(np.abs(model.tables).max(where=np.isfinite(model.tables), initial=0))
    largest = max(float(highest.max(initial=0)), -float(lowest.min(initial=0)))
    return len(model.unary) * largest + model.graph.n_edges * weight * tables <= _tuning.FAR_FROM_ZERO * spread


def undo_shift(found: Any, value: float, taken: float) -> Any:
    """Convert a labeling of a model changed by :func:`shift_near_zero` to a labeling of the original model."""
    # value: score of the labels in the original model; taken: sum of the subtracted scores
    # Keep a proof of optimality, but do not let the rounding error of the sum create a proof.
    bound = value if found.bound <= found.score else max(found.bound + taken, np.nextafter(value, np.inf))
    return found._replace(score=value, bound=float(bound))


def _shift_pairs_near_zero(model: PairwiseModel) -> tuple[PairwiseModel, float]:
    """Subtract the largest scores of a pairwise model, see :func:`shift_near_zero`."""
    unary = model.unary
    if model.n_states is not None:
        unary = np.where(np.arange(model.n_columns) < model.n_states[:, np.newaxis], unary, -np.inf)
    of_nodes = unary.max(axis=1, keepdims=True)
    of_tables = model.tables.max(axis=(2, 3), keepdims=True)
    of_tables = np.where(np.isfinite(of_tables), of_tables, 0.0).astype(model.dtype)
    taken = of_tables[model.edge_type, :, 0, 0].astype(np.float64)
    taken = taken if model.edge_weight is None else taken * model.edge_weight
    close = replace(model, unary=model.unary - of_nodes, tables=model.tables - of_tables)
    return close, float(of_nodes.sum(dtype=np.float64) + taken.sum())


def _shift_factors_near_zero(model: FactorGraph) -> tuple[FactorGraph, float]:
    """Subtract the largest scores of a factor graph, see :func:`shift_near_zero`."""
    entries = np.insert(model.log_table, model.table_ptr[1:], model.table_default)
    highest = np.maximum.reduceat(entries, model.table_ptr[:-1] + np.arange(model.n_tables))
    highest = np.where(np.isfinite(highest), highest, 0.0).astype(entries.dtype)
    log_table = model.log_table - np.repeat(highest, np.diff(model.table_ptr))
    close = replace(model, log_table=log_table, table_default=model.table_default - highest)
    return close, float(highest[model.table_id].sum(dtype=np.float64))


def _rows(scores: np.ndarray, counts: np.ndarray | None = None) -> tuple:
    scores = scores.reshape(len(scores), -1).astype(np.float64)
    counts = np.ones(len(scores)) if counts is None else counts.astype(np.float64)
    return scores.ravel(), np.arange(len(scores)) * scores.shape[1], counts


def _group_factor_scores(model):
    used = np.bincount(model.table_id, minlength=model.n_tables).astype(np.float64)
    # In the block of each table, the default score of all unlisted joint states is inserted after the listed scores.
    scores = np.insert(model.log_table.astype(np.float64), model.table_ptr[1:], model.table_default)
    if len(used):
        yield scores, model.table_ptr[:-1] + np.arange(len(used)), used


def _compute_common_step(values: np.ndarray, step: float, rounding: float) -> float:
    """Return the greatest common divisor of ``step`` and values, or NaN if the divisor is within rounding errors."""
    # values: (n,), non-negative
    values = np.unique(np.append(values, step))
    values = values[values > rounding]
    while len(values):
        step = values[0]
        if step <= _LEAST_STEP * rounding:
            return np.nan
        # In absolute value, remainders are at most half of the step.
        rest = np.abs(values - step * np.rint(values / step))
        rest = rest[rest > rounding]
        values = np.unique(np.append(rest, step)) if len(rest) else rest
    return step
