"""
Smoothing by approximations of the log-partition
================================================

On images, the log-partition of a conditional random field is intractable, so training
uses an approximation. The tree-reweighted entropy and the trivial entropy define convex
bounds over locally consistent marginals. The piecewise bound normalises every node and
every edge separately, so the weights of edges also represent information that is
already in the features of their nodes. Pseudolikelihood uses the true labels of
neighbours in training. At prediction, it therefore relies too much on the predicted
labels of neighbours.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf import TRWCRF
from sklearn_crf.learning import Relaxation

# %%
# The images have regions of three classes, which are made from smooth noise. The noise
# of the pixels is much larger than the differences between the classes.
rng = np.random.default_rng(0)
fields = gaussian_filter(rng.normal(size=(3, 12, 24, 24)), (0, 0, 2, 2))
y = fields.argmax(axis=0)
X = np.eye(3)[y] + rng.normal(scale=1.0, size=(*y.shape, 3))
train, test = slice(0, 6), slice(6, 12)

# %%
# One weight determines how strongly neighbours prefer equal labels
# (``pairwise="potts"``). All fields predict the best labeling.
models = {
    "relaxation": Relaxation(tol=1e-4),
    "trivial entropy": Relaxation(entropy="trivial", tol=1e-4),
    "piecewise": "piecewise",
    "pseudolikelihood": "pseudolikelihood",
}
options = {"pairwise": "potts", "edge_features": "constant", "inference": "map"}
options |= {"max_iter": 30, "tol": 1e-3}
fitted = {
    name: TRWCRF(learning=learning, **options).fit(X[train], y[train])
    for name, learning in models.items()
}
accuracy = {name: model.score(X[test], y[test]) for name, model in fitted.items()}

# %%
# Each panel shows the fraction of correct pixels, the weight of equal neighbours, and
# the largest weight of a feature. The ratio of the two weights determines the
# smoothness of the labels.
panels = {"truth": y[test][0], "each pixel by itself": X[test][0].argmax(axis=-1)}
panels |= {name: model.predict(X[test])[0] for name, model in fitted.items()}
figure, axes = plt.subplots(2, 3, figsize=(8, 5.8), layout="constrained")
for axis, (name, labels) in zip(axes.flat, panels.items(), strict=True):
    axis.imshow(labels, cmap="viridis", interpolation="nearest")
    below = (
        f"{np.mean(X[test].argmax(axis=-1) == y[test]):.1%} right"
        if name == "each pixel by itself"
        else ""
    )
    if name in fitted:
        below = (
            f"{accuracy[name]:.1%} right, weight {fitted[name].edge_coef_.item():.1f} "
        )
        below += f"to {np.abs(fitted[name].coef_).max():.1f}"
    axis.set_title(name)
    axis.set_xlabel(below)
    axis.set(xticks=[], yticks=[])
plt.show()

# %%
# The tree-reweighted relaxation is the tightest of these bounds, and its objective is
# the smallest.
for name in ("relaxation", "trivial entropy", "piecewise"):
    print(f"{name}: lowest objective {fitted[name].loss_curve_[-1]:.0f}")
