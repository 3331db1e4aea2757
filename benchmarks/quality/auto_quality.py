"""Compare the automatic choices with all algorithms and toulbar2 on 215 models of 27 kinds.

    SKLEARN_CRF_DATA=folder python benchmarks/quality/auto_quality.py [--models 3] [--kinds chain horses] \
        [--toulbar2 10] [--tasks labelings marginals] [--results found.json] \
        [--known docs/results/auto_quality/known.json] [--tables docs/results/auto_quality]

The kinds are defined in ``support/auto_kinds.py``: random models, the 28 models of the UAI 2014 competition, and models
of fitted estimators (handwritten words, horses, snakes, scenes of superpixels). Without the data folder, only random
models are used.

Labelings: every other algorithm that accepts the model makes as many iterations as fit into about a third of the
processor time of ``AutoMap``; ICM always gets five restarts. If ``AutoMap`` has no proof, ``ClusterTightening`` bounds
the best score. If the labeling does not reach this bound, toulbar2 gets ``--toulbar2`` processor seconds (0 omits
toulbar2; it is also omitted if pytoulbar2 is not installed). For each kind, the table contains the number of labelings
that ``AutoMap`` proves optimal; the number that are optimal by any proof; the number of models on which another
algorithm has a higher score than ``AutoMap``; the largest difference to the best score of all algorithms, in per cent
of this score; the mean difference between ``AutoMap`` and the best other algorithm of this package; the numbers of
models on which toulbar2 ran and found labels; the smallest and largest difference between toulbar2 and ``AutoMap``
(negative if toulbar2 is better); and milliseconds.

Marginals: exact marginals are computed by elimination within 4 GB, for smaller models of the kind if necessary. The
table contains the mean total variation distance of node marginals for ``AutoMarginals``, loopy belief propagation,
loopy belief propagation with a damping of one half, and tree-reweighted messages; the ratio of the first distance to
the smallest other distance (errors below 0.002 count as 0.002); and the algorithm that the automatic choice used most
often.

``--models`` limits the number of models of each kind. With ``--results``, an interrupted run continues. Bounds and the
labelings of toulbar2 do not depend on ``AutoMap`` and are stored in ``--known``; toulbar2 only runs again if it has no
proof and had less time before. All runs of toulbar2 together take at most ``--most`` seconds; the remaining models wait
for the next run. ``--tables`` writes the tables of the user guide. The rules and budgets of the automatic choices were
tuned on other seeds and models.
"""

import argparse
import json
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.auto_kinds import all_kinds
from support.record import read_record, write_record
from support.toulbar2 import is_installed, solve

from sklearn_crf.inference import (
    AD3,
    ICM,
    MPLP,
    TRWS,
    AlphaExpansion,
    AutoMap,
    AutoMarginals,
    ClusterTightening,
    IncMP,
    JunctionTree,
    LoopyBP,
    TRWMessagePassing,
)
from sklearn_crf.models import FactorGraph, pairwise_model_of, score

# Number of table entries that a bound may read, and its tolerance as a part of the score.
TIGHTENING_WORK, TOLERANCE = 1e8, 1e-9

OTHERS = {
    "BP": lambda n: LoopyBP(max_iter=n),
    "BP damped": lambda n: LoopyBP(max_iter=n, damping=0.5),
    "TRWS": lambda n: TRWS(max_iter=n),
    "AD3": lambda n: AD3(max_iter=n),
    "MPLP": lambda n: MPLP(max_iter=n),
    "IncMP": lambda n: IncMP(max_iter=n),
    "expansion": lambda n: AlphaExpansion(max_iter=n, nonsubmodular="truncate"),
}
MARGINALS = {
    "auto": AutoMarginals,
    "BP": LoopyBP,
    "damped": lambda: LoopyBP(damping=0.5),
    "TRW": lambda: TRWMessagePassing(max_iter=200),
}


def timed(call):
    start = time.process_time()
    found = call()
    return found, time.process_time() - start


def best_within(make, model, seconds):
    """Return the best score within about the given seconds, or None if the algorithm rejects the model."""
    best, n_iter = None, 1
    while n_iter <= 1024:
        try:
            found, took = timed(lambda n=n_iter: make(n).map(model))
        except (TypeError, ValueError):
            return best
        if took > seconds and best is not None:
            return best
        best = found.score if best is None else max(best, found.score)
        if found.converged or took > seconds:
            return best
        n_iter *= 2
    return best


