"""Run the largest sizes, one at a time: seconds, and peak memory per node, edge or other unit.

    python benchmarks/speed/ceilings.py [--only NAME] [--scale 0.1]

Every case runs in a separate process. Memory is the peak of this process minus its memory after imports, so it includes
the model that the user creates. Memory is printed per node, edge or other unit, as named in the row. ``--scale``
multiplies every size.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings

import _path  # noqa: F401  finds the support package
import numpy as np
from support.memory import peak_megabytes

from sklearn_crf import TRWCRF, Bilateral, DenseCRF, DenseExample, DRFClassifier, Example, M3NClassifier
from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import (
    ICM,
    TRWS,
    GraphCut,
    LoopyBP,
    MeanField,
    TreeInference,
    TRWMessagePassing,
)
from sklearn_crf.models import PairwiseModel


def attracting(graph, n_states, strength=0.5, dtype=np.float32):
    """Return a model with random unary scores and one Potts table."""
    unary = np.random.default_rng(0).normal(size=(graph.n_nodes, n_states)).astype(dtype)
    return PairwiseModel(graph, unary, [strength * np.eye(n_states, dtype=dtype)])


def grid(scale):
    side = round(1000 * scale**0.5)
    return lattice((side, side))


def on_grid(algorithm, task):
    def run(scale):
        model = attracting(grid(scale), 2)
        return getattr(algorithm, task)(model), model.graph.n_nodes * 2, "node and state"

    return run


def many_edges(scale):
    n_nodes, n_edges = int(1e6 * scale), int(1e7 * scale)
    ends = np.random.default_rng(0).integers(n_nodes, size=(n_edges + n_edges // 100, 2), dtype=np.int32)
    ends = np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1), axis=0)[:n_edges]
    model = attracting(Graph(n_nodes, ends), 2, 0.1)
    return LoopyBP(max_iter=2).marginals(model), 2 * len(ends) * 2, "direction of an edge and state"


def chain_of(n_nodes, n_states, task="marginals"):
    def run(scale):
        model = attracting(lattice((max(2, int(n_nodes * scale)),)), n_states)
        return getattr(TreeInference(), task)(model), model.graph.n_nodes * n_states, "node and state"

    return run


def many_states(scale):
    n_states = int(1000 * scale)
    model = attracting(lattice((20, 20)), n_states)
    return LoopyBP(max_iter=2).marginals(model), 2 * model.graph.n_edges * n_states, "direction of an edge and state"


def many_classes(scale):
    n_states = int(10_000 * scale)
    model = attracting(lattice((5,)), n_states)
    return TreeInference().marginals(model), n_states**2, "pair of classes"


def many_components(scale):
    n = int(1e6 * scale)
    edges = np.arange(2 * n, dtype=np.int32).reshape(-1, 2)
    return TreeInference().marginals(attracting(Graph(2 * n, edges), 2)), 2 * n * 2, "node and state"


def images(scale, n_features=1):
    side = round(1000 * scale**0.5)
    rng = np.random.default_rng(0)
    y = (np.indices((side, side)).sum(axis=0) // 50 % 2)[np.newaxis]
    X = rng.normal(size=(1, side, side, n_features)) + y[..., np.newaxis]
    return X, y


def fitted_on_image(make):
    def run(scale):
        X, y = images(scale)
        model = make().fit(X, y)
        return model.predict(X), y.size, "node"

    return run


def fitted_on_chain(scale):
    n = int(1e6 * scale)
    y = np.arange(n) // 10 % 3
    X = np.eye(3)[y] + np.random.default_rng(0).normal(size=(n, 3))
    return TRWCRF(max_iter=2).fit([X], [y]).predict([X]), n, "node"


def fitted_on_components(scale):
    n = int(1e6 * scale)
    y = np.repeat(np.arange(n) % 2, 2)
    X = [Example(y[:, np.newaxis] + np.random.default_rng(0).normal(size=(2 * n, 1)), np.arange(2 * n).reshape(-1, 2))]
    return TRWCRF(max_iter=2).fit(X, [y]).predict(X), 2 * n, "node"


def fitted_with_many_classes(scale):
    n_classes = int(10_000 * scale)
    y = np.arange(2 * n_classes) % n_classes
    X = np.random.default_rng(0).normal(size=(2 * n_classes, 5))
    model = TRWCRF(max_iter=1, pairwise="potts").fit([X], [y])
    return model.predict([X[:5]]), n_classes**2, "pair of classes"


def fitted_dense(scale):
    X, y = images(scale)
    examples = [DenseExample(np.concatenate([-X[0], X[0]], axis=-1).astype(np.float32), X[0])]
    model = DenseCRF((Bilateral(20.0, 2.0),), max_iter=1).fit(examples, list(y))
    return model.predict(examples), y.size, "node"


CASES = {
    "LoopyBP, 10^6 nodes": on_grid(LoopyBP(max_iter=2), "marginals"),
    "TRWMessagePassing, 10^6 nodes": on_grid(TRWMessagePassing(max_iter=2), "marginals"),
    "TRWS, 10^6 nodes": on_grid(TRWS(max_iter=2), "map"),
    "MeanField, 10^6 nodes": on_grid(MeanField(max_iter=2), "marginals"),
    "ICM, 10^6 nodes": on_grid(ICM(), "map"),
    "GraphCut, 10^6 nodes": on_grid(GraphCut(), "map"),
    "LoopyBP, 10^7 edges": many_edges,
    "LoopyBP, 1000 states, 400 nodes": many_states,
    "TreeInference, 1000 states, 10^4 nodes": chain_of(10_000, 1000),
    "TreeInference, 10^4 classes": many_classes,
    "TreeInference, chain of 10^6": chain_of(1_000_000, 3),
    "TreeInference, chain of 10^6, map": chain_of(1_000_000, 3, "map"),
    "TreeInference, 10^6 components": many_components,
    "TRWCRF, chain of 10^6": fitted_on_chain,
    "TRWCRF, 10^6 components": fitted_on_components,
    "TRWCRF, 10^4 classes": fitted_with_many_classes,
    "DRFClassifier by PL, 10^6 nodes": fitted_on_image(
        lambda: DRFClassifier(learning="pl", inference="icm", max_iter=2)
    ),
    "M3NClassifier, 10^6 nodes": fitted_on_image(lambda: M3NClassifier(inference="graph_cut", max_iter=2)),
    "DenseCRF, 10^6 nodes": fitted_dense,
}


def measured(name, scale):
    """Return the seconds of one case in this process, and the additional megabytes."""
    warnings.simplefilter("ignore")
    before = peak_megabytes()
    start = time.process_time()
    _, count, unit = CASES[name](scale)
    return time.process_time() - start, peak_megabytes() - before, count, unit


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="only run cases whose name contains this text")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measured(options.case, options.scale)))
        return
    print(f"{'case':42}{'seconds':>9}{'MB':>9}{'bytes':>9}  for each")
    failed = []
    for name in CASES:
        if options.only and options.only not in name:
            continue
        command = [sys.executable, __file__, "--case", name, "--scale", str(options.scale)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            failed.append(name)
            print(f"{name:42}{'failed':>9}  {done.stderr.strip().splitlines()[-1:]}", flush=True)
            continue
        seconds, megabytes, count, unit = json.loads(done.stdout)
        print(f"{name:42}{seconds:9.1f}{megabytes:9.0f}{megabytes * 2**20 / count:9.0f}  {unit}", flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
