"""What bounds prove: rounding in sums of scores, and steps that scores of labelings differ by."""

from dataclasses import replace
from typing import Any

import numpy as np

from sklearn_crf._numbers import highest_of_rows
from sklearn_crf._threads import cached_property
from sklearn_crf.inference import _tuning
from sklearn_crf.models import FactorGraph, PairwiseModel

# Rounding of an algorithm that adds up scores again and again, relative to the sum of the largest score of every
# factor. Bounds that are tight are within a hundredth of it.
_ROUNDING = 256 * np.finfo(np.float64).eps


# Steps are more than so many times the rounding.
_LEAST_STEP = 8


class Proof:
    r"""Whether an upper bound proves a labeling of a model to be the best, and what it proves else.

    Sums of scores are known up to rounding, and what is added to all scores of a factor adds to that. Where the scores
    of every factor differ by multiples of a step h, up to rounding, scores of labelings do. Then the best one is above
    another by a multiple of h, and bounds are rounded down to that:

    .. math:: \max_y \mathrm{score}(y) \le \mathrm{score}(y_0)
        + h \left\lfloor \frac{\mathrm{bound} - \mathrm{score}(y_0)}{h} \right\rfloor
    """

    def __init__(self, model):
        self.model = model

    def bound(self, score: float, bound: float) -> float:
        """Return the least bound that follows from a bound and the score of some labeling.

        It is the score itself where the labeling is proven to be the best.
        """
        if not (np.isfinite(score) and np.isfinite(bound)):
            return bound
        if bound - score <= self.rounding:
            return score
        if self.step == 0:
            return bound
        n_steps = np.floor((bound - score + self.rounding) / self.step)
        return min(bound, float(score + n_steps * self.step))

    def meets(self, score: float, bound: float) -> bool:
        """Return whether a bound is the score up to rounding, so that the labels solve a relaxation with this bound."""
        return bool(bound - score <= self.rounding)

    def closes(self, score: float, bound: float) -> bool:
        """Return whether a bound proves that no labeling scores higher."""
        return bool(self.bound(score, bound) <= score)

    def needed(self, score: float) -> float:
        """Return a bound that proves that no labeling scores higher."""
        return score + max(0.5 * self.rounding, self.step - 2 * self.rounding)

    @cached_property
    def rounding(self) -> float:
        """Most that rounding changes the sum of scores of a labeling."""
        total = 0.0
        for scores, starts, counts in self.groups():
            total += float(counts @ np.maximum.reduceat(np.where(np.isfinite(scores), np.abs(scores), 0.0), starts))
        return _ROUNDING * total

    @cached_property
    @np.errstate(over="ignore")  # beside the least numbers that there are, ratios are infinite
    def step(self) -> float:
        """A number that the scores of labelings differ by multiples of, up to rounding, or 0 if none is known."""
        step, largest = 0.0, 0.0
        for values, _, _ in self._differences():
            for some in (values[: _tuning.TRIED_SCORES], values):
                step = _common_step(some, step, self.rounding)
                if np.isnan(step):
                    return 0.0
            largest = max(largest, float(values.max(initial=0.0)))
        if step == 0:
            # All labelings score the same.
            return 0.0
        # The largest number tells the step most precisely.
        step = largest / np.rint(largest / step)
        error = sum(
            float(counts @ np.maximum.reduceat(np.abs(values - step * np.rint(values / step)), starts))
            for values, starts, counts in self._differences()
        )
        return float(step) if 2 * error <= self.rounding else 0.0

    def _differences(self):
        """What scores lack to the largest of their factor, as :meth:`groups` gives scores; 0 for -inf."""
        for scores, starts, counts in self.groups():
            lengths = np.diff(np.append(starts, len(scores)))
            highest = np.repeat(np.maximum.reduceat(scores, starts), lengths)
            allowed = np.isfinite(scores)
            yield np.subtract(highest, scores, where=allowed, out=np.zeros_like(scores)), starts, counts

    def groups(self) -> Any:
        """Scores of factors, where those of each begin, and how many factors have them."""
        model = self.model
        if isinstance(model, FactorGraph):
            yield from _groups_of_factors(model)
        elif isinstance(model, PairwiseModel):
            if len(model.unary):
                yield _rows(model.unary)
            if model.edge_weight is None and model.graph.n_edges:
                _, first, counts = np.unique(model.edge_type, return_index=True, return_counts=True)
                yield _rows(model.edge_tables(first), counts)
            elif model.graph.n_edges:
                most = max(1, _tuning.PROVEN_AT_ONCE // model.n_columns**2)
                for first in range(0, model.graph.n_edges, most):
                    yield _rows(model.edge_tables(slice(first, first + most)))


def near_zero(model: Any) -> tuple[Any, float]:
    """Return the model with the largest score of each factor taken off, and the sum of what was taken.

    That is the model itself, and 0, unless its scores are so far from zero that sums of them lose what they differ by.
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
    return _factors_near_zero(model) if isinstance(model, FactorGraph) else _pairs_near_zero(model)


def _differ_at_nodes(model: PairwiseModel) -> bool:
    """Return whether scores of nodes alone differ by so much that no sum is far from zero: a test without edges."""
    highest = highest_of_rows(model.unary)
    lowest = -highest_of_rows(np.where(np.isneginf(model.unary), -np.inf, -model.unary))
    spread = float(np.subtract(highest, lowest, dtype=np.float64).sum())
    weight = 1.0 if model.edge_weight is None else float(np.abs(model.edge_weight).sum(axis=1).max(initial=0.0))
    tables = float(np.abs(model.tables).max(where=np.isfinite(model.tables), initial=0))
    largest = max(float(highest.max(initial=0)), -float(lowest.min(initial=0)))
    return len(model.unary) * largest + model.graph.n_edges * weight * tables <= _tuning.FAR_FROM_ZERO * spread


def moved(found: Any, value: float, taken: float) -> Any:
    """Return a labeling of a model near zero as one of the model that it is made of."""
    # value: score of its labels in that model; taken: sum that was taken off
    # What is proven stays so, and rounding of the sum must not prove anything.
    bound = value if found.bound <= found.score else max(found.bound + taken, np.nextafter(value, np.inf))
    return found._replace(score=value, bound=float(bound))


def _pairs_near_zero(model: PairwiseModel) -> tuple[PairwiseModel, float]:
    """Return a pairwise model as :func:`near_zero` does."""
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


def _factors_near_zero(model: FactorGraph) -> tuple[FactorGraph, float]:
    """Return a factor graph as :func:`near_zero` does."""
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


def _groups_of_factors(model):
    used = np.bincount(model.table_id, minlength=model.n_tables).astype(np.float64)
    # The score of what a table does not list comes behind those that it does.
    scores = np.insert(model.log_table.astype(np.float64), model.table_ptr[1:], model.table_default)
    if len(used):
        yield scores, model.table_ptr[:-1] + np.arange(len(used)), used


def _common_step(values: np.ndarray, step: float, rounding: float) -> float:
    """The largest number that divides ``step`` and all values up to rounding; NaN if it is hardly above that."""
    # values: (n,), not negative
    values = np.unique(np.append(values, step))
    values = values[values > rounding]
    while len(values):
        step = values[0]
        if step <= _LEAST_STEP * rounding:
            return np.nan
        # Remainders are at most half of the step.
        rest = np.abs(values - step * np.rint(values / step))
        rest = rest[rest > rounding]
        values = np.unique(np.append(rest, step)) if len(rest) else rest
    return step
