"""Constants of dense fields that were tuned, and what each trades."""

# Iterations of L-BFGS for each choice of bandwidths: weights start from those found before, and more iterations
# cost time in proportion (benchmarks/quality/dense_bandwidths.py).
ITERATIONS_PER_CHOICE = 10

# Factors of the weights of kernels that learning tries to start from. More of them cost one pass each; with far too
# large weights alone all pixels would get the same label, where the gradient vanishes.
START_FACTORS = (1.0, 0.3, 0.1, 0.0)

# Numbers that the marginals after all updates may hold together in training. Threads share the examples of a group: a
# smaller group leaves some of them idle at its end, a larger one takes more memory (benchmarks/speed/threads.py).
NUMBERS_AT_ONCE = 2**24

# How far the probabilities of a pixel may be from adding up to one: those of half precision are that far. A smaller
# tolerance refuses them, a larger one takes scores for probabilities.
SUM_TOL = 0.01

# Score that stands for -inf among the features of a linear field. A lower one would dominate their scale.
LEAST_SCORE = -50.0

# Share of the range of fit below which an image that also lies outside of it has other units, as standardised ones do:
# a larger share refuses dark images whose filters overshoot.
NARROW_RANGE = 0.1

# Share of the range of fit within which images of fractions have other units where fit had whole numbers: a larger one
# refuses dark images.
DARK_RANGE = 0.02

# Share of the range that a type stands for below which colours of images are warned of: those of 12 bits in 16 are.
HARDLY_ANY_RANGE = 1 / 16
