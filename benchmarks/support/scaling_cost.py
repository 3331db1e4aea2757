"""Model of the time of an evaluation on shards, fitted to runs: work of shards, calls of workers, bytes sent."""

import os
import time
from functools import partial
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from sklearn_crf import (
    TRWCRF,
    ContrastiveCRF,
    DRFClassifier,
    M3NClassifier,
    MultiConditionalMFA,
    RegressionTreeField,
    RegressionTreeFieldClassifier,
    Shards,
)
from sklearn_crf.distributed import LocalExecutor
from sklearn_crf.learning import ContrastiveTraining
from support import scaling_engines, scaling_ways

N_WORKERS, N_VALUES, N_CALLS = (1, 2, 4), (1_000, 30_000, 300_000, 1_000_000, 2_000_000), 12
N_SHARDS = (1, 2, 4)


def chains(n_features, seed):
    """Return a hundred chains of 40 nodes with five classes."""
    rng = np.random.default_rng(seed)
    y = np.cumsum(rng.random((100, 40)) < 0.2, axis=1) % 5
    means = np.random.default_rng(0).normal(size=(5, n_features))
    return means[y] + rng.normal(size=(*y.shape, n_features)), y


def grids(n_features, seed):
    """Return twenty images of 24 x 24 pixels with three classes."""
    rng = np.random.default_rng(seed)
    y = np.kron(rng.integers(3, size=(20, 6, 6)), np.ones((4, 4), dtype=int))
    means = np.random.default_rng(0).normal(size=(3, n_features))
    return means[y] + rng.normal(size=(*y.shape, n_features)), y


def rows(n_features, seed):
    """Return five thousand rows with three classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=5000)
    return np.random.default_rng(0).normal(size=(3, n_features))[y] + rng.normal(size=(5000, n_features)), y


def photographs(as_labels, seed):
    """Return four noisy images of BSDS, and the clean images or their grey levels as labels."""
    with np.load(Path(os.environ["SKLEARN_CRF_DATA"]) / "bsds500" / "bsds500_train_gray_half.npz") as images:
        clean = [images[name].astype(np.float32) for name in images.files[4 * seed : 4 * seed + 4]]
    rng = np.random.default_rng(seed)
    noisy = [(image + rng.normal(0, 25, image.shape))[..., np.newaxis].astype(np.float32) for image in clean]
    return noisy, [(image // 86).astype(int) for image in clean] if as_labels else clean


def sentences(folder, seed):
    """Return five hundred sentences of CoNLL-2000, with the features of CRFsuite's example."""
    X, y = scaling_engines.load(scaling_engines.conll(folder)[0][0])
    return X[500 * seed : 500 * (seed + 1)], y[500 * seed : 500 * (seed + 1)]


SHORT = {"max_iter": 5, "edge_features": "constant"}
TREE = {"filter_bank": None, "max_depth": 0, "max_iter": 4, "tol": 0, "random_state": 0}


def tasks(folder):
    """Return estimators and functions that return the data of a shard, by name."""
    mixture = MultiConditionalMFA(2, objective="joint", noise="tied", n_init=1, max_iter=5, random_state=0)
    one_round = ContrastiveTraining(max_rounds=1)
    return {
        "TRWCRF, words": (TRWCRF(max_iter=5, tol=0), partial(sentences, folder)),
        "TRWCRF, chains": (TRWCRF(**SHORT), partial(chains, 50)),
        "TRWCRF, chains, 1,000 features": (TRWCRF(**SHORT), partial(chains, 1000)),
        "TRWCRF, relaxation of grids": (TRWCRF(learning="relaxation", **SHORT), partial(grids, 10)),
        "DRFClassifier, grids": (DRFClassifier(**SHORT), partial(grids, 10)),
        "M3NClassifier, chains": (M3NClassifier(solver="bmrm", **SHORT), partial(chains, 50)),
        "ContrastiveCRF, grids": (ContrastiveCRF(learning=one_round, random_state=0, **SHORT), partial(grids, 10)),
        "RegressionTreeField": (RegressionTreeField("pseudolikelihood", **TREE), partial(photographs, False)),
        "RegressionTreeFieldClassifier": (
            RegressionTreeFieldClassifier("pseudolikelihood", **TREE),
            partial(photographs, True),
        ),
        "MultiConditionalMFA": (mixture, partial(rows, 20)),
        "MultiConditionalMFA, 200 features": (mixture, partial(rows, 200)),
    }


class Noting(LocalExecutor):
    """Executor in this process that records the processor seconds of calls that evaluate the loss."""

    def __init__(self, shards):
        super().__init__(shards)
        self.seconds = []

    def sum(self, function, broadcast):
        start = time.process_time()
        found = super().sum(function, broadcast)
        if scaling_ways.bytes_of_weights(function, broadcast) is not None:
            self.seconds.append(time.process_time() - start)
        return found


def work(field, data):
    """Return the times of an evaluation for some numbers of shards, and the bytes sent to and from a worker."""
    parts = [data(seed) for seed in range(max(N_SHARDS))]
    records = []
    for n_shards in N_SHARDS:
        engines = _fitted(field, parts[:n_shards], Noting)
        # Leave out the first evaluations, which encode examples.
        records.append({"n_shards": n_shards, "cpu_ms": round(1e3 * float(np.median(engines[0].seconds[2:])), 3)})
    counting = _fitted(field, parts[:2], partial(scaling_ways.Counting, n_actors=2))[0]
    out, back, _ = counting.figures[-1]
    line = np.array([[record["n_shards"], 1.0] for record in records])
    (slope, rest), error = nnls(line, np.array([record["cpu_ms"] for record in records]))
    fit = {"ms_of_a_shard": round(slope, 3), "ms_besides": round(rest, 3), "residual_ms": round(error, 3)}
    return {"records": records, **fit, "bytes_out": out, "bytes_back": back}


def _fitted(field, parts, make):
    engines = []

    def made(shards):
        engines.append(make(shards))
        return engines[-1]

    field.fit(Shards.from_arrays(parts, made))
    return engines


def echo(shard, vector):
    return vector


def calls():
    """Return elapsed times of calls without work, for some numbers of workers and bytes, and a linear model of them."""
    import dask
    from distributed import Client, LocalCluster

    dask.config.set({"distributed.nanny.pre-spawn-environ": scaling_engines.MEMORY | {"OMP_NUM_THREADS": "1"}})
    options = {"n_workers": max(N_WORKERS), "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
    records = []
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        for n_workers in N_WORKERS:
            shards = Shards.from_arrays([([[0.0]], [0])] * n_workers, client)
            for n_values in N_VALUES:
                vector, seconds = np.zeros(n_values), []
                for _ in range(N_CALLS):
                    start = time.perf_counter()
                    shards.sum(echo, vector)
                    seconds.append(time.perf_counter() - start)
                median = round(1e3 * float(np.median(seconds[2:])), 3)
                records.append({"n_workers": n_workers, "bytes_of_a_worker": 16 * n_values, "ms": median})
    columns = [
        [1.0, record["n_workers"], record["n_workers"] * record["bytes_of_a_worker"] / 1e6] for record in records
    ]
    times = np.array([record["ms"] for record in records])
    # Fit relative errors, so that short and long calls have equal influence.
    found, _ = nnls(np.array(columns) / times[:, np.newaxis], np.ones(len(times)))
    errors = np.abs(np.array(columns) @ found / times - 1)
    names = ("ms", "ms_of_a_worker", "ms_of_a_megabyte")
    fit = dict(zip(names, np.round(found, 4).tolist(), strict=True))
    return {"records": records, **fit, "median_relative_error": round(float(np.median(errors)), 3)}
