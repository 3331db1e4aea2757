"""Training and tagging speed of TRWCRF on chains beside CRFsuite: chunking of CoNLL-2000.

    SKLEARN_CRF_DATA=/path/to/data python benchmarks/chain_speed.py [--c2 1.0] [--repetitions 2]

Both get the features of CRFsuite's chunking example, weights for pairs of a feature and a label seen in training alone,
and the objective ``sum of log losses + c2 |w|^2``. The optimum is what TRWCRF reaches in 500 iterations. Every run is a
process of its own, one after the other in turn; of several repetitions the least time counts. CRFsuite's time is taken
from the start of its training to the end of the iteration in which it comes within 0.1 % of the optimum; ours is that
of a whole ``fit`` of as many iterations as it needs for that.
"""

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

TEMPLATES = (
    *[(("w", i),) for i in (-2, -1, 0, 1, 2)],
    (("w", -1), ("w", 0)),
    (("w", 0), ("w", 1)),
    *[(("pos", i),) for i in (-2, -1, 0, 1, 2)],
    *[(("pos", i), ("pos", i + 1)) for i in (-2, -1, 0, 1)],
    *[(("pos", i), ("pos", i + 1), ("pos", i + 2)) for i in (-2, -1, 0)],
)
NAMES = ["|".join(f"{field}[{offset}]" for field, offset in template) for template in TEMPLATES]
FIELD = {"w": 0, "pos": 1}
WITHIN = 1.001


def sentences(name):
    path = Path(os.environ["SKLEARN_CRF_DATA"]) / "conll2000" / f"{name}.txt.gz"
    with gzip.open(path, "rt") as file:
        for block in file.read().strip().split("\n\n"):
            yield [line.split() for line in block.split("\n")]


def token_features(sentence):
    """Names of the features of every token, as CRFsuite's example makes them."""
    tokens = []
    for t in range(len(sentence)):
        names = []
        for template, name in zip(TEMPLATES, NAMES, strict=True):
            if all(0 <= t + offset < len(sentence) for _, offset in template):
                values = "|".join(sentence[t + offset][FIELD[field]] for field, offset in template)
                names.append(f"{name}={values}")
        tokens.append(names)
    tokens[0].append("__BOS__")
    tokens[-1].append("__EOS__")
    return tokens


def chunks(tags):
    """(type, first, last) of the chunks of a sequence of B-, I- and O tags, as conlleval reads them."""
    found, start, kind = set(), None, None
    for t, tag in enumerate([*tags, "O"]):
        inside = tag.startswith("I-") and kind == tag[2:]
        if not inside:
            if kind is not None:
                found.add((kind, start, t - 1))
            start, kind = (t, tag[2:]) if tag != "O" else (None, None)
    return found


def quality(predicted, truth):
    """Accuracy of tokens and F1 of chunks."""
    right = sum(np.sum(np.asarray(a) == np.asarray(b)) for a, b in zip(predicted, truth, strict=True))
    pairs = [(chunks(a), chunks(b)) for a, b in zip(predicted, truth, strict=True)]
    n_common = sum(len(a & b) for a, b in pairs)
    f1 = 2 * n_common / sum(len(a) + len(b) for a, b in pairs)
    return {"accuracy": right / sum(map(len, truth)), "f1": f1}


def peak_megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def least_time(job, n_repetitions=5):
    times = []
    for _ in range(n_repetitions):
        start = time.perf_counter()
        result = job()
        times.append(time.perf_counter() - start)
    return min(times), result


