"""Tuned constants of regression tree fields, with the trade-off that each of them makes."""

from math import inf

# Number of pixels that a round of training uses, if parts of images suffice.
# The time of a round is proportional to this number; with fewer pixels, leaves depend on chance.
# Validation losses of benchmarks/quality hardly decrease beyond this number.
PIXELS_OF_ROUND = 100_000

# Minimum number of nodes for early stopping, by number of lattice axes.
# With fewer nodes, training needs the data that would be held out.
# By default, no rows of tables are held out.
LEAST_TO_HOLD_OUT = inf, 2_000, 20_000, 20_000

# Shrinkage of leaves towards their parents, as a fraction of the factors of a round.
# Larger values keep deep trees from learning, smaller values let them overfit.
SHRINKAGE = 0.05

# Values of y required for each parameter of the deepest leaves, and maximum depth, if rounds use whole examples.
# Deeper trees overfit and take longer.
VALUES_OF_PARAMETER, DEEPEST = 6, 5

# Number of consecutive rounds without a lower validation loss after which training stops.
# A single round may fail by chance; each further one costs a round.
PATIENCE = 2

# LEAST_SHARE_OF_ROUND: minimum weight of the latest round in the average over rounds.
# PIXELS_OF_HALF: number of pixels of a round for which the weight is at least 1/2.
# Rounds of few pixels fit the noise of the pixels.
# Without averaging, validation losses would fluctuate by more than deeper trees lower them.
# Rounds of many pixels need no averaging.
LEAST_SHARE_OF_ROUND, PIXELS_OF_HALF = 0.3, 200_000

# Minimum noise level of an image, as a fraction of the level that a field was trained for.
# Images are rescaled to the training level, and a smaller fraction would enlarge their contrasts too much.
LEAST_NOISE = 0.02

# SMOOTH_SQUARE: side of the squares whose noise is estimated separately.
# SHARE_OF_SQUARES: fraction of squares that are assumed to be smooth.
# BIAS_OF_SQUARES: ratio of the estimate at the quantile SHARE_OF_SQUARES to the true level, for pure noise.
# LEAST_SQUARES_OF_NOISE: minimum number of squares.
# Smaller squares and fractions mistake chance for smoothness, larger ones mistake detail for noise.
# For BSD68 with noise of level 5 the estimate is 6.2 on average; a single estimate for the whole image gives 7.5.
SMOOTH_SQUARE, SHARE_OF_SQUARES, BIAS_OF_SQUARES, LEAST_SQUARES_OF_NOISE = 32, 0.1, 0.945, 20

# If values are clipped, noise is estimated from squares in which at most a fraction LEAST_CLIPPED of the values is
# clipped, and always from the squares with the fewest clipped values, a fraction SHARE_OF_UNCLIPPED of all squares.
# LARGEST_CLIPPED: largest fraction of clipped values of these squares that is attributed to noise.
LEAST_CLIPPED, SHARE_OF_UNCLIPPED, LARGEST_CLIPPED = 0.01, 0.3, 0.25

# Number of images from which filters are learned. More images hardly improve filters and take longer.
IMAGES_OF_BANK = 20

# TRUST_IN_REGRESSION: fraction of its precision with which the initial regression enters a field.
# The fraction is less than 1 because the observation uses the same pixels.
# SAMPLES_OF_INPUT: minimum number of samples for each input of the regression; fewer samples would fit noise.
TRUST_IN_REGRESSION, SAMPLES_OF_INPUT = 0.5, 10

# Maximum number of pixels held out for early stopping. Every round evaluates the loss on them.
PIXELS_HELD_OUT = 100_000

# Fraction of the columns held out if there are too few images, and minimum width of such images.
# A narrower strip would say little about unseen data.
STRIP_HELD_OUT, NARROW = 0.15, 32

# Shortest side of rectangles, and shortest edge of boxes, as long as a round can use fewer images instead.
# Smaller rectangles spend too much of the time on filtering their surroundings; larger rectangles cover few places.
SHORTEST_SIDE, SHORTEST_EDGE = 64, 24

# Maximum number of draws of a round's rectangles until one contains a known target. Sparser labels need whole images.
MOST_DRAWS = 100

# Minimum number of squares per image, and bounds of their sides.
# Small squares are spread better; large squares have relatively smaller margins.
SQUARES_OF_IMAGE, LEAST_SQUARE, LARGEST_SQUARE = 4, 4, 32

# Number of pixels for estimating the whitening, and of factors for the moments of leaves.
# More take longer; with fewer, curvatures differ more from 1 and training needs more iterations.
SAMPLES_OF_WHITENING, SAMPLES_OF_MOMENTS = 50_000, 100_000

# Variance, as a fraction of the largest, below which directions are rounding errors and not scaled to variance 1.
LEAST_VARIANCE = 1e-6

# Number of factors in one partial sum. Fewer need more calls, more do not fit into caches.
FACTORS_OF_PIECE = 8192

# Weight of the moments of all leaves in the moments of one leaf.
# A smaller weight may leave flat directions, a larger one removes the differences between leaves.
COMMON_SHARE = 0.05

# STEP_OF_CURVATURE: step of the finite difference that measures curvature, in units of whitened weights.
# SIGNS_OF_CURVATURE: minimum number of random signs in the estimate of a type's mean curvature.
# Shorter steps lose digits of float32, more signs cost evaluations.
STEP_OF_CURVATURE, SIGNS_OF_CURVATURE = 0.05, 64

# Minimum number of factors in a leaf, per weight of the linear model of a value. Smaller leaves overfit.
SAMPLES_OF_WEIGHT = 10

# Quantiles for thresholds are computed from at least this many factors of a leaf.
# Quantiles of a sample are nearly as good as quantiles of all factors, and take a tenth of the time.
LEAST_RANKED = 2048

# Tree of held-out errors: number of tests, thresholds for each test, and largest offset of a test.
# Maximum number of pixels of an image, maximum number of leaves, and minimum fraction of the pixels in a leaf.
# With fewer pixels, the deviation of a leaf is unreliable.
TESTS_OF_ERRORS, THRESHOLDS_OF_ERRORS, RADIUS_OF_ERRORS = 128, 15, 2
PIXELS_OF_ERRORS, LEAVES_OF_ERRORS, LEAST_SHARE_OF_ERRORS = 5000, 32, 0.01

# Number of pixels on which predictions are compared with the mean of y, and ratio of errors above which to warn.
# If X is unrelated to y, the ratio exceeds 1 by chance.
PIXELS_TO_CHECK, CLEARLY_WORSE = 10_000, 1.1

# Maximum number of pixels of images that are evaluated together.
# For several thousand pixels the overhead of calls is small, and enough tasks remain for several threads.
PIXELS_OF_STACK = 8192

# Number of partial sums of gradients, independent of the number of threads.
# More sums balance threads better, but each needs the memory of a gradient.
# NUMBERS_OF_GROUPS limits the total size of all sums.
LEAST_GROUPS, MOST_GROUPS, NUMBERS_OF_GROUPS = 16, 64, 2**20

# Maximum number of values of a field whose covariance is computed by factorisation.
# The inverse then takes 130 megabytes and seconds.
# Larger fields are sampled, and have no exact likelihood.
MOST_DENSE_VALUES = 4096

# Minimum number of pixels, and of responses to tests, per thread.
PIXELS_OF_THREAD, RESPONSES_OF_THREAD = 4096, 2**15

# Maximum number of pixels of a plane that is solved at once, with several hundred megabytes of channels and edges.
# Larger planes are solved in tiles.
PIXELS_OF_TILES = 2**20

# Maximum number of values of a tiled image's mean that are kept in memory. Larger means go to a temporary file.
VALUES_IN_MEMORY = 2**24

# Number of pixels that are converted to the units of targets at once, to limit the memory for float64.
PIXELS_IN_DOUBLES = 2**18

# Precision of a known value, for values of variance one.
# This precision is far above the precisions of fields with eigenvalues within the bounds, and far from the limits of
# float32.
PRECISION_OF_KNOWN = 1e4

# GAP_SCALES: standard deviation of the first Gaussian that fills gaps, and ratio of successive standard deviations.
# LEAST_MASS: minimum fraction of the mass of a Gaussian on known pixels.
# A smaller fraction uses values from farther away, a larger one needs more Gaussians.
GAP_SCALES, LEAST_MASS = (0.7, 1.6), 0.05

