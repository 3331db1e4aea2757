"""Constants of tree fields that were tuned, and what each trades."""

from math import inf

# Pixels that a round looks at where parts of images suffice. More of them take time in proportion, fewer leave leaves
# to chance; held-out losses of benchmarks/quality fall little beyond this.
PIXELS_OF_ROUND = 100_000

# Fewest nodes for early stopping, by the axes of lattices: with fewer, what is held out is missed in training. Rows of
# tables are too few of their kind to spare any.
LEAST_TO_HOLD_OUT = inf, 2_000, 20_000, 20_000

# Shrinkage of leaves towards their parents, as a share of the factors of a round. More of it lets deep trees learn
# little, less lets them overfit.
SHRINKAGE = 0.05

# Values of y for each parameter of the deepest leaves, and the most splits, where whole examples are trained on: deeper
# trees overfit, and take longer.
VALUES_OF_PARAMETER, DEEPEST = 6, 5

# Rounds in a row that do not lower the loss of what is held out, after which there are no more. One may be by chance,
# each further one costs a round.
PATIENCE = 2

# Least share of the last round in the mean of rounds that look at other pixels each, or at another corruption, and
# pixels of a round that counts as one half at least. What a round of few pixels finds is also about these, so that
# held-out losses would go up and down more than trees lower them; rounds of many pixels agree by themselves.
LEAST_SHARE_OF_ROUND, PIXELS_OF_HALF = 0.3, 200_000

# Least noise of an image, as a share of the level that a field was trained for. A smaller share would make contrasts
# larger in the units of training, where less noise can hardly be told from detail.
LEAST_NOISE = 0.02

# Side of the squares of an image whose noise is estimated apart, the share of the squares that are taken to be smooth,
# what estimates at that quantile are of the noise where it is all there is, and fewest squares for it. Smaller squares
# and shares take chance for smoothness, larger ones take detail for noise: of BSD68 with noise of 5 they give 6.2 on
# average, all detail at once 7.5.
SMOOTH_SQUARE, SHARE_OF_SQUARES, BIAS_OF_SQUARES, LEAST_SQUARES_OF_NOISE = 32, 0.1, 0.945, 20

# Images that filters are learned from: filters of more images are hardly better, and take longer to learn.
IMAGES_OF_BANK = 20

# Share of its precision that the regression a field starts from counts with, as it sees the same pixels as the
# observation, and fewest samples for each of its inputs: with fewer it would start from noise.
TRUST_IN_REGRESSION, SAMPLES_OF_INPUT = 0.5, 10

# Most pixels that are held out for early stopping: they are looked at in every round.
PIXELS_HELD_OUT = 100_000

# Share of the columns that is held out where there are too few images, and least width for that: a narrower strip would
# say little of what is not seen.
STRIP_HELD_OUT, NARROW = 0.15, 32

# Shortest side of rectangles, and shortest edge of boxes, as long as a round can look at fewer images instead. Filters
# of small ones mostly work on their surroundings, large ones are of few places.
SHORTEST_SIDE, SHORTEST_EDGE = 64, 24

# Draws of a round's rectangles until one has a known target: what is labelled in so few places needs whole images.
MOST_DRAWS = 100

# Least number of squares of an image, and bounds of their sides: small squares are spread better, large ones have
# smaller margins in relation.
SQUARES_OF_IMAGE, LEAST_SQUARE, LARGEST_SQUARE = 4, 4, 32

# Pixels that the whitening is estimated from, and factors that the moments of leaves are: more take longer, fewer leave
# directions whose curvature is far from one, and more iterations.
SAMPLES_OF_WHITENING, SAMPLES_OF_MOMENTS = 50_000, 100_000

# Variance, as a share of the largest, below which directions are not scaled up to variance one: they are rounding.
LEAST_VARIANCE = 1e-6

# Factors that are summed over at once: fewer are more calls, more do not fit into caches.
FACTORS_OF_PIECE = 8192

# Share of the moments of all leaves in those of one leaf: with less a direction may be flat, more levels all leaves.
COMMON_SHARE = 0.05

# Length of the finite difference that measures curvature, in units of whitened weights, and fewest random signs in the
# estimate of the mean curvature of a type. Shorter steps lose digits of float32, more signs cost evaluations.
STEP_OF_CURVATURE, SIGNS_OF_CURVATURE = 0.05, 64

# Fewest factors of a leaf for each weight of a value's linear model: leaves of fewer overfit.
SAMPLES_OF_WEIGHT = 10

# Factors of a leaf that thresholds are quantiles of, at least. Ranks among many factors are nearly those among some of
# them, at a tenth of the time.
LEAST_RANKED = 2048

