"""Random small factor graphs, by seed and as a hypothesis strategy."""

import numpy as np
from hypothesis import strategies as st

from sklearn_crf.models import CountTable, FactorGraph, SparseTable, at_least_one, at_most_one, exactly_one

CONSTRAINTS = (at_most_one, exactly_one, at_least_one)


def random_factor_graph(n_nodes=6, n_factors=8, max_arity=3, max_states=3, *, forbidden=0.0, constraint=None, seed=0):
    """Return a feasible factor graph with dense, shared, sparse and count tables, and unary factors for all nodes.

    Parameters
    ----------
    n_nodes, n_factors, max_arity, max_states : int
        Numbers of nodes and of factors with random scopes, largest arity, and largest number of states. Some nodes may
        only have a unary factor, so the graph may be disconnected.
    forbidden : float
        Fraction of the scores of dense tables that are -inf. At least one labeling stays allowed.
    constraint : callable, optional
        One of ``CONSTRAINTS``, added as a factor over all nodes.
    seed : int or Generator
    """
    rng = np.random.default_rng(seed)
    n_states = rng.integers(2 if constraint else 1, max(max_states, 2 if constraint else 1) + 1, size=n_nodes)
    allowed = rng.integers(n_states)
    if constraint is not None:
        allowed = (np.arange(n_nodes) == rng.integers(n_nodes)).astype(np.int64)
    factors, tables = [], {}
    for _ in range(n_factors):
        arity = int(rng.integers(0, min(max_arity, n_nodes) + 1))
        scope = rng.permutation(n_nodes)[:arity]
        shape = tuple(n_states[scope].tolist())
        table = random_table(shape, rng)
        if rng.random() < 0.3:  # share a table of this shape
            table = tables.setdefault(shape, table)
        elif forbidden and isinstance(table, np.ndarray) and arity:
            bad = rng.random(shape) < forbidden
            bad[tuple(allowed[scope])] = False
            table[bad] = -np.inf
        factors.append((scope, table))
    factors += [((s,), rng.normal(size=n_states[s])) for s in range(n_nodes)]
    if constraint is not None:
        factors.append((np.arange(n_nodes), constraint()))
    return FactorGraph.from_factors(n_states, factors)


def random_table(shape, rng):
    kind = rng.choice(["dense", "sparse", "count"], p=[0.6, 0.2, 0.2])
    n_cells = int(np.prod(shape))
    if kind == "sparse" and shape:
        listed = rng.permutation(n_cells)[: rng.integers(1, n_cells + 1)]
        states = np.stack(np.unravel_index(listed, shape), axis=1)
        return SparseTable(states, rng.normal(size=len(listed)), rng.normal())
    if kind == "count":
        return CountTable(rng.normal(size=rng.integers(1, len(shape) + 3)), rng.normal(), int(rng.integers(2)))
    return rng.normal(size=shape)


@st.composite
def factor_graphs(draw, max_nodes=6, max_arity=3):
    """Draw a small random factor graph."""
    return random_factor_graph(
        draw(st.integers(1, max_nodes)),
        draw(st.integers(0, 8)),
        draw(st.integers(0, max_arity)),
        draw(st.integers(1, 3)),
        forbidden=draw(st.sampled_from([0.0, 0.2])),
        constraint=draw(st.sampled_from([None, None, *CONSTRAINTS])),
        seed=draw(st.integers(0, 2**16)),
    )