# Maximum number of conjugate gradient steps for a thin plate, and relative residual at which they stop.
# Pixels far from known pixels would need many more steps, and keep the values they were filled with.
PLATE_STEPS, PLATE_TOL = 30, 1e-3

# Standard deviation, in pixels, of the Gaussian that counts known pixels around a pixel.
NEAR = 1.0

# Number of images on which a corruption is tried, to find the channels with gaps and the ranges of the others.
IMAGES_TRIED = 8

# Distance by which values of resampled images may lie outside of 0 to 255.
# With a larger distance, other ranges would be mistaken for bytes.
OVERSHOOT = 64

# Number of values of each channel for estimating its unit and range, and minimum number per image.
VALUES_OF_CHANNEL, LEAST_VALUES_OF_IMAGE = 2**14, 64

# Limits for images in predict, as multiples of the width of the range in fit.
# An image is rejected if nearly all its values lie outside the range by more than the first of WIDTHS_OUTSIDE.
# An image is also rejected if half of its values lie outside by more than the second of WIDTHS_OUTSIDE.
# An image has another scale if nearly all values are closer to 0 than the fraction SHARE_OF_RANGE of the width.
# Stricter limits would reject dark and bright images.
# Up to SHARE_OF_DARK there is a warning: very dark images have the values of images in another scale.
WIDTHS_OUTSIDE, SHARE_OF_RANGE, SHARE_OF_DARK, QUANTILE_OF_RANGE = (1, 4), 0.01, 0.05, 0.95

# Ratio of an image's estimated noise to the training level above which a field for one level warns.
# Estimates are wrong by some percent, and by more for pure texture; within this ratio a field loses about 1 dB.
FAR_FROM_TRAINED = 2.0

# Level of a channel, as a multiple of its spread, above which the channel is centred.
# A higher level would use more than a quarter of the 24 binary digits of float32.
# If the channel must not be centred, a level above LEVEL_LOST is an error.
LARGEST_LEVEL, LEVEL_LOST = 2.0**6, 2.0**20

# A channel keeps its unit if its typical values lie within this many binary digits of 1.
# Fourth powers, and their sums, then lie within the range of float32.
MOST_DOUBLINGS = 24

# Images are multiplied by a power of two so that typical values lie between 16 and 256, as for bytes.
# Trees compare images with filter responses in other units, and should behave alike for images of any range.
# If float32 cannot hold a unit, the unit is changed by a power of ten, because units usually differ by such a power.
# Numbers are then nearly equal in all units.
LEAST_DOUBLINGS, DOUBLINGS, TOP = 5, 4, 256.0

# Largest values, as multiples of typical values or in their unit, whose squares can be summed in float32.
LARGEST_VALUE = 2.0**48

# Weight in decisions, as a fraction of the largest weight, of a class whose weight is 0.
# Such a class is then predicted if no other class is possible.
LEAST_WEIGHT = 1e-12

# Relative difference between sums of weights in different orders.
ROUNDING = 1e-6

# Largest offset in tests of saved trees, in pixels, so that sums with rows and columns cannot overflow.
LARGEST_OFFSET = 2**24

# Estimates of quantisation steps of JPEG transform at most BLOCKS_TRIED blocks.
# LEAST_COEFFICIENT: smallest coefficient that rounded pixels do not explain.
# LEAST_COEFFICIENTS: smallest number of coefficients of this size for a frequency.
# SHARE_OF_MULTIPLES: fraction of these coefficients that must be multiples of a step.
# A larger share fails if contrast is clipped, and a smaller share admits wrong steps.
BLOCKS_TRIED = 2000
LEAST_COEFFICIENT = 3.0
LEAST_COEFFICIENTS = 10
SHARE_OF_MULTIPLES = 0.7

# An image counts as compressed if this number of the lowest 9 frequencies have tables of at least this factor.
# Frequencies of images that were never compressed have factors of at most 0.25, and one frequency may have more.
# A quality of 85 has the factor 0.3.
LEAST_COARSE_FACTOR = 0.27
LEAST_COARSE_FREQUENCIES = 7
