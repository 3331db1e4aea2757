"""Run every inference algorithm on the models of the UAI 2014 competition, and compare with the known answers.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/uai_models.py [--models Grids_11 DBN_11] \
        [--algorithms JunctionTree LoopyBP] [--limit 20] [--results found.json]

All algorithms that ``sklearn_crf.inference`` exports run with default options on every model of a type that they
accept. A factor graph without factors of more than two nodes is also passed as a pairwise model. The first line of each
model is the known result. For each algorithm that computes marginals, log10 Z, its error and the largest error of a
node's marginal follow. For each algorithm that computes labelings, the score (natural logarithm), the difference to the
best known score and the upper bound follow. If an algorithm rejects a model, its error message is printed. ``--limit``
is the largest number of processor seconds of an algorithm on a model. With ``--results``, an interrupted run continues.

The last table contains, for each algorithm and task, the number of models on which it ran; the number of models of its
type that it refused or did not finish; the numbers of converged results, of bounds of any kind, of certified labelings
and of labelings with the best known score; and the largest difference to this score. Then violations are listed: exact
results that differ from the known results, upper bounds below them, lower bounds above them, labelings that are wrongly
called optimal, and results that are not numbers. The exit status is the number of violations.
"""

import argparse
import csv
import os
import signal
import sys
import time
import warnings
from functools import lru_cache
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.record import read_record, write_record

import sklearn_crf.inference
from sklearn_crf.datasets import read_evidence, read_marginals, read_uai
from sklearn_crf.inference import Inference
from sklearn_crf.models import FactorGraph, PairwiseModel, clamped, pairwise_model_of

# Known answers have 9 decimals.
TOLERANCE = 1e-7


def algorithms(names):
    found = [getattr(sklearn_crf.inference, name) for name in sklearn_crf.inference.__all__]
    found = [cls for cls in found if isinstance(cls, type) and issubclass(cls, Inference) and cls is not Inference]
    return [cls for cls in found if cls.tasks and (not names or cls.__name__ in names)]


def configured(cls):
    """Return an algorithm with its defaults, a seed, and 4 GB for tables.

    Linear programs with more than 100,000 variables would take minutes, and their solver ignores ``--limit`` meanwhile.
    """
    wanted = {"random_state": 0, "max_memory": 4e9, "max_variables": 100_000}
    algorithm = cls()
    return algorithm.set_params(**{name: value for name, value in wanted.items() if name in algorithm.get_params()})


def rows(folder, names):
    with open(folder / "solutions.tsv") as file:
        found = list(csv.DictReader(file, delimiter="\t"))
    return [row for row in found if not names or row["model"] in names]


def read_model(folder, row):
    path = folder / row["folder"] / f"{row['model']}.uai.gz"
    model = read_uai(path)
    if int(row["n_evidence"]):
        model = clamped(model, read_evidence(path.with_suffix(".evid"), model.n_nodes))
    return model


def taken(cls, model):
    """Return the model as a type that the algorithm accepts, or None."""
    if FactorGraph in cls.takes:
        return model
    if PairwiseModel in cls.takes and model.arity.max() <= 2:
        return as_pairwise(model)
    return None


@lru_cache(maxsize=1)
def as_pairwise(model):
    return pairwise_model_of(model)


def marginals_record(result, row, reference):
    """Return a record of computed marginals, and a line of text."""
    error = np.abs(result.unary[:, : reference.shape[1]] - reference).max() if reference is not None else None
    text = "" if error is None else f"marginals off by {error:.1e}"
    record = {"violation": "" if np.isfinite(result.unary).all() else f"no numbers: {text}"}
    if result.log_z is None:
        return record, f"{'':24} {text}"
    log10_z = result.log_z / np.log(10)
    text = f"log10Z {log10_z:15.9f} {text}"
    if not row["log10Z"]:
        return record, text
    known = float(row["log10Z"])
    tol = TOLERANCE * max(1, abs(known))
    holds = {
        "exact": abs(log10_z - known) <= tol and not (error or 0) > 1e-6,
        "upper": log10_z >= known - tol,
        "lower": log10_z <= known + tol,
        None: True,
    }[result.bound]
    text = f"{text}  error {log10_z - known:+.2e} ({result.bound})"
    record["bounds"] = result.bound is not None
    record["violation"] = record["violation"] or ("" if holds else text)
    return record, text


def labeling_record(result, row):
    """Return a record of a labeling, and a line of text."""
    known = float(row["map_ln_score"])
    tol = TOLERANCE * max(1, abs(known))
    is_best = row["map_certificate"] != "none"
    optimal = bool(np.isfinite(result.score) and result.gap <= tol)
    better = "  BETTER THAN KNOWN" if not is_best and result.score > known + tol else ""
    text = f"score {result.score:16.9f} lacks {known - result.score:9.3g} bound {result.bound:12.6g}"
    text += " certified" * optimal + better
    holds = result.bound >= known - tol and not np.isnan(result.score)
    if is_best:
        holds &= result.score <= known + tol and not (optimal and abs(result.score - known) > tol)
    return {
        "violation": "" if holds else text,
        "bounds": bool(np.isfinite(result.bound)),
        "certified": optimal,
        "best": bool(result.score >= known - tol),
        "lacks": float((known - result.score) / max(1.0, abs(known))),
    }, text


