"""Gain of cascades over a single field, from recorded results of a benchmark."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

# The plot directive runs this script in its own folder.
path = Path("..") / "results" / "rtf_cascades" / "bsds_sigma_25.json"
record = json.loads(path.read_text(encoding="utf-8"))
rows = record["rows"]
names = list(dict.fromkeys(key.rpartition(", ")[0] for key in rows))[1:]
seeds = [seed for seed in range(len(rows)) if all(f"{name}, {seed}" in rows for name in names)]
figure, ax = plt.subplots(figsize=(7.5, 2.8), layout="constrained")
for shift, part, colour in ((0.15, "test", "C0"), (-0.15, "train", "C1")):
    label = {"test": "test images", "train": "training images"}[part]
    for place, name in enumerate(names):
        gains = [rows[f"{name}, {seed}"][part] - rows[f"one field, {seed}"][part] for seed in seeds]
        ax.barh(place + shift, np.mean(gains), 0.28, color=colour, label=label if place == 0 else None)
        ax.plot(gains, [place + shift] * len(gains), ".", color="black", markersize=4)
ax.set(yticks=range(len(names)), yticklabels=names, xlabel="gain over one field, dB")
ax.set_title(f"{record['images']} training images, {record['tests']} test images, noise of {record['sigma']:g}")
ax.invert_yaxis()
ax.axvline(0, color="black", linewidth=0.8)
ax.legend(loc="lower right")
