"""
Max-margin learning with approximate inference
==============================================

Training asks inference for the labeling that violates the margin most. Inference that
searches too few labelings (undergenerating: local search) misses some, and training
ends content with weights under which labelings that it never saw win. Inference that
searches too many (overgenerating: a linear relaxation, with its fractional labelings)
sees violations that no labeling has, and training makes the relaxation tight instead.
"""

# %%
# Data
# ----
#
# Small grids on which neighbours, diagonal ones included, prefer to differ: on a
# triangle of two states they cannot all do so, and the relaxation of such a field has
# fractional solutions. At this size the exact answer is known, too. The coupling is
# strong so that the effect shows: where neighbours matter less than features it is next
# to none.
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
# Every field is trained with one inference. Its own objective, ``loss_curve_``, is what
# that inference believes; the exact objective at the same weights is what is true.
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
    """The true objective at a field's weights: the first plane of exact training."""
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
        f"{name:18s} believed {believed[-1]:7.2f}  true {true[-1]:.2f}  "
        f"gap {gaps[-1]:.3g}  right {right[-1]:.1f} %"
    )

# %%
# What it believed, and what was true
# -----------------------------------
#
# Local search and max-product believe in a lower objective than there is, and end at
# weights worse than those of exact training. ``duality_gap_`` is not taken in: it is
# infinite where inference has no bound. The relaxation believes in a higher objective
# than there is, so that what it claims holds.
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
place = np.arange(len(contenders))
axes[0].bar(place - 0.2, believed, 0.4, label="believed")
axes[0].bar(place + 0.2, true, 0.4, label="true")
axes[0].axhline(true[list(contenders).index("exact")], color="black", linewidth=0.8)
axes[0].set(title="objective", ylim=(0, 1.3 * max(true)))
axes[0].legend()
axes[1].bar(place, right, 0.5, color="C2")
axes[1].set(
    title="nodes of test grids right [%]", ylim=(min(right) - 3, max(right) + 1)
)
for axis in axes:
    axis.set_xticks(place, [name.replace(" ", "\n") for name in contenders])
