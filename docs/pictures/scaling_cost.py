"""Time of an evaluation by the number of workers, by a model fitted to measurements: where the network is the limit."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

RESULTS = Path("..") / "results" / "scaling"  # pictures are drawn in their folder
record = json.loads((RESULTS / "scaling.json").read_text(encoding="utf-8"))
engines = json.loads((RESULTS / "engines.json").read_text(encoding="utf-8"))

# Seconds of a call without work, for each worker; and for each byte that passes through the process that asks: what
# training on CoNLL-2000 took longer on dask than in threads, of two workers with a shard each, over its bytes.
CALL = record["overhead"]["dask"] / record["overhead"]["n_workers"] / 1e3
N_WEIGHTS = 22 * 75289 + 22 * 22
SENT = 8 * N_WEIGHTS * (2 + 2)
BYTE = (engines["conll dask"]["evaluation_ms"] - engines["conll threads"]["evaluation_ms"]) / 1e3 / SENT

# Work of an evaluation, two threads together, and bytes out and back for each worker.
TASKS = {
    "TRWCRF, 1.7 million weights": (2 * engines["conll threads"]["evaluation_ms"] / 1e3, 16 * N_WEIGHTS),
    "RegressionTreeField, few weights": (2 * engines["bsds threads"]["evaluation_ms"] / 1e3, 6_000),
}

workers = np.unique(np.geomspace(1, 1000, 200).astype(int))
figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained", sharey=True)
for axis, (name, (work, sent)) in zip(axes, TASKS.items(), strict=True):
    for factor, colour in ((1, "C0"), (100, "C1"), (10_000, "C2")):
        seconds = factor * work / workers + workers * (CALL + BYTE * sent)
        best = seconds.argmin()
        axis.loglog(workers, seconds, colour, label=f"data x {factor:,}: best with {workers[best]}")
        axis.plot(workers[best], seconds[best], colour, marker="o")
    axis.set_title(name, fontsize=10)
    axis.set_xlabel("workers")
    axis.legend(fontsize=8)
axes[0].set_ylabel("seconds of an evaluation")
