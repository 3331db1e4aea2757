"""Check every inference algorithm against enumeration on random small models of all kinds.

    python benchmarks/quality/random_models.py [--kind pairwise] [--models 10000] [--seconds 0] [--seed 0] \
        [--only TRWS MPLP] [--results found.json]

A pairwise model has a random graph of up to nine nodes (chain, tree, cycle, grid, clique, or a disconnected graph), up
to four states, and tied, typed, weighted or untied tables, in float32 or float64. Some models have forbidden states and
pairs, different numbers of states, integer scores, or a large constant at one node. A tenth of the models are passed as
factor graphs. With ``--kind factors``, a model has up to six nodes and up to eight factors of at most four nodes, with
dense, sparse or count tables. With ``--kind segments``, a model is a chain of up to six nodes with scores of durations,
sometimes with a minimum duration, forbidden states, pairs or durations, integer scores, or a large constant. Scales are
between 0.1 and 1000. Parallel tempering, which ``AutoMarginals`` only uses for larger models, is called directly.

Every exported algorithm that accepts the model performs all of its tasks. The following results are wrong: a score that
differs from the score of the labels, or is above the best score; a bound below the best score; a labeling that a change
of one node improves; a wrong result that is called exact or certified; an upper bound below the log-partition, or a
lower bound above it; marginals that are not distributions; and an error, unless the algorithm documents that it rejects
such models. Results may differ by the rounding of sums of scores. Slow algorithms get a tenth of the models.

``--seconds`` limits the processor time. With ``--results``, the run continues after the last hundred models of an
earlier run with the same seed. The table contains, for each algorithm, the numbers of checked results, of rejected
models, and of wrong results. The exit status is 1 if any result was wrong.
"""

import argparse
import sys
import time
import warnings
from itertools import groupby, product
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.special import logsumexp
from support.record import read_record, write_record

import sklearn_crf.inference
from sklearn_crf.graphs import Graph, build_disjoint_union, lattice
from sklearn_crf.inference import BruteForce, Inference, Marginals
from sklearn_crf.inference.exact._segments import SegmentInference
from sklearn_crf.inference.local._tempering import compute_tempered_marginals
from sklearn_crf.models import (
    CountTable,
    FactorGraph,
    PairwiseModel,
    SegmentModel,
    SparseTable,
    factor_graph_of,
    score,
)

SLOW = {
    "Tempering",
    "TightenBound",
    "DualDecomposition",
    "IncMP",
    "LinearProgram",
    "AD3",
    "NormProductBP",
    "EdgeEntropyBP",
    "MPLP",
}
REFUSALS = (
    "submodular",
    "two states",
    "do not suit",
    "must be finite",
    "needs a graph without cycles",
    "infeasible",
    "float",
)


def topology(rng):
    kind = rng.integers(6)
    n = int(rng.integers(2, 8))
    if kind == 0:
        return lattice((n,))
    if kind == 1:
        return Graph(n, [[s, int(rng.integers(s))] for s in range(1, n)])
    if kind == 2:
        return lattice((int(rng.integers(2, 4)), 3))
    if kind == 3:
        n = min(n, 6)
        return Graph(n, [[s, t] for s in range(n) for t in range(s)])
    if kind == 4:
        return build_disjoint_union([lattice((2, 2)), lattice(()), lattice((3,))])
    return Graph(n + 1, [[s, (s + 1) % (n + 1)] for s in range(n + 1)])


