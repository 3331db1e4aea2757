"""Training on shards: equal weights, bytes and time of an evaluation, memory from disk, and partial_fit beside fit.

    python benchmarks/scaling.py bytes memory bits partial_fit [--n-shards 8] [--n-workers 1 2 4]
    SKLEARN_CRF_DATA=folder python benchmarks/scaling.py engines more_than_memory --folder scratch
    python benchmarks/scaling.py overhead --n-workers 4

Data are chains of 40 nodes with 50 features and 5 classes, and images of 16 x 16 pixels, drawn at random; for
``engines`` CoNLL-2000 and 200 images of BSDS, and for ``more_than_memory`` copies of CoNLL-2000 with 10 GB of features,
which --folder must have room for. Clusters are Ray actors and dask processes on this machine, and are left out where
they are not installed. ``--result`` adds the figures of the parts that ran to a JSON file.
"""

import argparse
import pickle
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import _more_than_memory
import _scaling_engines
import numpy as np
from _memory import peak_megabytes
from _record import read_record, write_record
from sklearn.base import clone

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


def images(seed):
    """Noisy squares and the clean ones."""
    rng = np.random.default_rng(seed)
    clean = np.kron(rng.random((6, 4, 4)), np.ones((4, 4)))
    return (clean + 0.3 * rng.normal(size=clean.shape))[..., np.newaxis], clean


TREE_FIELDS = {
    "RegressionTreeField, mse": RegressionTreeField(max_depth=1, max_iter=6, random_state=0),
    "RegressionTreeField, pl": RegressionTreeField("pseudolikelihood", max_depth=1, max_iter=6, random_state=0),
    "RegressionTreeFieldClassifier": RegressionTreeFieldClassifier(max_depth=1, max_iter=6, random_state=0),
}


def of_tree_field(name, parts):
    return [(X, (3 * y).astype(int)) for X, y in parts] if "Classifier" in name else parts


def weights(fitted):
    if hasattr(fitted, "precisions_"):
        return np.concatenate([np.ravel(part) for part in (*fitted.precisions_, *fitted.weights_)])
    names = ("coef_", "intercept_", "edge_coef_") if hasattr(fitted, "coef_") else ("means_", "loadings_")
    return np.concatenate([np.ravel(getattr(fitted, name)) for name in names])


def rows(X, y):
    """Nodes by themselves, for mixtures."""
    return X.reshape(-1, X.shape[-1]), y.ravel()


