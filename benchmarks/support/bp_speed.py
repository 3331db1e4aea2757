"""Speed of message passing on a binary grid and a regular graph (compared with libDAI), a large image, and chains.

``run()`` yields the rows that inference_speed.py prints. Peak memory is measured in a separate process (this file with
``--image THREADS``) and includes all memory of the process.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from itertools import pairwise

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf._threads import make_range_runner
from sklearn_crf.graphs import build_disjoint_union, lattice
from sklearn_crf.inference import LoopyBP, TreeInference
from sklearn_crf.inference._field import build_initial_messages, make_field
from sklearn_crf.inference.messages._schedules import checkerboard, sequential
from sklearn_crf.models import PairwiseModel
from support.libdai import run_libdai
from support.memory import peak_megabytes
from support.trw_families import random_regular

N_SENTENCES, N_STATES, BATCH = 8936, 22, 3000


def fastest(function, repetitions, clock=time.process_time):
    """Return the shortest time of a call in seconds, and its last result."""
    least = np.inf
    for _ in range(repetitions):
        result = None  # free the last result, as two results would increase the peak memory
        start = clock()
        result = function()
        least = min(least, clock() - start)
    return least, result


def binary_grid(side=50, seed=0):
    """Return a binary grid with all scores drawn from uniform(-1, 1)."""
    rng = np.random.default_rng(seed)
    graph = lattice((side, side))
    unary = rng.uniform(-1, 1, size=(graph.n_nodes, 2))
    tables = rng.uniform(-1, 1, size=(graph.n_edges, 2, 2))
    return PairwiseModel(graph, unary, tables, edge_type=np.arange(graph.n_edges))


def regular_graph_of_16_states(n_nodes=1000, seed=0):
    """Return a random 3-regular graph with a table for each edge, and all scores drawn from uniform(-1, 1)."""
    rng = np.random.default_rng(seed)
    graph = random_regular(n_nodes, 3, rng)
    tables = rng.uniform(-1, 1, size=(graph.n_edges, 16, 16))
    return PairwiseModel(graph, rng.uniform(-1, 1, size=(n_nodes, 16)), tables, edge_type=np.arange(graph.n_edges))


def to_tolerance(model, n_threads=1):
    """Return the marginals of loopy belief propagation with tolerance 1e-6."""
    return LoopyBP(tol=1e-6, schedule="sequential").marginals(model, n_threads=n_threads)


def sweeps_of(model, n_threads=1):
    """Return a function that makes one sweep."""
    field, _ = make_field(model, maximum=False)
    # With a tolerance below zero, converged messages are sent too.
    return sequential(model.graph, field, build_initial_messages(field), 0.0, -1.0, make_range_runner(n_threads))


def libdai_rows(name, model):
    """Return rows that compare belief propagation to 1e-6 of this package and of libDAI."""
    seconds, ours = fastest(lambda: to_tolerance(model), 20)
    sweep, _ = fastest(sweeps_of(model), 100)
    rows = [
        (f"BP, {name}: a sweep", f"{1e3 * sweep:.3f} ms", None, ""),
        ("  whole call to 1e-6", f"{1e3 * seconds:.2f} ms", None, f"{ours.n_iter} sweeps"),
    ]
    peer, problem = run_libdai(model, 1e-6, 1000)
    if peer is None:
        return [*rows, ("  libDAI", "", "skipped", problem)]
    peer_sweep = peer.seconds / peer.n_sweeps
    apart = np.abs(peer.unary - ours.unary).max()
    assert apart < 1e-5, f"marginals differ by {apart:.2g}"
    ratio, peer_ratio = peer.seconds / seconds, peer_sweep / sweep
    return [
        (*rows[0][:2], f"{1e3 * peer_sweep:.2f} ms", f"libDAI; {peer_ratio:.0f} times as fast"),
        (
            *rows[1][:2],
            f"{1e3 * peer.seconds:.1f} ms",
            f"{ratio:.0f} times; {ours.n_iter} and {peer.n_sweeps} sweeps; marginals agree to {apart:.0e}",
        ),
    ]


def image_job(n_threads, side=1000, n_states=8):
    """Return seconds of a sweep over a large image and of a call with one sweep, and peak memory in MB."""
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    model = PairwiseModel(
        lattice((side, side)),
        rng.uniform(-1, 1, size=(side * side, n_states)).astype(np.float32),
        rng.uniform(-1, 1, size=(1, n_states, n_states)),
    )
    model.graph.incidence, model.graph.colouring  # noqa: B018
    build = time.perf_counter() - start
    call, _ = fastest(lambda: LoopyBP(max_iter=1).marginals(model, n_threads=n_threads), 2, time.perf_counter)
    peak = peak_megabytes()
    field, _ = make_field(model, maximum=False)
    sweep = checkerboard(model.graph, field, build_initial_messages(field), 0.0, 0.0, make_range_runner(n_threads))
    seconds, _ = fastest(sweep, 20, time.perf_counter)
    return {"build": build, "sweep": seconds, "call": call, "peak": peak}


def image_rows():
    """Return rows for 1000x1000 pixels, 8 labels and one shared table in single precision, on one and two threads."""
    results = {}
    for n_threads in (1, 2, 1, 2):
        command = [sys.executable, __file__, "--image", str(n_threads)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        if n_threads not in results or found["sweep"] < results[n_threads]["sweep"]:
            results[n_threads] = found
    one, two = results[1], results[2]
    return [
        (
            "BP, 1000x1000 pixels, 8 labels: a sweep",
            f"{1e3 * one['sweep']:.0f} ms",
            None,
            f"2 threads {1e3 * two['sweep']:.0f} ms, {one['sweep'] / two['sweep']:.2f} times as fast",
        ),
        (
            "  whole call of one sweep",
            f"{1e3 * one['call']:.0f} ms",
            None,
            f"2 threads {1e3 * two['call']:.0f} ms; graph in {1e3 * one['build']:.0f} ms; peak {one['peak']:.0f} MB",
        ),
    ]


def chain_rows():
    """Return rows for marginals and best labels of as many chains as CoNLL-2000 has sentences, in mini-batches."""
    rng = np.random.default_rng(0)
    lengths = rng.poisson(23.7, size=N_SENTENCES).clip(1)
    bounds = np.searchsorted(np.cumsum(lengths), np.arange(0, lengths.sum() + BATCH, BATCH))
    table = rng.normal(size=(1, N_STATES, N_STATES))
    models = []
    for first, last in pairwise(bounds):
        if last > first:
            graph = build_disjoint_union([lattice((int(length),)) for length in lengths[first:last]])
            models.append(PairwiseModel(graph, rng.normal(size=(graph.n_nodes, N_STATES)), table))
    tree = TreeInference()
    for model in models:
        tree.map(model)
    sums, _ = fastest(lambda: [tree.marginals(model).log_z for model in models], 3)
    maxima, _ = fastest(lambda: [tree.map(model).score for model in models], 3)
    n_nodes = sum(model.graph.n_nodes for model in models)
    what = f"{N_SENTENCES} chains, {n_nodes} nodes, {N_STATES} states"
    return [
        ("TreeInference: marginals and statistics", f"{1e3 * sums:.0f} ms", None, what),
        ("  best labels", f"{1e3 * maxima:.0f} ms", None, ""),
    ]


def run():
    """Yield rows of (job, this package, peer, remark)."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    yield from libdai_rows("50x50 binary grid", binary_grid())
    yield from libdai_rows("3-regular graph of 1,000 nodes, 16 states", regular_graph_of_16_states())
    yield from image_rows()
    yield from chain_rows()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image", type=int, metavar="THREADS", help="only time the image on so many threads")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if options.image:
        print(json.dumps(image_job(options.image)))
    else:
        for row in run():
            print(*row, sep=" | ")
