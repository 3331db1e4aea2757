"""
Which way of learning goes with which inference
===============================================

Kumar, August and Hebert (2005) learned fields in several ways, let each predict by
several inferences, and found that the best pairs match: a field should be learned by
what it predicts with. ``coupling_audit`` makes that table for any data, by
cross-validation, with tests over the same examples. Then one temperature gives
probabilities to weights that were learned from best labelings alone.
"""

# %%
# Data
# ----
#
# Handwritten digits of 8 x 8 pixels under noise.
import matplotlib.pyplot as plt

from sklearn_crf import DRFClassifier
from sklearn_crf.calibration import TemperatureScaling
from sklearn_crf.datasets import make_noisy_digits
from sklearn_crf.display import CouplingAuditDisplay, ReliabilityDisplay
from sklearn_crf.model_selection import coupling_audit
from sklearn_crf.potentials import PairwiseTables

X, y, _ = make_noisy_digits(40, random_state=0)

# %%
# The audit
# ---------
#
# Each estimator is one way of learning, fitted once for each fold; each inference
# predicts with all of them.
estimators = {
    "PMA": DRFClassifier(learning="pma", inference="mpm"),
    "SPA": DRFClassifier(learning="spa", solver="bundle", inference="map"),
    "PL": DRFClassifier(learning="pl", inference="icm"),
    "PL, C=0.01 of edges": DRFClassifier(
        learning="pl", inference="icm", pairwise=PairwiseTables(C=0.01)
    ),
}
inference = {"MAP": "map", "MPM": "mpm", "ICM": "icm"}
audit = coupling_audit(estimators, X, y, inference=inference, cv=3, random_state=0)
columns = ("learning", "inference", "mean_test_score", "p_value")
rows = zip(*(audit.results[name] for name in columns), strict=True)
for learning, decoding, score, p in rows:
    print(
        f"{learning:20} {decoding}  {100 * score:5.2f} % right   "
        f"p = {p:.2g} against the best pair"
    )

# %%
# Pairs that match are framed; a star marks those that are worse than the best at 5 %,
# by a test that allows for the choice of the best pair among all.
CouplingAuditDisplay.from_results(audit.results)
plt.show()

# %%
# Probabilities
# -------------
#
# The weights of SPA have no natural scale, so that its marginals say little about how
# sure it is. One temperature, found on images left out, repairs that and leaves the
# labels as they are.
spa = estimators["SPA"].fit(X[:30], y[:30])
calibrated = TemperatureScaling(estimators["SPA"], cv=3).fit(X[:30], y[:30])
print(
    f"temperature {calibrated.temperature_:.2f}, "
    f"log-loss left out {calibrated.log_loss_.round(3)}"
)
figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharey=True)
for ax, name, field in zip(
    axes, ("as learned", "at the temperature found"), (spa, calibrated), strict=True
):
    ReliabilityDisplay.from_estimator(field, X[30:], y[30:], n_bins=5, ax=ax)
    ax.set_title(name)
plt.show()
