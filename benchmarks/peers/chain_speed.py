"""Compare the training and tagging speed of TRWCRF with CRFsuite on chains: chunking of CoNLL-2000.

    SKLEARN_CRF_DATA=/path/to/data python benchmarks/peers/chain_speed.py                  # all parts, then the report
    SKLEARN_CRF_DATA=/path/to/data python benchmarks/peers/chain_speed.py ours2 --repetitions 3  # more runs of one part
    python benchmarks/peers/chain_speed.py report

Both packages use the features of CRFsuite's chunking example, weights only for pairs of a feature and a label that
occur in training, and the objective ``sum of log losses + c2 |w|^2``. The optimum is the smallest objective of all
runs. Every run is a separate process and is stored in ``--json``, so parts can be run one after the other; of several
runs, the shortest time counts. The time of CRFsuite is measured from the start of training to the end of the iteration
in which the objective comes within 0.1 % of the optimum. The time of this package is the time of a whole ``fit`` with
as many iterations as this accuracy requires. Clock and processor times are printed; on a busy machine, only compare
processor times.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.conll_features import sentences, token_features
from support.memory import peak_megabytes
from support.record import read_record, write_record

WITHIN = 1.001


def chunks(tags):
    """Return (type, first, last) of each chunk in a sequence of B-, I- and O tags, as conlleval reads them."""
    found, start, kind = set(), None, None
    for t, tag in enumerate([*tags, "O"]):
        inside = tag.startswith("I-") and kind == tag[2:]
        if not inside:
            if kind is not None:
                found.add((kind, start, t - 1))
            start, kind = (t, tag[2:]) if tag != "O" else (None, None)
    return found


def quality(predicted, truth):
    """Return the accuracy of tokens and the F1 of chunks."""
    right = sum(np.sum(np.asarray(a) == np.asarray(b)) for a, b in zip(predicted, truth, strict=True))
    pairs = [(chunks(a), chunks(b)) for a, b in zip(predicted, truth, strict=True)]
    n_common = sum(len(a & b) for a, b in pairs)
    f1 = 2 * n_common / sum(len(a) + len(b) for a, b in pairs)
    return {"accuracy": right / sum(map(len, truth)), "f1": f1}


class Clock:
    """Wall and processor seconds since the creation of the clock."""

    def __init__(self):
        self._start = time.perf_counter(), time.process_time()

    def read(self):
        wall, processor = time.perf_counter(), time.process_time()
        return wall - self._start[0], processor - self._start[1]


def least_time(job, n_repetitions=5):
    times = []
    for _ in range(n_repetitions):
        clock = Clock()
        result = job()
        times.append(clock.read())
    return np.min(times, axis=0).tolist(), result


def run_ours(c2, max_iter, n_jobs):
    from sklearn_crf import TRWCRF
    from sklearn_crf.preprocessing import SequenceVectorizer

    warnings.simplefilter("ignore")
    clock = Clock()
    tags = []

    def read():
        for sentence in sentences("train"):
            tags.append(np.array([token[2] for token in sentence]))
            yield token_features(sentence)

    vectorizer = SequenceVectorizer()
    X = vectorizer.fit_transform(read())
    result = {"reading": clock.read()}
    options = {"C": 1 / (2 * c2), "weights": "seen", "fit_intercept": False, "inference": "map", "tol": 0.0}
    clock = Clock()
    model = TRWCRF(max_iter=max_iter, n_jobs=n_jobs, **options).fit(X, tags)
    result |= {"training": clock.read(), "peak": peak_megabytes()}
    # The first loss belongs to the start.
    result["losses"] = (2 * c2 * model.loss_curve_[1:]).tolist()
    test = list(sentences("test"))
    features = [token_features(sentence) for sentence in test]
    result["vectorising"], Z = least_time(lambda: vectorizer.transform(features))
    result["tagging"], predicted = least_time(lambda: model.predict(Z))
    return result | quality(predicted, [[token[2] for token in sentence] for sentence in test])


def run_crfsuite(c2, max_iter, n_jobs):
    import pycrfsuite

    class Trainer(pycrfsuite.Trainer):
        def message(self, message):
            if "Loss: " in message:
                losses.append(float(message.split("Loss: ")[1].split()[0]))
                seconds.append(clock.read())

    losses, seconds = [], []
    clock = Clock()
    trainer = Trainer(algorithm="lbfgs", params={"c2": c2, "max_iterations": max_iter, "epsilon": 1e-9, "delta": 1e-9})
    for sentence in sentences("train"):
        trainer.append(token_features(sentence), [token[2] for token in sentence])
    result = {"reading": clock.read()}
    clock = Clock()
    with tempfile.NamedTemporaryFile(suffix=".crfsuite") as file:
        trainer.train(file.name)
        result |= {"losses": losses, "seconds": seconds, "peak": peak_megabytes()}
        tagger = pycrfsuite.Tagger()
        tagger.open(file.name)
    test = list(sentences("test"))
    features = [token_features(sentence) for sentence in test]
    result["vectorising"], items = least_time(lambda: [pycrfsuite.ItemSequence(tokens) for tokens in features])
    result["tagging"], predicted = least_time(lambda: [tagger.tag(tokens) for tokens in items])
    return result | quality(predicted, [[token[2] for token in sentence] for sentence in test])


WORKERS = {"ours": run_ours, "crfsuite": run_crfsuite}
PARTS = {"optimum": ("ours", 1), "crfsuite": ("crfsuite", 1), "ours1": ("ours", 1), "ours2": ("ours", 2)}
TITLES = {"crfsuite": "CRFsuite", "ours1": "TRWCRF, n_jobs=1", "ours2": "TRWCRF, n_jobs=2"}


def run(worker, c2, max_iter, n_jobs=1):
    """Return the result of a worker run in its own process, with linear algebra on one thread."""
    command = [sys.executable, __file__, "--worker", worker, "--c2", c2, "--max-iter", max_iter, "--jobs", n_jobs]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


class Record:
    """Store of the runs so far in a file."""

    def __init__(self, path, c2):
        self.path, self.c2 = path, c2
        self.all = read_record(path, [])

    def add(self, part, result):
        self.all.append({"part": part, "c2": self.c2} | result)
        write_record(self.path, self.all)

    def of(self, part):
        return [run for run in self.all if run["part"] == part and run["c2"] == self.c2]

    @property
    def optimum(self):
        return min(loss for run in self.all if run["c2"] == self.c2 for loss in run["losses"])

    @property
    def n_ours(self):
        """Return the number of iterations after which our objective is close enough."""
        return n_to_within(self.of("optimum")[0]["losses"], self.optimum)


def n_to_within(losses, optimum):
    close = np.flatnonzero(np.array(losses) <= WITHIN * optimum)
    if not len(close):
        raise SystemExit(f"a run of {len(losses)} iterations did not come within 0.1 % of {optimum:.2f}: --max-iter")
    return int(close[0]) + 1


def run_part(part, options, record):
    if part != "optimum" and not record.of("optimum"):
        raise SystemExit("run the part 'optimum' first: it says how many iterations ours needs")
    for _ in range(1 if part == "optimum" else options.repetitions):
        max_iter = record.n_ours if part.startswith("ours") else options.max_iter
        worker, n_jobs = PARTS[part]
        found = run(worker, options.c2, max_iter, n_jobs)
        record.add(part, found)
        wall, processor = found["seconds"][-1] if "seconds" in found else found["training"]
        print(
            f"{part}: {len(found['losses'])} iterations to {found['losses'][-1]:.2f} in {wall:.1f} s, {processor:.1f} "
            f"of the processor; accuracy {found['accuracy']:.4f}, F1 {found['f1']:.4f}, {found['peak']:.0f} MB",
            flush=True,
        )


def figures(runs, optimum):
    """Return the shortest times of several runs, (wall, processor) each, and their other results."""
    for found in runs:
        n_iter = n_to_within(found["losses"], optimum)
        found |= {"n_iter": n_iter}
        if "seconds" in found:
            found["training"] = found["seconds"][n_iter - 1]
    rows = ("training", "reading", "vectorising", "tagging", "n_iter", "peak", "accuracy", "f1")
    return {row: np.min([found[row] for found in runs], axis=0) for row in rows}


def report(record):
    optimum = record.optimum
    columns = {part: figures(record.of(part), optimum) for part in TITLES if record.of(part)}
    print(f"optimum {optimum:.2f}; seconds on the wall / of the processor")
    titles = (
        ("to 0.1 %", 15),
        ("iterations", 12),
        ("tagging", 14),
        ("+ items", 14),
        ("MB", 7),
        ("token %", 9),
        ("F1", 7),
    )
    print(f"{'':18s}" + "".join(f"{title:>{width}s}" for title, width in titles))
    for part, of in columns.items():
        items = of["tagging"] + of["vectorising"]
        print(
            f"{TITLES[part]:18s}{_pair(of['training'], 1):>15s}{of['n_iter']:>12d}{_pair(of['tagging'], 3):>14s}"
            f"{_pair(items, 2):>14s}{of['peak']:>7.0f}{100 * of['accuracy']:>9.2f}{100 * of['f1']:>7.2f}"
        )
    if "crfsuite" not in columns:
        return
    base = columns.pop("crfsuite")
    for part, of in columns.items():
        ratios = {row: of[row] / base[row] for row in ("training", "tagging")}
        print(
            f"{TITLES[part]} / CRFsuite: training {_pair(ratios['training'], 2)}, "
            f"tagging {_pair(ratios['tagging'], 2)}, memory {of['peak'] / base['peak']:.2f}"
        )


def _pair(values, digits):
    return " / ".join(f"{value:.{digits}f}" for value in values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=[*PARTS, "report"], help=f"of {', '.join(PARTS)}, report")
    parser.add_argument("--c2", type=float, default=1.0)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument(
        "--max-iter", type=int, default=160, help="iterations of CRFsuite, and of this package for the optimum"
    )
    parser.add_argument("--json", type=Path, default=Path("chain_speed.json"), help="file for results of runs")
    parser.add_argument("--worker", choices=sorted(WORKERS), help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(WORKERS[options.worker](options.c2, options.max_iter, options.jobs)))
        return
    record = Record(options.json, options.c2)
    for part in options.parts:
        if part == "report":
            report(record)
        elif part in PARTS:
            run_part(part, options, record)
        else:
            parser.error(f"no part {part!r}")


if __name__ == "__main__":
    main()
