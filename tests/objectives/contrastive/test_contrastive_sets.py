"""Sets of assignments against plain NumPy, exact likelihood, pseudolikelihood and finite differences."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from contrastive_reference import all_labelings, contrastive_reference, single_node_sets
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import models, random_model, read_only, relabelled, renumbered
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_crf.graphs import Graph, build_disjoint_union, lattice
from sklearn_crf.inference import BruteForce
from sklearn_crf.models import PairwiseModel, score
from sklearn_crf.objectives import (
    AssignmentSets,
    BlockLikelihood,
    ContrastiveSets,
    Likelihood,
    Pseudolikelihood,
)


def made_sets(model, labels, labelings, weights=None):
    sets = AssignmentSets(model, labels)
    for k, rows in enumerate(labelings):
        assert sets.add_set(model, rows, weight=1.0 if weights is None else weights[k])
    return sets


def loss_of(sets, model):
    return ContrastiveSets(sets).loss_statistics(model, sets.labels)


def random_sets(model, labels, n_sets, rng):
    """Return sets of a few random allowed labelings, each with the truth and a repeated labeling."""
    drawn = BruteForce().sample(model, 4 * n_sets, random_state=int(rng.integers(2**31)))
    return [np.concatenate((drawn[4 * k : 4 * k + 4], [labels], drawn[4 * k : 4 * k + 1])) for k in range(n_sets)]


def five_point(function, values, direction, step=3e-4):
    # The truncation error depends on the fifth derivative, which is large if all entries of a table move in one
    # direction.
    f = [function(values + k * step * direction) for k in (-2, -1, 1, 2)]
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * step)


# Values and derivatives ------------------------------------------------------------------------------------------


@given(model=models(max_states=3), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_value_and_statistics_are_those_of_plain_numpy(model, seed):
    rng = np.random.default_rng(seed)
    labels = BruteForce().sample(model, 1, random_state=seed)[0]
    labelings, weights = random_sets(model, labels, 3, rng), rng.uniform(0.1, 2, size=3)
    loss = loss_of(made_sets(model, labels, labelings, weights), model)
    value, statistics = contrastive_reference(model, labels, labelings, weights)
    assert_allclose(loss.terms.sum(), value, atol=1e-10)
    assert_allclose(loss.statistics.unary, statistics.unary, atol=1e-10)
    assert_allclose(loss.statistics.tables, statistics.tables, atol=1e-10)


@given(model=models(max_states=3), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_gradient_is_the_slope(model, seed):
    rng = np.random.default_rng(seed)
    labels = BruteForce().sample(model, 1, random_state=seed)[0]
    sets = made_sets(model, labels, random_sets(model, labels, 2, rng), rng.uniform(0.1, 2, size=2))
    loss = loss_of(sets, model)
    for name in ("unary", "tables"):
        values = getattr(model, name)
        direction = rng.normal(size=values.shape)
        slope = five_point(
            lambda x, name=name: loss_of(sets, replace(model, **{name: x})).terms.sum(), values, direction
        )
        assert np.sum(getattr(loss.statistics, name) * direction) == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("kind", ["tied", "typed", "weighted", "untied"])
@pytest.mark.parametrize("topology", ["chain", "cycle", "no_edges", "one_node", "disconnected_forest"])
def test_all_assignments_in_one_set_are_the_likelihood(topology, kind):
    model = random_model(topology, 2, kind, seed=3)
    labels = BruteForce().sample(model, 1, random_state=0)[0]
    exact = Likelihood(BruteForce()).loss_statistics(model, labels)
    loss = loss_of(made_sets(model, labels, [all_labelings(len(labels), 2)]), model)
    assert_allclose(loss.terms.sum(), exact.terms.sum(), rtol=0, atol=1e-9)
    assert_allclose(loss.statistics.unary, exact.statistics.unary, rtol=0, atol=1e-9)
    assert_allclose(loss.statistics.tables, exact.statistics.tables, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["tied", "typed", "weighted", "untied"])
@pytest.mark.parametrize("topology", ["grid", "tree", "no_edges", "disconnected"])
def test_single_node_sets_are_pseudolikelihood(topology, kind):
    model = random_model(topology, 3, kind, seed=4)
    labels = BruteForce().sample(model, 1, random_state=0)[0]
    expected = Pseudolikelihood().loss_statistics(model, labels)
    as_sets = loss_of(made_sets(model, labels, single_node_sets(labels, 3)), model)
    as_blocks = BlockLikelihood(model.graph, [[node] for node in range(len(labels))]).loss_statistics(model, labels)
    for loss in (as_sets, as_blocks):
        assert_allclose(loss.terms.sum(), expected.terms.sum(), rtol=0, atol=1e-9)
        assert_allclose(loss.statistics.unary, expected.statistics.unary, rtol=0, atol=1e-9)
        assert_allclose(loss.statistics.tables, expected.statistics.tables, rtol=0, atol=1e-9)


def test_order_of_nodes_and_of_states_does_not_matter():
    model = random_model("grid", 3, "weighted", seed=2)
    rng = np.random.default_rng(0)
    labels = BruteForce().sample(model, 1, random_state=0)[0]
    labelings = random_sets(model, labels, 3, rng)
    terms, statistics = made_sets(model, labels, labelings).terms_and_statistics(model)
    order, states = rng.permutation(9), rng.permutation(3)
    moved = renumbered(model, order)
    other_terms, other = made_sets(moved, labels[order], [rows[:, order] for rows in labelings]).terms_and_statistics(
        moved
    )
    assert_allclose(other_terms.sum(), terms.sum())
    assert_allclose(other.unary, statistics.unary[order], atol=1e-12)
    assert_allclose(other.tables, statistics.tables, atol=1e-12)
    new, moved = np.argsort(states), relabelled(model, states)
    other_terms, other = made_sets(moved, new[labels], [new[rows] for rows in labelings]).terms_and_statistics(moved)
    assert_allclose(other_terms.sum(), terms.sum())
    assert_allclose(other.unary, statistics.unary[:, states], atol=1e-12)


def test_one_state_leaves_nothing_to_contrast():
    model = random_model("grid", 1)
    sets = AssignmentSets(model, np.zeros(9, dtype=int))
    assert sets.extend(model, np.zeros(9, dtype=int)) == 0
    loss = loss_of(sets, model)
    assert_array_equal(loss.terms, 0)
    assert_array_equal(loss.statistics.unary, 0)


def test_scores_that_would_overflow():
    model = random_model("grid", 2, scale=1e5)
    labels = BruteForce().sample(replace(model, unary=model.unary * 0, tables=model.tables * 0), 1, random_state=1)[0]
    labelings = [all_labelings(9, 2)]
    loss = loss_of(made_sets(model, labels, labelings), model)
    value, statistics = contrastive_reference(model, labels, labelings, [1.0])
    assert value > 1e3
    assert_allclose(loss.terms.sum(), value)
    assert_allclose(loss.statistics.unary, statistics.unary, atol=1e-9)


@pytest.mark.parametrize("kind", ["tied", "weighted"])
def test_precision_and_read_only_input(kind, tmp_path):
    model = random_model("grid", 3, kind, dtype=np.float32)
    rng = np.random.default_rng(0)
    labels = BruteForce().sample(model, 1, random_state=0)[0]
    labels.flags.writeable = False
    labelings = random_sets(model, labels, 3, rng)
    for rows in labelings:
        rows.flags.writeable = False
    loss = loss_of(made_sets(read_only(model, tmp_path), labels, labelings), read_only(model, tmp_path))
    value, statistics = contrastive_reference(model, labels, labelings, [1.0] * 3)
    assert loss.statistics.unary.dtype == np.float32
    assert loss.statistics.tables.dtype == np.float64
    assert_allclose(loss.terms.sum(), value, rtol=1e-5)
    assert_allclose(loss.statistics.tables, statistics.tables, atol=1e-5)


def test_wide_codes_and_many_edges():
    n_nodes = 40_000
    graph = Graph(n_nodes, np.stack((np.arange(n_nodes - 1), np.arange(1, n_nodes)), axis=1))
    rng = np.random.default_rng(0)
    model = PairwiseModel(graph, rng.normal(size=(n_nodes, 2)), rng.normal(size=(1, 2, 2)))
    labels = np.zeros(n_nodes, dtype=np.int32)
    sets = AssignmentSets(model, labels)
    other = np.ones(n_nodes, dtype=np.int32)
    other[17] = 0
    sets.extend(model, other)
    assert_allclose(sets.gains(model), score(model, other) - score(model, labels), rtol=1e-9)


@pytest.mark.parametrize("n_columns", [2, 3, 17, 257])
def test_assignments_that_change_one_node_or_most(n_columns):
    graphs = [lattice((7,)), lattice((3, 3))]
    model = random_model(build_disjoint_union(graphs), n_columns, seed=2)
    rng = np.random.default_rng(n_columns)
    labels = rng.integers(n_columns, size=16)
    sets = AssignmentSets(model, labels, [0, 7, 16])
    parts = [labels[:7], labels[7:]]
    for member, truth in enumerate(parts):
        single = np.array([np.where(np.arange(len(truth)) == k, (truth + 1) % n_columns, truth) for k in (0, 6)])
        rows = np.concatenate((truth[None], single, rng.integers(n_columns, size=(20, len(truth)))))
        assert sets.add_set(model, rows, member=member)
        whole = np.tile(labels, (len(rows), 1))
        whole[:, slice(0, 7) if member == 0 else slice(7, 16)] = rows
        parts[member] = whole
    terms, statistics = sets.terms_and_statistics(model)
    value, expected = contrastive_reference(model, labels, parts, [1.0, 1.0])
    assert_allclose(terms.sum(), value, atol=1e-10)
    assert_allclose(statistics.unary, expected.unary, atol=1e-10)
    assert_allclose(statistics.tables, expected.tables, atol=1e-10)


def test_changed_nodes_take_two_bytes():
    model = random_model(lattice((30, 30)), 8)
    rng = np.random.default_rng(0)
    sets = AssignmentSets(model, rng.integers(8, size=900))
    rows = rng.integers(8, size=(50, 900))
    sets.add_set(model, np.concatenate((sets.labels[None], rows)))
    # Four bytes for a pair of states, and 28 bytes to look up an assignment.
    assert sets.nbytes <= 50 * (2 * 900 + 4 * 64 + 28) + 100


# Sets of the examples of a batch ---------------------------------------------------------------------------------


def packed():
    graphs = [lattice((3,)), lattice((2,)), lattice(())]
    model = random_model(build_disjoint_union(graphs), 3, seed=5)
    return model, np.array([0, 1, 2, 1, 0, 2], dtype=np.int32), np.array([0, 3, 5, 6])


def test_examples_of_a_batch_stand_alone():
    model, labels, node_ptr = packed()
    sets = AssignmentSets(model, labels, node_ptr)
    assert sets.extend(model, [0, 2, 2, 1, 0, 1]) == 2
    assert sets.extend(model, [2, 2, 2, 1, 1, 1]) == 2
    assert_array_equal(sets.set_member[sets.set_of], [0, 2, 0, 1])
    loss = loss_of(sets, model)
    for start, stop in pairwise(node_ptr):
        rows = np.tile(labels, (3, 1))
        rows[1, start:stop] = [0, 2, 2, 1, 0, 1][start:stop]
        rows[2, start:stop] = [2, 2, 2, 1, 1, 1][start:stop]
        value, statistics = contrastive_reference(model, labels, [rows], [1.0])
        assert_allclose(loss.terms[start:stop].sum(), value, atol=1e-12)
        assert_allclose(loss.statistics.unary[start:stop], statistics.unary[start:stop], atol=1e-12)


def test_weights_of_generated_sets():
    model, labels, node_ptr = packed()
    plain, weighted = AssignmentSets(model, labels, node_ptr), AssignmentSets(model, labels, node_ptr, [3.0, 2.0, 0.5])
    for sets in (plain, weighted):
        sets.extend(model, [0, 2, 2, 1, 0, 1])
        sets.extend(model, [2, 2, 2, 2, 2, 2])
    of_members = np.repeat([3.0, 2.0, 0.5], np.diff(node_ptr))
    assert_allclose(loss_of(weighted, model).terms, of_members * loss_of(plain, model).terms)
    assert np.all(loss_of(plain, model).terms[node_ptr[:-1]] > 0)


@pytest.mark.parametrize(
    ("weight", "message"),
    [([1.0, 2.0], r"generated_weight must be a number or have shape \(3,\)"), (0.0, "finite and positive, got 0")],
)
def test_bad_weights_of_generated_sets_are_named(weight, message):
    with pytest.raises(ValueError, match=message):
        AssignmentSets(*packed(), weight)


def test_what_is_known_is_not_stored_again():
    model, labels, node_ptr = packed()
    sets = AssignmentSets(model, labels, node_ptr)
    assert sets.extend(model, labels) == 0
    assert sets.extend(model, [0, 2, 2, 1, 0, 1]) == 2
    n_bytes = sets.nbytes
    assert sets.extend(model, [0, 2, 2, 1, 0, 1]) == 0
    assert sets.nbytes == n_bytes
    assert sets.n_assignments == 2
    # The same assignment in another set is another term of the objective.
    assert sets.add_set(model, [[0, 2, 2], [0, 1, 2], [0, 2, 2]], member=0)
    assert sets.n_assignments == 3


def test_nothing_is_taken_for_known_that_is_not():
    model = random_model("chain", 3, seed=1)
    labels = np.zeros(6, dtype=np.int32)
    sets = AssignmentSets(model, labels)
    rows = all_labelings(6, 3)
    for k in range(4):
        sets.add_set(model, rows)
        assert sets.n_assignments == (k + 1) * (len(rows) - 1)


def test_a_set_without_the_truth_is_inactive():
    model, labels, node_ptr = packed()
    sets = AssignmentSets(model, labels, node_ptr)
    assert not sets.add_set(model, [[1, 1], [2, 0]], member=1)
    assert not sets.add_set(model, [[1, 0], [2, 0]], member=1, weight=0.0)
    assert not sets.add_set(model, np.zeros((0, 2), dtype=int), member=1)
    assert sets.n_assignments == 0
    assert_array_equal(loss_of(sets, model).terms, 0)


def test_only_differences_are_stored():
    model = random_model(lattice((60, 60)), 2)
    labels = np.zeros(3600, dtype=np.int32)
    sets = AssignmentSets(model, labels)
    for node in range(0, 3600, 40):
        sets.extend(model, (np.arange(3600) == node).astype(int))
    assert sets.n_assignments == 90
    assert sets.nbytes < 90 * 60


@pytest.mark.parametrize(
    ("labelings", "weight", "message"),
    [
        ([[0, 1]], 1.0, r"labelings must be integers of shape \(m, 3\)"),
        ([[0, 1, 3]], 1.0, "labelings must be between 0 and 2"),
        ([[0.0, 1.0, 2.0]], 1.0, "labelings must be integers"),
        ([[0, 1, 2]], -1.0, "weight must be finite and not negative"),
    ],
)
def test_bad_sets_are_named(labelings, weight, message):
    model, labels, node_ptr = packed()
    with pytest.raises(ValueError, match=message):
        AssignmentSets(model, labels, node_ptr).add_set(model, labelings, weight=weight)


def test_a_forbidden_truth_is_named():
    chain = lattice((3,))
    labels = np.array([0, 1, 0])
    unary = np.zeros((3, 2))
    unary[1, 1] = -np.inf
    tables = np.array([[[0.0, -np.inf], [0.0, 1.0]]])
    for model in (PairwiseModel(chain, unary, np.zeros((1, 2, 2))), PairwiseModel(chain, np.zeros((3, 2)), tables)):
        sets = AssignmentSets(model, labels)
        sets.extend(model, [0, 0, 0])
        with pytest.raises(ValueError, match="labels are forbidden"):
            loss_of(sets, model)


def test_other_labels_than_those_of_the_sets():
    model, labels, node_ptr = packed()
    with pytest.raises(ValueError, match="labels differ"):
        ContrastiveSets(AssignmentSets(model, labels, node_ptr)).loss_statistics(model, labels[::-1])


# With other objectives -------------------------------------------------------------------------------------------


def test_losses_of_other_objectives_are_added():
    model, labels, node_ptr = packed()
    sets = AssignmentSets(model, labels, node_ptr)
    sets.extend(model, (labels + 1) % model.n_columns)
    others = [Pseudolikelihood(), Likelihood(BruteForce())]
    loss = ContrastiveSets(sets, others).loss_statistics(model, labels)
    losses = [each.loss_statistics(model, labels) for each in (ContrastiveSets(sets), *others)]
    assert_allclose(loss.terms, sum(each.terms for each in losses))
    assert_allclose(loss.statistics.tables, sum(each.statistics.tables for each in losses))
