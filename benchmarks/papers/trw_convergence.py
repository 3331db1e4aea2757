"""Figures 23 to 25 of Jancsary 2012: direct minimisation of the tree-reweighted bound, and message passing.

    python benchmarks/papers/trw_convergence.py [--part solvers] [--part accuracy] [--part optimal] \
        [--figures docs/_static] [--json docs/results/jancsary_2012/trw_convergence.json]

``solvers`` draws the bound against iterations (Figure 23, few covering trees) and against seconds (Figure 24, for each
choice of trees), on the families of random models with the large sizes of the thesis. The algorithms are spectral
projected gradient, projected quasi-Newton, message passing, and message passing with a damping of 1/2. ``accuracy``
prints how many message updates and seconds each algorithm needs to reach a relative distance of 1e-4 to the optimum
and to stay below it. "SPG after sweeps" is direct minimisation with ``start_sweeps=1000`` and the largest tolerance
that reaches this distance. ``optimal`` draws the search for optimal trees, with and without warm starts and threads,
and with damped message passing as solver (Figure 25).

There are two regular graphs: one as described in the thesis, and one with couplings from N(0, 9), which match the
errors of the thesis (see trw_table1.py). On the second graph, undamped messages diverge, as in panel (c) of the thesis.
``--json`` stores the curves of every family and choice of trees, and an interrupted run continues.

Differences from the thesis: each algorithm runs once, on one instance; the processor time of a run is divided equally
among its iterations; there are at most two threads (eight cores in the thesis). Messages are sent along a fixed order
of the nodes and back, instead of along edges in random order, so fewer sweeps are needed. For messages that have not
converged, the drawn value is a valid upper bound; the thesis draws the free energy, which is not a bound.
"""

import argparse
import functools
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import matplotlib
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from support.record import recorded
from support.trw_families import FAMILIES

from sklearn_crf._threads import limit_blas_threads, make_ordered_map
from sklearn_crf.graphs import covering_trees, minimum_spanning_tree, snakes
from sklearn_crf.inference import TightenBound, TRWMessagePassing
from sklearn_crf.inference.bounds._tighten_bound import Tightening, mutual_information, stepped

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SIZES = dict(zip(FAMILIES, (50, 50, 100, 50, 100), strict=True))
RULES = ("covering", "snakes", "uniform")
COLORS = {"SPG": "C0", "PQN": "C2", "messages": "C3", "damped messages": "C1"}
ACCURACY = 1e-4


def instance(family, seed=0):
    return FAMILIES[family](SIZES[family], np.random.default_rng(seed))


def trees_by(rule, graph):
    """Return trees, or None if the rule does not apply."""
    if rule != "snakes":
        return covering_trees(graph, rule).merged()
    return None if graph.shape is None else snakes(graph)


def optimum(model, trees):
    """Return the minimum of the bound, or the smallest value of a long run, which is an upper bound on the minimum."""
    damped = TRWMessagePassing(trees, damping=0.5, max_iter=5000, tol=1e-9).marginals(model).log_z
    return min(damped, TightenBound(trees, "pqn", start_sweeps=5000, max_iter=300, tol=1e-7).marginals(model).log_z)


def algorithms(trees):
    """Return functions, by name, that build each algorithm at these edge probabilities from a number of iterations."""
    return {
        "SPG": lambda n: TightenBound(trees, "spg", tol=0, max_iter=n),
        "PQN": lambda n: TightenBound(trees, "pqn", tol=0, max_iter=n),
        "messages": lambda n: TRWMessagePassing(trees, tol=0, max_iter=n, schedule="sequential"),
        "damped messages": lambda n: TRWMessagePassing(trees, tol=0, max_iter=n, schedule="sequential", damping=0.5),
    }


def values_of(algorithm, model, n_iter):
    """Return iteration numbers, the bound after each of them, and the processor seconds of one iteration.

    Direct minimisation records the bound at the start and after every iteration. Message passing computes the bound
    after each of the first fifty sweeps and then after every tenth; the time of this computation does not count.
    """
    start = time.process_time()
    if isinstance(algorithm(1), TightenBound):
        values = algorithm(n_iter).marginals(model).state.bounds
        return np.arange(len(values)), values, (time.process_time() - start) / len(values)
    algorithm(n_iter).marginals(model)
    seconds = (time.process_time() - start) / n_iter
    looks, values, state = np.r_[1 : min(n_iter, 50) + 1, 60 : n_iter + 1 : 10], [], None
    for n_sweeps in np.diff(looks, prepend=0).tolist():
        found = algorithm(n_sweeps).marginals(model, init=state)
        state = found.state
        values.append(found.log_z)
    return looks, np.array(values), seconds


