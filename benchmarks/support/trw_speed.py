"""Speed of the tree-reweighted bound on binary grids: messages compared with libDAI's TRWBP, and minimisation.

    python benchmarks/peers/inference_speed.py

``run()`` yields the rows that inference_speed.py prints.
"""

import time

import numpy as np

from sklearn_crf.graphs import compute_uniform_edge_probabilities, lattice
from sklearn_crf.inference import TightenBound, TRWMessagePassing
from sklearn_crf.models import PairwiseModel
from support.bp_speed import fastest
from support.libdai import run_libdai

DAMPING = 0.5


def ising_grid(side=50, seed=0):
    """Return a grid with scores theta_s y_s and theta_st y_s y_t, y in {-1, 1}, and all theta drawn from N(0, 1)."""
    rng = np.random.default_rng(seed)
    graph, spins = lattice((side, side)), np.array([-1.0, 1.0])
    unary = rng.normal(size=(graph.n_nodes, 1)) * spins
    return PairwiseModel(graph, unary, np.outer(spins, spins)[None], edge_weight=rng.normal(size=graph.n_edges))


def peer_rows():
    """Return rows that compare this package with libDAI on a 50x50 grid."""
    model = ising_grid()
    algorithm = TRWMessagePassing("uniform", tol=1e-6, damping=DAMPING, max_iter=2000)
    algorithm.marginals(model)  # edge probabilities of a graph are checked in the first call only
    seconds, ours = fastest(lambda: algorithm.marginals(model), 20)
    row = f"TRW, 50x50 Ising grid N(0, 1), damping {DAMPING}, to 1e-6", f"{1e3 * seconds:.1f} ms"
    probability = compute_uniform_edge_probabilities(model.graph)[0]
    peer, problem = run_libdai(model, 1e-6, 2000, reweighted=(DAMPING, probability))
    if peer is None:
        return [(*row, "skipped", problem)]
    apart = np.abs(peer.unary - ours.unary).max()
    # libDAI compares beliefs after damped steps, so it stops a little earlier, farther from the fixed point.
    assert apart < 1e-4, f"marginals differ by {apart:.2g}"
    per_sweep = peer.seconds / peer.n_sweeps * ours.n_iter / seconds
    return [
        (*row, f"{1e3 * peer.seconds:.0f} ms", f"libDAI's TRWBP; {peer.seconds / seconds:.0f} times as fast"),
        (
            "  a sweep",
            f"{1e3 * seconds / ours.n_iter:.3f} ms",
            f"{1e3 * peer.seconds / peer.n_sweeps:.2f} ms",
            f"{ours.n_iter} and {peer.n_sweeps} sweeps, {per_sweep:.0f} times as fast; marginals agree to {apart:.0e}",
        ),
    ]


def large_rows(sides=(128, 256, 512)):
    """Return rows for grids of increasing size, tightened until the marginals of all snakes agree to 1e-3."""
    rows = []
    for side in sides:
        model = ising_grid(side)
        algorithm = TightenBound("snakes", start_sweeps=1000, tol=1e-3)
        start, processor = time.perf_counter(), time.process_time()
        found = algorithm.marginals(model, n_threads=2)
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
        assert found.converged
        remark = (
            f"2 threads; processor time {processor:.1f} s, {1e6 * processor / side**2:.1f} us a node; "
            f"{found.n_iter} iterations from messages; trees differ by {found.state.disagreement:.0e}"
        )
        rows.append((f"TightenBound, {side}x{side} Ising grid N(0, 1) to 1e-3", f"{seconds:.1f} s", None, remark))
    return rows


def run():
    """Yield rows of (job, this package, peer, remark)."""
    yield from peer_rows()
    yield from large_rows()


if __name__ == "__main__":
    for line in run():
        print(*line, sep=" | ")
