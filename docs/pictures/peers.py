"""CPU time of other packages over this package, and memory of this package over theirs, from a benchmark."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

RECORD = Path("..") / ".." / "benchmarks" / "peers" / "peers.json"  # the script runs in its own folder
rows = json.loads(RECORD.read_text(encoding="utf-8"))

names = {"sklearn_crfsuite": "sklearn-crfsuite", "pycrfsuite": "python-crfsuite", "maxflow": "PyMaxflow"}
names |= {"sklearn": "scikit-learn", "gco": "gco-wrapper", "libdai": "libDAI", "pytoulbar2": "toulbar2"}
labels = [f"{row['task']}, {row['size']:,}: {row['step']}" for row in rows]
places = list(dict.fromkeys(labels))[::-1]
peers = list(dict.fromkeys(row["peer"] for row in rows))
markers = dict(zip(peers, "osD^vP*X<>", strict=False))

figure, axes = plt.subplots(1, 2, figsize=(8.4, 0.21 * len(places) + 1.5), layout="constrained", sharey=True)
for axis, key, title, ticks in (
    (axes[0], "ratio", "processor time, theirs over ours", [0.3, 1, 3, 10, 30, 100]),
    (axes[1], "memory", "memory, ours over theirs", [0.1, 0.3, 1, 3]),
):
    for peer in peers:
        own = [(row[key], places.index(label)) for row, label in zip(rows, labels, strict=True) if row["peer"] == peer]
        # Ratios below 0.1 say little, because every process needs some memory. Memory of separate programs is unknown.
        known = [(max(value, 0.1), height) for value, height in own if value is not None]
        values, heights = np.array(known).reshape(-1, 2).T
        axis.plot(values, heights, markers[peer], label=names.get(peer, peer), markersize=5)
    axis.axvline(1, color="0.6", linewidth=1)
    axis.set_xscale("log")
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.set_xlabel(title)
    axis.grid(axis="y", color="0.9")
axes[0].set_yticks(range(len(places)), places, fontsize=7)
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=8)
