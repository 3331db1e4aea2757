"""Files of toulbar2: costs become scores, the bound forbids, and written files give the same model."""

import bz2
import gzip
import json
import lzma
import subprocess
import sys

import numpy as np
import pytest
from factor_strategies import factor_graphs, random_factor_graph
from hypothesis import HealthCheck, given, settings
from model_strategies import random_model

from sklearn_crf.datasets import read_uai, write_uai
from sklearn_crf.inference import AutoMap, BruteForce
from sklearn_crf.models import FactorGraph, SparseTable, factor_graph_of, score

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SOLVE_WITH_TOULBAR2 = """
import json, sys, pytoulbar2
network = pytoulbar2.CFN(verbose=-1)
network.Read(sys.argv[1])
print(json.dumps(network.Solve()[:2]))
"""
OPENERS = {"": open, ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def assert_same_scores(found, expected, tolerance=0.0):
    assert found.n_states.tolist() == expected.n_states.tolist()
    assert found.scope.tolist() == expected.scope.tolist()
    assert found.scope_ptr.tolist() == expected.scope_ptr.tolist()
    for f in range(expected.n_factors):
        np.testing.assert_allclose(found.dense_table(f), expected.dense_table(f), rtol=1e-12, atol=tolerance)


def round_costs(model):
    """Return the model with scores rounded down to integers of at most 0."""
    scopes = [model.scope[a:b] for a, b in zip(model.scope_ptr[:-1], model.scope_ptr[1:], strict=True)]
    tables = [-np.abs(np.floor(4 * model.dense_table(f))) for f in range(model.n_factors)]
    return FactorGraph.from_factors(model.n_states, list(zip(scopes, tables, strict=True)))


@few
@given(factor_graphs())
def test_cfn_round_trip(tmp_path, model):
    write_uai(tmp_path / "model.cfn", model)
    assert_same_scores(read_uai(tmp_path / "model.cfn"), model, tolerance=1e-9)


@few
@given(factor_graphs())
def test_wcsp_round_trip(tmp_path, model):
    model = round_costs(model)
    for name in ("model.wcsp", "model.cfn"):
        write_uai(tmp_path / name, model)
        assert_same_scores(read_uai(tmp_path / name), model)


@pytest.mark.parametrize("suffix", OPENERS)
def test_compressed_files_and_pairwise_models(tmp_path, suffix):
    model = random_model("grid", 3, "weighted", seed=1)
    write_uai(tmp_path / f"model.CFN{suffix}", model)
    assert_same_scores(read_uai(tmp_path / f"model.CFN{suffix}"), factor_graph_of(model), tolerance=1e-9)
    with OPENERS[suffix](tmp_path / f"model.CFN{suffix}", "rt") as file:
        content = json.load(file)
    assert list(content) == ["problem", "variables", "functions"]
    rounded = round_costs(factor_graph_of(model))
    write_uai(tmp_path / f"model.wcsp{suffix}", rounded)
    assert_same_scores(read_uai(tmp_path / f"model.wcsp{suffix}"), rounded)


def test_wcsp_with_shared_functions(tmp_path):
    """The example of the format's description: all variables differ, by six functions that share one table."""
    text = (
        "AllDifferentDecomposedIntoBinaryConstraints 4 4 6 1\n4 4 4 4\n-2 0 1 0 4\n0 0 1\n1 1 1\n2 2 1\n3 3 1\n"
        "2 0 2 0 -1\n2 0 3 0 -1\n2 1 2 0 -1\n2 1 3 0 -1\n2 2 3 0 -1\n"
    )
    (tmp_path / "model.wcsp").write_text(text)
    model = read_uai(tmp_path / "model.wcsp")
    assert (model.n_factors, model.n_tables) == (6, 1)
    np.testing.assert_array_equal(model.dense_table(5), np.where(np.eye(4), -np.inf, 0.0))
    assert sorted(AutoMap().map(model).labels.tolist()) == [0, 1, 2, 3]


def test_wcsp_with_a_constant_and_a_name_that_begins_with_a_digit(tmp_path):
    (tmp_path / "model.wcsp").write_text("4_queens 2 3 3 9 2 3 0 5 0 1 1 2 1 2 9 2 1 0 0 2 2 1 4 0 0 1")
    model = read_uai(tmp_path / "model.wcsp")
    # The constant 5 leaves less than 4 for the other functions.
    np.testing.assert_array_equal(model.dense_table(1), [-2, -2, -np.inf])
    np.testing.assert_array_equal(model.dense_table(2), [[-1, 0], [0, 0], [0, -np.inf]])
    assert score(model, [1, 0]) == -7


def test_cfn_that_minimises(tmp_path):
    """Names, comments, loose syntax, listed tuples, and functions with the costs of a later function."""
    (tmp_path / "model.cfn").write_text(
        '# a comment\n{problem: {"name": test, mustbe: "<100.00"}\n'
        'variables: {"fdv1": ["a", "b", "c"], fdv2: 2, w: [x y]}\n'
        'functions: {f1: {scope: [fdv1 fdv2] defaultcost: 0.234 costs: ["a" 0 5, "a", 1, 6.2, c 0 -7.21]}\n'
        '{"scope": ["w", 1], "costs": "last"}\n# another\nlast: {scope: [1 w] costs: [4.2, 3.67, -12.1, inf]}}'
    )
    model = read_uai(tmp_path / "model.cfn")
    assert model.n_states.tolist() == [3, 2, 2]
    np.testing.assert_allclose(model.dense_table(0), [[-5, -6.2], [-0.234, -0.234], [7.21, -0.234]])
    np.testing.assert_allclose(model.dense_table(1), [[-4.2, -3.67], [12.1, -np.inf]])
    assert model.scope.tolist() == [0, 1, 2, 1, 1, 2]
    assert model.n_tables == 2


def test_names_that_look_like_numbers(tmp_path):
    for quote in ('"', ""):
        text = (
            '{problem:{name:p,mustbe:"<10.0"},variables:{1:2,2:[7,8,9]},'
            "functions:{3d:{scope:[1,2],costs:[0,1,2,3,4,5]},4:{scope:[2],defaultcost:0,costs:[8,1]}}}"
        )
        for name in ("1:", "2:", "3d:", "4:"):
            text = text.replace(f"{{{name}", f"{{{quote}{name[:-1]}{quote}:").replace(
                f",{name}", f",{quote}{name[:-1]}{quote}:"
            )
        (tmp_path / "model.cfn").write_text(text.replace("[1,2]", '["1","2"]').replace("[2]", '["2"]'))
        model = read_uai(tmp_path / "model.cfn")
        assert (model.n_states.tolist(), model.scope.tolist()) == ([2, 3], [0, 1, 1])
        np.testing.assert_array_equal(model.dense_table(1), [0, -1, 0])


def test_cfn_that_maximises(tmp_path):
    """The example of the format's tests: the constant is below the bound, but no labeling is forbidden by it."""
    (tmp_path / "model.cfn").write_text(
        '{problem: {name: "maximization_example", mustbe: ">-5.0"}, variables: {"v1": ["a", "b"], "v2": ["c", "d"]},'
        'functions: {"c0": {scope: [], costs: [-6.0]}, "c1": {scope: ["v1"], costs: [1.0, 0.5]},'
        '"c2": {scope: ["v2"], costs: [1.0, 0.5]}, "c12": {scope: ["v1", "v2"], costs: [-1.0, 0.5, -2.0, 5.5]}}}'
    )
    found = AutoMap().map(read_uai(tmp_path / "model.cfn"))
    assert (found.labels.tolist(), found.score) == ([1, 1], 0.5)


def test_the_bound_takes_negative_costs_into_account(tmp_path):
    (tmp_path / "model.cfn").write_text(
        '{problem:{name:t,mustbe:"<8.0"} variables:[2 2] '
        "functions:[{scope:[0] costs:[10,14]} {scope:[1] costs:[-5,-1]}]}"
    )
    model = read_uai(tmp_path / "model.cfn")
    np.testing.assert_array_equal(model.dense_table(0), [-10, -np.inf])
    np.testing.assert_array_equal(model.dense_table(1), [5, -np.inf])


def test_few_tuples_of_many_variables_stay_sparse(tmp_path):
    tuples = "0 " * 20 + "3\n" + "1 " * 20 + "4\n"
    (tmp_path / "model.wcsp").write_text(
        "m 20 3 1 9\n" + "3 " * 20 + "\n20 " + " ".join(map(str, range(20))) + " 9 2\n" + tuples
    )
    model = read_uai(tmp_path / "model.wcsp")
    assert score(model, [0] * 20) == -3
    assert score(model, [1] * 20) == -4
    assert score(model, [1] * 19 + [2]) == -np.inf
    assert BruteForce().map(read_small(tmp_path)).score == -1


def read_small(folder):
    (folder / "small.wcsp").write_text("m 2 2 1 9 2 2 2 0 1 9 1 0 1 1")
    return read_uai(folder / "small.wcsp")


@pytest.mark.parametrize("seed", range(3))
def test_toulbar2_finds_the_same_optimum(tmp_path, seed):
    pytest.importorskip("pytoulbar2")
    model = random_factor_graph(n_nodes=5, n_factors=6, forbidden=0.2, seed=seed)
    written_as = {"model.cfn": model, "model.wcsp": round_costs(model), "model.LG": model, "model.uai": model}
    written_as |= {f"{name}.{end}": written for name, written in written_as.items() for end in ("gz", "xz")}
    for name, written in written_as.items():
        best = BruteForce().map(written)
        write_uai(tmp_path / name, written)
        # toulbar2 keeps the format of the first file of a process.
        command = [sys.executable, "-c", SOLVE_WITH_TOULBAR2, str(tmp_path / name)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        labels, cost = json.loads(output.strip().splitlines()[-1])
        np.testing.assert_allclose(score(written, labels), best.score, atol=1e-6)
        if name in ("model.cfn", "model.wcsp"):
            np.testing.assert_allclose(-cost, best.score, atol=1e-6)


def test_scores_that_the_formats_cannot_hold(tmp_path):
    for values in ([0.0, -0.5], [1.0, 0.0]):
        model = FactorGraph.from_factors([2], [((0,), values)])
        with pytest.raises(ValueError, match=r"integer costs of at least 0, but factor 0 has .* ends in .cfn"):
            write_uai(tmp_path / "model.wcsp", model)
        write_uai(tmp_path / "model.cfn", model)
        assert_same_scores(read_uai(tmp_path / "model.cfn"), model)
    with pytest.raises(ValueError, match=r"must sum to less than 2\*\*53"):
        write_uai(tmp_path / "model.cfn", FactorGraph.from_factors([2], [((0,), [0.0, 1e20])]))
    forbidden = FactorGraph.from_factors([2, 2], [((0,), [-np.inf] * 2), ((0, 1), SparseTable([[0, 1]], [-3.0]))])
    # No labeling is allowed, so all tables of the file may forbid all states.
    for name in ("model.wcsp", "model.cfn"):
        write_uai(tmp_path / name, forbidden)
        assert score(read_uai(tmp_path / name), [0, 1]) == -np.inf


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "ends before the number of variables"),
        ("m 2 2 1 9 2 2 2 0 1 -1 salldiff", "a number is needed, found 'salldiff'. Only functions given by tables"),
        ("m 2 2 1 9 2 -2 1 0 0 0", "the domain sizes must be between 1 and"),
        ("m 2 2 1 9 2 2 2 0 1 0 -1", "the number of tuples of function 0 must be between 0 and"),
        (
            "m 2 3 2 9 2 3 -1 0 0 0 1 1 0 -1",
            "function 1 shares costs with a function whose variables have other numbers of values",
        ),
        ("m 2 2 1 9 2 2 1 0 0 1 2 1", "function 0 lists a value that its variable does not have"),
        ("m 2 2 1 9 2 2 1 0 0 2 1 1 1 2", "function 0 lists a tuple twice"),
        ("m 2 2 1 9 2 2 1 7 0 0", "the variables of function 0 must be between 0 and 1"),
        ("m 2 2 1 9 2 2 1 0 -1 0", "the default cost of function 0 must be finite and at least 0"),
        ("m 2 2 1 9 2 2 2 0 0 0 0", "factor 0 has a node twice"),
        ("m 2 2 0 9 2 2 5", "continues after its expected end"),
    ],
)
def test_bad_wcsp_files(tmp_path, text, message):
    (tmp_path / "bad.wcsp").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_uai(tmp_path / "bad.wcsp")


