"""Time a message for several numbers of states: the cost of padding, of a table for each edge, and of double precision.

    python benchmarks/speed/message_speed.py [--states 2 3 4] [--side 40]
    python benchmarks/speed/message_speed.py --tables docs/results/message_speed          # tables of the result page

Prints nanoseconds of processor time per message of a sweep over a grid, on one thread, the shortest of several
repetitions. The number after each time is the ratio to the time for the next multiple of eight states. The largest
ratio is printed after the table. The last lines are for separate tables of edges, which a sweep reads once for each
message: the gigabytes of tables read per second, compared with the sum over an array of the same size.
"""

import argparse
import time
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.record import write_record

from sklearn_crf.graphs import lattice
from sklearn_crf.inference._field import build_initial_messages, make_field
from sklearn_crf.inference.messages._schedules import sequential
from sklearn_crf.models import PairwiseModel

TABLES = ("potts", "tied", "single")
SEMIRINGS = ("sum", "max")
DTYPES = (np.float32, np.float64)


def grid_model(side, n_states, tables, dtype):
    """Return a grid with random scores and a Potts table, one table for all edges, or one table for each edge."""
    rng = np.random.default_rng(n_states)
    graph = lattice((side, side))
    unary = rng.uniform(-1, 1, size=(graph.n_nodes, n_states))
    if tables == "potts":
        return PairwiseModel(graph, unary.astype(dtype), 0.5 * np.eye(n_states, dtype=dtype)[None])
    n_tables = graph.n_edges if tables == "single" else 1
    scores = rng.uniform(-1, 1, size=(n_tables, n_states, n_states)).astype(dtype)
    edge_type = np.arange(graph.n_edges, dtype=np.int32) if tables == "single" else None
    return PairwiseModel(graph, unary.astype(dtype), scores, edge_type=edge_type)


def sweeps(models, maximum):
    """Yield, for each model, a function that makes a sweep, and the number of messages of a sweep."""
    for model in models:
        field, _ = make_field(model, maximum=maximum)
        yield sequential(model.graph, field, build_initial_messages(field), 0.0, -1.0, None), 2 * model.graph.n_edges


def nanoseconds(models, maximum, repetitions=15):
    """Return the least processor time per message of each model; models alternate, so that other load affects all."""
    timed = list(sweeps(models, maximum))
    least = [np.inf] * len(timed)
    for _ in range(repetitions):
        for k, (sweep, n_messages) in enumerate(timed):
            sweep()  # after this call, all data that fit into a cache are cached
            start = time.process_time()
            sweep()
            least[k] = min(least[k], 1e9 * (time.process_time() - start) / n_messages)
    return least


def read_rates(side, n_states, dtype):
    """Return the gigabytes a second of edge tables that a sweep over a grid reads, and of a dot product."""
    (cost,) = nanoseconds([grid_model(side, n_states, "single", dtype)], False)
    # The table of each edge is stored for both directions.
    numbers = np.ones(4 * side * (side - 1) * n_states**2, dtype=dtype)
    least = np.inf
    for _ in range(5):
        start = time.process_time()
        numbers.dot(numbers)
        least = min(least, time.process_time() - start)
    return n_states**2 * np.dtype(dtype).itemsize / cost, numbers.nbytes / least / 1e9


def next_eight(n_states):
    return -(-n_states // 8) * 8


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, nargs="+", default=list(range(2, 33)))
    parser.add_argument("--side", type=int, default=40)
    parser.add_argument("--tables", type=Path, help="folder for tables of the page, one for each precision")
    options = parser.parse_args()
    pages = {np.dtype(d).name: [["states", *(f"{t}, {s}" for t in TABLES for s in SEMIRINGS)]] for d in DTYPES}
    columns = [(t, s, d) for t in TABLES for s in SEMIRINGS for d in DTYPES]
    print("states", *(f"{t} {s} {np.dtype(d).name}".rjust(19) for t, s, d in columns))
    worst = (0.0, "")
    for eight in sorted({next_eight(n_states) for n_states in options.states}):
        group = [*(n for n in options.states if next_eight(n) == eight and n != eight), eight]
        rows = [[] for _ in group]
        for tables, semiring, dtype in columns:
            models = [grid_model(options.side, n_states, tables, dtype) for n_states in group]
            cost = nanoseconds(models, semiring == "max")
            for n_states, row, found in zip(group, rows, cost, strict=True):
                ratio = found / cost[-1]
                row.append(f"{found:8.1f} ({ratio:4.2f})".rjust(19))
                what = f"{n_states} states, {tables}, {semiring}, {np.dtype(dtype).name}"
                worst = max(worst, (ratio, what))
        for n_states, row in zip(group, rows, strict=True):
            print(f"{n_states:6d}", *row, flush=True)
            for name, table in pages.items():
                table.append(
                    [
                        str(n_states),
                        *(row[k].strip() for k, (_, _, d) in enumerate(columns) if np.dtype(d).name == name),
                    ]
                )
    for name, table in pages.items() if options.tables else ():
        write_record(options.tables / f"table_{name}.json", table)
    print(f"largest ratio to the next multiple of eight: {worst[0]:.2f} ({worst[1]})")
    for dtype in DTYPES:
        own, plain = read_rates(options.side, max(options.states), dtype)
        print(f"tables of {max(options.states)} states, {np.dtype(dtype).name}: {own:.0f} GB/s; an array: {plain:.0f}")


if __name__ == "__main__":
    main()
