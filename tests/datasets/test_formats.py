"""Files of the UAI competitions and of libDAI: what is written is read back, and bad files get a clear error."""

import gzip

import numpy as np
import pytest
from factor_strategies import factor_graphs, random_factor_graph
from hypothesis import HealthCheck, given, settings
from model_strategies import random_model

from sklearn_crf.datasets import (
    read_evidence,
    read_fg,
    read_labeling,
    read_marginals,
    read_uai,
    write_evidence,
    write_fg,
    write_labeling,
    write_marginals,
    write_uai,
)
from sklearn_crf.inference import BruteForce
from sklearn_crf.models import DENSE, SPARSE, FactorGraph, SparseTable, factor_graph_of, score

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_same_scores(found, expected):
    assert found.n_states.tolist() == expected.n_states.tolist()
    assert found.scope.tolist() == expected.scope.tolist()
    assert found.scope_ptr.tolist() == expected.scope_ptr.tolist()
    for f in range(expected.n_factors):
        np.testing.assert_allclose(found.dense_table(f), expected.dense_table(f), rtol=1e-14, atol=1e-14)


@few
@given(factor_graphs())
def test_uai_round_trip(tmp_path, model):
    write_uai(tmp_path / "model.uai", model)
    assert_same_scores(read_uai(tmp_path / "model.uai"), model)


@few
@given(factor_graphs())
def test_fg_round_trip(tmp_path, model):
    write_fg(tmp_path / "model.fg", model)
    assert_same_scores(read_fg(tmp_path / "model.fg"), model)


def test_compressed_files_and_pairwise_models(tmp_path):
    model = random_model("grid", 3, "weighted", seed=1)
    for name, write, read in [("model.uai.gz", write_uai, read_uai), ("model.fg.gz", write_fg, read_fg)]:
        write(tmp_path / name, model)
        with gzip.open(tmp_path / name, "rt") as file:
            assert file.read(1) in "M1234567890"
        assert_same_scores(read(tmp_path / name), factor_graph_of(model))


def test_uai_by_hand(tmp_path):
    """The example of the format's description: the last variable changes fastest."""
    (tmp_path / "model.uai").write_text(
        "MARKOV\n3\n2 2 3\n2\n2 0 1\n2 1 2\n\n4\n 1.000 2.400\n 1.000 0.000\n\n6\n"
        " 2.250 3.250 3.750\n 0.000 0.000 10.000\n"
    )
    model = read_uai(tmp_path / "model.uai")
    assert model.n_states.tolist() == [2, 2, 3]
    assert score(model, [0, 1, 2]) == np.log(2.4) + np.log(10)
    assert score(model, [1, 0, 1]) == np.log(3.25)
    assert score(model, [1, 1, 2]) == -np.inf


def test_fg_by_hand(tmp_path):
    """The first variable changes fastest; entries that are not listed are 0; # begins a comment."""
    (tmp_path / "model.fg").write_text(
        "# a comment\n2\n\n2\n2 0\n3 2   # three states\n3\n0 1.5\n2 4\n5 2.5\n\n1\n2\n3\n1\n0 0.5\n"
    )
    model = read_fg(tmp_path / "model.fg")
    assert model.n_states.tolist() == [2, 1, 3]
    assert score(model, [0, 0, 0]) == np.log(1.5) + np.log(0.5)
    np.testing.assert_allclose(np.exp(model.dense_table(0)), [[1.5, 0], [0, 0], [4, 2.5]])


def test_fg_keeps_sparse_tables_sparse(tmp_path):
    table = SparseTable([[1, 1, 1, 1], [0, 1, 2, 0]], [0.5, -1.0])
    model = FactorGraph.from_factors([3] * 4, [((0, 1, 2, 3), table), ((0, 1), np.zeros((3, 3)))])
    write_fg(tmp_path / "model.fg", model)
    found = read_fg(tmp_path / "model.fg")
    assert found.table_kind.tolist() == [SPARSE, DENSE]
    assert_same_scores(found, model)


