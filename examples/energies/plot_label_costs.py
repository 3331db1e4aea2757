"""
Few labels by label costs, and files of models
==============================================

If labels stand for explanations of the data, such as lines or planes, a good labeling
uses few of them. :func:`sklearn_crf.solve` adds a cost for each label that is used at
least once. The model can be saved in the formats of other solvers.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf import solve
from sklearn_crf.datasets import read_uai, write_uai
from sklearn_crf.graphs import lattice
from sklearn_crf.models import PairwiseModel, score

# %%
# Lines through points
# --------------------
# A signal consists of four linear pieces. Forty candidates are lines through random
# pairs of neighbouring points, and the cost of a label is the distance from its line.

rng = np.random.default_rng(0)
time = np.arange(120)
piece = time // 30
slope, start = np.array([0.5, -0.4, 0.2, -0.6]), np.array([0.0, 25.0, 0.0, 50.0])
signal = start[piece] + slope[piece] * time + rng.normal(scale=0.8, size=120)
first = rng.choice(110, size=40, replace=False)
slopes = (signal[first + 10] - signal[first]) / 10
lines = signal[first] + slopes * (time[:, None] - first)
costs = np.minimum(np.abs(signal[:, None] - lines), 10.0)

# %%
# A cost for each line
# --------------------

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for ax, price in zip(axes, (0.0, 10.0), strict=True):
    found = solve(costs, 2.0, costs=True, label_costs=price)
    used = np.unique(found.labels)
    ends = np.flatnonzero(np.diff(found.labels)) + 1
    print(f"price {price:g}: {len(used)} lines, pieces begin at {ends}")
    ax.plot(time, signal, ".", color="gray")
    for k in used:
        own = np.where(found.labels == k, lines[:, k], np.nan)
        ax.plot(time, own)
    ax.set_title(f"price {price:g}: {len(used)} lines")

# %%
# The model in files
# ------------------
# :func:`~sklearn_crf.datasets.write_uai` chooses the format by the name of the file:
# ``.uai`` and ``.LG`` of the UAI competitions, ``.cfn`` of toulbar2, or ``.wcsp``,
# which needs integer costs. Models that are read back score labelings in the same way.
# Label costs are not part of the files.

model = PairwiseModel(lattice((120,)), -costs, 2.0 * np.eye(40)[None])
with tempfile.TemporaryDirectory() as folder:
    for name in ("lines.uai", "lines.LG", "lines.cfn", "lines.cfn.xz"):
        path = Path(folder) / name
        write_uai(path, model)
        read = read_uai(path)
        change = score(read, found.labels) - score(model, found.labels)
        size = path.stat().st_size / 1e3
        print(f"{name}: {size:.0f} kB, the score changes by {abs(change):.0e}")

plt.show()
