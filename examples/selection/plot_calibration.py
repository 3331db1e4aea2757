"""
Calibration of predicted probabilities
======================================

Of all pixels for which a label has a predicted probability of 80 %, eighty in a hundred
should have this label. Plain pseudolikelihood relies on neighbours too much, so its
probabilities are too extreme. A single temperature that is chosen on held-out images
calibrates these probabilities.
"""

# %%
# Data
# ----
import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

from sklearn_crf import DRFClassifier
from sklearn_crf.calibration import TemperatureScaling
from sklearn_crf.display import MarginalEntropyDisplay, ReliabilityDisplay
from sklearn_crf.learning import PseudolikelihoodTraining

rng = np.random.default_rng(0)
y = (gaussian_filter(rng.normal(size=(24, 20, 20)), (0, 2, 2)) > 0).astype(int)
X = y[..., np.newaxis] + rng.normal(size=(*y.shape, 1))
train, test = slice(0, 12), slice(12, 24)

# %%
# Before and after scaling
# ------------------------
options = {"inference": "trw", "edge_features": "constant"}
plain = DRFClassifier(learning=PseudolikelihoodTraining(edge_scale=1), **options)
fields = {
    "plain pseudolikelihood": plain,
    "scaled by a temperature": TemperatureScaling(plain, cv=3),
    "learned by marginals": DRFClassifier(learning="pma", **options),
}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained", sharey=True)
for ax, (title, field) in zip(axes, fields.items(), strict=True):
    ReliabilityDisplay.from_estimator(
        field.fit(X[train], y[train]), X[test], y[test], ax=ax
    )
    ax.set_title(title)
for learning, scaled in {
    "plain pseudolikelihood": fields["scaled by a temperature"],
    "pseudolikelihood, default": TemperatureScaling(
        DRFClassifier(learning="pl", **options), cv=3
    ).fit(X[train], y[train]),
}.items():
    before, after = scaled.log_loss_
    print(
        f"{learning:26s} temperature {scaled.temperature_:.2f}, "
        f"held-out log-loss {before:.3f} -> {after:.3f}"
    )

# %%
# Uncertain pixels
# ----------------
field = fields["learned by marginals"]
MarginalEntropyDisplay.from_predictions(field.predict_proba(X[test])[0])
plt.show()