CFN = "{{problem:{{name:t mustbe:<9.0}} variables:{{a:2 b:[x y]}} functions:{{f:{{{}}}}}}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not in CFN format"),
        ("}", "a closing bracket has no opening bracket"),
        ("{problem:{name:t} variables:[2] functions:[]}", "must have one bound"),
        ("{problem:{name:t mustbe:<x} variables:[2] functions:[]}", "the bound must be a number, found 'x'"),
        ("{problem:{name:t mustbe:<9} variables:[-5] functions:[]}", "Interval variables are not supported"),
        (CFN.format("scope:[a b] type:salldiff params:[]"), "function 0 has the type 'salldiff'"),
        (CFN.format("scope:[a b]"), "function 0 must have a scope and costs"),
        (CFN.format("scope:[c] costs:[1 2]"), "a variable of function 0 must be a name or an index below 2, found 'c'"),
        (CFN.format("scope:[a] costs:[1 2 3]"), "function 0 has 3 costs, but its variables have 2 joint states"),
        (CFN.format("scope:[a] costs:[1 y]"), "a cost of function 0 must be a number, found 'y'"),
        (CFN.format("scope:[a] costs:other"), "function 0 refers to the costs of a function that has no costs"),
        (CFN.format("scope:[b] defaultcost:0 costs:[z 1]"), "a value of function 0 must be a name or an index below 2"),
        (CFN.format("scope:[b] defaultcost:0 costs:[x]"), "must be rows of 1 values and a cost"),
    ],
)
def test_bad_cfn_files(tmp_path, text, message):
    (tmp_path / "bad.cfn").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_uai(tmp_path / "bad.cfn")
