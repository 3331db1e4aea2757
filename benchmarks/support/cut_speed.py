"""Speed of minimum cuts compared with PyMaxflow, and of expansion moves compared with gco-wrapper.

``run()`` yields the rows that inference_speed.py prints. Packages run alternately in separate processes (this file
called with ``--job``). A time is the minimum of several repetitions, summed over the instances of a row. It covers all
steps from arrays of costs and weights to labels. Peak memory includes the whole process, with imports and the arrays
of the problem.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from functools import cache

import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_sample_image
from sklearn.neighbors import kneighbors_graph

from sklearn_crf.graphs import Graph, from_adjacency, lattice
from sklearn_crf.inference import AlphaExpansion, GraphCut
from sklearn_crf.models import PairwiseModel
from support.memory import peak_megabytes

ROUNDS, REPETITIONS = 2, 2
SIDE = 1024
# (kind, coupling). With coupling above 2, all pixels of the noise get one label.
BINARY = [("noise", 0.5), ("noise", 1.0), ("noise", 2.0)]
BINARY += [(kind, coupling) for kind in ("field", "photograph") for coupling in (1.0, 5.0)]
# (kind, side of the grid or nodes of the graph, states, coupling)
MULTIPLE = [
    ("noise", 256, 5, 0.3),
    ("Potts", 256, 5, 0.1),
    ("Potts", 512, 8, 0.5),
    ("contrast", 256, 5, 0.1),
    ("contrast", 384, 8, 0.5),
    ("contrast", 512, 8, 2.0),
    ("neighbours", 50_000, 5, 0.3),
]
# Scores of problems with several states are integers, as gco only supports integers.
UNIT = 1000


# Problems


@cache
def photograph(side):
    """Return a photograph of scikit-learn with (side, side) pixels, extended by mirror images."""
    image = load_sample_image("china.jpg") / 255.0
    image = np.concatenate((image, image[::-1], image))
    return np.concatenate((image, image[:, ::-1]), axis=1)[:side, :side]


def generated(side, rng):
    """Return a noisy image of two colours in regions of a smooth random field."""
    smooth = gaussian_filter(rng.normal(size=(side, side)), 12)
    return (smooth[..., None] > 0) + 0.15 * rng.normal(size=(side, side, 3))


def contrast(image):
    """Return weights exp(-d^2 / (2 mean d^2)) of edges to the right and down, with differences of colours d."""
    squares = [(np.diff(image, axis=axis) ** 2).sum(axis=-1) for axis in (1, 0)]
    mean = np.concatenate([part.ravel() for part in squares]).mean()
    return [np.exp(-part / (2 * mean)) for part in squares]


def binary_problem(kind, coupling, seed, side=SIDE):
    """Return costs of state 1 by pixel, and costs of unequal states by edge, to the right and down."""
    rng = np.random.default_rng(seed)
    if kind == "noise":
        right, down = np.full((side, side - 1), coupling), np.full((side - 1, side), coupling)
        return rng.normal(size=(side, side)), right, down
    image = photograph(side) if kind == "photograph" else generated(side, rng)
    grey = image.mean(axis=-1)
    cost = (grey - np.median(grey)) / grey.std() + rng.normal(size=grey.shape)
    right, down = contrast(image)
    return cost, coupling * right, coupling * down


def multiple_problem(kind, size, n_states, coupling, seed):
    """Return the shape of the grid or None, edges, integer costs (N, K) and integer weights (E,)."""
    rng = np.random.default_rng(seed)
    if kind == "neighbours":
        adjacency = kneighbors_graph(rng.random((size, 2)), 6)
        graph = from_adjacency(adjacency.maximum(adjacency.T))
        cost, weight = rng.random((size, n_states)), rng.random(graph.n_edges)
    elif kind == "noise":
        graph = lattice((size, size))
        cost, weight = rng.random((size * size, n_states)), np.ones(graph.n_edges)
    else:
        graph = lattice((size, size))
        image = photograph(size) + 0.1 * rng.normal(size=(size, size, 3))
        grey = image.mean(axis=-1)
        centres = np.quantile(grey, (np.arange(n_states) + 0.5) / n_states)
        squares = (grey[..., None] - centres) ** 2
        cost = (squares / squares.mean()).reshape(-1, n_states)
        weight = np.ones(graph.n_edges)
        if kind == "contrast":
            weight = np.concatenate([part.ravel() for part in contrast(image)])
    integers = [np.floor(UNIT * values).astype(np.int32) for values in (cost, coupling * weight)]
    return graph.shape, graph.edges, *integers


def binary_energy(cost, right, down, labels):
    """Return the sum of costs of a labeling, (H, W)."""
    apart = [labels[:, 1:] != labels[:, :-1], labels[1:] != labels[:-1]]
    return cost[labels == 1].sum() + right[apart[0]].sum() + down[apart[1]].sum()


def multiple_energy(edges, cost, weight, labels):
    """Return the sum of costs of a labeling, (N,)."""
    apart = labels[edges[:, 0]] != labels[edges[:, 1]]
    return int(cost[np.arange(len(cost)), labels].sum(dtype=np.int64) + weight[apart].sum(dtype=np.int64))


# Solvers of this package and of peers, from the arrays of a problem to labels


def cut_ours(cost, right, down, dtype, n_threads):
    unary = np.zeros((cost.size, 2), dtype=dtype)
    unary[:, 1] = -cost.ravel()
    weight = np.concatenate((right.ravel(), down.ravel())).astype(dtype)
    model = PairwiseModel(lattice(cost.shape), unary, [[[0, -1], [-1, 0]]], edge_weight=weight)
    return GraphCut().map(model, n_threads=n_threads).labels.reshape(cost.shape)


def cut_pymaxflow(cost, right, down):
    import maxflow

    network = maxflow.Graph[float](cost.size, 2 * cost.size)
    nodes = network.add_grid_nodes(cost.shape)
    right, down = np.pad(right, ((0, 0), (0, 1))), np.pad(down, ((0, 1), (0, 0)))
    network.add_grid_edges(nodes, right, np.array([[0, 0, 0], [0, 0, 1], [0, 0, 0]]), symmetric=True)
    network.add_grid_edges(nodes, down, np.array([[0, 0, 0], [0, 0, 0], [0, 1, 0]]), symmetric=True)
    network.add_grid_tedges(nodes, np.maximum(-cost, 0), np.maximum(cost, 0))
    network.maxflow()
    return 1 - network.get_grid_segments(nodes)


def expand_ours(shape, edges, cost, weight, dtype, n_threads):
    n_nodes, n_states = cost.shape
    graph = Graph(n_nodes, edges) if shape is None else lattice(shape)
    table = np.eye(n_states) - 1
    model = PairwiseModel(graph, -cost.astype(dtype), [table], edge_weight=weight.astype(dtype))
    return AlphaExpansion().map(model, n_threads=n_threads).labels


def expand_gco(_, edges, cost, weight):
    import gco

    table = 1 - np.eye(cost.shape[1], dtype=np.int32)
    # With factor 1, gco uses the integers without scaling.
    return gco.cut_general_graph(edges, weight, cost, table, down_weight_factor=1)


def job(task, problem, seeds, options=None):
    """Return processor and elapsed seconds, energies, and the peak memory of the process in MB."""
    make, solvers, energy = {
        "cut": (binary_problem, (cut_ours, cut_pymaxflow), binary_energy),
        "expand": (multiple_problem, (expand_ours, expand_gco), lambda _, *values: multiple_energy(*values)),
    }[task]
    found = {"seconds": 0.0, "elapsed": 0.0, "energy": []}
    # The peer has no options.
    solve = solvers[options is None]
    for seed in seeds:
        arrays = make(*problem, seed)
        processor, elapsed, labels = timed(solve, *arrays, *(options or ()))
        found["seconds"] += processor
        found["elapsed"] += elapsed
        found["energy"].append(float(energy(*arrays, labels)))
    return {**found, "peak": peak_megabytes()}


def timed(function, *arguments):
    """Return the shortest processor and elapsed seconds, and the result."""
    least = np.full(2, np.inf)
    for _ in range(REPETITIONS):
        result = None  # free the last result, as two results would increase the peak memory
        start = np.array([time.process_time(), time.perf_counter()])
        result = function(*arguments)
        least = np.minimum(least, np.array([time.process_time(), time.perf_counter()]) - start)
    return *least.tolist(), result


# Rows


def measure(variants):
    """Return the fastest result of :func:`job` for each of several lists of arguments, which are run alternately."""
    best = [None] * len(variants)
    for _ in range(ROUNDS):
        for k, arguments in enumerate(variants):
            command = [sys.executable, __file__, "--job", json.dumps(arguments)]
            found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            if best[k] is None or found["seconds"] < best[k]["seconds"]:
                best[k] = found
    return best


def compared(ours, peer):
    return (
        f"{peer['seconds'] / ours['seconds']:.2f} times as fast; peak {ours['peak']:.0f} MB, peer {peer['peak']:.0f} MB"
    )


def cut_rows(problems=BINARY, seeds=(0, 1)):
    """Yield rows that compare binary grids in both precisions with PyMaxflow. Energies must be equal."""
    for kind, coupling in problems:
        what = ["cut", (kind, coupling), seeds]
        double, single, peer = measure([[*what, ("float64", 1)], [*what, ("float32", 1)], what])
        for name, ours, close in (("float64", double, 1e-9), ("float32", single, 1e-5)):
            np.testing.assert_allclose(ours["energy"], peer["energy"], rtol=close)
            weights = "Potts" if kind == "noise" else "contrast"
            title = f"GraphCut, {SIDE}x{SIDE}, {kind}, {weights} {coupling:g}, {name}"
            yield title, f"{ours['seconds']:.2f} s", f"{peer['seconds']:.2f} s", compared(ours, peer)


def expansion_rows(problems=MULTIPLE, seeds=(0, 1)):
    """Yield rows that compare graphs with several states with gco. Energies may be at most 0.1 % higher."""
    for problem in problems:
        kind, size, n_states, coupling = problem
        what = ["expand", problem, seeds]
        one, two, peer = measure([[*what, ("float64", 1)], [*what, ("float64", 2)], what])
        apart = np.divide(one["energy"], peer["energy"]) - 1
        assert np.all(apart <= 1e-3), f"energies higher than gco's by {apart}"
        assert one["energy"] == two["energy"], "the number of threads must not matter"
        where = f"{size} nodes" if kind == "neighbours" else f"{size}x{size}"
        remark = (
            f"{compared(one, peer)}; energy {100 * apart.min():+.3f} to {100 * apart.max():+.3f} %; elapsed "
            f"{one['elapsed']:.2f} s, on 2 threads {two['elapsed']:.2f} s"
        )
        title = f"AlphaExpansion, {where}, {n_states} labels, {kind} {coupling:g}"
        yield title, f"{one['seconds']:.2f} s", f"{peer['seconds']:.2f} s", remark


def run():
    """Yield rows of (job, this package, peer, remark)."""
    for what, package, make in (("GraphCut", "maxflow", cut_rows), ("AlphaExpansion", "gco", expansion_rows)):
        if importlib.util.find_spec(package):
            yield from make()
        else:
            yield what, None, "skipped", f"the module {package} is not installed"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", metavar="JSON", help="only one side of one problem: arguments of job()")
    options = parser.parse_args()
    if options.job:
        print(json.dumps(job(*json.loads(options.job))))
    else:
        for row in run():
            print(*row, sep=" | ")
