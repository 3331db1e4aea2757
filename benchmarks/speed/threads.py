"""What a second core gains: fit and predict of every estimator on one thread and on two, by the clock.

    # the page's record: all rows, on
    python benchmarks/speed/threads.py --json docs/results/threads/threads.json --again
                                                                             # an idle machine, some five minutes
    python benchmarks/speed/threads.py --rows "TRWCRF, images" "DenseCRF"          # some
    python benchmarks/speed/threads.py --profile "TRWCRF, graphs" predict  # where the processor is, on one thread
    python benchmarks/speed/threads.py --limits "TRWCRF, graphs" predict  # how far kernels are from what it could do
    python benchmarks/speed/threads.py --processes "TRWCRF, graphs"  # what two processes gain, without a lock
    python benchmarks/speed/threads.py --rows memory  # what the memory gives to one and to two

Each number of threads runs in a process of its own, in turn with the other; a time is the least of ``--repetitions``
in each of ``--rounds`` processes. "gain" is the clock's time on one thread over that on two. Beside it stands the share
of the processor's time on two threads that the first thread took: at one half both cores are in use all the time. That
share can be read on a busy machine too, where the clock says nothing. "same" says whether the predictions are the same
bits. The row "memory" copies and adds arrays that no cache holds: work that waits for memory gains no more than these
do, whose columns are gigabytes a second. Rows that ``--json`` holds already are printed from there.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.ndimage import gaussian_filter
from support.record import read_record, write_record

# Sequences that are drawn; more of them are repetitions.
DRAWN = 1000


def repeated(X, y, n):
    """So many examples by repeating those there are."""
    return [X[i % len(X)] for i in range(n)], [y[i % len(y)] for i in range(n)]


def regions(n_images, side, n_classes=2, n_features=3, noise=1.0, seed=0):
    """Images whose classes are regions of smooth random fields, features with noise."""
    rng = np.random.default_rng(seed)
    fields = gaussian_filter(rng.normal(size=(n_images, side, side, n_classes)), (0, 3, 3, 0))
    y = fields.argmax(axis=-1)
    centres = np.random.default_rng(1).normal(size=(n_classes, n_features))
    return centres[y] + noise * rng.normal(size=(*y.shape, n_features)), y


def chains(n_chains, n_classes, n_features, seed=0):
    """Sequences of 5 to 40 nodes with dense features of Markov chains."""
    rng = np.random.default_rng(seed)
    fixed = np.random.default_rng(1)
    follow = np.cumsum(fixed.dirichlet(np.full(n_classes, 0.3), n_classes), axis=1)
    centres = fixed.normal(size=(n_classes, n_features))
    X, y = [], []
    for length in rng.integers(5, 40, min(n_chains, DRAWN)):
        labels = [int(rng.integers(n_classes))]
        for value in rng.random(length - 1):
            labels.append(min(int(np.searchsorted(follow[labels[-1]], value)), n_classes - 1))
        y.append(np.array(labels))
        X.append(centres[y[-1]] + 2.0 * rng.normal(size=(length, n_features)))
    return repeated(X, y, n_chains)


def words(n_sentences, seed):
    """Sentences of dictionaries and their tags."""
    from support.peer_tagging import sentences

    X, y = sentences(min(n_sentences, DRAWN), seed)
    return repeated(X, [np.array(tags) for tags in y], n_sentences)


def graphs(n_graphs, n_nodes, n_classes, n_features, seed=0):
    """Neighbours in the plane, smooth classes."""
    from sklearn.neighbors import kneighbors_graph

    from sklearn_crf import Example

    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(1).normal(size=(n_classes, n_features))
    X, y = [], []
    for _ in range(n_graphs):
        place = rng.random((n_nodes, 2))
        adjacency = kneighbors_graph(place, 4).toarray() > 0
        edges = np.argwhere(np.triu(adjacency | adjacency.T))
        labels = (3 * np.sin(4 * place[:, 0] + rng.random()) + 3 * place[:, 1]).astype(int) % n_classes
        X.append(Example(centres[labels] + 1.5 * rng.normal(size=(n_nodes, n_features)), edges))
        y.append(labels)
    return X, y


def noisy(n_images, side, seed=0):
    """Smooth images with noise, and without."""
    rng = np.random.default_rng(seed)
    clean = gaussian_filter(rng.normal(size=(n_images, side, side)), (0, 2, 2))
    clean = 100.0 * clean / clean.std() + 128.0
    return (clean + 25.0 * rng.normal(size=clean.shape))[..., None], clean


def clusters(n_samples, n_features, seed=0):
    from support.class_densities import low_rank_clusters

    return low_rank_clusters(n_samples, n_features, 3, 3, 4, seed, 1.0)


def trw(**options):
    from sklearn_crf import TRWCRF

    return TRWCRF(**options)


def m3n(**options):
    from sklearn_crf import M3NClassifier

    return M3NClassifier(**options)


def drf(**options):
    from sklearn_crf import DRFClassifier

    return DRFClassifier(**options)


def contrastive(**options):
    from sklearn_crf import ContrastiveCRF

    return ContrastiveCRF(**options)


def tree_field(**options):
    from sklearn_crf import RegressionTreeField

    return RegressionTreeField(**options)


def tree_classifier(**options):
    from sklearn_crf import RegressionTreeFieldClassifier

    return RegressionTreeFieldClassifier(**options)


def analysers(**options):
    from sklearn_crf import MultiConditionalMFA

    return MultiConditionalMFA(n_components=3, n_factors=4, **options)


def dense(**options):
    from sklearn_crf import DenseCRF

    return DenseCRF(**options)


def multilabel(**options):
    from sklearn_crf import TRWCRF, MultiLabelField

    return MultiLabelField(TRWCRF(**options))


def vectorizer(**options):
    from sklearn_crf.preprocessing import SequenceVectorizer

    return SequenceVectorizer(**options)


def words_of(n_sentences, seed):
    """The same as matrices."""
    X, y = words(min(n_sentences, DRAWN), seed)
    return repeated(vectorizer().fit(words(DRAWN, 1)[0]).transform(X), y, n_sentences)


def pairs_of_labels(n_samples, seed):
    """Twelve binary labels that depend on each other."""
    rng = np.random.default_rng(seed)
    fixed = np.random.default_rng(1)
    X = rng.normal(size=(n_samples, 40))
    y = X @ fixed.normal(size=(40, 4)) @ fixed.normal(size=(4, 12)) + 4 * rng.normal(size=(n_samples, 12)) > 0
    return X, y.astype(int)


# name: (estimator of options, (X, y) to learn from, (X, y) to predict). All take about a second or more on one thread,
# but for predictions of rows of tables, whose data would else take more than 2 GB.
ROWS = {
    "TRWCRF, chains": (trw, {}, lambda: chains(1500, 20, 40), lambda: chains(200_000, 20, 40, 2)),
    "TRWCRF, sparse chains": (trw, {}, lambda: words_of(4000, 1), lambda: words_of(240_000, 2)),
    "TRWCRF, images": (trw, {}, lambda: regions(8, 64), lambda: regions(48, 96, seed=2)),
    "TRWCRF, graphs": (trw, {}, lambda: graphs(240, 80, 4, 6), lambda: graphs(3600, 80, 4, 6, 2)),
    "TRWCRF, rows": (trw, {}, lambda: pooled(chains(6000, 20, 40)), lambda: pooled(chains(180_000, 20, 40, 2))),
    "M3NClassifier, chains": (m3n, {}, lambda: chains(900, 20, 40), lambda: chains(240_000, 20, 40, 2)),
    "M3NClassifier, images": (m3n, {}, lambda: regions(12, 96), lambda: regions(600, 128, seed=2)),
    "DRFClassifier, pl": (drf, {"learning": "pl"}, lambda: regions(144, 128), lambda: regions(96, 96, seed=2)),
    "DRFClassifier, spa": (drf, {"learning": "spa"}, lambda: regions(24, 64), lambda: regions(240, 96, seed=2)),
    "DRFClassifier": (drf, {}, lambda: regions(8, 96), lambda: regions(120, 96, seed=2)),
    "ContrastiveCRF": (contrastive, {}, lambda: regions(16, 64), lambda: regions(160, 96, seed=2)),
    "RegressionTreeField": (tree_field, {}, lambda: noisy(16, 96), lambda: noisy(120, 128, 2)),
    "RegressionTreeFieldClassifier": (tree_classifier, {}, lambda: regions(24, 48), lambda: regions(160, 128, seed=2)),
    "MultiConditionalMFA": (analysers, {}, lambda: clusters(200_000, 20), lambda: clusters(3_000_000, 20, 2)),
    "DenseCRF": (dense, {}, lambda: colours(24, 48), lambda: colours(120, 96, 2)),
    "MultiLabelField": (multilabel, {}, lambda: pairs_of_labels(120_000, 0), lambda: pairs_of_labels(2_400_000, 2)),
}


def pooled(data):
    """Single nodes of chains."""
    return tuple(np.concatenate(part) for part in data)


def colours(n_images, side, seed=0):
    """Images with colours and unary scores of two classes."""
    from sklearn_crf import DenseExample

    X, y = regions(n_images, side, seed=seed)
    scores = np.stack((np.zeros_like(X[..., 0]), X[..., 0]), axis=-1)
    return [DenseExample(s, np.clip(128 + 40 * x, 0, 255)) for s, x in zip(scores, X, strict=True)], list(y)


def digest(result):
    """A fingerprint of arrays and lists of them."""
    found = hashlib.sha256()
    parts = [result] if isinstance(result, np.ndarray) and result.dtype != object else result
    for part in parts:
        found.update(part.data.tobytes() if hasattr(part, "indptr") else np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


def work(name, n_jobs, repetitions):
    """Times of one row in this process: (clock, processor, this thread) of each step."""
    warnings.simplefilter("ignore")
    make, options, train, test = ROWS[name]
    estimator = make(n_jobs=n_jobs, **options)
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    (X, y), (Z, _) = train(), test()
    apply = "predict" if hasattr(estimator, "predict") else "transform"
    found = {}
    for step, job in (("fit", lambda: estimator.fit(X, y)), (apply, lambda: getattr(estimator, apply)(Z))):
        times = []
        for _ in range(repetitions):
            start = time.perf_counter(), time.process_time(), time.thread_time()
            result = job()
            end = time.perf_counter(), time.process_time(), time.thread_time()
            times.append(np.subtract(end, start).tolist())
        found[step] = min(times)
    return {"seconds": found, "digest": digest(result)}


def run(name, n_jobs, repetitions):
    """The same in a process of its own, linear algebra on one thread."""
    command = [sys.executable, __file__, "--worker", name, str(n_jobs), "--repetitions", str(repetitions)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def processes(name, repetitions):
    """Times of a row on one thread, alone and beside another process that does the same."""
    alone = run(name, 1, repetitions)["seconds"]
    with ThreadPoolExecutor(2) as pool:
        both = [each["seconds"] for each in pool.map(lambda _: run(name, 1, repetitions), range(2))]
    for step, one in alone.items():
        beside = np.mean([each[step][0] for each in both])
        print(
            f"{name:32s}{step:10s}alone {one[0]:.3f} s, beside another process {beside:.3f} s: "
            f"the cores give {2 * one[0] / beside:.2f} times as much",
            flush=True,
        )


def bandwidth(n_threads, triad, seconds=1.0):
    """Gigabytes a second that threads read and write together, each in arrays of its own that no cache holds."""
    n = 2**23
    arrays = [[np.ones(n) for _ in range(3)] for _ in range(n_threads)]

    def run(parts):
        out, a, b = parts
        moved, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            if triad:
                np.add(a, b, out=out)
            else:
                np.copyto(out, a)
            moved += (3 if triad else 2) * out.nbytes
        return moved

    start = time.perf_counter()
    with ThreadPoolExecutor(n_threads) as pool:
        moved = sum(pool.map(run, arrays))
    return moved / (time.perf_counter() - start) / 1e9


def bandwidths(rounds):
    """The rows of the memory: copies, and sums of two arrays."""
    for step, triad in (("copy", False), ("add", True)):
        one, two = (max(bandwidth(n, triad) for _ in range(rounds)) for n in (1, 2))
        yield {"row": "memory", "step": step, "one": one, "two": two, "gain": two / one, "processor": 1.0, "first": 0.5}


def machine_gain(seconds=0.15):
    """Gain of two threads that only compute, and take the lock of the interpreter once in a millisecond."""

    def rate(n_threads):
        """Loops a second of all threads."""
        with ThreadPoolExecutor(n_threads) as pool:
            return sum(pool.map(loops, range(n_threads))) / seconds

    def loops(number):
        angles, sines = np.full(2**14, 1.0 + number), np.empty(2**14)
        n_done, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(8):
                np.sin(angles, out=sines)
            n_done += 1
        return n_done

    return rate(2) / rate(1)


def compare(name, rounds, repetitions):
    """The rows of the table for one estimator: one for each step."""
    runs, machine = {1: [], 2: []}, [machine_gain()]
    for _ in range(rounds):
        for n_jobs, some in runs.items():
            some.append(run(name, n_jobs, repetitions))
            machine.append(machine_gain())
    same = len({each["digest"] for some in runs.values() for each in some}) == 1
    for step in runs[1][0]["seconds"]:
        one, two = (min(each["seconds"][step] for each in some) for some in runs.values())
        yield {
            "row": name,
            "step": step,
            "one": one[0],
            "two": two[0],
            "gain": one[0] / two[0],
            "processor": two[1] / one[1],
            "first": two[2] / two[1],
            "machine": float(np.mean(machine)),
            "same": same,
        }


# Where the processor is, by the names of libraries.
PLACES = {"interpreter": ("libpython", "python3"), "NumPy": ("_multiarray", "libm.", "openblas", "_sparsetools")}


def job_of(name, step):
    """A step of a row on one thread, run once."""
    warnings.simplefilter("ignore")
    make, options, train, test = ROWS[name]
    (X, y), (Z, _) = train(), test()
    estimator = make(n_jobs=1, **options).fit(X, y)
    job = {"fit": lambda: estimator.fit(X, y), "predict": lambda: estimator.predict(Z)}[step]
    job()
    return job


def profile(name, step, seconds=3.0):
    """Share of the processor's time of a step on one thread in this package's kernels, in NumPy, in the interpreter."""
    job = job_of(name, step)
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder) / "samples"
        record = ["perf", "record", "-q", "-F", "400", "-e", "cpu-clock", "-o", str(samples), "-p", str(os.getpid())]
        with subprocess.Popen(record, stderr=subprocess.DEVNULL) as recorder:
            time.sleep(0.5)
            end = time.process_time() + seconds
            while time.process_time() < end:
                job()
            recorder.send_signal(signal.SIGINT)
        report = ["perf", "report", "-q", "--stdio", "--sort", "dso", "-i", str(samples)]
        lines = subprocess.run(report, capture_output=True, text=True, check=True).stdout.splitlines()
    kernels = {path.name for path in (Path(__file__).resolve().parents[2] / "sklearn_crf").rglob("*.so")}
    shares = dict.fromkeys(("kernels", *PLACES, "rest"), 0.0)
    for line in filter(str.strip, lines):
        share, library = line.split()[:2]
        known = [place for place, parts in PLACES.items() if any(part in library for part in parts)]
        shares["kernels" if library in kernels else known[0] if known else "rest"] += float(share.rstrip("%"))
    print(
        f"{name:32s}{step:10s}" + "".join(f"{place:>14s}{share:>5.0f} %" for place, share in shares.items()), flush=True
    )


def arrays_of(arguments):
    """All arrays in the arguments of a kernel."""
    for each in arguments:
        if isinstance(each, np.ndarray):
            yield each
        elif isinstance(each, tuple | list):
            yield from arrays_of(each)


def watched(kernel, calls):
    """The same kernel, which appends its time, the bytes of its arrays and those of the largest to ``calls``."""

    def call(*arguments, **options):
        start = time.thread_time()
        result = kernel(*arguments, **options)
        spent = time.thread_time() - start
        sizes = [array.nbytes for array in arrays_of((*arguments, *options.values()))]
        calls.append((spent, sum(sizes), max(sizes, default=0)))
        return result

    return call


def limits(name, step):
    """What kernels of a step read and write a second, each array once a call, beside what memory and cores give."""
    job = job_of(name, step)
    calls = []
    for module in [each for key, each in sys.modules.items() if key.startswith("sklearn_crf.")]:
        for key, value in list(vars(module).items()):
            if "cython_function" in type(value).__name__ and module.__name__ != value.__module__:
                setattr(module, key, watched(value, calls))
    start = time.process_time()
    job()
    elapsed = time.process_time() - start
    spent, moved, largest = np.array(calls).T
    matrix = np.ones((768, 768))
    matrix @ matrix
    start = time.thread_time()
    for _ in range(4):
        matrix @ matrix
    operations = 4 * 2 * len(matrix) ** 3 / (time.thread_time() - start) / 1e9
    print(
        f"{name:32s}{step:10s}{len(calls) / elapsed:>7.0f} calls of kernels/s, {1e6 * spent.mean():.0f} us each, "
        f"{100 * spent.sum() / elapsed:.0f} % of the time; largest array {largest.max() / 1e6:.2f} MB, "
        f"{moved.sum() / spent.sum() / 1e9:.1f} GB/s within kernels; "
        f"the machine: {bandwidth(1, True):.1f} GB/s, {operations:.0f} GFlop/s",
        flush=True,
    )


def show(row):
    print(
        f"{row['row']:32s}{row['step']:10s}{row['one']:>8.3f}{row['two']:>8.3f}{row['gain']:>7.2f}"
        f"{row['processor']:>11.2f}{row['first']:>7.2f}{row.get('machine', np.nan):>9.2f}"
        f"  {'yes' if row.get('same', True) else 'NO'}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=["memory", *ROWS], default=["memory", *ROWS], metavar="ROW")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where rows are recorded")
    parser.add_argument("--again", action="store_true", help="measure rows that the record holds, too")
    parser.add_argument("--profile", nargs=2, metavar=("ROW", "STEP"), help="where one thread is, by perf of Linux")
    parser.add_argument("--limits", nargs=2, metavar=("ROW", "STEP"), help="distance of kernels to memory and cores")
    parser.add_argument("--processes", nargs="+", metavar="ROW", help="what two processes at the same time gain")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.profile:
        profile(*options.profile)
        return
    if options.limits:
        limits(*options.limits)
        return
    for name in options.processes or ():
        processes(name, options.repetitions)
    if options.processes:
        return
    if options.worker:
        name, n_jobs = options.worker
        print(json.dumps(work(name, int(n_jobs), options.repetitions)))
        return
    print(f"{'':32s}{'step':10s}{'1 thr.':>8s}{'2 thr.':>8s}{'gain':>7s}{'processor':>11s}{'first':>7s}", end="")
    print(f"{'machine':>9s}  same")
    record = read_record(options.json, [])
    for name in options.rows:
        rows = [row for row in record if row["row"] == name]
        if options.again or not rows:
            memory = name == "memory"
            rows = list(bandwidths(options.rounds) if memory else compare(name, options.rounds, options.repetitions))
            record = [row for row in record if row["row"] != name] + rows
            write_record(options.json, record)
        for row in rows:
            show(row)


if __name__ == "__main__":
    main()
