"""Random small models, by name and seed, and as a hypothesis strategy."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from sklearn_crf.graphs import Graph, build_disjoint_union, lattice
from sklearn_crf.models import PairwiseModel

TABLE_KINDS = ("tied", "typed", "weighted", "untied")
STRUCTURES = ("full", "potts", "submodular")


def random_tree(n_nodes, rng):
    """Return a tree in which each node is attached to a random earlier node, with nodes renumbered at random."""
    parents = np.array([rng.integers(s) for s in range(1, n_nodes)], dtype=np.int64)
    edges = np.stack((np.arange(1, n_nodes), parents), axis=1)
    return Graph(n_nodes, flip_some(rng.permutation(n_nodes)[edges], rng))


def cycle(n_nodes):
    """Return a cycle of at least three nodes."""
    return Graph(n_nodes, np.stack((np.arange(n_nodes), (np.arange(n_nodes) + 1) % n_nodes), axis=1))


def triangles_with_bridges():
    """Return two triangles and a pendant node, connected by edges that belong to every spanning tree."""
    return Graph(7, [[0, 1], [2, 1], [0, 2], [3, 2], [3, 4], [4, 5], [5, 3], [6, 5]])


def flip_some(edges, rng):
    """Return the edges, about half of them with swapped ends."""
    flip = rng.random(len(edges)) < 0.5
    return np.where(flip[:, None], edges[:, ::-1], edges)


# Builders of small graphs, rng -> Graph. Graphs of FORESTS have no cycles.
FORESTS = {
    "chain": lambda rng: lattice((6,)),
    "tree": lambda rng: random_tree(7, rng),
    "disconnected_forest": lambda rng: build_disjoint_union([lattice((3,)), lattice(()), random_tree(4, rng)]),
    "no_edges": lambda rng: lattice((4,), connectivity=[[9]]),
    "one_node": lambda rng: lattice(()),
}
LOOPY = {
    "grid": lambda rng: lattice((3, 3)),
    "cycle": lambda rng: cycle(5),
    "disconnected": lambda rng: build_disjoint_union([cycle(4), lattice((2,)), lattice(()), lattice((2, 2))]),
    "bridges": lambda rng: triangles_with_bridges(),
}
TOPOLOGIES = FORESTS | LOOPY


def random_model(
    graph,
    n_columns=3,
    kind="tied",
    *,
    structure="full",
    dtype=np.float64,
    scale=1.0,
    forbidden=0.0,
    vary_states=False,
    seed=0,
):
    """Return a feasible model with normally distributed scores on a graph.

    Parameters
    ----------
    graph : Graph or str
        Graph, or name of a graph in ``TOPOLOGIES``.
    n_columns : int
        Number of states K.
    kind : {"tied", "typed", "weighted", "untied"}
        One table; two edge types; two edge types with two (one, if ``forbidden``) edge features; one table per edge.
    structure : {"full", "potts", "submodular"}
        Form of the tables. ``"submodular"`` rewards equal labels on every edge. It is a model that minimum cuts solve
        for two states, and a metric Potts model for more states.
    dtype : dtype
    scale : float
        Standard deviation of the scores.
    forbidden : float
        Fraction of unary scores and (if ``structure`` is ``"full"``) of pairs that are -inf. At least one labeling
        stays allowed.
    vary_states : bool
        Whether nodes have random numbers of states.
    seed : int or Generator
    """
    rng = np.random.default_rng(seed)
    if isinstance(graph, str):
        graph = TOPOLOGIES[graph](rng)
    n_edges = graph.n_edges
    n_types = {"tied": 1, "typed": 2, "weighted": 2, "untied": max(n_edges, 1)}[kind]
    n_features = 2 if kind == "weighted" and not forbidden else 1
    unary = scale * rng.normal(size=(graph.n_nodes, n_columns))
    tables = _random_tables((n_types, n_features), n_columns, structure, scale, rng)
    edge_type = {"tied": None, "untied": np.arange(n_edges)}.get(kind, rng.integers(n_types, size=n_edges))
    edge_weight = None
    if kind == "weighted":
        edge_weight = rng.normal(size=(n_edges, n_features))
        if structure == "submodular" or forbidden:
            edge_weight = np.abs(edge_weight) + 0.1
    n_states = rng.integers(1, n_columns + 1, size=graph.n_nodes) if vary_states else None
    if forbidden:
        allowed = rng.integers(n_columns if n_states is None else n_states, size=graph.n_nodes)
        _forbid(graph, unary, tables, edge_type, allowed, forbidden, structure == "full", rng)
    return PairwiseModel(graph, unary.astype(dtype), tables, edge_type, edge_weight, n_states)


def _random_tables(leading, n_columns, structure, scale, rng):
    if structure == "full":
        return scale * rng.normal(size=(*leading, n_columns, n_columns))
    on, off = scale * rng.normal(size=(2, *leading, 1, 1))
    if structure == "submodular":
        on, off = np.abs(on), 0.0 * off
    return np.where(np.eye(n_columns, dtype=bool), on, off)


def _forbid(graph, unary, tables, edge_type, allowed, share, pairs_too, rng):
    """Set random scores to -inf in place, except scores that the labeling ``allowed`` uses."""
    bad = rng.random(unary.shape) < share
    bad[np.arange(len(unary)), allowed] = False
    unary[bad] = -np.inf
    if pairs_too:
        bad = rng.random(tables.shape) < share
        kinds = np.zeros(graph.n_edges, dtype=np.int64) if edge_type is None else edge_type
        bad[kinds, :, allowed[graph.edges[:, 0]], allowed[graph.edges[:, 1]]] = False
        tables[bad] = -np.inf


def read_only(model, folder):
    """Return the model with arrays in read-only memory maps, as a worker process of joblib receives it."""
    arrays = {}
    for name in ("unary", "tables", "edge_type", "edge_weight", "n_states"):
        value = getattr(model, name)
        if value is not None and value.size:
            np.save(folder / f"{name}.npy", value)
            arrays[name] = np.load(folder / f"{name}.npy", mmap_mode="r")
    return replace(model, **arrays)


def renumbered(model, order):
    """Return the model with its nodes in another order: new node k is old node ``order[k]``."""
    new_number = np.argsort(order).astype(np.int32)
    graph = Graph(model.graph.n_nodes, new_number[model.graph.edges])
    n_states = None if model.n_states is None else model.n_states[order]
    return replace(model, graph=graph, unary=model.unary[order], n_states=n_states)


def relabelled(model, states):
    """Return the model with its states in another order: new state a is old state ``states[a]``."""
    if model.n_states is not None:
        raise ValueError("A model with n_states cannot be relabelled: only the last states may be missing.")
    return replace(model, unary=model.unary[:, states], tables=model.tables[:, :, states][..., states])


@st.composite
def models(draw, topologies=tuple(TOPOLOGIES), structures=("full", "potts"), max_states=4, dtypes=(np.float64,)):
    """Draw a small random model with one of the given topologies, structures and precisions."""
    n_columns = draw(st.integers(1, max_states))
    return random_model(
        draw(st.sampled_from(sorted(topologies))),
        n_columns,
        draw(st.sampled_from(TABLE_KINDS)),
        structure=draw(st.sampled_from(structures)),
        dtype=draw(st.sampled_from(dtypes)),
        scale=draw(st.sampled_from([0.3, 1.0, 3.0])),
        forbidden=draw(st.sampled_from([0.0, 0.2])),
        vary_states=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )
