"""CPU time of fits and predictions against the number of nodes, from recorded results of a benchmark."""

import json
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt

RECORD = Path("..") / "results" / "run_times" / "run_times.json"  # the script runs in its own folder
curves = defaultdict(list)
for key, row in json.loads(RECORD.read_text(encoding="utf-8")).items():
    curves[key.rpartition(",")[0]].append(row)

figure, axes = plt.subplots(1, 2, figsize=(9, 4.8), layout="constrained", sharex=True, sharey=True)
for number, (name, rows) in enumerate(curves.items()):
    for ax, step in zip(axes, ("fit", "predict"), strict=True):
        points = [(row["nodes"], row[step]) for row in rows if step in row]
        if points:
            ax.plot(*zip(*points, strict=True), marker="osD^vP*X"[number], color=f"C{number}", label=name)
for ax, title in zip(axes, ("fit", "predict"), strict=True):
    ax.set(xscale="log", yscale="log", xlabel="nodes", title=title)
    ax.grid(alpha=0.3)
axes[0].set_ylabel("processor seconds")
handles = {line.get_label(): line for ax in axes for line in ax.lines}
figure.legend(handles.values(), handles, loc="outside lower center", ncols=3, fontsize=8)
