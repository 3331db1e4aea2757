"""Examples joined in one graph: inference and training give the results of single examples."""

from dataclasses import replace

import numpy as np
import pytest
from built_fields import trw_crf
from model_strategies import cycle, random_model, triangles_with_bridges
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf import Example
from sklearn_crf.graphs import Graph, SpanningTrees, build_disjoint_union, lattice
from sklearn_crf.inference import JunctionTree, TightenBound, TRWMessagePassing
from sklearn_crf.inference.bounds._tree_choice import choose_spanning_trees, list_connected_parts
from sklearn_crf.inference.messages._edge_probabilities import choose_edge_probabilities
from sklearn_crf.objectives import Likelihood

COMPLETE = Graph(5, [[s, t] for s in range(5) for t in range(s)])
PARTS = [lattice((3, 3)), COMPLETE, lattice(()), cycle(4), lattice((3,)), triangles_with_bridges()]


def shuffled(graph, seed):
    """Return the graph with nodes and edges in a random order, which mixes its components."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(graph.n_nodes)
    return Graph(graph.n_nodes, names[graph.edges[rng.permutation(graph.n_edges)]])


@pytest.mark.parametrize("graph", [build_disjoint_union(PARTS), shuffled(build_disjoint_union(PARTS), 0)])
def test_trees_of_a_component_do_not_depend_on_others(graph):
    trees = choose_spanning_trees(graph, "covering", 0)
    SpanningTrees(graph, trees.trees, trees.weights)
    found = choose_edge_probabilities(graph, "covering")
    assert_allclose(trees.edge_probabilities, found, rtol=1e-12)
    parts = list_connected_parts(graph)
    assert sorted(np.concatenate([edges for edges, _ in parts])) == list(range(graph.n_edges))
    for edges, part in parts:
        alone = choose_spanning_trees(part, "covering", 0)
        assert_array_equal(found[edges], alone.edge_probabilities)


def test_components_with_equally_many_trees_need_no_more():
    grid = lattice((3, 3))
    assert choose_spanning_trees(build_disjoint_union([grid] * 5), "covering", 0).n_trees == 2


def models_of_parts(n_columns, **options):
    """Return a model of each part, all with the same tables, and a model of the parts side by side."""
    models = [random_model(graph, n_columns, seed=s, **options) for s, graph in enumerate(PARTS)]
    models = [replace(model, tables=models[0].tables) for model in models]
    joined = {
        "graph": build_disjoint_union(PARTS),
        "unary": np.concatenate([model.unary for model in models]),
        "edge_type": np.concatenate([model.edge_type for model in models]),
    }
    return models, replace(models[0], **joined)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_messages_rest_where_they_stand_still(dtype):
    models, joined = models_of_parts(3, dtype=dtype, scale=2.0)
    inference = TRWMessagePassing("covering", tol=1e-4, max_iter=1000)
    alone = [inference.marginals(model) for model in models]
    together = inference.marginals(joined)
    assert together.n_iter == max(found.n_iter for found in alone)
    assert len({found.n_iter for found in alone}) > 2
    assert together.converged
    on_cycles = np.concatenate(
        [np.full(len(f.unary), not m.graph.is_forest) for m, f in zip(models, alone, strict=True)]
    )
    expected = np.concatenate([found.unary for found in alone])
    assert_array_equal(together.unary[on_cycles], expected[on_cycles])
    assert_allclose(together.unary, expected, atol=1e-6)
    assert_allclose(together.log_z, sum(found.log_z for found in alone), rtol=1e-6)


def test_bound_by_trees_is_the_sum_of_those_of_components():
    models, joined = models_of_parts(2)
    inference = TightenBound(tol=1e-7, max_iter=2000)
    alone = [inference.marginals(model).log_z for model in models]
    assert_allclose(inference.marginals(joined).log_z, sum(alone), rtol=1e-6)


@pytest.mark.parametrize("learning", ["relaxation", "piecewise", "pseudolikelihood", "joint_relaxation"])
def test_training_in_packs_is_training_of_each(learning):
    rng = np.random.default_rng(0)
    graphs = [PARTS[k % len(PARTS)] for k in range(8)]
    X = [Example(rng.normal(size=(graph.n_nodes, 2)), graph.edges) for graph in graphs]
    y = [np.append(rng.integers(2, size=graph.n_nodes - 1), [1]) for graph in graphs]
    model = trw_crf(C=0.3, learning=learning, classes=[0, 1], tol=1e-6, inner_tol=1e-7, max_iter=300)
    packed = model.fit(X, y)
    coef, edge_coef = packed.coef_, packed.edge_coef_
    # Examples of different weights are never packed.
    weight = 1 + 1e-12 * np.arange(len(X))
    single = model.fit(X, y, sample_weight=weight)
    assert_allclose(single.coef_, coef, atol=1e-4)
    assert_allclose(single.edge_coef_, edge_coef, atol=1e-4)


def test_exact_likelihood_remembers_the_order_and_nothing_else():
    objective, labels = Likelihood(JunctionTree()), np.array([0, 1, -1, 0, 2, 1, -1, 0, 1], dtype=np.int32)
    first, second = (random_model("grid", 3, seed=s) for s in (0, 1))
    remembered = objective.loss_statistics(first, labels)
    after = objective.loss_statistics(second, labels, state=remembered.state)
    cold = objective.loss_statistics(second, labels)
    assert_array_equal(after.terms, cold.terms)
    assert_array_equal(after.statistics.unary, cold.statistics.unary)
    assert_array_equal(after.state[0], remembered.state[0])
