"""
Chains, images and graphs of any size
=====================================

Sensors are scattered over a piece of land. Each sensor measures, with large errors,
whether the ground is wet or dry. A triangulation joins neighbouring sensors. The
resulting graph is not a lattice, and the number of sensors differs between examples. An
:class:`~sklearn_crf.Example` contains the node features, the edges, and optionally edge
features. A list of examples is a valid ``X``.
"""

# %%
# Graphs
# ------
#
# Edges have two features: a constant, and the length of the edge. Labels of distant
# neighbours agree less often; training learns how much the length matters.
import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import Delaunay

from sklearn_crf import DRFClassifier, Example
from sklearn_crf.display import FieldDisplay
from sklearn_crf.learning import PseudoMarginalTraining


def make_field(rng):
    """Draw sensors; return their positions, an Example, and their labels."""
    places = rng.uniform(size=(rng.integers(250, 450), 2))
    triangles = Delaunay(places).simplices
    sides = np.vstack([triangles[:, pair] for pair in ([0, 1], [1, 2], [0, 2])])
    edges = np.unique(np.sort(sides), axis=0)
    length = np.linalg.norm(places[edges[:, 0]] - places[edges[:, 1]], axis=1)
    keep = length < 0.15
    edges, length = edges[keep], length[keep]
    phase = rng.uniform(0, 2 * np.pi)
    bend = 0.5 + 0.25 * np.sin(2 * np.pi * places[:, 0] + phase)
    wet = np.abs(places[:, 1] - bend) < 0.15
    measured = wet + rng.normal(scale=0.8, size=len(places))
    edge_features = np.column_stack([np.ones(len(edges)), 10 * length])
    example = Example(measured[:, np.newaxis], edges, edge_features)
    return places, example, np.where(wet, "wet", "dry")


rng = np.random.default_rng(0)
fields = [make_field(rng) for _ in range(24)]
X, y = [example for _, example, _ in fields], [labels for _, _, labels in fields]
X_train, y_train, X_test, y_test = X[:16], y[:16], X[16:], y[16:]
print(X_train[0], X_train[1], sep="\n")

# %%
# Sensors alone and together
# --------------------------
rows = np.vstack([example.node_features for example in X_train])
alone = DRFClassifier().fit(rows, np.concatenate(y_train))
field = DRFClassifier(
    learning=PseudoMarginalTraining(init="independent"), tol=1e-3
).fit(X_train, y_train)
measured = np.vstack([example.node_features for example in X_test])
accuracy = alone.score(measured, np.concatenate(y_test))
print(f"each sensor by itself: {100 * accuracy:.1f} % right")
print(f"as a field:            {100 * field.score(X_test, y_test):.1f} % right")
print("edge weights (constant, length):", np.round(field.edge_coef_.ravel(), 2))

# %%
# The display draws nodes at the given positions.
places = fields[16][0]
figure, axes = plt.subplots(2, 2, figsize=(8, 8), layout="constrained")
FieldDisplay.from_estimator(
    field,
    X_test[0],
    y_test[0],
    positions=places,
    panels=["image", "marginals", "prediction", "truth"],
    axes=axes.ravel(),
)
plt.show()

# %%
# A chain is a graph as well
# --------------------------
#
# The axes before the last axis form the lattice. An array ``(T, F)`` in a list is a
# chain of T nodes. On chains, inference is exact.
rng = np.random.default_rng(1)
states = np.cumsum(rng.random((30, 120)) < 0.05, axis=1) % 2
signal = states[..., np.newaxis] + rng.normal(scale=0.7, size=(30, 120, 1))
chain = DRFClassifier().fit(signal[:20], states[:20])
print(f"chains: {100 * chain.score(signal[20:], states[20:]):.1f} % right")
FieldDisplay.from_estimator(chain, signal[20], states[20])
plt.show()
