"""Accuracy of partial_fit after each part of the data, and of one fit to all parts in shards."""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf import TRWCRF, Shards

rng = np.random.default_rng(0)
means = 0.8 * rng.normal(size=(3, 8))
y = np.cumsum(rng.random((400, 12)) < 0.2, axis=1) % 3
X = means[y] + 1.5 * rng.normal(size=(400, 12, 8))
X_test, y_test = X[300:], y[300:]
parts = [(X[start : start + 20], y[start : start + 20]) for start in range(0, 300, 20)]

whole = TRWCRF(edge_features="constant").fit(Shards.from_arrays(parts))
online = TRWCRF(edge_features="constant", random_state=0)
scores = [online.partial_fit(*part, classes=[0, 1, 2]).score(X_test, y_test) for part in parts]

figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.plot(np.arange(1, 16), scores, "o-", label="partial_fit, one pass")
ax.axhline(whole.score(X_test, y_test), color="k", ls="--", label="fit on 15 shards")
ax.set(xlabel="parts of 20 sequences", ylabel="accuracy on new sequences")
ax.legend(loc="lower right")
