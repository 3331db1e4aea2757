"""
Several labels for each scene
=============================

A scene with a beach usually shows the sea, and rarely a skyscraper.
:class:`~sklearn_crf.MultiLabelField` predicts the labels of a row jointly. Each label
is a node, and a Chow-Liu tree joins the labels with the most mutual information.
"""

# %%
# Data
# ----
#
# Each row has six features and five labels. The labels depend on the place of the
# picture, a coast or a town.
import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf import TRWCRF, MultiLabelField

rng = np.random.default_rng(0)
names = ["beach", "sea", "boat", "city", "night"]
chance = np.array([[0.02, 0.05, 0.03, 0.95, 0.5], [0.9, 0.95, 0.6, 0.05, 0.05]])[
    rng.integers(2, size=900)
]
Y = (rng.random(chance.shape) < chance).astype(int)
X = Y @ rng.normal(size=(5, 6)) + rng.normal(scale=2, size=(900, 6))

# %%
# Labels apart and together
# -------------------------
#
# Without edges, the model is a separate logistic regression for each label.
# ``inference="map"`` predicts the best set of labels. The score counts a row as correct
# only if all of its labels are correct.
fields, scores = {}, {}
for name, structure in {"apart": [], "tree": "chow_liu", "all pairs": "full"}.items():
    fields[name] = MultiLabelField(
        TRWCRF(inference="map", pairwise="ising"), structure=structure
    ).fit(X[:300], Y[:300])
    scores[name] = fields[name].score(X[300:], Y[300:])
    print(f"{name:10} {scores[name]:.3f}")

# %%
# Labels that occur together
# --------------------------
tree = fields["tree"]
angles = 2 * np.pi * np.arange(5) / 5
places = np.stack([np.sin(angles), np.cos(angles)], axis=1)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for (a, b), weight in zip(tree.edges_, tree.estimator_.edge_coef_.ravel(), strict=True):
    axes[0].plot(
        *places[[a, b]].T,
        color="C0" if weight > 0 else "C3",
        linewidth=1 + 5 * abs(weight),
        zorder=1,
    )
for name, place in zip(names, places, strict=True):
    axes[0].text(
        *place, name, ha="center", bbox={"boxstyle": "round", "facecolor": "white"}
    )
axes[0].set(title="blue: together, red: apart", xlim=(-1.4, 1.4), ylim=(-1.2, 1.3))
axes[0].axis("off")
axes[1].bar(scores.keys(), scores.values())
axes[1].set(title="rows with all labels right", ylim=(0.3, None))
plt.show()
