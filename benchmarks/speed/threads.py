"""Measure the speed-up by threads in fit and predict of every estimator, and how long they hold Python's lock.

    # record for the result page: all rows on all cores; about five minutes on an idle machine
    python benchmarks/speed/threads.py --json docs/results/threads/threads.json --again
    python benchmarks/speed/threads.py --threads 1 2 4 8 16 --rows "TRWCRF, images" "DenseCRF"

Numbers of threads are measured alternately, in separate processes; a time is the shortest of ``--repetitions`` in each
of ``--rounds`` processes. "gain" is the elapsed time on one thread divided by the elapsed time on more threads.
"processor" is the processor time on the most threads divided by the processor time on one thread, which is also valid
on a busy machine. "lock" is the fraction of time in which a single thread holds the interpreter's lock, sampled from
outside of the interpreter (Python 3.11 on Linux); threads can only share the remaining time. "of 16" is an estimate of
the gain of 16 threads by Amdahl's law, if they were not measured. It assumes that exactly the work that two threads did
not share is serial. "processes" is the gain of as many separate processes with one thread each that run at the same
time; threads cannot gain more, because cores share caches and memory. "same" tells whether predictions are bitwise
identical for all numbers of threads. Rows that ``--json`` already contains are printed from this file.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.ndimage import gaussian_filter
from support.interpreter_lock import share_held
from support.record import read_record, write_record

# Number of distinct sequences; larger data repeat them.
DRAWN = 1000


def repeated(X, y, n):
    """Return the requested number of examples by repeating the given examples."""
    return [X[i % len(X)] for i in range(n)], [y[i % len(y)] for i in range(n)]


def regions(n_images, side, n_classes=2, n_features=3, noise=1.0, seed=0):
    """Return images whose classes are regions of smooth random fields, with noisy features."""
    rng = np.random.default_rng(seed)
    fields = gaussian_filter(rng.normal(size=(n_images, side, side, n_classes)), (0, 3, 3, 0))
    y = fields.argmax(axis=-1)
    centres = np.random.default_rng(1).normal(size=(n_classes, n_features))
    return centres[y] + noise * rng.normal(size=(*y.shape, n_features)), y


def chains(n_chains, n_classes, n_features, seed=0):
    """Return sequences of 5 to 40 nodes from Markov chains, with dense features."""
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
    """Return sentences of dictionaries and their tags."""
    from support.peer_tagging import sentences

    X, y = sentences(min(n_sentences, DRAWN), seed)
    return repeated(X, [np.array(tags) for tags in y], n_sentences)


def graphs(n_graphs, n_nodes, n_classes, n_features, seed=0):
    """Return neighbour graphs of points in the plane, with smooth classes."""
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
    """Return smooth images with noise, and without."""
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

    return MultiConditionalMFA(n_components=3, n_factors=4, noise="tied", alpha=0.01, **options)


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
    """Return sentences as matrices of features, with their labels."""
    X, y = words(min(n_sentences, DRAWN), seed)
    return repeated(vectorizer().fit(words(DRAWN, 1)[0]).transform(X), y, n_sentences)


def pairs_of_labels(n_samples, seed):
    """Return twelve binary labels that depend on each other."""
    rng = np.random.default_rng(seed)
    fixed = np.random.default_rng(1)
    X = rng.normal(size=(n_samples, 40))
    y = X @ fixed.normal(size=(40, 4)) @ fixed.normal(size=(4, 12)) + 4 * rng.normal(size=(n_samples, 12)) > 0
    return X, y.astype(int)


# name: (estimator of options, (X, y) to learn from, (X, y) to predict). Each takes about a second or more on one
# thread, except predictions of table rows, for which the data would take more than 2 GB.
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
    """Return the single nodes of chains."""
    return tuple(np.concatenate(part) for part in data)


def colours(n_images, side, seed=0):
    """Return images with colours and unary scores of two classes."""
    from sklearn_crf import DenseExample

    X, y = regions(n_images, side, seed=seed)
    scores = np.stack((np.zeros_like(X[..., 0]), X[..., 0]), axis=-1)
    return [DenseExample(s, np.clip(128 + 40 * x, 0, 255)) for s, x in zip(scores, X, strict=True)], list(y)


def digest(result):
    """Return a fingerprint of an array or of a list of arrays."""
    found = hashlib.sha256()
    parts = [result] if isinstance(result, np.ndarray) and result.dtype != object else result
    for part in parts:
        found.update(part.data.tobytes() if hasattr(part, "indptr") else np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


def work(name, n_jobs, repetitions):
    """Return the wall and processor times of each step of a row, run in this process, and the share with the lock."""
    warnings.simplefilter("ignore")
    make, options, train, test = ROWS[name]
    estimator = make(n_jobs=n_jobs, **options)
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    (X, y), (Z, _) = train(), test()
    apply = "predict" if hasattr(estimator, "predict") else "transform"
    seconds, lock, result = {}, {}, None

    def fit():
        estimator.fit(X, y)

    def use():
        nonlocal result
        result = getattr(estimator, apply)(Z)

    for step, job in (("fit", fit), (apply, use)):
        times, held = [], []
        for _ in range(repetitions):
            start = time.perf_counter(), time.process_time()
            held.append(share_held(job))
            times.append(np.subtract((time.perf_counter(), time.process_time()), start).tolist())
        seconds[step], lock[step] = min(times), min(held)
    return {"seconds": seconds, "lock": lock, "digest": digest(result)}


def run(name, n_jobs, repetitions):
    """Run a row in its own process, with linear algebra on one thread."""
    command = [sys.executable, __file__, "--worker", name, str(n_jobs), "--repetitions", str(repetitions)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def run_at_once(name, count, repetitions):
    """Run a row on one thread in several processes at the same time."""
    with ThreadPoolExecutor(count) as starters:
        return list(starters.map(lambda _: run(name, 1, repetitions), range(count)))


def compare(name, threads, rounds, repetitions):
    """Yield the rows of the table for one estimator: one row for each step."""
    runs = {n_jobs: [] for n_jobs in threads}
    for _ in range(rounds):
        for n_jobs, some in runs.items():
            some.append(run(name, n_jobs, repetitions))
    same = len({each["digest"] for some in runs.values() for each in some}) == 1
    separate = run_at_once(name, threads[-1], repetitions)
    for step in runs[threads[0]][0]["seconds"]:
        best = {n_jobs: min(each["seconds"][step] for each in some) for n_jobs, some in runs.items()}
        seconds = {str(n_jobs): clock for n_jobs, (clock, _) in best.items()}
        alone, together = best[threads[0]][0], [each["seconds"][step][0] for each in separate]
        yield {
            "row": name,
            "step": step,
            "seconds": seconds,
            "processes": len(together) * alone / float(np.mean(together)),
            "modelled": modelled_gain(seconds) if len(seconds) > 1 else None,
            "processor": best[threads[-1]][1] / best[threads[0]][1],
            "lock": min(each["lock"][step] for each in runs[threads[0]]),
            "same": same,
        }


def modelled_gain(seconds, n_threads=16):
    """Return the speed-up of a number of threads, measured or estimated by Amdahl's law."""
    seconds = {int(n_jobs): clock for n_jobs, clock in seconds.items()}
    one, two = sorted(seconds)[0], sorted(seconds)[1]
    if n_threads in seconds:
        return seconds[one] / seconds[n_threads]
    share = min(max((seconds[two] / seconds[one] - one / two) / (1 - one / two), 0.0), 1.0)
    return 1 / (share + (1 - share) * one / n_threads)