def some_pairwise_model(rng):
    graph = topology(rng)
    n_states = int(rng.integers(1, 5 if graph.n_nodes < 8 else 3))
    kind = rng.integers(4)
    scale = 10.0 ** rng.uniform(-1, 3)
    n_types = {0: 1, 1: 2, 2: 2, 3: max(graph.n_edges, 1)}[int(kind)]
    tables = scale * rng.normal(size=(n_types, n_states, n_states))
    if rng.random() < 0.4:
        tables = np.where(np.eye(n_states, dtype=bool), abs(scale) * rng.random(), 0.0) * np.ones((n_types, 1, 1))
    unary = scale * rng.normal(size=(graph.n_nodes, n_states))
    edge_type = np.arange(graph.n_edges) if kind == 3 else rng.integers(n_types, size=graph.n_edges)
    weight = rng.normal(size=graph.n_edges) if kind == 2 else None
    if rng.random() < 0.3:
        kept = rng.integers(n_states, size=graph.n_nodes)
        unary[rng.random(unary.shape) < 0.3] = -np.inf
        unary[np.arange(graph.n_nodes), kept] = 0.0
        if weight is None:
            tables[rng.random(tables.shape) < 0.2] = -np.inf
            for e, (i, j) in enumerate(graph.edges):
                tables[edge_type[e], kept[i], kept[j]] = 0.0
    counts = rng.integers(1, n_states + 1, size=graph.n_nodes) if rng.random() < 0.2 else None
    if counts is not None and (np.isneginf(unary).any() or np.isneginf(tables).any()):
        # The protected joint state might have states that were removed.
        counts = None
    if rng.random() < 0.15:
        # Bounds are rounded down to multiples of a step.
        unary, tables = np.rint(unary), np.rint(tables)
    if rng.random() < 0.1:
        unary[0] += 10.0 ** rng.uniform(3, 9)
    dtype = np.float32 if rng.random() < 0.3 else np.float64
    return PairwiseModel(graph, unary.astype(dtype), tables, edge_type, weight, counts)


def random_pairwise_model(rng):
    model = some_pairwise_model(rng)
    return factor_graph_of(model) if rng.random() < 0.1 else model


def random_factor_graph(rng):
    n_nodes, scale = int(rng.integers(2, 7)), 10.0 ** rng.uniform(-1, 3)
    n_states = rng.integers(1, 4, size=n_nodes)
    allowed = rng.integers(n_states)
    factors = []
    for _ in range(rng.integers(1, 9)):
        scope = rng.permutation(n_nodes)[: rng.integers(1, min(4, n_nodes) + 1)]
        shape = tuple(n_states[scope].tolist())
        table, kind = scale * rng.normal(size=shape), rng.random()
        if kind < 0.15:
            listed = rng.permutation(table.size)[: rng.integers(1, table.size + 1)]
            states = np.stack(np.unravel_index(listed, shape), axis=1)
            table = SparseTable(states, scale * rng.normal(size=len(listed)), scale * rng.normal())
        elif kind < 0.3 and min(shape) > 1:
            table = CountTable(scale * rng.normal(size=len(shape) + 1), scale * rng.normal(), int(rng.integers(2)))
        elif kind < 0.45:
            table[rng.random(shape) < 0.2] = -np.inf
            table[tuple(allowed[scope])] = 0.0
        factors.append((scope, table))
    factors += [((s,), scale * rng.normal(size=n_states[s])) for s in range(n_nodes) if rng.random() < 0.8]
    return FactorGraph.from_factors(n_states, [factors[k] for k in rng.permutation(len(factors))])


def random_segment_model(rng):
    n, n_states, n_durations = rng.integers(1, [7, 4, 5])
    scale = 10.0 ** rng.uniform(-1, 3)
    unary, tables, durations = (
        scale * rng.normal(size=shape) for shape in ((n, n_states), (1, n_states, n_states), (n_states, n_durations))
    )
    for scores in (unary, tables, durations):
        if rng.random() < 0.3:
            scores[rng.random(scores.shape) < 0.2] = -np.inf
    # The labeling in which all nodes have this label stays allowed.
    unary[:, 0] = tables[0, 0, 0] = durations[0] = 0.0
    if rng.random() < 0.15:
        unary, tables, durations = (np.rint(scores) for scores in (unary, tables, durations))
    if rng.random() < 0.1:
        unary[0] += 10.0 ** rng.uniform(3, 9)
    dtype = np.float32 if rng.random() < 0.3 else np.float64
    pairwise = PairwiseModel(lattice((int(n),)), unary.astype(dtype), tables)
    return SegmentModel(pairwise, durations, min_duration=int(rng.integers(1, n_durations + 1)))


