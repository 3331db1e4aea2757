"""Constants of the optimizers that were tuned, and what each trades.

``tests/estimators/test_loose_tolerances.py`` fits fields with tolerances from 1e-4 to .1 and compares them with the
optimum.
"""

# Share of the objective that may be left where training says that it has converged.
SHARE_LEFT = 0.01

# Where little of a value is said to be left: the last share of the iterations, the share of the value that each of them
# may have lowered it by on average, and the largest entry of the gradient, as a share of the value. Of 1,728 fits none
# has more than .4 % left by these; more of the first or less of the others costs iterations where the tolerance is
# tight: these cost 1 % of them.
LAST_SHARE, MOST_FALL, MOST_SLOPE = 0.25, 0.001, 0.003
