"""Enumeration of all labelings: the reference for everything else."""

import numpy as np
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from sklearn_crf.inference._base import Inference, Labeling, Marginals


class BruteForce(Inference):
    r"""Exact inference by enumeration of every labeling of every connected component.

    .. math::
        \log Z = \sum_c \log \sum_{y_c} \exp(\mathrm{score}_c(y_c))

    Parameters
    ----------
    max_labelings : int, default=2**20
        Most labelings of one component; a larger model is an error.
    """

    tasks = frozenset({"map", "marginals", "sample"})
    exact_on = "any"

    def __init__(self, max_labelings=2**20):
        self.max_labelings = max_labelings

    def _components(self, model):
        """Nodes, edges, labelings and scores of each connected component in turn."""
        component = model.graph.component
        tables = model.edge_tables().astype(np.float64)
        tails, heads = model.graph.edges.T
        for c in range(model.graph.n_components):
            nodes = np.flatnonzero(component == c)
            edges = np.flatnonzero(component[tails] == c) if len(tails) else np.zeros(0, dtype=np.int64)
            labelings = self._enumerate(model, nodes)
            position = np.zeros(model.graph.n_nodes, dtype=np.int64)
            position[nodes] = np.arange(len(nodes))
            scores = np.zeros(len(labelings))
            for k, node in enumerate(nodes):
                scores += model.unary[node].astype(np.float64)[labelings[:, k]]
            for e in edges:
                scores += tables[e][labelings[:, position[tails[e]]], labelings[:, position[heads[e]]]]
            if np.isneginf(scores).all():
                raise ValueError(f"model is infeasible: no labeling of the component of node {nodes[0]} is allowed.")
            yield nodes, edges, labelings, scores

    def _enumerate(self, model, nodes):
        n_labelings = float(model.n_columns) ** len(nodes)
        if n_labelings > self.max_labelings:
            raise ValueError(
                f"The component of node {nodes[0]} has {n_labelings:.3g} labelings, more than "
                f"max_labelings={self.max_labelings}."
            )
        shape = (model.n_columns,) * len(nodes)
        return np.indices(shape, dtype=np.int32).reshape(len(nodes), -1).T

    def _map(self, model, *, init=None, n_threads=1):
        labels = np.zeros(model.graph.n_nodes, dtype=np.int32)
        total = 0.0
        for nodes, _, labelings, scores in self._components(model):
            best = int(np.argmax(scores))
            labels[nodes] = labelings[best]
            total += float(scores[best])
        return Labeling(labels, total, bound=total)

    def _marginals(self, model, *, init=None, n_threads=1):
        unary = np.zeros(model.unary.shape)
        pairs = np.zeros((model.graph.n_edges, model.n_columns, model.n_columns))
        terms = np.zeros(model.graph.n_nodes)
        for nodes, edges, labelings, scores in self._components(model):
            log_z = logsumexp(scores)
            probability = np.exp(scores - log_z)
            terms[nodes[0]] = log_z
            column = {node: labelings[:, k] for k, node in enumerate(nodes)}
            for node in nodes:
                unary[node] = np.bincount(column[node], weights=probability, minlength=model.n_columns)
            for e in edges:
                tail, head = model.graph.edges[e]
                np.add.at(pairs[e], (column[tail], column[head]), probability)
        return Marginals(
            unary.astype(model.dtype), _sum_by_type(model, pairs), float(terms.sum()), terms, bound="exact"
        )

    def _sample(self, model, n_samples, *, random_state=None, n_threads=1):
        rng = check_random_state(random_state)
        samples = np.zeros((n_samples, model.graph.n_nodes), dtype=np.int32)
        for nodes, _, labelings, scores in self._components(model):
            probability = np.exp(scores - logsumexp(scores))
            drawn = rng.choice(len(labelings), size=n_samples, p=probability / probability.sum())
            samples[:, nodes] = labelings[drawn]
        return samples


def _sum_by_type(model, pairs):
    """Sums over the edges of each type of weight times pair marginals."""
    tables = np.zeros(model.tables.shape)
    weight = np.ones((len(pairs), 1)) if model.edge_weight is None else model.edge_weight.astype(np.float64)
    for e, kind in enumerate(model.edge_type):
        tables[kind] += weight[e, :, None, None] * pairs[e]
    return tables
