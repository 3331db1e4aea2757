"""Tuned constants of restoration, with the trade-off behind each constant."""

# Minimum assumed noise level, for values from 0 to 255, in deblurring and enlargement.
# With a lower noise level, rounding and model errors cause ripples.
LEAST_NOISE = 0.5

# Detection of noise whose variance grows with brightness:
# LEAST_SQUARES: minimum number of squares of pixels.
# SMOOTH_SHARE: fraction of squares that are assumed to be smooth.
# LOSS_OF_GROWTH: maximum ratio of two losses for which growth is assumed.
# The ratio is the loss of a growing variance, divided by the loss of a constant variance.
# On BSD68, the ratio is at least 0.84 for white noise of levels 2 to 50, and 0.16 to 0.86 for shot noise.
# Undetected growth costs more than wrongly assumed growth.
LEAST_SQUARES = 40
SMOOTH_SHARE = 0.1
LOSS_OF_GROWTH = 0.8

# The noise of a blurred image is estimated from the frequencies that the blur reduces most: this fraction of all.
# A larger fraction includes detail of the image (benchmarks/quality/restore.py).
# A smaller fraction makes the estimate inaccurate.
BLURRED_AWAY = 0.1

# GAUSSIANS: number of Gaussians whose weighted sum is an influence function of learned filters.
# REACH: response, in standard deviations of the noise, beyond which influence functions are constant.
# INTERVALS: number of linear intervals between two Gaussians.
# On held-out crops, 31 Gaussians lose 0.02 dB; with a reach of 10, they lose 0.05 dB.
# Measured by benchmarks/quality/learned_filters.py --held-out --iterations 600.
GAUSSIANS = 47
REACH = 6.0
INTERVALS = 4

# The initial influence function is c v exp(-v^2 / (2 s^2)), with s = FIRST_WIDTH and c = FIRST_SHARE / n_stages.
# All stages together then remove most of the white noise.
FIRST_WIDTH = 2.0
FIRST_SHARE = 1.5

# CROP: number of rows and columns of a training crop.
# BATCH: number of crops in each training step.
# BLOCK: block size of JPEG; corners of crops lie at corners of blocks.
# MARGIN: number of pixels at the border of a crop that do not count, because mirrored noise is not white noise.
CROP = 64
BLOCK = 8
BATCH = 8
MARGIN = 4

# For training on a range of JPEG qualities, the unit of an image is UNIT_OF_TABLES times the factor of its tables.
# UNIT_OF_TABLES is the root mean square error of photographs at a quality of 10.
# LEAST_FACTOR is the factor of tables whose entries are all 1.
UNIT_OF_TABLES = 1.8
LEAST_FACTOR = 0.06

# FIRST_STEP: initial step size of Adam, for filters of norm one.
# MOMENTS: decay rates of Adam's averages.
# On held-out crops, results with initial steps of 0.03 to 0.1 differ by hundredths of a decibel; 0.01 loses 0.06 dB.
FIRST_STEP = 0.05
MOMENTS = 0.9, 0.999

# HELD_OUT_CROPS: number of crops of held-out images.
# LOOKS: number of times that the loss of these crops is computed during training.
HELD_OUT_CROPS = 24
LOOKS = 20

# LEAST_IMAGES: minimum number of training images for holding out images.
# IMAGES_OF_UNIT: maximum number of images that determine the unit.
LEAST_IMAGES = 5
IMAGES_OF_UNIT = 16

# X and y have different units if their mean squared difference is more than LARGEST_EXCESS times their variances, and
# times the mean squared errors of lines from y to X and from X to y.
# Equal units with noise or blur give a ratio of about 1.
# Bytes as X and fractions of 255 as y give at least 2 up to noise of standard deviation 80.
LARGEST_EXCESS = 2.0
