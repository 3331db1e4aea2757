"""Scores and upper bounds of a spin grid: message passing leaves a gap, which clusters close."""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import TRWS, ClusterTightening
from sklearn_crf.models import PairwiseModel

rng = np.random.default_rng(0)
grid, spin = lattice((7, 7)), np.array([-1.0, 1.0])
model = PairwiseModel(grid, np.zeros((49, 2)), np.outer(spin, spin)[None], edge_weight=rng.normal(size=grid.n_edges))
results = {"TRWS": TRWS().map(model), "ClusterTightening": ClusterTightening(max_memory=2**12).map(model)}
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for row, found in enumerate(results.values()):
    ax.plot([found.score, found.bound], [row, row], color="0.6")
    ax.plot(found.score, row, "o", color="C0", markersize=10, label="score" if row == 0 else None)
    ax.plot(found.bound, row, "|", color="C3", markersize=20, markeredgewidth=3, label="bound" if row == 0 else None)
ax.set(yticks=[0, 1], yticklabels=list(results), ylim=(-0.6, 1.6))
ax.legend()