def test_fg_has_nodes_without_factors(tmp_path):
    model = FactorGraph.from_factors([2, 3, 4], [((0,), np.zeros(2))])
    write_fg(tmp_path / "model.fg", model)
    found = read_fg(tmp_path / "model.fg")
    assert found.n_states.tolist() == [2, 3, 4]
    np.testing.assert_allclose(BruteForce().marginals(found).log_z, np.log(24))


def test_evidence_marginals_and_labelings(tmp_path):
    labels = np.array([-1, 2, -1, 0, 1])
    write_evidence(tmp_path / "model.uai.evid", labels)
    assert (tmp_path / "model.uai.evid").read_text() == "3 1 2 3 0 4 1\n"
    assert read_evidence(tmp_path / "model.uai.evid", 5).tolist() == labels.tolist()
    (tmp_path / "empty.evid").write_text("")
    assert read_evidence(tmp_path / "empty.evid", 2).tolist() == [-1, -1]

    model = random_factor_graph(5, 6, seed=3)
    unary = BruteForce().marginals(model).unary
    write_marginals(tmp_path / "model.MAR", unary, model.n_states)
    found = read_marginals(tmp_path / "model.MAR")
    assert np.array_equal(found, unary[:, : found.shape[1]])

    write_labeling(tmp_path / "model.MAP", [0, 2, 1])
    assert read_labeling(tmp_path / "model.MAP").tolist() == [0, 2, 1]


UAI_HEAD = "MARKOV\n2\n2 2\n1\n2 0 1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must begin with MARKOV or BAYES"),
        ("LIMID 2", "must begin with MARKOV or BAYES"),
        (UAI_HEAD + "4 1 2 3", "ends before the table of factor 0: 4 numbers are needed, 3 are left"),
        (UAI_HEAD + "4 1 2 3 x", "should have numbers for the table of factor 0"),
        (UAI_HEAD + "3 1 2 3", "the table of factor 0 has 3 entries, its variables 4 states"),
        (UAI_HEAD + "4 1 2 3 -1", "potentials must be finite and not negative"),
        (UAI_HEAD + "4 1 2 3 nan", "potentials must be finite and not negative"),
        (UAI_HEAD + "4 1 2 3 4 5", "goes on after its end, with '5'"),
        ("MARKOV\n2\n2 2\n1\n2 0 7\n4 1 1 1 1", r"factor 0 has scope \[0, 7\], there are 2 variables"),
        ("MARKOV\n-2\n", "ends before the numbers of states"),
    ],
)
def test_bad_uai_files(tmp_path, text, message):
    (tmp_path / "bad.uai").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_uai(tmp_path / "bad.uai")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 0 1 2 2 1 4 0.5", "the entries of factor 0 must be numbered 0 to 3"),
        ("1 2 0 1 2 2 1 0.5 0.5", "the entries of factor 0 must be numbered 0 to 3"),
        ("2 1 0 2 0 1 0 3 0", "factor 1 gives variable 0 3 states"),
        ("1 1 -1 2 0", "factor 0 gives variable -1 2 states"),
        ("1 1 0 2 1 0", "ends before factor 0"),
    ],
)
def test_bad_fg_files(tmp_path, text, message):
    (tmp_path / "bad.fg").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_fg(tmp_path / "bad.fg")


def test_bad_solutions(tmp_path):
    (tmp_path / "file").write_text("PR\n1")
    with pytest.raises(ValueError, match="no solution of task MAR"):
        read_marginals(tmp_path / "file")
    with pytest.raises(ValueError, match="no solution of task MAP"):
        read_labeling(tmp_path / "file")
    (tmp_path / "file").write_text("1 5 0")
    with pytest.raises(ValueError, match="observes variable 5, but n_nodes is 3"):
        read_evidence(tmp_path / "file", 3)


def test_scores_that_exp_cannot_hold_are_refused(tmp_path):
    for value in (800.0, -800.0):
        model = FactorGraph.from_factors([2], [((0,), np.array([0.0, value]))])
        with pytest.raises(ValueError, match="factor 0 has scores from"):
            write_uai(tmp_path / "model.uai", model)
