"""DualDecomposition: trees, step rules, and scores of trees that add up to those of the model."""

import numpy as np
import pytest
from model_strategies import TABLE_KINDS, random_model
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.graphs import Graph, SpanningTrees, covering_trees, lattice
from sklearn_crf.inference import DualDecomposition, LinearProgram, TreeInference, convergence_left_to_caller
from sklearn_crf.inference.bounds._tree_scores import TreeScores
from sklearn_crf.models import PairwiseModel


def scores_of_trees(model, scores, x):
    """Yield a model for each tree."""
    nodes, edges = scores._parts(x)
    unary, tables = scores.unary + nodes / scores.scale_of_nodes, scores.tables + edges / scores.scale_of_edges
    for t in range(scores.shape_of_nodes[0]):
        own = scores.tree == t
        graph = scores.graph
        chosen = np.isin(np.arange(graph.n_edges), scores.edge[own])
        tree = Graph(graph.n_nodes, graph.edges[SpanningTrees(graph, chosen[None]).trees[0]])
        yield PairwiseModel(tree, unary[t], tables[own], np.arange(own.sum()), n_states=model.n_states)


@pytest.mark.parametrize("kind", TABLE_KINDS)
def test_labels_of_trees_and_their_step(kind):
    model = random_model("grid", 3, kind, seed=3)
    # Trees of different weight.
    trees = covering_trees(model.graph, 5).merged().stepped(covering_trees(model.graph, 5).trees[0], 0.3).merged()
    scores = TreeScores(model, trees, map)
    x = scores.project(np.random.default_rng(0).normal(size=scores.size))
    labels, bound = scores.labelings(x)
    alone = [TreeInference().map(tree) for tree in scores_of_trees(model, scores, x)]
    assert_array_equal(labels, [found.labels for found in alone])
    assert bound == pytest.approx(trees.weights @ [found.score for found in alone], abs=1e-10)
    # A small step against the subgradient keeps all labels and changes the bound by its squared length.
    gradient = np.zeros(scores.size)
    scores.subtract_labelings(gradient, labels, -1.0)
    assert scores.labelings(x - 1e-6 * gradient)[1] == pytest.approx(bound - 1e-6 * gradient @ gradient, abs=1e-10)


@pytest.mark.parametrize("trees", ["covering", "uniform", "snakes", 6])
@pytest.mark.parametrize("step", ["annealed", "polyak"])
def test_trees_and_step_rules_reach_the_same_bound(trees, step):
    model = random_model(lattice((5, 5)), 3, "untied", seed=1)
    relaxed = LinearProgram().map(model)
    with convergence_left_to_caller():
        found = DualDecomposition(trees, step).map(model)
    assert found.bound == pytest.approx(relaxed.bound, rel=1e-4)
    assert found.bound >= relaxed.bound - 1e-8


def test_scores_of_trees_add_up_to_those_of_the_model():
    model = random_model(lattice((4, 5)), 3, "weighted", scale=2.0, seed=4)
    with convergence_left_to_caller():
        state = DualDecomposition(max_iter=50).map(model).state
    scores = TreeScores(model, state.trees, map)
    unary, tables = np.zeros(model.unary.shape), np.zeros((model.graph.n_edges, 3, 3))
    for t, tree in enumerate(scores_of_trees(model, scores, state.scores)):
        unary += state.trees.weights[t] * tree.unary
        tables[state.trees.trees[t]] += state.trees.weights[t] * tree.edge_tables()
    assert_allclose(unary, model.unary, atol=1e-9)
    assert_allclose(tables, model.edge_tables(), atol=1e-9)


def test_given_trees():
    model = random_model("grid", 2, seed=0)
    trees = covering_trees(model.graph)
    given = DualDecomposition([np.flatnonzero(tree) for tree in trees.trees]).map(model)
    assert given.bound == DualDecomposition(trees).map(model).bound
    with pytest.raises(ValueError, match="step must be"):
        DualDecomposition(step="long").map(model)
    with pytest.raises(ValueError, match="edges uncovered"):
        DualDecomposition([np.flatnonzero(trees.trees[0])]).map(model)
    other = DualDecomposition(4).map(model)
    with pytest.raises(ValueError, match="same graph and trees"):
        DualDecomposition(5).map(model, init=other.state)
