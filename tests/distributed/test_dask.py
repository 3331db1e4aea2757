"""Training on shards that are held by the processes of a dask cluster."""

import os
import pickle
import signal
import sys
import time
from threading import get_ident
from types import ModuleType

import numpy as np
import pytest
from joblib import parallel_config
from local_clusters import processes
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from small_shards import Watching, broken, images, labelled_images, leaves, load, sentences, weights

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DRFClassifier,
    M3NClassifier,
    RegressionTreeField,
    RegressionTreeFieldClassifier,
    Shards,
)
from sklearn_crf.distributed import ClusterGoneError, DaskExecutor
from sklearn_crf.learning import Relaxation
from sklearn_crf.potentials import PairwiseTables
from sklearn_crf.preprocessing import SequenceVectorizer

distributed = pytest.importorskip("dask.distributed", reason="dask.distributed is not installed")
dask = pytest.importorskip("dask")
pytest.importorskip("dask.bag")

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

ESTIMATORS = {
    "exact": TRWCRF(),
    "relaxation": TRWCRF(learning=Relaxation(tol=1e-4)),
    "pma": DRFClassifier(inference="trw"),
    "margins": M3NClassifier(max_iter=10),
    "spa": DRFClassifier(inference="map", max_iter=5),
    "contrastive": ContrastiveCRF(pairwise=PairwiseTables(C=0.1), max_iter=20, random_state=0),
    "contrastive, penalty of edges chosen": ContrastiveCRF(max_iter=5, random_state=0),
}


@pytest.fixture(scope="module")
def in_memory():
    return {name: clone(crf).fit(Shards.from_arrays(map(load, range(4)))) for name, crf in ESTIMATORS.items()}


@pytest.fixture(scope="module")
def client():
    with processes(2) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.mark.parametrize("name", ESTIMATORS)
def test_two_workers_give_the_same_bits(name, client, in_memory):
    fitted = clone(ESTIMATORS[name]).fit(Shards(range(4), load, client))
    np.testing.assert_array_equal(weights(fitted), weights(in_memory[name]))
    np.testing.assert_array_equal(fitted.loss_curve_, in_memory[name].loss_curve_)
    assert b"distributed" not in pickle.dumps(fitted)


TREE_FIELDS = {
    "mse": (RegressionTreeField(max_depth=1, max_iter=4, random_state=0), images),
    "pseudolikelihood": (
        RegressionTreeField("pseudolikelihood", window=1, max_depth=1, max_iter=4, random_state=0),
        images,
    ),
    "labels": (RegressionTreeFieldClassifier(max_depth=1, max_iter=4, random_state=0), labelled_images),
}


@pytest.mark.parametrize("name", TREE_FIELDS)
def test_tree_fields_have_the_same_bits(name, client):
    field, load = TREE_FIELDS[name]
    shards = Shards(range(4), load, client)
    in_memory = clone(field).fit(Shards.from_arrays(map(load, range(4))))
    fitted = clone(field).fit(shards)
    np.testing.assert_array_equal(leaves(fitted), leaves(in_memory))
    np.testing.assert_array_equal(fitted.loss_curve_, in_memory.loss_curve_)
    for found, seed in zip(shards.apply_lazily(fitted), range(4), strict=True):
        np.testing.assert_array_equal(found, fitted.predict(load(seed)[0]))
    assert fitted.score(shards) == fitted.score(Shards(range(4), load))


def test_parts_of_dask_are_computed_on_workers(client, in_memory):
    parts = [dask.delayed(load)(seed) for seed in range(4)]
    fitted = clone(ESTIMATORS["exact"]).fit(Shards.from_dask(parts, client))
    np.testing.assert_array_equal(weights(fitted), weights(in_memory["exact"]))


def test_a_bag_of_examples_is_trained_on_in_this_process(in_memory):
    examples = [pair for seed in range(4) for pair in zip(*load(seed), strict=True)]
    bag = dask.bag.from_sequence(examples, npartitions=4)
    fitted = clone(ESTIMATORS["exact"]).fit(Shards.from_dask(bag))
    np.testing.assert_array_equal(weights(fitted), weights(in_memory["exact"]))
    with pytest.raises(ValueError, match="parts must be a dask bag or delayed dask objects, got tuple at index 1"):
        Shards.from_dask([dask.delayed(load)(0), load(1)])


