"""A large image in tiles: pixels whose label narrow windows do not prove, and margins that prove all labels."""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf import DRFClassifier
from sklearn_crf.large_images import predict_in_tiles

SIZE, TILE = 128, 32
rng = np.random.default_rng(3)
rows, columns = np.indices((SIZE, SIZE))
y = (np.hypot(rows - 60, columns - 70) % 44 < 22).astype(int)
X = y[..., np.newaxis] + 1.3 * rng.normal(size=(SIZE, SIZE, 1))
field = DRFClassifier(inference="graph_cut", edge_features="constant").fit(X[np.newaxis], y[np.newaxis])
whole = field.predict(X[np.newaxis])[0]

narrow = predict_in_tiles(field, X, tile=TILE, margin=2, max_margin=2)
proven = predict_in_tiles(field, X, tile=TILE, margin=2, max_margin=128)
open_pixels = np.zeros((SIZE, SIZE))
# A label is open if it depends on whether all nodes around the window are in class 0 or all are in class 1.
for top in range(0, SIZE, TILE):
    for left in range(0, SIZE, TILE):
        window = np.s_[max(top - 2, 0) : top + TILE + 2, max(left - 2, 0) : left + TILE + 2]
        part = X[window][np.newaxis]
        ring = np.full(part.shape[1:3], -1)
        ends = [[], []]
        for label in (0, 1):
            evidence = ring.copy()
            if top:
                evidence[0] = label
            if left:
                evidence[:, 0] = label
            if top + TILE < SIZE:
                evidence[-1] = label
            if left + TILE < SIZE:
                evidence[:, -1] = label
            field.missing_label = -1
            ends[label] = field.predict(part, evidence[np.newaxis])[0]
        inside = np.s_[min(top, 2) : min(top, 2) + TILE, min(left, 2) : min(left, 2) + TILE]
        open_pixels[top : top + TILE, left : left + TILE] = (ends[0] != ends[1])[inside]
shown = np.where(narrow.labels != whole, 1.0, 0.4 * open_pixels)

figure, axes = plt.subplots(1, 3, figsize=(8.4, 2.9), layout="constrained")
axes[0].imshow(X[..., 0], cmap="gray")
axes[0].set_title("image")
axes[1].imshow(shown, cmap="gray_r", vmin=0, vmax=1, interpolation="none")
axes[1].set_title(f"margin 2: {narrow.n_open} pixels open")
margins = proven.margins.reshape(SIZE // TILE, -1)
axes[2].imshow(np.kron(margins, np.ones((TILE, TILE))), cmap="Blues", vmin=0)
axes[2].set_title("margins: all proven")
for (row, column), margin in np.ndenumerate(margins):
    color = "white" if margin > margins.max() / 2 else "black"
    axes[2].text((column + 0.5) * TILE, (row + 0.5) * TILE, margin, ha="center", va="center", color=color)
for ax in axes:
    for seam in range(TILE, SIZE, TILE):
        ax.axhline(seam - 0.5, color="tab:orange", lw=0.7)
        ax.axvline(seam - 0.5, color="tab:orange", lw=0.7)
    ax.set(xticks=[], yticks=[])