def show_equality(paths, n_workers, engines):
    print("\nWeights equal to the last bit to those of the same shards in memory")
    figures = {}
    small = [tuple(part[:100] for part in load(path)) for path in paths]
    of_rows = [rows(*part) for part in small]
    in_memory = {name: weights(field.fit(Shards.from_arrays(small))) for name, field in ESTIMATORS.items()}
    in_memory |= {name: weights(mixture.fit(Shards.from_arrays(of_rows))) for name, mixture in MIXTURES.items()}
    squares = [images(seed) for seed in range(len(small))]
    for name, field in TREE_FIELDS.items():
        in_memory[name] = weights(clone(field).fit(Shards.from_arrays(of_tree_field(name, squares))))
    data = small, of_rows, squares
    figures["disk"] = report("from disk", in_memory, lambda parts: Shards(range(len(parts)), parts.__getitem__), *data)
    if "ray" in engines:
        import ray

        ray.init(num_cpus=max(n_workers), include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        figures["ray"] = report("ray", in_memory, partial(Shards.from_arrays, client="ray"), *data)
        ray.shutdown()
    for n in n_workers if "dask" in engines else ():
        from distributed import Client, LocalCluster

        options = {"n_workers": n, "threads_per_worker": 1, "dashboard_address": ":0"}
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            make = partial(Shards.from_arrays, client=client)
            figures[f"dask {n}"] = report(f"dask, {n} processes", in_memory, make, *data)
    return figures


def report(title, in_memory, make_shards, parts, of_rows, squares):
    print(title, flush=True)
    found = {}
    tasks = [(name, estimator, parts) for name, estimator in ESTIMATORS.items()]
    tasks += [(name, mixture, of_rows) for name, mixture in MIXTURES.items()]
    tasks += [(name, field, of_tree_field(name, squares)) for name, field in TREE_FIELDS.items()]
    for name, estimator, data in tasks:
        found[name] = np.array_equal(weights(clone(estimator).fit(make_shards(data))), in_memory[name])
        print(f"    {name:32s}", "equal" if found[name] else "DIFFERENT", flush=True)
    return found


def show_overheads(n_workers, engines):
    figures, n = {}, max(n_workers)
    if "dask" in engines:
        from distributed import Client, LocalCluster

        options = {"n_workers": n, "threads_per_worker": 1, "dashboard_address": ":0"}
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            figures["dask"] = show_overhead("dask", client, n)
    if "ray" in engines:
        import ray

        ray.init(num_cpus=n, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        figures["ray"] = show_overhead("ray", "ray", n)
        ray.shutdown()
    return figures | {"n_workers": n}


def same(shard, broadcast):
    return broadcast


def show_overhead(name, client, n_workers):
    """Time of a call that does nothing, one shard for each worker, with 10,000 weights out and back."""
    shards = Shards.from_arrays([([[0.0]], [0])] * n_workers, client)
    vector = np.zeros(10_000)
    seconds = []
    for _ in range(32):
        start = time.perf_counter()
        shards.map(same, vector)
        seconds.append(time.perf_counter() - start)
    found = round(1e3 * float(np.median(seconds[2:])), 1)
    print(f"{name}, {n_workers} workers: an empty evaluation takes {found} ms (median)", flush=True)
    return found


class Measured:
    """Shards in this process, with the sizes of what would go over the wire in the last evaluation."""

    def __init__(self, shards):
        self.shards = shards

    def map(self, function, broadcast):
        results = [function(shard, broadcast) for shard in self.shards]
        asked = broadcast[1] if isinstance(broadcast, tuple) else None
        if hasattr(asked, "coef"):
            Measured.sizes = sent(function, broadcast), sent(results), asked.coef.size
        elif getattr(getattr(asked, "function", None), "__name__", "") == "value_grad":
            Measured.sizes = sent(function, broadcast), sent(results), asked.arguments[0].size
        return results


def sent(*what):
    return len(pickle.dumps(what))


def show_bytes(paths):
    print("\nBytes of an evaluation for a worker with one shard, beside those of the weights and the gradient alone")
    part = tuple(values[:20] for values in load(paths[0]))
    figures = {}
    tasks = [(name, field, part) for name, field in ESTIMATORS.items()]
    tasks += [(name, field, of_tree_field(name, [images(0)])[0]) for name, field in TREE_FIELDS.items()]
    for name, field, data in tasks:
        clone(field).fit(Shards.from_arrays([data], client=Measured))
        out, back, n_coef = Measured.sizes
        figures[name] = {"out": out, "back": back, "weights_and_gradient": 2 * 8 * n_coef}
        is_within = out + back <= 2 * 2 * 8 * n_coef + 2000
        limit = "within" if is_within else "ABOVE"
        print(f"{name:30s} out {out:6d}, back {back:6d}; {limit} twice {2 * 8 * n_coef:6d} and 2000")
    return figures


def show_memory(paths):
    print("\nPeak of resident memory, of a process that loads nothing, one that holds all, one that trains from disk")
    figures = {}
    for mode in ("nothing", "memory", "disk"):
        command = [sys.executable, __file__, "--measure", mode, *map(str, paths)]
        figures[mode] = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        print(f"{mode:20s} {figures[mode]}")
    return figures


def measure(mode, paths):
    field = TRWCRF(edge_features="constant", max_iter=5)
    if mode == "memory":
        field.fit(Shards.from_arrays([load(path) for path in paths]))
    else:
        field.fit(Shards(paths, load if mode == "disk" else lambda path: ([[0.0], [1.0]], [0, 1])))
    print(f"{peak_megabytes():.0f} MB")


def show_partial_fit(paths):
    print("\npartial_fit, one pass over all shards but the last, beside fit: accuracy on the last, CPU seconds")
    parts = [load(path) for path in paths]
    rows = [(X.reshape(-1, X.shape[-1]), y.ravel()) for X, y in parts]
    figures = {name: _passes(name, field, parts) for name, field in ESTIMATORS.items() if hasattr(field, "partial_fit")}
    return figures | {"MultiConditionalMFA": _passes("MultiConditionalMFA", MultiConditionalMFA(n_init=1), rows)}


def _passes(name, field, parts):
    *parts, test = parts
    online, whole = clone(field).set_params(random_state=0), clone(field)
    start = time.process_time()
    for part in parts:
        online.partial_fit(*part, classes=range(N_CLASSES))
    middle = time.process_time()
    whole.fit(*map(np.concatenate, zip(*parts, strict=True)))
    end = time.process_time()
    scores, seconds = [online.score(*test), whole.score(*test)], [middle - start, end - middle]
    print(f"{name:20s} {scores[0]:.4f} in {seconds[0]:.1f} s, fit {scores[1]:.4f} in {seconds[1]:.1f} s")
    return {"accuracy": np.round(scores, 4).tolist(), "cpu_seconds": np.round(seconds, 1).tolist()}


def show_engines(folder, engines):
    print("\nThreads, dask processes and Ray actors on two cores: an evaluation, by the clock and by all processors")
    figures = {}
    for task in _scaling_engines.TASKS:
        for engine in engines:
            found = _scaling_engines.measure(task, engine, folder)
            figures[f"{task} {engine}"] = found
            print(f"{task:14s} {engine:10s} {found['evaluation_ms']:8.1f} ms, {found['evaluation_cpu_ms']:8.1f} ms CPU")
    return figures


def show_more_than_memory(folder):
    print("\nTraining on 10 GB of features in an address space of 2 GB")
    figures = _more_than_memory.show(Path(folder) / "copies", 10_000_000_000, 2_000_000_000)
    for name, value in figures.items():
        print(f"{name:32s} {value}")
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["bytes", "memory", "bits", "partial_fit"])
    parser.add_argument("--result", type=Path, help="JSON file that figures are added to")
    parser.add_argument("--folder", type=Path, default=Path("scratch"), help="of the data that are written")
    parser.add_argument("--engines", nargs="*", default=_scaling_engines.engines(), help="of threads, dask and ray")
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
        steps = {
            "bytes": partial(show_bytes, paths),
            "memory": partial(show_memory, paths),
            "bits": partial(show_equality, paths, arguments.n_workers, arguments.engines),
            "overhead": partial(show_overheads, arguments.n_workers, arguments.engines),
            "partial_fit": partial(show_partial_fit, paths),
            "engines": partial(show_engines, arguments.folder, arguments.engines),
            "more_than_memory": partial(show_more_than_memory, arguments.folder),
        }
        for part in arguments.parts:
            found = steps[part]()
            record = read_record(arguments.result, {})
            write_record(arguments.result, record | {part: record.get(part, {}) | found})


if __name__ == "__main__":
    main()