KINDS = {"pairwise": random_pairwise_model, "factors": random_factor_graph, "segments": random_segment_model}


class Tempering(Inference):
    """Marginals by parallel tempering, whatever the size of the model."""

    tasks = frozenset({"marginals"})
    takes = (PairwiseModel, FactorGraph)

    def _marginals(self, model, *, init=None, n_threads=1):
        found = compute_tempered_marginals(model, 3e5, n_threads)
        if found is None:
            raise ValueError("factors of three nodes and tables of many forbidden pairs do not suit tempering.")
        return found


def score_of(model, labels):
    """Return the score of a labeling of any model."""
    if not isinstance(model, SegmentModel):
        return score(model, labels)
    total = score(model.pairwise, np.asarray(labels))
    runs = [(label, len(list(run))) for label, run in groupby(labels)]
    for number, (label, length) in enumerate(runs):
        if length < model.min_duration and 0 < number < len(runs) - 1:
            return -np.inf
        total += float(model.durations[0, label, min(length, model.durations.shape[2]) - 1])
    return total


def enumerated(model):
    """Return the exact marginals and the best score of a model."""
    if not isinstance(model, SegmentModel):
        return BruteForce().marginals(model), BruteForce().map(model).score
    labelings = np.array(list(product(range(model.n_columns), repeat=model.graph.n_nodes)), dtype=np.int32)
    scores = np.array([score_of(model, labels) for labels in labelings])
    log_z = logsumexp(scores)
    unary = np.stack([np.exp(scores - log_z) @ (labelings == state) for state in range(model.n_columns)], axis=1)
    return Marginals(unary, None, log_z, None, "exact"), scores.max()


