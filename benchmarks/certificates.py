"""Proofs of optimality on the models of the UAI 2014 competition: clusters, branch and bound, and toulbar2.

    SKLEARN_CRF_DATA=folder python benchmarks/certificates.py [--models Grids_11 DBN_11] [--peer 30] [--work 1e9]

For each model: the gap between bound and score of TRWS (MPLP for factors of more than two nodes), and of
ClusterTightening with a budget of ``--work`` table entries, both relative to the score, with seconds of the processor;
and whether toulbar2, if it is installed, proves its labeling optimal within ``--peer`` seconds of the processor. The
last line counts the proofs, and of toulbar2's those that ClusterTightening has too.
"""

import argparse
import csv
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
    """Name and model, with its evidence."""
    with open(folder / "solutions.tsv") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if names and row["model"] not in names:
                continue
            path = folder / row["folder"] / f"{row['model']}.uai.gz"
            model = read_uai(path)
            if int(row["n_evidence"]):
                model = clamped(model, read_evidence(path.with_suffix(".evid"), model.n_nodes))
            yield f"{row['folder']}/{row['model']}", model


def timed(inference, model):
    start = time.process_time()
    found = inference.map(model)
    return found, time.process_time() - start


def gap(found):
    return "proven" if found.certified else f"{found.gap / max(1.0, abs(found.score)):.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--peer", type=int, default=30, help="seconds of toulbar2; 0 leaves it out")
    parser.add_argument("--work", type=float, default=1e9)
    options = parser.parse_args()
    if "SKLEARN_CRF_DATA" not in os.environ:
        sys.exit("Set SKLEARN_CRF_DATA to the folder of the data sets.")
    warnings.simplefilter("ignore")
    with_peer = options.peer and find_spec("pytoulbar2")
    ours, theirs = set(), set()
    for name, model in models(Path(os.environ["SKLEARN_CRF_DATA"]) / "uai2014", options.models):
        relaxation = MPLP() if model.arity.max() > 2 else TRWS()
        relaxed, relaxed_seconds = timed(relaxation, model if model.arity.max() > 2 else pairwise_model_of(model))
        found, seconds = timed(ClusterTightening(options.work), model)
        text = f"{name:26} {gap(relaxed):>8} {relaxed_seconds:6.2f} s  clusters {gap(found):>8} {seconds:6.2f} s"
        if found.certified:
            ours.add(name)
        if with_peer:
            from _toulbar2 import solve

            labels, proven, used = solve(model, options.peer)
            if proven:
                theirs.add(name)
            lacks = "nothing found" if labels is None else f"lacks {found.score - score(model, labels):.3g}"
            text += f"  toulbar2 {'proven' if proven else lacks} {used:.1f} s"
        print(text, flush=True)
    print(f"proven: {len(ours)}; by toulbar2: {len(theirs)}, of which {len(ours & theirs)} here too")


if __name__ == "__main__":
    main()
