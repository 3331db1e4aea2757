"""Tuned constants of regression tree fields, with the trade-off that each of them makes."""

from math import inf

# Number of pixels that a round of training uses, if parts of images are sufficient.
# The time of a round is proportional to this number; with fewer pixels, leaves depend on chance.
# Validation losses in benchmarks/quality hardly decrease beyond this number.
PIXELS_OF_ROUND = 100_000

# Minimum number of nodes for early stopping, for lattices with 0, 1, 2 and 3 axes.
# With fewer nodes, training needs the data that would be held out.
# By default, no rows of tables are held out.
LEAST_TO_HOLD_OUT = inf, 2_000, 20_000, 20_000

# Shrinkage of leaves towards their parents, as a fraction of the factors of a round.
# Larger values keep deep trees from learning; smaller values let deep trees overfit.
SHRINKAGE = 0.05

# Limits on the depth of trees if rounds use whole examples. DEEPEST is the maximum depth.
# VALUES_OF_PARAMETER is the minimum number of values of y for each parameter of the deepest leaves.
# Deeper trees overfit and take longer.
VALUES_OF_PARAMETER, DEEPEST = 6, 5

# Number of consecutive rounds without a lower validation loss after which training stops.
# A single round may fail to improve by chance; a larger number prolongs training.
PATIENCE = 2

# LEAST_SHARE_OF_ROUND: minimum weight of the latest round in the average over rounds.
# PIXELS_OF_HALF: number of pixels in a round for which the weight of the latest round is 1/2.
# Rounds with few pixels fit the noise of these pixels.
# Without averaging, validation losses would fluctuate by more than the gain from deeper trees.
# Rounds with many pixels need no averaging.
LEAST_SHARE_OF_ROUND, PIXELS_OF_HALF = 0.3, 200_000

# Minimum noise level of an image, as a fraction of the level for which a field was trained.
# Images are rescaled to the training level; a smaller fraction would increase their contrast too much.
LEAST_NOISE = 0.02

# Degraded images may differ from the degraded targets by this number times the noise before fit warns.
# A smaller number would warn of kernels that were measured; a kernel of another size or sum exceeds it many times.
MOST_TIMES_NOISE = 3.0

# SMOOTH_SQUARE: side of the squares whose noise is estimated separately.
# SHARE_OF_SQUARES: fraction of squares that are assumed to be smooth.
# BIAS_OF_SQUARES: ratio of the estimate at the quantile SHARE_OF_SQUARES to the true level, for images of pure noise.
# LEAST_SQUARES_OF_NOISE: minimum number of squares.
# With smaller squares and fractions, chance is mistaken for smoothness; with larger ones, detail is mistaken for noise.
# For BSD68 with noise of level 5, the estimate is 6.2 on average; a single estimate for the whole image gives 7.5.
SMOOTH_SQUARE, SHARE_OF_SQUARES, BIAS_OF_SQUARES, LEAST_SQUARES_OF_NOISE = 32, 0.1, 0.945, 20

# LEAST_CLIPPED: if values are clipped, noise is estimated from squares with at most this fraction of clipped values.
# SHARE_OF_UNCLIPPED: minimum fraction of all squares to use; if necessary, squares with more clipped values are added.
# LARGEST_CLIPPED: maximum fraction of clipped values, in the squares that are used, that noise can explain.
LEAST_CLIPPED, SHARE_OF_UNCLIPPED, LARGEST_CLIPPED = 0.01, 0.3, 0.25

# Number of images from which filters are learned. More images hardly improve filters and take longer.
IMAGES_OF_BANK = 20

# TRUST_IN_REGRESSION: factor by which the precision of the initial regression is reduced.
# This factor is less than 1, because the observation and the regression use the same pixels.
# SAMPLES_OF_INPUT: minimum number of samples for each input of the regression; with fewer samples, it would fit noise.
TRUST_IN_REGRESSION, SAMPLES_OF_INPUT = 0.5, 10

# Maximum number of pixels held out for early stopping. Every round evaluates the loss on these pixels.
PIXELS_HELD_OUT = 100_000

# STRIP_HELD_OUT: fraction of the columns that are held out if there are too few images to hold out whole images.
# NARROW: minimum width of images of which columns are held out.
# Fewer columns would say little about unseen data.
STRIP_HELD_OUT, NARROW = 0.15, 32

# Minimum side of rectangles; minimum edge of boxes. Rounds use fewer images if rectangles would otherwise be smaller.
# For smaller rectangles, filtering their surroundings takes too much time; larger rectangles cover few places.
SHORTEST_SIDE, SHORTEST_EDGE = 64, 24

# Maximum number of draws of a round's rectangles until a draw has a known target. Sparser labels need whole images.
MOST_DRAWS = 100

