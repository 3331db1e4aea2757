"""Files of the UAI competitions and of libDAI: written files can be read back, and bad files raise clear errors."""

import bz2
import gzip
import lzma

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


COMPRESSED = {".gz": gzip, ".bz2": bz2, ".xz": lzma}


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_compressed_files_and_pairwise_models(tmp_path, suffix):
    model = random_model("grid", 3, "weighted", seed=1)
    for name, write, read in [
        ("model.uai", write_uai, read_uai),
        ("m.LG", write_uai, read_uai),
        ("m.fg", write_fg, read_fg),
    ]:
        path = tmp_path / (name + suffix)
        write(path, model)
        with COMPRESSED[suffix].open(path, "rt") as file:
            assert file.read(1) in "M1234567890"
        assert_same_scores(read(path), factor_graph_of(model))
    write_labeling(tmp_path / f"found.MAP{suffix}", [0, 2])
    assert read_labeling(tmp_path / f"found.MAP{suffix}").tolist() == [0, 2]


@few
@given(factor_graphs())
def test_logarithms_round_trip(tmp_path, model):
    """Logarithms are read back to the last bit, without a limit on the scores."""
    model = FactorGraph.from_factors(
        model.n_states,
        [
            (model.scope[a:b], 1e4 * model.dense_table(f))
            for f, (a, b) in enumerate(zip(model.scope_ptr[:-1], model.scope_ptr[1:], strict=True))
        ],
    )
    for name, logarithms in [("model.LG", None), ("model.lg", None), ("model.uai", True)]:
        write_uai(tmp_path / name, model, logarithms=logarithms)
        found = read_uai(tmp_path / name, logarithms=logarithms)
        assert all(np.array_equal(found.dense_table(f), model.dense_table(f)) for f in range(model.n_factors))


def test_logarithms_by_hand(tmp_path):
    text = "MARKOV\n2\n2 2\n1\n2 0 1\n4\n -900 -800 -inf 12467.56\n"
    (tmp_path / "model.LG").write_text(text)
    model = read_uai(tmp_path / "model.LG")
    assert [score(model, labels) for labels in ([0, 0], [0, 1], [1, 0], [1, 1])] == [-900, -800, -np.inf, 12467.56]
    (tmp_path / "model.uai").write_text(text)
    assert score(read_uai(tmp_path / "model.uai", logarithms=True), [1, 1]) == 12467.56
    write_uai(tmp_path / "written.LG", model)
    assert "inf" not in (tmp_path / "written.LG").read_text()  # toulbar2 misreads it
    assert score(read_uai(tmp_path / "written.LG"), [1, 0]) == -np.inf
    with pytest.raises(ValueError, match=r"at least 0, found -900. If the file lists logarithms, pass logarithms=True"):
        read_uai(tmp_path / "model.uai")
    (tmp_path / "model.LG").write_text(text.replace("12467.56", "inf"))
    with pytest.raises(ValueError, match="the table of factor 0 must be finite or -inf, found inf"):
        read_uai(tmp_path / "model.LG")
    with pytest.raises(ValueError, match="logarithms must be True, False or None, got 'yes'"):
        read_uai(tmp_path / "model.LG", logarithms="yes")


def test_uai_by_hand(tmp_path):
    """The example of the format's description is read correctly: the last variable changes fastest."""
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


@pytest.mark.parametrize("form", ["fg", "uai"])
@pytest.mark.parametrize("scope", [(), (0,), (1, 0), (0, 1, 2)])
@pytest.mark.parametrize("n_allowed", [0, 1, 2])
def test_factors_with_few_allowed_states_round_trip(tmp_path, form, scope, n_allowed):
    write, read = {"fg": (write_fg, read_fg), "uai": (write_uai, read_uai)}[form]
    n_states = np.array([2, 3, 2])
    table = np.full(n_states[list(scope)], -np.inf)
    table.reshape(-1)[:n_allowed] = 0.5
    model = FactorGraph.from_factors(n_states, [(scope, table)])
    write(tmp_path / form, model)
    found = read(tmp_path / form)
    for labels in np.ndindex(*n_states):
        assert score(found, labels) == pytest.approx(score(model, labels))


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


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        ("2 1 0 3 1", [{1: 0, 3: 1}]),
        ("2\n1 0 3 1\n", [{1: 0, 3: 1}]),
        ("2\n1 0\n3 1\n", [{1: 0, 3: 1}]),
        ("0\n", [{}]),
        ("1\n2 1 0 3 1\n", [{1: 0, 3: 1}]),
        ("1 2 1 0 3 1", [{1: 0, 3: 1}]),
        ("1\n0\n", [{}]),
        ("2\n2 1 0 3 1\n1 0 2\n", [{1: 0, 3: 1}, {0: 2}]),
        # The line breaks tell whether these numbers are one sample of two nodes or two samples.
        ("2 1 0 3 0\n", [{1: 0, 3: 0}]),
        ("2\n1 0 3\n0\n", [{0: 3}, {}]),
    ],
)
def test_both_formats_of_evidence(tmp_path, text, samples):
    path = tmp_path / "model.evid"
    path.write_text(text)
    expected = [[sample.get(node, -1) for node in range(4)] for sample in samples]
    assert [read_evidence(path, 4, sample=k).tolist() for k in range(len(samples))] == expected
    with pytest.raises(ValueError, match=f"sample={len(samples)}, but"):
        read_evidence(path, 4, sample=len(samples))
    if len(samples) == 1:
        assert read_evidence(path, 4).tolist() == expected[0]
    else:
        with pytest.raises(ValueError, match="holds 2 samples of evidence: pass sample as an integer between 0 and 1"):
            read_evidence(path, 4)