def test_one_worker_gives_the_same_bits(in_memory):
    with processes(1) as cluster, distributed.Client(cluster) as client:
        for name in ("relaxation", "contrastive"):
            fitted = clone(ESTIMATORS[name]).fit(Shards(range(4), load, client))
            np.testing.assert_array_equal(weights(fitted), weights(in_memory[name]))


def test_predictions_and_errors_come_from_workers(client, in_memory):
    shards, crf = Shards(range(4), load, client), in_memory["exact"]
    for labels, seed in zip(crf.predict(shards), range(4), strict=True):
        np.testing.assert_array_equal(labels, crf.predict(load(seed)[0]))
    assert crf.score(shards) == crf.score(Shards(range(4), load))
    with pytest.raises(RuntimeError, match="load failed for shard 1: OSError: no such file"):
        clone(crf).fit(Shards(range(4), broken, client))


def test_dictionaries_of_shards_do_not_depend_on_workers(client):
    here = make_pipeline(SequenceVectorizer(min_count=2), TRWCRF(max_iter=20)).fit(Shards(range(5), sentences))
    shards = Shards(range(5), sentences, client)
    there = make_pipeline(SequenceVectorizer(min_count=2), TRWCRF(max_iter=20)).fit(shards)
    assert list(there[0].vocabulary_.items()) == list(here[0].vocabulary_.items())
    np.testing.assert_array_equal(weights(there[1]), weights(here[1]))
    assert there.score(shards) == here.score(Shards(range(5), sentences))


