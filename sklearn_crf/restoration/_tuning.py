"""Tuned constants of restoration, with the trade-off behind each constant."""

# Minimum assumed noise level, for values from 0 to 255, in deblurring and enlargement.
# With a lower noise level, rounding and model errors cause ripples.
LEAST_NOISE = 0.5

# Detection of noise whose variance grows with brightness. LEAST_SQUARES: number of squares of pixels that are needed.
# SMOOTH_SHARE: fraction of squares that are assumed to be smooth. LOSS_OF_GROWTH: growth is assumed if the loss of a
# growing variance is at most this fraction of the loss of a constant variance. On BSD68 the fraction is at least 0.84
# for white noise of levels 2 to 50, and 0.16 to 0.86 for shot noise. An undetected growth costs more than a wrongly
# assumed growth.
LEAST_SQUARES = 40
SMOOTH_SHARE = 0.1
LOSS_OF_GROWTH = 0.8

# Fraction of the frequencies from which the noise of a blurred image is estimated: the frequencies that the blur
# reduces most.
# A larger fraction includes detail of the image (benchmarks/quality/restore.py).
# A smaller fraction makes the estimate inaccurate.
BLURRED_AWAY = 0.1

# Influence functions of learned filters are sums of this number of Gaussians.
# REACH: response, in standard deviations of the noise, beyond which influence functions are constant.
# INTERVALS: number of linear intervals between two Gaussians.
# On held-out crops 31 Gaussians lose 0.02 dB, and 31 Gaussians with a reach of 10 lose 0.05 dB.
# The losses are from benchmarks/quality/learned_filters.py --held-out --iterations 600.
GAUSSIANS = 47
REACH = 6.0
INTERVALS = 4

# The initial influence function is c v exp(-v^2 / (2 s^2)), with s = FIRST_WIDTH and c = FIRST_SHARE / n_stages.
# All stages together then remove most of the white noise.
FIRST_WIDTH = 2.0
FIRST_SHARE = 1.5

# Training: number of rows and columns of a crop, and number of crops of a step (BATCH).
# BLOCK: block size of JPEG, because corners of crops lie at corners of blocks.
# MARGIN: number of pixels at the border of a crop that do not count, because mirrored noise is not white noise.
CROP = 64
BLOCK = 8
BATCH = 8
MARGIN = 4

# Unit of images that JPEG compressed with a range of qualities, as a multiple of the factor of its tables.
# UNIT_OF_TABLES is the root mean square error of photographs at a quality of 10.
# LEAST_FACTOR is the factor at which all entries of the tables are one.
UNIT_OF_TABLES = 1.8
LEAST_FACTOR = 0.06

# Adam: the initial step size, for filters of norm one, and the decay rates of the averages.
# Initial step sizes of 0.03 to 0.1 differ by hundredths of a decibel on held-out crops, and 0.01 loses 0.06 dB.
FIRST_STEP = 0.05
MOMENTS = 0.9, 0.999

# Number of crops of held-out images, and number of times their loss is computed during training.
HELD_OUT_CROPS = 24
LOOKS = 20

# Smallest number of images of which some are held out; largest number of images that determine the unit.
LEAST_IMAGES = 5
IMAGES_OF_UNIT = 16