UAI_HEAD = "MARKOV\n2\n2 2\n1\n2 0 1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must begin with MARKOV or BAYES"),
        ("LIMID 2", "must begin with MARKOV or BAYES"),
        (UAI_HEAD + "4 1 2 3", "ends before the table of factor 0: 4 numbers are needed, 3 are left"),
        (UAI_HEAD + "4 1 2 3 x", "line 6: a number is needed, found 'x'"),
        (UAI_HEAD + "3 1 2 3", "the table of factor 0 has 3 entries, but its variables have 4 joint states"),
        (UAI_HEAD + "4 1 2 3 -1", "word 13: the table of factor 0 must be finite and at least 0, found -1"),
        (UAI_HEAD + "4 1 2 3 nan", "word 13: the table of factor 0 must be finite and at least 0, found nan"),
        (UAI_HEAD + "4 1 2 3 4 5", "continues after its expected end: word 14 is 5"),
        ("MARKOV\n2\n2 2\n1\n2 0 7\n4 1 1 1 1", "word 8: the scope of factor 0 must be between 0 and 1, found 7"),
        ("MARKOV\n-2\n", "word 2: the number of variables must be between 0 and 2147483647, found -2"),
        ("MARKOV\n1e300\n", "the number of variables must be between"),
        ("MARKOV\n4294967297\n", "the number of variables must be between"),
        ("MARKOV\n2147483647\n2 2", "ends before the numbers of states: 2147483647 numbers are needed, 2 are left"),
        ("MARKOV\n2\n2 2\n2147483647\n2 0 1", "ends before the scope of factor: 2147483647 numbers are needed"),
        ("MARKOV\n1\n2.5\n0", "the numbers of states must be integers, found 2.5"),
        ("MARKOV\n1\n-2\n0", "the numbers of states must be between 1 and"),
        ("MARKOV\n1\n2000000\n0", "the numbers of states must be between 1 and"),
        (UAI_HEAD + "4 1 2 3 inf", "the table of factor 0 must be finite"),
        (UAI_HEAD + "-4 1 2 3 4", "the length of the table of factor 0 must be between 0 and"),
        (UAI_HEAD + "4.5 1 2 3 4", "the length of the table of factor 0 must be integers"),
        (UAI_HEAD + "1e9 1 2 3 4", "ends before the table of factor 0: 1000000000 numbers are needed, 4 are left"),
        (UAI_HEAD.replace("0 1", "1 1") + "4 1 2 3 4", "bad.uai: factor 0 has a node twice"),
        ("MARKOV " + "1" * 1000, "line 1: a number is needed"),
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
        ("2 1 0 2 0 1 0 3 0", "variable 0 has 3 states in factor 1, but 2"),
        ("-1", "the number of factors must be between 0 and"),
        ("1 -1", "the number of variables of factor 0 must be between 0 and"),
        ("1 1 0 -2 0", "the numbers of states of factor 0 must be between 1 and"),
        ("1 1 0 2 -1", "the number of entries of factor 0 must be between 0 and"),
        ("1 1 0 2 1 0 nan", "the entries of factor 0 must be finite and at least 0"),
        ("1 1 0 2 1 0 -1", "the entries of factor 0 must be finite and at least 0"),
        ("1 1 0 2 2 0 1 0 1", "factor 0 lists an entry twice"),
        ("1 1 1000000000000 2 0", "the variables of factor 0 must be between 0 and 2147483647"),
        ("1 1 100000000 2 0", "has a variable 100000000, but its factors have 1 variables"),
        ("1 2 0 1 1000000000 1000000000 0", r"more than 2\*\*53 joint states"),
        ("1 1 0 2 0 x", "line 1: a number is needed"),
        ("fg 1", "must begin with the number of factors"),
        ("1 1 -1 2 0", "word 3: the variables of factor 0 must be between 0 and"),
        ("1 1 0 2 1 0", "ends before the entries of factor 0"),
    ],
)
def test_bad_fg_files(tmp_path, text, message):
    (tmp_path / "bad.fg").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_fg(tmp_path / "bad.fg")


