"""Training on shards: equal weights, bytes and time of an evaluation, memory, and partial_fit compared with fit.

    python benchmarks/speed/scaling.py bytes memory bits partial_fit [--n-shards 8] [--n-workers 1 2 4]
    SKLEARN_CRF_DATA=folder python benchmarks/speed/scaling.py engines work more_than_memory --folder scratch
    python benchmarks/speed/scaling.py overhead calls --n-workers 4

Data are random chains of 40 nodes with 50 features and 5 classes. ``bits`` and ``bytes`` use small grids, rows and
images. ``engines`` uses CoNLL-2000 and 200 images of BSDS. ``more_than_memory`` uses copies of CoNLL-2000 with 10 GB of
features, for which --folder must have enough space. Clusters are Ray actors and dask processes on this machine, and are
omitted if Ray or dask is not installed. ``--result`` adds the results of the executed parts to a JSON file.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from sklearn.base import clone
from support import more_than_memory, scaling_cost, scaling_engines, scaling_ways
from support.memory import peak_megabytes
from support.record import read_record, write_record

from sklearn_crf import TRWCRF, DRFClassifier, M3NClassifier, MultiConditionalMFA, Shards

N_NODES, N_FEATURES, N_CLASSES = 40, 50, 5
ONLINE = {
    "TRWCRF": TRWCRF(edge_features="constant", max_iter=20),
    "DRFClassifier, pma": DRFClassifier(edge_features="constant", max_iter=20),
    "DRFClassifier, pl": DRFClassifier(edge_features="constant", learning="pl", max_iter=20),
    "M3NClassifier": M3NClassifier(edge_features="constant", max_iter=10),
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


def show_equality(n_workers, engines, names):
    print("\nWeights equal to the last bit to those of the same eight shards in memory")
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: scaling_ways.write(folder, name) for name in names}
        in_memory = {name: fitted(name, Shards.from_arrays(map(scaling_ways.load, own))) for name, own in paths.items()}
        figures["disk, an eighth in memory"] = compared("from disk", in_memory, paths, None)
        if "ray" in engines:
            with scaling_engines.ray_of(max(n_workers)):
                figures["ray"] = compared("Ray", in_memory, paths, "ray")
        for n in n_workers if "dask" in engines else ():
            from distributed import Client, LocalCluster

            options = {"n_workers": n, "threads_per_worker": 1, "dashboard_address": ":0"}
            with LocalCluster(**options) as cluster, Client(cluster) as client:
                figures[f"dask {n}"] = compared(f"dask, {n} processes", in_memory, paths, client)
    return figures


def fitted(name, shards):
    return scaling_ways.weights(clone(scaling_ways.WAYS[name]).fit(shards))


def compared(title, in_memory, paths, client):
    print(title, flush=True)
    found = {}
    for name, expected in in_memory.items():
        found[name] = np.array_equal(fitted(name, Shards(paths[name], scaling_ways.load, client)), expected)
        print(f"    {name:48s}", "equal" if found[name] else "DIFFERENT", flush=True)
    return found


def show_overheads(n_workers, engines):
    figures, n = {}, max(n_workers)
    if "dask" in engines:
        from distributed import Client, LocalCluster

        options = {"n_workers": n, "threads_per_worker": 1, "dashboard_address": ":0"}
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            figures["dask"] = show_overhead("dask", client, n)
    if "ray" in engines:
        with scaling_engines.ray_of(n):
            figures["ray"] = show_overhead("ray", "ray", n)
    return figures | {"n_workers": n}


def same(shard, broadcast):
    return broadcast


def show_overhead(name, client, n_workers):
    """Print the time of a call that does nothing: one shard per worker, with 10,000 weights sent out and back."""
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


def show_bytes(names):
    print("\nBytes of an evaluation for each of two workers, as dask sends them, beside those of weights and gradient")
    figures = {}
    for name in names:
        for n_shards in (2, 8):
            out, back, n_bytes = scaling_ways.bytes_of(name, n_shards, 2)
            kind = f"{name}, {n_shards // 2} shards a worker"
            figures[kind] = {"out": out, "back": back, "weights_and_gradient": n_bytes}
            limit = "within" if out + back <= 2 * n_bytes + 2000 else "ABOVE"
            print(f"{kind:68s} out {out:6d}, back {back:6d}; {limit} twice {n_bytes:6d} and 2000", flush=True)
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
    figures = {name: _passes(name, field, parts) for name, field in ONLINE.items()}
    return figures | {
        "MultiConditionalMFA": _passes(
            "MultiConditionalMFA", MultiConditionalMFA(2, noise="tied", alpha=0.01, n_init=1), rows
        )
    }


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
    folder.mkdir(parents=True, exist_ok=True)
    for task in scaling_engines.TASKS:
        for engine in engines:
            found = scaling_engines.measure(task, engine, folder)
            figures[f"{task} {engine}"] = found
            print(f"{task:14s} {engine:10s} {found['evaluation_ms']:8.1f} ms, {found['evaluation_cpu_ms']:8.1f} ms CPU")
    return figures


def show_work(folder):
    print("\nWork of an evaluation: milliseconds of a processor for each shard, bytes out and back for a worker")
    figures = {}
    for name, (field, data) in scaling_cost.tasks(folder).items():
        figures[name] = found = scaling_cost.work(field, data)
        sizes = f"{found['bytes_out']:10d} bytes out, {found['bytes_back']:10d} back"
        print(f"{name:36s} {found['ms_of_a_shard']:8.2f} ms + {found['ms_besides']:6.2f} ms, {sizes}", flush=True)
    return figures


def show_calls():
    print("\nCalls of dask processes without work")
    found = scaling_cost.calls()
    for record in found["records"]:
        print(f"{record['n_workers']} workers, {record['bytes_of_a_worker']:9d} bytes each: {record['ms']:8.2f} ms")
    print({name: value for name, value in found.items() if name != "records"}, flush=True)
    return found


def show_more_than_memory(folder):
    print("\nTraining on 10 GB of features in an address space of 2 GB")
    figures = more_than_memory.show(Path(folder) / "copies", 10_000_000_000, 2_000_000_000)
    for name, value in figures.items():
        print(f"{name:32s} {value}")
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["bytes", "memory", "bits", "partial_fit"])
    parser.add_argument("--result", type=Path, help="JSON file to which results are added")
    parser.add_argument("--folder", type=Path, default=Path("scratch"), help="folder for generated data")
    parser.add_argument(
        "--engines", nargs="*", default=scaling_engines.engines(), help="engines to compare: threads, dask, ray"
    )
    parser.add_argument("--n-shards", type=int, default=8)
    parser.add_argument("--n-examples", type=int, default=500, help="number of examples per shard")
    parser.add_argument("--n-workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument(
        "--ways",
        nargs="*",
        default=list(scaling_ways.WAYS),
        help="ways of training for which weights and bytes are compared",
    )
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure[0], arguments.measure[1:])
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = write(folder, arguments.n_shards, arguments.n_examples)
        steps = {
            "bytes": partial(show_bytes, arguments.ways),
            "memory": partial(show_memory, paths),
            "bits": partial(show_equality, arguments.n_workers, arguments.engines, arguments.ways),
            "overhead": partial(show_overheads, arguments.n_workers, arguments.engines),
            "partial_fit": partial(show_partial_fit, paths),
            "work": partial(show_work, arguments.folder),
            "calls": show_calls,
            "engines": partial(show_engines, arguments.folder, arguments.engines),
            "more_than_memory": partial(show_more_than_memory, arguments.folder),
        }
        for part in arguments.parts:
            found = steps[part]()
            record = read_record(arguments.result, {})
            write_record(arguments.result, record | {part: record.get(part, {}) | found})


if __name__ == "__main__":
    main()
