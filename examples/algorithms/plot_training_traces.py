"""
Traces of training by best labelings
====================================

Learning by marginals (PMA) minimises a smooth loss and converges. Learning by labelings
does not converge. The best labeling (SPA) and the labeling of largest marginals (MMA)
are constant over whole regions of weights. In such a region, the approximate gradient
is also constant, so it never becomes small. The weights move along straight lines, turn
at points where a label changes, and end in cycles (Kumar, August and Hebert 2005,
sections 5 and 7). This example draws Figure 1 of this paper from fitted estimators.
"""

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import DRFClassifier
from sklearn_crf.datasets import make_noisy_shapes
from sklearn_crf.display import TrainingTraceDisplay
from sklearn_crf.learning import (
    MaximumMarginalTraining,
    PseudoMarginalTraining,
    SaddlePointTraining,
)

X, y, _ = make_noisy_shapes("bimodal", 2, shapes=["key"], random_state=0)

# %%
# All estimators take steps of fixed length along their approximate gradient. PMA and
# SPA-2 start from weights that are learned without neighbours. SPA-1 and MMA start from
# random weights. Training normally stops after a number of cycles; here ``n_cycles`` is
# so large that training ends after ``max_iter`` steps.
paper = {"n_cycles": 1000, "step_schedule": "constant"}
settings = {"max_iter": 400, "tol": 0.0, "random_state": 1}
ways = {
    "PMA": (PseudoMarginalTraining(init="independent"), "gradient", "mpm"),
    "SPA-1": (SaddlePointTraining(init="random", **paper), "auto", "map"),
    "SPA-2": (SaddlePointTraining(init="independent", **paper), "auto", "map"),
    "MMA": (MaximumMarginalTraining(init="random", **paper), "auto", "mpm"),
}
with warnings.catch_warnings():
    # with tol=0, training that ends after 400 steps always raises a warning
    warnings.simplefilter("ignore", ConvergenceWarning)
    fields = {
        name: DRFClassifier(
            learning=learning, solver=solver, inference=inference, **settings
        ).fit(X, y)
        for name, (learning, solver, inference) in ways.items()
    }

# %%
# The rows show the constant term, the weight of the grey value, the derivatives of the
# log-likelihood (or its approximation) with respect to both weights, and the number of
# wrong training labels. Labels are predicted by the inference that is used in training.
# PMA converges. SPA and MMA show the two behaviours that the paper describes: large
# oscillations that return after quiet periods (SPA-1, MMA), or small oscillations from
# some iteration on (SPA-2). If the gradient is small, there are few errors: with labels
# in place of expectations, the norm of the gradient is at most a constant times the
# number of errors.
TrainingTraceDisplay.from_estimators(fields.values(), names=fields)
plt.show()

# %%
# If training does not converge, the final weights must be chosen among all iterations.
# The default, ``select="best"``, chooses the weights with the fewest training errors.
# The weights of the last iteration may be among the worst.
for name, field in fields.items():
    print(
        f"{name}: fewest errors {np.nanmin(field.error_curve_):.0f}, "
        f"at the end {field.error_curve_[-1]:.0f}"
    )
