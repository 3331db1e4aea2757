"""Compare common first tasks of users with the packages that they may come from, in one table.

    python benchmarks/peers/peers.py                                     # all tasks, one and two threads
    python benchmarks/peers/peers.py --tasks "tagging from dicts" --sizes 500
    python benchmarks/peers/peers.py --check benchmarks/peers/peers.json       # fails if a ratio is a quarter lower
    # measure the column of two threads again, on an idle machine
    python benchmarks/peers/peers.py --json benchmarks/peers/peers.json --threads-only
    python benchmarks/peers/peers.py --picture peers.png              # draws the record benchmarks/peers/peers.json

Both packages of a comparison run alternately in separate processes; a time is the shortest of ``--rounds``. Ratios are
the processor time of the other package divided by the processor time of this package, so this package is faster if the
ratio is above one. Ratios are also valid on a busy machine. Column "2 threads" is the elapsed time of this package on
one thread divided by the elapsed time on two threads, for steps of at least 0.4 s. It is only meaningful on an idle
machine; measure it there with ``--threads-only``. Memory is the peak of a process minus its memory after imports and
after loading the data. For taggers, it is also after a first training on twenty sentences, which loads all modules.
Packages that are not installed are skipped.
"""

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.memory import peak_megabytes
from support.peer_tasks import NEED_DATA, TASKS, is_installed
from support.peer_timing import before
from support.record import read_record, write_record

# A ratio below this share of the recorded ratio is a regression.
LEAST_SHARE = 0.75

# Least clock seconds for which two threads are compared with one.
LONG = 0.4


def work(task, side, size, n_jobs):
    """Run one side of a task in this process."""
    ours, _, peers = TASKS[task]
    seconds, quality = (ours if side == "ours" else peers[side])(size, n_jobs)
    # Peers that run in their own process have not started yet, and their memory is not measured.
    return {"seconds": seconds, "quality": quality, "megabytes": peak_megabytes() - before[0] if before else None}


