"""Sensors classified one by one and together with their neighbours; rings mark wrong predictions."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.neighbors import kneighbors_graph

from sklearn_crf import TRWCRF, Example

rng = np.random.default_rng(0)


def sensors(n):
    places = rng.uniform(size=(n, 2))
    wet = np.sin(5 * places[:, 0]) + places[:, 1] > 1
    return places, (wet + rng.normal(scale=0.8, size=n))[:, np.newaxis], wet.astype(int)


fields = [sensors(rng.integers(60, 90)) for _ in range(20)]
labels = [wet for *_, wet in fields]
apart = [Example(measured, []) for _, measured, _ in fields]
joined = [Example(measured, kneighbors_graph(places, 4)) for places, measured, _ in fields]
alone, together = (
    TRWCRF(edge_features="constant").fit(X[:10], labels[:10]).predict(X[15:16])[0] for X in (apart, joined)
)
places, edges = fields[15][0], joined[15].edges
figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
for ax, (title, found) in zip(
    axes, {"each by itself": alone, "together": together, "truth": labels[15]}.items(), strict=True
):
    wrong = found != labels[15]
    ax.plot(*places[edges].transpose(2, 1, 0), color="0.8", zorder=1)
    ax.scatter(*places.T, c=np.where(found, "C0", "C1"), s=30, zorder=2)
    ax.scatter(*places[wrong].T, s=110, facecolors="none", edgecolors="k", linewidths=1.6, zorder=3)
    ax.set(title=title if title == "truth" else f"{title}: {wrong.sum()} of {len(wrong)} wrong", xticks=[], yticks=[])
