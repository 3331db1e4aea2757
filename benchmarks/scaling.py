"""Training on shards: equal weights, bytes and time of an evaluation, memory from disk, and partial_fit beside fit.

    python benchmarks/scaling.py [--n-shards 8] [--n-examples 500] [--n-workers 1 2]

Data are chains of 40 nodes with 50 features and 5 classes, drawn at random. Clusters are Ray actors and dask processes
on this machine, and are left out where they are not installed.
"""

import argparse
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.base import clone

from sklearn_crf import TRWCRF, ContrastiveCRF, DRFClassifier, M3NClassifier, MultiConditionalMFA, Shards
from sklearn_crf.learning import GrowingSets, Relaxation

N_NODES, N_FEATURES, N_CLASSES = 40, 50, 5
ESTIMATORS = {
    "TRWCRF, exact": TRWCRF(edge_features="constant", max_iter=20),
    "TRWCRF, relaxation": TRWCRF(edge_features="constant", formulation=Relaxation(), max_iter=10),
    "DRFClassifier, pma": DRFClassifier(edge_features="constant", max_iter=20),
    "DRFClassifier, pl": DRFClassifier(edge_features="constant", learning="pl", max_iter=20),
    "M3NClassifier, bundle": M3NClassifier(edge_features="constant", max_iter=10),
    "M3NClassifier, smoothed": M3NClassifier(formulation="smoothed", edge_features="constant", max_iter=3),
    "ContrastiveCRF": ContrastiveCRF(
        sets=GrowingSets(max_rounds=3), edge_features="constant", max_iter=10, random_state=0
    ),
}


def load(path):
    with np.load(path) as part:
        return part["X"], part["y"]


def write(folder, n_shards, n_examples):
    means = 0.4 * np.random.default_rng(0).normal(size=(N_CLASSES, N_FEATURES))
    paths = [Path(folder) / f"part{k:03d}.npz" for k in range(n_shards)]
    for k, path in enumerate(paths):
        rng = np.random.default_rng(k + 1)
        y = np.cumsum(rng.random((n_examples, N_NODES)) < 0.2, axis=1) % N_CLASSES
        np.savez(path, X=means[y] + rng.normal(size=(*y.shape, N_FEATURES)), y=y)
    return paths


MIXTURES = {
    "MultiConditionalMFA, em": MultiConditionalMFA(objective="joint", n_init=1, max_iter=20, random_state=0),
    "MultiConditionalMFA, gradients": MultiConditionalMFA(1, n_init=1, max_iter=20, random_state=0),
}


def weights(fitted):
    names = ("coef_", "intercept_", "edge_coef_") if hasattr(fitted, "coef_") else ("means_", "loadings_")
    return np.concatenate([np.ravel(getattr(fitted, name)) for name in names])


def rows(X, y):
    """Nodes by themselves, for mixtures."""
    return X.reshape(-1, X.shape[-1]), y.ravel()


