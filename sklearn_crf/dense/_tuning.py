"""Tuned constants of dense fields, with the trade-off behind each constant."""

# Number of L-BFGS iterations for each choice of bandwidths, starting from the weights of the previous choice.
# Training time is proportional to this number (benchmarks/quality/dense_bandwidths.py).
ITERATIONS_PER_CHOICE = 10

# Factors of the kernels' weights that are tried as start of learning. Each factor costs one pass over the data.
# Small factors are needed, since with far too large weights all pixels get one label and the gradient vanishes.
START_FACTORS = (1.0, 0.3, 0.1, 0.0)

# Tolerance for the sum of a pixel's probabilities, which must be 1. Half precision needs this tolerance.
# A smaller tolerance rejects half-precision probabilities, and a larger tolerance mistakes scores for probabilities.
SUM_TOL = 0.01

# Score that replaces -inf among the features of a linear field. A lower score would dominate the scale of the features.
LEAST_SCORE = -50.0

# An image whose colours begin below the range of fit, and span less than this fraction of it, has other units.
# An example is a standardised image.
# A larger fraction rejects dark images that overshoot because of resampling.
NARROW_RANGE = 0.1

# If the colours of fit were integers, an image of fractional colours may have other units.
# The image has other units if its colours lie within this lowest fraction of the range of fit.
# A larger fraction rejects dark images.
DARK_RANGE = 0.02

# A warning is issued if colours span less than this fraction of the range of their data type, such as 12-bit colours
# that are stored in 16 bits.
HARDLY_ANY_RANGE = 1 / 16
