"""Measure the memory of predictions by minimum cuts, and check labels by rows against the whole model.

    python benchmarks/speed/predict_memory.py [--side 3000] [--json predict_memory.json]

Each case runs in a separate process: a field that is trained on four small images labels an image of ``--side`` x
``--side`` pixels with three features. "bytes" is the peak memory during ``predict`` minus the memory before (which
includes X), per pixel. "ns" is processor time per pixel. "same" tells whether the labels of an image with a quarter of
this side equal the labels of ``GraphCut`` or ``AlphaExpansion`` on the model of the whole image. The peak memory is
only available on Linux.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from support.record import read_record, write_record

STATUS = Path("/proc/self/status")
# classes, dtype of X, edge features, connectivity
CASES = [
    (2, "float32", "constant", 1),
    (2, "float32", "difference", 1),
    (2, "float64", "constant", 1),
    (2, "float64", "difference", 1),
    (2, "float32", "difference", 2),
    (3, "float32", "difference", 1),
    (5, "float64", "difference", 1),
]


def held(name):
    """Return bytes of this process from a line of its status: VmRSS is the current value, VmHWM the peak."""
    fields = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return int(fields[name].split()[0]) * 1024


def images(n, side, n_classes, dtype, rng):
    """Return blocks of eight by eight pixels of one class, with three noisy features."""
    centres = 2.0 * np.random.default_rng(3).normal(size=(n_classes, 3))
    blocks = rng.integers(0, n_classes, (n, -(-side // 8), -(-side // 8)))
    y = blocks.repeat(8, axis=1).repeat(8, axis=2)[:, :side, :side]
    X = np.empty((*y.shape, 3), dtype=dtype)
    for rows, labels in zip(X.reshape(-1, side, 3), y.reshape(-1, side), strict=True):
        rows[...] = centres[labels] + rng.normal(scale=1.2, size=rows.shape)
    return X, y


def work(n_classes, dtype, edge_features, connectivity, side):
    """Run one case in this process."""
    from sklearn_crf import DRFClassifier
    from sklearn_crf.inference import AlphaExpansion, GraphCut

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    field = DRFClassifier(
        inference="map" if n_classes == 2 else "alpha_expansion",
        learning="pl",
        edge_features=edge_features,
        connectivity=connectivity,
    ).fit(*images(4, 48, n_classes, dtype, rng))
    part, _ = images(1, side // 4, n_classes, dtype, rng)
    whole = GraphCut("truncate") if n_classes == 2 else AlphaExpansion(nonsubmodular="truncate")
    expected = field.classes_[whole.map(field.models(part)[0]).labels]
    same = np.array_equal(field.predict(part).ravel(), expected)
    X, y = images(1, side, n_classes, dtype, rng)
    before = held("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    start = time.process_time()
    found = field.predict(X)
    seconds = time.process_time() - start
    return {
        "bytes": (held("VmHWM") - before) / y.size,
        "ns": 1e9 * seconds / y.size,
        "accuracy": float(np.mean(found == y)),
        "same": bool(same),
    }


def run(case, side):
    command = [sys.executable, __file__, "--worker", *map(str, case), "--side", str(side)]
    done = subprocess.run(command, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{case}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=3000)
    parser.add_argument("--json", type=Path, help="file for recorded cases")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        n_classes, dtype, edge_features, connectivity = options.worker
        print(json.dumps(work(int(n_classes), dtype, edge_features, int(connectivity), options.side)))
        return
    print("classes  precision  edges       neighbours   bytes     ns  accuracy  same")
    record = read_record(options.json, {})
    for case in CASES:
        name = " ".join(map(str, (*case, options.side)))
        if name not in record:
            record[name] = run(case, options.side)
            write_record(options.json, record)
        row = record[name]
        n_classes, dtype, edge_features, connectivity = case
        print(
            f"{n_classes:7d}  {dtype:9s}  {edge_features:10s}{4 * connectivity:12d}{row['bytes']:8.1f}{row['ns']:7.0f}"
            f"{row['accuracy']:10.4f}  {'yes' if row['same'] else 'NO'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