def test_bad_solutions(tmp_path):
    (tmp_path / "file").write_text("PR\n1")
    with pytest.raises(ValueError, match="not a solution of task MAR"):
        read_marginals(tmp_path / "file")
    with pytest.raises(ValueError, match="not a solution of task MAP"):
        read_labeling(tmp_path / "file")
    (tmp_path / "file").write_text("1 5 0")
    with pytest.raises(ValueError, match="observes variable 5, but n_nodes is 3"):
        read_evidence(tmp_path / "file", 3)
    for text, message in [
        ("1 0 4294967297", "pairs of variable and state must be between 0 and 2147483647, found 4294967297"),
        ("1 0 -1", "pairs of variable and state must be between 0 and"),
        ("-1", "the number of observed variables must be between 0 and"),
        ("2 0 1 0 2", "observes variable 0 in two states"),
        ("evidence", "must begin with a number"),
    ]:
        (tmp_path / "file").write_text(text)
        with pytest.raises(ValueError, match=message):
            read_evidence(tmp_path / "file", 3)
    for text, message in [
        ("MAP 1 4294967297", "the states must be between 0 and 2147483647"),
        ("MAP 1 -1", "the states must be between 0 and"),
        ("MAP -1", "the number of variables must be between 0 and"),
    ]:
        (tmp_path / "file").write_text(text)
        with pytest.raises(ValueError, match=message):
            read_labeling(tmp_path / "file")
    for text, message in [
        ("MAR 1 2 0.5 nan", "the marginals of variable 0 must be between 0 and"),
        ("MAR 1 2 -0.5 1.5", "the marginals of variable 0 must be between 0 and"),
        ("MAR -1", "the number of variables must be between 0 and"),
        ("MAR 1 2 0.5 0.6", "the marginals of variable 0 must sum to 1, found 1.1"),
        ("MAR 2 1 1 2 0 0", "the marginals of variable 1 must sum to 1, found 0"),
        ("MAR 1 0", "the marginals of variable 0 must sum to 1, found 0"),
        ("MAR 1 -2", "the length of the marginals of variable 0 must be between 0 and"),
    ]:
        (tmp_path / "file").write_text(text)
        with pytest.raises(ValueError, match=message):
            read_marginals(tmp_path / "file")


def test_marginals_rounded_to_two_digits_are_read(tmp_path):
    (tmp_path / "file").write_text("MAR 1 3 0.33 0.33 0.33")
    assert read_marginals(tmp_path / "file").tolist() == [[0.33, 0.33, 0.33]]


def test_marginals_of_one_large_variable_do_not_fill_an_array_of_all(tmp_path):
    (tmp_path / "file").write_text("MAR 20000\n20000 1 " + "0 " * 19999 + "1 1 " * 19999)
    with pytest.raises(ValueError, match="too many for one array"):
        read_marginals(tmp_path / "file")


READERS = [read_uai, read_fg, read_marginals, read_labeling, lambda path, **limit: read_evidence(path, 3, **limit)]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("max_bytes", [-1, np.nan, "x", None, 2.5])
def test_a_limit_that_is_no_number_of_bytes(tmp_path, read, max_bytes):
    (tmp_path / "file").write_text("1 0 1")
    with pytest.raises(ValueError, match="max_bytes must"):
        read(tmp_path / "file", max_bytes=max_bytes)


@pytest.mark.parametrize("read", READERS)
def test_damaged_and_endless_files(tmp_path, read):
    for suffix, module in COMPRESSED.items():
        path = tmp_path / f"file{suffix}"
        whole = module.compress(b"1 2 " * 5000)
        damaged = {"not compressed": b"1 2 3", "cut off": whole[:-20], "garbled": whole[:20] + b"\xff" * 9 + whole[29:]}
        for content in damaged.values():
            path.write_bytes(content)
            with pytest.raises(ValueError, match=f"damaged {suffix} file"):
                read(path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "absent.xz")
    path = tmp_path / "file.gz"
    # The file of thirty kilobytes decompresses to thirty megabytes of blanks.
    path.write_bytes(gzip.compress(b" " * 30_000_000))
    with pytest.raises(ValueError, match="holds more than max_bytes=1000000 bytes"):
        read(path, max_bytes=1_000_000)
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 100)
    with pytest.raises(ValueError, match=r"line 1: a number is needed|must begin"):
        read(tmp_path / "binary")


