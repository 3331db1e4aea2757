"""Wrong edges and wrong nodes of margins, by the weight of the cost of boundaries."""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf import M3NClassifier
from sklearn_crf.learning import ErrorCost

rng = np.random.default_rng(0)
y = (gaussian_filter(rng.normal(size=(24, 16, 16)), (0, 2, 2)) > 0).astype(int)
X = (y + rng.normal(size=y.shape))[..., np.newaxis]
same = np.eye(2, dtype=bool)
boundary = (same[:, :, np.newaxis, np.newaxis] != same).astype(float)


def errors(weight):
    """Return the percentages of wrong nodes and of wrong edges on new images."""
    field = M3NClassifier(cost=ErrorCost(edges=weight * boundary)).fit(X[:8], y[:8])
    found, truth = field.predict(X[8:]), y[8:]
    changes = [np.mean((np.diff(found, axis=a) != 0) != (np.diff(truth, axis=a) != 0)) for a in (1, 2)]
    return 100 * np.mean(found != truth), 100 * np.mean(changes)


weights = [0.0, 0.5, 1.0, 2.0]
nodes, edges = zip(*map(errors, weights), strict=True)
_, axes = plt.subplots(figsize=(5, 3))
axes.plot(weights, nodes, "o-", label="wrong nodes")
axes.plot(weights, edges, "s-", label="wrong edges")
axes.set(xlabel="cost of a wrong edge", ylabel="errors, %")
axes.legend()
