"""Every inference algorithm on the models of the UAI 2014 competition, next to the known answers.

    SKLEARN_CRF_DATA=folder python benchmarks/uai_models.py [--models Grids_11 DBN_11] [--algorithms JunctionTree
    LoopyBP]

Algorithms are found by what ``sklearn_crf.inference`` exports, and run with their defaults on every model of a type
that they take; a factor graph without factors of more than two nodes is a pairwise model too. For each model the
first line is the known answer. Then come, per algorithm: log10 Z with its error and the largest error of a node's
marginal; or the score (natural logarithm) of the labeling, its distance from the best known one, and the upper bound.
What an algorithm cannot take is printed as it says so itself.

At the end stand the violations: exact results that differ from the known ones, upper bounds below them, lower bounds
above them, and labelings called optimal that are not. The exit status is their number.
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

import numpy as np

import sklearn_crf.inference
from sklearn_crf.datasets import read_evidence, read_marginals, read_uai
from sklearn_crf.factor_graphs import FactorGraph, pairwise_model_of
from sklearn_crf.inference import Inference
from sklearn_crf.models import PairwiseModel, clamped

# Known answers have 9 decimals.
TOLERANCE = 1e-7


def algorithms(names):
    found = [getattr(sklearn_crf.inference, name) for name in sklearn_crf.inference.__all__]
    found = [cls for cls in found if isinstance(cls, type) and issubclass(cls, Inference) and cls is not Inference]
    return [cls for cls in found if cls.tasks and (not names or cls.__name__ in names)]


def configured(cls):
    """An algorithm with its defaults, seeded, and 4 GB for tables."""
    wanted = {"random_state": 0, "max_memory": 4e9}
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
    """The model as a type that the algorithm takes, or None."""
    if FactorGraph in cls.takes:
        return model
    if PairwiseModel in cls.takes and model.arity.max() <= 2:
        return as_pairwise(model)
    return None


@lru_cache(maxsize=1)
def as_pairwise(model):
    return pairwise_model_of(model)


class Checks:
    """Violations of what algorithms promise, collected."""

    def __init__(self):
        self.found = []

    def require(self, holds, *words):
        if not holds:
            self.found.append(" ".join(map(str, words)))
            return "  VIOLATION"
        return ""


def show_marginals(name, result, row, reference, checks):
    error = np.abs(result.unary[:, : reference.shape[1]] - reference).max() if reference is not None else np.nan
    text = f"marginals off by {error:.1e}"
    if result.log_z is None:
        return f"{'':24} {text}"
    log10_z = result.log_z / np.log(10)
    text = f"log10Z {log10_z:15.9f} {text}"
    if not row["log10Z"]:
        return text
    known = float(row["log10Z"])
    tol = TOLERANCE * max(1, abs(known))
    holds = {
        "exact": abs(log10_z - known) <= tol and not error > 1e-6,
        "upper": log10_z >= known - tol,
        "lower": log10_z <= known + tol,
        None: True,
    }[result.bound]
    mark = checks.require(
        holds, name, row["model"], f"log10Z {log10_z} ({result.bound}), known", known, "marginals", error
    )
    return f"{text}  error {log10_z - known:+.2e} ({result.bound}){mark}"


def show_labeling(name, result, row, checks):
    known = float(row["map_ln_score"])
    tol = TOLERANCE * max(1, abs(known))
    is_best = row["map_certificate"] != "none"
    mark = checks.require(result.bound >= known - tol, name, row["model"], "bound", result.bound, "below", known)
    optimal = np.isfinite(result.score) and result.gap <= tol
    if is_best:
        mark += checks.require(result.score <= known + tol, name, row["model"], "score", result.score, "above", known)
        wrong = optimal and abs(result.score - known) > tol
        mark += checks.require(not wrong, name, row["model"], "certified", result.score, "known", known)
    better = "  BETTER THAN KNOWN" if not is_best and result.score > known + tol else ""
    certified = " certified" if optimal else ""
    text = f"score {result.score:16.9f} lacks {known - result.score:9.3g} bound {result.bound:12.6g}"
    return text + certified + better + mark


def run(cls, task, model, limit):
    """Result (or the error as text) and seconds."""
    start = time.perf_counter()
    signal.alarm(limit)
    try:
        result = getattr(configured(cls), task)(model)
    except (ValueError, TimeoutError) as error:
        result = f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return result, time.perf_counter() - start


def stop(*_):
    raise TimeoutError("stopped by --limit")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--algorithms", nargs="*", default=[])
    parser.add_argument("--limit", type=int, default=60, help="seconds for one algorithm on one model")
    options = parser.parse_args()
    if "SKLEARN_CRF_DATA" not in os.environ:
        sys.exit("Set SKLEARN_CRF_DATA to the folder of the data sets.")
    folder = Path(os.environ["SKLEARN_CRF_DATA"]) / "uai2014"
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, stop)
    checks = Checks()
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
                result, seconds = run(cls, task, own, options.limit)
                if isinstance(result, str):
                    text = result if len(result) < 160 else result[:157] + "..."
                elif task == "marginals":
                    text = show_marginals(cls.__name__, result, row, reference, checks)
                else:
                    text = show_labeling(cls.__name__, result, row, checks)
                print(f"  {cls.__name__:16} {seconds:7.2f} s  {text}", flush=True)
    print(f"\n{len(checks.found)} violations", *checks.found, sep="\n  ")
    sys.exit(min(len(checks.found), 255))


if __name__ == "__main__":
    main()