def test_comments_and_words_across_pieces(tmp_path):
    """Pieces of a megabyte may end inside numbers or comments."""
    numbers = [f"{k}.25" for k in range(300_000)]
    body = "\n".join(f"{2 * k} {value} # comment {'x' * (k % 40)}" for k, value in enumerate(numbers))
    (tmp_path / "model.fg").write_text(f"1\n1\n0\n{2 * len(numbers)}\n{len(numbers)}\n{body}\n")
    table = np.exp(read_fg(tmp_path / "model.fg").dense_table(0))
    np.testing.assert_allclose(table[::2], np.arange(300_000) + 0.25, rtol=1e-13)
    assert not table[1::2].any()


def test_numbers_are_read_to_the_last_bit(tmp_path):
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [rng.random(2000), 10.0 ** rng.uniform(-300, 300, 2000), [2.2250738585072014e-308, 1.7976931348623157e308]]
    )
    words = [repr(value) for value in values.tolist()] + ["0.1", ".5", "5.", "+1", "1e2", "1E-2", "000012", "0.000001"]
    expected = np.array([float(word) for word in words])
    (tmp_path / "file").write_text("MARKOV 1 " + str(len(words)) + " 1 1 0 " + str(len(words)) + " " + " ".join(words))
    with np.errstate(divide="ignore"):
        assert np.array_equal(read_uai(tmp_path / "file").log_table, np.log(expected))


def test_potentials_too_small_for_a_double_are_read_by_their_logarithms(tmp_path):
    words = ["1e-400", "2.5e-310", "0." + "0" * 350 + "7", "0", "0e-500", "1e-99999999"]
    expected = [-400 * np.log(10), np.log(2.5) - 310 * np.log(10), np.log(7) - 351 * np.log(10), -np.inf, -np.inf]
    expected += [-99999999 * np.log(10)]
    n = len(words)
    (tmp_path / "m.uai").write_text(f"MARKOV 1 {n} 1 1 0 {n} " + " ".join(words))
    (tmp_path / "m.fg").write_text(f"1\n\n1\n0\n{n}\n{n}\n" + "\n".join(f"{k} {w}" for k, w in enumerate(words)))
    for model in (read_uai(tmp_path / "m.uai"), read_fg(tmp_path / "m.fg")):
        np.testing.assert_allclose(model.dense_table(0).ravel(), expected, rtol=1e-14)
    for word, message in (("-1e-400", "at least 0"), ("1e-99999999999999999999", "exponent .* out of range")):
        (tmp_path / "m.uai").write_text(f"MARKOV 1 1 1 1 0 1 {word}")
        with pytest.raises(ValueError, match=message):
            read_uai(tmp_path / "m.uai")


def test_marks_of_the_order_of_bytes_are_skipped(tmp_path):
    mark = "\ufeff"
    (tmp_path / "m.uai").write_text(mark + "MARKOV 1 2 1 1 0 2 1 1", encoding="utf-8")
    (tmp_path / "m.evid").write_text(mark + "1 0 1", encoding="utf-8")
    assert read_uai(tmp_path / "m.uai").n_states.tolist() == [2]
    assert read_evidence(tmp_path / "m.evid", 1).tolist() == [1]


@pytest.mark.parametrize("word", ["1_000", "0x10", "1,5", "--1", "1e", "e1", ".", "-", "+", "1.2.3", "1d3", "٣"])
def test_words_that_are_no_numbers(tmp_path, word):
    (tmp_path / "file").write_text(f"1\n{word}", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2: a number is needed"):
        read_fg(tmp_path / "file")


@pytest.mark.parametrize("word", ["1e999", "inf", "nan", "1.5", "-1"])
def test_lengths_that_are_no_counts(tmp_path, word):
    (tmp_path / "file.LG").write_text(f"MARKOV 2 2 2 1 {word} 0 1 4 1 2 3 4")
    with pytest.raises(ValueError, match=f"the length of the scope of factor 0 must .*, found {float(word):g}"):
        read_uai(tmp_path / "file.LG")


def test_scores_that_exp_cannot_hold_are_refused(tmp_path):
    for value in (800.0, -800.0):
        model = FactorGraph.from_factors([2], [((0,), np.array([0.0, value]))])
        with pytest.raises(ValueError, match=r"factor 0 has scores from .* ends in .LG to write the scores themselves"):
            write_uai(tmp_path / "model.uai", model)
        write_uai(tmp_path / "model.LG", model)
        assert score(read_uai(tmp_path / "model.LG"), [1]) == value


@pytest.mark.parametrize("path", [None, 3, b"model.uai", ["model.uai"]])
@pytest.mark.parametrize("read", [read_uai, read_fg, read_marginals, read_labeling])
def test_what_is_no_path_is_named(read, path):
    with pytest.raises(TypeError, match="path must be a string or a path, got"):
        read(path)
