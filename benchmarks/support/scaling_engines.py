"""Time of training with threads, dask and Ray on equal numbers of cores, for CoNLL-2000 and 200 images of BSDS."""

import os
import time
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.random_projection import SparseRandomProjection

from sklearn_crf import TRWCRF, RegressionTreeField, Shards
from sklearn_crf.distributed import DaskExecutor, LocalExecutor, RayExecutor
from sklearn_crf.preprocessing import SequenceVectorizer
from support.conll_features import sentences, token_features

N_CORES = 2
N_SHARDS = {"conll": 2, "conll_dense": 2, "bsds": 8}


def conll(folder, name="conll"):
    """Return shards of training sentences with CRFsuite's features, or 300 random projections, and an estimator."""
    paths = [Path(folder) / f"{name}{k}.npz" for k in range(N_SHARDS[name])]
    if not paths[-1].exists():
        tokens = list(sentences("train"))
        X = SequenceVectorizer(min_count=3).fit_transform(token_features(sentence) for sentence in tokens)
        if name == "conll_dense":
            projection = SparseRandomProjection(300, dense_output=True, random_state=0).fit(X[0])
            for i, x in enumerate(X):
                X[i] = projection.transform(x)
        y = np.empty(len(tokens), dtype=object)
        y[:] = [np.array([word[2] for word in sentence]) for sentence in tokens]
        for k, path in enumerate(paths):
            np.savez(path, X=X[k :: len(paths)], y=y[k :: len(paths)])
    return paths, TRWCRF(max_iter=30, tol=0)


def bsds(folder):
    """Return shards of noisy and clean images on disk, and an estimator."""
    paths = [Path(folder) / f"bsds{k}.npz" for k in range(N_SHARDS["bsds"])]
    if not paths[-1].exists():
        with np.load(Path(os.environ["SKLEARN_CRF_DATA"]) / "bsds500" / "bsds500_train_gray_half.npz") as images:
            clean = [images[name].astype(np.float32) for name in images.files]
        rng = np.random.default_rng(0)
        noisy, y = np.empty(len(clean), dtype=object), np.empty(len(clean), dtype=object)
        noisy[:] = [(image + rng.normal(0, 25, image.shape))[..., np.newaxis].astype(np.float32) for image in clean]
        y[:] = clean
        for k, path in enumerate(paths):
            np.savez(path, X=noisy[k :: len(paths)], y=y[k :: len(paths)])
    field = RegressionTreeField("pseudolikelihood", filter_bank=None, max_depth=0, max_iter=8, tol=0, random_state=0)
    return paths, field


MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**28), "MALLOC_MMAP_THRESHOLD_": str(2**28)}

TASKS = {"conll": conll, "conll_dense": partial(conll, name="conll_dense"), "bsds": bsds}


def load(path):
    with np.load(path, allow_pickle=True) as part:
        return list(part["X"]), list(part["y"])


class Timed:
    """Executor that records elapsed and processor seconds of the calls that evaluate the loss."""

    def __init__(self, executor):
        self.executor, self.seconds, self.cpu, self.others = executor, [], [], []

    def map(self, function, broadcast):
        return self.executor.map(function, broadcast)

    def sum(self, function, broadcast):
        asked = broadcast[1] if isinstance(broadcast, tuple) and len(broadcast) == 2 else None
        is_of_field = getattr(getattr(asked, "function", None), "__name__", "") == "value_grad"
        if function.__name__ != "_evaluate" and not is_of_field:
            return self.executor.sum(function, broadcast)
        before, busy, start = self._cpu_seconds(), _busy_seconds(), time.perf_counter()
        found = self.executor.sum(function, broadcast)
        self.seconds.append(time.perf_counter() - start)
        busy = _busy_seconds() - busy
        self.cpu.append(self._cpu_seconds() - before)
        self.others.append(busy - self.cpu[-1])
        return found

    def figures(self):
        """Return medians over the evaluations during which other processes of the machine were idle."""
        # Leave out the first evaluations, which encode examples.
        clock, cpu, others = (np.array(part[2:]) for part in (self.seconds, self.cpu, self.others))
        at_rest = others < _AT_REST * clock
        if not at_rest.any():
            raise RuntimeError("Other processes were at work during all evaluations: measure on an idle machine.")
        clock, cpu = (1e3 * float(np.median(part[at_rest])) for part in (clock, cpu))
        return {
            "evaluation_ms": round(clock, 1),
            "evaluation_cpu_ms": round(cpu, 1),
            "n_evaluations": int(at_rest.sum()),
            "n_disturbed": int(np.sum(~at_rest)),
        }

    def _cpu_seconds(self):
        of_processes = dict(self.executor.map(_cpu_of_process, None))
        return sum({**of_processes, os.getpid(): time.process_time()}.values())


# Largest share of one processor that other processes may use
_AT_REST = 0.15


def _busy_seconds():
    """Return the seconds that the processors of the machine have worked so far, as counted by Linux."""
    user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _cpu_of_process(shard, broadcast):
    return os.getpid(), time.process_time()


def _timed(field, paths, make):
    engines = []

    def made(shards):
        engines.append(Timed(make(shards)))
        return engines[-1]

    start = time.perf_counter()
    field.fit(Shards(paths, load, made))
    seconds = time.perf_counter() - start
    return {"fit_seconds": round(seconds, 2)} | engines[0].figures()


def measure(task, engine, folder):
    """Return the figures of one engine. It should run in a separate process."""
    paths, field = TASKS[task](folder)
    if engine == "threads":
        return _timed(field.set_params(n_jobs=N_CORES), paths, LocalExecutor)
    if engine == "dask":
        import dask
        from distributed import Client, LocalCluster

        # Workers of dask return each freed array to the system, which is slow as arrays of images are often made.
        dask.config.set({"distributed.nanny.pre-spawn-environ": MEMORY | {"OMP_NUM_THREADS": "1"}})
        options = {"n_workers": N_CORES, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            client.run(_imported)
            return _timed(field, paths, lambda shards: DaskExecutor(shards, client))
    with ray_of(N_CORES):
        return _timed(field, paths, RayExecutor)


@contextmanager
def ray_of(n_cores):
    """Return a context with a Ray cluster on this machine, whose actors can import the modules of this folder."""
    import ray

    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    ray.init(
        num_cpus=n_cores,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(paths)}},
    )
    try:
        yield
    finally:
        ray.shutdown()


def _imported():
    return __name__


def engines():
    """Return the names of installed engines."""
    return ["threads", *(name for name, module in (("dask", "distributed"), ("ray", "ray")) if find_spec(module))]
