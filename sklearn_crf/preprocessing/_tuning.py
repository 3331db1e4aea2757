"""Tuned constants of the transformers, with the trade-off behind each constant."""

# Minimum number of image rows per thread: for filters and averages, for shrinking patches, and for groups of patches.
# Patches and groups need longer ranges of rows, because patches at the border between two ranges are computed twice.
FILTERED_ROWS, SHRUNK_ROWS, GROUPED_ROWS = 16, 64, 128

# Side, in pixels, of the tiles in which images are filtered by the Fourier transform.
# Larger tiles take more memory; for smaller tiles, a larger fraction of the pixels are borders that are filtered twice.
TILE_SIDE = 272

# Multiples of the noise level: threshold of the guide, bandwidth of patch averages, noise in the shrinkage of groups.
# Larger multiples blur images, and smaller multiples leave noise.
GUIDE_THRESHOLD, AVERAGED_BANDWIDTH, SHRUNK_BY = 2.7, 0.9, 0.8

# Number of image rows whose windows adaptive filters hold in memory together.
BAND_ROWS = 64

# Standard deviation and radius, in pixels, of the Gaussian window over which gradients are averaged.
# A wider window distinguishes structures more reliably, but blurs the ends of structures.
SMOOTHED, SMOOTHED_REACH = 1.5, 6

# Strength, in units of pixels, with which the filters of positions are pulled towards the mean of the window.
# Without this pull, systems of equations with few pixels might have no unique solution.
PULL_OF_PLACE = 1e-3

# Number of pixels from which thresholds of strength and coherence are estimated.
# More pixels take more time, but hardly change the thresholds.
QUANTILE_PIXELS = 200_000

# Images with more features than this are assumed to have descriptors, which are not appended by default.
# Each appended feature would need weights for nodes and weights for edges.
FEW_FEATURES = 32

# If there are fewer examples than folds, each example is cut into this number of runs of nodes per fold.
# With more runs, folds mix classes better, but more held-out nodes have neighbours in training.
RUNS_PER_FOLD = 2

# Number of nodes that are transformed per call. More nodes copy more of X at once; fewer nodes need more calls.
NODES_AT_ONCE = 2**17

# Minimum contrast of patches and windows, relative to the contrast of all images. Flatter patches match anywhere.
LEAST_CONTRAST = 0.05

# Maximum number of patches to draw for each requested patch. If too few are accepted, fewer patches are used.
MOST_DRAWN = 50

# Number of patches whose spectra are in memory together.
SPECTRA_AT_ONCE = 32

# Thresholds of the default filter bank, as multiples of the noise level. Each threshold adds one channel.
# If the 90 % quantile of image noise exceeds NOISE_SPREAD times the 10 % quantile, N_THRESHOLDS thresholds are used.
# They range from THRESHOLDS[0] times the lower quantile to THRESHOLDS[-1] times the higher quantile.
THRESHOLDS, NOISE_SPREAD, N_THRESHOLDS = (1.8, 2.7, 3.5), 1.5, 6

# Limits of magnitudes for kernels that compute in float32. The squared coefficients of groups of patches overflow for
# pixels of magnitude 1e18, and the squares of bandwidths and of noise levels below 1e-19 underflow.
LARGEST_PIXEL, SMALLEST_BANDWIDTH = 1e15, 1e-18
SMALLEST_NOISE = SMALLEST_BANDWIDTH / AVERAGED_BANDWIDTH
