"""Errors on new images against the number of sweeps of truncated inference."""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf import TRWCRF
from sklearn_crf.learning import TruncatedInference

rng = np.random.default_rng(0)
y = (gaussian_filter(rng.normal(size=(24, 16, 16)), (0, 2, 2)) > 0).astype(int)
X = y[..., np.newaxis] + 1.5 * rng.normal(size=(*y.shape, 1))
n_sweeps = [1, 2, 4, 8]


def error(learning):
    """Return the percentage of wrong nodes on new images."""
    field = TRWCRF(learning=learning, edge_features="constant").fit(X[:6], y[:6])
    return 100 * (1 - field.score(X[6:], y[6:]))


figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.plot(n_sweeps, [error(TruncatedInference(n_sweeps=n)) for n in n_sweeps], "o-", label='"truncated"')
axes.axhline(error("relaxation"), color="C1", label='"relaxation"')
axes.set_xlabel("number of sweeps")
axes.set_ylabel("wrong nodes, %")
axes.set_ylim(bottom=0)
axes.legend()
