"""Fast paths: implementations for one kind of data, which compute the risk faster than one batch at a time.

``FAST_PATHS`` lists the fast paths. A fast path is a class with

``name``
    Name in a few words, as shown by the fitted attribute ``training_path_``.
``objectives``
    Classes of objectives that the path supports, not including subclasses; None means any class.
``applies(objective, potentials, batches)``
    Whether the path applies to an objective and data. The test must be cheap, and must not change its arguments.
``path(risk)``
    Constructor of the path, which stores data for all evaluations.
``path.value_grad(risk, coef, members)``
    The :class:`~sklearn_crf.objectives.RiskValue` of all or some batches. The value equals the result of
    :class:`EmpiricalRisk` up to rounding, and is identical for any number of threads. A path may return None for some
    weights, for instance if the range of scores is too wide, and for subsets of batches. The next path that applies
    is then used. If there is none, the general path is used.

Margin training also needs the cutting planes of single examples, from :func:`plane_oracle`. Paths of ``FORESTS``
replace a :class:`PlaneOracle`. Paths of ``FOREST_DUALS`` replace it only for solvers that use their dual variables.
Paths of ``PLANES`` are oracles for joined examples.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from sklearn_crf._threads import cached_property, map_tasks
from sklearn_crf.objectives._base import Loss
from sklearn_crf.objectives._risk import EmpiricalRisk, group_tables_by_weight, total_of, weighted_loss
from sklearn_crf.objectives.contrastive._contrastive_sets import SetsOfBatches
from sklearn_crf.objectives.likelihood._pass_over_chains import PassOverChains
from sklearn_crf.objectives.likelihood._pass_over_graphs import PassOverGraphs
from sklearn_crf.objectives.likelihood._pass_over_nodes import (
    NodePass,
    NodesGivenNeighbours,
    NodesWithoutEdges,
    sum_risks,
)
from sklearn_crf.objectives.likelihood._pseudolikelihood import Pseudolikelihood
from sklearn_crf.objectives.margin._forest_planes import ForestPlanes, SparseForestPlanes
from sklearn_crf.objectives.margin._pass_of_cuts import PassOfCuts
from sklearn_crf.objectives.margin._planes import PlaneOracle, PlanesOfCuts, split_risk_into_blocks

# Number of batches whose statistics are stored before a single pullback of all of them.
_N_TOGETHER = 8


class PooledPullback:
    """Risk for sparse features, with one pullback for many batches.

    If there are many more weights than nodes in a batch, a gradient for each batch would take more memory and time than
    all other computations.
    """

    name = "pooled pullback"
    objectives = None

    def __init__(self, risk):
        self._examples = [risk.potentials.prepared(batch.example) for batch in risk.batches]
        self._ranges = risk.potentials.split_shared_ranges(self._examples)

    @staticmethod
    def applies(objective, potentials, batches):
        """Return whether node features are sparse."""
        return potentials.by_columns

    def value_grad(self, risk, coef, members):
        """Return the risk of all or some batches, with its gradient."""
        members = list(range(len(risk.batches)) if members is None else members)
        gradient = np.zeros(risk.potentials.n_coef)
        parts: list = []
        for first in range(0, len(members), _N_TOGETHER):
            together = members[first : first + _N_TOGETHER]
            weighted = map_tasks(partial(risk.oracle, coef=coef, pulls_back=False), together, risk.n_jobs)
            examples, statistics = [self._examples[i] for i in together], [part.statistics for part in weighted]
            risk.potentials.add_pullbacks(gradient, examples, statistics, self._ranges, n_jobs=risk.n_jobs)
            parts.extend(part._replace(statistics=None) for part in weighted)
        return total_of(parts, gradient)


class PassOfSets:
    r"""Risk of pseudolikelihood plus contrastive sets; one pass computes the pseudolikelihood of all batches.

    .. math:: \mathrm{score}(y) - \mathrm{score}(y^*) = w^\top (\phi(y) - \phi(y^*))

    If there are few assignments and weights, the differences of feature vectors are stored. Scores of assignments then
    need no pass over nodes.
    """

    name = "nodes and sets"
    objectives = None

    def __init__(self, risk):
        # The sets of the objective may grow between evaluations.
        self._potentials, self._batches, self._objective = risk.potentials, risk.batches, risk.objective
        # For each batch: its sets; differences of feature vectors, (n_assignments, n_coef)
        self._differences: list[tuple[Any, Any]] = [(None, None)] * len(risk.batches)
        zeros = np.zeros(risk.potentials.n_coef)
        self._by_weight = [group_tables_by_weight(b, risk.potentials.model(zeros, b.example)) for b in risk.batches]
        # Node weights only multiply the costs in generators, so the losses do not depend on node weights.
        unweighted = [replace(batch, node_weight=None) for batch in risk.batches]
        self._nodes = NodePass(risk.potentials, unweighted, risk.n_jobs, sees_neighbours=True)

    @staticmethod
    def applies(objective, potentials, batches):
        """Return whether the objective is pseudolikelihood plus contrastive sets, and nodes have dense features."""
        if not isinstance(objective, SetsOfBatches):
            return False
        has_both = all(list(map(type, each.others)) == [Pseudolikelihood] for each in objective.objectives)
        return has_both and NodePass.is_for(potentials, batches, sees_neighbours=True)

    def value_grad(self, risk, coef, members):
        """Return the risk of all batches; return None if the risk is not finite or only some batches are requested."""
        if members is not None:
            return None
        coef = np.asarray(coef)
        filled = [i for i in range(len(self._batches)) if self._get_sets(i).n_assignments]
        few = [i for i in filled if self._is_small(i)]
        many = [partial(self._evaluate_sets, i, coef) for i in filled if not self._is_small(i)]
        by_differences = [partial(self._evaluate_differences, few, coef)] if few else []
        of_sets = map_tasks(lambda task, n_threads: task(n_threads=n_threads), [*many, *by_differences], risk.n_jobs)
        return sum_risks([self._nodes.at(coef, risk.n_jobs), *of_sets], counts_errors=False)

    def _get_sets(self, i):
        return self._objective.of_batch(i).sets

    def _is_small(self, i):
        n_assignments = self._get_sets(i).n_assignments
        n_numbers = n_assignments * self._potentials.n_coef
        return n_assignments <= _FEW_ASSIGNMENTS and n_numbers <= self._batches[i].example.n_nodes

    def _evaluate_sets(self, i, coef, n_threads):
        """Return the loss of a batch's sets, an error count of zero, and the gradient."""
        batch = self._batches[i]
        # Sets do not need the edges. The pass over nodes has already checked that scores are finite.
        unary, tables = self._potentials.compute_scores_and_tables(coef, batch.example)
        by_weight = self._by_weight[i]
        tables = tables.astype(unary.dtype, copy=False)
        scores = _Scores(unary, tables if by_weight is None else by_weight.tables(tables))
        terms, statistics = self._get_sets(i).terms_and_statistics(scores)
        part = weighted_loss(batch, Loss(statistics, terms), by_weight)
        return part.value, 0.0, self._potentials.pullback(batch.example, part.statistics)

    def _evaluate_differences(self, members, coef, n_threads):
        """Compute the loss and gradient of the sets of several batches, from differences of feature vectors."""
        value, gradient = 0.0, np.zeros(len(coef))
        for i in members:
            sets, weight = self._get_sets(i), self._batches[i].weight
            rows = self._rows(i)
            share, losses = rows @ coef, np.empty(len(sets.set_weight))
            sets.normalize(share, losses)
            if weight is not None:
                of_sets = weight[sets.set_member]
                share *= of_sets[sets.set_of]
                losses *= of_sets
            value += float(losses.sum())
            gradient += share @ rows
        return value, 0.0, gradient

    def _rows(self, i):
        """Return the differences of feature vectors of a batch, after adding rows for new assignments."""
        known, rows = self._differences[i]
        sets, example, potentials = self._get_sets(i), self._batches[i].example, self._potentials
        by_weight = self._by_weight[i]
        if known is not sets:
            rows = np.zeros((0, potentials.n_coef))
        if len(rows) < sets.n_assignments:
            shape = (*potentials.compute_edge_layout(example)[0], potentials.n_classes, potentials.n_classes)
            if by_weight is not None:
                shape = by_weight.shape
            each = sets.statistics_of_each(shape, example.node_features.dtype, len(rows))
            if by_weight is not None:
                each = map(by_weight.unweighted, each)
            rows = np.stack([*rows, *(potentials.pullback(example, statistics) for statistics in each)])
            self._differences[i] = sets, rows
        return rows


