"""
Sequences with missing features
===============================

Sensors often fail. Classifiers of fields accept NaN in X: each gap is filled with the
mean of its feature, and by default marked by an additional feature. In this example, a
step counter fails more often while a person sleeps, so gaps are informative.
"""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf import TRWCRF
from sklearn_crf.learning import Exact

# %%
# Recordings of three sensors
# ---------------------------
# The states are sleep, rest and walking. In sleep, half of the values of the first
# sensor are missing; in other states, one value in ten is missing.

rng = np.random.default_rng(0)
y = np.repeat(rng.integers(3, size=(60, 12)), 8, axis=1)
X = np.eye(3)[y] + rng.normal(scale=1.5, size=(*y.shape, 3))
X[..., 0][rng.random(y.shape) < np.where(y == 0, 0.5, 0.1)] = np.nan
print(f"missing: {np.isnan(X).mean():.0%} of all values")

# %%
# Means with and without marks
# ----------------------------
# ``missing_features="mark"``, the default, learns that gaps indicate sleep.

accuracy = {}
for treatment in ("mean", "mark"):
    learning = Exact(missing_features=treatment)
    field = TRWCRF(learning=learning).fit(X[:30], y[:30])
    accuracy[treatment] = field.score(X[30:], y[30:])
    print(f"{treatment}: {accuracy[treatment]:.3f} of the steps are right")
print(f"weights of the marks: {np.round(field.coef_[:, 3], 2)}")

# %%
# One recording
# -------------

figure, axes = plt.subplots(2, 1, figsize=(8, 4.2), sharex=True, layout="constrained")
axes[0].plot(X[30, :, 0], ".", label="first sensor")
gaps = np.flatnonzero(np.isnan(X[30, :, 0]))
axes[0].plot(gaps, np.full(len(gaps), -4.0), "|", color="C3", label="missing")
axes[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
axes[1].step(np.arange(96), y[30], where="mid", label="true")
found = field.predict(X[30:31])[0]
axes[1].step(np.arange(96), found + 0.1, where="mid", label="found")
axes[1].set_yticks(range(3), ["sleep", "rest", "walking"])
axes[1].set_xlabel("step")
axes[1].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
plt.show()
