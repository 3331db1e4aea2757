"""Enumeration of all labelings: the reference for everything else."""

from functools import singledispatch
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from sklearn_crf._numbers import n_joint_states
from sklearn_crf._options import options
from sklearn_crf.inference._base import Inference, at_least
from sklearn_crf.inference._results import FactorMarginals, Infeasible, Labeling, Marginals
from sklearn_crf.models import FactorGraph, PairwiseModel, add_cells


class _Component(NamedTuple):
    nodes: np.ndarray  # (n,)
    parts: np.ndarray  # its edges or factors
    column: dict  # node -> its state in each labeling
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
        Most labelings of one component; a larger model is an error.

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

    def _components(self, model):
        component, n_states, parts_of, score_of = _view(model)
        for c in range(int(component.max(initial=-1)) + 1):
            nodes = np.flatnonzero(component == c)
            n_labelings = n_joint_states(n_states[nodes])
            if n_labelings > self.max_labelings:
                raise ValueError(
                    f"The component of node {nodes[0]} has {n_labelings:.3g} labelings, more than "
                    f"max_labelings={self.max_labelings}."
                )
            labelings = _enumerated(n_states[nodes])
            column = {node: labelings[:, k] for k, node in enumerate(nodes.tolist())}
            parts = parts_of(c)
            scores = score_of(nodes, parts, column)
            if np.isneginf(scores).all():
                message = f"model is infeasible: no labeling of the component of node {nodes[0]} is allowed."
                raise Infeasible(message, proven=True)
            yield _Component(nodes, parts, column, labelings, scores)

    def _map(self, model, *, init=None, n_threads=1):
        components = list(self._components(model))
        labels = np.zeros(sum(len(component.nodes) for component in components), dtype=np.int32)
        total = 0.0
        for component in components:
            best = int(np.argmax(component.scores))
            labels[component.nodes] = component.labelings[best]
            total += float(component.scores[best])
        return Labeling(labels, total, bound=total)

    def _marginals(self, model, *, init=None, n_threads=1):
        components = list(self._components(model))
        n_nodes = sum(len(component.nodes) for component in components)
        unary = np.zeros((n_nodes, model.n_columns))
        terms = np.zeros(n_nodes)
        probabilities = []
        for component in components:
            log_z = logsumexp(component.scores)
            probabilities.append(np.exp(component.scores - log_z))
            terms[component.nodes[0]] = log_z
            for node, states in component.column.items():
                unary[node] = np.bincount(states, weights=probabilities[-1], minlength=model.n_columns)
        return _gather(model, components, probabilities, unary.astype(model.dtype), terms)

    def _sample(self, model, n_samples, *, random_state=None, n_threads=1):
        rng = check_random_state(random_state)
        components = list(self._components(model))
        samples = np.zeros((n_samples, sum(len(component.nodes) for component in components)), dtype=np.int32)
        for component in components:
            probability = np.exp(component.scores - logsumexp(component.scores))
            drawn = rng.choice(len(component.labelings), size=n_samples, p=probability / probability.sum())
            samples[:, component.nodes] = component.labelings[drawn]
        return samples


def scored_labelings(model):
    """All labelings of a model, and the score of each."""
    # returns: labelings : (n_labelings, N), int32, scores : (n_labelings,), float64
    component, n_states, parts_of, score_of = _view(model)
    labelings = _enumerated(n_states)
    columns = dict(enumerate(labelings.T))
    parts = np.concatenate([parts_of(c) for c in range(int(component.max(initial=-1)) + 1)])
    return labelings, score_of(np.arange(len(n_states)), parts, columns)


def _enumerated(n_states: np.ndarray) -> np.ndarray:
    # np.indices stops at 64 axes, which nodes of one state reach.
    labelings = np.empty((int(n_joint_states(n_states)), len(n_states)), dtype=np.int32)
    number = np.arange(len(labelings))
    for k in range(len(n_states) - 1, -1, -1):
        number, labelings[:, k] = np.divmod(number, n_states[k])
    return labelings


def n_labelings(n_nodes: int, n_states: int) -> float:
    """Number of labelings of a graph."""
    try:
        return float(n_states) ** int(n_nodes)
    except OverflowError:
        return float("inf")


@singledispatch
def _view(model):
    """Component of each node, states of each node, parts of a component, score of its labelings."""
    graph = model.graph
    tails, heads = graph.edges.T
    n_states = np.full(graph.n_nodes, model.n_columns)
    tables = model.edge_tables().astype(np.float64)

    def score_of(nodes, edges, column):
        scores = sum(model.unary[node].astype(np.float64)[column[node]] for node in nodes)
        for e in edges:
            scores = scores + tables[e][column[tails[e]], column[heads[e]]]
        return scores

    component_of_edge = graph.component[tails]
    return graph.component, n_states, lambda c: np.flatnonzero(component_of_edge == c), score_of


@_view.register
def _(model: FactorGraph):
    def score_of(nodes, factors, column):
        scores = np.zeros(len(column[nodes[0]]))
        for f in factors:
            scores = scores + model.factor_scores(np.full(len(scores), f), _states(model, f, column))
        return scores

    # Constants, factors without nodes, count for the first node.
    first = np.zeros(model.n_factors, dtype=np.int64)
    first[model.arity > 0] = model.scope[model.scope_ptr[:-1][model.arity > 0]]
    component_of_factor = model.component[first]
    return model.component, model.n_states, lambda c: np.flatnonzero(component_of_factor == c), score_of


def _states(model, factor, column):
    """State of each node of a factor in each labeling."""
    scope = model.scope[model.scope_ptr[factor] : model.scope_ptr[factor + 1]].tolist()
    n_labelings = len(next(iter(column.values())))
    return np.stack([column[node] for node in scope], axis=1) if scope else np.zeros((n_labelings, 0), dtype=np.int32)


@singledispatch
def _gather(model, components, probabilities, unary, terms):
    """The marginals of the model's own type."""
    tables = np.zeros(model.tables.shape)
    for component, probability in zip(components, probabilities, strict=True):
        for e in component.parts:
            tail, head = model.graph.edges[e]
            pair = np.zeros((model.n_columns, model.n_columns))
            np.add.at(pair, (component.column[tail], component.column[head]), probability)
            weight = np.ones(1) if model.edge_weight is None else model.edge_weight[e].astype(np.float64)
            tables[model.edge_type[e]] += weight[:, None, None] * pair
    return Marginals(unary, tables, float(terms.sum()), terms, bound="exact")


@_gather.register
def _(model: FactorGraph, components, probabilities, unary, terms):
    log_table, table_default = np.zeros(model.log_table.size), np.zeros(model.n_tables)
    for component, probability in zip(components, probabilities, strict=True):
        for f in component.parts:
            factors = np.full(len(probability), f)
            cells = model.cells(factors, _states(model, f, component.column))
            add_cells(model, factors, cells, probability, log_table, table_default)
    return FactorMarginals(unary, log_table, table_default, float(terms.sum()), terms, bound="exact")
