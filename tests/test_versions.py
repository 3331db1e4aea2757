"""The level of vector units: chosen once, fixed by the environment, within rounding of each other."""

import json
import os
import subprocess
import sys

import numpy as np
from numpy.testing import assert_allclose

import sklearn_crf
from sklearn_crf.kernels.vector_level import available_levels

CODE = """
import json, os
import numpy as np
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import LoopyBP, TreeInference
from sklearn_crf.kernels import VECTOR_LEVEL
from sklearn_crf.models import PairwiseModel
rng = np.random.default_rng(0)
found = []
for graph, algorithm in ((lattice((9,)), TreeInference()), (lattice((4, 5)), LoopyBP(max_iter=50, tol=1e-12))):
    for n_threads in (1, 2):
        unary, table = np.sin(np.arange(graph.n_nodes * 16.0)), np.cos(np.arange(256.0))
        model = PairwiseModel(graph, unary.reshape(-1, 16), table.reshape(1, 16, 16) / 4)
        found.append(algorithm.marginals(model, n_threads=n_threads).unary.ravel().tolist())
print(json.dumps([VECTOR_LEVEL, os.environ["SKLEARN_CRF_VECTOR_LEVEL"], found]))
"""


def run(level, code=CODE):
    environment = os.environ | {"SKLEARN_CRF_VECTOR_LEVEL": level}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_levels_differ_by_rounding_alone_and_threads_by_nothing():
    results = {}
    for level in available_levels():
        chosen, exported, found = json.loads(run(level).stdout)
        assert chosen == exported == level
        assert found[0] == found[1]
        assert found[2] == found[3]
        results[level] = np.concatenate(found)
    for values in results.values():
        assert_allclose(values, results["baseline"], rtol=1e-9)


def test_by_default_the_newest_level_is_chosen():
    assert json.loads(run("").stdout)[0] == available_levels()[0]


def test_unknown_levels_are_refused():
    done = run("avx9", "import sklearn_crf.graphs")
    assert done.returncode
    assert "SKLEARN_CRF_VECTOR_LEVEL must be one of" in done.stderr


def test_versions_name_the_level(capsys):
    sklearn_crf.show_versions()
    shown = capsys.readouterr().out
    assert f"sklearn_crf: {sklearn_crf.__version__}\nvector level: " in shown
    assert "scipy" in shown
