"""Tuned constants of the optimizers, with the trade-off behind each constant.

``tests/estimators/test_loose_tolerances.py`` fits fields with tolerances from 1e-4 to 0.1 and compares them with the
optimum.
"""

# Fraction of the objective that may be left to decrease when training reports convergence.
SHARE_LEFT = 0.01

# Criteria for little being left to decrease: the fraction of iterations that count as the last ones, their largest
# average decrease relative to the value, and the largest entry of the gradient relative to the value. In 1,728 fits at
# most 0.4 % was left under these criteria. A larger first number or smaller other numbers cost iterations if the
# tolerance is tight; the present numbers cost 1 % more iterations.
LAST_SHARE, MOST_FALL, MOST_SLOPE = 0.25, 0.001, 0.003
