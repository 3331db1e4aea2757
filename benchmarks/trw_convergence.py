"""Figures 23 to 25 of Jancsary 2012: direct minimisation of the tree-reweighted bound next to message passing.

    python benchmarks/trw_convergence.py [--part solvers] [--part accuracy] [--part optimal] [--figures docs/_static]

``solvers`` draws the bound against iterations (Figure 23) and seconds (Figure 24) on the four families of random models
at the thesis's large sizes: spectral projected gradient, projected quasi-Newton, message passing, and message passing
damped by 1/2. ``accuracy`` prints how many message updates and seconds each takes to come within 1e-4 of the optimum,
relative to it, for good; updates of "SPG after sweeps" do not count its 1000 sweeps, its time does. ``optimal`` draws
the search for optimal trees with and without warm starts, and with damped message passing inside (Figure 25), and
times it on two threads.

Differences to the thesis: one run on one instance, processor time of a whole run spread evenly over its iterations, two
threads at most (it had 8 cores); messages go along a fixed order of the nodes and back (along edges in random order
there), so that a sweep is worth more. The value of messages that have not converged is the upper bound that they give;
the thesis draws that of the free energy, which is none.
"""

import argparse
import time
import warnings
from pathlib import Path

import matplotlib
import numpy as np
from _trw_families import FAMILIES
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf._threads import ordered_map, single_threaded_blas
from sklearn_crf.inference import TightenBound, TRWMessagePassing
from sklearn_crf.inference._tightening import Tightening, mutual_information, stepped
from sklearn_crf.spanning_trees import covering_trees, minimum_spanning_tree, snakes

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SIZES = {"GRID ISINGGAUSS": 50, "GRID ISINGUNIFORM": 50, "REGULAR ISINGGAUSS": 100, "COMPLETE EXPGAUSS": 50}
COLORS = {"SPG": "C0", "PQN": "C2", "messages": "C3", "damped messages": "C1"}
ACCURACY = 1e-4


def instance(family, seed=0):
    return FAMILIES[family](SIZES[family], np.random.default_rng(seed))


def optimum(model, trees):
    """The bound at its minimum, as damped messages find it; an upper bound of it in any case."""
    return TRWMessagePassing(trees, damping=0.5, max_iter=5000, tol=1e-9).marginals(model).log_z


def algorithms(trees):
    """An inference of each kind at the same edge probabilities, by name; it takes a number of iterations."""
    return {
        "SPG": lambda n: TightenBound(trees, "spg", tol=0, max_iter=n),
        "PQN": lambda n: TightenBound(trees, "pqn", tol=0, max_iter=n),
        "messages": lambda n: TRWMessagePassing(trees, tol=0, max_iter=n, schedule="sequential"),
        "damped messages": lambda n: TRWMessagePassing(trees, tol=0, max_iter=n, schedule="sequential", damping=0.5),
    }


def values_of(algorithm, model, n_iter):
    """The bound after each of some iterations, the start first, and processor time of one in seconds, in which messages
    are not looked at for their bound."""
    start = time.process_time()
    if isinstance(algorithm(1), TightenBound):
        values = algorithm(n_iter).marginals(model).state.bounds
        return values, (time.process_time() - start) / len(values)
    algorithm(n_iter).marginals(model)
    seconds = (time.process_time() - start) / n_iter
    values, state = [np.nan], None
    for _ in range(n_iter):
        found = algorithm(1).marginals(model, init=state)
        state = found.state
        values.append(found.log_z)
    return np.array(values), seconds


def seconds_of(algorithm, model, n_iter, n_threads, repetitions=2):
    """Least time of a run of so many iterations: of the processor on one thread, by the clock on more."""
    clock = time.process_time if n_threads == 1 else time.perf_counter
    times = []
    for _ in range(repetitions):
        start = clock()
        algorithm(n_iter).marginals(model, n_threads=n_threads)
        times.append(clock() - start)
    return min(times)


def curves(model, trees, n_iter):
    """Distance to the optimum after each iteration, and seconds of an iteration, by name of the algorithm."""
    best, found = optimum(model, trees), {}
    for name, algorithm in algorithms(trees).items():
        values, seconds = values_of(algorithm, model, n_iter)
        found[name] = np.abs(values - best) / abs(best), seconds
    return found


def draw_solvers(folder, n_iter, rules):
    names, size = list(FAMILIES), (13, 0.4 + 2.6 * len(rules))
    by_iteration, axes = plt.subplots(1, 4, figsize=(13, 3), layout="constrained", sharey=True)
    by_seconds, more = plt.subplots(len(rules), 4, figsize=size, layout="constrained", sharey=True, squeeze=False)
    for k, family in enumerate(names):
        model = instance(family)
        for row, rule in enumerate(rules):
            trees = covering_trees(model.graph, rule).merged()
            for name, (apart, seconds) in curves(model, trees, n_iter).items():
                more[row, k].semilogy(1e3 * seconds * np.arange(len(apart)), apart, COLORS[name], lw=1.2, label=name)
                if row == 0:
                    axes[k].semilogy(apart, COLORS[name], lw=1.2, label=name)
                print(f"{family}, {rule}, {trees.n_trees} trees, {name}: {apart[-1]:.1e} off after {len(apart) - 1}")
            more[row, k].set_title(f"{family}, {rule.upper()} ({trees.n_trees})", fontsize=9)
            more[row, k].set(xlim=(0, None), xlabel="milliseconds" if row == len(rules) - 1 else "")
        axes[k].set_title(family, fontsize=9)
        axes[k].set(xlabel="iterations")
    axes[0].set(ylabel="relative distance to the optimum", ylim=(1e-7, 10))
    axes[0].legend(fontsize=8)
    for side in more[:, 0]:
        side.set(ylabel="relative distance to the optimum", ylim=(1e-7, 10))
    more[0, 0].legend(fontsize=8)
    by_iteration.savefig(folder / "trw_iterations.png", dpi=70)
    by_seconds.savefig(folder / "trw_seconds.png", dpi=70)


