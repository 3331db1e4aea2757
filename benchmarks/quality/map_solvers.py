"""Best labeling and bound against time, for every algorithm that maximises, on the problems of a figure.

    python benchmarks/quality/map_solvers.py [--runs 5] [--seconds 20] [--limit 60] \
        [--figure docs/_static/map_solvers.png] [--json docs/results/jancsary_2012/map_solvers.json]

Figure 27 of J. Jancsary, "Approximate discriminative training of graphical models" (2012), compares IncMP with dual
decomposition over trees and with tree-reweighted max-product on three random problems. The problems of this benchmark
are drawn as the thesis describes (its own draws are not available; N(0, 15) is understood as a variance of 15):

- comp: a complete graph of 50 nodes of 2 states, all potentials uniform on (-1, 1) times y_s and y_s y_t, y = -1, 1;
- grid: a grid of 50 x 50 nodes, the same potentials;
- gauss: a grid of 20 x 20 nodes of 16 states, N(0, 15) for every pair of states of every edge, no unary scores.

The fourth problem, potts, is not in the figure. It is a grid of 50 x 50 nodes of 5 states that rewards equal
neighbours, to which minimum cuts apply.

Each algorithm runs with 1, 2, 4, ... iterations, each time from the start, until it converges or until one run takes
``--seconds`` processor seconds. Random algorithms differ from run to run; scores and times are means over runs. Times
are for one thread and include all steps, such as the choice of trees. "as printed" stands for the constants and
candidate labelings of the thesis, for IncMP and for dual decomposition. ICM with restarts is local search without a
relaxation, which shows how much local search contributes to other algorithms. toulbar2 is given ``--limit`` seconds to
prove the optimum. ``--json`` stores every problem, and an interrupted run continues.
"""

import argparse
import functools
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.ising import ising
from support.record import recorded

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import (
    AD3,
    ICM,
    TRWS,
    AlphaExpansion,
    DualDecomposition,
    GraphCut,
    IncMP,
    LinearProgram,
    TRWMessagePassing,
    convergence_left_to_caller,
)
from sklearn_crf.models import PairwiseModel, score

AS_PRINTED = {"decay": 0.95, "backoff": 0.5, "climb": False}

# Name, a function of the number of iterations and a seed, and whether the algorithm depends on the seed.
ITERATIVE = {
    "IncMP": (lambda n, seed: IncMP(max_iter=n, random_state=seed), True),
    "IncMP as printed": (lambda n, seed: IncMP(max_iter=n, random_state=seed, **AS_PRINTED), True),
    "DualDecomposition": (lambda n, seed: DualDecomposition(max_iter=n, random_state=seed), True),
    "DualDec. as printed": (lambda n, seed: DualDecomposition(max_iter=n, random_state=seed, **AS_PRINTED), True),
    "AD3": (lambda n, seed: AD3(n), False),
    "TRWS": (lambda n, seed: TRWS(n, tol=1e-9), False),
    "TRW max-product": (lambda n, seed: TRWMessagePassing(max_iter=n, damping=0.3), False),
    "ICM with restarts": (lambda n, seed: ICM(n_restarts=n, random_state=seed), True),
}
DIRECT = {
    # The solver would take minutes for larger programs.
    "LinearProgram": lambda: LinearProgram(max_variables=100_000),
    "GraphCut": GraphCut,
    "AlphaExpansion": AlphaExpansion,
}


def problems(seed):
    rng = np.random.default_rng(seed)
    complete, grid, small = Graph(50, np.stack(np.triu_indices(50, 1), axis=1)), lattice((50, 50)), lattice((20, 20))
    yield "comp", ising(complete, rng)
    yield "grid", ising(grid, rng)
    tables = np.sqrt(15) * rng.normal(size=(small.n_edges, 16, 16))
    yield "gauss", PairwiseModel(small, np.zeros((400, 16)), tables, np.arange(small.n_edges))
    equal = np.eye(5)[None]
    yield "potts", PairwiseModel(grid, rng.normal(size=(2500, 5)), equal, edge_weight=rng.uniform(0.3, 1, grid.n_edges))


def measured(algorithm, model):
    """Return the result of an algorithm and its processor seconds."""
    start = time.process_time()
    with convergence_left_to_caller():
        found = algorithm.map(model)
    return found, time.process_time() - start


def trace(make, model, seeds, seconds):
    """Return rows (iterations, seconds, score, bound), means over seeds, one row for each number of iterations."""
    rows, n_iter = [], 1
    while True:
        runs = [measured(make(n_iter, seed), model) for seed in seeds]
        used = np.mean([time for _, time in runs])
        rows.append((n_iter, used, np.mean([f.score for f, _ in runs]), np.mean([f.bound for f, _ in runs])))
        # Restarts never converge. The next run takes twice as long.
        is_over = all(found.converged and np.isfinite(found.bound) and found.n_iter < n_iter for found, _ in runs)
        if is_over or used > seconds / 2 or n_iter >= 2**14:
            return rows
        n_iter *= 2


