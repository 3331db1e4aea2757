"""Predict several labels per scene, some of which occur together."""

import numpy as np
from sklearn.metrics import f1_score

from sklearn_crf import MultiLabelField

rng = np.random.default_rng(0)
names = ["beach", "sea", "city", "night"]
kind = rng.integers(2, size=400)  # 0 or 1: coast or town
chance = np.array([[0.8, 0.9, 0.1, 0.1], [0.05, 0.1, 0.9, 0.5]])
Y = (rng.random((400, 4)) < chance[kind]).astype(int)
X = Y @ rng.normal(size=(4, 6)) + rng.normal(scale=2, size=(400, 6))

for structure in ([], "chow_liu", "full"):
    field = MultiLabelField(structure=structure).fit(X[:200], Y[:200])
    for inference in (None, "mpm"):  # None is the default: most rows entirely right
        found = field.predict(X[200:], inference=inference)
        right = np.mean((found == Y[200:]).all(axis=1))
        f1 = f1_score(Y[200:], found, average="micro")
        print(f"{structure!r:10} {inference!s:5} all right {right:.2f}, F1 {f1:.2f}")

weights = field.estimator_.edge_coef_.ravel()
for (a, b), weight in zip(field.edges_, weights, strict=True):
    print(f"{names[a]:6} {names[b]:6} {weight:+.2f}")