# Tree of errors: tests to choose from, thresholds tried for each, and largest offset; most pixels of an image that it
# is grown on, most of its leaves, and their least share of the pixels. Fewer pixels in a leaf make its deviation a
# matter of chance.
TESTS_OF_ERRORS, THRESHOLDS_OF_ERRORS, RADIUS_OF_ERRORS = 128, 15, 2
PIXELS_OF_ERRORS, LEAVES_OF_ERRORS, LEAST_SHARE_OF_ERRORS = 5000, 32, 0.01

# Pixels for which predictions are compared with the mean of y, and times by which their errors have to be larger for a
# warning: where X says nothing of y, they differ by chance.
PIXELS_TO_CHECK, CLEARLY_WORSE = 10_000, 1.1

# Values of an image for which a kernel solves both systems before it can be interrupted.
VALUES_OF_ONE_CALL = 2**16

# Pixels of images that are evaluated as one: calls for some thousands of pixels take as long as their work, and there
# are still tasks for several threads.
PIXELS_OF_STACK = 8192

# Partial sums, whatever the number of threads: more where they are short, so that no thread waits long for the other.
# Each takes the room of a gradient.
LEAST_GROUPS, MOST_GROUPS, NUMBERS_OF_GROUPS = 16, 64, 2**20

# Values of a field up to which its covariance is computed by factorisation: at this many the inverse takes 130
# megabytes and seconds. Larger fields are sampled, and have no exact likelihood.
MOST_DENSE_VALUES = 4096

# Fewest pixels, and fewest responses to tests, that are worth another thread.
PIXELS_OF_THREAD, RESPONSES_OF_THREAD = 4096, 2**15

# Planes of more pixels are solved in tiles: channels and edges of this many take some hundred megabytes.
PIXELS_OF_TILES = 2**20

# Most values of the mean of a tiled image that are kept in memory; more of them go to a temporary file.
VALUES_IN_MEMORY = 2**24

# Pixels that are brought into the units of targets at once, as float64 takes room.
PIXELS_IN_DOUBLES = 2**18

# Precision of a known value, for values of variance one: well above that of any field with eigenvalues within the
# bounds, and far from the limits of float32.
PRECISION_OF_KNOWN = 1e4

# Standard deviation of the first Gaussian for filling gaps, ratio of the following ones, and least share of its mass
# that must lie on known pixels: less mass takes values from farther away, more needs more Gaussians.
GAP_SCALES, LEAST_MASS = (0.7, 1.6), 0.05

# Most steps of conjugate gradients for a thin plate, and share of the first residual at which they end. What is far
# from known pixels would take many more, and stays what it was filled with.
PLATE_STEPS, PLATE_TOL = 30, 1e-3

# Standard deviation, in pixels, of the Gaussian that counts known pixels around a pixel.
NEAR = 1.0

# Images that a corruption is tried on, to find the channels that it leaves gaps in, and the range of the others.
IMAGES_TRIED = 8

# How far values of resampled images may lie outside of 0 to 255: more would let other ranges pass for bytes.
OVERSHOOT = 64

# Values of each channel that its units and its range are estimated from, and fewest of an image.
VALUES_OF_CHANNEL, LEAST_VALUES_OF_IMAGE = 2**14, 64

# A predicted image is far outside where all but a few, or half, of its values are beyond the range of fit by so many of
# its widths; it has another unit where all but a few values are closer to 0 than this share of the width. Stricter
# limits would refuse dark and bright images.
WIDTHS_OUTSIDE, SHARE_OF_RANGE, QUANTILE_OF_RANGE = (1, 4), 0.01, 0.95

# A field for one level of noise says so where an image seems to have so many times more or less of it. Estimates are
# off by some percent, and by more where images are all texture; within this factor a field loses about 1 dB.
FAR_FROM_TRAINED = 2.0

# Level of a channel, as a multiple of its spread, above which it is centred: float32 has 24 binary digits, and the
# level would take more than a quarter of them. Where it may not be centred, a level above the second number is an
# error.
LARGEST_LEVEL, LEVEL_LOST = 2.0**6, 2.0**20

# Binary digits between usual values of a channel and one within which it keeps its unit: fourth powers, and sums of
# these, then lie within the range of float32.
MOST_DOUBLINGS = 24

# Usual values of images are brought near those of bytes, from 16 to 256, by a power of two: trees compare images with
# what filters make of them in other units, and should find the same in images of any range. Where float32 does not hold
# a unit, it is left for one that differs by a power of ten, as units do: numbers are then nearly the same in all.
LEAST_DOUBLINGS, DOUBLINGS, TOP = 5, 4, 256.0

# Largest values, as multiples of usual ones or in their unit, whose squares can be summed in float32.
LARGEST_VALUE = 2.0**48

# Share of the largest weight of a class that a class of weight 0 has in decisions: it is predicted where no other is
# possible.
LEAST_WEIGHT = 1e-12

# Relative difference of sums of weights that are added in another order.
ROUNDING = 1e-6

# Largest offset of tests of saved trees, in pixels: sums with rows and columns stay far from the largest integer.
LARGEST_OFFSET = 2**24