def configured(cls, seed):
    """Return the algorithm with a small budget; bounds must hold after any number of iterations."""
    algorithm = cls()
    # After an early stop, changing one node may raise the score, unless the algorithm ends with a local search.
    max_iter = 50 if cls.__name__ == "ICM" else (1, 3, 50, 500)[seed // 10 % 4]
    wanted = {"random_state": 0, "max_iter": max_iter, "n_sweeps": 20, "max_work": 1e4, "burn_in": 5}
    return algorithm.set_params(**{name: value for name, value in wanted.items() if name in algorithm.get_params()})


def rounding_of(model):
    """Return the tolerance for sums of scores, relative to the sum of every factor's largest score."""
    if isinstance(model, SegmentModel):
        longest = np.abs(model.durations).max(where=np.isfinite(model.durations), initial=0.0)
        return rounding_of(model.pairwise) + (1e-5 if model.dtype == np.float32 else 1e-12) * longest * len(model.unary)
    graph = model if isinstance(model, FactorGraph) else factor_graph_of(model)
    total = 0.0
    for factor in range(graph.n_factors):
        table = graph.dense_table(factor)
        total += float(np.abs(table).max(where=np.isfinite(table), initial=0.0))
    return (1e-5 if model.dtype == np.float32 else 1e-12) * max(total, 1.0)


def improvable(model, labels, tolerance):
    best, n_columns = score_of(model, labels), model.n_columns
    counts = getattr(model, "n_states", None)
    for node in range(len(labels)):
        for state in range(n_columns if counts is None else counts[node]):
            changed = labels.copy()
            changed[node] = state
            if score_of(model, changed) > best + tolerance:
                return True
    return False


def wrong_labeling(algorithm, model, found, best, tolerance):
    """Return what is wrong with a labeling, or None."""
    if not np.isneginf(found.score) and abs(score_of(model, found.labels) - found.score) > tolerance:
        return "score"
    if found.score > best + tolerance:
        return "above the best"
    if found.bound < best - tolerance:
        return "bound"
    if found.certified and found.score < best - tolerance:
        return "certificate"
    is_exact = algorithm.exact_on == "any" or type(algorithm).__name__ == "AutoMap"
    if is_exact and found.score < best - tolerance:
        return "not exact"
    if np.isfinite(found.score) and improvable(model, found.labels, tolerance):
        return "improvable"
    return None


def wrong_marginals(algorithm, model, found, exact, tolerance):
    """Return what is wrong with marginals, or None."""
    if not np.all(np.isfinite(found.unary)) or np.abs(found.unary.sum(axis=1) - 1).max() > 1e-4:
        return "no distribution"
    if found.log_z is not None and found.bound == "upper" and found.log_z < exact.log_z - tolerance:
        return "upper bound"
    if found.log_z is not None and found.bound == "lower" and found.log_z > exact.log_z + tolerance:
        return "lower bound"
    must = algorithm.exact_on == "any" or type(algorithm).__name__ == "AutoMarginals"
    if found.bound != "exact" and must:
        return "not exact"
    if found.bound == "exact" and (
        np.abs(found.unary - exact.unary).max() > 1e-6 + tolerance or abs(found.log_z - exact.log_z) > tolerance
    ):
        return "not exact"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, default="pairwise")
    parser.add_argument("--only", nargs="+", default=None)
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    exported = [getattr(sklearn_crf.inference, name) for name in sklearn_crf.inference.__all__]
    algorithms = [
        cls for cls in exported if isinstance(cls, type) and issubclass(cls, Inference) and cls is not Inference
    ]
    algorithms += [SegmentInference, Tempering]
    algorithms = [cls for cls in algorithms if options.only is None or cls.__name__ in options.only]
    of = {"kind": options.kind, "seed": options.seed}
    record = read_record(options.results, {**of, "models": 0, "counts": {}})
    if {key: record[key] for key in of} != of:
        sys.exit(f"{options.results} is of kind {record['kind']} and seed {record['seed']}.")
    counts = {cls.__name__: record["counts"].get(cls.__name__, [0, 0, 0]) for cls in algorithms}
    start, n_models = time.process_time(), record["models"]
    for seed in range(options.seed + n_models, options.seed + options.models):
        if n_models % 100 == 0:
            write_record(options.results, {**of, "models": n_models, "counts": counts})
        if options.seconds and time.process_time() - start > options.seconds:
            break
        n_models += 1
        if n_models % 1000 == 0:
            print(f"{n_models} models", flush=True)
        rng = np.random.default_rng(seed)
        model = KINDS[options.kind](rng)
        tolerance = rounding_of(model)
        exact, best = enumerated(model)
        for cls in algorithms:
            if not isinstance(model, cls.takes) or cls is BruteForce or (cls.__name__ in SLOW and seed % 10):
                continue
            algorithm = configured(cls, seed)
            for task, check, truth in (("map", wrong_labeling, best), ("marginals", wrong_marginals, exact)):
                if task not in cls.tasks:
                    continue
                try:
                    problem = check(algorithm, model, getattr(algorithm, task)(model), truth, tolerance)
                except ValueError as error:
                    counts[cls.__name__][1] += 1
                    problem = None if any(word in str(error) for word in REFUSALS) else f"error: {error}"
                counts[cls.__name__][0] += 1
                if problem:
                    counts[cls.__name__][2] += 1
                    print(f"seed {seed}: {cls.__name__}.{task}: {problem}")
    if n_models == options.models:
        write_record(options.results, {**of, "models": n_models, "counts": counts})
    print(f"{n_models} models, {time.process_time() - start:.0f} s of the processor")
    print(f"{'algorithm':<24}{'results':>10}{'refused':>10}{'wrong':>8}")
    for name, (n_results, n_refused, n_wrong) in counts.items():
        if n_results:
            print(f"{name:<24}{n_results:>10}{n_refused:>10}{n_wrong:>8}")
    sys.exit(any(wrong for _, _, wrong in counts.values()))


if __name__ == "__main__":
    main()