def test_what_workers_cannot_import_is_named(client, monkeypatch):
    module = ModuleType("known_here_alone")
    exec("def load(path):\n    return [[0.0]], [0]", vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(ImportError, match="known_here_alone"):
        TRWCRF().fit(Shards(range(2), module.load, client))


def total(shard, values):
    return shard.number, float(values.sum())


def test_large_data_reach_all_workers(client):
    shards = Shards(range(4), load, client)
    assert shards.map(total, np.ones(2**18)) == [(k, 2.0**18) for k in range(4)]


def slowly(shard, seconds):
    time.sleep(seconds)
    return shard.number, os.getpid()


def test_slow_workers_are_waited_for(client, monkeypatch):
    monkeypatch.setattr("sklearn_crf.distributed._clusters._PATIENCE", 0.05)
    shards = Shards(range(3), load, client)
    assert [shards.map(slowly, seconds) for seconds in (0.3, 0)] == 2 * [shards.map(slowly, 0)]


def test_shards_of_a_worker_share_its_threads():
    with processes(1, n_threads=2) as cluster, distributed.Client(cluster) as client:
        assert len(set(Shards(range(2), load, client).map(thread_of_shard, 0.3))) == 2


def thread_of_shard(shard, seconds):
    time.sleep(seconds)
    return get_ident()


class Interrupts(DaskExecutor):
    """An engine whose twelfth call is interrupted by the user during the wait for the first worker."""

    n_waits = 0

    def _result(self, k, call):
        self.n_waits += k == 0
        if (self.n_waits, k) == (12, 0):
            raise KeyboardInterrupt
        return super()._result(k, call)


def test_an_interrupted_fit_keeps_its_weights_and_its_workers(client, in_memory):
    shards = Shards(range(4), load, lambda shards: Interrupts(shards, client))
    crf = clone(ESTIMATORS["exact"]).set_params(warm_start=True)
    with pytest.raises(KeyboardInterrupt):
        crf.fit(shards)
    assert crf.n_iter_ >= 1
    np.testing.assert_allclose(crf.fit(shards).loss_curve_[-1], in_memory["exact"].loss_curve_[-1], rtol=1e-4)
    assert crf.loss_curve_[0] < in_memory["exact"].loss_curve_[0]


def test_grid_search_on_a_cluster_finds_the_same(client):
    X, y = load(0)
    grid = {"C": [0.1, 1.0]}
    here = GridSearchCV(TRWCRF(max_iter=20), grid, cv=2).fit(X, y)
    with parallel_config("dask"):
        there = GridSearchCV(TRWCRF(max_iter=20), grid, cv=2).fit(X, y)
    np.testing.assert_array_equal(there.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(weights(there.best_estimator_), weights(here.best_estimator_))


def process_of_shard(shard, broadcast):
    return os.getpid(), shard.name


class KillsWorkers(Watching, DaskExecutor):
    """An engine that kills the worker of the first shard before some calls."""

    n_calls, fatal = 0, ()

    def before(self, function, broadcast):
        self.n_calls += 1
        if self.n_calls in self.fatal:
            (process, *_), *_ = DaskExecutor.map(self, process_of_shard, None)
            os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize(("name", "fatal"), [("relaxation", (4, 9)), ("contrastive", (34, 55))])
def test_killed_workers_leave_no_trace(name, fatal, in_memory):
    """Messages and sets of labelings are passed on from pass to pass, so another worker has to reproduce them."""
    engines = []

    def make_engine(shards):
        engines.append(KillsWorkers(shards, client))
        engines[-1].fatal = fatal
        return engines[-1]

    with processes(2) as cluster, distributed.Client(cluster) as client:
        shards = Shards(range(4), load, make_engine)
        fitted = clone(ESTIMATORS[name]).fit(shards)
        assert engines[0].n_calls > max(fatal)
        engines[0].fatal = (engines[0].n_calls + 1,)
        predicted = fitted.predict(shards)
    np.testing.assert_array_equal(weights(fitted), weights(in_memory[name]))
    for labels, seed in zip(predicted, range(4), strict=True):
        np.testing.assert_array_equal(labels, fitted.predict(load(seed)[0]))


def test_a_worker_killed_between_evaluations_of_a_tree_field():
    """Conjugate gradients continue from the solutions of the previous evaluation."""
    field, load = TREE_FIELDS["mse"]
    with processes(2) as cluster, distributed.Client(cluster) as client:

        def make_engine(shards):
            engine = KillsWorkers(shards, client)
            engine.fatal = (15, 22)
            return engine

        fitted = clone(field).fit(Shards(range(4), load, make_engine))
    np.testing.assert_array_equal(leaves(fitted), leaves(clone(field).fit(Shards(range(4), load))))


def test_results_are_asked_for_one_by_one_while_a_worker_is_killed(in_memory):
    crf = in_memory["exact"]
    with processes(2) as cluster, distributed.Client(cluster) as client:
        shards = Shards(range(6), load, client)
        found = shards.apply_lazily(crf)
        np.testing.assert_array_equal(next(found), crf.predict(load(0)[0]))
        os.kill(shards.map(process_of_shard)[1][0], signal.SIGKILL)
        for labels, seed in zip(found, range(1, 6), strict=True):
            np.testing.assert_array_equal(labels, crf.predict(load(seed)[0]))
        broken_shards = Shards(range(4), broken, client)
        with pytest.raises(RuntimeError, match="load failed for shard 1: OSError: no such file"):
            list(broken_shards.apply_lazily(crf))


class GoesAway(Watching, DaskExecutor):
    """An engine whose cluster is closed before a call."""

    n_calls, fatal = 0, 0

    def before(self, function, broadcast):
        self.n_calls += 1
        if self.n_calls == self.fatal:
            self.client.cluster.close()


@pytest.mark.parametrize("name", ["exact", "contrastive"])
@pytest.mark.parametrize("warm_start", [False, True])
def test_a_cluster_that_goes_away_leaves_the_estimator_as_ctrl_c_does(name, warm_start, in_memory):
    crf = clone(ESTIMATORS[name]).set_params(warm_start=warm_start).fit(*load(0))
    before = weights(crf)

    def make_engine(shards):
        engine = GoesAway(shards, client)
        engine.fatal = 12
        return engine

    with processes(2) as cluster, distributed.Client(cluster, timeout=5) as client:
        shards = Shards(range(2), load, make_engine)
        with pytest.raises(ClusterGoneError, match="The dask cluster was lost"):
            crf.fit(shards)
    assert np.array_equal(weights(crf), before) != warm_start
    assert b"distributed" not in pickle.dumps(crf)
