"""Equal results from threads, processes of joblib and dask, and several threads of the user."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier

import numpy as np
import pytest
from joblib import Parallel, delayed, parallel_config
from small_fits import MAKERS

pytestmark = pytest.mark.filterwarnings("ignore")


def arrays(value):
    """Return all numbers of a fitted attribute, in order; estimators inside may hold the number of threads."""
    if isinstance(value, dict):
        return [array for key in value if key != "n_jobs" for array in arrays(value[key])]
    if isinstance(value, list | tuple):
        return [array for part in value for array in arrays(part)]
    if hasattr(value, "__dict__"):
        return arrays(vars(value))
    return [] if value is None else [np.asarray(value)]


def fitted(model, X, y):
    """Return the bytes of the fitted attributes and of the predictions."""
    model.fit(X, y)
    learned = {key: value for key, value in sorted(vars(model).items()) if key.endswith("_")}
    return [
        (array.dtype.str, array.shape, array.tobytes() if array.dtype != object else pickle.dumps(array.tolist()))
        for array in arrays([learned, model.predict(X)])
    ]


@cache
def by_one_thread(name):
    make, data = MAKERS[name]
    return fitted(make(n_jobs=1), *data())


def threads(n_jobs):
    return lambda make, data: [fitted(make(n_jobs=n_jobs), *data())]


def at_once(make, data):
    together = Barrier(8)

    def fit(n_jobs):
        together.wait(timeout=60)
        return fitted(make(n_jobs=n_jobs), *data())

    with ThreadPoolExecutor(8) as users:
        return list(users.map(fit, [1, 2] * 4))


def loky(make, data):
    with parallel_config("loky", n_jobs=2):
        inside = fitted(make(n_jobs=None), *data())
    return [inside, *Parallel(n_jobs=2)(delayed(fitted)(make(n_jobs=n_jobs), *data()) for n_jobs in (1, 2))]


def dask(make, data):
    distributed = pytest.importorskip("dask.distributed", reason="dask.distributed is not installed")
    options = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster),
        parallel_config("dask", n_jobs=2),
    ):
        inside = fitted(make(n_jobs=None), *data())
        return [inside, *Parallel()(delayed(fitted)(make(n_jobs=n_jobs), *data()) for n_jobs in (1, 2))]


WAYS = {"n_jobs=2": threads(2), "n_jobs=8": threads(8), "eight users": at_once, "loky": loky, "dask": dask}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MAKERS)
def test_every_way_gives_the_bits_of_one_thread(name, way):
    for found in WAYS[way](*MAKERS[name]):
        assert found == by_one_thread(name)


@pytest.mark.parametrize("name", MAKERS)
def test_eight_threads_predict_at_once(name):
    make, data = MAKERS[name]
    X, y = data()
    model = make().fit(X, y)
    expected = model.predict(X).tobytes()
    together = Barrier(8)

    def predict(_):
        together.wait(timeout=60)
        return {model.predict(X).tobytes() for _ in range(5)}

    with ThreadPoolExecutor(8) as users:
        assert set().union(*users.map(predict, range(8))) == {expected}