def run(cls, task, model, limit):
    """Return the result, or the error as text, and the processor seconds."""
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        result = getattr(configured(cls), task)(model)
    except (ValueError, TimeoutError) as error:
        result = f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return result, time.process_time() - start


def stop(*_):
    raise TimeoutError("stopped by --limit")


def record_of(cls, task, model, row, reference, limit):
    """Return the record of one algorithm on one model."""
    result, seconds = run(cls, task, model, limit)
    if isinstance(result, str):
        outcome = "stopped" if result.startswith("TimeoutError") else "refused"
        record, text = {"violation": ""}, result if len(result) < 160 else result[:157] + "..."
    else:
        outcome = "ran"
        record, text = marginals_record(result, row, reference) if task == "marginals" else labeling_record(result, row)
        record["converged"] = bool(result.converged)
    return {"outcome": outcome, "seconds": seconds, "text": text, **record}


class Results:
    """Records by (folder, model, algorithm, task), in a file if one is given."""

    def __init__(self, path):
        self.path = path
        self.records = {tuple(record.pop("key")): record for record in read_record(path, [])}

    def add(self, key, record):
        self.records[key] = record
        write_record(self.path, [{"key": key, **record} for key, record in self.records.items()])


def summary(records):
    """Yield the lines of the table at the end."""
    yield (
        f"{'algorithm':20}{'task':10}{'models':>7}{'ran':>5}{'refused':>9}{'stopped':>9}{'converged':>11}{'bounds':>8}"
        f"{'violated':>10}{'certified':>11}{'best known':>12}{'worst lacks':>13}{'seconds':>9}"
    )
    for algorithm, task in sorted({key[2:] for key in records}):
        own = [record for key, record in records.items() if key[2:] == (algorithm, task)]

        def count(name, own=own):
            return sum(bool(record.get(name)) for record in own)

        outcomes = [sum(record["outcome"] == kind for record in own) for kind in ("ran", "refused", "stopped")]
        lacks = [record["lacks"] for record in own if "lacks" in record]
        labels = f"{count('certified'):11d}{count('best'):12d}{max(lacks):13.1%}" if lacks else f"{'':36}"
        yield (
            f"{algorithm:20}{task:10}{len(own):7d}{outcomes[0]:5d}{outcomes[1]:9d}{outcomes[2]:9d}"
            f"{count('converged'):11d}{count('bounds'):8d}{count('violation'):10d}{labels}"
            f"{sum(record['seconds'] for record in own):9.1f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--algorithms", nargs="*", default=[])
    parser.add_argument("--limit", type=float, default=60, help="processor seconds for each algorithm")
    parser.add_argument("--results", type=Path, help="JSON file to keep results in and to go on from")
    options = parser.parse_args()
    if "SKLEARN_CRF_DATA" not in os.environ:
        sys.exit("Set SKLEARN_CRF_DATA to the folder of the data sets.")
    folder = Path(os.environ["SKLEARN_CRF_DATA"]) / "uai2014"
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, stop)
    results = Results(options.results)
    for row in rows(folder, options.models):
        model = read_model(folder, row)
        reference = None
        if row["folder"] == "pr_mar":
            reference = read_marginals(folder / "pr_mar" / f"{row['model']}.uai.MAR.gz")
        print(
            f"\n{row['folder']}/{row['model']}: {model.n_nodes} nodes of up to {row['max_states']} states, "
            f"{model.n_factors} factors of up to {row['max_order']} nodes; log10Z {row['log10Z'] or '?'}, "
            f"MAP {row['map_ln_score']} ({row['map_certificate']})"
        )
        for cls in algorithms(options.algorithms):
            own = taken(cls, model)
            for task in ("marginals", "map"):
                if own is None or task not in cls.tasks:
                    continue
                key = (row["folder"], row["model"], cls.__name__, task)
                if key not in results.records:
                    results.add(key, record_of(cls, task, own, row, reference, options.limit))
                record = results.records[key]
                mark = "  VIOLATION" if record["violation"] else ""
                print(f"  {cls.__name__:16} {record['seconds']:7.2f} s  {record['text']}{mark}", flush=True)
    print("", *summary(results.records), sep="\n")
    violations = [
        " ".join((*key, record["violation"])) for key, record in results.records.items() if record["violation"]
    ]
    print(f"\n{len(violations)} violations", *violations, sep="\n  ")
    sys.exit(min(len(violations), 255))


if __name__ == "__main__":
    main()
