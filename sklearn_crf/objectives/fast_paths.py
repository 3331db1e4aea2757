"""Fast paths: quicker ways than batch by batch to the risk of all examples, each for data of one kind.

``FAST_PATHS`` lists them. A path is a class with

``name``
    A few words, which the fitted attribute ``training_path_`` tells.
``applies(objective, potentials, batches)``
    A cheap test of the objective and the data, which changes neither.
``path(risk)``
    What it keeps of the examples between evaluations.
``path.value_grad(risk, coef, members)``
    The :class:`~sklearn_crf.objectives.RiskValue` of all batches, or of some, as :class:`EmpiricalRisk` gives it: equal
    up to rounding, and the same bits for any number of threads. A path may decline at some weights, such as those whose
    scores range too widely, and for some batches alone: it returns None, and the next path that applies evaluates
    there, or else the general way.

Training by margins also asks for the planes of single examples, by :func:`plane_oracle`. Paths of ``FORESTS`` stand in
for a :class:`PlaneOracle`, those of ``FOREST_DUALS`` for solvers alone that take their dual variables, and those of
``PLANES`` are oracles of examples that were joined.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np

from sklearn_crf._threads import cached_property, map_tasks
from sklearn_crf.objectives._base import EmpiricalRisk, total_of
from sklearn_crf.objectives.contrastive._contrastive_sets import PassOfSets
from sklearn_crf.objectives.likelihood._pass_over_chains import PassOverChains
from sklearn_crf.objectives.likelihood._pass_over_nodes import NodesGivenNeighbours, NodesWithoutEdges
from sklearn_crf.objectives.margin._forest_planes import ForestPlanes, SparseForestPlanes
from sklearn_crf.objectives.margin._pass_of_cuts import PassOfCuts
from sklearn_crf.objectives.margin._planes import PlaneOracle, PlanesOfCuts, risk_in_blocks

# Batches whose statistics are kept until they are pulled back.
_N_TOGETHER = 8


class PooledPullback:
    """Losses batch by batch, pulled back by one pass over the sparse features of many batches.

    A gradient for every batch would take more memory and time than all else where there are many more weights than
    nodes in a batch.
    """

    name = "pooled pullback"

    def __init__(self, risk):
        self._examples = [risk.potentials.prepared(batch.example) for batch in risk.batches]
        self._ranges = risk.potentials.shared_ranges(self._examples)

    @staticmethod
    def applies(objective, potentials, batches):
        """Return whether features are sparse."""
        return potentials.by_columns

    def value_grad(self, risk, coef, members):
        """Return the risk of all batches or of some."""
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


FAST_PATHS: tuple[Any, ...] = (
    PassOverChains,
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
    """Switch all fast paths off for the risks that this thread makes inside."""
    token = _ALL_ARE_OFF.set(True)
    try:
        yield
    finally:
        _ALL_ARE_OFF.reset(token)


def applying(paths: tuple[Any, ...], objective: Any, potentials: Any, batches: list) -> list[Any]:
    """Return the paths that apply, the best one first."""
    return [] if _ALL_ARE_OFF.get() else [path for path in paths if path.applies(objective, potentials, batches)]


class FastRisk(EmpiricalRisk):
    """An :class:`EmpiricalRisk` evaluated by the first fast path that applies and does not decline."""

    def __init__(self, objective, potentials, batches, *, n_jobs=None, seed=0):
        super().__init__(objective, potentials, batches, n_jobs=n_jobs, seed=seed)
        self._chosen = applying(FAST_PATHS, objective, potentials, batches)

    @property
    def path(self):  # type: ignore[override]
        """The name of the first path that applies, or "general"."""
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


def plane_oracle(risk, C, scale, map_in_threads=map, *, by_blocks=True, by_dual=False):
    """Return the planes of a risk, from the first path that applies.

    Parameters
    ----------
    risk : EmpiricalRisk
    C, scale, map_in_threads
        As of :class:`PlaneOracle`.
    by_blocks : bool, default=True
        Whether the solver moves weights from block to block, or else asks for all planes at once.
    by_dual : bool, default=False
        Whether the solver takes dual variables from a path that has them.

    Returns
    -------
    PlaneOracle or object like it
    """
    kinds = FORESTS + FOREST_DUALS if by_dual else FORESTS
    for kind in applying(kinds, risk.objective, risk.potentials, risk.batches):
        return kind(risk, C, scale, map_in_threads)
    risk, blocks = risk_in_blocks(risk)
    if not by_blocks:
        # Nothing changes between one block and the next: threads share all of them.
        blocks = [[i for block in blocks for i in block]]
    kind = next(iter(applying(PLANES, risk.objective, risk.potentials, risk.batches)), PlaneOracle)
    return kind(risk, C, scale, blocks, map_in_threads)
