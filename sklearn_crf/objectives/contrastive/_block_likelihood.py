"""Generalised pseudolikelihood: the probability of the labels of blocks of nodes, given all other labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from sklearn_crf._numbers import as_array, offsets_from_lengths
from sklearn_crf.graphs import Graph, build_trusted_graph
from sklearn_crf.inference import JunctionTree, TreeInference
from sklearn_crf.models import (
    FactorGraph,
    FactorStatistics,
    PairwiseModel,
    Statistics,
    build_trusted_factor_graph,
    check_labels,
    clamped,
    compute_labeling_statistics,
    compute_score_terms,
)
from sklearn_crf.objectives._base import Loss, Objective


class BlockLikelihood(Objective):
    r"""Negative log-probability of the labels of each block, given the labels of all nodes outside the block.

    .. math:: \ell(\theta) = -\sum_B \log p(y_B \mid y_{\setminus B}; \theta)

    With blocks of single nodes, the loss is the pseudolikelihood. With one block of all nodes, it is the likelihood.
    Blocks may overlap and need not cover all nodes. Inference inside blocks is exact: by message passing if no block
    has a cycle, and otherwise by elimination.

    Source: generalised pseudolikelihood; Vickrey, Lin, Koller 2010, section 2.1.

    Parameters
    ----------
    graph : Graph
        Graph of the models.
    blocks : sequence of array-like of int
        Nodes of each block.

    Raises
    ------
    ValueError
        If a block contains a node twice, or a node that the graph does not have.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_crf.graphs import lattice
    >>> from sklearn_crf.models import PairwiseModel
    >>> from sklearn_crf.objectives import BlockLikelihood
    >>> model = PairwiseModel(
    ...     lattice((3,)), [[0.0, 1.0], [0.2, 0.0], [0.0, 1.0]], [0.5 * np.eye(2)]
    ... )
    >>> labels = np.array([1, 1, 1], dtype=np.int32)
    >>> loss = BlockLikelihood(model.graph, [[0, 1], [1, 2]]).loss_statistics(model, labels)
    >>> round(float(loss.terms.sum()), 3)
    1.331
    """

    missing = "left out"

    def __init__(self, graph: Graph, blocks: Sequence):
        self.graph = graph
        checked = [check_block(block, graph.n_nodes, f"blocks[{k}]") for k, block in enumerate(blocks)]
        self._blocks = [block for block in checked if len(block)]
        self._layout = _Layout(graph, self._blocks)
        self._factor_layout: _FactorLayout | None = None

    def loss_statistics(self, model: Any, labels: np.ndarray, **unused: Any) -> Loss:
        if isinstance(model, FactorGraph):
            return self._compute_factor_loss(model, check_labels(model, labels, may_miss=True))
        if model.graph.n_nodes != self.graph.n_nodes or not np.array_equal(model.graph.edges, self.graph.edges):
            raise ValueError("the blocks belong to a different graph than the graph of the model.")
        labels, layout = check_labels(model, labels, may_miss=True), self._layout
        if np.any(labels[layout.read] < 0):
            raise ValueError(
                "a block has an unlabelled node, or a node with an unlabelled neighbour: leave such nodes out."
            )
        blocks = layout.model(model, labels)
        found = (TreeInference() if layout.graph.is_forest else JunctionTree()).marginals(blocks)
        truth = labels[layout.node]
        terms = found.log_z_terms - compute_score_terms(blocks, truth)
        if not np.all(terms < np.inf):
            raise ValueError("the labels are forbidden by the scores of their states or of a pair of states.")
        statistics = found.statistics.minus(compute_labeling_statistics(blocks, truth))
        return Loss(
            statistics=layout.pullback(model, labels, statistics),
            terms=np.bincount(layout.node, terms, minlength=len(labels)),
        )

    def _compute_factor_loss(self, model, labels):
        """Compute the loss of a factor graph by exact inference on each block, given the labels of all other nodes."""
        layout = self._factor_layout
        if layout is None or not layout.fits(model):
            # Cache the layout, because training evaluates hundreds of models of the same structure.
            layout = self._factor_layout = _FactorLayout(model, self._blocks)
        blocks, node = layout.model(model), layout.node
        # Unlabelled nodes may have any label here, because they share no factor with a block.
        truth = np.maximum(labels[node], 0)
        found = JunctionTree().marginals(clamped(blocks, np.where(layout.is_inside, -1, truth)))
        losses = np.bincount(layout.block_of, found.log_z_terms - compute_score_terms(blocks, truth), len(self._blocks))
        if not np.all(losses < np.inf):
            raise ValueError("the labels are forbidden by the scores of a factor.")
        first = np.array([block[0] for block in self._blocks], dtype=np.int64)
        # The tables of the clamped nodes follow the tables of the model.
        own, correct = found.statistics, compute_labeling_statistics(blocks, truth)
        statistics = FactorStatistics(
            own.log_table[: len(correct.log_table)] - correct.log_table,
            own.table_default[: len(correct.table_default)] - correct.table_default,
        )
        return Loss(statistics, terms=np.bincount(first, losses, len(labels)))  # type: ignore[arg-type]


def check_block(block, n_nodes, name):
    """Return the nodes of a block in ascending order; raise ValueError if they are not valid."""
    # name: name of the block in errors
    # n_nodes: number of nodes of the graph, or of the example of the block
    block = as_array(block, name)
    if block.ndim != 1 or (block.size and block.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a vector of integers, got {block.dtype} of shape {block.shape}.")
    if block.size and not 0 <= block.min() <= block.max() < n_nodes:
        raise ValueError(f"{name} must hold nodes from 0 to {n_nodes - 1}, found {block.min()} to {block.max()}.")
    if len(np.unique(block)) < len(block):
        raise ValueError(f"{name} holds a node twice.")
    return np.sort(block.astype(np.int64))


class _FactorLayout:
    """Factor graph in which each block has its own copies of its factors and of their nodes."""

    def __init__(self, model: FactorGraph, blocks: Sequence) -> None:
        size, owner = model.n_nodes, np.repeat(np.arange(model.n_factors), model.arity)
        self._of = model.scope, model.table_id
        incidence = sp.csr_array((np.ones(len(owner), dtype=np.int64), (model.scope, owner)), (size, model.n_factors))
        members = [np.unique(incidence[block].indices) for block in blocks]
        self._factors = np.concatenate([*members, np.zeros(0, dtype=np.int64)]).astype(np.int64)
        length = model.arity[self._factors]
        self._ptr = offsets_from_lengths(length)
        slots = np.repeat(model.scope_ptr[self._factors] - self._ptr[:-1], length) + np.arange(self._ptr[-1])
        block = np.repeat(np.repeat(np.arange(len(blocks)), [len(own) for own in members]), length)
        inside = np.concatenate([*(k * size + own for k, own in enumerate(blocks)), np.zeros(0, dtype=np.int64)])
        outside_too = np.concatenate((inside, block * size + model.scope[slots]))
        keys, place = np.unique(outside_too, return_inverse=True)
        self._scope = place[len(inside) :].astype(np.int32)
        self.is_inside = np.zeros(len(keys), dtype=bool)
        self.is_inside[place[: len(inside)]] = True
        self.block_of, self.node = keys // size, keys % size

    def fits(self, model: FactorGraph) -> bool:
        """Return whether a model has the factors of this layout."""
        return all(map(np.array_equal, self._of, (model.scope, model.table_id)))

    def model(self, model: FactorGraph) -> FactorGraph:
        """Return the factor graph made of the copies, with the tables of the model."""
        return build_trusted_factor_graph(
            n_states=model.n_states[self.node],
            scope=self._scope,
            scope_ptr=self._ptr,
            table_id=model.table_id[self._factors],
            log_table=model.log_table,
            table_ptr=model.table_ptr,
            table_kind=model.table_kind,
            table_cell=model.table_cell,
            table_default=model.table_default,
            table_state=model.table_state,
        )


class _Layout:
    """Graph of separate blocks, with one copy of a node for each block that contains the node.

    The graph contains the edges within a block. An edge between a node of the block and a node outside is replaced by
    unary scores of the node in the block, given the true label of the node outside.
    """

    def __init__(self, graph: Graph, blocks: Sequence):
        self.node = np.concatenate([*blocks, np.zeros(0, dtype=np.int64)])
        block_of = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
        ptr, neighbor, half_edge, _ = graph.incidence
        n_slots = ptr[self.node + 1] - ptr[self.node]
        copy = np.repeat(np.arange(len(self.node)), n_slots)
        first = np.cumsum(n_slots) - n_slots
        slot = np.arange(len(copy)) + np.repeat(ptr[self.node] - first, n_slots)
        keys = block_of * graph.n_nodes + self.node
        wanted = block_of[copy] * graph.n_nodes + neighbor[slot]
        place = np.searchsorted(keys, wanted).clip(max=max(len(keys) - 1, 0))
        inside = keys[place] == wanted if len(keys) else np.zeros(0, dtype=bool)
        is_tail = (half_edge[slot] & 1) == 0
        own = inside & is_tail
        self.edge = half_edge[slot[own]] >> 1
        edges = np.stack((copy[own], place[own]), axis=1).astype(np.int32)
        self.graph = build_trusted_graph(len(self.node), edges)
        leaving = ~inside
        self._copy, self._outside = copy[leaving], neighbor[slot[leaving]]
        self._crossing, self._is_tail = half_edge[slot[leaving]] >> 1, is_tail[leaving]
        self.read = np.concatenate((self.node, self._outside))

    def model(self, model, labels):
        """Return the model of the blocks given the labels of nodes outside the blocks."""
        unary = model.unary[self.node].astype(np.float64)
        for rows, cell in self._iterate_crossings(model, labels):
            weight = _weights(model, self._crossing[rows])
            scores = np.einsum("er,erk->ek", weight, model.tables[cell].astype(np.float64))
            np.add.at(unary, self._copy[rows], scores)
        return PairwiseModel(
            self.graph,
            unary,
            model.tables.astype(np.float64),
            model.edge_type[self.edge],
            None if model.edge_weight is None else model.edge_weight[self.edge].astype(np.float64),
        )

    def pullback(self, model, labels, statistics):
        """Convert the statistics of the blocks to statistics of the whole model."""
        unary = np.zeros(model.unary.shape)
        np.add.at(unary, self.node, statistics.unary)
        tables = statistics.tables.copy()
        for rows, cell in self._iterate_crossings(model, labels):
            weight = _weights(model, self._crossing[rows])
            np.add.at(tables, cell, weight[:, :, None] * statistics.unary[self._copy[rows], None, :])
        return Statistics(unary.astype(model.dtype, copy=False), tables)

    def _iterate_crossings(self, model, labels):
        """Yield the edges whose first node alone is in a block, then the edges whose second node alone is in a block.

        Each item consists of the indices of crossings and the index of the table entries of their edges.
        """
        kind, state = model.edge_type[self._crossing], labels[self._outside]
        tail, head = np.flatnonzero(self._is_tail), np.flatnonzero(~self._is_tail)
        yield tail, (kind[tail], slice(None), slice(None), state[tail])
        yield head, (kind[head], slice(None), state[head], slice(None))


def _weights(model, edges):
    return np.ones((len(edges), 1)) if model.edge_weight is None else model.edge_weight[edges].astype(np.float64)
