"""
Volumes whose slices are far apart
==================================

In most scans, slices are farther apart than the pixels of a slice. With ``spacing``,
edge features depend on the distances between neighbours, so that one field can learn
from scans of one spacing and label scans of another.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf import DRFClassifier
from sklearn_crf.potentials import PairwiseTables

# %%
# Scans of noisy tissue
# ---------------------
# Every fourth slice of a smooth random volume is scanned, so slices are four times as
# far apart as pixels.

rng = np.random.default_rng(0)
tissue = gaussian_filter(rng.normal(size=(10, 32, 24, 24)), (0, 2, 2, 2)) > 0
scans = tissue[:, ::4].astype(int)
noisy = scans[..., None] + rng.normal(scale=1.2, size=(*scans.shape, 1))

# %%
# Edges with and without distances
# --------------------------------

found = {}
distances = {"equal distances": None, "spacing 4, 1, 1": (4.0, 1.0, 1.0)}
for name, spacing in distances.items():
    tables = PairwiseTables("symmetric", spacing=spacing)
    field = DRFClassifier(pairwise=tables, edge_features="constant")
    field.fit(noisy[:5], scans[:5])
    found[name] = field.predict(noisy[5:])
    right = np.mean(found[name] == scans[5:])
    print(f"{name}: {right:.1%} of the voxels are right")

# %%
# Three neighbouring slices
# -------------------------

figure, axes = plt.subplots(3, 3, figsize=(6, 6), layout="constrained")
pictures = {"true": scans[5:]} | found
for row, (name, labels) in zip(axes, pictures.items(), strict=True):
    row[0].set_ylabel(name)
    for k, ax in enumerate(row):
        ax.imshow(labels[0, 3 + k], cmap="gray")
        ax.set_xticks([])
        ax.set_yticks([])
plt.show()
