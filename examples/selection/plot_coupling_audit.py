"""
Coupling audit: matching learning and inference
===============================================

Kumar, August and Hebert (2005) trained fields by several learning methods, predicted
with several inference algorithms, and found that a field should predict with the
inference that it was trained with. ``coupling_audit`` computes the table
of this paper for any data by cross-validation, with paired tests over examples. The
last section calibrates the probabilities of a field that was trained only with best
labelings.
"""

# %%
# Data
# ----
#
# The data are handwritten digits of 8 x 8 pixels with noise.
import matplotlib.pyplot as plt

from sklearn_crf import DRFClassifier
from sklearn_crf.calibration import TemperatureScaling
from sklearn_crf.datasets import make_noisy_digits
from sklearn_crf.display import CouplingAuditDisplay, ReliabilityDisplay
from sklearn_crf.learning import PseudolikelihoodTraining
from sklearn_crf.model_selection import coupling_audit

X, y, _ = make_noisy_digits(40, random_state=0)

# %%
# The audit
# ---------
#
# Each estimator has a different learning method, and is fitted once for each fold.
# Every inference algorithm then predicts with every fitted estimator.
estimators = {
    "PMA": DRFClassifier(learning="pma", inference="mpm"),
    "SPA": DRFClassifier(learning="spa", inference="map"),
    "SPA, bundle": DRFClassifier(learning="spa", inference="map", solver="bundle"),
    "PL": DRFClassifier(learning="pl", inference="icm"),
    "plain PL": DRFClassifier(
        learning=PseudolikelihoodTraining(edge_scale=1), inference="icm"
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
# Matching pairs are framed. A star marks pairs that are significantly worse than the
# best pair at the 5 % level. The test accounts for the selection of the best pair.
# ICM changes one label at a time, and stops at poor labelings if edges outweigh nodes.
# This happens with the weights of PMA and of plain pseudolikelihood (PL), although
# plain PL and ICM match: both consider each node given its neighbours.
# ``learning="pl"`` reduces the weights of edges after training, and predicts well with
# all algorithms.
#
# The score of SPA with MAP also depends on the solver. In this example, SPA is trained
# by the default solver, which takes gradient steps and returns the weights with the
# fewest training errors. ``solver="bundle"`` minimises the loss of SPA instead. SPA
# with MAP then has a much lower score, although this pair also matches.
CouplingAuditDisplay.from_results(audit.results)
plt.show()

# %%
# Probabilities
# -------------
#
# The scale of the weights of SPA is arbitrary, so the marginals are not calibrated. A
# single temperature that is chosen on held-out images calibrates the marginals and does
# not change the predicted labels.
spa = estimators["SPA"].fit(X[:30], y[:30])
calibrated = TemperatureScaling(estimators["SPA"], cv=3).fit(X[:30], y[:30])
print(
    f"temperature {calibrated.temperature_:.2f}, "
    f"held-out log-loss {calibrated.log_loss_.round(3)}"
)
figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharey=True)
for ax, name, field in zip(
    axes, ("as learned", "at the temperature found"), (spa, calibrated), strict=True
):
    ReliabilityDisplay.from_estimator(field, X[30:], y[30:], n_bins=5, ax=ax)
    ax.set_title(name)
plt.show()
