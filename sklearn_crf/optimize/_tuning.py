"""Tuned constants of the optimizers, with the trade-off behind each constant.

``tests/estimators/test_loose_tolerances.py`` fits fields with tolerances from 1e-4 to 0.1 and compares them with the
optimum.
"""

# Maximum fraction by which the objective may still decrease when training reports convergence.
SHARE_LEFT = 0.01

# Limits of three criteria. If all are met, the objective can hardly decrease further.
# LAST_SHARE: fraction of the iterations that count as the last iterations.
# MOST_FALL: largest average decrease per iteration in the last iterations, relative to the value.
# MOST_SLOPE: largest entry of the gradient, relative to the value.
# In 1,728 fits, the objective could decrease by at most 0.4 % after the criteria were met.
# If the tolerance is tight, a larger LAST_SHARE or a smaller MOST_FALL or MOST_SLOPE needs more iterations.
# The chosen numbers increase the number of iterations by 1 %.
LAST_SHARE, MOST_FALL, MOST_SLOPE = 0.25, 0.001, 0.003
