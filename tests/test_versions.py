"""The level of vector units: chosen once, fixed by the environment, with results equal up to rounding."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import InconsistentVersionWarning

import sklearn_crf
from sklearn_crf.calibration import TemperatureScaling
from sklearn_crf.kernels.vector_level import available_levels
from sklearn_crf.preprocessing import ClassifierScores, SequenceVectorizer

CODE = """
import json, os
import numpy as np
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import LoopyBP, TreeInference, convergence_left_to_caller
from sklearn_crf.kernels import VECTOR_LEVEL
from sklearn_crf.models import PairwiseModel
found = []
chain, grid = lattice((9,)), lattice((4, 5))
for graph, algorithm in ((chain, TreeInference()), (grid, LoopyBP(max_iter=9, tol=0, schedule="sequential"))):
    for K in (2, 5, 16, 33, 70):  # the last two: whole rows in registers, and a remainder
        unary, tables = np.sin(np.arange(graph.n_nodes * K)), np.cos(np.arange(graph.n_edges * K * K)) / 4
        shapes = (-1, K), (-1, K, K)
        for dtype in (np.float32, np.float64):
            scores = unary.reshape(shapes[0]).astype(dtype), tables.reshape(shapes[1]).astype(dtype)
            model = PairwiseModel(graph, *scores, edge_type=np.arange(graph.n_edges, dtype=np.int32))
            with convergence_left_to_caller():
                found.append([algorithm.marginals(model, n_threads=n).unary.ravel().tolist() for n in (1, 2)])
                found.append([algorithm.map(model, n_threads=n).labels.tolist() for n in (1, 2)])
print(json.dumps([VECTOR_LEVEL, os.environ["SKLEARN_CRF_VECTOR_LEVEL"], found]))
"""


def run(level, code=CODE):
    environment = os.environ | {"SKLEARN_CRF_VECTOR_LEVEL": level}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_levels_differ_by_rounding_alone_and_threads_by_nothing():
    results = {}
    for level in available_levels():
        done = run(level)
        chosen, exported, found = json.loads(done.stdout)
        assert chosen == exported == level
        for one, two in found:
            assert one == two
        results[level] = [one for one, _ in found]
    for values in results.values():
        for k, (own, expected) in enumerate(zip(values, results["baseline"], strict=True)):
            # marginals and labels alternately, in single and double precision alternately
            rounding = {"rtol": 2e-5 if k % 4 == 0 else 1e-12} if k % 2 == 0 else {"rtol": 0}
            assert_allclose(own, expected, **rounding)


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


PICKLED = [
    sklearn_crf.TRWCRF(),
    sklearn_crf.M3NClassifier(),
    sklearn_crf.DenseCRF(),
    sklearn_crf.RegressionTreeField(),
    sklearn_crf.LearnedFilters(),
    sklearn_crf.MultiConditionalMFA(),
    sklearn_crf.MultiLabelField(),
    TemperatureScaling(sklearn_crf.DRFClassifier()),
    SequenceVectorizer(),
    ClassifierScores(sklearn_crf.DRFClassifier()),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("estimator", PICKLED, ids=lambda estimator: type(estimator).__name__)
def test_pickles_of_another_version_warn(estimator, monkeypatch):
    pickled = pickle.dumps(estimator)
    same = pickle.loads(pickled)
    assert str(clone(same)) == str(estimator)
    assert vars(same).keys() == vars(estimator).keys()
    monkeypatch.setattr(sklearn_crf, "__version__", "9.9")
    with pytest.warns(InconsistentVersionWarning) as found:
        pickle.loads(pickled)
    # an estimator that contains another estimator warns of both, of the inner one first
    assert f"{type(estimator).__name__} from version " in str(found[-1].message)


def test_pickles_without_a_version_warn():
    field = sklearn_crf.TRWCRF(C=2.0)
    loaded = sklearn_crf.TRWCRF()
    with pytest.warns(InconsistentVersionWarning, match="from version before 0.1.0 of sklearn_crf"):
        loaded.__setstate__(vars(field))
    assert loaded.C == 2.0


def test_sources_that_are_not_compiled_say_so(tmp_path):
    for name in ("__init__.py", "kernels/__init__.py"):
        copy = tmp_path / "sklearn_crf" / name
        copy.parent.mkdir(exist_ok=True)
        copy.write_text((Path(sklearn_crf.__file__).parent / name).read_text(encoding="utf-8"), encoding="utf-8")
    code = "import sklearn_crf.kernels"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "not compiled: if this is the source folder, start Python in another folder" in run.stderr