def curves(model, trees, n_iter):
    """Return, by algorithm, iterations, the distances to the optimum after them, and the seconds per iteration."""
    best, found = optimum(model, trees), {}
    for name, algorithm in algorithms(trees).items():
        iterations, values, seconds = values_of(algorithm, model, n_iter)
        found[name] = iterations.tolist(), (np.abs(values - best) / abs(best)).tolist(), seconds
    return found


def draw_solvers(folder, n_iter, rules, record):
    size = (15, 0.4 + 2.6 * len(rules))
    by_iteration, firsts = plt.subplots(1, len(FAMILIES), figsize=(15, 3), layout="constrained", sharey=True)
    by_seconds, axes = plt.subplots(
        len(rules), len(FAMILIES), figsize=size, layout="constrained", sharey=True, squeeze=False
    )
    for family, first, column in zip(FAMILIES, firsts, axes.T, strict=True):
        model = instance(family)
        for rule, panel in zip(rules, column, strict=True):
            trees = trees_by(rule, model.graph)
            if trees is None:
                panel.set_axis_off()
                continue
            key = f"solvers: {family}, {rule}, {n_iter} iterations"
            found = recorded(record, key, functools.partial(curves, model, trees, n_iter))
            for name, (iterations, apart, seconds) in found.items():
                style = {"color": COLORS[name], "lw": 1.2, "label": name}
                # Iteration 0 must also have a position on a logarithmic axis.
                panel.loglog(1e3 * seconds * np.maximum(iterations, 0.5), apart, **style)
                if rule == "covering":
                    first.semilogy(iterations, apart, **style)
                print(f"{family}, {rule}, {trees.n_trees} trees, {name}: {apart[-1]:.1e} off after {iterations[-1]}")
            panel.set_title(f"{family}, {rule.upper()} ({trees.n_trees})", fontsize=8)
            panel.set(xlabel="milliseconds", ylim=(1e-7, 10))
        first.set_title(family, fontsize=9)
        first.set(xlabel="iterations", ylim=(1e-7, 10))
    for side in (firsts[0], *axes[:, 0]):
        side.set(ylabel="relative distance to the optimum")
    for axis in (firsts[0], axes[0, 0]):
        axis.legend(fontsize=7)
    by_iteration.savefig(folder / "trw_iterations.png", dpi=70)
    by_seconds.savefig(folder / "trw_seconds.png", dpi=70)


def first_within(iterations, values, best):
    """Return the first iteration from which all values are near enough to the optimum, or None."""
    far = np.flatnonzero(~(np.abs(values - best) <= ACCURACY * abs(best)))
    near = iterations[far[-1] + 1 if len(far) else 0 :]
    return int(near[0]) if len(near) else None


def accuracies(model, trees, n_iter):
    """Return the optimum, and a line of text for each algorithm."""
    best = optimum(model, trees)
    lines = {name: reached(algorithm, model, trees, best, n_iter) for name, algorithm in algorithms(trees).items()}
    return best, lines | {"SPG after sweeps": reached_after_sweeps(model, trees, best)}


def print_accuracy(n_iter, record):
    print(
        f"to {ACCURACY:g} of the optimum: iterations, message updates; ms of the processor on 1 thread; ms by the clock"
    )
    print("on 1 and on 2 threads, and on how many cores these ran")
    for family in FAMILIES:
        model = instance(family)
        for rule in ("covering", "snakes"):
            trees = trees_by(rule, model.graph)
            if trees is None:
                continue
            key = f"accuracy: {family}, {rule}, {n_iter} iterations"
            best, lines = recorded(record, key, functools.partial(accuracies, model, trees, n_iter))
            print(f"{family}, {rule.upper()} ({trees.n_trees} trees), optimum {best:.4f}")
            for name, line in lines.items():
                print(f"  {name:18s} {line}", flush=True)


def reached(algorithm, model, trees, best, n_iter):
    iterations, values, _ = values_of(algorithm, model, n_iter)
    n = first_within(iterations, values, best)
    if n is None:
        return f"not within {n_iter} iterations: {abs(values[-1] - best) / abs(best):.1e} off"
    of_trees = isinstance(algorithm(1), TightenBound)
    n_edges = trees.trees.sum() if of_trees else model.graph.n_edges
    return f"{n:5d} {2 * n_edges * max(n, 1):10d} {times(algorithm(max(n, 1)), model)}"


