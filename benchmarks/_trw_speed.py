"""Tree-reweighted message passing on a binary grid against libDAI's TRWBP: rows of inference_speed.py."""

import numpy as np
from _bp_speed import fastest
from _libdai import run_libdai

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import TRWMessagePassing
from sklearn_crf.models import PairwiseModel
from sklearn_crf.spanning_trees import uniform_edge_probabilities

DAMPING = 0.5


def ising_grid(side=50, seed=0):
    """Scores theta_s y_s and theta_st y_s y_t with y in {-1, 1}, all theta drawn from N(0, 1)."""
    rng = np.random.default_rng(seed)
    graph, spins = lattice((side, side)), np.array([-1.0, 1.0])
    unary = rng.normal(size=(graph.n_nodes, 1)) * spins
    return PairwiseModel(graph, unary, np.outer(spins, spins)[None], edge_weight=rng.normal(size=graph.n_edges))


def run():
    """Rows of (job, this package, peer, remark)."""
    model = ising_grid()
    algorithm = TRWMessagePassing("uniform", tol=1e-6, damping=DAMPING, max_iter=2000)
    algorithm.marginals(model)  # a graph's edge probabilities are checked once
    seconds, ours = fastest(lambda: algorithm.marginals(model), 20)
    row = f"TRW, 50x50 Ising grid N(0, 1), damping {DAMPING}, to 1e-6", f"{1e3 * seconds:.1f} ms"
    probability = uniform_edge_probabilities(model.graph)[0]
    peer, problem = run_libdai(model, 1e-6, 2000, reweighted=(DAMPING, probability))
    if peer is None:
        return [(*row, "skipped", problem)]
    apart = np.abs(peer.unary - ours.unary).max()
    # libDAI compares beliefs after damped steps: it stops a little earlier, and farther from the fixed point.
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


if __name__ == "__main__":
    for line in run():
        print(*line, sep=" | ")
