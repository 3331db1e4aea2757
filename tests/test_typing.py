"""Types in user code: mypy infers Any for none of these lines."""

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

USER_CODE = """
import numpy as np

from sklearn_crf.datasets import read_uai
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import LoopyBP
from sklearn_crf.models import PairwiseModel, factor_graph_of, score

graph = lattice((3, 3))
reveal_type(graph)
reveal_type(graph.edges)
reveal_type(graph.n_edges)
model = PairwiseModel(graph, np.zeros((9, 2)), np.zeros((1, 2, 2)))
reveal_type(model.unary)
found = LoopyBP().map(model)
reveal_type(found)
reveal_type(score(model, found.labels))
marginals = LoopyBP().marginals(model)
reveal_type(marginals.log_z)
factors = factor_graph_of(model)
reveal_type(factors)
reveal_type(LoopyBP().marginals(factors))
reveal_type(read_uai("model.uai"))
"""

EXPECTED = ["Graph", "ndarray", "int", "ndarray", "Labeling", "float", "float | None", "FactorGraph", "Marginals"]
EXPECTED += ["FactorGraph"]


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_user_code_has_concrete_types(tmp_path):
    (tmp_path / "user_code.py").write_text(USER_CODE)
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--ignore-missing-imports"]
    found = subprocess.run(
        [*command, "--cache-dir", tmp_path / "cache", tmp_path / "user_code.py"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    types = re.findall(r'Revealed type is "(.*)"', found)
    names = [re.sub(r"\[.*|(?:\w+\.)+(?=\w)|, fallback=.*|tuple$", "", name) for name in types]
    assert len(types) == len(EXPECTED), found
    for name, full, expected in zip(names, types, EXPECTED, strict=True):
        assert expected in full.replace("Union", ""), f"{name}: {full}"
        assert full != "Any", found
