"""Hinges of forests in a kernel, compared with models and enumeration; Frank-Wolfe passes compared with blocks."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from model_strategies import TOPOLOGIES
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from sklearn_crf.encoding import Batch, Example, SharedRows, make_trusted_example
from sklearn_crf.graphs import Graph, build_disjoint_union
from sklearn_crf.inference import ICM, AutoMap, BruteForce, GraphCut, TreeInference
from sklearn_crf.objectives import (
    EmpiricalRisk,
    ForestDual,
    ForestPlanes,
    PlaneOracle,
    StructuredHinge,
)
from sklearn_crf.objectives.margin._forest_planes import SparseForestPlanes, _TableRows
from sklearn_crf.optimize import bmrm, frank_wolfe
from sklearn_crf.optimize._frank_wolfe import BlockDual, _maximise_in_box
from sklearn_crf.potentials import FeaturePairs, LinearPotentials, SparsePotentials, make_pairwise_form

C = 0.3

FORBIDDEN = np.array([[False, False, True], [True, False, False], [False, False, False]])

CASES = {
    "plain": {},
    "two_classes": {"n_classes": 2, "form": "ising"},
    "potts": {"form": "potts"},
    "one_class_more": {"n_classes": 4, "form": "symmetric"},
    "no_intercept": {"fit_intercept": False},
    "typed": {"n_node_types": 2, "n_edge_types": 2},
    "edge_features": {"n_edge_features": 3},
    "node_weight": {"node_weight": True},
    "sample_weight": {"weight": True},
    "states": {"n_states": True},
    "float32": {"dtype": np.float32},
    "many_types_float32": {"n_classes": 2, "n_node_types": 3, "n_edge_features": 2, "dtype": np.float32},
    "forbidden": {"forbidden": FORBIDDEN},
    "forbidden_two_classes": {"n_classes": 2, "form": "ising", "forbidden": FORBIDDEN[:2, 1:]},
    "forbidden_edge_features": {"n_edge_features": 1, "n_edge_types": 2, "n_states": True, "forbidden": FORBIDDEN},
}
SPARSE_CASES = {
    "sparse": {"sparse": True},
    "sparse_two_classes": {"sparse": True, "n_classes": 2, "form": "ising"},
    "sparse_many_classes": {"sparse": True, "n_classes": 7},
    "sparse_no_intercept": {"sparse": True, "fit_intercept": False},
    "sparse_typed": {"sparse": True, "n_node_types": 2, "n_edge_types": 2, "n_edge_features": 2},
    "sparse_weights": {"sparse": True, "node_weight": True, "weight": True},
    "sparse_states_float32": {"sparse": True, "n_states": True, "dtype": np.float32},
    "sparse_forbidden": {"sparse": True, "forbidden": FORBIDDEN},
}
CASES |= SPARSE_CASES


def forest_risk(
    seed=0,
    n_classes=3,
    form="full",
    dtype=np.float64,
    node_weight=False,
    weight=False,
    n_states=False,
    sparse=False,
    members=("chain", "one_node", "tree", "disconnected_forest"),
    **options,
):
    """Return a risk of structured hinges over two batches of forests, with some features zero."""
    rng = np.random.default_rng(seed)
    form = make_pairwise_form(form, n_classes)
    potentials = LinearPotentials(3, n_classes, form, **options)
    if sparse:
        pairs = FeaturePairs.all(3 * potentials.n_node_types, potentials.n_columns)
        potentials = SparsePotentials(pairs, 3, n_classes, form, **options)
    batches, n_members = [], len(members)
    for start in (0, n_members):
        graphs = [TOPOLOGIES[name](rng) for name in members]
        graph, sizes = build_disjoint_union(graphs), [g.n_nodes for g in graphs]
        labels = _allowed_labels(rng, graph, 2 if n_states else n_classes, options.get("forbidden"))
        features = rng.normal(size=(graph.n_nodes, 3)) * rng.integers(2, size=(graph.n_nodes, 3))
        features[:, 0] += labels
        n_node_types, n_edge_types = options.get("n_node_types", 1), options.get("n_edge_types", 1)
        n_edge_features = options.get("n_edge_features", 0)
        example = Example(
            sp.csr_matrix(features, dtype=dtype) if sparse else features.astype(dtype),
            graph,
            rng.uniform(size=(graph.n_edges, n_edge_features)).astype(dtype) if n_edge_features else None,
            rng.integers(n_node_types, size=graph.n_nodes) if n_node_types > 1 else None,
            rng.integers(n_edge_types, size=graph.n_edges) if n_edge_types > 1 else None,
            rng.integers(2, n_classes + 1, size=graph.n_nodes) if n_states else None,
        )
        batches.append(
            Batch(
                potentials.prepared(example) if sparse else example,
                np.arange(start, start + n_members),
                np.concatenate(([0], np.cumsum(sizes))),
                labels,
                np.full(n_members, rng.uniform(0.5, 2)) if weight else None,
                rng.uniform(size=graph.n_nodes) if node_weight else None,
            )
        )
    cost = rng.uniform(0.5, 1, size=(n_classes, n_classes)) * (1 - np.eye(n_classes))
    # With many classes there are too many labelings.
    inference = BruteForce(2**22) if n_classes < 5 else TreeInference()
    return EmpiricalRisk(StructuredHinge(inference, cost), potentials, batches)


def _allowed_labels(rng, graph, n_classes, forbidden):
    labels = rng.integers(n_classes, size=graph.n_nodes).astype(np.int32)
    while forbidden is not None and forbidden[tuple(labels[graph.edges.T])].any():
        wrong = np.unique(graph.edges[forbidden[tuple(labels[graph.edges.T])]])
        labels[wrong] = rng.integers(n_classes, size=len(wrong))
    return labels


def both(**options):
    """Return a risk, its kernel oracle, and the general oracle with batches as blocks, at scaled weights."""
    risk = forest_risk(**options)
    scale = np.where(risk.potentials.penalty > 0, 1.0, 0.7)
    parts, rng = risk.potentials.unpack(scale), np.random.default_rng(3)
    by_feature = parts.coef if parts.coef.ndim == 3 else parts.coef.reshape(-1, risk.potentials.n_columns)
    by_feature[...] *= rng.uniform(0.5, 2, size=by_feature[:, :1].shape)
    parts.edge_coef[...] *= rng.uniform(0.5, 2, size=(*parts.edge_coef.shape[:-1], 1))
    return risk, ForestPlanes(risk, C, scale, n_blocks=1), PlaneOracle(risk, C, scale, [[0], [1]])


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_planes_are_those_by_models(options):
    risk, planes, reference = both(**options)
    rng = np.random.default_rng(1)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if options.get("dtype") else {"rtol": 1e-9, "atol": 1e-9}
    assert planes.sizes == reference.sizes == [4, 4]
    for _ in range(3):
        x = rng.normal(size=len(planes.places))
        in_order = np.empty(len(x))
        in_order[planes.places] = x
        assert_array_equal(planes.weights_of(x), reference.weights_of(in_order))
        for block in range(2):
            slopes, offsets = planes(block, x)
            expected_slopes, expected_offsets = reference(block, in_order)
            assert_allclose(slopes, expected_slopes[:, planes.places], **tolerance)
            assert_allclose(offsets, expected_offsets, **tolerance)
        value, slope = planes.value_grad(x)
        expected = risk.value_grad(planes.weights_of(x))
        assert_allclose(value, C * expected.value, **tolerance)
        assert_allclose(slope, C * (planes._scale * expected.gradient[planes.places]), **tolerance)
    assert planes.n_inference_calls == 3 * (8 + 8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_nodes_that_share_a_row_of_features_are_as_with_copies(n_classes, dtype):
    rng, n_rows = np.random.default_rng(0), 6
    rows = SharedRows((rng.normal(size=(n_rows, 5)) * rng.integers(2, size=(n_rows, 5))).astype(dtype), 3)
    part = Graph(3, [[0, 1], [1, 2]])
    labels = rng.integers(n_classes, size=3 * n_rows).astype(np.int32)
    types = [np.tile(np.arange(k, dtype=np.int32), n_rows) for k in (3, 2)]
    form = make_pairwise_form("symmetric", n_classes)
    potentials = LinearPotentials(5, n_classes, form, n_node_types=3, n_edge_types=2)
    objective, x = StructuredHinge(TreeInference(), 1 - np.eye(n_classes)), rng.normal(size=potentials.n_coef)
    found = []
    for features in (rows, np.asarray(rows)):
        example = make_trusted_example(features, build_disjoint_union([part] * n_rows), None, *types, None)
        batch = Batch(example, np.arange(n_rows), np.arange(0, 3 * n_rows + 1, 3), labels, None, None)
        planes = ForestPlanes(EmpiricalRisk(objective, potentials, [batch]), C, np.ones(len(x)))
        dual = ForestDual(planes, np.zeros(len(x), dtype=bool))
        slack = dual.pass_over(np.random.RandomState(0))
        found.append((*planes.value_grad(x), planes.value(x), *planes(0, x), slack, dual.x))
    assert len(planes.examples[0].features) == 3 * n_rows
    for one, other in zip(*found, strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("n_classes", [4, 5, 8, 31, 33, 70])
def test_planes_of_many_classes_are_those_by_models(n_classes):
    """Rows of weights that fill vectors, leave a remainder, or exceed the registers."""
    risk = forest_risk(n_classes=n_classes, members=("chain", "tree"))
    risk = EmpiricalRisk(StructuredHinge(TreeInference(), risk.objective.cost), risk.potentials, risk.batches)
    x = np.random.default_rng(1).normal(size=risk.potentials.n_coef)
    planes = ForestPlanes(risk, C, np.ones(len(x)))
    value, slope = planes.value_grad(x)
    expected = risk.value_grad(planes.weights_of(x))
    assert_allclose(value, C * expected.value, rtol=1e-10)
    assert_allclose(slope, C * expected.gradient[planes.places], atol=1e-10)


@pytest.mark.parametrize("name", ["cycle", "disconnected", "bridges"])
@pytest.mark.parametrize(
    "case",
    [
        "plain",
        "two_classes",
        "edge_features",
        "node_weight",
        "sample_weight",
        "states",
        "forbidden",
        "forbidden_edge_features",
    ],
)
def test_labelings_of_small_graphs_are_enumerated(name, case):
    risk = forest_risk(members=(name,), **CASES[case])
    scale = np.ones(risk.potentials.n_coef)
    planes, reference = ForestPlanes(risk, C, scale, n_blocks=1), PlaneOracle(risk, C, scale, [[0, 1]])
    assert planes.sizes == reference.sizes == [2]
    assert list(planes.examples[0].has_cycles) == [1, 1]
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=len(planes.places))
        in_order = np.empty(len(x))
        in_order[planes.places] = x
        slopes, offsets = planes(0, x)
        expected_slopes, expected_offsets = reference(0, in_order)
        assert_allclose(slopes, expected_slopes[:, planes.places], atol=1e-9)
        assert_allclose(offsets, expected_offsets, atol=1e-9)
        assert_allclose(planes.value(x), C * risk.value_grad(in_order).value, rtol=1e-9)


def test_blocks_cut_batches_and_cover_all():
    risk = forest_risk()
    fine = ForestPlanes(risk, C, np.ones(risk.potentials.n_coef), n_blocks=20)
    whole = ForestPlanes(risk, C, np.ones(risk.potentials.n_coef), n_blocks=1)
    assert len(fine.sizes) > 2
    assert sum(fine.sizes) == 8
    x = np.random.default_rng(0).normal(size=risk.potentials.n_coef)
    assert_array_equal(
        np.concatenate([fine(i, x)[0] for i in range(len(fine.sizes))]),
        np.concatenate([whole(i, x)[0] for i in range(2)]),
    )


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("group", [None, 1, 3])
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("case", ["plain", "two_classes", "sample_weight", "forbidden", *SPARSE_CASES])
def test_a_pass_makes_the_best_steps_towards_earlier_planes(case, bounded, group, n_threads):
    """The steps of a group equal the joint steps of a block, with the planes at the x before these steps."""
    options = CASES[case]
    risk, planes, reference = both(**options)
    n = risk.potentials.n_coef
    below = np.zeros(n, dtype=bool)
    risk.potentials.unpack(below).edge_coef[...] = bounded
    ours = ForestDual(planes, below[planes.places], group=group)
    theirs, n_steps, size = BlockDual(None, [8], below), 0, 1
    planes.n_threads = n_threads
    for seed in range(3):
        slack = ours.pass_over(np.random.RandomState(seed))
        members = np.random.RandomState(seed).permutation(8)
        theirs_slack = 0.0
        while len(members):
            own, members = members[:size], members[size:]
            found = [reference(member // 4, theirs.x) for member in own]
            slopes, offsets = (
                np.array([part[i % 4] for part, i in zip(parts, own, strict=True)])
                for parts in zip(*found, strict=True)
            )
            gain = _joint_gain(theirs, own, slopes, offsets)
            size = max(size // 2, 1) if gain < 0.8 else min(2 * size, group or 1) if gain > 0.9 else size
            theirs_slack += theirs.step(own, slopes, offsets)
            for _ in own:
                n_steps += 1
                theirs.mean += 2.0 / (n_steps + 1.0) * (theirs.x - theirs.mean)
        rtol = 1e-4 if options.get("dtype") else 1e-9
        assert_allclose(slack, theirs_slack, rtol=rtol, atol=1e-12)
        assert_allclose(ours.x, theirs.x[planes.places], atol=0.1 * rtol)
        assert_allclose(ours.mean, theirs.mean[planes.places], atol=0.1 * rtol)
        assert_allclose(ours.dual, theirs.dual, rtol=rtol)
    assert not bounded or ours.x[below[planes.places]].min() >= 0


def _joint_gain(dual, own, slopes, offsets):
    """Return the gain of joint steps as a fraction of the sum of the gains of single steps."""
    rows = slopes - dual._slopes[own]
    slack, gram = offsets - dual._offsets[own] + rows @ dual.x, rows @ rows.T

    def gain(step):
        return step @ slack - 0.5 * step @ gram @ step

    step = _maximise_in_box(gram, slack)
    joint, square = gain(step), np.maximum(gram.diagonal(), 1e-300)
    single = np.clip(slack / square, 0.0, 1.0)
    common = np.clip(slack.sum() / max(gram.sum(), 1e-300), 0.0, 1.0)
    assert joint >= max(gain(np.full(len(own), common)), 0.0) - 1e-12
    alone = np.sum(single * slack - 0.5 * single**2 * square)
    return joint / alone if alone > 0 else 1.0


@pytest.mark.parametrize("n", [1, 2, 5, 16])
def test_joint_steps_maximise_the_quadratic_function(n):
    rng = np.random.default_rng(n)
    for n_columns in (2, 40):
        rows, slack = rng.normal(size=(n, n_columns)), rng.normal(size=n) + 1.0
        gram = rows @ rows.T
        step = _maximise_in_box(gram, slack)
        best = minimize(
            lambda z, gram=gram, slack=slack: (0.5 * z @ gram @ z - slack @ z, gram @ z - slack),
            np.full(n, 0.5),
            jac=True,
            bounds=[(0.0, 1.0)] * n,
        )
        assert 0.5 * step @ gram @ step - slack @ step <= best.fun + 0.02 * abs(best.fun)
        assert np.all((step >= 0) & (step <= 1))


def test_groups_grow_while_steps_hardly_hinder_each_other():
    sizes = []
    # Each example has its own feature, or all examples have the same feature, which says nothing about labels.
    for features in (np.repeat(np.eye(64), 2, axis=0), np.ones((128, 1))):
        graph = build_disjoint_union([Graph(2, [[0, 1]])] * 64)
        example = make_trusted_example(3 * features, graph, None, None, None, None)
        labels = np.random.default_rng(0).integers(2, size=128).astype(np.int32)
        batch = Batch(example, np.arange(64), np.arange(0, 129, 2), labels, None, None)
        potentials = LinearPotentials(features.shape[1], 2, make_pairwise_form("potts", 2), fit_intercept=False)
        planes = ForestPlanes(
            EmpiricalRisk(StructuredHinge(TreeInference(), 1 - np.eye(2)), potentials, [batch]),
            C,
            np.ones(potentials.n_coef),
        )
        dual = ForestDual(planes, np.zeros(potentials.n_coef, dtype=bool), group=16)
        dual.pass_over(np.random.RandomState(0))
        sizes.append(dual._group)
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize("forbidden", [None, FORBIDDEN], ids=["free", "forbidden"])
@pytest.mark.parametrize("sparse", [False, True])
def test_passes_have_the_same_bits_on_any_number_of_threads(sparse, forbidden):
    found = []
    for n_threads in (1, 2, 3, 16):
        risk = forest_risk(members=("chain", "tree") * 80, sparse=sparse, forbidden=forbidden)
        n = risk.potentials.n_coef
        planes = ForestPlanes(risk, C, np.ones(n), n_threads)
        dual = ForestDual(planes, np.zeros(n, dtype=bool))
        slacks = [dual.pass_over(np.random.RandomState(seed)) for seed in range(20)]
        found.append((dual.x, dual.mean, slacks))
    for one, *others in zip(*found, strict=True):
        for other in others:
            assert_array_equal(one, other)


@pytest.mark.parametrize("sparse", [False, True])
def test_frank_wolfe_over_a_kernel_reaches_the_optimum(sparse):
    risk, planes, _ = both(sparse=sparse)
    n = risk.potentials.n_coef
    scale = planes.weights_of(np.ones(n))

    def fun(x):
        result = risk.value_grad(scale * x)
        return C * result.value, C * scale * result.gradient

    optimum = bmrm(fun, np.zeros(n), tol=1e-8)
    dual = ForestDual(planes, np.zeros(n, dtype=bool))
    found = frank_wolfe(planes, planes.sizes, planes.value, n, tol=1e-3, max_iter=5000, random_state=0, dual=dual)
    assert found.success
    assert found.dual <= optimum.fun <= found.fun * (1 + 1e-9)
    assert_allclose(planes.weights_of(found.x), scale * optimum.x, atol=0.1)


def test_which_examples_the_kernel_takes():
    def takes(inference, *members, n_classes=3):
        risk = forest_risk(members=members, n_classes=n_classes)
        return ForestPlanes.applies(StructuredHinge(inference, 1 - np.eye(n_classes)), risk.potentials, risk.batches)

    assert takes(TreeInference(), "chain", "tree")
    assert takes(AutoMap(), "chain", "tree")
    assert not takes(GraphCut(), "chain", "tree")
    assert takes(AutoMap(), "cycle")
    assert takes(BruteForce(), "cycle")
    assert not takes(TreeInference(), "cycle")
    assert not takes(ICM(), "cycle")
    assert not takes(AutoMap(), "grid", n_classes=8)
    risk = forest_risk(sparse=True)
    assert SparseForestPlanes.applies(risk.objective, risk.potentials, risk.batches)
    assert not ForestPlanes.applies(risk.objective, risk.potentials, risk.batches)
    pairs = FeaturePairs(3, np.array([0, 3, 6, 8]), np.array([0, 1, 2, 0, 1, 2, 0, 1], dtype=np.int32))
    some = SparsePotentials(pairs, 3, 3, risk.potentials.form)
    assert not SparseForestPlanes.applies(risk.objective, some, risk.batches)


@pytest.mark.parametrize("options", [{"n_classes": 2}, {"forbidden": FORBIDDEN}], ids=["free", "forbidden"])
@pytest.mark.parametrize("sparse", [False, True])
def test_values_are_maxima_over_all_labelings(sparse, options):
    risk, planes, _ = both(form="full", sparse=sparse, **options)
    x = np.random.default_rng(3).normal(size=len(planes.places))
    coef, total = planes.weights_of(x), 0.0
    for batch in risk.batches:
        model = risk.potentials.model(coef, batch.example)
        for i in range(4):
            total += C * _largest_violation(model, batch, i, risk.objective.cost)
    assert_allclose(planes.value(x), total, rtol=1e-9)


def _largest_violation(model, batch, i, cost):
    nodes = np.arange(batch.node_ptr[i], batch.node_ptr[i + 1])
    edges = [e for e, pair in enumerate(batch.example.edges) if pair[0] in nodes]

    def score(y):
        total = sum(model.unary[s, y[s]] for s in nodes)
        return total + sum(model.tables[0, 0, y[a], y[b]] for a, b in batch.example.edges[edges])

    truth = {s: batch.labels[s] for s in nodes}
    return max(
        sum(cost[y, truth[s]] for s, y in zip(nodes, labels, strict=True))
        + score(dict(zip(nodes, labels, strict=True)))
        for labels in product(range(model.n_columns), repeat=len(nodes))
    ) - score(truth)


def test_rows_of_tables_keep_their_entries_when_they_grow():
    rng = np.random.default_rng(0)
    rows, expected = _TableRows(np.array([3, 0, 5])), [{}, {}, {}]
    for step in range(20):
        rows.reserve()
        assert np.all(np.diff(rows.ptr) - rows.sizes >= [3, 0, 5])
        for i, most in ((0, 3), (2, 5)):
            for _ in range(rng.integers(most + 1)):
                place = rows.ptr[i] + rows.sizes[i]
                rows.index[place], rows.values[place] = 10 * step + rows.sizes[i], rng.normal()
                expected[i][int(rows.index[place])] = rows.values[place]
                rows.sizes[i] += 1
        for i in range(3):
            own = slice(rows.ptr[i], rows.ptr[i] + rows.sizes[i])
            assert dict(zip(rows.index[own].tolist(), rows.values[own], strict=True)) == expected[i]
