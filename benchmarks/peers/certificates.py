"""Proofs of optimality on the models of the UAI 2014 competition: clusters, branch and bound, and toulbar2.

    SKLEARN_CRF_DATA=folder python benchmarks/peers/certificates.py [--models Grids_11 DBN_11] [--peer 30] \
        [--work 1e8 1e9] [--table docs/results/auto_quality/certificates.json]

Prints for each model, with processor seconds, the gap between bound and score (relative to the score) of two
algorithms: TRWS (MPLP for factors of more than two nodes), and ClusterTightening with each budget of ``--work`` table
entries. If toulbar2 is installed, its labeling and whether it proves this labeling optimal within ``--peer`` processor
seconds are also printed. The last lines count the proofs of the two algorithms together, and how many of the models
that toulbar2 solves they also solve. ``AutoMap`` with a ``budget`` beyond the default, which ``certify`` of the
estimators uses, ends with ClusterTightening. ``--table`` writes the rows for the user guide.
"""

import argparse
import csv
import json
import os
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

from sklearn_crf.datasets import read_evidence, read_uai
from sklearn_crf.inference import MPLP, TRWS, ClusterTightening
from sklearn_crf.models import clamped, pairwise_model_of, score


def models(folder, names):
    """Yield the name and model of each problem, with evidence applied."""
    with open(folder / "solutions.tsv") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if names and row["model"] not in names:
                continue
            path = folder / row["folder"] / f"{row['model']}.uai.gz"
            model = read_uai(path)
            if int(row["n_evidence"]):
                model = clamped(model, read_evidence(path.with_suffix(".evid"), model.n_nodes))
            yield f"{row['folder']}/{row['model']}", model


def proof(inference, model):
    """Return the gap relative to the score (0 if closed), the score, and processor seconds."""
    start = time.process_time()
    found = inference.map(model)
    gap = 0.0 if found.certified else found.gap / max(1.0, abs(found.score))
    return {"gap": round(gap, 9), "score": round(found.score, 9), "seconds": round(time.process_time() - start, 3)}


def proofs(name, model, options, with_peer):
    """Return the row of a model: the gaps that each algorithm proves."""
    has_factors = model.arity.max() > 2
    row = {"model": name, "relaxed": proof(MPLP(), model) if has_factors else proof(TRWS(), pairwise_model_of(model))}
    row["tightened"] = [proof(ClusterTightening(work), model) for work in options.work]
    if with_peer:
        from support.toulbar2 import solve

        labels, proven, used = solve(model, options.peer)
        reached = None if labels is None else round(score(model, labels), 9)
        row["toulbar2"] = {"proven": bool(proven), "score": reached, "seconds": round(used, 3)}
    return row


def line_of(row):
    """Return a row as text."""

    def cell(found):
        gap = f"{found['gap']:.1e}" if found["gap"] else "proven"
        return f"{gap:>8} {found['seconds']:6.2f} s"

    text = "  ".join([f"{row['model']:26}", *map(cell, [row["relaxed"], *row["tightened"]])])
    if "toulbar2" not in row:
        return text
    peer = row["toulbar2"]
    lacks = "nothing found" if peer["score"] is None else f"lacks {row['tightened'][-1]['score'] - peer['score']:.3g}"
    return f"{text}  toulbar2 {'proven' if peer['proven'] else lacks} {peer['seconds']:.1f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--peer", type=int, default=30, help="seconds for toulbar2; 0 omits toulbar2")
    parser.add_argument("--work", type=float, nargs="+", default=[1e8, 1e9])
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    if "SKLEARN_CRF_DATA" not in os.environ:
        sys.exit("Set SKLEARN_CRF_DATA to the folder of the data sets.")
    warnings.simplefilter("ignore")
    with_peer = options.peer and find_spec("pytoulbar2")
    rows = []
    for name, model in models(Path(os.environ["SKLEARN_CRF_DATA"]) / "uai2014", options.models):
        rows.append(proofs(name, model, options, with_peer))
        print(line_of(rows[-1]), flush=True)
    theirs = {row["model"] for row in rows if row.get("toulbar2", {}).get("proven")}
    for k, work in enumerate(options.work):
        ours = {row["model"] for row in rows if not (row["relaxed"]["gap"] and row["tightened"][k]["gap"])}
        print(f"work {work:g}: {len(ours)} proven; by toulbar2 {len(theirs)}, of which {len(ours & theirs)} here too")
    if options.table:
        text = json.dumps({"work": options.work, "toulbar2_seconds": options.peer, "rows": rows}, indent=1)
        options.table.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
