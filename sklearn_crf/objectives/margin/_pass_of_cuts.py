"""Losses of MAP labelings of small lattices with two states; one kernel call computes all minimum cuts."""

from typing import Any

import numpy as np

from sklearn_crf._threads import count_threads, limit_blas_threads
from sklearn_crf.encoding._examples import ComputedEdges
from sklearn_crf.inference import AutoMap, GraphCut, n_labelings
from sklearn_crf.inference.cuts._lattice_cuts import CutScores, LatticeCuts
from sklearn_crf.inference.messages._swept_graphs import LinearScores
from sklearn_crf.objectives._risk import RiskValue
from sklearn_crf.objectives.likelihood._discrete import SaddlePoint
from sklearn_crf.objectives.margin._hinges import StructuredHinge
from sklearn_crf.potentials import LinearPotentials


def supports_cuts(potentials: Any) -> bool:
    """Return whether potentials have two classes and dense features, which the kernel of minimum cuts requires."""
    if type(potentials) is not LinearPotentials or potentials.forbids or potentials.n_node_types > 1:
        return False
    return potentials.n_classes == 2 and potentials.n_features > 0


def is_cut(inference: Any, example: Any) -> bool:
    """Return whether an example is a small lattice with two states that the inference labels by a minimum cut."""
    if example.has_factors or example.n_states is not None or not isinstance(example.node_features, np.ndarray):
        return False
    if not LatticeCuts.fits(example.graph):
        return False
    if type(inference) is AutoMap:
        return not example.graph.is_forest and n_labelings(example.graph.n_nodes, 2) > inference.enumerates
    return type(inference) is GraphCut


def cut_scores(potentials: LinearPotentials, coef: np.ndarray, dtype: np.dtype) -> CutScores:
    """Return the :class:`CutScores` of lattices for given weights."""
    weights, intercept, tables = LinearScores.of(potentials, coef, dtype)
    return CutScores(weights[0], float(intercept[0]) if len(intercept) else 0.0, tables)


class PassOfCuts:
    r"""Risk of losses of MAP labelings, computed by minimum cuts of small lattices.

    .. math::
        \ell = \max_y \mathrm{score}(y) - \mathrm{score}(y^*), \qquad
        \partial \ell \ni \phi(\hat y) - \phi(y^*)

    Scores may be augmented by costs of nodes. One kernel call computes the loss and the differences in statistics from
    scores of nodes and tables, without a model. The kernel call is much faster than separate inference and statistics.
    """

    name = "minimum cuts of lattices"
    objectives = SaddlePoint, StructuredHinge

    def __init__(self, risk):
        cost = risk.objective.cost if isinstance(risk.objective, StructuredHinge) else None
        self._potentials, self._lattices = risk.potentials, LatticeCuts()
        self._dtype = risk.batches[0].example.node_features.dtype
        for i, batch in enumerate(risk.batches):
            labels, offset = np.ascontiguousarray(batch.labels, dtype=np.int32), None
            if cost is not None:
                # cost: (2, 2), cost[a, b] of predicting a if b is the true state
                offset = (cost[1] - cost[0])[labels]
                if batch.node_weight is not None:
                    offset = offset * batch.node_weight
            example = batch.example
            self._lattices.append(example.graph, example.node_features, risk.edges_of(i), offset, labels)
        self._weight = np.array([1.0 if batch.weight is None else batch.weight[0] for batch in risk.batches])

    @staticmethod
    def applies(objective, potentials, batches):
        """Return whether examples are small lattices with two states that the inference labels by minimum cuts."""
        return supports_cuts(potentials) and all(_is_labelled_cut(objective.inference, batch) for batch in batches)

    def value_grad(self, risk, coef, members):
        """Return the risk of the given batches; return None if an edge is not submodular or a score is not finite."""
        chosen = list(range(len(self._weight)) if members is None else members)
        found, weight = self._solve(chosen, coef, risk.n_jobs), self._weight[chosen]
        if np.isnan(found.value).any():
            return None
        value, n_errors = weight @ found.value, weight @ found.n_errors
        gradient = self._compute_gradient(*(np.tensordot(weight, part, 1) for part in (found.nodes, found.tables)))
        return RiskValue(float(value), gradient, float(n_errors), converged=True, n_nonsubmodular=0)

    def planes(self, chosen, coef, n_jobs):
        """Return slope and cost of the weighted cutting plane of each chosen batch, or None if no cut is possible."""
        found = self._solve(chosen, coef, n_jobs)
        each = zip(self._weight[chosen], *found, strict=True)
        return [
            None if np.isnan(value) else (weight * self._compute_gradient(nodes, tables), weight * cost)
            for weight, value, _, cost, nodes, tables in each
        ]

    def _solve(self, chosen, coef, n_jobs):
        with limit_blas_threads():
            return self._lattices.solve(chosen, cut_scores(self._potentials, coef, self._dtype), count_threads(n_jobs))

    def _compute_gradient(self, nodes, pairs):
        """Return the derivative with respect to the weights from sums of statistics of nodes and pairs."""
        potentials = self._potentials
        by_intercept = nodes[-1] if potentials.fit_intercept else []
        return potentials.pack(nodes[:-1], by_intercept, potentials.form.adjoint(pairs))


def _is_labelled_cut(inference, batch):
    """Return whether a batch is fully labelled, stores its edges, and gets its best labels by a minimum cut."""
    if batch.labels is None or np.min(batch.labels, initial=0) < 0 or isinstance(batch.example, ComputedEdges):
        return False
    return is_cut(inference, batch.example)
