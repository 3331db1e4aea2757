"""Compare large-neighbourhood search with other algorithms for labelings, on models with loose bounds.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/hard_search.py [--models spins_40 Grids_18] [--seconds 10] \
        [--peer 60]
    ... hard_search.py best-known [--models ...] [--seconds 300] [--peer 300] [--most 1200] [--record known.json]
    ... hard_search.py within [--models ...] [--seconds 10] [--record known.json]

The models are grids of spins with normal couplings (spins_40, 60 and 80 nodes a side); grids with couplings of -1 and 1
(signs_60); a cube of 12 x 12 x 12 spins; Potts models with random signs and 8 states (potts_40); random tables of 16
states (tables_20); 200 spins that are all coupled (dense_200); and planted optima on 40 x 40 to 80 x 80 spins (every
other square of the grid is a loop of four edges, of which only the weakest contradicts the planted labels). If the data
folder is given, models of the UAI competition whose best labeling is not proven are also used.

Every algorithm gets ``--seconds`` processor seconds of one core. Algorithms with a budget of work or restarts double
this budget from run to run, until the next run would exceed the time, and the best result counts. All other algorithms,
such as ``AutoMap`` ("auto"), run once with default options. "NumPy annealing" is a simple implementation that a user
could write in an hour: heat bath on a checkerboard with linearly decreasing temperatures, restarted within the time. If
toulbar2 is installed, it gets ``--peer`` seconds. The best known score is the highest score of all algorithms, of the
planted labels, of known results, and of a large neighbourhood search with another seed and about ten times the budget.
For each algorithm, the difference to the best known score is printed in per cent of this score.

``best-known`` extends a record of long runs instead. For each model in turn, it makes one run of large neighbourhood
search of ``--seconds`` processor seconds with the next seed, and once a run of toulbar2 with ``--peer`` seconds (0
omits toulbar2). It ends after ``--most`` seconds. Each run is written to the file at once, and the next call continues.
Planted labels are optimal and need no runs. Models whose optimum ``CycleRelaxation`` proves, which is tried first, do
not need runs either. ``within`` compares a large neighbourhood search of ``--seconds`` processor seconds, with a seed
that is not in the record, and ``AutoMap`` with the best score of the record.
"""

import argparse
import csv
import os
import time
import warnings
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.record import read_record, write_record

from sklearn_crf.datasets import read_uai
from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import (
    AD3,
    ICM,
    TRWS,
    AutoMap,
    CycleRelaxation,
    GraphCut,
    LargeNeighborhoodSearch,
)
from sklearn_crf.models import PairwiseModel, pairwise_model_of, score

SPIN = np.array([-1.0, 1.0])

# Default models of best-known and within.
HARD_GRIDS = [f"{kind}_{side}" for kind in ("spins", "planted") for side in (40, 60, 80)] + [
    "Grids_18",
    "Grids_26",
    "Grids_28",
]

# Table entries for measuring the speed of the search.
PROBE_WORK = 1e8


def spins(graph, weight, field=0.0):
    unary = np.broadcast_to(np.asarray(field), (graph.n_nodes,))[:, None] * SPIN
    return PairwiseModel(graph, unary, np.outer(SPIN, SPIN)[None], edge_weight=weight)


def planted(side, rng):
    """Return spins on a torus in which every other square has one weak edge against the planted labels."""
    graph = lattice((side, side))
    number = np.arange(side * side).reshape(side, side)
    labels = rng.integers(2, size=side * side)
    weight = {}
    for row in range(0, side - 1):
        for column in range(row % 2, side - 1, 2):
            corners = (
                number[row, column],
                number[row, column + 1],
                number[row + 1, column + 1],
                number[row + 1, column],
            )
            edges = [tuple(sorted((corners[k], corners[(k + 1) % 4]))) for k in range(4)]
            against, strength = rng.integers(4), rng.uniform(0.5, 1.0)
            for k, edge in enumerate(edges):
                sign = SPIN[labels[edge[0]]] * SPIN[labels[edge[1]]]
                weight[edge] = -strength * sign if k == against else sign
    weights = np.array([weight.get(tuple(sorted(edge)), 0.0) for edge in graph.edges.tolist()])
    return spins(graph, weights), labels.astype(np.int32)