def is_pairwise(model):
    """Return whether all factors of a factor graph have at most two nodes."""
    return isinstance(model, FactorGraph) and model.arity.max(initial=0) <= 2


def labeled(model):
    """Return a record of one model: the scores of ``AutoMap`` and of the other algorithms."""
    found, took = timed(lambda: AutoMap().map(model))
    record = {"score": found.score, "proven": bool(found.certified), "method": found.method, "seconds": took}
    if is_pairwise(model):
        # Pairwise models are accepted by more algorithms.
        model = pairwise_model_of(model)
    scores = {name: best_within(make, model, took / 3) for name, make in OTHERS.items()}
    scores["ICM"] = best_within(lambda n: ICM(n_restarts=5, random_state=0), model, 0.0)
    return record | {
        "others": {name: value for name, value in scores.items() if value is not None and np.isfinite(value)}
    }


class Known:
    """Knowledge about the best labelings, independent of ``AutoMap``: upper bounds, and the scores of toulbar2."""

    def __init__(self, path, seconds, most):
        self.path, self.seconds, self.left = path, seconds, most
        self.entries = read_record(path, {})

    def of(self, key, model, reached):
        """Return the known results of a model, after computing missing results; ``reached`` is the score to exceed."""
        entry = self.entries.setdefault(key, {})
        if "bound" not in entry:
            tightening = ClusterTightening(TIGHTENING_WORK)
            entry["bound"] = tightening.map(model).bound if tightening.fits(model) else None
            self._save()
        is_open = not is_optimal(reached, entry) and entry.get("limit", 0) < self.seconds
        if is_open and not entry.get("proven") and self.left > 0:
            labels, proven, used = solve(model, self.seconds)
            found = None if labels is None else score(model, labels)
            entry |= {"limit": self.seconds, "score": found, "proven": proven, "seconds": round(used, 3)}
            self.left -= used
            self._save()
        return entry

    def _save(self):
        write_record(self.path, self.entries)


def is_optimal(reached, entry):
    """Return whether a score reaches a bound, or the score of a labeling that is proven optimal."""
    tolerance = TOLERANCE * max(1.0, abs(reached))
    by_bound = entry.get("bound") is not None and reached >= entry["bound"] - tolerance
    return bool(by_bound or (entry.get("proven") and reached >= entry["score"] - tolerance))


def summed(model):
    """Return the errors of the marginals of one model, or None if the exact marginals are not known."""
    try:
        exact = JunctionTree(max_memory=4e9).marginals(model).unary
    except ValueError:
        return {"errors": None}
    # Pairwise models are accepted by more algorithms.
    pairwise = pairwise_model_of(model) if is_pairwise(model) else model
    errors, record = {}, {}
    for name, make in MARGINALS.items():
        try:
            found = make().marginals(model if name == "auto" else pairwise)
        except TypeError:
            continue
        errors[name] = float(np.abs(found.unary - exact).sum(axis=1).mean() / 2)
        if name == "auto":
            record["method"] = found.method
    return record | {"errors": errors}


def row_of_labelings(kind, records):
    """Return one row of the table, with figures by name."""
    lacks, ahead, peer, n_below = [], [], [], 0
    for record in records:
        others, theirs = max(record["others"].values()), record["known"].get("score")
        rivals = [record["score"], others] + ([] if theirs is None else [theirs])
        size = max(1.0, abs(max(rivals)))
        n_below += others > record["score"] + 1e-6 * abs(record["score"])
        lacks.append(100 * (max(rivals) - record["score"]) / size)
        ahead.append(100 * (record["score"] - others) / size)
        if theirs is not None:
            peer.append(100 * (record["score"] - theirs) / size)
    return {
        "kind": kind,
        "models": len(records),
        "proven": sum(record["proven"] for record in records),
        "optimal": sum(record["proven"] or is_optimal(record["score"], record["known"]) for record in records),
        "below": int(n_below),
        "lacks": max(lacks),
        "ahead": float(np.mean(ahead)),
        "peer_runs": sum("limit" in record["known"] for record in records),
        "peer_models": len(peer),
        "peer_least": min(peer, default=None),
        "peer_most": max(peer, default=None),
        "milliseconds": 1e3 * float(np.mean([record["seconds"] for record in records])),
        "method": Counter(record["method"] for record in records).most_common(1)[0][0],
    }


