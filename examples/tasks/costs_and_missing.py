"""Learn from partly missing labels, with different costs of errors."""

import numpy as np

from sklearn_crf import DRFClassifier

rng = np.random.default_rng(0)
y = np.zeros((10, 16, 16), dtype=int)
y[:, 5:11, 4:12] = 1  # a lesion
X = y[..., np.newaxis] + rng.normal(size=(*y.shape, 1))
partly = np.where(rng.random(y.shape) < 0.5, -1, y)  # half of the labels are missing

for cost in (None, [[0, 10], [1, 0]]):  # cost[predicted, true]: a miss costs 10
    field = DRFClassifier(missing_label=-1, cost=cost, edge_features="constant")
    labels = field.fit(X[:6], partly[:6]).predict(X[6:])
    found = np.mean(labels[y[6:] == 1] == 1)
    wrong = np.mean(labels[y[6:] == 0] == 1)
    print(f"cost={cost}: {found:.0%} of the lesion found, {wrong:.0%} false alarms")
