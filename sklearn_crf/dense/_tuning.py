"""Tuned constants of dense fields, with the trade-off behind each constant."""

# Number of L-BFGS iterations for each choice of bandwidths, starting from the weights of the previous choice.
# Training time is proportional to this number (benchmarks/quality/dense_bandwidths.py).
ITERATIONS_PER_CHOICE = 10

# Factors by which the kernels' weights are multiplied to find a start of learning. Each costs one pass over the data.
# Small factors are needed, because with far too large weights all pixels get one label, and the gradient vanishes.
START_FACTORS = (1.0, 0.3, 0.1, 0.0)

# Maximum difference of the sum of a pixel's probabilities from 1. Half precision needs this tolerance.
# A smaller tolerance would reject half-precision probabilities.
# A larger tolerance would accept scores that are not probabilities.
SUM_TOL = 0.01

# Score that replaces -inf among the features of a linear field. A lower score would dominate the scale of the features.
LEAST_SCORE = -50.0

# Colours have other units than in fit if they begin below the range of fit and span less than this part of that range.
# For example, this is the case for a standardised image.
# A larger fraction would reject dark images that go below the range because of resampling.
NARROW_RANGE = 0.1

# If colours in fit were integers, an image with fractional colours may have other units.
# An image has other units if all its colours lie within this fraction at the lower end of the range of fit.
# A larger DARK_RANGE would reject dark images.
DARK_RANGE = 0.02

# Typical ranges of scores between which training needs no unit: with much larger or smaller scores, the gradient by the
# scale of scores vanishes or dominates. The typical range is that of about ROWS_OF_UNIT pixels.
SMALLEST_SCORES, LARGEST_SCORES, ROWS_OF_UNIT = 0.1, 1e3, 1000