def run_ours(c2, max_iter, n_jobs):
    from sklearn_crf import TRWCRF
    from sklearn_crf.preprocessing import SequenceVectorizer

    warnings.simplefilter("ignore")
    start = time.perf_counter()
    tags = []

    def read():
        for sentence in sentences("train"):
            tags.append(np.array([token[2] for token in sentence]))
            yield token_features(sentence)

    vectorizer = SequenceVectorizer()
    X = vectorizer.fit_transform(read())
    reading = time.perf_counter() - start
    options = {"C": 1 / (2 * c2), "weights": "seen", "fit_intercept": False, "inference": "map", "tol": 0.0}
    start = time.perf_counter()
    model = TRWCRF(max_iter=max_iter, n_jobs=n_jobs, **options).fit(X, tags)
    result = {"reading": reading, "training": time.perf_counter() - start, "peak": peak_megabytes()}
    result["losses"] = (2 * c2 * model.loss_curve_).tolist()
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
                seconds.append(time.perf_counter() - begin)

    losses, seconds = [], []
    start = time.perf_counter()
    trainer = Trainer(algorithm="lbfgs", params={"c2": c2, "max_iterations": max_iter, "epsilon": 1e-9, "delta": 1e-9})
    for sentence in sentences("train"):
        trainer.append(token_features(sentence), [token[2] for token in sentence])
    reading = time.perf_counter() - start
    begin = time.perf_counter()
    path = f"/tmp/chain_speed_{os.getpid()}.crfsuite"
    trainer.train(path)
    result = {"reading": reading, "losses": losses, "seconds": seconds, "peak": peak_megabytes()}
    tagger = pycrfsuite.Tagger()
    tagger.open(path)
    test = list(sentences("test"))
    features = [token_features(sentence) for sentence in test]
    result["vectorising"], items = least_time(lambda: [pycrfsuite.ItemSequence(tokens) for tokens in features])
    result["tagging"], predicted = least_time(lambda: [tagger.tag(tokens) for tokens in items])
    os.remove(path)
    return result | quality(predicted, [[token[2] for token in sentence] for sentence in test])


WORKERS = {"ours": run_ours, "crfsuite": run_crfsuite}


def run(worker, c2, max_iter, n_jobs=1):
    """Result of a worker in a process of its own, linear algebra on one thread in all."""
    command = [sys.executable, __file__, "--worker", worker, "--c2", c2, "--max-iter", max_iter, "--jobs", n_jobs]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def first_within(losses, optimum):
    return int(np.argmax(np.array(losses) <= WITHIN * optimum))


def report(options):
    exact = run("ours", options.c2, 500, 2)
    optimum = min(exact["losses"])
    n_ours = first_within(exact["losses"], optimum)  # the first loss is that of the start
    print(
        f"optimum {optimum:.2f} (accuracy {exact['accuracy']:.4f}, F1 {exact['f1']:.4f}); {n_ours} iterations of ours"
    )
    columns = {"CRFsuite": [], "TRWCRF, n_jobs=1": [], "TRWCRF, n_jobs=2": []}
    for _ in range(options.repetitions):
        theirs = run("crfsuite", options.c2, options.max_iter)
        k = first_within(theirs["losses"], optimum)
        if theirs["losses"][k] > WITHIN * optimum:
            raise SystemExit(f"CRFsuite is not within 0.1 % after --max-iter={options.max_iter} iterations")
        theirs |= {"training": theirs["seconds"][k], "n_iter": k + 1}
        columns["CRFsuite"].append(theirs)
        for n_jobs in (1, 2):
            columns[f"TRWCRF, n_jobs={n_jobs}"].append(run("ours", options.c2, n_ours, n_jobs) | {"n_iter": n_ours})
    rows = {"training": "s to 0.1 %", "reading": "s reading", "vectorising": "s test items", "tagging": "s tagging"}
    rows |= {"n_iter": "iterations", "peak": "MB peak", "accuracy": "accuracy", "f1": "F1"}
    least = {name: {row: min(run[row] for run in runs) for row in rows} for name, runs in columns.items()}
    for name, values in least.items():
        print(f"{name:18s}" + "".join(f"  {title} {values[row]:.4g}" for row, title in rows.items()))
    base = least["CRFsuite"]
    for name, values in list(least.items())[1:]:
        ratios = {row: values[row] / base[row] for row in ("training", "tagging", "peak")}
        both = (values["vectorising"] + values["tagging"]) / (base["vectorising"] + base["tagging"])
        print(
            f"{name} / CRFsuite:" + "".join(f"  {row} {x:.2f}" for row, x in ratios.items()), f" with items {both:.2f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--c2", type=float, default=1.0)
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--max-iter", type=int, default=300, help="iterations of CRFsuite")
    parser.add_argument("--worker", choices=sorted(WORKERS), help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(WORKERS[options.worker](options.c2, options.max_iter, options.jobs)))
    else:
        report(options)


if __name__ == "__main__":
    main()