def reached_after_sweeps(model, trees, best):
    """Return the line of text for a start by messages, at the largest tolerance that reaches the accuracy."""
    for tol in 10.0 ** np.arange(-1, -6, -0.5):
        algorithm = TightenBound(trees, start_sweeps=1000, tol=tol)
        found = algorithm.marginals(model)
        if found.log_z - best <= ACCURACY * abs(best):
            break
    else:
        return f"not at tol={tol:.0e}: {(found.log_z - best) / abs(best):.1e} off"
    return f"{found.n_iter:5d} {'tol=' + format(tol, '.0e'):>10s} {times(algorithm, model)}"


def times(algorithm, model, repetitions=3):
    """Return the least processor milliseconds on one thread, and clock milliseconds on one and two threads."""
    seconds = np.array([[_seconds(algorithm, model, n_threads) for n_threads in (1, 2)] for _ in range(repetitions)])
    (processor, clock), (on_two, clock_of_two) = 1e3 * seconds.min(axis=0)
    return f"{processor:8.1f} {clock:8.1f} {clock_of_two:8.1f} {on_two / clock_of_two:5.2f}"


def _seconds(algorithm, model, n_threads):
    start = time.process_time(), time.perf_counter()
    algorithm.marginals(model, n_threads=n_threads)
    return time.process_time() - start[0], time.perf_counter() - start[1]


def search(model, outer_iter, n_threads=1, warm=True, start_sweeps=0, messages=False):
    """Return processor and clock seconds since the start, and the bound, after each distribution over trees."""
    graph, curve, start = model.graph, [], (time.process_time(), time.perf_counter())
    trees = covering_trees(graph, "covering").merged()
    n_trees = trees.n_trees
    mapped = make_ordered_map(n_threads)
    with limit_blas_threads():
        tightening = Tightening(model, mapped, "spg", start_sweeps, 500, 1e-3, n_threads)
        scores = tightening.scores(trees)
        given = np.zeros(scores.size)
        for _ in range(outer_iter):
            n_trees += 1
            if messages:
                algorithm = TRWMessagePassing(trees, damping=0.5, tol=1e-4, max_iter=2000)
                found = algorithm.marginals(model)
                pairs, bound = algorithm.edge_marginals(model, init=found.state), found.log_z
            else:
                tight = tightening.tighten(scores, given if warm else np.zeros(scores.size))
                pairs, bound = tight.pairs, tight.bound
            curve.append((time.process_time() - start[0], time.perf_counter() - start[1], bound))
            tree = minimum_spanning_tree(graph, -mutual_information(pairs))
            if messages:
                trees = trees.stepped(tree, 1 / n_trees).merged()
            else:
                scores, given = stepped(tightening, tight, tree, 1 / n_trees)
    return np.array(curve).T.tolist()


def draw_optimal(folder, outer_iter, record):
    model = instance("GRID ISINGUNIFORM")
    variants = {
        "warm starts": {},
        "warm starts, 2 threads": {"n_threads": 2},
        "cold starts": {"warm": False},
        "warm starts, from sweeps": {"start_sweeps": 1000},
        "damped messages inside": {"messages": True},
    }
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.2), layout="constrained")
    for name, options in variants.items():
        key = f"optimal: {name}, {outer_iter} trees"
        processor, clock, bounds = recorded(record, key, functools.partial(search, model, outer_iter, **options))
        print(
            f"optimal trees, {name}: {outer_iter} distributions in {processor[-1]:.1f} s of the processor, "
            f"{clock[-1]:.1f} s by the clock, bound {bounds[-1]:.4f}",
            flush=True,
        )
        for axis, values in zip(axes, (processor, clock, bounds), strict=True):
            axis.plot(values, label=name, ls="--" if "n_threads" in options else "-")
    for axis, label in zip(axes, ("seconds of the processor", "seconds by the clock", "bound"), strict=True):
        axis.set(xlabel="trees added", ylabel=label)
    axes[0].legend(fontsize=8)
    figure.savefig(folder / "trw_optimal_trees.png", dpi=70)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("solvers", "accuracy", "optimal"), action="append")
    parser.add_argument("--figures", type=Path, default=Path(__file__).resolve().parents[2] / "docs" / "_static")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--rule", choices=RULES, action="append", help="trees of Figure 24; default: all")
    parser.add_argument("--outer", type=int, default=20)
    parser.add_argument("--json", type=Path, help="file for results")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    parts = options.part or ("solvers", "accuracy", "optimal")
    if "solvers" in parts:
        draw_solvers(options.figures, options.iterations, options.rule or RULES, options.json)
    if "accuracy" in parts:
        print_accuracy(10 * options.iterations, options.json)
    if "optimal" in parts:
        draw_optimal(options.figures, options.outer, options.json)


if __name__ == "__main__":
    main()
