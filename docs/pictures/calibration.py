"""Calibration curves before and after scaling by one temperature."""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf import DRFClassifier
from sklearn_crf.calibration import TemperatureScaling
from sklearn_crf.display import ReliabilityDisplay
from sklearn_crf.learning import PseudolikelihoodTraining

rng = np.random.default_rng(0)
y = (gaussian_filter(rng.normal(size=(18, 20, 20)), (0, 2, 2)) > 0).astype(int)
X = y[..., np.newaxis] + rng.normal(size=(*y.shape, 1))
plain = PseudolikelihoodTraining(edge_scale=1)
field = DRFClassifier(learning=plain, inference="bp", edge_features="constant")
scaled = TemperatureScaling(field, cv=3).fit(X[:9], y[:9])
figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained", sharey=True)
for ax, (title, fitted) in zip(
    axes, {"as learned": field.fit(X[:9], y[:9]), "at one temperature": scaled}.items(), strict=True
):
    ReliabilityDisplay.from_estimator(fitted, X[9:], y[9:], ax=ax)
    ax.set_title(title)
