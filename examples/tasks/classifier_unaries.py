"""Correct a pixel classifier by a field over neighbouring pixels."""

import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline

from sklearn_crf import TRWCRF
from sklearn_crf.preprocessing import ClassifierScores

rng = np.random.default_rng(0)
noise = rng.normal(size=(12, 16, 16))
y = (gaussian_filter(noise, (0, 3, 3)) > 0).astype(int)
X = np.stack([(2 * y - 1) * rng.normal(size=y.shape) for _ in range(3)], axis=-1)
X = np.concatenate([X, y[..., None] + rng.normal(size=(*y.shape, 2))], axis=-1)

boosting = HistGradientBoostingClassifier(max_iter=10)
alone = boosting.fit(X[:8].reshape(-1, 5), y[:8].ravel())
print(f"alone: {alone.score(X[8:].reshape(-1, 5), y[8:].ravel()):.3f}")

field = make_pipeline(ClassifierScores(boosting, cv=4), TRWCRF())
print(f"field: {field.fit(X[:8], y[:8]).score(X[8:], y[8:]):.3f}")
