"""Training on shards in actors of a local Ray cluster: the same weights as in memory, whatever happens to actors."""

import os
import signal

import numpy as np
import pytest
import small_shards
from joblib import Parallel, delayed, parallel_config
from on_workers import place, pools_of_a_fit
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from small_shards import Watching, broken, images, leaves, load, weights

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DRFClassifier,
    M3NClassifier,
    MultiConditionalMFA,
    RegressionTreeField,
    Shards,
    _threads,
)
from sklearn_crf.distributed import RayExecutor
from sklearn_crf.learning import Relaxation
from sklearn_crf.model_selection import coupling_audit, cross_val_predict
from sklearn_crf.potentials import PairwiseTables

ray = pytest.importorskip("ray", reason="ray is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ESTIMATORS = {
    "exact": TRWCRF(),
    "relaxation": TRWCRF(learning=Relaxation(tol=1e-4), max_iter=20),
    "margins": M3NClassifier(max_iter=10),
    "contrastive": ContrastiveCRF(pairwise=PairwiseTables(C=0.1), max_iter=20, random_state=0),
}


@pytest.fixture(scope="module")
def in_memory():
    return {name: clone(crf).fit(Shards.from_arrays(map(load, range(3)))) for name, crf in ESTIMATORS.items()}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    folders = [os.path.dirname(each) for each in (__file__, small_shards.__file__)]
    environment = {"PYTHONPATH": os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": environment},
        object_store_memory=2**27,
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def shards(cluster):
    return Shards(range(3), load, "ray")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_two_actors_give_the_same_bits(name, shards, in_memory):
    fitted = clone(ESTIMATORS[name]).fit(shards)
    np.testing.assert_array_equal(weights(fitted), weights(in_memory[name]))
    np.testing.assert_array_equal(fitted.loss_curve_, in_memory[name].loss_curve_)


def test_tree_fields_have_the_same_bits(cluster):
    field = RegressionTreeField(max_depth=1, max_iter=4, random_state=0)
    shards = Shards(range(3), images, "ray")
    fitted = clone(field).fit(shards)
    np.testing.assert_array_equal(leaves(fitted), leaves(clone(field).fit(Shards.from_arrays(map(images, range(3))))))
    for found, seed in zip(shards.apply_lazily(fitted), range(3), strict=True):
        np.testing.assert_array_equal(found, fitted.predict(images(seed)[0]))


def test_predictions_and_errors_come_from_actors(shards, in_memory):
    crf = in_memory["exact"]
    for labels, seed in zip(crf.predict(shards), range(3), strict=True):
        np.testing.assert_array_equal(labels, crf.predict(load(seed)[0]))
    with pytest.raises(RuntimeError, match="load failed for shard 1: OSError: no such file"):
        clone(crf).fit(Shards(range(3), broken, "ray"))


@pytest.mark.parametrize(("name", "fatal"), [("relaxation", 9), ("contrastive", 34)])
def test_killed_actors_leave_no_trace(name, fatal, in_memory):
    """Messages and sets of labelings are passed on from pass to pass, so another actor has to reproduce them."""

    class KillsActors(Watching, RayExecutor):
        n_calls = 0

        def before(self, function, broadcast):
            self.n_calls += 1
            if self.n_calls == fatal:
                (process, *_), *_ = RayExecutor.map(self, process_of_shard, None)
                os.kill(process, signal.SIGKILL)

    fitted = clone(ESTIMATORS[name]).fit(Shards(range(3), load, KillsActors))
    np.testing.assert_array_equal(weights(fitted), weights(in_memory[name]))


def process_of_shard(shard, broadcast):
    return os.getpid(), shard.name


@pytest.fixture(scope="module")
def joblib_on_ray(cluster):
    from ray.util.joblib import register_ray

    register_ray()


def test_predictions_restarts_and_folds_are_sent_to_ray(joblib_on_ray):
    X, y = load(0)
    crf = TRWCRF(max_iter=20).fit(X, y)
    audited = {"pl": DRFClassifier(learning="pl"), "trw": DRFClassifier(inference="trw", max_iter=5)}
    calls = [
        lambda: crf.predict_proba(X),
        lambda: MultiConditionalMFA(n_init=4, max_iter=5, random_state=0).fit(X.reshape(-1, 3), y.ravel()).means_,
        lambda: cross_val_predict(TRWCRF(max_iter=5), X, y, cv=2),
        lambda: coupling_audit(audited, X, y, inference={"MAP": "map", "TRW": "trw"}, cv=2).scores,
    ]
    for call in calls:
        expected = call()
        with parallel_config("ray", n_jobs=2):
            np.testing.assert_array_equal(call(), expected)
    with parallel_config("ray", n_jobs=2):
        places = _threads.map_coarse(place, range(8))
        found = Parallel()(delayed(pools_of_a_fit)(TRWCRF(max_iter=5), X, y) for _ in range(2))
    assert os.getpid() not in {process for process, *_ in places}
    assert found == [(0, (1, 1))] * 2


def test_grid_search_on_ray_finds_the_same(joblib_on_ray):
    X, y = load(0)
    grid = {"C": [0.1, 1.0]}
    here = GridSearchCV(TRWCRF(max_iter=20), grid, cv=2).fit(X, y)
    with parallel_config("ray"):
        there = GridSearchCV(TRWCRF(max_iter=20), grid, cv=2).fit(X, y)
    np.testing.assert_array_equal(there.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(weights(there.best_estimator_), weights(here.best_estimator_))


def test_a_cluster_that_goes_away_leaves_the_estimator_as_it_was(in_memory):
    crf = clone(ESTIMATORS["exact"]).fit(*load(0))
    before = weights(crf)

    class Unreachable(RayExecutor):
        def _start(self, k, sent):
            raise ray.exceptions.RaySystemError("no connection")

    with pytest.raises(RuntimeError, match="The Ray cluster was lost"):
        crf.fit(Shards(range(2), load, Unreachable))
    np.testing.assert_array_equal(weights(crf), before)
