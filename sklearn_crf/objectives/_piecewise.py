"""Piecewise likelihood: every node and every edge normalised by itself."""

import numpy as np
from scipy.special import logsumexp

from sklearn_crf.factor_graphs import FactorGraph
from sklearn_crf.models import Statistics, labeling_statistics, score_terms
from sklearn_crf.objectives._base import Loss, Objective
from sklearn_crf.objectives._factor_pieces import factor_pieces

# Numbers in the tables of the edges that are looked at together (16 MB).
_BLOCK = 2**21


class Piecewise(Objective):
    r"""Negative log-likelihood with the log-partition of each node and each edge by itself.

    .. math::
        \ell(\theta) = \sum_s \log \sum_a e^{u_s(a)} + \sum_e \log \sum_{a, b} e^{\theta_e(a, b)}
            - \mathrm{score}(y; \theta)

    An upper bound on the exact loss, convex, without inference. It is the dual of the relaxation by the trivial
    entropy before scores are shared out between nodes and edges, so it is never tighter than that. Of a factor graph
    every factor is a piece. Unlabelled nodes are rejected.

    Source: Sutton and McCallum 2009; Jancsary 2012, Eq. 175.
    """

    missing = "rejected"

    def loss_statistics(self, model, labels, *, state=None, seed=0, n_threads=1):
        if np.any(labels < 0):
            raise ValueError("formulation='piecewise' needs a label for every node: pieces have no missing labels.")
        node_terms, free = (_of_factors if isinstance(model, FactorGraph) else _of_nodes_and_edges)(model)
        return Loss(
            statistics=free.minus(labeling_statistics(model, labels)),
            terms=node_terms - score_terms(model, labels),
        )


def _of_factors(model):
    terms, statistics = factor_pieces(model)
    # As everywhere, a factor counts for its first node, and one without nodes for the first of all.
    first = np.zeros(model.n_factors, dtype=np.int64)
    first[model.arity > 0] = model.scope[model.scope_ptr[:-1][model.arity > 0]]
    return np.bincount(first, weights=terms, minlength=model.n_nodes), statistics


def _of_nodes_and_edges(model):
    unary = model.unary.astype(np.float64)
    node_terms = logsumexp(unary, axis=1)
    edge_terms, tables = _pieces_of_edges(model) if model.edge_weight is not None else _pieces_of_types(model)
    np.add.at(node_terms, model.graph.edges[:, 0], edge_terms)
    probability = np.exp(unary - logsumexp(unary, axis=1, keepdims=True))
    return node_terms, Statistics(probability.astype(model.dtype), tables)


def _pieces_of_types(model):
    """Log-partition of every edge and sums of pair marginals, where the tables of a type are those of its edges."""
    tables = model.tables[:, 0].astype(np.float64)
    log_z = logsumexp(tables, axis=(1, 2), keepdims=True)
    counts = np.bincount(model.edge_type, minlength=len(tables))
    return log_z[model.edge_type, 0, 0], (counts[:, None, None] * np.exp(tables - log_z))[:, None]


def _pieces_of_edges(model):
    statistics = np.zeros(model.tables.shape)
    terms = np.empty(model.graph.n_edges)
    step = max(1, _BLOCK // model.n_columns**2)
    for first in range(0, model.graph.n_edges, step):
        edges = slice(first, first + step)
        tables = model.edge_tables(edges).astype(np.float64)
        log_z = logsumexp(tables, axis=(1, 2), keepdims=True)
        terms[edges] = log_z[:, 0, 0]
        weighted = model.edge_weight[edges].astype(np.float64)[:, :, None, None] * np.exp(tables - log_z)[:, None]
        np.add.at(statistics, model.edge_type[edges], weighted)
    return terms, statistics