# Maximum number of assignments of a batch for which differences of feature vectors are stored.
_FEW_ASSIGNMENTS = 64


class _Scores(NamedTuple):
    """Unary scores and tables of a model, for contrastive sets, which do not need the graph of the model."""

    unary: np.ndarray
    tables: np.ndarray

    @property
    def dtype(self):
        return self.unary.dtype


FAST_PATHS: tuple[Any, ...] = (
    PassOverChains,
    PassOverGraphs,
    NodesGivenNeighbours,
    NodesWithoutEdges,
    PassOfCuts,
    PassOfSets,
    PooledPullback,
)
FORESTS: tuple[Any, ...] = (ForestPlanes,)
FOREST_DUALS: tuple[Any, ...] = (SparseForestPlanes,)
PLANES: tuple[Any, ...] = (PlanesOfCuts,)

_ALL_ARE_OFF: ContextVar[bool] = ContextVar("general_path_only", default=False)


@contextmanager
def general_path_only() -> Iterator[None]:
    """Context in which this thread computes risks and predictions without fast paths."""
    token = _ALL_ARE_OFF.set(True)
    try:
        yield
    finally:
        _ALL_ARE_OFF.reset(token)


def applying(paths: tuple[Any, ...], objective: Any, *data: Any) -> list[Any]:
    """Return the fast paths that apply to an objective (or a labeler) and its data, in order of preference."""
    if _ALL_ARE_OFF.get():
        return []
    for_it = [path for path in paths if path.objectives is None or type(objective) in path.objectives]
    return [path for path in for_it if path.applies(objective, *data)]


