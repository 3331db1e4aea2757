"""
Traces of training by best labelings
====================================

Learning by marginals (PMA) descends a smooth loss and converges. Learning by labelings
does not: the best labeling (SPA) and the labeling of largest marginals (MMA) are
constant over whole regions of weights, and so is the gradient made of them, which
therefore never vanishes. The weights move along straight lines, turn where a label
flips, and end in cycles (Kumar, August and Hebert 2005, sections 5 and 7). This is
their Figure 1, drawn from fitted estimators.
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
# All take steps of fixed length along their approximate gradient. PMA and one SPA start
# from the weights of single pixels, the others from random weights. So many cycles are
# asked for that ``max_iter`` ends the training.
paper = {"n_cycles": 1000, "step_schedule": "constant"}
settings = {"max_iter": 400, "tol": 0.0, "random_state": 1}
ways = {
    "PMA": (PseudoMarginalTraining(init="independent"), "gradient", "mpm"),
    "SPA-1": (SaddlePointTraining(init="random", **paper), "auto", "map"),
    "SPA-2": (SaddlePointTraining(init="independent", **paper), "auto", "map"),
    "MMA": (MaximumMarginalTraining(init="random", **paper), "auto", "mpm"),
}
with warnings.catch_warnings():
    # 400 steps do not satisfy tol=0
    warnings.simplefilter("ignore", ConvergenceWarning)
    fields = {
        name: DRFClassifier(
            learning=learning, solver=solver, inference=inference, **settings
        ).fit(X, y)
        for name, (learning, solver, inference) in ways.items()
    }

# %%
# Rows show the constant term, the weight of the grey value, the gradient of each (of
# the log-likelihood, or of what stands for it), and the wrong labels of the training
# images by the inference that learns. PMA comes to rest. SPA and MMA show
# the two behaviours that the paper describes: large oscillations that come back after
# quiet stretches (SPA-1, MMA), or small ones from some point on (SPA-2). Errors are few
# where gradients are small: with labels in place of expectations, the norm of the
# gradient is at most a constant times the number of errors.
TrainingTraceDisplay.from_estimators(fields.values(), names=fields)
plt.show()

# %%
# What is kept of a trajectory without a limit is a choice: ``select="best"``, the
# default, keeps the weights with the fewest training errors. The last ones may be among
# the worst.
for name, field in fields.items():
    print(
        f"{name}: fewest errors {np.nanmin(field.error_curve_):.0f}, "
        f"at the end {field.error_curve_[-1]:.0f}"
    )