# SQUARES_OF_IMAGE: minimum number of squares per image.
# LEAST_SQUARE, LARGEST_SQUARE: minimum and maximum side of squares.
# Small squares cover the images more evenly; large squares have smaller margins relative to the area.
SQUARES_OF_IMAGE, LEAST_SQUARE, LARGEST_SQUARE = 4, 4, 32

# Number of pixels from which the whitening is estimated; number of factors from which leaf moments are estimated.
# More samples take longer. With fewer samples, curvatures differ more from 1, and training needs more iterations.
SAMPLES_OF_WHITENING, SAMPLES_OF_MOMENTS = 50_000, 100_000

# Directions whose variance is below this fraction of the largest variance only contain rounding errors.
# Such directions are not scaled to variance 1.
LEAST_VARIANCE = 1e-6

# Number of factors in one partial sum. With fewer factors, more calls are needed; more factors do not fit into caches.
FACTORS_OF_PIECE = 8192

# Weight of the moments of all leaves, when they are averaged with the moments of a single leaf.
# With a smaller weight, flat directions may remain; with a larger weight, differences between leaves disappear.
COMMON_SHARE = 0.05

# STEP_OF_CURVATURE: step of the finite difference that measures curvature, in units of whitened weights.
# SIGNS_OF_CURVATURE: minimum number of random signs in the estimate of a type's mean curvature.
# Shorter steps lose digits of float32; more signs require more evaluations.
STEP_OF_CURVATURE, SIGNS_OF_CURVATURE = 0.05, 64

# Minimum number of factors in a leaf for each weight in the linear model of a value. Smaller leaves overfit.
SAMPLES_OF_WEIGHT = 10

# Minimum number of factors of a leaf from which quantiles for thresholds are computed.
# Quantiles of a sample are nearly as good as quantiles of all factors, and take a tenth of the time.
LEAST_RANKED = 2048

# Tree of held-out errors: number of tests, number of thresholds for each test, and maximum offset of a test.
# Tree of held-out errors: pixels used per image, maximum number of leaves, and minimum fraction of pixels in a leaf.
# With fewer pixels, the deviation of a leaf is unreliable.
TESTS_OF_ERRORS, THRESHOLDS_OF_ERRORS, RADIUS_OF_ERRORS = 128, 15, 2
PIXELS_OF_ERRORS, LEAVES_OF_ERRORS, LEAST_SHARE_OF_ERRORS = 5000, 32, 0.01

# PIXELS_TO_CHECK: number of pixels on which the errors of predictions and of the mean of y are compared.
# CLEARLY_WORSE: ratio of the two errors above which a warning is issued.
# If X is unrelated to y, the ratio slightly exceeds 1 by chance.
PIXELS_TO_CHECK, CLEARLY_WORSE = 10_000, 1.1

# Maximum number of pixels of images that are evaluated together.
# For several thousand pixels the overhead of calls is small, and enough tasks remain for several threads.
PIXELS_OF_STACK = 8192

# Minimum and maximum number of partial sums of gradients. The number of threads does not influence the choice.
# More sums balance threads better, but each sum needs the memory of a gradient.
# NUMBERS_OF_GROUPS limits the total size of all sums.
LEAST_GROUPS, MOST_GROUPS, NUMBERS_OF_GROUPS = 16, 64, 2**20

# Maximum number of values of a field whose covariance is computed by factorisation.
# The inverse of a field of this size takes 130 megabytes and several seconds.
# Larger fields are sampled, and have no exact likelihood.
MOST_DENSE_VALUES = 4096

# Minimum number of pixels per thread; minimum number of responses to tests per thread.
PIXELS_OF_THREAD, RESPONSES_OF_THREAD = 4096, 2**15

# Maximum size in pixels of a plane that is solved at once. Channels and edges then take several hundred megabytes.
# Larger planes are solved in tiles.
PIXELS_OF_TILES = 2**20

# Maximum number of values of a tiled image's mean that are kept in memory. Larger means are stored in a temporary file.
VALUES_IN_MEMORY = 2**24

# Number of pixels that are converted to the units of targets at once, to limit the memory for float64.
PIXELS_IN_DOUBLES = 2**18

# Precision with which known values enter a field whose values have variance one.
# It far exceeds the precisions of fields with eigenvalues within the bounds, but is far below the limit of float32.
PRECISION_OF_KNOWN = 1e4

# GAP_SCALES: standard deviation of the first Gaussian that fills gaps; ratio of successive standard deviations.
# LEAST_MASS: minimum fraction of the mass of a Gaussian that must lie on known pixels.
# A smaller fraction uses values from farther away; a larger one needs more Gaussians.
GAP_SCALES, LEAST_MASS = (0.7, 1.6), 0.05

