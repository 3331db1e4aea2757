"""The level of vector units: chosen once, fixed by the environment, within rounding of each other."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
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


PICKLED = [
    sklearn_crf.TRWCRF(),
    sklearn_crf.M3NClassifier(),
    sklearn_crf.DenseCRF(),
    sklearn_crf.RegressionTreeField(),
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
    # an estimator that holds another one warns of both, the inner one first
    assert f"{type(estimator).__name__} from version " in str(found[-1].message)


def test_pickles_without_a_version_warn():
    field = sklearn_crf.TRWCRF(C=2.0)
    loaded = sklearn_crf.TRWCRF()
    with pytest.warns(InconsistentVersionWarning, match="from version before 0.1.0 of sklearn_crf"):
        loaded.__setstate__(vars(field))
    assert loaded.C == 2.0
