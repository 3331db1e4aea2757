"""Enumeration of all labelings, the reference for all other algorithms."""

from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from sklearn_crf._numbers import n_joint_states
from sklearn_crf._options import options
from sklearn_crf.inference._base import Inference, at_least
from sklearn_crf.inference._results import Infeasible, Labeling, convert_factor_marginals
from sklearn_crf.models import FactorGraph, PairwiseModel, add_cells, decode_cells, factor_graph_of


class _Component(NamedTuple):
    nodes: np.ndarray  # (n,)
    factors: np.ndarray
    column: dict  # state of each node in each labeling
    labelings: np.ndarray  # (n_labelings, n)
    scores: np.ndarray  # (n_labelings,)


@options(kw_only=False)
class BruteForce(Inference):
    r"""Exact inference by enumeration of every labeling of every connected component.

    .. math::
        \log Z = \sum_c \log \sum_{y_c} \exp(\mathrm{score}_c(y_c))

    Parameters
    ----------
    max_labelings : int, default=2**20
        Maximum number of labelings of a component; a larger component raises an error.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import Graph
    >>> from sklearn_crf.inference import BruteForce
    >>> from sklearn_crf.models import PairwiseModel
    >>> triangle = Graph(3, [[0, 1], [1, 2], [0, 2]])
    >>> model = PairwiseModel(
    ...     triangle, np.array([[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]]), [0.5 * np.eye(2)]
    ... )
    >>> found = BruteForce().marginals(model)
    >>> round(found.log_z, 3), found.bound
    (4.318, 'exact')
    >>> BruteForce().map(model).labels
    array([1, 1, 1], dtype=int32)
    """

    tasks = frozenset({"map", "marginals", "sample"})
    _starts_from: ClassVar[tuple[type, ...]] = ()
    exact_on = "any"
    takes = (PairwiseModel, FactorGraph)
    _ranges: ClassVar[dict] = {"max_labelings": at_least(0.0)}
    max_labelings: int = 2**20

    def _components(self, graph):
        first = np.zeros(graph.n_factors, dtype=np.int64)
        first[graph.arity > 0] = graph.scope[graph.scope_ptr[:-1][graph.arity > 0]]
        component_of = graph.component[first]
        for c in range(graph.n_components):
            nodes = np.flatnonzero(graph.component == c)
            n_labelings = n_joint_states(graph.n_states[nodes])
            if n_labelings > self.max_labelings:
                raise ValueError(
                    f"The component of node {nodes[0]} has {n_labelings:.3g} labelings, more than "
                    f"max_labelings={self.max_labelings}."
                )
            labelings, factors = _enumerate(graph.n_states[nodes]), np.flatnonzero(component_of == c)
            column = {node: labelings[:, k] for k, node in enumerate(nodes.tolist())}
            scores = _sum_factor_scores(graph, factors, column, len(labelings))
            if np.isneginf(scores).all():
                message = f"model is infeasible: no labeling of the component of node {nodes[0]} is allowed."
                raise Infeasible(message, proven=True)
            yield _Component(nodes, factors, column, labelings, scores)

    def _map(self, model, *, init=None, n_threads=1):
        labels, total = np.zeros(model.n_nodes, dtype=np.int32), 0.0
        for component in list(self._components(factor_graph_of(model))):
            best = int(np.argmax(component.scores))
            labels[component.nodes] = component.labelings[best]
            total += float(component.scores[best])
        return Labeling(labels, total, bound=total)

    def _marginals(self, model, *, init=None, n_threads=1):
        graph = factor_graph_of(model)
        unary, terms = np.zeros((graph.n_nodes, model.n_columns)), np.zeros(graph.n_nodes)
        log_table, table_default = np.zeros(graph.log_table.size), np.zeros(graph.n_tables)
        for component in list(self._components(graph)):
            log_z = logsumexp(component.scores)
            probability = np.exp(component.scores - log_z)
            terms[component.nodes[0]] = log_z
            for node, states in component.column.items():
                unary[node] = np.bincount(states, weights=probability, minlength=model.n_columns)
            for f in component.factors:
                factors = np.full(len(probability), f)
                states = np.stack([component.column[node] for node in _get_scope(graph, f)] or [factors[:0]], axis=1)
                cells = graph.cells(factors, states.reshape(len(factors), -1))
                add_cells(graph, factors, cells, probability, log_table, table_default)
        return convert_factor_marginals(model, terms, unary, log_table, table_default, bound="exact")

    def _sample(self, model, n_samples, *, random_state=None, n_threads=1):
        rng = check_random_state(random_state)
        samples = np.zeros((n_samples, model.n_nodes), dtype=np.int32)
        for component in list(self._components(factor_graph_of(model))):
            probability = np.exp(component.scores - logsumexp(component.scores))
            drawn = rng.choice(len(component.labelings), size=n_samples, p=probability / probability.sum())
            samples[:, component.nodes] = component.labelings[drawn]
        return samples


def score_all_labelings(model):
    """Return all labelings of a model and the score of each."""
    # returns: labelings: (n_labelings, N), int32, scores: (n_labelings,), float64
    graph = factor_graph_of(model)
    labelings = _enumerate(graph.n_states)
    return labelings, _sum_factor_scores(graph, range(graph.n_factors), dict(enumerate(labelings.T)), len(labelings))


def _enumerate(n_states: np.ndarray) -> np.ndarray:
    # np.indices is limited to 64 axes, which many nodes with one state can exceed.
    return decode_cells(np.arange(int(n_joint_states(n_states))), n_states).astype(np.int32)


def n_labelings(n_nodes: int, n_states: int) -> float:
    """Return the number of labelings of a graph, or inf if this number overflows."""
    try:
        return float(n_states) ** int(n_nodes)
    except OverflowError:
        return float("inf")


def _get_scope(graph, factor):
    """Return the nodes of a factor."""
    return graph.scope[graph.scope_ptr[factor] : graph.scope_ptr[factor + 1]].tolist()


def _sum_factor_scores(graph, factors, column, n_labelings):
    """Return the sum of the scores of factors in each labeling."""
    # column: state of each node in each labeling
    scores = np.zeros(n_labelings)
    for f in factors:
        scores = scores + graph.dense_table(f)[tuple(column[node] for node in _get_scope(graph, f))]
    return scores
