"""
Solvers for max-margin learning
===============================

Training a max-margin Markov network needs only best labelings. On images, minimum cuts
compute best labelings exactly. Training stops at a given duality gap, which is an upper
bound on the distance of the objective from its minimum.
"""

# %%
# Data
# ----
#
# The images have smooth regions. The noise is so large that a pixel cannot be
# classified without its neighbours.
import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import M3NClassifier
from sklearn_crf.learning import MaxMargin

rng = np.random.default_rng(0)
y = (gaussian_filter(rng.normal(size=(12, 24, 24)), (0, 2, 2)) > 0).astype(int)
X = y[..., np.newaxis] + rng.normal(size=(*y.shape, 1))
X_train, y_train, X_test, y_test = X[:8], y[:8], X[8:], y[8:]

# %%
# Solvers
# -------
#
# With ``pairwise="associative"``, pairwise weights are nonnegative. Minimum cuts then
# compute best labelings, and the gap is valid for the exact problem. Each solver makes
# at most 30 passes over the images, which is not enough for some solvers.
warnings.simplefilter("ignore", ConvergenceWarning)
options = {
    "C": 0.01,
    "pairwise": "associative",
    "edge_features": "constant",
    "max_iter": 30,
    "tol": 1e-4,
}
models = {}
for solver in ("cutting_plane", "frank_wolfe", "bmrm"):
    model = M3NClassifier(solver=solver, random_state=0, **options).fit(
        X_train, y_train
    )
    models[solver] = model
    print(
        f"{solver:14s} gap {model.duality_gap_ / model.loss_curve_[-1]:.1e} of the "
        f"objective after {model.n_inference_calls_} cuts, "
        f"{100 * model.score(X_test, y_test):.1f} % right"
    )

# %%
# Costs of errors
# ---------------
#
# In the following model, missing a pixel of class 1 costs ten times as much as a false
# detection.
wary = M3NClassifier(
    learning=MaxMargin(cost=[[0, 10], [1, 0]]), random_state=0, **options
).fit(X_train, y_train)

figure, axes = plt.subplots(1, 4, figsize=(11, 3), layout="constrained")
best = max(model.dual_curve_[-1] for model in models.values())
for solver, model in models.items():
    axes[0].semilogy(
        model.checks_,
        np.minimum.accumulate(model.loss_curve_) / best - 1 + 1e-6,
        ".-",
        label=solver,
    )
axes[0].set(xlabel="passes over the examples", title="objective above its bound")
axes[0].legend()
pictures = {
    "features": X_test[0, ..., 0],
    "hamming cost": models["cutting_plane"].predict(X_test[:1])[0],
    "missing is ten times worse": wary.predict(X_test[:1])[0],
}
for axis, (title, picture) in zip(axes[1:], pictures.items(), strict=True):
    axis.imshow(picture, cmap="gray")
    axis.contour(y_test[0], [0.5], colors="tab:red", linewidths=1)
    axis.set(title=title, xticks=[], yticks=[])
plt.show()
