"""Constants of mixtures of factor analysers that were tuned, and what each trades."""

# Samples of each class that initial values are found from: k-means takes its start from so many of a large class, and
# shards send so many together. More take longer, and fewer merge clusters of few samples.
START_SAMPLES = 3000

# Features from which on a few leading components are found faster by random projections than by the eigenvectors of
# the covariance.
MAX_FEATURES_FOR_EIGH = 100

# Features beyond which second moments (d x d) cost more than the projections (d x p) that they replace.
MAX_FEATURES_FOR_SECOND_MOMENTS = 32

# Steps over loadings and noise for one pass over the data where second moments make them cheap.
N_FACTOR_STEPS = 3

# Numbers that second moments of all classes may take (128 MB).
MAX_CLASS_MOMENTS = 2**24

# Iterations of expectation-maximisation in a row that must leave less than the tolerance, as one small gain can be an
# accident. More make fits longer.
N_CLOSED = 2

# Iterations of L-BFGS that must together gain less than the tolerance: the last ones may move along variances of
# features that are almost constant, whose gradients stay large. Fewer end some fits early.
N_FLAT = 20

# Epochs of stochastic gradient descent without a gain before it ends.
N_STALE = 5

# Share of what epochs have gained that they may leave to a descent. A smaller one calls fewer fits converged.
SHARE_LEFT = 0.01

# Samples of one step of partial_fit, and its first length in standard errors from one sample. Longer steps learn faster
# from the first samples and settle later.
BATCH_SIZE, STEP_SIZE = 64, 0.1

# A value is isolated where it is so many times as far from the median as nine in ten values of its class and feature,
# and so many times as far as the farthest of the others. Smaller numbers take tails of distributions for mistakes.
TIMES_AS_FAR, LEAST_GAP = 100, 10

# Values that a class needs to have isolated ones, and that quantiles are estimated from.
LEAST_VALUES, MOST_VALUES = 10, 2000

# Most distinct isolated values, and their share of a class: more of them are a component.
MOST_DISTINCT, LARGEST_SHARE = 5, 0.01

# Samples of a block at least and at most: shorter ones fill the vectors and products of kernels less, longer ones leave
# threads without work.
BLOCK_SAMPLES = 256, 2048

# Numbers that arrays of a block of rows have at most at prediction of factors: longer blocks leave the cache.
BLOCK_NUMBERS = 2**19

# Numbers that one task looks for missing ones among, some milliseconds: threads need not try whether to share shorter
# tasks.
NUMBERS_OF_A_TASK = 2**22