def first_within(values, best):
    """The first iteration from which all values are near enough to the optimum, or None."""
    far = np.flatnonzero(~(np.abs(values - best) <= ACCURACY * abs(best)))
    last = far[-1] if len(far) else -1
    return int(last + 1) if last + 1 < len(values) else None


def print_accuracy(n_iter):
    print(f"to {ACCURACY:g} of the optimum: iterations, message updates, ms (processor, 1 thread; clock, 2 threads)")
    for family in FAMILIES:
        model = instance(family)
        choices = {"MINIMAL": covering_trees(model.graph, "minimal").merged()}
        if model.graph.shape is not None:
            choices["4SNAKES"] = snakes(model.graph)
        for rule, trees in choices.items():
            best = optimum(model, trees)
            print(f"{family}, {rule} ({trees.n_trees} trees), optimum {best:.4f}")
            started = TightenBound(trees, start_sweeps=1000, tol=0, max_iter=n_iter)
            every = {**algorithms(trees), "SPG after sweeps": lambda n, s=started: s.set_params(max_iter=max(n, 1))}
            for name, algorithm in every.items():
                print(f"  {name:18s} {reached(algorithm, model, trees, best, n_iter)}", flush=True)


def reached(algorithm, model, trees, best, n_iter):
    values, _ = values_of(algorithm, model, n_iter)
    n = first_within(values, best)
    if n is None:
        return f"not within {n_iter} iterations: {abs(values[-1] - best) / abs(best):.1e} off"
    of_trees = isinstance(algorithm(1), TightenBound)
    n_edges = trees.trees.sum() if of_trees else model.graph.n_edges
    times = [1e3 * seconds_of(algorithm, model, max(n, 1), n_threads) for n_threads in (1, 2)]
    return f"{n:5d} {2 * n_edges * max(n, 1):10d} {times[0]:8.1f} {times[1]:8.1f}"


def search(model, outer_iter, n_threads=1, warm=True, messages=False):
    """Seconds since the start, of the processor and by the clock, and the bound, after each distribution over trees."""
    graph, curve, start = model.graph, [], (time.process_time(), time.perf_counter())
    trees = covering_trees(graph, "minimal").merged()
    n_trees = trees.n_trees
    with ordered_map(n_threads) as mapped, single_threaded_blas():
        tightening = Tightening(model, mapped, "spg", 0, 500, 1e-3, n_threads)
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
    return np.array(curve).T


def draw_optimal(folder, outer_iter):
    model = instance("GRID ISINGUNIFORM")
    variants = {"warm starts": {}, "cold starts": {"warm": False}, "damped messages inside": {"messages": True}}
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for name, options in variants.items():
        processor, _, bounds = searched(model, outer_iter, name, options)
        axes[0].plot(processor, label=name)
        axes[1].plot(bounds)
    axes[0].set(xlabel="trees added", ylabel="seconds of the processor")
    axes[1].set(xlabel="trees added", ylabel="bound")
    axes[0].legend(fontsize=8)
    figure.savefig(folder / "trw_optimal_trees.png", dpi=70)
    # What threads gain is a matter of the clock.
    searched(model, outer_iter, "warm starts, 2 threads", {"n_threads": 2})


def searched(model, outer_iter, name, options):
    """A search, with a line of print."""
    processor, clock, bounds = search(model, outer_iter, **options)
    print(
        f"optimal trees, {name}: {outer_iter} distributions in {processor[-1]:.1f} s of the processor, "
        f"{clock[-1]:.1f} s by the clock, bound {bounds[-1]:.4f}",
        flush=True,
    )
    return processor, clock, bounds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("solvers", "accuracy", "optimal"), action="append")
    parser.add_argument("--figures", type=Path, default=Path(__file__).resolve().parents[1] / "docs" / "_static")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument(
        "--rule", choices=("minimal", "uniform"), action="append", help="trees of Figure 24, default both"
    )
    parser.add_argument("--outer", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    parts = options.part or ("solvers", "accuracy", "optimal")
    if "solvers" in parts:
        draw_solvers(options.figures, options.iterations, options.rule or ("minimal", "uniform"))
    if "accuracy" in parts:
        print_accuracy(4 * options.iterations)
    if "optimal" in parts:
        draw_optimal(options.figures, options.outer)


if __name__ == "__main__":
    main()
