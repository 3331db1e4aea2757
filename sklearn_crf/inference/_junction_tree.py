"""Exact inference on graphs of low tree width."""

from dataclasses import replace

import numpy as np
from sklearn.utils import check_random_state

from sklearn_crf.factor_graphs import FactorGraph, factor_graph_of, pairwise_statistics
from sklearn_crf.inference._base import FactorMarginals, Inference, Labeling, Marginals
from sklearn_crf.inference._beliefs import edge_numbers
from sklearn_crf.inference._buckets import Buckets, plan_of
from sklearn_crf.inference._edge_marginals import EdgeMarginals
from sklearn_crf.inference._elimination_plan import Limits
from sklearn_crf.inference._reduction import Reduction
from sklearn_crf.models import PairwiseModel, score


class JunctionTree(EdgeMarginals, Inference):
    r"""Exact inference by eliminating one node after the other, in the order of least fill.

    Eliminating a node v whose neighbours, at its turn, are S sums a table over v and S,

    .. math::
        \psi_v(y_v, y_S) = \sum_{f} \theta_f(y) + \sum_{c} m_c(y), \qquad
        m_v(y_S) = \log \sum_{y_v} \exp \psi_v(y_v, y_S),

    of the factors f and messages c not yet used that contain v. The message of the last node of a component is its
    log-partition. Marginals follow backwards, :math:`P(y_v, y_S) = \exp(\psi_v - m_v) P(y_S)`; so do samples, and with
    maxima for sums the best labeling. These tables are the cliques of a junction tree (Lauritzen and Spiegelhalter
    1988). They are not made where f and c fall into two groups that share no node but v: sums over :math:`y_v` are then
    products of matrices.

    Time and memory grow with the joint states of the largest clique. Nodes of which one state only is allowed (observed
    ones) cost nothing: they are left out before the order is chosen. ``state`` of a result is the order of elimination
    and what else depends on the structure alone; ``init`` takes it over, or the order as an array.

    Parameters
    ----------
    max_width : int, default=30
        Largest width (nodes of a clique, less one) that is tried.
    max_memory : float, default=2**31
        Most bytes that the tables may take.

    Raises
    ------
    ValueError
        By ``map``, ``marginals`` and ``sample`` for a model that is wider or takes more memory, saying how much; and
        for a model without any allowed labeling.
    """

    tasks = frozenset({"map", "marginals", "sample"})
    exact_on = "any"
    takes = (PairwiseModel, FactorGraph)

    def __init__(self, max_width=30, max_memory=2**31):
        self.max_width = max_width
        self.max_memory = max_memory

    def _edge_marginals(self, model, edges, init, n_threads):
        edges = edge_numbers(model.graph, edges)
        if edges.size == 0:
            return np.zeros((0, model.n_columns, model.n_columns), dtype=model.dtype)
        # The derivative by the table of an edge is its marginals where no other edge shares the table.
        own = np.arange(model.graph.n_edges)
        alone = replace(model, tables=model.edge_tables(), edge_type=own, edge_weight=None)
        return self._marginals(alone, init=init).tables[edges, 0].astype(model.dtype)

    def _buckets(self, model, init, keep):
        graph = model if isinstance(model, FactorGraph) else factor_graph_of(model)
        problem = Reduction(graph)
        return Buckets(problem, plan_of(problem, init, Limits(self.max_width, self.max_memory), keep))

    def _map(self, model, *, init=None, n_threads=1):
        buckets = self._buckets(model, init, "best")
        labels = buckets.best()
        total = score(model, labels)
        return Labeling(labels, total, bound=total, state=buckets.plan)

    def _marginals(self, model, *, init=None, n_threads=1):
        buckets = self._buckets(model, init, "conditional")
        terms = buckets.sum_out()
        unary, log_table, table_default = buckets.marginals()
        result = {"log_z": float(terms.sum()), "log_z_terms": terms, "bound": "exact", "state": buckets.plan}
        if isinstance(model, FactorGraph):
            return FactorMarginals(unary.astype(model.dtype), log_table, table_default, **result)
        padded = np.zeros(model.unary.shape, dtype=model.dtype)
        padded[:, : unary.shape[1]] = unary
        return Marginals(padded, pairwise_statistics(model, log_table), **result)

    def _sample(self, model, n_samples, *, random_state=None, n_threads=1):
        rng = check_random_state(random_state)
        buckets = self._buckets(model, None, "conditional")
        buckets.sum_out()
        return buckets.draw(n_samples, rng)
