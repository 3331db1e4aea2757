"""Tuned constants of the transformers, with the trade-off behind each constant."""

# Minimum number of image rows per thread. Filters and averages can share short ranges. The minimum is larger for
# patches and groups, because those at the border between two ranges are computed twice.
FILTERED_ROWS, SHRUNK_ROWS, GROUPED_ROWS = 16, 64, 128

# Side of the tiles in which images are filtered by the Fourier transform. Larger tiles take more memory, smaller tiles
# repeat more of the borders.
TILE_SIDE = 272

# In multiples of the noise: threshold of the guide and bandwidth of averages over similar patches, and the noise level
# for the shrinkage of groups. Larger numbers blur, smaller numbers leave noise.
GUIDE_THRESHOLD, AVERAGED_BANDWIDTH, SHRUNK_BY = 2.7, 0.9, 0.8

# Number of image rows whose windows adaptive filters hold in memory together.
BAND_ROWS = 64

# Standard deviation of the Gaussian window over which gradients are averaged, and its radius in pixels. A wider window
# distinguishes structures more reliably, but blurs their ends.
SMOOTHED, SMOOTHED_REACH = 1.5, 6

# Pull of the filters of a position towards the mean of the window, in units of pixels. It keeps systems with few
# pixels solvable.
PULL_OF_PLACE = 1e-3

# Number of pixels from which thresholds of strength and coherence are estimated. More take time and change them little.
QUANTILE_PIXELS = 200_000

# Images with more features than this are assumed to have descriptors: each would be a weight of nodes and of edges.
FEW_FEATURES = 32

# Number of runs of nodes per fold into which an example is cut if there are fewer examples than folds. More runs mix
# classes better, and have more neighbours in training.
RUNS_PER_FOLD = 2

# Number of nodes transformed per call: enough to make the cost of a call negligible, without doubling a large X.
NODES_AT_ONCE = 2**17

# Smallest contrast of patches and windows, as a fraction of the contrast of all images: flatter ones match anywhere.
LEAST_CONTRAST = 0.05

# Maximum number of patches drawn per requested patch, after which fewer patches are used.
MOST_DRAWN = 50

# Number of patches whose spectra are in memory together.
SPECTRA_AT_ONCE = 32

# Thresholds of the default filter bank in multiples of the noise of the inputs. If the 90 % quantile of the noise of
# images exceeds the 10 % quantile by more than the factor NOISE_SPREAD, N_THRESHOLDS thresholds are used, from the
# smallest multiple of the lower quantile to the largest multiple of the higher one. Each threshold is a channel.
THRESHOLDS, NOISE_SPREAD, N_THRESHOLDS = (1.8, 2.7, 3.5), 1.5, 6
