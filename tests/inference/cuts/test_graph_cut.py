"""GraphCut against enumeration, a lattice against the same graph in general form, and PyMaxflow if installed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_crf.graphs import Graph, build_disjoint_union, from_adjacency, lattice
from sklearn_crf.inference import AlphaBetaSwap, AlphaExpansion, BruteForce, GraphCut
from sklearn_crf.models import PairwiseModel, score

GRAPHS = {
    "chain": lambda: lattice((7,)),
    "tree": lambda: Graph(7, [[1, 0], [0, 2], [3, 1], [1, 4], [5, 2], [2, 6]]),
    "grid": lambda: lattice((3, 3)),
    "neighbours of 8": lambda: lattice((3, 4), 2),
    "volume": lambda: lattice((2, 3, 2)),
    "volume of 26": lambda: lattice((2, 2, 3), 3),
    "long offsets": lambda: lattice((3, 4), [[0, 2], [1, -1], [2, 1], [5, 0]]),
    "disconnected": lambda: build_disjoint_union([lattice((2, 2)), lattice((3,)), lattice((2, 3))]),
    "no edges": lambda: Graph(5, []),
    "one node": lambda: lattice(()),
    "general": lambda: from_adjacency(np.triu(np.random.default_rng(3).random((9, 9)) < 0.4, 1)),
}
KINDS = ("tied", "typed", "weighted", "untied")


def submodular(tables):
    """Raise the diagonal of two-state tables as far as needed, and slightly more than all possible rounding."""
    lacking = tables[..., 0, 1] + tables[..., 1, 0] - tables[..., 0, 0] - tables[..., 1, 1]
    tables[..., 0, 0] += np.where(lacking > 0, lacking + 1e-12, 0)
    return tables


def random_model(graph, kind, rng, dtype=np.float64, any_sign=False, coupling=1.0):
    n_edges = graph.n_edges
    n_types = {"tied": 1, "typed": 3, "weighted": 2, "untied": max(n_edges, 1)}[kind]
    n_features = 2 if kind == "weighted" else 1
    tables = coupling * rng.normal(size=(n_types, n_features, 2, 2))
    if not any_sign:
        tables = submodular(tables)
    return PairwiseModel(
        graph,
        rng.normal(size=(graph.n_nodes, 2)).astype(dtype),
        tables,
        edge_type={"tied": None, "untied": np.arange(n_edges)}.get(kind, rng.integers(0, n_types, n_edges)),
        edge_weight=rng.uniform(0, 2, size=(n_edges, n_features)) if kind == "weighted" else None,
    )


def tolerance(model):
    return 1e-9 if model.dtype == np.float64 else 1e-5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GRAPHS)
def test_exact_on_submodular(name, kind, dtype):
    rng = np.random.default_rng(0)
    for _ in range(4):
        model = random_model(GRAPHS[name](), kind, rng, dtype)
        best = BruteForce().map(model).score
        labeling = GraphCut().map(model)
        assert labeling.score == pytest.approx(best, rel=tolerance(model), abs=tolerance(model))
        assert labeling.score == pytest.approx(score(model, labeling.labels), rel=1e-12, abs=1e-12)
        assert labeling.gap == 0
        assert labeling.state == (0, 0)
        assert labeling.labels.dtype == np.int32


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(GRAPHS)), st.sampled_from(KINDS), st.floats(-3, 3))
def test_exact_at_any_coupling(seed, name, kind, exponent):
    model = random_model(GRAPHS[name](), kind, np.random.default_rng(seed), coupling=10.0**exponent)
    best = BruteForce().map(model).score
    assert GraphCut().map(model).score == pytest.approx(best, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(GRAPHS)))
def test_ties_and_integers(seed, name):
    """With small integer scores many cuts are minimal: the one found has state 1 only where all of them do."""
    rng = np.random.default_rng(seed)
    graph = GRAPHS[name]()
    unary = rng.integers(-2, 3, size=(graph.n_nodes, 2)).astype(float)
    model = PairwiseModel(graph, unary, [[[1, 0], [0, 1]]], edge_weight=rng.integers(0, 3, graph.n_edges))
    labels = GraphCut().map(model).labels
    best = BruteForce().map(model).score
    assert score(model, labels) == best
    for node in np.flatnonzero(labels):
        seeded = unary.copy()
        seeded[node, 1] = -np.inf
        other = PairwiseModel(graph, seeded, model.tables, edge_weight=model.edge_weight)
        assert GraphCut().map(other).score < best


def test_lattice_agrees_with_general_graph():
    """Find the same minimal cut by the implicit lattice and by stored neighbours, on lattices with several blocks."""
    rng = np.random.default_rng(1)
    for shape, connectivity in [((300, 290), 1), ((280, 270), 2), ((50, 45, 44), 1), ((300, 270), [[0, 1], [3, -2]])]:
        graph = lattice(shape, connectivity)
        values = {
            "unary": rng.normal(size=(graph.n_nodes, 2)),
            "tables": [[[1.0, 0.0], [0.0, 1.0]]],
            "edge_weight": rng.uniform(0, 1, graph.n_edges),
        }
        on_lattice = GraphCut().map(PairwiseModel(graph, **values))
        in_general = GraphCut().map(PairwiseModel(Graph(graph.n_nodes, graph.edges), **values))
        np.testing.assert_array_equal(on_lattice.labels, in_general.labels)
        threaded = GraphCut().map(PairwiseModel(graph, **values), n_threads=2)
        np.testing.assert_array_equal(on_lattice.labels, threaded.labels)


@pytest.mark.parametrize("coupling", [0.3, 0.75, 1.5])
def test_lattice_whatever_flow_along_lines_leaves(coupling):
    """Find the same cut with and without boxes, for weak couplings (excess at most nodes) and strong couplings."""
    graph = lattice((300, 290))
    values = {
        "unary": np.random.default_rng(3).normal(size=(graph.n_nodes, 2)),
        "tables": coupling * np.eye(2)[None],
    }
    labels = GraphCut().map(PairwiseModel(graph, **values)).labels
    in_general = GraphCut().map(PairwiseModel(Graph(graph.n_nodes, graph.edges), **values))
    threaded = GraphCut().map(PairwiseModel(graph, **values), n_threads=2)
    np.testing.assert_array_equal(labels, in_general.labels)
    np.testing.assert_array_equal(labels, threaded.labels)


def test_sparse_seeds_on_a_lattice():
    """If few nodes have scores, flow must travel far, across the borders of blocks."""
    rng = np.random.default_rng(2)
    graph = lattice((300, 300))
    unary = np.zeros((graph.n_nodes, 2))
    seeds = rng.choice(graph.n_nodes, 60, replace=False)
    unary[seeds, rng.integers(0, 2, 60)] = -np.inf
    values = {"tables": [[[1.0, 0.0], [0.0, 1.0]]], "edge_weight": rng.uniform(0.5, 1, graph.n_edges)}
    labeling = GraphCut().map(PairwiseModel(graph, unary, **values))
    general = GraphCut().map(PairwiseModel(Graph(graph.n_nodes, graph.edges), unary, **values))
    np.testing.assert_array_equal(labeling.labels, general.labels)
    assert np.all(np.isfinite(unary[np.arange(len(unary)), labeling.labels]))


@pytest.fixture
def by_heights(monkeypatch):
    """Make every search on a lattice switch to heights after its first steps."""
    monkeypatch.setattr("sklearn_crf.inference.cuts._tuning.WORK_PER_CALL", 1)
    monkeypatch.setattr("sklearn_crf.inference.cuts._tuning.LONG_SEARCH", 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", GRAPHS)
def test_exact_by_heights(name, dtype, by_heights):
    rng = np.random.default_rng(5)
    for kind in KINDS:
        for coupling in (0.3, 1.0, 10.0):
            model = random_model(GRAPHS[name](), kind, rng, dtype, coupling=coupling)
            best = BruteForce().map(model).score
            assert GraphCut().map(model).score == pytest.approx(best, rel=tolerance(model), abs=tolerance(model))


@pytest.mark.parametrize(
    ("shape", "connectivity"), [((60, 50), 1), ((50, 60), 2), ((16, 15, 14), 1), ((90, 40), [[0, 1], [3, -2]])]
)
@pytest.mark.parametrize("seeds", [False, True])
def test_heights_find_the_same_cut(shape, connectivity, seeds, by_heights):
    """Find the same minimal cut by both searches for strong and infinite couplings, where flow travels far."""
    rng = np.random.default_rng(6)
    graph = lattice(shape, connectivity)
    unary = rng.normal(size=(graph.n_nodes, 2))
    if seeds:
        some = rng.choice(graph.n_nodes, graph.n_nodes // 20, replace=False)
        unary[some, rng.integers(0, 2, len(some))] = -np.inf
    tables = np.array([2.0 * np.eye(2), [[0.0, -np.inf], [0.0, 0.0]]])
    edge_type = (rng.random(graph.n_edges) < 0.02 * (not seeds)).astype(np.int32)
    values = {"unary": unary, "tables": tables, "edge_type": edge_type}
    labels = GraphCut().map(PairwiseModel(graph, **values)).labels
    in_general = GraphCut().map(PairwiseModel(Graph(graph.n_nodes, graph.edges), **values))
    np.testing.assert_array_equal(labels, in_general.labels)


def test_offsets_that_the_edges_do_not_follow():
    """A graph must not claim to be a lattice if it is not."""
    with pytest.raises(ValueError, match=r"edges must equal the edges of lattice\(shape, offsets\)"):
        Graph(4, [[0, 3], [1, 2]], shape=(2, 2), offsets=[[0, 1]])


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(GRAPHS)), st.sampled_from(KINDS))
def test_roof_duality(seed, name, kind):
    rng = np.random.default_rng(seed)
    model = random_model(GRAPHS[name](), kind, rng, any_sign=True, coupling=rng.choice([0.5, 2.0]))
    best = BruteForce().map(model).score
    labeling = GraphCut(nonsubmodular="qpbo").map(model)
    assert labeling.score <= best + 1e-9
    assert labeling.bound >= best - 1e-9
    if labeling.state.n_unlabelled == 0:
        assert labeling.score == pytest.approx(best, rel=1e-9, abs=1e-9)
        assert labeling.gap == 0
    truncated = GraphCut(nonsubmodular="truncate").map(model)
    assert truncated.score <= best + 1e-9
    assert truncated.bound >= best - 1e-9
    tables = model.edge_tables()
    slack = tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]
    assert labeling.state.n_nonsubmodular == truncated.state.n_nonsubmodular == np.count_nonzero(slack < 0)


def test_persistency():
    """The nodes labelled by roof duality agree with some labeling of the highest score: clamping them loses nothing."""
    rng = np.random.default_rng(4)
    n_partly = 0
    for _ in range(60):
        graph = lattice((3, 3), 2)
        model = random_model(graph, "untied", rng, any_sign=True, coupling=2.0)
        best = BruteForce().map(model).score
        labels = roof_dual_labels(model)
        n_partly += 0 < np.count_nonzero(labels < 0) < graph.n_nodes
        unary = model.unary.copy()
        fixed = np.flatnonzero(labels >= 0)
        unary[fixed, 1 - labels[fixed]] = -np.inf
        clamped = PairwiseModel(graph, unary, model.tables, edge_type=model.edge_type)
        assert BruteForce().map(clamped).score == pytest.approx(best, rel=1e-9)
    assert n_partly > 5


def roof_dual_labels(model):
    """Return the partial labeling itself, with -1 for open nodes."""
    from sklearn_crf.inference.cuts._cut_network import CROSS, CutNetwork

    n_nodes = model.graph.n_nodes
    keep, take = np.zeros(n_nodes, dtype=np.int32), np.ones(n_nodes, dtype=np.int32)
    taken = CutNetwork(model, mirrored=True).cut(keep, take, CROSS)
    assert not np.any(taken[:n_nodes] & taken[n_nodes:])
    return np.where(taken[:n_nodes], 1, np.where(taken[n_nodes:], 0, -1))


def test_roof_duality_is_exact_where_flipping_helps():
    """If neighbours on a grid prefer to differ, exchanging states of every second node makes the grid submodular."""
    rng = np.random.default_rng(5)
    graph = lattice((40, 30))
    unary = rng.normal(size=(graph.n_nodes, 2))
    odd = np.indices((40, 30)).sum(axis=0).ravel() % 2 == 1
    flipped = np.where(odd[:, None], unary[:, ::-1], unary)
    labeling = GraphCut(nonsubmodular="qpbo").map(PairwiseModel(graph, unary, [[[0, 1], [1, 0]]]))
    reference = GraphCut().map(PairwiseModel(graph, flipped, [[[1, 0], [0, 1]]]))
    assert labeling.state.n_unlabelled == 0
    assert labeling.gap == 0
    assert labeling.score == pytest.approx(reference.score, rel=1e-12)


def test_completion_is_no_worse_than_unary_scores():
    rng = np.random.default_rng(6)
    for _ in range(20):
        model = random_model(lattice((4, 4), 2), "untied", rng, any_sign=True, coupling=5.0)
        open_nodes = roof_dual_labels(model)
        start = np.where(open_nodes < 0, model.unary.argmax(axis=1), open_nodes)
        first, second = (GraphCut(nonsubmodular="qpbo").map(model) for _ in range(2))
        assert first.score >= score(model, start) - 1e-12
        np.testing.assert_array_equal(first.labels, second.labels)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_order_of_nodes_and_names_of_states_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    graph = lattice((3, 4), 2)
    model = random_model(graph, "untied", rng)
    labels = GraphCut().map(model).labels
    order = rng.permutation(graph.n_nodes)  # new number of each node
    unary = np.empty_like(model.unary)
    unary[order] = model.unary
    renumbered = PairwiseModel(Graph(graph.n_nodes, order[graph.edges]), unary, model.tables, edge_type=model.edge_type)
    np.testing.assert_array_equal(GraphCut().map(renumbered).labels[order], labels)
    renamed = PairwiseModel(graph, model.unary[:, ::-1], model.tables[..., ::-1, ::-1], edge_type=model.edge_type)
    np.testing.assert_array_equal(1 - GraphCut().map(renamed).labels, labels)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["error", "qpbo"]))
def test_forbidden_states_and_pairs(seed, nonsubmodular):
    """Models with scores of -inf are solved exactly, or reported as infeasible if enumeration finds no labeling."""
    rng = np.random.default_rng(seed)
    graph = lattice((3, 3))
    unary = rng.normal(size=(9, 2))
    unary[rng.random(9) < 0.2, 1] = -np.inf
    tables = submodular(rng.normal(size=(graph.n_edges, 2, 2)))
    cells = [(0, 1), (1, 0), (0, 0), (1, 1)] if nonsubmodular == "qpbo" else [(0, 1), (1, 0)]
    for edge in np.flatnonzero(rng.random(graph.n_edges) < 0.3):
        tables[(edge, *cells[rng.integers(len(cells))])] = -np.inf
    for edge in np.flatnonzero(rng.random(graph.n_edges) < 0.1):
        tables[edge, rng.integers(2)] = -np.inf
    model = PairwiseModel(graph, unary, tables, edge_type=np.arange(graph.n_edges))
    try:
        best = BruteForce().map(model).score
    except ValueError:
        with pytest.raises(ValueError, match="infeasible"):
            GraphCut(nonsubmodular=nonsubmodular).map(model)
        return
    try:
        labeling = GraphCut(nonsubmodular=nonsubmodular).map(model)
    except ValueError as error:
        # Roof duality alone cannot decide every node, and filling in may produce forbidden pairs.
        assert nonsubmodular == "qpbo", error  # noqa: PT017
        return
    assert labeling.bound >= best - 1e-9
    if labeling.state.n_unlabelled == 0:
        assert labeling.score == pytest.approx(best, rel=1e-9, abs=1e-9)


def test_one_state():
    graph = lattice((2, 3))
    model = PairwiseModel(graph, np.arange(6.0)[:, None], [[[2.0]]])
    labeling = GraphCut().map(model)
    assert labeling.score == labeling.bound == 15 + 2 * graph.n_edges
    mixed = PairwiseModel(graph, np.tile([0.0, 1.0], (6, 1)), [[[1.0, 0.0], [0.0, 1.0]]], n_states=[1, 2, 2, 2, 2, 2])
    np.testing.assert_array_equal(GraphCut().map(mixed).labels, [0, 1, 1, 1, 1, 1])


def test_read_only_and_unchanged():
    model = random_model(lattice((4, 5)), "weighted", np.random.default_rng(7))
    arrays = (model.unary, model.tables, model.edge_weight, model.edge_type)
    for array in arrays:
        array.flags.writeable = False
    copies = [array.copy() for array in arrays]
    GraphCut().map(model)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_scores_of_very_different_size():
    """Small scores still count beside one huge edge, because capacities are 60-bit integers."""
    graph = lattice((9,))
    rng = np.random.default_rng(8)
    weight = rng.uniform(0, 1e-6, graph.n_edges)
    weight[3] = 1e6
    for dtype in (np.float32, np.float64):
        unary = (1e-6 * rng.normal(size=(9, 2))).astype(dtype)
        model = PairwiseModel(graph, unary, [[[0, -1], [-1, 0]]], edge_weight=weight)
        assert GraphCut().map(model).score == pytest.approx(BruteForce().map(model).score, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_modular_up_to_rounding(dtype):
    """Tables a_i + b_j are modular in exact arithmetic, and must not be rejected because of rounding."""
    rng = np.random.default_rng(10)
    graph = lattice((3, 3))
    rows, columns = rng.normal(size=(2, graph.n_edges, 2)).astype(dtype)
    tables = rows[:, :, None] + columns[:, None, :]
    slack = tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]
    assert (slack < 0).any()
    model = PairwiseModel(graph, rng.normal(size=(9, 2)).astype(dtype), tables, edge_type=np.arange(graph.n_edges))
    assert GraphCut().map(model).score == pytest.approx(BruteForce().map(model).score, rel=tolerance(model))


def test_errors():
    graph = lattice((2, 2))
    unary = np.zeros((4, 2))
    tables = np.array([[[1.0, 0], [0, 1]], [[0, 0.75], [0, 0]]])
    model = PairwiseModel(graph, unary, tables, edge_type=[0, 0, 1, 0])
    with pytest.raises(ValueError, match=r"edge 2 \(nodes 0 and 2\) .* by 0\.75: use nonsubmodular='qpbo'"):
        GraphCut().map(model)
    # A negative weight turns attraction into repulsion.
    repelling = PairwiseModel(graph, unary, tables[:1], edge_weight=[1, 1, 1, -0.5])
    with pytest.raises(ValueError, match=r"edge 3 .* by 1:"):
        GraphCut().map(repelling)
    with pytest.raises(ValueError, match="nonsubmodular must be one of"):
        GraphCut(nonsubmodular="ignore").map(model)
    tables[1, 0, 0] = -np.inf
    infinite = PairwiseModel(graph, unary, tables, edge_type=[0, 0, 1, 0])
    with pytest.raises(ValueError, match=r"edge 2 .* cannot be truncated"):
        GraphCut(nonsubmodular="truncate").map(infinite)
    # The first edge can be truncated, but a later edge cannot.
    tables = np.stack([[[0.0, 1.0], [1.0, 0.0]], [[-np.inf, 0.0], [0.0, 0.0]]])
    later = PairwiseModel(Graph(3, [[0, 1], [1, 2]]), np.zeros((3, 2)), tables, [0, 1])
    for algorithm in (GraphCut, AlphaExpansion, AlphaBetaSwap):
        with pytest.raises(ValueError, match=r"edge 1 .* by inf\. An infinite violation cannot be truncated"):
            algorithm(nonsubmodular="truncate").map(later)
    with pytest.raises(ValueError, match="two states, got 3"):
        GraphCut().map(PairwiseModel(graph, np.zeros((4, 3)), np.zeros((1, 3, 3))))
    hard = np.array([[0, -np.inf], [-np.inf, 0.0], [0, 0], [0, 0]])
    with pytest.raises(ValueError, match="infeasible"):
        GraphCut().map(PairwiseModel(graph, hard, [[[0, -np.inf], [-np.inf, 0]]]))
    with pytest.raises(ValueError, match="does not support task 'marginals'"):
        GraphCut().marginals(model)


def test_agrees_with_pymaxflow():
    maxflow = pytest.importorskip("maxflow", reason="PyMaxflow is not installed")
    rng = np.random.default_rng(9)
    shape = (60, 70)
    cost, right, down = rng.normal(size=shape), rng.uniform(0, 1, shape), rng.uniform(0, 1, shape)
    network = maxflow.Graph[float](cost.size, 2 * cost.size)
    nodes = network.add_grid_nodes(shape)
    network.add_grid_edges(nodes, right, np.array([[0, 0, 0], [0, 0, 1], [0, 0, 0]]), symmetric=True)
    network.add_grid_edges(nodes, down, np.array([[0, 0, 0], [0, 0, 0], [0, 1, 0]]), symmetric=True)
    network.add_grid_tedges(nodes, np.maximum(cost, 0), np.maximum(-cost, 0))
    flow = network.maxflow()
    weight = np.concatenate((right[:, :-1].ravel(), down[:-1].ravel()))
    unary = np.stack((np.minimum(cost, 0), -np.maximum(cost, 0)), axis=-1).reshape(-1, 2)
    labeling = GraphCut().map(PairwiseModel(lattice(shape), unary, [[[0, -1], [-1, 0]]], edge_weight=weight))
    assert -labeling.score == pytest.approx(flow, rel=1e-9)
