"""Tuned constants of mixtures of factor analysers, with the trade-off behind each constant."""

import math
import sys

# Number of samples per class for initial values, in k-means on a large class and in total from shards. More samples
# take longer, fewer merge small clusters.
START_SAMPLES = 3000

# Number of features above which random projections find a few leading components faster than the eigenvectors of the
# covariance.
MAX_FEATURES_FOR_EIGH = 100

# Number of features above which second moments (d x d) cost more than the projections (d x p) that they replace.
MAX_FEATURES_FOR_SECOND_MOMENTS = 32

# Steps over loadings and noise per pass over the data, if second moments make them cheap.
N_FACTOR_STEPS = 3

# Maximum number of entries of the second moments of all classes (128 MB).
MAX_CLASS_MOMENTS = 2**24

# Number of consecutive iterations of expectation-maximisation that must leave less than the tolerance, because a
# single small gain can be an accident. A larger number makes fits longer.
N_CLOSED = 2

# Number of iterations of L-BFGS that must together gain less than the tolerance. The last iterations may move along
# variances of almost constant features, whose gradients stay large. A smaller number ends some fits early.
N_FLAT = 20

# Number of epochs without a gain after which stochastic gradient descent ends.
N_STALE = 5

# Fraction of the gain of all epochs that may be left to a descent. With a smaller one fewer fits count as converged.
SHARE_LEFT = 0.01

# Samples per step of partial_fit, and the first step size in standard errors for one sample. Longer steps learn faster
# from the first samples and converge later.
BATCH_SIZE, STEP_SIZE = 64, 0.1

# Criteria for isolated values. Their distance from the median exceeds the 90 % quantile of distances in the class and
# feature by the first factor, and exceeds the largest distance of other values by the second. Smaller factors mistake
# tails of distributions for errors.
TIMES_AS_FAR, LEAST_GAP = 100, 10

# Minimum number of values in a class with isolated values, and maximum number from which quantiles are estimated.
LEAST_VALUES, MOST_VALUES = 10, 2000

# Maximum number of distinct isolated values, and their maximum fraction of a class: more of them form a component.
MOST_DISTINCT, LARGEST_SHARE = 5, 0.01

# Smallest and largest number of samples of a block. Smaller blocks use vector instructions less well; larger blocks
# leave threads without work.
BLOCK_SAMPLES = 256, 2048

# Maximum number of entries of the scratch arrays of a block in predictions: larger blocks exceed the cache.
BLOCK_NUMBERS = 2**19

# Number of entries that one task searches for missing values, which takes some milliseconds. Sharing smaller tasks
# among threads does not pay.
NUMBERS_OF_A_TASK = 2**22

# Number of parts of the samples that are held out in turn to choose parameters, and the values of alpha to choose from,
# evenly spaced in their logarithms. More parts or values take longer.
FOLDS, ALPHAS = 3, (1.0, 0.03, 0.001)

# Maximum number of samples that choose parameters: the choice should take about as long as the fit.
CHOICE_SAMPLES = 3000

# Maximum log-loss of one held-out sample, the log-loss of a probability of 2.2e-16. Without a maximum, one sample that
# is far from all others would determine the temperature. A smaller maximum hides wrong probabilities.
LARGEST_LOSS = -math.log(sys.float_info.epsilon)
