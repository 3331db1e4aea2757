"""Time of an evaluation by the number of workers, by a model fitted to measurements: where the network is the limit."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

RESULTS = Path("..") / "results" / "scaling"  # pictures are drawn in their folder
record = json.loads((RESULTS / "scaling.json").read_text(encoding="utf-8"))
calls = record["calls"]

# As many shards as take one worker this long, whatever the estimator.
SECONDS = 100.0
workers = np.unique(np.geomspace(1, 1000, 300).astype(int))
figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained", sharex=True)
for number, (name, of_task) in enumerate(record["work"].items()):
    megabytes = (of_task["bytes_out"] + of_task["bytes_back"]) / 1e6
    of_worker = (calls["ms_of_a_worker"] + calls["ms_of_a_megabyte"] * megabytes) / 1e3
    share = calls["ms_of_a_megabyte"] * megabytes / 1e3 / of_worker
    seconds = SECONDS / workers + calls["ms"] / 1e3 + workers * of_worker
    best = round((SECONDS / of_worker) ** 0.5)
    limit = "bytes" if share > 0.5 else "calls"
    label = f"{name}: {min(best, 1000)}{'+' if best > 1000 else ''} ({limit})"
    style = {"color": f"C{number % 10}", "linestyle": "-" if number < 10 else "--", "label": label}
    axes[0].loglog(workers, seconds, **style)
    axes[1].semilogx(workers, 100 * SECONDS / workers / seconds, **style)
axes[0].set_ylabel("seconds of an evaluation")
axes[1].set_ylabel("% of the time in which workers compute")
for axis in axes:
    axis.set_xlabel("workers")
axes[0].legend(fontsize=6.5, title="quickest number of workers (limit)", title_fontsize=7)
