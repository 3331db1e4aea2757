"""Inference for ``peers.py``: minimum cuts, expansion moves, belief propagation and proofs of optimal labelings."""

import tempfile
from importlib import import_module

import numpy as np

from support.libdai import compiled_driver, run_libdai
from support.peer_timing import timed

# Minimum cuts of volumes


# Penalties of unequal neighbours, by connectivity: 1 has 6 neighbours, 3 has 26 neighbours.
COUPLING = {1: 400.0, 3: 100.0}


def volume(size):
    rng = np.random.default_rng(0)
    return (1000 * rng.normal(size=(size, size, size))).round()


def our_cut(connectivity):
    def run(size, n_jobs):
        from sklearn_crf.graphs import lattice
        from sklearn_crf.inference import GraphCut
        from sklearn_crf.models import PairwiseModel

        cost, coupling = volume(size), COUPLING[connectivity]

        def solve():
            unary = np.stack((np.zeros(cost.size), -cost.ravel()), axis=1)
            model = PairwiseModel(lattice(cost.shape, connectivity), unary, coupling * np.eye(2)[None])
            return GraphCut().map(model, n_threads=n_jobs)

        seconds, found = timed(solve, 2)
        labels = found.labels.reshape(cost.shape)
        return {"map": seconds}, {"energy": energy(cost, connectivity, labels)}

    return run


def maxflow_cut(connectivity):
    def run(size, n_jobs):
        import maxflow

        cost, coupling = volume(size), COUPLING[connectivity]
        # Of two opposite neighbours only one is listed, as each edge is added once, with both directions.
        structure = np.zeros((3, 3, 3))
        for offset in offsets(connectivity):
            structure[tuple(offset + 1)] = 1

        def solve():
            graph = maxflow.Graph[float](cost.size, int(structure.sum()) * cost.size)
            nodes = graph.add_grid_nodes(cost.shape)
            graph.add_grid_edges(nodes, coupling, structure, symmetric=True)
            graph.add_grid_tedges(nodes, np.maximum(cost, 0), np.maximum(-cost, 0))
            graph.maxflow()
            return graph.get_grid_segments(nodes)

        # Whether True of maxflow is state 1 does not affect the time. Take the reading with the lower energy.
        seconds, found = timed(solve, 2)
        readings = found, ~found
        return {"map": seconds}, {"energy": min(energy(cost, connectivity, labels.astype(int)) for labels in readings)}

    return run


def offsets(connectivity):
    from sklearn_crf.graphs import lattice_offsets

    return lattice_offsets(3, connectivity)


def energy(cost, connectivity, labels):
    n_cut = 0
    for offset in offsets(connectivity):
        tail = tuple(
            slice(max(-step, 0), length - max(step, 0)) for step, length in zip(offset, cost.shape, strict=True)
        )
        head = tuple(
            slice(max(step, 0), length + min(step, 0)) for step, length in zip(offset, cost.shape, strict=True)
        )
        n_cut += np.count_nonzero(labels[tail] != labels[head])
    return float(cost[labels == 1].sum() + COUPLING[connectivity] * n_cut)


# Cuts of images, and expansion moves: the problems of inference_speed.py


def on_same_arrays(make, our_solver, their_solver, energy_of):
    """Return the runs of both packages, on problems that ``make`` returns for a size."""

    def side(solve):
        def run(size, n_jobs):
            arrays = make(size)
            seconds, labels = timed(lambda: solve(arrays, n_jobs), 2)
            return {"map": seconds}, {"energy": float(energy_of(arrays, labels))}

        return run

    return side(our_solver), side(their_solver)


def image_cut(kind, coupling):
    """Return an entry of the table of tasks, for minimum cuts of images."""
    ours, theirs = on_same_arrays(
        lambda size: _cut_speed().binary_problem(kind, coupling, 0, size),
        lambda arrays, n_jobs: _cut_speed().cut_ours(*arrays, "float64", n_jobs),
        lambda arrays, n_jobs: _cut_speed().cut_pymaxflow(*arrays),
        lambda arrays, labels: _cut_speed().binary_energy(*arrays, labels),
    )
    return ours, (1024,), {"maxflow": theirs}


def expansion(kind, size, n_states, coupling):
    """Return an entry of the table of tasks, for expansion moves."""
    ours, theirs = on_same_arrays(
        lambda size: _cut_speed().multiple_problem(kind, size, n_states, coupling, 0),
        lambda arrays, n_jobs: _cut_speed().expand_ours(*arrays, "float64", n_jobs),
        lambda arrays, n_jobs: _cut_speed().expand_gco(*arrays),
        lambda arrays, labels: _cut_speed().multiple_energy(*arrays[1:], labels),
    )
    return ours, (size,), {"gco": theirs}


def _cut_speed():
    """Return the module ``cut_speed``, imported late as some tasks measure the time of imports."""
    return import_module("support.cut_speed")


# Belief propagation


def propagation(make, size):
    """Return an entry for belief propagation to 1e-6 and for one sweep. ``make`` names a function of ``bp_speed``."""

    def ours(size, n_jobs):
        from support import bp_speed

        model = getattr(bp_speed, make)(size)
        whole, found = timed(lambda: bp_speed.to_tolerance(model, n_jobs), 3, at_least=0.2)
        one, _ = timed(bp_speed.sweeps_of(model, n_jobs), 20, at_least=0.2)
        return {"to 1e-6": whole, "sweep": one}, {"log Z": found.log_z}

    def theirs(size, n_jobs):
        from support import bp_speed

        found, problem = run_libdai(getattr(bp_speed, make)(size), 1e-6, 1000)
        if found is None:
            raise RuntimeError(problem)
        sweep = found.seconds / found.n_sweeps
        return {"to 1e-6": (found.seconds,) * 2, "sweep": (sweep,) * 2}, {"log Z": found.log_z}

    return ours, (size,), {"libdai": theirs}


def has_libdai():
    with tempfile.TemporaryDirectory() as folder:
        return compiled_driver(folder)[0] is not None


# Proofs

# Time limit of toulbar2 for a proof, in seconds
LIMIT = 20


def proof(size):
    """Return a binary grid with random scores of nodes and edges."""
    from sklearn_crf.graphs import lattice
    from support.ising import ising

    return ising(lattice((size, size)), np.random.default_rng(0))


def our_proof(size, n_jobs):
    from sklearn_crf.inference import AutoMap

    model = proof(size)
    seconds, found = timed(lambda: AutoMap().map(model, n_threads=n_jobs), 3)
    return {"map": seconds}, {"score": found.score, "proven": int(found.certified)}


def toulbar2_proof(size, n_jobs):
    from sklearn_crf.models import score
    from support.toulbar2 import solve

    model = proof(size)
    labels, is_proven, seconds = solve(model, LIMIT)
    value = float("nan") if labels is None else score(model, labels)
    return {"map": (seconds, seconds)}, {"score": value, "proven": int(is_proven)}