def traces(model, n_runs, seconds):
    """Return rows by algorithm, and the error messages of algorithms that reject the model."""
    found, refused = {}, {}
    for name, (make, is_random) in ITERATIVE.items():
        found[name] = trace(make, model, range(n_runs if is_random else 1), seconds)
    for name, make in DIRECT.items():
        try:
            result, used = measured(make(), model)
        except ValueError as error:
            refused[name] = str(error).split(": ")[0]
        else:
            found[name] = [(1, used, result.score, result.bound)]
    return found, refused


def best_within(rows, seconds):
    """Return the best score of all rows that took at most the given seconds."""
    return max((row[2] for row in rows if row[1] <= seconds), default=np.nan)


def show(name, model, found, refused, proof):
    times = (0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
    print(f"\n{name}: {model.graph.n_nodes} nodes, {model.graph.n_edges} edges, {model.n_columns} states; {proof}")
    print(f"{'best score after seconds':22}" + "".join(f"{t:>9g}" for t in times) + f"{'in all':>10}{'bound':>11}")
    for algorithm, rows in found.items():
        cells = [best_within(rows, t) for t in times]
        text = "".join("        -" if np.isnan(cell) else f"{cell:9.1f}" for cell in cells)
        best, bound = max(row[2] for row in rows), min(row[3] for row in rows)
        print(f"{algorithm:24}{text}{best:10.2f}{bound:11.2f}   {rows[-1][1]:.2f} s")
    for algorithm, words in refused.items():
        print(f"{algorithm:24}does not apply: {words}")
    leaders = [max(found, key=lambda name, t=t: np.nan_to_num(best_within(found[name], t), nan=-np.inf)) for t in times]
    print("leader                  " + "".join(f"{leader.replace(' ', '')[:8]:>9}" for leader in leaders), flush=True)


def prove(model, seconds):
    """Return the result of toulbar2 as text."""
    try:
        import pytoulbar2  # noqa: F401
        from support import toulbar2
    except ImportError:
        return "toulbar2 is not installed"
    labels, is_proven, used = toulbar2.solve(model, seconds)
    if labels is None:
        return f"toulbar2 found nothing within {seconds} s"
    kind = "proven optimum" if is_proven else "best, not proven, is"
    return f"toulbar2: {kind} {score(model, labels):.2f} in {used:.1f} s"


def solved(model, options):
    """Return rows by algorithm, the errors of algorithms that reject the model, and toulbar2's result as text."""
    return *traces(model, options.runs, options.seconds), prove(model, options.limit)


def draw(results, path):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        2, len(results), figsize=(3.3 * len(results), 6), squeeze=False, sharex="col", constrained_layout=True
    )
    colours = dict(zip([*ITERATIVE, *DIRECT], (*plt.get_cmap("tab20").colors[::2], (0.3, 0.3, 0.3)), strict=False))
    for (above, below), (name, found) in zip(axes.T, results.items(), strict=True):
        for algorithm, rows in found.items():
            _, used, scores, bounds = np.array(rows).T
            style = {"color": colours[algorithm], "marker": "." if len(rows) > 1 else "s", "label": algorithm}
            above.plot(used, np.maximum.accumulate(scores), **style)
            below.plot(used, np.minimum.accumulate(bounds), **style)
        best, bound = (pick(row[k] for rows in found.values() for row in rows) for pick, k in ((max, 2), (min, 3)))
        # Showing scores further off would hide the differences between good algorithms.
        above.set(title=name, ylabel="best score", ylim=(0.85 * best, 1.01 * best))
        below.set(xscale="log", xlabel="seconds", ylabel="bound", ylim=(0.998 * bound, 1.05 * bound))
    handles = {label: line for axis in axes[0] for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles, ncols=6, fontsize=8, loc="outside lower center")
    figure.savefig(path, dpi=70)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="number of runs of random algorithms")
    parser.add_argument("--seconds", type=float, default=20, help="seconds for one run of one algorithm")
    parser.add_argument("--limit", type=int, default=60, help="seconds for the proof")
    parser.add_argument("--seed", type=int, default=0, help="seed of the problems")
    parser.add_argument("--problems", nargs="*", default=[])
    parser.add_argument("--figure", type=Path, help="file for the picture")
    parser.add_argument("--json", type=Path, help="file for results")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = {}
    for name, model in problems(options.seed):
        if options.problems and name not in options.problems:
            continue
        key = f"{name}, seed {options.seed}, {options.runs} runs of {options.seconds:g} s"
        found, refused, proof = recorded(options.json, key, functools.partial(solved, model, options))
        show(name, model, found, refused, proof)
        results[name] = found
        if options.figure:
            draw(results, options.figure)


if __name__ == "__main__":
    main()
