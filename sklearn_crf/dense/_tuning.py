"""Tuned constants of dense fields, with the trade-off that each of them makes."""

# Number of L-BFGS iterations for each choice of bandwidths. Weights start from the previous choice, and time is
# proportional to the number of iterations (benchmarks/quality/dense_bandwidths.py).
ITERATIONS_PER_CHOICE = 10

# Factors of the kernels' weights that are tried as start of learning. Each factor costs one pass. With far too large
# weights, all pixels get the same label and the gradient vanishes, so smaller factors are needed.
START_FACTORS = (1.0, 0.3, 0.1, 0.0)

# Tolerance for the sum of a pixel's probabilities to be 1, as needed for half precision. A smaller tolerance rejects
# such probabilities, a larger one mistakes scores for probabilities.
SUM_TOL = 0.01

# Score that replaces -inf among the features of a linear field. A lower score would dominate the scale of the features.
LEAST_SCORE = -50.0

# An image that lies partly outside the range of fit and covers less than this fraction of it has other units, such as a
# standardised image. A larger fraction rejects dark images that overshoot because of resampling.
NARROW_RANGE = 0.1

# An image of fractions whose values lie in this fraction of the range of fit has other units, if fit had integers. A
# larger fraction rejects dark images.
DARK_RANGE = 0.02

# Fraction of the range of a data type below which a warning is issued, as for 12-bit colours stored in 16 bits.
HARDLY_ANY_RANGE = 1 / 16