def show_equality(paths, n_workers):
    print("\nWeights equal to the last bit to those of the same shards in memory")
    small = [tuple(part[:100] for part in load(path)) for path in paths]
    of_rows = [rows(*part) for part in small]
    in_memory = {name: weights(field.fit(Shards.from_arrays(small))) for name, field in ESTIMATORS.items()}
    in_memory |= {name: weights(mixture.fit(Shards.from_arrays(of_rows))) for name, mixture in MIXTURES.items()}
    report("from disk", in_memory, lambda parts: Shards(range(len(parts)), parts.__getitem__), small, of_rows)
    if find_spec("ray") is None:
        print("ray is not installed")
    else:
        import ray

        ray.init(num_cpus=max(n_workers), include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        report("ray", in_memory, partial(Shards.from_arrays, client="ray"), small, of_rows)
        show_overhead("ray", max(n_workers))
        ray.shutdown()
    if find_spec("distributed") is None:
        print("dask is not installed")
        return
    for n in n_workers:
        from distributed import Client, LocalCluster

        options = {"n_workers": n, "threads_per_worker": 1, "dashboard_address": ":0"}
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            report(f"dask, {n} processes", in_memory, partial(Shards.from_arrays, client=client), small, of_rows)
            show_overhead(client, n)


def report(title, in_memory, make_shards, parts, of_rows):
    print(title, flush=True)
    for shards, estimators in ((make_shards(parts), ESTIMATORS), (make_shards(of_rows), MIXTURES)):
        for name, estimator in estimators.items():
            same = np.array_equal(weights(estimator.fit(shards)), in_memory[name])
            print(f"    {name:32s}", "equal" if same else "DIFFERENT", flush=True)


def same(shard, broadcast):
    return broadcast


def show_overhead(client, n_workers):
    """Time of a call that does nothing, one shard for each worker, with 10,000 weights out and back."""
    shards = Shards.from_arrays([([[0.0]], [0])] * n_workers, client)
    vector = np.zeros(10_000)
    seconds = []
    for _ in range(12):
        start = time.perf_counter()
        shards.map(same, vector)
        seconds.append(time.perf_counter() - start)
    print(f"    {'':32s} an empty evaluation takes {1e3 * np.median(seconds[2:]):.1f} ms (median)")


class Measured:
    """Shards in this process, with the sizes of what would go over the wire in the last evaluation."""

    def __init__(self, shards):
        self.shards = shards

    def map(self, function, broadcast):
        results = [function(shard, broadcast) for shard in self.shards]
        if function.__name__ == "_evaluate" and hasattr(broadcast[1], "coef"):
            Measured.sizes = len(pickle.dumps(broadcast)), len(pickle.dumps(results[0]))
        return results


def show_bytes(paths):
    print("\nBytes of an evaluation for a worker with one shard, beside those of the weights and the gradient alone")
    part = tuple(values[:20] for values in load(paths[0]))
    for name, field in ESTIMATORS.items():
        n_coef = len(weights(field.fit(Shards.from_arrays([part], client=Measured))))
        out, back = Measured.sizes
        print(f"{name:20s} out {out:6d}, back {back:6d}; weights and gradient {2 * 8 * n_coef:6d}")


def show_memory(paths):
    print("\nPeak of resident memory, of a process that loads nothing, one that holds all, one that trains from disk")
    for mode in ("nothing", "memory", "disk"):
        command = [sys.executable, __file__, "--measure", mode, *map(str, paths)]
        print(f"{mode:20s} {subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()}")


def measure(mode, paths):
    field = TRWCRF(edge_features="constant", max_iter=5)
    if mode == "memory":
        field.fit(Shards.from_arrays([load(path) for path in paths]))
    else:
        field.fit(Shards(paths, load if mode == "disk" else lambda path: ([[0.0], [1.0]], [0, 1])))
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def show_partial_fit(paths):
    print("\npartial_fit, one pass over all shards but the last, beside fit: accuracy on the last, CPU seconds")
    parts = [load(path) for path in paths]
    rows = [(X.reshape(-1, X.shape[-1]), y.ravel()) for X, y in parts]
    for name, field in ESTIMATORS.items():
        if hasattr(field, "partial_fit"):
            _show_passes(name, field, parts)
    _show_passes("mfa", MultiConditionalMFA(n_init=1), rows)


def _show_passes(name, field, parts):
    *parts, test = parts
    online, whole = clone(field).set_params(random_state=0), clone(field)
    start = time.process_time()
    for part in parts:
        online.partial_fit(*part, classes=range(N_CLASSES))
    middle = time.process_time()
    whole.fit(*map(np.concatenate, zip(*parts, strict=True)))
    end = time.process_time()
    print(
        f"{name:20s} {online.score(*test):.4f} in {middle - start:.1f} s, "
        f"fit {whole.score(*test):.4f} in {end - middle:.1f} s"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-shards", type=int, default=8)
    parser.add_argument("--n-examples", type=int, default=500, help="of a shard")
    parser.add_argument("--n-workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure[0], arguments.measure[1:])
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = write(folder, arguments.n_shards, arguments.n_examples)
        show_bytes(paths)
        show_memory(paths)
        show_equality(paths, arguments.n_workers)
        show_partial_fit(paths)


if __name__ == "__main__":
    main()