def problems():
    """Yield a name, a model, and either a good labeling or None."""
    for side in (40, 60, 80):
        graph = lattice((side, side))
        yield (
            f"spins_{side}",
            spins(graph, np.random.default_rng(side).normal(size=graph.n_edges)),
            None,
        )
    graph = lattice((60, 60))
    yield (
        "signs_60",
        spins(graph, np.random.default_rng(1).choice(SPIN, size=graph.n_edges)),
        None,
    )
    cube = lattice((12, 12, 12))
    yield (
        "cube_12",
        spins(cube, np.random.default_rng(2).normal(size=cube.n_edges)),
        None,
    )
    rng, graph = np.random.default_rng(3), lattice((40, 40))
    unary = rng.normal(size=(graph.n_nodes, 8))
    yield (
        "potts_40",
        PairwiseModel(graph, unary, np.eye(8)[None], edge_weight=rng.normal(size=graph.n_edges)),
        None,
    )
    rng, graph = np.random.default_rng(4), lattice((20, 20))
    tables = rng.normal(size=(graph.n_edges, 16, 16))
    yield (
        "tables_20",
        PairwiseModel(graph, np.zeros((400, 16)), tables, np.arange(graph.n_edges)),
        None,
    )
    dense = Graph(200, np.stack(np.triu_indices(200, 1), axis=1))
    yield (
        "dense_200",
        spins(dense, np.random.default_rng(5).normal(size=dense.n_edges)),
        None,
    )
    for side in (40, 60, 80):
        yield f"planted_{side}", *planted(side, np.random.default_rng(side // 10))
    if "SKLEARN_CRF_DATA" in os.environ:
        yield from competition(Path(os.environ["SKLEARN_CRF_DATA"]) / "uai2014")


def competition(folder):
    answers = np.load(folder / "map_assignments.npz")
    with open(folder / "solutions.tsv") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["folder"] == "map" and row["map_certificate"] == "none":
                model = pairwise_model_of(read_uai(folder / "map" / f"{row['model']}.uai.gz"))
                yield (
                    row["model"],
                    model,
                    answers[f"map_{row['model']}"].astype(np.int32),
                )


def annealed(model, seconds):
    """Return the best score of simulated annealing in NumPy, colour by colour, with restarts until time is up."""
    graph, tables = model.graph, model.edge_tables().astype(float)
    ptr, neighbor, half_edge, _ = graph.incidence
    nodes, colour_ptr = graph.colouring
    colours = [nodes[a:b] for a, b in pairwise(colour_ptr)]
    # Edge slots of the nodes of each colour, and the node of each slot.
    slots = [np.concatenate([np.arange(ptr[s], ptr[s + 1]) for s in colour]) for colour in colours]
    owners = [np.repeat(np.arange(len(colour)), np.diff(ptr)[colour]) for colour in colours]
    turned = np.where(
        (half_edge & 1)[:, None, None] == 1,
        tables[half_edge >> 1].transpose(0, 2, 1),
        tables[half_edge >> 1],
    )
    rng, best, stop, n_sweeps = (
        np.random.default_rng(0),
        -np.inf,
        time.process_time() + seconds,
        200,
    )
    hottest = np.abs(tables).mean() * np.diff(ptr).mean()
    while time.process_time() < stop:
        labels = rng.integers(model.n_columns, size=graph.n_nodes)
        for temperature in np.linspace(hottest, 0.02 * hottest, n_sweeps):
            for colour, slot, owner in zip(colours, slots, owners, strict=True):
                scores = model.unary[colour].astype(float)
                np.add.at(scores, owner, turned[slot, :, labels[neighbor[slot]]])
                labels[colour] = (scores / temperature + rng.gumbel(size=scores.shape)).argmax(axis=1)
            if time.process_time() > stop:
                break
        best = max(best, ICM().map(model, init=labels).score)
        n_sweeps *= 2
    return best


def within(make, model, seconds, first):
    """Return the score of the last run that fits into the time; each run has twice the budget of the run before."""
    budget, best, used = first, -np.inf, 0.0
    while used < seconds:
        start = time.process_time()
        found = make(budget).map(model)
        last = time.process_time() - start
        if last > seconds:
            break
        best, used = max(best, found.score), 2 * last
        budget *= 2
    return best


def contestants(model, seconds):
    """Yield the name and the score of each algorithm."""
    yield "auto", AutoMap().map(model).score
    yield (
        "search",
        within(
            lambda work: LargeNeighborhoodSearch(work, random_state=0),
            model,
            seconds,
            10**7,
        ),
    )
    yield "ICM", within(lambda n: ICM(n_restarts=n, random_state=0), model, seconds, 4)
    yield "annealing", annealed(model, seconds)
    yield "TRWS", TRWS().map(model).score
    yield "AD3", AD3().map(model).score
    if model.n_columns == 2:
        yield "GraphCut", GraphCut("qpbo").map(model).score


def compare(options):
    """Print how far each algorithm's labels are below the best known score."""
    print("What labels lack to the best known score, in per cent, and where that score is from.")
    for name, model, known in problems():
        if options.models and name not in options.models:
            continue
        found = dict(contestants(model, options.seconds))
        best = dict(found)
        best["long search"] = LargeNeighborhoodSearch(
            1e8 * max(1.0, 10 * options.seconds), n_restarts=8, random_state=1
        ).map(model).score  # fmt: skip
        if known is not None:
            best["known"] = score(model, known)
        if options.peer and find_spec("pytoulbar2"):
            from support.toulbar2 import solve

            labels, proven, _ = solve(model, options.peer)
            found["toulbar2"] = best["toulbar2"] = -np.inf if labels is None else score(model, labels)
            if proven:
                best["toulbar2, proven"] = best["toulbar2"]
        top = max(best.values())
        source = next(label for label, value in reversed(best.items()) if value >= top - 1e-9 * abs(top))
        columns = "  ".join(f"{label} {100 * (top - value) / abs(top):7.3f}" for label, value in found.items())
        print(f"{name:20}{columns}  best {top:.4f} ({source})", flush=True)


def timed_search(model, seconds, seed):
    """Search for about the given processor seconds; return the score and the seconds used."""
    start = time.process_time()
    LargeNeighborhoodSearch(PROBE_WORK, random_state=seed).map(model)
    rate = PROBE_WORK / (time.process_time() - start)
    start = time.process_time()
    found = LargeNeighborhoodSearch(rate * seconds, n_restarts=8, random_state=seed).map(model)
    return found.score, round(time.process_time() - start, 1)


def extend(options):
    """Make long runs, model by model, and write each run to the record at once."""
    record, left = read_record(options.record, {}), options.most
    chosen = {name: (model, known) for name, model, known in problems() if name in (options.models or HARD_GRIDS)}
    while left > 0:
        for name, (model, known) in chosen.items():
            runs = record.setdefault(name, [])
            if known is not None and not any(run["by"] == "given" for run in runs):
                runs.append(
                    {
                        "by": "given",
                        "score": score(model, known),
                        "optimal": name.startswith("planted"),
                    }
                )
            if left > 0 and not any(run.get("optimal") for run in runs):
                runs.append(next_run(model, runs, options))
                left -= runs[-1]["seconds"]
            write_record(options.record, record)
        if all(any(run.get("optimal") for run in record[name]) for name in chosen):
            return


def next_run(model, runs, options):
    """Return the next missing run of a model."""
    if CycleRelaxation.fits(model) and not any(run["by"] == "CycleRelaxation" for run in runs):
        start = time.process_time()
        found = CycleRelaxation(max_iter=1000).map(model)
        used = round(time.process_time() - start, 1)
        return {"by": "CycleRelaxation", "score": found.score, "optimal": found.certified, "seconds": used}
    if options.peer and find_spec("pytoulbar2") and not any(run["by"] == "toulbar2" for run in runs):
        from support.toulbar2 import solve

        labels, proven, used = solve(model, options.peer)
        found = None if labels is None else score(model, labels)
        return {
            "by": "toulbar2",
            "score": found,
            "optimal": bool(proven),
            "seconds": round(used, 1),
        }
    seed = 1 + sum(run["by"] == "search" for run in runs)
    found, used = timed_search(model, options.seconds, seed)
    return {"by": "search", "seed": seed, "score": found, "seconds": used}


def compare_with_known(options):
    """Print how far one short run of our search is below the best score of the record."""
    record = read_record(options.record, {})
    print("What a search and AutoMap lack to the best known score, in per cent, and what that is the best of.")
    for name, model, _ in problems():
        runs = [run for run in record.get(name, []) if run["score"] is not None]
        if not runs or name not in (options.models or HARD_GRIDS):
            continue
        best = max(runs, key=lambda run: run["score"])
        found, used = timed_search(model, options.seconds, 0)
        start = time.process_time()
        auto = AutoMap().map(model).score
        auto_used, top = time.process_time() - start, max(best["score"], found)
        kind = "optimal" if best.get("optimal") else f"{len(runs)} runs, {sum(r.get('seconds', 0) for r in runs):.0f} s"
        print(
            f"{name:12} search {100 * (top - found) / abs(top):6.3f} in {used:4.1f} s  "
            f"auto {100 * (top - auto) / abs(top):6.3f} in {auto_used:4.1f} s  "
            f"best {best['score']:.4f} ({best['by']}; {kind})",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "task",
        nargs="?",
        choices=["compare", "best-known", "within"],
        default="compare",
    )
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--peer", type=int, default=60, help="seconds for toulbar2; 0 omits toulbar2")
    parser.add_argument(
        "--most",
        type=float,
        default=1200.0,
        help="seconds of all runs of best-known together",
    )
    parser.add_argument("--record", type=Path, default=Path("docs/results/auto_quality/best_known.json"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    {"compare": compare, "best-known": extend, "within": compare_with_known}[options.task](options)


if __name__ == "__main__":
    main()
