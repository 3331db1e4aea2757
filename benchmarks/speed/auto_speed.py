"""Time the automatic choice of an algorithm against a direct call of the chosen algorithm.

    python benchmarks/speed/auto_speed.py [--repeats 15] [--kinds "short chain"]

The best algorithm for these models is known without a search: chains, trees, grids of two attracting states, and graphs
that are too large for more than a few sweeps or moves. Both calls run alternately, and the shortest processor time of
each counts; calls on small models are repeated until they take some milliseconds. For each model, the script prints the
milliseconds of both calls, by how many per cent the automatic choice is slower, and the chosen algorithm.
"""

import argparse
import time
import warnings

import _path  # noqa: F401  finds the support package
import numpy as np
from support.auto_kinds import potts, tables, tree, truncated

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import (
    AlphaExpansion,
    AutoMap,
    AutoMarginals,
    GraphCut,
    JunctionTree,
    LoopyBP,
    TreeInference,
)

LEAST_SECONDS = 0.02


def problems():
    """Yield name, model, task and the algorithm for the task."""
    rng = np.random.default_rng(0)
    chains = {"short chain": tables(lattice((10,)), rng, 3), "chain": tables(lattice((1000,)), rng, 8)}
    chains |= {"long chain": potts(lattice((200_000,)), rng, 4, 1.0), "tree": tables(tree(rng, 300), rng, 5)}
    for name, model in chains.items():
        yield name, model, "map", TreeInference()
        yield name, model, "marginals", TreeInference()
    yield "ladder", tables(lattice((2, 60)), rng, 6), "map", JunctionTree()
    yield "ladder", tables(lattice((2, 60)), rng, 6), "marginals", JunctionTree()
    for side in (20, 100, 500):
        yield f"submodular {side}", potts(lattice((side, side)), rng, 2, 0.6), "map", GraphCut()
    for side in (50, 100, 500):
        model = potts(lattice((side, side)), rng, 4, 0.4)
        yield f"large grid {side}", model, "marginals", LoopyBP(max_iter=100, tol=1e-4)
    model = potts(lattice((700, 700)), rng, 5, 0.6)
    yield "large grid 700", model, "map", AlphaExpansion(max_iter=100, nonsubmodular="truncate")
    model = truncated(lattice((250, 250)), rng, 16)
    yield "large truncated 250", model, "map", AlphaExpansion(max_iter=100, nonsubmodular="truncate")


def least_seconds(calls, repeats):
    """Return the shortest time of each call in seconds; the calls alternate."""
    least, counts = [np.inf] * len(calls), [1] * len(calls)
    for _ in range(repeats):
        for k, call in enumerate(calls):
            start = time.process_time()
            for _ in range(counts[k]):
                call()
            took = time.process_time() - start
            least[k] = min(least[k], took / counts[k])
            counts[k] = max(1, int(LEAST_SECONDS / least[k]))
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--kinds", nargs="*", default=[])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'':<22}{'task':<10}{'direct, ms':>12}{'auto, ms':>10}{'slower, %':>11}  chosen")
    for name, model, task, direct in problems():
        if options.kinds and name not in options.kinds:
            continue
        auto = AutoMap() if task == "map" else AutoMarginals()
        chosen = getattr(auto, task)(model).method
        calls = [lambda direct=direct: getattr(direct, task)(model), lambda auto=auto: getattr(auto, task)(model)]  # noqa: B023
        repeats = options.repeats if model.graph.n_nodes < 50_000 else 10
        seconds = least_seconds(calls, repeats)
        slower = 100 * (seconds[1] / seconds[0] - 1)
        print(
            f"{name:<22}{task:<10}{1e3 * seconds[0]:>12.3f}{1e3 * seconds[1]:>10.3f}{slower:>11.1f}  {chosen}",
            flush=True,
        )


if __name__ == "__main__":
    main()