def row_of_marginals(kind, records):
    """Return a row of the table of marginals; None if the exact marginals of no model are known."""
    known = [record for record in records if record["errors"] is not None]
    if not known:
        return None
    row = {"kind": kind, "models": len(known)}
    for name in MARGINALS:
        values = [record["errors"][name] for record in known if name in record["errors"]]
        row[name] = float(np.mean(values)) if len(values) == len(known) else None
    best = min(row[name] for name in MARGINALS if name != "auto" and row[name] is not None)
    row["ratio"] = max(row["auto"], 0.002) / max(best, 0.002)
    row["method"] = Counter(record["method"] for record in known).most_common(1)[0][0]
    return row


def line_of(row):
    """Return a row as text."""
    cells = [f"{row['kind']:<18}"]
    for name, value in row.items():
        if isinstance(value, float):
            cells.append(f"{name} {value:.4g}")
        elif name not in ("kind", "method") and value is not None:
            cells.append(f"{name} {value}")
    return "  ".join([*cells, row["method"]])


def run(task, kind, options, record, known, save):
    """Return the records of all models of a kind; existing records are kept."""
    models, make = all_kinds()[kind], {"labelings": "labeled", "marginals": "summed"}[task]
    records = []
    for number in range(min(models.n_models, options.models or models.n_models)):
        key, model = f"{task}/{kind}/{number}", partial(getattr(models, make), number)
        if key not in record:
            record[key] = labeled(model()) if task == "labelings" else summed(model())
            save()
        found = dict(record[key])
        if task == "labelings":
            found["known"] = {} if found["proven"] else known.of(f"{kind}/{number}", model(), found["score"])
        records.append(found)
    return records


def conclusion(task, rows):
    """Return the text that sums up the rows."""
    if task == "marginals":
        ratios = np.array([row["ratio"] for row in rows])
        return f"ratio at most 1.1 on {np.sum(ratios <= 1.1)} of {len(ratios)} kinds, at most {ratios.max():.2f} on all"
    names = ("models", "proven", "optimal", "below", "peer_runs", "peer_models")
    total = {name: sum(row[name] for row in rows) for name in names}
    n_close = sum(row["lacks"] <= 0.2 for row in rows)
    return (
        f"{total['models']} models, {total['proven']} proven optimal by AutoMap, {total['optimal']} known to be, "
        f"{total['below']} below another algorithm; toulbar2 ran on {total['peer_runs']} and found labels of "
        f"{total['peer_models']}; within 0.2 % of the best on {n_close} of {len(rows)} kinds"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=0, help="largest number of models of each kind; 0 for all models")
    parser.add_argument("--kinds", nargs="*", default=list(all_kinds()))
    parser.add_argument("--tasks", nargs="*", default=["labelings", "marginals"])
    parser.add_argument("--toulbar2", type=int, default=10, metavar="SECONDS")
    parser.add_argument("--most", type=float, default=np.inf, metavar="SECONDS")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--known", type=Path)
    parser.add_argument("--tables", type=Path)
    options = parser.parse_args()
    options.toulbar2 = options.toulbar2 if options.toulbar2 and is_installed() else 0
    warnings.simplefilter("ignore")
    record, known = read_record(options.results, {}), Known(options.known, options.toulbar2, options.most)
    for task in options.tasks:
        rows = []
        for kind in options.kinds:
            records = run(task, kind, options, record, known, lambda: write_record(options.results, record))
            row = (row_of_labelings if task == "labelings" else row_of_marginals)(kind, records)
            if row is None:
                print(f"{kind:<18}elimination is too wide to tell", flush=True)
                continue
            rows.append(row)
            print(line_of(row), flush=True)
        print(conclusion(task, rows), end="\n\n")
        if options.tables:
            kept = [{name: round(x, 6) if isinstance(x, float) else x for name, x in row.items()} for row in rows]
            text = json.dumps({"rows": kept}, indent=1)
            (options.tables / f"{task}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
