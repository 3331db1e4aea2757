"""Score found by random search against its number of tries, and the best score."""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import AutoMap
from sklearn_crf.models import PairwiseModel, score

rng = np.random.default_rng(0)
model = PairwiseModel(lattice((8, 8)), rng.normal(size=(64, 2)), np.eye(2)[None])
best = model.unary.argmax(axis=1).astype(np.int32)
scores = [score(model, best)]
for _ in range(1500):
    labels = np.where(rng.random(64) < 0.1, rng.integers(2, size=64), best).astype(np.int32)
    best = labels if score(model, labels) > score(model, best) else best
    scores.append(score(model, best))
plt.plot(scores, label="random search")
plt.axhline(AutoMap().map(model).score, color="C1", label="best labeling")
plt.xlabel("tries")
plt.ylabel("score")
plt.legend()
