"""
How training by labelings cycles
================================

Learning by marginals (PMA) descends a smooth loss and converges. Learning by labelings does not: the best labeling (SPA)
and the labeling of largest marginals (MMA) are constant over whole regions of weights, and so is the gradient made of
them, which therefore never becomes small for good. The weights move along straight lines, turn where a label flips, and end up going round in
cycles (Kumar, August and Hebert 2005, sections 5 and 7). This is their Figure 1, drawn from fitted estimators.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf import DRFClassifier
from sklearn_crf.datasets import make_noisy_shapes
from sklearn_crf.display import TrainingTraceDisplay

X, y, _ = make_noisy_shapes("bimodal", 4, shapes=["gear"], random_state=0)

# %%
# The three rules start from the same random weights and take steps of the same length. So many cycles are asked for
# that ``max_iter`` ends the training.
settings = {"solver": "gradient", "init": "random", "random_state": 3, "max_iter": 300, "n_cycles": 1000, "tol": 0.0}
rules = {"PMA": ("pma", "mpm"), "SPA": ("spa", "map"), "MMA": ("mma", "mpm")}
fields = {
    name: DRFClassifier(learning=learning, inference=inference, **settings).fit(X, y)
    for name, (learning, inference) in rules.items()
}

# %%
# Rows show the constant term, the weight of the grey value, what is added to each in a step (an approximate gradient of the log-likelihood), and the wrong
# labels of the training images by the inference that the rule learns with. Errors are few where gradients are small:
# with labels in place of expectations, the norm of the gradient is at most a constant times the number of errors.
TrainingTraceDisplay.from_estimators(fields.values(), names=fields)
plt.show()

# %%
# What is kept of a trajectory without a limit is a choice: ``select="best"`` keeps the weights with the fewest training
# errors. The last weights may be some of the worst.
for name, field in fields.items():
    print(f"{name}: fewest errors {np.nanmin(field.error_curve_):.0f}, at the end {field.error_curve_[-1]:.0f}")
