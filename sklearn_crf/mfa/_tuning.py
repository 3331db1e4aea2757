"""Tuned constants of mixtures of factor analysers, with the trade-off behind each constant."""

import math
import sys

# Maximum number of samples of a class for the first runs of k-means; number of samples of a class read from shards.
# More samples take longer; with fewer samples, small clusters are merged.
START_SAMPLES = 3000

# Number of features above which random projections find a few principal components faster than ``eigh``.
MAX_FEATURES_FOR_EIGH = 100

# Number of features above which second moments (d x d) take longer to compute than projections (d x p).
MAX_FEATURES_FOR_SECOND_MOMENTS = 32

# Number of updates of loadings and noise in each pass over the data, if second moments make updates cheap.
N_FACTOR_STEPS = 3

# Maximum number of entries in the second moments of all classes together: 2**24 entries take 128 MB.
MAX_CLASS_MOMENTS = 2**24

# EM stops after this number of consecutive iterations whose estimated remaining gain is within the tolerance.
# A single small gain can be a coincidence; a larger number prolongs fits.
N_CLOSED = 2

# L-BFGS stops if this number of iterations together gain less than the tolerance, even if gradients are still large.
# Gradients with respect to the variances of almost constant features stay large.
# With a smaller number, some fits end too early.
N_FLAT = 20

# Number of epochs without a gain after which stochastic gradient descent ends.
N_STALE = 5

# SGD has converged if L-BFGS, started from the result of SGD, gains less than this fraction of the gain of all epochs.
# With a smaller fraction, fewer fits count as converged.
SHARE_LEFT = 0.01

# Number of samples per step of partial_fit; first step size, in units of the standard errors for one sample.
# Longer steps learn faster from the first samples, but converge later.
BATCH_SIZE, STEP_SIZE = 64, 0.1

# Limits on the distance of an isolated value from the median of its feature in its class:
# The distance must exceed TIMES_AS_FAR times the 90 % quantile of all distances.
# It must also exceed LEAST_GAP times the largest distance of a value that is not isolated.
# With smaller factors, tails of distributions would be treated as errors.
TIMES_AS_FAR, LEAST_GAP = 100, 10

# LEAST_VALUES: minimum number of samples of a class in which isolated values are searched.
# MOST_VALUES: maximum number of samples from which quantiles are computed.
LEAST_VALUES, MOST_VALUES = 10, 2000

# Maximum number of distinct isolated values that a feature may have in a class.
# This number is MOST_DISTINCT, or the fraction LARGEST_SHARE of the class's samples if that is more.
# If there are more distant values, they are treated as a cluster of samples, not as errors.
MOST_DISTINCT, LARGEST_SHARE = 5, 0.01

# Minimum and maximum number of samples in a block.
# Smaller blocks use vector instructions less well; larger blocks leave threads without work.
BLOCK_SAMPLES = 256, 2048

# Maximum number of entries in a block's temporary arrays during prediction. Larger blocks exceed the cache.
BLOCK_NUMBERS = 2**19

# Number of entries in which one task searches for missing values. Such a task takes a few milliseconds.
# With smaller tasks, several threads would save no time.
NUMBERS_OF_A_TASK = 2**22

# Number of cross-validation folds; candidate values of alpha, about evenly spaced on a logarithmic scale.
# More folds or candidates take longer.
FOLDS, ALPHAS = 3, (1.0, 0.03, 0.001)

# Maximum number of samples used to choose parameters, so that the choice takes about as long as the fit.
CHOICE_SAMPLES = 3000

# Maximum log-loss that one held-out sample contributes: the log-loss for a probability of 2.2e-16.
# Without a maximum, one sample far from all other samples would determine the temperature.
# A smaller maximum would hide wrong probabilities.
LARGEST_LOSS = -math.log(sys.float_info.epsilon)
