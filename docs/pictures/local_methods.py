"""Scores of labelings after each sweep of iterated conditional modes."""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import ICM, AutoMap
from sklearn_crf.models import PairwiseModel

warnings.simplefilter("ignore")  # the number of sweeps is limited on purpose
rng = np.random.default_rng(0)
grid = lattice((20, 20))
model = PairwiseModel(grid, rng.normal(size=(400, 3)), np.eye(3)[None], edge_weight=rng.normal(size=grid.n_edges))
sweeps = range(1, 8)
for start in range(4):
    labels = rng.integers(3, size=400).astype(np.int32)
    scores = [ICM(max_iter=n).map(model, init=labels).score for n in sweeps]
    plt.plot(sweeps, scores, "o-", label=f"ICM, random start {start + 1}")
plt.axhline(AutoMap().map(model).score, color="black", label='inference="map"')
plt.xlabel("sweeps")
plt.ylabel("score")
plt.legend()