def show(row):
    """Print a row."""
    clock = row["seconds"]
    first = next(iter(clock.values()))
    gains = "".join(f"{first / each:7.2f}" for each in list(clock.values())[1:])
    modelled = f"{row['modelled']:7.1f}" if len(clock) > 1 else ""
    numbers = f"{modelled}{row['processes']:>11.2f}{row['processor']:>11.2f}{row['lock']:>7.1%}"
    print(
        f"{row['row']:32s}{row['step']:10s}{first:>8.3f}{gains}{numbers}  {'yes' if row['same'] else 'NO'}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="ROW")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, os.cpu_count() or 1], metavar="N")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for recorded rows")
    parser.add_argument("--again", action="store_true", help="measure rows that the record holds, too")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, n_jobs = options.worker
        print(json.dumps(work(name, int(n_jobs), options.repetitions)))
        return
    threads = sorted(set(options.threads))
    heads = "".join(f"{f'x {n}':>7s}" for n in threads[1:])
    others = f"{'of 16' if heads else '':>7s}{'processes':>11s}{'processor':>11s}{'lock':>7s}  same"
    print(f"{'':42s}{'seconds':>8s}{heads}{others}")
    record = read_record(options.json, [])
    for name in options.rows:
        rows = [row for row in record if row["row"] == name]
        if options.again or not rows:
            rows = list(compare(name, threads, options.rounds, options.repetitions))
            record = [row for row in record if row["row"] != name] + rows
            write_record(options.json, record)
        for row in rows:
            show(row)


if __name__ == "__main__":
    main()