def run(task, side, size, n_jobs):
    """Run a task in its own process, with linear algebra on one thread."""
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", task, side, str(size), str(n_jobs)]
    # The processor time would include OpenMP threads that spin while they wait for a busy core.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    # Code that the first process compiles is kept for later processes, as with installed packages.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:  # some peers write their models to the working directory
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise SystemExit(f"{task}, {side}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def least(runs):
    """Return the least clock and processor times of several runs, and memory and quality of the last."""
    steps = {step: np.min([run["seconds"][step] for run in runs], axis=0) for step in runs[0]["seconds"]}
    megabytes = min((run["megabytes"] for run in runs if run["megabytes"] is not None), default=None)
    return runs[-1] | {"seconds": steps, "megabytes": megabytes}


def compare(task, size, rounds):
    """Yield the rows of the table: one for each step and peer."""
    _, _, peers = TASKS[task]
    installed = [peer for peer in peers if is_installed(peer)]
    for peer in peers.keys() - set(installed):
        print(f"{task}: {peer} is not installed, skipped", flush=True)
    sides = [("ours", 1), ("ours", 2), *((peer, 1) for peer in installed)]
    runs = {side: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            runs[side].append(run(task, side[0], size, side[1]))
    found = {side: least(some) for side, some in runs.items()}
    one, two = found["ours", 1], found["ours", 2]
    for peer in installed:
        other = found[peer, 1]
        for step, (wall, processor) in one["seconds"].items():
            yield {
                "task": task,
                "size": size,
                "step": step,
                "peer": peer,
                "ours": float(processor),
                "theirs": float(other["seconds"][step][1]),
                "ratio": float(other["seconds"][step][1] / processor),
                "threads": gain(wall, two["seconds"][step][0]),
                "memory": other["megabytes"] and one["megabytes"] / max(other["megabytes"], 1.0),
                "quality": [one["quality"], other["quality"]],
            }


def gain(one, two):
    """Return the clock time on one thread divided by the time on two, or None for steps that are too short."""
    return float(one / two) if one >= LONG else None


def with_threads(record, tasks, sizes, rounds):
    """Return a record in which some tasks have been timed on two threads again."""
    known = dict.fromkeys((row["task"], row["size"]) for row in record)
    for task, size in known:
        if task not in tasks or (sizes and size not in sizes):
            continue
        runs = {n_jobs: [] for n_jobs in (1, 2)}
        for _ in range(rounds):
            for n_jobs, some in runs.items():
                some.append(run(task, "ours", size, n_jobs))
        one, two = (least(some)["seconds"] for some in runs.values())
        for row in record:
            if (row["task"], row["size"]) == (task, size):
                row["threads"] = gain(one[row["step"]][0], two[row["step"]][0])
                show(row)
    return record


def show(row):
    quality = " / ".join(" ".join(f"{value:.5g}" for value in side.values()) for side in row["quality"] if side)
    threads, memory = ("" if row[name] is None else f"{row[name]:.2f}" for name in ("threads", "memory"))
    print(
        f"{row['task']:20s}{row['size']:>7d} {row['step']:10s}{row['peer']:18s}{row['ours']:>9.3f}{row['theirs']:>9.3f}"
        f"{row['ratio']:>7.2f}{threads:>11s}{memory:>8s}  {quality}",
        flush=True,
    )


def draw(path):
    """Draw the website's figure for the README."""
    path = path.resolve()
    os.chdir(Path(__file__).resolve().parents[2] / "docs" / "pictures")
    runpy.run_path("peers.py")["figure"].savefig(path, dpi=100)


def key(row):
    return row["task"], row["size"], row["step"], row["peer"]


def steps_back(rows, path):
    """Return the rows whose ratio is well below the ratio of a record."""
    recorded = {key(row): row["ratio"] for row in read_record(path, [])}
    return [row for row in rows if row["ratio"] < LEAST_SHARE * recorded.get(key(row), 0.0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=sorted(TASKS), default=list(TASKS))
    parser.add_argument("--sizes", nargs="+", type=int, help="sizes to use instead of the sizes of the tasks")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for recorded rows")
    parser.add_argument("--picture", type=Path, help="only draw the record benchmarks/peers/peers.json to this file")
    parser.add_argument(
        "--threads-only", action="store_true", help="only measure the column of two threads of recorded rows"
    )
    parser.add_argument("--check", type=Path, help="record to compare with; fails if a ratio is a quarter lower")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        task, side, size, n_jobs = options.worker
        print(json.dumps(work(task, side, int(size), int(n_jobs))))
        return
    if options.picture is not None:
        draw(options.picture)
        return
    print(f"{'task':20s}{'size':>7s} {'step':10s}{'peer':18s}{'ours':>9s}{'theirs':>9s}{'ratio':>7s}", end="")
    print(f"{'2 threads':>11s}{'memory':>8s}  quality (ours / theirs)")
    if options.threads_only:
        record = with_threads(read_record(options.json, []), options.tasks, options.sizes, options.rounds)
        write_record(options.json, record)
        return
    rows = []
    for task in options.tasks:
        if task in NEED_DATA and "SKLEARN_CRF_DATA" not in os.environ:
            print(f"{task}: the environment variable SKLEARN_CRF_DATA names no folder of data, skipped", flush=True)
            continue
        for size in options.sizes or TASKS[task][1]:
            for row in compare(task, size, options.rounds):
                show(row)
                rows.append(row)
    if options.json is not None:
        # Rows of other tasks and sizes are kept.
        by_key = {key(row): row for row in [*read_record(options.json, []), *rows]}
        write_record(options.json, sorted(by_key.values(), key=lambda row: list(TASKS).index(row["task"])))
    if options.check and (worse := steps_back(rows, options.check)):
        sys.exit("slower than recorded: " + "; ".join(" ".join(map(str, key(row))) for row in worse))


if __name__ == "__main__":
    main()