class FastRisk(EmpiricalRisk):
    """:class:`EmpiricalRisk` that is evaluated by the first fast path that applies and does not return None."""

    def __init__(self, objective, potentials, batches, *, n_jobs=None, seed=0):
        super().__init__(objective, potentials, batches, n_jobs=n_jobs, seed=seed)
        # A shard without labelled nodes has no batch. Fast paths need a batch, because they read its layout.
        self._chosen = applying(FAST_PATHS, objective, potentials, batches) if len(batches) else []

    @property
    def path(self):  # type: ignore[override]
        """Name of the first fast path that applies, or "general"."""
        return self._chosen[0].name if self._chosen else EmpiricalRisk.path

    @cached_property
    def _paths(self):
        return [path(self) for path in self._chosen]

    def _evaluate(self, coef, members):
        for path in self._paths:
            found = path.value_grad(self, coef, members)
            if found is not None:
                return found
        return super()._evaluate(coef, members)


def plane_oracle(risk, C, scale, n_threads=1, *, by_blocks=True, by_dual=False):
    """Return an oracle for the cutting planes of a risk, from the first fast path that applies."""
    # C, scale, n_threads: parameters of PlaneOracle
    # by_blocks: whether the solver updates the weights after each block
    # Without ``by_blocks``, the solver requests all cutting planes at once.
    # by_dual: whether the solver uses the dual variables of fast paths that have them
    kinds = FORESTS + FOREST_DUALS if by_dual else FORESTS
    for kind in applying(kinds, risk.objective, risk.potentials, risk.batches):
        return kind(risk, C, scale, n_threads)
    risk, blocks = split_risk_into_blocks(risk)
    if not by_blocks:
        # The solver does not change the weights between blocks, so all examples form one block, divided among threads.
        blocks = [[i for block in blocks for i in block]]
    kind = next(iter(applying(PLANES, risk.objective, risk.potentials, risk.batches)), PlaneOracle)
    return kind(risk, C, scale, blocks, n_threads)