# Maximum number of conjugate gradient steps for a thin plate; relative residual at which the steps stop.
# Pixels far from known pixels would need many more steps; they stay close to their values from the Gaussians.
PLATE_STEPS, PLATE_TOL = 30, 1e-3

# Standard deviation, in pixels, of the Gaussian window in which known pixels around a pixel are counted.
NEAR = 1.0

# Number of images on which a corruption is tried, to find the channels with gaps and the ranges of values.
IMAGES_TRIED = 8

# Maximum distance of the values of resampled images from the range 0 to 255.
# With a larger distance, other ranges would be mistaken for bytes.
OVERSHOOT = 64

# Number of values from which the unit and the range of a channel are estimated; minimum number of values per image.
VALUES_OF_CHANNEL, LEAST_VALUES_OF_IMAGE = 2**14, 64

# Limits for images in predict, as multiples of the width of the range in fit.
# An image is rejected if nearly all its values are outside the range by more than WIDTHS_OUTSIDE[0] widths.
# An image is also rejected if half of its values are outside the range by more than WIDTHS_OUTSIDE[1] widths.
# An image has another scale if nearly all values are closer to 0 than the fraction SHARE_OF_RANGE of the width.
# Stricter limits would reject dark and bright images.
# From SHARE_OF_RANGE to SHARE_OF_DARK, only a warning is issued, because the image may also be very dark.
WIDTHS_OUTSIDE, SHARE_OF_RANGE, SHARE_OF_DARK, QUANTILE_OF_RANGE = (1, 4), 0.01, 0.05, 0.95

# A warning is issued if an image's estimated noise differs from the single training level by more than this factor.
# Estimates are wrong by some percent, and by more for pure texture. Up to this factor, a field loses about 1 dB.
FAR_FROM_TRAINED = 2.0

# Maximum level of a channel, as a multiple of its spread. A channel with a higher level is centred.
# Without centring, a higher level would use more than a quarter of the 24 binary digits of float32.
# If the channel must not be centred, a level above LEVEL_LOST is an error.
LARGEST_LEVEL, LEVEL_LOST = 2.0**6, 2.0**20

# A channel keeps its unit if its typical values lie between 2 ** -MOST_DOUBLINGS and 2 ** MOST_DOUBLINGS.
# Fourth powers, and sums of fourth powers, then lie within the range of float32.
MOST_DOUBLINGS = 24

# Images are multiplied by a power of two so that typical values lie between 16 and 256, as for bytes.
# Trees compare images with filter responses in other units, and should behave alike for images of any range.
# If float32 cannot represent values in a unit, the unit is changed by a power of ten.
# Units usually differ by such a power. Numbers are then nearly equal in all units.
LEAST_DOUBLINGS, DOUBLINGS, TOP = 5, 4, 256.0

# Maximum magnitude of values in the units of the field. Squares of larger values cannot be summed in float32.
LARGEST_VALUE = 2.0**48

# Weight in decisions of a class with weight 0, as a fraction of the largest weight.
# Such a class is then only predicted if no other class is possible.
LEAST_WEIGHT = 1e-12

# Maximum relative difference, due to rounding errors, between sums of the same weights in different orders.
ROUNDING = 1e-6

# Maximum offset in tests of saved trees, in pixels, so that adding rows or columns cannot overflow.
LARGEST_OFFSET = 2**24

# BLOCKS_TRIED: maximum number of blocks that are transformed to estimate quantisation steps of JPEG.
# LEAST_COEFFICIENT: minimum size of a coefficient that rounding of pixels cannot explain.
# LEAST_COEFFICIENTS: minimum number of coefficients of this size that a frequency must have.
# SHARE_OF_MULTIPLES: fraction of these coefficients that must be multiples of a step.
# With a larger fraction, estimates fail if contrast is clipped; with a smaller one, wrong steps are accepted.
BLOCKS_TRIED = 2000
LEAST_COEFFICIENT = 3.0
LEAST_COEFFICIENTS = 10
SHARE_OF_MULTIPLES = 0.7

# An image counts as compressed if, of its 9 lowest frequencies, at least LEAST_COARSE_FREQUENCIES are coarse.
# A frequency is coarse if its table factor is at least LEAST_COARSE_FACTOR.
LEAST_COARSE_FACTOR = 0.27
LEAST_COARSE_FREQUENCIES = 7

# Frequencies at which nearly all coefficients are 0 count as coarse if at least LEAST_KNOWN_FREQUENCIES other
# frequencies have a table factor of at least LEAST_FACTOR_OF_ZEROS, which is the case at qualities below 13.
# Three frequencies with such factors also occur in pictures of gradients.
LEAST_FACTOR_OF_ZEROS, LEAST_KNOWN_FREQUENCIES = 4.0, 4
