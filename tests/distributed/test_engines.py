"""Engines that receive tasks from joblib: processes and dask do the coarse work of a call, with the same bits."""

import os
import time

import pytest
from joblib import Parallel, delayed, parallel_config
from numpy.testing import assert_array_equal
from on_workers import inside, of_engine, place, pools_of_a_fit, reciprocal
from sklearn.base import clone
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV
from small_fits import MAKERS
from small_shards import load, weights

from sklearn_crf import TRWCRF, DRFClassifier, MultiConditionalMFA, _threads
from sklearn_crf.model_selection import coupling_audit, cross_val_predict
from sklearn_crf.preprocessing import ChannelUnion, ClassifierScores, FilterBank, PatchShrinkage

distributed = pytest.importorskip("dask.distributed", reason="dask.distributed is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cluster():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "memory_limit": 0}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(params=["loky", "dask"])
def engine(request, cluster):
    """Return options of parallel_config."""
    return {"loky": {"backend": "loky", "n_jobs": 2}, "dask": {"backend": "dask"}}[request.param]


@pytest.fixture
def sent(monkeypatch):
    """Record the number of tasks in each batch that is sent."""
    lots = []

    class Watched(_threads.Parallel):
        def __call__(self, iterable):
            tasks = list(iterable)
            lots.append(len(tasks))
            return super().__call__(tasks)

    monkeypatch.setattr(_threads, "Parallel", Watched)
    return lots


def test_tasks_go_to_workers_and_come_back_in_order(engine, sent):
    with parallel_config(**engine):
        places = _threads.map_coarse(place, range(9))
        assert _threads.map_coarse(reciprocal, [4, 2, 1]) == [0.25, 0.5, 1.0]
        with pytest.raises(ZeroDivisionError):
            _threads.map_coarse(reciprocal, [1, 0, 2])
        with _threads.keep_tasks_in_process():
            # The steps of a fit stay in this process.
            assert {process for process, *_ in _threads.map_coarse(place, range(3))} == {os.getpid()}
        assert len(_threads.map_coarse(place, range(5))) == 5
    assert os.getpid() not in {process for process, *_ in places}
    assert {n_threads for *_, n_threads in places} == {1}
    assert sent == [4, 3, 3, 4]


def test_threads_do_the_work_where_no_engine_is_set(sent):
    for n_jobs in (None, 2):
        assert {process for process, *_ in _threads.map_coarse(place, range(9), n_jobs)} == {os.getpid()}
    for options in ({"n_jobs": 2}, {"backend": "threading", "n_jobs": 2}):
        with parallel_config(**options):
            found = _threads.map_coarse(lambda task, n_threads: place(time.sleep(0.05), n_threads), range(9))
        assert {process for process, *_ in found} == {os.getpid()}
        assert len({thread for _, thread, _ in found}) == 2
    assert not sent


def test_tasks_of_tasks_stay_where_they_are(engine):
    with parallel_config(**engine):
        for places, process in Parallel()(delayed(inside)(k, 1) for k in range(4)):
            assert places == {process}


@pytest.mark.parametrize("name", MAKERS)
def test_predictions_and_restarts_on_an_engine_have_the_same_bits(name, engine, sent, monkeypatch):
    # With few nodes in a batch, even small data make several tasks.
    monkeypatch.setattr("sklearn_crf.inference.exact._tuning.MOST_JOINED", 8)
    make, data = MAKERS[name]
    X, y = data()
    here = make().fit(X, y)
    methods = [m for m in ("predict", "predict_proba", "predict_log_proba", "decision_function") if hasattr(here, m)]
    expected = {method: getattr(here, method)(X) for method in methods}
    with parallel_config(**engine):
        there = make().fit(X, y)
        for method in methods:
            assert_array_equal(getattr(there, method)(X), expected[method])
            assert_array_equal(getattr(here, method)(X), expected[method])
        assert there.score(X, y) == here.score(X, y)
    assert sent


def test_everything_about_many_examples_is_sent(engine, sent):
    X, y = load(0)
    crf = TRWCRF(max_iter=20).fit(X, y)
    calls = [
        lambda: crf.predict_edge_proba(X, inference="bp"),
        lambda: crf.log_likelihood(X, y, inference="bp").values,
        lambda: crf.certify(X)[2],
        lambda: crf.sample(X, 3, random_state=0),
    ]
    expected = [call() for call in calls]
    for n, call in enumerate(calls):
        before = len(sent)
        found = of_engine(engine["backend"], call, n_jobs=engine.get("n_jobs", -1))
        assert len(sent) > before, n
        for one, other in zip(found, expected[n], strict=True):
            assert_array_equal(one, other)


def test_filters_restarts_and_folds(engine, sent):
    X, y = load(0)
    rows, labels = X.reshape(-1, 3), y.ravel()
    union = ChannelUnion([FilterBank("haar"), PatchShrinkage([10.0])]).fit(X)
    makes = [
        lambda: union.transform(X),
        lambda: MultiConditionalMFA(n_init=4, max_iter=5, random_state=0).fit(rows, labels).means_,
        lambda: ClassifierScores(LogisticRegression(), cv=2).fit_transform(X, y),
    ]
    for n, make in enumerate(makes):
        before, expected = len(sent), make()
        assert len(sent) == before
        assert_array_equal(of_engine(engine["backend"], make, n_jobs=engine.get("n_jobs", -1)), expected)
        # Classifier scores are out of fold, and cross_val_predict sends the tasks.
        assert len(sent) > before or n == 2


def test_searches_and_audits_find_the_same(engine):
    X, y = load(0)
    grid = {"C": [0.1, 1.0]}
    audited = {"pl": DRFClassifier(learning="pl"), "trw": DRFClassifier(inference="trw", max_iter=5)}

    def searched(search):
        found = search.fit(X, y)
        return found.cv_results_["mean_test_score"], weights(found.best_estimator_)

    calls = {
        "grid": lambda: searched(GridSearchCV(TRWCRF(max_iter=5), grid, cv=2)),
        "halving": lambda: searched(
            HalvingGridSearchCV(TRWCRF(max_iter=5), grid, cv=2, min_resources=4, random_state=0)
        ),
        "labels": lambda: cross_val_predict(TRWCRF(max_iter=5), X, y, cv=2),
        "probabilities": lambda: cross_val_predict(TRWCRF(max_iter=5), X, y, cv=2, method="predict_proba"),
        "audit": lambda: [coupling_audit(audited, X, y, inference={"MAP": "map", "TRW": "trw"}, cv=2).scores],
    }
    for call in calls.values():
        found, expected = of_engine(engine["backend"], call, n_jobs=engine.get("n_jobs", -1)), call()
        for one, other in zip(found, expected, strict=True):
            assert_array_equal(one, other)


def test_workers_start_no_threads_that_they_are_not_asked_for(engine):
    X, y = load(0)
    with parallel_config(**engine):
        found = Parallel()(delayed(pools_of_a_fit)(clone(TRWCRF(max_iter=5)), X, y) for _ in range(4))
        assert found == [(0, (1, 1))] * 4
        ((n_pools, _),) = Parallel()(delayed(pools_of_a_fit)(TRWCRF(max_iter=5, n_jobs=2), X, y) for _ in range(1))
    assert n_pools > 0
