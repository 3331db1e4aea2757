"""Constants of the transformers that were tuned, and what each trades."""

# Fewest rows of an image for a thread. Filters and averages share short ranges; the patches at a border are transformed
# twice, and its groups are made twice, so that theirs are longer.
FILTERED_ROWS, SHRUNK_ROWS, GROUPED_ROWS = 16, 64, 128

# Side of the tiles that images are filtered in by the Fourier transform: larger ones take more memory, smaller ones
# repeat more of the borders.
TILE_SIDE = 272

# In multiples of the noise: threshold of the guide and bandwidth of averages over similar patches, and noise that the
# coefficients of groups are shrunk by. Larger ones blur, smaller ones leave noise.
GUIDE_THRESHOLD, AVERAGED_BANDWIDTH, SHRUNK_BY = 2.7, 0.9, 0.8

# Rows of an image whose windows adaptive filters hold in memory together.
BAND_ROWS = 64

# Standard deviation of the window over which gradients are averaged, and rows beyond it that have a weight. A wider one
# tells structures apart more surely, and blurs where they end.
SMOOTHED, SMOOTHED_REACH = 1.5, 6

# Pull of the filters of a place to the mean of the window, as strong as this many pixels, which keeps systems of few
# pixels solvable.
PULL_OF_PLACE = 1e-3

# Pixels of all images that thresholds of strength and coherence are quantiles of: more take time, and move them little.
QUANTILE_PIXELS = 200_000

# Images with more features than this are descriptors, not channels: each would be a weight of nodes and of edges.
FEW_FEATURES = 32

# Runs of nodes that an example is cut into for each fold where there are fewer examples than folds: more of them mix
# classes better, and have more neighbours in training.
RUNS_PER_FOLD = 2

# Nodes transformed at once: enough for the cost of a call not to matter, and few enough not to double a large X.
NODES_AT_ONCE = 2**17

# Patches and windows with less contrast than this part of the contrast of all images fit anywhere.
LEAST_CONTRAST = 0.05

# Patches that are drawn for each that is wanted, before fewer are taken.
MOST_DRAWN = 50

# Patches whose spectra are in memory together.
SPECTRA_AT_ONCE = 32

# Thresholds of the default filter bank in multiples of the noise of the inputs. Where the noise of nine in ten images
# is more than a spread above that of one in ten, so many thresholds go from the least multiple of the one to the
# largest of the other. Each threshold is a channel.
THRESHOLDS, NOISE_SPREAD, N_THRESHOLDS = (1.8, 2.7, 3.5), 1.5, 6
