"""Expansion and swap moves: no single move improves the result, scores never decrease, conditions are checked."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.graphs import Graph, build_disjoint_union, from_adjacency, lattice
from sklearn_crf.inference import ICM, AlphaBetaSwap, AlphaExpansion, BruteForce
from sklearn_crf.inference.cuts import _alpha_expansion
from sklearn_crf.kernels.cuts.fusion_moves import settle_by_scores
from sklearn_crf.models import PairwiseModel, score

GRAPHS = {
    "chain": lambda: lattice((6,)),
    "tree": lambda: Graph(6, [[1, 0], [0, 2], [3, 1], [1, 4], [5, 2]]),
    "grid": lambda: lattice((2, 3)),
    "neighbours of 8": lambda: lattice((2, 3), 2),
    "volume": lambda: lattice((2, 2, 2)),
    "disconnected": lambda: build_disjoint_union([lattice((2, 2)), lattice((3,))]),
    "no edges": lambda: Graph(4, []),
    "general": lambda: from_adjacency(np.triu(np.random.default_rng(3).random((6, 6)) < 0.5, 1)),
}
KINDS = ("tied", "typed", "weighted", "untied")
BOTH = pytest.mark.parametrize("algorithm", [AlphaExpansion, AlphaBetaSwap])


def metric_table(n_states, rng):
    """Return a negative random metric on the states (shortest paths) plus neutral modular terms; it is asymmetric."""
    distance = rng.uniform(0.1, 1, size=(n_states, n_states))
    np.fill_diagonal(distance, 0)
    for k in range(n_states):
        distance = np.minimum(distance, distance[:, k, None] + distance[None, k])
    return np.add.outer(rng.normal(size=n_states), rng.normal(size=n_states)) - distance


def any_table(n_states, rng):
    return rng.normal(size=(n_states, n_states))


def random_model(graph, kind, n_states, rng, dtype=np.float64, metric=True):
    n_edges = graph.n_edges
    n_types = {"tied": 1, "typed": 3, "weighted": 2, "untied": max(n_edges, 1)}[kind]
    n_features = 2 if kind == "weighted" else 1
    tables = np.array(
        [
            [
                metric_table(n_states, rng) if metric else rng.normal(size=(n_states, n_states))
                for _ in range(n_features)
            ]
            for _ in range(n_types)
        ]
    )
    return PairwiseModel(
        graph,
        rng.normal(size=(graph.n_nodes, n_states)).astype(dtype),
        tables,
        edge_type={"tied": None, "untied": np.arange(n_edges)}.get(kind, rng.integers(0, n_types, n_edges)),
        edge_weight=rng.uniform(0, 2, size=(n_edges, n_features)) if kind == "weighted" else None,
    )


def best_after_one_move(algorithm, model, labels):
    """Return the highest score after any single expansion (or swap), by enumeration."""
    n_states = model.n_columns
    moves = range(n_states) if algorithm is AlphaExpansion else combinations(range(n_states), 2)
    best = -np.inf
    for move in moves:
        allowed = np.zeros((len(labels), n_states), dtype=bool)
        allowed[np.arange(len(labels)), labels] = True
        if algorithm is AlphaExpansion:
            allowed[:, move] = True
        else:
            allowed[np.ix_(np.isin(labels, move), move)] = True
        unary = np.where(allowed, model.unary, -np.inf)
        restricted = PairwiseModel(
            model.graph, unary, model.tables, edge_type=model.edge_type, edge_weight=model.edge_weight
        )
        best = max(best, BruteForce().map(restricted).score)
    return best


@BOTH
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GRAPHS)
def test_no_single_move_is_better(algorithm, name, kind, dtype):
    rng = np.random.default_rng(0)
    model = random_model(GRAPHS[name](), kind, 3, rng, dtype)
    labeling = algorithm().map(model)
    assert labeling.score == pytest.approx(score(model, labeling.labels), rel=1e-12)
    assert labeling.converged
    assert labeling.bound == np.inf
    near = 1e-9 if dtype == np.float64 else 1e-4
    assert labeling.score >= best_after_one_move(algorithm, model, labeling.labels) - near


@BOTH
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GRAPHS)
def test_two_states_are_exact(algorithm, name, kind):
    model = random_model(GRAPHS[name](), kind, 2, np.random.default_rng(1))
    labeling = algorithm().map(model)
    assert labeling.score == pytest.approx(BruteForce().map(model).score, rel=1e-9)
    assert labeling.gap == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.sampled_from(sorted(GRAPHS)))
def test_expansion_is_within_twice_the_lowest_potts_energy(seed, n_states, name):
    """The energy is at most twice the lowest for Potts terms (Boykov, Veksler & Zabih 2001, theorem 6.1)."""
    rng = np.random.default_rng(seed)
    graph = GRAPHS[name]()
    model = PairwiseModel(
        graph,
        -rng.uniform(0, 1, size=(graph.n_nodes, n_states)),
        [np.eye(n_states) - 1],
        edge_weight=rng.uniform(0, 1, graph.n_edges),
    )
    assert -AlphaExpansion().map(model).score <= -2 * BruteForce(max_labelings=2**20).map(model).score + 1e-9


@BOTH
def test_score_never_falls_whatever_the_tables(algorithm):
    rng = np.random.default_rng(2)
    for _ in range(20):
        model = random_model(lattice((3, 4), 2), "untied", 4, rng, metric=False)
        start = rng.integers(0, 4, 12).astype(np.int32)
        labeling = algorithm(nonsubmodular="truncate").map(model, init=start)
        assert labeling.score >= score(model, start)
        assert labeling.score == pytest.approx(score(model, labeling.labels), rel=1e-12)


@BOTH
def test_truncation_changes_nothing_where_the_condition_holds(algorithm):
    model = random_model(lattice((4, 5)), "weighted", 4, np.random.default_rng(3))
    exact, truncated = (algorithm(nonsubmodular=option).map(model) for option in ("error", "truncate"))
    np.testing.assert_array_equal(exact.labels, truncated.labels)


@pytest.mark.parametrize("strength", [0.02, 0.2, 1.0])
@BOTH
def test_nodes_that_need_no_choice_change_nothing(algorithm, strength, monkeypatch):
    rng = np.random.default_rng(5)
    # Integer scores have ties. Moves skip parts that have not changed since a move was tried, over several rounds.
    for trial, graph in enumerate((lattice((40, 30)), lattice((9, 8, 7)), from_adjacency(rng.random((60, 60)) < 0.05))):
        unary, weight = rng.normal(size=(graph.n_nodes, 5)), strength * rng.uniform(0, 2, size=graph.n_edges)
        whole = np.round(4 * unary), np.ceil(4 * weight)
        for are_whole, (unary_, weight_) in enumerate(((unary, weight), whole)):
            table = np.eye(5) if are_whole else metric_table(5, rng)
            model = PairwiseModel(graph, unary_, [table], edge_weight=weight_)
            with monkeypatch.context() as context:
                found = algorithm().map(model)
                context.setattr(_alpha_expansion._Moves, "_remove_decided_nodes", lambda *_: None)
                expected = algorithm().map(model)
            np.testing.assert_array_equal(found.labels, expected.labels, err_msg=f"{trial} {are_whole}")
            assert found.n_iter == expected.n_iter


def test_choices_are_left_where_they_are_open():
    unary = np.array([[3.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    influence, keep, take = np.array([2.0, 2.0, 2.0, 2.0]), np.zeros(4, np.int32), np.ones(4, np.int32)
    assert settle_by_scores(unary, influence, keep, take) == 2
    assert keep.tolist() == [0, 0, 0, 1]
    assert take.tolist() == [0, 1, 1, 1]
    # A state whose cost equals the largest possible gain by edges is not taken.
    influence[1] = 1.0
    assert settle_by_scores(unary, influence, keep, take) == 1
    assert take[1] == 0


@BOTH
def test_warm_start(algorithm):
    rng = np.random.default_rng(4)
    model = random_model(lattice((8, 9)), "typed", 4, rng)
    first = algorithm().map(model)
    from_icm = algorithm().map(model, init=ICM().map(model).labels)
    np.testing.assert_array_equal(from_icm.labels, first.labels)
    again = algorithm().map(model, init=first.state)
    np.testing.assert_array_equal(again.labels, first.labels)
    assert again.n_iter == 1
    start = rng.integers(0, 4, 72).astype(np.int32)
    kept = start.copy()
    assert algorithm().map(model, init=start).score >= score(model, start)
    np.testing.assert_array_equal(start, kept)


@BOTH
def test_lattice_agrees_with_general_graph(algorithm):
    """The implicit lattice, in blocks and with threads, makes the same moves as the slots of the incidence."""
    rng = np.random.default_rng(5)
    graph = lattice((280, 270))
    values = {
        "unary": rng.normal(size=(graph.n_nodes, 3)),
        "tables": [np.eye(3)],
        "edge_weight": rng.uniform(0, 0.5, graph.n_edges),
    }
    on_lattice = algorithm().map(PairwiseModel(graph, **values))
    in_general = algorithm().map(PairwiseModel(Graph(graph.n_nodes, graph.edges), **values), n_threads=2)
    threaded = algorithm().map(PairwiseModel(graph, **values), n_threads=2)
    np.testing.assert_array_equal(on_lattice.labels, in_general.labels)
    np.testing.assert_array_equal(on_lattice.labels, threaded.labels)


@BOTH
def test_forbidden_states(algorithm):
    rng = np.random.default_rng(6)
    graph = lattice((3, 3))
    unary = rng.normal(size=(9, 4))
    unary[rng.random((9, 4)) < 0.4] = -np.inf
    unary[:, 1] = rng.normal(size=9)
    n_states = np.array([4, 3, 2, 4, 4, 2, 3, 4, 4])
    model = PairwiseModel(graph, unary, [metric_table(4, rng)], n_states=n_states)
    for init in (None, np.full(9, 3, dtype=np.int32)):
        labeling = algorithm().map(model, init=init)
        assert np.isfinite(labeling.score)
        assert labeling.score >= best_after_one_move(algorithm, model, labeling.labels) - 1e-9


@BOTH
def test_one_state_and_read_only(algorithm):
    graph = lattice((2, 3))
    single = algorithm().map(PairwiseModel(graph, np.arange(6.0)[:, None], [[[2.0]]]))
    assert single.score == single.bound == 15 + 2 * graph.n_edges
    model = random_model(graph, "weighted", 3, np.random.default_rng(7))
    for array in (model.unary, model.tables, model.edge_weight, model.edge_type):
        array.flags.writeable = False
    algorithm().map(model)


def test_conditions_are_checked():
    graph = lattice((2, 2))
    unary = np.zeros((4, 3))
    squares = -(np.subtract.outer(np.arange(3.0), np.arange(3.0)) ** 2)
    tables = np.array([np.eye(3), squares])
    model = PairwiseModel(graph, unary, tables, edge_type=[0, 1, 0, 0])
    with pytest.raises(ValueError, match=r"edge 1 \(nodes 2 and 3, type 1\) violates theta.* by 2: .*truncate"):
        AlphaExpansion().map(model)
    AlphaBetaSwap().map(model)
    with pytest.raises(ValueError, match=r"edge 0 .* theta\(0, 0\) \+ theta\(1, 1\) >= theta\(0, 1\)"):
        AlphaBetaSwap().map(PairwiseModel(graph, unary, [-np.eye(3)]))
    # A negative weight reverses a metric.
    weights = np.array([1.0, 1.0, -0.5, 1.0])
    with pytest.raises(ValueError, match="edge 2 "):
        AlphaExpansion().map(PairwiseModel(graph, unary, [np.eye(3)], edge_weight=weights))
    # Two features together may satisfy the condition although neither does alone.
    mixed = np.stack((2 * np.eye(3), -np.eye(3)))[None]
    AlphaExpansion().map(PairwiseModel(graph, unary, mixed, edge_weight=np.ones((4, 2))))
    with pytest.raises(ValueError, match="edge 3 "):
        AlphaExpansion().map(PairwiseModel(graph, unary, mixed, edge_weight=[[1, 1], [1, 1], [1, 1], [1, 3]]))


@BOTH
def test_errors(algorithm):
    graph = lattice((2, 2))
    tables = np.array([np.eye(3)])
    model = PairwiseModel(graph, np.zeros((4, 3)), tables)
    with pytest.raises(ValueError, match="max_iter must be at least 1"):
        algorithm(max_iter=0).map(model)
    with pytest.raises(ValueError, match="nonsubmodular must be one of 'error', 'truncate'"):
        algorithm(nonsubmodular="qpbo").map(model)
    with pytest.raises(ValueError, match="init must be between 0 and 2"):
        algorithm().map(model, init=[0, 1, 2, 3])
    tables[0, 0, 1] = -np.inf
    with pytest.raises(ValueError, match="tables must be finite"):
        algorithm().map(PairwiseModel(graph, np.zeros((4, 3)), tables))


def test_warns_when_stopped():
    rng = np.random.default_rng(8)
    model = random_model(lattice((12, 12)), "tied", 5, rng)
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        labeling = AlphaExpansion(max_iter=1).map(model, init=np.zeros(144, dtype=np.int32))
    assert not labeling.converged
