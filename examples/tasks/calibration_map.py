"""Check the calibration of probabilities, and map the uncertainty of a field."""

import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.calibration import calibration_curve

from sklearn_crf import DRFClassifier

rng = np.random.default_rng(0)
y = (gaussian_filter(rng.normal(size=(16, 24, 24)), (0, 3, 3)) > 0).astype(int)
X = y[..., np.newaxis] + rng.normal(scale=1.2, size=(*y.shape, 1))
field = DRFClassifier(edge_features="constant").fit(X[:8], y[:8])

proba = field.predict_proba(X[8:])
share, mean = calibration_curve(y[8:].ravel(), proba[..., 1].ravel(), n_bins=5)
for predicted, observed in zip(mean, share, strict=True):
    print(f"predicted {predicted:.2f}, observed {observed:.2f}")

entropy = -(proba * np.log(proba)).sum(axis=-1)  # entropy of each pixel
wrong = field.predict(X[8:]) != y[8:]
print(f"entropy where wrong {entropy[wrong].mean():.2f}")
print(f"entropy where right {entropy[~wrong].mean():.2f}")
