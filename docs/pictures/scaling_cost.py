"""Modelled time of an evaluation against the number of workers, which shows where the network is the limit."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

RESULTS = Path("..") / "results" / "scaling"  # the script runs in its own folder
record = json.loads((RESULTS / "scaling.json").read_text(encoding="utf-8"))
calls = record["calls"]

N_SHARDS = 10_000  # number of shards, each as large as the measured shards
workers = np.unique(np.geomspace(1, 1000, 300).astype(int))
figure, axes = plt.subplots(1, 2, figsize=(9.6, 5.4), layout="constrained", sharex=True)
for number, (name, of_task) in enumerate(record["work"].items()):
    work = N_SHARDS * of_task["ms_of_a_shard"] / 1e3
    megabytes = (of_task["bytes_out"] + of_task["bytes_back"]) / 1e6
    of_bytes = calls["ms_of_a_megabyte"] * megabytes / 1e3
    of_worker = calls["ms_of_a_worker"] / 1e3 + of_bytes
    seconds = (calls["ms"] + of_task["ms_besides"]) / 1e3 + work / workers + workers * of_worker
    best = round((work / of_worker) ** 0.5)
    limit = "bytes" if of_bytes > 0.5 * of_worker else "calls"
    quickest = f"{best:,} workers" if best <= workers[-1] else "beyond 1,000"
    style = {"color": f"C{number % 10}", "linestyle": "-" if number < 10 else "--"}
    axes[0].loglog(workers, seconds, label=f"{name}: quickest {quickest}, limit {limit}", **style)
    if best <= workers[-1]:
        axes[0].plot(best, seconds[np.abs(workers - best).argmin()], "o", color=style["color"], markersize=4)
    axes[1].semilogx(workers, 100 * work / workers / seconds, **style)
axes[0].set_ylabel("seconds of an evaluation of 10,000 shards")
axes[1].set_ylabel("% of the time in which workers compute")
for axis in axes:
    axis.set_xlabel("workers")
figure.legend(loc="outside lower center", ncols=2, fontsize=8)
