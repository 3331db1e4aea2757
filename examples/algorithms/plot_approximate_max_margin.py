"""
Max-margin learning with approximate inference
==============================================

In each training step, inference searches for the labeling that violates the margin
most. Undergenerating inference, such as local search, misses some labelings. Training
then ends with weights for which a labeling that inference never found has the highest
score. Overgenerating inference, such as a linear relaxation, also finds fractional
labelings. Training then also removes violations by fractional labelings, which makes
the relaxation tight.
"""

# %%
# Data
# ----
#
# The examples are small grids whose neighbours, including diagonal neighbours, prefer
# different states. Three nodes of a triangle cannot all have different states if there
# are only two states, so the relaxation of this field has fractional solutions. The
# grids are so small that exact inference is also possible. The effect of inference is
# visible because the coupling is strong; the effect is small if features matter more
# than neighbours.
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import M3NClassifier
from sklearn_crf.graphs import lattice
from sklearn_crf.inference import AD3, ICM, JunctionTree, LoopyBP
from sklearn_crf.models import PairwiseModel

rng = np.random.default_rng(0)
model = PairwiseModel(lattice((4, 4), 2), np.zeros((16, 2)), -2.0 * np.eye(2)[None])
y = JunctionTree().sample(model, 80, random_state=0).reshape(-1, 4, 4).astype(int)
X = np.eye(2)[y] + rng.normal(size=(*y.shape, 2))
X_train, y_train, X_test, y_test = X[:25], y[:25], X[25:], y[25:]

# %%
# Training
# --------
#
# Every field is trained with one inference algorithm. ``loss_curve_`` is the objective
# that this algorithm computes. The true objective for the same weights is computed by
# exact inference.
warnings.simplefilter("ignore", ConvergenceWarning)
options = {
    "C": 0.5,
    "pairwise": "full",
    "connectivity": 2,
    "edge_features": "constant",
    "solver": "bmrm",
    "tol": 3e-3,
    "max_iter": 150,
}
contenders = {
    "local search": {"inference": ICM()},
    "loopy max-product": {"inference": LoopyBP(max_iter=30)},
    "exact": {"inference": JunctionTree()},
    "relaxation": {"learning": "relaxed_margin", "inference": AD3()},
}


def exact_objective(fitted):
    """Return the exact objective at the weights of a field."""
    judge = M3NClassifier(
        **options | {"inference": JunctionTree(), "warm_start": True, "max_iter": 1}
    )
    judge.__dict__.update(
        {name: value for name, value in vars(fitted).items() if name.endswith("_")}
    )
    return judge.fit(X_train, y_train).loss_curve_[0]


believed, true, right, gaps = [], [], [], []
for name, parameters in contenders.items():
    fitted = M3NClassifier(**options | parameters).fit(X_train, y_train)
    believed.append(fitted.loss_curve_.min())
    true.append(exact_objective(fitted))
    right.append(100 * fitted.score(X_test, y_test))
    gaps.append(fitted.duality_gap_)
    print(
        f"{name:18s} computed {believed[-1]:7.2f}  true {true[-1]:.2f}  "
        f"gap {gaps[-1]:.3g}  correct {right[-1]:.1f} %"
    )

# %%
# Computed and true objectives
# ----------------------------
#
# Local search and max-product compute an objective below the true objective, and end at
# worse weights than exact training. Their ``duality_gap_`` is infinite, because these
# algorithms compute no bound. The relaxation computes an objective above the true
# objective, so its value is a valid upper bound.
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
place = np.arange(len(contenders))
axes[0].bar(place - 0.2, believed, 0.4, label="computed")
axes[0].bar(place + 0.2, true, 0.4, label="true")
axes[0].axhline(true[list(contenders).index("exact")], color="black", linewidth=0.8)
axes[0].set(title="objective", ylim=(0, 1.3 * max(true)))
axes[0].legend()
axes[1].bar(place, right, 0.5, color="C2")
axes[1].set(
    title="correct nodes of test grids [%]", ylim=(min(right) - 3, max(right) + 1)
)
for axis in axes:
    axis.set_xticks(place, [name.replace(" ", "\n") for name in contenders])
plt.show()
