"""Constants of restoration that were tuned, and what each trades."""

# Least noise of observations that are blurred or small, in bytes: with less, rounding and what the field knows no
# reason for come out as ripples.
LEAST_NOISE = 0.5

# Share of the frequencies that a blur leaves least of, by which noise is estimated. Of more, detail is left; of less,
# the estimate is by chance (benchmarks/quality/restore.py).
BLURRED_AWAY = 0.1

# Influences of learned filters: Gaussians over responses of up to so many deviations of the noise, beyond which they
# are constant, and intervals of linear interpolation between two Gaussians. 31 Gaussians lose .02 dB on held-out crops,
# a reach of 10 with them .05 (benchmarks/quality/learned_filters.py --held-out --iterations 600).
GAUSSIANS = 47
REACH = 6.0
INTERVALS = 4

# The first influences, v exp(-v^2 / (2 s^2)) times a share of the stages: all stages together then take away most of
# what white noise adds.
FIRST_WIDTH = 2.0
FIRST_SHARE = 1.5

# Training: rows and columns of crops, at a distance of which corners lie at multiples of a block of JPEG; crops of a
# step; pixels at their border that do not count, since mirror images of noise are not noise.
CROP = 64
BLOCK = 8
BATCH = 8
MARGIN = 4

# Adam: the first step in units in which filters have norm one, and decay of the averages. Steps decrease to 0 as a
# cosine does. First steps of .03 to .1 differ by hundredths of a decibel on held-out crops, .01 loses .06.
FIRST_STEP = 0.05
MOMENTS = 0.9, 0.999

# Crops of images that are held out, and how many times the loss on them is looked at.
HELD_OUT_CROPS = 24
LOOKS = 20

# Fewest images of which some are held out, and most images whose errors the unit is found by.
LEAST_IMAGES = 5
IMAGES_OF_UNIT = 16
