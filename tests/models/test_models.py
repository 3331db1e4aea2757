"""Pairwise models: scores and statistics against plain loops."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from model_strategies import TABLE_KINDS, TOPOLOGIES, models, random_model, read_only
from numpy.testing import assert_array_equal

from sklearn_crf.graphs import lattice
from sklearn_crf.models import (
    PairwiseModel,
    Statistics,
    clamped,
    compute_label_excess,
    compute_labeling_difference,
    compute_labeling_statistics,
    compute_score_terms,
    count_pair_states,
    score,
)


def score_by_loops(model, labels):
    total = sum(float(model.unary[s, state]) for s, state in enumerate(labels))
    for e, (i, j) in enumerate(model.graph.edges):
        weights = np.ones(1) if model.edge_weight is None else model.edge_weight[e]
        for r, weight in enumerate(weights):
            total += float(weight) * float(model.tables[model.edge_type[e], r, labels[i], labels[j]])
    return total


def random_labels(model, seed=0):
    return np.random.default_rng(seed).integers(model.n_columns, size=model.graph.n_nodes)


@settings(max_examples=80, deadline=None)
@given(models(dtypes=(np.float32, np.float64)), st.integers(0, 99))
def test_score_is_the_sum_of_its_terms(model, seed):
    labels = random_labels(model, seed)
    expected = score_by_loops(model, labels)
    assert score(model, labels) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    terms = compute_score_terms(model, labels)
    assert terms.dtype == np.float64
    assert terms.sum() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", TABLE_KINDS)
def test_terms_of_a_component_are_its_score(kind):
    model = random_model("disconnected", 3, kind, seed=2)
    labels = random_labels(model)
    terms = compute_score_terms(model, labels)
    other = random_labels(model, 1)
    for c in range(model.graph.n_components):
        inside = model.graph.component == c
        changed = np.where(inside, labels, other)
        assert compute_score_terms(model, changed)[inside].sum() == pytest.approx(terms[inside].sum(), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(models(), st.integers(0, 99))
def test_statistics_are_the_derivative_of_the_score(model, seed):
    # The score is linear in unary and tables, so its derivative times their values is the score itself.
    model = replace(
        model,
        unary=np.where(np.isneginf(model.unary), 0, model.unary),
        tables=np.where(np.isneginf(model.tables), 0, model.tables),
        n_states=None,
    )
    labels = random_labels(model, seed)
    statistics = compute_labeling_statistics(model, labels)
    assert np.array_equal(statistics.unary, np.eye(model.n_columns)[labels])
    value = (statistics.unary * model.unary).sum() + (statistics.tables * model.tables).sum()
    assert value == pytest.approx(score_by_loops(model, labels), rel=1e-9, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(models(dtypes=(np.float32, np.float64)), st.integers(0, 99))
def test_a_difference_of_labelings_is_that_of_their_terms_and_statistics(model, seed):
    labels, others = random_labels(model, seed), random_labels(model, seed + 1)
    terms, found = compute_labeling_difference(model, labels, others)
    with np.errstate(invalid="ignore"):
        difference = compute_score_terms(model, labels) - compute_score_terms(model, others)
    known = ~np.isnan(difference)
    np.testing.assert_allclose(terms[known], difference[known], rtol=1e-5, atol=1e-5)
    expected = compute_labeling_statistics(model, labels).minus(compute_labeling_statistics(model, others))
    assert found.unary.dtype == expected.unary.dtype
    assert np.array_equal(found.unary, expected.unary)
    np.testing.assert_allclose(found.tables, expected.tables, rtol=1e-9, atol=1e-9)


def test_statistics_count_tables():
    model = PairwiseModel(lattice((4,)), np.zeros((4, 2)), np.zeros((2, 2, 2)), edge_type=[0, 1, 0])
    statistics = compute_labeling_statistics(model, [0, 1, 1, 0])
    assert statistics.tables[:, 0].tolist() == [[[0, 1], [1, 0]], [[0, 0], [0, 1]]]


def test_statistics_subtract_and_scale():
    one = Statistics(np.ones((2, 2)), np.full((1, 1, 2, 2), 3.0))
    assert np.array_equal(one.minus(one).tables, np.zeros((1, 1, 2, 2)))
    scaled = one.scaled(np.array([[2.0], [3.0]]), 0.5)
    assert scaled.unary.tolist() == [[2, 2], [3, 3]]
    assert np.all(scaled.tables == 1.5)


@settings(max_examples=40, deadline=None)
@given(models())
def test_edge_tables(model):
    tables = model.edge_tables()
    assert tables.shape == (model.graph.n_edges, model.n_columns, model.n_columns)
    for e in range(model.graph.n_edges):
        weight = np.ones(1) if model.edge_weight is None else model.edge_weight[e]
        with np.errstate(invalid="ignore"):
            expected = np.tensordot(weight, model.tables[model.edge_type[e]], axes=1)
        assert np.allclose(tables[e], expected)
        assert np.array_equal(model.edge_tables([e])[0], tables[e])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_form(dtype):
    graph = lattice((3,))
    model = PairwiseModel(graph, np.zeros((3, 2), dtype=dtype), np.zeros((1, 2, 2)), edge_weight=[1, 2])
    assert (model.dtype, model.tables.dtype, model.edge_weight.dtype) == (dtype, dtype, dtype)
    assert model.tables.shape == (1, 1, 2, 2)
    assert model.edge_weight.shape == (2, 1)
    assert model.edge_type.tolist() == [0, 0]
    assert model.edge_type.dtype == np.int32


def test_integers_become_float64_and_columns_contiguous():
    model = PairwiseModel(lattice((3,)), np.zeros((2, 3), dtype=int).T, np.zeros((1, 2, 2), dtype=int))
    assert model.dtype == np.float64
    assert model.unary.flags.c_contiguous


def test_missing_states_are_forbidden():
    model = PairwiseModel(lattice((3,)), np.zeros((3, 3)), np.zeros((1, 3, 3)), n_states=[1, 3, 2])
    assert np.isneginf(model.unary).tolist() == [[False, True, True], [False] * 3, [False, False, True]]
    assert model.n_states.dtype == np.int32


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ([[1, 0], [0, 1]], True),
        ([[1, 0], [0.5, 1]], False),
        ([[1, 0], [0, 2]], False),
        ([[0, -np.inf], [-np.inf, 0]], True),
    ],
)
def test_is_potts(table, expected):
    model = PairwiseModel(lattice((2,)), np.zeros((2, 2)), [table])
    assert model.is_potts is expected


def test_one_state_is_potts_and_models_without_edges_need_no_table():
    assert PairwiseModel(lattice((2,)), np.zeros((2, 1)), np.zeros((1, 1, 1))).is_potts
    empty = PairwiseModel(lattice(()), np.ones((1, 2)), np.zeros((0, 2, 2)))
    assert score(empty, [1]) == 1


def test_clamped_forbids_other_states():
    model = random_model("chain", 3, seed=1)
    fixed = clamped(model, [2, -1, -1, 0, -1, 1])
    assert np.isneginf(fixed.unary).sum(axis=1).tolist() == [2, 0, 0, 2, 0, 2]
    assert fixed.unary[0, 2] == model.unary[0, 2]
    assert not np.isneginf(model.unary).any()


@pytest.mark.parametrize("labels", [[0, 1], [0, 0, 0, 3], [0, 0, 0, -1], [0.5, 0, 0, 0], np.zeros((4, 1), dtype=int)])
def test_bad_labels(labels):
    model = random_model("no_edges", 3)
    with pytest.raises(ValueError, match="labels"):
        score(model, labels)


@pytest.mark.parametrize("labels", [[0, 1], [0, 0, 0, 3], [0.5, 0, 0, 0]])
def test_bad_evidence(labels):
    with pytest.raises(ValueError, match="labels"):
        clamped(random_model("no_edges", 3), labels)


CHAIN = lattice((3,))
TABLE = np.zeros((2, 2, 2))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"unary": np.zeros((2, 2))}, r"unary must have shape \(3, n_states\)"),
        ({"unary": np.zeros((3, 0))}, "unary"),
        ({"unary": np.full((3, 2), np.nan)}, "unary must be finite or -inf"),
        ({"unary": np.full((3, 2), np.inf)}, "unary"),
        ({"unary": np.array([[np.inf, -np.inf]] * 3)}, "unary"),
        ({"tables": np.zeros((1, 3, 3))}, "tables must have shape"),
        ({"tables": np.zeros((2, 2))}, "tables"),
        ({"tables": np.full((1, 2, 2), np.nan)}, "tables"),
        ({"tables": np.zeros((0, 2, 2))}, "no edge type"),
        ({"edge_type": [0]}, r"edge_type must have shape \(2,\)"),
        ({"edge_type": [0, 2]}, "between 0 and 1"),
        ({"edge_type": [0, -1]}, "between 0 and 1"),
        ({"edge_type": [0.0, 1.0]}, "integers"),
        ({"edge_weight": [1.0]}, "edge_weight"),
        ({"edge_weight": [1.0, np.nan]}, "edge_weight must be finite"),
        ({"tables": np.zeros((1, 2, 2, 2))}, "edge_weight must be given"),
        ({"tables": np.full((1, 2, 2), -np.inf), "edge_weight": [1.0, 0.0]}, "-inf"),
        ({"n_states": [1, 2]}, "n_states"),
        ({"n_states": [1, 2, 3]}, "between 1 and 2"),
        ({"n_states": [1.0, 2.0, 2.0]}, "n_states"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_fields(fields, message):
    with pytest.raises(ValueError, match=message):
        PairwiseModel(**({"graph": CHAIN, "unary": np.zeros((3, 2)), "tables": TABLE} | fields))


def test_scores_up_to_the_limit_are_taken():
    for dtype, limit in ((np.float64, 1e100), (np.float32, 1e18)):
        unary = np.array([[limit, -limit], [-np.inf, 0.0], [0.0, 0.0]], dtype=dtype)
        assert np.array_equal(PairwiseModel(CHAIN, unary, TABLE).unary, unary)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e101, -1e101, np.float32(1e19), np.float32(-1e19), 1j])
@pytest.mark.parametrize("field", ["unary", "tables", "edge_weight"])
def test_scores_beyond_the_limit_are_refused(field, value):
    dtype = np.asarray(value).real.dtype
    fields = {"unary": np.zeros((3, 2), dtype), "tables": np.zeros((1, 2, 2), dtype), "edge_weight": np.ones((2, 1))}
    fields[field] = fields[field].astype(np.asarray(value).dtype)
    fields[field].flat[1] = value
    with pytest.raises(ValueError, match=f"{field} must"):
        PairwiseModel(CHAIN, **fields)


def test_float64_tables_that_do_not_fit_float32_scores_are_refused():
    with pytest.raises(ValueError, match=r"tables must be finite or -inf, in magnitude at most 1e\+18 in float32"):
        PairwiseModel(CHAIN, np.zeros((3, 2), np.float32), np.full((1, 2, 2), 1e40))


def test_weighted_tables_beyond_the_limit_are_refused():
    with pytest.raises(ValueError, match="edge_weight times tables must be finite"):
        PairwiseModel(CHAIN, np.zeros((3, 2)), np.full((1, 2, 2), 1e60), edge_weight=[1e60, 0.0])


@pytest.mark.parametrize(
    ("edge_group", "n_groups", "message"),
    [
        ([0, 99999999], 1, "edge_group must be between 0 and 0"),
        ([0, -1], 1, "edge_group must be between 0 and 0"),
        ([0, 2**32], 1, "edge_group must be between"),
        ([0], 1, r"edge_group must have shape \(2,\)"),
        ([0.0, 0.0], 1, "edge_group must be integers"),
        ([0, 0], 1.5, "n_groups must be an integer"),
        ([0, 0], -1, "n_groups must be between"),
    ],
)
def test_groups_of_edges_that_are_none_are_refused(edge_group, n_groups, message):
    model = PairwiseModel(CHAIN, np.zeros((3, 2)), TABLE)
    with pytest.raises(ValueError, match=message):
        count_pair_states(model, [0, 1, 1], np.array(edge_group), n_groups)


def test_pairs_are_counted_by_group():
    model = PairwiseModel(CHAIN, np.zeros((3, 2)), TABLE)
    counts = count_pair_states(model, [0, 1, 1], [1, 0], 2)
    assert counts[:, 0, 0].tolist() == [[[0, 0], [0, 1]], [[0, 1], [0, 0]]]


@pytest.mark.parametrize("dtype", [np.uint64, np.int8, bool])
def test_observed_labels_of_any_integer_type(dtype):
    model = PairwiseModel(CHAIN, np.zeros((3, 2)), TABLE)
    labels = np.array([0, 1, 1], dtype=dtype)
    assert np.array_equal(clamped(model, labels).unary, clamped(model, labels.tolist()).unary)


def test_labels_that_wrap_to_states_are_refused():
    model = PairwiseModel(CHAIN, np.zeros((3, 2)), TABLE)
    for labels in (np.array([0, 1, 2**32]), np.array([0, 1, 2**64 - 1], dtype=np.uint64)):
        for function in (score, compute_labeling_statistics, clamped):
            with pytest.raises(ValueError, match="labels must be between"):
                function(model, labels)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_read_only_memory_maps(name, tmp_path):
    model = random_model(name, 3, "weighted", seed=5)
    frozen = read_only(model, tmp_path)
    labels = random_labels(model)
    labels.flags.writeable = False
    assert score(frozen, labels) == score(model, labels)
    assert np.array_equal(
        compute_labeling_statistics(frozen, labels).tables, compute_labeling_statistics(model, labels).tables
    )


def test_pickle():
    model = random_model("grid", 3, "weighted", seed=5)
    again = pickle.loads(pickle.dumps(model))
    assert score(again, random_labels(model)) == score(model, random_labels(model))


def test_sparse_scores_are_an_error_that_says_how_to_pass_them():
    with pytest.raises(TypeError, match=r"unary must be dense, got a sparse matrix: use its toarray\(\)"):
        PairwiseModel(lattice((3,)), sp.csr_array(np.eye(3)), np.zeros((1, 3, 3)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_excess_over_labels_is_the_difference_of_its_parts(weighted, dtype):
    rng, graph = np.random.default_rng(0), lattice((3, 4))
    weight = rng.normal(size=(graph.n_edges, 2)) if weighted else None
    unary, tables = rng.normal(size=(12, 3)).astype(dtype), rng.normal(size=(2, 1 + weighted, 3, 3))
    model = PairwiseModel(graph, unary, tables, rng.integers(0, 2, graph.n_edges), weight)
    marginals = rng.dirichlet(np.ones(3), 12).astype(dtype)
    marginals[5] = 1 / 3
    expected, log_z_terms = Statistics(marginals, rng.random(tables.shape)), rng.normal(size=12)
    labels = rng.integers(0, 3, 12)
    terms, statistics, predicted = compute_label_excess(model, labels, expected, log_z_terms)
    assert_array_equal(terms, log_z_terms - compute_score_terms(model, labels))
    for found, right in zip(statistics, expected.minus(compute_labeling_statistics(model, labels)), strict=True):
        assert_array_equal(found, right)
        assert found.dtype == right.dtype
    assert_array_equal(predicted, marginals.argmax(axis=1))
    for label in (-1, 3):
        labels[7] = label
        assert compute_label_excess(model, labels, expected, log_z_terms) is None
