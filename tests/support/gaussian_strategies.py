"""Random small Gaussian fields, by seed and as a hypothesis strategy."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from model_strategies import TOPOLOGIES

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.models import GaussianModel

PLANES = {
    "plane": lambda rng: lattice((4, 5), connectivity=2),
    "wide_window": lambda rng: lattice((5, 4), connectivity=[[0, 1], [1, 0], [1, -2], [2, 1], [0, 2], [1, 9]]),
    "volume": lambda rng: lattice((2, 3, 2)),
    "wide_volume": lambda rng: lattice(
        (3, 4, 3), [[0, 0, 1], [1, 0, 0], [1, -1, 1], [0, 2, -1], [2, 1, -2], [3, 0, 0]]
    ),
    "stack": lambda rng: lattice((3, 2, 3), [[0, 0, 1], [0, 1, 0], [0, 1, -1]]),
}
GRAPHS = TOPOLOGIES | PLANES


def random_gaussian(graph, n_values=1, *, n_types=None, dtype=np.float64, strength=0.8, seed=0):
    """Return a positive definite field in which diagonal blocks outweigh other blocks by 1 / strength.

    Parameters
    ----------
    graph : Graph or str
        Graph, or name of a graph in ``GRAPHS``.
    n_values : int
        Number D of values of each node.
    n_types : int, optional
        Number of edge types; None stands for one type for each edge.
    dtype : dtype
    strength : float
        Ratio of other blocks to diagonal blocks. Below 1, the field is block diagonally dominant and so walk-summable.
    seed : int or Generator
    """
    rng = np.random.default_rng(seed)
    graph = GRAPHS[graph](rng) if isinstance(graph, str) else graph
    n_edges = graph.n_edges
    count = n_edges if n_types is None else n_types
    blocks = rng.normal(size=(count, n_values, n_values))
    edge_type = np.arange(n_edges) if n_types is None else rng.integers(n_types, size=n_edges)
    norm = np.zeros(graph.n_nodes)
    for end in graph.edges.T if n_edges else ():
        np.add.at(norm, end, np.abs(blocks[edge_type]).sum(axis=(1, 2)))
    root = rng.normal(size=(graph.n_nodes, n_values, n_values))
    diagonal = np.einsum("sab,scb->sac", root, root) + (norm / strength + 0.5)[:, None, None] * np.eye(n_values)
    h = rng.normal(size=(graph.n_nodes, n_values))
    return GaussianModel(graph, h.astype(dtype), diagonal, blocks, edge_type)


def dense_precision(model):
    """Compute the dense precision matrix J by plain loops."""
    n_values = model.n_values
    matrix = np.zeros((len(model.h), n_values, len(model.h), n_values))
    for s, block in enumerate(model.diagonal):
        matrix[s, :, s] = block
    for (s, t), kind in zip(model.graph.edges, model.edge_type, strict=True):
        matrix[s, :, t] += model.blocks[kind]
        matrix[t, :, s] += model.blocks[kind].T
    return matrix.reshape(model.h.size, model.h.size)


def renumbered(model, order):
    """Return the field with its nodes in another order: new node k is old node ``order[k]``."""
    new_number = np.argsort(order).astype(np.int32)
    graph = Graph(model.graph.n_nodes, new_number[model.graph.edges])
    return replace(model, graph=graph, h=model.h[order], diagonal=model.diagonal[order])


@st.composite
def gaussian_models(draw, topologies=tuple(GRAPHS), dtypes=(np.float64,)):
    """Draw a small random field with one of the given topologies and precisions."""
    return random_gaussian(
        draw(st.sampled_from(sorted(topologies))),
        draw(st.integers(1, 3)),
        n_types=draw(st.sampled_from([None, 1, 3])),
        dtype=draw(st.sampled_from(dtypes)),
        strength=draw(st.sampled_from([0.3, 0.9])),
        seed=draw(st.integers(0, 2**16)),
    )
